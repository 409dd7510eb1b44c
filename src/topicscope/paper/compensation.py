"""§2, §4 and §5.2: what it costs to train one part alone, against training all."""

from topicscope.paper import figure1, figure10, theorem1
from topicscope.paper.claims import Claim, Drawing, Preset
from topicscope.paper.experiments import Experiment
from topicscope.paper.setups import LOSS_WORDS
from topicscope.paper.yardsticks import SLIGHTLY, extra_loss
from topicscope.settings.training import Loss

LOSSES: tuple[Loss, ...] = ("cross_entropy", "squared")


def claims(preset: Preset) -> tuple[Claim, ...]:
    """For both losses, with Adam: SGD at 0.01 ends far from any optimum, so its losses would compare nothing."""
    found = []
    for loss in LOSSES:
        whole = figure1.experiment(preset, loss, "adam")
        embedding = theorem1.squared(preset) if loss == "squared" else theorem1.cross_entropy(preset)
        attention = figure10.joint(preset, loss, "adam")
        uniform = figure10.without_l2(preset, loss, "adam")
        found += [
            _claim("section4", "embedding-alone", loss, embedding, whole, "the embedding alone", "all parts"),
            _claim("section2", "embedding-for-attention", loss, embedding, whole, "the embedding alone", "all parts"),
            _claim(
                "section2", "attention-for-embedding", loss, attention, whole, "attention on one-hot words", "all parts"
            ),
            _claim(
                "section5.2", "uniform-attention", loss, uniform, attention, "W^V under uniform attention", "attention"
            ),
        ]
    return tuple(found)


def drawings(preset: Preset) -> tuple[Drawing, ...]:
    """None: the losses are numbers."""
    return ()


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
    )
