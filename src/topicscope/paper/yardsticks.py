"""What "only slightly worse" is measured against: the gain of the Bayes floor over the best constant prediction."""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from topicscope.paper.claims import Measurement, Rule, above, below, over_seeds
from topicscope.paper.experiments import Trained
from topicscope.randomness import Purpose, generator
from topicscope.settings import Data, Masking
from topicscope.settings.training import Loss
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.bayes import bayes_floors
from topicscope.theory.bayes_losses import expected_losses

# "Slightly" (§4, §5.2) and "compensate" (§2): less than this share of what there is to gain.
SLIGHTLY: Rule = below(0.1)
# "More attention" (Table 3): more than uniform attention by at least this ratio; a difference of 10⁻⁶ is no finding.
MORE_ATTENTION: Rule = above(1.05)
# Each contributes its exact expected loss, so few are enough: the gain is known to about one per cent.
FLOOR_DOCUMENTS = 1_000


@dataclass(frozen=True)
class Gain:
    """Losses of the best constant prediction and of the Bayes-optimal predictor."""

    constant: float
    floor: float

    @property
    def value(self) -> float:
        """What a model can gain at most by looking at the document."""
        return self.constant - self.floor


def gain(data: Data, masking: Masking, loss: Loss) -> Gain:
    """For documents of equal, disjoint topics; the number of documents drawn plays no part."""
    return _gains(replace(data, fresh=True, documents=1), masking)[loss]


@cache
def _gains(data: Data, masking: Masking) -> dict[Loss, Gain]:
    model = TopicModel.from_settings(data)
    draw = generator(0, Purpose.THEORY)
    floor = bayes_floors(model, masking, samples=FLOOR_DOCUMENTS, generator=draw).masked
    constant = constant_losses(model)
    return {
        "cross_entropy": Gain(constant["cross_entropy"], floor.cross_entropy.value),
        "squared": Gain(constant["squared"], floor.squared.value),
    }


def constant_losses(model: TopicModel) -> dict[Loss, float]:
    """The least loss of one prediction for all documents: words by how likely they are."""
    weights = model.dirichlet / model.dirichlet.sum() if model.sampler == "dirichlet" else np.ones(model.topics)
    cross_entropy, squared = expected_losses(weights / weights.sum() @ model.topic_words)
    return {"cross_entropy": float(cross_entropy), "squared": float(squared)}


def extra_loss(handicapped: Trained, whole: Trained) -> Measurement:
    """By how much more a handicapped model loses on the same held-out documents, as a share of the gain."""
    settings = whole.settings
    assert handicapped.settings.training.steps == settings.training.steps, "equal steps, or the loss compares lengths"
    unit = gain(settings.data, settings.masking, settings.training.loss)
    difference = handicapped.held_out_loss - whole.held_out_loss
    return over_seeds(
        difference / unit.value,
        raw_difference=float(difference.mean()),
        loss=float(handicapped.held_out_loss.mean()),
        loss_of_the_other=float(whole.held_out_loss.mean()),
        constant=unit.constant,
        bayes_floor=unit.floor,
    )
