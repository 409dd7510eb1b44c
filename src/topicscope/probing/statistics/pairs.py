"""Pairs of different words: sums Σ w_i w_j v_ij under many weightings, a table of the pairs that occur, and Table 2.

The table of pairs says how often two words are in one passage, and how much they attend to each other. It has one row
for each pair that occurs (and for each bin of distance, if it has bins), so its size is bounded by the vocabulary's
pairs for any corpus. Table 2 compares the pairs that are most often in one passage with pairs of one topic.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import sparse

from topicscope.probing.statistics.labelling import Labelling, OfPairs, Pairs
from topicscope.probing.statistics.resampling import SeedDraws, contrast
from topicscope.records import TopPairs

# Products of two words' weights held at once.
BLOCK = 1_000_000
# Passages whose tables are held before they are put together.
MERGED = 512


def pair_forms(
    weights: Float[np.ndarray, "replicate word"],
    first: OfPairs,
    second: OfPairs,
    values: Float[np.ndarray, "pair column"],
) -> Float[np.ndarray, "replicate column"]:
    """By replicate and column, the sum of the pairs' values, each times the weights of its two words."""
    sums = np.empty((len(weights), values.shape[1]))
    rows = max(1, BLOCK // max(len(first), 1))
    for start in range(0, len(weights), rows):
        part = weights[start : start + rows]
        sums[start : start + rows] = (np.take(part, first, axis=1) * np.take(part, second, axis=1)) @ values
    return sums


def form_average(
    sums: Float[np.ndarray, "*shape"], counts: Float[np.ndarray, "*#shape"]
) -> Float[np.ndarray, "*shape"]:
    """Sums divided by counts; NaN where nothing was drawn (weights are whole numbers up to rounding)."""
    counts = np.broadcast_to(counts, sums.shape)
    return np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 1e-6)


@dataclass(frozen=True, eq=False)
class PairTable:
    """Pairs of different words, the smaller first, with sums over their pairs of positions, one row each (or per bin).

    A table without bins has all pairs in bin 0.
    """

    vocabulary: int
    codes: OfPairs
    """(bin · vocabulary + first) · vocabulary + second, increasing."""

    counts: Float[np.ndarray, " pair"]
    """How many pairs of positions there are; each direction of attention is one."""

    sums: Float[np.ndarray, " pair"]
    """Normalised attention, averaged over layers and heads, summed over positions."""

    @property
    def first(self) -> OfPairs:
        """The smaller word of each pair."""
        return self.codes // self.vocabulary % self.vocabulary

    @property
    def second(self) -> OfPairs:
        """The larger word of each pair."""
        return self.codes % self.vocabulary

    @property
    def bin(self) -> OfPairs:
        """The bin of distance that a row's pairs of positions are in."""
        return self.codes // self.vocabulary**2

    @classmethod
    def of(
        cls,
        first: OfPairs,
        second: OfPairs,
        directed: Float[np.ndarray, "direction pair"],
        vocabulary: int,
        bins: OfPairs | int = 0,
    ) -> "PairTable":
        """The table of pairs of positions, which may hold the same words."""
        codes = pair_codes(first, second, vocabulary) + np.multiply(bins, vocabulary**2)
        return cls._summed(vocabulary, codes, np.full(len(codes), float(len(directed))), directed.sum(axis=0))

    @classmethod
    def merged(cls, vocabulary: int, tables: Sequence["PairTable"]) -> "PairTable":
        """Sums over several tables of one vocabulary, in the order given."""
        names = ("codes", "counts", "sums")
        columns = [np.concatenate([getattr(each, name) for each in tables] or [np.zeros(0)]) for name in names]
        return cls._summed(vocabulary, columns[0].astype(np.int64), *columns[1:])

    @classmethod
    def _summed(cls, vocabulary: int, codes: Int[np.ndarray, " row"], *columns: np.ndarray) -> "PairTable":
        codes, (counts, sums) = summed_by(codes, *columns)
        return cls(vocabulary, codes, counts, sums)

    def over_bins(self) -> "PairTable":
        """Sums over all bins."""
        return self._summed(self.vocabulary, self.codes % self.vocabulary**2, self.counts, self.sums)

    def among(self, kept: Bool[np.ndarray, " word"]) -> "PairTable":
        """Pairs of kept words only."""
        chosen = kept[self.first] & kept[self.second]
        return PairTable(self.vocabulary, self.codes[chosen], self.counts[chosen], self.sums[chosen])

    def values(
        self, name: str, first: Int[np.ndarray, " wanted"], second: Int[np.ndarray, " wanted"]
    ) -> Float[np.ndarray, " wanted"]:
        """The counts or sums of these pairs, 0 for those that do not occur; for a table without bins."""
        codes = pair_codes(first, second, self.vocabulary)
        # A place behind the last has no code.
        place = np.searchsorted(self.codes, codes)
        return np.where(np.append(self.codes, -1)[place] == codes, np.append(getattr(self, name), 0.0)[place], 0.0)

    def matrices(self, labelling: Labelling) -> tuple[Float[np.ndarray, "kept kept"], Float[np.ndarray, "kept kept"]]:
        """Sums and counts as matrices over the words that a labelling keeps; for a table without bins."""
        among, number = self.among(labelling.kept), np.cumsum(labelling.kept) - 1
        first, second = number[among.first], number[among.second]
        matrices = np.zeros((2, labelling.words, labelling.words))
        for matrix, values in zip(matrices, (among.sums, among.counts), strict=True):
            matrix[first, second] = matrix[second, first] = values
        return matrices[0], matrices[1]


def summed_by(
    keys: Int[np.ndarray, " row"], *columns: Float[np.ndarray, "row *_"]
) -> tuple[Int[np.ndarray, " key"], list[Float[np.ndarray, "key *_"]]]:
    """The different keys, ascending, and the sums over the rows that have each, in the order of the rows."""
    unique, place = np.unique(keys, return_inverse=True)
    ones = sparse.csr_array((np.ones(len(place)), (place, np.arange(len(place)))), shape=(len(unique), len(place)))
    flat = (each.reshape(len(each), math.prod(each.shape[1:])) for each in columns)
    sums = [
        (ones.astype(each.dtype) @ rows).reshape(len(unique), *each.shape[1:])
        for each, rows in zip(columns, flat, strict=True)
    ]
    return unique, sums


def pair_codes(first: OfPairs, second: OfPairs, vocabulary: int) -> OfPairs:
    """A number for each pair of words in either order: the smaller · vocabulary + the larger."""
    return np.minimum(first, second).astype(np.int64) * vocabulary + np.maximum(first, second)


def count_pairs(
    words: Int[np.ndarray, " position"], offsets: Int[np.ndarray, " passage_plus_one"], vocabulary: int
) -> PairTable:
    """How many pairs of positions of one passage hold each two words, in both directions as attention has them.

    ``words`` are places in the vocabulary, −1 for other tokens.
    """
    tables: list[PairTable] = []
    for start, stop in pairwise(offsets.tolist()):
        present, number = np.unique(words[start:stop][words[start:stop] >= 0], return_counts=True)
        first, second = np.triu_indices(len(present), k=1)
        codes = present[first].astype(np.int64) * vocabulary + present[second]
        tables.append(PairTable(vocabulary, codes, 2.0 * number[first] * number[second], np.zeros(len(codes))))
        if len(tables) > MERGED:
            tables = [PairTable.merged(vocabulary, tables)]
    return PairTable.merged(vocabulary, tables)


def top_pairs(table: PairTable, number: int) -> OfPairs:
    """Places in the table of the pairs that co-occur most; ties by the words' places."""
    return np.argsort(-table.counts, kind="stable")[:number]


def compare_top_pairs(
    table: PairTable,
    labellings: Sequence[Labelling],
    vectors: Sequence[Sequence[Float[np.ndarray, "_ _"]]],
    *,
    number: int,
    replicates: int = 1_000,
    generator: np.random.Generator,
) -> list[TopPairs]:
    """Average attention and similarity of same-topic and of top co-occurring pairs, over the labellings of LDA seeds.

    Attention is averaged over pairs of positions, similarity (dot products) over pairs of words. Same-topic pairs have
    words that the labelling keeps; the ``number`` pairs that co-occur most may have any words of the table.
    ``vectors`` has, for each variant and labelling, a row per word.
    """
    drawn = generator.poisson(1.0, (replicates, table.vocabulary)).astype(np.float64)
    words = np.concatenate([np.ones((1, table.vocabulary)), drawn])
    seeds = SeedDraws.draw(len(labellings), replicates, generator=generator)
    places = top_pairs(table, number)
    top = table.first[places], table.second[places]
    # By labelling, column and replicate: a column for attention, then one for each variant's similarity.
    same, frequent = (
        np.stack(
            [
                _averages(table, pairs or labelling.same_topic_pairs, [each[seed] for each in vectors], words)
                for seed, labelling in enumerate(labellings)
            ],
            axis=1,
        )
        for pairs in (None, top)
    )
    attention, *similar = (
        contrast(seeds.average(one), seeds.average(other)) for one, other in zip(same, frequent, strict=True)
    )
    return [TopPairs(pairs=len(places), attention=attention, cosine=each) for each in similar]


def _averages(
    table: PairTable,
    pairs: Pairs,
    vectors: Sequence[Float[np.ndarray, "vocabulary _"]],
    words: Float[np.ndarray, "replicate vocabulary"],
) -> Float[np.ndarray, "column replicate"]:
    """Averages of attention first, then of each variant's similarity."""
    first, second = pairs
    # A pair that is in no passage adds nothing to attention, and does count for similarity.
    attention = [table.values(name, first, second) for name in ("sums", "counts")]
    similar = [np.einsum("pw,pw->p", each[first], each[second]).astype(np.float64) for each in vectors]
    columns = np.stack([attention[0], *similar, attention[1], np.ones(len(first))], axis=1)
    sums = pair_forms(words, first, second, columns)
    counts = np.concatenate([sums[:, -2:-1], np.repeat(sums[:, -1:], len(similar), axis=1)], axis=1)
    return form_average(sums[:, :-2], counts).T
