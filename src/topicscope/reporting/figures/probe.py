"""Figures of the probe, from its rows: Table 1's layout, maps of heads, topics and words, the sink, checkpoints."""

import itertools
import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from topicscope.records import SIGNIFICANT, Comparison, ProbeRow, TopicMap, TopicRow, WordMap
from topicscope.reporting.answer import answering, is_encoded, model_label
from topicscope.reporting.figures import (
    BLUE,
    DIVERGING,
    GREEN,
    GREY,
    ORANGE,
    PALETTE,
    between,
    panels,
    remember_ends,
    save_figure,
)
from topicscope.reporting.rounding import comparison_text

# Comparisons of a row of probe.json, and their names in a table; figures have room for longer ones.
MEASURES = {"cosine": "cosine", "dot": "dot product", "attention": "attention"}
LABELS = {**MEASURES, "cosine": "cosine similarity"}
TOPICS = {"one": "one topic per word", "several": "several topics per word"}

# Ticks of a logarithmic axis of ratios.
STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10, 20, 50, 100, 200, 500, 1000)

# How many topics a ranking shows, those at its two ends.
MOST_SHOWN = 60

# How many panels of models are in a row.
COLUMNS = 4


def draw(rows: Sequence[ProbeRow], maps: Sequence[WordMap], folder: Path) -> list[Path]:
    """All figures: Table 1 as a picture, depth, topics, heads, words, the sink, structure over checkpoints."""
    folder.mkdir(exist_ok=True)
    written: list[Path] = []
    for assignment in dict.fromkeys(row.assignment for row in rows):
        for embedding in dict.fromkeys(row.embedding for row in rows):
            title = f"Same- over different-topic averages, {TOPICS[assignment]}, embedding: {embedding}"
            figure = ratio_table(_chosen(rows, assignment, embedding), title=title)
            written += save_figure(figure, folder / f"ratios-{assignment}-{embedding}")
    answered = answering(rows)
    if deep := {model_label(row): row for row in answered if row.hidden_by_layer}:
        written += save_figure(depth(deep), folder / "depth")
    for number, row in enumerate(row for row in answered if row.by_topic):
        title = f"{model_label(row)}: which topics are encoded"
        written += save_figure(topic_ranking(row.by_topic or [], title=title), folder / f"topics-{number + 1}")
    assignment = rows[0].assignment
    first = _chosen(rows, assignment, rows[0].embedding)
    for fraction in dict.fromkeys(row.fraction for row in first):
        heads = {model_label(row): head_numbers(row) for row in first if row.fraction == fraction}
        at = "own topics" if fraction is None else f"threshold {fraction:g}"
        title = f"Attention by head, same over different topic, {at}, {TOPICS[assignment]}"
        written += save_figure(head_maps(heads, title=title), folder / f"heads-{threshold(fraction)}")
    # Each list of words has a figure: tokenizers may keep different words of the paper's nine.
    for number, words in enumerate(dict.fromkeys(tuple(each.words) for each in maps if each.words)):
        own = [each for each in maps if tuple(each.words) == words]
        cosines = {map_label(each): np.array(each.cosine) for each in own}
        missing = own[0].left_out
        title = "Cosine similarity of word embeddings (Figure 3)" + (
            f"\nLeft out, as the tokenizer splits them: {', '.join(missing)}." if missing else ""
        )
        written += save_figure(word_maps(cosines, words, title=title), _numbered(folder / "words", number))
    # So does each list of topics' words, which differ between tokenizers.
    mapped = {map_label(each): each.topic_map for each in maps if each.topic_map}
    for number, words in enumerate(dict.fromkeys(tuple(each.words) for each in mapped.values())):
        places = {name: each for name, each in mapped.items() if tuple(each.words) == words}
        written += save_figure(topic_maps(places), _numbered(folder / "topic-map", number))
    if sinks := {model_label(row): np.array(row.sink) for row in answered if row.sink}:
        written += save_figure(sink_maps(sinks), folder / "sink")
    revisions_of: dict[str, list[str]] = {}
    for model, revision in dict.fromkeys((row.model, row.revision or "") for row in rows):
        revisions_of.setdefault(model, []).append(revision)
    several = {model: revisions for model, revisions in revisions_of.items() if len(revisions) > 1}
    for number, (model, revisions) in enumerate(several.items()):
        chosen = _chosen([row for row in rows if row.model == model], assignment, "matrix")
        # In the order of the revisions, not of the rows.
        chosen.sort(key=lambda row: revisions.index(row.revision or ""))
        lines: dict[str, dict[str, list[Comparison]]] = {measure: {} for measure in MEASURES}
        for measure, row in itertools.product(MEASURES, chosen):
            lines[measure].setdefault(threshold(row.fraction), []).append(measured(row, measure))
        figure = over_checkpoints(revisions, lines, title=f"Topic structure over the training of {model}")
        written += save_figure(figure, _numbered(folder / "checkpoints", number))
    return written


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}-{number + 1}") if number else path


def map_label(each: WordMap) -> str:
    """The label of the model in a row of words.json."""
    return each.label or each.model


def _chosen(rows: Sequence[ProbeRow], assignment: str, embedding: str) -> list[ProbeRow]:
    wanted = (assignment, embedding, False)
    return [row for row in rows if (row.assignment, row.embedding, row.centred) == wanted]


def measured(row: ProbeRow, measure: str) -> Comparison:
    """One of a row's ``MEASURES``."""
    return getattr(row, measure) or Comparison()


def head_numbers(row: ProbeRow) -> tuple[Float[np.ndarray, "layer head"], Bool[np.ndarray, "layer head"]]:
    """Each head's log₂ of the ratio, and whether it is significant by the test for all heads together."""
    ratio, p = (np.array([_numbers(layer, name) for layer in row.attention_by_layer_head]) for name in ("ratio", "p"))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log2(ratio), p < SIGNIFICANT


def has_interval(comparison: Comparison) -> bool:
    """Whether a ratio and both ends of its interval are known."""
    return None not in (comparison.ratio, comparison.low, comparison.high)


def is_difference(comparison: Comparison) -> bool:
    """Whether a difference is shown because there is no ratio."""
    return comparison.ratio is None and comparison.difference is not None


def threshold(fraction: float | None, own: str = "own") -> str:
    """The ambiguity threshold; ``own`` for the user's own topics."""
    return own if fraction is None else f"{fraction:g}"


def ratio_table(rows: Sequence[ProbeRow], *, title: str, reference: Sequence[ProbeRow] = ()) -> Figure:
    """Table 1 as a picture: a line per row of probe.json, a panel per measure, ratios with 95 % intervals beside 1.

    ``reference``, if given, are the paper's numbers, drawn below as hollow diamonds; they are for other models on other
    text, and have only a ratio.
    """
    every = [*((row, False) for row in rows), *((row, True) for row in reference)]
    figure, [axes] = panels(title, (12.0, 0.3 * len(every) + 1.9), 1, len(MEASURES), lines="x", letters=10, sharey=True)
    for panel, (measure, name) in zip(axes, LABELS.items(), strict=True):
        panel.axvline(1, color=GREY, linestyle="--", linewidth=1.0)
        panel.set_xscale("log")
        comparisons = [measured(row, measure) for row, _ in every]
        ticks, ends = ratio_axis([end for each in comparisons for end in (each.ratio, each.low, each.high)])
        panel.set_xticks(ticks, [f"{step:g}" for step in ticks])
        panel.minorticks_off()
        panel.set_xlim(*ends)
        for place, (comparison, (_, printed)) in enumerate(zip(comparisons, every, strict=True)):
            _draw_ratio(panel, comparison, place, printed=printed)
        panel.set_xlabel(f"{name}: same / different topic")
        if reference:
            panel.axhline(len(rows) - 0.5, color="0.6", linewidth=0.8)
    labels = [f"{model_label(row)}  {threshold(row.fraction, 'own topics')}" for row, _ in every]
    axes[0].set_yticks(range(len(every)), labels, fontsize=8)
    axes[0].set_ylim(len(every) - 0.4, -0.6)
    shown = [measured(row, measure) for row in rows for measure in MEASURES]
    handles = [Line2D([], [], marker="o", color=BLUE, linestyle="-", label="measured here, 95 % interval")]
    hollow: dict[str, Any] = {"markerfacecolor": "none", "linestyle": "none"}
    if any(each.ratio is not None and not has_interval(each) for each in shown):
        label = "measured here, no interval: too few replicates have a pair"
        handles.append(Line2D([], [], marker="o", color=BLUE, label=label, **hollow))
    if any(map(is_difference, shown)):
        handles.append(Line2D([], [], linestyle="none", label="Δ: same − different topic, where there is no ratio"))
    if reference:
        handles.append(Line2D([], [], marker="D", color=ORANGE, label="printed in the paper", **hollow))
    figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=8)
    return figure


def _draw_ratio(panel: Axes, comparison: Comparison, place: int, *, printed: bool) -> None:
    value = comparison.ratio
    if value is None or value <= 0:
        text = comparison_text(comparison)
        text = f"{text}, off this axis" if value is not None else text if is_difference(comparison) else "no pair"
        # Beside the line at 1, on the side that has more room.
        low, high = np.log(panel.get_xlim())
        side = "left" if -low < 0.55 * (high - low) else "right"
        panel.text(1, place, f"  {text}  ", fontsize=7, va="center", ha=side)
    elif printed:
        panel.plot([value], [place], "D", color=ORANGE, markerfacecolor="none", markersize=5)
    elif not has_interval(comparison):
        panel.plot([value], [place], "o", color=BLUE, markerfacecolor="none", markersize=4.5)
    else:
        low, high = comparison.low or 0.0, comparison.high or 0.0
        panel.hlines(place, low, high, color=BLUE, linewidth=1.6)
        [point] = panel.plot([value], [place], "o", color=BLUE, markersize=4.5)
        remember_ends(point, [low], [high])


def ratio_axis(numbers: Sequence[float | None]) -> tuple[list[float], tuple[float, float]]:
    """Ticks and ends of an axis that has room for all of these numbers above 0, and for 1.

    Ticks are whole factors, since a logarithmic axis would label only powers of ten.
    """
    ends = [number for number in numbers if number is not None and np.isfinite(number) and number > 0]
    low, high = min([*ends, 0.9]), max([*ends, 1.1])
    ticks = [step for step in STEPS if low / 1.3 <= step <= high * 1.3]
    if high / low < 2.2:
        even = np.arange(0.4, 2.55, 0.1 if high / low < 1.7 else 0.2)
        ticks = [step for step in np.round(even, 2).tolist() if low / 1.06 <= step <= high * 1.06]
    return [float(tick) for tick in ticks], (low / 1.08, high * 1.08)


def colour_limit(panels: Sequence[Float[np.ndarray, "_ _"]]) -> tuple[float, bool]:
    """The end of a scale around 0 that one extreme head does not wash out, and whether some heads are beyond it.

    It is twice the size that nine heads in ten stay below, or the largest value if that is smaller.
    """
    sizes = np.concatenate([np.abs(each[np.isfinite(each)]).ravel() for each in panels] or [np.zeros(0)])
    if not len(sizes):
        return 1.0, False
    limit = max(0.1, min(float(sizes.max()), 2 * float(np.quantile(sizes, 0.9))))
    return limit, bool(sizes.max() > limit)


def depth(models: Mapping[str, ProbeRow]) -> Figure:
    """At which depth topics are encoded, all models on one axis: AUC of hidden states, and the ratio of attention.

    Layer 0 is the embedding layer's output.
    """
    figure, [axes] = panels(
        "At which depth topics are encoded, with 95 % intervals", (9.0, 3.6), 1, 2, lines=None, letters=10
    )
    # What a panel shows, its axis, the value without topics, and the names of the number and its ends.
    kinds = (
        ("hidden states, words of different passages", "AUC, same against different topic", 0.5, "auc", "auc_"),
        ("attention, all heads of a layer", "attention, same / different topic", 1.0, "ratio", ""),
    )
    for panel, (what, label, nothing, *_) in zip(axes, kinds, strict=True):
        panel.axhline(nothing, color=GREY, linestyle="--", linewidth=1.0)
        panel.set_ylabel(label)
        panel.set_title(what, fontsize=9)
        panel.set_xlabel("layer")
        panel.xaxis.get_major_locator().set_params(integer=True)
        panel.grid(color="0.92", linewidth=0.5)
    for place, (name, row) in enumerate(models.items()):
        states: list[tuple[int, Comparison]] = [
            (layer.layer, layer.centred_cosine) for layer in row.hidden_by_layer or []
        ]
        attention: list[tuple[int, Comparison]] = [(layer.layer, layer) for layer in row.attention_by_layer]
        for panel, layers, (*_, number, ends) in zip(axes, (states, attention), kinds, strict=True):
            at, comparisons = [layer for layer, _ in layers], [each for _, each in layers]
            middle, low, high = (_numbers(comparisons, each) for each in (number, f"{ends}low", f"{ends}high"))
            [line] = panel.plot(at, middle, "o-", color=f"C{place % 10}", markersize=4, label=name)
            between(panel, at, low, high, line)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    return figure


def topic_ranking(topics: Sequence[TopicRow], *, title: str) -> Figure:
    """Each topic's difference in the embeddings' cosines with its interval, the largest first; filled if encoded."""
    ranked = sorted(topics, key=lambda topic: -(topic.cosine.difference or 0.0))
    shown = ranked if len(ranked) <= MOST_SHOWN else [*ranked[: MOST_SHOWN // 2], *ranked[-MOST_SHOWN // 2 :]]
    figure = Figure(figsize=(8.0, 0.2 * len(shown) + 1.2), layout="constrained")
    panel = figure.subplots()
    panel.axvline(0, color=GREY, linestyle="--", linewidth=1.0)
    for place, topic in enumerate(shown):
        cosine = topic.cosine
        low, high = cosine.difference_low, cosine.difference_high
        face = BLUE if is_encoded(cosine) else "white"
        [point] = panel.plot([_number(cosine.difference)], [place], "o", color=BLUE, markerfacecolor=face, markersize=4)
        if low is not None and high is not None:
            panel.hlines(place, low, high, color=BLUE, linewidth=1.2)
            remember_ends(point, [low], [high])
    names = [f"{topic.topic}: {', '.join(topic.words[:4])}" for topic in shown]
    panel.set_yticks(range(len(shown)), names, fontsize=7)
    panel.set_ylim(len(shown) - 0.4, -0.6)
    panel.set_xlabel("cosine of a topic's own words less that with other words; filled: encoded", fontsize=8)
    left = f" (the {len(shown)} at the ends of {len(ranked)})" if len(shown) < len(ranked) else ""
    panel.set_title(title + left, fontsize=10)
    return figure


def head_maps(
    models: Mapping[str, tuple[Float[np.ndarray, "layer head"], Bool[np.ndarray, "layer head"]]], *, title: str
) -> Figure:
    """log₂ of same- over different-topic attention of every head, a panel per model; a dot where it is significant.

    Significant means p < 0.05 by the permutation test whose p-values hold for all heads of a model together.
    """
    limit, beyond = colour_limit([values for values, _ in models.values()])
    shapes = [values.shape for values, _ in models.values()]
    # A panel is at least as wide as its title, and at least as high as two layers.
    columns, starts = range(min(len(shapes), COLUMNS)), range(0, len(shapes), COLUMNS)
    wide = [max(0.36 * max(heads for _, heads in shapes[place::COLUMNS]), 1.9) for place in columns]
    tall = [0.36 * max(2, *(layers for layers, _ in shapes[at : at + COLUMNS])) for at in starts]
    size = (sum(wide) + 0.5 * len(wide) + 1.6, sum(tall) + 1.1 * len(tall) + 0.9)
    figure, axes = _grid(title, size, len(models), width_ratios=wide, height_ratios=tall)
    for place, (panel, (name, (values, significant))) in enumerate(zip(axes, models.items(), strict=True)):
        image = panel.imshow(values, cmap=DIVERGING, vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest")
        layer, head = np.nonzero(significant)
        panel.plot(head, layer, "o", color="black", markersize=3)
        layers, heads = (range(0, count, 1 if count <= 12 else 4) for count in values.shape)
        panel.set_xticks(heads, [str(at + 1) for at in heads])
        panel.set_yticks(layers, [str(at + 1) for at in layers])
        panel.set_xlabel("head")
        counted = f"{significant.sum()} of {values.size} heads with p < 0.05"
        panel.set_title(f"{_folded(name, wide[place % COLUMNS])}\n{counted}", fontsize=9)
        if place % COLUMNS == 0:
            panel.set_ylabel("layer")
    ends = "both" if beyond else "neither"
    bar = figure.colorbar(image, ax=axes, shrink=0.9, aspect=20 * len(tall), extend=ends)
    bar.set_label("log₂ (same / different topic)", fontsize=8)
    dot = Line2D([], [], marker="o", color="black", markersize=3, linestyle="none")
    dot.set_label(f"p < {SIGNIFICANT}, for all heads of a model together")
    figure.legend(handles=[dot], loc="outside lower center", fontsize=8)
    return figure


def word_maps(models: Mapping[str, Float[np.ndarray, "word word"]], words: Sequence[str], *, title: str) -> Figure:
    """Similarity of every two words, a panel per model, the numbers written into the cells (Figure 3)."""
    side, columns, rows = 0.42 * len(words) + 0.3, min(len(models), COLUMNS), -(-len(models) // COLUMNS)
    figure, axes = _grid(title, (side * columns + 2.0, (side + 0.9) * rows + 0.4), len(models))
    for place, (panel, (name, values)) in enumerate(zip(axes, models.items(), strict=True)):
        image = panel.imshow(values, cmap=DIVERGING, vmin=-1, vmax=1, interpolation="nearest")
        for row, column in np.ndindex(*values.shape):
            shade = "white" if abs(values[row, column]) > 0.7 else "black"
            # Rounded first, so that what is practically 0 has no sign.
            text = f"{round(float(values[row, column]), 2) + 0.0:.2f}"
            panel.text(column, row, text, ha="center", va="center", fontsize=7, color=shade)
        panel.set_xticks(range(len(words)), words, rotation=45, ha="right", fontsize=8)
        # They are written once per row, because they are the same for all panels.
        panel.set_yticks(range(len(words)), words if place % COLUMNS == 0 else [""] * len(words), fontsize=8)
        panel.set_title(_folded(name, side), fontsize=9)
    figure.colorbar(image, ax=axes, shrink=0.8, aspect=20 * rows).set_label("cosine similarity", fontsize=8)
    return figure


def topic_maps(models: Mapping[str, TopicMap]) -> Figure:
    """Words of some topics in two dimensions, a panel per model, coloured by topic; the same words for all models."""
    topics = list(dict.fromkeys(next(iter(models.values())).topics))
    columns, rows = min(len(models), 2), -(-len(models) // 2)
    title = "Topic map: words in the two dimensions in which their embeddings' directions vary most"
    size = (5.2 * columns + 0.4, 4.6 * rows + 0.4 + 0.22 * -(-len(topics) // 3))
    figure, axes = panels(title, size, rows, columns, lines=None, letters=10)
    for spare in axes.ravel()[len(models) :]:
        spare.remove()
    for place, (panel, (name, drawn)) in enumerate(zip(axes.ravel(), models.items(), strict=False)):
        places, of_topic = np.array(drawn.places), np.array(drawn.topics)
        for topic, colour in zip(topics, itertools.cycle(PALETTE), strict=False):
            own = of_topic == topic
            label = None if place else topic
            panel.plot(*places[own].T, "o", color=colour, markersize=3, label=label)
            for (x, y), word in zip(places[own], np.array(drawn.words)[own], strict=True):
                panel.annotate(word, (x, y), (2, 2), textcoords="offset points", fontsize=6, color=colour)
        panel.set_title(f"{_folded(name, 4.5)}: {drawn.share:.0%} of the variance", fontsize=9)
        panel.set_xticks([])
        panel.set_yticks([])
        panel.margins(0.12, 0.08)
    figure.legend(loc="outside lower center", ncols=3, fontsize=7, title="topic: its first words", title_fontsize=7)
    return figure


def sink_maps(models: Mapping[str, Float[np.ndarray, "layer head"]]) -> Figure:
    """Attention that later tokens give to a decoder's first token, a panel per model; the same scale for all."""
    columns, rows = min(len(models), COLUMNS), -(-len(models) // COLUMNS)
    wide, tall = (max(shape[axis] for shape in (each.shape for each in models.values())) for axis in (1, 0))
    size = (max(0.36 * wide, 2.6) * columns + 1.6, (max(0.36 * tall, 1.0) + 1.0) * rows + 0.5)
    figure, axes = _grid("Attention sink: attention of later tokens to the first", size, len(models))
    for panel, (name, shares) in zip(axes, models.items(), strict=True):
        image = panel.imshow(shares, cmap="viridis", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
        layers, heads = (range(0, count, 1 if count <= 12 else 4) for count in shares.shape)
        panel.set_xticks(heads, [str(at + 1) for at in heads])
        panel.set_yticks(layers, [str(at + 1) for at in layers])
        panel.set_xlabel("head")
        panel.set_ylabel("layer")
        panel.set_title(f"{_folded(name, 2.4)}\n{shares.mean():.0%} on average", fontsize=9)
    figure.colorbar(image, ax=axes, shrink=0.9).set_label("share of attention", fontsize=8)
    return figure


def _grid(title: str, size: tuple[float, float], count: int, **ratios: Sequence[float]) -> tuple[Figure, list[Axes]]:
    """An empty figure, and so many panels in rows."""
    rows, columns = -(-count // COLUMNS), min(count, COLUMNS)
    figure, axes = panels(title, size, rows, columns, lines=None, letters=10, gridspec_kw=ratios)
    for spare in axes.ravel()[count:]:
        spare.remove()
    return figure, axes.ravel()[:count].tolist()


def _folded(name: str, inches: float) -> str:
    """A title in small letters, in lines that are no wider than its panel."""
    return "\n".join(textwrap.wrap(name, max(int(inches / 0.075), 10)))


def over_checkpoints(
    revisions: Sequence[str], measures: Mapping[str, Mapping[str, Sequence[Comparison]]], *, title: str
) -> Figure:
    """Ratios over the checkpoints of one model, a panel per measure, a line per threshold, intervals shaded.

    A measure that lacks a ratio somewhere is drawn as the difference, on a separate axis.
    """
    figure, [axes] = panels(title, (4.4 * len(measures), 3.6), 1, len(measures), letters=10)
    styles = ((BLUE, "o"), (ORANGE, "s"), (GREEN, "^"), (GREY, "v"))
    for panel, (measure, lines) in zip(axes, measures.items(), strict=True):
        every = [each for comparisons in lines.values() for each in comparisons]
        apart = any(map(is_difference, every))
        ends = ("difference", "difference_low", "difference_high") if apart else ("ratio", "low", "high")
        panel.axhline(0 if apart else 1, color=GREY, linestyle="--", linewidth=1.0)
        panel.set_ylabel("same − different topic" if apart else "same / different topic")
        for number, (name, comparisons) in enumerate(lines.items()):
            colour, marker = styles[number % len(styles)]
            value, low, high = (_numbers(comparisons, end) for end in ends)
            places = list(range(len(comparisons)))
            [line] = panel.plot(places, value, marker=marker, color=colour, label=name)
            between(panel, places, low, high, line)
        panel.set_xticks(range(len(revisions)), revisions, rotation=45, ha="right", fontsize=8)
        panel.set_xlabel("checkpoint")
        panel.set_title(LABELS.get(measure, measure), fontsize=9)
        # No axis where there is nothing to show.
        if all(each.ratio is None and each.difference is None for each in every):
            panel.text(0.5, 0.6, "not defined", transform=panel.transAxes, ha="center", va="center", color=GREY)
            panel.set_yticks([])
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", fontsize=8, title="threshold")
    return figure


def _numbers(comparisons: Sequence[Comparison], name: str) -> list[float]:
    """A field of each, with gaps where it is not defined."""
    return [_number(getattr(each, name)) for each in comparisons]


def _number(value: float | None) -> float:
    return math.nan if value is None else value
