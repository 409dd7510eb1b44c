"""§2, §4 and §5.2: what it costs to train one part alone, against training all."""

from typing import TYPE_CHECKING

from topicscope.paper import figure1, figure10, theorem1
from topicscope.paper.claim import Claim, Drawing, Preset, Results
from topicscope.paper.experiment import Experiment
from topicscope.paper.setups import (
    LDA,
    LOSS_WORDS,
    MASKING,
    ONE_HOT,
    SETTLED,
    SLIGHTLY,
    extra_loss,
    gain,
    settings,
    steps_of,
)
from topicscope.settings.training import Loss

if TYPE_CHECKING:
    from topicscope.reporting.figures import Drawn

LOSSES: tuple[Loss, ...] = ("cross_entropy", "squared")


def claims(preset: Preset) -> tuple[Claim, ...]:
    """For both losses, with Adam: SGD at 0.01 ends far from any optimum, so its losses would compare nothing.

    §2's two halves: attention in place of the embedding is here under §2; the embedding in place of attention is §4's
    claim.
    """
    found = []
    for loss in LOSSES:
        models = _models(preset, loss)
        whole, embedding = models["all parts"], models["embedding alone"]
        words, uniform = models["attention, one-hot words"], models["W^V, uniform attention"]
        found += [
            _claim("section4", "embedding-alone", loss, embedding, whole, "the embedding alone", "all parts"),
            _claim(
                "section2", "attention-for-embedding", loss, words, whole, "attention on one-hot words", "all parts"
            ),
            _claim(
                "section5.2", "uniform-attention", loss, uniform, words, "W^V under uniform attention", "attention too"
            ),
        ]
    return tuple(found)


def drawings(preset: Preset) -> tuple[Drawing, ...]:
    """Losses of all models that are compared, between the best constant prediction and the Bayes floor."""
    models: dict[Loss, dict[str, Experiment]] = {loss: _models(preset, loss) for loss in LOSSES}
    needs = tuple(experiment for each in models.values() for experiment in each.values())
    return (Drawing(name="losses", needs=needs, draw=lambda trained: _draw(trained, models)),)


def attention(preset: Preset, loss: Loss) -> Experiment:
    """Figure 10's one-hot words with W^V, W^K and W^Q trained, until the loss settles."""
    return Experiment(
        name=f"losses/attention/{loss.replace('_', '-')}",
        reproduces="§5.2",
        settings=settings(ONE_HOT, loss, "adam", steps=steps_of(SETTLED, preset.full)),
    )


def _models(preset: Preset, loss: Loss) -> dict[str, Experiment]:
    """What is compared, all for as many steps."""
    return {
        "all parts": figure1.experiment(preset, loss, "adam"),
        "embedding alone": theorem1.squared(preset) if loss == "squared" else theorem1.cross_entropy(preset),
        "attention, one-hot words": attention(preset, loss),
        "W^V, uniform attention": figure10.without_l2(preset, loss, "adam"),
    }


def _claim(
    section: str, name: str, loss: Loss, handicapped: Experiment, whole: Experiment, part: str, other: str
) -> Claim:
    return Claim(
        id=f"{section}/{name}/{loss.replace('_', '-')}",
        source=f"§{section.removeprefix('section')}",
        statement=f"Training {part} costs only slightly more than training {other} ({LOSS_WORDS[loss]}, Adam): less "
        "than 10 % of the gain of the Bayes floor over the best constant prediction.",
        expected="< 0.1",
        unit="of the gain",
        rule=SLIGHTLY,
        needs=(handicapped, whole),
        measure=lambda trained: extra_loss(trained[handicapped.name], trained[whole.name]),
        figure="losses",
    )


def _draw(trained: Results, models: dict[Loss, dict[str, Experiment]]) -> "Drawn":
    from topicscope.reporting.figures.training import loss_levels

    panels = {}
    for loss, each in models.items():
        unit = gain(LDA, MASKING, loss)
        found = {name: trained[experiment.name].held_out_loss for name, experiment in each.items()}
        levels = {"Bayes floor": unit.floor, "best constant prediction": unit.constant}
        panels[f"held-out {LOSS_WORDS[loss]}"] = (found, levels)
    return loss_levels(panels, title="§2, §4, §5.2: what training a part alone costs (Adam)")
