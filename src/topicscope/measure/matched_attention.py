"""Matched attention with each topic left out in turn, and an interval that holds articles, topics and LDA seeds (§8.2).

Drawing articles alone asks what other text would give, for these very words. Which words a topic has is chance too, so
the interval adds the jackknife over topics, as that of matched similarity has it.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float

from topicscope.measure.contrast import LEAST_WITH_PAIRS, Contrast
from topicscope.measure.labelling import Labelling
from topicscope.measure.matched_words import jackknife_interval
from topicscope.measure.matching import Matched, Strata, matched_averages
from topicscope.measure.pair_table import PairTable
from topicscope.measure.topic_weights import topic_partners


def matched_without_topics(table: PairTable, labelling: Labelling, strata: Strata) -> Matched:
    """Over all words first, then with the words of each topic left out (the first topic, if words have several).

    ``table`` has sums by pair of words and bin of distance.
    """
    pairs = table.without_same_word().among(labelling.kept)
    _, cell = np.unique(strata.cells_of_bins(pairs.first, pairs.second, pairs.bin), return_inverse=True)
    topics, cells = labelling.membership.shape[1], int(cell.max(initial=-1)) + 1
    one, other = labelling.topic[pairs.first], labelling.topic[pairs.second]
    apart, same = one != other, labelling.shares(pairs.first, pairs.second)

    def without(chosen: Bool[np.ndarray, " pair"], values: Float[np.ndarray, " pair"]) -> Float[np.ndarray, "row cell"]:
        values = np.where(chosen, values, 0.0)
        touched = np.bincount(one * cells + cell, values, topics * cells)
        touched += np.bincount((other * cells + cell)[apart], values[apart], topics * cells)
        whole = np.bincount(cell, values, cells)
        # NumPy counts nothing in whole numbers.
        return np.concatenate([whole[None], whole - touched.reshape(topics, cells)]).astype(np.float64)

    # Counts are whole numbers: what nothing is left of is exactly 0, and has no part in the averages.
    sides = [(chosen, values) for chosen in (same, ~same) for values in (pairs.sums, pairs.counts)]
    return matched_averages(*(without(*each) for each in sides))


def with_topics(
    found: Contrast,
    same: Float[np.ndarray, " replicate"],
    different: Float[np.ndarray, " replicate"],
    without: Sequence[Matched],
    labellings: Sequence[Labelling],
) -> Contrast:
    """The contrast with intervals of three sources of doubt: variances of the replicates and of the jackknife added.

    same, different: averages over LDA seeds, the sample first and then its replicates (articles, LDA seeds).
    without: of each LDA seed's labelling, what ``matched_without_topics`` gave. A topic of the first seed is left out
    together with its partners of the others.
    The ratio's interval is made of its logarithm: log ratio ± 1.96 s. Replicates without pairs of both kinds are left
    out, as ``contrast`` has counted them. None if fewer than half remain, or where a topic cannot be left out.
    """
    first = labellings[0]
    present = np.flatnonzero(first.membership.any(axis=0))
    rows = [1 + np.argsort(topic_partners(first, each))[present] for each in labellings]
    left = [
        np.stack([getattr(each, side)[row] for each, row in zip(without, rows, strict=True)]).mean(axis=0)
        for side in ("same", "different")
    ]
    there = np.isfinite(same) & np.isfinite(different)
    # The sample itself is no replicate: without it there is no interval.
    there[0] = True
    low, high = _interval((same - different)[there], left[0] - left[1], replicates=len(same) - 1)
    found = replace(found, difference_low=low, difference_high=high)
    if found.ratio is None:
        return found
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = (np.log(same) - np.log(different))[there]
        low, high = _interval(logs, np.log(left[0]) - np.log(left[1]), replicates=len(same) - 1)
    if low is None or high is None:
        return replace(found, low=None, high=None)
    return replace(found, low=float(np.exp(low)), high=float(np.exp(high)))


def _interval(
    values: Float[np.ndarray, " there"], left_out: Float[np.ndarray, " topic"], *, replicates: int
) -> tuple[float, float] | tuple[None, None]:
    """From the sample's number and those of its replicates that have one, of so many."""
    # A variance takes two.
    if len(values) - 1 < max(LEAST_WITH_PAIRS * replicates, 2) or not np.isfinite(values).all():
        return None, None
    return jackknife_interval(float(values[0]), left_out, more=float(values[1:].var(ddof=1)))
