"""What the page's script plays: training runs with their curves and matrices, and landscapes of the loss."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from markupsafe import Markup
from msgspec.structs import asdict

from topicscope.measure.blocks import averages_by_class
from topicscope.measure.run import Run, read_run, together
from topicscope.measure.stages import LEAST_GAIN, run_stages
from topicscope.records import LandscapeGrid, read_landscape, read_landscapes
from topicscope.reporting.page.store import Found, Reference, Store
from topicscope.reporting.palette import BLUE, CLASSES, ORANGE, PARTS, PURPLE
from topicscope.reporting.symbols import typeset
from topicscope.settings import Settings
from topicscope.settings.toml import to_table
from topicscope.store import Row

# Most bytes of all frames of a page, before compression, which hardly helps noisy matrices.
FRAME_BYTES = 1_000_000

FEWEST_FRAMES = 2

# The most points of a curve, and of an axis of a landscape: a panel has no pixels for more.
CURVE_POINTS, GRID_POINTS = 150, 61

LOSSES = {"cross_entropy": "cross-entropy", "squared": "squared loss"}
OPTIMIZERS = {"sgd": "SGD", "momentum": "SGD with momentum", "adam": "Adam", "adamw": "AdamW"}
MATRICES = {"embedding": "W^E", "value": "W^V", "key": "W^K", "query": "W^Q"}
NAMES = MATRICES | {
    "key_bias": "b^K", "query_bias": "b^Q", "value_bias": "b^V", "prediction": "W^pred", "prediction_bias": "b^pred",
}  # fmt: skip

LEVELS = {
    "bayes_floor": "Bayes floor",
    "uniform_attention_optimum": "optimum, uniform attention",
    "theorem_2": "Theorem 2's matrix",
}
DASHES = ((2, 3), (6, 4), (9, 3, 2, 3))
SCATTER = "Measured losses are averages over few documents: they scatter, and may be below the lines of theory."


@dataclass(frozen=True, eq=False)
class Matrix:
    """A matrix over tokens at a few steps: whole for one seed, as averages by class of entry for all seeds."""

    label: str
    frames: Float[np.ndarray, "frame token token"]
    classes: Float[np.ndarray, "seed frame class"]
    theory: Float[np.ndarray, "token token"] | None
    what: str
    """Which theory the matrix is compared with, or why there is none."""

    layer: int | None
    """Counted from 0; None if there is one layer only, or if the matrix belongs to all layers."""


def matrices(run: Run) -> list[Matrix]:
    """The matrices that a run has kept, layer by layer."""
    model = settings_of(run).model
    one_hot = model.embedding.start == "identity" and not model.embedding.train
    labels = {"value_products": "W^V" if one_hot else "W^E⊤W^V W^E", "embedding_products": "W^E⊤W^E"}
    about = run.reference.matrices if run.reference else {}
    return [
        Matrix(
            f"{label}, layer {layer + 1}" if run.frames[name].shape[2] > 1 else label,
            run.frames[name][0, :, layer],
            run.frames[f"averages/{name}"][:, :, layer],
            run.theory.get(name),
            about.get(name, "The run recorded no matrix of theory."),
            layer if run.frames[name].shape[2] > 1 else None,
        )
        for name, label in labels.items()
        if name in run.frames
        for layer in range(run.frames[name].shape[2])
    ]


def settings_of(run: Run) -> Settings:
    """The settings of a run on documents of a topic model."""
    assert isinstance(run.settings, Settings)
    return run.settings


def attention_of(run: Run) -> Float[np.ndarray, "seed frame layer class"]:
    """Attention to the same word, the same topic and other topics, averaged over heads."""
    nothing = np.full((len(run.seeds), len(run.frame_steps), 3, 1, 1), np.nan)
    return run.frames.get("attention", nothing).mean(axis=4).transpose(0, 1, 3, 2).astype(np.float64)


def topics_of(run: Run) -> Int[np.ndarray, " token"]:
    """The topic of each token; empty if the run has none."""
    return run.theory.get("word_topics", np.zeros(0, dtype=np.int64))


def done(run: Run) -> int:
    """The last step that was recorded."""
    return int(run.steps[-1]) if len(run.steps) else 0


def shown_runs(folders: Sequence[Path], found: Found) -> list[Run]:
    """Run folders whose settings differ only in the seed are one run.

    Seeds that have recorded different things so far, such as one without matrices, are shown separately.
    """
    groups: dict[str, list[Run]] = {}
    for folder in folders:
        run = found.read(partial(read_run, weights=False), folder)
        if run is not None and isinstance(run.settings, Settings):
            note_unfinished(run.name, done(run) if len(run.steps) else None, run.settings.training.steps, found)
            key = json.dumps({**to_table(run.settings), "seed": None}, sort_keys=True)
            groups.setdefault(key, []).append(run)
    return [together(runs) for group in groups.values() for runs in _with_the_same_records(group, found)]


def note_unfinished(name: str, done: int | None, total: int, found: Found) -> None:
    """A note on a run that has logged nothing yet, or that was not trained to its end."""
    note = "" if done is not None else f"{name} holds a run that has logged nothing yet."
    if done is not None and done < total:
        note = f"{name} is not finished: step {done:,} of {total:,}; topicscope train --out {name} --resume resumes it."
        # The seeds of a sweep's group, SWEEP/runs/GROUP, are resumed with the sweep.
        above = Path(name).parents
        if len(above) > 1 and above[0].name == "runs" and (above[1] / "sweep.toml").exists():
            again = f"topicscope sweep --out {above[1]} --resume resumes them."
            note = f"{above[1]} holds runs that are not finished; {again}"
    if note and note not in found.notes:
        found.notes.append(note)


def _with_the_same_records(runs: list[Run], found: Found) -> list[list[Run]]:
    """Groups of seeds with the same matrices and metrics, the largest first; each seed of the others gets a note."""
    parts: dict[Any, list[Run]] = {}
    for run in runs:
        frames = tuple((name, array.shape[2:]) for name, array in run.frames.items())
        parts.setdefault((frames, tuple(run.metrics), len(run.frame_steps) > 0), []).append(run)
    ordered = sorted(parts.values(), key=len, reverse=True)
    found.notes.extend(
        f"{run.name} has not recorded what other seeds of its setting have, so it is shown apart."
        for part in ordered[1:]
        for run in part
        if len(run.steps)
    )
    return ordered


# For the page's script: charts, and as many frames as there is room for.


def run_sections(
    runs: Sequence[Run], store: Store, frame_bytes: int = FRAME_BYTES, *, first: Collection[str] = ()
) -> list[Row]:
    """What the script needs for each run that has something to show; all frames take at most so many bytes.

    Runs that the page opens on, ``first`` by name, keep as many frames as fit; the others share the remaining room.
    """
    shown = [run for run in runs if len(run.steps)]
    most: dict[str, int] = {}
    room = max(frame_bytes, 0)
    for some in ([run for run in shown if (run.name in first) is here] for here in (True, False)):
        sizes = {run.name: sum(own.frames[0].size for own in matrices(run) if len(own.frames)) for run in some}
        share = room // sum(sizes.values()) if any(sizes.values()) else 0
        most |= dict.fromkeys(sizes, share)
        room -= sum(min(share, len(run.frame_steps)) * sizes[run.name] for run in some)
    return [_section(run, store, most[run.name]) for run in shown]


def described(settings: Settings) -> str:
    """A run's settings in a few words."""
    training, data = settings.training, settings.data
    sizes = f"T = {data.topics}, v = {data.words}" if data.topics else "topics from a file"
    return (
        f"{LOSSES[training.loss]}, {OPTIMIZERS[training.optimizer]}, learning rate {training.learning_rate:g}, "
        f"λ = {training.l2:g}; trained: {_trained(settings)}; {sizes}; {training.steps:,} steps"
    )


def title_of_run(run: Run) -> str:
    """A run's name in words: the figure that it belongs to, if any, and how it was trained."""
    settings = settings_of(run)
    figure = re.match(r"(figure|table|theorem|section)(\d[\d.]*)/", run.name)
    start = f"{figure[1].capitalize()} {figure[2]}: " if figure else f"{Path(run.name).name}: "
    rate = f"{OPTIMIZERS[settings.training.optimizer]} at {settings.training.learning_rate:g}"
    return f"{start}{LOSSES[settings.training.loss]}, {rate}, {_trained(settings)} trained"


def _trained(settings: Settings) -> str:
    return ", ".join(label for name, label in MATRICES.items() if settings.model.part(name).train) or "biases"


# Which runs the page opens on, and what it plays.

OPENS_ON = "figure2/squared-adam"


def theory_run(runs: Sequence[Run]) -> Run | None:
    """The run that a page opens on: Figure 2's, or else the first with theory beside it, or else the first."""
    played = [run for run in runs if len(run.steps)]
    with_theory = [run for run in played if any(matrix.theory is not None for matrix in matrices(run))]
    chosen = [run for run in with_theory if run.name == OPENS_ON]
    return next(iter([*chosen, *with_theory, *played]), None)


def two_stage_run(runs: Sequence[Run]) -> Run | None:
    """A run in which attention takes off after W^V, with matrices to play; that of Figure 4 first."""
    staged = [run for run in runs if len(run.frame_steps) > 1 and _gain(run) >= LEAST_GAIN]
    return min(staged, key=lambda run: (not run.name.startswith("figure4/"), -_gain(run)), default=None)


def _gain(run: Run) -> float:
    return max((gain for step, gain in take_offs(run) if step is not None), default=0.0)


def players_of(runs: Sequence[Run], places: Mapping[str, int], *, article: bool, stages: bool) -> dict[str, Row]:
    """The page's players: in an article a film, the stages and all runs; else all runs, with which the page opens.

    places: of runs in the script's data, by name.
    """
    if not places:
        return {}
    opens, staged = theory_run(runs), two_stage_run(runs)
    run = places[opens.name] if opens else 0
    whole = {"run": run, "charts": None, "maps": "all", "choose": True, "theory": True, "at": "end", "play": False}
    if not article:
        return {"film": whole | {"id": "film-player"}}
    film = whole | {"id": "film-player", "charts": [], "maps": "first", "choose": False, "play": True}
    players = {"film": film} if opens else {}
    if staged and stages:
        shown = {"charts": ["growth", "progress", "attention"], "maps": "first", "theory": False, "at": "take-off"}
        players["stages"] = whole | shown | {"id": "stages-player", "run": places[staged.name], "choose": False}
    return players | {"runs": whole | {"id": "runs"}}


def film_caption(run: Run | None) -> Markup:
    """What the film at the head of an article shows."""
    if run is None:
        return Markup("")
    described_run, kept = described(settings_of(run)), matrices(run)
    if not kept:
        return typeset(f"Training: {described_run}.")
    beside = "" if kept[0].theory is None else ", theory's matrix, and the difference"
    return typeset(
        f"{kept[0].label} over {done(run):,} steps of training{beside}. Row i and column j are tokens: 0 is [MASK], "
        f"then come the words, topic by topic. Setting: {described_run}."
    )


def outcome(run: Run) -> str:
    """How a run ended, in sentences: its loss beside theory's, and when attention took off."""
    if not len(run.steps):
        return "The run has logged nothing yet."
    last = np.nanmean(run.metrics["loss"][:, -1])
    beside = [f"{label} {loss:.4g}" for label, loss in _levels(run).items()]
    sentences = f"After {done(run):,} of {run.settings.training.steps:,} steps the loss of the batch is {last:.4g}"
    sentences += f" ({', '.join(beside)}). The loss of one batch scatters around its expectation." if beside else "."
    taken = [(step, gain) for step, gain in take_offs(run) if step is not None]
    if taken and np.isfinite(taken[0][1]):
        sentences += (
            f" Attention takes off at step {taken[0][0]:,}, when W^V has {100 * taken[0][1]:.0f} % of what it can gain "
            "under uniform attention."
        )
    return sentences


def _levels(run: Run) -> dict[str, float]:
    """Losses to compare with, by what a reader calls them."""
    known = {label: getattr(run.reference, name).loss for name, label in LEVELS.items()} if run.reference else {}
    return {label: loss for label, loss in known.items() if loss is not None}


def evenly(count: int, most: int) -> Int[np.ndarray, " kept"]:
    """At most so many places out of ``count``, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, max(most, 1))).round().astype(np.int64))


def where_things_happen(run: Run, most: int) -> Int[np.ndarray, " kept"]:
    """At most so many of the frames, the first and the last among them, close together where much changes.

    Change is measured on the averages of each matrix and of attention, each as a share of its range over the run.
    """
    count = len(run.frame_steps)
    if count <= max(most, FEWEST_FRAMES):
        return np.arange(count)
    curves = [attention_of(run)[0].reshape(count, -1), *(matrix.classes[0] for matrix in matrices(run))]
    followed = np.nan_to_num(np.concatenate(curves, axis=1))
    reach = np.ptp(followed, axis=0)
    moved = np.abs(np.diff(followed[:, reach > 0], axis=0)) / reach[reach > 0]
    # Where nothing changes, there are still some.
    way = np.concatenate([[0.0], np.cumsum(moved.sum(axis=1) + max(moved.sum(), 1.0) / count)])
    wanted = np.linspace(0, way[-1], max(most, FEWEST_FRAMES))
    return np.unique(np.abs(way[:, None] - wanted).argmin(axis=0))


def take_offs(run: Run) -> list[tuple[int | None, float]]:
    """For each seed, when attention takes off, and W^V's share of the gain under uniform attention by then."""
    return [(own.take_off, own.gain) for own in run_stages(run)] if "uniform_gain" in run.metrics else []


# Charts: lines over steps.


class Charts:
    """The charts of a run, with their numbers in the page's store."""

    def __init__(self, store: Store) -> None:
        """None at first."""
        self.store, self.made = store, list[Row]()

    def line(
        self,
        name: str,
        steps: Reference,
        values: Float[np.ndarray, "..."],
        colour: str,
        **more: Any,
    ) -> Row:
        """A line per seed (``values`` are by seed, step) or one line; ``dash``, ``thin``, ``low`` and ``high``."""
        return {
            "name": name, "steps": steps, "values": self.store.numbers(np.atleast_2d(values)), "colour": colour,
            "dash": [], "thin": False,
        } | more  # fmt: skip

    def add(self, identifier: str, title: str, label: str, lines: Sequence[Row], **more: Any) -> None:
        """A chart, if it has lines; ``log`` for an axis that may be logarithmic, ``marks`` to show the take-off."""
        if lines:
            given: Row = {"id": identifier, "title": title, "label": label, "lines": list(lines)}
            usual: Row = {"log": False, "marks": False, "text": "", "levels": [], "layer": None, "range": None}
            self.made.append(given | usual | more)


def _charts(run: Run, store: Store) -> list[Row]:
    rows, metrics = evenly(len(run.steps), CURVE_POINTS), run.metrics
    steps, charts = store.numbers(run.steps[rows]), Charts(store)
    kept = {name: np.linalg.norm(of, axis=2) for name, of in metrics.items() if name.startswith("norm/")}
    kept |= {name: of for name, of in metrics.items() if name.startswith("modes/")}
    # A frozen part does not change over steps.
    moved = {name.removeprefix("norm/"): of[:, rows] for name, of in kept.items() if np.nanmax(of) > np.nanmin(of)}
    norms = []
    for name in (name for name in moved if name in NAMES):
        part = name.removesuffix("_bias")
        dash = [3, 3] if name.endswith("_bias") else []
        norms.append(charts.line(f"‖{NAMES[name]}‖", steps, moved[name], PARTS[part], dash=dash))
    text = ""
    if run.reference and run.reference.stages.steps:
        predicted = run.reference.stages
        at = store.numbers(np.array(predicted.steps))
        norms += [
            charts.line(f"‖{NAMES[name]}‖, predicted", at, np.array(values), PARTS[name], dash=[7, 4], thin=True)
            for name, values in predicted.norms.items()
            if values
        ]
        text = f"Thin dashed lines are predicted. {predicted.note}"
    charts.add("norms", "Norms of the trained parts", "Frobenius norm", norms, log=True, marks=True, text=text)
    modes = [
        charts.line(f"{matrix}: {label}", steps, moved[f"modes/{part}-{mode}"], PARTS[part], dash=dash)
        for matrix, part in (("W^K", "key"), ("W^Q", "query"))
        for mode, label, dash in (("topics", "topics", []), ("mask", "[MASK]", [2, 3]))
        if f"modes/{part}-{mode}" in moved
    ]
    if modes and "value" in moved:
        modes.insert(0, charts.line("‖W^V‖", steps, moved["value"], PARTS["value"]))
    charts.add("growth", "What grows in W^K and W^Q", "Frobenius norm", modes, log=True, marks=True)
    progress = {
        "uniform_gain": ("W^V: share of what uniform attention can gain", PARTS["value"]),
        "attention/words": ("word queries: distance from uniform attention", ORANGE),
        "attention/mask": ("[MASK] queries: distance from uniform attention", PURPLE),
    }
    lines = [
        charts.line(name, steps, metrics[key].reshape(len(run.seeds), -1)[:, rows], colour)
        for key, (name, colour) in progress.items()
        if "uniform_gain" in metrics
    ]
    charts.add("progress", "Progress of the two stages", "share, distance", lines, range=[-0.05, 1.05], marks=True)
    at, attention = store.numbers(run.frame_steps), attention_of(run)
    layers = attention.shape[2]
    # Attention that is frozen says nothing.
    attends = attention.size and np.nan_to_num(np.ptp(attention, axis=1)).max() > 1e-6
    for layer in range(layers if attends else 0):
        lines = [
            charts.line(name, at, 100 * attention[:, :, layer, place], colour)
            for place, (name, colour) in enumerate(list(CLASSES.items())[:3])
        ]
        which = {"layer": layer} if layers > 1 else {}
        title = "Average attention × 100" + (f", layer {layer + 1}" if layers > 1 else "")
        name = f"attention-{layer + 1}" if layers > 1 else "attention"
        charts.add(name, title, "attention × 100", lines, marks=True, **which)
    lines = [charts.line("loss of the batch", steps, metrics["loss"][:, rows], BLUE)]
    if (held_out := metrics.get("validation_loss")) is not None:
        known = np.isfinite(held_out).any(axis=0)
        lines.append(charts.line("held-out loss", store.numbers(run.steps[known]), held_out[:, known], ORANGE))
    levels = [
        {"label": label, "value": value, "dash": dash}
        for (label, value), dash in zip(_levels(run).items(), DASHES, strict=False)
    ]
    charts.add("loss", "Loss", "loss", lines, levels=levels, text=SCATTER if levels else "")
    return charts.made


def _section(run: Run, store: Store, most: int) -> Row:
    frames, word_topics = where_things_happen(run, most), topics_of(run)
    # Where one topic's words end and the next one's begin; none if topics are not next to each other.
    changes = np.flatnonzero(np.diff(word_topics))
    adjacent = len(changes) <= len(np.unique(word_topics))
    return {
        "name": run.name,
        "title": title_of_run(run),
        "described": described(settings_of(run)) + ("" if len(run.frame_steps) else "; no snapshots, so no matrices"),
        "notes": [],
        "seeds": list(run.seeds),
        "takeOffs": [step for step, _ in take_offs(run)],
        "predicted": run.reference.stages.take_off if run.reference else None,
        "frameSteps": store.numbers(run.frame_steps[frames]),
        "matrices": [
            _matrix(matrix, frames, word_topics, store, keep=most >= FEWEST_FRAMES) for matrix in matrices(run)
        ],
        "charts": _charts(run, store),
        "boundaries": [float(place) + 0.5 for place in changes] if adjacent else [],
        "done": done(run),
        "total": run.settings.training.steps,
    }


def _matrix(
    matrix: Matrix,
    frames: Int[np.ndarray, " kept"],
    word_topics: Int[np.ndarray, " token"],
    store: Store,
    *,
    keep: bool,
) -> Row:
    kept = matrix.frames[frames]
    expected = None if matrix.theory is None else averages_by_class(matrix.theory, word_topics)
    return {
        "label": matrix.label,
        "size": matrix.frames.shape[-1],
        "frames": store.frames(kept) if keep and np.isfinite(kept).all() else None,
        "classes": store.numbers(matrix.classes[:, frames]),
        "theory": None if matrix.theory is None else store.numbers(matrix.theory),
        "theoryClasses": None if expected is None else [None if np.isnan(value) else value for value in expected],
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
    sections: list[LandscapeGrid] = []
    for folder in found.landscapes:
        # Many small ones in one file, as ``reproduce`` writes them, or one of ``landscape``.
        if (folder / "landscapes.npz").exists():
            sections += found.read(read_landscapes, folder) or []
        if (folder / "landscape.npz").exists() and (one := found.read(read_landscape, folder)):
            about, weights, loss = one
            kept = evenly(len(weights), GRID_POINTS)
            sections.append((about, weights[kept], loss[np.ix_(kept, kept)]))
    unique: dict[Any, Row] = {}
    for about, weights, loss in sections:
        numbers = {"perDocument" if name == "per_document" else name: number for name, number in asdict(about).items()}
        shown = {**numbers, "weights": found.store.numbers(weights), "grid": found.store.halves(loss)}
        unique[about.value, about.topics, about.per_document, about.words] = shown
    return [unique[key] for key in sorted(unique)]
