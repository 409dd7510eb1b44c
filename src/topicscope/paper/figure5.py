"""Figure 5: two stages in every layer of a deeper transformer on Wikipedia; and, ours, when topic structure appears.

A structure has appeared at the step at which its log-ratio (same- over different-topic average) is half of what it is
in the end. A run without structure in the end has no such step, and then nothing is decided.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from topicscope.measure.stages import LEAST_GROWTH, LEAST_STEPS, NormStages, half_way, norm_stages
from topicscope.measure.uncertainty import Interval, student_interval
from topicscope.paper.claim import Claim, Detail, Drawing, Measurement, Preset, Results, above, claim_on, over_seeds
from topicscope.paper.text_experiment import CORPUS, HEADS, LAYERS, STRUCTURES, TextExperiment, TextRuns, joined
from topicscope.settings.text import Encoder, TextData, TextSettings, TextTopics, TextTraining
from topicscope.settings.training import Optimizer

if TYPE_CHECKING:
    from topicscope.reporting.figures import Drawn


@dataclass(frozen=True)
class Size:
    """How large and how long; the paper's figure has 400 steps."""

    steps: int
    width: int
    vocabulary: int
    length: int
    batch: int
    seeds: int
    """Of the witness."""

    other_seeds: int
    """Of every other setting: they are there for the picture and for the map."""

    log_every: int


QUICK = Size(steps=400, width=64, vocabulary=2_000, length=62, batch=8, seeds=5, other_seeds=3, log_every=5)
FULL = Size(steps=1_000, width=128, vocabulary=4_000, length=126, batch=8, seeds=10, other_seeds=3, log_every=5)
# A run that is stopped loses at most so many steps.
CHECKPOINT_EVERY = 100


@dataclass(frozen=True)
class Cell:
    """One setting of the figure."""

    optimizer: Optimizer
    rate: float
    scale: float
    """Of W^K, W^Q and W^V at the start."""

    @property
    def words(self) -> str:
        """As in sentences."""
        name = {"adam": "Adam", "sgd": "SGD"}.get(self.optimizer, self.optimizer)
        return f"{name} at {self.rate:g}, W^K, W^Q, W^V from N(0, {self.scale:g}²)"

    def experiment(self, size: Size) -> TextExperiment:
        """All weights trained at once from the start."""
        return TextExperiment(
            name=f"figure5/{self.optimizer}-{self.rate:g}/scale-{self.scale:g}",
            settings=_settings(self, size),
            seeds=size.seeds if self == WITNESS else size.other_seeds,
        )


# A witness for "approximately two-stage"; how it was found is in docs/choices.md.
WITNESS = Cell("adam", 0.001, 0.005)
# Beside it, learning rates and scales as far apart as one can go and still see something in 400 steps.
QUICK_CELLS = (WITNESS, Cell("adam", 0.0001, 0.001), Cell("adam", 0.001, 0.001), Cell("adam", 0.0001, 0.02))
FULL_CELLS = (
    *QUICK_CELLS,
    Cell("adam", 0.0003, 0.001),
    Cell("adam", 0.0001, 0.005),
    Cell("adam", 0.0003, 0.005),
    Cell("adam", 0.001, 0.02),
)


@dataclass(frozen=True)
class EmergenceSize:
    """How long, how many runs, and how well it is looked at."""

    steps: int
    seeds: int
    measures: int
    passages: int
    """That attention is measured on."""


# As many steps as Figure 5's, so that both take three minutes: structure is seen to begin. The claims decide what runs
# that end with clear structure show; none has so far (docs/text.md).
QUICK_EMERGENCE = EmergenceSize(steps=400, seeds=3, measures=9, passages=300)
FULL_EMERGENCE = EmergenceSize(steps=6_000, seeds=5, measures=24, passages=1_000)
# How these were chosen is in docs/choices.md.
EMERGENCE_DATA = TextData(corpus=CORPUS, vocabulary=8_000, length=126)
EMERGENCE_MODEL = Encoder(
    layers=LAYERS, heads=HEADS, width=64, feed_forward=64, positions="none", attention_scale=0.001
)
EMERGENCE_RATE, EMERGENCE_BATCH = 0.002, 4


def claims(preset: Preset) -> tuple[Claim, ...]:
    """Two stages in every layer, the settings together, how W^V turns, and which structure appears first."""
    size = size_of(preset)
    found = [claim for layer in range(LAYERS) for claim in _two_stages(layer, size)]
    return (*found, _map_claim(preset), _turning_claim(size), *_emergence_claims(preset))


def drawings(preset: Preset) -> tuple[Drawing, ...]:
    """The figure in the paper's layout; loss, norms and topic structure over the steps."""
    cells, emergence = cells_of(preset), emergence_experiments(preset)
    return (
        Drawing(
            name="figure5",
            needs=tuple(cells.values()),
            draw=lambda results: _draw({cell: results[each.name] for cell, each in cells.items()}),
        ),
        Drawing(
            name="emergence",
            needs=emergence,
            draw=lambda results: _draw_emergence(_together(results, emergence)),
        ),
    )


def size_of(preset: Preset) -> Size:
    """Of a preset."""
    return FULL if preset.full else QUICK


def cells_of(preset: Preset) -> dict[Cell, TextExperiment]:
    """All settings of a preset's figure, the witness first."""
    return {cell: cell.experiment(size_of(preset)) for cell in (FULL_CELLS if preset.full else QUICK_CELLS)}


def _settings(cell: Cell, size: Size) -> TextSettings:
    return TextSettings(
        data=TextData(corpus=CORPUS, vocabulary=size.vocabulary, length=size.length),
        model=Encoder(
            layers=LAYERS,
            heads=HEADS,
            width=size.width,
            feed_forward=4 * size.width,
            attention_scale=cell.scale,
        ),
        training=TextTraining(
            optimizer=cell.optimizer,
            learning_rate=cell.rate,
            steps=size.steps,
            batch=size.batch,
            threads=1,
            log_every=size.log_every,
            validate_every=0,
            checkpoint_every=CHECKPOINT_EVERY,
            measures=0,
        ),
    )


def layer_stages(runs: TextRuns, layer: int) -> list[NormStages]:
    """Each seed's stages in one layer, by the same rule as Figure 4's."""
    return [
        norm_stages(runs.steps, *(runs.norms[name][seed, :, layer] for name in ("key", "query", "value")))
        for seed in range(len(runs.loss))
    ]


def _two_stages(layer: int, size: Size) -> list[Claim]:
    """The two conditions of the rule on norms, each a number; a run whose keys and queries never move has neither."""
    experiment = WITNESS.experiment(size)
    where = f"layer {layer + 1} of {LAYERS} on Wikipedia, {WITNESS.words}"
    return [
        claim_on(
            experiment,
            lambda runs: _growth(layer_stages(runs, layer)),
            id=f"{experiment.name}/layer-{layer + 1}/growth",
            statement="By the end of stage 1 ‖W^V‖ has made at least a third of its growth over "
            f"{size.steps:,} steps ({where}).",
            expected="> 1/3",
            unit="of the growth",
            rule=above(LEAST_GROWTH, origin=0),
            figure="figure5",
            kind="elsewhere",
        ),
        claim_on(
            experiment,
            lambda runs: over_seeds([_ended(each.steps, each) for each in layer_stages(runs, layer)]),
            id=f"{experiment.name}/layer-{layer + 1}/length",
            statement=f"Stage 1 takes at least 5 % of {size.steps:,} steps and ends within them ({where}).",
            unit="of the steps, 0 if stage 1 does not end",
            rule=above(LEAST_STEPS, origin=0),
            figure="figure5",
            kind="elsewhere",
        ),
    ]


def _growth(found: list[NormStages]) -> Measurement:
    """The share of ‖W^V‖'s growth by the end of stage 1, one number per run."""
    ends = [each.end for each in found if each.end is not None]
    return over_seeds(
        [_ended(each.growth, each) for each in found],
        stage_1_ends_at=float(np.mean(ends)) if ends else None,
        runs_with_two_stages=float(np.mean([each.two for each in found])),
    )


def _ended(share: float, of: NormStages) -> float:
    """A share of a stage 1 that ends; 0 if it never does, NaN if the run diverged."""
    return share if of.end is not None or np.isnan(share) else 0.0


def _map_claim(preset: Preset) -> Claim:
    experiments = tuple(cells_of(preset).values())
    return Claim(
        id="figure5/map",
        statement="Two stages appear over several learning rates and initial scales: in more than half of the "
        f"{LAYERS} layers of the {len(experiments)} settings, averaged over runs.",
        unit="of layers and settings",
        rule=above(0.5),
        needs=experiments,
        measure=lambda results: _map_measure(results, [experiment.name for experiment in experiments]),
        figure="figure5",
    )


def _map_measure(results: Results, names: list[str]) -> Measurement:
    """Each seed's share of layers and settings with two stages: seeds are drawn at random, settings are not."""
    fewest = min(len(results[name].loss) for name in names)
    two = np.array(
        [
            [[each.two for each in layer_stages(results[name], layer)[:fewest]] for layer in range(LAYERS)]
            for name in names
        ]
    )
    shares = {name.removeprefix("figure5/"): float(each.mean()) for name, each in zip(names, two, strict=True)}
    return over_seeds(two.mean(axis=(0, 1)), **shares)


def _turning_claim(size: Size) -> Claim:
    experiment = WITNESS.experiment(size)
    return claim_on(
        experiment,
        lambda runs: over_seeds(turning_ratios(runs)),
        id=f"{experiment.name}/turning",
        statement="In stage 1 the orientation of W^V changes rapidly: over 10 steps it turns more than in stage 2, "
        f"averaged over layers ({WITNESS.words}).",
        unit="rotation in stage 1 over that in stage 2",
        rule=above(1.0),
        figure="figure5",
    )


def turning_ratios(runs: TextRuns) -> Float[np.ndarray, " seed"]:
    """The mean rotation of W^V in stage 1 over that in stage 2, averaged over layers; NaN without both stages."""
    found = np.full((len(runs.loss), runs.rotation.shape[2]), np.nan)
    for layer in range(runs.rotation.shape[2]):
        for seed, each in enumerate(layer_stages(runs, layer)):
            rotation = runs.rotation[seed, :, layer]
            if each.end is None:
                continue
            early, late = rotation[runs.steps <= each.end], rotation[runs.steps > each.end]
            if np.isfinite(early).any() and np.isfinite(late).any():
                found[seed, layer] = np.nanmean(early) / np.nanmean(late)
    return found.mean(axis=1)


def _draw(runs: dict[Cell, TextRuns]) -> "Drawn":
    from topicscope.reporting.figures.training import layer_trajectories

    curves = {cell.words: (each.steps, dict(each.norms) | {"rotation": each.rotation}) for cell, each in runs.items()}
    return layer_trajectories(curves, title="Figure 5: two stages in each layer, on Wikipedia; one line a run")


def _emergence_claims(preset: Preset) -> tuple[Claim, ...]:
    """Embeddings or attention first, and lower layers or higher ones."""
    experiments = emergence_experiments(preset)
    how = f"Adam at {EMERGENCE_RATE:g}, {experiments[0].settings.training.steps:,} steps"

    def claim(name: str, statement: str, measure: Callable[[TextRuns], Measurement]) -> Claim:
        return Claim(
            id=f"emergence/{name}",
            source="Figure 5",
            statement=f"{statement} ({how}).",
            unit="steps",
            rule=above(0.0),
            needs=experiments,
            measure=lambda results: measure(_together(results, experiments)),
            figure="emergence",
            kind="ours",
        )

    return (
        claim(
            "embeddings-first",
            "Topic structure appears in the embeddings before it appears in attention: each reaches half of its final "
            "log-ratio at a step, attention's minus the embeddings'",
            _first_measure,
        ),
        claim(
            "lower-layers-first",
            "Attention's topic structure appears in the first layer before it appears in the last: the step at which "
            "each reaches half of its final log-ratio, last minus first",
            _layers_measure,
        ),
    )


def emergence_experiments(preset: Preset) -> tuple[TextExperiment, ...]:
    """Training with topic structure measured on the way; one a seed, so that seeds are trained at the same time."""
    size = FULL_EMERGENCE if preset.full else QUICK_EMERGENCE
    training = TextTraining(
        learning_rate=EMERGENCE_RATE,
        steps=size.steps,
        batch=EMERGENCE_BATCH,
        threads=1,
        log_every=10,
        validate_every=0,
        checkpoint_every=200,
        measures=size.measures,
    )
    topics = TextTopics(count=50, words=20, passages=size.passages)
    settings = TextSettings(data=EMERGENCE_DATA, model=EMERGENCE_MODEL, training=training, topics=topics)
    return tuple(
        TextExperiment(name=f"emergence/{number}", settings=settings, seeds=1, skipped=number)
        for number in range(size.seeds)
    )


def _together(results: Results, experiments: Sequence[TextExperiment]) -> TextRuns:
    return joined([results[experiment.name] for experiment in experiments])


def half_ways(runs: TextRuns, structure: str) -> Float[np.ndarray, " seed"]:
    """Each seed's step at which a structure reaches half of its final log-ratio; NaN without structure in the end."""
    rises = zip(runs.log_ratios[structure], runs.final_low[structure], strict=True)
    return np.array([half_way(runs.measured, ratios, float(low)) for ratios, low in rises])


def layer_half_ways(runs: TextRuns) -> Float[np.ndarray, "seed layer"]:
    """The same of attention, layer by layer."""
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


def _draw_emergence(runs: TextRuns) -> "Drawn":
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
