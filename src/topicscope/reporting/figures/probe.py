"""Figures of the probe, from numbers: Table 1's layout, the map of heads, similarity of words, checkpoints."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from topicscope.files import Row, write_atomically
from topicscope.records import SIGNIFICANT
from topicscope.reporting.answer import answering, is_encoded, model_label
from topicscope.reporting.figures import BLUE, DIVERGING, GREEN, GREY, ORANGE, Drawn, save_figure
from topicscope.reporting.rounding import comparison_text

# Comparisons of a row of probe.json, and what a table calls them; figures have room for more.
MEASURES = {"cosine": "cosine", "dot": "dot product", "attention": "attention"}
LABELS = {**MEASURES, "cosine": "cosine similarity"}
TOPICS = {"one": "one topic a word", "several": "several topics a word"}

# A comparison's ratio and difference, each before the ends of its interval.
NUMBERS = ("ratio", "low", "high", "difference", "difference_low", "difference_high")

# What the signs of a table mean.
SIGNS = {
    "Δ": "same − different topic [95 % interval], where there is no ratio, as the average over different topics is not "
    "clearly above 0",
    "–": "no pair to average over",
}


# Ticks of a logarithmic axis of ratios.
STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10, 20, 50, 100, 200, 500, 1000)

# Topics of a ranking: those at its two ends.
MOST_SHOWN = 60

# Panels of models in a row.
COLUMNS = 4


@dataclass(frozen=True)
class RatioRow:
    """A row of Table 1: a model, a threshold, and same- over different-topic averages by measure."""

    model: str
    fraction: float | None
    ratios: Mapping[str, Mapping[str, Any]]
    """By "cosine", "dot", "attention": comparisons as in probe.json; the paper's have a ratio alone."""


def draw(rows: Sequence[Row], maps: Sequence[Row], folder: Path) -> list[Path]:
    """Table 1 as text and picture, the map of heads, the words' cosines, and topic structure over checkpoints.

    rows, maps: of probe.json and words.json.
    """
    folder.mkdir(exist_ok=True)
    written: list[Path] = []
    for assignment in dict.fromkeys(row["assignment"] for row in rows):
        for embedding in dict.fromkeys(row["embedding"] for row in rows):
            table = [_ratios(row) for row in _chosen(rows, assignment, embedding)]
            name = f"ratios-{assignment}-{embedding}"
            write_atomically(folder / f"{name}.txt", ratio_text(table) + "\n")
            title = f"Same- over different-topic averages, {TOPICS[assignment]}, embedding: {embedding}"
            written += [folder / f"{name}.txt", *save_figure(ratio_table(table, title=title), folder / name)]
    answered = answering(rows)
    deep = {model_label(row): row for row in answered if row.get("hidden_by_layer")}
    if deep:
        written += save_figure(depth(deep), folder / "depth")
    for number, row in enumerate(row for row in answered if row.get("by_topic")):
        title = f"{model_label(row)}: which topics are encoded"
        written += save_figure(topic_ranking(row["by_topic"], title=title), folder / f"topics-{number + 1}")
    assignment = rows[0]["assignment"]
    first = _chosen(rows, assignment, rows[0]["embedding"])
    for fraction in dict.fromkeys(row["fraction"] for row in first):
        panels = {}
        for row in first:
            if row["fraction"] == fraction:
                heads = row["attention_by_layer_head"]
                ratio = np.array([_numbers(layer, "ratio") for layer in heads])
                p = np.array([[1.0 if head["p"] is None else head["p"] for head in layer] for layer in heads])
                with np.errstate(divide="ignore", invalid="ignore"):
                    panels[model_label(row)] = (np.log2(ratio), p < SIGNIFICANT)
        shown = "own topics" if fraction is None else f"threshold {fraction:g}"
        title = f"Attention by head, same over different topic, {shown}, {TOPICS[assignment]}"
        written += save_figure(head_maps(panels, title=title), folder / f"heads-{_threshold(fraction)}")
    # A figure for each list of words: tokenizers may keep different ones of the paper's nine.
    for number, words in enumerate(dict.fromkeys(tuple(each["words"]) for each in maps)):
        cosines = {each["model"]: np.array(each["cosine"]) for each in maps if tuple(each["words"]) == words}
        figure = word_maps(cosines, words, title="Cosine similarity of word embeddings (Figure 3)")
        written += save_figure(figure, folder / (f"words-{number + 1}" if number else "words"))
    models = [model for model, _ in dict.fromkeys((row["model"], row["revision"]) for row in rows)]
    several = [model for model in dict.fromkeys(models) if models.count(model) > 1]
    for number, model in enumerate(several):
        chosen = _chosen([row for row in rows if row["model"] == model], assignment, "matrix")
        revisions = list(dict.fromkeys(row["revision"] for row in chosen))
        fractions = dict.fromkeys(row["fraction"] for row in chosen)
        lines = {
            measure: {
                _threshold(fraction): [
                    row[measure]
                    for revision in revisions
                    for row in chosen
                    if row["revision"] == revision and row["fraction"] == fraction
                ]
                for fraction in fractions
            }
            for measure in MEASURES
        }
        figure = over_checkpoints(revisions, lines, title=f"Topic structure over the training of {model}")
        written += save_figure(figure, folder / (f"checkpoints-{number + 1}" if number else "checkpoints"))
    return written


def _chosen(rows: Sequence[Row], assignment: str, embedding: str) -> list[Row]:
    wanted = {"assignment": assignment, "embedding": embedding, "centred": False}
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def _ratios(row: Row) -> RatioRow:
    return RatioRow(model_label(row), row["fraction"], {name: row[name] for name in MEASURES})


def ratio_text(rows: Sequence[RatioRow]) -> str:
    """Table 1's layout as text: a line per row, columns aligned; then what its signs mean."""
    cells = [["model", "threshold", *(f"{name} (same/different)" for name in LABELS.values())]]
    for before, row in zip([None, *rows], rows, strict=False):
        model = "" if before and before.model == row.model else row.model
        cells.append([model, _threshold(row.fraction), *(_cell(row.ratios[name]) for name in MEASURES)])
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    signs = [f"{sign}: {meaning}." for sign, meaning in SIGNS.items() if sign in "".join(lines)]
    return "\n".join(
        [lines[0], "  ".join("-" * width for width in widths), *lines[1:], *([""] if signs else []), *signs]
    )


def _cell(ratio: Mapping[str, Any]) -> str:
    """Short, for a table: a ratio without a whole interval stands alone."""
    bare = ratio["ratio"] is not None and not has_interval(ratio)
    return f"{ratio['ratio']:.3g}" if bare else comparison_text(ratio)


def has_interval(ratio: Mapping[str, Any]) -> bool:
    """Whether a ratio and both ends of its interval are known."""
    return all(ratio.get(name) is not None for name in ("ratio", "low", "high"))


def is_difference(ratio: Mapping[str, Any]) -> bool:
    """Whether a difference stands where there is no ratio."""
    return ratio.get("ratio") is None and ratio.get("difference") is not None


def _threshold(fraction: float | None) -> str:
    return "own" if fraction is None else f"{fraction:g}"


def ratio_table(rows: Sequence[RatioRow], *, title: str, reference: Sequence[RatioRow] = ()) -> Drawn:
    """Table 1 as a picture: a line per row, a panel per measure, ratios with 95 % intervals beside 1.

    ``reference``, if given, are the paper's numbers, drawn below as hollow diamonds: other models on other text.
    """
    every = [*((row, False) for row in rows), *((row, True) for row in reference)]
    figure = Figure(figsize=(12.0, 0.3 * len(every) + 1.9), layout="constrained")
    figure.suptitle(title, fontsize=10)
    panels = figure.subplots(1, len(MEASURES), sharey=True, squeeze=False)[0]
    for panel, (measure, name) in zip(panels, LABELS.items(), strict=True):
        panel.axvline(1, color=GREY, linestyle="--", linewidth=1.0)
        panel.set_xscale("log")
        _plain_ticks(panel, [row.ratios[measure] for row, _ in every])
        for place, (row, printed) in enumerate(every):
            _draw_ratio(panel, row.ratios[measure], place, printed)
        panel.set_xlabel(f"{name}: same / different topic")
        panel.grid(axis="x", color="0.9", linewidth=0.5)
        if reference:
            panel.axhline(len(rows) - 0.5, color="0.6", linewidth=0.8)
    labels = [f"{row.model}  {'own topics' if row.fraction is None else f'{row.fraction:g}'}" for row, _ in every]
    panels[0].set_yticks(range(len(every)), labels, fontsize=8)
    panels[0].set_ylim(len(every) - 0.4, -0.6)
    handles = [Line2D([], [], marker="o", color=BLUE, linestyle="-", label="measured here, 95 % interval")]
    if any(not has_interval(each) for row in rows for each in row.ratios.values() if each["ratio"] is not None):
        hollow = Line2D([], [], marker="o", color=BLUE, markerfacecolor="none", linestyle="none")
        hollow.set_label("measured here, no interval: too few replicates have a pair")
        handles.append(hollow)
    if any(is_difference(each) for row in rows for each in row.ratios.values()):
        handles.append(Line2D([], [], linestyle="none", label="Δ: same − different topic, where there is no ratio"))
    if reference:
        shape = {"marker": "D", "markerfacecolor": "none", "color": ORANGE, "linestyle": "none"}
        handles.append(Line2D([], [], label="printed in the paper", **shape))  # type: ignore[arg-type]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=8)
    table = [
        {
            "model": row.model,
            "threshold": _threshold(row.fraction),
            "measure": name,
            "source": "paper" if printed else "measured",
            **{name: row.ratios[measure].get(name) for name in (*NUMBERS, "p")},
        }
        for measure, name in LABELS.items()
        for row, printed in every
    ]
    return Drawn(figure, table)


def _draw_ratio(panel: Axes, ratio: Mapping[str, Any], place: int, printed: bool) -> None:
    value = ratio["ratio"]
    if value is None:
        _write(panel, comparison_text(ratio) if is_difference(ratio) else "no pair", place)
    elif value <= 0:
        _write(panel, f"{_cell(ratio)}, off this axis", place)
    elif printed:
        panel.plot([value], [place], "D", color=ORANGE, markerfacecolor="none", markersize=5)
    elif not has_interval(ratio):
        panel.plot([value], [place], "o", color=BLUE, markerfacecolor="none", markersize=4.5)
    else:
        panel.plot([ratio["low"], ratio["high"]], [place, place], "-", color=BLUE, linewidth=1.6)
        panel.plot([value], [place], "o", color=BLUE, markersize=4.5)


def _write(panel: Axes, text: str, place: int) -> None:
    """Beside the line at 1, on the side that has more room."""
    low, high = np.log(panel.get_xlim())
    side = "left" if -low < 0.55 * (high - low) else "right"
    panel.text(1, place, f"  {text}  ", fontsize=7, va="center", ha=side)


def _plain_ticks(panel: Axes, ratios: Sequence[Mapping[str, Any]]) -> None:
    ticks, ends = ratio_axis([each.get(end) for each in ratios for end in ("ratio", "low", "high")])
    panel.set_xticks(ticks, [f"{step:g}" for step in ticks])
    panel.minorticks_off()
    panel.set_xlim(*ends)


def ratio_axis(numbers: Sequence[float | None]) -> tuple[list[float], tuple[float, float]]:
    """Ticks and ends of an axis that has room for all of these numbers above 0, and for 1.

    Ticks are whole factors: a logarithmic axis would label powers of ten alone.
    """
    ends = [number for number in numbers if number is not None and np.isfinite(number) and number > 0]
    low, high = min([*ends, 0.9]), max([*ends, 1.1])
    ticks = [step for step in STEPS if low / 1.3 <= step <= high * 1.3]
    if high / low < 2.2:
        even = np.arange(0.4, 2.55, 0.1 if high / low < 1.7 else 0.2)
        ticks = [step for step in np.round(even, 2).tolist() if low / 1.06 <= step <= high * 1.06]
    return [float(tick) for tick in ticks], (low / 1.08, high * 1.08)


def colour_limit(panels: Sequence[Float[np.ndarray, "_ _"]]) -> tuple[float, bool]:
    """The end of a scale about 0 that one extreme head does not wash out, and whether some heads are beyond it.

    Twice the size that nine heads in ten stay below, or the largest there is.
    """
    sizes = np.concatenate([np.abs(each[np.isfinite(each)]).ravel() for each in panels] or [np.zeros(0)])
    if not len(sizes):
        return 1.0, False
    limit = max(0.1, min(float(sizes.max()), 2 * float(np.quantile(sizes, 0.9))))
    return limit, bool(sizes.max() > limit)


def depth(models: Mapping[str, Row]) -> Drawn:
    """Where along the depth topics are, all models on one axis: AUC of hidden states, and the ratio of attention.

    models: rows of probe.json by the models' names. Layer 0 is the embedding layer's output.
    """
    figure = Figure(figsize=(9.0, 3.6), layout="constrained")
    states, attention = figure.subplots(1, 2)
    states.axhline(0.5, color=GREY, linestyle="--", linewidth=1.0)
    attention.axhline(1.0, color=GREY, linestyle="--", linewidth=1.0)
    table = []
    for place, (name, row) in enumerate(models.items()):
        colour = f"C{place % 10}"
        hidden = [each["centred_cosine"] for each in row["hidden_by_layer"]]
        middle, low, high = (_numbers(hidden, each) for each in ("auc", "auc_low", "auc_high"))
        layers = np.arange(len(hidden))
        states.plot(layers, middle, "o-", color=colour, markersize=4, label=name)
        states.fill_between(layers, low, high, color=colour, alpha=0.2, linewidth=0)
        table += [
            {
                "model": name,
                "measure": "hidden states",
                "layer": layer,
                "auc": value,
                **_ends(each, "auc_low", "auc_high"),
            }
            for layer, (value, each) in enumerate(zip(middle, hidden, strict=True))
        ]
        by_layer = row.get("attention_by_layer") or []
        ratio, low, high = (_numbers(by_layer, each) for each in ("ratio", "low", "high"))
        layers = 1 + np.arange(len(by_layer))
        attention.plot(layers, ratio, "o-", color=colour, markersize=4)
        attention.fill_between(layers, low, high, color=colour, alpha=0.2, linewidth=0)
        table += [
            {"model": name, "measure": "attention", "layer": layer + 1, "ratio": value, **_ends(each, "low", "high")}
            for layer, (value, each) in enumerate(zip(ratio, by_layer, strict=True))
        ]
    states.set_ylabel("AUC, same against different topic")
    states.set_title("hidden states, words of different passages", fontsize=9)
    attention.set_ylabel("attention, same / different topic")
    attention.set_title("attention, all heads of a layer", fontsize=9)
    for panel in (states, attention):
        panel.set_xlabel("layer")
        panel.xaxis.get_major_locator().set_params(integer=True)
        panel.grid(color="0.92", linewidth=0.5)
    figure.suptitle("Where along the depth topics are, with 95 % intervals", fontsize=10)
    figure.legend(loc="outside lower center", ncols=3, fontsize=8)
    return Drawn(figure, table)


def _ends(comparison: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return dict(zip(("low", "high"), (comparison.get(name) for name in names), strict=True))


def topic_ranking(topics: Sequence[Row], *, title: str) -> Drawn:
    """Each topic's difference in the embeddings' cosines with its interval, the largest first; filled if encoded."""
    ranked = sorted(topics, key=lambda each: -(each["cosine"].get("difference") or 0.0))
    shown = ranked if len(ranked) <= MOST_SHOWN else [*ranked[: MOST_SHOWN // 2], *ranked[-MOST_SHOWN // 2 :]]
    figure = Figure(figsize=(8.0, 0.2 * len(shown) + 1.2), layout="constrained")
    panel = figure.subplots()
    panel.axvline(0, color=GREY, linestyle="--", linewidth=1.0)
    for place, each in enumerate(shown):
        found = each["cosine"]
        if found.get("difference_low") is not None:
            panel.plot(
                [found["difference_low"], found["difference_high"]], [place, place], "-", color=BLUE, linewidth=1.2
            )
        face = BLUE if is_encoded(found) else "white"
        panel.plot([found.get("difference")], [place], "o", color=BLUE, markerfacecolor=face, markersize=4)
    panel.set_yticks(range(len(shown)), [topic_name(each) for each in shown], fontsize=7)
    panel.set_ylim(len(shown) - 0.4, -0.6)
    panel.set_xlabel("cosine of a topic's own words less that with other words; filled: encoded", fontsize=8)
    left = f" (the {len(shown)} at the ends of {len(ranked)})" if len(shown) < len(ranked) else ""
    panel.set_title(title + left, fontsize=10)
    table = [
        {
            "topic": each["topic"],
            "words": " ".join(each["words"]),
            **{name: each["cosine"].get(name) for name in (*NUMBERS, "p", "q")},
        }
        for each in ranked
    ]
    return Drawn(figure, table)


def topic_name(topic: Row) -> str:
    """A topic by its number or name and its first words."""
    return f"{topic['topic']}: {', '.join(topic['words'][:4])}"


def head_maps(
    panels: Mapping[str, tuple[Float[np.ndarray, "layer head"], Bool[np.ndarray, "layer head"]]], *, title: str
) -> Drawn:
    """log₂ of same- over different-topic attention of every head, a panel per model; a dot where it is significant.

    Significant: p < 0.05 by the permutation test whose p-values hold for all heads of a model together.
    """
    limit, beyond = colour_limit([values for values, _ in panels.values()])
    shapes = [values.shape for values, _ in panels.values()]
    # At least as wide as what is written above a panel, at least as high as two layers.
    wide = [
        max(0.36 * max(heads for _, heads in shapes[place::COLUMNS]), 1.9) for place in range(min(len(shapes), COLUMNS))
    ]
    tall = [0.36 * max(2, *(each for each, _ in shapes[at : at + COLUMNS])) for at in range(0, len(shapes), COLUMNS)]
    figure = Figure(
        figsize=(sum(wide) + 0.5 * len(wide) + 1.6, sum(tall) + 1.1 * len(tall) + 0.9), layout="constrained"
    )
    figure.suptitle(title, fontsize=10)
    axes = _grid(figure, len(panels), width_ratios=wide, height_ratios=tall)
    for place, (panel, (name, (values, significant))) in enumerate(zip(axes, panels.items(), strict=True)):
        image = panel.imshow(values, cmap=DIVERGING, vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest")
        layer, head = np.nonzero(significant)
        panel.plot(head, layer, "o", color="black", markersize=3)
        layers, heads = (range(0, count, 1 if count <= 12 else 4) for count in values.shape)
        panel.set_xticks(heads, [str(at + 1) for at in heads])
        panel.set_yticks(layers, [str(at + 1) for at in layers])
        panel.set_xlabel("head")
        panel.set_title(
            f"{_folded(name, wide[place % COLUMNS])}\n{significant.sum()} of {values.size} heads with p < 0.05",
            fontsize=9,
        )
        if place % COLUMNS == 0:
            panel.set_ylabel("layer")
    ends = "both" if beyond else "neither"
    figure.colorbar(image, ax=axes, shrink=0.9, aspect=20 * len(tall), extend=ends).set_label(
        "log₂ (same / different topic)", fontsize=8
    )
    dot = Line2D(
        [],
        [],
        marker="o",
        color="black",
        markersize=3,
        linestyle="none",
        label=f"p < {SIGNIFICANT}, for all heads of a model together",
    )
    figure.legend(handles=[dot], loc="outside lower center", fontsize=8)
    table = [
        {"model": name, "layer": layer + 1, "head": head + 1, "log2_ratio": float(value), "significant": found}
        for name, (values, significant) in panels.items()
        for ((layer, head), value), found in zip(
            np.ndenumerate(values), np.where(significant, "yes", "no").ravel(), strict=True
        )
    ]
    return Drawn(figure, table)


def word_maps(panels: Mapping[str, Float[np.ndarray, "word word"]], words: Sequence[str], *, title: str) -> Drawn:
    """Similarity of every two words, a panel per model, the numbers written into the cells (Figure 3)."""
    side, columns = 0.42 * len(words) + 0.3, min(len(panels), COLUMNS)
    rows = -(-len(panels) // COLUMNS)
    figure = Figure(figsize=(side * columns + 2.0, (side + 0.9) * rows + 0.4), layout="constrained")
    figure.suptitle(title, fontsize=10)
    axes = _grid(figure, len(panels))
    for place, (panel, (name, values)) in enumerate(zip(axes, panels.items(), strict=True)):
        image = panel.imshow(values, cmap=DIVERGING, vmin=-1, vmax=1, interpolation="nearest")
        for row, column in np.ndindex(*values.shape):
            shade = "white" if abs(values[row, column]) > 0.7 else "black"
            # Rounded first: what is as good as 0 has no sign.
            text = f"{round(float(values[row, column]), 2) + 0.0:.2f}"
            panel.text(column, row, text, ha="center", va="center", fontsize=7, color=shade)
        panel.set_xticks(range(len(words)), words, rotation=45, ha="right", fontsize=8)
        # Once per row: they are the same for all.
        panel.set_yticks(range(len(words)), words if place % COLUMNS == 0 else [""] * len(words), fontsize=8)
        panel.set_title(_folded(name, side), fontsize=9)
    figure.colorbar(image, ax=axes, shrink=0.8, aspect=20 * rows).set_label("cosine similarity", fontsize=8)
    table = [
        {"model": name, "word": word, "other_word": other, "cosine": cosine}
        for name, values in panels.items()
        for word, line in zip(words, values.tolist(), strict=True)
        for other, cosine in zip(words, line, strict=True)
    ]
    return Drawn(figure, table)


def _grid(figure: Figure, count: int, **ratios: Sequence[float]) -> list[Axes]:
    """Panels in rows."""
    rows, columns = -(-count // COLUMNS), min(count, COLUMNS)
    axes = figure.subplots(rows, columns, squeeze=False, gridspec_kw=ratios).ravel().tolist()
    for spare in axes[count:]:
        spare.remove()
    return axes[:count]


def _folded(name: str, inches: float) -> str:
    """A title of small letters in lines that are no wider than its panel."""
    return "\n".join(textwrap.wrap(name, max(int(inches / 0.075), 10)))


def over_checkpoints(
    revisions: Sequence[str], measures: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]], *, title: str
) -> Drawn:
    """Ratios over the checkpoints of one model, a panel per measure, a line per threshold, intervals shaded.

    A measure that lacks a ratio somewhere is drawn as the difference, on an axis of its own.
    """
    figure = Figure(figsize=(4.4 * len(measures), 3.6), layout="constrained")
    figure.suptitle(title, fontsize=10)
    axes = figure.subplots(1, len(measures), squeeze=False)[0]
    styles = ((BLUE, "o"), (ORANGE, "s"), (GREEN, "^"), (GREY, "v"))
    table: list[Row] = []
    for panel, (measure, lines) in zip(axes, measures.items(), strict=True):
        every = [each for ratios in lines.values() for each in ratios]
        apart = any(map(is_difference, every))
        ends = NUMBERS[3:] if apart else NUMBERS[:3]
        panel.axhline(0 if apart else 1, color=GREY, linestyle="--", linewidth=1.0)
        panel.set_ylabel("same − different topic" if apart else "same / different topic")
        for number, (name, ratios) in enumerate(lines.items()):
            colour, marker = styles[number % len(styles)]
            value, low, high = (_numbers(ratios, end) for end in ends)
            places = np.arange(len(ratios))
            panel.fill_between(places, low, high, color=colour, alpha=0.2, linewidth=0)
            panel.plot(places, value, marker=marker, color=colour, label=name)
            shown = {"measure": LABELS.get(measure, measure), "shown": ends[0]}
            table += [
                {**shown, "threshold": name, "checkpoint": revision, "value": middle, "low": least, "high": most}
                for revision, middle, least, most in zip(revisions, value, low, high, strict=False)
            ]
        panel.set_xticks(range(len(revisions)), revisions, rotation=45, ha="right", fontsize=8)
        panel.set_xlabel("checkpoint")
        panel.set_title(LABELS.get(measure, measure), fontsize=9)
        panel.grid(color="0.9", linewidth=0.5)
        if all(each.get(name) is None for each in every for name in ("ratio", "difference")):
            _nothing(panel)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", fontsize=8, title="threshold")
    return Drawn(figure, table)


def _nothing(panel: Axes) -> None:
    """No axis where there is nothing to measure on it."""
    panel.text(0.5, 0.6, "not defined", transform=panel.transAxes, ha="center", va="center", color=GREY)
    panel.set_yticks([])


def _numbers(ratios: Sequence[Mapping[str, Any]], end: str) -> list[float]:
    """Gaps in the line where a ratio is not defined."""
    return [math.nan if (value := each.get(end)) is None else float(value) for each in ratios]
