"""What is trained at which step, and how fast: schedules of parts (§5.1, §8.1) and of the learning rate."""

import math
from dataclasses import dataclass

from topicscope.settings import ATTENTION_PARTS, Settings, Training


@dataclass(frozen=True)
class Phase:
    """A stretch of training: the parts that move, and whether attention is held uniform."""

    parts: frozenset[str]
    uniform: bool


def phase(settings: Settings, step: int) -> Phase:
    """The phase that a step belongs to.

    joint: all trained parts. two_stage: all but keys and queries under uniform attention, then keys and queries
    alone. alternating: the same two in turn, with attention frozen at what it is instead of held uniform.
    """
    trained, training = frozenset(settings.model.trained_parts), settings.training
    if training.schedule == "joint":
        return Phase(trained, settings.model.uniform)
    if training.schedule == "two_stage":
        first = step < (training.stage_steps or training.steps // 2)
        return (
            Phase(trained - ATTENTION_PARTS, True)
            if first
            else Phase(trained & ATTENTION_PARTS, settings.model.uniform)
        )
    turn = min(step * 2 * training.rounds // training.steps, 2 * training.rounds - 1)
    return Phase(trained & ATTENTION_PARTS if turn % 2 else trained - ATTENTION_PARTS, settings.model.uniform)


def learning_rate(training: Training, step: int) -> float:
    """The rate at a step: constant, cut by a factor every so often, or falling to zero along a cosine."""
    if training.decay == "step":
        return training.learning_rate * training.decay_factor ** (step // training.decay_every)
    if training.decay == "cosine":
        return training.learning_rate * 0.5 * (1 + math.cos(math.pi * step / training.steps))
    return training.learning_rate
