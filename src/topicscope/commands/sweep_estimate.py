"""How long a sweep takes, from a short trial of a few of its combinations."""

import dataclasses
import heapq
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from topicscope.commands.sweep import check_points, cost
from topicscope.commands.sweep_runs import Group, group_items, train_group
from topicscope.scale import Item
from topicscope.settings.sweep import Sweep
from topicscope.settings.sweep_toml import load_sweep

# Groups that are tried: the cheapest, the dearest and some between; and the steps that two of the trials have.
TRIALS = 3
SHORT, LONG = 10, 40


@dataclass(frozen=True)
class Estimate:
    """What a sweep would be, and about how long it would take."""

    combinations: int
    runs: int
    groups: int
    """Work items: runs that are trained together."""

    workers: int
    compute_seconds: float
    """All groups one after another."""

    wall_seconds: float
    """With this many workers, each of which takes the longest group left; starting them is not counted."""


def estimate_sweep(sweep: Sweep | Path, *, workers: int) -> Estimate:
    """Try a few groups for a few steps; nothing is kept."""
    asked = load_sweep(sweep) if isinstance(sweep, Path) else sweep
    check_points(asked)
    with tempfile.TemporaryDirectory() as folder:
        items = [item for _, item in group_items(asked, Path(folder))]
        steps = np.array([item.argument.settings.training.steps for item in items])
        costs = np.array([cost(item) for item in items]) / steps
        order = np.argsort(costs, kind="stable")
        tried = order[np.unique(np.linspace(0, len(items) - 1, TRIALS).round().astype(int))]
        starts, paces = zip(*(_trial(items[place], Path(folder)) for place in tried), strict=True)
    seconds = np.interp(costs, costs[tried], starts) + np.interp(costs, costs[tried], paces) * steps
    return Estimate(
        combinations=len(asked.points()),
        runs=len(asked.points()) * len(asked.seeds),
        groups=len(items),
        workers=workers,
        compute_seconds=float(seconds.sum()),
        wall_seconds=packed(seconds.tolist(), workers),
    )


def packed(seconds: Sequence[float], workers: int) -> float:
    """When the last worker is done, if each takes the longest that is left as soon as it is free."""
    free = [0.0] * workers
    for each in sorted(seconds, reverse=True):
        heapq.heappush(free, heapq.heappop(free) + each)
    return max(free)


def _trial(item: Item[Group], folder: Path) -> tuple[float, float]:
    """Seconds that a group takes to begin, and those of each step."""
    # Before the two that are compared: what is computed once a setting belongs to the beginning.
    start = _seconds(item, folder, 1)
    short, long = (_seconds(item, folder, steps) for steps in (SHORT, LONG))
    return start, max(0.0, long - short) / (LONG - SHORT)


def _seconds(item: Item[Group], folder: Path, steps: int) -> float:
    group = item.argument
    training = dataclasses.replace(group.settings.training, steps=steps, stage_steps=0)
    settings = dataclasses.replace(group.settings, training=training)
    began = time.perf_counter()
    train_group(dataclasses.replace(group, settings=settings, folder=folder / f"{item.digest}-{steps}"))
    return time.perf_counter() - began
