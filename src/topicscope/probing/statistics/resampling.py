"""Same against different topic: ratio, difference and AUC with intervals, from bootstrap replicates of the averages.

Each article has its own weights; LDA seeds are drawn anew in every replicate (for topics and words see ``labelling``).
Wherever replicates are passed on, the first of them is the sample itself. The end of the file compares two models that
were measured on the same passages, words and topics, under the same draws.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float, Int
from msgspec import structs

from topicscope.measure.uncertainty import CONFIDENCE
from topicscope.probing.statistics.labelling import Replicates
from topicscope.probing.statistics.permutation import permutation_p
from topicscope.randomness import Purpose, generator
from topicscope.records import Comparison, PairedRow, Ratio

# Replicates without pairs are left out. If less than this share remains, there is no interval: with two topics, only
# four replicates in ten draw both, and it would hold the true value in 73 % of cases (with three topics in 95 %).
LEAST_WITH_PAIRS = 0.5

C = TypeVar("C", bound=Comparison)


def finite(value: float | None) -> float | None:
    """A finite number, or None."""
    return float(value) if value is not None and np.isfinite(value) else None


def percentile_interval(replicates: Replicates) -> tuple[float, float] | tuple[None, None]:
    """The middle 95 % of the replicates that have a number; nothing if too few have."""
    there = replicates[~np.isnan(replicates)]
    if not len(replicates) or len(there) < LEAST_WITH_PAIRS * len(replicates) or not np.isfinite(there).all():
        return None, None
    # ``np.quantile`` has the same numbers and takes nine times as long, for thousands of heads and topics.
    ends = np.array([1 - CONFIDENCE, 1 + CONFIDENCE]) / 2 * (len(there) - 1)
    low, high = np.interp(ends, np.arange(len(there)), np.sort(there))
    return float(low), float(high)


def contrast(
    same: Replicates, different: Replicates, *, auc: Replicates | None = None, p: float | None = None
) -> Comparison:
    """The comparison of averages: the first entry is the number itself, the others are its bootstrap replicates."""
    # All numbers use the same replicates: one that lacks pairs of one kind counts for neither.
    gone = ~(np.isfinite(same) & np.isfinite(different))
    gone[0] = False
    same, different = (np.where(gone, np.nan, side) for side in (same, different))
    difference = same - different
    return Comparison(
        same=finite(same[0]),
        different=finite(different[0]),
        **structs.asdict(_ratio(same, different) if has_ratio(same, different) else Ratio()),
        difference=finite(difference[0]),
        **_interval("difference", difference),
        **({} if auc is None else _area(np.where(gone, np.nan, auc))),
        p=finite(p),
        replicates_left_out=int(gone.sum()),
    )


def extended(comparison: Comparison, kind: type[C], **more: Any) -> C:
    """A comparison of a kind that has further fields, with these."""
    return kind(**structs.asdict(comparison), **more)


def ratio_replicates(same: Replicates, different: Replicates) -> Replicates:
    """The ratio of each replicate; NaN where it is not defined."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(different > 0, same / different, np.nan)


def ratio_of_ratios(one: Replicates, other: Replicates) -> Ratio:
    """How many times as large one ratio is as another, with an interval.

    Both have the same draws, and the first replicate is the sample: what they share does not count twice.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        quotients = np.where(other > 0, one / other, np.nan)
    low, high = percentile_interval(quotients[1:])
    return Ratio(ratio=finite(quotients[0]), low=low, high=high)


def has_ratio(same: Replicates, different: Replicates) -> bool:
    """Whether the denominator is surely above 0: the whole interval, if it has one."""
    low = percentile_interval(different[1:])[0] if len(different) > 1 else None
    return bool(np.isfinite(same[0]) and different[0] > 0 and (low is None or low > 0))


def _ratio(same: Replicates, different: Replicates) -> Ratio:
    """The ratio with its interval.

    The denominator of a single replicate may still cross 0. Its ratio has passed through infinity and counts as the
    largest of all, whatever its sign. Ends are then order statistics; an upper one that is infinite becomes None.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(different <= 0, np.inf, same / different)
    there = np.sort(ratios[1:][~np.isnan(ratios[1:])])
    low, high = percentile_interval(ratios[1:])
    if len(there) >= LEAST_WITH_PAIRS * (len(ratios) - 1) and np.isinf(there).any():
        # At most 2.5 % of the replicates are beyond each end.
        beyond = (1 - CONFIDENCE) / 2
        low, high = float(np.quantile(there, beyond, method="lower")), finite(there[-int(beyond * len(there)) - 1])
    return Ratio(ratio=float(ratios[0]), low=low, high=high)


def _interval(name: str, values: Replicates) -> dict[str, float | None]:
    low, high = percentile_interval(values[1:])
    return {f"{name}_low": low, f"{name}_high": high}


def _area(auc: Replicates) -> dict[str, float | None]:
    """AUC and its interval, cut at 0 and 1: rounding and first-order replicates may exceed a probability's range."""
    numbers = {"auc": finite(auc[0]), **_interval("auc", auc)}
    return {name: None if number is None else float(np.clip(number, 0, 1)) for name, number in numbers.items()}


def poisson_weights(
    articles: Int[np.ndarray, " article"], replicates: int, seed: int
) -> Float[np.ndarray, "replicate_plus_one article"]:
    """How often each article counts; once in the first row, which is the sample itself.

    Replicate r counts article a ``weights[r, a]`` times, a Poisson(1) number from a generator made from the seed and
    the article's index. So shards can be added in any split, and none needs to know the others.
    """
    drawn = [generator(seed, Purpose.BOOTSTRAP, int(each)).poisson(1.0, replicates) for each in articles]
    weights = np.array(drawn, dtype=np.float64).reshape(len(articles), replicates).T
    return np.concatenate([np.ones((1, len(articles))), weights])


@dataclass(frozen=True, eq=False)
class SeedDraws:
    """LDA seeds drawn anew (with replacement) in every replicate but the first, the same for all numbers of it.

    All seeds share the replicate's articles, or words and topics, so the interval includes both sources of uncertainty.
    With S seeds their own part of the variance is (S − 1)/S of what it should be, as for every plain bootstrap.
    """

    drawn: Int[np.ndarray, "seed replicate"]

    @classmethod
    def draw(cls, seeds: int, replicates: int, *, generator: np.random.Generator) -> "SeedDraws":
        """Draws for so many seeds, and for so many replicates besides the sample itself."""
        drawn = generator.integers(seeds, size=(seeds, replicates + 1))
        drawn[:, 0] = np.arange(seeds)
        return cls(drawn)

    def average(self, values: Float[np.ndarray, "seed replicate"]) -> Replicates:
        """The average over the seeds drawn."""
        return np.take_along_axis(values, self.drawn, axis=0).mean(axis=0)


def auc_of_histograms(
    same: Float[np.ndarray, "replicate bin"], different: Float[np.ndarray, "replicate bin"]
) -> Replicates:
    """The probability that a same-topic value is the larger, values of one bin counting as half.

    It is exact except for pairs that fall into one bin: the error is at most half the probability of that.
    """
    below = np.cumsum(different, axis=-1) - different / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        return (same * below).sum(axis=-1) / (same.sum(axis=-1) * different.sum(axis=-1))


# Two models.


class Comparable(NamedTuple):
    """One measure of one model: averages under the draws, and what is tested under the permutations."""

    same: Replicates
    different: Replicates
    auc: Replicates
    tested: Float[np.ndarray, " permutation_plus_one"]
    """What is tested, the observed number first: log-ratio of attention, same-topic average of similarity."""


def compared(one: Comparable, other: Comparable, about: PairedRow) -> PairedRow:
    """How much more topic structure the first has: ratio of ratios, differences of differences and of AUC, and p.

    about: which models and which measure. Replicates of both models draw the same articles, words and topics, so what
    they share does not count twice. The test permutes words' topics, the same way for both: would shuffled topics tell
    them apart as much? There is no ratio of ratios if one of the models has no ratio.
    """
    quotient = Ratio()
    if all(has_ratio(each.same, each.different) for each in (one, other)):
        quotient = ratio_of_ratios(*(ratio_replicates(each.same, each.different) for each in (one, other)))
    difference, auc = (one.same - one.different) - (other.same - other.different), one.auc - other.auc
    # Rounding errors are those of each model's own numbers.
    size = float(max(abs(one.tested[0]), abs(other.tested[0])))
    p = permutation_p(one.tested - other.tested, size=size if np.isfinite(size) else 0.0)
    return structs.replace(
        about,
        ratio_of_ratios=quotient.ratio,
        low=quotient.low,
        high=quotient.high,
        difference=finite(difference[0]),
        **_interval("difference", difference),
        auc_difference=finite(auc[0]),
        **_interval("auc_difference", auc),
        p=finite(p),
    )
