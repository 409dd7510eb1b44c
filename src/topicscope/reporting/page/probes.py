"""A probe of language models: Table 1 with intervals, figures, topics, and notes about the numbers."""

import html
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from topicscope.files import Row
from topicscope.records import (
    SIGNIFICANT,
    read_comparisons,
    read_corpus_rows,
    read_probe_rows,
    read_topic_words,
    read_words,
)
from topicscope.reporting.answer import (
    PAIRED,
    answering,
    answers,
    is_encoded,
    labels_of,
    model_label,
    paired,
    paired_answers,
    paired_verdict,
    sink_text,
)
from topicscope.reporting.figures import PALETTE
from topicscope.reporting.figures.probe import (
    MEASURES,
    TOPICS,
    colour_limit,
    has_interval,
    is_difference,
    left_out,
    map_label,
    ratio_axis,
    threshold,
    topic_name,
)
from topicscope.reporting.page.store import Found
from topicscope.reporting.rounding import NOTHING, comparison_text, is_significant, readable, with_interval

# Blue, white and red of ColorBrewer, as in the pictures.
BLUES = ("#053061", "#2166ac", "#4393c3", "#92c5de", "#d1e5f0")
REDS = ("#fddbc7", "#f4a582", "#d6604d", "#b2182b", "#67001f")
DIVERGING = (*BLUES, "#f7f7f7", *REDS)
COLOURS = [[place / (len(DIVERGING) - 1), colour] for place, colour in enumerate(DIVERGING)]

# The end of a map's scale is at least this, so that noise around 1 stays pale.
LEAST_LIMIT = 0.1

MOST_TOPICS = 300

# How many words a note lists.
LISTED = 20

# A comparison's ratio and the ends of its interval.
INTERVAL = ("ratio", "low", "high")

# Columns of the table that are as in probe.json.
PLAIN = ("assignment", "embedding", "words", "topics")

Figure = dict[str, Any]


def plotted(text: object) -> str:
    """Text for a figure, where the plotting library would take tags for markup."""
    return html.escape(str(text), quote=False)


def threshold_name(row: Row) -> str:
    """The ambiguity threshold, or "own topics" if topics were given."""
    return threshold(row.get("fraction"), "own topics")


def number(value: Any) -> float:
    """The number as a float; NaN if there is none."""
    return np.nan if value is None else float(value)


# Table 1 as figures, one per measure and embedding.


def ratio_figures(rows: Sequence[Row]) -> list[Figure]:
    """Figures for vectors that are not centred; centred ones, which seldom have a ratio, are in the table."""
    groups: dict[tuple[str, str], dict[str, Row]] = {}
    for name, label in MEASURES.items():
        for row in rows:
            if not row.get("centred") and isinstance(row.get(name), dict):
                # Attention does not depend on the embedding.
                title = label if name == "attention" else f"{label}, embedding {row.get('embedding')}"
                point = ", ".join([model_label(row), threshold_name(row), str(row.get("assignment"))])
                groups.setdefault((name, title), {})[point] = row[name]
    return [_ratio_figure(points, title) for (_, title), points in groups.items()]


def _ratio_figure(points: Mapping[str, Row], title: str) -> Figure:
    names, measures = [plotted(name) for name in points], list(points.values())
    ticks, ends = ratio_axis([each.get(end) for each in measures for end in INTERVAL])
    bare = any(_drawn(each) and not has_interval(each) for each in measures)
    left = {"showarrow": False, "font": {"size": 11}, "xref": "paper", "x": 0, "xanchor": "left", "yref": "y"}
    missing = [(name, each) for name, each in zip(names, measures, strict=True) if not _drawn(each)]
    # The middle of the axis's wider side of 1, where the line at 1 is not in the way.
    beside_1 = math.sqrt(ends[1] if ends[1] * ends[0] >= 0.98 else ends[0])
    traces = [
        {
            **{"type": "scatter", "mode": "markers", "name": title},
            "x": [each.get("ratio") for each in measures],
            "y": names,
            "marker": {"size": 9, "symbol": ["circle" if has_interval(each) else "circle-open" for each in measures]},
            "error_x": error_bars([[each.get(end) for end in INTERVAL] for each in measures]),
        },
        # The text where a logarithmic axis has no place for a ratio.
        {
            **{"type": "scatter", "mode": "text", "textposition": "bottom center", "cliponaxis": False},
            "x": [beside_1] * len(missing),
            "y": [name for name, _ in missing],
            "text": [_written(each) for _, each in missing],
            **{"textfont": {"size": 11}, "hoverinfo": "skip"},
        },
    ]
    return {
        "title": f"{title}: same topic over different topics",
        "text": "With 95 % intervals; 1 means no topic structure."
        + (" Open: no complete interval." if bare else "")
        + (" Δ: same − different topic, where there is no ratio." if any(map(is_difference, measures)) else ""),
        "traces": traces,
        "layout": {
            "xaxis": {
                "title": {"text": "ratio (logarithmic)"},
                "type": "log",
                "range": [math.log10(end) for end in ends],
                "tickvals": ticks,
                "ticktext": [f"{tick:g}" for tick in ticks],
            },
            "yaxis": _axis_of_names(names, 11),
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


def error_bars(intervals: Sequence[Sequence[float | None]], **more: Any) -> dict[str, Any]:
    """Error bars of numbers with the ends of their intervals; none where one of the three is unknown."""
    whole = [each if None not in each else None for each in intervals]
    below, above = ([abs(each[end] - each[0]) if each else None for each in whole] for end in (1, 2))  # type: ignore[operator]
    return {"type": "data", "symmetric": False, "array": above, "arrayminus": below, **more}


def _axis_of_names(names: Sequence[str], size: int) -> dict[str, Any]:
    order = {"autorange": "reversed", "categoryorder": "array", "categoryarray": names}
    return {**order, "automargin": True, "tickfont": {"size": size}}


def _written(measure: Row) -> str:
    if is_difference(measure):
        return comparison_text(measure)
    return "no pair" if measure.get("ratio") is None else f"{measure['ratio']:.3g}, off this axis"


def _drawn(measure: Row) -> bool:
    return measure.get("ratio") is not None and measure["ratio"] > 0


# Maps of heads: attention to the same topic over other topics, on one scale for all models.

Grid = Float[np.ndarray, "layer head"]


def head_figures(rows: Sequence[Row]) -> list[Figure]:
    """A map per model, with a view per threshold; colours of a view are the same for all models.

    The view that is shown first is that of the largest threshold, which keeps the most words.
    """
    known = [row for row in rows if any(row.get("attention_by_layer_head") or ())]
    # Attention does not depend on the embedding; a model's row is the first of its threshold.
    first: dict[str, dict[str, Row]] = {}
    for row in known:
        if row.get("assignment") == known[0].get("assignment"):
            first.setdefault(model_label(row), {}).setdefault(threshold_name(row), row)
    limits = {}
    for each in head_thresholds(rows):
        maps = [log_ratio(_grid(mine[each], "ratio")) for mine in first.values() if each in mine]
        limits[each] = max(colour_limit(maps)[0], LEAST_LIMIT)
    figures = []
    for model, mine in first.items():
        views = {each: _view(model, mine[each], limit) for each, limit in limits.items() if each in mine}
        *_, start = views.values()
        heads, layers = (len(start["traces"][0][axis]) for axis in "xy")
        layout = {
            "xaxis": {"title": {"text": "head"}, "dtick": max(1, heads // 12)},
            "yaxis": {"title": {"text": "layer"}, "dtick": max(1, layers // 12), "autorange": "reversed"},
        }
        title = f"{model}: attention to the same topic over other topics, by layer and head"
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


def _view(model: str, row: Row, limit: float) -> dict[str, Any]:
    ratio, low, high, p = (_grid(row, name) for name in (*INTERVAL, "p"))
    layers, heads = ratio.shape
    hover = [
        [
            f"layer {layer + 1}, head {head + 1}<br>ratio {readable(ratio[layer, head])} "
            f"[{readable(low[layer, head])}, {readable(high[layer, head])}]<br>p = {readable(p[layer, head], 3)}"
            for head in range(heads)
        ]
        for layer in range(layers)
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
    assignment = TOPICS.get(str(row.get("assignment")), str(row.get("assignment")))
    missing = int(np.isnan(log_ratio(ratio)).sum())
    return (
        f"{shown}, {assignment}. White: 1, no topic structure; colours are the same for all models. "
        f"Ratios from {np.nanmin(ratio):.3g} to {np.nanmax(ratio):.3g}"
        + (f", not defined or not above 0 in {missing} heads (blank). " if missing else ". ")
        + f"* p < {SIGNIFICANT}, for all heads of the model together: "
        f"{int((p < SIGNIFICANT).sum())} of {ratio.size} heads."
    )


# All figures: ratios with intervals, heads, words, and structure over checkpoints.


def probe_figures(rows: Sequence[Row], maps: Sequence[Row], anchor: str) -> list[Figure]:
    """All of them."""
    groups = {
        "opening": [*_depth(rows), *_topic_rankings(rows), *_topic_maps(maps)],
        "ratios": ratio_figures(rows),
        "heads": head_figures(rows),
        "sink": [_sink(row) for row in answering(rows) if row.get("sink")],
        "words": [_word_maps(each) for each in maps if each["words"]],
        "checkpoints": _checkpoints(rows),
    }
    figures = [{"group": name, **figure} for name, group in groups.items() for figure in group]
    return [{"id": f"{anchor}-figure-{place}", **figure} for place, figure in enumerate(figures)]


def _depth(rows: Sequence[Row]) -> list[Figure]:
    """At which depth topics are encoded, all models on one axis."""
    traces = []
    for row in answering(rows):
        layers = [each["centred_cosine"] for each in row.get("hidden_by_layer") or ()]
        if layers:
            numbers = [[each.get(name) for name in ("auc", "auc_low", "auc_high")] for each in layers]
            line = {"type": "scatter", "mode": "lines+markers", "name": plotted(model_label(row))}
            places, middle = list(range(len(layers))), [each[0] for each in numbers]
            traces.append({**line, "x": places, "y": middle, "error_y": error_bars(numbers)})
    deepest = max((len(each["x"]) for each in traces), default=1)
    layout = {
        "xaxis": {"title": {"text": "layer", "standoff": 8}, "automargin": True, "dtick": max(1, deepest // 12)},
        "yaxis": {"title": {"text": "AUC, same against different topic"}},
        "shapes": [{"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": 0.5, "y1": 0.5, "line": {"dash": "dash"}}],
        "showlegend": True,
        "height": 380,
    }
    text = (
        "The chance that two words of one topic have more similar hidden states than two words of different topics; "
        "centred cosines, words of different passages, 95 % intervals. Layer 0 is the embedding layer's output. "
        "Dashed: chance."
    )
    title = "Hidden states: at which depth topics are encoded"
    return [{"title": title, "text": text, "traces": traces, "layout": layout}] if traces else []


def _topic_rankings(rows: Sequence[Row]) -> list[Figure]:
    """Each topic's difference in the embeddings' cosines, the largest first."""
    figures = []
    for row in answering(rows):
        topics = sorted(row.get("by_topic") or (), key=lambda each: -number(each["cosine"].get("difference")))
        if not topics:
            continue
        names = [plotted(topic_name(each)) for each in topics]
        ends = ("difference", "difference_low", "difference_high")
        numbers = [[each["cosine"].get(name) for name in ends] for each in topics]
        encoded = [is_encoded(each["cosine"]) for each in topics]
        trace = {
            **{"type": "scatter", "mode": "markers", "name": "topics"},
            "x": [each[0] for each in numbers],
            "y": names,
            "marker": {"size": 7, "symbol": ["circle" if each else "circle-open" for each in encoded]},
            "error_x": error_bars(numbers),
            "hovertext": [plotted(", ".join(each["words"])) for each in topics],
        }
        layout = {
            "xaxis": {"title": {"text": "difference of cosines"}},
            "yaxis": _axis_of_names(names, 9),
            "height": 140 + 13 * len(topics),
        }
        text = (
            "Average cosine of a topic's words with each other, less that with words of other topics. "
            f"{sum(encoded)} of {len(topics)} topics are encoded (filled)."
        )
        title = f"{model_label(row)}: which topics are encoded in the embeddings"
        figures.append({"title": title, "text": text, "traces": [trace], "layout": layout})
    return figures


def _topic_maps(maps: Sequence[Row]) -> list[Figure]:
    """Words of some topics in two dimensions, coloured by topic."""
    figures = []
    for each in maps:
        found = each.get("topic_map")
        if not found:
            continue
        traces: list[dict[str, Any]] = []
        for topic, colour in zip(dict.fromkeys(found["topics"]), PALETTE, strict=False):
            mine = [place for place, name in enumerate(found["topics"]) if name == topic]
            traces.append(
                {
                    **{"type": "scatter", "mode": "markers+text", "name": plotted(topic)},
                    **{f"{axis}": [found["places"][place][at] for place in mine] for at, axis in enumerate("xy")},
                    "text": [plotted(found["words"][place]) for place in mine],
                    **{
                        "textposition": "top center",
                        "textfont": {"size": 9, "color": colour},
                        "hoverinfo": "text+name",
                    },
                    "marker": {"size": 6, "color": colour},
                }
            )
        bare = {"showticklabels": False, "zeroline": False}
        layout = {"xaxis": bare, "yaxis": bare, "showlegend": True, "height": 560}
        text = (
            "The topics whose words occur most, each with its likeliest words, in the two dimensions in which the "
            f"directions of their embeddings vary most; these hold {found['share']:.0%} of the variance."
        )
        title = f"{map_label(each)}: topic map of word embeddings"
        narrow = {"height": 640}
        figures.append({"title": title, "text": text, "traces": traces, "layout": layout, "narrow": narrow})
    return figures


def _sink(row: Row) -> Figure:
    """The attention of a decoder's later tokens to the first, by layer and head."""
    shares = row["sink"]
    trace = {
        **{"type": "heatmap", "name": "attention sink", "z": shares, "zmin": 0, "zmax": 1, "colorscale": "Viridis"},
        "x": list(range(1, len(shares[0]) + 1)),
        "y": list(range(1, len(shares) + 1)),
        "colorbar": {"title": {"text": "share of attention", "side": "right"}, "thickness": 12},
    }
    layout = {
        "xaxis": {"title": {"text": "head"}, "dtick": max(1, len(shares[0]) // 12)},
        "yaxis": {"title": {"text": "layer"}, "dtick": max(1, len(shares) // 12), "autorange": "reversed"},
    }
    text = f"The first token takes {sink_text(row)} of later tokens' attention. It is left out of all other numbers."
    return {"title": f"{model_label(row)}: attention sink", "text": text, "traces": [trace], "layout": layout}


def _word_maps(each: Row) -> Figure:
    """The map of a few words' similarities (Figure 3)."""
    words = [plotted(word) for word in each["words"]]
    trace = {"type": "heatmap", "name": "cosine", "z": each["cosine"], "x": words, "y": words, "zmin": -1, "zmax": 1}
    axes = {"yaxis": {"autorange": "reversed", "automargin": True}, "xaxis": {"automargin": True}}
    return {
        "title": f"{map_label(each)}: cosine similarity of word embeddings (Figure 3)",
        "text": " ".join(left_out(each)),
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
        shown = {name: mine[0].get(name) for name in ("fraction", "assignment", "embedding")}
        alike = [row for row in mine if all(row.get(name) == value for name, value in shown.items())]
        traces = [
            {
                **{"type": "scatter", "mode": "lines+markers", "name": label},
                "x": [plotted(row.get("revision")) for row in alike],
                "y": [(row.get(name) or {}).get("ratio") for row in alike],
            }
            for name, label in MEASURES.items()
        ]
        missing = [str(trace["name"]) for trace in traces if all(value is None for value in trace["y"])]
        text = f"Threshold {', '.join(map(str, shown.values()))}."
        text += f" Not defined: {', '.join(missing)}." if missing else ""
        axes = {
            "xaxis": {"title": {"text": "revision"}, "type": "category"},
            "yaxis": {"title": {"text": "same / different"}},
        }
        layout = {**axes, "showlegend": True, "margin": {"b": 110}, "height": 380}
        title = f"{model}: topic structure over checkpoints"
        figures.append({"title": title, "text": text, "traces": traces, "layout": layout})
    return figures


def probe_section(folder: Path, number: int, found: Found) -> Row | None:
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
    comparisons = (found.read(read_comparisons, path) or []) if (path := folder / "comparisons.json").exists() else []
    labels = labels_of(rows)
    sinks = ["sink"] * any(row.get("sink") for row in rows)
    return {
        "anchor": anchor,
        "folder": str(folder),
        "notes": probe_notes(found.read(read_corpus_rows, folder / "corpus.json") or [], rows),
        "conclusion": answers(rows),
        "compared": paired_answers(comparisons, labels),
        "comparisons": [_paired_row(row, labels) for row in paired(comparisons)],
        # Own topics come from no LDA.
        "lda": any(row.get("fraction") is not None for row in rows),
        "columns": ("model", "fraction", *PLAIN, "centred", *MEASURES.values(), *sinks),
        "rows": [table_row(row) for row in rows],
        # A topic's name with its words, and the meaning of the sign beside a word.
        "topics": topics,
        "kept": kept,
        "figures": probe_figures(rows, maps, anchor),
        # Thresholds of the maps of heads; the last is shown first.
        "thresholds": head_thresholds(rows),
        "images": found.images(drawn, anchor),
    }


def table_row(row: Row) -> dict[str, str]:
    """A row of probe.json in words."""
    return {
        **{name: str(row.get(name, "")) for name in PLAIN},
        "model": model_label(row),
        "fraction": threshold_name(row),
        "centred": "yes" if row.get("centred") else "no",
        **{label: ratio_text(row.get(name)) for name, label in MEASURES.items()},
        "sink": sink_text(row),
    }


def _paired_row(row: Row, labels: Mapping[str, str]) -> dict[str, str]:
    """A row of comparisons.json in words."""
    numbers = {
        "ratio of ratios": ("ratio_of_ratios", "low", "high"),
        "difference": ("difference", "difference_low", "difference_high"),
        "difference of AUC": ("auc_difference", "auc_difference_low", "auc_difference_high"),
    }
    layer = "" if row.get("layer") is None else f", layer {row['layer']}"
    return {
        "model": labels.get(row["model"], row["model"]),
        "against": labels.get(row["against"], row["against"]),
        "measure": PAIRED[row["measure"]] + layer,
        "verdict": paired_verdict(row),
        **{
            label: NOTHING if row.get(name) is None else with_interval(row[name], *(row.get(end) for end in ends))
            for label, (name, *ends) in numbers.items()
        },
        "p": NOTHING if row.get("p") is None else readable(row["p"], 3),
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


# Notes about a probe's numbers: its corpus, what is left out, and its topics' quality.


def probe_notes(corpora: Sequence[Row], rows: Sequence[Row]) -> list[str]:
    """Sentences from rows of corpus.json; with several tokenizers or lengths, each begins with the models it is for.

    rows: those of probe.json, which say what each model was measured on.
    """
    several = len(corpora) > 1
    return [
        (f"{_models(about, rows)}: " if several else "") + sentence for about in corpora for sentence in _notes(about)
    ]


def _notes(about: Row) -> list[str]:
    size = f"{about['articles']:,} articles, {about['passages']:,} passages; measured on {about['measured']:,}"
    found = [f"{about['source']}: {size}.", *about["problems"]]
    if left_out := about["words_left_out"]:
        splits = f'the tokenizer of "{about["tokenizer_name"]}" splits these words, which are left out'
        found.append(f"own topics: {splits}: {_listed(left_out)}.")
    if absent := about["words_without_attention"]:
        count = f"{len(absent):,} of {about['words']:,} words"
        unseen = f"{count} are in no passage that is measured, and have no attention"
        found.append(f"own topics: {unseen}: {_listed(absent)}.")
    quality = {name: value for name, value in (about["topic_quality"] or {}).items() if value is not None}
    known = [f"{name} {value:.3f}" for name, value in quality.items()]
    weak = " Topics may be weak: with c_npmi below 0, their likeliest words occur together less often than by chance."
    return [*found, f"topics: {', '.join(known)}.{weak * (quality.get('c_npmi', 0) < 0)}"] if known else found


def word_notes(maps: Sequence[Row]) -> list[str]:
    """A sentence for each list of words that Figure 3 lacks, with the models that lack them, from words.json."""
    models: dict[tuple[str, ...], list[str]] = {}
    for each in maps:
        if each.get("left_out"):
            models.setdefault(tuple(each["left_out"]), []).append(map_label(each))
    return [
        f"Figure 3 of {', '.join(names)} lacks words that the tokenizer splits: {', '.join(words)}."
        for words, names in models.items()
    ]


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
