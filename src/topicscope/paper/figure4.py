"""Figure 4: two stages of training, over a map of losses, optimisers, learning rates and initial scales.

Stages are defined by what attention and W^V do (``measure/stages.py``): attention takes off when a word query's is 0.05
from uniform, and a run is two-stage if W^V then has two thirds of what uniform attention can gain. The norms of the
paper's own picture are drawn beside it, with the parts of W^K that grow: the one that distinguishes topics, and
[MASK]'s column. The map is also predicted: when attention takes off, and what W^V has gained by then, is computed
before anything is trained.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float

from topicscope.measure.stages import (
    LEAST_GAIN,
    LEAST_GROWTH,
    TAKE_OFF,
    NormStages,
    Stages,
    norm_stages,
    plateau,
    stages,
    turning,
)
from topicscope.paper.claim import (
    Before,
    Claim,
    Detail,
    Diagnosis,
    Drawing,
    Drawn,
    Measurement,
    Need,
    Preset,
    Results,
    Seeds,
    above,
    below,
    claim_on,
    exact,
    over_seeds,
    share_above,
    share_below,
)
from topicscope.paper.experiment import Experiment, Trained
from topicscope.paper.setups import (
    BIASED,
    FEW_SEEDS,
    FRAMES,
    LDA,
    LOSS_WORDS,
    MASKING,
    ONE_HOT,
    OPTIMIZER_WORDS,
    settings,
)
from topicscope.settings import Part
from topicscope.settings.training import Loss, Optimizer
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.take_off import Stepping, predict
from topicscope.training.runs import made_with

# As many steps as in the paper's figure; the witness has more, so that its stage 2 is visible.
STEPS = 1_000
WITNESS_STEPS = 1_500
# A setting of the map needs no interval of its own, so few of its seeds are trained.
MAP_SEEDS = 3
LOSSES: tuple[Loss, ...] = ("squared", "cross_entropy")
# Other thresholds of attention's take-off, on which verdicts should not depend.
TAKE_OFFS = {"take-off at a third": TAKE_OFF / 3, "take-off at three times": 3 * TAKE_OFF}
EPSILON = 1e-8
# Optimiser, learning rate, and Adam's ε: where gradients are below it, Adam is SGD at rate over ε.
Step = tuple[Optimizer, float, float]
STEPPING: tuple[Step, ...] = (
    ("sgd", 3.0, EPSILON),
    ("sgd", 30.0, EPSILON),
    ("momentum", 0.3, EPSILON),
    ("adam", 0.001, EPSILON),
    ("adam", 0.01, EPSILON),
    ("adam", 0.003, 1e-6),
    ("adam", 0.003, 1e-4),
)
MORE_STEPPING: tuple[Step, ...] = (
    ("sgd", 0.3, EPSILON),
    ("sgd", 1.0, EPSILON),
    ("sgd", 10.0, EPSILON),
    ("adam", 0.0001, EPSILON),
    ("adam", 0.003, EPSILON),
    ("adam", 0.003, 1e-5),
    ("adam", 0.01, 1e-6),
)
# A prediction is near if it is within this share of what is measured: SGD's and momentum's, and Adam's.
NEAR = {"sgd": 0.15, "momentum": 0.15, "adam": 0.3}
# What the predictions depend on beside the documents, and rough seconds per cell.
SOURCES = tuple(f"theory/{name}.py" for name in ("take_off", "reduced", "classes", "dynamics", "finite_documents"))
CELL_SECONDS = 1.0
SCALES = (1e-6, 0.001, 0.02)
MORE_SCALES = (1e-6, 0.0001, 0.001, 0.005, 0.02)


@dataclass(frozen=True)
class Cell:
    """One setting of the map."""

    loss: Loss
    optimizer: Optimizer
    rate: float
    scale: float
    epsilon: float = EPSILON
    steps: int = STEPS
    seeds: int = 0
    """How many seeds are trained at most; 0 means all."""

    biases: bool = False
    """Whether the biases of §6.1 are trained too."""

    @property
    def stepping(self) -> str:
        """Optimiser and rate, as in sentences."""
        epsilon = "" if self.epsilon == EPSILON else f", ε = {self.epsilon:g}"
        return f"{OPTIMIZER_WORDS.get(self.optimizer, self.optimizer)} at {self.rate:g}{epsilon}"

    @property
    def words(self) -> str:
        """The setting in words."""
        biases = ", biases trained from zero" if self.biases else ""
        return f"{LOSS_WORDS[self.loss]}, {self.stepping}, weights from N(0, {self.scale:g}²){biases}"

    def experiment(self) -> Experiment:
        """W^V, W^K and W^Q trained at once from random matrices near zero."""
        start = Part(scale=self.scale)
        model = replace(BIASED if self.biases else ONE_HOT, value=start, key=start, query=start)
        biases = "/biases" if self.biases else ""
        epsilon = "" if self.epsilon == EPSILON else f"-epsilon-{self.epsilon:g}"
        return Experiment(
            name=f"figure4/{self.loss.replace('_', '-')}/{self.optimizer}-{self.rate:g}{epsilon}"
            f"/scale-{self.scale:g}{biases}",
            settings=settings(
                model,
                self.loss,
                self.optimizer,
                steps=self.steps,
                learning_rate=self.rate,
                adam_epsilon=self.epsilon,
                # Settings that are only in the map need no finer steps; the others can be played on the page.
                log_every=20 if self.seeds == MAP_SEEDS else 10,
                snapshots=0 if self.seeds == MAP_SEEDS or self.biases else FRAMES,
            ),
            most_seeds=self.seeds,
        )


# A witness for "with certain initialization and learning rate settings" (§5.1). It was searched among the settings of
# docs/choices.md for one in which topics, and not [MASK], take off within the run: with seed 100, which no claim uses.
WITNESS = Cell("squared", "adam", 0.003, 0.001, epsilon=1e-6, steps=WITNESS_STEPS)
WITH_BIASES = replace(WITNESS, biases=True, seeds=FEW_SEEDS)
# What an earlier version took for one: cross-entropy with plain SGD.
OLD_WITNESS = Cell("cross_entropy", "sgd", 3.0, 0.001, seeds=FEW_SEEDS)
# Where §8.1 says that stages are not usually visible: the common defaults.
DEFAULTS = tuple(Cell(loss, "adam", 0.001, 0.02, seeds=FEW_SEEDS) for loss in LOSSES)
LOOKED_AT = (WITNESS, OLD_WITNESS, *DEFAULTS)


def cells(preset: Preset) -> tuple[Cell, ...]:
    """All settings of the map; those that claims look at have all seeds, the others few."""
    looked_at = {(cell.loss, cell.optimizer, cell.rate, cell.epsilon, cell.scale): cell for cell in LOOKED_AT}
    stepping = STEPPING + (MORE_STEPPING if preset.full else ())
    return tuple(
        looked_at.get((loss, *step, scale)) or Cell(loss, step[0], step[1], scale, step[2], seeds=MAP_SEEDS)
        for loss in LOSSES
        for step in stepping
        for scale in (MORE_SCALES if preset.full else SCALES)
    )


def claims(preset: Preset) -> tuple[Claim, ...]:
    """The rule where two stages are expected and where not, what takes off, stage 2, and the map."""
    return (
        *_two_stages(),
        *_what_takes_off(),
        *_second_stage(),
        *(_default(cell) for cell in DEFAULTS),
        *_map_claims(cells(preset)),
    )


def drawings(preset: Preset) -> tuple[Drawing, ...]:
    """Norms and attention of the settings that claims look at, and the map."""
    chosen = cells(preset)
    return (
        Drawing(name="figure4", needs=tuple(cell.experiment() for cell in LOOKED_AT), draw=_draw_norms),
        Drawing(
            name="figure4-map",
            needs=tuple(cell.experiment() for cell in chosen),
            draw=lambda trained: _draw_map(trained, chosen),
        ),
    )


def stages_of(trained: Trained, threshold: float = TAKE_OFF) -> list[Stages]:
    """Each seed's stages, if attention takes off at this distance from uniform."""
    words, mask = trained.attention_distance["words"], trained.attention_distance["mask"]
    return [
        stages(trained.steps, *run, threshold=threshold) for run in zip(words, mask, trained.uniform_gain, strict=True)
    ]


def at_other_take_offs(measure: Callable[..., Measurement]) -> dict[str, Callable[[Results], Measurement]]:
    """A measurement with attention's take-off a third or three times as far from uniform."""
    return {name: partial(measure, threshold=threshold) for name, threshold in TAKE_OFFS.items()}


def norm_stages_of(trained: Trained) -> list[NormStages]:
    """Each seed's stages by its norms alone, the rule of an earlier version."""
    norms = trained.norms
    return [
        norm_stages(trained.steps, *(norms[name][seed] for name in ("key", "query", "value")))
        for seed in range(len(trained.seeds))
    ]


def gain_at_take_off(trained: Trained, threshold: float = TAKE_OFF) -> Measurement:
    """What W^V has gained when attention takes off, for each seed; NaN, and so undecided, if a seed's never does."""
    found = stages_of(trained, threshold)
    distance = float(np.nanmean(trained.attention_distance["words"][:, -1]))
    return over_seeds([each.gain for each in found], **when_taken_off(found), attention_distance_in_the_end=distance)


def when_taken_off(found: list[Stages]) -> dict[str, Detail]:
    """At which steps attention takes off on average, and in how many runs."""
    when = [each.take_off for each in found if each.take_off is not None]
    mask = [each.mask_take_off for each in found if each.mask_take_off is not None]
    return {
        "take_off_at_step": float(np.mean(when)) if when else None,
        "mask_take_off_at_step": float(np.mean(mask)) if mask else None,
        "runs_in_which_attention_takes_off": len(when),
    }


def norm_growth(trained: Trained) -> Measurement:
    """The share of ‖W^V‖'s growth when a norm of W^K or W^Q has doubled; 0 if none does (the earlier rule)."""
    return over_seeds(
        [each.growth if each.end is not None or each.diverged else 0.0 for each in norm_stages_of(trained)]
    )


def _take_off_claim(cell: Cell, **claim: Any) -> Claim:
    """A claim on what W^V has gained when attention takes off."""
    experiment = cell.experiment()

    def measure(results: Results, threshold: float = TAKE_OFF) -> Measurement:
        return gain_at_take_off(results[experiment.name], threshold)

    return Claim(
        needs=(experiment,),
        measure=measure,
        varied=at_other_take_offs(measure),
        unit="of the gain under uniform attention",
        figure="figure4",
        **claim,
    )


def _two_stages() -> list[Claim]:
    """Claims on the witness, and on the same with the biases of §6.1 trained."""
    before = Before(
        "‖W^V‖ has made a third of its growth when ‖W^K‖ or ‖W^Q‖ is twice its start (cross-entropy, SGD at 3)",
        verdict="holds",
    )
    return [
        _take_off_claim(
            cell,
            id=f"figure4/{name}",
            source="Figure 4",
            statement="When attention takes off (a word query's is 0.05 from uniform), W^V has at least two thirds of "
            f"what uniform attention can gain ({cell.words}).",
            rule=share_above(LEAST_GAIN),
            before=asked,
        )
        for name, cell, asked in (("two-stages", WITNESS, before), ("biases", WITH_BIASES, None))
    ]


def _what_takes_off() -> tuple[Claim, Claim]:
    """Topics in the witness; [MASK] in what an earlier version took for one."""
    claim = partial(claim_on, source="Figure 4", unit="of ‖W^K‖²", rule=share_above(0.5), figure="figure4", kind="ours")
    return (
        claim(
            WITNESS.experiment(),
            lambda trained: _mode_share(
                trained, "topics", [_row(trained, each.take_off) for each in stages_of(trained)]
            ),
            id="figure4/topics-take-off",
            statement="What grows in W^K tells topics apart: that part has more than half of the square of its norm "
            f"when attention takes off ({WITNESS.words}).",
        ),
        claim(
            OLD_WITNESS.experiment(),
            lambda trained: _mode_share(trained, "mask", [-1] * len(trained.seeds)),
            id="figure4/mask-takes-off",
            statement=f"With {OLD_WITNESS.words}, whose norms also look two-stage, what grows in W^K is [MASK]'s "
            "column: it has more than half of the square of its norm in the end.",
        ),
    )


def _row(trained: Trained, step: int | None) -> int:
    """The row of a step; the last one without a step."""
    return -1 if step is None else int(np.searchsorted(trained.steps, step))


def _mode_share(trained: Trained, mode: str, rows: list[int]) -> Measurement:
    """Which share of ‖W^K‖² a part of it has, at one row per seed."""
    at = (np.arange(len(rows)), rows)
    squares = trained.norms["key"][at] ** 2
    shares = {name: trained.modes[f"key-{name}"][at] ** 2 / squares for name in ("topics", "mask")}
    return over_seeds(
        shares[mode],
        share_of_topics=float(shares["topics"].mean()),
        share_of_mask=float(shares["mask"].mean()),
        attention_distance_of_words=float(trained.attention_distance["words"][at].mean()),
        attention_distance_of_mask=float(trained.attention_distance["mask"][at].mean()),
    )


def _second_stage() -> tuple[Claim, Claim]:
    before = Before("the same, of cross-entropy with SGD at 3, whose W^V cannot plateau without L2", verdict="fails")
    claim = partial(claim_on, WITNESS.experiment(), source="§8.1", figure="figure4", before=before)
    return (
        claim(
            lambda trained: _over_stage_2(
                trained, lambda seed, end: plateau(trained.steps, trained.norms["value"][seed], end)
            ),
            id="figure4/plateau",
            statement="‖W^V‖ plateaus where stage 1 ends: a step adds less than half of what a step of its first half "
            f"adds ({WITNESS.words}).",
            unit="of the growth per step",
            rule=share_below(0.5),
        ),
        claim(
            lambda trained: _over_stage_2(
                trained,
                lambda seed, end: turning(trained.steps, trained.norms["value"][seed], trained.rotation[seed], end),
            ),
            id="figure4/rotation",
            statement="As stage 2 begins W^V rotates with nearly constant norm: over 10 steps it turns by more than "
            f"its norm changes ({WITNESS.words}).",
            unit="angle over relative change of norm",
            rule=above(1.0, origin=0),
        ),
    )


def _over_stage_2(trained: Trained, measure: Callable[[int, int], float]) -> Measurement:
    """A number of stage 2 for each seed; NaN, and so undecided, if a seed has none."""
    found = stages_of(trained)
    return over_seeds(
        [np.nan if each.take_off is None else measure(seed, each.take_off) for seed, each in enumerate(found)]
    )


def _default(cell: Cell) -> Claim:
    return _take_off_claim(
        cell,
        id=f"figure4/default/{cell.loss.replace('_', '-')}",
        source="§8.1",
        statement=f"Training is not two-stage at common defaults ({cell.words}): when attention takes off W^V has less "
        "than two thirds of what uniform attention can gain.",
        rule=share_below(LEAST_GAIN),
        before=Before(
            "when ‖W^K‖ or ‖W^Q‖ is twice its start, ‖W^V‖ has made less than a third of its growth",
            rule=below(LEAST_GROWTH),
            measure=lambda trained: norm_growth(trained[cell.experiment().name]),
        ),
        diagnosis=Diagnosis(
            "wording",
            "The paper says “not usually visibly”, and looks at norms. They do not show it, since W^K and W^Q grow "
            "from the first steps, in directions that leave attention uniform; but by the time that attention itself "
            "changes W^V is all but done, as under the squared loss with every optimiser tried.",
            holds="with cross-entropy at the same defaults, and by the rule on norms",
            see=("figure4/default/cross-entropy", "figure4/loss-decides"),
        ),
    )


def _map_claims(chosen: tuple[Cell, ...]) -> tuple[Claim, ...]:
    experiments = tuple(cell.experiment() for cell in chosen)

    def two(trained: Results, threshold: float) -> tuple[Bool[np.ndarray, "cell seed"], Bool[np.ndarray, "cell seed"]]:
        found = [stages_of(trained[experiment.name], threshold)[:MAP_SEEDS] for experiment in experiments]
        return (
            np.array([[run.two for run in runs] for runs in found]),
            np.array([[run.take_off is not None for run in runs] for runs in found]),
        )

    def share(trained: Results, threshold: float = TAKE_OFF) -> Measurement:
        stages, told = two(trained, threshold)
        return over_seeds(
            _share(stages, told),
            settings=len(chosen),
            settings_in_which_attention_takes_off_in_all_runs=int(told.all(axis=1).sum()),
            settings_in_which_it_takes_off_in_none=int((~told.any(axis=1)).sum()),
        )

    def both(trained: Results, threshold: float = TAKE_OFF) -> Measurement:
        stages, told = two(trained, threshold)
        return over_seeds(np.minimum((stages & told).sum(axis=0), (~stages & told).sum(axis=0)))

    def by_loss(trained: Results, threshold: float = TAKE_OFF) -> Measurement:
        stages, told = two(trained, threshold)
        squared = np.array([cell.loss == "squared" for cell in chosen])
        shares = [_share(stages[which], told[which]) for which in (squared, ~squared)]
        return over_seeds(shares[0] - shares[1], squared=float(shares[0].mean()), cross_entropy=float(shares[1].mean()))

    def before(trained: Results) -> Measurement:
        by_norm = [norm_stages_of(trained[experiment.name])[:MAP_SEEDS] for experiment in experiments]
        return over_seeds(np.mean([[run.two for run in runs] for runs in by_norm], axis=0))

    def claim(name: str, measure: Callable[..., Measurement], **claim: Any) -> Claim:
        return Claim(
            id=f"figure4/{name}",
            needs=experiments,
            measure=measure,
            varied=at_other_take_offs(measure),
            figure="figure4-map",
            **claim,
        )

    return (
        claim(
            "sensitive",
            both,
            source="§8.1",
            statement="Whether training is two-stage depends on settings such as the initial scale and the learning "
            f"rate: among the {len(chosen)} settings of the map are some in which it is and some in which it is not.",
            unit="settings of the rarer kind",
            rule=above(0.5),
        ),
        claim(
            "map",
            share,
            source="Figure 4",
            statement="Two stages appear in more than half of the settings of the map in which attention takes off.",
            unit="of the settings",
            rule=share_above(0.5),
            kind="ours",
            before=Before(
                "more than half of all settings of the map, by the rule on norms; as the paper's claim, since §1 says "
                "“a wide variety”",
                rule=above(0.5),
                measure=before,
            ),
            diagnosis=Diagnosis(
                "settings",
                "The loss decides: W^V comes first in every setting with the squared loss, and in none with "
                "cross-entropy but at the largest rates of SGD, whose optimum under uniform attention is far away.",
                holds="with the squared loss",
                see=("figure4/loss-decides",),
            ),
        ),
        claim(
            "loss-decides",
            by_loss,
            source="Figure 4",
            statement="The loss decides more than optimiser, rate and scale: the share of two-stage settings is larger "
            "with the squared loss than with cross-entropy by more than half.",
            unit="difference of shares",
            rule=share_above(0.5),
            kind="ours",
        ),
    )


def _share(two: Bool[np.ndarray, "cell seed"], told: Bool[np.ndarray, "cell seed"]) -> Float[np.ndarray, " seed"]:
    """Each seed's share of two-stage settings among those in which its attention takes off; NaN without one.

    The settings are chosen, not drawn: an interval is over seeds, and says nothing about other settings.
    """
    with np.errstate(invalid="ignore"):
        return (two & told).sum(axis=0) / told.sum(axis=0)


def _draw_norms(trained: Results) -> Drawn:
    from topicscope.reporting.figures.training import ROTATION_NAME, norm_trajectories
    from topicscope.training.reference import reference_stages

    columns, predicted = {}, {}
    for cell in LOOKED_AT:
        run = trained[cell.experiment().name]
        theory = reference_stages(run.settings, TopicModel.from_settings(run.settings.data))
        names = {"key": "norm of W^K", "query": "norm of W^Q", "value": "norm of W^V"}
        norms = {names[part]: values for part, values in theory["norms"].items() if values}
        predicted[cell.words] = (theory["take_off"], theory["steps"], norms)
        ends = [each.take_off for each in stages_of(run) if each.take_off is not None]
        curves = {
            matrix: {
                f"norm of {matrix}": run.norms[part],
                "its part that tells topics apart": run.modes[f"{part}-topics"],
                "its column of [MASK]": run.modes[f"{part}-mask"],
            }
            for matrix, part in (("W^K", "key"), ("W^Q", "query"))
        } | {
            "norm of W^V": {"norm of W^V": run.norms["value"]},
            ROTATION_NAME: {ROTATION_NAME: run.rotation},
            "a: attention,\nfrom uniform": {
                "word queries": run.attention_distance["words"],
                "[MASK] queries": run.attention_distance["mask"],
            },
            "g: gain of W^V\nunder uniform attention": {"g": run.uniform_gain},
        }
        columns[cell.words] = (run.steps, curves, ends)
    title = "Figure 4: norms, attention and gain; one faint line per run, the reduced model's thin and black"
    return norm_trajectories(columns, title=title, predicted=predicted)


def _means(told: list[Stages]) -> tuple[float, float]:
    """When attention takes off in these runs, and what W^V has gained by then; NaN without a run."""
    if not told:
        return np.nan, np.nan
    return float(np.mean([each.take_off for each in told])), float(np.mean([each.gain for each in told]))


def _draw_map(trained: Results, chosen: tuple[Cell, ...]) -> Drawn:
    from topicscope.reporting.figures.training import stage_map

    panels: dict[str, dict[tuple[str, str], tuple[float, float, float]]] = {}
    for cell in chosen:
        told = [each for each in stages_of(trained[cell.experiment().name]) if each.take_off is not None]
        share = float(np.mean([each.two for each in told])) if told else np.nan
        panels.setdefault(LOSS_WORDS[cell.loss], {})[cell.stepping, f"{cell.scale:g}"] = (share, *_means(told))
    return stage_map(panels, title="Figure 4's map: when attention takes off, and what W^V has gained by then")


@dataclass(frozen=True)
class Predictions:
    """The take-off and g of every cell of a map, predicted before anything is trained: one piece of work.

    The reduced model of ``theory/take_off.py`` gets the cell's loss, optimiser, rate, initial scale and ε; no constant
    is fitted.
    """

    cells: tuple[Cell, ...]
    name: ClassVar[str] = "figure4/predicted"
    suffix: ClassVar[str] = ".json"

    @property
    def cost(self) -> float:
        """Seconds, roughly."""
        return CELL_SECONDS * len(self.cells)

    def key(self, seeds: Seeds) -> dict[str, Any]:
        """The cells and the code; no seed is trained."""
        return {"cells": [cell.experiment().name for cell in self.cells], **made_with(*SOURCES)}

    def compute(self, seeds: Seeds) -> bytes:
        """Predict every cell; null where attention does not take off within its run."""
        found = []
        for cell in self.cells:
            stepping = Stepping(
                loss=cell.loss, optimizer=cell.optimizer, rate=cell.rate, scale=cell.scale, epsilon=cell.epsilon
            )
            prediction = predict(LDA, MASKING, stepping, steps=float(cell.steps))
            found.append([prediction.take_off, prediction.gain_at_take_off])
        return json.dumps(found).encode()

    def restore(self, content: bytes) -> list[list[float | None]]:
        """Take-off and g of each cell."""
        found: list[list[float | None]] = json.loads(content)
        return found


def predicted_claims(preset: Preset) -> tuple[Claim, ...]:
    """The correlation over all cells, and how many are near."""
    chosen = cells(preset)

    def correlation(results: Results) -> Measurement:
        take_off = _compared(results, chosen)[:, :, 0]
        both = np.isfinite(take_off).all(axis=1)
        value = float(np.corrcoef(np.log(take_off[both]).T)[0, 1]) if both.sum() > 2 else np.nan
        return exact(value, cells_that_take_off_in_both=int(both.sum()), **_by_setting(take_off, chosen))

    def near(results: Results) -> Measurement:
        take_off = _compared(results, chosen)[:, :, 0]
        measured = np.isfinite(take_off[:, 1])
        share = float(_near(take_off, chosen)[measured].mean())
        return exact(share, cells=int(measured.sum()), **_by_setting(take_off, chosen))

    claim = partial(
        Claim,
        source="Figure 4",
        needs=(Predictions(chosen), *(cell.experiment() for cell in chosen)),
        kind="ours",
        figure="figure4-predicted",
        diagnosis=Diagnosis(
            "settings",
            "The prediction takes Adam's noise as it is on average over entries. Most settings that it misses, which "
            "are among the details, have the squared loss with Adam; what it lacks there is not known.",
            holds="with cross-entropy, in most settings",
            see=("figure4/predicted/correlation",),
        ),
    )
    return (
        claim(
            id="figure4/predicted/correlation",
            statement="When attention takes off is predicted before training, without a fitted constant: over the "
            "settings of the map the logarithms of predicted and measured steps correlate above 0.9.",
            unit="correlation",
            rule=above(0.9, origin=0),
            measure=correlation,
        ),
        claim(
            id="figure4/predicted/near",
            statement="The predicted step is within 15 % of the measured one (30 % for Adam) in more than half of the "
            "settings in which attention takes off.",
            unit="of the settings",
            rule=above(0.5, origin=0),
            measure=near,
        ),
    )


def predicted_drawings(preset: Preset) -> tuple[Drawing, ...]:
    """Predicted against measured."""
    chosen = cells(preset)

    def draw(results: Results) -> Drawn:
        from topicscope.reporting.figures.training import predicted_against_measured

        take_off, gain = np.moveaxis(_compared(results, chosen), 2, 0)
        return predicted_against_measured(
            {"step at which attention takes off": take_off, "g at take-off": gain},
            [f"{LOSS_WORDS[cell.loss]}, {cell.optimizer}" for cell in chosen],
            [cell.words for cell in chosen],
            title="Figure 4's map, predicted before training: no constant is fitted",
        )

    needs: tuple[Need, ...] = (Predictions(chosen), *(cell.experiment() for cell in chosen))
    return (Drawing(name="figure4-predicted", needs=needs, draw=draw),)


def _compared(results: Results, chosen: tuple[Cell, ...]) -> Float[np.ndarray, "cell 2 2"]:
    """Predicted, then measured: take-off and g there; NaN where there is none."""
    predicted, measured = results[Predictions.name], []
    for cell in chosen:
        runs = stages_of(results[cell.experiment().name])[:MAP_SEEDS]
        # A cell counts as taking off if every run of it does.
        measured.append(_means([] if any(run.take_off is None for run in runs) else runs))
    return np.stack([np.array(predicted, dtype=float), np.array(measured, dtype=float)], axis=1)


def _near(take_off: Float[np.ndarray, "cell 2"], chosen: tuple[Cell, ...]) -> Bool[np.ndarray, " cell"]:
    allowed = np.array([NEAR[cell.optimizer] for cell in chosen])
    predicted, measured = take_off.T
    with np.errstate(invalid="ignore"):
        return np.abs(predicted / measured - 1) <= allowed


def _by_setting(take_off: Float[np.ndarray, "cell 2"], chosen: tuple[Cell, ...]) -> dict[str, Detail]:
    """How many settings are near, by loss and optimiser, and which are not."""
    near, measured = _near(take_off, chosen), np.isfinite(take_off[:, 1])
    kinds = [(cell.loss, cell.optimizer) for cell in chosen]
    found: dict[str, Detail] = {}
    for kind in dict.fromkeys(kinds):
        which = measured & np.array([each == kind for each in kinds])
        if which.any():
            found[f"near_{kind[0]}_{kind[1]}"] = f"{int(near[which].sum())} of {int(which.sum())}"
    far = [cell.words for cell, close, seen in zip(chosen, near, measured, strict=True) if seen and not close]
    return found | {"not_near": "; ".join(far)}
