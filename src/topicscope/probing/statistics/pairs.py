"""Pairs of words: sums Σ w_i w_j v_ij under many weightings of the words, a table of the pairs that occur, and Table 2.

The table of pairs says how often two words are in one passage, and how much they attend to each other. It has one row
for each pair that occurs (and for each bin of distance, if it has bins), so its size is bounded by the vocabulary's
pairs for any corpus. Table 2 compares the pairs that are most often in one passage with pairs of one topic.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Float, Int

from topicscope.probing.statistics.labelling import Labelling
from topicscope.probing.statistics.resampling import SeedDraws, contrast
from topicscope.records import TopPairs

# Products of two words' weights held at once.
BLOCK = 1_000_000


def pair_forms(
    weights: Float[np.ndarray, "replicate word"],
    first: Int[np.ndarray, " pair"],
    second: Int[np.ndarray, " pair"],
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
    """Pairs of words, the smaller first, with sums over their pairs of positions; each is there once, or once per bin.

    A table without bins has all pairs in bin 0.
    """

    vocabulary: int
    codes: Int[np.ndarray, " pair"]
    """(bin · vocabulary + first) · vocabulary + second, increasing."""

    counts: Float[np.ndarray, " pair"]
    """How many pairs of positions there are; each direction of attention is one."""

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
        """The table of pairs of positions, which may hold the same words; by bins, if given."""
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
        # ``np.bincount`` of an empty array returns integers.
        summed = (np.bincount(place, each, len(unique)).astype(np.float64) for each in (counts, sums))
        return cls(vocabulary, unique, *summed)

    def over_bins(self) -> "PairTable":
        """Sums over all bins."""
        return self._summed(self.vocabulary, self.codes % self.vocabulary**2, self.counts, self.sums)

    def without_same_word(self) -> "PairTable":
        """Pairs of different words only."""
        return self.rows(self.first != self.second)

    def among(self, kept: Bool[np.ndarray, " word"]) -> "PairTable":
        """Pairs of kept words only."""
        return self.rows(kept[self.first] & kept[self.second])

    def rows(self, chosen: Bool[np.ndarray, " pair"]) -> "PairTable":
        """Some of its rows."""
        return PairTable(self.vocabulary, self.codes[chosen], self.counts[chosen], self.sums[chosen])

    def places(
        self, first: Int[np.ndarray, " wanted"], second: Int[np.ndarray, " wanted"]
    ) -> Int[np.ndarray, " wanted"]:
        """Where the pairs are in this table, −1 if they do not occur."""
        codes = np.minimum(first, second).astype(np.int64) * self.vocabulary + np.maximum(first, second)
        place = np.searchsorted(self.codes, codes)
        place = np.minimum(place, max(len(self.codes) - 1, 0))
        return np.where(self.codes[place] == codes, place, -1) if len(self.codes) else np.full(len(codes), -1)


def count_pairs(
    words: Int[np.ndarray, " position"], offsets: Int[np.ndarray, " passage_plus_one"], vocabulary: int
) -> PairTable:
    """How many pairs of positions of one passage hold each pair of words, in both directions as attention has them.

    ``words`` are places in the vocabulary, −1 for other tokens.
    """
    tables: list[PairTable] = []
    for start, stop in pairwise(offsets.tolist()):
        present, number = np.unique(words[start:stop][words[start:stop] >= 0], return_counts=True)
        first, second = np.triu_indices(len(present))
        # n_a n_b pairs of positions for two words, n(n − 1)/2 for a word with itself; each has two directions.
        pairs = np.where(first == second, number[first] * (number[first] - 1) / 2, number[first] * number[second])
        codes = present[first].astype(np.int64) * vocabulary + present[second]
        tables.append(PairTable(vocabulary, codes, 2 * pairs, np.zeros(len(codes))))
        if len(tables) > 512:
            tables = [PairTable.merged(tables)]
    table = PairTable.merged(tables) if tables else PairTable.empty(vocabulary)
    return table.rows(table.counts > 0)


def top_pairs(table: PairTable, number: int) -> Int[np.ndarray, " pair"]:
    """Places in the table of the pairs of different words that co-occur most; ties by the words' places."""
    places = np.flatnonzero(table.first != table.second)
    order = np.argsort(-table.counts[places], kind="stable")
    return places[order[:number]]


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
    top, same, frequent = top_pairs(table, number), [], []
    for place, labelling in enumerate(labellings):
        own = [variant[place] for variant in vectors]
        same.append(_averages(table, labelling.same_topic_pairs, own, words))
        frequent.append(_averages(table, (table.first[top], table.second[top]), own, words))
    # One column for attention, then one for each variant's similarity.
    attention, *similar = (
        contrast(*(seeds.average(np.stack([each[column] for each in side])) for side in (same, frequent)))
        for column in range(1 + len(vectors))
    )
    shared = [each.shares(table.first[top], table.second[top]) for each in labellings]
    same_topic = float(np.mean(shared)) if len(top) else None
    return [TopPairs(pairs=len(top), same_topic=same_topic, attention=attention, cosine=each) for each in similar]


def _averages(
    table: PairTable,
    pairs: tuple[Int[np.ndarray, " pair"], Int[np.ndarray, " pair"]],
    vectors: Sequence[Float[np.ndarray, "vocabulary _"]],
    words: Float[np.ndarray, "replicate vocabulary"],
) -> Float[np.ndarray, "column replicate"]:
    """Averages of attention first, then of each variant's similarity."""
    first, second = pairs
    places = table.places(first, second)
    # A pair that is in no passage has place −1: it adds nothing to attention, and does count for similarity.
    attention = [np.append(values, 0.0)[places] for values in (table.sums, table.counts)]
    similar = [np.einsum("pw,pw->p", each[first], each[second]).astype(np.float64) for each in vectors]
    columns = np.stack([attention[0], *similar, attention[1], np.ones(len(first))], axis=1)
    sums = pair_forms(words, first, second, columns)
    counts = np.concatenate([sums[:, -2:-1], np.repeat(sums[:, -1:], len(similar), axis=1)], axis=1)
    return form_average(sums[:, :-2], counts).T
