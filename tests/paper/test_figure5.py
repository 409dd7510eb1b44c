"""Figure 5's claims: the rules on made-up runs, told both ways, and a small experiment for real."""

import dataclasses
import operator
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.made_up_text_runs import made_up
from support.text_corpus import small_text_settings, write_corpus
from topicscope.paper.claim import PRESETS, Claim, Drawing, Measurement, Need, need_item, verdict
from topicscope.paper.claim import measured as measured_with_time
from topicscope.paper.experiment import BY_RUN, LAYERS, TextExperiment, TextRuns, dump_arrays, joined
from topicscope.paper.figure5 import (
    CHECKPOINT_EVERY,
    FULL,
    QUICK,
    claims,
    drawings,
    growth_share,
    half_ways,
    layer_half_ways,
    layer_stages,
    norm_layer_stages,
    turning_ratios,
)
from topicscope.scale import map_items
from topicscope.training.loop import Trainer


def named(ending: str) -> Claim:
    # Topic structure is looked for in the paper preset alone.
    preset = PRESETS["paper" if ending.endswith("-first") else "quick"]
    [found] = [claim for claim in claims(preset) if claim.id.endswith(ending)]
    return found


def decided(ending: str, runs: TextRuns) -> str:
    claim = named(ending)
    return verdict(claim.rule, claim.measure({need.name: runs for need in claim.needs}))


def drawing(name: str, preset: str = "quick") -> Drawing:
    [found] = [
        drawing for drawing in drawings(PRESETS["paper" if name == "emergence" else preset]) if drawing.name == name
    ]
    return found


@pytest.mark.parametrize("ending", ["layer-1", "layer-2", "layer-3", "layer-4", "/map"])
def test_two_stages_hold_where_attention_takes_off_late_and_fail_where_it_does_at_once(ending: str) -> None:
    assert decided(ending, made_up(take_off=100)) == "holds"
    # W^V then grows as fast after the take-off as before it: half of its growth is not enough.
    assert decided(ending, made_up(take_off=-3)) == "fails"
    # Attention that never takes off, or so late that the run ends before as long again has passed, tells nothing.
    for late in (10_000, 300):
        assert decided(ending, made_up(take_off=late)) == "undecided"


def test_a_setting_whose_attention_does_not_take_off_is_left_out_of_the_map() -> None:
    claim = named("/map")
    first, *others = [need.name for need in claim.needs]
    two, one, never = (made_up(take_off=step) for step in (100, -3, 10_000))
    found = claim.measure({first: two} | dict.fromkeys(others, never))
    assert found.value == 1
    assert found.details["adam-0.0001/scale-0.02_takes_off_in_time"] == 0
    half = claim.measure({first: two, others[0]: one} | dict.fromkeys(others[1:], never))
    assert half.value == pytest.approx(0.5)


def longer(runs: TextRuns, times: int) -> TextRuns:
    """The same with as many rows again at the end, in which W^V goes on growing at its first pace."""

    def more(values: np.ndarray) -> np.ndarray:
        return np.concatenate([values, *[values[:, -1:]] * ((times - 1) * (len(runs.steps) - 1))], axis=1)

    steps = np.arange(0, times * runs.steps[-1] + 1, runs.steps[1])
    value = more(runs.norms["value"]) + np.maximum(steps - runs.steps[-1], 0)[:, None] / 50
    return dataclasses.replace(
        runs,
        steps=steps,
        norms={name: more(each) for name, each in runs.norms.items()} | {"value": value},
        attention_distance={name: more(each) for name, each in runs.attention_distance.items()},
        rotation=more(runs.rotation),
        loss=more(runs.loss),
    )


def test_neither_the_runs_length_nor_the_initial_scale_changes_the_verdict() -> None:
    for runs in (made_up(take_off=100), made_up(take_off=-3)):
        plain = [each.gain for each in layer_stages(runs, 0)]
        assert [each.gain for each in layer_stages(longer(runs, 3), 0)] == plain
        # Ten times smaller at the start, and the same growth.
        norms = {name: each - 0.9 for name, each in runs.norms.items()}
        smaller = dataclasses.replace(runs, norms=norms)
        assert [each.gain for each in layer_stages(smaller, 0)] == pytest.approx(plain)
        # The control: the rule on norms turns for both, or at least changes its number.
        before = [each.growth for each in norm_layer_stages(runs, 0)]
        assert [each.growth for each in norm_layer_stages(longer(runs, 3), 0)] != pytest.approx(before)
        assert [each.end for each in norm_layer_stages(smaller, 0)] != [each.end for each in norm_layer_stages(runs, 0)]


def test_a_share_of_growth_is_of_the_largest_until_as_long_again_has_passed() -> None:
    steps = np.arange(0, 60, 10)
    value = np.array([1.0, 2.0, 4.0, 3.0, 5.0, 99.0])
    assert growth_share(steps, value, 20) == pytest.approx((4 - 1) / (5 - 1))
    # A norm that falls again has made all of its growth by its peak, and what it kept of it later.
    assert growth_share(steps[:4], value[:4], 20) == 1
    assert growth_share(steps[:4], value[:4], 30) == pytest.approx(2 / 3)
    # One that does not grow has made none.
    assert growth_share(steps, 10 - value, 20) == 0
    assert growth_share(steps, value, 0) == 0


def test_turning_holds_where_w_v_turns_more_in_stage_1_and_fails_where_it_turns_more_in_stage_2() -> None:
    runs = made_up(take_off=100)
    assert decided("/turning", runs) == "holds"
    turned_late = dataclasses.replace(runs, rotation=0.11 - runs.rotation)
    assert decided("/turning", turned_late) == "fails"
    # Some runs so and some otherwise: nothing can be said.
    mixed = runs.rotation.copy()
    mixed[0] = turned_late.rotation[0]
    assert decided("/turning", dataclasses.replace(runs, rotation=mixed)) == "undecided"
    # Runs without a stage 2 have nothing to compare.
    assert decided("/turning", made_up(take_off=10_000)) == "undecided"


def test_a_layer_is_judged_by_its_own_attention() -> None:
    runs = made_up(take_off=100)
    words = runs.attention_distance["words"].copy()
    words[:, 2:, 2] = 0.5
    other = dataclasses.replace(runs, attention_distance={**runs.attention_distance, "words": words})
    assert [each.two for each in layer_stages(other, 2)] == [False] * 3
    assert [each.two for each in layer_stages(other, 1)] == [True] * 3
    assert decided("layer-3", other) == "fails"
    assert decided("layer-2", other) == "holds"


def test_turning_compares_rotation_before_and_after_the_take_off_up_to_the_papers_last_step() -> None:
    runs = made_up(take_off=100)
    assert turning_ratios(runs) == pytest.approx(10, rel=0.2)
    # What comes later does not count.
    twice = longer(runs, 2)
    late = dataclasses.replace(twice, rotation=np.where(twice.steps[:, None] > 400, 5.0, twice.rotation))
    assert turning_ratios(late).tolist() == turning_ratios(runs).tolist()
    early = dataclasses.replace(twice, rotation=np.where(twice.steps[:, None] > 390, 5.0, twice.rotation))
    assert (turning_ratios(early) < turning_ratios(runs)).all()
    never = made_up(take_off=10_000)
    assert np.isnan(turning_ratios(never)).all()


def test_the_verdict_of_before_is_that_of_the_rule_on_norms() -> None:
    claim = named("layer-1")
    for take_off, expected in ((200, "holds"), (-3, "fails")):
        found = measured_with_time(claim, {need.name: made_up(take_off=take_off) for need in claim.needs})
        assert found.verdict_before == expected


def dumped(runs: TextRuns) -> bytes:
    return dump_arrays(vars(runs))


def test_results_are_restored_as_they_were() -> None:
    runs = made_up()
    again = TextExperiment(name="x", settings=small_text_settings(), seeds=1).restore(dumped(runs))
    assert again.norms["value"].tolist() == runs.norms["value"].tolist()
    assert again.seconds == 1.0
    assert dumped(again) == dumped(runs)
    assert dumped(dataclasses.replace(runs, loss=runs.loss + 1)) != dumped(runs)


def test_the_key_knows_settings_and_the_seeds_that_are_used() -> None:
    experiment = named("layer-1").needs[0]
    assert isinstance(experiment, TextExperiment)
    used = tuple(range(QUICK.seeds))
    assert experiment.key(used) == experiment.key((*used, 99))
    assert experiment.key(used) != experiment.key((1, 2, 3))
    changed: Any = dataclasses.replace(experiment, settings=small_text_settings())
    assert experiment.key(used) != changed.key(used)
    blind: Any = dataclasses.replace(experiment, attention_passages=0)
    assert experiment.key(used) != blind.key(used)


def test_figures_are_drawn_in_the_papers_layout() -> None:
    figure5 = drawing("figure5")
    drawn = figure5.draw({need.name: made_up() for need in figure5.needs}).figure
    assert len(drawn.axes) == 5 * LAYERS
    assert [axes.get_title() for axes in drawn.axes[:LAYERS]] == [f"layer {layer}" for layer in range(1, 5)]
    assert len(drawn.axes[0].lines) == 3 * len(figure5.needs)


def test_the_paper_preset_is_longer_and_larger_and_saves_on_the_way() -> None:
    assert FULL.steps > QUICK.steps
    assert FULL.width > QUICK.width
    assert FULL.seeds > QUICK.seeds
    for need in drawing("figure5", "paper").needs:
        assert isinstance(need, TextExperiment)
        assert need.settings.training.checkpoint_every == CHECKPOINT_EVERY < need.settings.training.steps / 2


def test_a_small_experiment_trains_every_seed_and_measures(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    pytest.importorskip("tomotopy")
    corpus = write_corpus(tmp_path, articles=60)
    whole = {"vocabulary": 95}
    topics = {"count": 2, "words": 5, "iterations": 30, "passages": 40, "replicates": 20}
    settings = small_text_settings(corpus, data=whole, topics=topics, training={"log_every": 5})
    experiment = TextExperiment(name="small", settings=settings, seeds=2, attention_passages=3)
    runs = experiment.restore(experiment.compute((0, 1, 2)))
    assert runs.loss.shape == (2, 7)
    assert runs.steps.tolist() == [0, 1, 4, 5, 7, 10, 14]
    assert np.isfinite(runs.loss).all()
    assert runs.norms["value"].shape == (2, len(runs.steps), 2)
    assert (runs.norms["value"][0] != runs.norms["value"][1]).all()
    assert np.isfinite(runs.log_ratios["attention"]).all()
    for distance in runs.attention_distance.values():
        assert distance.shape == (2, len(runs.steps), 2)
        # Attention starts nearly uniform.
        assert ((distance > 0) & (distance < 0.05)).all()
    assert runs.layer_log_ratios.shape == (2, 4, 2)


def test_a_stopped_experiment_goes_on_with_the_seed_and_the_step_it_was_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tokenizers")
    settings = small_text_settings(write_corpus(tmp_path), training={"measures": 0})
    experiment = TextExperiment(name="small", settings=settings, seeds=2)
    updates: list[tuple[int, int]] = []
    update = Trainer.update

    def noted(trainer: Trainer, losses: Any) -> None:
        updates.append((trainer.engine.members[0].seed, trainer.step))
        if len(updates) == 24:
            raise KeyboardInterrupt
        update(trainer, losses)

    monkeypatch.setattr(Trainer, "update", noted)
    item, work = need_item(experiment, (0, 1)), tmp_path / "work"
    with pytest.raises(KeyboardInterrupt):
        map_items(operator.call, [item], folder=work)
    assert updates[-1] == (1, 9)
    (content,) = map_items(operator.call, [item], folder=work)
    # From the checkpoint of step 8 on.
    assert updates[24:] == [(1, step) for step in range(8, 14)]
    np.testing.assert_array_equal(experiment.restore(content).loss, experiment.restore(experiment.compute((0, 1))).loss)
    assert not list(work.glob("*.partial"))


def measured(ending: str, runs: TextRuns) -> Measurement:
    claim = named(ending)
    return claim.measure(by_seed(claim.needs, runs))


def by_seed(needs: Sequence[Need], runs: TextRuns) -> dict[str, TextRuns]:
    """As the experiments give them: a run each."""
    return {need.name: only(runs, seed) for seed, need in enumerate(needs)}


def only(runs: TextRuns, seed: int) -> TextRuns:
    def cut(value: Any) -> Any:
        return (
            {name: each[seed : seed + 1] for name, each in value.items()}
            if isinstance(value, dict)
            else value[seed : seed + 1]
        )

    return dataclasses.replace(runs, **{name: cut(getattr(runs, name)) for name in BY_RUN})


def decided_by_seed(ending: str, runs: TextRuns) -> str:
    claim = named(ending)
    return verdict(claim.rule, measured(ending, runs))


def test_which_structure_appears_first_is_told_both_ways() -> None:
    assert decided_by_seed("embeddings-first", made_up(embedding=60, attention=200)) == "holds"
    assert decided_by_seed("embeddings-first", made_up(embedding=200, attention=60)) == "fails"
    assert decided_by_seed("embeddings-first", made_up(structure=0.05)) == "undecided"
    assert half_ways(made_up(embedding=100), "embedding")[0] == pytest.approx(100, abs=1)


def test_the_order_of_layers_is_told_both_ways() -> None:
    runs = made_up()
    assert (np.diff(layer_half_ways(runs), axis=1) > 0).all()
    assert decided_by_seed("lower-layers-first", runs) == "holds"
    turned = dataclasses.replace(
        runs,
        layer_log_ratios=np.ascontiguousarray(runs.layer_log_ratios[:, :, ::-1]),
        layer_final_low=np.ascontiguousarray(runs.layer_final_low[:, ::-1]),
    )
    assert decided_by_seed("lower-layers-first", turned) == "fails"


def test_steps_are_given_with_intervals_for_each_structure_and_each_layer() -> None:
    runs = made_up(embedding=100, attention=200)
    first, layers = measured("embeddings-first", runs).details, measured("lower-layers-first", runs).details
    check_interval(first, "embeddings_half_way", half_ways(runs, "embedding"))
    check_interval(first, "attention_half_way", half_ways(runs, "attention"))
    for layer, steps in enumerate(layer_half_ways(runs).T, start=1):
        check_interval(layers, f"layer_{layer}_half_way", steps)
    # The control: another structure's step is outside of the interval.
    assert first["attention_half_way"] > first["embeddings_half_way_high"]  # type: ignore[operator]


def check_interval(details: Any, name: str, values: np.ndarray) -> None:
    # Student's 97.5 % quantile with two degrees of freedom.
    half = 4.302653 * values.std(ddof=1) / np.sqrt(3)
    expected = [values.mean(), values.mean() - half, values.mean() + half]
    assert [details[name], details[f"{name}_low"], details[f"{name}_high"]] == pytest.approx(expected, rel=1e-6)
    assert details[f"{name}_runs"] == 3


def test_runs_without_structure_are_counted_out_and_leave_it_undecided() -> None:
    runs = made_up()
    low = {name: low.copy() for name, low in runs.final_low.items()}
    low["embedding"][1] = -0.1
    fewer = dataclasses.replace(runs, final_low=low)
    assert decided_by_seed("embeddings-first", fewer) == "undecided"
    found = measured("embeddings-first", fewer).details
    assert (found["embeddings_half_way_runs"], found["attention_half_way_runs"]) == (2, 3)
    none = measured("embeddings-first", made_up(structure=0.05)).details
    assert none["embeddings_half_way_runs"] == 0
    assert np.isnan(none["embeddings_half_way"])  # type: ignore[arg-type]
    assert none["embedding_final_log_ratio"] == pytest.approx(0.05, rel=1e-3)


def test_the_figure_shows_structure_over_steps_and_where_it_is_half_way() -> None:
    emergence = drawing("emergence")
    runs = made_up()
    panels = emergence.draw(by_seed(emergence.needs, runs)).figure.axes
    assert len(panels) == 4
    dots = [line for line in panels[2].lines if line.get_marker() == "o"]
    assert [np.asarray(dot.get_xdata()).tolist() for dot in dots] == [
        half_ways(runs, name).tolist() for name in runs.log_ratios
    ]


def test_a_structure_has_the_same_colour_in_whatever_order_it_was_read() -> None:
    emergence = drawing("emergence")
    runs = made_up()
    turned = dataclasses.replace(runs, log_ratios=dict(sorted(runs.log_ratios.items())))
    assert list(turned.log_ratios) != list(runs.log_ratios)
    legends = [
        emergence.draw(by_seed(emergence.needs, each)).figure.axes[2].get_legend_handles_labels()
        for each in (runs, turned)
    ]
    assert [names for _, names in legends] == [["embedding", "attention"]] * 2
    colours = [[handle.get_color() for handle in handles] for handles, _ in legends]  # type: ignore[attr-defined]
    assert colours[0] == colours[1]


def test_emergence_is_looked_for_in_the_paper_preset_alone_and_saves_on_the_way() -> None:
    full = drawing("emergence").needs[0]
    assert isinstance(full, TextExperiment)
    assert full.settings.training.checkpoint_every < full.settings.training.steps / 2
    quick = [claim for claim in claims(PRESETS["quick"]) if claim.id.startswith("emergence/")]
    assert len(quick) == 2
    assert all("--preset paper" in claim.unavailable and not claim.needs for claim in quick)
    assert [each.name for each in drawings(PRESETS["quick"])] == ["figure5"]


def test_runs_trained_apart_are_joined_in_the_order_of_their_seeds() -> None:
    runs = made_up()
    parts = [only(runs, seed) for seed in range(3)]
    again = dataclasses.replace(joined(parts), seconds=runs.seconds)
    assert dumped(again) == dumped(runs)
    assert joined(parts).seconds == 3.0
    assert dumped(joined(parts[::-1])) != dumped(runs)


def test_experiments_of_one_setting_share_no_seed() -> None:
    needs = drawing("emergence").needs
    keys = [need.key((5, 6, 7, 8, 9)) for need in needs]
    assert [key["seeds"] for key in keys] == [[5], [6], [7], [8], [9]]
    assert keys[0]["settings"] == keys[1]["settings"]
