"""Training runs: settings with their seeds, curves over steps, and matrices at as many steps as there is room for."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from topicscope.files import read_tensors
from topicscope.measure.film import Matrix, RunView, from_film, run_view, together
from topicscope.records import read_film, read_metrics, read_reference, read_run_settings, read_snapshots
from topicscope.reporting.page.folders import Found
from topicscope.reporting.page.store import Store

KEPT = "trained.safetensors"

# Most bytes of all frames of a page, before compression, which hardly helps noisy matrices.
FRAME_BYTES = 2_400_000

FEWEST_FRAMES = 2

# Points of a curve: more than a panel has pixels are not seen.
CURVE_POINTS = 150

LEVELS = {
    "bayes_floor": "Bayes floor",
    "uniform_attention_optimum": "optimum, uniform attention",
    "theorem_2": "Theorem 2's matrix",
}


def run_views(folders: Sequence[Path], found: Found) -> list[RunView]:
    """Run folders with equal settings but for the seed are one view; kept experiments are one each.

    Seeds that have recorded different things so far, such as one without snapshots, are shown apart.
    """
    groups: dict[str, list[RunView]] = {}
    for folder in folders:
        # What ``reproduce`` kept of an experiment, all seeds in one file; or a run folder.
        kept = found.read(read_film, folder / KEPT)
        view = from_film(*kept) if kept else None if (folder / KEPT).exists() else _recorded(folder, found)
        if view is not None:
            _say_how_far(view, found)
            key = json.dumps({**view.settings, "seed": None}, sort_keys=True, default=str)
            groups.setdefault(key, []).append(view)
    return [together(views) for alike in groups.values() for views in _with_the_same_records(alike, found)]


def _say_how_far(view: RunView, found: Found) -> None:
    if not len(view.steps):
        found.notes.append(f"{view.name} holds a run that has logged nothing yet.")
    elif view.done < view.total:
        note = (
            f"{view.name} is not finished: step {view.done:,} of {view.total:,}; "
            f"topicscope train --out {view.name} --resume goes on."
        )
        # The runs of a sweep, SWEEP/runs/GROUP/seed-0, are trained together, and go on together.
        above = Path(view.name).parents
        if len(above) > 2 and above[1].name == "runs" and (above[2] / "sweep.toml").exists():
            note = f"{above[2]} holds runs that are not finished; topicscope sweep --out {above[2]} --resume goes on."
        if note not in found.notes:
            found.notes.append(note)


def _with_the_same_records(views: list[RunView], found: Found) -> list[list[RunView]]:
    """The largest part of the seeds that have the same matrices and norms first; a note on each of the others."""
    parts: dict[Any, list[RunView]] = {}
    for view in views:
        matrices = tuple((matrix.label, matrix.frames.shape[1:]) for matrix in view.matrices)
        parts.setdefault((matrices, tuple(view.norms), len(view.frame_steps) > 0), []).append(view)
    ordered = sorted(parts.values(), key=len, reverse=True)
    found.notes.extend(
        f"{view.name} has not recorded what other seeds of its setting have, so it is shown apart."
        for part in ordered[1:]
        for view in part
        if len(view.steps)
    )
    return ordered


def _recorded(folder: Path, found: Found) -> RunView | None:
    """What a run folder has recorded so far; None, with a note, if its settings cannot be read."""
    settings = found.read(read_run_settings, folder / "settings.toml")
    if settings is None:
        return None
    remedy = "remove it, and train with --resume to have it written again"
    theory = found.read(lambda path: read_tensors(path, remedy), folder / "reference.safetensors") or {}
    # Else topics of equal size, as the settings say; none where they name a matrix.
    topics, words = settings["data"].get("topics", 0), settings["data"].get("words", 0)
    equal = np.concatenate([[0], np.repeat(np.arange(1, topics + 1), words)]).astype(np.int64)
    return run_view(
        str(folder),
        settings,
        read_metrics(folder / "metrics.jsonl"),
        found.read(read_snapshots, folder / "snapshots.safetensors") or {},
        levels=found.read(read_reference, folder / "reference.json") or {},
        theory=theory,
        word_topics=theory.get("word_topics", equal),
    )


# For the page's script: curves, and as many frames as there is room for.


def run_sections(views: Sequence[RunView], store: Store, frame_bytes: int = FRAME_BYTES) -> list[dict[str, Any]]:
    """What the script needs of each run that has something to show; frames of all take at most so many bytes."""
    shown = [view for view in views if len(view.steps)]
    size = sum(matrix.frames[0].size for view in shown for matrix in view.matrices if len(matrix.frames))
    most = max(frame_bytes, 0) // size if size else 0
    return [_section(view, store, int(most)) for view in shown]


def described(settings: Mapping[str, Any]) -> str:
    """A run's settings in a few words."""
    training, model, data = settings["training"], settings["model"], settings["data"]
    losses = {"cross_entropy": "cross-entropy", "squared": "squared loss"}
    optimizers = {"sgd": "SGD", "momentum": "SGD with momentum", "adam": "Adam", "adamw": "AdamW"}
    parts = {"embedding": "W^E", "value": "W^V", "key": "W^K", "query": "W^Q"}
    try:
        trained = [label for name, label in parts.items() if model[name]["train"]]
        sizes = f"T = {data['topics']}, v = {data['words']}" if data["topics"] else "topics from a file"
        return (
            f"{losses[training['loss']]}, {optimizers[training['optimizer']]}, learning rate "
            f"{training['learning_rate']:g}, λ = {training['l2']:g}; trained: {', '.join(trained) or 'biases'}; "
            f"{sizes}; {training['steps']:,} steps"
        )
    except KeyError as missing:
        return f"its settings do not say {missing}"


def evenly(count: int, most: int) -> Int[np.ndarray, " kept"]:
    """At most so many places out of ``count``, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, max(most, 1))).round().astype(np.int64))


def _section(view: RunView, store: Store, most: int) -> dict[str, Any]:
    rows = evenly(len(view.steps), CURVE_POINTS)
    frames = evenly(len(view.frame_steps), max(most, FEWEST_FRAMES)) if len(view.frame_steps) else np.zeros(0, np.int64)
    known = np.isfinite(view.held_out).any(axis=0)
    levels = {label: view.levels.get(name) for name, label in LEVELS.items()}
    # Where one topic's words end and the next one's begin; none if topics are not next to each other.
    changes = np.flatnonzero(np.diff(view.word_topics))
    adjacent = len(changes) <= len(np.unique(view.word_topics))
    return {
        "name": view.name,
        "described": described(view.settings),
        "seeds": list(view.seeds),
        "steps": store.numbers(view.steps[rows]),
        "loss": store.numbers(view.loss[:, rows]),
        "heldOut": store.numbers(view.held_out[:, known]) if known.any() else None,
        "heldOutSteps": store.numbers(view.steps[known]),
        "norms": {name: store.numbers(values[:, rows]) for name, values in view.norms.items() if values.any()},
        "frameSteps": store.numbers(view.frame_steps[frames]),
        "matrices": [_matrix(matrix, frames, store, keep=most >= FEWEST_FRAMES) for matrix in view.matrices],
        # Small enough to be kept at every snapshot.
        "attentionSteps": store.numbers(view.frame_steps),
        "attention": store.numbers(view.attention),
        "boundaries": [float(place) + 0.5 for place in changes] if adjacent else [],
        "levels": [
            {"label": label, "loss": level["loss"]}
            for label, level in levels.items()
            if isinstance(level, dict) and level.get("loss") is not None
        ],
        "done": view.done,
        "total": view.total,
    }


def _matrix(matrix: Matrix, frames: Int[np.ndarray, " kept"], store: Store, *, keep: bool) -> dict[str, Any]:
    kept = matrix.frames[frames]
    return {
        "label": matrix.label,
        "size": matrix.frames.shape[-1],
        "frames": store.frames(kept) if keep and np.isfinite(kept).all() else None,
        "classes": store.numbers(matrix.classes[:, frames]),
        "theory": None if matrix.theory is None else store.numbers(matrix.theory),
        "what": matrix.what,
        "layer": matrix.layer,
        "limit": _limit(matrix),
    }


def _limit(matrix: Matrix) -> float:
    """End of the colour scale, common to trained and theory: at most three times the largest off the diagonal."""
    shown = [matrix.frames[-1], *([] if matrix.theory is None else [matrix.theory])]
    off = ~np.eye(shown[0].shape[-1], dtype=bool)
    return max(float(min(np.abs(each).max(), 3 * np.abs(each[off]).max(initial=0.0))) for each in shown) or 1.0
