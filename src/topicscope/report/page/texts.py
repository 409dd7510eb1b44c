"""Training runs on text: loss, norms by layer and topic structure over steps."""

import math
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topicscope.files import read_rows
from topicscope.report.page.folders import Found, Row, read_json
from topicscope.report.page.probe_rows import Figure
from topicscope.report.page.runs import CURVE_POINTS, evenly
from topicscope.text.problems import corpus_notes

PARTS = {"key": "W^K", "query": "W^Q", "value": "W^V"}
# Names in the rows' ``topics``, and what a reader calls them.
STRUCTURES = {"embedding_layer": "embeddings (cosine)", "attention": "attention"}
FEW_POINTS = 30
Numbers = list[float | None]


@dataclass(frozen=True)
class TextSection:
    """One run folder."""

    anchor: str
    folder: str
    described: str
    notes: tuple[str, ...]
    """What could not be read of the corpus."""

    figures: tuple[Figure, ...]


def text_section(folder: Path, number: int, found: Found) -> TextSection | None:
    """The run in a folder; None, with a note, if it has logged nothing yet or cannot be read."""
    try:
        settings = tomllib.loads((folder / "settings.toml").read_text(encoding="utf-8"))
        total, described = int(settings["training"]["steps"]), _described(settings)
    except (OSError, ValueError, KeyError, TypeError) as error:
        found.notes.append(f"{folder}: settings.toml cannot be read ({str(error).splitlines()[0]}); it is left out.")
        return None
    rows = [row for row in read_rows(folder / "metrics.jsonl") if "loss" in row and isinstance(row.get("norm"), dict)]
    if not rows:
        found.notes.append(f"{folder} holds a run on text that has logged nothing yet.")
        return None
    if rows[-1]["step"] < total:
        found.notes.append(
            f"{folder} is not finished: step {rows[-1]['step']:,} of {total:,}; "
            f"topicscope train --out {folder} --resume goes on."
        )
    anchor = f"text-{number}"
    figures = [_loss(rows), *_norms(rows), *_structure(rows)]
    named = [{"id": f"{anchor}-figure-{place}", **figure} for place, figure in enumerate(figures)]
    return TextSection(anchor, str(folder), described, _notes(folder, found), tuple(named))


def _notes(folder: Path, found: Found) -> tuple[str, ...]:
    path = folder / "passages" / "passages.json"
    about = read_json(path, found) if path.exists() else None
    try:
        return tuple(corpus_notes(about)) if about else ()
    except (KeyError, TypeError):
        found.notes.append(f"{path} is not one of this version's; what it says of the corpus is left out.")
        return ()


def _described(settings: dict[str, Any]) -> str:
    model, training = settings["model"], settings["training"]
    return (
        f"corpus {settings['data']['corpus']}, {model['layers']} layers of {model['heads']} heads, width "
        f"{model['width']}, learning rate {training['learning_rate']:g}, {training['steps']:,} steps, "
        f"seed {settings.get('seed', 0)}"
    )


def _loss(rows: Sequence[Row]) -> Figure:
    held_out = [row for row in rows if row.get("validation_loss") is not None]
    traces = [_curve("loss of the batch", rows, lambda row: row["loss"])]
    if held_out:
        traces.append(_curve("held-out loss", held_out, lambda row: row["validation_loss"]))
    return _figure("Loss", "loss", traces)


def _norms(rows: Sequence[Row]) -> list[Figure]:
    """A figure a part, a curve a layer."""
    figures = []
    for part, label in PARTS.items():
        known = [row for row in rows if row["norm"].get(part)]
        layers = min((len(row["norm"][part]) for row in known), default=0)
        traces = [
            _curve(f"layer {layer + 1}", known, lambda row, part=part, layer=layer: row["norm"][part][layer])  # type: ignore[misc]
            for layer in range(layers)
        ]
        if traces:
            figures.append(_figure(f"Norm of {label} by layer", "Frobenius norm", traces))
    return figures


def _structure(rows: Sequence[Row]) -> list[Figure]:
    """Log-ratios of same- to different-topic averages, where they were measured."""
    traces = []
    for name, label in STRUCTURES.items():
        known = [row for row in rows if isinstance((row.get("topics") or {}).get(name), dict)]
        if known:
            curve = _curve(label, known, lambda row, name=name: _logarithm(row["topics"][name].get("ratio")))  # type: ignore[misc]
            traces.append(curve | {"mode": "lines+markers"})
    return [_figure("Topic structure", "log (same topic / different topic)", traces)] if traces else []


def _curve(name: str, rows: Sequence[Row], pick: Callable[[Row], float | None]) -> dict[str, Any]:
    kept = [rows[place] for place in evenly(len(rows), CURVE_POINTS)]
    values: Numbers = [pick(row) for row in kept]
    # Few points are marked: a line of one cannot be seen.
    mode = "lines+markers" if len(kept) <= FEW_POINTS else "lines"
    return {"type": "scatter", "mode": mode, "name": name, "x": [row["step"] for row in kept], "y": values}


def _figure(title: str, label: str, traces: list[dict[str, Any]]) -> Figure:
    axes = {"xaxis": {"title": {"text": "step", "standoff": 5}}, "yaxis": {"title": {"text": label}}}
    layout = {**axes, "showlegend": True, "margin": {"b": 100}, "height": 380}
    return {"title": title, "text": "", "traces": traces, "layout": layout}


def _logarithm(ratio: float | None) -> float | None:
    return math.log(ratio) if ratio is not None and ratio > 0 else None
