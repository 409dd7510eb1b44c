"""Writes the part on training of docs/performance.md, and its figure: ``python benchmarks/training_steps.py``; minutes.

A step of the same documents is computed in different ways, side by side: Hugging Face, our reference, the bag engine
and eight seeds of it at once run in one process on one thread, taking turns, so that whatever else the machine does
affects all of them alike. Then steps of growing length, vocabulary and depth. Ratios are what to read; absolute speeds
belong to the machine.
"""

import dataclasses
import platform
import re
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch

from topicscope.model.transformer import padded_batch
from topicscope.settings import Data, Model, Part, Settings, Training
from topicscope.settings.training import Engine
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.synthetic.topics import TopicModel
from topicscope.training.batches import BatchStream
from topicscope.training.engines import make_engine
from topicscope.training.loop import Trainer, torch_threads

DOCS = Path(__file__).parent.parent / "docs"
TITLES = {
    "huggingface": "Hugging Face `BertForMaskedLM`, one layer",
    "reference": "reference engine",
    "bag": "bag engine",
    "ensemble": "bag engine, 8 seeds in one tensor, per seed",
}
ENSEMBLE_SEEDS = 8
# Steps of a turn: the fast ones take more, so that turns last long enough for the clock.
TURN = {"huggingface": 1, "reference": 1, "bag": 16, "ensemble": 8}

# The paper's setting with all of W^K, W^Q, W^V trained: one layer, one-hot embeddings, no biases, Adam, batch 40.
_ZERO = Part(start="zero", train=False)
PAPER = Settings(
    data=Data(fresh=True),
    model=Model(
        embedding=Part(start="identity", train=False),
        key_bias=_ZERO,
        query_bias=_ZERO,
        value_bias=_ZERO,
        prediction_bias=_ZERO,
    ),
    training=Training(validate_every=0, snapshots=0),
)

# What grows: sizes, the largest of which the reference is measured, the title of its table and of its axis.
GROWTH = {
    "length": (
        (100, 300, 1_000, 3_000, 10_000),
        1_000,
        "Length: the same distinct tokens and queries, counting apart",
        "words per document, N",
    ),
    "vocabulary": (
        (101, 501, 2_001, 5_001, 20_001),
        5_001,
        "Vocabulary: one layer, trained embeddings of width 128",
        "vocabulary, V",
    ),
    "layers": ((1, 2, 3, 4), 4, "Layers: trained embeddings of width 64, V = 101", "layers"),
}
REPEATS = 7


class Ours:
    """One of our engines, for one or more seeds in one tensor."""

    def __init__(self, settings: Settings, engine: Engine, seeds: int = 1) -> None:
        settings = dataclasses.replace(settings, training=dataclasses.replace(settings.training, engine=engine))
        self.seeds = seeds
        self.trainer = Trainer(make_engine(settings, range(seeds), TopicModel.from_settings(settings.documents)))
        self.trainer.engine.enter(0)

    def prepare(self, members: Iterable[MaskedDocuments], steps: int) -> list[Any]:
        """Count or pad the documents."""
        return self.trainer.engine.prepare(members, steps)

    def step(self, batch: Any) -> None:
        """One step as in the training loop, without what it records."""
        losses = self.trainer.engine.losses(batch)
        float(losses.detach().sum())
        self.trainer.update(losses)


class HuggingFace:
    """A one-layer BertForMaskedLM with default attention and Adam, on batches padded to their longest document."""

    seeds = 1

    def __init__(self) -> None:
        from transformers import BertConfig, BertForMaskedLM

        torch.manual_seed(0)
        config = BertConfig(
            vocab_size=101,
            hidden_size=104,
            num_hidden_layers=1,
            num_attention_heads=1,
            intermediate_size=104,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        self.model = BertForMaskedLM(config)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)

    def prepare(self, members: Iterable[MaskedDocuments], steps: int) -> list[Any]:
        """Pad the documents; −100 marks what is not predicted."""
        batches = []
        for documents in (part for member in members for part in member.parts(steps)):
            batch = padded_batch(documents, masked_keys="visible", average="batch")
            labels = torch.full(batch.tokens.shape, -100)
            labels[batch.masked] = batch.words
            batches.append({"input_ids": batch.tokens, "attention_mask": batch.keys, "labels": labels})
        return batches

    def step(self, batch: Any) -> None:
        """Forward, loss, backward, Adam."""
        loss = self.model(**batch).loss
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def timed_steps(contestant: Ours | HuggingFace, batches: Sequence[Any]) -> list[float]:
    """Seconds of processor time of each step, for one seed."""
    seconds = []
    for batch in batches:
        start = time.process_time()
        contestant.step(batch)
        seconds.append((time.process_time() - start) / contestant.seeds)
    return seconds


def compare(rounds: int) -> dict[str, list[float]]:
    """Seconds of a step in each turn, by contestant."""
    with torch_threads(1):
        contestants: dict[str, Ours | HuggingFace] = {
            "huggingface": HuggingFace(),
            "reference": Ours(PAPER, "reference"),
            "bag": Ours(PAPER, "bag"),
            "ensemble": Ours(PAPER, "bag", ENSEMBLE_SEEDS),
        }
        topic_model = TopicModel.from_settings(PAPER.documents)
        streams = [BatchStream(dataclasses.replace(PAPER, seed=seed), topic_model) for seed in range(ENSEMBLE_SEEDS)]
        turns: dict[str, list[float]] = {name: [] for name in TURN}
        for number in range(rounds + 1):
            drawn = [stream.chunk(number) for stream in streams]
            for name, contestant in contestants.items():
                batches = contestant.prepare(drawn[: contestant.seeds], streams[0].steps)
                turns[name].append(statistics.median(timed_steps(contestant, batches[: TURN[name]])))
    # The first round warms up and is not counted.
    return {name: seconds[1:] for name, seconds in turns.items()}


@dataclass(frozen=True)
class Point:
    """Seconds of a step at one size; None where the reference was not run."""

    size: int
    bag: float
    reference: float | None


def growth(name: str) -> list[Point]:
    """A step's cost by size."""
    sizes, largest, _, _ = GROWTH[name]
    with torch_threads(1):
        return [point(name, size, reference=size <= largest) for size in sizes]


def point(name: str, size: int, *, reference: bool) -> Point:
    embedded = dataclasses.replace(PAPER.model, embedding=Part(), dimension=64 if name == "layers" else 128)
    if name == "length":
        # A hundred words, written out again and again: more positions, the same distinct tokens and queries.
        settings = dataclasses.replace(PAPER, data=Data(fresh=True, length=(100, 100)))
    elif name == "vocabulary":
        settings = dataclasses.replace(PAPER, data=Data(fresh=True, words=(size - 1) // 10), model=embedded)
    else:
        settings = dataclasses.replace(PAPER, model=dataclasses.replace(embedded, layers=size))
    stream = BatchStream(settings, TopicModel.from_settings(settings.documents))
    documents = repeated(stream.chunk(0).span(0, settings.training.batch), size // 100 if name == "length" else 1)

    def seconds(engine: Engine, repeats: int) -> float:
        one = Ours(settings, engine)
        # The first step warms up and is not counted.
        return statistics.median(timed_steps(one, one.prepare([documents], 1) * (repeats + 1))[1:])

    return Point(size, seconds("bag", REPEATS), seconds("reference", 1) if reference else None)


def repeated(documents: MaskedDocuments, times: int) -> MaskedDocuments:
    """Each document written out so many times, with the same mask each time."""
    ends = zip(documents.offsets[:-1], documents.offsets[1:], strict=True)
    positions = np.concatenate([np.tile(np.arange(first, last), times) for first, last in ends])
    return MaskedDocuments(
        documents.lengths * times, documents.tokens[positions], documents.words[positions], documents.masked[positions]
    )


def page(turns: dict[str, list[float]], grown: dict[str, list[Point]]) -> str:
    seconds = {name: statistics.median(own) for name, own in turns.items()}
    lines = ["| | steps/s | × Hugging Face | × reference |", "|---|---:|---:|---:|"]
    for name, title in TITLES.items():
        ratios = [theirs / own for theirs, own in zip(turns["huggingface"], turns[name], strict=True)]
        low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
        ratio = f"{seconds['huggingface'] / seconds[name]:.1f} ({low:.1f}–{high:.1f})"
        lines.append(f"| {title} | {1 / seconds[name]:,.1f} | {ratio} | {seconds['reference'] / seconds[name]:.1f} |")
    tables = []
    for name, points in grown.items():
        axis = GROWTH[name][3].rpartition(", ")[2]
        rows = [
            f"| {p.size:,} | {p.bag * 1e3:,.2f} | {'–' if p.reference is None else f'{p.reference * 1e3:,.1f}'} |"
            for p in points
        ]
        tables += [f"**{GROWTH[name][2]}**\n", f"| {axis} | bag, ms | reference, ms |", "|---:|---:|---:|", *rows, ""]
    return "\n".join(
        [
            "## Training\n",
            "Written by `benchmarks/training_steps.py`; do not edit. "
            f"torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}, one thread. "
            "Times are the processor's: what a clock shows on a machine with nothing else to do. "
            "Absolute speeds belong to the machine; ratios are what to read.\n",
            "### A training step of the paper's setting\n",
            "Batch 40, V = 101, documents of 100–150 words, W^K, W^Q, W^V trained, one-hot embeddings frozen, "
            "cross-entropy, Adam. All four take turns in one process on the same documents; medians over "
            f"{len(turns['bag'])} turns, quartiles in brackets. Laying out documents (padding, counting) is apart. "
            "The Hugging Face model also has a feed-forward layer, LayerNorms and positions: "
            "like for like is the bag engine against the reference.\n",
            *lines,
            "\n### How the cost grows\n",
            "![Cost of a step by length, vocabulary and layers](performance.svg)\n",
            *tables,
        ]
    )


def draw(grown: dict[str, list[Point]], path: Path) -> None:
    figure, panels = plt.subplots(1, 3, figsize=(10, 3), layout="constrained", sharey=True)
    for panel, (name, points) in zip(panels, grown.items(), strict=True):
        measured = [(p.size, p.reference * 1e3) for p in points if p.reference is not None]
        panel.plot(*zip(*measured, strict=True), "s--", label="reference")
        panel.plot([p.size for p in points], [p.bag * 1e3 for p in points], "o-", label="bag engine")
        panel.set(xlabel=GROWTH[name][3], yscale="log", xscale="linear" if name == "layers" else "log")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("a step, milliseconds")
    panels[0].legend(frameon=False)
    # No date and no random names in the file: the same numbers give the same figure.
    with plt.rc_context({"svg.hashsalt": "topicscope"}):
        figure.savefig(path, metadata={"Date": None})


def write_part(name: str, text: str) -> None:
    """Replace one part of docs/performance.md, and leave the others alone."""
    path = DOCS / "performance.md"
    marked = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
    page = path.read_text(encoding="utf-8")
    path.write_text(marked.sub(lambda match: f"{match[1]}{text.strip()}\n{match[2]}", page), encoding="utf-8")


def main() -> None:
    turns = compare(rounds=40)
    grown = {name: growth(name) for name in GROWTH}
    draw(grown, DOCS / "performance.svg")
    write_part("training", page(turns, grown))


if __name__ == "__main__":
    main()
