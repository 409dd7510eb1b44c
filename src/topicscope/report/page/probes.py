"""A probe of language models: Table 1 with intervals, heads, words, topics, and structure over checkpoints."""

import html
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from topicscope.report.page.folders import Found, Row, read_json, read_table
from topicscope.report.page.store import Reference, Store

MEASURES = {"cosine": "cosine", "dot": "dot product", "attention": "attention"}
# Below this a head's difference is told from chance.
SIGNIFICANT = 0.05
MOST_TOPICS = 200


@dataclass(frozen=True)
class ProbeSection:
    """One probe folder."""

    anchor: str
    folder: str
    rows: tuple[Mapping[str, str], ...]
    topics: tuple[tuple[str, str], ...]
    """A topic's name, and its words with what became of them."""
    columns: tuple[str, ...]
    figures: tuple[dict[str, Any], ...]
    images: tuple[tuple[str, Reference], ...] = ()


def plotted(text: str) -> str:
    """Text for a figure, where the plotting library would take tags for markup."""
    return html.escape(str(text), quote=False)


def probe_section(folder: Path, number: int, store: Store, found: Found) -> ProbeSection | None:
    """The probe in a folder; None, with a note, if it has no rows yet."""
    rows = read_json(folder / "probe.json", found)
    if not isinstance(rows, list) or not rows:
        found.notes.append(f"{folder}: the probe has measured nothing yet; run it again to go on.")
        return None
    anchor = f"probe-{number}"
    figures = [*_head_maps(rows, anchor, store), *_ratios(rows, anchor), *_word_maps(folder, anchor, store, found)]
    return ProbeSection(
        anchor=anchor,
        folder=str(folder),
        rows=tuple(_table_row(row) for row in rows),
        topics=_topics(folder, found),
        columns=("model", "fraction", "assignment", "embedding", "centred", "words", "topics", *MEASURES.values()),
        figures=tuple(figures),
    )


def _table_row(row: Row) -> dict[str, str]:
    plain = {
        name: str(row.get(name, "")) for name in ("model", "assignment", "embedding", "centred", "words", "topics")
    }
    ratios = {label: _ratio_text(row.get(name)) for name, label in MEASURES.items()}
    return {**plain, "fraction": f"{row.get('fraction', 0):g}" if row.get("fraction") is not None else "", **ratios}


def _ratio_text(measure: Any) -> str:
    """Same- over different-topic average with its interval; the difference where the ratio is not defined."""
    if not isinstance(measure, dict):
        return "–"
    if measure.get("ratio") is None:
        difference = measure.get("difference")
        return "–" if difference is None else f"no ratio; difference {difference:.4g}"
    interval = f" [{measure['low']:.4g}, {measure['high']:.4g}]" if measure.get("low") is not None else ""
    star = " *" if measure.get("p") is not None and measure["p"] < SIGNIFICANT else ""
    return f"{measure['ratio']:.4g}{interval}{star}"


def _head_maps(rows: list[Row], anchor: str, store: Store) -> list[dict[str, Any]]:
    """A map a model: ratio of each head, marked where it is told from chance."""
    figures: list[dict[str, Any]] = []
    shown: set[str] = set()
    for row in rows:
        grid = head_grid(row.get("attention_by_layer_head"))
        if grid is None or row["model"] in shown:
            continue
        shown.add(row["model"])
        ratio, p = grid
        layers, heads = ratio.shape
        hover = [
            [
                f"layer {layer + 1}, head {head + 1}<br>ratio {ratio[layer, head]:.4g}" + _p_text(p, layer, head)
                for head in range(heads)
            ]
            for layer in range(layers)
        ]
        signs = [] if p is None else [["*" if cell < SIGNIFICANT else "" for cell in line] for line in p]
        heat = {
            "type": "heatmap",
            "z": ratio.tolist(),
            "x": [head + 1 for head in range(heads)],
            "y": [layer + 1 for layer in range(layers)],
            "hovertext": hover,
            "hoverinfo": "text",
            "colorscale": "Cividis",
            "colorbar": {"title": {"text": "same / different"}},
        }
        if signs:
            heat |= {"text": signs, "texttemplate": "%{text}"}
        figures.append(
            {
                "id": f"{anchor}-heads-{len(figures)}",
                "title": f"{row['model']}: attention to the same topic over other topics, by layer and head",
                "text": f"Fraction {row.get('fraction')}, {row.get('assignment')} topics a word. "
                f"* where p < {SIGNIFICANT}. Ratios go from {np.nanmin(ratio):.3g} to {np.nanmax(ratio):.3g}.",
                "traces": [heat],
                "layout": {
                    "xaxis": {"title": {"text": "head"}, "dtick": max(1, heads // 12)},
                    "yaxis": {"title": {"text": "layer"}, "dtick": 1, "autorange": "reversed"},
                },
            }
        )
    return figures


def head_grid(cells: Any) -> tuple[np.ndarray, np.ndarray | None] | None:
    """Ratios and p-values as layer × head, from a list a layer of a list a head."""
    if not isinstance(cells, list) or not cells or not isinstance(cells[0], list) or not cells[0]:
        return None
    if isinstance(cells[0][0], dict):
        ratio = np.array([[_float(cell.get("ratio")) for cell in line] for line in cells])
        p = np.array([[_float(cell.get("p")) for cell in line] for line in cells])
        return ratio, None if np.isnan(p).all() else p
    return np.array([[_float(cell) for cell in line] for line in cells]), None


def _ratios(rows: list[Row], anchor: str) -> list[dict[str, Any]]:
    """Ratios of all rows with intervals, a panel a measure: Table 1 to look at."""
    figures: list[dict[str, Any]] = []
    for name, label in MEASURES.items():
        points = [row for row in rows if isinstance(row.get(name), dict) and row[name].get("ratio") is not None]
        if not points:
            continue
        names = [_row_name(row) for row in points]
        ratio = [row[name]["ratio"] for row in points]
        bounded = all(row[name].get("low") is not None for row in points)
        trace: dict[str, Any] = {
            "type": "scatter",
            "mode": "markers",
            "x": ratio,
            "y": [plotted(each) for each in names],
        }
        if bounded:
            trace["error_x"] = {
                "type": "data",
                "symmetric": False,
                "array": [row[name]["high"] - row[name]["ratio"] for row in points],
                "arrayminus": [row[name]["ratio"] - row[name]["low"] for row in points],
            }
        figures.append(
            {
                "id": f"{anchor}-ratio-{name}",
                "title": f"{label}: same topic over different topics",
                "text": "With 95 % intervals; 1 means no topic structure.",
                "traces": [trace],
                "layout": {
                    "xaxis": {"title": {"text": "ratio"}},
                    "yaxis": {"autorange": "reversed", "automargin": True},
                    "height": 120 + 26 * len(points),
                    "shapes": [
                        {"type": "line", "x0": 1, "x1": 1, "yref": "paper", "y0": 0, "y1": 1, "line": {"dash": "dash"}}
                    ],
                },
            }
        )
    return figures


def _word_maps(folder: Path, anchor: str, store: Store, found: Found) -> list[dict[str, Any]]:
    """The map of a few words' similarities (Figure 3)."""
    path = folder / "words.json"
    content = read_json(path, found) if path.exists() else None
    maps = content if isinstance(content, list) else [content] if isinstance(content, dict) else []
    figures: list[dict[str, Any]] = []
    for each in maps:
        words = [plotted(word) for word in each["words"]]
        figures.append(
            {
                "id": f"{anchor}-words-{len(figures)}",
                "title": f"{each.get('model', '')}: cosine similarity of word embeddings",
                "text": "Figure 3's map.",
                "traces": [
                    {
                        "type": "heatmap",
                        "z": each["cosine"],
                        "x": words,
                        "y": words,
                        "zmin": -1,
                        "zmax": 1,
                        "colorscale": "RdBu",
                        "texttemplate": "%{z:.2f}",
                    }
                ],
                "layout": {"yaxis": {"autorange": "reversed", "automargin": True}, "xaxis": {"automargin": True}},
            }
        )
    return figures


def _topics(folder: Path, found: Found) -> tuple[tuple[str, str], ...]:
    """Each topic's words in the order of the file, and which were kept."""
    path = folder / "topics.csv"
    if not path.exists():
        return ()
    words: dict[str, list[str]] = {}
    for row in read_table(path, found):
        kept = row.get("kept", "").strip().lower()
        sign = "" if not kept else " ✓" if kept in ("true", "1", "yes") else " (left out)"
        words.setdefault(row.get("topic", ""), []).append(row.get("word", "") + sign)
    return tuple((topic, ", ".join(listed)) for topic, listed in list(words.items())[:MOST_TOPICS])


def _row_name(row: Row) -> str:
    return f"{row['model']}, {row.get('fraction')}, {row.get('assignment')}, {row.get('embedding')}" + (
        ", centred" if row.get("centred") else ""
    )


def _p_text(p: np.ndarray | None, layer: int, head: int) -> str:
    return "" if p is None else f"<br>p = {p[layer, head]:.3g}"


def _float(value: Any) -> float:
    return np.nan if value is None else float(value)
