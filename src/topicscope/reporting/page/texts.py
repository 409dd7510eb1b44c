"""A training run on text: loss, norms, rotation and gradients by layer, over steps."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from topicscope.measure.run import Run, read_run
from topicscope.records import read_passages_file
from topicscope.reporting.page.runs import CURVE_POINTS, Charts, done, evenly, note_unfinished
from topicscope.reporting.page.store import Found
from topicscope.reporting.palette import BLUE, COLOURS, ORANGE
from topicscope.settings.text import TextSettings
from topicscope.store import Row

# Layers beyond the palette's colours have different dashes.
DASHES: tuple[list[int], ...] = ([], [6, 4], [2, 3], [9, 3, 2, 3])

PARTS = {"key": "W^K", "query": "W^Q", "value": "W^V"}


def text_run(folder: Path, found: Found) -> Row | None:
    """The run in a folder, for the script; None, with a note, if it has logged nothing yet or cannot be read."""
    run = found.read(partial(read_run, weights=False), folder)
    if run is None or not isinstance(run.settings, TextSettings):
        return None
    model, training = run.settings.model, run.settings.training
    note_unfinished(str(folder), done(run) if len(run.steps) else None, training.steps, found)
    if not len(run.steps):
        return None
    about = found.read(read_passages_file, folder / "passages" / "passages.json")
    charts = Charts(found.store)
    _loss(run, charts)
    _layers(run, charts)
    return {
        "name": str(folder),
        "title": f"{folder.name}: trained on {run.settings.data.corpus}",
        "described": (
            f"{model.layers} layers of {model.heads} heads, width {model.width}, learning rate "
            f"{training.learning_rate:g}, {training.steps:,} steps"
        ),
        "notes": about.notes() if about else [],
        "seeds": list(run.seeds),
        "takeOffs": [],
        "predicted": None,
        "frameSteps": found.store.numbers(np.zeros(0)),
        "matrices": [],
        "charts": charts.made,
        "boundaries": [],
        "done": done(run),
        "total": training.steps,
    }


def _line(
    charts: Charts, run: Run, name: str, colour: str, values: Float[np.ndarray, " row"], **more: Any
) -> list[Row]:
    """A line through numbers by step; none if there are no numbers at all."""
    there = np.flatnonzero(np.isfinite(values))
    if not len(there):
        return []
    kept = there[evenly(len(there), CURVE_POINTS)]
    return [charts.line(name, charts.store.numbers(run.steps[kept]), values[kept], colour, **more)]


def _loss(run: Run, charts: Charts) -> None:
    lines = _line(charts, run, "loss of the batch", BLUE, run.metrics["loss"][0])
    if "validation_loss" in run.metrics:
        lines += _line(charts, run, "held-out loss", ORANGE, run.metrics["validation_loss"][0])
    charts.add("loss", "Loss", "loss", lines)


def _by_layer(charts: Charts, run: Run, metric: str) -> list[Row]:
    """A line per layer."""
    return [
        line
        for layer, values in enumerate(run.metrics[metric][0].T if metric in run.metrics else ())
        for line in _line(charts, run, f"layer {layer + 1}", COLOURS[layer % 6], values, dash=DASHES[layer // 6 % 4])
    ]


def _layers(run: Run, charts: Charts) -> None:
    """A line per layer of the norms of W^K, W^Q and W^V, of the rotation of W^V, and of the gradients' norms."""
    for part, matrix in PARTS.items():
        lines = _by_layer(charts, run, f"norm/{part}")
        charts.add(f"norm-{part}", f"Norm of {matrix} by layer", "Frobenius norm", lines)
    turned, text = _by_layer(charts, run, "rotation"), "Cosine distance between W^V and itself 10 steps before."
    charts.add("rotation", "Rotation of W^V by layer", "(1 − cosine) / 2", turned, text=text)
    for part, matrix in PARTS.items():
        title, lines = f"Norm of the gradient of {matrix} by layer", _by_layer(charts, run, f"gradient_norm/{part}")
        charts.add(f"gradient-{part}", title, "Frobenius norm", lines, log=True)
