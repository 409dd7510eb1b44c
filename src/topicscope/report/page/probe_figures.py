"""Figures of a probe for the page: ratios with intervals, heads, words, and structure over checkpoints."""

from collections.abc import Sequence
from typing import Any

from topicscope.report.page.folders import Row
from topicscope.report.page.probe_heads import head_figures
from topicscope.report.page.probe_ratios import ratio_figures
from topicscope.report.page.probe_rows import COLOURS, MEASURES, Figure, plotted


def probe_figures(rows: Sequence[Row], maps: Sequence[dict[str, Any]], anchor: str) -> list[Figure]:
    """All of them."""
    groups = {
        "ratios": ratio_figures(rows),
        "heads": head_figures(rows),
        "words": [_words(each) for each in maps],
        "checkpoints": _checkpoints(rows),
    }
    figures = [{"group": name, **figure} for name, group in groups.items() for figure in group]
    return [{"id": f"{anchor}-figure-{place}", **figure} for place, figure in enumerate(figures)]


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
        missing = [str(trace["name"]) for trace in traces if all(value is None for value in trace["y"])]
        said = f" Not defined: {', '.join(missing)}." if missing else ""
        shown = f"Threshold {first.get('fraction')}, {first.get('assignment')}, {first.get('embedding')}."
        figures.append(
            {
                "title": f"{model}: topic structure over checkpoints",
                "text": shown + said,
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
