"""Runs on text made by hand, whose events are at known steps."""

from dataclasses import replace

import numpy as np

from support.runs import PAPER
from topicscope.measure.run import Run
from topicscope.papers.needs import TextExperiment
from topicscope.settings.text import TextSettings

STEPS = np.arange(0, 401, 5)
MEASURED = np.array([0, 50, 100, 200, 400])
LAYERS, SEEDS = 4, 3
CELLS = [name for name in PAPER.experiments if name.startswith("figure5/")]


def settings() -> TextSettings:
    need = PAPER.experiments[CELLS[0]]
    assert isinstance(need, TextExperiment)
    return need.settings


def made_up(take_off: float = 100.0, embedding: float = 60.0, attention: float = 200.0, structure: float = 0.5) -> Run:
    """Runs in which attention takes off at a step, and structure appears.

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
    rises = {
        "embedding": structure / (1 + np.exp(-(MEASURED - embedding - shift) / 10)),
        "attention": structure / (1 + np.exp(-(MEASURED - attention - shift) / 10)),
        "attention-by-layer": structure
        / (1 + np.exp(-(MEASURED[:, None] - attention - 20 * np.arange(LAYERS) - shift[:, :, None]) / 10)),
    }
    for name, rise in rises.items():
        for path, values in ((f"topics/{name}", rise), (f"topics/{name}/low", rise - 0.1)):
            metrics[path] = np.full((SEEDS, len(STEPS), *rise.shape[2:]), np.nan)
            metrics[path][:, np.searchsorted(STEPS, MEASURED)] = values
    return Run("made up", settings(), tuple(range(SEEDS)), STEPS, metrics)


def by_seed(run: Run) -> dict[str, Run]:
    """As the experiments on emergence give them: a run each."""
    return {
        f"emergence/{seed}": replace(
            run, seeds=(seed,), metrics={name: values[seed : seed + 1] for name, values in run.metrics.items()}
        )
        for seed in range(SEEDS)
    }
