"""Figure 5: two stages in every layer of a deeper transformer on Wikipedia."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from topicscope.measure.stages import Stages, stages
from topicscope.paper.claim import Claim, Drawing, Measurement, Preset, Results, above, over_seeds
from topicscope.paper.figure4 import stage_claims
from topicscope.paper.text_experiment import CORPUS, HEADS, LAYERS, TextExperiment, TextRuns
from topicscope.settings.text import Encoder, TextData, TextSettings, TextTraining
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


def claims(preset: Preset) -> tuple[Claim, ...]:
    """Two stages in every layer, the settings together, and how W^V turns."""
    size = size_of(preset)
    found = [claim for layer in range(LAYERS) for claim in _two_stages(layer, size)]
    return (*found, _map_claim(preset), _turning_claim(size))


def drawings(preset: Preset) -> tuple[Drawing, ...]:
    """The figure in the paper's layout."""
    cells = cells_of(preset)
    return (
        Drawing(
            name="figure5",
            needs=tuple(cells.values()),
            draw=lambda results: _draw({cell: results[each.name] for cell, each in cells.items()}),
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


def layer_stages(runs: TextRuns, layer: int) -> list[Stages]:
    """Each seed's stages in one layer, by the same rule as Figure 4's."""
    return [
        stages(runs.steps, *(runs.norms[name][seed, :, layer] for name in ("key", "query", "value")))
        for seed in range(len(runs.loss))
    ]


def _two_stages(layer: int, size: Size) -> list[Claim]:
    experiment = WITNESS.experiment(size)
    return stage_claims(
        f"{experiment.name}/layer-{layer + 1}",
        experiment,
        source="Figure 5",
        figure="figure5",
        steps=size.steps,
        where=f"layer {layer + 1} of {LAYERS} on Wikipedia, {WITNESS.words}",
        stages_of=lambda results: layer_stages(results[experiment.name], layer),
    )


def _map_claim(preset: Preset) -> Claim:
    experiments = tuple(cells_of(preset).values())
    return Claim(
        id="figure5/map",
        source="Figure 5",
        statement="Two stages appear over several learning rates and initial scales: in more than half of the "
        f"{LAYERS} layers of the {len(experiments)} settings, averaged over runs.",
        expected="> 0.5",
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
    return Claim(
        id=f"{experiment.name}/turning",
        source="Figure 5",
        statement="In stage 1 the orientation of W^V changes rapidly: over 10 steps it turns more than in stage 2, "
        f"averaged over layers ({WITNESS.words}).",
        expected="> 1",
        unit="rotation in stage 1 over that in stage 2",
        rule=above(1.0),
        needs=(experiment,),
        measure=lambda results: over_seeds(turning_ratios(results[experiment.name])),
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
