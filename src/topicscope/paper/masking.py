"""How conclusions change with the masking: no kept or random words, and masked keys hidden as in the released code."""

from dataclasses import replace
from typing import TYPE_CHECKING

from topicscope.paper import figure10
from topicscope.paper.claim import Claim, Drawing, Preset, Results, above, claim_on, near
from topicscope.paper.experiment import Experiment
from topicscope.paper.figure2 import centred_contrast
from topicscope.paper.setups import FEW_SEEDS, LOSS_WORDS, MORE_ATTENTION, ONE_HOT, UNIFORM_ATTENTION, set_up
from topicscope.paper.table3 import same_topic_ratio
from topicscope.settings import Masking
from topicscope.settings.training import Loss

if TYPE_CHECKING:
    from topicscope.reporting.figures import Drawn

# As many as Figure 10's runs with the paper's masking, which they are compared with.
STEPS = figure10.STEPS
LOSSES: tuple[Loss, ...] = ("cross_entropy", "squared")
# How near to 1 attention's ratio must be to count as uniform.
UNIFORM_WITHIN = 0.05


def all_masked(preset: Preset, loss: Loss) -> Experiment:
    """p_c = p_r = 0: every masked position holds [MASK]."""
    name = f"masking/all-masked/{loss.replace('_', '-')}"
    return set_up(
        name, preset, ONE_HOT, loss, "adam", STEPS, masking=Masking(keep=0.0, random=0.0), most_seeds=FEW_SEEDS
    )


def hidden_keys(preset: Preset, loss: Loss) -> Experiment:
    """Masked positions cannot be attended to."""
    name = f"masking/hidden-keys/{loss.replace('_', '-')}"
    return set_up(name, preset, replace(ONE_HOT, masked_keys="hidden"), loss, "adam", STEPS, most_seeds=FEW_SEEDS)


def claims(preset: Preset) -> tuple[Claim, ...]:
    """W^V and attention under both changes."""
    found = []
    for loss in LOSSES:
        masked, hidden = all_masked(preset, loss), hidden_keys(preset, loss)
        found += [
            _value(masked, f"With p_c = p_r = 0 ({LOSS_WORDS[loss]})"),
            claim_on(
                masked,
                same_topic_ratio,
                id=f"{masked.name}/attention",
                source="§3.2",
                statement=f"With p_c = p_r = 0 ({LOSS_WORDS[loss]}) attention between words stays blind to topics: "
                "word queries are never predicted at, so nothing trains them.",
                expected=1.0,
                unit="ratio of average attention",
                rule=near(1.0, UNIFORM_WITHIN),
                figure="masking",
                kind="ours",
            ),
            _value(hidden, f"With masked keys hidden ({LOSS_WORDS[loss]})"),
            claim_on(
                hidden,
                same_topic_ratio,
                id=f"{hidden.name}/attention",
                source="§3.2",
                statement=f"With masked keys hidden ({LOSS_WORDS[loss]}) words attend more to other words of their "
                "topic than to words of other topics.",
                unit="ratio of average attention",
                rule=MORE_ATTENTION,
                figure="masking",
                kind="ours",
            ),
        ]
    return tuple(found)


def drawings(preset: Preset) -> tuple[Drawing, ...]:
    """Attention by class under both changes, beside the paper's masking."""
    chosen = {}
    for loss in LOSSES:
        name = LOSS_WORDS[loss]
        chosen[f"the paper's masking\n{name}"] = figure10.joint(preset, loss, "adam")
        chosen[f"p_c = p_r = 0\n{name}"] = all_masked(preset, loss)
        chosen[f"masked keys hidden\n{name}"] = hidden_keys(preset, loss)
    needs = tuple(chosen.values())
    return (Drawing(name="masking", needs=needs, draw=lambda trained: _draw(trained, chosen)),)


def _draw(trained: Results, chosen: dict[str, Experiment]) -> "Drawn":
    from topicscope.reporting.figures.training import attention_bars

    rows = {words: trained[experiment.name].attention[:, :3] for words, experiment in chosen.items()}
    return attention_bars(
        rows, uniform=UNIFORM_ATTENTION, title="Masking: average attention of word queries, W^V trained too (Adam)"
    )


def _value(experiment: Experiment, words: str) -> Claim:
    return claim_on(
        experiment,
        centred_contrast,
        id=f"{experiment.name}/value",
        source="§3.2",
        statement=f"{words}, the trained W^V is on average larger within topics than between them.",
        rule=above(0.0),
        figure="masking",
        kind="ours",
    )
