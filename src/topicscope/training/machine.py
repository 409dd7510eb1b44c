"""How training uses the machine: threads, the device, and memory, free and needed.

The memory that a step on text needs is estimated beforehand: the system would end the process without a word.
"""

import bisect
import contextlib
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import torch
from threadpoolctl import threadpool_limits

from topicscope.errors import InputError, is_out_of_memory
from topicscope.model.encoder import encoder_shapes
from topicscope.scale import available_cores
from topicscope.settings import Settings
from topicscope.settings.text import Device, TextSettings

SomeSettings = TypeVar("SomeSettings", Settings, TextSettings)

# From this many multiply-adds per step the bag engine gains clearly from two threads: 1.1 times at 1.4 billion, 1.5 at
# 3.3 billion (docs/performance.md). The reference gains earlier; below this, more runs at once use the cores better.
LARGE_STEP = 2_000_000_000
# Of control groups, version 2 and version 1: the files with a group's limit and its use, and the line of memory.stat
# with cached files, which the system frees before a process runs short.
VERSION_2 = ("memory.max", "memory.current", "inactive_file")
VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
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

    Text gets all cores; documents of a topic model get one thread, unless a step is large. A member of an ensemble gets
    what the run alone would get, so that the other members do not change its settings.
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
        return torch.device(next(each for each in present if present[each]))
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

    It is the least of what the machine has and what containers and batch systems allow. ``root`` is that of the file
    system.
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
        number, controllers, name = line.split(":", 2)
        if number == "0":
            base, files = mounted, VERSION_2
        elif "memory" in controllers.split(","):
            base, files = mounted / "memory", VERSION_1
        else:
            continue
        # In a container the name may be the host's, of a group that is not visible here; the topmost one always is.
        group = base / name.lstrip("/")
        for folder in (group, *group.parents):
            if folder.is_relative_to(base):
                yield from _left(folder, *files)


def _left(group: Path, limit: str, used: str, cached: str) -> Iterator[int]:
    """How much a group may still take; nothing if it has no limit."""
    try:
        most, now = ((group / name).read_text(encoding="ascii").strip() for name in (limit, used))
    except OSError:
        return
    if most != "max":
        given_back = dict(line.split(maxsplit=1) for line in _lines(group / "memory.stat")).get(cached, 0)
        yield max(int(most) - int(now) + int(given_back), 0)


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


def _remedy(settings: TextSettings, vocabulary: int, limit: float) -> str:
    """Fewer passages at once, if one fits beside the weights; else a narrower model."""
    training = settings.training
    fitting = int((limit - weight_bytes(settings, vocabulary)) // passage_bytes(settings, vocabulary))
    if fitting < 1:
        return _narrower(settings, vocabulary, limit)
    return (
        f"raise training.accumulate from {training.accumulate} to {math.ceil(training.batch / fitting)}, which gives "
        f"the same gradients, or lower training.batch from {training.batch} to {fitting * training.accumulate}"
    )


def _narrower(settings: TextSettings, vocabulary: int, limit: float) -> str:
    """The largest width, a multiple of the heads, with which a step fits."""
    model = settings.model

    def needed(width: int) -> float:
        return step_bytes(replace(settings, model=replace(model, width=width)), vocabulary)

    widths = range(model.heads, model.width, model.heads)
    fitting = bisect.bisect_right(widths, limit, key=needed)
    if fitting:
        return f"lower model.width from {model.width} to {widths[fitting - 1]}"
    return (
        f"no model.width is small enough, so lower the vocabulary ({vocabulary:,} tokens), model.feed_forward = "
        f"{model.feed_forward} or data.length = {settings.data.length}"
    )


@contextmanager
def out_of_memory_said(settings: TextSettings, vocabulary: int) -> Iterator[None]:
    """Turn PyTorch's error when memory runs out into one sentence on what to lower."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise InputError(
            f"memory ran out in a step of training.batch = {settings.training.batch} passages of data.length = "
            f"{settings.data.length} tokens: {_less_at_once(settings, vocabulary)}."
        ) from None


def _less_at_once(settings: TextSettings, vocabulary: int) -> str:
    training, model = settings.training, settings.model
    whole = step_bytes(settings, vocabulary)
    if weight_bytes(settings, vocabulary) > whole / 2:
        # Half of what was too much is enough, or the next half will be.
        return f"the weights take most of it; {_narrower(settings, vocabulary, whole / 2)}"
    if training.accumulate >= training.batch:
        return f"a part is one passage already, so lower data.length or model.width = {model.width}"
    return (
        f"raise training.accumulate from {training.accumulate} to {min(2 * training.accumulate, training.batch)}, "
        f"which gives the same gradients, or lower training.batch to {max(training.batch // 2, training.accumulate)}"
    )
