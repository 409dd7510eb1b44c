"""§8.1's explanation of the two stages: gradients at the start, measured and as a formula in the initial scale."""

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from topicscope.model.weights import initial_weights
from topicscope.paper.claim import Claim, Drawing, Measurement, Preset, Results, above, near, over_seeds
from topicscope.paper.experiment import Trained
from topicscope.paper.figure4 import LOSSES, MORE_SCALES, SCALES, Cell
from topicscope.paper.setups import LOSS_WORDS
from topicscope.randomness import Purpose, generator
from topicscope.settings import Settings
from topicscope.settings.training import Loss
from topicscope.synthetic.documents import Bags
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.dynamics import gradient_ratio, key_gradient
from topicscope.training.batches import BatchStream

if TYPE_CHECKING:
    from topicscope.reporting.figures import Drawn

# The formula is to leading order in the scale.
FORMULA_WITHIN = 0.1


def cells(preset: Preset) -> dict[Loss, list[Cell]]:
    """Settings of Figure 4's map that differ in loss and scale: the start does not depend on the learning rate."""
    scales = MORE_SCALES if preset.full else SCALES
    return {loss: [Cell(loss, "sgd", 3.0, scale) for scale in scales] for loss in LOSSES}


def claims(preset: Preset) -> tuple[Claim, ...]:
    """The ratio of gradients, and the formula, for each loss and scale; how the ratio depends on the scale."""
    chosen = cells(preset)
    found = [claim for each in chosen.values() for cell in each for claim in _gradient_claims(cell)]
    return (*found, *(_scaling_claim(each[0], each[-1]) for each in chosen.values()))


def drawings(preset: Preset) -> tuple[Drawing, ...]:
    """Ratio against scale."""
    chosen = cells(preset)
    needs = tuple(cell.experiment() for each in chosen.values() for cell in each)
    return (Drawing(name="first-gradients", needs=needs, draw=lambda trained: _draw_gradients(trained, chosen)),)


def _gradient_claims(cell: Cell) -> list[Claim]:
    experiment = cell.experiment()
    words = f"{LOSS_WORDS[cell.loss]}, weights from N(0, {cell.scale:g}²)"
    stem = f"figure4/first-gradients/{cell.loss.replace('_', '-')}/scale-{cell.scale:g}"
    return [
        Claim(
            id=f"{stem}/ratio",
            source="§8.1",
            statement=f"At the start W^V's gradient is more than ten times larger than W^K's ({words}).",
            expected="> 10",
            unit="ratio of norms",
            rule=above(10.0),
            needs=(experiment,),
            measure=lambda trained: _ratio(trained[experiment.name], cell),
            figure="first-gradients",
        ),
        Claim(
            id=f"{stem}/formula",
            source="§8.1",
            statement=f"W^K's gradient at the start is W^Q G⊤/√d_a, with G linear in W^V ({words}).",
            expected=1.0,
            unit="measured over formula",
            rule=near(1.0, FORMULA_WITHIN),
            needs=(experiment,),
            measure=lambda trained: _formula(trained[experiment.name], cell),
            figure="first-gradients",
            ours=True,
        ),
    ]


def _scaling_claim(small: Cell, large: Cell) -> Claim:
    """Seeds draw the same normal numbers at every scale, so that the two are paired."""
    first, second = small.experiment(), large.experiment()
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
        ours=True,
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
    predicted = []
    for seed in trained.seeds:
        draw = generator(seed, Purpose.WEIGHTS)
        weights = initial_weights(settings.model, model, settings.masking, generator=draw)
        predicted.append(
            factor * np.linalg.norm(key_gradient(bags, cell.loss, weights["value"][0], weights["query"][0]))
        )
    return over_seeds(trained.first_gradients["key"] / np.array(predicted))


@cache
def gradient_bags(chosen: Settings) -> Bags:
    """The held-out documents that gradients at the start are taken on."""
    # Imported here: it needs PyTorch, which naming claims does not.
    from topicscope.paper.experiment import GRADIENT_DOCUMENTS, HELD_OUT_DOCUMENTS, HELD_OUT_SEED

    model = TopicModel.from_settings(chosen.data)
    stream = BatchStream(replace(chosen, seed=HELD_OUT_SEED), model)
    documents = stream.held_out(HELD_OUT_DOCUMENTS, Purpose.MEASURE).span(0, GRADIENT_DOCUMENTS)
    return Bags.of(documents, model.vocabulary)


def _draw_gradients(trained: Results, cells: dict[Loss, list[Cell]]) -> "Drawn":
    from topicscope.reporting.figures.training import gradient_ratios

    measured, formula = {}, {}
    for loss, each in cells.items():
        scales = np.geomspace(min(cell.scale for cell in each), max(cell.scale for cell in each), 20)
        bags = gradient_bags(each[0].experiment().settings)
        formula[LOSS_WORDS[loss]] = (scales, np.array([gradient_ratio(bags, loss, float(scale)) for scale in scales]))
        measured[LOSS_WORDS[loss]] = {cell.scale: _measured(trained[cell.experiment().name]) for cell in each}
    return gradient_ratios(measured, formula, title="§8.1: gradients at the start, measured and ‖E[r x̃⊤]‖/(κ s²)")
