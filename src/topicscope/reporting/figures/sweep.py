"""The figure of a sweep, from its table: measures against what was varied, a dot per run; two settings make a map."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from topicscope.measure.uncertainty import Interval, student_interval
from topicscope.reporting.figures import Cells, Panel, Series, cells, curves, spans_decades
from topicscope.reporting.palette import PALETTE, SEQUENTIAL
from topicscope.reporting.rounding import readable
from topicscope.settings.sweep import labels
from topicscope.store import Row

# More curves than this in a panel cannot be distinguished, nor more ticks.
MOST_CURVES = 6


def sweep_figure(rows: Sequence[Row], *, settings: Sequence[str], measures: Sequence[str]) -> Figure | None:
    """A panel per measure; None if nothing varied."""
    varied = {name: values for name in settings if len(values := _values(rows, name)) > 1}
    if not (varied and measures):
        return None
    seeds = len({row["seed"] for row in rows})
    fewer = "; runs that diverged are left out" if any(row.get("diverged") for row in rows) else ""
    if len(varied) == 2:
        interval = f"mean over {seeds} seeds, ± half of its 95 % interval" if seeds > 1 else "one seed"
        return cells(
            interval + fewer,
            [_map(rows, varied, measure) for measure in measures],
            x=next(iter(varied)),
            y=list(varied)[1],
            colours=SEQUENTIAL,
            cell=(0.85, 0.5),
        )
    # Numbers go across, if there are any.
    across, *others = sorted(varied, key=lambda name: not _are_numbers(varied[name]))
    return curves(f"a dot per run, and means{fewer}", [_panel(rows, across, others, name) for name in measures])


def _panel(rows: Sequence[Row], across: str, others: Sequence[str], measure: str) -> Panel:
    values, rows = _values(rows, across), [row for row in rows if row[measure] is not None]
    numeric = _are_numbers(values)
    places = {value: float(value) if numeric else float(place) for place, value in enumerate(values)}
    kinds = list(dict.fromkeys(tuple(row[name] for name in others) for row in rows))
    if len(kinds) > MOST_CURVES:
        others, kinds = (), [()]
    series = []
    for kind, colour in zip(kinds, PALETTE, strict=False):
        fixed = dict(zip(others, kind, strict=True))
        own = _where(rows, fixed)
        there = [value for value in values if any(row[across] == value for row in own)]
        x, y = [places[row[across]] for row in own], [row[measure] for row in own]
        dots = {"marker": "o", "linestyle": "none", "markersize": 4, "alpha": 0.6}
        series.append(Series(x=x, y=y, colour=colour, style=dots))
        means = [float(np.mean([row[measure] for row in _where(own, {across: value})])) for value in there]
        # Words have no distance, so nothing joins them.
        style = {"linewidth": 1.2} if numeric else {"marker": "_", "markersize": 16, "linestyle": "none"}
        name = ", ".join(f"{other.rpartition('.')[2]} {labels([value])[value]}" for other, value in fixed.items())
        series.append(Series(x=[places[value] for value in there], y=means, label=name, colour=colour, style=style))
    log = "x" * (numeric and min(values) > 0 and max(values) >= 8 * min(values))
    log += "y" * spans_decades([row[measure] for row in rows])
    named = labels(values) if len(values) <= MOST_CURVES or not numeric else {}
    ticks = {places[value]: name for value, name in named.items()}
    return Panel(series=series, x=across, y=measure.replace("_", " "), log=log, ticks=ticks)


def _map(rows: Sequence[Row], varied: Mapping[str, Sequence[Any]], measure: str) -> Cells:
    """Means over seeds, with half of their 95 % intervals, or why there are none."""
    (first, across), (second, up) = varied.items()
    groups = [_where(rows, {first: x, second: y}) for y in up for x in across]
    found, texts = [over_seeds(group, measure) for group in groups], []
    for group, each in zip(groups, found, strict=True):
        # Where no run reached its end nothing is measured; otherwise the measure is not defined for these settings.
        nothing = "diverged" if all(row.get("diverged") for row in group) else "not defined"
        half = f"\n± {readable(each.high - each.value, 2)}" if each and np.isfinite(each.high) else ""
        texts.append(f"{readable(each.value, 3)}{half}" if each else nothing)
    means = np.array([np.nan if each is None else each.value for each in found]).reshape(len(up), len(across))
    names = [list(labels(values).values()) for values in (across, up)]
    return Cells(values=means, columns=names[0], rows=names[1], title=measure.replace("_", " "), texts=texts)


def over_seeds(rows: Sequence[Row], measure: str) -> Interval | None:
    """Mean and Student's interval over runs; None if no run has the measure."""
    numbers = np.array([float(row[measure]) for row in rows if row[measure] is not None])
    return student_interval(numbers) if len(numbers) else None


def _where(rows: Sequence[Row], settings: Mapping[str, Any]) -> list[Row]:
    return [row for row in rows if all(row[name] == value for name, value in settings.items())]


def _values(rows: Sequence[Row], name: str) -> list[Any]:
    """The setting's values, sorted if they are numbers."""
    values = list(dict.fromkeys(row[name] for row in rows))
    return sorted(values) if _are_numbers(values) else values


def _are_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
