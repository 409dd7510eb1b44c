"""Figures from arrays: curves, dots by row, tables of cells and heat maps, with the numbers that they show as CSV."""

import io
import itertools
import math
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int, Real
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.axis import Axis, XAxis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.collections import LineCollection
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator

from topicscope.reporting.palette import BLUE, DIVERGING, GREY, colour_limit
from topicscope.reporting.symbols import mathtext
from topicscope.store import table_text, write_atomically

# Dots per inch; those of an SVG are for its pixels, if it has any.
PNG_DPI, SVG_DPI = 150, 80

# How many maps are in a row, and the most cells along a side that are all named.
COLUMNS, MOST_NAMED = 4, 12

# Shades of a heat map, white in their middle; few of them take less room in a file.
SHADES = 65

Numbers = Sequence[int | float] | Real[np.ndarray, " x"]


class Drawing(Figure):
    """A figure, and the numbers that it was drawn from, a row for each point or cell."""

    rows: list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Series:
    """Numbers by place, perhaps with their 95 % intervals; of several runs, whose mean is drawn before faint lines."""

    x: Numbers
    y: Sequence[int | float] | Float[np.ndarray, "*run x"]
    low: Numbers = ()
    high: Numbers = ()
    label: str = ""
    colour: str = BLUE
    style: Mapping[str, Any] = field(default_factory=dict)
    """Of the line, as Matplotlib calls it."""

    @property
    def middle(self) -> Float[np.ndarray, " x"]:
        """The numbers, or their mean over runs."""
        y = np.asarray(self.y, dtype=float)
        return y.mean(axis=0) if y.ndim == 2 else y

    def rows(self, panel: str) -> list[dict[str, Any]]:
        """Its numbers as rows of a table."""
        ends = zip(self.low, self.high, strict=True) if len(self.low) else itertools.repeat(("", ""))
        return [
            {"panel": panel, "series": self.label, "x": x, "y": y, "low": low, "high": high}
            for x, y, (low, high) in zip(self.x, self.middle, ends, strict=False)
        ]


@dataclass(frozen=True, kw_only=True, eq=False)
class Panel:
    """Series in one pair of axes."""

    series: Sequence[Series]
    title: str = ""
    x: str = ""
    y: str = ""
    log: str = ""
    """The axes with a logarithmic scale: "x", "y" or "xy"."""

    from_zero: bool = False
    """Whether y begins at 0."""

    levels: Mapping[str, float] = field(default_factory=dict)
    """Dashed lines across, by name."""

    marks: Sequence[tuple[float, str]] = ()
    """Dashed upright lines: place and colour."""

    ticks: Mapping[Any, str] = field(default_factory=dict)
    """What stands along x, by place; else Matplotlib's numbers."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Cells:
    """A table of coloured cells; those without a number are grey."""

    values: Float[np.ndarray, "row column"]
    rows: Sequence[str]
    columns: Sequence[str]
    title: str = ""
    texts: Sequence[str] = ()
    """What is written in the cells, row by row."""

    dots: Bool[np.ndarray, "row column"] | None = None
    """Which cells are marked."""

    def table(self) -> list[dict[str, Any]]:
        """Its cells as rows of a table."""
        names = [(row, column) for row in self.rows for column in self.columns]
        texts = self.texts or [""] * len(names)
        marked = [""] * len(names) if self.dots is None else ["yes" if dot else "no" for dot in self.dots.flat]
        return [
            {"panel": self.title, "row": row, "column": column, "value": value, "text": text, "marked": mark}
            for (row, column), value, text, mark in zip(names, self.values.flat, texts, marked, strict=True)
        ]


def panels(
    title: str,
    size: tuple[float, float],
    rows: int = 1,
    columns: int = 1,
    *,
    lines: Literal["both", "x"] | None = "both",
    used: int | None = None,
    **more: Any,
) -> tuple[Drawing, Any]:
    """An empty figure, and its panels by row and column; ``lines`` says along which axes they have any.

    ``used``: how many panels, row by row, are needed; the others are removed.
    """
    figure = Drawing(figsize=size, layout="constrained")
    figure.rows = []
    figure.suptitle(title, fontsize=11)
    axes = figure.subplots(rows, columns, squeeze=False, **more)
    for panel in axes.flat if lines else ():
        panel.grid(axis=lines, color="0.9", linewidth=0.5)
        panel.set_axisbelow(True)
    for spare in axes.flat[used:] if used else ():
        spare.remove()
    return figure, axes


def curves(
    title: str,
    shown: Sequence[Panel],
    *,
    columns: int = 3,
    size: tuple[float, float] = (4.4, 3.2),
    **more: Any,
) -> Drawing:
    """Panels row by row; a legend that they share stands below them, other legends in their own panels."""
    columns = min(columns, len(shown))
    rows = -(-len(shown) // columns)
    whole_size = (size[0] * columns, size[1] * rows + 0.6)
    figure, axes = panels(title, whole_size, rows, columns, used=len(shown), **more)
    names = [{series.label for series in panel.series if series.label} for panel in shown]
    shared = all(own == names[0] for own in names)
    for axis, panel, own in zip(axes.flat, shown, names, strict=False):
        whole = all(float(x).is_integer() for series in panel.series for x in series.x)
        axis.xaxis.get_major_locator().set_params(integer=whole)
        heading = ", ".join(text for text in (panel.title, panel.y) if text)
        for series in panel.series:
            _draw(axis, series)
            figure.rows += [row | {"x": panel.ticks.get(row["x"], row["x"])} for row in series.rows(heading)]
        for name, level in panel.levels.items():
            axis.axhline(level, color=GREY, linestyle="--", linewidth=1.0, label=name or None)
            figure.rows.append({"panel": heading, "series": name or "dashed line", "y": level})
        for at, colour in panel.marks:
            axis.axvline(at, color=colour, linestyle="--", linewidth=0.9, alpha=0.8)
        axis.set_title(folded(panel.title, size[0] - 0.4), fontsize=8)
        axis.set_xlabel(panel.x, fontsize=9)
        axis.set_ylabel(panel.y, fontsize=9)
        axis.set(**{f"{side}scale": "log" for side in panel.log})
        if panel.from_zero:
            axis.set_ylim(bottom=0)
        if panel.ticks:
            _name(axis.xaxis, list(panel.ticks.values()), list(panel.ticks))
        if len(own) > 1 and not shared:
            axis.legend(fontsize=7)
    if shared:
        _legend_below(figure, axes.flat[: len(shown)])
    return figure


def _draw(panel: Axes, series: Series) -> None:
    x, y = np.asarray(series.x, dtype=float), np.asarray(series.y, dtype=float)
    style: dict[str, Any] = {"linewidth": 1.8, "color": series.colour, "label": series.label or None}
    if y.ndim == 2:
        # Pixels, since as curves they would fill megabytes; and in no table.
        runs = [np.stack([x, own], axis=1) for own in y]
        panel.add_collection(LineCollection(runs, colors=series.colour, alpha=0.3, linewidths=0.7, rasterized=True))
        panel.autoscale_view()
    panel.plot(x, series.middle, **(style | dict(series.style)))
    if len(series.low):
        panel.fill_between(x, series.low, series.high, color=series.colour, alpha=0.2, linewidth=0)


def _legend_below(figure: Figure, axes: Collection[Axes]) -> None:
    """One legend for all panels, each name once."""
    named = {label: handle for panel in axes for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)}
    if named:
        columns = 2 if len(axes) == 1 else 3
        figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=columns, fontsize=8)


def dots(
    title: str,
    names: Sequence[str],
    numbers: Mapping[str, Sequence[Series]],
    *,
    levels: Mapping[str, Mapping[str, float]] | None = None,
    size: tuple[float, float] = (5.2, 0.36),
) -> Drawing:
    """Numbers along x, a row per name and a panel per quantity; the ``x`` of a series are rows, its ``y`` numbers.

    Each panel may have dashed and dotted ``levels``, by name.
    """
    whole_size = (size[0] * len(numbers), size[1] * len(names) + 1.6)
    figure, [axes] = panels(title, whole_size, 1, len(numbers), lines="x", sharey=True)
    for panel, (label, several) in zip(axes, numbers.items(), strict=True):
        for (name, level), line in zip((levels or {}).get(label, {}).items(), ("--", ":"), strict=False):
            panel.axvline(level, color=GREY, linestyle=line, linewidth=1.2, label=name or None)
            figure.rows.append({"panel": label, "series": name or "dashed line", "x": level})
        for series in several:
            style: dict[str, Any] = {"marker": "o", "linestyle": "none", "markersize": 4.5, "color": series.colour}
            panel.plot(series.y, series.x, **(style | {"label": series.label or None} | dict(series.style)))
            if len(series.low):
                panel.hlines(series.x, series.low, series.high, color=series.colour, linewidth=1.4)
            figure.rows += [row | {"x": row["y"], "y": names[row["x"]]} for row in series.rows(label)]
        panel.set_xlabel(label)
    _name(axes[0].yaxis, names)
    axes[0].set_ylim(len(names) - 0.4, -0.6)
    _legend_below(figure, axes)
    return figure


def by_row(values: Mapping[int, Float[np.ndarray, " run"]], *, label: str = "", colour: str = BLUE) -> Series:
    """A dot per run in each of these rows."""
    rows = np.repeat(list(values), [len(own) for own in values.values()])
    return Series(x=rows, y=np.concatenate(list(values.values())), label=label, colour=colour, style={"alpha": 0.6})


def cells(
    title: str,
    tables: Sequence[Cells],
    *,
    x: str = "",
    y: str = "",
    scale: tuple[float, float],
    colours: str = DIVERGING,
    bar: str = "",
    cell: tuple[float, float] = (0.36, 0.36),
) -> Drawing:
    """Tables side by side, four in a row, on one ``scale``; ``bar`` names it, and without a name it has no bar.

    ``cell`` is the size of one, in inches.
    """
    rows, columns = -(-len(tables) // COLUMNS), min(len(tables), COLUMNS)
    # A panel is at least as wide as its title, and at least as high as two rows.
    wide = [max(cell[0] * max(len(table.columns) for table in tables[at::COLUMNS]), 2.2) for at in range(columns)]
    tall = [cell[1] * max(2, *(len(table.rows) for table in tables[at * COLUMNS :][:COLUMNS])) for at in range(rows)]
    size = (sum(wide) + 1.6 + 0.9 * columns, sum(tall) + 1.2 * rows + 0.5)
    ratios = {"width_ratios": wide, "height_ratios": tall}
    figure, axes = panels(title, size, rows, columns, lines=None, used=len(tables), gridspec_kw=ratios)
    shown, norm = axes.flat[: len(tables)].tolist(), Normalize(*scale)
    for place, (panel, table) in enumerate(zip(shown, tables, strict=True)):
        image = panel.imshow(table.values, cmap=colours, norm=norm, aspect="auto", interpolation="nearest")
        panel.set_facecolor("0.93")
        for text, (row, column) in zip(table.texts, np.ndindex(table.values.shape), strict=False):
            ink = _ink(image.cmap, norm, float(table.values[row, column]))
            panel.text(column, row, text, ha="center", va="center", fontsize=7 if cell[0] < 0.6 else 8, color=ink)
        if table.dots is not None:
            panel.plot(*np.nonzero(table.dots)[::-1], "o", color="black", markersize=3)
        # The same names are written once per row of panels.
        again = place % COLUMNS and list(table.rows) == list(tables[place - 1].rows)
        _name_cells(panel.xaxis, table.columns)
        _name_cells(panel.yaxis, [""] * len(table.rows) if again else table.rows)
        panel.set_title(folded(table.title, wide[place % COLUMNS]), fontsize=9)
        panel.set_xlabel(x)
        panel.set_ylabel("" if again else y)
        figure.rows += table.table()
    if bar:
        beyond = any(np.nanmax(np.abs(table.values), initial=0.0) > 1.001 * scale[1] for table in tables)
        ends = "both" if beyond else "neither"
        figure.colorbar(image, ax=shown, shrink=0.9, aspect=20 * rows, extend=ends).set_label(bar, fontsize=8)
    return figure


def _ink(colours: Colormap, norm: Normalize, value: float) -> str:
    """Black or white, whichever can be read on the colour of a value."""
    return "white" if np.isfinite(value) and np.dot(colours(norm(value))[:3], (0.3, 0.6, 0.1)) < 0.45 else "black"


def _name(axis: Axis, names: Sequence[str], places: Numbers | None = None) -> None:
    """Write these names along an axis; words that would overlap side by side are slanted."""
    overlap = isinstance(axis, XAxis) and sum(map(len, names)) > 36
    slanted: dict[str, Any] = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"} if overlap else {}
    axis.set_ticks(range(len(names)) if places is None else places, list(map(mathtext, names)), fontsize=8, **slanted)
    axis.set_ticks([], minor=True)


def _name_cells(axis: Axis, names: Sequence[str]) -> None:
    """Of many rows or columns every fourth is named."""
    places = range(0, len(names), 1 if len(names) <= MOST_NAMED else 4)
    _name(axis, [names[place] for place in places], places)


def folded(title: str, inches: float) -> str:
    """A title in small letters, in lines that are no wider than its panel."""
    lines = (textwrap.wrap(line, max(int(inches / 0.075), 10)) for line in title.split("\n"))
    return "\n".join(itertools.chain.from_iterable(lines))


def heat_maps(
    matrices: Mapping[str, Float[np.ndarray, "row column"]],
    *,
    words: int = 0,
    word_topics: Int[np.ndarray, " token"] | None = None,
    columns: int = COLUMNS,
    title: str = "",
    same_scale: Collection[Collection[str]] = (),
) -> Drawing:
    """Matrices over tokens side by side, with topic boundaries; white is zero. Their entries are in no table.

    Topics have ``words`` words each, in order, or are those of ``word_topics``, by which tokens are then ordered.
    Panels named together in ``same_scale`` share one colour scale, so that they can be compared; others have their own.
    """
    tokens = len(next(iter(matrices.values())))
    # Token 0 is [MASK], of no topic; the boundaries are where the topic changes.
    topics = -(-np.arange(tokens) // words) if word_topics is None else word_topics
    order = np.argsort(topics, kind="stable")
    boundaries = np.flatnonzero(np.diff(topics[order])) + 0.5
    sorted_by = "" if (order == np.arange(tokens)).all() else ", by topic"
    rows, ends = -(-len(matrices) // columns), (-0.5, tokens - 0.5)
    size = (3.9 * columns, 3.3 * rows + 0.5)
    figure, axes = panels(title, size, rows, columns, lines=None, used=len(matrices), sharex=True, sharey=True)
    limits = {name: colour_limit(matrix) or 1.0 for name, matrix in matrices.items()}
    for group in same_scale:
        limits |= dict.fromkeys(group, max(limits[name] for name in group))
    shades = colormaps[DIVERGING].resampled(SHADES)
    for place, (panel, (name, matrix)) in enumerate(zip(axes.flat, matrices.items(), strict=False)):
        norm = Normalize(-limits[name], limits[name])
        # Without interpolation the SVG has a pixel per entry.
        image = panel.imshow(matrix[np.ix_(order, order)], cmap=shades, norm=norm, interpolation="none")
        panel.hlines(boundaries, *ends, color="0.6", linewidth=0.3)
        panel.vlines(boundaries, *ends, color="0.6", linewidth=0.3)
        panel.set_title(name, fontsize=10)
        for axis in (panel.xaxis, panel.yaxis):
            axis.set_major_locator(MaxNLocator(3, integer=True))
        panel.tick_params(labelsize=7)
        if place >= len(matrices) - columns:
            panel.set_xlabel(f"token j (0 is [MASK]){sorted_by}", fontsize=8)
        if place % columns == 0:
            panel.set_ylabel(f"token i{sorted_by}", fontsize=8)
        figure.colorbar(image, ax=panel, shrink=0.8, ticks=MaxNLocator(4)).ax.tick_params(labelsize=7)
    return figure


# Figures as files.


def save_figure(figure: Figure, stem: Path) -> list[Path]:
    """Write a figure as PNG and SVG, and the numbers of a drawing as CSV; each file whole or not at all.

    The same figure makes the same bytes, because they have no date and no random name.
    """
    contents: dict[str, bytes | str] = {}
    for text in figure.findobj(Text):
        text.set_text(mathtext(text.get_text()))
    for kind, dots in (("png", PNG_DPI), ("svg", SVG_DPI)):
        figure.set_dpi(dots)
        picture = io.BytesIO()
        # ``savefig`` would draw twice, the first time for the layout alone, which is computed once here.
        if kind == "png":
            FigureCanvasAgg(figure).print_png(picture)  # type: ignore[no-untyped-call]
        else:
            with rc_context({"svg.hashsalt": "topicscope"}):
                FigureCanvasSVG(figure).print_svg(picture, metadata={"Date": None})  # type: ignore[no-untyped-call]
        figure.set_layout_engine("none")
        contents[kind] = picture.getvalue()
    if isinstance(figure, Drawing) and figure.rows:
        contents["csv"] = table_text([{name: _cell(row[name]) for name in row} for row in figure.rows])
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in contents]
    for path, content in zip(paths, contents.values(), strict=True):
        write_atomically(path, content)
    return paths


def _cell(value: Any) -> str:
    """A number with eight digits, empty if there is none; names of panels may have line breaks."""
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.8g}"
    return " ".join(str(value).split())
