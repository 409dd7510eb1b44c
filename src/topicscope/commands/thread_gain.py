"""From which size of a step several threads are worth having: the same steps on one and on all cores, in turn."""

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from topicscope.commands.bench import PAPER, Ours, engine_settings
from topicscope.scale import available_cores
from topicscope.settings import Data, Model, Part, Settings
from topicscope.settings.training import Engine
from topicscope.synthetic.topics import TopicModel
from topicscope.training.batches import BatchStream
from topicscope.training.machine import step_size, torch_threads

# (engine, words a topic, width, layers): steps of a few tens of millions of multiply-adds up to tens of billions.
SIZES: tuple[tuple[Engine, int, int, int], ...] = (
    ("bag", 10, 64, 1),
    ("bag", 10, 64, 4),
    ("bag", 100, 128, 1),
    ("bag", 100, 128, 4),
    ("bag", 500, 256, 2),
    ("bag", 2_000, 128, 1),
    ("reference", 10, 64, 1),
    ("reference", 100, 128, 4),
)
TURNS = 9


@dataclass(frozen=True)
class ThreadGain:
    """A step on one thread and on several, by the clock."""

    name: str
    multiply_adds: int
    """As ``step_size`` counts them, which is what decides."""

    one: float
    """Median seconds of a step on one thread."""

    several: float
    """The same on all cores."""

    gain: float
    """Median over turns of how many times as fast several are."""


def thread_gains(
    sizes: Sequence[tuple[Engine, int, int, int]] = SIZES,
    *,
    turns: int = TURNS,
    report: Callable[[str], None] = lambda state: None,
) -> list[ThreadGain]:
    """Measure each size, smallest first. The machine should have nothing else to do."""
    found = []
    for engine, words, width, layers in sizes:
        model = dataclasses.replace(PAPER.model, dimension=width, layers=layers, embedding=Part())
        name = f"{engine}, V = {10 * words + 1:,}, d = {width}, {layers} layer{'s' if layers > 1 else ''}"
        report(name)
        found.append(_gain(name, _settings(engine, words, model), turns))
    return sorted(found, key=lambda gain: gain.multiply_adds)


def _settings(engine: Engine, words: int, model: Model) -> Settings:
    return engine_settings(dataclasses.replace(PAPER, data=Data(fresh=True, words=words), model=model), engine)


def _gain(name: str, settings: Settings, turns: int) -> ThreadGain:
    topic_model = TopicModel.from_settings(settings.data)
    trained = Ours(settings)
    batch = trained.prepare([BatchStream(settings, topic_model).batch(0)], 1)[0]
    one, several = [], []
    # The first turn warms up and is not counted.
    for _ in range(turns + 1):
        one.append(_seconds(trained, batch, 1))
        several.append(_seconds(trained, batch, available_cores()))
    gain = statistics.median(slow / fast for slow, fast in zip(one[1:], several[1:], strict=True))
    size = step_size(settings, topic_model.vocabulary)
    return ThreadGain(name, size, statistics.median(one[1:]), statistics.median(several[1:]), gain)


def _seconds(trained: Ours, batch: object, threads: int) -> float:
    with torch_threads(threads):
        start = time.perf_counter()
        trained.step(batch)
        return time.perf_counter() - start
