"""Training runs on text: loss, norms, rotation and gradients by layer, and topic structure, over steps."""

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topicscope.files import read_rows
from topicscope.report.page.folders import Found, Row, read_json
from topicscope.report.page.probe_rows import Figure
from topicscope.report.page.text_curves import by_layer, curve, panel
from topicscope.report.page.text_structure import structure_figures
from topicscope.text.problems import corpus_notes

PARTS = {"key": "W^K", "query": "W^Q", "value": "W^V"}


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
    figures = [_loss(rows), *_layers(rows), *structure_figures(rows)]
    _on_one_axis(figures, rows[-1]["step"])
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
    traces = [curve("loss of the batch", rows, lambda row: row["loss"])]
    if held_out:
        traces.append(curve("held-out loss", held_out, lambda row: row["validation_loss"]))
    return panel("Loss", "loss", traces)


def _layers(rows: Sequence[Row]) -> list[Figure]:
    """A curve a layer of the norms of W^K, W^Q and W^V, of their gradients' norms, and of the rotation of W^V."""
    figures = [
        *(
            panel(f"Norm of {label} by layer", "Frobenius norm", by_layer(rows, _norm_of("norm", part)))
            for part, label in PARTS.items()
        ),
        panel(
            "Rotation of W^V by layer",
            "(1 − cosine) / 2",
            by_layer(rows, lambda row: row.get("rotation")),
            text="Cosine distance between W^V and itself 10 steps before.",
        ),
        *(
            panel(
                f"Norm of the gradient of {label} by layer",
                "Frobenius norm (logarithmic)",
                by_layer(rows, _norm_of("gradient_norm", part)),
                logarithmic=True,
            )
            for part, label in PARTS.items()
        ),
    ]
    return [figure for figure in figures if figure["traces"]]


def _norm_of(name: str, part: str) -> Callable[[Row], list[float] | None]:
    return lambda row: (row.get(name) or {}).get(part)


def _on_one_axis(figures: Sequence[Figure], last: int) -> None:
    """All over the same steps, whenever they were measured."""
    for figure in figures:
        figure["layout"]["xaxis"]["range"] = [-0.03 * max(last, 1), 1.03 * max(last, 1)]
