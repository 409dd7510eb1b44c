"""Figure 5: two stages in every layer of a deeper transformer on Wikipedia; and, ours, when topic structure appears.

A layer's attention takes off as in Figure 4, when that of word queries is 0.05 from uniform. What W^V can gain alone
has no meaning for one layer among four, so its norm stands for it, compared with the largest norm that it reaches until
as long again has passed: a reference that depends neither on the run's length nor on the initial scale. Two thirds of
that growth mean that ‖W^V‖ grows less than half as fast after the take-off as before it, so that it "already plateaus"
(§5.1). A run that ends before has no such number, and then nothing is decided.

A structure has appeared at the step at which its log-ratio (same- over different-topic average) is half of its final
value. A run without structure in the end has no such step, and then nothing is decided.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from jaxtyping import Bool, Float, Int

from topicscope.measure.stages import (
    LEAST_GAIN,
    LEAST_GROWTH,
    TAKE_OFF,
    NormStages,
    Stages,
    half_way,
    norm_stages,
    stages,
)
from topicscope.measure.uncertainty import Interval, student_interval
from topicscope.paper.claim import (
    Before,
    Claim,
    Detail,
    Diagnosis,
    Drawing,
    Drawn,
    Measurement,
    Preset,
    Results,
    above,
    claim_on,
    over_seeds,
    share_above,
)
from topicscope.paper.experiment import (
    CORPUS,
    HEADS,
    LAYERS,
    QUERIES,
    STRUCTURES,
    TextExperiment,
    TextRuns,
    joined,
)
from topicscope.paper.figure4 import at_other_take_offs, when_taken_off
from topicscope.paper.setups import OPTIMIZER_WORDS
from topicscope.settings.text import Encoder, TextData, TextSettings, TextTopics, TextTraining
from topicscope.settings.training import Optimizer

# Its stage 1 is "roughly steps 0-100", its stage 2 "roughly steps 100-400".
PAPER_STEPS = 400


@dataclass(frozen=True)
class Size:
    """How large and how long."""

    steps: int
    width: int
    vocabulary: int
    length: int
    batch: int
    seeds: int
    """Seeds of the witness."""

    other_seeds: int
    """Seeds of every other setting; these are only for the picture and for the map."""

    log_every: int


QUICK = Size(steps=PAPER_STEPS, width=64, vocabulary=2_000, length=62, batch=8, seeds=5, other_seeds=3, log_every=10)
FULL = Size(steps=1_000, width=128, vocabulary=4_000, length=126, batch=8, seeds=10, other_seeds=3, log_every=5)
# Attention is compared with uniform attention on this many held-out passages.
ATTENTION_PASSAGES = 8
# A run that is stopped loses at most this many steps.
CHECKPOINT_EVERY = 100


@dataclass(frozen=True)
class Cell:
    """One setting of the figure."""

    optimizer: Optimizer
    rate: float
    scale: float
    """The scale of W^K, W^Q and W^V at the start."""

    @property
    def words(self) -> str:
        """The setting in words."""
        return f"{OPTIMIZER_WORDS[self.optimizer]} at {self.rate:g}, W^K, W^Q, W^V from N(0, {self.scale:g}²)"

    def experiment(self, size: Size) -> TextExperiment:
        """All weights trained at once from the start."""
        return TextExperiment(
            name=f"figure5/{self.optimizer}-{self.rate:g}/scale-{self.scale:g}",
            settings=TextSettings(
                data=TextData(corpus=CORPUS, vocabulary=size.vocabulary, length=size.length),
                model=Encoder(
                    layers=LAYERS,
                    heads=HEADS,
                    width=size.width,
                    feed_forward=4 * size.width,
                    attention_scale=self.scale,
                ),
                training=TextTraining(
                    optimizer=self.optimizer,
                    learning_rate=self.rate,
                    steps=size.steps,
                    batch=size.batch,
                    threads=1,
                    log_every=size.log_every,
                    validate_every=0,
                    checkpoint_every=CHECKPOINT_EVERY,
                    measures=0,
                ),
            ),
            seeds=size.seeds if self == WITNESS else size.other_seeds,
            attention_passages=ATTENTION_PASSAGES,
        )


# A witness for "approximately two-stage"; how it was found is in docs/choices.md.
WITNESS = Cell("adam", 0.001, 0.005)
# Beside it, learning rates and scales as far apart as still show something in 400 steps.
QUICK_CELLS = (WITNESS, Cell("adam", 0.0001, 0.001), Cell("adam", 0.001, 0.001), Cell("adam", 0.0001, 0.02))
FULL_CELLS = (
    *QUICK_CELLS,
    Cell("adam", 0.0003, 0.001),
    Cell("adam", 0.0001, 0.005),
    Cell("adam", 0.0003, 0.005),
    Cell("adam", 0.001, 0.02),
)


# Structure needs thousands of steps: the quick preset does not look for it.
EMERGENCE_STEPS, EMERGENCE_SEEDS = 6_000, 5
TOO_SHORT = (
    f"topic structure appears after thousands of steps ({EMERGENCE_STEPS:,} are trained), for which the quick preset "
    "has no time: run --preset paper."
)
# How these were chosen is in docs/choices.md.
EMERGENCE = TextSettings(
    data=TextData(corpus=CORPUS, vocabulary=8_000, length=126),
    model=Encoder(layers=LAYERS, heads=HEADS, width=64, feed_forward=64, positions="none", attention_scale=0.001),
    training=TextTraining(
        learning_rate=0.002,
        steps=EMERGENCE_STEPS,
        batch=4,
        threads=1,
        log_every=10,
        validate_every=0,
        checkpoint_every=200,
        measures=24,
    ),
    topics=TextTopics(count=50, words=20, passages=1_000),
)


def claims(preset: Preset) -> tuple[Claim, ...]:
    """Two stages in every layer, the settings together, how W^V turns, and which structure appears first."""
    size = size_of(preset)
    found = [_two_stages(layer, size) for layer in range(LAYERS)]
    return (*found, _map_claim(preset), _turning_claim(size), *_emergence_claims(preset))


def drawings(preset: Preset) -> tuple[Drawing, ...]:
    """The figure in the paper's layout; loss, norms and topic structure over the steps where they are looked at."""
    cells, emergence = cells_of(preset), emergence_experiments(preset)
    figure = Drawing(
        name="figure5",
        needs=tuple(cells.values()),
        draw=lambda results: _draw({cell: results[each.name] for cell, each in cells.items()}),
    )
    if not emergence:
        return (figure,)
    rises = Drawing(
        name="emergence", needs=emergence, draw=lambda results: _draw_emergence(_together(results, emergence))
    )
    return figure, rises


def size_of(preset: Preset) -> Size:
    """The size for a preset."""
    return FULL if preset.full else QUICK


def cells_of(preset: Preset) -> dict[Cell, TextExperiment]:
    """All settings of a preset's figure, the witness first."""
    return {cell: cell.experiment(size_of(preset)) for cell in (FULL_CELLS if preset.full else QUICK_CELLS)}


def layer_stages(runs: TextRuns, layer: int, threshold: float = TAKE_OFF) -> list[Stages]:
    """Each seed's stages in one layer: when its attention takes off, and how much of its growth ‖W^V‖ has then made."""
    words, mask = (runs.attention_distance[name][:, :, layer] for name in QUERIES)
    found, steps = [], runs.steps
    for curves in zip(words, mask, runs.norms["value"][:, :, layer], strict=True):
        each = stages(steps, *curves, threshold=threshold)
        if each.take_off is not None and steps[-1] < 2 * each.take_off:
            # The reference for the growth is missing.
            each = replace(each, take_off=None, gain=np.nan)
        elif each.take_off is not None:
            each = replace(each, gain=growth_share(steps, curves[2], each.take_off))
        found.append(each)
    return found


def growth_share(steps: Int[np.ndarray, " row"], value: Float[np.ndarray, " row"], take_off: int) -> float:
    """The share that a norm has made, by a step, of its largest growth until as long again has passed; 0 to 1."""
    then = value[np.searchsorted(steps, take_off)] - value[0]
    largest = value[steps <= 2 * take_off].max() - value[0]
    return float(max(then, 0) / largest) if largest > 0 else 0.0


def norm_layer_stages(runs: TextRuns, layer: int) -> list[NormStages]:
    """Each seed's stages by the norms of one layer alone, the rule of an earlier version."""
    return [
        norm_stages(runs.steps, *(runs.norms[name][seed, :, layer] for name in ("key", "query", "value")))
        for seed in range(len(runs.loss))
    ]


def _two_stages(layer: int, size: Size) -> Claim:
    experiment = WITNESS.experiment(size)

    def measure(results: Results, threshold: float = TAKE_OFF) -> Measurement:
        found = layer_stages(results[experiment.name], layer, threshold)
        two = float(np.mean([each.two for each in found]))
        return over_seeds([each.gain for each in found], **when_taken_off(found), runs_with_two_stages=two)

    return Claim(
        needs=(experiment,),
        measure=measure,
        varied=at_other_take_offs(measure),
        id=f"{experiment.name}/layer-{layer + 1}",
        statement=f"When the attention of layer {layer + 1} of {LAYERS} takes off (a word query's is 0.05 from "
        "uniform), ‖W^V‖ of that layer has made at least two thirds of its largest growth until as long again has "
        f"passed (Wikipedia, {WITNESS.words}).",
        expected="> 2/3",
        unit="of the growth",
        rule=share_above(LEAST_GAIN),
        figure="figure5",
        kind="elsewhere",
        before=Before(
            "‖W^V‖ has made a third of its growth over the run when ‖W^K‖ or ‖W^Q‖ is twice its start; a second claim "
            "asked that this takes 5 % of the steps",
            rule=above(LEAST_GROWTH),
            measure=lambda results: over_seeds(
                [_ended(each.growth, each) for each in norm_layer_stages(results[experiment.name], layer)]
            ),
        ),
        diagnosis=_why_undecided(experiment.name, layer),
    )


def _why_undecided(experiment: str, layer: int) -> Diagnosis:
    """The diagnosis: the last layer's share is near the threshold; in the layers below it runs differ."""
    if layer == LAYERS - 1:
        return Diagnosis(
            "power",
            "In the last layer the share is near two thirds and differs between runs, so that the interval holds the "
            "threshold; in the layers below it, whose attention takes off earlier, it is larger.",
            holds="in the layers below, on average",
            see=tuple(f"{experiment}/layer-{below + 1}" for below in range(layer)),
        )
    return Diagnosis(
        "power",
        "The share differs between runs, and there are few of them. How many of the runs have it above the threshold "
        "is among the details.",
        holds="for the share of layers and settings that are two-stage",
        see=("figure5/map",),
    )


def _ended(share: float, of: NormStages) -> float:
    """A share of a stage 1 that ends; 0 if it never does, NaN if the run diverged."""
    return share if of.end is not None or np.isnan(share) else 0.0


def _map_claim(preset: Preset) -> Claim:
    experiments = tuple(cells_of(preset).values())
    names = [experiment.name for experiment in experiments]
    return Claim(
        id="figure5/map",
        statement=f"Two stages appear in more than half of the {LAYERS} layers of the {len(experiments)} settings in "
        "which attention takes off, averaged over runs.",
        unit="of layers and settings",
        rule=share_above(0.5),
        needs=experiments,
        measure=lambda results: _map_measure(results, names),
        varied=at_other_take_offs(partial(_map_measure, names=names)),
        figure="figure5",
        kind="ours",
        before=Before(
            "more than half of all layers and settings, by the rule on norms; as the paper's claim",
            rule=above(0.5),
            measure=lambda results: _norm_map_measure(results, names),
        ),
        diagnosis=Diagnosis(
            "settings",
            "Learning rate and initial scale decide, as §8.1 says (“sensitive to hyperparameters like initialization "
            "and learning rate”); the shares of each setting are among the details.",
            holds=f"with {WITNESS.words}",
            see=tuple(f"{WITNESS.experiment(size_of(preset)).name}/layer-{layer + 1}" for layer in range(LAYERS)),
        ),
    )


def _map_measure(results: Results, names: list[str], threshold: float = TAKE_OFF) -> Measurement:
    """Each seed's share of two-stage layers among those that take off: seeds are drawn at random, settings are not."""
    fewest = min(len(results[name].loss) for name in names)
    found = [[layer_stages(results[name], layer, threshold)[:fewest] for layer in range(LAYERS)] for name in names]
    two, told = (
        np.array([[[take(each) for each in runs] for runs in layers] for layers in found])
        for take in (lambda each: each.two, lambda each: each.take_off is not None)
    )
    details: dict[str, Detail] = {}
    for name, mine, known in zip(names, two, told, strict=True):
        setting = name.removeprefix("figure5/")
        details |= {setting: _share(mine, known), f"{setting}_takes_off_in_time": float(known.mean())}
    shares = [_share(two[:, :, seed], told[:, :, seed]) for seed in range(fewest)]
    return over_seeds(shares, **details)


def _share(two: Bool[np.ndarray, "..."], told: Bool[np.ndarray, "..."]) -> float:
    """Which part of those that take off has two stages; NaN if none does."""
    return float(two[told].mean()) if told.any() else np.nan


def _norm_map_measure(results: Results, names: list[str]) -> Measurement:
    """Each seed's share of layers and settings with two stages by the norms, the earlier rule."""
    fewest = min(len(results[name].loss) for name in names)
    two = [
        [[each.two for each in norm_layer_stages(results[name], layer)[:fewest]] for layer in range(LAYERS)]
        for name in names
    ]
    return over_seeds(np.mean(two, axis=(0, 1)))


def _turning_claim(size: Size) -> Claim:
    experiment = WITNESS.experiment(size)
    return claim_on(
        experiment,
        lambda runs: over_seeds(turning_ratios(runs)),
        id=f"{experiment.name}/turning",
        statement="In stage 1, until a layer's attention takes off, the orientation of its W^V changes rapidly: over "
        f"10 steps it turns more than in stage 2, up to step {PAPER_STEPS}, averaged over layers (Wikipedia, "
        f"{WITNESS.words}).",
        unit="rotation in stage 1 over that in stage 2",
        rule=above(1.0),
        figure="figure5",
        kind="elsewhere",
        before=Before("the same with a stage 1 that ends when a norm of W^K or W^Q has doubled", verdict="holds"),
    )


def turning_ratios(runs: TextRuns) -> Float[np.ndarray, " seed"]:
    """The mean rotation of W^V before the take-off over that from there to the paper's last step, averaged over layers.

    NaN for a run in which the attention of a layer does not take off, or at once.
    """
    within = runs.steps <= PAPER_STEPS
    found = np.full((len(runs.loss), runs.rotation.shape[2]), np.nan)
    for layer in range(runs.rotation.shape[2]):
        for seed, each in enumerate(layer_stages(runs, layer)):
            rotation = runs.rotation[seed, :, layer]
            if each.take_off is None:
                continue
            before = runs.steps <= each.take_off
            early, late = rotation[before], rotation[~before & within]
            if np.isfinite(early).any() and np.isfinite(late).any():
                found[seed, layer] = np.nanmean(early) / np.nanmean(late)
    return found.mean(axis=1)


def _draw(runs: dict[Cell, TextRuns]) -> Drawn:
    from topicscope.reporting.figures.training import layer_trajectories

    curves = {
        cell.words: (
            each.steps,
            {**each.norms, "rotation": each.rotation, "attention": each.attention_distance["words"]},
        )
        for cell, each in runs.items()
    }
    return layer_trajectories(curves, title="Figure 5: two stages in each layer, on Wikipedia; one line per run")


def _emergence_claims(preset: Preset) -> tuple[Claim, ...]:
    """Embeddings or attention first, and lower layers or higher ones."""
    experiments = emergence_experiments(preset)
    how = f"Adam at {EMERGENCE.training.learning_rate:g}, {EMERGENCE_STEPS:,} steps"
    said = {
        "embeddings-first": (
            "Topic structure appears in the embeddings before it appears in attention: each reaches half of its final "
            "log-ratio at a step, attention's minus the embeddings'",
            _first_measure,
        ),
        "lower-layers-first": (
            "Attention's topic structure appears in the first layer before it appears in the last: the step at which "
            "each reaches half of its final log-ratio, last minus first",
            _layers_measure,
        ),
    }
    return tuple(
        Claim(
            id=f"emergence/{name}",
            source="Figure 5",
            statement=f"{statement} ({how}).",
            unit="steps",
            rule=above(0.0),
            needs=experiments,
            measure=lambda results, measure=measure: measure(_together(results, experiments)),  # type: ignore[misc]
            figure="emergence" if experiments else "",
            kind="ours",
            unavailable="" if experiments else TOO_SHORT,
            diagnosis=Diagnosis(
                "power",
                "A structure has a step at which it appears only if it is clear in the end. Attention's is not in "
                "these runs of a small encoder on a small corpus: its log-ratio in the end, which is among the "
                "details, cannot be told from 0.",
            ),
        )
        for name, (statement, measure) in said.items()
    )


def emergence_experiments(preset: Preset) -> tuple[TextExperiment, ...]:
    """Training with topic structure measured on the way; one per seed, so that seeds are trained at the same time.

    None in the quick preset.
    """
    return tuple(
        TextExperiment(name=f"emergence/{number}", settings=EMERGENCE, seeds=1, skipped=number)
        for number in range(EMERGENCE_SEEDS if preset.full else 0)
    )


def _together(results: Results, experiments: Sequence[TextExperiment]) -> TextRuns:
    return joined([results[experiment.name] for experiment in experiments])


def half_ways(runs: TextRuns, structure: str) -> Float[np.ndarray, " seed"]:
    """Each seed's step at which a structure reaches half of its final log-ratio; NaN without structure in the end."""
    rises = zip(runs.log_ratios[structure], runs.final_low[structure], strict=True)
    return np.array([half_way(runs.measured, ratios, float(low)) for ratios, low in rises])


def layer_half_ways(runs: TextRuns) -> Float[np.ndarray, "seed layer"]:
    """The same for attention, layer by layer."""
    seeds, layers = runs.layer_final_low.shape
    found = np.full((seeds, layers), np.nan)
    for seed, layer in np.ndindex(seeds, layers):
        ratios = runs.layer_log_ratios[seed, :, layer]
        found[seed, layer] = half_way(runs.measured, ratios, float(runs.layer_final_low[seed, layer]))
    return found


def _first_measure(runs: TextRuns) -> Measurement:
    embedding, attention = (half_ways(runs, name) for name in STRUCTURES)
    details = _spread("embeddings_half_way", embedding) | _spread("attention_half_way", attention)
    for structure in STRUCTURES:
        details |= _spread(f"{structure}_final_log_ratio", runs.log_ratios[structure][:, -1])
    return over_seeds(attention - embedding, **details)


def _layers_measure(runs: TextRuns) -> Measurement:
    found = layer_half_ways(runs)
    details: dict[str, Detail] = {}
    for layer, (steps, ratios) in enumerate(zip(found.T, runs.layer_log_ratios[:, -1].T, strict=True), start=1):
        details |= _spread(f"layer_{layer}_half_way", steps) | _spread(f"layer_{layer}_final_log_ratio", ratios)
    return over_seeds(found[:, -1] - found[:, 0], **details)


def _spread(name: str, values: Float[np.ndarray, " seed"]) -> dict[str, Detail]:
    """Mean and 95 % interval over the seeds that have a number, and how many have."""
    there = values[np.isfinite(values)]
    interval = student_interval(there) if len(there) else Interval(np.nan, np.nan, np.nan)
    return {
        name: interval.value,
        f"{name}_low": interval.low,
        f"{name}_high": interval.high,
        f"{name}_runs": len(there),
    }


def _draw_emergence(runs: TextRuns) -> Drawn:
    from topicscope.reporting.figures.training import structure_over_steps

    return structure_over_steps(
        runs.steps,
        runs.loss,
        runs.norms["value"],
        runs.measured,
        {name: runs.log_ratios[name] for name in STRUCTURES},
        runs.layer_log_ratios,
        half_ways={name: half_ways(runs, name) for name in STRUCTURES},
        layer_half_ways=layer_half_ways(runs),
        title="When topic structure appears in training on Wikipedia",
    )
