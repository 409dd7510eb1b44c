"""The setup's claims turn: with finite logits, with disjoint topics, with other documents."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from support.fabricated import decide, quick_claim
from topicscope.paper import section3
from topicscope.paper.setups import LDA, MASKING, TAU, T, V, infinite_documents
from topicscope.settings import Masking
from topicscope.synthetic.documents import Bags
from topicscope.synthetic.topics import equal_topics
from topicscope.theory.cross_entropy import cross_entropy_optimum, infinite_bag
from topicscope.theory.finite_documents import population_loss


@pytest.fixture
def documents_anew() -> Iterator[None]:
    """Moments are kept: forget those of replaced topics."""
    section3._documents_of.cache_clear()
    yield
    section3._documents_of.cache_clear()


def test_logits_are_finite_where_every_token_can_be_the_one_to_predict(monkeypatch: pytest.MonkeyPatch) -> None:
    def smoothed(topics: int, words: int, per_document: int, masking: Masking) -> Bags:
        bag = infinite_bag(topics, words, per_document, masking)
        return replace(bag, targets=0.9 * bag.targets + 0.1 / bag.targets.shape[1])

    claim = quick_claim("remark1/infinity")
    assert decide(claim) == "holds"
    monkeypatch.setattr(section3, "infinite_bag", smoothed)
    assert decide(claim) == "fails"


def test_the_contrast_between_words_has_no_limit_on_infinite_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    claim = quick_claim("remark1/finite-documents")
    found = claim.measure({})
    # [MASK]'s logit falls as log(1/λ) does, by log 10 for a tenth of λ.
    assert found.details["mask_logit_falls_by"] == pytest.approx(np.log(10), rel=0.1)
    bag = infinite_bag(T, V, TAU, MASKING)

    def of_infinite_documents(bags: Bags, topics: int, words: int, ridge: float) -> Any:
        return cross_entropy_optimum(bag, topics, words, ridge)

    monkeypatch.setattr(section3, "cross_entropy_optimum", of_infinite_documents)
    assert decide(claim) == "fails"


def test_the_squared_loss_sees_a_constant_added_to_all_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    claim = quick_claim("remark1/constant")
    assert claim.kind == "check"

    def squared(matrix: np.ndarray, bag: Bags) -> float:
        return population_loss(matrix, infinite_documents())

    monkeypatch.setattr(section3, "uniform_cross_entropy", squared)
    assert decide(claim) == "fails"


@pytest.mark.usefixtures("documents_anew")
def test_footnote_2_is_about_shared_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(section3, "shared_topics", equal_topics)
    assert decide(quick_claim("section3.1/disjoint")) == "fails"
    # Of disjoint topics the contrast is determined: nothing is free to turn it round.
    with np.errstate(all="ignore"):
        assert decide(quick_claim("section3.1/any-contrast")) != "holds"


def test_topics_share_their_last_word_with_the_next() -> None:
    shared = section3.shared_topics(3, 2)
    expected = np.array([[1, 1, 0, 0, 0, 1], [0, 1, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1]]) / 3
    np.testing.assert_allclose(shared, expected)


def test_best_blocks_are_a_minimum_in_their_three_numbers() -> None:
    documents = section3._documents_of("shared")
    best = section3._best_blocks(documents)
    least = population_loss(best, documents)
    topic = np.repeat(np.arange(T), V)
    same = np.zeros_like(best)
    same[1:, 1:] = topic[:, None] == topic
    other, mask = np.zeros_like(best), np.zeros_like(best)
    other[1:, 1:], mask[1:, 0] = 1 - same[1:, 1:], 1.0
    for pattern in (same, other, mask):
        for step in (-1e-3, 1e-3):
            assert population_loss(best + step * pattern, documents) > least + 1e-9


@pytest.mark.usefixtures("documents_anew")
@pytest.mark.parametrize("name", ["topic_gain", "zipf_topics"])
def test_unequal_words_have_their_own_contrasts_only(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    section3._documents_of("unequal")
    wrong = {"topic_gain": lambda masking: 1.16, "zipf_topics": equal_topics}
    monkeypatch.setattr(section3, name, wrong[name])
    assert decide(quick_claim("section3.1/unequal-words")) == "fails"


def test_documents_of_many_topics_do_not_have_2_to_4(monkeypatch: pytest.MonkeyPatch) -> None:
    claim = quick_claim("section6.1/topics")
    assert decide(claim) == "holds"
    monkeypatch.setattr(section3, "LDA", replace(LDA, dirichlet=(0.5,)))
    assert decide(claim) == "fails"
