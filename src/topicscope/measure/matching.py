"""Matched comparison: same-topic against different-topic pairs that are alike in all else that we can count.

Topics are fitted to co-occurrence, so same-topic pairs co-occur more, and words that co-occur often attend to each
other at short range. Pairs are therefore put into cells of equal co-occurrence, frequency and distance, and compared
within cells: §8.2 asks whether anything of the topic effect is left then.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int, Integer

from topicscope.measure.pair_table import PairTable

# Upper ends of distance bins, in tokens.
DISTANCES = (2, 5, 12, 30)


@dataclass(frozen=True, eq=False)
class Strata:
    """Which pairs of words are alike in co-occurrence and in frequency, and the bins of two positions' distance."""

    pair_bins: Integer[np.ndarray, "word word"]
    """The bin of each pair's co-occurrence."""

    bins: int
    """How many there are."""

    level: Int[np.ndarray, " word"] | None = None
    """How frequent each word is, 0 to levels − 1; None if that makes no difference."""

    levels: int = 1
    distances: tuple[int, ...] = DISTANCES

    @property
    def strata(self) -> int:
        """Number of strata: bins × pairs of levels."""
        return self.bins * self._level_pairs

    @property
    def size(self) -> int:
        """Number of cells."""
        return self.strata * (len(self.distances) + 1)

    @property
    def _level_pairs(self) -> int:
        return self.levels * (self.levels + 1) // 2

    def by_frequency(
        self, frequency: Float[np.ndarray, " word"], kept: Bool[np.ndarray, " word"], levels: int
    ) -> "Strata":
        """The same with levels of frequency that have equally many of the kept words each."""
        level = np.zeros(len(frequency), dtype=np.int64)
        rank = np.argsort(np.argsort(frequency[kept], kind="stable"), kind="stable")
        level[kept] = rank * levels // max(len(rank), 1)
        return replace(self, level=level, levels=levels)

    def among(self, kept: Bool[np.ndarray, " word"]) -> "Strata":
        """Of some of the words alone."""
        level = None if self.level is None else self.level[kept]
        return replace(self, pair_bins=self.pair_bins[np.ix_(kept, kept)], level=level)

    @property
    def matrix(self) -> Int[np.ndarray, "word word"]:
        """The stratum of every pair of words."""
        found = self.pair_bins.astype(np.int64) * self._level_pairs
        return found if self.level is None else found + _pair_of_levels(self.level[:, None], self.level[None])

    def of(self, first: Int[np.ndarray, " pair"], second: Int[np.ndarray, " pair"]) -> Int[np.ndarray, " pair"]:
        """The stratum of each pair of words."""
        found = self.pair_bins[first, second].astype(np.int64) * self._level_pairs
        return found if self.level is None else found + _pair_of_levels(self.level[first], self.level[second])

    def cells(
        self,
        first: Int[np.ndarray, " pair"],
        second: Int[np.ndarray, " pair"],
        distance: Int[np.ndarray, " pair"],
    ) -> Int[np.ndarray, " pair"]:
        """The cell of each pair of positions."""
        return self.cells_of_bins(first, second, np.searchsorted(self.distances, distance))

    def cells_of_bins(
        self, first: Int[np.ndarray, " pair"], second: Int[np.ndarray, " pair"], bins: Int[np.ndarray, " pair"]
    ) -> Int[np.ndarray, " pair"]:
        """The same from the bins of the distances."""
        return self.of(first, second) * (len(self.distances) + 1) + bins


def cells_by_labelling(
    strata: Sequence[Strata],
    first: Int[np.ndarray, " pair"],
    second: Int[np.ndarray, " pair"],
    distance: Int[np.ndarray, " pair"],
) -> Int[np.ndarray, "labelling pair"]:
    """The cells of pairs of positions under several labellings' strata, which differ in their words' levels alone."""
    one = strata[0]
    if one.level is None:
        return np.tile(one.cells(first, second, distance), (len(strata), 1))
    levels = np.stack([each.level for each in strata if each.level is not None])
    stratum = one.pair_bins[first, second].astype(np.int64) * one._level_pairs
    stratum = stratum + _pair_of_levels(levels[:, first], levels[:, second])
    return stratum * (len(one.distances) + 1) + np.searchsorted(one.distances, distance)


def _pair_of_levels(one: Int[np.ndarray, "*#pairs"], other: Int[np.ndarray, "*#pairs"]) -> Int[np.ndarray, "*pairs"]:
    """Numbers the pairs of levels, the rarer word's first: (0, 0), (0, 1), (1, 1), (0, 2) and so on."""
    rarer, commoner = np.minimum(one, other), np.maximum(one, other)
    return commoner * (commoner + 1) // 2 + rarer


def quarter_doubling_bins(counts: Float[np.ndarray, "*shape"]) -> Int[np.ndarray, "*shape"]:
    """0 for nothing, then four bins a doubling: small counts have one each, larger ones in one differ by 19 % at most.

    There is no last bin for all that is more: it would hold the pairs that topics have most of.
    """
    with np.errstate(divide="ignore"):
        return np.maximum(np.floor(4 * np.log2(counts)) + 1, 0).astype(np.int64)


def co_occurrence_strata(table: PairTable) -> Strata:
    """Strata of like co-occurrence, by quarter doublings.

    Co-occurrence is the number of pairs of positions in passages, where the table has each in both directions.
    """
    # A count of 2^53 is in bin 213: a byte holds them all.
    pair_bins = np.zeros((table.vocabulary, table.vocabulary), dtype=np.uint8)
    # Bins that no pair is in have no number: cells are kept for each article and replicate.
    occupied, found = np.unique(quarter_doubling_bins(table.counts / 2), return_inverse=True)
    pair_bins[table.first, table.second] = pair_bins[table.second, table.first] = found + 1
    return Strata(pair_bins, len(occupied) + 1)


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
