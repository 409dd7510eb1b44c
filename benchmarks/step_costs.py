"""The cost of a training step: how it grows with length, vocabulary and layers."""

import dataclasses
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from step_times import PAPER, Ours, engine_settings, timed_steps
from topicscope.settings import Data, Model, Part, Settings
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.synthetic.topics import TopicModel
from topicscope.training.batches import BatchStream
from topicscope.training.loop import torch_threads

# Position by position, attention of a batch of longer documents does not fit into memory.
LONGEST_REFERENCE = 1_000
LARGEST_REFERENCE = 5_001
REPEATS = 7


@dataclass(frozen=True)
class Point:
    """A step's cost at one size; None where the engine was not run."""

    size: int
    bag: float
    reference: float | None


@dataclass(frozen=True)
class Growth:
    """Seconds of a step by size."""

    length: list[Point]
    """Documents of so many words, all with the same distinct tokens and queries; counting apart."""

    vocabulary: list[Point]
    """Trained embeddings of width 128."""

    layers: list[Point]
    """Trained embeddings of width 64."""


def growth(*, report: Callable[[str], None] = lambda state: None) -> Growth:
    """Measure all three; one thread."""
    with torch_threads(1):
        return Growth(
            length=[_length(size, report) for size in (100, 300, 1_000, 3_000, 10_000)],
            vocabulary=[_vocabulary(size, report) for size in (101, 501, 2_001, 5_001, 20_001)],
            layers=[_layers(size, report) for size in (1, 2, 3, 4)],
        )


def _length(size: int, report: Callable[[str], None]) -> Point:
    """A hundred words, written out again and again: more positions, the same distinct tokens and queries."""
    report(f"N = {size}")
    settings = dataclasses.replace(PAPER, data=Data(fresh=True, length=(100, 100)))
    documents = repeated(_documents(settings), size // 100)
    return _point(size, settings, documents, reference=size <= LONGEST_REFERENCE)


def _vocabulary(size: int, report: Callable[[str], None]) -> Point:
    report(f"V = {size}")
    data = Data(fresh=True, words=(size - 1) // 10)
    settings = dataclasses.replace(PAPER, data=data, model=_embedded(128))
    return _point(size, settings, _documents(settings), reference=size <= LARGEST_REFERENCE)


def _layers(count: int, report: Callable[[str], None]) -> Point:
    report(f"{count} layers")
    settings = dataclasses.replace(PAPER, model=dataclasses.replace(_embedded(64), layers=count))
    return _point(count, settings, _documents(settings), reference=True)


def _embedded(width: int) -> Model:
    return dataclasses.replace(PAPER.model, dimension=width, embedding=Part())


def _documents(settings: Settings) -> MaskedDocuments:
    return BatchStream(settings, TopicModel.from_settings(settings.documents)).chunk(0).span(0, settings.training.batch)


def repeated(documents: MaskedDocuments, times: int) -> MaskedDocuments:
    """Each document written out so many times, with the same mask each time."""
    positions = np.concatenate(
        [
            np.tile(np.arange(first, last), times)
            for first, last in zip(documents.offsets[:-1], documents.offsets[1:], strict=True)
        ]
    )
    return MaskedDocuments(
        documents.lengths * times, documents.tokens[positions], documents.words[positions], documents.masked[positions]
    )


def _point(size: int, settings: Settings, documents: MaskedDocuments, *, reference: bool) -> Point:
    bag = _processor_seconds(engine_settings(settings, "bag"), documents, REPEATS)
    slow = _processor_seconds(engine_settings(settings, "reference"), documents, 1) if reference else None
    return Point(size, bag, slow)


def _processor_seconds(settings: Settings, documents: MaskedDocuments, repeats: int) -> float:
    one = Ours(settings)
    batch = one.prepare([documents], 1)
    # The first step warms up and is not counted.
    seconds: Sequence[float] = timed_steps(one, batch * (repeats + 1))[1:]
    return statistics.median(seconds)
