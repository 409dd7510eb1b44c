"""Writes the part on training of docs/performance.md, and its figure: ``python benchmarks/performance.py``; minutes."""

import platform
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import torch

from pages import DOCS, write_part
from step_costs import Growth, Point, growth
from step_times import ENSEMBLE_SEEDS, bench
from step_times import comparison as cells

TITLES = {
    "huggingface": "Hugging Face `BertForMaskedLM`, one layer",
    "reference": "reference engine",
    "bag": "bag engine",
    "ensemble": f"bag engine, {ENSEMBLE_SEEDS} seeds in one tensor, per seed",
}
AXES = {
    "length": "words per document, N",
    "vocabulary": "vocabulary, V",
    "layers": "layers",
}


def main() -> None:
    compared = bench(rounds=40)
    grown = growth(report=print)
    draw(grown, DOCS / "performance.svg")
    write_part("training", page(compared, grown))


def page(compared: dict[str, Any], grown: Growth) -> str:
    sections = [
        "## Training\n",
        "Written by `benchmarks/performance.py`; do not edit. "
        f"torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}, one thread. "
        "Times are the processor's: what a clock shows on a machine with nothing else to do. "
        "Absolute speeds belong to the machine; ratios are what to read.\n",
        "### A training step of the paper's setting\n",
        "Batch 40, V = 101, documents of 100–150 words, W^K, W^Q, W^V trained, one-hot embeddings frozen, "
        "cross-entropy, Adam. All four take turns in one process on the same documents; medians over "
        f"{compared['rounds']} turns, quartiles in brackets. Laying out documents (padding, counting) is apart. "
        "The Hugging Face model also has a feed-forward layer, LayerNorms and positions: "
        "like for like is the bag engine against the reference.\n",
        comparison(compared),
        "### How the cost grows\n",
        "![Cost of a step by length, vocabulary and layers](performance.svg)\n",
        growth_table("Length: the same distinct tokens and queries, counting apart", "N", grown.length),
        growth_table("Vocabulary: one layer, trained embeddings of width 128", "V", grown.vocabulary),
        growth_table("Layers: trained embeddings of width 64, V = 101", "layers", grown.layers),
    ]
    return "\n".join(sections)


def comparison(compared: dict[str, Any]) -> str:
    lines = [
        "| | steps/s | × Hugging Face | × reference | matrix products | fresh documents | peak memory |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, title in TITLES.items():
        speed, times, to_reference, products, memory = cells(compared, name)
        fresh = f"{compared['fresh_document_fraction'][name]:.0%}"
        lines.append(f"| {' | '.join((title, speed, times, to_reference, products, fresh, memory))} |")
    legend = (
        "\n*Matrix products*: their share of a step, the floor. *Fresh documents*: the share of drawing, masking and "
        "laying out when every step has new documents. *Peak memory*: what the model, its batches and two steps add, "
        "all seeds together.\n"
    )
    return "\n".join(lines) + "\n" + legend


def growth_table(title: str, size: str, points: list[Point]) -> str:
    lines = [f"**{title}**\n", f"| {size} | bag, ms | reference, ms |", "|---:|---:|---:|"]
    for point in points:
        slow = "–" if point.reference is None else f"{point.reference * 1e3:,.1f}"
        lines.append(f"| {point.size:,} | {point.bag * 1e3:,.2f} | {slow} |")
    return "\n".join(lines) + "\n"


def draw(grown: Growth, path: Path) -> None:
    figure, panels = plt.subplots(1, 3, figsize=(10, 3), layout="constrained", sharey=True)
    for panel, (name, title) in zip(panels, AXES.items(), strict=True):
        points: list[Point] = getattr(grown, name)
        measured = [point for point in points if point.reference is not None]
        panel.plot([p.size for p in measured], [(p.reference or 0) * 1e3 for p in measured], "s--", label="reference")
        panel.plot([p.size for p in points], [p.bag * 1e3 for p in points], "o-", label="bag engine")
        panel.set(xlabel=title, yscale="log", xscale="linear" if name == "layers" else "log")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("a step, milliseconds")
    panels[0].legend(frameon=False)
    # No date and no random names in the file: the same numbers give the same figure.
    with plt.rc_context({"svg.hashsalt": "topicscope"}):
        figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
