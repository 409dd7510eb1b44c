"""A view of a training run: the curves of all its seeds over steps, and its matrices at a few steps.

``reproduce`` keeps a view as arrays (``film``); the page makes one from a run folder, or reads one that was kept.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from topicscope.files import Row
from topicscope.measure.blocks import class_averages

# Classes of entries, in the order of ``Matrix.classes``; names of ``measure.blocks.ClassAverages``.
CLASSES = ("same_word", "same_topic", "different_topic", "mask_column", "mask_row")

# Names of matrices in snapshots, and what a reader calls them.
LABELS = {"value": "W^V", "value_products": "W^E⊤W^V W^E", "embedding_products": "W^E⊤W^E"}

Snapshots = Mapping[int, Mapping[str, np.ndarray]]


@dataclass(frozen=True, eq=False)
class Matrix:
    """A matrix over tokens at a few steps: whole for one seed, as averages by class of entry for all seeds."""

    label: str
    frames: Float[np.ndarray, "frame token token"]
    classes: Float[np.ndarray, "seed frame class"]
    theory: Float[np.ndarray, "token token"] | None
    what: str
    """Which theory the matrix is compared with, or why there is none."""
    layer: int | None = None
    """Counted from 0; None if there is one layer only, or if the matrix belongs to all layers."""


@dataclass(frozen=True, eq=False)
class RunView:
    """One setting; its first seed is the one with frames."""

    name: str
    settings: Mapping[str, Any]
    seeds: tuple[int, ...]
    steps: Int[np.ndarray, " row"]
    loss: Float[np.ndarray, "seed row"]
    held_out: Float[np.ndarray, "seed row"]
    norms: Mapping[str, Float[np.ndarray, "seed row"]]
    stages: Mapping[str, Float[np.ndarray, "seed row"]]
    """What ``measure.stages`` uses: "words" and "mask", attention's distances from uniform, and "gain"."""
    frame_steps: Int[np.ndarray, " frame"]
    matrices: tuple[Matrix, ...]
    attention: Float[np.ndarray, "seed frame layer class"]
    """Attention to the same word, the same topic and other topics, averaged over heads."""
    word_topics: Int[np.ndarray, " token"]
    levels: Mapping[str, Any]
    """Losses to compare with: reference.json."""
    total: int

    @property
    def done(self) -> int:
        """The last step that was logged."""
        return int(self.steps[-1]) if len(self.steps) else 0


def film(view: RunView) -> dict[str, np.ndarray]:
    """A view as arrays, to be kept and read again: one seed's frames, and the class averages of all seeds."""
    about = {
        "name": view.name,
        "settings": view.settings,
        "seeds": view.seeds,
        "levels": view.levels,
        "labels": [matrix.label for matrix in view.matrices],
        "theory": [matrix.what for matrix in view.matrices],
        "layers": [matrix.layer for matrix in view.matrices],
    }
    text = json.dumps(about, default=str, ensure_ascii=False).encode()
    arrays = {"about": np.frombuffer(text, dtype=np.uint8), "steps": view.steps, "loss": view.loss}
    for kind, curves in (("norms", view.norms), ("stages", view.stages)):
        arrays |= {f"{kind}-{name}": values for name, values in curves.items()}
    arrays |= {"frame_steps": view.frame_steps, "attention": view.attention, "word_topics": view.word_topics}
    for place, matrix in enumerate(view.matrices):
        arrays |= {f"frames-{place}": matrix.frames.astype(np.float32), f"classes-{place}": matrix.classes}
        if matrix.theory is not None:
            arrays[f"theory-{place}"] = matrix.theory
    return arrays


def from_film(about: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> RunView:
    """The view that ``film`` stored, from its description and its arrays; held-out losses are not kept."""
    said = zip(about["labels"], about["theory"], about.get("layers", [None] * len(about["labels"])), strict=True)
    matrices = tuple(
        Matrix(label, arrays[f"frames-{place}"], arrays[f"classes-{place}"], arrays.get(f"theory-{place}"), what, layer)
        for place, (label, what, layer) in enumerate(said)
    )
    attention = arrays["attention"]
    curves: dict[str, dict[str, np.ndarray]] = {"norms": {}, "stages": {}}
    for name, array in arrays.items():
        kind, _, rest = name.partition("-")
        if rest and kind in curves:
            curves[kind][rest] = array
    return RunView(
        name=about["name"],
        settings=about["settings"],
        seeds=tuple(about["seeds"]),
        steps=arrays["steps"],
        loss=arrays["loss"],
        held_out=np.full(arrays["loss"].shape, np.nan),
        **curves,
        frame_steps=arrays["frame_steps"],
        matrices=matrices,
        # Files from before layers were distinguished hold their average.
        attention=attention if attention.ndim == 4 else attention[:, :, None],
        word_topics=arrays["word_topics"],
        levels=about["levels"],
        total=int(about["settings"]["training"]["steps"]),
    )


def run_view(
    name: str,
    settings: Mapping[str, Any],
    rows: Sequence[Row],
    snapshots: Snapshots,
    *,
    levels: Mapping[str, Any],
    theory: Mapping[str, np.ndarray],
    word_topics: Int[np.ndarray, " token"],
) -> RunView:
    """The view of one run: its settings as a table, its metrics and snapshots, and theory's losses and matrices."""
    rows = _whole(rows)
    norms = (
        {part: np.array([[np.linalg.norm(row["norm"][part]) for row in rows]]) for part in rows[0]["norm"]}
        if rows
        else {}
    )
    if rows and all("modes" in row for row in rows):
        # Two parts of W^K and W^Q grow, shown apart: the one that distinguishes topics, and the column of [MASK].
        norms |= {
            f"{words} in {matrix}": _column(rows, "modes", part, mode)
            for part, matrix in (("key", "W^K"), ("query", "W^Q"))
            for mode, words in (("topics", "topics"), ("mask", "[MASK]"))
        }
    stages = {}
    if rows and all("attention" in row and "uniform_gain" in row for row in rows):
        stages = {kind: _column(rows, "attention", kind) for kind in ("words", "mask")}
        stages["gain"] = _column(rows, "uniform_gain")
    return RunView(
        name=name,
        settings=settings,
        seeds=(int(settings.get("seed", 0)),),
        steps=np.array([row["step"] for row in rows], dtype=np.int64),
        loss=_column(rows, "loss"),
        held_out=_column(rows, "validation_loss"),
        norms=norms,
        stages=stages,
        frame_steps=np.array(sorted(snapshots), dtype=np.int64),
        matrices=_matrices(snapshots, theory, levels.get("matrices", {}), word_topics),
        attention=_attention(snapshots),
        word_topics=word_topics,
        levels=levels,
        total=int(settings["training"]["steps"]),
    )


def together(views: list[RunView]) -> RunView:
    """The view of runs that differ in the seed alone, cut to the rows and frames that all of them have."""
    views = sorted(views, key=lambda view: view.seeds)
    first = views[0]
    if len(views) == 1:
        return first
    parents = {str(Path(view.name).parent) for view in views}
    rows = min(len(view.steps) for view in views)
    frames = min(len(view.frame_steps) for view in views)
    matrices = tuple(
        replace(
            matrix,
            frames=matrix.frames[:frames],
            classes=np.concatenate([view.matrices[place].classes[:, :frames] for view in views]),
        )
        for place, matrix in enumerate(first.matrices)
    )
    return replace(
        first,
        name=parents.pop() if len(parents) == 1 else ", ".join(view.name for view in views),
        seeds=tuple(seed for view in views for seed in view.seeds),
        steps=first.steps[:rows],
        loss=np.concatenate([view.loss[:, :rows] for view in views]),
        held_out=np.concatenate([view.held_out[:, :rows] for view in views]),
        norms={name: np.concatenate([view.norms[name][:, :rows] for view in views]) for name in first.norms},
        stages={name: np.concatenate([view.stages[name][:, :rows] for view in views]) for name in first.stages},
        frame_steps=first.frame_steps[:frames],
        matrices=matrices,
        attention=np.concatenate([view.attention[:, :frames] for view in views]),
    )


def classes_of(
    frames: Float[np.ndarray, "frame token token"], word_topics: Int[np.ndarray, " token"]
) -> Float[np.ndarray, "frame class"]:
    """Averages of each frame by class; NaN for a class without entries."""
    averages = [class_averages(frame, word_topics) for frame in frames.astype(np.float64)]
    rows = [[getattr(each, name) for name in CLASSES] for each in averages]
    return np.array(rows, dtype=np.float64).reshape(len(averages), len(CLASSES))


def _whole(rows: Sequence[Row]) -> list[Row]:
    """The rows before the first that has no loss, or norms of other parts than the first row."""

    def complete(row: Row) -> bool:
        return "loss" in row and isinstance(row.get("norm"), dict) and row["norm"].keys() == rows[0]["norm"].keys()

    return list(itertools.takewhile(complete, rows))


def _column(rows: Sequence[Row], *keys: str) -> Float[np.ndarray, "1 row"]:
    """A number of each row, found by these keys; NaN where there is none."""
    values = []
    for row in rows:
        value: Any = row
        for key in keys:
            value = value.get(key)
        values.append(np.nan if value is None else float(value))
    return np.array([values])


def _matrices(
    snapshots: Snapshots,
    arrays: Mapping[str, np.ndarray],
    said: Mapping[str, Any],
    word_topics: Int[np.ndarray, " token"],
) -> tuple[Matrix, ...]:
    """The matrices over tokens: W^V of each layer is one if embeddings are one-hot; a frozen identity is not shown."""
    ordered = [snapshots[step] for step in sorted(snapshots)]
    tokens, found = len(word_topics), []
    for name, label in LABELS.items():
        if not ordered or not all(name in snapshot for snapshot in ordered):
            continue
        layered = np.stack([snapshot[name].reshape(-1, *snapshot[name].shape[-2:]) for snapshot in ordered])
        if layered.shape[-2:] != (tokens, tokens) or np.array_equal(layered[-1, 0], np.eye(tokens)):
            continue
        if name == "value" and "value_products" in ordered[0]:
            continue
        told = said.get(name)
        what = (
            told.get("what") or told.get("reason")
            if isinstance(told, dict)
            else "The run recorded no matrix of theory."
        )
        several = layered.shape[1] > 1
        for layer, frames in enumerate(layered.swapaxes(0, 1)):
            classes = classes_of(frames, word_topics)[None]
            which = f"{label}, layer {layer + 1}" if several else label
            place = layer if several else None
            found.append(Matrix(which, frames, classes, arrays.get(name), str(what), place))
    return tuple(found)


def _attention(snapshots: Snapshots) -> Float[np.ndarray, "1 frame layer 3"]:
    rows = [snapshots[step]["attention"] for step in sorted(snapshots) if "attention" in snapshots[step]]
    if len(rows) != len(snapshots) or not rows:
        return np.full((1, len(snapshots), 1, 3), np.nan)
    # A snapshot has class × layer × head.
    return np.stack([row.reshape(3, len(row[0]), -1).mean(axis=2).T for row in rows])[None].astype(np.float64)
