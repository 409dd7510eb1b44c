"""Training runs for the page's script: curves over steps, and as many frames of matrices as there is room for."""

import json
import re
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Real

from topicscope.measure.blocks import averages_by_class
from topicscope.measure.run import Run, read_run, together
from topicscope.measure.stages import LEAST_GAIN, run_stages
from topicscope.records import PASSAGES, PredictedStages
from topicscope.reporting.page.material import Material, Row, evenly
from topicscope.reporting.palette import BLUE, CLASSES, COLOURS, ORANGE, PARTS, PURPLE, colour_limit
from topicscope.reporting.symbols import LOSS_WORDS, OPTIMIZER_WORDS
from topicscope.settings import Settings, TextData
from topicscope.settings.toml import to_table

# Most bytes of all frames of a page, before compression, which hardly helps noisy matrices; the most points of a curve.
FRAME_BYTES, CURVE_POINTS = 1_000_000, 150

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
    "uniform_attention_optimum": "optimum under uniform attention",
    "theorem_2": "Theorem 2's matrix",
}
# Layers beyond the palette's colours have different dashes, and so have levels.
DASHES: tuple[list[int], ...] = ([], [2, 3], [6, 4], [9, 3, 2, 3])
SCATTER = "Measured losses are averages over few documents, so they scatter and may fall below the lines of theory."
OPENS_ON = "figure2/squared-adam"


def on_text(run: Run) -> bool:
    """Whether a run is on a corpus, not on documents of a topic model."""
    return isinstance(run.settings.data, TextData)


def shown_runs(material: Material) -> list[Run]:
    """The runs that have recorded something; folders that differ only in the seed are one run."""
    groups: dict[str, list[Run]] = {}
    for folder in material.folders["runs"]:
        if run := material.tried(partial(read_run, weights=False), folder):
            last, total = int(run.steps.max(initial=0)), run.settings.training.steps
            if last < total:
                how_far = f"step {last:,} of {total:,}"
                material.notes.append(
                    f"{run.name} is not finished ({how_far}): resume it with the command that began it."
                )
            recorded = [(name, array.shape[2:]) for name, array in {**run.metrics, **run.frames}.items()]
            key = json.dumps([to_table(run.settings) | {"seed": None}, recorded], sort_keys=True)
            if len(run.steps):
                groups.setdefault(key, []).append(run)
    return [together(runs) for runs in groups.values()]


def run_sections(runs: Sequence[Run], material: Material, *, first: Collection[str] = ()) -> list[Row]:
    """What the script needs for each run.

    Runs that the page opens on, ``first`` by name, keep as many frames as fit; the others share the remaining room.
    """
    room, most = FRAME_BYTES, dict[str, int]()
    for some in ([run for run in runs if (run.name in first) is here] for here in (True, False)):
        sizes = {run.name: sum(run.frames[of][0, 0].size for of in kept_matrices(run)) for run in some}
        share = room // max(sum(sizes.values()), 1)
        most |= dict.fromkeys(sizes, share)
        room -= sum(min(share, len(run.frame_steps)) * sizes[run.name] for run in some)
    return [_section(run, material, most[run.name]) for run in runs]


def _section(run: Run, material: Material, most: int) -> Row:
    frames = evenly(len(run.frame_steps), max(most, 2))
    topics = run.theory.get("word_topics", np.zeros(0, dtype=np.int64))
    # Where one topic's words end and the next one's begin; none if topics are not next to each other.
    changes = np.flatnonzero(np.diff(topics))
    adjacent = len(changes) <= len(np.unique(topics))
    passages = material.read(PASSAGES, Path(run.name) / "passages")
    return {
        "name": run.name,
        "title": title_of(run),
        "described": ". ".join([described(run), *(passages.problems if passages else ())]),
        "seeds": list(run.seeds),
        "takeOffs": [step for step, _ in take_offs(run)],
        "predicted": run.reference.stages.take_off if run.reference else None,
        "frameSteps": material.numbers(run.frame_steps[frames]),
        "matrices": list(_matrices(run, frames, topics, material, keep=most > 1)),
        "charts": [chart for chart in _charts(run, material) if chart["lines"]],
        "boundaries": [float(place) + 0.5 for place in changes] if adjacent else [],
        "done": int(run.steps[-1]),
        "total": run.settings.training.steps,
    }


# A run in words.


def title_of(run: Run) -> str:
    """A run's name in words: the figure that it belongs to, if any, and how it was trained."""
    settings = run.settings
    if isinstance(settings.data, TextData):
        return f"{Path(run.name).name}: trained on {settings.data.corpus}"
    figure = re.match(r"(figure|table|theorem|section)(\d[\d.]*)/", run.name)
    start = f"{figure[1].capitalize()} {figure[2]}" if figure else Path(run.name).name
    rate = f"{OPTIMIZER_WORDS[settings.training.optimizer]} at {settings.training.learning_rate:g}"
    return f"{start}: {LOSS_WORDS[settings.training.loss]}, {rate}, {_trained(settings)} trained"


def described(run: Run) -> str:
    """A run's settings in a few words."""
    data, model, training = run.settings.data, run.settings.model, run.settings.training
    pace = f"learning rate {training.learning_rate:g}"
    if isinstance(data, TextData):
        sizes = f"{model.layers} layers of {model.heads} heads, width {model.dimension}"
        return f"{sizes}, {pace}, {training.steps:,} steps"
    sizes = f"T = {data.topics}, v = {data.words}" if data.topics else "topics from a file"
    return (
        f"{LOSS_WORDS[training.loss]}, {OPTIMIZER_WORDS[training.optimizer]}, {pace}, λ = {training.l2:g}; "
        f"trained: {_trained(run.settings)}; {sizes}; {training.steps:,} steps"
        + ("" if len(run.frame_steps) else "; no snapshots, so no matrices")
    )


def _trained(settings: Settings) -> str:
    return ", ".join(label for name, label in WEIGHTS.items() if settings.model.part(name).train) or "biases"


def outcome(run: Run) -> str:
    """How a run ended, in sentences: its loss beside theory's, and when attention took off."""
    last = np.nanmean(run.metrics["loss"][:, -1])
    text = f"After {run.steps[-1]:,} of {run.settings.training.steps:,} steps the loss of the batch is {last:.4g}"
    beside = "; ".join(f"{label} {loss:.4g}" for label, loss in _levels(run).items())
    text += f" ({beside}). The loss of one batch scatters around its expectation." if beside else "."
    taken = next(((step, gain) for step, gain in take_offs(run) if step is not None and np.isfinite(gain)), None)
    if taken is None:
        return text
    share = f"{100 * taken[1]:.0f} % of what it can gain under uniform attention"
    return f"{text} Attention takes off at step {taken[0]:,}, when W^V has {share}."


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
    with_theory = [run for run in runs if any(of in run.theory for of in kept_matrices(run))]
    chosen = [run for run in with_theory if run.name == OPENS_ON]
    return next(iter([*chosen, *with_theory, *runs]), None)


def two_stage_run(runs: Sequence[Run]) -> Run | None:
    """A run in which attention takes off after W^V, with matrices to play; that of Figure 4 first."""
    gains = {run.name: max((gain for step, gain in take_offs(run) if step is not None), default=0.0) for run in runs}
    staged = [run for run in runs if len(run.frame_steps) > 1 and gains[run.name] >= LEAST_GAIN]
    return min(staged, key=lambda run: (not run.name.startswith("figure4/"), -gains[run.name]), default=None)


# Curves over steps.


def _charts(run: Run, material: Material) -> Iterator[Row]:
    """A chart per quantity; "log" if its axis may be logarithmic, "marks" if it shows when attention takes off."""
    metrics = run.metrics

    def line(
        name: str,
        values: Float[np.ndarray, "seed row"],
        colour: str,
        steps: Real[np.ndarray, " row"] = run.steps,
        **more: Any,
    ) -> Row:
        """A line per seed, through the steps that have a number."""
        there = np.flatnonzero(np.isfinite(values).any(axis=0))
        kept = there[evenly(len(there), CURVE_POINTS)]
        numbers = {"steps": material.numbers(steps[kept]), "values": material.numbers(values[:, kept])}
        return {"name": name, **numbers, "colour": colour} | more

    layered = [name for name in BY_LAYER if name in metrics and metrics[name].shape[2] > 1]
    # A frozen part does not change over steps.
    whole = {name: np.linalg.norm(of, axis=2) for name, of in metrics.items() if name.startswith("norm/")}
    whole |= {name: of for name, of in metrics.items() if name.startswith("modes/")}
    moved = {name: of for name, of in whole.items() if name not in layered and np.nanmax(of) > np.nanmin(of)}
    norms = [
        line(f"‖{symbol}‖", moved[f"norm/{name}"], PARTS[name.removesuffix("_bias")], dash=[3, 3] * ("bias" in name))
        for name, symbol in NAMES.items()
        if f"norm/{name}" in moved
    ]
    predicted = run.reference.stages if run.reference else PredictedStages()
    for name, values in predicted.norms.items():
        if values and predicted.steps:
            label, steps = f"‖{NAMES[name]}‖, predicted", np.array(predicted.steps)
            norms.append(line(label, np.array([values]), PARTS[name], steps, dash=[7, 4], thin=True))
    text = f"Thin dashed lines are predicted. {predicted.note}" if predicted.steps else ""
    usual: Row = {"label": "Frobenius norm", "log": True, "marks": True}
    yield {"id": "norms", "title": "Norms of the trained parts", "lines": norms, "text": text} | usual
    for name in layered:
        title, label = BY_LAYER[name]
        lines = [
            line(f"layer {at + 1}", values, COLOURS[at % 6], dash=DASHES[at // 6 % 4])
            for at, values in enumerate(np.moveaxis(metrics[name], 2, 0))
            if np.isfinite(values).any()
        ]
        yield {"id": name.replace("/", "-"), "title": f"{title}, by layer", "label": label, "lines": lines}
    modes = [
        line(f"{WEIGHTS[part]}: {label}", moved[f"modes/{part}-{mode}"], PARTS[part], dash=dash)
        for part in ("key", "query")
        for mode, label, dash in (("topics", "topics", []), ("mask", "[MASK]", [2, 3]))
        if f"modes/{part}-{mode}" in moved
    ]
    if modes and "norm/value" in moved:
        modes.insert(0, line("‖W^V‖", moved["norm/value"], PARTS["value"]))
    yield {"id": "growth", "title": "What grows in W^K and W^Q", "lines": modes} | usual
    progress = [
        line(name, metrics[key].reshape(len(run.seeds), -1), colour)
        for key, (name, colour) in STAGES.items()
        if "uniform_gain" in metrics
    ]
    label = "share, distance"
    yield {"id": "progress", "title": "Progress of the two stages", "label": label, "lines": progress, "marks": True}
    # Averaged over heads, layer by layer; frozen attention says nothing.
    attention = run.frames.get("attention", np.zeros((1, 1, 3, 0, 1))).mean(axis=4, dtype=np.float64)
    varies = attention.size and np.nan_to_num(np.ptp(attention, axis=1)).max() > 1e-6
    layers = attention.shape[3] if varies else 0
    for layer in range(layers):
        lines = [
            line(name, 100 * attention[:, :, place, layer], colour, run.frame_steps)
            for place, (name, colour) in enumerate(list(CLASSES.items())[:3])
        ]
        chart: Row = {"id": "attention", "title": "Average attention × 100", "label": "attention × 100", "marks": True}
        several = {"id": f"attention-{layer + 1}", "title": f"{chart['title']}, layer {layer + 1}", "layer": layer}
        yield chart | {"lines": lines} | (several if layers > 1 else {})
    losses = [line("loss of the batch", metrics["loss"], BLUE)]
    if np.isfinite(held_out := metrics.get("validation_loss", np.zeros((1, 0)))).any():
        losses.append(line("held-out loss", held_out, ORANGE))
    levels = [
        {"label": label, "value": value, "dash": dash}
        for (label, value), dash in zip(_levels(run).items(), DASHES[1:], strict=False)
    ]
    loss: Row = {"id": "loss", "title": "Loss", "label": "loss", "lines": losses, "levels": levels}
    yield loss | ({"text": SCATTER} if levels else {})


# Matrices over tokens: whole for one seed, as averages by class of entry for all seeds.


def kept_matrices(run: Run) -> dict[str, str]:
    """The matrices that a run has kept, and what they are called."""
    if on_text(run):
        return {}
    labels = {"value_products": "W^V" if run.settings.model.one_hot else "W^E⊤W^V W^E", "embedding_products": "W^E⊤W^E"}
    return {name: label for name, label in labels.items() if name in run.frames}


def _matrices(
    run: Run, frames: Int[np.ndarray, " kept"], topics: Int[np.ndarray, " token"], material: Material, *, keep: bool
) -> Iterator[Row]:
    about = run.reference.matrices if run.reference else {}
    for name, label in kept_matrices(run).items():
        layers, theory = run.frames[name].shape[2], run.theory.get(name)
        expected = [] if theory is None else averages_by_class(theory, topics).tolist()
        for layer in range(layers):
            kept = run.frames[name][0, frames, layer]
            yield {
                "label": f"{label}, layer {layer + 1}" if layers > 1 else label,
                "size": kept.shape[-1],
                "frames": material.frames(kept) if keep and np.isfinite(kept).all() else None,
                "classes": material.numbers(run.frames[f"averages/{name}"][:, frames, layer]),
                "theory": None if theory is None else material.numbers(theory),
                "theoryClasses": [None if np.isnan(average) else average for average in expected],
                "what": about.get(name, "The run recorded no matrix of theory."),
                "layer": layer if layers > 1 else None,
                "limit": max(map(colour_limit, [kept[-1], *([] if theory is None else [theory])])) or 1.0,
            }
