"""How training uses the machine."""

import contextlib
import dataclasses
from collections.abc import Iterator

import torch

from topicscope.scale import available_cores
from topicscope.settings import Settings

# Multiply-adds of a step from which the bag engine gains clearly from two threads: 1.1 times at 1.4 billion, 1.5 at 3.3
# billion (docs/performance.md). The reference gains earlier; below this, more runs at once use the cores better.
LARGE_STEP = 2_000_000_000


@contextlib.contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Compute with this many threads, then with as many as before.

    Small matrix products are faster on one thread than on two, and results repeat to the bit for one count only.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def with_threads(settings: Settings, vocabulary: int) -> Settings:
    """The settings with the number of threads chosen, if it was left open: one, unless a step is large.

    A member of an ensemble gets what the run alone would get, so that its company does not change its settings.
    """
    if settings.training.threads:
        return settings
    threads = available_cores() if step_size(settings, vocabulary) >= LARGE_STEP else 1
    return dataclasses.replace(settings, training=dataclasses.replace(settings.training, threads=threads))


def step_size(settings: Settings, vocabulary: int) -> int:
    """About how many multiply-adds the forward pass of a step takes: projections, attention and prediction."""
    longest, dimension = settings.data.length[1], settings.model.dimension or vocabulary
    rows = min(longest, vocabulary) if settings.engine == "bag" else longest
    layer = rows * (4 * dimension**2 + 2 * rows * dimension)
    return settings.training.batch * (settings.model.layers * layer + rows * dimension * vocabulary)
