"""Figures from arrays: curves, dots by row, tables of cells and heat maps; their numbers are read off them as CSV."""

import io
import itertools
import math
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int, Real
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.collections import LineCollection
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from topicscope.reporting.palette import BLUE, DIVERGING, GREY
from topicscope.reporting.symbols import mathtext
from topicscope.store import Row, table_text, write_atomically

# The table of a figure has no maps of more cells than this.
MOST_CELLS = 2500

# A drawing has its pixels at this resolution where it has any, such as a landscape.
PNG_DPI, SVG_DPI = 150, 80

# How many maps are in a row, and the most cells along a side that are all named.
COLUMNS, MOST_NAMED = 4, 12

# Shades of a heat map, white in their middle.
SHADES = 65


Numbers = Sequence[int | float] | Real[np.ndarray, " x"]


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


def panels(
    title: str,
    size: tuple[float, float],
    rows: int = 1,
    columns: int = 1,
    *,
    lines: Literal["both", "x"] | None = "both",
    **more: Any,
) -> tuple[Figure, Any]:
    """An empty figure, and its panels by row and column; ``lines`` says along which axes they have any."""
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(title, fontsize=11)
    axes = figure.subplots(rows, columns, squeeze=False, **more)
    for panel in axes.flat if lines else ():
        panel.grid(axis=lines, color="0.9", linewidth=0.5)
        panel.set_axisbelow(True)
    return figure, axes


def curves(
    title: str,
    shown: Sequence[Panel],
    *,
    columns: int = 3,
    size: tuple[float, float] = (4.4, 3.2),
    **more: Any,
) -> Figure:
    """Panels row by row; a legend that they share stands below them, other legends in their own panels."""
    columns = min(columns, len(shown))
    rows = -(-len(shown) // columns)
    figure, axes = panels(title, (size[0] * columns, size[1] * rows + 0.6), rows, columns, **more)
    for spare in axes.flat[len(shown) :]:
        spare.remove()
    names = [{each.label for each in panel.series if each.label} for panel in shown]
    shared = all(own == names[0] for own in names)
    for axis, panel, own in zip(axes.flat, shown, names, strict=False):
        whole = all(float(x).is_integer() for each in panel.series for x in each.x)
        axis.xaxis.get_major_locator().set_params(integer=whole)
        for each in panel.series:
            _draw(axis, each)
        for name, level in panel.levels.items():
            axis.axhline(level, color=GREY, linestyle="--", linewidth=1.0, label=name or None)
        for at, colour in panel.marks:
            axis.axvline(at, color=colour, linestyle="--", linewidth=0.9, alpha=0.8)
        axis.set_title(folded(panel.title, size[0] - 0.4), fontsize=8)
        axis.set_xlabel(panel.x, fontsize=9)
        axis.set_ylabel(panel.y, fontsize=9)
        axis.set(**{f"{side}scale": "log" for side in panel.log})
        if panel.from_zero:
            axis.set_ylim(bottom=0)
        if panel.ticks:
            axis.set_xticks([*panel.ticks], [*panel.ticks.values()], fontsize=8, **_slanted([*panel.ticks.values()]))
            axis.set_xticks([], minor=True)
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
        y = y.mean(axis=0)
    [line] = panel.plot(x, y, **(style | dict(series.style)))
    if len(series.low):
        panel.fill_between(x, series.low, series.high, color=series.colour, alpha=0.2, linewidth=0)
        remember_ends(line, series.low, series.high)


def _legend_below(figure: Figure, axes: Collection[Axes]) -> None:
    """One legend for all panels, each name once."""
    named = {label: handle for panel in axes for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)}
    if named:
        figure.legend(
            named.values(), named.keys(), loc="outside lower center", ncols=2 if len(axes) == 1 else 3, fontsize=8
        )


def dots(
    title: str,
    names: Sequence[str],
    numbers: Mapping[str, Sequence[Series]],
    *,
    levels: Mapping[str, Mapping[str, float]] | None = None,
    size: tuple[float, float] = (5.2, 0.36),
) -> Figure:
    """Numbers along x, a row per name and a panel per quantity; the ``x`` of a series are rows, its ``y`` numbers.

    Each panel may have dashed and dotted ``levels``, by name.
    """
    figure, [axes] = panels(
        title, (size[0] * len(numbers), size[1] * len(names) + 1.6), 1, len(numbers), lines="x", sharey=True
    )
    for panel, (label, series) in zip(axes, numbers.items(), strict=True):
        for (name, level), line in zip((levels or {}).get(label, {}).items(), ("--", ":"), strict=False):
            panel.axvline(level, color=GREY, linestyle=line, linewidth=1.2, label=name or None)
        for each in series:
            style: dict[str, Any] = {"marker": "o", "linestyle": "none", "markersize": 4.5, "color": each.colour}
            [line] = panel.plot(each.y, each.x, **(style | {"label": each.label or None} | dict(each.style)))
            if len(each.low):
                panel.hlines(each.x, each.low, each.high, color=each.colour, linewidth=1.4)
                remember_ends(line, each.low, each.high)
        panel.set_xlabel(label)
    axes[0].set_yticks(range(len(names)), names, fontsize=8)
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
) -> Figure:
    """Tables side by side, four in a row, on one ``scale``; ``bar`` names it, and without a name it has no bar.

    ``cell`` is the size of one, in inches.
    """
    rows, columns = -(-len(tables) // COLUMNS), min(len(tables), COLUMNS)
    # A panel is at least as wide as its title, and at least as high as two rows.
    wide = [max(cell[0] * max(len(each.columns) for each in tables[at::COLUMNS]), 2.2) for at in range(columns)]
    tall = [cell[1] * max(2, *(len(each.rows) for each in tables[at * COLUMNS :][:COLUMNS])) for at in range(rows)]
    size = (sum(wide) + 1.6 + 0.9 * columns, sum(tall) + 1.2 * rows + 0.5)
    ratios = {"width_ratios": wide, "height_ratios": tall}
    figure, axes = panels(title, size, rows, columns, lines=None, gridspec_kw=ratios)
    for spare in axes.flat[len(tables) :]:
        spare.remove()
    shown, norm = axes.flat[: len(tables)].tolist(), Normalize(*scale)
    for place, (panel, table) in enumerate(zip(shown, tables, strict=True)):
        image = panel.imshow(table.values, cmap=colours, norm=norm, aspect="auto", interpolation="nearest")
        panel.set_facecolor("0.93")
        for text, (row, column) in zip(table.texts, np.ndindex(table.values.shape), strict=False):
            style = {
                "ha": "center",
                "va": "center",
                "fontsize": 7 if cell[0] < 0.6 else 8,
                "color": _ink(image.cmap, norm, float(table.values[row, column])),
            }
            panel.text(column, row, text, **style)
        if table.dots is not None:
            panel.plot(*np.nonzero(table.dots)[::-1], "o", color="black", markersize=3)
        # The same names are written once per row of panels.
        again = place % COLUMNS and list(table.rows) == list(tables[place - 1].rows)
        _name_sides(panel, table, named=not again)
        panel.set_title(folded(table.title, wide[place % COLUMNS]), fontsize=9)
        panel.set_xlabel(x)
        panel.set_ylabel("" if again else y)
    if bar:
        beyond = any((np.abs(each.values[np.isfinite(each.values)]) > 1.001 * scale[1]).any() for each in tables)
        ends = "both" if beyond else "neither"
        drawn = figure.colorbar(image, ax=shown, shrink=0.9, aspect=20 * rows, extend=ends)
        drawn.set_label(bar, fontsize=8)
    return figure


def _ink(colours: Colormap, norm: Normalize, value: float) -> str:
    """Black or white, whichever can be read on the colour of a value."""
    return "white" if np.isfinite(value) and np.dot(colours(norm(value))[:3], (0.3, 0.6, 0.1)) < 0.45 else "black"


def _name_sides(panel: Axes, table: Cells, *, named: bool) -> None:
    for side, names in (("x", table.columns), ("y", table.rows if named else [""] * len(table.rows))):
        places = range(0, len(names), 1 if len(names) <= MOST_NAMED else 4)
        slanted = _slanted(names) if side == "x" else {}
        getattr(panel, f"{side}axis").set_ticks(places, [names[at] for at in places], fontsize=8, **slanted)


def _slanted(names: Sequence[str]) -> dict[str, Any]:
    """Words that would overlap side by side are slanted."""
    return {"rotation": 35, "ha": "right", "rotation_mode": "anchor"} if sum(map(len, names)) > 36 else {}


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
) -> Figure:
    """Matrices over tokens side by side, with topic boundaries; white is zero.

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
    figure, axes = panels(title, size, rows, columns, lines=None, sharex=True, sharey=True)
    for spare in axes.flat[len(matrices) :]:
        spare.remove()
    limits = {name: colour_limit(matrix) for name, matrix in matrices.items()}
    for group in same_scale:
        limits |= dict.fromkeys(group, max(limits[name] for name in group))
    shades = colormaps[DIVERGING].resampled(SHADES)
    for place, (panel, (name, matrix)) in enumerate(zip(axes.flat, matrices.items(), strict=False)):
        norm = Normalize(-limits[name], limits[name])
        # Without interpolation the SVG has a pixel per entry; few shades take less room.
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


def colour_limit(matrix: Float[np.ndarray, "row column"]) -> float:
    """The end of a matrix's colour scale: the largest entry, but at most three times the largest off the diagonal."""
    sizes = np.abs(np.nan_to_num(matrix))
    return float(min(sizes.max(), 3 * sizes[~np.eye(len(matrix), dtype=bool)].max(initial=0.0))) or 1.0


# Figures as files, and the numbers that they show.


def save_figure(figure: Figure, stem: Path) -> list[Path]:
    """Write a figure as PNG and SVG, and what numbers it shows as CSV; each file whole or not at all."""
    # Saving turns symbols into formulas, which a table has no use for.
    rows = table_of(figure)
    paths = save_pictures(figure, stem)
    if rows:
        paths.append(stem.with_name(f"{stem.name}.csv"))
        write_atomically(paths[-1], table_text(rows))
    return paths


def save_pictures(figure: Figure, stem: Path) -> list[Path]:
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
        paths.append(stem.with_name(f"{stem.name}.{kind}"))
        write_atomically(paths[-1], picture.getvalue())
    return paths


def remember_ends(line: Line2D, low: Numbers, high: Numbers) -> None:
    """Keep the ends of intervals with the line that they belong to, for the table."""
    line.ends = list(zip(low, high, strict=True))  # type: ignore[attr-defined]


def table_of(figure: Figure) -> list[Row]:
    """A row per point or cell that is drawn, by panel and label; numbers with eight digits."""
    drawn = [(_heading(axes), axes) for axes in figure.axes if axes.get_label() != "<colorbar>"]
    rows = [{"panel": heading, **row} for heading, axes in drawn for row in _points(axes)]
    return [{name: _cell(value) for name, value in row.items()} for row in rows]


def _heading(axes: Axes) -> str:
    title, label = axes.get_title(), axes.get_ylabel()
    parts = (title, "" if title and title in label else label)
    return ", ".join(part for part in parts if part) or axes.get_xlabel()


def _points(axes: Axes) -> Iterator[Row]:
    names = {side: _names(getattr(axes, f"{side}axis")) for side in "xy"}
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
        values: np.ndarray = np.ma.filled(np.ma.asarray(image.get_array(), dtype=float), np.nan)
        # Whole matrices are in files of their own.
        for (y, x), value in np.ndenumerate(values) if values.size <= MOST_CELLS else ():
            yield row(float(x), float(y), value=float(value))
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
