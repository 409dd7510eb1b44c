"""What happens at which step: which parts are trained (§5.1, §8.1), how fast, and what is recorded."""

import math
from dataclasses import dataclass

import numpy as np

from topicscope.settings import ATTENTION_PARTS, Settings
from topicscope.settings.training import AnyTraining


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
        attention = step >= (training.stage_steps or training.steps // 2)
        uniform = settings.model.uniform or not attention
    else:
        turn = min(step * 2 * training.rounds // training.steps, 2 * training.rounds - 1)
        attention, uniform = turn % 2 == 1, settings.model.uniform
    return Phase(trained & ATTENTION_PARTS if attention else trained - ATTENTION_PARTS, uniform)


def learning_rate(training: AnyTraining, step: int) -> float:
    """The rate at a step: constant, cut by a factor every so often, or falling to zero along a cosine."""
    if training.decay == "step":
        return training.learning_rate * training.decay_factor ** (step // training.decay_every)
    if training.decay == "cosine":
        return training.learning_rate * 0.5 * (1 + math.cos(math.pi * step / training.steps))
    return training.learning_rate


def validates(training: AnyTraining, step: int) -> bool:
    """Whether the loss on held-out documents is computed at a step; at the last one it always is."""
    return training.validate_every > 0 and (step % training.validate_every == 0 or step == training.steps)


def has_row(training: AnyTraining, step: int) -> bool:
    """Whether a step has a row of metrics: regular steps and the last one."""
    return 0 <= step <= training.steps and (has_regular_row(training, step) or step == training.steps)


def has_regular_row(training: AnyTraining, step: int) -> bool:
    """Whether a step has a row of metrics whatever the run's length."""
    return step % training.log_every == 0 or (training.validate_every > 0 and step % training.validate_every == 0)


def why_not_longer(training: AnyTraining) -> str | None:
    """The setting that makes early steps depend on how many there are; None if a longer run begins as this one did."""
    if training.decay == "cosine":
        return 'training.decay = "cosine" depends on how many there are'
    schedule, stage = getattr(training, "schedule", "joint"), getattr(training, "stage_steps", 0)
    if schedule == "alternating":
        return 'training.schedule = "alternating" divides all of them into turns'
    if schedule == "two_stage" and not stage:
        return "training.stage_steps = 0 gives half of them to the first stage"
    return None


def snapshot_steps(steps: int, count: int) -> frozenset[int]:
    """Step 0 and at most ``count`` − 1 more: half of them evenly spaced, for what comes late, half logarithmically.

    If ``count`` is 1, it is the last step alone.
    """
    if count < 2:
        return frozenset({steps} if count else ())
    even = np.linspace(0, steps, num=count // 2 + 1).round().astype(int)
    early = np.geomspace(1, steps, num=count - count // 2).round().astype(int)
    # The last is among the even ones; geomspace would put it at its beginning if it is the only one.
    return frozenset({0, *early.tolist()[:-1], *even.tolist()})
