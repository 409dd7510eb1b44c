"""Maps of heads for the page: attention to the same topic over other topics, on one scale for all models."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from topicscope.report.page.folders import Row
from topicscope.report.page.probe_rows import (
    COLOURS,
    SIGNIFICANT,
    Figure,
    assignment_name,
    model_name,
    number,
    plotted,
    threshold_name,
)

Grid = Float[np.ndarray, "layer head"]
# The end of a scale is at least this, so that noise about 1 stays pale.
LEAST_LIMIT = 0.1


def head_figures(rows: Sequence[Row]) -> list[Figure]:
    """A map a model, with a view a threshold; colours of a view are the same for all models.

    The view that is shown first is that of the largest threshold, which keeps the most words.
    """
    known = [row for row in rows if head_grid(row.get("attention_by_layer_head"))]
    # Attention does not depend on the embedding; a model's row is the first of its threshold.
    first = {
        (threshold_name(row), model_name(row)): row
        for row in reversed(known)
        if row.get("assignment") == known[0].get("assignment")
    }
    thresholds = head_thresholds(rows)
    limits = {each: _limit([row for (name, _), row in first.items() if name == each]) for each in thresholds}
    figures = []
    for model in dict.fromkeys(model_name(row) for row in known):
        views = {each: _view(model, first[each, model], limits[each]) for each in thresholds if (each, model) in first}
        if views:
            start = views[max(views, key=thresholds.index)]
            title = f"{model}: attention to the same topic over other topics, by layer and head"
            figures.append({"title": title, **start, "layout": _layout(start["traces"][0]), "views": views})
    return figures


def head_thresholds(rows: Sequence[Row]) -> list[str]:
    """Thresholds at which heads were measured, from the smallest to the largest."""
    known = {threshold_name(row): number(row.get("fraction")) for row in rows if row.get("attention_by_layer_head")}
    return sorted(known, key=lambda name: known[name])


def head_grid(cells: Any) -> tuple[Grid, Grid] | None:
    """Ratios and p-values of heads, from a list a layer of a list a head; NaN where there is none."""
    if not isinstance(cells, list) or not cells or not cells[0]:
        return None
    ratio, p = ([[number(head.get(name)) for head in layer] for layer in cells] for name in ("ratio", "p"))
    return np.array(ratio), np.array(p)


def log_ratio(ratio: Grid) -> Grid:
    """log₂, so that 2 and ½ are equally far from 1; NaN where there is none."""
    return np.log2(np.where(ratio > 0, ratio, np.nan))


def _grids(row: Row) -> tuple[Grid, Grid]:
    grids = head_grid(row["attention_by_layer_head"])
    assert grids is not None
    return grids


def _limit(rows: Sequence[Row]) -> float:
    return max(float(np.nanmax(np.abs(log_ratio(_grids(row)[0])), initial=LEAST_LIMIT)) for row in rows)


def _view(model: str, row: Row, limit: float) -> dict[str, Any]:
    ratio, p = _grids(row)
    layers, heads = ratio.shape
    hover = [
        [_head_text(layer, head, cell) for head, cell in enumerate(cells)]
        for layer, cells in enumerate(row["attention_by_layer_head"])
    ]
    trace = {
        "type": "heatmap",
        "name": plotted(model),
        "z": [[None if np.isnan(value) else round(float(value), 5) for value in line] for line in log_ratio(ratio)],
        "x": list(range(1, heads + 1)),
        "y": list(range(1, layers + 1)),
        "hovertext": hover,
        "hoverinfo": "text",
        "text": [["*" if value < SIGNIFICANT else "" for value in line] for line in p],
        "texttemplate": "%{text}",
        "zmin": -limit,
        "zmax": limit,
        "colorscale": COLOURS,
        "colorbar": {"title": {"text": "log₂ (same / different)", "side": "right"}, "thickness": 12},
    }
    return {"text": _said(row, ratio, p), "traces": [trace]}


def _said(row: Row, ratio: Grid, p: Grid) -> str:
    if not np.isfinite(ratio).any():
        return "No head has a ratio."
    shown = "Own topics" if row.get("fraction") is None else f"Threshold {threshold_name(row)}"
    missing = int(np.isnan(log_ratio(ratio)).sum())
    return (
        f"{shown}, {assignment_name(row)}. White: 1, no topic structure; colours are the same for all models. "
        f"Ratios from {np.nanmin(ratio):.3g} to {np.nanmax(ratio):.3g}"
        + (f", not defined or not above 0 in {missing} heads (blank). " if missing else ". ")
        + f"* p < {SIGNIFICANT}, for all heads of the model together: "
        f"{int((p < SIGNIFICANT).sum())} of {ratio.size} heads."
    )


def _layout(trace: dict[str, Any]) -> dict[str, Any]:
    return {
        "xaxis": {"title": {"text": "head"}, "dtick": max(1, len(trace["x"]) // 12)},
        "yaxis": {"title": {"text": "layer"}, "dtick": max(1, len(trace["y"]) // 12), "autorange": "reversed"},
    }


def _head_text(layer: int, head: int, cell: dict[str, Any]) -> str:
    numbers = {name: number(cell.get(name)) for name in ("ratio", "low", "high", "p")}
    return (
        f"layer {layer + 1}, head {head + 1}<br>ratio {numbers['ratio']:.4g} "
        f"[{numbers['low']:.4g}, {numbers['high']:.4g}]<br>p = {numbers['p']:.3g}"
    )
