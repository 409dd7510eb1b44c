"""Side-by-side measurements of a training step: Hugging Face, our reference, the bag engine, eight seeds at once.

All run in one process on one thread and the same documents, taking turns, so that whatever else the machine does
falls on all of them alike. Ratios are what to read; absolute speeds belong to the machine.
"""

import dataclasses
import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from topicscope.commands.contestants import PAPER, Contestant, HuggingFace, Ours, engine_settings, timed_steps
from topicscope.settings import Settings
from topicscope.synthetic.topics import TopicModel
from topicscope.training.data import STEPS_PER_CHUNK, BatchStream
from topicscope.training.loop import torch_threads

Report = Callable[[int, int, str], None]

ENSEMBLE_SEEDS = 8
# Steps of a turn: the fast ones take more, so that turns last about as long as the clock can tell.
TURN = {"huggingface": 1, "reference": 1, "bag": 8, "ensemble": 4}
MATRIX_PRODUCTS = frozenset({"aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm"})


@dataclass(frozen=True)
class Measurement:
    """One way of training, for one seed and step."""

    seconds: float
    """Median."""

    quartiles: tuple[float, float]
    preparation: float
    """Median seconds of laying out (padding or counting) the documents of a step."""

    matrix_products: float
    """The fraction of a step that is matrix multiplication: the floor, unless the products themselves change."""

    peak_megabytes: float
    """Memory that the first steps add to what the process has when all is imported, all seeds together."""


@dataclass(frozen=True)
class Bench:
    """The measurements by name, and what they were of."""

    measurements: dict[str, Measurement]
    sampling: float
    """Median seconds of drawing and masking a step's documents, for one seed."""

    ratio_quartiles: dict[str, tuple[float, float]]
    rounds: int

    def ratio(self, name: str, against: str = "huggingface") -> float:
        """How many times as fast, for one seed and step."""
        return self.measurements[against].seconds / self.measurements[name].seconds

    def fresh_fraction(self, name: str) -> float:
        """The share of sampling, masking and laying out in a step on fresh documents."""
        found = self.measurements[name]
        preparing = self.sampling + found.preparation
        return preparing / (preparing + found.seconds)

    def table(self) -> dict[str, Any]:
        """Everything as plain numbers, for JSON."""
        names = list(self.measurements)
        others = [name for name in names if name != "huggingface"]
        return {
            "steps_per_second": {name: 1 / self.measurements[name].seconds for name in names},
            "ratio": {name: self.ratio(name) for name in others},
            "ratio_quartiles": {name: list(self.ratio_quartiles[name]) for name in others},
            "ratio_to_reference": {name: self.ratio(name, "reference") for name in ("bag", "ensemble")},
            "seconds_quartiles": {name: list(self.measurements[name].quartiles) for name in names},
            "preparation_seconds": {name: self.measurements[name].preparation for name in names},
            "sampling_seconds": self.sampling,
            "fresh_document_fraction": {name: self.fresh_fraction(name) for name in names},
            "matrix_product_fraction": {name: self.measurements[name].matrix_products for name in names},
            "peak_memory_megabytes": {name: self.measurements[name].peak_megabytes for name in names},
            "rounds": self.rounds,
            "seeds": {"ensemble": ENSEMBLE_SEEDS},
        }


def contestant(name: str) -> Contestant:
    """One of the four by name."""
    if name == "huggingface":
        return HuggingFace()
    if name == "reference":
        return Ours(engine_settings(PAPER, "reference"))
    return Ours(engine_settings(PAPER, "bag"), ENSEMBLE_SEEDS if name == "ensemble" else 1)


def bench(*, rounds: int = 30, report: Report | None = None) -> Bench:
    """Measure all four, taking turns."""
    tell = report or (lambda done, total, state: None)
    with torch_threads(1):
        racing = {name: contestant(name) for name in TURN}
        streams = _streams(PAPER, ENSEMBLE_SEEDS)
        batches: dict[str, list[Any]] = {}
        seconds: dict[str, list[list[float]]] = {name: [] for name in TURN}
        preparation: dict[str, list[float]] = {name: [] for name in TURN}
        sampling: list[float] = []
        # The first round warms up and is not counted.
        for number in range(rounds + 1):
            start = time.perf_counter()
            drawn = [stream.chunk(number) for stream in streams]
            sampling.append((time.perf_counter() - start) / (STEPS_PER_CHUNK * len(streams)))
            for name, one in racing.items():
                start = time.perf_counter()
                batches[name] = one.prepare(drawn[: one.seeds], STEPS_PER_CHUNK)
                preparation[name].append((time.perf_counter() - start) / (STEPS_PER_CHUNK * one.seeds))
                seconds[name].append(timed_steps(one, batches[name][: TURN[name]]))
            tell(number, rounds, "")
        products = {name: _matrix_seconds(one, batches[name]) / one.seeds for name, one in racing.items()}
    turns = {name: [statistics.median(turn) for turn in turns[1:]] for name, turns in seconds.items()}
    return Bench(
        measurements={
            name: Measurement(
                seconds=statistics.median(turns[name]),
                quartiles=_quartiles(turns[name]),
                preparation=statistics.median(preparation[name][1:]),
                matrix_products=products[name] / statistics.median(turns[name]),
                peak_megabytes=peak_memory(name),
            )
            for name in TURN
        },
        sampling=statistics.median(sampling[1:]),
        ratio_quartiles={
            name: _quartiles([slow / fast for slow, fast in zip(turns["huggingface"], turns[name], strict=True)])
            for name in TURN
        },
        rounds=rounds,
    )


def _streams(settings: Settings, seeds: int) -> list[BatchStream]:
    topic_model = TopicModel.from_settings(settings.data)
    return [BatchStream(dataclasses.replace(settings, seed=seed), topic_model) for seed in range(seeds)]


def _quartiles(values: list[float]) -> tuple[float, float]:
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def _matrix_seconds(one: Contestant, batches: list[Any]) -> float:
    """Seconds of a step that go into matrix products."""
    from torch.profiler import ProfilerActivity, profile

    few = batches[:4]
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        timed_steps(one, few)
    found = sum(event.self_cpu_time_total for event in profiler.key_averages() if event.key in MATRIX_PRODUCTS)
    return float(found) / 1e6 / len(few)


def peak_memory(name: str) -> float:
    """Megabytes that building and training add at their peak, in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_peak_memory, (name,))


def _peak_memory(name: str) -> float:
    contestant("huggingface" if name == "huggingface" else "bag")  # brings in all that is imported
    with torch_threads(1):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        one = contestant(name)
        drawn = [stream.chunk(0) for stream in _streams(PAPER, one.seeds)]
        timed_steps(one, one.prepare(drawn, STEPS_PER_CHUNK)[:2])
        return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
