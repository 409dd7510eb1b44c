"""Figures of a probe for the page: ratios with intervals, heads, words, and structure over checkpoints."""

import html
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from topicscope.report.page.folders import Row

MEASURES = {"cosine": "cosine", "dot": "dot product", "attention": "attention"}
# Below this a difference is told from chance.
SIGNIFICANT = 0.05
Figure = dict[str, Any]


def plotted(text: object) -> str:
    """Text for a figure, where the plotting library would take tags for markup."""
    return html.escape(str(text), quote=False)


def model_name(row: Row) -> str:
    """The model and, where there is one, its revision."""
    return f"{row['model']} {row.get('revision') or ''}".strip()


def probe_figures(rows: Sequence[Row], maps: Sequence[dict[str, Any]], anchor: str) -> list[Figure]:
    """All of them."""
    figures = [*_ratios(rows), *_heads(rows), *(_words(each) for each in maps), *_checkpoints(rows)]
    return [{"id": f"{anchor}-figure-{place}", **figure} for place, figure in enumerate(figures)]


def head_grid(cells: Any) -> tuple[Float[np.ndarray, "layer head"], Float[np.ndarray, "layer head"]] | None:
    """Ratios and p-values of heads, from a list a layer of a list a head; NaN where there is none."""
    if not isinstance(cells, list) or not cells or not cells[0]:
        return None
    ratio, p = ([[_float(head.get(name)) for head in layer] for layer in cells] for name in ("ratio", "p"))
    return np.array(ratio), np.array(p)


def _ratios(rows: Sequence[Row]) -> list[Figure]:
    """A figure a measure: Table 1 to look at."""
    figures = []
    for name, label in MEASURES.items():
        points = [row for row in rows if isinstance(row.get(name), dict) and row[name].get("ratio") is not None]
        # Attention does not depend on which embedding is looked at.
        if name == "attention":
            points = list(
                {(model_name(row), row.get("fraction"), row.get("assignment")): row for row in points}.values()
            )
        if points:
            figures.append(_ratio_figure(points, name, label))
    return figures


def _ratio_figure(points: Sequence[Row], name: str, label: str) -> Figure:
    ratio = np.array([row[name]["ratio"] for row in points])
    low, high = (np.array([_float(row[name].get(end)) for row in points]) for end in ("low", "high"))
    unbounded = np.isnan(low) | np.isnan(high)
    return {
        "title": f"{label}: same topic over different topics",
        "text": "With 95 % intervals; 1 means no topic structure.",
        "traces": [
            {
                "type": "scatter",
                "mode": "markers",
                "name": label,
                "x": ratio.tolist(),
                "y": [plotted(_point_name(row, name)) for row in points],
                "marker": {"size": 9},
                "error_x": {
                    "type": "data",
                    "symmetric": False,
                    "array": np.where(unbounded, 0.0, high - ratio).tolist(),
                    "arrayminus": np.where(unbounded, 0.0, ratio - low).tolist(),
                },
            }
        ],
        "layout": {
            "xaxis": {"title": {"text": "ratio"}},
            "yaxis": {"autorange": "reversed", "automargin": True, "tickfont": {"size": 11}},
            "height": 120 + 24 * len(points),
            "shapes": [
                {"type": "line", "x0": 1, "x1": 1, "yref": "paper", "y0": 0, "y1": 1, "line": {"dash": "dash"}},
            ],
        },
        # Names above their points where there is no room beside them.
        "narrow": {
            "yaxis": {"showticklabels": False, "automargin": False},
            "annotations": [_name_above(plotted(_point_name(row, name))) for row in points],
            "margin": {"l": 8},
            "height": 120 + 36 * len(points),
        },
    }


def _name_above(name: str) -> dict[str, Any]:
    place = {"xref": "paper", "x": 0, "xanchor": "left", "yref": "y", "y": name, "yanchor": "bottom"}
    return {"text": name, "showarrow": False, "font": {"size": 11}, **place}


def _point_name(row: Row, measure: str) -> str:
    fraction = "own topics" if row.get("fraction") is None else f"{row['fraction']:g}"
    parts = [model_name(row), fraction, str(row.get("assignment"))]
    if measure != "attention":
        parts += [str(row.get("embedding")), *(["centred"] if row.get("centred") else [])]
    return ", ".join(parts)


def _heads(rows: Sequence[Row]) -> list[Figure]:
    """A map a model, at its first threshold: the ratio of each head, marked where it is told from chance."""
    first = {model_name(row): row for row in reversed(rows) if head_grid(row.get("attention_by_layer_head"))}
    return [_head_figure(name, first[name]) for name in reversed(first)]


def _head_figure(name: str, row: Row) -> Figure:
    grid = head_grid(row["attention_by_layer_head"])
    assert grid is not None
    ratio, p = grid
    layers, heads = ratio.shape
    hover = [
        [_head_text(layer, head, cell) for head, cell in enumerate(cells)]
        for layer, cells in enumerate(row["attention_by_layer_head"])
    ]
    marked = int((p < SIGNIFICANT).sum())
    fraction = "own topics" if row.get("fraction") is None else f"threshold {row['fraction']:g}"
    return {
        "title": f"{name}: attention to the same topic over other topics, by layer and head",
        "text": f"{fraction}, {row.get('assignment')}. * p < {SIGNIFICANT}: {marked} of {ratio.size} heads. "
        f"Ratios from {np.nanmin(ratio):.3g} to {np.nanmax(ratio):.3g}."
        if np.isfinite(ratio).any()
        else "No head has a ratio.",
        "traces": [
            {
                "type": "heatmap",
                "name": plotted(name),
                "z": [[None if np.isnan(value) else float(value) for value in line] for line in ratio],
                "x": list(range(1, heads + 1)),
                "y": list(range(1, layers + 1)),
                "hovertext": hover,
                "hoverinfo": "text",
                "text": [["*" if value < SIGNIFICANT else "" for value in line] for line in p],
                "texttemplate": "%{text}",
                "colorscale": "Cividis",
                "colorbar": {"title": {"text": "same / different", "side": "right"}, "thickness": 12},
            }
        ],
        "layout": {
            "xaxis": {"title": {"text": "head"}, "dtick": max(1, heads // 12)},
            "yaxis": {"title": {"text": "layer"}, "dtick": 1, "autorange": "reversed"},
        },
    }


def _head_text(layer: int, head: int, cell: dict[str, Any]) -> str:
    numbers = {name: _float(cell.get(name)) for name in ("ratio", "low", "high", "p")}
    return (
        f"layer {layer + 1}, head {head + 1}<br>ratio {numbers['ratio']:.4g} "
        f"[{numbers['low']:.4g}, {numbers['high']:.4g}]<br>p = {numbers['p']:.3g}"
    )


def _words(each: dict[str, Any]) -> Figure:
    """The map of a few words' similarities (Figure 3)."""
    words = [plotted(word) for word in each["words"]]
    return {
        "title": f"{each.get('model', '')}: cosine similarity of word embeddings (Figure 3)",
        "text": "",
        "traces": [
            {
                "type": "heatmap",
                "name": "cosine",
                "z": each["cosine"],
                "x": words,
                "y": words,
                "zmin": -1,
                "zmax": 1,
                "colorscale": [[0, "#053061"], [0.5, "#f7f7f7"], [1, "#67001f"]],
                "texttemplate": "%{z:.2f}",
            }
        ],
        "layout": {
            "yaxis": {"autorange": "reversed", "automargin": True},
            "xaxis": {"automargin": True},
            "height": 440,
        },
    }


def _checkpoints(rows: Sequence[Row]) -> list[Figure]:
    """Ratios over the revisions of a model, where there are several."""
    figures = []
    for model in dict.fromkeys(row["model"] for row in rows):
        mine = [row for row in rows if row["model"] == model and not row.get("centred")]
        revisions = list(dict.fromkeys(str(row.get("revision")) for row in mine))
        if len(revisions) < 2:
            continue
        first = mine[0]
        alike = [
            row
            for row in mine
            if all(row.get(name) == first.get(name) for name in ("fraction", "assignment", "embedding"))
        ]
        traces = [
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": label,
                "x": [plotted(row.get("revision")) for row in alike],
                "y": [(row.get(name) or {}).get("ratio") for row in alike],
            }
            for name, label in MEASURES.items()
        ]
        figures.append(
            {
                "title": f"{model}: topic structure over checkpoints",
                "text": f"Threshold {first.get('fraction')}, {first.get('assignment')}, {first.get('embedding')}.",
                "traces": traces,
                "layout": {
                    "xaxis": {"title": {"text": "revision"}, "type": "category"},
                    "yaxis": {"title": {"text": "same / different"}},
                    "showlegend": True,
                    "margin": {"b": 110},
                    "height": 380,
                },
            }
        )
    return figures


def _float(value: Any) -> float:
    return np.nan if value is None else float(value)
