"""The landscape's figure: what it draws and has in its table, and that its legend hides nothing."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from topicscope.reporting.figures.landscape import LandscapeData, landscape_figure

AXIS = np.geomspace(0.01, 100, 30)
AVERAGE = (9 * AXIS[:, None] + AXIS[None, :]) / 10
DATA = LandscapeData(
    alpha=AXIS,
    beta=AXIS,
    loss=np.log(AVERAGE / 4) ** 2 + np.log(AXIS)[None, :] ** 2,
    word_loss=np.log(AVERAGE / 4) ** 2,
    average=AVERAGE,
    optimum=(4.0, 1.0),
    attained=True,
    low=0.5,
    high=50.0,
    limit=10.0,
    title="a landscape",
)


def drawn(figure: Figure) -> Figure:
    FigureCanvasAgg(figure).draw()  # type: ignore[no-untyped-call]
    return figure


def marked(panel: Axes) -> set[tuple[float, float]]:
    return {(float(x), float(y)) for line in panel.lines for x, y in np.asarray(line.get_xydata())}


def test_the_optimum_and_uniform_attention_are_marked_where_they_are() -> None:
    panel = drawn(landscape_figure(DATA).figure).axes[0]
    assert marked(panel) == {(4.0, 1.0), (1.0, 1.0)}
    zero = drawn(landscape_figure(replace(DATA, optimum=(0.0, 1.0))).figure).axes[0]
    assert marked(zero) == {(0.01, 1.0), (1.0, 1.0)}


@pytest.mark.parametrize("attained", [True, False])
def test_the_legend_says_whether_the_optimum_is_attained(attained: bool) -> None:
    (legend,) = landscape_figure(replace(DATA, attained=attained)).figure.legends
    said = any("no optimum is attained" in text.get_text() for text in legend.get_texts())
    assert said is not attained


def test_the_legend_is_outside_every_panel_and_names_theorem_3() -> None:
    figure = drawn(landscape_figure(DATA).figure)
    (legend,) = figure.legends
    box = legend.get_window_extent()
    assert not any(box.overlaps(panel.get_window_extent()) for panel in figure.axes)
    texts = [text.get_text() for text in legend.get_texts()]
    assert any("Theorem 3" in text and "(0.5, 50)" in text for text in texts)
    assert any("limit" in text for text in texts)
    assert not any(
        "limit" in text.get_text() for text in landscape_figure(replace(DATA, limit=None)).figure.legends[0].get_texts()
    )


@pytest.mark.parametrize("change", [{"word_loss": None}, {"high": None}, {"limit": None}, {"low": 0.0}])
def test_parts_that_are_not_defined_are_left_out(change: dict[str, float | None]) -> None:
    figure = drawn(landscape_figure(replace(DATA, **change)).figure)  # type: ignore[arg-type]
    panels = [axis for axis in figure.axes if axis.get_xlabel()]
    assert len(panels) == (1 if "word_loss" in change else 2)


def test_the_table_has_the_loss_at_every_weight_and_what_theory_says() -> None:
    table = landscape_figure(DATA).table
    points = len(AXIS) ** 2
    whole, words = table[:points], table[points : 2 * points]
    assert {row["panel"] for row in whole} == {"all masked positions"}
    assert {row["panel"] for row in words} == {"without [MASK] queries"}
    # Over β first: the second row is the second β of the first α.
    place = 30 * 4 + 7
    assert (whole[place]["alpha"], whole[place]["beta"]) == (AXIS[4], AXIS[7])
    assert (whole[place]["loss"], whole[place]["average"]) == (DATA.loss[4, 7], AVERAGE[4, 7])
    assert whole[place]["excess"] == DATA.loss[4, 7] - DATA.loss.min()
    rest = {row["panel"]: row for row in table[2 * points :]}
    assert (rest["optimum"]["alpha"], rest["optimum"]["beta"]) == (4.0, 1.0)
    assert {name: rest[f"Theorem 3: {name}"]["average"] for name in ("low", "high", "limit")} == {
        "low": 0.5,
        "high": 50.0,
        "limit": 10.0,
    }
    fewer = landscape_figure(replace(DATA, word_loss=None, limit=None, attained=False)).table[points:]
    assert [row["panel"] for row in fewer[:1]] == ["best weights searched"]
    assert len(fewer) == 4
