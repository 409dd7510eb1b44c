"""Every claim on an exact number has the verdict, and some the number, that the mathematics gives it."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from topicscope.paper import registry, setups, theorem1, theorem2, theorem3
from topicscope.paper.claim import PRESETS, Claim, Verdict, verdict
from topicscope.theory.theorem1 import theorem1_embedding
from topicscope.theory.theorem2 import theorem2 as theorem2_matrix

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


def _other(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same for the other one of the two matrices W^V."""

    def other(documents: Any, value: str, **more: Any) -> Any:
        return function(documents, "diagonal" if value == "block" else "block", **more)

    return other


def uniform(*setting: Any) -> Any:
    return replace(RIGHT(*setting), alpha=1.0, beta=1.0, weighted_average=1.0)


RIGHT = theorem3.optimum
BLOCK = theorem2_matrix(setups.T, setups.V, setups.MASKING)
# What each claim rests on, and what to put in its place so that it is wrong; other claims are broken in the tests of
# their own modules.
BREAKS: dict[str, tuple[ModuleType, str, Any]] = {
    # An optimal E which is not diagonal.
    "remark2/other-words": (theorem1, "_diagonal", lambda: theorem1_embedding(10, 10, setups.MASKING, "block", 101)),
    # Words that weigh less than their topic.
    "theorem2/finite-ratio": (theorem2, "finite_optimum", lambda documents: BLOCK - 0.01 * np.eye(101)),
    # Documents that all have the same topics, and finite ones, which differ in every direction.
    "remark8/rank-corrected": (theorem2, "infinite_documents", lambda: setups.infinite_documents(setups.T)),
    "remark8/not-strongly-convex": (theorem2, "infinite_documents", setups.paper_moments),
    "remark8/ridge": (theorem2, "infinite_documents", setups.paper_moments),
    # A setting that is far from the limit.
    "theorem3/limit": (theorem3, "HUGE", theorem3.LARGE),
    # The other one of the two matrices W^V.
    "remark5/word-queries": (theorem3, "landscape", _other(theorem3.landscape)),
    "remark5/beta": (theorem3, "optimum", _other(theorem3.optimum)),
    "d4/separate": (theorem3, "landscape", _other(theorem3.landscape)),
    "d4/boundary": (theorem3, "optimum", _other(theorem3.optimum)),
    # No more attention within topics than between them.
    "figure6/block-10-2": (theorem3, "optimum", uniform),
    "figure7/block-100-10": (theorem3, "optimum", uniform),
    "figure8/diagonal-10-2": (theorem3, "optimum", uniform),
    "figure9/diagonal-100-10": (theorem3, "optimum", uniform),
}


@pytest.mark.parametrize("name", BREAKS)
def test_every_exact_claim_fails_when_what_it_rests_on_is_broken(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*BREAKS[name])
    assert decided(CLAIMS[name]) == "fails"


def test_assumption_2s_weights_need_enough_dimensions() -> None:
    claim = CLAIMS["section5.3/realisable"]
    assert verdict(claim.rule, theorem3._realised({}, dimension=90)) == "fails"


def test_every_exact_claim_is_broken_somewhere() -> None:
    tests = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    elsewhere = set(re.findall(r'quick_claim\("([^"]+)"\)', tests)) | {"section5.3/realisable"}
    assert CLAIMS.keys() - FAIL - BREAKS.keys() - elsewhere == set()
    assert not elsewhere & BREAKS.keys()


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
