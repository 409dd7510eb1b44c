"""Figures from arrays: every function draws one and returns it with a table of the numbers that it shows."""

import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from matplotlib import rc_context
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator

from topicscope.files import Row, table_text, write_atomically
from topicscope.reporting.symbols import mathtext

# A diverging scale that colour-blind readers can read; white is zero.
DIVERGING = "RdBu_r"

# Okabe and Ito's colours, which colour-blind readers can distinguish.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
BLUE, ORANGE, GREEN, *_ = PALETTE
GREY = "0.45"


@dataclass(frozen=True, eq=False)
class Drawn:
    """A figure and the numbers in it."""

    figure: Figure
    table: list[Row]
    """One row per point, by the names of its columns; a row may lack some."""


def panels(
    title: str,
    size: tuple[float, float],
    rows: int = 1,
    columns: int = 1,
    *,
    lines: Literal["both", "x"] | None = "both",
    letters: int = 12,
    **more: Any,
) -> tuple[Figure, Any]:
    """An empty figure, and its panels by row and column; ``lines`` says along which axes they have any."""
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(title, fontsize=letters)
    axes = figure.subplots(rows, columns, squeeze=False, **more)
    for panel in axes.flat if lines else ():
        panel.grid(axis=lines, color="0.9", linewidth=0.5)
    return figure, axes


def save_figure(drawn: Drawn, stem: Path) -> list[Path]:
    """Write a figure as PNG and SVG, and its table as CSV; each file whole or not at all."""
    paths = save_pictures(drawn.figure, stem)
    table = stem.with_name(f"{stem.name}.csv")
    write_atomically(table, table_csv(drawn.table))
    return [*paths, table]


def save_pictures(figure: Figure, stem: Path, *, dpi: int = 150) -> list[Path]:
    """The PNG and the SVG; the same figure makes the same bytes, because they have no date and no random name."""
    paths = []
    for text in figure.findobj(Text):
        text.set_text(mathtext(text.get_text()))
    # Drawing sets the labels of ticks anew, from their axis.
    for axis in figure.findobj(Axis):
        if isinstance(axis.get_major_locator(), FixedLocator):
            names = [label.get_text() for label in axis.get_majorticklabels()]
            if (typeset := [mathtext(name) for name in names]) != names:
                axis.set_ticklabels(typeset)
    figure.set_dpi(dpi)
    for kind in ("png", "svg"):
        picture = io.BytesIO()
        # ``savefig`` would draw twice, the first time for the layout alone, which is computed once here.
        if kind == "png":
            FigureCanvasAgg(figure).print_png(picture)  # type: ignore[no-untyped-call]
        else:
            with rc_context({"svg.hashsalt": "topicscope"}):
                FigureCanvasSVG(figure).print_svg(picture, metadata={"Date": None})  # type: ignore[no-untyped-call]
        figure.set_layout_engine("none")
        paths.append(stem.with_name(f"{stem.name}.{kind}"))
        write_atomically(paths[-1], picture.getvalue())
    return paths


def table_csv(rows: list[Row]) -> str:
    """The table as text: numbers with eight digits, nothing where there is none."""
    return table_text([{name: _cell(value) for name, value in row.items()} for row in rows])


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.8g}"
    # Names of panels may have line breaks.
    return "" if value is None else " ".join(str(value).split())
