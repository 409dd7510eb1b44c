"""Training runs as the page shows them: one setting, its seeds, curves over steps and matrices at a few steps."""

import itertools
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from safetensors import SafetensorError
from safetensors.numpy import load_file

from topicscope.measure.blocks import class_averages
from topicscope.report.page.folders import Found, Row, read_json, read_rows

# Classes of entries, in the order of ``Matrix.classes``; names of ``measure.blocks.ClassAverages``.
CLASSES = ("same_word", "same_topic", "different_topic", "mask_column", "mask_row")
# What ``reproduce`` keeps of an experiment.
KEPT = "trained.safetensors"
# Names of matrices in snapshots, and what a reader calls them.
LABELS = {"value": "W^V", "value_products": "W^E⊤W^V W^E", "embedding_products": "W^E⊤W^E"}


@dataclass(frozen=True, eq=False)
class Matrix:
    """A matrix over tokens: at a few steps for one seed, as averages by class of entry for all."""

    label: str
    frames: Float[np.ndarray, "frame token token"]
    classes: Float[np.ndarray, "seed frame class"]
    theory: Float[np.ndarray, "token token"] | None
    what: str
    """Which theory it is, or why there is none."""


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
    attention: Float[np.ndarray, "seed frame class"]
    """To the same word, the same topic, other topics; layers and heads averaged."""
    word_topics: Int[np.ndarray, " token"]
    levels: Mapping[str, Any]
    """Losses to compare with: reference.json."""
    total: int

    @property
    def done(self) -> int:
        """The last step that was logged."""
        return int(self.steps[-1]) if len(self.steps) else 0


def run_views(folders: Sequence[Path], found: Found) -> list[RunView]:
    """Run folders with equal settings but for the seed are one view; kept experiments are one each.

    Seeds that have recorded different things so far, such as one without snapshots, are shown apart.
    """
    groups: dict[str, list[RunView]] = {}
    for folder in folders:
        kept = (folder / KEPT).exists()
        view = _kept(folder, found) if kept else _run_folder(folder, found)
        if view is not None:
            _say_how_far(view, found)
            key = json.dumps({**view.settings, "seed": None}, sort_keys=True, default=str)
            groups.setdefault(key, []).append(view)
    return [_together(views) for alike in groups.values() for views in _with_the_same_records(alike, found)]


def classes_of(
    frames: Float[np.ndarray, "frame token token"], word_topics: Int[np.ndarray, " token"]
) -> Float[np.ndarray, "frame class"]:
    """Averages of each frame by class; NaN for a class without entries."""
    averages = [class_averages(frame, word_topics) for frame in frames.astype(np.float64)]
    rows = [[getattr(each, name) for name in CLASSES] for each in averages]
    return np.array(rows, dtype=np.float64).reshape(len(averages), len(CLASSES))


def _say_how_far(view: RunView, found: Found) -> None:
    if not len(view.steps):
        found.notes.append(f"{view.name} holds a run that has logged nothing yet.")
    elif view.done < view.total:
        found.notes.append(
            f"{view.name} is not finished: step {view.done:,} of {view.total:,}; "
            f"topicscope train --out {view.name} --resume goes on."
        )


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


def _run_folder(folder: Path, found: Found) -> RunView | None:
    try:
        settings = tomllib.loads((folder / "settings.toml").read_text(encoding="utf-8"))
        total = int(settings["training"]["steps"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        found.notes.append(f"{folder}: settings.toml cannot be read ({str(error).splitlines()[0]}); it is left out.")
        return None
    rows = _whole(read_rows(folder / "metrics.jsonl"))
    reference = folder / "reference.json"
    levels = (read_json(reference, found) if reference.exists() else None) or {}
    arrays = _tensors(folder / "reference.safetensors", found)
    word_topics = arrays.get("word_topics", _equal_topics(settings))
    snapshots = _snapshots(folder, found)
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
        total=total,
    )


def _whole(rows: list[Row]) -> list[Row]:
    """Rows up to the first without a loss or with other norms than the first."""

    def complete(row: Row) -> bool:
        return "loss" in row and isinstance(row.get("norm"), dict) and row["norm"].keys() == rows[0]["norm"].keys()

    return list(itertools.takewhile(complete, rows))


def film(view: RunView) -> dict[str, np.ndarray]:
    """A view as arrays, to be kept and read again as KEPT: one seed's frames, class averages of all."""
    about = {
        "name": view.name,
        "settings": view.settings,
        "seeds": view.seeds,
        "levels": view.levels,
        "labels": [matrix.label for matrix in view.matrices],
        "theory": [matrix.what for matrix in view.matrices],
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


def _kept(folder: Path, found: Found) -> RunView | None:
    """An experiment that ``reproduce`` kept: all seeds in one file."""
    arrays = _tensors(folder / KEPT, found)
    if not arrays:
        return None
    about = json.loads(arrays["about"].tobytes())
    matrices = tuple(
        Matrix(label, arrays[f"frames-{place}"], arrays[f"classes-{place}"], arrays.get(f"theory-{place}"), what)
        for place, (label, what) in enumerate(zip(about["labels"], about["theory"], strict=True))
    )
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
        attention=arrays["attention"],
        word_topics=arrays["word_topics"],
        levels=about["levels"],
        total=int(about["settings"]["training"]["steps"]),
    )


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


def _column(rows: list[Row], pick: Any) -> Float[np.ndarray, "1 row"]:
    values = [pick(row) for row in rows]
    return np.array([[np.nan if value is None else float(value) for value in values]])


def _tensors(path: Path, found: Found) -> dict[str, np.ndarray]:
    try:
        return load_file(path) if path.exists() else {}
    except (OSError, SafetensorError) as error:
        found.notes.append(f"{path} cannot be read ({str(error).splitlines()[0]}); it is left out.")
        return {}


def _snapshots(folder: Path, found: Found) -> dict[int, dict[str, np.ndarray]]:
    snapshots: dict[int, dict[str, np.ndarray]] = {}
    for path, array in _tensors(folder / "snapshots.safetensors", found).items():
        step, name = path.split("/")
        snapshots.setdefault(int(step), {})[name] = array
    return snapshots


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
                )
            )
    return tuple(found)


def _words(said: Any) -> str:
    if not isinstance(said, dict):
        return "The run recorded no matrix of theory."
    return str(said.get("what") or said.get("reason"))


def _attention(snapshots: dict[int, dict[str, np.ndarray]]) -> Float[np.ndarray, "1 frame 3"]:
    rows = [snapshots[step]["attention"] for step in sorted(snapshots) if "attention" in snapshots[step]]
    if len(rows) != len(snapshots) or not rows:
        return np.full((1, len(snapshots), 3), np.nan)
    return np.stack([row.reshape(3, -1).mean(axis=1) for row in rows])[None].astype(np.float64)


def _equal_topics(settings: Mapping[str, Any]) -> Int[np.ndarray, " token"]:
    """Topics of equal size, as the settings say; none where they name a matrix."""
    topics, words = settings["data"].get("topics", 0), settings["data"].get("words", 0)
    return np.concatenate([[0], np.repeat(np.arange(1, topics + 1), words)]).astype(np.int64)
