"""Rules, verdicts and records."""

import json

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from topicscope.papers.claim import (
    UNEXPLAINED,
    Claim,
    Measurement,
    Rule,
    exact,
    interval_given,
    not_run,
    over_seeds,
    per_run,
    record,
    row_names,
    verdict,
    weakest,
    why_undecided,
)
from topicscope.records import DiagnosisRecord
from topicscope.store import struct_text

CLAIM = Claim(id="figure2/blocks", source="Figure 2", statement="Blocks stand out.", rule="> 1", quantity="trained.x")
KNOWN = DiagnosisRecord(
    cause="wording", explanation="The word is loose.", holds="at another rate", see=["figure2/other"]
)
ABOVE, HALF = Rule.parse("> 1"), Rule.parse("> 0.5")


def test_rules_are_read_and_what_is_no_rule_is_refused() -> None:
    ends = {
        "> 1": (1, np.inf),
        "< 1e-10": (-np.inf, 1e-10),
        "-2 .. −1": (-2, -1),
        "= 0.5 ± 0.25": (0.25, 0.75),
        "> 2/3": (2 / 3, np.inf),
    }
    assert {text: (Rule.parse(text).low, Rule.parse(text).high) for text in ends} == ends
    for text in ("", ">1", ">= 1", "1 .. 0", "= 1", "= 1 ± 0", "> x"):
        with pytest.raises(ValueError, match="is no rule"):
            Rule.parse(text)


@pytest.mark.parametrize(
    ("measurement", "expected"),
    [
        (over_seeds([1.5, 1.6, 1.4]), "holds"),
        (over_seeds([0.5, 0.6, 0.4]), "fails"),
        (over_seeds([0.5, 1.6, 1.4]), "undecided"),
        (over_seeds([1.5]), "undecided"),
        (over_seeds([1.5, np.nan, 1.5]), "undecided"),
        (interval_given(1.4, 1.3, 1.6), "holds"),
        (interval_given(1.4, 0.9, 1.6), "undecided"),
        (interval_given(0.8, 0.7, 0.9), "fails"),
        # The interval says yes and the permutation test of the same threshold does not.
        (interval_given(1.4, 1.3, 1.6, p=0.2, null=1.0), "undecided"),
        (interval_given(1.4, 1.3, 1.6, p=0.001, null=1.0), "holds"),
        # A test of another hypothesis says nothing about this threshold.
        (interval_given(1.4, 1.3, 1.6, p=0.2, null=0.0), "holds"),
        (interval_given(1.4, None, None), "undecided"),
        # Widened to contain its own value, and so past the threshold.
        (interval_given(0.95, 1.1, 1.2), "undecided"),
    ],
)
def test_the_interval_decides_together_with_its_test(measurement: Measurement, expected: str) -> None:
    assert verdict(ABOVE, measurement) == expected
    assert json.loads(struct_text(record(CLAIM, "", measurement)))["verdict"] == expected


@given(some.floats(-3, 3), some.floats(0, 2), some.floats(0, 2), some.sampled_from(["> 0", "< 0.5", "-1 .. 1"]))
def test_a_verdict_is_holds_inside_fails_outside_and_else_undecided(
    value: float, below: float, above: float, text: str
) -> None:
    rule, low, high = Rule.parse(text), value - below, value + above
    ends = [end for end in (rule.low, rule.high) if np.isfinite(end)]
    if any(abs(end - near) < 1e-6 for end in ends for near in (low, high)):
        return
    inside, outside = rule.low < low and high < rule.high, high < rule.low or rule.high < low
    expected = "holds" if inside else "fails" if outside else "undecided"
    assert verdict(rule, interval_given(value, low, high)) == expected


def test_one_seed_one_case_or_rounding_that_would_turn_a_verdict_leaves_it_undecided() -> None:
    values = 0.51 + 0.0126 * np.array([-1.6, -1.1, -0.7, -0.3, 0.0, 0.1, 0.3, 0.7, 1.0, 1.6])
    assert over_seeds(values).interval.low > 0.5
    assert verdict(HALF, over_seeds(values)) == "undecided"
    assert verdict(HALF, over_seeds(values + 0.01)) == "holds"
    assert verdict(HALF, exact(12 / 23, resolution=1 / 23)) == "undecided"
    assert verdict(HALF, exact(14 / 23, resolution=1 / 23)) == "holds"
    assert verdict(HALF, exact(0.5 + 1e-12)) == "undecided"
    assert verdict(HALF, exact(0.499)) == "fails"


def test_a_record_has_the_number_of_the_row_that_decides() -> None:
    rows = {"a": over_seeds([3.0, 3.1, 2.9]), "b": over_seeds([0.2, 0.3, 0.1]), "c": over_seeds([1.5, 1.6, 1.4])}
    made = record(CLAIM, "paper", rows)
    assert (made.verdict, made.details) == ("fails", {"row": "b"})
    assert [made.measured, made.margin] == pytest.approx([0.2, -0.8])
    assert [row.verdict for row in made.rows] == ["holds", "fails", "holds"]
    assert record(CLAIM, "paper", rows | {"b": over_seeds([0.9, 1.4, 1.2])}).verdict == "undecided"
    good, near, doubtful, bad = (
        interval_given(*ends) for ends in ((2, 1.5, 2.5), (1.2, 1.05, 1.35), (1.1, 0.9, 1.3), (0.8, 0.7, 0.9))
    )
    missing = interval_given(None, None, None)
    for others, place in (
        ([good, near], 1), ([good, doubtful, near], 1), ([doubtful, good, bad], 2), ([good, missing, doubtful], 1)
    ):  # fmt: skip
        assert weakest(ABOVE, others) == place


def test_a_row_is_a_run_named_by_what_distinguishes_it() -> None:
    @per_run
    def measure(value: float) -> Measurement:
        return exact(value, twice=2 * value)

    assert row_names(["figure2/squared-adam", "figure2/squared-sgd"]) == ["squared-adam", "squared-sgd"]
    one = record(CLAIM, "", measure({"figure4/long/scale-0.02": 3.0}))
    assert (one.rows, one.details) == ([], {"twice": 6.0})
    assert [row.name for row in record(CLAIM, "", measure({"figure4/a": 3.0, "figure4/b": 0.5})).rows] == ["a", "b"]


def test_an_undecided_claim_says_what_would_decide_it() -> None:
    above, values = Rule.parse("> 0"), np.array([-1.0, 2.0, 1.0, 0.5])
    low = over_seeds(values).interval.low
    runs = int(np.ceil(4 * ((values.mean() - low) / values.mean()) ** 2))
    assert f"about {runs} runs instead of 4" in why_undecided(above, over_seeds(values))
    # So many runs of the same spread do decide it, and a third of them do not.
    spread = values.std(ddof=1) * np.sqrt((runs - 1) / runs)
    for count, expected in ((runs + runs % 2 + 2, "holds"), (max(2, runs // 3), "undecided")):
        assert verdict(above, over_seeds(values.mean() + spread * np.resize([1, -1], count))) == expected
    assert why_undecided(above, over_seeds([np.nan, 1.0])) == "1 of 2 runs have no such number."
    assert "One case more or less" in why_undecided(HALF, exact(12 / 23, resolution=1 / 23))
    assert "rounding could turn" in why_undecided(HALF, exact(0.5 + 1e-12))
    assert "does not reject 1 (p = 0.2)" in why_undecided(ABOVE, interval_given(1.4, 1.3, 1.6, p=0.2, null=1))
    assert "Leaving out one run" in why_undecided(HALF, over_seeds([0.6, 0.6, 0.6, 0.6, 0.58]))


def test_what_fails_or_is_undecided_has_a_diagnosis_and_what_holds_has_none() -> None:
    failing, holding, open_question = over_seeds([0.0, 0.1, 0.2]), over_seeds([2.0, 2.1, 2.2]), over_seeds([0.0, 3.0])
    known = msgspec.structs.replace(CLAIM, diagnosis=KNOWN)
    assert record(known, "", holding).diagnosis is None
    assert record(known, "", failing).diagnosis == KNOWN
    undecided, unknown, power, reason = (
        made.diagnosis
        for made in (
            record(known, "", open_question),
            record(CLAIM, "", failing),
            record(CLAIM, "", open_question),
            not_run(known, "", "No model."),
        )
    )
    assert undecided is not None
    assert undecided.explanation.startswith("The word is loose. The rule's end 1 is in the 95 % interval")
    assert unknown == DiagnosisRecord(cause="unknown", explanation=UNEXPLAINED)
    assert power is not None
    assert power.cause == "power"
    assert reason == DiagnosisRecord(cause="settings", explanation="No model.")


def test_a_record_is_strict_json_and_has_an_interval_only_where_there_is_one() -> None:
    known = exact(2.0, missing=np.nan, number=np.float64(0.5), of_seeds=np.array([1.0, 3.0]), words="eight of ten")
    made = record(CLAIM, "a_paper", known, seconds=1.23456)
    details = {"missing": None, "number": 0.5, "of_seeds": 2.0, "words": "eight of ten"}
    assert json.loads(struct_text(made))["details"] == details
    assert (made.paper, made.seconds, made.expected, made.margin) == ("a_paper", 1.235, "> 1", 1.0)
    for measurement, seeds in ((known, 0), (over_seeds([2.0]), 1), (over_seeds([np.nan, 1.0]), 2)):
        made = record(CLAIM, "", measurement)
        assert (made.low, made.high, made.seeds) == (None, None, seeds)
