"""What is trained together, what it costs to train less, and in which order: §2, §4, §5.2 and §8.1.

A part trained alone is compared with all parts (§2, §4, §5.2); W^V and attention trained in stages or in turn are
compared with both at once (§8.1); and gradients at the start, measured and as a formula in the initial scale, say why
training goes through two stages (§8.1).
"""

from dataclasses import replace
from functools import cache, partial

import numpy as np
from jaxtyping import Float

from topicscope.paper import experiment as experiments
from topicscope.paper import figure1, figure10, theorem1
from topicscope.paper.claim import (
    Claim,
    Diagnosis,
    Drawing,
    Drawn,
    Measurement,
    Preset,
    Results,
    above,
    claim_on,
    near,
    over_seeds,
    share_above,
)
from topicscope.paper.experiment import Experiment, Trained, held_out_documents, start_weights
from topicscope.paper.figure2 import block_measures, value_claim
from topicscope.paper.figure4 import LOSSES, MORE_SCALES, SCALES, Cell
from topicscope.paper.setups import (
    FEW_SEEDS,
    LDA,
    LOSS_WORDS,
    MASKING,
    MORE_ATTENTION,
    ONE_HOT,
    SETTLED,
    SLIGHTLY,
    combination_id,
    extra_loss,
    gain,
    how,
    set_up,
)
from topicscope.paper.table3 import topic_average
from topicscope.settings import Settings
from topicscope.settings.training import Loss, Optimizer, Schedule
from topicscope.synthetic.documents import Bags
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.dynamics import gradient_ratio, key_gradient

SCHEDULES: dict[Schedule, str] = {"two_stage": "two-stage", "alternating": "alternating"}
# Below it W^K's gradient, which goes as the square of the scale, is lost in single precision.
SMALLEST_SCALE = 1e-4
OPTIMIZERS: tuple[Optimizer, ...] = ("sgd", "adam")
# The gradients' formula is to leading order in the scale.
FORMULA_WITHIN = 0.1
BEYOND_LEADING_ORDER = Diagnosis(
    "settings",
    "The formula is to leading order in the scale. Under the squared loss the prediction that the initial W^V makes is "
    "not small beside the targets at 0.02, and the next order counts.",
    holds="at smaller scales, and with cross-entropy",
    see=("figure4/first-gradients/squared/scale-0.001/formula", "figure4/first-gradients/cross-entropy/exponent"),
)


def part_claims(preset: Preset) -> tuple[Claim, ...]:
    """What training a part alone costs, for both losses with Adam: SGD at 0.01 ends far from any optimum.

    Of §2's two halves, attention in place of the embedding is here under §2; the embedding in place of attention is
    §4's claim.
    """
    found = []
    for loss in LOSSES:
        models = _models(preset, loss)
        whole, embedding = models["all parts"], models["embedding alone"]
        words, uniform = models["attention, one-hot words"], models["W^V, uniform attention"]
        found += [
            *(_alone_claim(preset, loss, optimizer) for optimizer in OPTIMIZERS),
            _cost_claim("4/embedding-alone", loss, embedding, whole, "the embedding alone", "all parts"),
            _cost_claim("2/attention-for-embedding", loss, words, whole, "attention on one-hot words", "all parts"),
            _cost_claim("5.2/uniform-attention", loss, uniform, words, "W^V under uniform attention", "attention too"),
        ]
    return tuple(found)


def part_drawings(preset: Preset) -> tuple[Drawing, ...]:
    """Losses of all models that are compared, between the best constant prediction and the Bayes floor."""
    models: dict[Loss, dict[str, Experiment]] = {loss: _models(preset, loss) for loss in LOSSES}
    needs = tuple(experiment for each in models.values() for experiment in each.values())

    def draw(trained: Results) -> Drawn:
        from topicscope.reporting.figures.training import loss_levels

        panels = {
            f"held-out {LOSS_WORDS[loss]}": (
                {name: trained[experiment.name].held_out_loss for name, experiment in each.items()},
                _levels(loss),
            )
            for loss, each in models.items()
        }
        return loss_levels(panels, title="§2, §4, §5.2: what training a part alone costs (Adam)")

    return (Drawing(name="losses", needs=needs, draw=draw),)


def attention(preset: Preset, loss: Loss) -> Experiment:
    """Figure 10's one-hot words with W^V, W^K and W^Q trained, until the loss settles."""
    name = f"losses/attention/{loss.replace('_', '-')}"
    return set_up(name, preset, ONE_HOT, loss, "adam", SETTLED, most_seeds=FEW_SEEDS)


def _models(preset: Preset, loss: Loss) -> dict[str, Experiment]:
    """The models that are compared, all trained for the same number of steps."""
    return {
        "all parts": figure1.experiment(preset, loss, "adam"),
        "embedding alone": theorem1.experiment(preset, loss),
        "attention, one-hot words": attention(preset, loss),
        "W^V, uniform attention": figure10.without_l2(preset, loss, "adam"),
    }


def _alone_claim(preset: Preset, loss: Loss, optimizer: Optimizer) -> Claim:
    """§4: the pattern is there "regardless of whether we (i) train all layers or (ii) only train the embedding"."""
    experiment = theorem1.experiment(preset, loss, optimizer)
    return claim_on(
        experiment,
        figure1.clause_3,
        id=f"section4/embedding-pattern/{combination_id(loss, optimizer)}",
        statement="Also if the embedding alone is trained W^E⊤W^E has what clause 3 of Theorem 1 asks for: a word's "
        "products with its own topic, itself included, sum to more than with another topic, by at least twice what the "
        f"untrained embedding has ({how(experiment.settings)}).",
        unit="times the untrained contrast",
        rule=above(figure1.LEAST_CHANGE, origin=1),
        figure="theorem1",
    )


def _cost_claim(name: str, loss: Loss, handicapped: Experiment, whole: Experiment, part: str, other: str) -> Claim:
    return Claim(
        id=f"section{name}/{loss.replace('_', '-')}",
        # On the scale of the loss anything is slight: the best constant prediction is within 12 % of the Bayes floor
        # under the squared loss. What a model can gain at all is the scale on which models differ.
        statement=f"Training {part} costs only slightly more than training {other} ({LOSS_WORDS[loss]}, Adam): less "
        "than 10 % of the gain of the Bayes floor over the best constant prediction.",
        unit="of the gain",
        rule=SLIGHTLY,
        needs=(handicapped, whole),
        measure=lambda trained: extra_loss(trained[handicapped.name], trained[whole.name]),
        figure="losses",
        diagnosis=Diagnosis(
            "wording",
            "“Slightly” has no scale. As a share of the loss itself the difference is small (share_of_the_loss), as a "
            "share of what a model can gain over a constant prediction it is not: attention can look a kept word up, "
            "which neither embeddings nor W^V can do without it, and only the squared loss rewards that much.",
            holds="with cross-entropy, and on the scale of the loss",
            see=(f"section{name}/cross-entropy",),
        ),
    )


def _levels(loss: Loss) -> dict[str, float]:
    unit = gain(LDA, MASKING, loss)
    return {"Bayes floor": unit.floor, "best constant prediction": unit.constant}


def staged(preset: Preset, schedule: Schedule) -> Experiment:
    """W^V, then W^K and W^Q: once, or in turn; as many steps in all as joint training has."""
    name = f"section8.1/{SCHEDULES[schedule]}"
    return set_up(name, preset, ONE_HOT, "squared", "adam", figure10.STEPS, schedule=schedule, most_seeds=FEW_SEEDS)


def schedule_claims(preset: Preset) -> tuple[Claim, ...]:
    """Loss, W^V's blocks and same-topic attention of both schedules.

    §8.1 says that no qualitative aspect of normal training is lost; that the loss is the same is our claim.
    """
    joint = figure10.joint(preset, "squared", "adam")
    found = []
    for schedule, words in SCHEDULES.items():
        run = staged(preset, schedule)
        found += [
            Claim(
                id=f"{run.name}/loss",
                statement=f"{words.capitalize()} training comes within 10 % of the gain of joint training.",
                unit="of the gain",
                rule=SLIGHTLY,
                needs=(run, joint),
                measure=lambda trained, name=run.name: extra_loss(trained[name], trained[joint.name]),  # type: ignore[misc]
                figure="schedules-loss",
                kind="ours",
                diagnosis=Diagnosis(
                    "settings",
                    "What joint training gains beyond it is the diagonal of W^V with attention to the same word, which "
                    "W^V frozen at a block cannot have.",
                    holds="the better, the more often W^V and attention alternate",
                    see=(f"{run.name}/pattern",),
                ),
            ),
            value_claim(run, run.name, f"After {words} training", source="§8.1", figure="schedules"),
            Claim(
                id=f"{run.name}/pattern",
                statement=f"Joint training has no qualitative aspect that {words} training lacks: the blocks of its "
                "W^V are at least half as uniform.",
                unit="ratio of same topic over same word",
                rule=share_above(0.5),
                needs=(joint, run),
                measure=lambda trained, name=run.name: _uniformity_lost(trained[joint.name], trained[name]),  # type: ignore[misc]
                figure="schedules",
                diagnosis=Diagnosis(
                    "error",
                    "Joint training under the squared loss leaves Theorem 2's block for a diagonal, with attention to "
                    "the same word to match: the block of stage 1 is frozen before attention could reward a diagonal.",
                    holds="with alternating training, which goes back to W^V, or with masked keys hidden",
                    see=("figure10/joint/squared-adam/uniform", "section8.1/alternating/pattern"),
                ),
            ),
            claim_on(
                run,
                topic_average,
                id=f"{run.name}/attention",
                statement=f"After {words} training words attend more to their own topic than to others, by the average "
                "((v − 1)α̂ + β̂)/v of Theorem 3.",
                unit="ratio of average attention",
                rule=MORE_ATTENTION,
                figure="schedules",
            ),
        ]
    return tuple(found)


def _uniformity_lost(joint: Trained, staged: Trained) -> Measurement:
    """How uniform the blocks of joint training are beside those of a schedule, seed by seed."""
    first, second = (block_measures(each)["uniform"] for each in (joint, staged))
    ratios = [one / other for one, other in zip(first.values, second.values, strict=False)]
    return over_seeds(ratios, joint=first.value, staged=second.value)


def schedule_drawings(preset: Preset) -> tuple[Drawing, ...]:
    """W^V after each schedule, and the losses."""
    chosen = {"joint": figure10.joint(preset, "squared", "adam")}
    chosen |= {words: staged(preset, schedule) for schedule, words in SCHEDULES.items()}
    needs = tuple(chosen.values())

    def draw(trained: Results) -> Drawn:
        from topicscope.reporting.figures.training import heat_maps

        panels = {words: trained[experiment.name].value_products[0] for words, experiment in chosen.items()}
        title = "§8.1: W^V after joint, two-stage and alternating training (squared loss, Adam)"
        return heat_maps(panels, words=10, columns=3, same_scale=[tuple(panels)], title=title)

    def draw_losses(trained: Results) -> Drawn:
        from topicscope.reporting.figures.training import loss_levels

        losses = {f"{words} training": trained[experiment.name].held_out_loss for words, experiment in chosen.items()}
        steps = needs[0].settings.training.steps
        title = f"§8.1: attention on one-hot words by schedule\n({steps:,} steps, Adam)"
        return loss_levels({"held-out squared loss": (losses, _levels("squared"))}, title=title)

    return (
        Drawing(name="schedules", needs=needs, draw=draw),
        Drawing(name="schedules-loss", needs=needs, draw=draw_losses),
    )


def gradient_cells(preset: Preset) -> dict[Loss, list[Cell]]:
    """Settings of Figure 4's map that differ in loss and scale: the start does not depend on the learning rate."""
    scales = [scale for scale in (MORE_SCALES if preset.full else SCALES) if scale >= SMALLEST_SCALE]
    return {loss: [Cell(loss, "sgd", 3.0, scale, steps=1) for scale in scales] for loss in LOSSES}


def at_start(cell: Cell) -> Experiment:
    """The setting with its weights as they are drawn: one step, for the gradients before it."""
    experiment = cell.experiment()
    still = replace(experiment.settings.training, snapshots=0)
    return replace(
        experiment,
        name=experiment.name.replace("figure4", "first-gradients"),
        settings=replace(experiment.settings, training=still),
        gradients=True,
    )


def gradient_claims(preset: Preset) -> tuple[Claim, ...]:
    """The ratio of gradients, and the formula, for each loss and scale; how the ratio depends on the scale."""
    chosen = gradient_cells(preset)
    found = [claim for each in chosen.values() for cell in each for claim in _first_gradient_claims(cell)]
    return (*found, *(_scaling_claim(each[0], each[-1]) for each in chosen.values()))


def gradient_drawings(preset: Preset) -> tuple[Drawing, ...]:
    """Ratio against scale."""
    chosen = gradient_cells(preset)
    needs = tuple(at_start(cell) for each in chosen.values() for cell in each)

    def draw(trained: Results) -> Drawn:
        from topicscope.reporting.figures.training import gradient_ratios

        measured, formula = {}, {}
        for loss, each in chosen.items():
            scales = np.geomspace(min(cell.scale for cell in each), max(cell.scale for cell in each), 20)
            bags = gradient_bags(at_start(each[0]).settings)
            ratios = np.array([gradient_ratio(bags, loss, float(scale)) for scale in scales])
            formula[LOSS_WORDS[loss]] = (scales, ratios)
            measured[LOSS_WORDS[loss]] = {cell.scale: _measured(trained[at_start(cell).name]) for cell in each}
        return gradient_ratios(measured, formula, title="§8.1: gradients at the start, measured and ‖E[r x̃⊤]‖/(κ s²)")

    return (Drawing(name="first-gradients", needs=needs, draw=draw),)


def _first_gradient_claims(cell: Cell) -> list[Claim]:
    experiment = at_start(cell)
    words = f"{LOSS_WORDS[cell.loss]}, weights from N(0, {cell.scale:g}²)"
    stem = f"figure4/first-gradients/{cell.loss.replace('_', '-')}/scale-{cell.scale:g}"
    claim = partial(claim_on, experiment, source="§8.1", figure="first-gradients")
    return [
        claim(
            lambda trained: _ratio(trained, cell),
            id=f"{stem}/ratio",
            statement=f"At the start W^V's gradient is more than ten times larger than W^K's ({words}).",
            unit="ratio of norms",
            rule=above(10.0, origin=1),
            # It goes as 1/s², so that near zero it cannot be otherwise.
            kind="check",
        ),
        claim(
            lambda trained: _formula(trained, cell),
            id=f"{stem}/formula",
            statement=f"W^K's gradient at the start is W^Q G⊤/√d_a, with G linear in W^V ({words}).",
            expected=1.0,
            unit="measured over formula",
            rule=near(1.0, FORMULA_WITHIN),
            kind="ours",
            diagnosis=BEYOND_LEADING_ORDER,
        ),
    ]


def _scaling_claim(small: Cell, large: Cell) -> Claim:
    """Seeds draw the same normal numbers at every scale, so the two are paired."""
    first, second = at_start(small), at_start(large)
    return Claim(
        id=f"figure4/first-gradients/{small.loss.replace('_', '-')}/exponent",
        source="§8.1",
        statement=f"The ratio of W^V's to W^K's gradient at the start grows as 1/s² in the initial scale s "
        f"({LOSS_WORDS[small.loss]}, s from {small.scale:g} to {large.scale:g}).",
        expected=2.0,
        unit="exponent",
        rule=near(2.0, FORMULA_WITHIN),
        needs=(first, second),
        measure=lambda trained: over_seeds(
            np.log(_measured(trained[first.name]) / _measured(trained[second.name])) / np.log(large.scale / small.scale)
        ),
        figure="first-gradients",
        kind="ours",
        diagnosis=BEYOND_LEADING_ORDER,
    )


def _measured(trained: Trained) -> Float[np.ndarray, " seed"]:
    return trained.first_gradients["value"] / trained.first_gradients["key"]


def _ratio(trained: Trained, cell: Cell) -> Measurement:
    """The measured ratio, and the formula's for mean squares over all draws of the weights."""
    by_query = trained.first_gradients["value"] / trained.first_gradients["query"]
    return over_seeds(
        _measured(trained),
        formula=gradient_ratio(gradient_bags(trained.settings), cell.loss, cell.scale),
        measured_for_query=float(by_query.mean()),
    )


def _formula(trained: Trained, cell: Cell) -> Measurement:
    """The norm of W^K's gradient over the formula's, for the weights that each seed draws."""
    settings = trained.settings
    model, bags = TopicModel.from_settings(settings.data), gradient_bags(settings)
    factor = 2 if cell.loss == "squared" else 1
    starts = [start_weights(settings, seed, model) for seed in trained.seeds]
    predicted = [
        factor * np.linalg.norm(key_gradient(bags, cell.loss, start["value"][0], start["query"][0])) for start in starts
    ]
    return over_seeds(trained.first_gradients["key"] / np.array(predicted))


@cache
def gradient_bags(chosen: Settings) -> Bags:
    """The held-out documents on which gradients at the start are computed."""
    model = TopicModel.from_settings(chosen.data)
    return Bags.of(held_out_documents(chosen, model).span(0, experiments.GRADIENT_DOCUMENTS), model.vocabulary)
