"""How certain a number from few seeds is: Student's t intervals, and p-values that agree with given intervals."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import special

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """An estimate and the ends of its confidence interval; infinite ends mean that nothing is known."""

    value: float
    low: float
    high: float


def student_interval(values: Float[np.ndarray, " seed"], confidence: float = CONFIDENCE) -> Interval:
    r"""The mean of independent runs: x̄ ± t_{K−1} s/√K; a single run has an infinite interval.

    It is exact for normal values; for others it is the usual approximation, and conservative for few runs.
    """
    mean = float(values.mean())
    error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else np.inf
    if not np.isfinite(error):
        return Interval(mean, -np.inf, np.inf)
    half = float(special.stdtrit(len(values) - 1, (1 + confidence) / 2)) * error
    return Interval(mean, mean - half, mean + half)


def interval_p(interval: Interval, threshold: float, confidence: float = CONFIDENCE) -> float:
    """A two-sided p-value that agrees with an interval computed elsewhere, from normal tails as wide as its two sides.

    It is below 1 − c exactly when the interval of confidence c excludes the threshold; elsewhere it is approximate.
    """
    if threshold == interval.value:
        return 1.0
    width = interval.high - interval.value if threshold > interval.value else interval.value - interval.low
    if not np.isfinite(threshold) or width == 0:
        return 0.0
    distance = abs(threshold - interval.value) / width * float(special.ndtri((1 + confidence) / 2))
    return float(2 * special.ndtr(-distance))
