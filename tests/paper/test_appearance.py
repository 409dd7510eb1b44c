"""When topic structure appears: the order of events on made-up runs, told both ways."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from support.made_up_text_runs import made_up
from topicscope.paper.appearance import claims, drawings, half_ways, layer_half_ways
from topicscope.paper.claim import PRESETS, Measurement, Need, verdict
from topicscope.paper.text_experiment import TextExperiment, TextRuns, joined


def measured(ending: str, runs: TextRuns) -> Measurement:
    [claim] = [claim for claim in claims(PRESETS["quick"]) if claim.id.endswith(ending)]
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

    by_run = ("loss", "norms", "rotation", "log_ratios", "final_low", "layer_log_ratios", "layer_final_low")
    return dataclasses.replace(runs, **{name: cut(getattr(runs, name)) for name in by_run})


def decided(ending: str, runs: TextRuns) -> str:
    [claim] = [claim for claim in claims(PRESETS["quick"]) if claim.id.endswith(ending)]
    return verdict(claim.rule, measured(ending, runs))


def test_which_structure_appears_first_is_told_both_ways() -> None:
    assert decided("embeddings-first", made_up(embedding=60, attention=200)) == "holds"
    assert decided("embeddings-first", made_up(embedding=200, attention=60)) == "fails"
    assert decided("embeddings-first", made_up(structure=0.05)) == "undecided"
    assert half_ways(made_up(embedding=100), "embedding")[0] == pytest.approx(100, abs=1)


def test_the_order_of_layers_is_told_both_ways() -> None:
    runs = made_up()
    assert (np.diff(layer_half_ways(runs), axis=1) > 0).all()
    assert decided("lower-layers-first", runs) == "holds"
    turned = dataclasses.replace(
        runs,
        layer_log_ratios=np.ascontiguousarray(runs.layer_log_ratios[:, :, ::-1]),
        layer_final_low=np.ascontiguousarray(runs.layer_final_low[:, ::-1]),
    )
    assert decided("lower-layers-first", turned) == "fails"


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
    assert decided("embeddings-first", fewer) == "undecided"
    found = measured("embeddings-first", fewer).details
    assert (found["embeddings_half_way_runs"], found["attention_half_way_runs"]) == (2, 3)
    none = measured("embeddings-first", made_up(structure=0.05)).details
    assert none["embeddings_half_way_runs"] == 0
    assert np.isnan(none["embeddings_half_way"])  # type: ignore[arg-type]
    assert none["embedding_final_log_ratio"] == pytest.approx(0.05, rel=1e-3)


def test_the_figure_shows_structure_over_steps_and_where_it_is_half_way() -> None:
    [drawing] = drawings(PRESETS["quick"])
    runs = made_up()
    panels = drawing.draw(by_seed(drawing.needs, runs)).figure.axes
    assert len(panels) == 4
    dots = [line for line in panels[2].lines if line.get_marker() == "o"]
    assert [np.asarray(dot.get_xdata()).tolist() for dot in dots] == [
        half_ways(runs, name).tolist() for name in runs.log_ratios
    ]


def test_a_structure_has_the_same_colour_in_whatever_order_it_was_read() -> None:
    [drawing] = drawings(PRESETS["quick"])
    runs = made_up()
    turned = dataclasses.replace(runs, log_ratios=dict(sorted(runs.log_ratios.items())))
    assert list(turned.log_ratios) != list(runs.log_ratios)
    legends = [
        drawing.draw(by_seed(drawing.needs, each)).figure.axes[2].get_legend_handles_labels() for each in (runs, turned)
    ]
    assert [names for _, names in legends] == [["embedding", "attention"]] * 2
    colours = [[handle.get_color() for handle in handles] for handles, _ in legends]  # type: ignore[attr-defined]
    assert colours[0] == colours[1]


def test_the_paper_preset_is_longer_and_saves_on_the_way() -> None:
    quick, full = (drawings(PRESETS[name])[0].needs[0] for name in ("quick", "paper"))
    assert isinstance(quick, TextExperiment)
    assert isinstance(full, TextExperiment)
    assert full.settings.training.steps > quick.settings.training.steps
    assert full.settings.training.checkpoint_every < full.settings.training.steps / 2


def test_runs_trained_apart_are_joined_in_the_order_of_their_seeds() -> None:
    runs = made_up()
    parts = [only(runs, seed) for seed in range(3)]
    again = dataclasses.replace(joined(parts), seconds=runs.seconds)
    assert again.dump() == runs.dump()
    assert joined(parts).seconds == 3.0
    assert joined(parts[::-1]).dump() != runs.dump()


def test_experiments_of_one_setting_share_no_seed() -> None:
    needs = drawings(PRESETS["quick"])[0].needs
    keys = [need.key((5, 6, 7)) for need in needs]
    assert [key["seeds"] for key in keys] == [[5], [6], [7]]
    assert keys[0]["settings"] == keys[1]["settings"]
