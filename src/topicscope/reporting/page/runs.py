"""What the page's script plays: training runs with their curves and matrices, and landscapes of the loss."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int
from markupsafe import Markup

from topicscope.files import Row, read_tensors
from topicscope.measure.film import Matrix, RunView, from_film, run_view, together
from topicscope.measure.stages import LEAST_GAIN, stages
from topicscope.records import (
    read_film,
    read_landscape,
    read_landscapes,
    read_metrics,
    read_reference,
    read_run_settings,
    read_snapshots,
)
from topicscope.reporting.page.store import Found, Store
from topicscope.reporting.symbols import typeset

KEPT = "trained.safetensors"

# Most bytes of all frames of a page, before compression, which hardly helps noisy matrices.
FRAME_BYTES = 2_400_000

FEWEST_FRAMES = 2

# The most points of a curve, and of an axis of a landscape: a panel has no pixels for more.
CURVE_POINTS, GRID_POINTS = 150, 61

LOSSES = {"cross_entropy": "cross-entropy", "squared": "squared loss"}
OPTIMIZERS = {"sgd": "SGD", "momentum": "SGD with momentum", "adam": "Adam", "adamw": "AdamW"}
PARTS = {"embedding": "W^E", "value": "W^V", "key": "W^K", "query": "W^Q"}

LEVELS = {
    "bayes_floor": "Bayes floor",
    "uniform_attention_optimum": "optimum, uniform attention",
    "theorem_2": "Theorem 2's matrix",
}


def run_views(folders: Sequence[Path], found: Found) -> list[RunView]:
    """Run folders whose settings differ only in the seed are one view; kept experiments are one each.

    Seeds that have recorded different things so far, such as one without snapshots, are shown separately.
    """
    groups: dict[str, list[RunView]] = {}
    for folder in folders:
        # What ``reproduce`` kept of an experiment, all seeds in one file; or a run folder.
        kept = found.read(read_film, folder / KEPT)
        view = from_film(*kept) if kept else None if (folder / KEPT).exists() else _recorded(folder, found)
        if view is not None:
            _say_how_far(view, found)
            key = json.dumps({**view.settings, "seed": None}, sort_keys=True, default=str)
            groups.setdefault(key, []).append(view)
    return [together(views) for alike in groups.values() for views in _with_the_same_records(alike, found)]


def _say_how_far(view: RunView, found: Found) -> None:
    if not len(view.steps):
        found.notes.append(f"{view.name} holds a run that has logged nothing yet.")
    elif view.done < view.total:
        note = (
            f"{view.name} is not finished: step {view.done:,} of {view.total:,}; "
            f"topicscope train --out {view.name} --resume goes on."
        )
        # The runs of a sweep, SWEEP/runs/GROUP/seed-0, are trained and resumed together.
        above = Path(view.name).parents
        if len(above) > 2 and above[1].name == "runs" and (above[2] / "sweep.toml").exists():
            note = f"{above[2]} holds runs that are not finished; topicscope sweep --out {above[2]} --resume goes on."
        if note not in found.notes:
            found.notes.append(note)


def _with_the_same_records(views: list[RunView], found: Found) -> list[list[RunView]]:
    """Groups of seeds with the same matrices and norms, the largest first; each seed of the others gets a note."""
    parts: dict[Any, list[RunView]] = {}
    for view in views:
        matrices = tuple((matrix.label, matrix.frames.shape[1:]) for matrix in view.matrices)
        recorded = (matrices, tuple(view.norms), tuple(view.stages), len(view.frame_steps) > 0)
        parts.setdefault(recorded, []).append(view)
    ordered = sorted(parts.values(), key=len, reverse=True)
    found.notes.extend(
        f"{view.name} has not recorded what other seeds of its setting have, so it is shown apart."
        for part in ordered[1:]
        for view in part
        if len(view.steps)
    )
    return ordered


def _recorded(folder: Path, found: Found) -> RunView | None:
    """What a run folder has recorded so far; None, with a note, if its settings cannot be read."""
    settings = found.read(read_run_settings, folder / "settings.toml")
    if settings is None:
        return None
    remedy = "remove it, and train with --resume to have it written again"
    theory = found.read(lambda path: read_tensors(path, remedy), folder / "reference.safetensors") or {}
    # Otherwise topics of equal size, as the settings say; none if they name a matrix.
    topics, words = settings["data"].get("topics", 0), settings["data"].get("words", 0)
    equal = np.concatenate([[0], np.repeat(np.arange(1, topics + 1), words)]).astype(np.int64)
    return run_view(
        str(folder),
        settings,
        read_metrics(folder / "metrics.jsonl"),
        found.read(read_snapshots, folder / "snapshots.safetensors") or {},
        levels=found.read(read_reference, folder / "reference.json") or {},
        theory=theory,
        word_topics=theory.get("word_topics", equal),
    )


# For the page's script: curves, and as many frames as there is room for.


def run_sections(
    views: Sequence[RunView], store: Store, frame_bytes: int = FRAME_BYTES, *, first: Collection[str] = ()
) -> list[Row]:
    """What the script needs for each run that has something to show; all frames take at most so many bytes.

    Runs that the page opens on, ``first`` by name, keep as many frames as fit; the others share the remaining room.
    """
    shown = [view for view in views if len(view.steps)]
    most: dict[str, int] = {}
    room = max(frame_bytes, 0)
    for some in ([view for view in shown if (view.name in first) is here] for here in (True, False)):
        sizes = {view.name: sum(each.frames[0].size for each in view.matrices if len(each.frames)) for view in some}
        share = room // sum(sizes.values()) if any(sizes.values()) else 0
        most |= dict.fromkeys(sizes, share)
        room -= sum(min(share, len(view.frame_steps)) * sizes[view.name] for view in some)
    return [_section(view, store, most[view.name]) for view in shown]


def described(settings: Mapping[str, Any]) -> str:
    """A run's settings in a few words."""
    training, data = settings["training"], settings["data"]
    try:
        sizes = f"T = {data['topics']}, v = {data['words']}" if data["topics"] else "topics from a file"
        return (
            f"{LOSSES[training['loss']]}, {OPTIMIZERS[training['optimizer']]}, learning rate "
            f"{training['learning_rate']:g}, λ = {training['l2']:g}; trained: "
            f"{', '.join(_trained(settings)) or 'biases'}; {sizes}; {training['steps']:,} steps"
        )
    except KeyError as missing:
        return f"its settings do not say {missing}"


def title_of_run(view: RunView) -> str:
    """A run's name in words: the figure that it belongs to, if any, and how it was trained."""
    training = view.settings["training"]
    figure = re.match(r"(figure|table|theorem|section)(\d[\d.]*)/", view.name)
    start = f"{figure[1].capitalize()} {figure[2]}: " if figure else f"{Path(view.name).name}: "
    try:
        rate = f"{OPTIMIZERS[training['optimizer']]} at {training['learning_rate']:g}"
        return f"{start}{LOSSES[training['loss']]}, {rate}, {', '.join(_trained(view.settings)) or 'biases'} trained"
    except (KeyError, TypeError):
        return view.name


def _trained(settings: Mapping[str, Any]) -> list[str]:
    return [label for name, label in PARTS.items() if settings["model"][name]["train"]]


# Which runs the page opens on, and what it plays.

OPENS_ON = "figure2/squared-adam"


def theory_run(views: Sequence[RunView]) -> RunView | None:
    """The run that a page opens on: Figure 2's, or else the first with theory beside it, or else the first."""
    played = [view for view in views if len(view.steps)]
    with_theory = [view for view in played if any(matrix.theory is not None for matrix in view.matrices)]
    chosen = [view for view in with_theory if view.name == OPENS_ON]
    return next(iter([*chosen, *with_theory, *played]), None)


def two_stage_run(views: Sequence[RunView]) -> RunView | None:
    """A run in which attention takes off after W^V, with snapshots to play; that of Figure 4 first."""
    staged = [view for view in views if len(view.frame_steps) > 1 and _gain(view) >= LEAST_GAIN]
    return min(staged, key=lambda view: (not view.name.startswith("figure4/"), -_gain(view)), default=None)


def _gain(view: RunView) -> float:
    return max((each["gain"] or 0.0 for each in take_offs(view) if each["step"] is not None), default=0.0)


def players_of(views: Sequence[RunView], places: Mapping[str, int], *, article: bool, stages: bool) -> dict[str, Row]:
    """The page's players: in an article a film, the stages and all runs; else all runs, with which the page opens."""
    opens, staged = theory_run(views), two_stage_run(views)
    if opens is None:
        return {}
    everything = ["maps", "norms", "gain", "attention", "loss"]
    whole = {"run": places[opens.name], "panels": everything, "choose": True, "log": True}
    if not article:
        return {"film": {"id": "film-player", **whole, "at": "end"}}
    players = {
        "film": {"id": "film-player", "run": places[opens.name], "panels": ["maps"], "maps": "first", "play": True}
    }
    if staged and stages:
        players["stages"] = {
            "id": "stages-player", "run": places[staged.name], "panels": ["maps", "norms", "gain", "attention"],
            "maps": "first", "theory": False, "log": True, "apart": True, "at": "take-off",
        }  # fmt: skip
    return players | {"runs": {"id": "runs", **whole}}


def film_caption(view: RunView | None) -> Markup:
    """What the film at the head of an article shows."""
    if view is None:
        return Markup("")
    if not view.matrices:
        return typeset(f"Training: {described(view.settings)}.")
    matrix = view.matrices[0]
    beside = "" if matrix.theory is None else ", theory's matrix, and the difference"
    return typeset(
        f"{matrix.label} over {view.done:,} steps of training{beside}. Row i and column j are tokens: 0 is [MASK], "
        f"then come the words, topic by topic. Red is positive, blue is negative, up to ±{_limit(matrix):.2g}. "
        f"Setting: {described(view.settings)}. {matrix.what if matrix.theory is None else ''}"
    )


def outcome(view: RunView) -> str:
    """How a run ended, in sentences: its loss beside theory's, and when attention took off."""
    if not len(view.steps):
        return "The run has logged nothing yet."
    last = view.loss[:, -1].mean()
    beside = [f"{label} {loss:.4g}" for label, loss in _levels(view).items() if loss]
    said = f"After {view.done:,} of {view.total:,} steps the loss of the batch is {last:.4g}"
    said += f" ({', '.join(beside)}). The loss of one batch scatters around its expectation." if beside else "."
    found = [each for each in take_offs(view) if each["step"] is not None]
    if found and found[0]["gain"] is not None:
        said += (
            f" Attention takes off at step {found[0]['step']:,}, when W^V has {100 * found[0]['gain']:.0f} % of "
            "what it can gain under uniform attention."
        )
    return said


def _levels(view: RunView) -> dict[str, float]:
    """Losses to compare with, by what a reader calls them."""
    known = {label: view.levels.get(name) for name, label in LEVELS.items()}
    return {
        label: level["loss"]
        for label, level in known.items()
        if isinstance(level, dict) and level.get("loss") is not None
    }


def evenly(count: int, most: int) -> Int[np.ndarray, " kept"]:
    """At most so many places out of ``count``, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, max(most, 1))).round().astype(np.int64))


def where_things_happen(view: RunView, most: int) -> Int[np.ndarray, " kept"]:
    """At most so many of the snapshots, the first and the last among them, close together where much changes.

    Change is measured on the averages of each matrix and of attention, each as a share of its range over the run.
    """
    count = len(view.frame_steps)
    if count <= max(most, FEWEST_FRAMES):
        return np.arange(count)
    curves = [view.attention[0].reshape(count, -1), *(matrix.classes[0] for matrix in view.matrices)]
    followed = np.nan_to_num(np.concatenate(curves, axis=1))
    reach = np.ptp(followed, axis=0)
    moved = np.abs(np.diff(followed[:, reach > 0], axis=0)) / reach[reach > 0]
    # Where nothing changes, there are still some snapshots.
    way = np.concatenate([[0.0], np.cumsum(moved.sum(axis=1) + max(moved.sum(), 1.0) / count)])
    wanted = np.linspace(0, way[-1], max(most, FEWEST_FRAMES))
    return np.unique(np.abs(way[:, None] - wanted).argmin(axis=0))


def take_offs(view: RunView) -> list[Row]:
    """For each seed, when attention takes off, and W^V's share of the gain under uniform attention by then."""
    if not {"words", "mask", "gain"} <= view.stages.keys():
        return []
    curves = zip(*(view.stages[name] for name in ("words", "mask", "gain")), strict=True)
    found = [stages(view.steps, *each) for each in curves]
    return [
        {"step": each.take_off, "gain": None if np.isnan(each.gain) else each.gain, "mask": each.mask_take_off}
        for each in found
    ]


def _section(view: RunView, store: Store, most: int) -> Row:
    rows = evenly(len(view.steps), CURVE_POINTS)
    frames = where_things_happen(view, most)
    known = np.isfinite(view.held_out).any(axis=0)
    # Where one topic's words end and the next one's begin; none if topics are not next to each other.
    changes = np.flatnonzero(np.diff(view.word_topics))
    adjacent = len(changes) <= len(np.unique(view.word_topics))
    return {
        "name": view.name,
        "title": title_of_run(view),
        "described": described(view.settings),
        "seeds": list(view.seeds),
        "steps": store.numbers(view.steps[rows]),
        "loss": store.numbers(view.loss[:, rows]),
        "heldOut": store.numbers(view.held_out[:, known]) if known.any() else None,
        "heldOutSteps": store.numbers(view.steps[known]),
        # A frozen part does not change over steps.
        "norms": {name: store.numbers(each[:, rows]) for name, each in view.norms.items() if np.ptp(each) > 0},
        "stages": {name: store.numbers(each[:, rows]) for name, each in view.stages.items()},
        "takeOffs": take_offs(view),
        # Theory's prediction of the stages: the step of take-off, and a reduced model.
        "predicted": predicted if isinstance(predicted := view.levels.get("stages"), dict) else {},
        "frameSteps": store.numbers(view.frame_steps[frames]),
        "matrices": [_matrix(matrix, frames, store, keep=most >= FEWEST_FRAMES) for matrix in view.matrices],
        # Small enough to be kept at every snapshot.
        "attentionSteps": store.numbers(view.frame_steps),
        "attention": store.numbers(view.attention),
        "boundaries": [float(place) + 0.5 for place in changes] if adjacent else [],
        "levels": [{"label": label, "loss": loss} for label, loss in _levels(view).items()],
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
    """The end of the colour scale of trained and theory: at most three times the largest entry off the diagonal."""
    shown = [matrix.frames[-1], *([] if matrix.theory is None else [matrix.theory])]
    # A damaged file may hold anything; what is not a number is left out of the scale.
    shown = [np.where(np.isfinite(each), each, 0.0) for each in shown]
    off = ~np.eye(shown[0].shape[-1], dtype=bool)
    return max(float(min(np.abs(each).max(), 3 * np.abs(each[off]).max(initial=0.0))) for each in shown) or 1.0


# Landscapes: the loss over (α, β) at each T and τ that was computed.


def landscape_sections(found: Found) -> list[Row]:
    """One entry per landscape, for every T, τ and W^V in the folders."""
    sections = []
    for folder in found.landscapes:
        # Many small ones in one file, as ``reproduce`` writes them, or one of ``landscape``.
        if (folder / "landscapes.npz").exists() and (many := found.read(read_landscapes, folder)):
            sections += list(zip(many[0], many[1]["weights"], many[1]["loss"], strict=True))
        if (folder / "landscape.npz").exists() and (one := found.read(read_landscape, folder)):
            about, arrays = one
            kept = evenly(len(arrays["alpha"]), GRID_POINTS)
            said = {
                "value": about["value"],
                **{name: about["setting"][name] for name in ("topics", "per_document", "words")},
                **{name: about["optimum"][name] for name in ("alpha", "beta", "loss", "attained")},
                "uniform": about["optimum"]["loss_uniform"],
                **{name: about["theorem3"].get(name) for name in ("low", "high", "limit")},
                "figures": [],
            }
            sections.append((said, arrays["alpha"][kept], arrays["loss"][np.ix_(kept, kept)]))
    unique: dict[Any, Row] = {}
    for about, weights, loss in sections:
        # By its name in the script; the grid has a row per β, as a plot does.
        shown = {"perDocument" if name == "per_document" else name: value for name, value in about.items()}
        shown |= {"weights": found.store.numbers(weights), "grid": found.store.halves(loss.T)}
        unique[shown["value"], shown["topics"], shown["perDocument"], shown["words"]] = shown
    return [unique[key] for key in sorted(unique)]
