"""Figures of the probe, from its rows: Table 1's layout, depth, topics, heads, words, checkpoints."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator

from topicscope.records import SIGNIFICANT, Comparison, ProbeRow, TopicRow, WordMap
from topicscope.reporting.answer import ASSIGNMENTS, MEASURES, answering, is_encoded, model_label
from topicscope.reporting.figures import Cells, Panel, Series, cells, curves, dots, save_figure
from topicscope.reporting.palette import BLUE, GREEN, GREY, ORANGE, PALETTE
from topicscope.reporting.rounding import comparison_text

# Figures have room for longer names than tables.
LABELS = {**MEASURES, "cosine": "cosine similarity"}

# How many topics a ranking shows, those at its two ends.
MOST_SHOWN = 60


def draw(rows: Sequence[ProbeRow], maps: Sequence[WordMap], folder: Path) -> list[Path]:
    """All figures: Table 1 as a picture, depth, topics, heads, words, structure over checkpoints."""
    folder.mkdir(exist_ok=True)
    return [path for name, figure in _figures(rows, maps) for path in save_figure(figure, folder / name)]


def _figures(rows: Sequence[ProbeRow], maps: Sequence[WordMap]) -> Iterator[tuple[str, Figure]]:
    answered, assignment = answering(rows), rows[0].assignment
    for each in dict.fromkeys(row.assignment for row in rows):
        title = f"Same- over different-topic averages, {ASSIGNMENTS[each]}, embedding matrix"
        yield f"ratios-{each}", ratio_table(_chosen(rows, each), title=title)
    if any(row.hidden_by_layer for row in answered):
        yield "depth", depth(answered)
    for number, row in enumerate(row for row in answered if row.by_topic):
        title = f"{model_label(row)}: which topics are encoded"
        yield f"topics-{number + 1}", topic_ranking(row.by_topic or [], title=title)
    if any(row.attention_by_layer_head for row in answered):
        at = sorted({"own topics" if row.fraction is None else f"threshold {row.fraction:g}" for row in answered})
        title = f"Attention by head, same over different topic, {' and '.join(at)}, {ASSIGNMENTS[assignment]}"
        yield "heads", head_maps(answered, title=title)
    if shown := {each.label or each.model: each for each in maps if each.words}:
        yield "words", word_maps(shown, title="Cosine similarity of word embeddings (Figure 3)")
    for number, model in enumerate(dict.fromkeys(row.model for row in rows), 1):
        own = _chosen([row for row in rows if row.model == model], assignment)
        if len({row.revision for row in own}) > 1:
            yield f"checkpoints-{number}", over_checkpoints(own, title=f"Topic structure over the training of {model}")


def _chosen(rows: Sequence[ProbeRow], assignment: str) -> list[ProbeRow]:
    wanted = (assignment, "matrix", False)
    return [row for row in rows if (row.assignment, row.embedding, row.centred) == wanted]


def measured(row: ProbeRow, measure: str) -> Comparison:
    """One of a row's ``MEASURES``."""
    return getattr(row, measure) or Comparison()


def threshold(fraction: float | None, own: str = "own") -> str:
    """The ambiguity threshold; ``own`` for the user's own topics."""
    return own if fraction is None else f"{fraction:g}"


def ratio_table(rows: Sequence[ProbeRow], *, title: str, reference: Sequence[ProbeRow] = ()) -> Figure:
    """Table 1 as a picture: a line per row of probe.json, a panel per measure, ratios with 95 % intervals beside 1.

    ``reference``, if given, are the paper's numbers, drawn below as hollow diamonds; they are for other models on other
    text, and have only a ratio.
    """
    every = [*rows, *reference]
    comparisons = {name: [measured(row, measure) for row in every] for measure, name in LABELS.items()}
    if any(each.ratio is None and each.difference is not None for own in comparisons.values() for each in own):
        title += "\nΔ: same − different topic, where there is no ratio"
    names = [f"{model_label(row)}  {threshold(row.fraction, 'own topics')}" for row in every]
    numbers = {f"{name}: same / different topic": _ratios(own, len(rows)) for name, own in comparisons.items()}
    figure = dots(title, names, numbers, levels={key: {"": 1.0} for key in numbers}, size=(4.0, 0.3))
    for panel, own in zip(figure.axes, comparisons.values(), strict=True):
        panel.set_xscale("log")
        low, high = panel.get_xlim()
        # A logarithmic axis would label only powers of ten.
        panel.xaxis.set_major_locator(
            LogLocator(subs=(1, 2, 3, 5), numticks=15) if high > 4 * low else MaxNLocator(5, steps=[1, 2, 5, 10])
        )
        panel.xaxis.set_major_formatter("{x:g}")
        panel.minorticks_off()
        for place, each in enumerate(own):
            if each.ratio is None or each.ratio <= 0:
                beyond = ", off this axis" if each.ratio is not None else ""
                text = "no pair" if (text := comparison_text(each)) == "–" else text + beyond
                # Beside the line at 1, on the side that has more room.
                side = "left" if -np.log(low) < 0.55 * np.log(high / low) else "right"
                panel.text(1, place, f"  {text}  ", fontsize=7, va="center", ha=side)
        if reference:
            panel.axhline(len(rows) - 0.5, color="0.6", linewidth=0.8)
    return figure


def _ratios(comparisons: Sequence[Comparison], own: int) -> list[Series]:
    """Those of our rows with and without an interval, and those after them, which are the paper's."""
    places = [place for place, each in enumerate(comparisons) if each.ratio is not None and each.ratio > 0]
    whole = [place for place in places if None not in (comparisons[place].low, comparisons[place].high)]
    hollow = {"markerfacecolor": "none"}
    kinds: list[tuple[str, list[int], str, dict[str, Any]]] = [
        ("measured here, 95 % interval", [at for at in whole if at < own], BLUE, {}),
        (
            "no interval: too few replicates have a pair",
            [at for at in places if at < own and at not in whole],
            BLUE,
            hollow,
        ),
        ("printed in the paper", [at for at in places if at >= own], ORANGE, hollow | {"marker": "D"}),
    ]
    return [
        _series(at, [comparisons[place] for place in at], interval=not style, label=label, colour=colour, style=style)
        for label, at, colour, style in kinds
        if at
    ]


def depth(rows: Sequence[ProbeRow]) -> Figure:
    """At which depth topics are encoded, all models on one axis: AUC of hidden states, and the ratio of attention.

    Layer 0 is the embedding layer's output.
    """
    states, attention = list[Series](), list[Series]()
    for row, colour in zip(rows, cycle(PALETTE), strict=False):
        look: dict[str, Any] = {"label": model_label(row), "colour": colour, "style": {"marker": "o", "markersize": 4}}
        hidden = row.hidden_by_layer or []
        at = [layer.layer for layer in hidden]
        states.append(_series(at, [layer.centred_cosine for layer in hidden], "auc", **look))
        at = [layer.layer for layer in row.attention_by_layer]
        attention.append(_series(at, row.attention_by_layer, **look))
    title, y = "hidden states, words of different passages", "AUC, same against different topic"
    ratio = "attention, same / different topic"
    return curves(
        "At which depth topics are encoded, with 95 % intervals",
        [
            Panel(series=states, title=title, x="layer", y=y, levels={"": 0.5}),
            Panel(series=attention, title="attention, all heads of a layer", x="layer", y=ratio, levels={"": 1.0}),
        ],
    )


def topic_ranking(topics: Sequence[TopicRow], *, title: str) -> Figure:
    """Each topic's difference in the embeddings' cosines with its interval, the largest first; filled if encoded."""
    ranked = sorted(topics, key=lambda topic: -(topic.cosine.difference or 0.0))
    shown = ranked if len(ranked) <= MOST_SHOWN else [*ranked[: MOST_SHOWN // 2], *ranked[-MOST_SHOWN // 2 :]]
    left = f" (the {len(shown)} at the ends of {len(ranked)})" if len(shown) < len(ranked) else ""
    series = []
    for label, encoded in (("encoded", True), ("not encoded", False)):
        at = [place for place, topic in enumerate(shown) if is_encoded(topic.cosine) is encoded]
        style = {} if encoded else {"markerfacecolor": "white"}
        series.append(_series(at, [shown[place].cosine for place in at], "difference", label=label, style=style))
    names = [f"{topic.topic}: {', '.join(topic.words[:4])}" for topic in shown]
    label = "cosine of a topic's own words less that with other words"
    return dots(title + left, names, {label: series}, levels={label: {"": 0.0}}, size=(8.0, 0.2))


def head_maps(rows: Sequence[ProbeRow], *, title: str) -> Figure:
    """log₂ of same- over different-topic attention of every head, a panel per model; a dot where it is significant.

    Significant means p < 0.05 by the permutation test whose p-values hold for all heads of a model together.
    """
    tables = []
    for row in rows:
        ratio, p = (
            np.array([_numbers(layer, name) for layer in row.attention_by_layer_head]) for name in ("ratio", "p")
        )
        layers, heads = ([str(at + 1) for at in range(count)] for count in ratio.shape)
        with np.errstate(divide="ignore", invalid="ignore"):
            values, dots = np.log2(ratio), p < SIGNIFICANT
        name = f"{model_label(row)}\n{dots.sum()} of {dots.size} heads with p < {SIGNIFICANT}"
        tables.append(Cells(values=values, rows=layers, columns=heads, title=name, dots=dots))
    # The end of the scale, which one extreme head must not wash out: twice what nine heads in ten stay below.
    sizes = np.abs(np.concatenate([each.values[np.isfinite(each.values)] for each in tables]))
    limit = max(0.1, min(float(sizes.max()), 2 * float(np.quantile(sizes, 0.9)))) if len(sizes) else 1.0
    title += f"\ndots: p < {SIGNIFICANT}, for all heads of a model together"
    return cells(title, tables, x="head", y="layer", scale=(-limit, limit), bar="log₂ (same / different topic)")


def word_maps(models: Mapping[str, WordMap], *, title: str) -> Figure:
    """Similarity of every two words, a panel per model, the numbers written into the cells (Figure 3)."""
    tables = []
    for name, each in models.items():
        values, left = np.array(each.cosine), ", ".join(each.left_out)
        # Rounded first, so that what is practically 0 has no sign.
        texts = [f"{number + 0.0:.2f}" for number in values.round(2).ravel()]
        title_of = name + (f"\nits tokenizer splits {left}" if left else "")
        tables.append(Cells(values=values, rows=each.words, columns=each.words, title=title_of, texts=texts))
    return cells(title, tables, scale=(-1.0, 1.0), bar="cosine similarity", cell=(0.42, 0.42))


def over_checkpoints(rows: Sequence[ProbeRow], *, title: str) -> Figure:
    """Ratios over the checkpoints of one model, a panel per measure, a line per threshold, intervals shaded.

    A measure that lacks a ratio somewhere is drawn as the difference; one that has neither, not at all.
    """
    revisions = list(dict.fromkeys(row.revision or "" for row in rows))
    styles = list(islice(cycle(zip((BLUE, ORANGE, GREEN, GREY), "os^v", strict=True)), len(rows)))
    shown = []
    for measure, name in LABELS.items():
        comparisons = [measured(row, measure) for row in rows]
        if all(each.difference is None and each.ratio is None for each in comparisons):
            continue
        apart = any(each.ratio is None and each.difference is not None for each in comparisons)
        label, level = ("same − different topic", 0.0) if apart else ("same / different topic", 1.0)
        series = []
        for fraction, (colour, marker) in zip(dict.fromkeys(row.fraction for row in rows), styles, strict=False):
            of_threshold = [row for row in rows if row.fraction == fraction]
            look: dict[str, Any] = {"label": f"threshold {threshold(fraction)}", "colour": colour}
            at = [revisions.index(row.revision or "") for row in of_threshold]
            own = [measured(row, measure) for row in of_threshold]
            series.append(_series(at, own, "difference" if apart else "ratio", style={"marker": marker}, **look))
        shown.append(
            Panel(
                series=series, title=name, x="checkpoint", y=label, levels={"": level}, ticks=dict(enumerate(revisions))
            )
        )
    return curves(title, shown)


def _series(
    x: Sequence[int], comparisons: Sequence[Comparison], name: str = "ratio", *, interval: bool = True, **look: Any
) -> Series:
    """A number of each comparison, with its interval."""
    prefix = "" if name == "ratio" else f"{name}_"
    low, high = (_numbers(comparisons, prefix + end) if interval else () for end in ("low", "high"))
    return Series(x=x, y=_numbers(comparisons, name), low=low, high=high, **look)


def _numbers(comparisons: Sequence[Comparison], name: str) -> list[float]:
    """A field of each, with gaps where it is not defined."""
    return [math.nan if (value := getattr(each, name)) is None else value for each in comparisons]
