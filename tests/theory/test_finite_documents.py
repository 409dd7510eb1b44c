"""Moments against enumeration and sampling; loss, optimum and descent path; the symmetric setting by classes."""

from collections.abc import Callable
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from scipy.special import gammaln

from support.theory import drawn, population_gradient
from topicscope.errors import InputError
from topicscope.settings.data import Data, Masking
from topicscope.settings.training import Average
from topicscope.synthetic.masking import expected_frequencies
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.classes import ClassMatrix
from topicscope.theory.finite_documents import (
    Moments,
    class_loss,
    class_moments,
    class_optimum,
    finite_optimum,
    flat_directions,
    gradient_descent,
    infinite_moments,
    infinite_topic_moments,
    moments,
    population_loss,
    topic_count_distribution,
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


@drawn(tiny_models(), maskings(), st.sampled_from(["document", "batch"]), few=25, many=300)
def test_moments_equal_enumeration(model: TopicModel, masking: Masking, average: Average) -> None:
    found, listed = moments(model, masking, average), enumerated(model, masking, average)
    for name in ARRAYS:
        np.testing.assert_allclose(getattr(found, name), getattr(listed, name), atol=1e-13)


def test_enumeration_tells_the_two_averages_apart() -> None:
    model = TopicModel.from_settings(Data(topics=2, words=1, length=(1, 3)))
    masking = Masking(mask=0.5)
    apart = abs(enumerated(model, masking, "batch").second - moments(model, masking, "document").second).max()
    assert apart > 1e-2


def listed_sets(topics: int, words: int, per_document: int, masking: Masking) -> Moments:
    """Infinite documents one topic set at a time."""
    sets = list(combinations(range(topics), per_document))
    inside = np.array([[t in chosen for t in range(topics)] for chosen in sets], dtype=float)
    p = np.repeat(inside / (per_document * words), words, axis=1)
    x = np.array([expected_frequencies(row, masking) for row in p])
    y = np.hstack([np.zeros((len(sets), 1)), p])
    return Moments(x.T @ x / len(sets), y.T @ x / len(sets), x.mean(axis=0), y.mean(axis=0))


@drawn(st.integers(1, 6), st.integers(1, 4), st.data(), maskings(), few=40)
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


@drawn(small_cases(), st.integers(1, 40), few=25, many=300)
def test_the_gradient_descent_path_equals_iterated_steps(case: dict[str, Any], steps: int) -> None:
    population, ridge, rate = population_of(case), case["ridge"], 0.3
    start, bias = drawn_matrix(population, case["seed"])
    stepped = start.copy()
    for _ in range(steps):
        stepped = stepped - rate * population_gradient(stepped, population, bias, ridge)
    np.testing.assert_allclose(gradient_descent(start, population, rate, steps, ridge, bias), stepped, atol=1e-10)
    without_bias = gradient_descent(start, population, rate, steps, ridge)
    assert abs(without_bias - stepped).max() > 1e-4


@drawn(small_cases(), few=30, many=300)
def test_gradient_and_optimum_of_the_population_loss(case: dict[str, Any]) -> None:
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


@drawn(small_cases(), few=20)
def test_a_bias_is_the_same_as_a_constant_added_to_its_row(case: dict[str, Any]) -> None:
    population = population_of(case)
    matrix, bias = drawn_matrix(population, case["seed"])
    with_bias = population_loss(matrix, population, bias)
    assert with_bias == pytest.approx(population_loss(matrix + bias[:, None], population), abs=1e-9)
    assert with_bias != pytest.approx(population_loss(matrix - bias[:, None], population), abs=1e-6)
    # So no bias lowers the loss.
    best = population_loss(finite_optimum(population, bias=bias), population, bias)
    assert best == pytest.approx(population_loss(finite_optimum(population), population), abs=1e-9)


@pytest.mark.parametrize(
    ("average", "mask_column", "same_word", "same_topic", "different_topic"),
    [("document", 0.0100000, 0.2152863, 0.1016500, -0.0014460), ("batch", 0.01, 0.2166704, 0.1023171, -0.0015280)],
)
def test_the_finite_optimum_of_the_papers_setting(
    average: Average, mask_column: float, same_word: float, same_topic: float, different_topic: float
) -> None:
    optimum = finite_optimum(moments(TopicModel.from_settings(Data()), Masking(), average))
    expected = [mask_column, same_word, same_topic, different_topic]
    np.testing.assert_allclose(optimum[1, [0, 1, 2, 11]], expected, atol=5e-8)
    if average == "document":
        by_class = class_moments(Data(), Masking())
        np.testing.assert_allclose(class_optimum(by_class).numbers[2:], expected, atol=5e-8)
        for matrix, loss in ((optimum, 0.94532184), (theorem2(10, 10, Masking()), 0.94562537)):
            assert population_loss(matrix, PAPER) == pytest.approx(loss, abs=5e-9)
        assert class_loss(theorem2_classes(10, 10, Masking()), by_class) == pytest.approx(0.94562537, abs=5e-9)
        # A small ridge already moves it far.
        assert finite_optimum(PAPER, 1e-4)[1, 1] == pytest.approx(0.152, abs=5e-4)


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


def test_gradient_descent_at_the_papers_rate_is_far_from_its_end_after_1500_steps() -> None:
    reached = gradient_descent(np.zeros((101, 101)), PAPER, rate=0.01, steps=1500)
    assert reached[1, 2] == pytest.approx(0.013, abs=5e-4)
    end = gradient_descent(np.zeros((101, 101)), PAPER, rate=0.5, steps=10_000_000)
    np.testing.assert_allclose(end, finite_optimum(PAPER), atol=1e-10)


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
        "infinite": draw(st.booleans()),
        "ridge": draw(st.sampled_from([0.0, 1e-3])),
    }


@drawn(cases(), few=40, many=400)
def test_classes_equal_whole_matrices(case: dict[str, Any]) -> None:
    data, masking = Data(**case["data"]), Masking(**case["masking"])
    model, ridge = TopicModel.from_settings(data), case["ridge"]
    whole = infinite_moments(model, masking) if case["infinite"] else moments(model, masking)
    by_class = class_moments(data, masking, infinite=case["infinite"])
    optimum = class_optimum(by_class, ridge)
    np.testing.assert_allclose(optimum.matrix(data.topics, data.words), finite_optimum(whole, ridge), atol=1e-8)
    any_matrix = ClassMatrix(0.3, 0.7, -0.4, 0.2)
    expected = population_loss(any_matrix.matrix(data.topics, data.words), whole)
    assert class_loss(any_matrix, by_class) == pytest.approx(expected, abs=1e-10)
    nudged = ClassMatrix(0.31, 0.71, -0.4, 0.2)
    assert class_loss(nudged, by_class) != pytest.approx(expected, abs=1e-7)


def test_very_many_topics_take_no_time() -> None:
    data = Data(sampler="topics", topics=10**8, per_document=3000)
    infinite = class_moments(data, Masking(), infinite=True)
    theorem = theorem2_classes(data.topics, data.words, Masking())
    least = class_loss(class_optimum(infinite), infinite)
    # A word of the document has probability 1/(τv): the least loss is 1 − 1/(τv).
    assert class_loss(theorem, infinite) == pytest.approx(1 - 1 / 30_000, abs=1e-12)
    assert least == pytest.approx(1 - 1 / 30_000, abs=1e-12)


def test_what_is_no_ridge_no_descent_or_not_symmetric_is_refused() -> None:
    start = np.zeros((101, 101))
    refused: dict[str, list[Callable[[], object]]] = {
        "ridge = -1.0": [
            lambda: finite_optimum(PAPER, -1.0),
            lambda: gradient_descent(start, PAPER, 0.1, 1, ridge=-1.0),
        ],
        "rate = 0.0": [lambda: gradient_descent(start, PAPER, 0.0, 3)],
        "steps = -1": [lambda: gradient_descent(start, PAPER, 0.1, -1)],
        r"data.dirichlet = \[0.1, 0.2\]": [lambda: class_moments(Data(topics=2, dirichlet=(0.1, 0.2)), Masking())],
    }
    for message, calls in refused.items():
        for call in calls:
            with pytest.raises(InputError, match=message):
                call()


def enumerated_topic_counts(data: Data, length: int) -> np.ndarray:
    """Every sequence of topics with Pólya's urn's probability, word by word."""
    chances = np.zeros(data.topics + 1)
    for topics in product(range(data.topics), repeat=length):
        counts, probability = np.zeros(data.topics), 1.0
        for place, topic in enumerate(topics):
            probability *= (data.dirichlet[0] + counts[topic]) / (data.topics * data.dirichlet[0] + place)
            counts[topic] += 1
        chances[(counts > 0).sum()] += probability
    return chances


@pytest.mark.parametrize("dirichlet", [0.1, 1.3])
def test_the_number_of_topics_has_the_enumerated_distribution(dirichlet: float) -> None:
    data = Data(topics=3, dirichlet=(dirichlet,), length=(4, 6))
    expected = np.mean([enumerated_topic_counts(data, length) for length in (4, 5, 6)], axis=0)
    np.testing.assert_allclose(topic_count_distribution(data), expected, atol=1e-12)
    other = Data(topics=3, dirichlet=(1.5 * dirichlet,), length=(4, 6))
    assert abs(topic_count_distribution(other) - expected).max() > 1e-3
    with pytest.raises(InputError, match="one Dirichlet parameter"):
        topic_count_distribution(Data(topics=2, dirichlet=(0.1, 0.2)))
    with pytest.raises(InputError, match="topics are counted for the sampler"):
        topic_count_distribution(Data(sampler="topics"))
