"""Lemma 1: the family is exactly the set of minimisers, under a loss computed topic set by topic set."""

import numpy as np
import pytest
from hypothesis import strategies as st

from support.theory import Setting, drawn, listed_documents, listed_loss, theorem_settings
from topicscope.errors import InputError
from topicscope.settings.data import Masking
from topicscope.theory.lemma1 import constants, hessian_rank, lemma1, require_topic_sets
from topicscope.theory.theorem2 import theorem2


def listed_gradient(matrix: np.ndarray, y: np.ndarray, x: np.ndarray) -> np.ndarray:
    return 2 * (x @ matrix.T - y).T @ x / len(x)


@drawn(theorem_settings(), st.integers(0, 2**32 - 1), few=30, many=400)
def test_lemma_1_family_is_exactly_the_set_of_minimisers(setting: Setting, seed: int) -> None:
    topics, words, _, masking = setting
    y, x = listed_documents(*setting)
    family = lemma1(topics, words, masking)
    random = np.random.default_rng(seed)
    tokens = family.vocabulary
    members = [family.member(random.normal(size=tokens), random.normal(size=(tokens, tokens - 1))) for _ in range(2)]
    least = listed_loss(theorem2(topics, words, masking), y, x)
    size = max(abs(member).max() for member in members) ** 2
    for member in members:
        assert abs(listed_gradient(member, y, x)).max() < 1e-12 * size
        assert listed_loss(member, y, x) == pytest.approx(least, abs=1e-12 * size)
        np.testing.assert_allclose(family.project(member), member, atol=1e-12 * size)
    # Off the family a nudge costs at least the smallest curvature times its squared distance to the family.
    nudged = members[0] + random.normal(size=(tokens, tokens))
    distance = np.linalg.norm(nudged - family.project(nudged))
    curvature = np.linalg.svd(x / np.sqrt(len(x)), compute_uv=False)[topics - 1] ** 2
    assert distance > 0
    assert listed_loss(nudged, y, x) - least >= curvature * distance**2 * (1 - 1e-6) - 1e-12 * size
    assert curvature > 1e-7


@drawn(theorem_settings(), st.integers(0, 2**32 - 1), few=20)
def test_the_projection_is_the_nearest_member(setting: Setting, seed: int) -> None:
    topics, words, _, masking = setting
    family = lemma1(topics, words, masking)
    random = np.random.default_rng(seed)
    matrix, other = random.normal(size=(2, family.vocabulary, family.vocabulary))
    nearest = family.project(matrix)
    away = family.project(other) - nearest
    assert abs(np.vdot(matrix - nearest, away)) < 1e-9 * (1 + family.c2) * np.linalg.norm(away)
    assert np.linalg.norm(matrix - nearest) <= np.linalg.norm(matrix - nearest - away)
    assert abs(np.vdot(matrix - nearest, matrix)) > 1e-9


def test_lemma_1_clauses_hold_as_printed() -> None:
    masking = Masking(mask=0.3, keep=0.2, random=0.15)
    random = np.random.default_rng(0)
    u = random.normal(size=13)
    member = lemma1(4, 3, masking).member(u, random.normal(size=(13, 12)))
    p_m, p_c, p_r = masking.mask, masking.keep, masking.random
    sums = member[:, 1:].reshape(13, 4, 3).sum(axis=2)
    own = np.arange(12) // 3
    ratio = 1 / (p_m * (1 - p_c - p_r)) - 1
    assert member[0, 0] == pytest.approx(-ratio * u[0])
    np.testing.assert_allclose(sums[0], 3 * u[0])
    np.testing.assert_allclose(
        member[1:, 0], -p_r / ((1 - p_c - p_r) * (1 - (1 - p_c) * p_m) * 12) - ratio * u[1:], atol=1e-12
    )
    np.testing.assert_allclose(sums[1:][np.arange(12), own], 1 / (1 - (1 - p_c) * p_m) + 3 * u[1:], atol=1e-12)
    others = np.arange(4) != own[:, None]
    np.testing.assert_allclose(sums[1:][others], np.repeat(3 * u[1:], 3), atol=1e-12)
    assert np.ptp(member[1, 1:4]) > 0.1


@drawn(theorem_settings(4), few=20)
def test_the_hessian_has_rank_t_times_vocabulary_and_not_one(setting: Setting) -> None:
    topics, words, _, masking = setting
    x = listed_documents(*setting)[1]
    hessian = 2 * np.kron(np.eye(x.shape[1]), x.T @ x / len(x))
    rank = np.linalg.matrix_rank(hessian, tol=1e-10, hermitian=True)
    assert rank == hessian_rank(*setting) == topics * (topics * words + 1) > 1
    # Flat are, in every row, the contrasts within a topic and (−c₂, 1, …, 1), along which u moves.
    c2 = constants(topics, words, masking).c2
    contrasts = np.kron(np.eye(topics), np.eye(words)[1:] - np.eye(words)[:1])
    flat = np.vstack([np.append(-c2, np.ones(topics * words)), np.pad(contrasts, ((0, 0), (1, 0)))])
    np.testing.assert_allclose(x @ flat.T, 0, atol=1e-13 * c2)
    assert np.linalg.matrix_rank(flat) == x.shape[1] - topics


def test_with_all_topics_in_every_document_the_rank_falls_and_lemma_1_is_refused() -> None:
    masking = Masking()
    x = listed_documents(3, 2, 3, masking)[1]
    assert hessian_rank(3, 2, 3, masking) == 7 * np.linalg.matrix_rank(x) == 7
    with pytest.raises(InputError, match=r"topics = 3 with per_document = 3 .* only one set of topics"):
        require_topic_sets(3, 3)
    with pytest.raises(InputError, match=r"per_document = 4 .* more than topics = 3"):
        require_topic_sets(3, 4)
    require_topic_sets(3, 2)


@pytest.mark.parametrize("masking", [Masking(keep=0.4, random=0.6), Masking(keep=1.0, random=0.0)])
def test_a_masking_without_mask_tokens_is_refused(masking: Masking) -> None:
    with pytest.raises(InputError, match=r"masking.keep \+ masking.random = 1.0 .* divide by"):
        constants(10, 10, masking)


def test_a_masking_that_hides_every_word_is_refused() -> None:
    with pytest.raises(InputError, match=r"masking.mask = 1.0 .* no word of the document is seen"):
        constants(10, 10, Masking(mask=1.0, keep=0.0))
