"""The runs of a sweep that are trained together: training them, and measuring each."""

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from topicscope.errors import DivergedError
from topicscope.measure.run import Run, read_run
from topicscope.measure.stages import norm_stages
from topicscope.records import SweepRow
from topicscope.settings import Settings
from topicscope.store import struct_text

# Raised when training or a measure changes, so that what an older version finished is computed again.
VERSION = 1


@dataclass(frozen=True)
class Group:
    """Runs of one combination that are trained in one tensor."""

    values: Mapping[str, Any]
    """The settings that vary, by dotted name."""

    settings: Settings
    seeds: tuple[int, ...]
    sweep: Path
    """The sweep's folder."""

    name: str
    """The group's folder in ``runs``."""


def train_group(group: Group) -> bytes:
    """Train the seeds, from their last checkpoint if they were begun before; the table's rows, as JSON."""
    from topicscope.training.loop import Watching, train

    folder, began = Path("runs", group.name), time.perf_counter()
    with contextlib.suppress(DivergedError):
        out, watching = group.sweep / folder, Watching(interruptible=False)
        train(group.settings, out, seeds=group.seeds, resume=True, watching=watching)
    seconds, run = (time.perf_counter() - began) / len(group.seeds), read_run(group.sweep / folder)
    return struct_text(
        [
            SweepRow(
                settings=dict(group.values),
                seed=seed,
                train_seconds=seconds,
                run=str(folder),
                **_measures(run, place, group.settings),
            )
            for place, seed in enumerate(group.seeds)
        ]
    )


def _measures(run: Run, seed: int, settings: Settings) -> dict[str, Any]:
    """The final numbers of a seed (counted from 0); none but ``diverged`` and ``last_step`` if it did not finish."""
    from topicscope.training.reference import optimum_measures

    metrics: dict[str, Any] = {name: values[seed] for name, values in run.metrics.items()}
    there = np.flatnonzero(np.isfinite(metrics["loss"]))
    last = int(run.steps[there[-1]]) if len(there) else 0
    head: dict[str, Any] = {"diverged": last != settings.training.steps, "last_step": last}
    if head["diverged"]:
        return head
    floor = run.reference.bayes_floor.loss if run.reference else None
    held_out = float(metrics["validation_loss"][-1]) if "validation_loss" in metrics else None
    norms = {
        name.removeprefix("norm/"): np.linalg.norm(values, axis=1)
        for name, values in metrics.items()
        if name.startswith("norm/")
    }
    stages = norm_stages(run.steps, *(norms[name] for name in ("key", "query", "value")))
    contrasts = {name: metrics.get(f"contrast/{name}", np.full(1, np.nan))[-1] for name in ("value", "embedding")}
    return head | {
        "loss": float(metrics["loss"][-1]),
        "validation_loss": held_out,
        "bayes_floor": floor,
        "excess_loss": None if floor is None or held_out is None else held_out - floor,
        **optimum_measures(settings, run.weights["value"][seed]),
        "contrast_value": float(np.mean(contrasts["value"])),
        "contrast_embedding": float(contrasts["embedding"]),
        **_attention(run, seed),
        "norms": {name: float(norm[-1]) for name, norm in norms.items()},
        "stage_1_end": stages.end,
        "stage_1_growth": stages.growth,
        "two_stages": stages.two,
    }


def _attention(run: Run, seed: int) -> dict[str, float | None]:
    """Attention by class of word pairs at the last step, averaged over layers and heads; none if it was not kept."""
    if not len(run.frame_steps) or run.frame_steps[-1] != run.settings.training.steps:
        return {}
    names = ("attention_same_word", "attention_same_topic", "attention_different_topic")
    averages = run.frames["attention"][seed, -1].reshape(len(names), -1).mean(axis=1)
    return dict(zip(names, averages.tolist(), strict=True))
