"""Figures of the probe, from numbers: Table 1's layout, the map of heads, similarity of words, checkpoints."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from topicscope.report.figures import COLOURS
from topicscope.report.paper import BLUE, GREEN, GREY, ORANGE
from topicscope.report.ratio_axis import ratio_axis
from topicscope.report.rounding import with_interval

MEASURES = {"cosine": "cosine similarity", "dot": "dot product", "attention": "attention"}
SIGNIFICANT = "p < 0.05, for all heads of a model together"


@dataclass(frozen=True)
class Ratio:
    """A ratio with the ends of its interval; None where it is not defined, or was not measured with one."""

    value: float | None
    low: float | None = None
    high: float | None = None

    @property
    def has_interval(self) -> bool:
        """Whether both ends are known."""
        return self.low is not None and self.high is not None

    @property
    def text(self) -> str:
        """Short, for a table."""
        if self.value is None:
            return "–"
        if self.low is None or self.high is None:
            return f"{self.value:.3g}"
        return with_interval(self.value, self.low, self.high)


@dataclass(frozen=True)
class RatioRow:
    """A row of Table 1: a model, a threshold, and same- over different-topic averages by measure."""

    model: str
    fraction: float | None
    ratios: Mapping[str, Ratio]
    """By "cosine", "dot", "attention"."""


def ratio_text(rows: Sequence[RatioRow]) -> str:
    """Table 1's layout as text: a line a row, columns aligned."""
    cells = [["model", "threshold", *(f"{name} (same/different)" for name in MEASURES.values())]]
    for before, row in zip([None, *rows], rows, strict=False):
        model = "" if before and before.model == row.model else row.model
        fraction = "–" if row.fraction is None else f"{row.fraction:g}"
        cells.append([model, fraction, *(row.ratios[name].text for name in MEASURES)])
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def ratio_table(rows: Sequence[RatioRow], *, title: str, reference: Sequence[RatioRow] = ()) -> Figure:
    """Table 1 as a picture: a line a row, a panel a measure, ratios with 95 % intervals beside 1.

    ``reference``, if given, are the paper's numbers, drawn below as hollow diamonds: other models on other text.
    """
    every = [*((row, False) for row in rows), *((row, True) for row in reference)]
    figure = Figure(figsize=(12.0, 0.3 * len(every) + 1.9), layout="constrained")
    figure.suptitle(title, fontsize=10)
    panels = figure.subplots(1, len(MEASURES), sharey=True, squeeze=False)[0]
    for panel, (measure, name) in zip(panels, MEASURES.items(), strict=True):
        panel.axvline(1, color=GREY, linestyle="--", linewidth=1.0, label="no topic structure")
        for place, (row, printed) in enumerate(every):
            _draw_ratio(panel, row.ratios[measure], place, printed)
        panel.set_xscale("log")
        _plain_ticks(panel, [row.ratios[measure] for row, _ in every])
        panel.set_xlabel(f"{name}: same / different topic")
        panel.grid(axis="x", color="0.9", linewidth=0.5)
        if reference:
            panel.axhline(len(rows) - 0.5, color="0.6", linewidth=0.8, label="below: printed in the paper")
    labels = [f"{row.model}  {'own topics' if row.fraction is None else f'{row.fraction:g}'}" for row, _ in every]
    panels[0].set_yticks(range(len(every)), labels, fontsize=8)
    panels[0].set_ylim(len(every) - 0.4, -0.6)
    handles = [Line2D([], [], marker="o", color=BLUE, linestyle="-", label="measured here, 95 % interval")]
    if any(not each.has_interval for row in rows for each in row.ratios.values() if each.value is not None):
        hollow = Line2D([], [], marker="o", color=BLUE, markerfacecolor="none", linestyle="none")
        hollow.set_label("measured here, no interval: too few replicates have a pair")
        handles.append(hollow)
    if reference:
        shape = {"marker": "D", "markerfacecolor": "none", "color": ORANGE, "linestyle": "none"}
        handles.append(Line2D([], [], label="printed in the paper", **shape))  # type: ignore[arg-type]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=8)
    return figure


def _draw_ratio(panel: Axes, ratio: Ratio, place: int, printed: bool) -> None:
    if ratio.value is None:
        panel.text(1, place, " not defined", fontsize=7, va="center", color=GREY)
        return
    if printed:
        panel.plot([ratio.value], [place], "D", color=ORANGE, markerfacecolor="none", markersize=5, label="printed")
        return
    if ratio.low is None or ratio.high is None:
        panel.plot([ratio.value], [place], "o", color=BLUE, markerfacecolor="none", markersize=4.5, label="no interval")
        return
    panel.plot([ratio.low, ratio.high], [place, place], "-", color=BLUE, linewidth=1.6, label="95 % interval")
    panel.plot([ratio.value], [place], "o", color=BLUE, markersize=4.5, label="measured")


def _plain_ticks(panel: Axes, ratios: Sequence[Ratio]) -> None:
    ticks, ends = ratio_axis([end for each in ratios for end in (each.value, each.low, each.high)])
    panel.set_xticks(ticks, [f"{step:g}" for step in ticks])
    panel.minorticks_off()
    panel.set_xlim(*ends)


def head_maps(
    panels: Mapping[str, tuple[Float[np.ndarray, "layer head"], Bool[np.ndarray, "layer head"]]], *, title: str
) -> Figure:
    """log₂ of same- over different-topic attention of every head, a panel a model; a dot where it is significant.

    Significant: p < 0.05 by the permutation test whose p-values hold for all heads of a model together.
    """
    limit = max(
        (float(np.abs(values[np.isfinite(values)]).max(initial=0.1)) for values, _ in panels.values()), default=1.0
    )
    widths = [values.shape[1] for values, _ in panels.values()]
    tall = max(values.shape[0] for values, _ in panels.values())
    figure = Figure(figsize=(0.36 * sum(widths) + 1.2 * len(panels) + 1.6, 0.36 * tall + 2.0), layout="constrained")
    figure.suptitle(title, fontsize=10)
    axes = figure.subplots(1, len(panels), squeeze=False, width_ratios=widths)[0]
    for panel, (name, (values, significant)) in zip(axes, panels.items(), strict=True):
        image = panel.imshow(values, cmap=COLOURS, vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest")
        image.set_label("log₂ (same / different topic)")
        layer, head = np.nonzero(significant)
        panel.plot(head, layer, "o", color="black", markersize=3, label=SIGNIFICANT)
        layers, heads = values.shape
        panel.set_xticks(range(0, heads, 1 if heads <= 12 else 4), range(1, heads + 1, 1 if heads <= 12 else 4))
        panel.set_yticks(range(0, layers, 1 if layers <= 12 else 4), range(1, layers + 1, 1 if layers <= 12 else 4))
        panel.set_xlabel("head")
        panel.set_title(f"{name}\n{significant.sum()} of {values.size} heads with p < 0.05", fontsize=9)
    axes[0].set_ylabel("layer")
    figure.colorbar(image, ax=axes, shrink=0.9).set_label("log₂ (same / different topic)", fontsize=8)
    dot = Line2D([], [], marker="o", color="black", markersize=3, linestyle="none", label=SIGNIFICANT)
    figure.legend(handles=[dot], loc="outside lower center", fontsize=8)
    return figure


def word_maps(panels: Mapping[str, Float[np.ndarray, "word word"]], words: Sequence[str], *, title: str) -> Figure:
    """Similarity of every two words, a panel a model, the numbers written into the cells (Figure 3)."""
    side = 0.52 * len(words) + 1.6
    figure = Figure(figsize=(side * len(panels) + 0.6, side), layout="constrained")
    figure.suptitle(title, fontsize=10)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for panel, (name, values) in zip(axes, panels.items(), strict=True):
        image = panel.imshow(values, cmap=COLOURS, vmin=-1, vmax=1, interpolation="nearest")
        for row, column in np.ndindex(*values.shape):
            shade = "white" if abs(values[row, column]) > 0.7 else "black"
            # Rounded first: what is as good as 0 has no sign.
            text = f"{round(float(values[row, column]), 2) + 0.0:.2f}"
            panel.text(column, row, text, ha="center", va="center", fontsize=7, color=shade)
        panel.set_xticks(range(len(words)), words, rotation=45, ha="right", fontsize=8)
        panel.set_yticks(range(len(words)), words, fontsize=8)
        panel.set_title(name, fontsize=9)
    figure.colorbar(image, ax=axes, shrink=0.8).set_label("cosine similarity", fontsize=8)
    return figure


def over_checkpoints(
    revisions: Sequence[str], measures: Mapping[str, Mapping[str, Sequence[Ratio]]], *, title: str
) -> Figure:
    """Ratios over the checkpoints of one model, a panel a measure, a line a threshold, intervals shaded."""
    figure = Figure(figsize=(4.4 * len(measures), 3.6), layout="constrained")
    figure.suptitle(title, fontsize=10)
    axes = figure.subplots(1, len(measures), squeeze=False)[0]
    styles = ((BLUE, "o"), (ORANGE, "s"), (GREEN, "^"), (GREY, "v"))
    for panel, (measure, lines) in zip(axes, measures.items(), strict=True):
        panel.axhline(1, color=GREY, linestyle="--", linewidth=1.0, label="_no topic structure")
        for number, (name, ratios) in enumerate(lines.items()):
            colour, marker = styles[number % len(styles)]
            value, low, high = (_numbers(ratios, end) for end in ("value", "low", "high"))
            places = np.arange(len(ratios))
            panel.fill_between(places, low, high, color=colour, alpha=0.2, linewidth=0, label=f"_{name}: 95 % interval")
            panel.plot(places, value, marker=marker, color=colour, label=name)
        panel.set_xticks(range(len(revisions)), revisions, rotation=45, ha="right", fontsize=8)
        panel.set_xlabel("checkpoint")
        panel.set_title(MEASURES.get(measure, measure), fontsize=9)
        panel.grid(color="0.9", linewidth=0.5)
        if all(each.value is None for ratios in lines.values() for each in ratios):
            _nothing(panel)
    axes[0].set_ylabel("same / different topic")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", fontsize=8, title="threshold")
    return figure


def _nothing(panel: Axes) -> None:
    """No axis where there is nothing to measure on it."""
    panel.text(0.5, 0.6, "not defined", transform=panel.transAxes, ha="center", va="center", color=GREY)
    panel.set_yticks([])


def _numbers(ratios: Sequence[Ratio], end: str) -> list[float]:
    """Gaps in the line where a ratio is not defined."""
    return [math.nan if (value := getattr(each, end)) is None else float(value) for each in ratios]
