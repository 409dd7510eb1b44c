"""AUC of similarities: the probability that a same-topic pair is more similar than a different-topic pair, exactly."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from topicscope.measure.labelling import Labelling
from topicscope.measure.pair_forms import form_average, pair_forms
from topicscope.measure.topic_weights import TopicWeights

# Intervals of equal width that values are sorted into before they are compared.
BUCKETS = 2**20


@dataclass(frozen=True, eq=False)
class Placements:
    """Where pairs stand among those of the other kind; equal ones count half."""

    inside: Float[np.ndarray, " pair"]
    """Of each same-topic pair, the share of different-topic pairs below it."""

    above: Float[np.ndarray, " word"]
    """Of each word, the sum over its different-topic pairs of the share of same-topic pairs above them."""

    partners: Float[np.ndarray, " word"]
    """How many different-topic pairs each word has."""


def placements(products: Float[np.ndarray, "word word"], labelling: Labelling) -> Placements:
    """Of the similarities of the words that a labelling keeps (all of its words)."""
    same = products[labelling.same_topic_pairs]
    first, second = labelling.different_topic_pairs
    order, words = np.argsort(same, kind="stable"), len(products)
    below, not_above = counts_below(products[first, second], same[order])
    inside = np.empty(len(same))
    # A different-topic pair is below the j-th same-topic pair if at most j of these are not above it; so for "not
    # above" and "below". Counts so far are the answer, without sorting the many.
    ranks = sum(np.cumsum(np.bincount(each, minlength=len(same) + 1))[:-1] for each in (below, not_above))
    inside[order] = ranks / (2 * max(len(first), 1))
    above = 1 - (below + not_above) / (2 * max(len(same), 1))
    return Placements(
        inside,
        np.bincount(first, above, words) + np.bincount(second, above, words),
        (np.bincount(first, minlength=words) + np.bincount(second, minlength=words)).astype(np.float64),
    )


def counts_below(
    values: Float[np.ndarray, " value"], ordered: Float[np.ndarray, " other"]
) -> tuple[Int[np.ndarray, " value"], Int[np.ndarray, " value"]]:
    """How many of the ordered numbers are below each value, and how many are not above it.

    As ``np.searchsorted``, which compares each value with a score of others. Here values and ordered numbers go into
    buckets first: only a value whose bucket holds an ordered number has to be compared.
    """
    if not len(ordered) or not ordered[-1] > ordered[0]:
        return np.searchsorted(ordered, values, "left"), np.searchsorted(ordered, values, "right")
    low, scale = ordered[0], BUCKETS / (ordered[-1] - ordered[0])

    def bucket(numbers: np.ndarray) -> np.ndarray:
        # Rounding never changes the order of two numbers, so a lower bucket means a lower number.
        return np.clip((numbers - low) * scale, 0, BUCKETS).astype(np.int32)

    before = np.concatenate([[0], np.cumsum(np.bincount(bucket(ordered), minlength=BUCKETS + 1))])
    place = bucket(values)
    below = before[place]
    not_above = below.copy()
    unsure = np.flatnonzero(before[place + 1] > below)
    below[unsure] = np.searchsorted(ordered, values[unsure], "left")
    not_above[unsure] = np.searchsorted(ordered, values[unsure], "right")
    return below, not_above


def auc_replicates(
    found: Sequence[Placements], labelling: Labelling, weights: TopicWeights
) -> list[Float[np.ndarray, " replicate"]]:
    """AUC of several similarities of one labelling's words, with replicates.

    Exact for the sample, the first replicate. In the others, both sides vary to first order: same-topic pairs are
    weighted anew against the sample's different-topic pairs, and the other way round (a word counts by its average).
    """
    first, second = labelling.same_topic_pairs
    values = np.stack([*(each.inside for each in found), np.ones(len(first))], axis=1)
    inside = pair_forms(weights.within, first, second, values)
    averages = form_average(inside[:, :-1], inside[:, -1:])
    return [average + _different_side(each, weights.between) for each, average in zip(found, averages.T, strict=True)]


def _different_side(found: Placements, weights: Float[np.ndarray, "replicate word"]) -> Float[np.ndarray, " replicate"]:
    """How far the average over different-topic pairs of P(same > value) moves when words are weighted; 0 at first."""
    if not found.partners.any():
        return np.full(len(weights), np.nan)
    deviation = found.above - found.partners * (found.above.sum() / found.partners.sum())
    return 2 * form_average(weights @ deviation, weights @ found.partners)
