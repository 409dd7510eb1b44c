"""A figure's numbers, read back from what was drawn, are those that were given to be drawn."""

import csv
import io
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from topicscope.reporting.figures.base import heat_maps, save_figure
from topicscope.reporting.figures.numbers import COLUMNS, Series, figure_numbers, numbers_csv
from topicscope.reporting.figures.paper import norm_trajectories, seed_points
from topicscope.reporting.figures.probe import head_maps
from topicscope.reporting.figures.sweep import by_setting


def by_name(figure: Figure) -> dict[str, Series]:
    return {series.name: series for series in figure_numbers(figure)}


def test_a_maps_numbers_are_its_entries_at_row_and_column() -> None:
    matrix = np.random.default_rng(0).normal(size=(4, 4))
    figure = heat_maps({"trained": matrix, "theory": 2 * matrix}, words=3)
    trained, _, theory, _ = figure_numbers(figure)
    assert trained.panel.startswith("trained")
    assert theory.panel.startswith("theory")
    again = np.full((4, 4), np.nan)
    again[trained.y.astype(int), trained.x.astype(int)] = trained.value
    np.testing.assert_array_equal(again, matrix)
    assert not np.array_equal(again.T, matrix)
    np.testing.assert_array_equal(theory.value, 2 * trained.value)


def test_maps_drawn_upwards_or_with_gaps_keep_their_places() -> None:
    figure = Figure()
    table = np.ma.masked_invalid(np.array([[1.0, 2.0], [3.0, np.nan]]))
    figure.subplots().imshow(table, origin="lower")
    (found,) = figure_numbers(figure)
    cells = {(x, y): value for x, y, value in zip(found.x, found.y, found.value, strict=True)}
    assert (cells[0, 0], cells[1, 0], cells[0, 1]) == (1, 2, 3)
    assert np.isnan(cells[1, 1])


def test_curves_are_named_by_setting_part_and_run() -> None:
    steps, norms = np.arange(3), {name: np.arange(6.0).reshape(2, 3) for name in ("key", "query", "value")}
    rotation = np.full((2, 3), 0.5)
    figure = norm_trajectories(
        {"first": (steps, norms, rotation, [1]), "second": (steps, norms, rotation, [])}, title="t"
    )
    found = {(series.panel, series.name): series for series in figure_numbers(figure)}
    panel = "first stage 1 ends (dashed); ‖W^Q‖ over step"
    np.testing.assert_array_equal(found[panel, "run 2"].y, [3, 4, 5])
    np.testing.assert_array_equal(found[panel, "mean"].y, [2.5, 3.5])
    end = found[panel, "end of stage 1"]
    assert end.x == [1]
    assert np.isnan(end.y).all()
    assert ("second stage 1 does not end; ‖W^Q‖ over step", "end of stage 1") not in found


def test_lines_across_a_panel_are_one_series_and_points_of_named_rows_have_their_names() -> None:
    values = {"this": np.array([1.0, 2.0]), "that": np.array([3.0, 4.0])}
    found = by_name(seed_points({"ratio": (values, 1.5)}, title="t"))
    assert found["threshold"].x == [1.5]
    assert found["that"].x.tolist() == [3, 4]
    assert found["that"].text == ("that", "that")


def test_heads_are_named_by_layer_and_head_and_significant_ones_are_listed() -> None:
    values, significant = np.arange(6.0).reshape(2, 3), np.array([[False, True, False], [False, False, True]])
    found = by_name(head_maps({"model": (values, significant)}, title="t"))
    cells = dict(zip(found["log₂ (same / different topic)"].text, values.ravel(), strict=True))
    assert cells["head 2, layer 1"] == 1
    assert found["p < 0.05, for all heads of a model together"].text == ("head 2, layer 1", "head 3, layer 2")


def test_error_bars_are_means_and_the_ends_of_their_intervals() -> None:
    rows = [{"a": a, "seed": seed, "loss": a + seed} for a in (1, 2) for seed in (0, 1)]
    found = by_name(by_setting(rows, "a", measures=["loss"]))
    assert set(found) == {"mean", "mean, interval"}
    np.testing.assert_allclose(found["mean"].y, [1.5, 2.5])
    low, high = found["mean, interval"].y[:2]
    # Student's interval of two numbers one apart: 12.706 standard errors of 1/2.
    assert (high - low) / 2 == pytest.approx(12.706 / 2, rel=1e-4)


def test_bars_points_meshes_levels_areas_and_texts_are_read() -> None:
    figure = Figure()
    panel = figure.subplots()
    panel.set_title("all")
    panel.bar([1, 2], [3, 4], label="bars")
    panel.barh([1, 2], [5, 6], label="lying")
    panel.scatter([1.0, 2.0], [3.0, 4.0], c=[7.0, 8.0], label="dots")
    panel.fill_between([0, 1], [0, 0], [1, 1], label="_hidden from the legend")
    grid = np.arange(3.0)
    panel.pcolormesh(grid, grid, np.arange(4.0).reshape(2, 2), label="cells")
    panel.contour(grid, grid, np.add.outer(grid, grid), levels=[2.5])
    panel.text(1, 2, "two\nlines")
    panel.text(0.5, 0.5, "not on the axes", transform=panel.transAxes)
    found = by_name(figure)
    assert found["bars"].y.tolist() == [3, 4]
    assert found["lying"].x.tolist() == [5, 6]
    assert found["dots"].value.tolist() == [7, 8]
    assert found["hidden from the legend"].y.max() == 1
    assert (found["cells"].x.tolist(), found["cells"].value.tolist()) == ([0.5, 1.5, 0.5, 1.5], [0, 1, 2, 3])
    np.testing.assert_allclose(found["level 2.5"].x + found["level 2.5"].y, 2.5)
    assert found["written"].text == ("two lines",)


def test_lines_without_a_label_are_named_by_the_legend_of_their_colour() -> None:
    figure = Figure()
    panel = figure.subplots()
    panel.plot([1, 2], color="#0072B2")
    panel.plot([3, 4], color="#D55E00")
    panel.plot([5, 6], color="#D55E00", label="mean")
    figure.legend([Line2D([], [], color="#0072B2")], ["squared loss"])
    assert set(by_name(figure)) == {"squared loss", "mean, another", "mean"}
    panel.plot([7, 8], color="#123456")
    assert "line" in by_name(figure)


def test_the_table_has_a_line_a_point_and_is_written_beside_the_drawing(tmp_path: Path) -> None:
    figure = Figure()
    panel = figure.subplots()
    panel.plot([0.5, 1.5], [np.pi, np.nan], label='a "b", c')
    text = numbers_csv(figure_numbers(figure))
    rows = list(csv.reader(io.StringIO(text)))
    assert rows == [list(COLUMNS), ["panel 1", 'a "b", c', "0.5", "3.1415927", "", ""], rows[2]]
    assert rows[2][2:4] == ["1.5", ""]
    paths = save_figure(figure, tmp_path / "figure")
    assert [path.name for path in paths] == ["figure.png", "figure.svg", "figure.csv"]
    assert paths[2].read_text() == text
    panel.lines[0].set_ydata([3.0, 3.0])
    assert numbers_csv(figure_numbers(figure)) != text


def test_a_figure_without_panels_has_a_table_without_lines() -> None:
    assert numbers_csv(figure_numbers(Figure())) == ",".join(COLUMNS) + "\n"
