"""Claims on runs on text: the rules on made-up runs whose events are at known steps, decided both ways."""

from dataclasses import replace

import numpy as np
import pytest

from support.runs import PAPER, decide
from support.text_runs import CELLS, SEEDS, STEPS, made_up
from topicscope.measure.run import Run
from topicscope.papers.needs import PRESETS, Experiment
from topicscope.papers.registry import paper
from topicscope.papers.topic_structure import on_text


def with_metric(run: Run, name: str, values: np.ndarray) -> Run:
    return replace(run, metrics={**run.metrics, name: values})


def test_two_stages_hold_where_attention_takes_off_late_and_fail_where_it_does_at_once() -> None:
    for claim, results in (("figure5/layers", CELLS[:1]), ("figure5/map", CELLS)):
        # W^V grows as fast after a take-off at once as before it: half of its growth is not enough. Attention that
        # never takes off, or so late that the run ends before as long again has passed, decides nothing.
        for take_off, expected in ((100, "holds"), (-3, "fails"), (10_000, "undecided"), (300, "undecided")):
            assert decide(claim, dict.fromkeys(results, made_up(take_off))) == expected, (claim, take_off)


def test_a_layer_is_judged_by_its_own_attention() -> None:
    run = made_up()
    words = run.metrics["attention/words"].copy()
    words[:, 2:, 2] = 0.5
    rows = on_text.growth_at_take_off({"a": with_metric(run, "attention/words", words)})
    assert [row.value > 2 / 3 for row in rows.values()] == [True, True, False, True]
    assert decide("figure5/layers", {"a": with_metric(run, "attention/words", words)}) == "fails"


def test_the_map_counts_layers_and_one_layer_more_or_less_is_no_verdict() -> None:
    two, one, never = (made_up(step) for step in (100, -3, 10_000))
    count = on_text.two_stage_layers({"figure5/a": two, "figure5/b": one, "figure5/c": never})
    assert (count.value, count.resolution) == (0.5, 1 / 8)
    assert [count.details[name] for name in "abc"] == ["4 of 4", "0 of 4", "0 of 0"]
    assert decide("figure5/map", {"figure5/a": two, "figure5/b": one}) == "undecided"


def longer(run: Run) -> Run:
    """The same with as many rows again, in which W^V goes on growing at its first pace."""
    metrics = {
        name: np.concatenate([values, *[values[:, -1:]] * (len(STEPS) - 1)], axis=1)
        for name, values in run.metrics.items()
    }
    steps = np.arange(0, 801, 5)
    metrics["norm/value"] = metrics["norm/value"] + np.maximum(steps - 400, 0)[:, None] / 50
    return replace(run, steps=steps, metrics=metrics)


def test_neither_the_runs_length_nor_the_initial_scale_changes_the_share() -> None:
    for take_off in (100, -3):
        run = made_up(take_off)
        plain = [one.gain for one in on_text.layer_stages(run, 0)]
        assert [one.gain for one in on_text.layer_stages(longer(run), 0)] == plain
        # Ten times smaller at the start, and the same growth.
        smaller = with_metric(run, "norm/value", run.metrics["norm/value"] - 0.9)
        assert [one.gain for one in on_text.layer_stages(smaller, 0)] == pytest.approx(plain)


def test_a_share_of_growth_is_of_the_largest_until_as_long_again_has_passed() -> None:
    steps = np.arange(0, 60, 10)
    value = np.array([1.0, 2.0, 4.0, 3.0, 5.0, 99.0])
    assert on_text.growth_share(steps, value, 20) == pytest.approx((4 - 1) / (5 - 1))
    # A norm that falls again has made all of its growth by its peak, and what it kept of it later.
    assert on_text.growth_share(steps[:4], value[:4], 20) == 1
    assert on_text.growth_share(steps[:4], value[:4], 30) == pytest.approx(2 / 3)
    # One that does not grow has made none.
    assert on_text.growth_share(steps, 10 - value, 20) == 0


def test_turning_compares_rotation_before_and_after_the_take_off_up_to_the_papers_last_step() -> None:
    run = made_up()
    rotation = run.metrics["rotation"]
    assert on_text.turning_ratio({"a": run}).values == pytest.approx([10] * SEEDS, rel=0.2)
    assert decide("figure5/turning", {"a": run}) == "holds"
    assert decide("figure5/turning", {"a": with_metric(run, "rotation", 0.11 - rotation)}) == "fails"
    # Runs without a stage 2 have nothing to compare.
    assert decide("figure5/turning", {"a": made_up(10_000)}) == "undecided"
    # What comes later does not count, but what comes before does.
    twice = longer(run)
    for after, expected in ((400, True), (390, False)):
        late = np.where(twice.steps[:, None] > after, 5.0, twice.metrics["rotation"])
        same = on_text.turning_ratio({"a": with_metric(twice, "rotation", late)}).values
        assert (same == pytest.approx(on_text.turning_ratio({"a": run}).values)) == expected


def test_untrained_runs_pass_no_claim() -> None:
    untrained = made_up(10_000)
    untrained = replace(
        untrained,
        metrics={name: 0 * values + (name.startswith("norm/")) for name, values in untrained.metrics.items()},
    )
    for claim in (claim for claim in PAPER.claims if claim.quantity.startswith("on_text.")):
        assert decide(claim.id, dict.fromkeys(CELLS[:1], untrained)) != "holds", claim.id


def test_the_paper_preset_is_longer_and_larger() -> None:
    quick, full = (
        {
            name: need
            for name, need in paper(preset=preset).experiments.items()
            if name.startswith("figure5/") and isinstance(need, Experiment)
        }
        for preset in PRESETS.values()
    )
    witness = CELLS[0]
    assert full[witness].settings.training.steps > quick[witness].settings.training.steps
    assert full[witness].most_seeds > quick[witness].most_seeds > quick[CELLS[1]].most_seeds
    assert len(full) > len(quick)
    for need in full.values():
        assert need.settings.training.checkpoint_every < need.settings.training.steps / 2
