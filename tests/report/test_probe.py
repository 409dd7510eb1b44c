"""Figures of the probe hold the numbers they are given."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.lines import Line2D

from topicscope.report.figures import save_figure
from topicscope.report.probe import Ratio, RatioRow, head_maps, over_checkpoints, ratio_table, ratio_text, word_maps


def row(model: str, fraction: float | None, cosine: float | None, attention: float) -> RatioRow:
    near = None if cosine is None else cosine - 0.1
    ratios = {
        "cosine": Ratio(cosine, near, near and near + 0.2),
        "dot": Ratio(cosine, near, near and near + 0.2),
        "attention": Ratio(attention, attention - 0.05, attention + 0.05),
    }
    return RatioRow(model, fraction, ratios)


ROWS = (row("minilm", 0.0005, 4.9, 1.5), row("minilm", 0.001, 4.0, 1.4), row("random:minilm", 0.0005, None, 1.0))
PAPER = (RatioRow("BERT (paper)", 0.0005, {name: Ratio(1.3) for name in ("cosine", "dot", "attention")}),)


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
    figure = ratio_table(ROWS, title="t", reference=PAPER)
    cosine, _, attention = figure.axes
    assert horizontal(cosine.lines[0]) == [1, 1]
    assert horizontal(cosine.lines[1]) == pytest.approx([4.8, 5.0])
    assert horizontal(cosine.lines[2]) == pytest.approx([4.9])
    assert [text.get_text() for text in cosine.texts] == [" not defined"]
    assert len(attention.texts) == 0
    diamonds = [line for line in attention.lines if line.get_marker() == "D"]
    assert [horizontal(line) for line in diamonds] == [[1.3]]
    labels = [label.get_text() for label in cosine.get_yticklabels()]
    assert labels == ["minilm  0.0005", "minilm  0.001", "random:minilm  0.0005", "BERT (paper)  0.0005"]
    assert [path.suffix for path in save_figure(figure, tmp_path / "table1")] == [".png", ".svg", ".csv"]


def test_a_ratio_without_an_interval_is_a_hollow_dot_that_the_legend_explains() -> None:
    bare = RatioRow("bare", None, {name: Ratio(1.3) for name in ("cosine", "dot", "attention")})

    def drawn(*rows: RatioRow) -> tuple[list[bool], str]:
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
    ratios = [Ratio(1.0, 0.9, 1.1), Ratio(None), Ratio(2.0, 1.8, 2.2)]
    figure = over_checkpoints(("step0", "step1", "step512"), {"attention": {"0.0005": ratios}}, title="t")
    line = figure.axes[0].lines[1]
    assert np.asarray(line.get_ydata(), dtype=float) == pytest.approx([1.0, np.nan, 2.0], nan_ok=True)
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["step0", "step1", "step512"]


def test_a_measure_without_any_ratio_says_so_and_has_no_axis() -> None:
    ratios = {"dot": {"0.0005": [Ratio(None), Ratio(None)]}, "attention": {"0.0005": [Ratio(1.0), Ratio(None)]}}
    empty, drawn = over_checkpoints(("step0", "step1"), ratios, title="t").axes
    assert [text.get_text() for text in empty.texts] == ["not defined"]
    assert list(empty.get_yticks()) == []
    assert list(drawn.texts) == []
    assert len(drawn.get_yticks()) > 0
