"""Training runs for the page's script: curves over steps, and as many frames of matrices as there is room for."""

import json
import re
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Real
from markupsafe import Markup

from topicscope.measure.blocks import averages_by_class
from topicscope.measure.run import Run, read_run, together
from topicscope.measure.stages import LEAST_GAIN, run_stages
from topicscope.records import read_passages_file
from topicscope.reporting.page.store import Found, Store
from topicscope.reporting.palette import BLUE, CLASSES, COLOURS, ORANGE, PARTS, PURPLE, colour_limit
from topicscope.reporting.symbols import typeset
from topicscope.settings import Settings, TextData
from topicscope.settings.toml import to_table
from topicscope.store import Row

# Most bytes of all frames of a page, before compression, which hardly helps noisy matrices; the most points of a curve.
FRAME_BYTES, CURVE_POINTS = 1_000_000, 150

LOSSES = {"cross_entropy": "cross-entropy", "squared": "squared loss"}
OPTIMIZERS = {"sgd": "SGD", "momentum": "SGD with momentum", "adam": "Adam", "adamw": "AdamW"}
WEIGHTS = {"embedding": "W^E", "value": "W^V", "key": "W^K", "query": "W^Q"}
NAMES = WEIGHTS | {
    "key_bias": "b^K", "query_bias": "b^Q", "value_bias": "b^V", "prediction": "W^pred", "prediction_bias": "b^pred",
}  # fmt: skip
# Charts of models with several layers, a line per layer.
BY_LAYER = {
    "norm/key": ("Norm of W^K", "Frobenius norm"),
    "norm/query": ("Norm of W^Q", "Frobenius norm"),
    "norm/value": ("Norm of W^V", "Frobenius norm"),
    "rotation": ("Rotation of W^V in 10 steps", "(1 − cosine) / 2"),
    "attention/words": ("Attention of word queries: distance from uniform", "total variation"),
}
STAGES = {
    "uniform_gain": ("W^V: share of what uniform attention can gain", PARTS["value"]),
    "attention/words": ("word queries: distance from uniform attention", ORANGE),
    "attention/mask": ("[MASK] queries: distance from uniform attention", PURPLE),
}
LEVELS = {
    "bayes_floor": "Bayes floor",
    "uniform_attention_optimum": "optimum, uniform attention",
    "theorem_2": "Theorem 2's matrix",
}
# Layers beyond the palette's colours have different dashes, and so have levels.
DASHES: tuple[list[int], ...] = ([], [2, 3], [6, 4], [9, 3, 2, 3])
SCATTER = "Measured losses are averages over few documents: they scatter, and may be below the lines of theory."
OPENS_ON = "figure2/squared-adam"


def on_text(run: Run) -> bool:
    """Whether a run is on a corpus, not on documents of a topic model."""
    return isinstance(run.settings.data, TextData)


def shown_runs(folders: Sequence[Path], found: Found) -> list[Run]:
    """The runs that have recorded something; folders that differ only in the seed are one run."""
    groups: dict[str, list[Run]] = {}
    for folder in folders:
        if run := found.read(partial(read_run, weights=False), folder):
            _note_unfinished(run, found)
            recorded = [(name, array.shape[2:]) for name, array in {**run.metrics, **run.frames}.items()]
            key = json.dumps([to_table(run.settings) | {"seed": None}, recorded], sort_keys=True)
            if len(run.steps):
                groups.setdefault(key, []).append(run)
    return [together(runs) for runs in groups.values()]


def _note_unfinished(run: Run, found: Found) -> None:
    name, total = run.name, run.settings.training.steps
    note = "" if len(run.steps) else f"{name} holds a run that has logged nothing yet."
    if len(run.steps) and run.steps[-1] < total:
        note = f"{name} is not finished: step {run.steps[-1]:,} of {total:,}; "
        note += f"topicscope train --out {name} --resume resumes it."
        # The groups of a sweep, SWEEP/runs/GROUP, are resumed with the sweep.
        above = [*Path(name).parents[:2], Path()]
        if (above[1] / "sweep.toml").exists() and above[0].name == "runs":
            note = f"{above[1]} holds runs that are not finished; "
            note += f"topicscope sweep --out {above[1]} --resume resumes them."
    if note and note not in found.notes:
        found.notes.append(note)


def run_sections(runs: Sequence[Run], found: Found, *, first: Collection[str] = ()) -> list[Row]:
    """What the script needs for each run.

    Runs that the page opens on, ``first`` by name, keep as many frames as fit; the others share the remaining room.
    """
    room, most = FRAME_BYTES, dict[str, int]()
    for some in ([run for run in runs if (run.name in first) is here] for here in (True, False)):
        sizes = {run.name: sum(run.frames[of][0, 0].size for of in _kept(run)) for run in some}
        share = room // max(sum(sizes.values()), 1)
        most |= dict.fromkeys(sizes, share)
        room -= sum(min(share, len(run.frame_steps)) * sizes[run.name] for run in some)
    return [_section(run, found, most[run.name]) for run in runs]


def _section(run: Run, found: Found, most: int) -> Row:
    frames = evenly(len(run.frame_steps), max(most, 2))
    topics = run.theory.get("word_topics", np.zeros(0, dtype=np.int64))
    # Where one topic's words end and the next one's begin; none if topics are not next to each other.
    changes = np.flatnonzero(np.diff(topics))
    adjacent = len(changes) <= len(np.unique(topics))
    passages = found.read(read_passages_file, Path(run.name) / "passages" / "passages.json")
    return {
        "name": run.name,
        "title": title_of(run),
        "described": described(run),
        "notes": passages.notes() if passages else [],
        "seeds": list(run.seeds),
        "takeOffs": [step for step, _ in take_offs(run)],
        "predicted": run.reference.stages.take_off if run.reference else None,
        "frameSteps": found.store.numbers(run.frame_steps[frames]),
        "matrices": _matrices(run, frames, topics, found.store, keep=most > 1),
        "charts": _charts(run, found.store),
        "boundaries": [float(place) + 0.5 for place in changes] if adjacent else [],
        "done": int(run.steps[-1]),
        "total": run.settings.training.steps,
    }


def evenly(count: int, most: int) -> Int[np.ndarray, " kept"]:
    """At most so many places out of ``count``, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))


# A run in words.


def title_of(run: Run) -> str:
    """A run's name in words: the figure that it belongs to, if any, and how it was trained."""
    settings = run.settings
    if isinstance(settings.data, TextData):
        return f"{Path(run.name).name}: trained on {settings.data.corpus}"
    figure = re.match(r"(figure|table|theorem|section)(\d[\d.]*)/", run.name)
    start = f"{figure[1].capitalize()} {figure[2]}" if figure else Path(run.name).name
    rate = f"{OPTIMIZERS[settings.training.optimizer]} at {settings.training.learning_rate:g}"
    return f"{start}: {LOSSES[settings.training.loss]}, {rate}, {_trained(settings)} trained"


def described(run: Run) -> str:
    """A run's settings in a few words."""
    settings, training = run.settings, run.settings.training
    pace = f"learning rate {training.learning_rate:g}"
    if isinstance(settings.data, TextData):
        model = settings.model
        sizes = f"{model.layers} layers of {model.heads} heads, width {model.dimension}"
        return f"{sizes}, {pace}, {training.steps:,} steps"
    data = settings.data
    sizes = f"T = {data.topics}, v = {data.words}" if data.topics else "topics from a file"
    return (
        f"{LOSSES[settings.training.loss]}, {OPTIMIZERS[training.optimizer]}, {pace}, λ = {settings.training.l2:g}; "
        f"trained: {_trained(settings)}; {sizes}; {training.steps:,} steps"
        + ("" if len(run.frame_steps) else "; no snapshots, so no matrices")
    )


def _trained(settings: Settings) -> str:
    return ", ".join(label for name, label in WEIGHTS.items() if settings.model.part(name).train) or "biases"


def outcome(run: Run) -> str:
    """How a run ended, in sentences: its loss beside theory's, and when attention took off."""
    last = np.nanmean(run.metrics["loss"][:, -1])
    beside = [f"{label} {loss:.4g}" for label, loss in _levels(run).items()]
    sentences = f"After {run.steps[-1]:,} of {run.settings.training.steps:,} steps the loss of the batch is {last:.4g}"
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


def take_offs(run: Run) -> list[tuple[int | None, float]]:
    """For each seed, when attention takes off, and W^V's share of the gain under uniform attention by then."""
    return [(own.take_off, own.gain) for own in run_stages(run)] if "uniform_gain" in run.metrics else []


# Which runs the page opens on, and what it plays.


def theory_run(runs: Sequence[Run]) -> Run | None:
    """The run that a page opens on: Figure 2's, or else the first with theory beside it, or else the first."""
    with_theory = [run for run in runs if any(of in run.theory for of in _kept(run))]
    chosen = [run for run in with_theory if run.name == OPENS_ON]
    return next(iter([*chosen, *with_theory, *runs]), None)


def two_stage_run(runs: Sequence[Run]) -> Run | None:
    """A run in which attention takes off after W^V, with matrices to play; that of Figure 4 first."""
    gains = {run.name: max((gain for step, gain in take_offs(run) if step is not None), default=0.0) for run in runs}
    staged = [run for run in runs if len(run.frame_steps) > 1 and gains[run.name] >= LEAST_GAIN]
    return min(staged, key=lambda run: (not run.name.startswith("figure4/"), -gains[run.name]), default=None)


def players_of(runs: Sequence[Run], *, article: bool, stages: bool) -> dict[str, Row]:
    """The page's players: in an article a film, the stages and all runs; else all runs, with which the page opens."""
    opens, staged = theory_run(runs), two_stage_run(runs)
    if opens is None:
        return {}
    whole: Row = {"charts": None, "maps": "all", "choose": True, "theory": True, "at": "end", "play": False}
    whole |= {"run": runs.index(opens)}
    if not article:
        return {"film": whole | {"id": "film-player"}}
    film = {"id": "film-player", "charts": [], "maps": "first", "choose": False, "play": True}
    players = {"film": whole | film}
    if staged and stages:
        shown = {"charts": ["growth", "progress", "attention"], "maps": "first", "theory": False, "at": "take-off"}
        players["stages"] = whole | shown | {"id": "stages-player", "run": runs.index(staged), "choose": False}
    return players | {"runs": whole | {"id": "runs"}}


def film_caption(run: Run | None) -> Markup:
    """What the film at the head of an article shows."""
    if run is None or not (kept := _kept(run)):
        return typeset(f"Training: {described(run)}." if run else "")
    (name, label), *_ = kept.items()
    beside = ", theory's matrix, and the difference" if name in run.theory else ""
    return typeset(
        f"{label} over {run.steps[-1]:,} steps of training{beside}. Row i and column j are tokens: 0 is [MASK], "
        f"then come the words, topic by topic. Setting: {described(run)}."
    )


# Curves over steps.


class _Charts:
    """The charts of a run, with their numbers in the page's store."""

    def __init__(self, run: Run, store: Store) -> None:
        self.run, self.store, self.made = run, store, list[Row]()

    def line(
        self,
        name: str,
        values: Float[np.ndarray, "seed row"],
        colour: str,
        steps: Real[np.ndarray, " row"] | None = None,
        **more: Any,
    ) -> Row:
        """A line per seed, through the steps that have a number; ``dash``, ``thin``."""
        there = np.flatnonzero(np.isfinite(values).any(axis=0))
        kept = there[evenly(len(there), CURVE_POINTS)]
        at = (self.run.steps if steps is None else steps)[kept]
        numbers = {"steps": self.store.numbers(at), "values": self.store.numbers(values[:, kept])}
        return {"name": name, **numbers, "colour": colour, "dash": [], "thin": False} | more

    def by_layer(self, metric: str) -> list[Row]:
        """A line per layer."""
        layers = np.moveaxis(self.run.metrics[metric], 2, 0)
        return [
            self.line(f"layer {at + 1}", values, COLOURS[at % 6], dash=DASHES[at // 6 % 4])
            for at, values in enumerate(layers)
            if np.isfinite(values).any()
        ]

    def add(self, identifier: str, title: str, label: str, lines: Sequence[Row], **more: Any) -> None:
        """A chart, if it has lines; ``log`` for an axis that may be logarithmic, ``marks`` to show the take-off."""
        usual: Row = {"log": False, "marks": False, "text": "", "levels": [], "layer": None, "range": None}
        given: Row = {"id": identifier, "title": title, "label": label, "lines": list(lines)}
        if lines:
            self.made.append(usual | given | more)


def _charts(run: Run, store: Store) -> list[Row]:
    charts, metrics = _Charts(run, store), run.metrics
    layered = [name for name in BY_LAYER if name in metrics and metrics[name].shape[2] > 1]
    # A frozen part does not change over steps.
    whole = {name: np.linalg.norm(of, axis=2) for name, of in metrics.items() if name.startswith("norm/")}
    whole |= {name: of for name, of in metrics.items() if name.startswith("modes/")}
    moved = {name: of for name, of in whole.items() if name not in layered and np.nanmax(of) > np.nanmin(of)}
    norms = [
        charts.line(
            f"‖{symbol}‖", moved[f"norm/{name}"], PARTS[name.removesuffix("_bias")],
            dash=[3, 3] if name.endswith("_bias") else [],
        )
        for name, symbol in NAMES.items()
        if f"norm/{name}" in moved
    ]  # fmt: skip
    text, predicted = "", run.reference.stages if run.reference else None
    if predicted and predicted.steps:
        norms += [
            charts.line(
                f"‖{NAMES[name]}‖, predicted", np.array([values]), PARTS[name], np.array(predicted.steps),
                dash=[7, 4], thin=True,
            )
            for name, values in predicted.norms.items()
            if values
        ]  # fmt: skip
        text = f"Thin dashed lines are predicted. {predicted.note}"
    charts.add("norms", "Norms of the trained parts", "Frobenius norm", norms, log=True, marks=True, text=text)
    for name in layered:
        title, label = BY_LAYER[name]
        charts.add(name.replace("/", "-"), f"{title}, by layer", label, charts.by_layer(name))
    modes = [
        charts.line(f"{matrix}: {label}", moved[f"modes/{part}-{mode}"], PARTS[part], dash=dash)
        for matrix, part in (("W^K", "key"), ("W^Q", "query"))
        for mode, label, dash in (("topics", "topics", []), ("mask", "[MASK]", [2, 3]))
        if f"modes/{part}-{mode}" in moved
    ]
    if modes and "norm/value" in moved:
        modes.insert(0, charts.line("‖W^V‖", moved["norm/value"], PARTS["value"]))
    charts.add("growth", "What grows in W^K and W^Q", "Frobenius norm", modes, log=True, marks=True)
    progress = [
        charts.line(name, metrics[key].reshape(len(run.seeds), -1), colour)
        for key, (name, colour) in STAGES.items()
        if "uniform_gain" in metrics
    ]
    charts.add("progress", "Progress of the two stages", "share, distance", progress, range=[-0.05, 1.05], marks=True)
    _attention(run, charts)
    losses = [charts.line("loss of the batch", metrics["loss"], BLUE)]
    if np.isfinite(held_out := metrics.get("validation_loss", np.zeros((1, 0)))).any():
        losses.append(charts.line("held-out loss", held_out, ORANGE))
    levels = [
        {"label": label, "value": value, "dash": dash}
        for (label, value), dash in zip(_levels(run).items(), DASHES[1:], strict=False)
    ]
    charts.add("loss", "Loss", "loss", losses, levels=levels, text=SCATTER if levels else "")
    return charts.made


def _attention(run: Run, charts: _Charts) -> None:
    """Attention to the same word, the same topic and other topics, averaged over heads, layer by layer."""
    if "attention" not in run.frames:
        return
    attention: Float[np.ndarray, "seed frame class layer"] = run.frames["attention"].mean(axis=4, dtype=np.float64)
    # Attention that is frozen says nothing.
    if not attention.size or np.nan_to_num(np.ptp(attention, axis=1)).max() <= 1e-6:
        return
    layers = attention.shape[3]
    for layer in range(layers):
        lines = [
            charts.line(name, 100 * attention[:, :, place, layer], colour, run.frame_steps)
            for place, (name, colour) in enumerate(list(CLASSES.items())[:3])
        ]
        end, title, which = ("", "", {}) if layers == 1 else (f"-{layer + 1}", f", layer {layer + 1}", {"layer": layer})
        charts.add(f"attention{end}", f"Average attention × 100{title}", "attention × 100", lines, marks=True, **which)


# Matrices over tokens: whole for one seed, as averages by class of entry for all seeds.


def _kept(run: Run) -> dict[str, str]:
    """The matrices that a run has kept, and what they are called."""
    if on_text(run):
        return {}
    assert isinstance(run.settings, Settings)
    embedding = run.settings.model.embedding
    one_hot = embedding.start == "identity" and not embedding.train
    labels = {"value_products": "W^V" if one_hot else "W^E⊤W^V W^E", "embedding_products": "W^E⊤W^E"}
    return {name: label for name, label in labels.items() if name in run.frames}


def _matrices(
    run: Run, frames: Int[np.ndarray, " kept"], topics: Int[np.ndarray, " token"], store: Store, *, keep: bool
) -> list[Row]:
    shown, about = [], run.reference.matrices if run.reference else {}
    for name, label in _kept(run).items():
        layers, theory = run.frames[name].shape[2], run.theory.get(name)
        for layer in range(layers):
            kept = run.frames[name][0, frames, layer]
            classes = run.frames[f"averages/{name}"][:, frames, layer]
            expected = None if theory is None else averages_by_class(theory, topics)
            shown.append(
                {
                    "label": f"{label}, layer {layer + 1}" if layers > 1 else label,
                    "size": kept.shape[-1],
                    "frames": store.frames(kept) if keep and np.isfinite(kept).all() else None,
                    "classes": store.numbers(classes),
                    "theory": None if theory is None else store.numbers(theory),
                    "theoryClasses": expected
                    if expected is None
                    else [None if x != x else x for x in expected.tolist()],
                    "what": about.get(name, "The run recorded no matrix of theory."),
                    "layer": layer if layers > 1 else None,
                    "limit": max(map(colour_limit, [kept[-1], *([] if theory is None else [theory])])) or 1.0,
                }
            )
    return shown
