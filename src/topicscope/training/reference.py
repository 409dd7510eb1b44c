"""Losses to hold a run against: the exact optimum under uniform attention, and Theorem 2's matrix."""

from typing import Any

from topicscope.errors import InputError
from topicscope.settings import Settings
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.optima import theorem_2
from topicscope.theory.population import finite_optimum, moments, population_loss


def reference_losses(settings: Settings, topic_model: TopicModel) -> dict[str, Any]:
    """Population losses without L2, each null with a reason where it is not defined."""
    if settings.training.loss != "squared":
        return _undefined("the optimum under uniform attention has a closed form for the squared loss only")
    if settings.model.masked_keys == "hidden":
        return _undefined("the closed form is for visible masked keys")
    exact = moments(topic_model, settings.masking, settings.training.average)
    found: dict[str, Any] = {"uniform_attention_optimum": {"loss": population_loss(finite_optimum(exact), exact)}}
    try:
        if topic_model.equal_words is None:
            raise InputError("Theorem 2 is about disjoint topics of equally likely words")
        matrix = theorem_2(topic_model.topics, topic_model.equal_words, settings.masking)
        found["theorem_2"] = {"loss": population_loss(matrix, exact)}
    except InputError as error:
        found["theorem_2"] = {"loss": None, "reason": str(error)}
    return found


def _undefined(reason: str) -> dict[str, Any]:
    return {name: {"loss": None, "reason": reason} for name in ("uniform_attention_optimum", "theorem_2")}
