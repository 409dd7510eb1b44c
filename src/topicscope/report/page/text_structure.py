"""Topic structure over the steps of a run on text: log-ratios with intervals, differences where there is no ratio."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from topicscope.report.page.folders import Row
from topicscope.report.page.probe_rows import Figure
from topicscope.report.page.text_curves import Curve, Interval, dash_of, interval_curve, panel

# Names in the rows' ``topics``, and what a reader calls them.
STRUCTURES = {
    "embedding_layer": "embedding layer's output (cosine)",
    "embedding_matrix": "embedding matrix (cosine)",
    "attention": "attention, mean of layers",
}
RATIO = "log (same topic / different topic)"
DIFFERENCE = "same − different topic"


def structure_figures(rows: Sequence[Row]) -> list[Figure]:
    """Where it was measured: all ratios, the difference of each measure that lacks one somewhere, and layers."""
    measured = [row for row in rows if isinstance(row.get("topics"), dict)]
    known = {
        name: [{"step": row["step"], **row["topics"][name]} for row in measured if row["topics"].get(name)]
        for name in STRUCTURES
    }
    ratios = {name: interval_curve(STRUCTURES[name], each, log_ratio) for name, each in known.items() if each}
    drawn = [trace for trace in ratios.values() if _has_points(trace)]
    figures = []
    if drawn:
        figures.append(panel("Topic structure", RATIO, drawn, text="With 95 % intervals; 0 means no topic structure."))
    for name, trace in ratios.items():
        missing = sum(value is None for value in trace["y"])
        difference = interval_curve(STRUCTURES[name], known[name], _difference)
        if missing and _has_points(difference):
            figures.append(panel(f"Topic structure as a difference: {STRUCTURES[name]}", DIFFERENCE, [difference]))
            figures[-1]["text"] = f"With 95 % intervals; {missing} of {len(trace['y'])} steps have no ratio to show."
    return figures + _layers(measured, ratios.get("attention"))


def _layers(measured: Sequence[Row], mean: Curve | None) -> list[Figure]:
    known = [row for row in measured if row["topics"].get("attention_by_layer")]
    layers = min((len(row["topics"]["attention_by_layer"]) for row in known), default=0)
    lines = [
        interval_curve(f"layer {layer + 1}", known, _of_layer(layer), drawn=False) | {"line": dash_of(layer)}
        for layer in range(layers)
    ]
    if not mean or not any(map(_has_points, lines)):
        return []
    # After the layers, which have the colours of the other panels, and in none of them.
    soft = {"color": "#808080", "width": 4}
    text = "The mean with 95 % intervals; those of the layers are in the CSV."
    return [
        panel(
            "Topic structure in attention, by layer", RATIO, [*lines, mean | {"name": "mean", "line": soft}], text=text
        )
    ]


def _of_layer(layer: int) -> Callable[[Row], Interval]:
    return lambda row: log_ratio(row["topics"]["attention_by_layer"][layer])


def log_ratio(contrast: dict[str, Any]) -> Interval:
    """The logarithm of a contrast's ratio and of its ends; None for what is not defined."""
    value, low, high = (contrast.get(name) for name in ("ratio", "low", "high"))
    return _logarithm(value), _logarithm(low), _logarithm(high)


def _difference(contrast: dict[str, Any]) -> Interval:
    return contrast.get("difference"), contrast.get("difference_low"), contrast.get("difference_high")


def _logarithm(ratio: float | None) -> float | None:
    return math.log(ratio) if ratio is not None and ratio > 0 else None


def _has_points(trace: Curve) -> bool:
    return any(value is not None for value in trace["y"])
