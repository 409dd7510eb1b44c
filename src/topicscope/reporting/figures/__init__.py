"""Figures from arrays: every function draws one and returns it; the numbers that it shows are read off it."""

import io
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator, FuncFormatter

from topicscope.reporting.palette import BLUE as BLUE
from topicscope.reporting.palette import COLOURS, DIVERGING, GREEN, GREY, ORANGE
from topicscope.reporting.symbols import mathtext
from topicscope.store import Row, table_text, write_atomically

__all__ = ("BLUE", "DIVERGING", "GREEN", "GREY", "ORANGE", "PALETTE", "panels", "save_figure", "save_pictures")

PALETTE = (*COLOURS, "#000000")

# The table of a figure has no maps of more cells than this.
MOST_CELLS = 2500

# A drawing has its pixels at this resolution where it has any, such as a landscape.
SVG_DPI = 80

# A figure was once kept with a table of its own.
Drawn = Figure


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
        panel.set_axisbelow(True)
    return figure, axes


def save_figure(figure: Figure, stem: Path) -> list[Path]:
    """Write a figure as PNG and SVG, and what numbers it shows as CSV; each file whole or not at all."""
    # Saving turns symbols into formulas, which a table has no use for.
    rows = table_of(figure)
    paths = save_pictures(figure, stem)
    if rows:
        write_atomically(stem.with_name(f"{stem.name}.csv"), table_text(rows))
        paths.append(stem.with_name(f"{stem.name}.csv"))
    return paths


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
    for kind, dots in (("png", dpi), ("svg", SVG_DPI)):
        figure.set_dpi(dots)
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


def faint_lines(axes: Axes, steps: np.ndarray, values: Float[np.ndarray, "run step"], colour: str) -> None:
    """A faint line per run behind their mean: pixels, since as curves they would fill megabytes, and in no table."""
    lines = np.stack([np.broadcast_to(steps, values.shape), values], axis=2)
    axes.add_collection(LineCollection(list(lines), colors=colour, alpha=0.3, linewidths=0.7, rasterized=True))
    axes.autoscale_view()


# The numbers that a figure shows.


def between(
    axes: Axes, x: Sequence[float] | Sequence[int], low: Sequence[float], high: Sequence[float], line: Line2D
) -> None:
    """Shade the intervals around a line, and remember their ends with it."""
    axes.fill_between(x, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    remember_ends(line, low, high)


def remember_ends(line: Line2D, low: Sequence[float], high: Sequence[float]) -> None:
    """Keep the ends of intervals with the line that they belong to, for the table."""
    line.ends = list(zip(low, high, strict=True))  # type: ignore[attr-defined]


def table_of(figure: Figure) -> list[Row]:
    """A row per point, cell or bar that is drawn, by panel and label; numbers with eight digits."""
    drawn = [(_heading(axes), axes) for axes in figure.axes if axes.get_label() != "<colorbar>"]
    rows = [{"panel": heading, **row} for heading, axes in drawn for row in _points(axes)]
    return [{name: _cell(value) for name, value in row.items()} for row in rows]


def _heading(axes: Axes) -> str:
    title, label = axes.get_title(), axes.get_ylabel()
    parts = (title, "" if title and title in label else label)
    return ", ".join(part for part in parts if part) or axes.get_xlabel()


def _points(axes: Axes) -> Iterator[Row]:
    names = {direction: _names(getattr(axes, f"{direction}axis")) for direction in "xy"}
    # An annotation stands beside the point that it is about.
    texts: dict[Any, str] = {
        tuple(map(float, getattr(text, "xy", text.get_position()))): text.get_text() for text in axes.texts
    }

    def row(x: float | None, y: float | None, series: object = "", **more: Any) -> Row:
        label = "" if str(series).startswith("_") else series
        at = {"x": x, "y": y}
        text = {"text": texts.pop((x, y))} if (x, y) in texts else {}
        return {"series": label} | {key: names[key].get(value, value) for key, value in at.items()} | more | text

    for line in axes.lines:
        # A line across the whole panel is one number.
        across, along = (
            line.get_transform() == each() for each in (axes.get_yaxis_transform, axes.get_xaxis_transform)
        )
        points = list(zip(*(np.ravel(each).astype(float).tolist() for each in line.get_data()), strict=True))
        ends = getattr(line, "ends", [(None, None)] * len(points))
        for (x, y), (low, high) in zip(points[:1] if across or along else points, ends, strict=False):
            interval = {} if low is None else {"low": low, "high": high}
            yield row(None if across else x, None if along else y, line.get_label(), **interval)
    for image in axes.images:
        cells: np.ndarray = np.ma.filled(np.ma.asarray(image.get_array(), dtype=float), np.nan)
        # Whole matrices are in files of their own.
        for y, line_of in enumerate(cells.tolist() if cells.size <= MOST_CELLS else ()):
            for x, value in enumerate(line_of):
                yield row(float(x), float(y), value=value)
    for drawn in axes.collections:
        if isinstance(drawn, PathCollection) and (values := drawn.get_array()) is not None:
            for (x, y), value in zip(np.asarray(drawn.get_offsets()).tolist(), np.ravel(values).tolist(), strict=True):
                yield row(x, y, value=value)
    for bars in axes.containers:
        for bar in bars if isinstance(bars, BarContainer) else ():
            yield row(bar.get_width(), bar.get_y() + bar.get_height() / 2, bars.get_label())
    yield from [row(x, y) for x, y in list(texts)]


def _names(axis: Axis) -> dict[float | None, str]:
    """What is written beside an axis in place of numbers, by number."""
    locator, formatter = axis.get_major_locator(), axis.get_major_formatter()
    if not isinstance(locator, FixedLocator) or not isinstance(formatter, FuncFormatter):
        return {}
    return {float(at): formatter(at) for at in locator.tick_values(0, 0)}


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.8g}"
    # Names of panels may have line breaks.
    return "" if value is None else " ".join(str(value).split())
