"""A training run as the page shows it: one setting, its seeds, curves over steps and matrices at a few steps."""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from topicscope.files import Row, read_tensors
from topicscope.measure.blocks import class_averages
from topicscope.records import read_film, read_metrics, read_reference, read_run_settings, read_snapshots
from topicscope.reporting.page.folders import Found
from topicscope.reporting.page.store import Store

# What ``reproduce`` keeps of an experiment.
KEPT = "trained.safetensors"


@dataclass(frozen=True, eq=False)
class Matrix:
    """A matrix over tokens: at a few steps for one seed, as averages by class of entry for all."""

    label: str
    frames: Float[np.ndarray, "frame token token"]
    classes: Float[np.ndarray, "seed frame class"]
    theory: Float[np.ndarray, "token token"] | None
    what: str
    """Which theory it is, or why there is none."""
    layer: int | None = None
    """Counted from 0; None if there is one layer only, or if it is of all."""


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
    frame_steps: Int[np.ndarray, " frame"]
    matrices: tuple[Matrix, ...]
    attention: Float[np.ndarray, "seed frame layer class"]
    """To the same word, the same topic, other topics; heads averaged."""
    word_topics: Int[np.ndarray, " token"]
    levels: Mapping[str, Any]
    """Losses to compare with: reference.json."""
    total: int

    @property
    def done(self) -> int:
        """The last step that was logged."""
        return int(self.steps[-1]) if len(self.steps) else 0


def film(view: RunView) -> dict[str, np.ndarray]:
    """A view as arrays, to be kept and read again as KEPT: one seed's frames, class averages of all."""
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
    arrays |= {f"norms-{name}": values for name, values in view.norms.items()}
    arrays |= {"frame_steps": view.frame_steps, "attention": view.attention, "word_topics": view.word_topics}
    for place, matrix in enumerate(view.matrices):
        arrays |= {f"frames-{place}": matrix.frames.astype(np.float32), f"classes-{place}": matrix.classes}
        if matrix.theory is not None:
            arrays[f"theory-{place}"] = matrix.theory
    return arrays


def kept(folder: Path, found: Found) -> RunView | None:
    """An experiment that ``reproduce`` kept: all seeds in one file."""
    kept = found.read(read_film, folder / KEPT)
    if kept is None:
        return None
    about, arrays = kept
    said = zip(about["labels"], about["theory"], about.get("layers", [None] * len(about["labels"])), strict=True)
    matrices = tuple(
        Matrix(label, arrays[f"frames-{place}"], arrays[f"classes-{place}"], arrays.get(f"theory-{place}"), what, layer)
        for place, (label, what, layer) in enumerate(said)
    )
    attention = arrays["attention"]
    return RunView(
        name=about["name"],
        settings=about["settings"],
        seeds=tuple(about["seeds"]),
        steps=arrays["steps"],
        loss=arrays["loss"],
        held_out=np.full(arrays["loss"].shape, np.nan),
        norms={name.removeprefix("norms-"): array for name, array in arrays.items() if name.startswith("norms-")},
        frame_steps=arrays["frame_steps"],
        matrices=matrices,
        # Kept before layers were told apart: their average.
        attention=attention if attention.ndim == 4 else attention[:, :, None],
        word_topics=arrays["word_topics"],
        levels=about["levels"],
        total=int(about["settings"]["training"]["steps"]),
    )


# A run folder read for the page: what is there of it, and a note on what cannot be read.


# Classes of entries, in the order of ``Matrix.classes``; names of ``measure.blocks.ClassAverages``.
CLASSES = ("same_word", "same_topic", "different_topic", "mask_column", "mask_row")


# Names of matrices in snapshots, and what a reader calls them.
LABELS = {"value": "W^V", "value_products": "W^E⊤W^V W^E", "embedding_products": "W^E⊤W^E"}


def read_run(folder: Path, found: Found) -> RunView | None:
    """What a run folder has recorded so far; None, with a note, if its settings cannot be read."""
    settings = found.read(read_run_settings, folder / "settings.toml")
    if settings is None:
        return None
    rows = _whole(read_metrics(folder / "metrics.jsonl"))
    levels = found.read(read_reference, folder / "reference.json") or {}
    arrays = found.read(_theory, folder / "reference.safetensors") or {}
    word_topics = arrays.get("word_topics", _equal_topics(settings))
    snapshots = found.read(read_snapshots, folder / "snapshots.safetensors") or {}
    return RunView(
        name=str(folder),
        settings=settings,
        seeds=(int(settings.get("seed", 0)),),
        steps=np.array([row["step"] for row in rows], dtype=np.int64),
        loss=_column(rows, lambda row: row["loss"]),
        held_out=_column(rows, lambda row: row.get("validation_loss")),
        norms={
            name: _column(rows, lambda row, name=name: np.linalg.norm(row["norm"][name]))
            for name in (rows[0]["norm"] if rows else ())
        },
        frame_steps=np.array(sorted(snapshots), dtype=np.int64),
        matrices=_matrices(snapshots, arrays, levels.get("matrices", {}), word_topics),
        attention=_attention(snapshots),
        word_topics=word_topics,
        levels=levels,
        total=settings["training"]["steps"],
    )


def classes_of(
    frames: Float[np.ndarray, "frame token token"], word_topics: Int[np.ndarray, " token"]
) -> Float[np.ndarray, "frame class"]:
    """Averages of each frame by class; NaN for a class without entries."""
    averages = [class_averages(frame, word_topics) for frame in frames.astype(np.float64)]
    rows = [[getattr(each, name) for name in CLASSES] for each in averages]
    return np.array(rows, dtype=np.float64).reshape(len(averages), len(CLASSES))


def _whole(rows: list[Row]) -> list[Row]:
    """Rows up to the first without a loss or with other norms than the first."""

    def complete(row: Row) -> bool:
        return "loss" in row and isinstance(row.get("norm"), dict) and row["norm"].keys() == rows[0]["norm"].keys()

    return list(itertools.takewhile(complete, rows))


def _column(rows: list[Row], pick: Any) -> Float[np.ndarray, "1 row"]:
    values = [pick(row) for row in rows]
    return np.array([[np.nan if value is None else float(value) for value in values]])


def _theory(path: Path) -> dict[str, np.ndarray]:
    return read_tensors(path, "remove it, and train with --resume to have it written again")


def _matrices(
    snapshots: dict[int, dict[str, np.ndarray]],
    arrays: Mapping[str, np.ndarray],
    said: Mapping[str, Any],
    word_topics: Int[np.ndarray, " token"],
) -> tuple[Matrix, ...]:
    """Those over tokens: W^V of each layer is one where embeddings are one-hot; a frozen identity is not shown."""
    ordered = [snapshots[step] for step in sorted(snapshots)]
    found = []
    for name, label in LABELS.items():
        if not ordered or not all(name in snapshot for snapshot in ordered):
            continue
        layered = np.stack(
            [np.atleast_3d(snapshot[name]).reshape(-1, *snapshot[name].shape[-2:]) for snapshot in ordered]
        )
        tokens = len(word_topics)
        if layered.shape[-2:] != (tokens, tokens) or np.array_equal(layered[-1, 0], np.eye(tokens)):
            continue
        if name == "value" and "value_products" in ordered[0]:
            continue
        for layer in range(layered.shape[1]):
            frames = layered[:, layer]
            found.append(
                Matrix(
                    label=label if layered.shape[1] == 1 else f"{label}, layer {layer + 1}",
                    frames=frames,
                    classes=classes_of(frames, word_topics)[None],
                    theory=arrays.get(name),
                    what=_words(said.get(name)),
                    layer=None if layered.shape[1] == 1 else layer,
                )
            )
    return tuple(found)


def _words(said: Any) -> str:
    if not isinstance(said, dict):
        return "The run recorded no matrix of theory."
    return str(said.get("what") or said.get("reason"))


def _attention(snapshots: dict[int, dict[str, np.ndarray]]) -> Float[np.ndarray, "1 frame layer 3"]:
    rows = [snapshots[step]["attention"] for step in sorted(snapshots) if "attention" in snapshots[step]]
    if len(rows) != len(snapshots) or not rows:
        return np.full((1, len(snapshots), 1, 3), np.nan)
    # A snapshot has class × layer × head.
    return np.stack([row.reshape(3, len(row[0]), -1).mean(axis=2).T for row in rows])[None].astype(np.float64)


def _equal_topics(settings: Mapping[str, Any]) -> Int[np.ndarray, " token"]:
    """Topics of equal size, as the settings say; none where they name a matrix."""
    topics, words = settings["data"].get("topics", 0), settings["data"].get("words", 0)
    return np.concatenate([[0], np.repeat(np.arange(1, topics + 1), words)]).astype(np.int64)


# Run folders as the page shows them: those that differ in the seed alone are one.


def run_views(folders: Sequence[Path], found: Found) -> list[RunView]:
    """Run folders with equal settings but for the seed are one view; kept experiments are one each.

    Seeds that have recorded different things so far, such as one without snapshots, are shown apart.
    """
    groups: dict[str, list[RunView]] = {}
    for folder in folders:
        view = (kept if (folder / KEPT).exists() else read_run)(folder, found)
        if view is not None:
            _say_how_far(view, found)
            key = json.dumps({**view.settings, "seed": None}, sort_keys=True, default=str)
            groups.setdefault(key, []).append(view)
    return [_together(views) for alike in groups.values() for views in _with_the_same_records(alike, found)]


def _say_how_far(view: RunView, found: Found) -> None:
    if not len(view.steps):
        found.notes.append(f"{view.name} holds a run that has logged nothing yet.")
    elif view.done < view.total and (sweep := _sweep_of(Path(view.name))):
        # Its runs are trained together, and go on together.
        said = f"{sweep} holds runs that are not finished; topicscope sweep --out {sweep} --resume goes on."
        found.notes.extend([said] if said not in found.notes else [])
    elif view.done < view.total:
        found.notes.append(
            f"{view.name} is not finished: step {view.done:,} of {view.total:,}; "
            f"topicscope train --out {view.name} --resume goes on."
        )


def _sweep_of(run: Path) -> Path | None:
    """The sweep whose run a folder is: SWEEP/runs/GROUP/seed-0."""
    inside = len(run.parents) > 2 and run.parents[1].name == "runs" and (run.parents[2] / "sweep.toml").exists()
    return run.parents[2] if inside else None


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


def _together(views: list[RunView]) -> RunView:
    """Runs that differ in the seed alone; cut to the rows and frames that all of them have."""
    first = min(views, key=lambda view: view.seeds)
    if len(views) == 1:
        return first
    views = sorted(views, key=lambda view: view.seeds)
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
        name=_common_name([view.name for view in views]),
        seeds=tuple(seed for view in views for seed in view.seeds),
        steps=first.steps[:rows],
        loss=np.concatenate([view.loss[:, :rows] for view in views]),
        held_out=np.concatenate([view.held_out[:, :rows] for view in views]),
        norms={name: np.concatenate([view.norms[name][:, :rows] for view in views]) for name in first.norms},
        frame_steps=first.frame_steps[:frames],
        matrices=matrices,
        attention=np.concatenate([view.attention[:, :frames] for view in views]),
    )


def _common_name(names: list[str]) -> str:
    parents = {str(Path(name).parent) for name in names}
    return parents.pop() if len(parents) == 1 else ", ".join(names)


# Training runs for the page's script: curves, and as many frames as there is room for.


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


def run_sections(views: Sequence[RunView], store: Store, frame_bytes: int = FRAME_BYTES) -> list[dict[str, Any]]:
    """What the script needs of each run that has something to show; frames of all take at most so many bytes."""
    shown = [view for view in views if len(view.steps)]
    size = sum(matrix.frames[0].size for view in shown for matrix in view.matrices if len(matrix.frames))
    most = max(frame_bytes, 0) // size if size else 0
    return [_section(view, store, int(most)) for view in shown]


def described(settings: Mapping[str, Any]) -> str:
    """A run's settings in a few words."""
    training, model, data = settings["training"], settings["model"], settings["data"]
    loss = {"cross_entropy": "cross-entropy", "squared": "squared loss"}[training["loss"]]
    optimizer = {"sgd": "SGD", "momentum": "SGD with momentum", "adam": "Adam", "adamw": "AdamW"}[training["optimizer"]]
    parts = {"embedding": "W^E", "value": "W^V", "key": "W^K", "query": "W^Q"}
    trained = [label for name, label in parts.items() if model[name]["train"]]
    sizes = f"T = {data['topics']}, v = {data['words']}" if data["topics"] else "topics from a file"
    return (
        f"{loss}, {optimizer}, learning rate {training['learning_rate']:g}, λ = {training['l2']:g}; "
        f"trained: {', '.join(trained) or 'biases'}; {sizes}; {training['steps']:,} steps"
    )


def evenly(count: int, most: int) -> Int[np.ndarray, " kept"]:
    """At most so many places out of ``count``, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, max(most, 1))).round().astype(np.int64))


def _section(view: RunView, store: Store, most: int) -> dict[str, Any]:
    rows = evenly(len(view.steps), CURVE_POINTS)
    frames = evenly(len(view.frame_steps), max(most, FEWEST_FRAMES)) if len(view.frame_steps) else np.zeros(0, np.int64)
    return {
        "name": view.name,
        "described": described(view.settings),
        "seeds": list(view.seeds),
        "steps": store.numbers(view.steps[rows]),
        "loss": store.numbers(view.loss[:, rows]),
        "heldOut": _if_any(view.held_out, store),
        "heldOutSteps": store.numbers(view.steps[_known(view.held_out)]),
        "norms": {name: store.numbers(values[:, rows]) for name, values in view.norms.items() if values.any()},
        "frameSteps": store.numbers(view.frame_steps[frames]),
        "matrices": [_matrix(matrix, frames, store, keep=most >= FEWEST_FRAMES) for matrix in view.matrices],
        # Small enough to be kept at every snapshot.
        "attentionSteps": store.numbers(view.frame_steps),
        "attention": store.numbers(view.attention),
        "boundaries": _boundaries(view.word_topics),
        "levels": _levels(view.levels),
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


def _known(values: Float[np.ndarray, "seed row"]) -> np.ndarray:
    return np.isfinite(values).any(axis=0)


def _if_any(values: Float[np.ndarray, "seed row"], store: Store) -> Any:
    known = _known(values)
    return store.numbers(values[:, known]) if known.any() else None


def _levels(levels: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = [{"label": label, **levels[name]} for name, label in LEVELS.items() if isinstance(levels.get(name), dict)]
    return [{"label": each["label"], "loss": each["loss"]} for each in found if each.get("loss") is not None]


def _boundaries(word_topics: Int[np.ndarray, " token"]) -> list[float]:
    """Where one topic's words end and the next one's begin; none if topics are not next to each other."""
    changes = np.flatnonzero(np.diff(word_topics))
    return [float(place) + 0.5 for place in changes] if len(changes) <= len(np.unique(word_topics)) else []
