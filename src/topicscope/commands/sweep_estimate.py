"""How long a sweep takes, from a short trial of a few of its combinations."""

import dataclasses
import heapq
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from topicscope.commands.sweep import check_points, cost, holds_sweep
from topicscope.commands.sweep_runs import Group, group_items, is_finished, train_group
from topicscope.scale import Item
from topicscope.settings.sweep import Sweep
from topicscope.settings.sweep_toml import load_sweep

# Groups that are tried: the cheapest, the dearest and some between; and the steps that two of the trials have.
TRIALS = 3
SHORT, LONG = 10, 40


@dataclass(frozen=True)
class Count:
    """How much a sweep is."""

    combinations: int
    runs: int
    groups: int
    """Work items: runs that are trained together."""

    finished: int
    """Groups that need not be trained any more."""


@dataclass(frozen=True)
class Estimate(Count):
    """What a sweep would be, and about how long it would take."""

    workers: int
    compute_seconds: float
    """All other groups one after another; those that were begun count in full."""

    wall_seconds: float
    """With this many workers, each of which takes the longest group left; starting them, figures and the page are not
    counted."""


def count_sweep(sweep: Sweep | Path, out: Path, *, resume: bool = False) -> Count:
    """Count what there is to train, without training; a folder that ``sweep`` would refuse is refused.

    With ``resume``, what is finished in ``out`` counts as such.
    """
    return _counted(sweep, out, resume=resume)[0]


def estimate_sweep(sweep: Sweep | Path, out: Path, *, workers: int, resume: bool = False) -> Estimate:
    """Count, and try a few groups for a few steps; nothing is kept, and nothing is written to ``out``."""
    count, missing = _counted(sweep, out, resume=resume)
    seconds = _group_seconds(missing) if missing else []
    return Estimate(
        **dataclasses.asdict(count),
        workers=workers,
        compute_seconds=sum(seconds, start=0.0),
        wall_seconds=packed(seconds, workers),
    )


def _counted(sweep: Sweep | Path, out: Path, *, resume: bool) -> tuple[Count, list[Item[Group]]]:
    """The count, and the groups that are not finished."""
    asked = load_sweep(sweep) if isinstance(sweep, Path) else sweep
    out = out.resolve()
    check_points(asked)
    holds_sweep(asked, out, resume=resume)
    items = [item for _, item in group_items(asked, out)]
    missing = [item for item in items if not is_finished(item, out)]
    points = len(asked.points())
    return Count(points, points * len(asked.seeds), len(items), len(items) - len(missing)), missing


def packed(seconds: Sequence[float], workers: int) -> float:
    """When the last worker is done, if each takes the longest that is left as soon as it is free."""
    free = [0.0] * workers
    for each in sorted(seconds, reverse=True):
        heapq.heappush(free, heapq.heappop(free) + each)
    return max(free)


def _group_seconds(items: Sequence[Item[Group]]) -> list[float]:
    """What each group takes: between those that are tried, by how much there is to compute."""
    steps = np.array([item.argument.settings.training.steps for item in items])
    costs = np.array([cost(item) for item in items]) / steps
    order = np.argsort(costs, kind="stable")
    tried = order[np.unique(np.linspace(0, len(items) - 1, TRIALS).round().astype(int))]
    with tempfile.TemporaryDirectory() as folder:
        starts, paces = zip(*(_trial(items[place], Path(folder)) for place in tried), strict=True)
    seconds = np.interp(costs, costs[tried], starts) + np.interp(costs, costs[tried], paces) * steps
    return seconds.tolist()


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
