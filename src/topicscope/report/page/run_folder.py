"""A run folder read for the page: what is there of it, and a note on what cannot be read."""

import itertools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from topicscope.files import read_rows
from topicscope.measure.blocks import class_averages
from topicscope.report.page.folders import Found, Row, read_json
from topicscope.report.page.view import Matrix, RunView, tensors

# Classes of entries, in the order of ``Matrix.classes``; names of ``measure.blocks.ClassAverages``.
CLASSES = ("same_word", "same_topic", "different_topic", "mask_column", "mask_row")
# Names of matrices in snapshots, and what a reader calls them.
LABELS = {"value": "W^V", "value_products": "W^E⊤W^V W^E", "embedding_products": "W^E⊤W^E"}


def read_run(folder: Path, found: Found) -> RunView | None:
    """What a run folder has recorded so far; None, with a note, if its settings cannot be read."""
    try:
        settings = tomllib.loads((folder / "settings.toml").read_text(encoding="utf-8"))
        total = int(settings["training"]["steps"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        found.notes.append(f"{folder}: settings.toml cannot be read ({str(error).splitlines()[0]}); it is left out.")
        return None
    rows = _whole(read_rows(folder / "metrics.jsonl"))
    reference = folder / "reference.json"
    levels = (read_json(reference, found) if reference.exists() else None) or {}
    arrays = tensors(folder / "reference.safetensors", found)
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


def _snapshots(folder: Path, found: Found) -> dict[int, dict[str, np.ndarray]]:
    snapshots: dict[int, dict[str, np.ndarray]] = {}
    for path, array in tensors(folder / "snapshots.safetensors", found).items():
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
