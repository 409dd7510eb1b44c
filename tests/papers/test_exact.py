"""Claims that are computed exactly: all are measured once, and their verdicts and known numbers are compared."""

from typing import Any

import numpy as np
import pytest

from topicscope.papers.claim import record
from topicscope.papers.paper import paper
from topicscope.papers.topic_structure import exact
from topicscope.papers.topic_structure.experiments import MASKING, T, V
from topicscope.records import ClaimRecord
from topicscope.theory.lemma1 import lemma1
from topicscope.theory.theorem2 import theorem2

PAPER = paper()
EXACT = {claim.id: claim for claim in PAPER.claims if not claim.needs and claim.quantity.startswith(("exact", "land"))}
FAIL = {"lemma1/all-topics", "theorem1/example", "remark8/rank", "section5.3/optimal", "remark5/average"}
# Numbers of the version before, so that moving a claim does not change it.
KNOWN = {
    "theorem1/example": 0.0192455478,
    "theorem2/finite-ratio": 2.1179183744,
    "theorem2/finite-excess": 0.0067936627,
    "remark8/rank": 1010,
    "lemma1/all-topics": 909,
    "section5.3/optimal": 3.3923071e-05,
    "section6.1/topics": 0.5779830485,
    "figure6/within-topics": 1.7792038935,
}


@pytest.fixture(scope="module")
def records() -> dict[str, ClaimRecord]:
    return {id_: record(claim, PAPER.name, PAPER.measuring(claim)({})) for id_, claim in EXACT.items()}


def test_every_exact_claim_has_the_verdict_that_mathematics_gives_it(records: dict[str, ClaimRecord]) -> None:
    assert {id_ for id_, found in records.items() if found.verdict != "holds"} == FAIL
    for id_ in FAIL:
        diagnosis = records[id_].diagnosis
        assert diagnosis is not None
        assert (records[id_].verdict, diagnosis.cause == "unknown") == ("fails", False)
    for id_, value in KNOWN.items():
        assert records[id_].measured == pytest.approx(value, rel=1e-6), id_


def test_rows_are_settings(records: dict[str, ClaimRecord]) -> None:
    assert [row.verdict for row in records["remark5/average"].rows] == ["fails", "holds"]
    assert len(records["lemma1/no-others"].rows) == 9
    assert len(records["figure6/within-topics"].rows) == 8
    names = {row.name for row in records["theorem3/assumptions"].rows}
    assert names == {"dense", "few words", "half masked", "more random"}


def test_a_matrix_outside_the_family_is_not_called_a_minimiser(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the claim on Lemma 1 fails if the family is wrong."""
    claim, right = EXACT["lemma1/minimisers"], lemma1(T, V, MASKING)

    class Wrong:
        def member(self, *parts: Any) -> Any:
            return right.member(*parts) + 1e-3 * np.eye(exact.VOCABULARY)

    monkeypatch.setattr(exact, "lemma1", lambda *setting: Wrong())
    assert record(claim, "", PAPER.measuring(claim)({})).verdict == "fails"


def test_a_wrong_matrix_of_theorem_2_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    claim = EXACT["theorem2/matrix"]
    monkeypatch.setattr(exact, "theorem2", lambda *setting: 1.001 * theorem2(*setting))
    assert record(claim, "", PAPER.measuring(claim)({})).verdict == "fails"
