"""Figures of the claims on trained models hold what they are given."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from topicscope.reporting.figures.base import save_figure
from topicscope.reporting.figures.paper import (
    attention_bars,
    gradient_ratios,
    loss_levels,
    norm_trajectories,
    seed_points,
    stage_map,
)

STEPS = np.arange(0, 101, 10)


def test_norms_are_drawn_one_line_a_run_with_their_mean_and_the_stage_boundary(tmp_path: Path) -> None:
    norms = {name: np.linspace(1, 5, 11) * np.ones((3, 1)) for name in ("key", "query", "value")}
    rotation = np.full((3, 11), 1e-3)
    rotation[:, 0] = np.nan
    figure = norm_trajectories(
        {"with": (STEPS, norms, rotation, [40]), "without": (STEPS, norms, rotation, [])}, title="t"
    )
    assert len(figure.axes) == 8
    with_end, without = figure.axes[0], figure.axes[1]
    # Three runs and their mean; one dashed line more where stage 1 ends.
    assert len(without.lines) == 4
    assert len(with_end.lines) == 5
    assert "does not end" in without.get_title()
    assert [path.suffix for path in save_figure(figure, tmp_path / "norms")] == [".png", ".svg", ".csv"]


def test_the_map_says_where_stage_2_is_missing_and_marks_two_stages() -> None:
    cells = {("SGD 3", "0.001"): (1.0, 0.5, 0.6), ("Adam 0.01", "0.001"): (0.0, 1.0, 1.0)}
    figure = stage_map({"cross-entropy": cells, "squared loss": cells}, title="t")
    texts = {text.get_text(): text.get_fontweight() for text in figure.axes[0].texts}
    assert texts == {"50 % steps\n60 % growth": "bold", "no stage 2": "normal"}
    assert len(figure.axes) == 2


def test_attention_is_drawn_times_100_with_a_dot_a_run() -> None:
    values = np.array([[0.05, 0.02, 0.01], [0.07, 0.02, 0.01]])
    figure = attention_bars({"squared loss, Adam": values}, uniform=0.008, title="t")
    widths = [bar.get_width() for bar in figure.axes[0].patches if isinstance(bar, Rectangle)]
    assert widths == pytest.approx([6.0, 2.0, 1.0])
    assert _horizontal(figure.axes[0].lines[0]) == pytest.approx([5.0, 7.0])


def test_points_have_their_threshold_and_one_row_a_setting() -> None:
    values = {"short": np.array([0.7, 0.8]), "long": np.array([2.0, 2.1])}
    figure = seed_points({"ratio": (values, 1.0)}, title="t")
    lines = figure.axes[0].lines
    assert _horizontal(lines[0]) == [1.0, 1.0]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["short", "long"]
    assert _horizontal(lines[2]) == pytest.approx([2.0, 2.1])


def test_losses_lie_between_their_levels() -> None:
    models = {"all parts": np.array([0.9, 0.91]), "embedding alone": np.array([0.94, 0.95])}
    figure = loss_levels({"squared loss": (models, {"floor": 0.87, "constant": 0.99})}, title="t")
    lines = figure.axes[0].lines
    assert [_horizontal(line)[0] for line in lines[:2]] == [0.87, 0.99]
    assert _horizontal(lines[3]) == pytest.approx([0.94, 0.95])


def test_gradient_ratios_have_a_formula_and_a_dot_a_run() -> None:
    scales = np.array([0.001, 0.01])
    measured = {"cross-entropy": {0.001: np.array([9.0, 11.0])}, "squared loss": {0.001: np.array([8.0, 9.0])}}
    figure = gradient_ratios(measured, dict.fromkeys(measured, (scales, 1e-05 / scales**2)), title="t")
    assert _horizontal(figure.axes[0].lines[0]) == pytest.approx(list(scales))
    assert _horizontal(figure.axes[0].lines[1]) == pytest.approx([0.001, 0.001])


def _horizontal(line: Line2D) -> list[float]:
    return [float(x) for x in np.asarray(line.get_xdata())]
