"""Landscapes for the page's script: the loss over (α, β) at each T and τ that was computed."""

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from topicscope.reporting.page.folders import Found
from topicscope.reporting.page.runs import evenly
from topicscope.reporting.page.store import Store

# Grid points along an axis that are shown.
POINTS = 61


def landscape_sections(folders: list[Path], store: Store, found: Found) -> list[dict[str, Any]]:
    """One entry a landscape, for whichever T, τ and W^V there are."""
    sections = []
    for folder in folders:
        try:
            if (folder / "landscapes.npz").exists():
                sections += _grids(folder, store)
            if (folder / "landscape.npz").exists():
                sections.append(_one(folder, store))
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            found.notes.append(f"{folder}: its landscape cannot be read ({str(error).splitlines()[0]}).")
    unique = {(each["value"], each["topics"], each["perDocument"], each["words"]): each for each in sections}
    return [unique[key] for key in sorted(unique)]


def _one(folder: Path, store: Store) -> dict[str, Any]:
    about = json.loads((folder / "landscape.json").read_text(encoding="utf-8"))
    setting, theorem = about["setting"], about["theorem3"]
    with np.load(folder / "landscape.npz", allow_pickle=False) as arrays:
        kept = evenly(len(arrays["alpha"]), POINTS)
        weights, loss = arrays["alpha"][kept], arrays["loss"][np.ix_(kept, kept)]
    return _section(
        {
            "value": about["value"],
            "topics": setting["topics"],
            "per_document": setting["per_document"],
            "words": setting["words"],
            "alpha": about["optimum"]["alpha"],
            "beta": about["optimum"]["beta"],
            "loss": about["optimum"]["loss"],
            "uniform": about["optimum"]["loss_uniform"],
            "attained": about["optimum"]["attained"],
            "low": theorem.get("low"),
            "high": theorem.get("high"),
            "limit": theorem.get("limit"),
            "figures": [],
        },
        weights,
        loss,
        store,
    )


def _grids(folder: Path, store: Store) -> list[dict[str, Any]]:
    """Many small landscapes in one file, as ``reproduce`` writes them."""
    about = json.loads((folder / "landscapes.json").read_text(encoding="utf-8"))
    with np.load(folder / "landscapes.npz", allow_pickle=False) as arrays:
        weights, loss = arrays["weights"], arrays["loss"]
    return [_section(each, weights[place], loss[place], store) for place, each in enumerate(about)]


def _section(about: dict[str, Any], weights: np.ndarray, loss: np.ndarray, store: Store) -> dict[str, Any]:
    names = {"per_document": "perDocument"}
    return {
        **{names.get(name, name): value for name, value in about.items()},
        "weights": store.numbers(weights),
        # A row a β, as a plot has it.
        "grid": store.halves(loss.T),
    }
