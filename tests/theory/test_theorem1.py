"""Theorem 1: its bias, its realisable embeddings, and the best W^E⊤W^E, certified and found again by training."""

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from scipy.optimize import minimize

from support.theory import Setting, drawn, listed_documents, listed_loss, population_gradient, theorem_settings
from topicscope.errors import InputError
from topicscope.settings.data import Data, Masking
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.finite_documents import (
    Moments,
    finite_optimum,
    infinite_moments,
    infinite_topic_moments,
    moments,
    population_loss,
)
from topicscope.theory.lemma1 import constants, lemma1
from topicscope.theory.theorem1 import (
    paper_diagonal_embedding,
    realisable,
    semidefinite_optimum,
    theorem1,
    theorem1_bias,
    theorem1_embedding,
)
from topicscope.theory.theorem2 import theorem2

MASKING = Masking()


def embedding_loss(embedding: np.ndarray, population: Moments, bias: np.ndarray) -> float:
    """The expected loss of eq. 6 with uniform attention and W^V = I."""
    return population_loss(embedding.T @ embedding, population, bias)


PAPER = moments(TopicModel.from_settings(Data()), MASKING)
BIAS = theorem1_bias(10, 10, MASKING)


@drawn(theorem_settings(), st.integers(0, 2**32 - 1), few=20)
def test_theorem_1_is_lemma_1_with_the_bias_moved_into_the_matrix(setting: Setting, seed: int) -> None:
    topics, words, _, masking = setting
    y, x = listed_documents(*setting)
    family, bias = theorem1(topics, words, masking), theorem1_bias(topics, words, masking)
    tokens = family.vocabulary
    random = np.random.default_rng(seed)
    member = family.member(random.normal(size=tokens), random.normal(size=(tokens, tokens - 1)))
    size = abs(member).max()
    moved = member + bias[:, None]
    np.testing.assert_allclose(lemma1(topics, words, masking).project(moved), moved, atol=1e-12 * size)
    least = listed_loss(theorem2(topics, words, masking), y, x)
    assert listed_loss(member, y, x, bias) == pytest.approx(least, abs=1e-12 * size**2)
    assert listed_loss(member, y, x, bias + 0.1) > least + 1e-3


def drawn_u(topics: int, words: int, masking: Masking, seed: int) -> np.ndarray:
    """A realisable u: u₀ < 0, the rest free but for its sums over topics."""
    random = np.random.default_rng(seed)
    u0 = -random.exponential()
    u = random.normal(size=(topics, words))
    u += -u0 / constants(topics, words, masking).c2 - u.mean(axis=1, keepdims=True)
    return np.append(u0, u)


@drawn(theorem_settings(6, 5), st.integers(0, 2**32 - 1), few=20, many=250)
def test_an_embedding_exists_for_every_realisable_u_and_is_optimal(setting: Setting, seed: int) -> None:
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


@drawn(theorem_settings(6, 5), st.integers(0, 2**32 - 1), few=20)
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
    population, bias = infinite_topic_moments(10, 10, 2, MASKING), theorem1_bias(10, 10, MASKING)
    least = population_loss(theorem2(10, 10, MASKING), population)
    excess = embedding_loss(paper_diagonal_embedding(10, 10, MASKING), population, bias) - least
    predicted = (constants(10, 10, MASKING).c3 * MASKING.mask * MASKING.replaced) ** 2
    assert excess == pytest.approx(predicted, abs=1e-12)
    assert predicted == pytest.approx(0.01925, abs=5e-6)
    corrected = theorem1_embedding(10, 10, MASKING, "diagonal", 101)
    assert embedding_loss(corrected, population, bias) == pytest.approx(least, abs=1e-12)
    # §4's "for all i" would give [MASK] a bias too.
    everywhere = np.full(101, bias[1])
    assert embedding_loss(corrected, population, everywhere) - least == pytest.approx(bias[1] ** 2, rel=1e-6)


def positive_part(matrix: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return np.asarray((vectors * np.maximum(values, 0)) @ vectors.T)


def trained_embedding_loss(population: Moments, bias: np.ndarray, seed: int) -> float:
    """The loss that L-BFGS on W^E reaches; a square W^E has no bad local minima."""
    tokens = population.vocabulary

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        embedding = flat.reshape(tokens, tokens)
        gradient = population_gradient(embedding.T @ embedding, population, bias)
        return embedding_loss(embedding, population, bias), (embedding @ (gradient + gradient.T)).ravel()

    start = np.random.default_rng(seed).normal(size=tokens**2) / np.sqrt(tokens)
    found = minimize(
        objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 20_000, "ftol": 0, "gtol": 1e-9}
    )
    return float(found.fun)


@st.composite
def tiny_data(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments of ``Data``, not one: the type checker draws random numbers, which strategies may not."""
    topics = draw(st.integers(2, 3))
    dirichlet = tuple(draw(st.lists(st.floats(0.05, 2), min_size=topics, max_size=topics)))
    shortest = draw(st.integers(2, 20))
    length = (shortest, shortest + 5)
    return {"topics": topics, "words": draw(st.integers(1, 3)), "dirichlet": dirichlet, "length": length}


@drawn(tiny_data(), st.floats(0.1, 0.6), st.integers(0, 1000), few=8, many=200)
def test_the_semidefinite_optimum_is_certified_and_is_what_training_reaches(
    data: dict[str, Any], mask: float, seed: int
) -> None:
    population = moments(TopicModel.from_settings(Data(**data)), Masking(mask=mask))
    bias = np.random.default_rng(seed).normal(size=population.vocabulary) * 0.1
    best = semidefinite_optimum(population, bias)
    assert 0 <= best.gap <= 1e-14
    scale = abs(best.matrix).max()
    assert np.linalg.eigvalsh(best.matrix)[0] >= -1e-12 * scale
    # KKT: the symmetric gradient is positive semi-definite and orthogonal to E.
    gradient = population_gradient(best.matrix, population, bias)
    gradient = (gradient + gradient.T) / 2
    assert np.linalg.eigvalsh(gradient)[0] >= -1e-6
    assert abs(np.vdot(gradient, best.matrix)) <= 3e-7 * max(1.0, scale)
    assert best.loss == pytest.approx(trained_embedding_loss(population, bias, seed), abs=1e-7)
    # The nearest semi-definite matrix to the free optimum is not the answer, and the free optimum is out of reach.
    free = finite_optimum(population, bias=bias)
    clipped = positive_part(free)
    assert best.loss <= population_loss(clipped, population, bias) + best.gap
    assert best.loss > population_loss(free, population, bias)


def test_in_the_papers_setting_an_embedding_alone_comes_close_to_any_matrix() -> None:
    best = semidefinite_optimum(PAPER, BIAS)
    free = population_loss(finite_optimum(PAPER, bias=BIAS), PAPER, BIAS)
    block = embedding_loss(theorem1_embedding(10, 10, Masking(), "block", 10), PAPER, BIAS)
    diagonal = embedding_loss(theorem1_embedding(10, 10, Masking(), "diagonal", 100), PAPER, BIAS)
    assert free < best.loss < block < diagonal
    assert best.loss - free == pytest.approx(1.00e-5, abs=5e-8)
    assert best.gap < 1e-13


def test_the_gap_is_large_away_from_the_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    best = semidefinite_optimum(PAPER, BIAS)
    monkeypatch.setattr(sys.modules[semidefinite_optimum.__module__], "MOST_STEPS", 1)
    early = semidefinite_optimum(PAPER, BIAS)
    assert early.gap > 1e-7
    assert early.loss - best.loss <= early.gap


def test_a_singular_second_moment_is_refused() -> None:
    with pytest.raises(InputError, match="singular"):
        semidefinite_optimum(infinite_moments(TopicModel.from_settings(Data()), Masking()))
