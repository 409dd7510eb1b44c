"""Permutation test of the matched comparison of attention (§8.2), from sums by pair of words and bin of distance.

Words of like frequency exchange their topics, as in the other tests. What two words' pairs of positions are matched on
(their co-occurrence, frequency and distance) stays as it is, so a permutation only moves same-topic pairs from cell to
cell; what is left of a cell is its different-topic pairs.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Int, Int32
from scipy import sparse

from topicscope.measure.labelling import Labelling
from topicscope.measure.matching import Strata, matched_averages
from topicscope.measure.pair_table import PairTable
from topicscope.measure.permutation import permutation_p, stratified_orders

# Permutations at once: their sums by cell take 16 bytes a cell and permutation.
DRAWN = 100


@dataclass(frozen=True, eq=False)
class _Cells:
    """Of all pairs of different words that occur, sums and counts by the cells that have any of them."""

    number: Int32[np.ndarray, " word_pair"]
    """The row of each pair of words by first · words + second; one row more than there are if it does not occur."""

    words: int

    sums: sparse.csr_array
    """A row a pair of words, a column a cell."""

    counts: sparse.csr_array
    every: Float[np.ndarray, "kind cell"]
    """Sums and counts over all pairs."""

    @classmethod
    def of(cls, table: PairTable, strata: Strata, order: Int[np.ndarray, " kept"]) -> "_Cells":
        """Of the words in ``order``, numbered by their place in it."""
        place = np.full(table.vocabulary, -1)
        place[order] = np.arange(len(order))
        different = table.without_same_word().among(place >= 0)
        cells = strata.cells_of_bins(different.first, different.second, different.bin)
        _, cell = np.unique(cells, return_inverse=True)
        one, other = place[different.first], place[different.second]
        codes = np.minimum(one, other) * len(order) + np.maximum(one, other)
        pairs, row = np.unique(codes, return_inverse=True)
        number = np.full((len(order), len(order)), len(pairs), dtype=np.int32)
        one, other = pairs // len(order), pairs % len(order)
        number[one, other] = number[other, one] = np.arange(len(pairs))
        shape = (len(pairs), int(cell.max(initial=-1)) + 1)
        values = (different.sums, different.counts)
        sums, counts = (sparse.csr_array((each, (row, cell)), shape=shape) for each in values)
        # NumPy counts nothing in whole numbers.
        every = np.stack([np.bincount(cell, each, shape[1]) for each in values]).astype(np.float64)
        return cls(number.ravel(), len(order), sums, counts, every)

    def log_ratios(
        self,
        orders: Int[np.ndarray, "permutation word"],
        first: Int[np.ndarray, " pair"],
        second: Int[np.ndarray, " pair"],
    ) -> Float[np.ndarray, " permutation"]:
        """The matched log-ratio if the words that stand in these pairs' places were the same-topic ones."""
        # A pair's permutations side by side: they are within one small part of the matrix of numbers.
        standing = np.ascontiguousarray(orders.T)
        rows = np.ascontiguousarray(self.number.take(standing[first] * self.words + standing[second]).T)
        occurs = rows < self.sums.shape[0]
        ends = np.concatenate([[0], np.cumsum(occurs.sum(axis=1))])
        rows = rows[occurs]
        chosen = sparse.csr_array((np.ones(len(rows)), rows, ends), shape=(len(orders), self.sums.shape[0]))
        same_sums, same_counts = ((chosen @ each).toarray() for each in (self.sums, self.counts))
        # Counts are whole numbers, so what is left of them is exact; a cell without any has no sum either.
        left = self.every[1] - same_counts
        found = matched_averages(same_sums, same_counts, np.where(left > 0, self.every[0] - same_sums, 0), left)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log(found.same) - np.log(found.different)


def matched_test(
    table: PairTable,
    labelling: Labelling,
    word_stratum: Int[np.ndarray, " word"],
    strata: Strata,
    permutations: int,
    *,
    generator: np.random.Generator,
) -> float:
    """The p-value of the matched log-ratio of attention averaged over layers and heads; uncorrected.

    table: sums by pair of words and bin of distance.
    word_stratum: words of like frequency, which exchange topics.
    strata: what pairs are matched on.
    NaN if no cell has both kinds of pair.
    """
    # Words of one stratum, which stand in one another's places, have neighbouring numbers: looked-up entries are near.
    kept = np.flatnonzero(labelling.kept)
    kept = kept[np.argsort(word_stratum[kept], kind="stable")]
    exchanged, stratum = Labelling(labelling.membership[kept]), word_stratum[kept]
    first, second = exchanged.same_topic_pairs
    by_strata = np.lexsort((stratum[second], stratum[first]))
    first, second = first[by_strata], second[by_strata]
    cells = _Cells.of(table, strata, kept)
    observed = cells.log_ratios(np.arange(len(kept))[None], first, second)
    drawn = []
    for start, stop in pairwise([*range(0, permutations, DRAWN), permutations]):
        orders = stratified_orders(exchanged, stratum, stop - start, generator=generator)
        drawn.append(cells.log_ratios(orders, first, second))
    return permutation_p(float(observed[0]), np.concatenate(drawn), size=1.0)
