"""Matched comparison: same-topic against different-topic pairs that are alike in all else that we can count.

Topics are fitted to co-occurrence, so same-topic pairs co-occur more, and words that co-occur often attend to each
other at short range. Pairs are therefore put into cells of equal co-occurrence, frequency and distance, and compared
within cells: §8.2 asks whether anything of the topic effect is left then.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, Integer

from topicscope.measure.pair_table import PairTable

# Upper ends of distance bins, in tokens.
DISTANCES = (2, 5, 12, 30)


@dataclass(frozen=True, eq=False)
class Strata:
    """The stratum of every pair of words, and the bins of the distance between two positions."""

    stratum: Integer[np.ndarray, "word word"]
    strata: int
    """How many there are."""

    distances: tuple[int, ...] = DISTANCES

    @property
    def size(self) -> int:
        """Number of cells."""
        return self.strata * (len(self.distances) + 1)

    def cells(
        self,
        first: Int[np.ndarray, " pair"],
        second: Int[np.ndarray, " pair"],
        distance: Int[np.ndarray, " pair"],
    ) -> Int[np.ndarray, " pair"]:
        """The cell of each pair of positions."""
        bins = np.searchsorted(self.distances, distance)
        return self.stratum[first, second].astype(np.int64) * (len(self.distances) + 1) + bins


def quarter_doubling_bins(counts: Float[np.ndarray, "*shape"]) -> Int[np.ndarray, "*shape"]:
    """0 for nothing, then four bins a doubling: small counts have one each, larger ones in one differ by 19 % at most.

    There is no last bin for all that is more: it would hold the pairs that topics have most of.
    """
    with np.errstate(divide="ignore"):
        return np.maximum(np.floor(4 * np.log2(counts)) + 1, 0).astype(np.int64)


def word_strata(table: PairTable, frequency: Float[np.ndarray, " word"], *, frequency_bins: int = 10) -> Strata:
    """Strata of like co-occurrence (by quarter doublings) and of like frequency of the rarer and of the commoner word.

    Co-occurrence is the number of pairs of positions in passages, where the table has each in both directions;
    frequency bins hold equally many words each.
    """
    words = table.vocabulary
    co_occurrence = np.zeros((words, words), dtype=np.uint16)
    # Bins that no pair is in have no number: cells are kept for each article and replicate.
    occupied, bins = np.unique(quarter_doubling_bins(table.counts / 2), return_inverse=True)
    co_occurrence[table.first, table.second] = co_occurrence[table.second, table.first] = bins + 1
    rank = np.argsort(np.argsort(frequency, kind="stable"), kind="stable")
    level = (rank * frequency_bins // max(words, 1)).astype(np.uint16)
    rarer, commoner = np.minimum.outer(level, level), np.maximum.outer(level, level)
    # Numbers the pairs (rarer, commoner) with rarer ≤ commoner: (0, 0), (0, 1), (1, 1), (0, 2), …
    levels = np.uint16(frequency_bins * (frequency_bins + 1) // 2)
    stratum = co_occurrence * levels + commoner * (commoner + np.uint16(1)) // np.uint16(2) + rarer
    return Strata(stratum, int(levels) * (len(occupied) + 1))


@dataclass(frozen=True, eq=False)
class Matched:
    """Averages over the same cells, each weighted by its same-topic pairs."""

    same: Float[np.ndarray, " replicate"]
    different: Float[np.ndarray, " replicate"]
    share: Float[np.ndarray, " replicate"]
    """Of the same-topic pairs, those in cells that have different-topic pairs too."""


def matched_averages(
    same_sums: Float[np.ndarray, "replicate cell"],
    same_counts: Float[np.ndarray, "replicate cell"],
    different_sums: Float[np.ndarray, "replicate cell"],
    different_counts: Float[np.ndarray, "replicate cell"],
) -> Matched:
    r"""Standardised averages: different-topic pairs weighted so that their cells are those of the same-topic pairs.

    .. math:: \bar s = \frac{\sum_c n_c \bar s_c}{\sum_c n_c}, \qquad \bar d = \frac{\sum_c n_c \bar d_c}{\sum_c n_c}

    over the cells c that have both, n_c the number of same-topic pairs in c. NaN if there is no such cell.
    """
    both = (same_counts > 0) & (different_counts > 0)
    weight = np.where(both, same_counts, 0)
    total = weight.sum(axis=-1)
    level = np.divide(different_sums, different_counts, out=np.zeros_like(different_sums), where=both)
    with np.errstate(invalid="ignore", divide="ignore"):
        return Matched(
            same=np.where(both, same_sums, 0).sum(axis=-1) / total,
            different=(weight * level).sum(axis=-1) / total,
            share=total / same_counts.sum(axis=-1),
        )
