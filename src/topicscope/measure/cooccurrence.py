"""Co-occurrence: the pairs of words that are most often in one passage, against pairs of one topic (Table 2)."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Int

from topicscope.measure.labelling import Labelling
from topicscope.measure.matching import Strata, matched_averages
from topicscope.measure.pair_table import PairTable


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
    found = PairTable.merged(tables) if tables else PairTable.empty(vocabulary)
    some = found.counts > 0
    return PairTable(vocabulary, found.codes[some], found.counts[some], found.sums[some])


def top_pairs(table: PairTable, number: int) -> Int[np.ndarray, " pair"]:
    """Places in the table of the pairs of different words that co-occur most; ties by the words' places."""
    places = np.flatnonzero(table.first != table.second)
    order = np.argsort(-table.counts[places], kind="stable")
    return places[order[:number]]


@dataclass(frozen=True)
class TopPairs:
    """One row of Table 2: same-topic pairs, and as many pairs that co-occur most as one topic has."""

    pairs: int
    """How many top pairs: those of the largest topic, k(k − 1)/2."""

    attention_same: float
    attention_top: float
    similarity_same: float
    similarity_top: float


def compare_top_pairs(
    table: PairTable, labelling: Labelling, vectors: Float[np.ndarray, "word width"], *, number: int | None = None
) -> TopPairs:
    """Average attention and similarity (the vectors' dot products) of same-topic and of top co-occurring pairs.

    Attention is averaged over pairs of positions, similarity over pairs of words. Top pairs are taken from the whole
    vocabulary, which has no stop words.
    """
    size = int(labelling.membership.sum(axis=0).max())
    number = size * (size - 1) // 2 if number is None else number
    top = top_pairs(table, number)
    same = np.flatnonzero((table.first != table.second) & labelling.shares(table.first, table.second))
    first, second = labelling.same_topic_pairs
    return TopPairs(
        pairs=len(top),
        attention_same=_ratio(table.sums[same].sum(), table.counts[same].sum()),
        attention_top=_ratio(table.sums[top].sum(), table.counts[top].sum()),
        similarity_same=_similarity(vectors, first, second),
        similarity_top=_similarity(vectors, table.first[top], table.second[top]),
    )


@dataclass(frozen=True)
class MatchedSimilarity:
    """Similarity of same-topic pairs, and of different-topic pairs of the same co-occurrence and frequency."""

    same: float
    different: float
    share: float
    """Of the same-topic pairs, those that have a match."""


def matched_similarity(
    products: Float[np.ndarray, "word word"], labelling: Labelling, strata: Strata
) -> MatchedSimilarity:
    """Compare within strata, each weighted by its same-topic pairs; pairs that never co-occur are a stratum too."""
    first, second = np.triu_indices(len(products), k=1)
    usable = labelling.kept[first] & labelling.kept[second]
    first, second = first[usable], second[usable]
    same, stratum = labelling.shares(first, second), strata.stratum[first, second].astype(np.int64)
    values = products[first, second]
    groups = [(same, values), (same, np.ones(len(values))), (~same, values), (~same, np.ones(len(values)))]
    sums = [np.bincount(stratum[chosen], weights[chosen], strata.strata) for chosen, weights in groups]
    found = matched_averages(*(each[None] for each in sums))
    return MatchedSimilarity(float(found.same[0]), float(found.different[0]), float(found.share[0]))


def _similarity(
    vectors: Float[np.ndarray, "word width"], first: Int[np.ndarray, " pair"], second: Int[np.ndarray, " pair"]
) -> float:
    if not len(first):
        return np.nan
    return float(np.einsum("pw,pw->p", vectors[first], vectors[second]).mean())


def _ratio(top: float, bottom: float) -> float:
    return float(top / bottom) if bottom else np.nan
