"""Every claim on an exact number has the verdict, and some the number, that the mathematics gives it."""

import pytest

from topicscope.paper.claim import PRESETS, Claim, Verdict, verdict
from topicscope.paper.registry import registry

CLAIMS = {claim.id: claim for claim in registry(PRESETS["quick"]).claims if not claim.needs and not claim.unavailable}

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
    sources = {claim.source for claim in CLAIMS.values() if claim.kind == "ours"}
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
