"""How certain a number from few seeds is: intervals and p-values, and their correction for many claims.

Seeds are few (5 or 20), so means have Student's t intervals and proportions Clopper and Pearson's exact ones. A p-value
here tests, two-sided, the hypothesis that the true number equals a given threshold; it is below 1 − c exactly when the
interval of confidence c excludes that threshold.
"""

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
    mean, error = _mean_and_error(values)
    if not np.isfinite(error):
        return Interval(mean, -np.inf, np.inf)
    half = float(special.stdtrit(len(values) - 1, (1 + confidence) / 2)) * error
    return Interval(mean, mean - half, mean + half)


def student_p(values: Float[np.ndarray, " seed"], threshold: float) -> float:
    """The two-sided p-value of Student's test that the mean is ``threshold``; 1 for a single run."""
    mean, error = _mean_and_error(values)
    if not np.isfinite(error) or mean == threshold:
        return 1.0
    if not np.isfinite(threshold) or error == 0:
        return 0.0
    return float(2 * special.stdtr(len(values) - 1, -abs(mean - threshold) / error))


def proportion_interval(successes: int, trials: int, confidence: float = CONFIDENCE) -> Interval:
    """Clopper and Pearson's exact interval of a proportion."""
    tail = (1 - confidence) / 2
    low = float(special.betaincinv(successes, trials - successes + 1, tail)) if successes else 0.0
    high = float(special.betaincinv(successes + 1, trials - successes, 1 - tail)) if successes < trials else 1.0
    return Interval(successes / trials, low, high)


def proportion_p(successes: int, trials: int, threshold: float) -> float:
    """Twice the smaller binomial tail at this probability: the p-value whose interval is Clopper and Pearson's."""
    if not 0 <= threshold <= 1:
        return 0.0
    below = float(special.bdtr(successes, trials, threshold))
    above = float(special.bdtrc(successes - 1, trials, threshold)) if successes else 1.0
    return min(1.0, 2 * min(below, above))


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


def holm(p_values: Float[np.ndarray, " claim"]) -> Float[np.ndarray, " claim"]:
    r"""Holm's adjusted p-values: whatever is true, at most 5 % of the time is even one of those below 0.05 wrong.

    .. math:: \tilde p_{(i)} = \max_{j \le i} \min(1, (m - j + 1)\, p_{(j)})
    """
    order = np.argsort(p_values, kind="stable")
    factors = np.arange(len(p_values), 0, -1)
    adjusted = np.empty_like(p_values, dtype=np.float64)
    adjusted[order] = np.maximum.accumulate(np.minimum(1.0, factors * p_values[order]))
    return adjusted


def _mean_and_error(values: Float[np.ndarray, " seed"]) -> tuple[float, float]:
    """The mean and its standard error, which is infinite for a single run."""
    error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else np.inf
    return float(values.mean()), error
