"""Figures of the probe hold the numbers that they are given, and so do their tables."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from matplotlib.lines import Line2D

from topicscope.records import Comparison, ProbeRow
from topicscope.reporting.figures import save_figure, table_of
from topicscope.reporting.figures.probe import (
    head_maps,
    over_checkpoints,
    ratio_table,
    word_maps,
)


def ratio(value: float | None, low: float | None = None, high: float | None = None, **more: Any) -> Comparison:
    return Comparison(ratio=value, low=low, high=high, **more)


def probed(model: str, fraction: float | None, **comparisons: Comparison) -> ProbeRow:
    """What figures need of a row of probe.json."""
    about = {"model": model, "revision": None, "fraction": fraction, "assignment": "one", "embedding": "matrix"}
    return msgspec.convert(about | msgspec.to_builtins(comparisons), ProbeRow)


def everywhere(model: str, fraction: float | None, comparison: Comparison) -> ProbeRow:
    return probed(model, fraction, cosine=comparison, dot=comparison, attention=comparison)


def row(model: str, fraction: float | None, cosine: float | None, attention: float) -> ProbeRow:
    near = None if cosine is None else cosine - 0.1
    similar = ratio(cosine, near, near and near + 0.2)
    return probed(
        model, fraction, cosine=similar, dot=similar, attention=ratio(attention, attention - 0.05, attention + 0.05)
    )


ROWS = (row("minilm", 0.0005, 4.9, 1.5), row("minilm", 0.001, 4.0, 1.4), row("random:minilm", 0.0005, None, 1.0))
PAPER = (everywhere("BERT (paper)", 0.0005, ratio(1.3)),)


def horizontal(line: Line2D) -> list[float]:
    return [float(x) for x in np.asarray(line.get_xdata())]


def test_table_1_as_a_picture_has_intervals_and_the_papers_numbers_apart(tmp_path: Path) -> None:
    drawn = ratio_table(ROWS, title="t", reference=PAPER)
    cosine, _, attention = drawn.axes
    assert horizontal(cosine.lines[0]) == [1, 1]
    assert horizontal(cosine.lines[1]) == pytest.approx([4.9])
    [interval] = cosine.collections[0].get_paths()
    assert np.asarray(interval.vertices)[:, 0] == pytest.approx([4.8, 5.0])
    assert [text.get_text().strip() for text in cosine.texts] == ["no pair"]
    assert len(attention.texts) == 0
    diamonds = [line for line in attention.lines if line.get_marker() == "D"]
    assert [horizontal(line) for line in diamonds] == [[1.3]]
    labels = [label.get_text() for label in cosine.get_yticklabels()]
    assert labels == ["minilm  0.0005", "minilm  0.001", "random:minilm  0.0005", "BERT (paper)  0.0005"]
    assert [path.suffix for path in save_figure(drawn, tmp_path / "table1")] == [".png", ".svg", ".csv"]


def test_the_table_of_table_1_has_ratios_and_their_ends_by_measure() -> None:
    table = table_of(ratio_table(ROWS, title="t", reference=PAPER))
    first = next(row for row in table if row["y"] == "minilm 0.0005")
    assert (first["panel"], first["x"]) == ("cosine similarity: same / different topic", "4.9")
    assert (first["low"], first["high"]) == ("4.8", "5")
    assert ("BERT (paper) 0.0005", "1.3") in [(row["y"], row["x"]) for row in table]
    assert [row["text"].strip() for row in table if row.get("text")] == ["no pair", "no pair"]


DIFFERENT = ratio(None, difference=0.112, difference_low=0.09, difference_high=0.134)


def test_where_there_is_no_ratio_table_1_shows_the_difference_and_says_what_its_sign_means() -> None:
    def drawn(cosine: Comparison) -> tuple[list[str], str]:
        plain = ratio(1.3, 1.2, 1.4)
        figure = ratio_table([probed("tiny", None, cosine=cosine, dot=plain, attention=plain)], title="t")
        written = [text.get_text().strip() for text in figure.axes[0].texts]
        return written, " ".join(text.get_text() for text in figure.legends[0].get_texts())

    written, legend = drawn(DIFFERENT)
    assert written == ["Δ 0.112 [0.090, 0.134]"]
    assert "Δ: same − different topic" in legend
    assert drawn(ratio(None))[0] == ["no pair"]
    # The control: a ratio needs no sign.
    written, legend = drawn(ratio(2.0, 1.9, 2.1, difference=0.5))
    assert (written, "Δ" in legend) == ([], False)
    assert drawn(ratio(-0.5, -0.6, -0.4))[0] == ["-0.50 [-0.60, -0.40], off this axis"]


def test_what_is_written_beside_1_stays_within_its_panel() -> None:
    sides = []
    for other in (ratio(20.0, 19.0, 21.0), ratio(0.05, 0.04, 0.06), ratio(1.0, 0.9, 1.1)):
        rows = [everywhere("tiny", None, each) for each in (DIFFERENT, other)]
        figure = ratio_table(rows, title="t")
        figure.draw_without_rendering()
        for panel in figure.axes:
            [text] = panel.texts
            box, frame = text.get_window_extent(), panel.get_window_extent()
            assert frame.x0 <= box.x0 < box.x1 <= frame.x1
        sides.append(text.get_horizontalalignment())
    # The control: no one side would do for all.
    assert sides == ["left", "right", "left"]


def test_a_ratio_without_an_interval_is_a_hollow_dot_that_the_legend_explains() -> None:
    bare = everywhere("bare", None, ratio(1.3))

    def drawn(*rows: ProbeRow) -> tuple[list[bool], str]:
        figure = ratio_table(rows, title="t")
        dots = [line.get_markerfacecolor() == "none" for line in figure.axes[0].lines if line.get_marker() == "o"]
        return dots, " ".join(text.get_text() for text in figure.legends[0].get_texts())

    dots, legend = drawn(bare, ROWS[0])
    assert dots == [True, False]
    assert "no interval" in legend
    # The control: nothing to explain.
    assert "no interval" not in drawn(ROWS[0])[1]


def test_heads_are_marked_where_they_are_significant() -> None:
    values = np.array([[1.0, -0.5, 0.0], [0.2, 0.1, np.nan]])
    significant = np.array([[True, True, False], [False, False, False]])
    figure = head_maps({"minilm": (values, significant)}, title="t")
    panel = figure.axes[0]
    assert "2 of 6 heads with p < 0.05" in panel.get_title()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["p < 0.05, for all heads of a model together"]
    assert horizontal(panel.lines[0]) == [0, 1]
    image = np.asarray(panel.images[0].get_array(), dtype=float)
    assert image[0] == pytest.approx([1.0, -0.5, 0.0])
    assert panel.images[0].get_clim() == (-1.0, 1.0)


def test_tables_of_maps_name_heads_and_words() -> None:
    values, significant = np.arange(6.0).reshape(2, 3), np.array([[False, True, False], [False, False, True]])
    heads = table_of(head_maps({"model": (values, significant)}, title="t"))
    named = {(row["y"], row["x"]): float(row["value"]) for row in heads if row.get("value")}
    assert named == {(str(layer + 1), str(head + 1)): value for (layer, head), value in np.ndenumerate(values)}
    assert [(row["y"], row["x"]) for row in heads if not row.get("value")] == [("1", "2"), ("2", "3")]
    words = table_of(word_maps({"minilm": np.array([[1.0, 0.51], [0.25, 1.0]])}, ("frog", "toad"), title="t"))
    assert [(row["y"], row["x"], row["value"]) for row in words[1:3]] == [
        ("frog", "toad", "0.51"),
        ("toad", "frog", "0.25"),
    ]


def test_maps_of_many_models_are_in_rows_of_four_and_words_are_named_once_a_row() -> None:
    heads = {f"model {place}": (np.ones((2, 2)), np.zeros((2, 2), dtype=bool)) for place in range(6)}
    for count, rows in ((4, 1), (5, 2), (6, 2)):
        figure = head_maps(dict(list(heads.items())[:count]), title="t")
        assert len({round(panel.get_position().y0, 6) for panel in figure.axes[:count]}) == rows
        assert [panel.get_ylabel() for panel in figure.axes[:count]].count("layer") == rows
        # Panels, and the scale of colours: none is empty.
        assert len(figure.axes) == count + 1
    figure = word_maps({f"model {place}": np.eye(2) for place in range(6)}, ("frog", "toad"), title="t")
    named = [[label.get_text() for label in panel.get_yticklabels()] == ["frog", "toad"] for panel in figure.axes[:6]]
    assert named == [True, False, False, False, True, False]
    assert (
        figure.get_figwidth()
        == word_maps({f"model {place}": np.eye(2) for place in range(4)}, ("frog", "toad"), title="t").get_figwidth()
    )


def test_titles_are_no_wider_than_their_panels() -> None:
    names = [f"/models/{'a' * 60}/{end}" for end in ("first", "second")]
    figure = head_maps({name: (np.ones((2, 2)), np.zeros((2, 2), dtype=bool)) for name in names}, title="t")
    figure.draw_without_rendering()
    first, second = (panel.title.get_window_extent() for panel in figure.axes[:2])
    assert first.x1 < second.x0
    for panel, name in zip(figure.axes, names, strict=False):
        assert panel.get_title().replace("\n", "").startswith(name)
        # The control: a short one is one line, over that on the heads.
        assert len(panel.get_title().splitlines()) > 2
    (short, _) = head_maps({"minilm": (np.ones((2, 2)), np.zeros((2, 2), dtype=bool))}, title="t").axes
    assert len(short.get_title().splitlines()) == 2


def test_words_have_their_similarity_written_in_every_cell() -> None:
    values = np.array([[1.0, 0.51], [0.51, 1.0]])
    figure = word_maps({"minilm": values, "random:minilm": np.eye(2)}, ("frog", "toad"), title="t")
    assert [text.get_text() for text in figure.axes[0].texts] == ["1.00", "0.51", "0.51", "1.00"]
    assert [text.get_text() for text in figure.axes[1].texts] == ["1.00", "0.00", "0.00", "1.00"]
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["frog", "toad"]


def test_a_head_of_ratio_0_leaves_the_scale_of_the_others_as_it_is() -> None:
    figure = head_maps({"minilm": (np.array([[1.0, -np.inf]]), np.zeros((1, 2), dtype=bool))}, title="t")
    assert figure.axes[0].images[0].get_clim() == (-1.0, 1.0)


def test_a_similarity_as_good_as_0_is_written_without_a_sign() -> None:
    figure = word_maps({"minilm": np.array([[1.0, -0.001], [-0.006, 1.0]])}, ("frog", "toad"), title="t")
    assert [text.get_text() for text in figure.axes[0].texts] == ["1.00", "0.00", "-0.01", "1.00"]


def test_checkpoints_are_in_order_with_gaps_where_nothing_is_defined() -> None:
    ratios = [ratio(1.0, 0.9, 1.1), ratio(None), ratio(2.0, 1.8, 2.2)]
    figure = over_checkpoints(("step0", "step1", "step512"), {"attention": {"0.0005": ratios}}, title="t")
    line = figure.axes[0].lines[1]
    assert np.asarray(line.get_ydata(), dtype=float) == pytest.approx([1.0, np.nan, 2.0], nan_ok=True)
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["step0", "step1", "step512"]


def test_checkpoints_of_a_measure_that_lacks_a_ratio_are_differences_on_an_axis_of_their_own() -> None:
    known = ratio(1.5, 1.4, 1.6, difference=0.5, difference_low=0.4, difference_high=0.6)
    lines = {"cosine": {"0.1": [DIFFERENT, known]}, "attention": {"0.1": [known, known]}}
    drawn = over_checkpoints(("step0", "step1"), lines, title="t")
    apart, plain = drawn.axes
    assert [axes.get_ylabel() for axes in (apart, plain)] == ["same − different topic", "same / different topic"]
    assert [np.asarray(line.get_ydata(), dtype=float).tolist() for line in apart.lines] == [[0, 0], [0.112, 0.5]]
    # The control: with all ratios there, they are drawn.
    assert [np.asarray(line.get_ydata(), dtype=float).tolist() for line in plain.lines] == [[1, 1], [1.5, 1.5]]
    points = [row for row in table_of(drawn) if row["series"]]
    assert [(row["x"], row["y"], row["low"]) for row in points] == [
        ("step0", "0.112", "0.09"),
        ("step1", "0.5", "0.4"),
        ("step0", "1.5", "1.4"),
        ("step1", "1.5", "1.4"),
    ]


def test_a_measure_without_any_ratio_says_so_and_has_no_axis() -> None:
    ratios = {"dot": {"0.0005": [ratio(None), ratio(None)]}, "attention": {"0.0005": [ratio(1.0), ratio(None)]}}
    empty, drawn = over_checkpoints(("step0", "step1"), ratios, title="t").axes
    assert [text.get_text() for text in empty.texts] == ["not defined"]
    assert list(empty.get_yticks()) == []
    assert list(drawn.texts) == []
    assert len(drawn.get_yticks()) > 0
