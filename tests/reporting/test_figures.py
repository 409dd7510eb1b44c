"""Figures show what they are given, and the table that is saved beside a figure has the numbers that are drawn."""

import csv
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from topicscope.records import Comparison, HeadComparison, ProbeRow, WordMap
from topicscope.reporting.figures import (
    Cells,
    Drawing,
    Panel,
    Series,
    by_row,
    cells,
    curves,
    dots,
    heat_maps,
    save_figure,
)
from topicscope.reporting.figures.landscape import Bounds, Surface, landscape_figure
from topicscope.reporting.figures.probe import head_maps, over_checkpoints, ratio_table, word_maps


def drawn(figure: Figure) -> Figure:
    FigureCanvasAgg(figure).draw()  # type: ignore[no-untyped-call]
    return figure


def legend_of(figure: Figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def rows_of(figure: Figure, *names: str) -> list[tuple[Any, ...]]:
    assert isinstance(figure, Drawing)
    return [tuple(row.get(name, "") for name in names) for row in figure.rows]


# Four ways to draw, and the table of a figure.


def test_of_several_runs_the_mean_is_in_the_table_and_a_faint_line_each_behind_it() -> None:
    runs = np.array([[1.0, 2.0, 3.0], [3.0, 4.0, 5.0]])
    thin = Series(x=[0, 2], y=[1.0, 2.0], low=[0.5, 1.5], high=[1.5, 2.5], label="predicted")
    panel = Panel(series=[Series(x=range(3), y=runs, label="norm"), thin], y="norm", marks=[(1.0, "black")])
    figure = curves("t", [panel, Panel(series=[Series(x=[1.0], y=[2.0], label="other")], log="y", levels={"end": 3.0})])
    first, second = figure.axes
    assert len(first.collections[0].get_paths()) == 2
    drawn = [np.asarray(line.get_xydata()).tolist() for line in first.lines[:2]]
    assert drawn == [[[0.0, 2.0], [1.0, 3.0], [2.0, 4.0]], [[0.0, 1.0], [2.0, 2.0]]]
    assert (first.get_yscale(), second.get_yscale()) == ("linear", "log")
    assert rows_of(figure, "series", "x", "y", "low") == [
        *[("norm", 0, 2.0, ""), ("norm", 1, 3.0, ""), ("norm", 2, 4.0, "")],
        *[("predicted", 0, 1.0, 0.5), ("predicted", 2, 2.0, 1.5)],
        *[("other", 1.0, 2.0, ""), ("end", "", 3.0, "")],
    ]
    # Names that differ stand in their own panel, those that all share below.
    assert legend_of(figure) == []
    assert [text.get_text() for text in first.get_legend().get_texts()] == ["norm", "predicted"]  # type: ignore[union-attr]
    assert legend_of(curves("t", [panel, panel])) == ["norm", "predicted"]


def test_dots_stand_in_their_rows_between_named_levels() -> None:
    numbers = {"loss": [by_row({0: np.array([0.5, 0.75]), 1: np.array([2.0])})]}
    figure = dots("t", ["short", "long"], numbers, levels={"loss": {"floor": 0.25, "constant": 3.0}})
    assert np.asarray(figure.axes[0].lines[2].get_xydata()).tolist() == [[0.5, 0.0], [0.75, 0.0], [2.0, 1.0]]
    assert rows_of(figure, "series", "x", "y") == [
        *[("floor", 0.25, ""), ("constant", 3.0, "")],
        *[("", 0.5, "short"), ("", 0.75, "short"), ("", 2.0, "long")],
    ]


def test_cells_are_named_and_their_colours_have_one_scale() -> None:
    values = np.array([[1.0, np.nan], [0.0, 400.0]])
    table = Cells(values=values, rows=["a", "b"], columns=["x", "y"], title="t", texts=["1", "no", "0", "400"])
    rows = rows_of(cells("t", [table], scale=(0.0, 400.0)), "row", "column", "text")
    assert rows == [("a", "x", "1"), ("a", "y", "no"), ("b", "x", "0"), ("b", "y", "400")]
    shared = cells("t", [table] * 6, scale=(-1.0, 1.0), bar="name")
    # Six panels in rows of four, names once per row, and one bar.
    assert len(shared.axes) == 7
    named = [any(label.get_text() for label in panel.get_yticklabels()) for panel in shared.axes[:6]]
    assert named == [True, False, False, False, True, False]
    assert shared.axes[0].images[0].get_clim() == (-1.0, 1.0)


def test_matrices_named_together_share_a_colour_scale_and_tokens_are_ordered_by_topic() -> None:
    panels = {name: np.full((5, 5), height) for name, height in (("a", 1.0), ("b", 2.0), ("c", 4.0))}
    maps = heat_maps(panels, words=2, same_scale=[("a", "b")]).axes
    assert [axes.images[0].get_clim() for axes in maps[:3]] == [(-2, 2), (-2, 2), (-4, 4)]
    matrix = np.random.default_rng(0).normal(size=(5, 5))
    figure = heat_maps({"trained": matrix}, word_topics=np.array([0, 2, 1, 2, 1]), columns=1)
    order = [0, 2, 4, 1, 3]
    assert "by topic" in figure.axes[0].get_xlabel()
    np.testing.assert_array_equal(np.asarray(figure.axes[0].images[0].get_array()), matrix[np.ix_(order, order)])


def test_pictures_and_the_table_are_written_side_by_side_and_the_same_each_time(tmp_path: Path) -> None:
    def saved(name: str, height: float) -> list[bytes]:
        figure = curves("t", [Panel(series=[Series(x=[0, 1], y=[np.nan, height], label="W^V")], y="norm\nof it")])
        paths = save_figure(figure, tmp_path / name)
        assert [path.name for path in paths] == [f"{name}.png", f"{name}.svg", f"{name}.csv"]
        return [path.read_bytes() for path in paths]

    first = saved("first", 2.0)
    assert saved("again", 2.0) == first
    assert all(one != other for one, other in zip(saved("other", 3.0), first, strict=True))
    with (tmp_path / "first.csv").open() as opened:
        rows = [(row["panel"], row["series"], row["y"]) for row in csv.DictReader(opened)]
    assert rows == [("norm of it", "W^V", ""), ("norm of it", "W^V", "2")]


def test_labels_of_ticks_are_typeset_and_the_table_has_plain_text(tmp_path: Path) -> None:
    figure = cells(
        "map", [Cells(values=np.ones((1, 2)), rows=["Adam, ε = 1e-06"], columns=["1e-06", "0.02"])], scale=(0.0, 1.0)
    )
    save_figure(figure, tmp_path / "map")
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["10⁻⁶", "0.02"]
    assert "varepsilon" in figure.axes[0].get_yticklabels()[0].get_text()
    assert "1e-06" in (tmp_path / "map.csv").read_text()


# The probe.


def ratio(value: float | None, low: float | None = None, high: float | None = None, **more: Any) -> Comparison:
    return Comparison(ratio=value, low=low, high=high, **more)


def probed(model: str, fraction: float | None, revision: str = "", **comparisons: Comparison) -> ProbeRow:
    """What figures need of a row of probe.json."""
    about = {"model": model, "revision": revision, "fraction": fraction, "assignment": "one", "embedding": "matrix"}
    return msgspec.convert(about | msgspec.to_builtins(comparisons), ProbeRow)


def everywhere(model: str, fraction: float | None, comparison: Comparison) -> ProbeRow:
    return probed(model, fraction, cosine=comparison, dot=comparison, attention=comparison)


DIFFERENT = ratio(None, difference=0.112, difference_low=0.09, difference_high=0.134)


def test_table_1_as_a_picture_has_intervals_and_the_papers_numbers_apart() -> None:
    rows = [everywhere("minilm", 0.0005, ratio(4.9, 4.8, 5.0)), everywhere("minilm", 0.001, ratio(1.3))]
    figure = ratio_table(rows, title="t", reference=[everywhere("BERT (paper)", 0.0005, ratio(1.2))])
    table = rows_of(figure, "series", "x", "y", "low")[1:4]
    assert table == [
        ("measured here, 95 % interval", 4.9, "minilm  0.0005", 4.8),
        ("no interval: too few replicates have a pair", 1.3, "minilm  0.001", ""),
        ("printed in the paper", 1.2, "BERT (paper)  0.0005", ""),
    ]
    assert legend_of(figure) == [row[0] for row in table]
    hollow = [
        line.get_markerfacecolor() == "none"
        for line in figure.axes[0].lines
        if not str(line.get_label()).startswith("_")
    ]
    assert hollow == [False, True, True]


def test_where_there_is_no_ratio_table_1_shows_the_difference_within_its_panel() -> None:
    def written(cosine: Comparison) -> tuple[list[str], bool]:
        plain = ratio(1.3, 1.2, 1.4)
        figure = ratio_table([probed("tiny", None, cosine=cosine, dot=plain, attention=plain)], title="t")
        return [text.get_text().strip() for text in figure.axes[0].texts], "Δ" in figure.get_suptitle()

    assert written(DIFFERENT) == (["Δ 0.112 [0.090, 0.134]"], True)
    assert written(ratio(None)) == (["no pair"], False)
    assert written(ratio(2.0, 1.9, 2.1, difference=0.5)) == ([], False)
    assert written(ratio(-0.5, -0.6, -0.4))[0] == ["-0.50 [-0.60, -0.40], off this axis"]


def test_heads_are_marked_where_they_are_significant_and_one_of_ratio_0_leaves_the_scale_as_it_is() -> None:
    def layer(*numbers: tuple[float, float]) -> list[HeadComparison]:
        return [HeadComparison(ratio=ratio, p=p) for ratio, p in numbers]

    heads = [layer((2.0, 0.01), (0.5, 0.01)), layer((0.0, 0.5), (1.0, 0.5))]
    row = msgspec.structs.replace(probed("minilm", 0.001), attention_by_layer_head=heads)
    figure = head_maps([row], title="t")
    panel = figure.axes[0]
    assert "2 of 4 heads with p < 0.05" in panel.get_title()
    assert panel.images[0].get_clim() == (-1.0, 1.0)
    assert rows_of(figure, "row", "column", "value", "marked") == [
        *[("1", "1", 1.0, "yes"), ("1", "2", -1.0, "yes"), ("2", "1", -np.inf, "no"), ("2", "2", 0.0, "no")]
    ]


def test_words_have_their_similarity_written_in_every_cell_and_those_left_out_are_named() -> None:
    cosine = [[1.0, -0.001], [-0.006, 1.0]]
    maps = {
        "minilm": WordMap(model="minilm", words=["frog", "toad"], cosine=cosine),
        "other": WordMap(model="other", words=["frog"], cosine=[[1.0]], left_out=["toad"]),
    }
    figure = word_maps(maps, title="t")
    assert [text.get_text() for text in figure.axes[0].texts] == ["1.00", "0.00", "-0.01", "1.00"]
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["frog", "toad"]
    assert "its tokenizer splits toad" in figure.axes[1].get_title().replace("\n", " ")


def test_checkpoints_are_in_order_and_a_measure_that_lacks_a_ratio_is_a_difference() -> None:
    known = ratio(1.5, 1.4, 1.6, difference=0.5, difference_low=0.4, difference_high=0.6)
    revisions = ("step0", "step1", "step512")
    rows = [probed("a", 0.1, revision, cosine=DIFFERENT, attention=known) for revision in revisions]
    figure = over_checkpoints(rows, title="t")
    # There is no panel of dot products, which have no number at all.
    apart, plain = figure.axes
    assert [axes.get_ylabel() for axes in (apart, plain)] == ["same − different topic", "same / different topic"]
    table = [row for row in rows_of(figure, "x", "y", "low") if row[0]]
    assert table == [*((each, 0.112, 0.09) for each in revisions), *((each, 1.5, 1.4) for each in revisions)]


# The landscape.

AXIS = np.geomspace(0.01, 100, 30)
AVERAGE = (9 * AXIS[:, None] + AXIS[None, :]) / 10
SURFACES = [
    Surface("all", AXIS, np.log(AVERAGE / 4) ** 2 + np.log(AXIS)[None, :] ** 2, (4.0, 1.0)),
    Surface("words", AXIS, np.log(AVERAGE / 4) ** 2, None),
]
BOUNDS = Bounds(10, 0.5, 50.0, 10.0)


def marked(panel: Axes) -> set[tuple[float, float]]:
    return {(float(x), float(y)) for line in panel.lines for x, y in np.asarray(line.get_xydata())}


def test_the_optimum_and_uniform_attention_are_marked_where_they_are() -> None:
    assert marked(landscape_figure("t", SURFACES, BOUNDS, attained=True).axes[0]) == {(4.0, 1.0), (1.0, 1.0)}
    at_the_end = [SURFACES[0]._replace(optimum=(0.0, 1.0))]
    assert marked(landscape_figure("t", at_the_end, BOUNDS, attained=True).axes[0]) == {(0.01, 1.0), (1.0, 1.0)}


def test_the_legend_is_outside_every_panel_names_theorem_3_and_whether_the_optimum_is_attained() -> None:
    figure = drawn(landscape_figure("t", SURFACES, BOUNDS, attained=True))
    box = figure.legends[0].get_window_extent()
    assert not any(box.overlaps(panel.get_window_extent()) for panel in figure.axes)
    assert any("Theorem 3" in text and "(0.5, 50)" in text for text in legend_of(figure))
    assert any("limit" in text for text in legend_of(figure))
    other = legend_of(drawn(landscape_figure("t", SURFACES, Bounds(10, 0.0, None, None), attained=False)))
    assert not any("limit" in text for text in other)
    assert any("no optimum is attained" in text for text in other)
    assert not any("no optimum is attained" in text for text in legend_of(figure))
