"""The brute force that the closed form of Remark 7 is held against."""

import numpy as np
import pytest

from support.fabricated import decide, quick_claim
from topicscope.paper.theorem3 import enumerated_loss
from topicscope.settings import Masking
from topicscope.theory.landscape import InfiniteDocuments, Landscape


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
