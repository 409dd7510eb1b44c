"""Loss, gradient, optimum and gradient-descent path, against finite differences, iteration and known numbers."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topicscope.errors import InputError
from topicscope.settings.data import Data, Masking
from topicscope.settings.training import Average
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.finite_documents import (
    Moments,
    embedding_loss,
    finite_optimum,
    gradient_descent,
    gradient_descent_with_bias,
    infinite_moments,
    moments,
    optimum_with_bias,
    population_gradient,
    population_loss,
    ridge_path,
)
from topicscope.theory.theorem2 import theorem2

PAPER = moments(TopicModel.from_settings(Data()), Masking())


@st.composite
def small_cases(draw: st.DrawFn) -> dict[str, Any]:
    """Topics, words, Dirichlet, lengths, masking, λ; and whether documents are infinite (S singular)."""
    topics, shortest = draw(st.integers(1, 4)), draw(st.integers(1, 30))
    keep = draw(st.floats(0, 0.5))
    return {
        "data": {
            "topics": topics,
            "words": draw(st.integers(1, 4)),
            "dirichlet": tuple(draw(st.lists(st.floats(0.05, 2), min_size=topics, max_size=topics))),
            "length": (shortest, shortest + draw(st.integers(0, 20))),
        },
        "masking": {"mask": draw(st.floats(0.05, 0.9)), "keep": keep, "random": draw(st.floats(0, 0.5))},
        "ridge": draw(st.sampled_from([0.0, 1e-3, 0.1])),
        "average": draw(st.sampled_from(["document", "batch"])),
        "infinite": draw(st.booleans()),
        "seed": draw(st.integers(0, 2**32 - 1)),
    }


def population_of(case: dict[str, Any]) -> Moments:
    model, masking = TopicModel.from_settings(Data(**case["data"])), Masking(**case["masking"])
    return infinite_moments(model, masking) if case["infinite"] else moments(model, masking, case["average"])


def drawn_matrix(population: Moments, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return random.normal(size=(population.vocabulary,) * 2), random.normal(size=population.vocabulary)


def check_trajectory_equals_iterated_steps(case: dict[str, Any], steps: int) -> None:
    population, ridge, rate = population_of(case), case["ridge"], 0.3
    start, bias = drawn_matrix(population, case["seed"])
    stepped, both, moving = start.copy(), start.copy(), bias.copy()
    for _ in range(steps):
        stepped = stepped - rate * population_gradient(stepped, population, bias, ridge)
        slope = population_gradient(both, population, moving, ridge)
        bias_slope = 2 * (both @ population.mean - population.label + (1 + ridge) * moving)
        both, moving = both - rate * slope, moving - rate * bias_slope
    np.testing.assert_allclose(gradient_descent(start, population, rate, steps, ridge, bias), stepped, atol=1e-10)
    found, found_bias = gradient_descent_with_bias(start, bias, population, rate, steps, ridge, ridge)
    np.testing.assert_allclose(found, both, atol=1e-10)
    np.testing.assert_allclose(found_bias, moving, atol=1e-10)
    without_bias = gradient_descent(start, population, rate, steps, ridge)
    assert abs(without_bias - stepped).max() > 1e-4


@settings(derandomize=True, deadline=None, max_examples=25)
@given(small_cases(), st.integers(1, 40))
def test_the_gradient_descent_path_equals_iterated_steps(case: dict[str, Any], steps: int) -> None:
    check_trajectory_equals_iterated_steps(case, steps)


@pytest.mark.slow
@settings(derandomize=True, deadline=None, max_examples=300)
@given(small_cases(), st.integers(1, 150))
def test_the_gradient_descent_path_equals_iterated_steps_over_many_settings(case: dict[str, Any], steps: int) -> None:
    check_trajectory_equals_iterated_steps(case, steps)


def check_gradient_and_optimum(case: dict[str, Any]) -> None:
    population, ridge = population_of(case), case["ridge"]
    matrix, bias = drawn_matrix(population, case["seed"])
    direction = drawn_matrix(population, case["seed"] + 1)[0]
    # The loss is quadratic, so central differences are exact at any step.
    ends = [population_loss(matrix + sign * direction, population, bias, ridge) for sign in (1, -1)]
    slope = np.vdot(direction, population_gradient(matrix, population, bias, ridge))
    assert (ends[0] - ends[1]) / 2 == pytest.approx(slope, abs=1e-9)
    best = finite_optimum(population, ridge, bias)
    np.testing.assert_allclose(population_gradient(best, population, bias, ridge), 0, atol=1e-9)
    least = population_loss(best, population, bias, ridge)
    curvature = np.vdot(direction @ population.second, direction) + ridge * np.vdot(direction, direction)
    assert population_loss(best + direction, population, bias, ridge) - least == pytest.approx(curvature, abs=1e-8)
    assert curvature > 1e-6


@settings(derandomize=True, deadline=None, max_examples=30)
@given(small_cases())
def test_gradient_and_optimum_of_the_population_loss(case: dict[str, Any]) -> None:
    check_gradient_and_optimum(case)


@pytest.mark.slow
@settings(derandomize=True, deadline=None, max_examples=300)
@given(small_cases())
def test_gradient_and_optimum_of_the_population_loss_over_many_settings(case: dict[str, Any]) -> None:
    check_gradient_and_optimum(case)


@settings(derandomize=True, deadline=None, max_examples=30)
@given(small_cases(), st.sampled_from([0.0, 0.05]))
def test_the_optimum_with_a_trained_bias_is_stationary_in_both(case: dict[str, Any], bias_ridge: float) -> None:
    population, ridge = population_of(case), case["ridge"]
    matrix, bias = optimum_with_bias(population, ridge, bias_ridge)
    np.testing.assert_allclose(population_gradient(matrix, population, bias, ridge), 0, atol=1e-9)
    np.testing.assert_allclose(matrix @ population.mean + (1 + bias_ridge) * bias, population.label, atol=1e-9)
    wrong = population_gradient(matrix, population, bias + 0.1, ridge)
    assert abs(wrong).max() > 1e-3


@settings(derandomize=True, deadline=None, max_examples=20)
@given(small_cases())
def test_a_bias_is_the_same_as_a_constant_added_to_its_row(case: dict[str, Any]) -> None:
    population = population_of(case)
    matrix, bias = drawn_matrix(population, case["seed"])
    with_bias = population_loss(matrix, population, bias)
    assert with_bias == pytest.approx(population_loss(matrix + bias[:, None], population), abs=1e-9)
    assert with_bias != pytest.approx(population_loss(matrix - bias[:, None], population), abs=1e-6)
    # So a trained bias cannot lower the loss.
    free, own = optimum_with_bias(population)
    least = population_loss(finite_optimum(population), population)
    assert population_loss(free, population, own) == pytest.approx(least, abs=1e-9)


@pytest.mark.parametrize(
    ("average", "mask_column", "same_word", "same_topic", "different_topic"),
    [("document", 0.0100000, 0.2152863, 0.1016500, -0.0014460), ("batch", 0.01, 0.2166704, 0.1023171, -0.0015280)],
)
def test_the_finite_optimum_of_the_papers_setting(
    average: Average, mask_column: float, same_word: float, same_topic: float, different_topic: float
) -> None:
    optimum = finite_optimum(moments(TopicModel.from_settings(Data()), Masking(), average))
    found = [optimum[1, 0], optimum[1, 1], optimum[1, 2], optimum[1, 11]]
    np.testing.assert_allclose(found, [mask_column, same_word, same_topic, different_topic], atol=5e-8)


def test_mixing_the_two_averages_moves_the_mask_column_by_a_factor_of_six() -> None:
    batch = moments(TopicModel.from_settings(Data()), Masking(), "batch")
    mixed = finite_optimum(Moments(PAPER.second, batch.cross, PAPER.mean, PAPER.label))
    assert mixed[1, 0] / finite_optimum(PAPER)[1, 0] == pytest.approx(6, rel=0.1)


def test_the_finite_losses_of_the_papers_setting() -> None:
    assert population_loss(finite_optimum(PAPER), PAPER) == pytest.approx(0.94532184, abs=5e-9)
    assert population_loss(theorem2(10, 10, Masking()), PAPER) == pytest.approx(0.94562537, abs=5e-9)


def test_a_small_ridge_already_moves_the_finite_optimum_far() -> None:
    assert ridge_path(PAPER, np.array([1e-4]))[0][1, 1] == pytest.approx(0.152, abs=5e-4)


@pytest.mark.parametrize(
    ("rate", "steps", "said"), [(0.0, 3, "rate = 0.0"), (-1.0, 3, "rate"), (0.1, -1, "steps = -1")]
)
def test_a_descent_that_is_none_is_refused(rate: float, steps: int, said: str) -> None:
    population = moments(TopicModel.from_settings(Data(topics=2, words=1, length=(2, 3))), Masking())
    start, bias = np.eye(3), np.zeros(3)
    with pytest.raises(InputError, match=said):
        gradient_descent(start, population, rate, steps)
    with pytest.raises(InputError, match=said):
        gradient_descent_with_bias(start, bias, population, rate, steps)
    np.testing.assert_allclose(gradient_descent(start, population, 0.1, 0), start, atol=1e-14)


def test_gradient_descent_at_the_papers_rate_is_far_from_its_end_after_1500_steps() -> None:
    reached = gradient_descent(np.zeros((101, 101)), PAPER, rate=0.01, steps=1500)
    assert reached[1, 2] == pytest.approx(0.013, abs=5e-4)
    end = gradient_descent(np.zeros((101, 101)), PAPER, rate=0.5, steps=10_000_000)
    np.testing.assert_allclose(end, finite_optimum(PAPER), atol=1e-10)


def test_the_loss_of_eq_6_is_that_of_its_product() -> None:
    random = np.random.default_rng(0)
    embedding, value = random.normal(size=(7, 101)), random.normal(size=(7, 7))
    product = embedding.T @ value @ embedding
    assert embedding_loss(embedding, PAPER, value=value) == pytest.approx(population_loss(product, PAPER))
    assert embedding_loss(embedding, PAPER) == pytest.approx(population_loss(embedding.T @ embedding, PAPER))
    assert embedding_loss(embedding, PAPER, value=value) != pytest.approx(population_loss(product.T, PAPER))


def test_a_negative_ridge_is_refused() -> None:
    for call in (
        lambda: finite_optimum(PAPER, -1.0),
        lambda: optimum_with_bias(PAPER, -1.0),
        lambda: gradient_descent(np.zeros((101, 101)), PAPER, 0.1, 1, ridge=-1.0),
    ):
        with pytest.raises(InputError, match=r"ridge = -1.0"):
            call()


@pytest.mark.parametrize("average", ["document", "batch"])
def test_the_mask_column_of_the_finite_optimum_is_the_words_frequency(average: Average) -> None:
    equal = moments(TopicModel.from_settings(Data(topics=3, words=2, length=(2, 9))), Masking(random=0.3), average)
    np.testing.assert_allclose(finite_optimum(equal)[1:, 0], 1 / 6, atol=1e-12)
    unequal = TopicModel.from_settings(Data(topics=3, words=2, dirichlet=(0.1, 0.5, 0.9), length=(2, 9)))
    no_random = moments(unequal, Masking(random=0.0), average)
    np.testing.assert_allclose(finite_optimum(no_random)[:, 0], no_random.label, atol=1e-12)
    both = moments(unequal, Masking(random=0.3), average)
    assert abs(finite_optimum(both)[:, 0] - both.label).max() > 1e-5
