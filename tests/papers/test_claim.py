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


def test_the_interval_decides() -> None:
    above = Rule.parse("> 1")
    assert verdict(above, over_seeds([1.5, 1.6, 1.4])) == "holds"
    assert verdict(above, over_seeds([0.5, 0.6, 0.4])) == "fails"
    assert verdict(above, over_seeds([0.5, 1.6, 1.4])) == "undecided"
    assert verdict(above, over_seeds([1.5])) == "undecided"
    assert verdict(above, over_seeds([1.5, np.nan, 1.5])) == "undecided"


@given(some.floats(-3, 3), some.floats(0, 2), some.floats(0, 2), some.sampled_from(["> 0", "< 0.5", "-1 .. 1"]))
def test_a_verdict_is_holds_inside_fails_outside_and_else_undecided(
    value: float, below: float, above: float, text: str
) -> None:
    rule, low, high = Rule.parse(text), value - below, value + above
    ends = [end for end in (rule.low, rule.high) if np.isfinite(end)]
    if any(abs(end - each) < 1e-6 for end in ends for each in (low, high)):
        return
    inside, outside = rule.low < low and high < rule.high, high < rule.low or rule.high < low
    expected = "holds" if inside else "fails" if outside else "undecided"
    assert verdict(rule, interval_given(value, low, high)) == expected


@pytest.mark.parametrize(
    ("measurement", "expected"),
    [
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
def test_a_given_interval_decides_together_with_its_test(measurement: Measurement, expected: str) -> None:
    assert verdict(Rule.parse("> 1"), measurement) == expected
    assert json.loads(struct_text(record(CLAIM, "", measurement)))["verdict"] == expected


def test_one_seed_one_case_or_rounding_that_would_turn_a_verdict_leaves_it_undecided() -> None:
    half = Rule.parse("> 0.5")
    values = 0.51 + 0.0126 * np.array([-1.6, -1.1, -0.7, -0.3, 0.0, 0.1, 0.3, 0.7, 1.0, 1.6])
    assert over_seeds(values).interval.low > 0.5
    assert verdict(half, over_seeds(values)) == "undecided"
    assert verdict(half, over_seeds(values + 0.01)) == "holds"
    assert verdict(half, exact(12 / 23, resolution=1 / 23)) == "undecided"
    assert verdict(half, exact(14 / 23, resolution=1 / 23)) == "holds"
    assert verdict(half, exact(0.5 + 1e-12)) == "undecided"
    assert verdict(half, exact(0.499)) == "fails"


def test_a_record_has_the_number_of_the_row_that_decides() -> None:
    rows = {"a": over_seeds([3.0, 3.1, 2.9]), "b": over_seeds([0.2, 0.3, 0.1]), "c": over_seeds([1.5, 1.6, 1.4])}
    found = record(CLAIM, "paper", rows)
    assert found.verdict == "fails"
    assert [found.measured, found.margin] == pytest.approx([0.2, -0.8])
    assert [row.verdict for row in found.rows] == ["holds", "fails", "holds"]
    assert record(CLAIM, "paper", rows | {"b": over_seeds([0.9, 1.4, 1.2])}).verdict == "undecided"
    assert row_names(["figure2/squared-adam", "figure2/squared-sgd"]) == ["squared-adam", "squared-sgd"]


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
    half = Rule.parse("> 0.5")
    assert "One case more or less" in why_undecided(half, exact(12 / 23, resolution=1 / 23))
    assert "rounding could turn" in why_undecided(half, exact(0.5 + 1e-12))
    assert "does not reject 1 (p = 0.2)" in why_undecided(
        Rule.parse("> 1"), interval_given(1.4, 1.3, 1.6, p=0.2, null=1)
    )
    assert "Leaving out one run" in why_undecided(half, over_seeds([0.6, 0.6, 0.6, 0.6, 0.58]))


def test_what_fails_or_is_undecided_has_a_diagnosis_and_what_holds_has_none() -> None:
    failing, holding, open_question = over_seeds([0.0, 0.1, 0.2]), over_seeds([2.0, 2.1, 2.2]), over_seeds([0.0, 3.0])
    known = msgspec.structs.replace(CLAIM, diagnosis=KNOWN)
    assert record(known, "", holding).diagnosis is None
    failed, undecided = record(known, "", failing).diagnosis, record(known, "", open_question).diagnosis
    assert failed is not None
    assert undecided is not None
    assert (failed.cause, failed.explanation, failed.see) == ("wording", "The word is loose.", ["figure2/other"])
    assert undecided.explanation.startswith("The word is loose. The rule's end 1 is in the 95 % interval")
    unknown, power = record(CLAIM, "", failing).diagnosis, record(CLAIM, "", open_question).diagnosis
    assert unknown is not None
    assert power is not None
    assert (unknown.cause, unknown.explanation, power.cause) == ("unknown", UNEXPLAINED, "power")
    reason = not_run(known, "", "No model.").diagnosis
    assert reason is not None
    assert reason.explanation == "No model."


def test_a_record_is_strict_json_and_has_an_interval_only_where_there_is_one() -> None:
    known = exact(2.0, missing=np.nan, number=np.float64(0.5), words="eight of ten")
    made = record(CLAIM, "a_paper", known, seconds=1.23456)
    assert json.loads(struct_text(made))["details"] == {"missing": None, "number": 0.5, "words": "eight of ten"}
    assert (made.paper, made.seconds, made.expected, made.margin) == ("a_paper", 1.235, "> 1", 1.0)
    for measurement in (known, over_seeds([2.0]), over_seeds([np.nan, 1.0])):
        assert (record(CLAIM, "", measurement).low, record(CLAIM, "", measurement).high) == (None, None)
    counted = {
        kind: record(CLAIM, "", each).seeds for kind, each in {"exact": known, "mean": over_seeds([1.0, 2.0])}.items()
    }
    assert counted == {"exact": 0, "mean": 2}


def test_a_claim_on_one_setting_has_its_details_and_one_on_several_names_the_row_that_decides() -> None:
    @per_run
    def measure(value: float) -> Measurement:
        return exact(value, twice=2 * value)

    one = record(CLAIM, "", measure({"figure4/long/scale-0.02": 3.0}))
    assert (one.rows, one.details) == ([], {"twice": 6.0})
    several = record(CLAIM, "", measure({"figure4/a": 3.0, "figure4/b": 0.5}))
    assert [row.name for row in several.rows] == ["a", "b"]
    assert several.details == {"row": "b"}


def test_the_weakest_of_many_numbers_is_the_one_that_decides() -> None:
    rule, good, near = Rule.parse("> 1"), interval_given(2, 1.5, 2.5), interval_given(1.2, 1.05, 1.35)
    doubtful, bad = interval_given(1.1, 0.9, 1.3), interval_given(0.8, 0.7, 0.9)
    missing = interval_given(None, None, None)
    for others, place in (([good, near], 1), ([good, doubtful, near], 1), ([doubtful, good, bad], 2)):
        assert weakest(rule, others) == place
    assert weakest(rule, [good, missing, doubtful]) == 1
