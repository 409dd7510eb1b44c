"""Sums over pairs of words: Σ w_i w_j v_ij under many weightings of the words, and a table of the pairs that occur.

The table says how often two words are in one passage, and what attention they give each other. It has one row for each
pair that occurs (in each bin of distance, if it tells them apart), so its size is bounded by the vocabulary's pairs,
whatever the corpus.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

# Products of two words' weights held at once.
BLOCK = 1_000_000


def pair_forms(
    weights: Float[np.ndarray, "replicate word"],
    first: Int[np.ndarray, " pair"],
    second: Int[np.ndarray, " pair"],
    values: Float[np.ndarray, "pair column"],
) -> Float[np.ndarray, "replicate column"]:
    """By replicate and column, the sum of the pairs' values, each times the weights of its two words."""
    found = np.empty((len(weights), values.shape[1]))
    rows = max(1, BLOCK // max(len(first), 1))
    for start in range(0, len(weights), rows):
        part = weights[start : start + rows]
        found[start : start + rows] = (np.take(part, first, axis=1) * np.take(part, second, axis=1)) @ values
    return found


def form_average(
    sums: Float[np.ndarray, "*shape"], counts: Float[np.ndarray, "*#shape"]
) -> Float[np.ndarray, "*shape"]:
    """Sums by counts; NaN where nothing was drawn (weights are whole numbers but for rounding)."""
    counts = np.broadcast_to(counts, sums.shape)
    return np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 1e-6)


@dataclass(frozen=True, eq=False)
class PairTable:
    """Pairs of words, the smaller first, with sums over their pairs of positions: each once and in order, or by bin.

    A table without bins has all pairs in bin 0.
    """

    vocabulary: int
    codes: Int[np.ndarray, " pair"]
    """(bin · vocabulary + first) · vocabulary + second, increasing."""

    counts: Float[np.ndarray, " pair"]
    """Pairs of positions; each direction of attention is one."""

    sums: Float[np.ndarray, " pair"]
    """Normalised attention, averaged over layers and heads, summed over positions."""

    @property
    def first(self) -> Int[np.ndarray, " pair"]:
        """The smaller word of each pair."""
        return self.codes // self.vocabulary % self.vocabulary

    @property
    def second(self) -> Int[np.ndarray, " pair"]:
        """The larger word of each pair, or the same."""
        return self.codes % self.vocabulary

    @property
    def bin(self) -> Int[np.ndarray, " pair"]:
        """The bin of distance that a row's pairs of positions are in."""
        return self.codes // self.vocabulary**2

    @classmethod
    def of(
        cls,
        first: Int[np.ndarray, " pair"],
        second: Int[np.ndarray, " pair"],
        directed: Float[np.ndarray, "direction pair"],
        vocabulary: int,
        bins: Int[np.ndarray, " pair"] | None = None,
    ) -> "PairTable":
        """From pairs of positions, which may hold the same words; told apart by bins, if given."""
        codes = np.minimum(first, second).astype(np.int64) * vocabulary + np.maximum(first, second)
        codes = codes if bins is None else codes + bins.astype(np.int64) * vocabulary**2
        return cls._summed(vocabulary, codes, np.full(len(codes), float(len(directed))), directed.sum(axis=0))

    @classmethod
    def merged(cls, tables: Sequence["PairTable"]) -> "PairTable":
        """Sums over several tables of one vocabulary, in the order given."""
        names = ("codes", "counts", "sums")
        return cls._summed(
            tables[0].vocabulary, *(np.concatenate([getattr(t, name) for t in tables]) for name in names)
        )

    @classmethod
    def empty(cls, vocabulary: int) -> "PairTable":
        """No pair at all."""
        return cls(vocabulary, np.zeros(0, np.int64), np.zeros(0), np.zeros(0))

    @classmethod
    def _summed(
        cls,
        vocabulary: int,
        codes: Int[np.ndarray, " row"],
        counts: Float[np.ndarray, " row"],
        sums: Float[np.ndarray, " row"],
    ) -> "PairTable":
        unique, place = np.unique(codes, return_inverse=True)
        # NumPy counts nothing in whole numbers.
        summed = (np.bincount(place, each, len(unique)).astype(np.float64) for each in (counts, sums))
        return cls(vocabulary, unique, *summed)

    def over_bins(self) -> "PairTable":
        """Sums over all bins."""
        return self._summed(self.vocabulary, self.codes % self.vocabulary**2, self.counts, self.sums)

    def without_same_word(self) -> "PairTable":
        """Pairs of different words only."""
        return self._rows(self.first != self.second)

    def among(self, kept: Bool[np.ndarray, " word"]) -> "PairTable":
        """Pairs of kept words only."""
        return self._rows(kept[self.first] & kept[self.second])

    def _rows(self, chosen: Bool[np.ndarray, " pair"]) -> "PairTable":
        return PairTable(self.vocabulary, self.codes[chosen], self.counts[chosen], self.sums[chosen])

    def places(
        self, first: Int[np.ndarray, " wanted"], second: Int[np.ndarray, " wanted"]
    ) -> Int[np.ndarray, " wanted"]:
        """Where the pairs are in this table, −1 if they do not occur."""
        codes = np.minimum(first, second).astype(np.int64) * self.vocabulary + np.maximum(first, second)
        place = np.searchsorted(self.codes, codes)
        place = np.minimum(place, max(len(self.codes) - 1, 0))
        return np.where(self.codes[place] == codes, place, -1) if len(self.codes) else np.full(len(codes), -1)
