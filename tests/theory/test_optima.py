"""Theorems 1 and 2: printed numbers, ridge limit, realisable embeddings."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topicscope.errors import InputError
from topicscope.settings.data import Masking
from topicscope.theory.check import infinite_topic_moments
from topicscope.theory.finite_documents import embedding_loss, population_loss, ridge_path
from topicscope.theory.lemma1 import constants, lemma1
from topicscope.theory.theorem1 import (
    paper_diagonal_embedding,
    paper_diagonal_excess_loss,
    realisable,
    theorem1,
    theorem1_bias,
    theorem1_embedding,
)
from topicscope.theory.theorem2 import block_value, diagonal_value, theorem2

PAPER = Masking()
Setting = tuple[int, int, int, Masking]


@st.composite
def small_settings(draw: st.DrawFn) -> Setting:
    topics = draw(st.integers(2, 6))
    keep, random = draw(st.floats(0, 0.45)), draw(st.floats(0, 0.45))
    masking = Masking(mask=draw(st.floats(0.05, 0.95)), keep=keep, random=random)
    return topics, draw(st.integers(1, 5)), draw(st.integers(1, topics - 1)), masking


def test_theorem_2_has_the_papers_values_at_the_defaults() -> None:
    matrix = theorem2(10, 10, PAPER)
    found = [matrix[1, 0], matrix[1, 1], matrix[1, 2], matrix[1, 11], matrix[100, 100], matrix[0, 5]]
    expected = [0.0541908, 0.1080202, 0.1080202, -0.0075867, 0.1080202, 0]
    np.testing.assert_allclose(found, expected, atol=5e-8)


def check_theorem_2_is_the_ridge_limit(setting: Setting) -> None:
    topics, words, per_document, masking = setting
    population = infinite_topic_moments(topics, words, per_document, masking)
    limit = theorem2(topics, words, masking)
    smallest, largest = np.linalg.eigvalsh(population.second)[[-topics, -1]]
    ridges = smallest * np.array([1.0, 1e-2, 1e-4, 1e-6])
    # Straight solves, apart from the eigendecomposition of ridge_path.
    identity = np.eye(population.vocabulary)
    solved = [np.linalg.solve(population.second + ridge * identity, population.cross.T).T for ridge in ridges]
    norm = float(np.linalg.norm(limit))
    for ridge, matrix, found in zip(ridges, solved, ridge_path(population, ridges), strict=True):
        # A solve loses as many digits as the condition number of S + λI has.
        rounding = 100 * np.finfo(float).eps * largest / ridge * norm
        np.testing.assert_allclose(found, matrix, rtol=0, atol=rounding)
        # W(λ) = W S (S + λ)⁻¹, so the distance is at most λ/s of the norm, s the smallest curvature.
        assert np.linalg.norm(matrix - limit) <= norm * ridge / smallest + rounding
        assert np.linalg.norm(matrix - block_value(topics, words, masking)) > 1e-4 * norm
    np.testing.assert_allclose(ridge_path(population, np.zeros(1))[0], limit, atol=1e-9 * norm)


@settings(derandomize=True, deadline=None, max_examples=30)
@given(small_settings())
def test_theorem_2_is_the_ridge_limit(setting: Setting) -> None:
    check_theorem_2_is_the_ridge_limit(setting)


@pytest.mark.slow
@settings(derandomize=True, deadline=None, max_examples=400)
@given(small_settings())
def test_theorem_2_is_the_ridge_limit_over_many_settings(setting: Setting) -> None:
    check_theorem_2_is_the_ridge_limit(setting)


@settings(derandomize=True, deadline=None, max_examples=20)
@given(small_settings())
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


def drawn_u(topics: int, words: int, masking: Masking, seed: int) -> np.ndarray:
    """A realisable u: u₀ < 0, the rest free but for its sums over topics."""
    random = np.random.default_rng(seed)
    u0 = -random.exponential()
    u = random.normal(size=(topics, words))
    u += -u0 / constants(topics, words, masking).c2 - u.mean(axis=1, keepdims=True)
    return np.append(u0, u)


def check_embeddings_are_optimal(setting: Setting, seed: int) -> None:
    topics, words, per_document, masking = setting
    population = infinite_topic_moments(topics, words, per_document, masking)
    bias = theorem1_bias(topics, words, masking)
    least = population_loss(theorem2(topics, words, masking), population)
    u = drawn_u(topics, words, masking, seed)
    family = theorem1(topics, words, masking)
    for pattern, rank in (("block", topics), ("diagonal", topics * words)):
        for chosen, width in ((None, rank), (u, rank + 1)):
            embedding = theorem1_embedding(topics, words, masking, pattern, width, chosen)  # type: ignore[arg-type]
            gram = embedding.T @ embedding
            size = abs(gram).max() ** 2
            assert np.linalg.matrix_rank(gram, hermitian=True, tol=1e-9) == width
            assert embedding_loss(embedding, population, bias) == pytest.approx(least, abs=1e-11 * size)
            expected = np.zeros(len(u)) if chosen is None else chosen
            np.testing.assert_allclose(family.fit(gram), expected, atol=1e-10 * size)
            np.testing.assert_allclose(family.project(gram), gram, atol=1e-10 * size)
            with pytest.raises(InputError, match=f"dimension = {width - 1} .* rank {width}"):
                theorem1_embedding(topics, words, masking, pattern, width - 1, chosen)  # type: ignore[arg-type]
    nudged = theorem1_embedding(topics, words, masking, "block", topics) + 0.1
    assert embedding_loss(nudged, population, bias) > least + 1e-6


@settings(derandomize=True, deadline=None, max_examples=20)
@given(small_settings(), st.integers(0, 2**32 - 1))
def test_an_embedding_exists_for_every_realisable_u_and_is_optimal(setting: Setting, seed: int) -> None:
    check_embeddings_are_optimal(setting, seed)


@pytest.mark.slow
@settings(derandomize=True, deadline=None, max_examples=250)
@given(small_settings(), st.integers(0, 2**32 - 1))
def test_an_embedding_exists_for_every_realisable_u_over_many_settings(setting: Setting, seed: int) -> None:
    check_embeddings_are_optimal(setting, seed)


@settings(derandomize=True, deadline=None, max_examples=20)
@given(small_settings(), st.integers(0, 2**32 - 1))
def test_a_u_that_is_not_realisable_makes_every_member_asymmetric_or_indefinite(setting: Setting, seed: int) -> None:
    topics, words, _, masking = setting
    u = drawn_u(topics, words, masking, seed)
    assert realisable(u, topics, words, masking)
    c2 = constants(topics, words, masking).c2
    unequal = u + np.append(0.0, np.eye(topics * words)[0])
    assert not realisable(unequal, topics, words, masking)
    # Clause 1(b) fixes the 0-th row's sums, 2(a) the 0-th column: in a symmetric matrix they would have to agree.
    column = (-c2 * unequal[1:]).reshape(topics, words).sum(axis=1)
    assert abs(column - words * unequal[0]).max() > 1e-6
    assert not realisable(-u, topics, words, masking)
    assert theorem1(topics, words, masking).member(-u)[0, 0] < 0
    assert not realisable(np.append(0.0, u[1:]), topics, words, masking)
    with pytest.raises(InputError, match="no embedding realises it"):
        theorem1_embedding(topics, words, masking, "block", 100, unequal)


def test_the_papers_diagonal_example_predicts_mask_tokens_at_a_cost() -> None:
    population, bias = infinite_topic_moments(10, 10, 2, PAPER), theorem1_bias(10, 10, PAPER)
    least = population_loss(theorem2(10, 10, PAPER), population)
    excess = embedding_loss(paper_diagonal_embedding(10, 10, PAPER), population, bias) - least
    assert excess == pytest.approx(paper_diagonal_excess_loss(PAPER), abs=1e-12)
    assert paper_diagonal_excess_loss(PAPER) == pytest.approx(0.01925, abs=5e-6)
    corrected = theorem1_embedding(10, 10, PAPER, "diagonal", 101)
    assert embedding_loss(corrected, population, bias) == pytest.approx(least, abs=1e-12)
    # §4's "for all i" would give [MASK] a bias too.
    everywhere = np.full(101, bias[1])
    assert embedding_loss(corrected, population, everywhere) - least == pytest.approx(bias[1] ** 2, rel=1e-6)
