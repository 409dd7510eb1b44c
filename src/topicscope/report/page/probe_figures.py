"""Figures of a probe for the page: ratios with intervals, heads, words, and structure over checkpoints."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from topicscope.report.page.folders import Row
from topicscope.report.page.probe_heads import head_figures
from topicscope.report.page.probe_rows import COLOURS, MEASURES, Figure, model_name, number, plotted


def probe_figures(rows: Sequence[Row], maps: Sequence[dict[str, Any]], anchor: str) -> list[Figure]:
    """All of them."""
    groups = {
        "ratios": _ratios(rows),
        "heads": head_figures(rows),
        "words": [_words(each) for each in maps],
        "checkpoints": _checkpoints(rows),
    }
    figures = [{"group": name, **figure} for name, group in groups.items() for figure in group]
    return [{"id": f"{anchor}-figure-{place}", **figure} for place, figure in enumerate(figures)]


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
    low, high = (np.array([number(row[name].get(end)) for row in points]) for end in ("low", "high"))
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
                "colorscale": COLOURS,
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
