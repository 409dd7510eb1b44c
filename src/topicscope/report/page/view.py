"""A training run as the page shows it: one setting, its seeds, curves over steps and matrices at a few steps."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from safetensors import SafetensorError
from safetensors.numpy import load_file

from topicscope.report.page.folders import Found

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
    arrays = tensors(folder / KEPT, found)
    if not arrays:
        return None
    about = json.loads(arrays["about"].tobytes())
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


def tensors(path: Path, found: Found) -> dict[str, np.ndarray]:
    """Arrays of a file; none, with a note, if it cannot be read; none if it is not there."""
    try:
        return load_file(path) if path.exists() else {}
    except (OSError, SafetensorError) as error:
        found.notes.append(f"{path} cannot be read ({str(error).splitlines()[0]}); it is left out.")
        return {}
