import dataclasses
import importlib

import numpy as np
import pytest

from topicscope.paper import exact_attention, exact_uniform
from topicscope.paper.claim import PRESETS, Claim, Verdict, verdict
from topicscope.paper.enumeration import enumerated_loss
from topicscope.paper.exact import claims, drawings
from topicscope.settings import Masking
from topicscope.theory.finite_documents import infinite_topic_moments
from topicscope.theory.landscape import InfiniteDocuments, Landscape
from topicscope.theory.lemma1 import Constants, constants

QUICK = PRESETS["quick"]
CLAIMS = {claim.id: claim for claim in claims(QUICK)}

# As the paper states them, these do not hold.
FAIL = {
    "lemma1/all-topics",
    "theorem1/example",
    "remark8/rank",
    "section5.3/optimal",
    "remark5/average",
    "remark7/no-closed-form",
}


def measured(claim: Claim) -> float:
    return claim.measure({}).value


def decided(claim: Claim) -> Verdict:
    return verdict(claim.rule, claim.measure({}))


@pytest.mark.parametrize("name", CLAIMS)
def test_every_exact_claim_has_the_verdict_that_the_mathematics_gives_it(name: str) -> None:
    assert decided(CLAIMS[name]) == ("fails" if name in FAIL else "holds")
    assert CLAIMS[name].measure({}).kind == "exact"


def test_every_statement_that_fails_has_ours_beside_it() -> None:
    sources = {claim.source for claim in CLAIMS.values() if claim.ours}
    # Lemma 1's correction is its own second claim: it says τ < T.
    assert {CLAIMS[name].source for name in FAIL} - {"Lemma 1"} <= sources


@pytest.mark.parametrize(
    ("name", "number", "digits"),
    [
        ("theorem1/example", 0.01925, 5),
        ("theorem2/mask-column", 0.0541908, 7),
        ("theorem2/same-topic", 0.1080202, 7),
        ("theorem2/different-topic", -0.0075867, 7),
        ("theorem2/finite-excess", 0.94562537 - 0.94532184, 8),
        ("theorem2/finite-ratio", 0.2152863 / 0.1016500, 5),
        ("remark8/rank", 1010, 0),
        ("section5.3/optimal", 0.9461027 - 0.9460688, 7),
        ("theorem3/interval-10-2", 5.763, 3),
        ("figure8/diagonal-10-2", 17.79 / 10, 3),
    ],
)
def test_numbers_agree_with_those_derived_by_hand(name: str, number: float, digits: int) -> None:
    assert measured(CLAIMS[name]) == pytest.approx(number, abs=0.6 * 10**-digits)


@pytest.mark.parametrize("constant", ["c1", "c2", "c3"])
def test_a_wrong_constant_makes_theorem_2_fail(monkeypatch: pytest.MonkeyPatch, constant: str) -> None:
    right = constants(10, 10, Masking())
    wrong = dataclasses.replace(right, **{constant: 1.01 * getattr(right, constant)})

    def wrong_constants(topics: int, words: int, masking: Masking) -> Constants:
        return wrong

    monkeypatch.setattr(importlib.import_module("topicscope.theory.theorem2"), "constants", wrong_constants)
    assert decided(CLAIMS["theorem2/matrix"]) == "fails"
    monkeypatch.setattr(importlib.import_module("topicscope.theory.lemma1"), "constants", wrong_constants)
    assert decided(CLAIMS["lemma1/minimisers"]) == "fails"


def test_documents_that_all_look_alike_have_more_minimisers_than_lemma_1s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_uniform, "_documents", lambda: infinite_topic_moments(10, 10, 10, Masking()))
    assert decided(CLAIMS["lemma1/no-others"]) == "fails"


def test_the_wrong_bias_makes_theorem_1_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_uniform, "theorem1_bias", lambda topics, words, masking: np.zeros(topics * words + 1))
    assert decided(CLAIMS["theorem1/optimal"]) == "fails"
    assert decided(CLAIMS["theorem1/example-corrected"]) == "fails"


def test_brute_force_sees_a_wrong_closed_form(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Landscape.explained
    monkeypatch.setattr(Landscape, "explained", lambda self, *weights: right(self, *weights) + 1e-6)
    assert decided(CLAIMS["remark7/closed-form"]) == "fails"
    assert decided(CLAIMS["remark7/no-closed-form"]) == "holds"


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


def test_every_figure_that_a_claim_names_is_drawn_and_shows_its_optimum() -> None:
    for preset in PRESETS.values():
        drawn = {drawing.name for drawing in drawings(preset)}
        assert {claim.figure for claim in claims(preset) if claim.figure} <= drawn
        assert len(drawn) == (8 if preset.full else 4)
    figure = exact_attention.draw_landscape(exact_attention.SMALL, "block", {}).figure
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert any("α = 6.292, β = 1" in text for text in texts)
