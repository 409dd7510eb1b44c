import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.helpers import small_settings
from topicscope.errors import InputError
from topicscope.paper import Registry, matches
from topicscope.paper.claim import (
    Before,
    Claim,
    Diagnosis,
    Measurement,
    Rule,
    Verdict,
    above,
    below,
    corrected_verdicts,
    exact,
    interval_given,
    measured,
    near,
    over_seeds,
    row,
    rule_text,
    sensitivity,
    share_above,
    share_below,
    verdict,
    why_undecided,
    within,
)
from topicscope.paper.experiment import Experiment

EXPERIMENT = Experiment(name="test/small", settings=small_settings())


def claim(id_: str = "figure2/squared-adam/contrast", source: str = "Figure 2", needs: bool = True) -> Claim:
    return Claim(
        id=id_,
        source=source,
        statement="A statement.",
        expected="> 0",
        rule=above(0),
        measure=lambda trained: exact(1.0),
        needs=(EXPERIMENT,) if needs else (),
    )


def corrected(decided: list[tuple[str, Rule, Measurement]]) -> list[Verdict]:
    """Corrected verdicts of claims with these sources, rules and measurements."""
    claims = [replace(claim(str(place), source), rule=rule) for place, (source, rule, _) in enumerate(decided)]
    return list(corrected_verdicts(claims, {str(place): found for place, (*_, found) in enumerate(decided)}).values())


@pytest.mark.parametrize(
    ("rule", "values", "expected"),
    [
        (above(0), (1.0, 1.1, 0.9, 1.0, 1.05), "holds"),
        (above(0), (-1.0, -1.1, -0.9, -1.0, -1.05), "fails"),
        (above(0), (1.0, -1.1, 0.9, -1.0, 1.05), "undecided"),
        (above(0), (0.0, 0.0, 0.0), "undecided"),
        (above(0), (5.0,), "undecided"),
        (above(0), (1.0, np.nan, 1.0), "undecided"),
        (below(1), (0.1, 0.12, 0.11), "holds"),
        (within(0, 1), (0.5, 0.51, 0.49), "holds"),
        (within(0, 1), (2.0, 2.01, 1.99), "fails"),
        (within(0, 1), (-2.0, -2.01, -1.99), "fails"),
        (within(0, 1), (0.9, 1.0, 1.1), "undecided"),
        # The mean is inside and both ends are in the interval.
        (within(0, 1), (-2.0, 3.0), "undecided"),
        (near(3, 0.1), (3.01, 3.02, 2.99), "holds"),
    ],
)
def test_the_verdict_follows_from_the_interval_and_the_rule(
    rule: Rule, values: tuple[float, ...], expected: Verdict
) -> None:
    assert verdict(rule, over_seeds(values)) == expected


def test_an_exact_number_is_never_undecided_and_a_threshold_is_not_passed_by_reaching_it() -> None:
    assert verdict(above(0), exact(1e-300)) == "holds"
    assert verdict(above(0), exact(0.0)) == "fails"
    assert verdict(below(1e-10), exact(0.0)) == "holds"
    assert verdict(above(0), exact(np.nan)) == "undecided"


@settings(derandomize=True, deadline=None, max_examples=100)
@given(
    st.lists(st.floats(-3, 3).map(lambda value: round(value, 2)), min_size=2, max_size=6),
    st.tuples(st.floats(-2, 2), st.floats(-2, 2)).filter(lambda ends: ends[1] - ends[0] > 0.01),
)
def test_undecided_means_that_the_interval_straddles_an_end(values: list[float], ends: tuple[float, float]) -> None:
    rule, measurement = Rule(*ends), over_seeds(values)
    interval = measurement.interval()
    if interval.low == interval.high:
        return
    inside = rule.low < interval.low and interval.high < rule.high
    outside = interval.high < rule.low or rule.high < interval.low
    expected = "holds" if inside else "fails" if outside else "undecided"
    assert verdict(rule, measurement) == expected


def test_correction_turns_a_narrow_verdict_among_many_to_undecided_and_leaves_exact_ones_alone() -> None:
    narrow = over_seeds((0.2, 1.0, 1.2, 0.6, 0.1))
    assert verdict(above(0), narrow) == "holds"
    alone = [("a", above(0), narrow), *[("a", above(0), exact(1.0))] * 30]
    assert corrected(alone)[0] == "holds"
    others = [(above(0), over_seeds((0.4, -0.5, 0.6)))] * 20
    many = [("a", above(0), narrow), *[("a", *other) for other in others], ("a", above(0), exact(1.0))]
    assert corrected(many)[0] == "undecided"
    assert corrected(many)[-1] == "holds"
    clear = over_seeds((1.0, 1.001, 0.999, 1.0, 1.0))
    assert corrected([("a", above(0), clear), *many])[0] == "holds"
    # Claims of another source are another matter.
    assert corrected([("a", above(0), narrow), *[("b", *other) for other in others]])[0] == "holds"


def test_a_row_has_the_columns_of_claims_json_and_is_strict_json() -> None:
    measured = replace(over_seeds((1.0, 1.1, 0.9), raw=0.5), seconds=1.23456)
    found = row(claim(), measured, "holds", seeds=3)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["id"] == "figure2/squared-adam/contrast"
    assert (found["verdict"], found["verdict_corrected"], found["seeds"]) == ("holds", "holds", 3)
    assert found["low"] < found["measured"] < found["high"]
    assert (found["rule"], found["seconds"], found["details"]) == ("> 0", 1.235, {"raw": 0.5})
    wanted = "id source kind statement expected measured low high unit verdict diagnosis seeds seconds figure"
    assert set(wanted.split()) <= set(found)


def test_a_row_counts_the_seeds_that_its_number_is_taken_over() -> None:
    kinds = [over_seeds((1.0, 1.1, 0.9)), exact(2.0), interval_given(1.4, 1.3, 1.6)]
    assert [row(claim(), each, "holds", seeds=20)["seeds"] for each in kinds] == [3, 20, 0]
    assert row(claim(needs=False), kinds[0], "holds", seeds=20)["seeds"] == 0


@pytest.mark.parametrize("measurement", [exact(2.0), over_seeds((2.0,)), over_seeds((np.nan, 1.0)), None])
def test_low_and_high_are_null_where_there_is_no_interval(measurement: Measurement | None) -> None:
    found = row(claim(), measurement if measurement else None, "undecided")
    assert found["low"] is None
    assert found["high"] is None
    assert json.dumps(found, allow_nan=False)


def test_rules_read_as_they_decide() -> None:
    assert [rule_text(rule) for rule in (above(0), below(1e-10), within(0.5, 2))] == [
        "> 0",
        "< 1e-10",
        "between 0.5 and 2",
    ]
    # Ends that six digits do not tell apart.
    assert rule_text(near(0.1, 1e-10)) == "between 0.0999999999 and 0.1000000001"


def test_claims_are_chosen_by_id_beginning_or_source() -> None:
    claims = (claim(), claim("figure2/sgd"), claim("figure20/other", "Figure 20"), claim("theorem2/x", "Theorem 2"))
    registry = Registry(claims, ())
    chosen = {word: [each.id for each in registry.select((word,))] for word in ("figure2", "Figure 2", "figure2/sgd")}
    assert chosen["figure2"] == chosen["Figure 2"] == ["figure2/squared-adam/contrast", "figure2/sgd"]
    assert chosen["figure2/sgd"] == ["figure2/sgd"]
    assert matches(claims[0], "figure2/squared-adam")
    assert not matches(claims[0], "figure2/squared")
    assert registry.select(()) == claims
    with pytest.raises(InputError, match='"figure7" is no claim: did you mean figure2'):
        registry.select(("figure2", "figure7"))
    with pytest.raises(InputError, match="did you mean figure2/squared-adam or"):
        registry.select(("figure2/squared-adm",))
    with pytest.raises(InputError, match='"zebra" is no claim: give an id'):
        registry.select(("zebra",))


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
        (interval_given(1.4, np.nan, np.nan), "undecided"),
        (interval_given(1.4, -np.inf, np.inf), "undecided"),
        # Widened to hold its own value, and so past the threshold.
        (interval_given(0.95, 1.1, 1.2), "undecided"),
    ],
)
def test_a_given_interval_decides_together_with_its_test(measurement: Measurement, expected: Verdict) -> None:
    assert verdict(above(1.0), measurement) == expected
    assert json.dumps(row(claim(), measurement, expected), allow_nan=False)


def test_a_given_interval_is_shown_and_corrected_for_the_number_of_claims() -> None:
    narrow = interval_given(1.4, 1.01, 1.6, p=0.04, null=1.0, words=12)
    found = row(claim(), narrow, "holds", seeds=5)
    assert (found["measured"], found["low"], found["high"], found["seeds"]) == (1.4, 1.01, 1.6, 0)
    assert found["details"] == {"words": 12.0}
    assert corrected([("a", above(1), narrow)]) == ["holds"]
    assert corrected([("a", above(1), narrow)] * 2) == ["undecided"] * 2
    sure = interval_given(1.4, 1.3, 1.6, p=1e-4, null=1.0)
    assert corrected([("a", above(1), sure), *[("a", above(1), narrow)] * 2])[0] == "holds"


def test_a_claim_that_cannot_be_run_says_why() -> None:
    found = row(replace(claim(), unavailable="The model is not on this machine."), None, "not run")
    assert (found["verdict"], found["measured"]) == ("not run", None)
    assert found["diagnosis"]["explanation"] == "The model is not on this machine."


def test_what_fails_or_is_undecided_has_a_diagnosis_and_what_holds_has_none() -> None:
    known = Diagnosis("wording", "The word is loose.", holds="at another rate", see=("figure2/other",))
    failing, holding = over_seeds((-1.0, -1.1, -0.9)), over_seeds((1.0, 1.1, 0.9))
    said = row(replace(claim(), diagnosis=known), failing, "fails")["diagnosis"]
    assert said == {
        "cause": "wording",
        "explanation": "The word is loose.",
        "holds": "at another rate",
        "see": ["figure2/other"],
    }
    assert row(replace(claim(), diagnosis=known), holding, "holds")["diagnosis"] is None
    assert row(claim(), failing, "fails")["diagnosis"]["cause"] == "unknown"
    open_question = row(claim(), over_seeds((-1.0, 2.0, 1.0)), "undecided")["diagnosis"]
    assert open_question["cause"] == "power"


def test_an_undecided_claim_says_how_many_runs_would_decide_it() -> None:
    values = np.array([-1.0, 2.0, 1.0, 0.5])
    said = why_undecided(above(0), over_seeds(values))
    low = over_seeds(values).interval().low
    runs = int(np.ceil(4 * ((values.mean() - low) / values.mean()) ** 2))
    assert f"about {runs} runs instead of 4" in said
    # So many runs of the same spread do decide it, and a third of them do not.
    spread = values.std(ddof=1) * np.sqrt((runs - 1) / runs)
    many = values.mean() + spread * np.resize([1, -1], runs + runs % 2)
    assert verdict(above(0), over_seeds(many)) == "holds"
    few = values.mean() + spread * np.resize([1, -1], max(2, runs // 3))
    assert verdict(above(0), over_seeds(few)) == "undecided"
    assert why_undecided(above(0), over_seeds((np.nan, 1.0))) == "1 of 2 runs have no such number."


def test_a_changed_rule_shows_the_verdict_of_before() -> None:
    old = Before("more than 2", rule=above(2.0), measure=lambda results: over_seeds(2 * np.array(results["runs"])))
    results = {"runs": (0.5, 0.6, 0.7)}
    mine = replace(claim(), measure=lambda results: over_seeds(results["runs"]), before=old)
    found = row(mine, measured(mine, results), "holds")
    assert (found["verdict"], found["verdict_before"], found["asked_before"]) == ("holds", "fails", "more than 2")
    assert Measurement.restore(measured(mine, results).dump()).verdict_before == "fails"
    unchanged = replace(mine, before=None)
    assert row(unchanged, measured(unchanged, results), "holds")["verdict_before"] is None
    recorded = replace(mine, before=Before("other runs", verdict="undecided"))
    assert row(recorded, measured(recorded, results), "holds")["verdict_before"] == "undecided"


def test_thresholds_that_were_chosen_are_moved_and_others_are_not() -> None:
    found = over_seeds((1.1, 1.11, 1.09))
    assert sensitivity(above(1.05, origin=1), found) == {"third": "holds", "triple": "fails"}
    assert sensitivity(above(1.01, origin=1), found) == {"third": "holds", "triple": "holds"}
    assert sensitivity(near(1.0, 0.06), found) == {"third": "fails", "triple": "holds"}
    assert sensitivity(above(1.0), found) == {}


def test_thresholds_of_shares_are_moved_in_odds_so_that_they_stay_shares() -> None:
    third, triple = (share_above(0.5).scaled(factor) for factor in (1 / 3, 3.0))
    assert (third.low, triple.low) == pytest.approx((0.25, 0.75))
    assert share_below(2 / 3).scaled(3.0).high == pytest.approx(6 / 7)
    # There and back again.
    assert share_above(0.2).scaled(3.0).scaled(1 / 3).low == pytest.approx(0.2)
    found = over_seeds((0.8, 0.81, 0.79))
    assert sensitivity(share_above(0.5), found) == {"third": "holds", "triple": "holds"}
    # As a multiple the threshold would be 1.5, which no share reaches.
    assert sensitivity(above(0.5, origin=0), found)["triple"] == "fails"


def test_a_threshold_inside_a_measurement_is_moved_too() -> None:
    claim = Claim(
        id="figure4/made-up",
        statement="It holds.",
        rule=above(0),
        measure=lambda results: exact(1.0),
        varied={
            "take-off at a third": lambda results: exact(-1.0),
            "take-off at three times": lambda results: exact(1),
        },
    )
    found = Measurement.restore(measured(claim, {}).dump())
    assert row(claim, found, "holds")["sensitivity"] == {
        "take-off at a third": "fails",
        "take-off at three times": "holds",
    }
