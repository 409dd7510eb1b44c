"""A training step of the same documents, computed in different ways, side by side.

Hugging Face, our reference, the bag engine and eight seeds of it at once run in one process on one thread and the same
documents, taking turns, so that whatever else the machine does affects all of them alike. Ratios are what to read;
absolute speeds belong to the machine.
"""

import dataclasses
import gc
import multiprocessing
import os
import statistics
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from topicscope.errors import InputError
from topicscope.settings import Data, Model, Part, Settings, Training
from topicscope.settings.training import Engine
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.synthetic.topics import TopicModel
from topicscope.training.batches import BatchStream
from topicscope.work import Report

TITLES = {
    "huggingface": "Hugging Face BERT, one layer",
    "reference": "reference engine",
    "bag": "bag engine",
    "ensemble": "bag engine, 8 seeds, per seed",
}

CAPTION = "A training step at the paper's setting, for one seed"
COLUMNS = ("", "steps/s", "× Hugging Face (quartiles)", "× reference", "matrix products", "peak memory")

_ZERO = Part(start="zero", train=False)


# The paper's setting with all of W^K, W^Q, W^V trained: one layer, one-hot embeddings, no biases, Adam, batch 40.
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

ENSEMBLE_SEEDS = 8

# Steps of a turn: the fast ones take more, so that turns last long enough for the clock.
TURN = {"huggingface": 1, "reference": 1, "bag": 16, "ensemble": 8}

# How many times some steps' documents are drawn to measure their share of training.
FRESH_CHUNKS = 9

PROFILED_STEPS = 9

MATRIX_PRODUCTS = frozenset({"aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm"})


class Ours:
    """One of our engines, for one or more seeds in one tensor."""

    def __init__(self, settings: Settings, seeds: int = 1) -> None:
        from topicscope.training.engines import make_engine
        from topicscope.training.loop import Trainer

        self.settings, self.seeds = settings, seeds
        own = [settings.seed + seed for seed in range(seeds)]
        self.trainer = Trainer(make_engine(settings, own, TopicModel.from_settings(settings.documents)))
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
    """A one-layer BertForMaskedLM with default attention and Adam, on batches padded to their longest document.

    It also has a feed-forward layer, LayerNorms, positions and a transform before prediction: the like-for-like
    comparison is that of our two engines.
    """

    def __init__(self) -> None:
        import torch

        try:
            from transformers import BertConfig, BertForMaskedLM
        except ImportError:
            raise InputError(
                "the benchmark compares with Hugging Face's transformers, which is not installed: "
                'install it with pip install "topicscope[language]".'
            ) from None
        self.seeds = 1
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
        import torch

        from topicscope.model.transformer import padded_batch

        found = []
        for documents in (part for member in members for part in member.parts(steps)):
            batch = padded_batch(documents, masked_keys="visible", average="batch")
            labels = torch.full(batch.tokens.shape, -100)
            labels[batch.masked] = batch.words
            found.append({"input_ids": batch.tokens, "attention_mask": batch.keys, "labels": labels})
        return found

    def step(self, batch: Any) -> None:
        """Forward, loss, backward, Adam."""
        loss = self.model(**batch).loss
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


# A way of training, timed in two parts: laying out documents, and the step itself.
Contestant = Ours | HuggingFace


def timed_steps(contestant: Contestant, batches: Sequence[Any]) -> list[float]:
    """Seconds of each step, for one seed."""
    seconds = []
    for batch in batches:
        start = time.process_time()
        contestant.step(batch)
        seconds.append((time.process_time() - start) / contestant.seeds)
    return seconds


def engine_settings(settings: Settings, engine: Engine) -> Settings:
    """The settings with one engine forced."""
    return dataclasses.replace(settings, training=dataclasses.replace(settings.training, engine=engine))


def contestant(name: str) -> Contestant:
    """One of the four by name."""
    if name == "huggingface":
        return HuggingFace()
    if name == "reference":
        return Ours(engine_settings(PAPER, "reference"))
    return Ours(engine_settings(PAPER, "bag"), ENSEMBLE_SEEDS if name == "ensemble" else 1)


def bench(*, rounds: int = 30, report: Report | None = None) -> dict[str, Any]:
    """Measure all four, taking turns: plain numbers by kind and by name, for one seed and step.

    Seconds are medians of processor time: on one thread, what the clock shows on an otherwise idle machine. ``ratio``
    is the speed relative to Hugging Face. ``preparation_seconds`` go into laying out (padding or counting) the
    documents, ``sampling_seconds`` into drawing and masking them; both together are ``fresh_document_fraction`` of
    training on fresh documents at every step. ``matrix_product_fraction`` of a step is the floor, unless the products
    themselves change. ``peak_memory_megabytes`` is what the model, its batches and two steps add, for all seeds
    together; None if unknown.
    """
    from topicscope.training.loop import torch_threads

    tell = report or (lambda done, total, state: None)
    with torch_threads(1):
        racing = {name: contestant(name) for name in TURN}
        streams = _streams(PAPER, ENSEMBLE_SEEDS)
        batches: dict[str, list[Any]] = {}
        turns: dict[str, list[float]] = {name: [] for name in TURN}
        preparation: dict[str, list[float]] = {name: [] for name in TURN}
        sampling: list[float] = []
        for number in range(rounds + 1):
            start = time.process_time()
            drawn = [stream.chunk(number) for stream in streams]
            sampling.append((time.process_time() - start) / (streams[0].steps * len(streams)))
            for name, one in racing.items():
                start = time.process_time()
                batches[name] = one.prepare(drawn[: one.seeds], streams[0].steps)
                preparation[name].append((time.process_time() - start) / (streams[0].steps * one.seeds))
                turns[name].append(statistics.median(timed_steps(one, batches[name][: TURN[name]])))
            tell(number, rounds, "")
        fresh = {name: _fresh_fraction(one, streams) for name, one in racing.items()}
        products = {name: _matrix_fraction(one, batches[name]) for name, one in racing.items()}
    # The first round warms up and is not counted.
    turns = {name: seconds[1:] for name, seconds in turns.items()}
    seconds = {name: statistics.median(each) for name, each in turns.items()}
    slow, others = turns["huggingface"], [name for name in TURN if name != "huggingface"]
    return {
        "steps_per_second": {name: 1 / seconds[name] for name in TURN},
        "ratio": {name: seconds["huggingface"] / seconds[name] for name in others},
        "ratio_quartiles": {
            name: _quartiles([theirs / ours for theirs, ours in zip(slow, turns[name], strict=True)]) for name in others
        },
        "ratio_to_reference": {name: seconds["reference"] / seconds[name] for name in ("bag", "ensemble")},
        "seconds_quartiles": {name: _quartiles(turns[name]) for name in TURN},
        "preparation_seconds": {name: statistics.median(preparation[name][1:]) for name in TURN},
        "sampling_seconds": statistics.median(sampling[1:]),
        "fresh_document_fraction": fresh,
        "matrix_product_fraction": products,
        "peak_memory_megabytes": {name: peak_memory(name) for name in TURN},
        "rounds": rounds,
        "seeds": {"ensemble": ENSEMBLE_SEEDS},
    }


def _streams(settings: Settings, seeds: int) -> list[BatchStream]:
    topic_model = TopicModel.from_settings(settings.documents)
    return [BatchStream(dataclasses.replace(settings, seed=seed), topic_model) for seed in range(seeds)]


def _fresh_fraction(one: Contestant, streams: list[BatchStream]) -> float:
    """Train as the loop does, some steps' documents at a time, and measure the documents' share of the time."""
    fractions = []
    for chunk in range(1000, 1000 + FRESH_CHUNKS):
        start = time.process_time()
        batches = one.prepare((stream.chunk(chunk) for stream in streams[: one.seeds]), streams[0].steps)
        prepared = time.process_time()
        # The slow ones need not take all the steps that have documents.
        few = batches if isinstance(one, Ours) and one.settings.engine == "bag" else batches[:1]
        timed_steps(one, few)
        training = (time.process_time() - prepared) * len(batches) / len(few)
        fractions.append((prepared - start) / (prepared - start + training))
    return statistics.median(fractions)


def _quartiles(values: list[float]) -> list[float]:
    return statistics.quantiles(values, n=4, method="inclusive")[::2] if len(values) > 1 else 2 * values


def _matrix_fraction(one: Contestant, batches: list[Any]) -> float:
    """The fraction of a step's time that goes into matrix products."""
    from torch.autograd.profiler import profile

    # PyTorch's profiler writes two lines on standard error each time it starts and stops.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    fractions = []
    for batch in batches[:PROFILED_STEPS]:
        with profile(use_kineto=False) as profiler:
            start = time.perf_counter()
            one.step(batch)
            seconds = time.perf_counter() - start
        found = sum(event.self_cpu_time_total for event in profiler.key_averages() if event.key in MATRIX_PRODUCTS)
        fractions.append(float(found) / 1e6 / seconds)
    return statistics.median(fractions)


def peak_memory(name: str) -> float | None:
    """The megabytes that building and training add at their peak, in a separate process; None where unknown."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_peak_memory, (name,))


def _peak_memory(name: str) -> float | None:
    from topicscope.training.loop import torch_threads

    with torch_threads(1):
        # A first step brings in all that is imported and set up on first use.
        warm = contestant(name)
        streams = _streams(PAPER, warm.seeds)
        drawn, steps = [stream.chunk(0) for stream in streams], streams[0].steps
        timed_steps(warm, warm.prepare(drawn, steps)[:1])
        del warm
        gc.collect()
        try:
            Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
            before = _status("VmRSS")
        except OSError:
            return None
        one = contestant(name)
        timed_steps(one, one.prepare(drawn, steps)[:2])
        return (_status("VmHWM") - before) / 1024


def _status(name: str) -> int:
    """A number of kilobytes from Linux's account of this process."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def comparison(found: dict[str, Any], name: str) -> tuple[str, str, str, str, str]:
    """Steps per second, times Hugging Face, times the reference, the share of matrix products, and memory, in words."""
    speeds, megabytes = found["steps_per_second"], found["peak_memory_megabytes"][name]
    low, high = found["ratio_quartiles"].get(name, (1.0, 1.0))
    return (
        f"{speeds[name]:,.1f}",
        f"{found['ratio'].get(name, 1.0):.1f} ({low:.1f}–{high:.1f})",
        f"{speeds[name] / speeds['reference']:.1f}",
        f"{found['matrix_product_fraction'][name]:.0%}",
        "–" if megabytes is None else f"{megabytes:.1f} MB",
    )
