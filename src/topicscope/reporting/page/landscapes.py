"""Landscapes for the page's script: the loss over (α, β) at each T and τ that was computed."""

from pathlib import Path

import numpy as np

from topicscope.files import Row
from topicscope.records import read_landscape, read_landscapes
from topicscope.reporting.page.folders import Found
from topicscope.reporting.page.runs import evenly
from topicscope.reporting.page.store import Store

# Grid points along an axis that are shown.
POINTS = 61


def landscape_sections(folders: list[Path], store: Store, found: Found) -> list[Row]:
    """One entry per landscape, for whichever T, τ and W^V there are."""
    sections = []
    for folder in folders:
        # Many small ones in one file, as ``reproduce`` writes them, or one of ``landscape``.
        if (folder / "landscapes.npz").exists() and (many := found.read(read_landscapes, folder)):
            about, arrays = many
            sections += [
                _section(each, weights, loss, store)
                for each, weights, loss in zip(about, arrays["weights"], arrays["loss"], strict=True)
            ]
        if (folder / "landscape.npz").exists() and (one := found.read(read_landscape, folder)):
            sections.append(_one(*one, store))
    unique = {(each["value"], each["topics"], each["perDocument"], each["words"]): each for each in sections}
    return [unique[key] for key in sorted(unique)]


def _one(about: Row, arrays: dict[str, np.ndarray], store: Store) -> Row:
    best, kept = about["optimum"], evenly(len(arrays["alpha"]), POINTS)
    weights, loss = arrays["alpha"][kept], arrays["loss"][np.ix_(kept, kept)]
    return _section(
        {
            "value": about["value"],
            **{name: about["setting"][name] for name in ("topics", "per_document", "words")},
            **{name: best[name] for name in ("alpha", "beta", "loss")},
            "uniform": best["loss_uniform"],
            "attained": best["attained"],
            **{name: about["theorem3"].get(name) for name in ("low", "high", "limit")},
            "figures": [],
        },
        weights,
        loss,
        store,
    )


def _section(about: Row, weights: np.ndarray, loss: np.ndarray, store: Store) -> Row:
    names = {"per_document": "perDocument"}
    return {
        **{names.get(name, name): value for name, value in about.items()},
        "weights": store.numbers(weights),
        # A row per β, as a plot has it.
        "grid": store.halves(loss.T),
    }
