"""Landscapes at several T and τ, small enough to be looked at side by side on the page."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from topicscope.files import write_atomically
from topicscope.theory.landscape import InfiniteDocuments, Landscape, minimise
from topicscope.theory.theorem2 import diagonal_classes, theorem2_classes
from topicscope.theory.theorem3 import theorem3

TOPICS = (10, 20, 50, 100, 1_000)
PER_DOCUMENT = (2, 4, 10, 30)
WORDS = 10
POINTS = 41
# Weights begin here and end so many times beyond the minimum's largest.
LEAST_WEIGHT, BEYOND = 0.05, 30.0


def landscape_grid(
    documents: InfiniteDocuments, value: str, points: int = POINTS
) -> tuple[dict[str, Any], Float[np.ndarray, " point"], Float[np.ndarray, "point point"]]:
    """What is said of a landscape, its weights, and the exact loss: a row an α, a column a β."""
    classes = theorem2_classes if value == "block" else diagonal_classes
    surface = Landscape(documents, classes(documents.topics, documents.words, documents.masking))
    best, bounds = minimise(surface), theorem3(documents)
    weights = np.geomspace(LEAST_WEIGHT, BEYOND * max(best.alpha, best.beta, 1.0), points)
    about = {
        "value": value,
        "topics": documents.topics,
        "per_document": documents.per_document,
        "words": documents.words,
        "alpha": best.alpha,
        "beta": best.beta,
        "loss": best.loss,
        "uniform": best.loss_uniform,
        "attained": best.attained,
        "low": bounds.low,
        "high": bounds.high,
        "limit": bounds.limit,
    }
    return about, weights, surface.loss(weights[:, None], weights[None, :])


def write_landscapes(folder: Path) -> None:
    """Write landscapes.npz and landscapes.json: all settings with τ < T, for a block and for a diagonal W^V."""
    settings = [
        (InfiniteDocuments(topics=topics, per_document=per_document, words=WORDS), value)
        for value in ("block", "diagonal")
        for topics in TOPICS
        for per_document in PER_DOCUMENT
        if per_document < topics
    ]
    grids = [landscape_grid(*setting) for setting in settings]
    content = io.BytesIO()
    arrays = {"weights": np.stack([weights for _, weights, _ in grids]), "loss": np.stack([loss for *_, loss in grids])}
    np.savez_compressed(content, allow_pickle=False, **arrays)
    write_atomically(folder / "landscapes.npz", content.getvalue())
    text = json.dumps([about for about, *_ in grids], indent=2, allow_nan=False, ensure_ascii=False)
    write_atomically(folder / "landscapes.json", text + "\n")
