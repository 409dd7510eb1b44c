"""Training runs for the page's script: curves, and as many frames as there is room for."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from topicscope.report.page.store import Store
from topicscope.report.page.view import Matrix, RunView

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
