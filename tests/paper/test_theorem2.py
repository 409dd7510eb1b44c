"""Lemma 1 and Theorem 2: their claims turn with a wrong constant, and with documents that all look alike."""

import dataclasses
import importlib

import pytest

from support.fabricated import decide, quick_claim
from topicscope.paper import theorem2
from topicscope.settings import Masking
from topicscope.theory.finite_documents import infinite_topic_moments
from topicscope.theory.lemma1 import Constants, constants
from topicscope.theory.theorem2 import theorem2 as right_matrix


@pytest.mark.parametrize("constant", ["c1", "c2", "c3"])
def test_a_wrong_constant_makes_theorem_2_fail(monkeypatch: pytest.MonkeyPatch, constant: str) -> None:
    right = constants(10, 10, Masking())
    wrong = dataclasses.replace(right, **{constant: 1.01 * getattr(right, constant)})

    def wrong_constants(topics: int, words: int, masking: Masking) -> Constants:
        return wrong

    monkeypatch.setattr(importlib.import_module("topicscope.theory.theorem2"), "constants", wrong_constants)
    assert decide(quick_claim("theorem2/matrix")) == "fails"
    monkeypatch.setattr(importlib.import_module("topicscope.theory.lemma1"), "constants", wrong_constants)
    assert decide(quick_claim("lemma1/minimisers")) == "fails"


def test_documents_that_all_look_alike_have_more_minimisers_than_lemma_1s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        theorem2, "infinite_documents", lambda per_document: infinite_topic_moments(10, 10, 10, Masking())
    )
    assert decide(quick_claim("lemma1/no-others")) == "fails"


def test_a_matrix_that_is_not_near_the_optimum_is_not_nearly_optimal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(theorem2, "theorem2", lambda topics, words, masking: 0.5 * right_matrix(topics, words, masking))
    assert decide(quick_claim("theorem2/finite-excess")) == "fails"
