"""Figure 1: all parts trained. Topics in W^E⊤W^E and in W^E⊤W^V W^E, for four combinations of loss and optimiser."""

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from topicscope.measure.blocks import pattern, stand_out
from topicscope.paper.claim import Claim, Drawing, Measurement, Preset, Results, above, claim_on, over_seeds
from topicscope.paper.experiment import Experiment, Trained
from topicscope.paper.setups import (
    ALL_PARTS,
    COMBINATIONS,
    FRAMES,
    SETTLED,
    combination_id,
    combination_name,
    set_up,
)
from topicscope.settings.training import Loss, Optimizer

if TYPE_CHECKING:
    from topicscope.reporting.figures import Drawn

# Adam's runs are what §2 and §4 compare with, so they last until their losses settle; plain SGD at this rate does not
# leave its start in either time (docs/choices.md).
STEPS: dict[Optimizer, int] = {"sgd": 1_000, "adam": SETTLED}
MATRICES = {"embedding": "W^E⊤W^E", "value": "W^E⊤W^V W^E"}


def experiment(preset: Preset, loss: Loss, optimizer: Optimizer) -> Experiment:
    """All parts trained."""
    name = f"figure1/{combination_id(loss, optimizer)}"
    return set_up(name, preset, ALL_PARTS, loss, optimizer, STEPS[optimizer], snapshots=FRAMES)


def claims(preset: Preset) -> tuple[Claim, ...]:
    """For each combination, the contrast of both matrices, and the pattern that W^E⊤W^E shows."""
    return tuple(
        claim for loss, optimizer in COMBINATIONS for claim in _combination(experiment(preset, loss, optimizer))
    )


def drawings(preset: Preset) -> tuple[Drawing, ...]:
    """The four heat maps, in the paper's order."""
    experiments = tuple(experiment(preset, *combination) for combination in COMBINATIONS)
    return (Drawing(name="figure1", needs=experiments, draw=lambda trained: _draw(trained, experiments)),)


def contrast(which: str, trained: Trained) -> Measurement:
    """The final same- minus different-topic average, with what it was before training."""
    rows = trained.contrasts[which]
    matrices = products(trained, which)
    names = [pattern(matrix, trained.word_topics) for matrix in matrices if np.isfinite(matrix).all()]
    return over_seeds(
        rows[:, -1],
        at_the_start=float(rows[:, 0].mean()),
        patterns=", ".join(f"{name} {names.count(name)}" for name in dict.fromkeys(names)),
    )


def visibility(trained: Trained) -> Measurement:
    """How far W^E⊤W^E's blocks stand out; the diagonal, and which pattern is seen, are details."""
    seen = [stand_out(matrix, trained.word_topics) for matrix in trained.embedding_products]
    names = [pattern(matrix, trained.word_topics) for matrix in trained.embedding_products]
    return over_seeds(
        [each.block for each in seen],
        diagonal=float(np.mean([each.diagonal for each in seen])),
        patterns=", ".join(f"{name} {names.count(name)}" for name in dict.fromkeys(names)),
    )


def products(trained: Trained, which: str) -> Float[np.ndarray, "seed token token"]:
    """W^E⊤W^E or W^E⊤W^V W^E."""
    return trained.embedding_products if which == "embedding" else trained.value_products


def _combination(experiment: Experiment) -> list[Claim]:
    training = experiment.settings.training
    words = f"all parts trained with {combination_name(training.loss, training.optimizer)}"
    claims = [
        claim_on(
            experiment,
            partial(contrast, which),
            id=f"{experiment.name}/{which}-contrast",
            statement=f"With {words}, {matrix} is on average larger between words of one topic than of two.",
            rule=above(0.0),
            figure="figure1",
        )
        for which, matrix in MATRICES.items()
    ]
    blocks = claim_on(
        experiment,
        visibility,
        id=f"{experiment.name}/blocks",
        # A diagonal alone is in any W^E⊤W^E, untrained too: a claim that took it for the pattern could not fail.
        statement=f"With {words}, W^E⊤W^E shows blocks: same-topic entries stand out of the background by more than "
        "its deviation.",
        unit="standard deviations of the background",
        rule=above(1.0),
        figure="figure1",
    )
    return [*claims, blocks]


def _draw(trained: Results, experiments: tuple[Experiment, ...]) -> "Drawn":
    from topicscope.reporting.figures.training import heat_maps

    panels = {}
    for which, matrix in MATRICES.items():
        for experiment in experiments:
            run, training = trained[experiment.name], experiment.settings.training
            panels[f"{matrix}\n{combination_name(training.loss, training.optimizer)}"] = products(run, which)[0]
    sgd, adam = (experiments[place].settings.training.steps for place in (0, 1))
    title = f"Figure 1: all parts trained at learning rate 0.01 (SGD {sgd:,} steps, Adam {adam:,})"
    return heat_maps(panels, words=10, title=title)
