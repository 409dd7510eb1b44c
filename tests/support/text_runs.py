"""Runs on text made by hand, whose events are at known steps."""

import numpy as np

from support.runs import PAPER
from topicscope.measure.run import Run
from topicscope.papers.needs import Experiment
from topicscope.settings import Settings

STEPS = np.arange(0, 401, 5)
LAYERS, SEEDS = 4, 3
CELLS = [name for name in PAPER.experiments if name.startswith("figure5/")]


def settings() -> Settings:
    need = PAPER.experiments[CELLS[0]]
    assert isinstance(need, Experiment)
    return need.settings


def made_up(take_off: float = 100.0) -> Run:
    """Runs in which attention takes off at a step.

    W^V grows from the start and, unless attention takes off at once, is done when it does.
    """
    shift = np.arange(SEEDS)[:, None] * 2.0
    late = (1 + np.maximum(STEPS - take_off - shift, 0) / 10)[:, :, None] * np.ones(LAYERS)
    grown = np.minimum(STEPS, take_off) if take_off > 0 else STEPS
    value = (1 + grown[None, :] / 50 + 0 * shift)[:, :, None] * np.ones(LAYERS)
    distance = np.minimum((late - 1) / 20, 0.9)
    turn = np.where(STEPS < 10, np.nan, np.where(take_off >= STEPS, 0.1, 0.01)) + 0 * shift
    metrics = {f"norm/{part}": late for part in ("key", "query")}
    metrics |= {"norm/value": value, "rotation": turn[:, :, None] * np.ones(LAYERS), "loss": np.full(turn.shape, 6.0)}
    metrics |= {"attention/words": distance, "attention/mask": distance / 2}
    return Run("made up", settings(), tuple(range(SEEDS)), STEPS, metrics)
