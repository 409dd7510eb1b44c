"""Figures of training hold what they are given, and so do their tables."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from topicscope.reporting.figures import save_figure
from topicscope.reporting.figures.training import (
    ROTATION_NAME,
    attention_bars,
    gradient_ratios,
    heat_maps,
    layer_trajectories,
    loss_levels,
    norm_trajectories,
    seed_points,
    stage_map,
    structure_over_steps,
)

STEPS = np.arange(0, 101, 10)


def test_panels_named_together_share_a_colour_scale_and_others_have_their_own() -> None:
    panels = {name: np.full((5, 5), height) for name, height in (("a", 1.0), ("b", 2.0), ("c", 4.0), ("d", 8.0))}
    figure = heat_maps(panels, words=2, same_scale=[("a", "b")]).figure
    ends = {axes.get_title(): axes.images[0].get_clim() for axes in figure.axes if axes.images and axes.get_title()}
    assert ends == {"a": (-2, 2), "b": (-2, 2), "c": (-4, 4), "d": (-8, 8)}
    two = heat_maps(panels, words=2, same_scale=[("a", "b"), ("c", "d")]).figure
    ends = {axes.get_title(): axes.images[0].get_clim() for axes in two.axes if axes.images and axes.get_title()}
    assert (ends["a"], ends["c"]) == ((-2, 2), (-8, 8))


def test_the_table_of_maps_has_every_entry_by_token_and_topic() -> None:
    matrix = np.random.default_rng(0).normal(size=(5, 5))
    table = heat_maps({"trained": matrix, "theory": 2 * matrix}, words=2).table
    again = np.full((5, 5), np.nan)
    for row in table[:25]:
        again[row["token_i"], row["token_j"]] = row["value"]
    np.testing.assert_array_equal(again, matrix)
    assert not np.array_equal(again.T, matrix)
    assert [row["panel"] for row in table] == ["trained"] * 25 + ["theory"] * 25
    # Token 0 is [MASK]; then each topic has two words, as the boundaries say.
    assert [row["topic_j"] for row in table[:5]] == [0, 1, 1, 2, 2]
    assert [row["topic_i"] for row in table[:25:5]] == [0, 1, 1, 2, 2]


def test_norms_are_drawn_one_line_a_run_with_their_mean_and_the_stage_boundary(tmp_path: Path) -> None:
    norm = np.linspace(1, 5, 11) * np.ones((3, 1))
    rotation = np.full((3, 11), 1e-3)
    rotation[:, 0] = np.nan
    curves = {"W^K": {"norm": norm, "its topics": norm / 2}, ROTATION_NAME: {ROTATION_NAME: rotation}}
    drawn = norm_trajectories({"with": (STEPS, curves, [40]), "without": (STEPS, curves, [])}, title="t")
    figure = drawn.figure
    assert len(figure.axes) == 4
    with_end, without, turning = figure.axes[0], figure.axes[1], figure.axes[3]
    # Three runs and their mean, of two curves; one dashed line more where attention takes off.
    assert len(without.lines) == 8
    assert len(with_end.lines) == 9
    assert (without.get_yscale(), turning.get_yscale()) == ("linear", "log")
    assert "does not take off" in without.get_title()
    assert [path.suffix for path in save_figure(drawn, tmp_path / "norms")] == [".png", ".svg", ".csv"]


def test_predictions_are_a_dashed_line_and_a_thin_curve() -> None:
    curves = {"W^K": {"norm": np.ones((2, 11))}, "W^V": {"other": np.ones((2, 11))}}
    settings = {"with": (STEPS, curves, [40]), "without": (STEPS, curves, [])}
    drawn = norm_trajectories(settings, title="t", predicted={"with": (37.0, [0.0, 30.0], {"norm": [1.0, 2.0]})})
    norm, plain, other = drawn.figure.axes[0], drawn.figure.axes[1], drawn.figure.axes[2]
    # Two runs, their mean and a measured take-off; the predicted one, and where there is a curve of its own, that.
    assert [len(axes.lines) for axes in (norm, plain, other)] == [6, 3, 5]
    thin = next(line for line in norm.lines if line.get_label() == "the reduced model")
    np.testing.assert_array_equal(np.asarray(thin.get_ydata()), [1.0, 2.0])
    assert "predicted at 37" in norm.get_title()
    assert "predicted" not in plain.get_title()
    said = [row for row in drawn.table if row.get("run") == "predicted"]
    assert [row["step"] for row in said] == [0.0, 30.0, 37.0]


def test_the_map_says_where_stage_2_is_missing_and_marks_two_stages() -> None:
    cells = {("SGD 3", "0.001"): (1.0, 500.0, 0.9), ("Adam 0.01", "0.001"): (np.nan, np.nan, np.nan)}
    figure = stage_map({"cross-entropy": cells, "squared loss": cells}, title="t").figure
    texts = {text.get_text(): text.get_fontweight() for text in figure.axes[0].texts}
    assert texts == {"step 500\n90 % gained": "bold", "does not\ntake off": "normal"}
    assert len(figure.axes) == 2


def test_attention_is_drawn_times_100_with_a_dot_a_run() -> None:
    values = np.array([[0.05, 0.02, 0.01], [0.07, 0.02, 0.01]])
    figure = attention_bars({"squared loss, Adam": values}, uniform=0.008, title="t").figure
    widths = [bar.get_width() for bar in figure.axes[0].patches if isinstance(bar, Rectangle)]
    assert widths == pytest.approx([6.0, 2.0, 1.0])
    assert _horizontal(figure.axes[0].lines[0]) == pytest.approx([5.0, 7.0])


def test_points_have_their_threshold_and_one_row_a_setting() -> None:
    values = {"short": np.array([0.7, 0.8]), "long": np.array([2.0, 2.1])}
    figure = seed_points({"ratio": (values, 1.0)}, title="t").figure
    lines = figure.axes[0].lines
    assert _horizontal(lines[0]) == [1.0, 1.0]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["short", "long"]
    assert _horizontal(lines[2]) == pytest.approx([2.0, 2.1])


def test_losses_lie_between_their_levels() -> None:
    models = {"all parts": np.array([0.9, 0.91]), "embedding alone": np.array([0.94, 0.95])}
    figure = loss_levels({"squared loss": (models, {"floor": 0.87, "constant": 0.99})}, title="t").figure
    lines = figure.axes[0].lines
    assert [_horizontal(line)[0] for line in lines[:2]] == [0.87, 0.99]
    assert _horizontal(lines[3]) == pytest.approx([0.94, 0.95])


def test_gradient_ratios_have_a_formula_and_a_dot_a_run() -> None:
    scales = np.array([0.001, 0.01])
    measured = {"cross-entropy": {0.001: np.array([9.0, 11.0])}, "squared loss": {0.001: np.array([8.0, 9.0])}}
    figure = gradient_ratios(measured, dict.fromkeys(measured, (scales, 1e-05 / scales**2)), title="t").figure
    assert _horizontal(figure.axes[0].lines[0]) == pytest.approx(list(scales))
    assert _horizontal(figure.axes[0].lines[1]) == pytest.approx([0.001, 0.001])


def test_tables_of_curves_have_a_row_per_run_and_step_their_mean_and_what_is_marked() -> None:
    steps, norms = np.arange(3), {name: np.arange(6.0).reshape(2, 3) for name in ("key", "query", "value")}
    rotation = np.full((2, 3), 0.5)
    curves = {"W^Q": {"‖W^Q‖": norms["query"]}}
    table = norm_trajectories({"first": (steps, curves, [1]), "second": (steps, curves, [])}, title="t").table
    query = [row for row in table if (row["setting"], row["quantity"]) == ("first", "‖W^Q‖")]
    assert [(row["step"], row["value"]) for row in query if row["run"] == 2] == [(0, 3), (1, 4), (2, 5)]
    assert [(row["step"], row["value"]) for row in query if row["run"] == "mean"] == [(1, 2.5), (2, 3.5)]
    ends = [row for row in table if row["quantity"] == "attention takes off"]
    assert [(row["setting"], row["step"]) for row in ends] == [("first", 1)]

    layered = {name: values[:, :, None] + [0, 10] for name, values in (*norms.items(), ("rotation", rotation))}
    table = layer_trajectories({"only": (steps, layered)}, title="t").table
    key = [row for row in table if (row["quantity"], row["layer"], row["run"]) == ("‖W^K‖", 2, 1)]
    assert [row["value"] for row in key] == [10, 11, 12]
    assert len(table) == 4 * 2 * 2 * 3

    table = structure_over_steps(
        steps,
        rotation,
        layered["value"],
        steps,
        {"attention": norms["key"]},
        layered["key"],
        half_ways={"attention": np.array([1.5, np.nan])},
        layer_half_ways=np.full((2, 2), 2.0),
        title="t",
    ).table
    structure = [row for row in table if row["quantity"].startswith("log-ratio")]
    assert [row["value"] for row in structure if row["run"] == "mean"] == [1.5, 2.5, 3.5]
    marked = [row for row in structure if "half" in str(row["run"])]
    assert [(row["step"], row["value"]) for row in marked[:1]] == [(1.5, 1.0)]
    assert len(marked) == 2


def test_tables_of_points_have_every_run_beside_what_it_is_compared_with() -> None:
    values = {"this": np.array([1.0, 2.0]), "that": np.array([3.0, 4.0])}
    table = seed_points({"ratio": (values, 1.5)}, title="t").table
    assert [(row["setting"], row["run"], row["value"]) for row in table[1:3]] == [("this", 2, 2.0), ("that", 1, 3.0)]
    assert {row["threshold"] for row in table} == {1.5}

    table = loss_levels({"squared loss": (values, {"floor": 0.5, "constant": 5.0})}, title="t").table
    assert [(row["model"], row["value"]) for row in table[3:]] == [("that", 4.0), ("floor", 0.5), ("constant", 5.0)]

    table = attention_bars({"Adam": np.array([[0.05, 0.02, 0.01], [0.07, 0.02, 0.01]])}, uniform=0.008, title="t").table
    assert [row["value"] for row in table[:3]] == pytest.approx([5.0, 7.0, 6.0])
    assert [row["run"] for row in table[:3]] == [1, 2, "mean"]
    assert table[-1] == {"setting": "uniform attention", "value": pytest.approx(0.8)}

    scales = np.array([0.001, 0.01])
    measured = {"cross-entropy": {0.001: np.array([9.0, 11.0])}, "squared loss": {0.01: np.array([8.0])}}
    table = gradient_ratios(measured, dict.fromkeys(measured, (scales, 2 * scales)), title="t").table
    assert [row["value"] for row in table] == [9.0, 11.0, 0.002, 0.02, 8.0, 0.002, 0.02]
    assert [row["initial_scale"] for row in table] == [0.001, 0.001, 0.001, 0.01, 0.01, 0.001, 0.01]

    cells = {("SGD 3", "0.001"): (1.0, 500.0, 0.9), ("Adam 0.01", "0.001"): (np.nan, np.nan, np.nan)}
    first, _ = stage_map({"squared loss": cells}, title="t").table
    assert (first["loss"], first["optimizer"], first["initial_scale"]) == ("squared loss", "SGD 3", "0.001")
    assert (first["two_stage_runs"], first["take_off"], first["uniform_gain"]) == (1.0, 500.0, 0.9)


def _horizontal(line: Line2D) -> list[float]:
    return [float(x) for x in np.asarray(line.get_xdata())]


def test_labels_of_ticks_are_typeset_and_keep_their_size(tmp_path: Path) -> None:
    cells = {("Adam, ε = 1e-06", scale): (1.0, 400.0, 0.97) for scale in ("1e-06", "0.02")}
    drawn = stage_map({"squared loss": cells}, title="map")
    panel = drawn.figure.axes[0]
    size = panel.get_yticklabels()[0].get_fontsize()
    save_figure(drawn, tmp_path / "map")
    assert [label.get_text() for label in panel.get_xticklabels()] == ["10⁻⁶", "0.02"]
    assert [label.get_text() for label in panel.get_yticklabels()] == [r"Adam, ${\varepsilon}$ = 10⁻⁶"]
    assert panel.get_yticklabels()[0].get_fontsize() == size
    # The table is for machines.
    assert "1e-06" in (tmp_path / "map.csv").read_text()
