"""How training uses the machine: how many threads, and how much memory.

The memory that training needs is estimated beforehand: the system would end the process without a word.
"""

import contextlib
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from threadpoolctl import threadpool_limits

from topicscope.errors import InputError, is_out_of_memory
from topicscope.model.weights import shapes
from topicscope.settings import Settings, TextData
from topicscope.synthetic.topics import TopicModel
from topicscope.work import available_cores

# From this many multiply-adds per step the bag engine gains clearly from two threads: 1.1 times at 1.4 billion, 1.5 at
# 3.3 billion (docs/performance.md). The reference gains earlier; below this, more runs at once use the cores better.
LARGE_STEP = 2_000_000_000
# Copies of every weight: itself, its gradient, and Adam's two averages.
WEIGHT_COPIES = 4
# The share of the free memory that training may take; the rest is left to everything else.
SHARE = 0.9
REMEDY = "lower training.batch, training.validation_documents, data.length, model.dimension or the vocabulary"


@contextlib.contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Compute with this many threads, then with as many as before.

    Small matrix products are faster on one thread than on two, and results repeat to the bit only for the same count.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        # NumPy's products, which rows of metrics are made from, have threads of their own.
        with threadpool_limits(count, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)


def with_threads(settings: Settings) -> Settings:
    """The settings with the number of threads chosen, if it was left open: one, unless a step is large.

    Several seeds get what one alone would get, so that the others do not change its settings.
    """
    threads = settings.training.threads or (available_cores() if step_size(settings) >= LARGE_STEP else 1)
    return replace(settings, training=replace(settings.training, threads=threads))


def step_size(settings: Settings) -> int:
    """About how many multiply-adds the forward pass of a step takes: layers, attention and prediction."""
    data, model = settings.data, settings.model
    vocabulary = data.vocabulary if isinstance(data, TextData) else TopicModel.from_settings(data).vocabulary
    rows = min(data.longest, vocabulary) if settings.engine == "bag" else data.longest
    width = model.dimension or vocabulary
    layer = rows * width * (4 * width + 2 * model.feed_forward + 2 * rows)
    return settings.training.batch * (model.layers * layer + rows * width * vocabulary)


def check_memory(settings: Settings, vocabulary: int, seeds: int = 1) -> None:
    """Refuse training that cannot fit before it starts."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        # Only Linux says how much there is.
        return
    needed = needed_bytes(settings, vocabulary, seeds)
    if needed > SHARE * free:
        raise InputError(f"training needs about {needed / 1e9:.1f} GB and {free / 1e9:.1f} GB are free: {REMEDY}.")


def needed_bytes(settings: Settings, vocabulary: int, seeds: int = 1) -> float:
    """About how many bytes training keeps at its peak: weights; states of every layer, and scores where masked."""
    model, training, longest = settings.model, settings.training, settings.data.longest
    number = 8 if training.precision == "float64" else 4
    parameters = shapes(model, vocabulary, longest)
    weights = WEIGHT_COPIES * sum(math.prod(shape) for shape in parameters.values())
    rows = min(longest, vocabulary) if settings.engine == "bag" else longest
    # Kept for the backward pass: queries, keys, values, what attention gives, and the ins and outs of the blocks.
    layers = model.layers * (10 * (model.dimension or vocabulary) + 2 * model.feed_forward)
    scores = 3 * settings.masking.mask * vocabulary
    documents = max(training.batch * (layers + scores), training.validation_documents * scores)
    return number * seeds * (weights + rows * documents)


@contextlib.contextmanager
def out_of_memory_said(settings: Settings) -> Iterator[None]:
    """Turn PyTorch's error when memory runs out into one sentence on what to lower."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        batch = settings.training.batch
        raise InputError(f"memory ran out in a step of training.batch = {batch}: {REMEDY}.") from None
