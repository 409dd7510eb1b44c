"""§8.1's explanation of the two stages: gradients at the start, measured and as a formula in the initial scale."""

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from topicscope.paper.claims import Claim, Drawing, Measurement, Preset, Results, above, over_seeds, within
from topicscope.paper.experiments import Trained
from topicscope.paper.figure4 import LOSSES, MORE_SCALES, SCALES, Cell
from topicscope.paper.setups import LOSS_WORDS
from topicscope.randomness import Purpose
from topicscope.settings import Settings
from topicscope.settings.training import Loss
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.bags import Bags
from topicscope.theory.first_gradients import gradient_ratio
from topicscope.training.data import BatchStream

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The formula is to leading order in the scale and an average over draws of the weights.
FORMULA_WITHIN = 0.25


def cells(preset: Preset) -> dict[Loss, list[Cell]]:
    """Settings of Figure 4's map that differ in loss and scale: the start does not depend on the learning rate."""
    scales = MORE_SCALES if preset.full else SCALES
    return {loss: [Cell(loss, "sgd", 3.0, scale) for scale in scales] for loss in LOSSES}


def claims(preset: Preset) -> tuple[Claim, ...]:
    """The ratio of gradients, and the formula, for each loss and scale."""
    return tuple(claim for each in cells(preset).values() for cell in each for claim in _gradient_claims(cell))


def drawings(preset: Preset) -> tuple[Drawing, ...]:
    """Ratio against scale."""
    chosen = cells(preset)
    needs = tuple(cell.experiment() for each in chosen.values() for cell in each)
    return (Drawing(name="first-gradients", needs=needs, draw=lambda trained: _draw_gradients(trained, chosen)),)


def _gradient_claims(cell: Cell) -> list[Claim]:
    experiment = cell.experiment()
    words = f"{LOSS_WORDS[cell.loss]}, weights from N(0, {cell.scale:g}²)"
    return [
        Claim(
            id=f"figure4/first-gradients/{cell.loss.replace('_', '-')}/scale-{cell.scale:g}/{name}",
            source="§8.1",
            statement=statement,
            expected=expected,
            unit=unit,
            rule=rule,
            needs=(experiment,),
            measure=lambda trained, formula=formula: _ratio(trained[experiment.name], cell, formula),  # type: ignore[misc]
            ours=formula,
            figure="first-gradients",
        )
        for name, statement, expected, unit, rule, formula in (
            (
                "ratio",
                f"At the start W^V's gradient is more than ten times larger than W^K's ({words}).",
                "> 10",
                "ratio of norms",
                above(10.0),
                False,
            ),
            (
                "formula",
                f"The ratio of W^V's to W^K's gradient at the start is ‖E[r x̃⊤]‖ / (κ s²) ({words}).",
                "near 1",
                "measured over formula",
                within(1 - FORMULA_WITHIN, 1 + FORMULA_WITHIN),
                True,
            ),
        )
    ]


def _ratio(trained: Trained, cell: Cell, formula: bool) -> Measurement:
    """The measured ratio, or its quotient by the formula on the same documents.

    The formula is of mean squared gradients, so the quotient is that of root mean squares; by seed, its reciprocal
    square is what averages to one.
    """
    ratio = trained.first_gradients["value"] / trained.first_gradients["key"]
    predicted = gradient_ratio(gradient_bags(trained.settings), cell.loss, cell.scale)
    by_query = trained.first_gradients["value"] / trained.first_gradients["query"]
    details = {"formula": predicted, "measured": float(ratio.mean()), "measured_for_query": float(by_query.mean())}
    return over_seeds((predicted / ratio) ** 2 if formula else ratio, **details)


@cache
def gradient_bags(chosen: Settings) -> Bags:
    """The held-out documents that gradients at the start are taken on."""
    # Imported here: it needs PyTorch, which naming claims does not.
    from topicscope.paper.running import GRADIENT_DOCUMENTS, HELD_OUT_DOCUMENTS, HELD_OUT_SEED

    model = TopicModel.from_settings(chosen.data)
    stream = BatchStream(replace(chosen, seed=HELD_OUT_SEED), model)
    documents = stream.held_out(HELD_OUT_DOCUMENTS, Purpose.MEASURE).span(0, GRADIENT_DOCUMENTS)
    return Bags.of(documents, model.vocabulary)


def _draw_gradients(trained: Results, cells: dict[Loss, list[Cell]]) -> "Figure":
    from topicscope.report.paper import gradient_ratios

    measured, formula = {}, {}
    for loss, each in cells.items():
        scales = np.geomspace(min(cell.scale for cell in each), max(cell.scale for cell in each), 20)
        bags = gradient_bags(each[0].experiment().settings)
        formula[LOSS_WORDS[loss]] = (scales, np.array([gradient_ratio(bags, loss, float(scale)) for scale in scales]))
        measured[LOSS_WORDS[loss]] = {
            cell.scale: run.first_gradients["value"] / run.first_gradients["key"]
            for cell in each
            for run in [trained[cell.experiment().name]]
        }
    return gradient_ratios(measured, formula, title="§8.1: gradients at the start, measured and ‖E[r x̃⊤]‖/(κ s²)")
