"""Theorem 2: printed numbers, the ridge limit, the smallest member of Lemma 1's family, and two other members."""

from collections.abc import Callable

import numpy as np
import pytest

from support.theory import Setting, drawn, theorem_settings
from topicscope.errors import InputError
from topicscope.settings.data import Masking, Sampler
from topicscope.synthetic.topics import TopicModel, equal_topics
from topicscope.theory.classes import ClassMatrix
from topicscope.theory.finite_documents import (
    finite_optimum,
    flat_directions,
    infinite_moments,
    infinite_topic_moments,
    population_loss,
)
from topicscope.theory.lemma1 import constants, lemma1
from topicscope.theory.theorem2 import (
    block_value,
    diagonal_classes,
    diagonal_value,
    theorem2,
    theorem2_classes,
    theorem2_of,
)

PAPER = Masking()


def test_theorem_2_has_the_papers_values_at_the_defaults() -> None:
    matrix = theorem2(10, 10, PAPER)
    found = [matrix[1, 0], matrix[1, 1], matrix[1, 2], matrix[1, 11], matrix[100, 100], matrix[0, 5]]
    expected = [0.0541908, 0.1080202, 0.1080202, -0.0075867, 0.1080202, 0]
    np.testing.assert_allclose(found, expected, atol=5e-8)


@drawn(theorem_settings(6, 5), few=30, many=400)
def test_theorem_2_is_the_ridge_limit(setting: Setting) -> None:
    topics, words, per_document, masking = setting
    population = infinite_topic_moments(topics, words, per_document, masking)
    limit = theorem2(topics, words, masking)
    smallest, largest = np.linalg.eigvalsh(population.second)[[-topics, -1]]
    ridges = smallest * np.array([1.0, 1e-2, 1e-4, 1e-6])
    # Straight solves, apart from the eigendecomposition of finite_optimum.
    identity = np.eye(population.vocabulary)
    solved = [np.linalg.solve(population.second + ridge * identity, population.cross.T).T for ridge in ridges]
    norm = float(np.linalg.norm(limit))
    for ridge, matrix in zip(ridges, solved, strict=True):
        # A solve loses as many digits as the condition number of S + λI has.
        rounding = 100 * np.finfo(float).eps * largest / ridge * norm
        np.testing.assert_allclose(finite_optimum(population, ridge), matrix, rtol=0, atol=rounding)
        # W(λ) = W S (S + λ)⁻¹, so the distance is at most λ/s of the norm, s the smallest curvature.
        assert np.linalg.norm(matrix - limit) <= norm * ridge / smallest + rounding
        assert np.linalg.norm(matrix - block_value(topics, words, masking)) > 1e-4 * norm
    np.testing.assert_allclose(finite_optimum(population), limit, atol=1e-9 * norm)


@drawn(theorem_settings(6, 5), few=20)
def test_theorem_2_is_the_smallest_member_of_lemma_1s_family(setting: Setting) -> None:
    topics, words, _, masking = setting
    zero = np.zeros((topics * words + 1, topics * words + 1))
    nearest = lemma1(topics, words, masking).project(zero)
    np.testing.assert_allclose(nearest, theorem2(topics, words, masking), atol=1e-12)
    assert np.linalg.norm(block_value(topics, words, masking)) > np.linalg.norm(nearest)


def test_block_and_diagonal_values_are_different_members_with_equal_loss() -> None:
    population = infinite_topic_moments(10, 10, 2, PAPER)
    c = constants(10, 10, PAPER)
    block, diagonal = block_value(10, 10, PAPER), diagonal_value(10, 10, PAPER)
    assert population_loss(block, population) == pytest.approx(0.95, abs=1e-12)
    assert population_loss(diagonal, population) == pytest.approx(0.95, abs=1e-12)
    np.testing.assert_allclose(block[3, [0, 1, 3, 11]], [-c.c1, c.c3 / 10, c.c3 / 10, 0], atol=1e-15)
    np.testing.assert_allclose(diagonal[3, [0, 1, 3, 11]], [-c.c1, 0, c.c3, 0], atol=1e-15)
    assert not block[0].any()
    assert not diagonal[0].any()


@pytest.mark.parametrize("classes", [theorem2_classes, diagonal_classes])
def test_theorem_2_and_the_diagonal_by_classes_are_in_lemma_1s_family(
    classes: Callable[[int, int, Masking], ClassMatrix],
) -> None:
    masking = Masking(mask=0.3, keep=0.2, random=0.05)
    value = classes(4, 3, masking)
    found = value.matrix(4, 3)
    np.testing.assert_allclose(lemma1(4, 3, masking).project(found), found, atol=1e-12)
    nudged = ClassMatrix(value.mask_column + 0.1, value.same_word, value.same_topic, value.different_topic)
    assert abs(lemma1(4, 3, masking).project(nudged.matrix(4, 3)) - nudged.matrix(4, 3)).max() > 1e-3


def test_theorem_2_by_classes_is_its_matrix() -> None:
    masking = Masking(mask=0.3, keep=0.2, random=0.05)
    np.testing.assert_allclose(theorem2_classes(4, 3, masking).matrix(4, 3), theorem2(4, 3, masking), atol=1e-14)
    assert abs(theorem2_classes(4, 3).matrix(4, 3) - theorem2(4, 3, masking)).max() > 1e-3


OVERLAPPING = np.array([[0.5, 0.3, 0.2, 0.0, 0.0], [0.0, 0.1, 0.2, 0.3, 0.4], [0.25, 0.0, 0.25, 0.0, 0.5]])


def of_two(topic_words: np.ndarray, sampler: Sampler = "topics") -> TopicModel:
    return TopicModel(topic_words, sampler, 2, np.array([0.3, 1.0, 2.0])[: len(topic_words)], (5, 9))


def test_theorem_2_of_topics_that_hardly_overlap_is_nearly_theorem_2() -> None:
    masking, equal = Masking(mask=0.3, keep=0.2, random=0.05), equal_topics(3, 4)
    nearly = 0.999999 * equal + 0.000001 * np.roll(equal, 1, axis=1)
    assert of_two(nearly).equal_words is None
    np.testing.assert_allclose(theorem2_of(of_two(nearly), masking), theorem2(3, 4, masking), atol=1e-5)
    assert abs(theorem2_of(of_two(np.roll(equal, 1, axis=1)), masking) - theorem2(3, 4, masking)).max() > 1e-2


@pytest.mark.parametrize("sampler", ["topics", "dirichlet"])
def test_theorem_2_of_overlapping_topics_is_the_smallest_minimiser_over_infinite_documents(sampler: Sampler) -> None:
    """Held against the moments of such documents, whichever way their topics are drawn."""
    masking = Masking(mask=0.3, keep=0.2, random=0.05)
    model = of_two(OVERLAPPING, sampler)
    found, population = theorem2_of(model, masking), infinite_moments(model, masking)
    np.testing.assert_allclose(found, finite_optimum(population), atol=1e-8)
    least = population_loss(found, population)
    for flat in flat_directions(population):
        moved = found + 0.1 * np.outer(np.ones(6), flat)
        assert population_loss(moved, population) == pytest.approx(least, abs=1e-12)
        assert np.linalg.norm(moved) > np.linalg.norm(found)
    # Control: elsewhere the loss is larger.
    assert population_loss(found + 0.1, population) > least + 1e-3


def test_theorem_2_of_any_topics_predicts_the_words_of_every_infinite_document() -> None:
    masking = Masking(mask=0.4, keep=0.3, random=0.3)
    for theta in np.random.default_rng(3).dirichlet(np.ones(3), size=5):
        words = theta @ OVERLAPPING
        seen = np.append(masking.mask * masking.replaced, words * (1 - 0.4 * 0.7) + 0.4 * 0.3 / 5)
        np.testing.assert_allclose(theorem2_of(of_two(OVERLAPPING), masking) @ seen, np.append(0, words), atol=1e-12)
    with pytest.raises(InputError, match="no word of the document is seen"):
        theorem2_of(of_two(OVERLAPPING), Masking(mask=1.0, keep=0.0, random=0.0))
