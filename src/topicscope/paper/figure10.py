"""Figure 10: W^V without L2, and with W^K and W^Q trained too."""

from dataclasses import replace
from typing import TYPE_CHECKING

from topicscope.measure.blocks import centred_columns
from topicscope.paper.claim import Claim, Drawing, Preset, Results
from topicscope.paper.experiment import Experiment
from topicscope.paper.figure2 import block_claim, contrast_claim
from topicscope.paper.setups import (
    COMBINATIONS,
    FRAMES,
    ONE_HOT,
    SETTLED,
    UNIFORM,
    combination_id,
    combination_name,
    set_up,
)
from topicscope.settings.training import Loss, Optimizer

if TYPE_CHECKING:
    from topicscope.reporting.figures import Drawn

# Attention trained: as long as the settings of robustness and masking, which are compared with these.
STEPS = 1_000
# Uniform attention: Adam's runs are what §5.2 compares, so they last until their losses settle.
UNIFORM_STEPS: dict[Optimizer, int] = {"sgd": 1_000, "adam": SETTLED}


def without_l2(preset: Preset, loss: Loss, optimizer: Optimizer) -> Experiment:
    """W^V under uniform attention, no L2."""
    name = f"figure10/no-l2/{combination_id(loss, optimizer)}"
    return set_up(name, preset, UNIFORM, loss, optimizer, UNIFORM_STEPS[optimizer])


def joint(preset: Preset, loss: Loss, optimizer: Optimizer) -> Experiment:
    """W^V, W^K and W^Q trained together, no L2."""
    name = f"figure10/joint/{combination_id(loss, optimizer)}"
    return set_up(name, preset, ONE_HOT, loss, optimizer, STEPS, snapshots=FRAMES)


def claims(preset: Preset) -> tuple[Claim, ...]:
    """W^V's blocks in all eight settings."""
    found = []
    for kind, words in ((without_l2, "without L2"), (joint, "together with W^K and W^Q")):
        for combination in COMBINATIONS:
            claim = contrast_claim(kind(preset, *combination), "figure10")
            name = combination_name(*combination)
            statement = f"W^V trained {words}, with {name}, is on average larger within topics than between them."
            found.append(replace(claim, statement=statement))
            found.append(block_claim(kind(preset, *combination), "figure10", f"{words}, with {name},"))
    return tuple(found)


def drawings(preset: Preset) -> tuple[Drawing, ...]:
    """Four heat maps without L2, four with attention trained."""
    experiments = tuple(kind(preset, *each) for kind in (without_l2, joint) for each in COMBINATIONS)
    return (Drawing(name="figure10", needs=experiments, draw=lambda trained: _draw(trained, experiments)),)


def _draw(trained: Results, experiments: tuple[Experiment, ...]) -> "Drawn":
    from topicscope.reporting.figures.training import heat_maps

    panels = {}
    for experiment in experiments:
        training, matrix = experiment.settings.training, trained[experiment.name].value_products[0]
        kind = "uniform attention" if experiment.settings.model.uniform else "W^K, W^Q trained"
        panels[f"{kind}\n{combination_name(training.loss, training.optimizer)}"] = (
            centred_columns(matrix) if training.loss == "cross_entropy" else matrix
        )
    sgd, adam = (experiments[place].settings.training.steps for place in (0, 1))
    return heat_maps(
        panels,
        words=10,
        title=f"Figure 10: W^V without L2, attention uniform (above) and trained (below), {sgd:,} steps (Adam under "
        f"uniform attention {adam:,}); cross-entropy with columns centred",
    )
