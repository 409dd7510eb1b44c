"""A training run on text: loss, norms, rotation and gradients by layer, and topic structure, over steps."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from topicscope.files import Row
from topicscope.records import read_metrics, read_passages_about, read_run_settings
from topicscope.reporting.page.probes import Figure, error_bars
from topicscope.reporting.page.runs import CURVE_POINTS, evenly
from topicscope.reporting.page.store import Found
from topicscope.text.formats import corpus_notes

# Curves with at most this many points have them marked.
FEW_POINTS = 30

# Layers beyond the palette's colours have different dashes.
PALETTE = 6
DASHES = ("solid", "dash", "dot", "dashdot")

PARTS = {"key": "W^K", "query": "W^Q", "value": "W^V"}

# Names in the rows' ``topics``, and what a reader calls them.
STRUCTURES = {
    "embedding_layer": "embedding layer's output (cosine)",
    "embedding_matrix": "embedding matrix (cosine)",
    "attention": "attention, mean of layers",
}
RATIO = "log (same topic / different topic)"
DIFFERENCE = "same − different topic"

Curve = dict[str, Any]
Interval = tuple[float | None, float | None, float | None]


def text_section(folder: Path, number: int, found: Found) -> Row | None:
    """The run in a folder; None, with a note, if it has logged nothing yet or cannot be read."""
    settings = found.read(read_run_settings, folder / "settings.toml")
    if settings is None:
        return None
    total = settings["training"]["steps"]
    rows = [row for row in read_metrics(folder / "metrics.jsonl") if "loss" in row and "norm" in row]
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
    for place, figure in enumerate(figures):
        # All panels have the same steps, whenever something was measured.
        figure["layout"]["xaxis"]["range"] = [end * max(rows[-1]["step"], 1) for end in (-0.03, 1.03)]
        figures[place] = {"id": f"{anchor}-figure-{place}", **figure}
    path, notes = folder / "passages" / "passages.json", []
    try:
        if about := found.read(read_passages_about, path):
            notes = corpus_notes(about)
    except (KeyError, TypeError):
        found.notes.append(f"{path} is not one of this version's; what it says of the corpus is left out.")
    model, training = settings["model"], settings["training"]
    try:
        described = (
            f"corpus {settings['data']['corpus']}, {model['layers']} layers of {model['heads']} heads, width "
            f"{model['width']}, learning rate {training['learning_rate']:g}, {training['steps']:,} steps, "
            f"seed {settings.get('seed', 0)}"
        )
    except KeyError as missing:
        described = f"its settings do not say {missing}"
    return {"anchor": anchor, "folder": str(folder), "described": described, "notes": notes, "figures": figures}


def _loss(rows: Sequence[Row]) -> Figure:
    held_out = [row for row in rows if row.get("validation_loss") is not None]
    traces = [curve("loss of the batch", rows, lambda row: row["loss"])]
    if held_out:
        traces.append(curve("held-out loss", held_out, lambda row: row["validation_loss"]))
    return panel("Loss", "loss", traces)


def _layers(rows: Sequence[Row]) -> list[Figure]:
    """A curve per layer of the norms of W^K, W^Q and W^V, of the rotation of W^V, and of the gradients' norms."""

    def norms(name: str, part: str) -> list[Curve]:
        return by_layer(rows, lambda row: (row.get(name) or {}).get(part))

    turned = by_layer(rows, lambda row: row.get("rotation"))
    text, label = "Cosine distance between W^V and itself 10 steps before.", "Frobenius norm (logarithmic)"
    figures = [
        *(panel(f"Norm of {each} by layer", "Frobenius norm", norms("norm", part)) for part, each in PARTS.items()),
        panel("Rotation of W^V by layer", "(1 − cosine) / 2", turned, text=text),
        *(
            panel(f"Norm of the gradient of {each} by layer", label, norms("gradient_norm", part), logarithmic=True)
            for part, each in PARTS.items()
        ),
    ]
    return [figure for figure in figures if figure["traces"]]


# Log-ratios with intervals, and differences where there is no ratio.


def structure_figures(rows: Sequence[Row]) -> list[Figure]:
    """Where it was measured: all ratios, the difference of each measure that lacks one somewhere, and layers."""
    measured = [row for row in rows if row.get("topics")]
    known = {
        name: [{"step": row["step"], **row["topics"][name]} for row in measured if row["topics"].get(name)]
        for name in STRUCTURES
    }
    ratios = {name: interval_curve(STRUCTURES[name], each, log_ratio) for name, each in known.items() if each}
    drawn = [trace for trace in ratios.values() if _has_points(trace)]
    figures = []
    if drawn:
        figures.append(panel("Topic structure", RATIO, drawn, text="With 95 % intervals; 0 means no topic structure."))
    for name, trace in ratios.items():
        missing = sum(value is None for value in trace["y"])
        difference = interval_curve(STRUCTURES[name], known[name], _difference)
        if missing and _has_points(difference):
            figures.append(panel(f"Topic structure as a difference: {STRUCTURES[name]}", DIFFERENCE, [difference]))
            figures[-1]["text"] = f"With 95 % intervals; {missing} of {len(trace['y'])} steps have no ratio to show."
    return figures + _layer_structure(measured, ratios.get("attention"))


def _layer_structure(measured: Sequence[Row], mean: Curve | None) -> list[Figure]:
    known = [
        [{"step": row["step"], **each} for each in row["topics"]["attention_by_layer"]]
        for row in measured
        if row["topics"].get("attention_by_layer")
    ]
    lines = [
        interval_curve(f"layer {layer}", rows, log_ratio, drawn=False) | {"line": dash_of(layer)}
        for layer, rows in enumerate(zip(*known, strict=False), start=1)
    ]
    if not mean or not any(map(_has_points, lines)):
        return []
    # After the layers, which have the colours of the other panels, and in none of them.
    lines.append(mean | {"name": "mean", "line": {"color": "#808080", "width": 4}})
    text = "The mean with 95 % intervals; those of the layers are in the CSV."
    return [panel("Topic structure in attention, by layer", RATIO, lines, text=text)]


def log_ratio(contrast: dict[str, Any]) -> Interval:
    """The logarithm of a contrast's ratio and of its ends; None for what is not defined."""
    value, low, high = (
        math.log(ratio) if ratio is not None and ratio > 0 else None
        for ratio in (contrast.get(name) for name in ("ratio", "low", "high"))
    )
    return value, low, high


def _difference(contrast: dict[str, Any]) -> Interval:
    return contrast.get("difference"), contrast.get("difference_low"), contrast.get("difference_high")


def _has_points(trace: Curve) -> bool:
    return any(value is not None for value in trace["y"])


# Curves, and the panels that they are drawn in.


def curve(name: str, rows: Sequence[Row], pick: Callable[[Row], float | None]) -> Curve:
    """A number over the steps of these rows."""
    kept = [rows[place] for place in evenly(len(rows), CURVE_POINTS)]
    # Few points are marked, because a line of one point is invisible.
    mode = "lines+markers" if len(kept) <= FEW_POINTS else "lines"
    values = [pick(row) for row in kept]
    return {"type": "scatter", "mode": mode, "name": name, "x": [row["step"] for row in kept], "y": values}


def interval_curve(name: str, rows: Sequence[Row], pick: Callable[[Row], Interval], *, drawn: bool = True) -> Curve:
    """A number with the ends of its interval; where these are not ``drawn``, they are in the table alone."""
    kept = [pick(rows[place]) for place in evenly(len(rows), CURVE_POINTS)]
    bars = error_bars(kept, thickness=1, width=3, visible=drawn)
    return curve(name, rows, lambda row: pick(row)[0]) | {"mode": "lines+markers", "error_y": bars}


def by_layer(rows: Sequence[Row], pick: Callable[[Row], Sequence[float | None] | None]) -> list[Curve]:
    """A curve per layer, from rows that have a number for each."""
    known = [[{"step": row["step"], "value": value} for value in values] for row in rows if (values := pick(row))]
    return [
        curve(f"layer {layer}", points, lambda point: point["value"]) | {"line": dash_of(layer)}
        for layer, points in enumerate(zip(*known, strict=False), start=1)
    ]


def dash_of(layer: int) -> dict[str, str]:
    """How a layer's line is drawn, counted from 1."""
    return {"dash": DASHES[(layer - 1) // PALETTE % len(DASHES)]}


def panel(title: str, label: str, traces: Sequence[Curve], *, text: str = "", logarithmic: bool = False) -> Figure:
    """A figure over steps, with room for its legend below it."""
    scale = {"type": "log", "exponentformat": "power", "dtick": _ticks(traces)} if logarithmic else {}
    axes = {"xaxis": {"title": {"text": "step", "standoff": 5}}, "yaxis": {"title": {"text": label}, **scale}}
    wide, narrow = (_room(traces, width) for width in (430, 290))
    return {"title": title, "text": text, "traces": list(traces), "layout": {**axes, **wide}, "narrow": narrow}


def _ticks(traces: Sequence[Curve]) -> int | str:
    """Ticks of a logarithmic axis: powers of ten, and on a short axis 2 and 5 times these too."""
    values = [value for trace in traces for value in trace["y"] if value]
    return "D2" if values and max(values) < 100 * min(values) else 1


def _room(traces: Sequence[Curve], width: int) -> dict[str, Any]:
    """Heights of a figure and of what is under its axis, for a legend in lines of this many pixels."""
    longest = max((len(each["name"]) for each in traces), default=0)
    lines = -(-len(traces) // max(width // (45 + 7 * longest), 1))
    return {"showlegend": True, "margin": {"b": 60 + 20 * lines}, "height": 340 + 20 * lines}
