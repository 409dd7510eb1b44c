"""Curves over steps of a run on text, and the panels that they are drawn in."""

from collections.abc import Callable, Sequence
from typing import Any

from topicscope.report.page.folders import Row
from topicscope.report.page.probe_rows import Figure
from topicscope.report.page.runs import CURVE_POINTS, evenly

FEW_POINTS = 30
# Layers beyond the palette's colours have other dashes.
PALETTE = 6
DASHES = ("solid", "dash", "dot", "dashdot")
Curve = dict[str, Any]
Interval = tuple[float | None, float | None, float | None]


def curve(name: str, rows: Sequence[Row], pick: Callable[[Row], float | None]) -> Curve:
    """A number over the steps of these rows."""
    kept = [rows[place] for place in evenly(len(rows), CURVE_POINTS)]
    # Few points are marked: a line of one cannot be seen.
    mode = "lines+markers" if len(kept) <= FEW_POINTS else "lines"
    values = [pick(row) for row in kept]
    return {"type": "scatter", "mode": mode, "name": name, "x": [row["step"] for row in kept], "y": values}


def interval_curve(name: str, rows: Sequence[Row], pick: Callable[[Row], Interval], *, drawn: bool = True) -> Curve:
    """A number with the ends of its interval; where these are not ``drawn``, they are in the table alone."""
    found = curve(name, rows, lambda row: pick(row)[0]) | {"mode": "lines+markers"}
    kept = [pick(rows[place]) for place in evenly(len(rows), CURVE_POINTS)]
    below, above = (
        [abs(each[end] - each[0]) if None not in each else None for each in kept]  # type: ignore[operator]
        for end in (1, 2)
    )
    error = {"type": "data", "symmetric": False, "array": above, "arrayminus": below, "thickness": 1, "width": 3}
    return found | {"error_y": error | {"visible": drawn}}


def by_layer(rows: Sequence[Row], pick: Callable[[Row], Sequence[float | None] | None]) -> list[Curve]:
    """A curve a layer, from rows that have a number for each."""
    known = [(row, values) for row in rows if (values := pick(row))]
    layers = min((len(values) for _, values in known), default=0)
    return [
        curve(f"layer {layer + 1}", points, lambda point: point["value"]) | {"line": dash_of(layer)}
        for layer in range(layers)
        for points in [[{"step": row["step"], "value": values[layer]} for row, values in known]]
    ]


def dash_of(layer: int) -> dict[str, str]:
    """How a layer's line is drawn."""
    return {"dash": DASHES[layer // PALETTE % len(DASHES)]}


def panel(title: str, label: str, traces: Sequence[Curve], *, text: str = "", logarithmic: bool = False) -> Figure:
    """A figure over steps, with room for its legend below it."""
    scale = {"type": "log", "exponentformat": "power", "dtick": _ticks(traces)} if logarithmic else {}
    axes = {"xaxis": {"title": {"text": "step", "standoff": 5}}, "yaxis": {"title": {"text": label}, **scale}}
    wide, narrow = (_room(traces, width) for width in (430, 290))
    return {"title": title, "text": text, "traces": list(traces), "layout": {**axes, **wide}, "narrow": narrow}


def _ticks(traces: Sequence[Curve]) -> int | str:
    """Of a logarithmic axis: powers of ten, and within few of them 2 and 5 times these too."""
    values = [value for trace in traces for value in trace["y"] if value]
    return "D2" if values and max(values) < 100 * min(values) else 1


def _room(traces: Sequence[Curve], width: int) -> dict[str, Any]:
    """Heights of a figure and of what is under its axis, for a legend in lines of this many pixels."""
    longest = max((len(each["name"]) for each in traces), default=0)
    lines = -(-len(traces) // max(width // (45 + 7 * longest), 1))
    return {"showlegend": True, "margin": {"b": 60 + 20 * lines}, "height": 340 + 20 * lines}
