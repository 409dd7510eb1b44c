"""Figures of the probe hold the numbers that they are given, and so do their tables."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.lines import Line2D

from topicscope.files import Row
from topicscope.reporting.figures import save_figure
from topicscope.reporting.figures.probe import (
    head_maps,
    over_checkpoints,
    ratio_table,
    ratio_text,
    word_maps,
)


def ratio(value: float | None, low: float | None = None, high: float | None = None) -> dict[str, float | None]:
    """A comparison as in probe.json."""
    return {"ratio": value, "low": low, "high": high}


def probed(model: str, fraction: float | None, comparisons: Row) -> Row:
    """What figures need of a row of probe.json."""
    return {"model": model, "fraction": fraction, **comparisons}


def row(model: str, fraction: float | None, cosine: float | None, attention: float) -> Row:
    near = None if cosine is None else cosine - 0.1
    ratios = {
        "cosine": ratio(cosine, near, near and near + 0.2),
        "dot": ratio(cosine, near, near and near + 0.2),
        "attention": ratio(attention, attention - 0.05, attention + 0.05),
    }
    return probed(model, fraction, ratios)


ROWS = (row("minilm", 0.0005, 4.9, 1.5), row("minilm", 0.001, 4.0, 1.4), row("random:minilm", 0.0005, None, 1.0))
PAPER = (probed("BERT (paper)", 0.0005, {name: ratio(1.3) for name in ("cosine", "dot", "attention")}),)


def horizontal(line: Line2D) -> list[float]:
    return [float(x) for x in np.asarray(line.get_xdata())]


def test_table_1_as_text_names_a_model_once_and_says_what_is_not_defined() -> None:
    lines = ratio_text((*ROWS, *PAPER)).splitlines()
    assert lines[0].split()[:2] == ["model", "threshold"]
    assert lines[2].startswith("minilm")
    assert "4.90 [4.80, 5.00]" in lines[2]
    assert lines[3].startswith(" ")
    assert "–" in lines[4]
    assert lines[5].split()[-1] == "1.3"
    assert len({line.find("[1.45") for line in lines if "[1.45" in line}) == 1


def test_table_1_as_a_picture_has_intervals_and_the_papers_numbers_apart(tmp_path: Path) -> None:
    drawn = ratio_table(ROWS, title="t", reference=PAPER)
    cosine, _, attention = drawn.figure.axes
    assert horizontal(cosine.lines[0]) == [1, 1]
    assert horizontal(cosine.lines[1]) == pytest.approx([4.8, 5.0])
    assert horizontal(cosine.lines[2]) == pytest.approx([4.9])
    assert [text.get_text().strip() for text in cosine.texts] == ["no pair"]
    assert len(attention.texts) == 0
    diamonds = [line for line in attention.lines if line.get_marker() == "D"]
    assert [horizontal(line) for line in diamonds] == [[1.3]]
    labels = [label.get_text() for label in cosine.get_yticklabels()]
    assert labels == ["minilm  0.0005", "minilm  0.001", "random:minilm  0.0005", "BERT (paper)  0.0005"]
    assert [path.suffix for path in save_figure(drawn, tmp_path / "table1")] == [".png", ".svg", ".csv"]


def test_the_table_of_table_1_has_ratios_and_their_ends_by_measure() -> None:
    table = ratio_table(ROWS, title="t", reference=PAPER).table
    assert len(table) == 3 * 4
    first, printed = table[0], table[3]
    assert (first["model"], first["threshold"], first["measure"]) == ("minilm", "0.0005", "cosine similarity")
    assert (first["ratio"], first["low"], first["high"]) == pytest.approx((4.9, 4.8, 5.0))
    assert (printed["model"], printed["source"], printed["ratio"]) == ("BERT (paper)", "paper", 1.3)
    assert table[2]["ratio"] is None


NO_RATIO = {"ratio": None, "low": None, "high": None}
DIFFERENT = {**NO_RATIO, "difference": 0.112, "difference_low": 0.09, "difference_high": 0.134}


def test_where_there_is_no_ratio_table_1_shows_the_difference_and_says_what_its_sign_means() -> None:
    def drawn(cosine: dict[str, float | None]) -> tuple[str, list[str], str]:
        row = probed("tiny", None, {"cosine": cosine, "dot": ratio(1.3, 1.2, 1.4), "attention": ratio(1.3, 1.2, 1.4)})
        figure = ratio_table([row], title="t").figure
        written = [text.get_text().strip() for text in figure.axes[0].texts]
        return ratio_text([row]), written, " ".join(text.get_text() for text in figure.legends[0].get_texts())

    text, written, legend = drawn(DIFFERENT)
    assert "own" in text
    assert "Δ 0.112 [0.090, 0.134]" in text
    assert "Δ: same − different topic [95 % interval]" in text.splitlines()[-1]
    assert written == ["Δ 0.112 [0.090, 0.134]"]
    assert "Δ: same − different topic" in legend
    text, written, legend = drawn(ratio(None))
    assert text.splitlines()[-1] == "–: no pair to average over."
    assert written == ["no pair"]
    # The control: a ratio needs no sign.
    text, written, legend = drawn({"ratio": 2.0, "low": 1.9, "high": 2.1, "difference": 0.5})
    assert "Δ" not in text + legend
    assert "–" not in text
    assert written == []
    assert drawn(ratio(-0.5, -0.6, -0.4))[1] == ["-0.50 [-0.60, -0.40], off this axis"]


def test_what_is_written_beside_1_stays_within_its_panel() -> None:
    sides = []
    for other in (ratio(20.0, 19.0, 21.0), ratio(0.05, 0.04, 0.06), ratio(1.0, 0.9, 1.1)):
        rows = [
            probed("tiny", None, dict.fromkeys(("cosine", "dot", "attention"), each)) for each in (DIFFERENT, other)
        ]
        figure = ratio_table(rows, title="t").figure
        figure.draw_without_rendering()
        for panel in figure.axes:
            [text] = panel.texts
            box, frame = text.get_window_extent(), panel.get_window_extent()
            assert frame.x0 <= box.x0 < box.x1 <= frame.x1
        sides.append(text.get_horizontalalignment())
    # The control: no one side would do for all.
    assert sides == ["left", "right", "left"]


def test_a_ratio_without_an_interval_is_a_hollow_dot_that_the_legend_explains() -> None:
    bare = probed("bare", None, {name: ratio(1.3) for name in ("cosine", "dot", "attention")})

    def drawn(*rows: Row) -> tuple[list[bool], str]:
        figure = ratio_table(rows, title="t").figure
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
    figure = head_maps({"minilm": (values, significant)}, title="t").figure
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
    heads = {(row["layer"], row["head"]): row for row in head_maps({"model": (values, significant)}, title="t").table}
    assert {place: row["log2_ratio"] for place, row in heads.items()} == {
        (layer + 1, head + 1): value for (layer, head), value in np.ndenumerate(values)
    }
    assert [place for place, row in heads.items() if row["significant"] == "yes"] == [(1, 2), (2, 3)]
    cosines = np.array([[1.0, 0.51], [0.25, 1.0]])
    words = word_maps({"minilm": cosines}, ("frog", "toad"), title="t").table
    assert {(row["word"], row["other_word"]): row["cosine"] for row in words if row["model"] == "minilm"} == {
        ("frog", "frog"): 1.0,
        ("frog", "toad"): 0.51,
        ("toad", "frog"): 0.25,
        ("toad", "toad"): 1.0,
    }


def test_maps_of_many_models_are_in_rows_of_four_and_words_are_named_once_a_row() -> None:
    heads = {f"model {place}": (np.ones((2, 2)), np.zeros((2, 2), dtype=bool)) for place in range(6)}
    for count, rows in ((4, 1), (5, 2), (6, 2)):
        figure = head_maps(dict(list(heads.items())[:count]), title="t").figure
        assert len({round(panel.get_position().y0, 6) for panel in figure.axes[:count]}) == rows
        assert [panel.get_ylabel() for panel in figure.axes[:count]].count("layer") == rows
        # Panels, and the scale of colours: none is empty.
        assert len(figure.axes) == count + 1
    figure = word_maps({f"model {place}": np.eye(2) for place in range(6)}, ("frog", "toad"), title="t").figure
    named = [[label.get_text() for label in panel.get_yticklabels()] == ["frog", "toad"] for panel in figure.axes[:6]]
    assert named == [True, False, False, False, True, False]
    assert (
        figure.get_figwidth()
        == word_maps(
            {f"model {place}": np.eye(2) for place in range(4)}, ("frog", "toad"), title="t"
        ).figure.get_figwidth()
    )


def test_titles_are_no_wider_than_their_panels() -> None:
    names = [f"/models/{'a' * 60}/{end}" for end in ("first", "second")]
    figure = head_maps({name: (np.ones((2, 2)), np.zeros((2, 2), dtype=bool)) for name in names}, title="t").figure
    figure.draw_without_rendering()
    first, second = (panel.title.get_window_extent() for panel in figure.axes[:2])
    assert first.x1 < second.x0
    for panel, name in zip(figure.axes, names, strict=False):
        assert panel.get_title().replace("\n", "").startswith(name)
        # The control: a short one is one line, over that on the heads.
        assert len(panel.get_title().splitlines()) > 2
    (short, _) = head_maps({"minilm": (np.ones((2, 2)), np.zeros((2, 2), dtype=bool))}, title="t").figure.axes
    assert len(short.get_title().splitlines()) == 2


def test_words_have_their_similarity_written_in_every_cell() -> None:
    values = np.array([[1.0, 0.51], [0.51, 1.0]])
    figure = word_maps({"minilm": values, "random:minilm": np.eye(2)}, ("frog", "toad"), title="t").figure
    assert [text.get_text() for text in figure.axes[0].texts] == ["1.00", "0.51", "0.51", "1.00"]
    assert [text.get_text() for text in figure.axes[1].texts] == ["1.00", "0.00", "0.00", "1.00"]
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["frog", "toad"]


def test_a_head_of_ratio_0_leaves_the_scale_of_the_others_as_it_is() -> None:
    figure = head_maps({"minilm": (np.array([[1.0, -np.inf]]), np.zeros((1, 2), dtype=bool))}, title="t").figure
    assert figure.axes[0].images[0].get_clim() == (-1.0, 1.0)


def test_a_similarity_as_good_as_0_is_written_without_a_sign() -> None:
    figure = word_maps({"minilm": np.array([[1.0, -0.001], [-0.006, 1.0]])}, ("frog", "toad"), title="t").figure
    assert [text.get_text() for text in figure.axes[0].texts] == ["1.00", "0.00", "-0.01", "1.00"]


def test_checkpoints_are_in_order_with_gaps_where_nothing_is_defined() -> None:
    ratios = [ratio(1.0, 0.9, 1.1), ratio(None), ratio(2.0, 1.8, 2.2)]
    figure = over_checkpoints(("step0", "step1", "step512"), {"attention": {"0.0005": ratios}}, title="t").figure
    line = figure.axes[0].lines[1]
    assert np.asarray(line.get_ydata(), dtype=float) == pytest.approx([1.0, np.nan, 2.0], nan_ok=True)
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["step0", "step1", "step512"]


def test_checkpoints_of_a_measure_that_lacks_a_ratio_are_differences_on_an_axis_of_their_own() -> None:
    known = ratio(1.5, 1.4, 1.6) | {"difference": 0.5, "difference_low": 0.4, "difference_high": 0.6}
    lines = {"cosine": {"0.1": [DIFFERENT, known]}, "attention": {"0.1": [known, known]}}
    drawn = over_checkpoints(("step0", "step1"), lines, title="t")
    apart, plain = drawn.figure.axes
    assert [axes.get_ylabel() for axes in (apart, plain)] == ["same − different topic", "same / different topic"]
    assert [np.asarray(line.get_ydata(), dtype=float).tolist() for line in apart.lines] == [[0, 0], [0.112, 0.5]]
    # The control: with all ratios there, they are drawn.
    assert [np.asarray(line.get_ydata(), dtype=float).tolist() for line in plain.lines] == [[1, 1], [1.5, 1.5]]
    assert [(row["checkpoint"], row["shown"], row["value"], row["low"]) for row in drawn.table] == [
        ("step0", "difference", 0.112, 0.09),
        ("step1", "difference", 0.5, 0.4),
        ("step0", "ratio", 1.5, 1.4),
        ("step1", "ratio", 1.5, 1.4),
    ]


def test_a_measure_without_any_ratio_says_so_and_has_no_axis() -> None:
    ratios = {"dot": {"0.0005": [ratio(None), ratio(None)]}, "attention": {"0.0005": [ratio(1.0), ratio(None)]}}
    empty, drawn = over_checkpoints(("step0", "step1"), ratios, title="t").figure.axes
    assert [text.get_text() for text in empty.texts] == ["not defined"]
    assert list(empty.get_yticks()) == []
    assert list(drawn.texts) == []
    assert len(drawn.get_yticks()) > 0
