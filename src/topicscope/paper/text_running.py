"""Running an experiment on text: one corpus prepared once, every seed trained on it, rows turned into arrays."""

import contextlib
import dataclasses
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from topicscope.errors import DivergedError
from topicscope.files import alone_in
from topicscope.paper.emergence import measuring
from topicscope.paper.needs import Seeds
from topicscope.paper.text_experiments import PARTS, STRUCTURES, TextExperiment, TextRuns, made_with
from topicscope.scale import content_digest, scratch_folder, shared_folder
from topicscope.settings.text import TextSettings
from topicscope.training.machine import torch_threads
from topicscope.training.prepare import PreparedText, prepare_text
from topicscope.training.runs import Row
from topicscope.training.schedule import snapshot_steps
from topicscope.training.text_loop import Measure, TextTrainer, steps_with_rows
from topicscope.training.text_runs import TextRun

# The embedding that the log-ratio is taken of: its cosines are positive from the start, so the ratio is defined.
MEASURES = {"embedding": "embedding_layer", "attention": "attention"}


def run_text_experiment(experiment: TextExperiment, seeds: Seeds) -> TextRuns:
    """Train every seed; one that diverges does not keep the others from finishing.

    Stopped and taken up again as a work item, it goes on from the last checkpoint.
    """
    began = time.perf_counter()
    settings = experiment.settings
    with scratch_folder() as folder, shared_folder() as everybodys, torch_threads(1):
        prepared, measure = _prepare(settings, everybodys)
        members = []
        for seed in seeds:
            run = TextRun(folder / f"seed-{seed}")
            run.path.mkdir(exist_ok=True)
            trainer = TextTrainer(dataclasses.replace(settings, seed=seed), prepared.text, measure=measure)
            with contextlib.suppress(DivergedError):
                trainer.run(run)
            members.append(run.metrics())
    return as_arrays(experiment, members, time.perf_counter() - began)


def _prepare(settings: TextSettings, folder: Path) -> tuple[PreparedText, Measure | None]:
    """Text and topics, the same for all seeds and for experiments that differ in training alone: made once."""
    content = {"data": asdict(settings.data), "topics": asdict(settings.topics), **made_with()}
    shared = folder / f"text-{content_digest(content)}"
    shared.mkdir(exist_ok=True)
    with alone_in(shared):
        prepared = prepare_text(settings.data, shared)
        return prepared, measuring(shared)(prepared, settings) if settings.training.measures else None


def as_arrays(experiment: TextExperiment, members: list[list[Row]], seconds: float) -> TextRuns:
    """Rows of all seeds as arrays."""
    training, layers = experiment.settings.training, experiment.settings.model.layers
    steps = np.array(steps_with_rows(experiment.settings), dtype=np.int64)
    measured = np.array(sorted(snapshot_steps(training.steps, training.measures)), dtype=np.int64)
    rows = _Column(members, steps)
    chosen = _Column([[row for row in each if row["topics"]] for each in members], measured)
    last = _Column([[row for row in each if row["step"] == training.steps] for each in members], steps[-1:])
    return TextRuns(
        steps=steps,
        loss=rows.of(lambda row: row["loss"]),
        norms={name: rows.of(lambda row, name=name: row["norm"][name], layers) for name in PARTS},  # type: ignore[misc]
        rotation=rows.of(lambda row: row["rotation"] or [np.nan] * layers, layers),
        measured=measured,
        log_ratios={name: chosen.of(lambda row, name=name: _log(row, name, "ratio")) for name in STRUCTURES},  # type: ignore[misc]
        final_low={name: last.of(lambda row, name=name: _log(row, name, "low"))[:, 0] for name in STRUCTURES},  # type: ignore[misc]
        layer_log_ratios=chosen.of(lambda row: _layer_logs(row, "ratio", layers), layers),
        layer_final_low=last.of(lambda row: _layer_logs(row, "low", layers), layers)[:, 0],
        seconds=seconds,
    )


class _Column:
    """Rows of all members as arrays, by step; NaN where a member has no such row."""

    def __init__(self, members: list[list[Row]], steps: np.ndarray) -> None:
        self.members, self.steps = members, steps

    def of(self, pick: Callable[[Row], Any], *shape: int) -> Float[np.ndarray, "seed row *rest"]:
        """One quantity of every row."""
        column = np.full((len(self.members), len(self.steps), *shape), np.nan)
        for place, rows in enumerate(self.members):
            for row in rows:
                column[place, np.searchsorted(self.steps, row["step"])] = pick(row)
        return column


def _log(row: Row, structure: str, which: str) -> float:
    return _logarithm(row["topics"][MEASURES[structure]][which]) if row["topics"] else np.nan


def _layer_logs(row: Row, which: str, layers: int) -> list[float]:
    if not row["topics"]:
        return [np.nan] * layers
    return [_logarithm(layer[which]) for layer in row["topics"]["attention_by_layer"]]


def _logarithm(value: float | None) -> float:
    return float(np.log(value)) if value is not None and value > 0 else np.nan
