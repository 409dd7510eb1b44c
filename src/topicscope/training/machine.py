"""How training uses the machine: threads, the device, and memory, free and needed.

The memory that a step on text needs is estimated beforehand: the system would end the process without a word.
"""

import contextlib
import math
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import torch
from threadpoolctl import threadpool_limits

from topicscope.errors import InputError, is_out_of_memory
from topicscope.model.encoder import encoder_shapes
from topicscope.settings import Settings
from topicscope.settings.text import Device, TextSettings
from topicscope.work import available_cores

SomeSettings = TypeVar("SomeSettings", Settings, TextSettings)

# From this many multiply-adds per step the bag engine gains clearly from two threads: 1.1 times at 1.4 billion, 1.5 at
# 3.3 billion (docs/performance.md). The reference gains earlier; below this, more runs at once use the cores better.
LARGE_STEP = 2_000_000_000
# Bytes of a number; copies of every weight: itself, its gradient, and Adam's two averages.
BYTES, WEIGHT_COPIES = 4, 4
# The share of the free memory that a step may take; the rest is left to everything else.
SHARE = 0.9


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


def with_threads(settings: SomeSettings, vocabulary: int | None = None) -> SomeSettings:
    """The settings with the number of threads chosen, if it was left open.

    Text gets all cores; documents of a topic model get one thread, unless a step is large. Several seeds get what one
    alone would get, so that the others do not change its settings.
    """
    if isinstance(settings, TextSettings):
        large = True
    else:
        assert vocabulary is not None, "how large a step is depends on it"
        large = step_size(settings, vocabulary) >= LARGE_STEP
    threads = settings.training.threads or (available_cores() if large else 1)
    return replace(settings, training=replace(settings.training, threads=threads))


def find_device(name: Device) -> torch.device:
    """The device of that name; "auto" is the fastest available."""
    present = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return torch.device(next(kind for kind in present if present[kind]))
    if not present[name]:
        raise InputError(f"--device {name} is not available here: give cpu, or auto.")
    return torch.device(name)


def step_size(settings: Settings, vocabulary: int) -> int:
    """About how many multiply-adds the forward pass of a step takes: projections, attention and prediction."""
    longest, dimension = settings.data.length[1], settings.model.dimension or vocabulary
    rows = min(longest, vocabulary) if settings.engine == "bag" else longest
    layer = rows * (4 * dimension**2 + 2 * rows * dimension)
    return settings.training.batch * (settings.model.layers * layer + rows * dimension * vocabulary)


def available_bytes(root: Path = Path("/")) -> int | None:
    """The memory available without swapping; None where the system does not say.

    It is the least of what the machine has and what containers and batch systems allow (control groups, version 2).
    ``root`` is that of the file system.
    """
    return min([*_of_machine(root), *_of_groups(root)], default=None)


def _of_machine(root: Path) -> Iterator[int]:
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemAvailable:"):
            yield int(line.split()[1]) * 1024
            return
    try:
        yield os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return


def _of_groups(root: Path) -> Iterator[int]:
    """What the process's own group leaves, and each group above it, whose limits hold for it too."""
    mounted = root / "sys/fs/cgroup"
    for line in _lines(root / "proc/self/cgroup"):
        number, _, name = line.split(":", 2)
        # In a container the name may be the host's, of a group that is not visible here; the topmost one always is.
        group = mounted / name.lstrip("/")
        for folder in (group, *group.parents) if number == "0" else ():
            if folder.is_relative_to(mounted):
                limits, used = _lines(folder / "memory.max"), _lines(folder / "memory.current")
                if limits and used and limits[0] != "max":
                    # The system frees cached files before a process runs short.
                    cached = dict(line.split(maxsplit=1) for line in _lines(folder / "memory.stat"))
                    yield max(int(limits[0]) - int(used[0]) + int(cached.get("inactive_file", 0)), 0)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def weight_bytes(settings: TextSettings, vocabulary: int) -> int:
    """Bytes of the weights, their gradients and Adam's averages; they grow with the square of the width."""
    shapes = encoder_shapes(settings.model, vocabulary, settings.positions).values()
    return BYTES * WEIGHT_COPIES * sum(math.prod(shape) for shape in shapes)


def passage_bytes(settings: TextSettings, vocabulary: int) -> float:
    """About how many bytes a step keeps per passage at its peak: states of every layer, scores where masked."""
    model = settings.model
    # Kept for the backward pass: queries, keys, values, what attention gives, and the ins and outs of the blocks.
    layer = 10 * model.width + 2 * model.feed_forward
    scores = 3 * settings.masking.mask * vocabulary
    return BYTES * settings.positions * (model.layers * layer + scores)


def step_bytes(settings: TextSettings, vocabulary: int) -> float:
    """About how many bytes a step keeps at its peak: weights, and the passages that are computed at once."""
    at_once = math.ceil(settings.training.batch / settings.training.accumulate)
    return weight_bytes(settings, vocabulary) + at_once * passage_bytes(settings, vocabulary)


def check_memory(settings: TextSettings, vocabulary: int, available: int | None = None) -> None:
    """Refuse a step that cannot fit before it starts; the system would end the process without a word."""
    available = available_bytes() if available is None else available
    needed = step_bytes(settings, vocabulary)
    if available is not None and needed > SHARE * available:
        raise InputError(
            f"a step needs about {needed / 1e9:.1f} GB and {available / 1e9:.1f} GB are free: "
            f"{_remedy(settings, vocabulary, SHARE * available)}."
        )


@contextlib.contextmanager
def out_of_memory_said(settings: TextSettings, vocabulary: int) -> Iterator[None]:
    """Turn PyTorch's error when memory runs out into one sentence on what to lower."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        # Half of what was too much is enough, or the next half will be.
        remedy = _remedy(settings, vocabulary, step_bytes(settings, vocabulary) / 2)
        raise InputError(
            f"memory ran out in a step of training.batch = {settings.training.batch} passages of data.length = "
            f"{settings.data.length} tokens: {remedy}."
        ) from None


def _remedy(settings: TextSettings, vocabulary: int, limit: float) -> str:
    """Fewer passages at once, if one fits beside the weights; else a smaller model."""
    training = settings.training
    fitting = int((limit - weight_bytes(settings, vocabulary)) // passage_bytes(settings, vocabulary))
    if fitting < 1:
        return (
            f"too much for one passage beside the weights, so lower model.width = {settings.model.width}, the "
            f"vocabulary ({vocabulary:,} tokens) or data.length = {settings.data.length}"
        )
    return (
        f"raise training.accumulate from {training.accumulate} to {math.ceil(training.batch / fitting)}, which gives "
        f"the same gradients, or lower training.batch from {training.batch} to {fitting * training.accumulate}"
    )
