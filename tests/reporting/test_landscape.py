"""The landscape's figure: what it draws, and that its legend hides nothing."""

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
    panel = drawn(landscape_figure(DATA)).axes[0]
    assert marked(panel) == {(4.0, 1.0), (1.0, 1.0)}
    zero = drawn(landscape_figure(replace(DATA, optimum=(0.0, 1.0)))).axes[0]
    assert marked(zero) == {(0.01, 1.0), (1.0, 1.0)}


@pytest.mark.parametrize("attained", [True, False])
def test_the_legend_says_whether_the_optimum_is_attained(attained: bool) -> None:
    (legend,) = landscape_figure(replace(DATA, attained=attained)).legends
    said = any("no optimum is attained" in text.get_text() for text in legend.get_texts())
    assert said is not attained


def test_the_legend_is_outside_every_panel_and_names_theorem_3() -> None:
    figure = drawn(landscape_figure(DATA))
    (legend,) = figure.legends
    box = legend.get_window_extent()
    assert not any(box.overlaps(panel.get_window_extent()) for panel in figure.axes)
    texts = [text.get_text() for text in legend.get_texts()]
    assert any("Theorem 3" in text and "(0.5, 50)" in text for text in texts)
    assert any("limit" in text for text in texts)
    assert not any(
        "limit" in text.get_text() for text in landscape_figure(replace(DATA, limit=None)).legends[0].get_texts()
    )


@pytest.mark.parametrize("change", [{"word_loss": None}, {"high": None}, {"limit": None}, {"low": 0.0}])
def test_parts_that_are_not_defined_are_left_out(change: dict[str, float | None]) -> None:
    figure = drawn(landscape_figure(replace(DATA, **change)))  # type: ignore[arg-type]
    panels = [axis for axis in figure.axes if axis.get_xlabel()]
    assert len(panels) == (1 if "word_loss" in change else 2)
