"""A training run on text: loss, norms, rotation and gradients by layer, and topic structure, over steps."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from topicscope.measure.run import Run, read_run
from topicscope.records import read_passages_file
from topicscope.reporting.page.runs import CURVE_POINTS, Charts, done, evenly, note_unfinished
from topicscope.reporting.page.store import Found
from topicscope.reporting.palette import BLUE, COLOURS, GREY, ORANGE
from topicscope.settings.text import TextSettings
from topicscope.store import Row

# Layers beyond the palette's colours have different dashes.
DASHES: tuple[list[int], ...] = ([], [6, 4], [2, 3], [9, 3, 2, 3])

PARTS = {"key": "W^K", "query": "W^Q", "value": "W^V"}

# What topic structure is measured in, and what a reader calls it.
STRUCTURES = {
    "embedding": "embedding layer's output (cosine)",
    "embedding-matrix": "embedding matrix (cosine)",
    "attention": "attention, mean of layers",
}
RATIO = "log (same topic / different topic)"
DIFFERENCE = "same − different topic"


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
    _structure(run, charts)
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
    charts: Charts,
    run: Run,
    name: str,
    colour: str,
    *values: Float[np.ndarray, " row"],
    gaps: bool = False,
    **more: Any,
) -> list[Row]:
    """A line through numbers by step, perhaps with the ends of their intervals; none if there are no numbers at all.

    A gap shows where topic structure was measured and this number is not defined.
    """
    finite = np.isfinite(np.array(values)).any(axis=0)
    if not finite.any():
        return []
    measured = [np.isfinite(of[0]).reshape(len(finite), -1).any(axis=1) for of in _topics(run)] if gaps else [finite]
    there = np.flatnonzero(np.any(measured, axis=0))
    kept = there[evenly(len(there), CURVE_POINTS)]
    first, *ends = (own[kept] for own in values)
    low_high = zip(("low", "high"), (charts.store.numbers(end[None]) for end in ends), strict=False)
    return [charts.line(name, charts.store.numbers(run.steps[kept]), first, colour, **more) | dict(low_high)]


def _topics(run: Run) -> list[Float[np.ndarray, "seed row ..."]]:
    return [values for name, values in run.metrics.items() if name.startswith("topics/")]


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


def _structure(run: Run, charts: Charts) -> None:
    """Log-ratios with intervals, the difference of each measure that lacks a ratio somewhere, and layers."""
    known = {name: label for name, label in STRUCTURES.items() if f"topics/{name}" in run.metrics}

    def values(name: str, *ends: str) -> list[Float[np.ndarray, " row"]]:
        return [run.metrics[f"topics/{name}{end}"][0] for end in ends]

    ratios = {
        name: _line(charts, run, label, colour, *values(name, "", "/low", "/high"), gaps=True)
        for (name, label), colour in zip(known.items(), COLOURS, strict=False)
    }
    text = "With 95 % intervals; 0 means no topic structure."
    charts.add("structure", "Topic structure", RATIO, [line for lines in ratios.values() for line in lines], text=text)
    for name, label in known.items():
        ratio, *difference = values(name, "", "/difference", "/difference-low", "/difference-high")
        measured = np.isfinite(difference[0])
        missing = int((measured & ~np.isfinite(ratio)).sum())
        if missing:
            text = f"With 95 % intervals; {missing} of {int(measured.sum())} steps have no ratio to show."
            title = f"Topic structure as a difference: {label}"
            line = _line(charts, run, label, BLUE, *difference)
            charts.add(f"difference-{name}", title, DIFFERENCE, line, text=text)
    layers, mean = _by_layer(charts, run, "topics/attention-by-layer"), ratios.get("attention")
    if layers and mean:
        lines = [*layers, mean[0] | {"name": "mean", "colour": GREY}]
        charts.add("structure-layers", "Topic structure in attention, by layer", RATIO, lines)
