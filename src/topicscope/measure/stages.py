"""When things happen in training: two stages by a rule on norms (§5.1, Figure 4), and when a structure appears."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

# Stage 1 ends when a norm of W^K or W^Q first exceeds this many times its start.
TAKE_OFF = 2.0
# Two-stage: W^V has then made at least this share of its growth over the run, in at least this share of the steps.
LEAST_GROWTH = 1 / 3
LEAST_STEPS = 0.05


@dataclass(frozen=True)
class Stages:
    """Where stage 1 ends in one run, and what W^V did before."""

    end: int | None
    """The first logged step at which W^K or W^Q has taken off; None if they never do."""

    growth: float
    """The share of ‖W^V‖'s growth over the run that it has made by then, 0 to 1; 0 if it does not grow. Without an end
    1, or NaN if W^V does not grow either; NaN if the run diverged."""

    steps: float
    """The share of the run's steps that stage 1 takes; 1 without an end, NaN if the run diverged."""

    @property
    def diverged(self) -> bool:
        """Whether the run has no end to measure by."""
        return bool(np.isnan(self.steps))

    @property
    def two(self) -> bool:
        """Whether the run has two stages. A stage 1 that never ends is one stage."""
        return self.end is not None and self.growth >= LEAST_GROWTH and self.steps >= LEAST_STEPS


def stages(
    steps: Int[np.ndarray, " row"],
    key: Float[np.ndarray, " row"],
    query: Float[np.ndarray, " row"],
    value: Float[np.ndarray, " row"],
) -> Stages:
    """Apply the rule to one run's norms; a run that diverged (NaN at the end) has no growth to take shares of."""
    if not np.isfinite([key[-1], query[-1], value[-1]]).all():
        return Stages(None, np.nan, np.nan)
    grown = value[-1] - value[0]
    taken_off = (key > TAKE_OFF * key[0]) | (query > TAKE_OFF * query[0])
    if not taken_off.any():
        return Stages(None, 1.0 if grown > 0 else np.nan, 1.0)
    row = int(np.argmax(taken_off))
    # A norm that was larger on the way than it is in the end has made all of its growth, not several times it.
    growth = float(np.clip((value[row] - value[0]) / grown, 0, 1)) if grown > 0 else 0.0
    return Stages(int(steps[row]), growth, float(steps[row] / steps[-1]))


def plateau(steps: Int[np.ndarray, " row"], value: Float[np.ndarray, " row"], end: int) -> float:
    """How fast ‖W^V‖ grows in stage 2 relative to stage 1, both a step: near 0 on a plateau, 1 without one."""
    row = int(np.searchsorted(steps, end))
    before = (value[row] - value[0]) / (steps[row] - steps[0])
    after = (value[-1] - value[row]) / (steps[-1] - steps[row])
    return float(after / before)


def turning(
    steps: Int[np.ndarray, " row"], value: Float[np.ndarray, " row"], rotation: Float[np.ndarray, " row"], end: int
) -> float:
    r"""How much more W^V turns than it grows in stage 2: angle over relative change of norm, both between rows.

    ``rotation`` is (1 − cos)/2 between W^V and itself one row earlier (log every 10 steps), as ``training.record``
    computes it. "Locally rotates with an approximately constant norm" (§8.1) means well above 1. Both are medians over
    the rows of stage 2.
    """
    after = np.flatnonzero(steps > end)
    angle = np.arccos(1 - 2 * rotation[after])
    change = np.abs(value[after] - value[after - 1]) / value[after - 1]
    return float(np.median(angle) / np.median(change))


def half_way(steps: Int[np.ndarray, " measured"], log_ratio: Float[np.ndarray, " measured"], final_low: float) -> float:
    """The first step at which the log-ratio reaches half of its final value, linear between measured steps.

    NaN if there is no structure in the end, that is, if ``final_low``, the lower end of the final log-ratio's interval,
    is not above 0: half of what may be nothing is reached at no step in particular. Values that are NaN (a ratio that
    is not defined) count as not reached.
    """
    final = log_ratio[-1]
    if not (final_low > 0 and final > 0):
        return np.nan
    row = int(np.argmax(log_ratio >= final / 2))
    before = log_ratio[row - 1] if row else np.nan
    if row == 0 or np.isnan(before):
        return float(steps[row])
    share = (final / 2 - before) / (log_ratio[row] - before)
    return float(steps[row - 1] + share * (steps[row] - steps[row - 1]))
