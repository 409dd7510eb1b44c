"""Figures of a sweep from its table: measures against a setting with intervals over seeds, and maps of two settings."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from topicscope.measure.uncertainty import Interval, student_interval

Row = Mapping[str, Any]
# More curves than this in a panel cannot be told apart: then they are averaged.
MOST_CURVES = 6
# More values than this have the axis' own ticks.
MOST_TICKS = 8
# More cells than this are not labelled.
MOST_LABELS = 64
# Okabe and Ito's colours, told apart by colour-blind eyes.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")


def sweep_figures(
    rows: Sequence[Row], *, settings: Sequence[str], measures: Sequence[str], connected: bool = True
) -> dict[str, Figure]:
    """A figure for each setting and for each pair of them, by name; a panel a measure.

    ``connected`` is for grids: values are joined by lines. Combinations drawn at random are points.
    """
    varied = [name for name in settings if len(_values(rows, name)) > 1]
    figures = {}
    for name in varied:
        others = [other for other in varied if other != name]
        figures[f"by-{name}"] = by_setting(rows, name, measures=measures, others=others, connected=connected)
    for first, second in itertools.combinations(varied, 2):
        figures[f"map-{first}-{second}"] = map_of_two(rows, first, second, measures=measures, cells=connected)
    return figures


def by_setting(
    rows: Sequence[Row], setting: str, *, measures: Sequence[str], others: Sequence[str] = (), connected: bool = True
) -> Figure:
    """Measures against one setting: means over seeds with 95 % intervals (Student's).

    With few combinations of the other settings each has its curve; with many, each seed's numbers are first averaged
    over them, so that the interval is still one over independent runs.
    """
    figure = _panels(len(measures))
    values = _values(rows, setting)
    combinations = list(dict.fromkeys(tuple(row[name] for name in others) for row in rows))
    apart = connected and len(combinations) <= MOST_CURVES
    for axes, measure in zip(figure.axes, measures, strict=True):
        places = _places(axes, "x", values, setting)
        for number, combination in enumerate(combinations if apart else [None]):
            mine = [row for row in rows if combination in (None, tuple(row[name] for name in others))]
            found = {value: over_seeds([row for row in mine if row[setting] == value], measure) for value in values}
            there = [value for value in values if (interval := found[value]) and np.isfinite(interval.value)]
            label = (
                None
                if not combination
                else ", ".join(f"{_short(n)} {v}" for n, v in zip(others, combination, strict=True))
            )
            _curve(axes, [places[value] for value in there], [found[value] for value in there],
                   colour=COLOURS[number], label=label, connected=connected)  # fmt: skip
        axes.set_ylabel(measure.replace("_", " "))
        axes.grid(color="0.9", linewidth=0.5)
    if apart and len(combinations) > 1:
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8)
    rest = "" if apart or not others else "; each seed averaged over the other settings"
    figure.suptitle(f"mean over seeds and 95 % interval{rest}", fontsize=9)
    return figure


def map_of_two(rows: Sequence[Row], first: str, second: str, *, measures: Sequence[str], cells: bool = True) -> Figure:
    """Measures over two settings, averaged over seeds and all else: a heat map, or coloured points if not a grid."""
    figure = _panels(len(measures))
    values = _values(rows, first), _values(rows, second)
    image: AxesImage | PathCollection
    for axes, measure in zip(list(figure.axes), measures, strict=True):
        if cells:
            table = np.array(
                [[_mean(rows, measure, {first: x, second: y}) for x in values[0]] for y in values[1]], dtype=float
            )
            image = axes.imshow(np.ma.masked_invalid(table), cmap="viridis", origin="lower", aspect="auto")
            axes.set_xticks(range(len(values[0])), [_shown(value) for value in values[0]])
            axes.set_yticks(range(len(values[1])), [_shown(value) for value in values[1]])
            axes.set_xlabel(first)
            axes.set_ylabel(second)
            _label_cells(axes, table)
        else:
            xs, ys = _places(axes, "x", values[0], first), _places(axes, "y", values[1], second)
            pairs = list(dict.fromkeys((row[first], row[second]) for row in rows))
            colours = [_mean(rows, measure, {first: x, second: y}) for x, y in pairs]
            image = axes.scatter([xs[x] for x, _ in pairs], [ys[y] for _, y in pairs], c=colours, cmap="viridis", s=40)
        axes.set_title(measure.replace("_", " "), fontsize=10)
        figure.colorbar(image, ax=axes, shrink=0.8)
    figure.suptitle("mean over seeds and all other settings", fontsize=9)
    return figure


def over_seeds(rows: Sequence[Row], measure: str) -> Interval | None:
    """Mean and interval over seeds, each seed's rows averaged first; None if no run has the measure."""
    seeds = list(dict.fromkeys(row["seed"] for row in rows))
    numbers = [_mean(rows, measure, {"seed": seed}) for seed in seeds]
    finite = np.array([number for number in numbers if np.isfinite(number)])
    return student_interval(finite) if len(finite) else None


def _mean(rows: Sequence[Row], measure: str, where: Mapping[str, Any]) -> float:
    chosen = [row[measure] for row in rows if all(row[name] == value for name, value in where.items())]
    numbers = [float(number) for number in chosen if number is not None]
    return float(np.mean(numbers)) if numbers else np.nan


def _curve(
    axes: Axes, places: Sequence[float], found: Sequence[Interval | None], *, colour: str, label: str | None,
    connected: bool,
) -> None:  # fmt: skip
    intervals = [interval for interval in found if interval]
    # A single seed has no interval.
    halves = [interval.high - interval.value if np.isfinite(interval.high) else 0.0 for interval in intervals]
    axes.errorbar(
        places, [interval.value for interval in intervals], yerr=halves, fmt="o-" if connected else "o",
        color=colour, label=label, markersize=4, capsize=3, linewidth=1.2,
    )  # fmt: skip


def _panels(count: int) -> Figure:
    columns = min(count, 3) if count != 4 else 2
    rows = -(-count // columns)
    figure = Figure(figsize=(4.2 * columns, 3.4 * rows + 0.6), layout="constrained")
    for place in range(count):
        figure.add_subplot(rows, columns, place + 1)
    return figure


def _places(axes: Axes, which: str, values: Sequence[Any], name: str) -> dict[Any, float]:
    """Where values go on an axis: numbers where they are, on a log scale if they span decades; others side by side."""
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    axis = getattr(axes, f"{which}axis")
    axes.set(**{f"{which}label": name})
    if not numbers:
        axis.set_ticks(range(len(values)), [_shown(value) for value in values])
        return {value: float(place) for place, value in enumerate(values)}
    if min(values) > 0 and max(values) / min(values) >= 8:
        axes.set(**{f"{which}scale": "log"})
    if len(values) <= MOST_TICKS:
        axis.set_ticks(values, [_shown(value) for value in values])
        axis.set_ticks([], minor=True)
    return {value: float(value) for value in values}


def _label_cells(axes: Axes, table: Float[np.ndarray, "row column"]) -> None:
    if table.size > MOST_LABELS:
        return
    middle = (np.nanmin(table) + np.nanmax(table)) / 2
    for (row, column), value in np.ndenumerate(table):
        colour = "black" if value > middle else "white"
        text, colour = (f"{value:.3g}", colour) if np.isfinite(value) else ("diverged", "black")
        axes.text(column, row, text, ha="center", va="center", fontsize=8, color=colour)


def _values(rows: Sequence[Row], name: str) -> list[Any]:
    """The setting's values, sorted if they are numbers."""
    values = list(dict.fromkeys(row[name] for row in rows))
    return sorted(values) if all(isinstance(value, int | float) for value in values) else values


def _short(name: str) -> str:
    return name.rpartition(".")[2].replace("_", " ")


def _shown(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
