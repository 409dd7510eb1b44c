"""Figures 6 to 9: the exact loss over (α, β) at finite T and τ, for a block and for a diagonal W^V.

The appendix with the figures was not available. Here 6 and 7 are for the block, 8 and 9 for the diagonal, each at small
and at large T. The page has landscapes at more settings, small enough to be seen side by side.
"""

import io
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from topicscope.files import write_atomically
from topicscope.paper.claim import Claim, Drawing, Drawn, Preset, Results, above, within
from topicscope.paper.theorem3 import LARGE, SMALL, landscape, optimum, setting_words, weighted_average
from topicscope.theory.landscape import InfiniteDocuments
from topicscope.theory.theorem3 import theorem3

MIDDLE = InfiniteDocuments(topics=20, per_document=4, words=10)
LARGER = InfiniteDocuments(topics=1000, per_document=30, words=10)
FIGURES = {
    "figure6": ("block", (SMALL, MIDDLE)),
    "figure7": ("block", (LARGE, LARGER)),
    "figure8": ("diagonal", (SMALL, MIDDLE)),
    "figure9": ("diagonal", (LARGE, LARGER)),
}
# Landscapes are drawn from this weight to so many times the minimum's largest weight, on logarithmic axes.
LEAST_WEIGHT, BEYOND, POINTS = 0.1, 30.0, 61
# The page's landscapes: all of these with τ < T, from a smaller weight on and on a coarser grid.
PAGE_TOPICS = (10, 20, 50, 100, 1_000)
PAGE_PER_DOCUMENT = (2, 4, 10, 30)
PAGE_WORDS = 10
PAGE_LEAST_WEIGHT, PAGE_POINTS = 0.05, 41


def claims(preset: Preset) -> tuple[Claim, ...]:
    """Claims at one setting per figure, or at all settings."""
    return tuple(_claim(name, value, documents) for name, value, documents in _shown(preset))


def _claim(name: str, value: str, documents: InfiniteDocuments) -> Claim:
    """More attention within topics; for the block, which Theorem 3 is about, inside its interval too."""
    bounds = theorem3(documents)
    inside = value == "block" and bounds.high is not None
    also = f", and between Theorem 3's bounds, λ₁(τ − 1) = {bounds.low:.4g} and λ₂T" if inside else ""
    if inside and bounds.low > 1:
        also += ", the lower of which says so too (Remark 4)"
    return Claim(
        id=f"{name}/{value}-{documents.topics}-{documents.per_document}",
        statement=f"With a {value} W^V, {setting_words(documents)}, the loss is least with more attention within a "
        f"topic{also}.",
        unit="((v−1)α + β)/v",
        rule=within(max(1.0, bounds.low), bounds.high) if inside and bounds.high else above(1),
        measure=lambda results: weighted_average(documents, value),
        figure=_figure_name(name, documents),
    )


def drawings(preset: Preset) -> tuple[Drawing, ...]:
    """The landscapes."""
    return tuple(
        Drawing(name=_figure_name(name, documents), draw=partial(draw_landscape, documents, value))
        for name, value, documents in _shown(preset)
    )


def _shown(preset: Preset) -> list[tuple[str, str, InfiniteDocuments]]:
    return [
        (name, value, documents)
        for name, (value, settings) in FIGURES.items()
        for documents in (settings if preset.full else settings[:1])
    ]


def _figure_name(number: str, documents: InfiniteDocuments) -> str:
    return f"{number}-{documents.topics}-{documents.per_document}"


def draw_landscape(documents: InfiniteDocuments, value: str, results: Results) -> Drawn:
    """The loss over (α, β) around its minimum, for all queries and for word queries alone."""
    from topicscope.reporting.figures.landscape import LandscapeData, landscape_figure

    best, bounds = optimum(documents, value), theorem3(documents)
    weights = np.geomspace(LEAST_WEIGHT, BEYOND * max(best.alpha, best.beta), POINTS)
    alpha, beta = weights[:, None], weights[None, :]
    surface = landscape(documents, value)
    data = LandscapeData(
        alpha=weights,
        beta=weights,
        loss=surface.loss(alpha, beta),
        word_loss=landscape(documents, value, mask_queries=False).loss(alpha, beta),
        average=surface.weighted_average(alpha, beta),
        optimum=(best.alpha, best.beta),
        attained=best.attained,
        low=bounds.low,
        high=bounds.high,
        limit=bounds.limit,
        title=f"{value} $W^V$, {setting_words(documents)}, v = {documents.words}",
    )
    return landscape_figure(data)


def landscape_grid(
    documents: InfiniteDocuments, value: str, points: int = PAGE_POINTS
) -> tuple[dict[str, Any], Float[np.ndarray, " point"], Float[np.ndarray, "point point"]]:
    """A landscape's description, its weights, and the exact loss: one row per α, one column per β."""
    best, bounds = optimum(documents, value), theorem3(documents)
    weights = np.geomspace(PAGE_LEAST_WEIGHT, BEYOND * max(best.alpha, best.beta, 1.0), points)
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
    return about, weights, landscape(documents, value).loss(weights[:, None], weights[None, :])


def write_landscapes(folder: Path) -> None:
    """Write landscapes.npz and landscapes.json: all of the page's settings, for a block and for a diagonal W^V."""
    settings = [
        (InfiniteDocuments(topics=topics, per_document=per_document, words=PAGE_WORDS), value)
        for value in ("block", "diagonal")
        for topics in PAGE_TOPICS
        for per_document in PAGE_PER_DOCUMENT
        if per_document < topics
    ]
    grids = [landscape_grid(*setting) for setting in settings]
    content = io.BytesIO()
    arrays = {"weights": np.stack([weights for _, weights, _ in grids]), "loss": np.stack([loss for *_, loss in grids])}
    np.savez_compressed(content, allow_pickle=False, **arrays)
    write_atomically(folder / "landscapes.npz", content.getvalue())
    text = json.dumps([about for about, *_ in grids], indent=2, allow_nan=False, ensure_ascii=False)
    write_atomically(folder / "landscapes.json", text + "\n")
