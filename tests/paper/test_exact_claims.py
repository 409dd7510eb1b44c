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
# Cross-entropy has no closed form for finite documents.
SAMPLED = {"remark1/finite-documents"}


def measured(claim: Claim) -> float:
    return claim.measure({}).value


def decided(claim: Claim) -> Verdict:
    return verdict(claim.rule, claim.measure({}))


@pytest.mark.parametrize("name", CLAIMS)
def test_every_exact_claim_has_the_verdict_that_the_mathematics_gives_it(name: str) -> None:
    assert decided(CLAIMS[name]) == ("fails" if name in FAIL else "holds")
    assert CLAIMS[name].measure({}).kind == ("given" if name in SAMPLED else "exact")


@pytest.mark.parametrize("name", sorted(FAIL))
def test_every_statement_that_fails_says_why_and_names_what_holds_instead(name: str) -> None:
    diagnosis = CLAIMS[name].diagnosis
    assert diagnosis is not None
    assert diagnosis.cause in ("error", "wording")
    assert diagnosis.see
    for other in diagnosis.see:
        assert decided(CLAIMS[other]) == "holds"


@pytest.mark.parametrize(
    ("name", "number", "digits"),
    [
        ("theorem1/example", 0.01925, 5),
        ("theorem2/finite-excess", (0.94562537 - 0.94532184) / (0.99 - 0.94532184), 5),
        ("theorem2/finite-ratio", 0.2152863 / 0.1016500, 5),
        ("remark8/rank", 1010, 0),
        ("section5.3/optimal", 0.9461027 - 0.9460688, 7),
        ("section5.3/nearly-optimal", (0.9461027 - 0.9460688) / (0.95 - 0.9460688), 4),
        ("section5.3/ten-words", 10, 4),
        ("section6.1/topics", 0.578, 3),
        ("remark2/contrast", 0.1156069, 7),
        ("figure6/block-10-2", 5.763, 3),
        ("figure8/diagonal-10-2", 17.79 / 10, 3),
    ],
)
def test_numbers_agree_with_those_derived_by_hand(name: str, number: float, digits: int) -> None:
    assert measured(CLAIMS[name]) == pytest.approx(number, abs=0.6 * 10**-digits)


@pytest.mark.parametrize(
    ("name", "detail", "number", "digits"),
    [
        ("theorem2/matrix", "mask_column", 0.0541908, 7),
        ("theorem2/matrix", "same_topic", 0.1080202, 7),
        ("theorem2/matrix", "different_topic", -0.0075867, 7),
        # Frequencies of [MASK] times b₀, squared: §4's bias "for all i".
        ("theorem1/optimal", "excess_with_the_bias_of_mask_too", (0.15 * 0.1 / 0.865 / 100) ** 2, 10),
        ("section5.3/ten-words", "at_the_papers_masking", (1 / 0.865 + 1) ** 2 + 1, 9),
    ],
)
def test_numbers_beside_claims_agree_with_those_derived_by_hand(
    name: str, detail: str, number: float, digits: int
) -> None:
    assert CLAIMS[name].measure({}).details[detail] == pytest.approx(number, abs=0.6 * 10**-digits)
