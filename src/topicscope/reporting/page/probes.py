"""A probe of language models: Table 1 with intervals, figures, topics, and what should be known beside the numbers."""

import html
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from topicscope.files import Row
from topicscope.records import SIGNIFICANT, read_corpus_rows, read_probe_rows, read_topic_words, read_words
from topicscope.reporting.answer import answering, answers, is_encoded, model_label
from topicscope.reporting.figures.probe import (
    MEASURES,
    colour_limit,
    has_interval,
    is_difference,
    ratio_axis,
    topic_name,
)
from topicscope.reporting.page.folders import Found
from topicscope.reporting.page.store import Store, images_of
from topicscope.reporting.rounding import NOTHING, comparison_text, is_significant

ASSIGNMENTS = {"one": "one topic a word", "several": "several topics a word"}

# Blue, white and red of ColorBrewer, as in the pictures.
BLUES = ("#053061", "#2166ac", "#4393c3", "#92c5de", "#d1e5f0")
REDS = ("#fddbc7", "#f4a582", "#d6604d", "#b2182b", "#67001f")
DIVERGING = (*BLUES, "#f7f7f7", *REDS)
COLOURS = [[place / (len(DIVERGING) - 1), colour] for place, colour in enumerate(DIVERGING)]

# The end of a map's scale is at least this, so that noise about 1 stays pale.
LEAST_LIMIT = 0.1

MOST_TOPICS = 300

# Words that a note lists.
LISTED = 20

# Columns of the table that stand in it as they are in probe.json.
PLAIN = ("assignment", "embedding", "words", "topics")

Figure = dict[str, Any]


def plotted(text: object) -> str:
    """Text for a figure, where the plotting library would take tags for markup."""
    return html.escape(str(text), quote=False)


def threshold_name(row: Row) -> str:
    """The ambiguity threshold, where topics were found and not given."""
    return "own topics" if row.get("fraction") is None else f"{row['fraction']:g}"


def number(value: Any) -> float:
    """NaN where there is none."""
    return np.nan if value is None else float(value)


# Table 1 to look at: a figure per measure and embedding.


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
    bare = any(_drawn(each) and not has_interval(each) for each in measures)
    left = {"showarrow": False, "font": {"size": 11}, "xref": "paper", "x": 0, "xanchor": "left", "yref": "y"}
    return {
        "title": f"{title}: same topic over different topics",
        "text": "With 95 % intervals; 1 means no topic structure."
        + (" Open: no whole interval." if bare else "")
        + (" Δ: same − different topic, where there is no ratio." if any(map(is_difference, measures)) else ""),
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
            "annotations": [{"text": each, **left, "y": each, "yanchor": "bottom", "yshift": 2} for each in names],
            "margin": {"l": 8},
            "height": 120 + 36 * len(points),
        },
    }


def _markers(names: Sequence[str], measures: Sequence[Row], title: str) -> dict[str, Any]:
    ratio = [each.get("ratio") for each in measures]
    above, below = (
        [abs(each[end] - each["ratio"]) if has_interval(each) else None for each in measures] for end in ("high", "low")
    )
    symbols = ["circle" if has_interval(each) else "circle-open" for each in measures]
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
    if is_difference(measure):
        return comparison_text(measure)
    return "no pair" if measure.get("ratio") is None else f"{measure['ratio']:.3g}, off this axis"


def _drawn(measure: Row) -> bool:
    return measure.get("ratio") is not None and measure["ratio"] > 0


def _point_name(row: Row) -> str:
    return ", ".join([model_label(row), threshold_name(row), str(row.get("assignment"))])


# Maps of heads: attention to the same topic over other topics, on one scale for all models.

Grid = Float[np.ndarray, "layer head"]


def head_figures(rows: Sequence[Row]) -> list[Figure]:
    """A map per model, with a view per threshold; colours of a view are the same for all models.

    The view that is shown first is that of the largest threshold, which keeps the most words.
    """
    known = [row for row in rows if any(row.get("attention_by_layer_head") or ())]
    # Attention does not depend on the embedding; a model's row is the first of its threshold.
    first = {
        (threshold_name(row), model_label(row)): row
        for row in reversed(known)
        if row.get("assignment") == known[0].get("assignment")
    }
    thresholds = head_thresholds(rows)
    limits = {each: _limit([row for (name, _), row in first.items() if name == each]) for each in thresholds}
    figures = []
    for model in dict.fromkeys(model_label(row) for row in known):
        views = {each: _view(model, first[each, model], limits[each]) for each in thresholds if (each, model) in first}
        if views:
            start = views[max(views, key=thresholds.index)]
            title = f"{model}: attention to the same topic over other topics, by layer and head"
            heads, layers = (len(start["traces"][0][axis]) for axis in "xy")
            layout = {
                "xaxis": {"title": {"text": "head"}, "dtick": max(1, heads // 12)},
                "yaxis": {"title": {"text": "layer"}, "dtick": max(1, layers // 12), "autorange": "reversed"},
            }
            figures.append({"title": title, **start, "layout": layout, "views": views})
    return figures


def head_thresholds(rows: Sequence[Row]) -> list[str]:
    """Thresholds at which heads were measured, from the smallest to the largest."""
    known = {threshold_name(row): number(row.get("fraction")) for row in rows if row.get("attention_by_layer_head")}
    return sorted(known, key=lambda name: known[name])


def _grid(row: Row, name: str) -> Grid:
    """A number of all heads, a row per layer; NaN where there is none."""
    return np.array([[number(head.get(name)) for head in layer] for layer in row["attention_by_layer_head"]])


def log_ratio(ratio: Grid) -> Grid:
    """log₂, so that 2 and ½ are equally far from 1; NaN where there is none."""
    return np.log2(np.where(ratio > 0, ratio, np.nan))


def _limit(rows: Sequence[Row]) -> float:
    return max(colour_limit([log_ratio(_grid(row, "ratio")) for row in rows])[0], LEAST_LIMIT)


def _view(model: str, row: Row, limit: float) -> dict[str, Any]:
    ratio, p = _grid(row, "ratio"), _grid(row, "p")
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
    assignment = ASSIGNMENTS.get(str(row.get("assignment")), str(row.get("assignment")))
    missing = int(np.isnan(log_ratio(ratio)).sum())
    return (
        f"{shown}, {assignment}. White: 1, no topic structure; colours are the same for all models. "
        f"Ratios from {np.nanmin(ratio):.3g} to {np.nanmax(ratio):.3g}"
        + (f", not defined or not above 0 in {missing} heads (blank). " if missing else ". ")
        + f"* p < {SIGNIFICANT}, for all heads of the model together: "
        f"{int((p < SIGNIFICANT).sum())} of {ratio.size} heads."
    )


def _head_text(layer: int, head: int, cell: dict[str, Any]) -> str:
    numbers = {name: number(cell.get(name)) for name in ("ratio", "low", "high", "p")}
    return (
        f"layer {layer + 1}, head {head + 1}<br>ratio {numbers['ratio']:.4g} "
        f"[{numbers['low']:.4g}, {numbers['high']:.4g}]<br>p = {numbers['p']:.3g}"
    )


# All figures: ratios with intervals, heads, words, and structure over checkpoints.


def probe_figures(rows: Sequence[Row], maps: Sequence[Row], anchor: str) -> list[Figure]:
    """All of them."""
    groups = {
        "opening": [*_depth(rows), *_topic_rankings(rows)],
        "ratios": ratio_figures(rows),
        "heads": head_figures(rows),
        "words": [_word_maps(each) for each in maps],
        "checkpoints": _checkpoints(rows),
    }
    figures = [{"group": name, **figure} for name, group in groups.items() for figure in group]
    return [{"id": f"{anchor}-figure-{place}", **figure} for place, figure in enumerate(figures)]


def _depth(rows: Sequence[Row]) -> list[Figure]:
    """Where along the depth topics are, all models on one axis."""
    traces = []
    for row in answering(rows):
        layers = [each["centred_cosine"] for each in row.get("hidden_by_layer") or ()]
        if layers:
            middle, low, high = ([each.get(name) for each in layers] for name in ("auc", "auc_low", "auc_high"))
            above, below = (
                [None if None in (one, two) else abs(one - two) for one, two in zip(middle, end, strict=True)]
                for end in (high, low)
            )
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines+markers",
                    "name": plotted(model_label(row)),
                    "x": list(range(len(layers))),
                    "y": middle,
                    "error_y": {"type": "data", "symmetric": False, "array": above, "arrayminus": below},
                }
            )
    if not traces:
        return []
    layout = {
        "xaxis": {"title": {"text": "layer (0: the embedding layer's output)"}},
        "yaxis": {"title": {"text": "AUC, same against different topic"}},
        "shapes": [{"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": 0.5, "y1": 0.5, "line": {"dash": "dash"}}],
        "showlegend": True,
        "height": 380,
    }
    said = "The chance that two words of one topic have more similar hidden states than two words of different topics"
    text = f"{said}; centred cosines, words of different passages, 95 % intervals. Dashed: chance."
    return [
        {"title": "Hidden states: where along the depth topics are", "text": text, "traces": traces, "layout": layout}
    ]


def _topic_rankings(rows: Sequence[Row]) -> list[Figure]:
    """Each topic's difference in the embeddings' cosines, the largest first."""
    figures = []
    for row in answering(rows):
        topics = sorted(row.get("by_topic") or (), key=lambda each: -number(each["cosine"].get("difference")))
        if not topics:
            continue
        names = [plotted(topic_name(each)) for each in topics]
        ends = [
            [abs(number(each["cosine"].get(end)) - number(each["cosine"].get("difference"))) for each in topics]
            for end in ("difference_high", "difference_low")
        ]
        above, below = ([None if np.isnan(each) else each for each in end] for end in ends)
        symbols = ["circle" if is_encoded(each["cosine"]) else "circle-open" for each in topics]
        trace = {
            "type": "scatter",
            "mode": "markers",
            "name": "topics",
            "x": [each["cosine"].get("difference") for each in topics],
            "y": names,
            "marker": {"size": 7, "symbol": symbols},
            "error_x": {"type": "data", "symmetric": False, "array": above, "arrayminus": below},
            "hovertext": [plotted(", ".join(each["words"])) for each in topics],
        }
        layout = {
            "xaxis": {"title": {"text": "cosine with the topic's own words, less that with other words"}},
            "yaxis": {
                "autorange": "reversed",
                "automargin": True,
                "tickfont": {"size": 9},
                "categoryorder": "array",
                "categoryarray": names,
            },
            "height": 140 + 13 * len(topics),
        }
        text = f"{sum(is_encoded(each['cosine']) for each in topics)} of {len(topics)} topics are encoded (filled)."
        title = f"{model_label(row)}: which topics are encoded in the embeddings"
        figures.append({"title": title, "text": text, "traces": [trace], "layout": layout})
    return figures


def _word_maps(each: Row) -> Figure:
    """The map of a few words' similarities (Figure 3)."""
    words = [plotted(word) for word in each["words"]]
    trace = {"type": "heatmap", "name": "cosine", "z": each["cosine"], "x": words, "y": words, "zmin": -1, "zmax": 1}
    axes = {"yaxis": {"autorange": "reversed", "automargin": True}, "xaxis": {"automargin": True}}
    return {
        "title": f"{each.get('model', '')}: cosine similarity of word embeddings (Figure 3)",
        "text": "",
        "traces": [trace | {"colorscale": COLOURS, "texttemplate": "%{z:.2f}"}],
        "layout": {**axes, "height": 440},
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


def probe_section(folder: Path, number: int, store: Store, found: Found) -> Row | None:
    """The probe in a folder; None, with a note, if it has no rows yet."""
    rows = found.read(read_probe_rows, folder / "probe.json")
    if not rows:
        if rows is not None:
            found.notes.append(f"{folder}: the probe has measured nothing yet; run it again to go on.")
        return None
    anchor = f"probe-{number}"
    topics, kept = _topics(found.read(read_topic_words, folder / "topics.csv") or [])
    maps = found.read(read_words, folder / "words.json") or []
    drawn = [] if maps else sorted((folder / "figures").glob("words*.svg"))
    return {
        "anchor": anchor,
        "folder": str(folder),
        "notes": probe_notes(found.read(read_corpus_rows, folder / "corpus.json") or [], rows),
        "conclusion": answers(rows),
        "columns": ("model", "fraction", *PLAIN, "centred", *MEASURES.values()),
        "rows": [table_row(row) for row in rows],
        # A topic's name with its words, and what the sign beside a word means.
        "topics": topics,
        "kept": kept,
        "figures": probe_figures(rows, maps, anchor),
        # Of the maps of heads; the last is shown first.
        "thresholds": head_thresholds(rows),
        "images": images_of(drawn, anchor, store, found),
    }


def table_row(row: Row) -> dict[str, str]:
    """A row of probe.json in words."""
    ratios = {label: ratio_text(row.get(name)) for name, label in MEASURES.items()}
    return {
        **{name: str(row.get(name, "")) for name in PLAIN},
        "model": model_label(row),
        "fraction": threshold_name(row),
        "centred": "yes" if row.get("centred") else "no",
        **ratios,
    }


def ratio_text(measure: Row | None) -> str:
    """Same- over different-topic average with its interval; the difference where the ratio is not defined."""
    text = comparison_text(measure or {}, no_ratio="no ratio; difference")
    return text + (" *" if measure and text != NOTHING and is_significant(measure) else "")


def _topics(rows: Sequence[Mapping[str, str]]) -> tuple[tuple[tuple[str, str], ...], str]:
    """Words of each topic at the widest threshold, those that the narrowest keeps too marked."""
    if not rows:
        return (), ""
    first = [row for row in rows if all(row.get(name) == rows[0].get(name) for name in ("seed", "assignment"))]
    fractions = sorted({row["fraction"] for row in first}, key=lambda text: float(text) if text else 0.0)
    narrow, wide = fractions[0], fractions[-1]
    kept = {(row["topic"], row["word"]) for row in first if row["fraction"] == narrow}
    words: dict[str, list[str]] = {}
    for row in first:
        if row["fraction"] == wide:
            sign = " ✓" if (row["topic"], row["word"]) in kept else ""
            words.setdefault(row["topic"], []).append(row["word"] + sign)
    said = f"✓: kept at threshold {narrow} too; all at {wide}" if narrow != wide else "all kept"
    return tuple((topic, ", ".join(listed)) for topic, listed in list(words.items())[:MOST_TOPICS]), said


# What should be known beside a probe's numbers: its corpus, what is left out, and its topics' quality.


def probe_notes(corpora: Sequence[Row], rows: Sequence[Row]) -> list[str]:
    """Sentences from rows of corpus.json; with several tokenizers or lengths, each begins with the models it is for.

    rows: of probe.json, which say what each model was measured on.
    """
    return [
        (f"{_models(about, rows)}: " if len(corpora) > 1 else "") + sentence
        for about in corpora
        for sentence in _sentences(about)
    ]


def _sentences(about: Row) -> list[str]:
    size = f"{about['articles']:,} articles, {about['passages']:,} passages; measured on {about['measured']:,}"
    found = [f"{about['source']}: {size}.", *about["problems"]]
    if left_out := about["words_left_out"]:
        found.append(
            f'own topics: the tokenizer of "{about["tokenizer_name"]}" splits these words, which are left out: '
            f"{_listed(left_out)}."
        )
    if absent := about["words_without_attention"]:
        found.append(
            f"own topics: {len(absent):,} of {about['words']:,} words are in no passage that is measured, and have no "
            f"attention: {_listed(absent)}."
        )
    known = {name: value for name, value in (about["topic_quality"] or {}).items() if value is not None}
    if known:
        found.append("topics: " + ", ".join(f"{name} {value:.3f}" for name, value in known.items()) + ".")
    return found


def _listed(words: Sequence[str]) -> str:
    more = len(words) - LISTED
    return ", ".join(words[:LISTED]) + (f" and {more:,} more" if more > 0 else "")


def _models(about: Row, rows: Sequence[Row]) -> str:
    """``for bert and 2 more (tokenizer 0ca024b4, passages of 126 tokens)``."""
    ground = (about["tokenizer"], about["length"])
    alike = [row for row in rows if (row.get("tokenizer"), row.get("length")) == ground]
    names = list(dict.fromkeys(f"{row['model']} {row['revision']}".strip() for row in alike))
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"for {names[0] if names else 'no model'}{more} (tokenizer {ground[0][:8]}, passages of {ground[1]} tokens)"
