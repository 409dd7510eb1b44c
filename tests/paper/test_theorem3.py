"""Theorem 3's grid and assumptions; the brute force that the closed form of Remark 7 is held against."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from support.fabricated import decide, quick_claim
from topicscope.paper import theorem3
from topicscope.paper.theorem3 import TINY, cell, enumerated_loss, grid
from topicscope.settings import Masking
from topicscope.theory.landscape import AttentionOptimum, InfiniteDocuments, Landscape
from topicscope.theory.theorem2 import theorem2_classes
from topicscope.theory.theorem3 import Theorem3, violated_assumptions
from topicscope.theory.theorem3 import theorem3 as bounds_of


def test_brute_force_sees_a_wrong_closed_form(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Landscape.explained
    monkeypatch.setattr(Landscape, "explained", lambda self, *weights: right(self, *weights) + 1e-6)
    assert decide(quick_claim("remark7/closed-form")) == "fails"
    assert decide(quick_claim("remark7/no-closed-form")) == "holds"


def test_brute_force_agrees_with_sampled_documents() -> None:
    """Documents of 20,000 words, masked and attended to position by position, sampled."""
    documents = InfiniteDocuments(topics=3, per_document=2, words=2, masking=Masking(mask=0.3))
    value = np.random.default_rng(0).normal(scale=0.2, size=(7, 7))
    draw, alpha, beta = np.random.default_rng(1), 3.0, 0.5
    topic = np.array([-1, 0, 0, 1, 1, 2, 2])
    weights = np.where(topic[:, None] == topic, alpha, 1.0)
    np.fill_diagonal(weights, beta)
    losses = np.zeros((3, 30))
    # Each set of topics equally often, so that only words and masks are left to chance.
    for missing, document in np.ndindex(losses.shape):
        topics = np.delete(np.arange(3), missing)
        words = 1 + 2 * draw.choice(topics, size=20_000) + draw.integers(2, size=20_000)
        masked = draw.uniform(size=20_000) < 0.3
        kind = draw.uniform(size=20_000)
        seen = np.where(masked & (kind < 0.8), 0, words)
        seen = np.where(masked & (kind > 0.9), draw.integers(1, 7, size=20_000), seen)
        attended = weights * np.bincount(seen, minlength=7)[:, None]
        predictions = (value @ (attended / attended.sum(axis=0)))[:, seen[masked]]
        losses[missing, document] = ((predictions - np.eye(7)[:, words[masked]]) ** 2).sum(axis=0).mean()
    standard_error = np.sqrt(losses.var(axis=1, ddof=1).mean() / losses.size)
    assert abs(np.mean(losses) - enumerated_loss(documents, value, alpha, beta)) < 5 * standard_error
    assert abs(np.mean(losses) - enumerated_loss(documents, value, 1.0, beta)) > 5 * standard_error


@pytest.mark.parametrize("masking", [Masking(), Masking(mask=0.4, keep=0.3, random=0.3)])
def test_a_cell_has_the_optimum_of_a_search_by_brute_force(masking: Masking) -> None:
    found = cell(4, 2, 3, masking)
    documents = replace(TINY, masking=masking)
    value = theorem2_classes(4, 3, masking).matrix(4, 3)

    def loss(point: np.ndarray) -> float:
        return enumerated_loss(documents, value, float(np.exp(point[0])), float(np.exp(point[1])))

    alpha, beta = np.exp(minimize(loss, np.zeros(2), method="Nelder-Mead", tol=1e-12).x)
    assert found.average == pytest.approx((2 * alpha + beta) / 3, rel=1e-4)
    assert not found.outside
    assert cell(4, 3, 3, masking).average != pytest.approx(found.average, rel=1e-2)


def test_the_grid_meets_the_assumptions_and_has_the_figures_settings() -> None:
    cells = grid()
    assert not any(violated_assumptions(each.documents) for each in cells)
    assert all(2 * each.documents.per_document <= each.documents.topics for each in cells)
    assert {theorem3.SMALL, theorem3.LARGE} <= {each.documents for each in cells}


def test_settings_beside_the_grid_break_one_assumption_each() -> None:
    for name, cells in theorem3.broken().items():
        for each in cells:
            broken = violated_assumptions(each.documents)
            sparse = 2 * each.documents.per_document <= each.documents.topics
            assert len(broken) + (not sparse) == 1, (name, each.words, broken)


@pytest.mark.parametrize(("low", "high"), [(2.0, 1.0), (1.0, 1e-3)])
def test_narrower_bounds_make_theorem_3_fail(monkeypatch: pytest.MonkeyPatch, low: float, high: float) -> None:
    def narrower(documents: InfiniteDocuments) -> Theorem3:
        found = bounds_of(documents)
        assert found.high is not None
        return replace(found, low=low * found.low, high=high * found.high)

    monkeypatch.setattr(theorem3, "theorem3", narrower)
    assert decide(quick_claim("theorem3/grid")) == "fails"


def test_an_assumption_without_which_nothing_is_outside_would_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    right = theorem3.broken()
    monkeypatch.setattr(theorem3, "broken", lambda: right | {"half_masked": grid()})
    assert decide(quick_claim("theorem3/assumptions")) == "fails"


def test_ten_words_do_not_suffice_for_a_larger_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(theorem3, "fewest_words", lambda masking: (1 / (1 - masking.mask) + 1) ** 2 + 1.001)
    assert decide(quick_claim("section5.3/ten-words")) == "fails"


def test_uniform_attention_is_not_nearly_optimal(monkeypatch: pytest.MonkeyPatch) -> None:
    right = theorem3.optimum

    def uniform(documents: InfiniteDocuments, value: str = "block", *, free_mask_key: bool = False) -> AttentionOptimum:
        found = right(documents, value, free_mask_key=free_mask_key)
        return found if free_mask_key else replace(found, loss=found.loss_uniform)

    monkeypatch.setattr(theorem3, "optimum", uniform)
    assert decide(quick_claim("section5.3/nearly-optimal")) == "fails"
