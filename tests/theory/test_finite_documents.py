"""Moments against enumeration and sampling; loss, optimum and descent path; the symmetric setting by classes."""

import dataclasses
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln

from support.theory import population_gradient
from topicscope.errors import InputError
from topicscope.randomness import Purpose, generator
from topicscope.settings.data import Data, Masking
from topicscope.settings.training import Average
from topicscope.synthetic.masking import expected_frequencies, mask_documents
from topicscope.synthetic.topics import TopicModel, sample_documents
from topicscope.theory.classes import ClassMatrix
from topicscope.theory.finite_documents import (
    Moments,
    class_loss,
    class_moments,
    class_optimum,
    embedding_loss,
    finite_optimum,
    flat_directions,
    gradient_descent,
    infinite_moments,
    infinite_topic_moments,
    moments,
    optimum_with_bias,
    population_loss,
)
from topicscope.theory.theorem2 import theorem2, theorem2_classes

ARRAYS = ("second", "cross", "mean", "label")


@st.composite
def maskings(draw: st.DrawFn) -> Masking:
    # What is smaller than this, but not zero, settings refuse.
    share = st.just(0.0) | st.floats(1e-6, 1)
    keep = draw(share)
    random = draw(share) * (1 - keep)
    return Masking(mask=draw(st.floats(0.05, 1)), keep=keep, random=random if random > 1e-9 else 0.0)


@st.composite
def tiny_models(draw: st.DrawFn) -> TopicModel:
    """Two or three topics over two or three words, overlapping and unequal, documents of up to three words."""
    topics, words = draw(st.integers(1, 3)), draw(st.integers(2, 3))
    weights = np.array(draw(st.lists(st.floats(0.05, 1), min_size=topics * words, max_size=topics * words)))
    rows = weights.reshape(topics, words)
    shortest = draw(st.integers(1, 2))
    return TopicModel(
        topic_words=rows / rows.sum(axis=1, keepdims=True),
        sampler=draw(st.sampled_from(["dirichlet", "topics"])),
        per_document=draw(st.integers(1, topics)),
        dirichlet=np.array(draw(st.lists(st.floats(0.05, 3), min_size=topics, max_size=topics))),
        length=(shortest, draw(st.integers(shortest, 3 if words == 2 else 2))),
    )


def topic_sequences(model: TopicModel, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Every sequence of topics and its probability: θ integrated out, document by document."""
    sequences = np.indices((model.topics,) * length).reshape(length, -1).T
    if model.sampler == "topics":
        sets = [set(chosen) for chosen in combinations(range(model.topics), model.per_document)]
        inside = np.array([[set(sequence) <= chosen for chosen in sets] for sequence in sequences.tolist()])
        return sequences, inside.mean(axis=1) / model.per_document**length
    counts = (sequences[:, :, None] == np.arange(model.topics)).sum(axis=1)
    a = model.dirichlet
    rising = (gammaln(a + counts) - gammaln(a)).sum(axis=1)
    return sequences, np.exp(rising - gammaln(a.sum() + length) + gammaln(a.sum()))


def enumerated(model: TopicModel, masking: Masking, average: Average) -> Moments:
    """Moments by listing all (word, masked or not, token seen) at every position, for every length."""
    words = model.vocabulary - 1
    # Fates of a position: not masked; masked and the token is [MASK] (0) or word 1 … W.
    total, sums = 0.0, dict.fromkeys(ARRAYS, 0.0)
    lengths = range(model.length[0], model.length[1] + 1)
    for n in lengths:
        word, fate = (part.reshape(n, -1).T for part in np.split(np.indices((words,) * n + (words + 2,) * n), 2))
        topics, chance = topic_sequences(model, n)
        emitted = np.array([model.topic_words[topics, sequence].prod(axis=1) @ chance for sequence in word])
        masked = fate > 0
        token = np.where(masked, fate - 1, word + 1)
        replaced = np.where(token == 0, masking.replaced, masking.random / words + masking.keep * (token == word + 1))
        probability = emitted * np.where(masked, masking.mask * replaced, 1 - masking.mask).prod(axis=1)
        some = masked.any(axis=1)
        probability = np.where(some, probability, 0.0) / probability[some].sum() / len(lengths)
        size = np.maximum(masked.sum(axis=1), 1)
        weight = probability * (size if average == "batch" else 1)
        seen = (token[:, :, None] == np.arange(words + 1)).mean(axis=1)
        label = ((word[:, :, None] + 1 == np.arange(words + 1)) * masked[:, :, None]).sum(axis=1) / size[:, None]
        total += weight.sum()
        sums["second"] += np.einsum("d,di,dj->ij", weight, seen, seen)
        sums["cross"] += np.einsum("d,di,dj->ij", weight, label, seen)
        sums["mean"] += weight @ seen
        sums["label"] += weight @ label
    return Moments(**{name: np.asarray(value) / total for name, value in sums.items()})


def check_moments_equal_enumeration(model: TopicModel, masking: Masking, average: Average) -> None:
    found, listed = moments(model, masking, average), enumerated(model, masking, average)
    for name in ARRAYS:
        np.testing.assert_allclose(getattr(found, name), getattr(listed, name), atol=1e-13)


@settings(derandomize=True, deadline=None, max_examples=25)
@given(tiny_models(), maskings(), st.sampled_from(["document", "batch"]))
def test_moments_equal_enumeration(model: TopicModel, masking: Masking, average: Average) -> None:
    check_moments_equal_enumeration(model, masking, average)


@pytest.mark.slow
@settings(derandomize=True, deadline=None, max_examples=300)
@given(tiny_models(), maskings(), st.sampled_from(["document", "batch"]))
def test_moments_equal_enumeration_over_many_settings(model: TopicModel, masking: Masking, average: Average) -> None:
    check_moments_equal_enumeration(model, masking, average)


def test_enumeration_tells_the_two_averages_apart() -> None:
    model = TopicModel.from_settings(Data(topics=2, words=1, length=(1, 3)))
    masking = Masking(mask=0.5)
    apart = abs(enumerated(model, masking, "batch").second - moments(model, masking, "document").second).max()
    assert apart > 1e-2


def sampled_statistics(
    model: TopicModel, masking: Masking, average: Average, documents: int, probes: np.ndarray, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard errors of x̃⊤Ax̃ and ȳ⊤Ax̃ over sampled documents, for each probe A."""
    random = generator(seed, Purpose.THEORY)
    drawn = sample_documents(model, documents, generator=random)
    seen = mask_documents(drawn, masking, model.vocabulary, generator=random)
    tokens = np.arange(model.vocabulary)
    count = np.zeros((documents, len(tokens)))
    np.add.at(count, (seen.document, seen.tokens), 1.0)
    label = np.zeros_like(count)
    np.add.at(label, (seen.document[seen.masked], seen.words[seen.masked]), 1.0)
    size = label.sum(axis=1, keepdims=True)
    x, y = count / count.sum(axis=1, keepdims=True), label / size
    values = np.column_stack([((side @ probe) * x).sum(axis=1) for side in (x, y) for probe in probes])
    weight = size / size.mean() if average == "batch" else np.ones_like(size)
    mean = (weight * values).mean(axis=0)
    # The ratio of two means: its error is that of the residuals weight · (value − mean).
    return mean, (weight * (values - mean)).std(axis=0) / np.sqrt(documents)


def exact_statistics(found: Moments, probes: np.ndarray) -> np.ndarray:
    return np.concatenate([np.einsum("pij,ij->p", probes, part) for part in (found.second, found.cross)])


def check_moments_agree_with_sampling(data: Data, masking: Masking, average: Average, documents: int) -> None:
    model = TopicModel.from_settings(data)
    random = np.random.default_rng(7)
    probes = random.normal(size=(6, model.vocabulary, model.vocabulary))
    probes[0, :, :] = np.eye(model.vocabulary)
    probes[1:3] = 0
    probes[1, :, 0] = probes[2, 0, 0] = 1
    mean, error = sampled_statistics(model, masking, average, documents, probes, seed=1)
    exact = exact_statistics(moments(model, masking, average), probes)
    # A statistic without variance is exact but for rounding.
    assert (abs(mean - exact) <= 5 * error + 1e-12).all()
    other: Average = "batch" if average == "document" else "document"
    assert (abs(mean - exact_statistics(moments(model, masking, other), probes)) > 5 * error + 1e-12).any()


@pytest.mark.parametrize("average", ["document", "batch"])
@pytest.mark.parametrize("sampler", ["dirichlet", "topics"])
def test_moments_agree_with_sampling(average: Average, sampler: str) -> None:
    data = Data(sampler=sampler, topics=4, words=3, dirichlet=(0.1, 0.2, 0.4, 0.8), length=(2, 12))  # type: ignore[arg-type]
    check_moments_agree_with_sampling(data, Masking(mask=0.2), average, documents=40_000)


@st.composite
def larger_settings(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments of ``Data``, not one: the type checker draws random numbers, which strategies may not."""
    topics, shortest = draw(st.integers(1, 12)), draw(st.integers(1, 60))
    many = draw(st.booleans())
    return {
        "sampler": draw(st.sampled_from(["dirichlet", "topics"])),
        "topics": topics,
        "words": draw(st.integers(1, 8)),
        "per_document": draw(st.integers(1, topics)),
        "dirichlet": tuple(draw(st.floats(0.05, 3)) for _ in range(topics if many else 1)),
        "length": (shortest, shortest + draw(st.integers(0, 60))),
    }


@st.composite
def maskings_without_rare_events(draw: st.DrawFn) -> Masking:
    """Each fate is impossible, certain, or seen in 3,000 documents: an event too rare has no standard error there."""
    share = st.just(0.0) | st.floats(0.05, 0.45)
    mask = draw(st.just(1.0) | st.floats(0.05, 0.9))
    keep, random = draw(st.just((0.5, 0.5)) | st.tuples(share, share))
    return Masking(mask=mask, keep=keep, random=random)


averages = st.sampled_from(["document", "batch"])
MONTE_CARLO_DOCUMENTS = 3_000


def check_drawn_moments(data: Data, masking: Masking, average: Average, seed: int) -> bool:
    """S and R at four random signs u, w: u⊤Su and w⊤Ru. Says whether those of another masking would be rejected.

    Signs, not entries: each probe weighs all entries alike, and its terms are bounded, so that a standard error from
    3,000 documents is one; and 8 comparisons a setting are few enough for 5 of them to hold in all.
    """
    model = TopicModel.from_settings(data)
    sides = np.random.default_rng(seed).choice([-1.0, 1.0], size=(2, 4, model.vocabulary))
    probes = np.einsum("pi,pj->pij", *sides)
    mean, error = sampled_statistics(model, masking, average, MONTE_CARLO_DOCUMENTS, probes, seed)
    slack = 5 * error + 1e-12
    assert (abs(mean - exact_statistics(moments(model, masking, average), probes)) <= slack).all()
    other = dataclasses.replace(masking, mask=0.2 * masking.mask)
    return bool((abs(mean - exact_statistics(moments(model, other, average), probes)) > slack).any())


def check_moments_of_drawn_settings(examples: int) -> None:
    rejected = []

    @settings(derandomize=True, deadline=None, max_examples=examples)
    @given(larger_settings(), maskings_without_rare_events(), averages, st.integers(0, 2**32 - 1))
    def check(data: dict[str, Any], masking: Masking, average: Average, seed: int) -> None:
        rejected.append(check_drawn_moments(Data(**data), masking, average, seed))

    check()
    assert len(rejected) >= examples
    # Control: a fifth as many masked positions are told apart, but for settings with few tokens or much noise.
    assert sum(rejected) >= examples / 2, sum(rejected)


def test_moments_of_drawn_settings_agree_with_sampling() -> None:
    check_moments_of_drawn_settings(40)


@pytest.mark.slow
def test_moments_of_many_drawn_settings_agree_with_sampling() -> None:
    check_moments_of_drawn_settings(250)


@pytest.mark.slow
@pytest.mark.parametrize("average", ["document", "batch"])
@pytest.mark.parametrize("sampler", ["dirichlet", "topics"])
def test_moments_of_the_papers_setting_agree_with_sampling(average: Average, sampler: str) -> None:
    data = Data(sampler=sampler, length=(10, 150))  # type: ignore[arg-type]
    check_moments_agree_with_sampling(data, Masking(), average, documents=60_000)


def listed_sets(topics: int, words: int, per_document: int, masking: Masking) -> Moments:
    """Infinite documents one topic set at a time."""
    sets = list(combinations(range(topics), per_document))
    inside = np.array([[t in chosen for t in range(topics)] for chosen in sets], dtype=float)
    p = np.repeat(inside / (per_document * words), words, axis=1)
    x = np.array([expected_frequencies(row, masking) for row in p])
    y = np.hstack([np.zeros((len(sets), 1)), p])
    return Moments(x.T @ x / len(sets), y.T @ x / len(sets), x.mean(axis=0), y.mean(axis=0))


@settings(derandomize=True, deadline=None, max_examples=40)
@given(st.integers(1, 6), st.integers(1, 4), st.data(), maskings())
def test_infinite_moments_equal_the_sum_over_all_topic_sets(
    topics: int, words: int, data: st.DataObject, masking: Masking
) -> None:
    per_document = data.draw(st.integers(1, topics))
    model = TopicModel.from_settings(Data(sampler="topics", topics=topics, words=words, per_document=per_document))
    found, listed = infinite_moments(model, masking), listed_sets(topics, words, per_document, masking)
    for name in ARRAYS:
        np.testing.assert_allclose(getattr(found, name), getattr(listed, name), atol=1e-14)


def test_infinite_moments_are_the_limit_of_long_documents() -> None:
    masking, errors = Masking(), []
    for length in (100, 10_000, 1_000_000):
        model = TopicModel.from_settings(Data(sampler="topics", length=(length, length)))
        apart = moments(model, masking).second - infinite_moments(model, masking).second
        errors.append(abs(apart).max())
    np.testing.assert_allclose(np.divide(errors[:-1], errors[1:]), 100, rtol=0.05)


def test_frequencies_sum_to_one_in_every_moment() -> None:
    found = moments(TopicModel.from_settings(Data()), Masking())
    np.testing.assert_allclose(found.second.sum(axis=1), found.mean, atol=1e-15)
    np.testing.assert_allclose(found.cross.sum(axis=1), found.label, atol=1e-15)
    assert found.mean.sum() == pytest.approx(1, abs=1e-12)
    assert abs(found.second.sum(axis=1) - found.label).max() > 1e-3


PAPER = moments(TopicModel.from_settings(Data()), Masking())


@st.composite
def small_cases(draw: st.DrawFn) -> dict[str, Any]:
    """Topics, words, Dirichlet, lengths, masking, λ; and whether documents are infinite (S singular)."""
    topics, shortest = draw(st.integers(1, 4)), draw(st.integers(1, 30))
    share = st.just(0.0) | st.floats(1e-6, 0.5)
    return {
        "data": {
            "topics": topics,
            "words": draw(st.integers(1, 4)),
            "dirichlet": tuple(draw(st.lists(st.floats(0.05, 2), min_size=topics, max_size=topics))),
            "length": (shortest, shortest + draw(st.integers(0, 20))),
        },
        "masking": {"mask": draw(st.floats(0.05, 0.9)), "keep": draw(share), "random": draw(share)},
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
    stepped = start.copy()
    for _ in range(steps):
        stepped = stepped - rate * population_gradient(stepped, population, bias, ridge)
    np.testing.assert_allclose(gradient_descent(start, population, rate, steps, ridge, bias), stepped, atol=1e-10)
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


def test_flat_directions_are_all_that_leave_the_loss_as_it_is() -> None:
    documents, draw = infinite_topic_moments(4, 3, 2, Masking()), np.random.default_rng(0)
    flat, matrix = flat_directions(documents), draw.normal(size=(13, 13))
    np.testing.assert_allclose(flat @ flat.T, np.eye(13 - 4), atol=1e-12)
    moved = matrix + draw.normal(size=(13, len(flat))) @ flat
    assert population_loss(moved, documents) == pytest.approx(population_loss(matrix, documents), abs=1e-10)
    # Whatever is orthogonal to them bends the loss: there are no more.
    rest = np.linalg.svd(flat)[2][len(flat) :]
    assert (np.einsum("ri,ij,rj->r", rest, documents.second, rest) > 1e-4).all()
    finite = moments(TopicModel.from_settings(Data(topics=4, words=3)), Masking())
    assert len(flat_directions(finite)) == 0


def test_a_small_ridge_already_moves_the_finite_optimum_far() -> None:
    assert finite_optimum(PAPER, 1e-4)[1, 1] == pytest.approx(0.152, abs=5e-4)


@pytest.mark.parametrize(
    ("rate", "steps", "said"), [(0.0, 3, "rate = 0.0"), (-1.0, 3, "rate"), (0.1, -1, "steps = -1")]
)
def test_a_descent_that_is_none_is_refused(rate: float, steps: int, said: str) -> None:
    population = moments(TopicModel.from_settings(Data(topics=2, words=1, length=(2, 3))), Masking())
    start = np.eye(3)
    with pytest.raises(InputError, match=said):
        gradient_descent(start, population, rate, steps)
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


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    topics, shortest = draw(st.integers(1, 5)), draw(st.integers(1, 30))
    return {
        "data": {
            "sampler": draw(st.sampled_from(["dirichlet", "topics"])),
            "topics": topics,
            "words": draw(st.integers(1, 4)),
            "per_document": draw(st.integers(1, topics)),
            "dirichlet": (draw(st.floats(0.05, 3)),),
            "length": (shortest, shortest + draw(st.integers(0, 20))),
        },
        "masking": {
            "mask": draw(st.floats(0.05, 0.95)),
            "keep": draw(st.just(0.0) | st.floats(1e-6, 0.5)),
            "random": draw(st.just(0.0) | st.floats(1e-6, 0.5)),
        },
        "average": draw(st.sampled_from(["document", "batch"])),
        "infinite": draw(st.booleans()),
        "ridge": draw(st.sampled_from([0.0, 1e-3])),
    }


def check_classes_equal_whole_matrices(case: dict[str, Any]) -> None:
    data, masking = Data(**case["data"]), Masking(**case["masking"])
    model, ridge = TopicModel.from_settings(data), case["ridge"]
    whole = infinite_moments(model, masking) if case["infinite"] else moments(model, masking, case["average"])
    by_class = class_moments(data, masking, case["average"], infinite=case["infinite"])
    optimum = class_optimum(by_class, ridge)
    np.testing.assert_allclose(optimum.matrix(data.topics, data.words), finite_optimum(whole, ridge), atol=1e-8)
    any_matrix = ClassMatrix(0.3, 0.7, -0.4, 0.2)
    expected = population_loss(any_matrix.matrix(data.topics, data.words), whole)
    assert class_loss(any_matrix, by_class) == pytest.approx(expected, abs=1e-10)
    nudged = ClassMatrix(0.31, 0.71, -0.4, 0.2)
    assert class_loss(nudged, by_class) != pytest.approx(expected, abs=1e-7)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(cases())
def test_classes_equal_whole_matrices(case: dict[str, Any]) -> None:
    check_classes_equal_whole_matrices(case)


@pytest.mark.slow
@settings(derandomize=True, deadline=None, max_examples=400)
@given(cases())
def test_classes_equal_whole_matrices_over_many_settings(case: dict[str, Any]) -> None:
    check_classes_equal_whole_matrices(case)


def test_the_papers_setting_by_classes() -> None:
    by_class = class_moments(Data(), Masking())
    found = class_optimum(by_class)
    values = [found.mask_column, found.same_word, found.same_topic, found.different_topic]
    np.testing.assert_allclose(values, [0.01, 0.2152863, 0.1016500, -0.0014460], atol=5e-8)
    assert class_loss(found, by_class) == pytest.approx(0.94532184, abs=5e-9)
    theorem = theorem2_classes(10, 10, Masking())
    np.testing.assert_allclose(theorem.matrix(10, 10), theorem2(10, 10, Masking()), atol=1e-16)
    assert class_loss(theorem, by_class) == pytest.approx(0.94562537, abs=5e-9)


def test_very_many_topics_take_no_time() -> None:
    data = Data(sampler="topics", topics=10**8, per_document=3000)
    infinite = class_moments(data, Masking(), infinite=True)
    theorem = theorem2_classes(data.topics, data.words, Masking())
    least = class_loss(class_optimum(infinite), infinite)
    # A word of the document has probability 1/(τv): the least loss is 1 − 1/(τv).
    assert class_loss(theorem, infinite) == pytest.approx(1 - 1 / 30_000, abs=1e-12)
    assert least == pytest.approx(1 - 1 / 30_000, abs=1e-12)


def test_unequal_topics_are_refused() -> None:
    with pytest.raises(InputError, match=r"data.dirichlet = \[0.1, 0.2\]"):
        class_moments(Data(topics=2, dirichlet=(0.1, 0.2)), Masking())
