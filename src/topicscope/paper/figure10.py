"""Figure 10: W^V without L2, and with W^K and W^Q trained too."""

from dataclasses import replace

from topicscope.paper.claim import Claim, Drawing, Drawn, Preset, Results
from topicscope.paper.experiment import Experiment
from topicscope.paper.figure2 import SGD, block_claims, shown_value, theorem2_claim
from topicscope.paper.setups import (
    BIASED,
    COMBINATIONS,
    FEW_SEEDS,
    FRAMES,
    ONE_HOT,
    SETTLED,
    UNIFORM,
    Budget,
    combination_id,
    set_up,
    trained_with,
)
from topicscope.settings.training import Loss, Optimizer

# With attention trained, as long as the settings of robustness and masking, which are compared with these.
STEPS = 1_000
# Attention takes longer than W^V: under cross-entropy at flow time 60,000 it still goes to [MASK] alone.
JOINT_SGD: dict[Loss, Budget] = {"squared": SGD["squared"], "cross_entropy": Budget(60.0, 2_500)}


def without_l2(preset: Preset, loss: Loss, optimizer: Optimizer) -> Experiment:
    """W^V under uniform attention, no L2."""
    name = f"figure10/no-l2/{combination_id(loss, optimizer)}"
    return set_up(name, preset, UNIFORM, loss, optimizer, SGD[loss] if optimizer == "sgd" else SETTLED)


def joint(preset: Preset, loss: Loss, optimizer: Optimizer) -> Experiment:
    """W^V, W^K and W^Q trained together, no L2."""
    name = f"figure10/joint/{combination_id(loss, optimizer)}"
    how_long, few = (JOINT_SGD[loss], FEW_SEEDS) if optimizer == "sgd" else (STEPS, 0)
    return set_up(name, preset, ONE_HOT, loss, optimizer, how_long, snapshots=FRAMES, most_seeds=few)


def with_biases(preset: Preset, loss: Loss) -> Experiment:
    """Joint training with the biases of §6.1, which leave W^V's columns undetermined but not attention."""
    name = f"figure10/biases/{combination_id(loss, 'adam')}"
    return set_up(name, preset, BIASED, loss, "adam", STEPS, most_seeds=FEW_SEEDS)


def claims(preset: Preset) -> tuple[Claim, ...]:
    """W^V's blocks in all eight settings; with attention trained too, for the squared loss, Theorem 2's numbers."""
    found = []
    for kind, words in ((without_l2, "without L2"), (joint, "together with W^K and W^Q")):
        for combination in COMBINATIONS:
            for claim in block_claims(kind(preset, *combination), "figure10"):
                found.append(replace(claim, statement=claim.statement.replace("trained with", f"trained {words} with")))
    for loss in SGD:
        found.append(block_claims(with_biases(preset, loss), "figure10")[0])
    found += [theorem2_claim(joint(preset, "squared", optimizer), "figure10") for optimizer in ("sgd", "adam")]
    return tuple(found)


def drawings(preset: Preset) -> tuple[Drawing, ...]:
    """Four heat maps without L2, four with attention trained."""
    experiments = tuple(kind(preset, *each) for kind in (without_l2, joint) for each in COMBINATIONS)

    def draw(trained: Results) -> Drawn:
        from topicscope.reporting.figures.training import heat_maps

        panels = {}
        for each in experiments:
            kind = "uniform attention" if each.settings.model.uniform else "W^K, W^Q trained"
            panels[f"{kind}\n{trained_with(each.settings)}"] = shown_value(trained[each.name])
        title = "Figure 10: W^V without L2, attention uniform (above) and trained (below); cross-entropy with columns"
        return heat_maps(panels, words=10, title=f"{title} centred")

    return (Drawing(name="figure10", needs=experiments, draw=draw),)
