"""Figure 4: two stages of training, over a map of optimisers, learning rates, initial scales and losses.

The rule of two stages (``measure/stages.py``) and its two claims (``stage_claims``) are the same for Figure 5.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from topicscope.measure.stages import LEAST_GROWTH, LEAST_STEPS, Stages, plateau, stages, turning
from topicscope.paper.claim import (
    Claim,
    Drawing,
    Measurement,
    Need,
    Preset,
    Results,
    above,
    below,
    claim_on,
    over_seeds,
)
from topicscope.paper.experiment import Experiment, Trained
from topicscope.paper.setups import FRAMES, LOSS_WORDS, ONE_HOT, OPTIMIZER_WORDS, settings
from topicscope.settings import Part
from topicscope.settings.training import Loss, Optimizer

if TYPE_CHECKING:
    from topicscope.reporting.figures import Drawn

# As many as in the paper's figure.
STEPS = 1_000
LOSSES: tuple[Loss, ...] = ("cross_entropy", "squared")
# Learning rates by optimiser: one small and one large.
RATES: dict[Optimizer, tuple[float, ...]] = {"sgd": (0.3, 3.0), "adam": (0.001, 0.01)}
SCALES = (0.001, 0.02)
MORE_RATES: dict[Optimizer, tuple[float, ...]] = {
    "sgd": (0.3, 1.0, 3.0, 10.0),
    "momentum": (0.3,),
    "adam": (0.0001, 0.001, 0.01),
}
MORE_SCALES = (0.0001, 0.001, 0.005, 0.02)


@dataclass(frozen=True)
class Cell:
    """One setting of the map."""

    loss: Loss
    optimizer: Optimizer
    rate: float
    scale: float

    @property
    def words(self) -> str:
        """As in sentences."""
        return (
            f"{LOSS_WORDS[self.loss]}, {OPTIMIZER_WORDS.get(self.optimizer, self.optimizer)} at {self.rate:g}, weights "
            f"from N(0, {self.scale:g}²)"
        )

    def experiment(self) -> Experiment:
        """W^V, W^K and W^Q trained at once from random matrices near zero."""
        start = Part(scale=self.scale)
        model = replace(ONE_HOT, value=start, key=start, query=start)
        # One that Figure 10 has too keeps its matrices for the page, so that both are one piece of work.
        frames = FRAMES if model == ONE_HOT and self.optimizer == "adam" and self.rate == 0.01 else 0
        return Experiment(
            name=f"figure4/{self.loss.replace('_', '-')}/{self.optimizer}-{self.rate:g}/scale-{self.scale:g}",
            settings=settings(model, self.loss, self.optimizer, steps=STEPS, learning_rate=self.rate, snapshots=frames),
        )


# A witness for "with certain initialization and learning rate settings" (§5.1): near zero, cross-entropy, plain SGD,
# and a rate at which keys and queries should take off about half-way (at rate 1 they do after some 1,500 steps).
EXPECTED = (Cell("cross_entropy", "sgd", 3.0, 0.001),)
# Where §8.1 says that they are not usually visible: the common defaults.
DEFAULTS = tuple(Cell(loss, "adam", 0.001, 0.02) for loss in LOSSES)
# Drawn side by side: the witness, the same with squared loss, and a common default.
SHOWN = (*EXPECTED, Cell("squared", "sgd", 3.0, 0.001), DEFAULTS[0])


def cells(preset: Preset) -> tuple[Cell, ...]:
    """All settings of the map."""
    rates, scales = (MORE_RATES, MORE_SCALES) if preset.full else (RATES, SCALES)
    return tuple(
        Cell(loss, optimizer, rate, scale)
        for loss in LOSSES
        for optimizer, each in rates.items()
        for rate in each
        for scale in scales
    )


def claims(preset: Preset) -> tuple[Claim, ...]:
    """The rule where it is expected and where not, the map, and stage 2."""
    found = [claim for cell in EXPECTED for claim in _two_stages(cell)]
    found += [_default(cell) for cell in DEFAULTS]
    found.append(_map_claim(cells(preset)))
    found += [claim for cell in EXPECTED for claim in _second_stage(cell)]
    return tuple(found)


def drawings(preset: Preset) -> tuple[Drawing, ...]:
    """Norms where two stages are expected, and the map."""
    chosen = cells(preset)
    shown = tuple(cell.experiment() for cell in SHOWN)
    return (
        Drawing(name="figure4", needs=shown, draw=_draw_norms),
        Drawing(
            name="figure4-map",
            needs=tuple(cell.experiment() for cell in chosen),
            draw=lambda trained: _draw_map(trained, chosen),
        ),
    )


def stage_claims(
    name: str,
    need: Need,
    *,
    figure: str,
    steps: int,
    where: str,
    stages_of: Callable[[Any], list[Stages]],
) -> list[Claim]:
    """The two conditions of the rule, each a number; a run whose keys and queries never move has neither."""
    return [
        claim_on(
            need,
            lambda result: growth(stages_of(result)),
            id=f"{name}/growth",
            statement="By the end of stage 1 ‖W^V‖ has made at least a third of its growth over "
            f"{steps:,} steps ({where}).",
            expected="> 1/3",
            unit="of the growth",
            rule=above(LEAST_GROWTH),
            figure=figure,
        ),
        claim_on(
            need,
            lambda result: over_seeds([_ended(each.steps, each) for each in stages_of(result)]),
            id=f"{name}/length",
            statement=f"Stage 1 takes at least 5 % of {steps:,} steps and ends within them ({where}).",
            unit="of the steps, 0 if stage 1 does not end",
            rule=above(LEAST_STEPS),
            figure=figure,
        ),
    ]


def growth(found: list[Stages]) -> Measurement:
    """The share of ‖W^V‖'s growth by the end of stage 1, a number a run."""
    ends = [each.end for each in found if each.end is not None]
    return over_seeds(
        [_ended(each.growth, each) for each in found],
        stage_1_ends_at=float(np.mean(ends)) if ends else None,
        runs_with_two_stages=float(np.mean([each.two for each in found])),
    )


def _ended(share: float, of: Stages) -> float:
    """A share of a stage 1 that ends; 0 if it never does, NaN if the run diverged."""
    return share if of.end is not None or np.isnan(share) else 0.0


def stages_of(trained: Trained) -> list[Stages]:
    """Each seed's stages."""
    norms = trained.norms
    return [
        stages(trained.steps, *(norms[name][seed] for name in ("key", "query", "value")))
        for seed in range(len(trained.seeds))
    ]


def _two_stages(cell: Cell) -> list[Claim]:
    experiment = cell.experiment()
    return stage_claims(
        experiment.name,
        experiment,
        figure="figure4",
        steps=STEPS,
        where=cell.words,
        stages_of=stages_of,
    )


def _default(cell: Cell) -> Claim:
    experiment = cell.experiment()
    return claim_on(
        experiment,
        lambda trained: growth(stages_of(trained)),
        id=f"{experiment.name}/no-two-stages",
        source="§8.1",
        statement=f"Training is not visibly two-stage at common defaults ({cell.words}): by the end of stage 1 ‖W^V‖ "
        "has made less than a third of its growth.",
        expected="< 1/3",
        unit="of the growth",
        rule=below(LEAST_GROWTH),
        figure="figure4-map",
    )


def _map_claim(chosen: tuple[Cell, ...]) -> Claim:
    experiments = tuple(cell.experiment() for cell in chosen)
    return Claim(
        id="figure4/map",
        statement="Two stages appear for a wide variety of optimisers and hyper-parameters: in more than half of the "
        f"{len(chosen)} settings of the map.",
        unit="of the settings",
        rule=above(0.5),
        needs=experiments,
        measure=lambda trained: _map_share([trained[experiment.name] for experiment in experiments]),
        figure="figure4-map",
    )


def _map_share(cells: list[Trained]) -> Measurement:
    """Each seed's share of settings with two stages; a setting in which it diverges has none.

    The settings are chosen, not drawn: the interval is over seeds, and says nothing of settings that are not there.
    """
    found = [stages_of(cell) for cell in cells]
    two = np.array([[run.two for run in runs] for runs in found])
    return over_seeds(
        two.mean(axis=0),
        settings=len(cells),
        settings_in_which_all_runs_have_two=int(two.all(axis=1).sum()),
        settings_with_a_stage_1_that_never_ends=sum(
            all(run.end is None and not run.diverged for run in runs) for runs in found
        ),
        settings_in_which_a_run_diverged=sum(any(run.diverged for run in runs) for runs in found),
    )


def _second_stage(cell: Cell) -> list[Claim]:
    experiment = cell.experiment()
    return [
        claim_on(
            experiment,
            lambda trained: _over_ended(
                trained, lambda seed, end: plateau(trained.steps, trained.norms["value"][seed], end)
            ),
            id=f"{experiment.name}/plateau",
            source="§8.1",
            statement="In stage 2 ‖W^V‖ plateaus: a step adds less than half of what a step of stage 1 adds "
            f"({cell.words}).",
            unit="of stage 1's growth a step",
            rule=below(0.5),
            figure="figure4",
        ),
        claim_on(
            experiment,
            lambda trained: _over_ended(
                trained,
                lambda seed, end: turning(trained.steps, trained.norms["value"][seed], trained.rotation[seed], end),
            ),
            id=f"{experiment.name}/rotation",
            source="§8.1",
            statement="In stage 2 W^V rotates with nearly constant norm: over 10 steps it turns by more than its norm "
            f"changes ({cell.words}).",
            unit="angle over relative change of norm",
            rule=above(1.0),
            figure="figure4",
        ),
    ]


def _over_ended(trained: Trained, measure: Callable[[int, int], float]) -> Measurement:
    """A number of stage 2 for each seed; NaN, and so undecided, if a seed has none."""
    found = stages_of(trained)
    return over_seeds([measure(seed, each.end) if each.end is not None else np.nan for seed, each in enumerate(found)])


def _draw_norms(trained: Results) -> "Drawn":
    from topicscope.reporting.figures.training import norm_trajectories

    columns = {}
    for cell in SHOWN:
        run = trained[cell.experiment().name]
        ends = [each.end for each in stages_of(run) if each.end is not None]
        columns[cell.words] = (
            run.steps,
            {name: run.norms[name] for name in ("key", "query", "value")},
            run.rotation,
            ends,
        )
    return norm_trajectories(columns, title="Figure 4: norms of W^K, W^Q, W^V; one faint line a run")


def _draw_map(trained: Results, chosen: tuple[Cell, ...]) -> "Drawn":
    from topicscope.reporting.figures.training import stage_map

    panels: dict[str, dict[tuple[str, str], tuple[float, float, float]]] = {}
    for cell in chosen:
        run = trained[cell.experiment().name]
        found = stages_of(run)
        two, length, growth = ([getattr(each, name) for each in found] for name in ("two", "steps", "growth"))
        place = (f"{OPTIMIZER_WORDS.get(cell.optimizer, cell.optimizer)} {cell.rate:g}", f"{cell.scale:g}")
        panels.setdefault(LOSS_WORDS[cell.loss], {})[place] = (
            float(np.mean(two)),
            float(np.mean(length)),
            float(np.mean(growth)),
        )
    return stage_map(panels, title=f"Figure 4's map: where {STEPS:,} steps of training have two stages")
