"""Figures of a sweep from its table: measures against a setting with intervals over seeds, and maps of two settings."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure

from topicscope.measure.uncertainty import Interval, student_interval
from topicscope.reporting.figures import PALETTE, remember_ends
from topicscope.reporting.palette import SEQUENTIAL
from topicscope.reporting.rounding import powers
from topicscope.settings.sweep import brief, labels
from topicscope.store import Row

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


def sweep_figures(rows: Sequence[Row], *, settings: Sequence[str], measures: Sequence[str]) -> dict[str, Figure]:
    """A figure for each setting that varies and for each pair of them, by name; a panel per measure."""
    varied = [name for name in settings if len(_values(rows, name)) > 1]
    others = {name: [other for other in varied if other != name] for name in varied}
    figures = {f"by-{name}": by_setting(rows, name, measures=measures, others=others[name]) for name in varied}
    for first, second in itertools.combinations(varied, 2):
        figures[f"map-{first}-{second}"] = map_of_two(rows, first, second, measures=measures)
    return figures


def by_setting(rows: Sequence[Row], setting: str, *, measures: Sequence[str], others: Sequence[str] = ()) -> Figure:
    """Measures against one setting: means over seeds with 95 % intervals (Student's).

    With few combinations of the other settings each has its curve; with many, each seed's numbers are first averaged
    over them, so that the interval is still one over independent runs.
    """
    values = _values(rows, setting)
    combinations = list(dict.fromkeys(tuple(row[name] for name in others) for row in rows))
    apart = len(combinations) <= MOST_CURVES
    names = {name: labels(_values(rows, name)) for name in others}
    short = {name: name.rpartition(".")[2].replace("_", " ") for name in others}
    rest = "" if apart or not others else "; each seed averaged over the other settings"
    # Words have no distance, so nothing joins them, and curves are side by side.
    numeric = _numbers(values)
    figure = _panels(len(measures), f"{_over(rows)}{rest}")
    for axes, measure in zip(figure.axes, measures, strict=True):
        places = _places(axes, values, setting)
        means: list[float] = []
        for number, combination in enumerate(combinations if apart else [()]):
            fixed = dict(zip(others, combination, strict=False))
            found = {value: over_seeds(_where(rows, fixed | {setting: value}), measure) for value in values}
            there = {value: each for value, each in found.items() if each and np.isfinite(each.value)}
            shift = 0.0 if numeric or not apart else 0.1 * (number - (len(combinations) - 1) / 2)
            across, up = [places[value] + shift for value in there], [each.value for each in there.values()]
            # A single seed has no interval.
            ends = np.array([[each.low, each.high] for each in there.values()]).reshape(-1, 2)
            ends[~np.isfinite(ends).all(axis=1)] = np.nan
            [line] = axes.plot(
                across, up, "o-" if numeric else "o", color=PALETTE[number], markersize=4, linewidth=1.2,
                label=", ".join(f"{short[name]} {names[name][value]}" for name, value in fixed.items()) or None,
            )  # fmt: skip
            axes.vlines(across, *ends.T, color=PALETTE[number], linewidth=1.2)
            remember_ends(line, *ends.T.tolist())
            means += up
        axes.set_yscale("log" if _spans_decades(means) else "linear")
        axes.set_ylabel(measure.replace("_", " "))
        axes.grid(color="0.9", linewidth=0.5)
    if apart and len(combinations) > 1:
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    return figure


def map_of_two(rows: Sequence[Row], first: str, second: str, *, measures: Sequence[str]) -> Figure:
    """Measures over two settings, averaged over seeds and everything else.

    A cell has its mean and half of its 95 % interval over seeds; each seed is first averaged over the rest.
    """
    figure = _panels(len(measures), _over(rows, "and all other settings, ± half of the 95 % interval"))
    across, up = _values(rows, first), _values(rows, second)
    cells = [_where(rows, {first: x, second: y}) for y in up for x in across]
    for axes, measure in zip(list(figure.axes), measures, strict=True):
        found = [over_seeds(cell, measure) for cell in cells]
        means = np.array([np.nan if each is None else each.value for each in found]).reshape(len(up), len(across))
        finite = means[np.isfinite(means)].tolist() or [0.0, 1.0]
        norm = (LogNorm if _spans_decades(finite) else Normalize)(min(finite), max(finite))
        image = axes.imshow(np.ma.masked_invalid(means), cmap=SEQUENTIAL, norm=norm, origin="lower", aspect="auto")
        _set_labels(axes, "x", across)
        _set_labels(axes, "y", up)
        axes.set(xlabel=first, ylabel=second)
        # Where no run reached its end nothing is measured; otherwise the measure is not defined for these settings.
        why = ["diverged" if all(row.get("diverged") for row in cell) else "not defined" for cell in cells]
        _label_cells(axes, found, why, norm, means.shape)
        axes.set_title(measure.replace("_", " "), fontsize=10)
        figure.colorbar(image, ax=axes, shrink=0.8)
    return figure


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


def _where(rows: Sequence[Row], settings: Mapping[str, Any]) -> list[Row]:
    return [row for row in rows if all(row[name] == value for name, value in settings.items())]


def _mean(rows: Sequence[Row], measure: str) -> float:
    numbers = [float(row[measure]) for row in rows if row[measure] is not None]
    return float(np.mean(numbers)) if numbers else np.nan


def _panels(count: int, title: str) -> Figure:
    columns = min(count, 3) if count != 4 else 2
    rows = -(-count // columns)
    figure = Figure(figsize=(4.2 * columns, 3.4 * rows + 0.6), layout="constrained")
    figure.suptitle(title, fontsize=9)
    for place in range(count):
        figure.add_subplot(rows, columns, place + 1)
    return figure


def _places(axes: Axes, values: Sequence[Any], name: str) -> dict[Any, float]:
    """Where values are across: numbers at their place, on a log scale if they span decades; others side by side."""
    axes.set_xlabel(name)
    if not _numbers(values):
        _set_labels(axes, "x", values)
        axes.set_xlim(-0.5, len(values) - 0.5)
        return {value: float(place) for place, value in enumerate(values)}
    logarithmic = min(values) > 0 and max(values) / min(values) >= 8
    axes.set_xscale("log" if logarithmic else "linear")
    spread = np.sort(np.log(values) if logarithmic else np.array(values, dtype=float))
    if len(values) == 1 or np.diff(spread).min() >= LEAST_GAP * np.ptp(spread):
        axes.xaxis.set_ticks(values, [brief(value) for value in values])
        axes.xaxis.set_ticks([], minor=True)
    return {value: float(value) for value in values}


def _label_cells(
    axes: Axes, cells: Sequence[Interval | None], why: Sequence[str], norm: Normalize, grid: tuple[int, ...]
) -> None:
    """Each cell's number with half of its interval, or why it has none."""
    if len(cells) > MOST_LABELS:
        return
    form = same_digits(np.array([each.value for each in cells if each and np.isfinite(each.value)]))
    size = min(8.0, 48.0 / grid[1])
    for cell, nothing, (row, column) in zip(cells, why, np.ndindex(grid), strict=True):
        text, colour = nothing, "black"
        if cell is not None and np.isfinite(cell.value):
            text, colour = powers(form.format(cell.value)), "black" if norm(cell.value) > 0.5 else "white"
            text += f"\n± {powers(form.format(cell.high - cell.value))}" * bool(np.isfinite(cell.high))
        axes.text(column, row, text, color=colour, ha="center", va="center", fontsize=size)


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
