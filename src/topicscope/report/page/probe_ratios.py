"""Ratios of a probe for the page: Table 1 to look at, a figure a measure and embedding."""

import math
from collections.abc import Sequence
from typing import Any

from topicscope.report.page.folders import Row
from topicscope.report.page.probe_rows import MEASURES, Figure, model_name, plotted, threshold_name
from topicscope.report.ratio_axis import ratio_axis
from topicscope.report.rounding import with_interval


def ratio_figures(rows: Sequence[Row]) -> list[Figure]:
    """Those of vectors as they are; centred ones, which seldom have a ratio, are in the table."""
    plain = [row for row in rows if not row.get("centred")]
    figures = []
    for name, label in MEASURES.items():
        known = [row for row in plain if isinstance(row.get(name), dict)]
        # Attention does not depend on which embedding is looked at.
        if name == "attention":
            groups = {label: list({_point_name(row): row for row in known}.values())}
        else:
            embeddings = dict.fromkeys(str(row.get("embedding")) for row in known)
            groups = {
                f"{label}, embedding {each}": [row for row in known if str(row.get("embedding")) == each]
                for each in embeddings
            }
        figures += [_ratio_figure(points, name, title) for title, points in groups.items() if points]
    return figures


def _ratio_figure(points: Sequence[Row], name: str, title: str) -> Figure:
    names = [plotted(_point_name(row)) for row in points]
    measures = [row[name] for row in points]
    ticks, ends = ratio_axis([each.get(end) for each in measures for end in ("ratio", "low", "high")])
    bare = any(_drawn(each) and not _bounded(each) for each in measures)
    return {
        "title": f"{title}: same topic over different topics",
        "text": "With 95 % intervals; 1 means no topic structure."
        + (" Open: no whole interval." if bare else "")
        + (" Δ: same − different topic, where there is no ratio." if any(map(_is_difference, measures)) else ""),
        "traces": [_markers(names, measures, title), _words(names, measures, _beside_1(*ends))],
        "layout": {
            "xaxis": {
                "title": {"text": "ratio (logarithmic)"},
                "type": "log",
                "range": [math.log10(end) for end in ends],
                "tickvals": ticks,
                "ticktext": [f"{tick:g}" for tick in ticks],
            },
            "yaxis": {
                "autorange": "reversed",
                "automargin": True,
                "tickfont": {"size": 11},
                "categoryorder": "array",
                "categoryarray": names,
            },
            "height": 120 + 24 * len(points),
            "shapes": [
                {"type": "line", "x0": 1, "x1": 1, "yref": "paper", "y0": 0, "y1": 1, "line": {"dash": "dash"}},
            ],
        },
        # Names above their points where there is no room beside them.
        "narrow": {
            "yaxis": {"showticklabels": False, "automargin": False},
            "annotations": [_name_above(each) for each in names],
            "margin": {"l": 8},
            "height": 120 + 36 * len(points),
        },
    }


def _markers(names: Sequence[str], measures: Sequence[Row], title: str) -> dict[str, Any]:
    ratio = [each.get("ratio") for each in measures]
    above, below = (
        [abs(each[end] - each["ratio"]) if _bounded(each) else None for each in measures] for end in ("high", "low")
    )
    symbols = ["circle" if _bounded(each) else "circle-open" for each in measures]
    error = {"type": "data", "symmetric": False, "array": above, "arrayminus": below}
    marker = {"size": 9, "symbol": symbols}
    shape = {"type": "scatter", "mode": "markers", "name": title}
    return {**shape, "x": ratio, "y": list(names), "marker": marker, "error_x": error}


def _words(names: Sequence[str], measures: Sequence[Row], place: float) -> dict[str, Any]:
    """What is written where a logarithmic axis has no place for a ratio."""
    missing = [(name, each) for name, each in zip(names, measures, strict=True) if not _drawn(each)]
    return {
        "type": "scatter",
        "mode": "text",
        "x": [place] * len(missing),
        "y": [name for name, _ in missing],
        "text": [_written(each) for _, each in missing],
        "textposition": "bottom center",
        "cliponaxis": False,
        "textfont": {"size": 11},
        "hoverinfo": "skip",
    }


def _beside_1(low: float, high: float) -> float:
    """The middle of a logarithmic axis's wider side of 1, where the line at 1 is not in the way."""
    return math.sqrt(high if high * low >= 0.98 else low)


def _written(measure: Row) -> str:
    if _is_difference(measure):
        ends = (measure.get("difference_low"), measure.get("difference_high"))
        return f"Δ {with_interval(measure['difference'], *ends)}"
    return "no pair" if measure.get("ratio") is None else f"{measure['ratio']:.3g}, off this axis"


def _is_difference(measure: Row) -> bool:
    return measure.get("ratio") is None and measure.get("difference") is not None


def _drawn(measure: Row) -> bool:
    return measure.get("ratio") is not None and measure["ratio"] > 0


def _bounded(measure: Row) -> bool:
    return all(measure.get(name) is not None for name in ("ratio", "low", "high"))


def _name_above(name: str) -> dict[str, Any]:
    place = {"xref": "paper", "x": 0, "xanchor": "left", "yref": "y", "y": name, "yanchor": "bottom", "yshift": 2}
    return {"text": name, "showarrow": False, "font": {"size": 11}, **place}


def _point_name(row: Row) -> str:
    return ", ".join([model_name(row), threshold_name(row), str(row.get("assignment"))])
