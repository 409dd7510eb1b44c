"""Figures of a sweep from its table: measures against a setting with intervals over seeds, and maps of two settings."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from topicscope.files import Row
from topicscope.measure.uncertainty import Interval, student_interval
from topicscope.reporting.figures import PALETTE, Drawn
from topicscope.reporting.rounding import powers
from topicscope.settings.sweep import brief, labels

# More curves than this in a panel cannot be distinguished; then they are averaged.
MOST_CURVES = 6

# Ticks are at the values if neighbours are at least this share of the axis apart, else where matplotlib puts them.
LEAST_GAP = 0.19

# Positive numbers that differ by more than this factor get a logarithmic scale: one wild run would hide the others.
LARGEST_RATIO = 100

# Labels with more letters than this in all do not fit side by side.
MOST_LETTERS = 36

# More cells than this are not labelled.
MOST_LABELS = 64


def sweep_figures(
    rows: Sequence[Row], *, settings: Sequence[str], measures: Sequence[str], connected: bool = True
) -> dict[str, Drawn]:
    """A figure for each setting and for each pair of them, by name; a panel per measure.

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
) -> Drawn:
    """Measures against one setting: means over seeds with 95 % intervals (Student's).

    With few combinations of the other settings each has its curve; with many, each seed's numbers are first averaged
    over them, so that the interval is still one over independent runs.
    """
    figure = _panels(len(measures))
    values = _values(rows, setting)
    combinations = list(dict.fromkeys(tuple(row[name] for name in others) for row in rows))
    apart = connected and len(combinations) <= MOST_CURVES
    names = {name: labels(_values(rows, name)) for name in others}
    table: list[Row] = []
    for axes, measure in zip(figure.axes, measures, strict=True):
        places = _places(axes, "x", values, setting)
        joined = connected and _numbers(values)
        means: list[float] = []
        for number, combination in enumerate(combinations if apart else [None]):
            fixed = dict(zip(others, combination or (), strict=False))
            found = {value: over_seeds(_where(rows, fixed | {setting: value}), measure) for value in values}
            there = {value: interval for value, interval in found.items() if interval and np.isfinite(interval.value)}
            short = {name: name.rpartition(".")[2].replace("_", " ") for name in fixed}
            label = ", ".join(f"{short[name]} {names[name][value]}" for name, value in fixed.items())
            # Words have no distance, so nothing joins them, and curves are side by side.
            shift = 0.0 if _numbers(values) or not apart else 0.1 * (number - (len(combinations) - 1) / 2)
            highs = [interval.high - interval.value for interval in there.values()]
            # A single seed has no interval.
            halves = np.where(np.isfinite(highs), highs, np.nan) if np.isfinite(highs).any() else None
            axes.errorbar(
                [places[value] + shift for value in there],
                [interval.value for interval in there.values()],
                yerr=halves, fmt="o-" if joined else "o", color=PALETTE[number], label=label or None,
                markersize=4, capsize=3, linewidth=1.2,
            )  # fmt: skip
            means += [interval.value for interval in there.values()]
            table += [_row(measure, {setting: value, **fixed}, interval) for value, interval in there.items()]
        if _spans_decades(means):
            axes.set_yscale("log")
        axes.set_ylabel(measure.replace("_", " "))
        axes.grid(color="0.9", linewidth=0.5)
    if apart and len(combinations) > 1:
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    rest = "" if apart or not others else "; each seed averaged over the other settings"
    figure.suptitle(f"{_over(rows)}{rest}", fontsize=9)
    return Drawn(figure, table)


def _row(measure: str, where: Mapping[str, Any], interval: Interval | None) -> Row:
    """A mean with the ends of its interval, where there is one."""
    if interval is None:
        return {"measure": measure, **where, "mean": None}
    ends = {"low": interval.low, "high": interval.high} if np.isfinite(interval.high) else {}
    return {"measure": measure, **where, "mean": interval.value, **ends}


def map_of_two(rows: Sequence[Row], first: str, second: str, *, measures: Sequence[str], cells: bool = True) -> Drawn:
    """Measures over two settings, averaged over seeds and everything else: a heat map, or points if not a grid.

    A cell has its mean and, smaller, half of its 95 % interval over seeds; each seed is first averaged over the rest.
    """
    figure = _panels(len(measures))
    across, up = _values(rows, first), _values(rows, second)
    image: AxesImage | PathCollection
    table: list[Row] = []
    for axes, measure in zip(list(figure.axes), measures, strict=True):
        if cells:
            cells_of = {(x, y): _where(rows, {first: x, second: y}) for y in up for x in across}
            found = {place: over_seeds(mine, measure) for place, mine in cells_of.items()}
            means = np.array([np.nan if each is None else each.value for each in found.values()])
            norm, grid = _colour_scale(means.tolist()), (len(up), len(across))
            shown = np.ma.masked_invalid(means.reshape(grid))
            image = axes.imshow(shown, cmap="viridis", norm=norm, origin="lower", aspect="auto")
            _set_labels(axes, "x", across)
            _set_labels(axes, "y", up)
            axes.set(xlabel=first, ylabel=second)
            # Where no run reached its end nothing is measured; otherwise the measure is not defined for these settings.
            diverged = [all(row.get("diverged") for row in mine) for mine in cells_of.values()]
            _label_cells(axes, list(found.values()), diverged, norm, grid)
            table += [_row(measure, {first: x, second: y}, interval) for (x, y), interval in found.items()]
        else:
            xs, ys = _places(axes, "x", across, first), _places(axes, "y", up, second)
            pairs = list(dict.fromkeys((row[first], row[second]) for row in rows))
            colours = [_mean(_where(rows, {first: x, second: y}), measure) for x, y in pairs]
            image = axes.scatter(
                [xs[x] for x, _ in pairs], [ys[y] for _, y in pairs], c=colours, cmap="viridis", s=40,
                norm=_colour_scale(colours),
            )  # fmt: skip
            table += [
                {"measure": measure, first: x, second: y, "mean": mean}
                for (x, y), mean in zip(pairs, colours, strict=True)
            ]
        axes.set_title(measure.replace("_", " "), fontsize=10)
        figure.colorbar(image, ax=axes, shrink=0.8)
    figure.suptitle(_over(rows, "and all other settings, ± half of the 95 % interval" if cells else ""), fontsize=9)
    return Drawn(figure, table)


def over_seeds(rows: Sequence[Row], measure: str) -> Interval | None:
    """Mean and interval over seeds, each seed's rows averaged first; None if no run has the measure."""
    seeds = list(dict.fromkeys(row["seed"] for row in rows))
    numbers = [_mean(_where(rows, {"seed": seed}), measure) for seed in seeds]
    finite = np.array([number for number in numbers if np.isfinite(number)])
    return student_interval(finite) if len(finite) else None


def _over(rows: Sequence[Row], interval: str = "and 95 % interval") -> str:
    """How many seeds a figure's means are over."""
    count = len({row["seed"] for row in rows})
    fewer = "; runs that diverged are left out" if any(row.get("diverged") for row in rows) else ""
    return ("one seed: no interval" if count == 1 else f"mean over {count} seeds {interval}") + fewer


def _spans_decades(numbers: Sequence[float]) -> bool:
    """Whether numbers are all above 0 and too far apart for a linear scale."""
    return bool(numbers) and min(numbers) > 0 and max(numbers) / min(numbers) > LARGEST_RATIO


def _where(rows: Sequence[Row], settings: Row) -> list[Row]:
    return [row for row in rows if all(row[name] == value for name, value in settings.items())]


def _mean(rows: Sequence[Row], measure: str) -> float:
    numbers = [float(row[measure]) for row in rows if row[measure] is not None]
    return float(np.mean(numbers)) if numbers else np.nan


def _panels(count: int) -> Figure:
    columns = min(count, 3) if count != 4 else 2
    rows = -(-count // columns)
    figure = Figure(figsize=(4.2 * columns, 3.4 * rows + 0.6), layout="constrained")
    for place in range(count):
        figure.add_subplot(rows, columns, place + 1)
    return figure


def _places(axes: Axes, which: str, values: Sequence[Any], name: str) -> dict[Any, float]:
    """Where values go on an axis: numbers at their place, on a log scale if they span decades; others side by side."""
    axis = getattr(axes, f"{which}axis")
    axes.set(**{f"{which}label": name})
    if not _numbers(values):
        _set_labels(axes, which, values)
        axes.set(**{f"{which}lim": (-0.5, len(values) - 0.5)})
        return {value: float(place) for place, value in enumerate(values)}
    logarithmic = min(values) > 0 and max(values) / min(values) >= 8
    if logarithmic:
        axes.set(**{f"{which}scale": "log"})
    spread = np.sort(np.log(values) if logarithmic else np.array(values, dtype=float))
    if len(values) == 1 or np.diff(spread).min() >= LEAST_GAP * np.ptp(spread):
        axis.set_ticks(values, [brief(value) for value in values])
        axis.set_ticks([], minor=True)
    return {value: float(value) for value in values}


def _colour_scale(numbers: Sequence[float]) -> Normalize:
    finite = [number for number in numbers if np.isfinite(number)]
    low, high = min(finite, default=0.0), max(finite, default=1.0)
    return LogNorm(low, high) if _spans_decades(finite) else Normalize(low, high)


def _label_cells(
    axes: Axes, cells: Sequence[Interval | None], diverged: Sequence[bool], norm: Normalize, grid: tuple[int, int]
) -> None:
    """Each cell's number with half of its interval, or why it has none."""
    if len(cells) > MOST_LABELS:
        return
    form = same_digits(np.array([each.value for each in cells if each and np.isfinite(each.value)]))
    size = min(8.0, 48.0 / grid[1])
    for cell, none, (row, column) in zip(cells, diverged, np.ndindex(grid), strict=True):
        style: dict[str, Any] = {"ha": "center", "fontsize": size}
        if cell is None or not np.isfinite(cell.value):
            axes.text(column, row, "diverged" if none else "not defined", va="center", **style)
            continue
        style["color"] = "black" if norm(cell.value) > 0.5 else "white"
        whole = np.isfinite(cell.high)
        axes.text(column, row, powers(form.format(cell.value)), va="bottom" if whole else "center", **style)
        if whole:
            half = f"± {powers(form.format(cell.high - cell.value))}"
            axes.text(column, row, half, va="top", **style | {"fontsize": 0.75 * size})


def same_digits(numbers: Float[np.ndarray, " number"]) -> str:
    """One format for numbers that are compared, with three digits of their range."""
    span = float(np.ptp(numbers)) if len(numbers) else 0.0
    largest = float(np.abs(numbers).max()) if len(numbers) else 0.0
    digits = 2 - int(np.floor(np.log10(span or largest or 1.0)))
    return f"{{:.{max(digits, 0)}f}}" if digits <= 6 and largest < 1e5 else "{:.2e}"


def _set_labels(axes: Axes, which: str, values: Sequence[Any]) -> None:
    """Ticks for values side by side, slanted where they would overlap."""
    texts = list(labels(values).values())
    crowded = which == "x" and sum(map(len, texts)) > MOST_LETTERS
    slant = {"rotation": 25, "ha": "right", "rotation_mode": "anchor"} if crowded else {}
    getattr(axes, f"{which}axis").set_ticks(range(len(values)), texts, **slant)


def _values(rows: Sequence[Row], name: str) -> list[Any]:
    """The setting's values, sorted if they are numbers."""
    values = list(dict.fromkeys(row[name] for row in rows))
    return sorted(values) if all(isinstance(value, int | float) for value in values) else values


def _numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
