"""Losses to hold a run against: the Bayes floor, the exact optimum under uniform attention, Theorem 2's matrix."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from topicscope.errors import InputError
from topicscope.randomness import Purpose, generator
from topicscope.settings import Data, Masking, Settings
from topicscope.settings.training import Average
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.bayes import BayesFloors, bayes_floors
from topicscope.theory.lemma import require_topic_sets
from topicscope.theory.optima import theorem_2
from topicscope.theory.population import finite_optimum, moments, population_loss

# Documents that the floor is estimated from: an interval of about ± 0.002 (squared) at the paper's setting.
FLOOR_DOCUMENTS = 500


def reference_losses(settings: Settings, topic_model: TopicModel) -> dict[str, Any]:
    """Population losses without L2, each null with a reason where it is not defined."""
    losses: dict[str, Callable[[Settings, TopicModel], dict[str, Any]]] = {
        "bayes_floor": _bayes_floor,
        "uniform_attention_optimum": _uniform_optimum,
        "theorem_2": _theorem_2,
    }
    found = {}
    for name, loss in losses.items():
        try:
            found[name] = loss(settings, topic_model)
        except InputError as error:
            found[name] = {"loss": None, "reason": str(error)}
    return found


def _bayes_floor(settings: Settings, topic_model: TopicModel) -> dict[str, Any]:
    """The least loss of any model, with its 95 % interval; the same for all seeds, so that runs can be compared."""
    floors = _floors(settings.data, settings.masking, settings.training.average)
    estimate = getattr(floors.masked, settings.training.loss)
    return {"loss": estimate.value, "low": estimate.low, "high": estimate.high, "documents": floors.documents}


@lru_cache(maxsize=64)
def _floors(data: Data, masking: Masking, average: Average) -> BayesFloors:
    draw = generator(0, Purpose.THEORY)
    model = TopicModel.from_settings(data)
    return bayes_floors(model, masking, samples=FLOOR_DOCUMENTS, generator=draw, average=average)


def _uniform_optimum(settings: Settings, topic_model: TopicModel) -> dict[str, Any]:
    _require_closed_form(settings)
    exact = moments(topic_model, settings.masking, settings.training.average)
    return {"loss": population_loss(finite_optimum(exact), exact)}


def _theorem_2(settings: Settings, topic_model: TopicModel) -> dict[str, Any]:
    _require_closed_form(settings)
    if topic_model.equal_words is None:
        raise InputError("Theorem 2 is about disjoint topics of equally likely words.")
    require_topic_sets(topic_model.topics, topic_model.per_document if topic_model.sampler == "topics" else 1)
    exact = moments(topic_model, settings.masking, settings.training.average)
    matrix = theorem_2(topic_model.topics, topic_model.equal_words, settings.masking)
    return {"loss": population_loss(matrix, exact)}


def _require_closed_form(settings: Settings) -> None:
    if settings.training.loss != "squared":
        raise InputError("The optimum under uniform attention has a closed form for the squared loss only.")
    if settings.model.masked_keys == "hidden":
        raise InputError("The closed form is for visible masked keys.")
