"""Co-occurrence: the pairs of words that are most often in one passage, against pairs of one topic (Table 2)."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse, special

from topicscope.measure.contrast import Contrast, contrast
from topicscope.measure.labelling import Labelling
from topicscope.measure.matching import Strata, matched_averages
from topicscope.measure.pair_table import PairTable
from topicscope.measure.uncertainty import CONFIDENCE


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
    """One row of Table 2: same-topic pairs, and as many pairs that co-occur most as one topic has.

    In both contrasts ``different`` stands for the top pairs. Their intervals are over words (each counts a Poisson(1)
    number of times, a pair the product of its words'): which words a topic or the list has is what may be chance.
    """

    pairs: int
    """How many top pairs: those of the largest topic, k(k − 1)/2."""

    attention: Contrast
    cosine: Contrast


def compare_top_pairs(
    table: PairTable,
    labelling: Labelling,
    vectors: Float[np.ndarray, "word width"],
    *,
    replicates: int = 1_000,
    generator: np.random.Generator,
) -> TopPairs:
    """Average attention and similarity (the vectors' dot products) of same-topic and of top co-occurring pairs.

    Attention is averaged over pairs of positions, similarity over pairs of words. Top pairs are taken from the whole
    vocabulary, which has no stop words.
    """
    size = int(labelling.membership.sum(axis=0).max())
    top = top_pairs(table, size * (size - 1) // 2)
    occurring = np.flatnonzero((table.first != table.second) & labelling.shares(table.first, table.second))
    drawn = generator.poisson(1.0, (replicates, table.vocabulary)).astype(np.float64)
    words = np.concatenate([np.ones((1, table.vocabulary)), drawn])
    first, second = labelling.same_topic_pairs
    return TopPairs(
        pairs=len(top),
        attention=contrast(*(_attention(table, places, words) for places in (occurring, top))),
        cosine=contrast(
            _similarity(vectors, first, second, words), _similarity(vectors, table.first[top], table.second[top], words)
        ),
    )


def _attention(
    table: PairTable, places: Int[np.ndarray, " pair"], words: Float[np.ndarray, "replicate word"]
) -> Float[np.ndarray, " replicate"]:
    return weighted_average(table.sums[places], table.counts[places], table.first[places], table.second[places], words)


def _similarity(
    vectors: Float[np.ndarray, "word width"],
    first: Int[np.ndarray, " pair"],
    second: Int[np.ndarray, " pair"],
    words: Float[np.ndarray, "replicate word"],
) -> Float[np.ndarray, " replicate"]:
    values = np.einsum("pw,pw->p", vectors[first], vectors[second]).astype(np.float64)
    return weighted_average(values, np.ones(len(values)), first, second, words)


def weighted_average(
    sums: Float[np.ndarray, " pair"],
    counts: Float[np.ndarray, " pair"],
    first: Int[np.ndarray, " pair"],
    second: Int[np.ndarray, " pair"],
    words: Float[np.ndarray, "replicate word"],
) -> Float[np.ndarray, " replicate"]:
    """Σ w_i w_j s_ij / Σ w_i w_j n_ij over the pairs, by replicate; NaN where no pair was drawn."""
    shape = (words.shape[1], words.shape[1])
    totals = []
    for values in (sums, counts):
        pairs = sparse.csr_array((values, (first, second)), shape=shape)
        totals.append((np.asarray((pairs.T @ words.T).T) * words).sum(axis=1))
    return np.divide(totals[0], totals[1], out=np.full(len(words), np.nan), where=totals[1] > 0)


@dataclass(frozen=True)
class MatchedSimilarity:
    """Similarity of same-topic pairs, and of different-topic pairs of the same co-occurrence and frequency."""

    same: float
    different: float
    difference: float
    difference_low: float | None
    difference_high: float | None
    """95 %, by the jackknife over topics: each topic's words left out in turn. None if a topic cannot be."""

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
    # A row for all words, then one for each topic with the pairs of its words (the first topic, if several) left out.
    topics = np.unique(labelling.topic[labelling.kept])
    sums = []
    for chosen, weights in groups:
        ends = np.stack([labelling.topic[first[chosen]], labelling.topic[second[chosen]]])
        touched = _by_topic(ends, stratum[chosen], weights[chosen], strata.strata, labelling.membership.shape[1])
        whole = np.bincount(stratum[chosen], weights[chosen], strata.strata)
        sums.append(np.concatenate([whole[None], whole - touched[topics]]))
    sums[1], sums[3] = np.round(sums[1]), np.round(sums[3])
    found = matched_averages(*sums)
    difference = found.same - found.different
    low, high = jackknife_interval(float(difference[0]), difference[1:])
    return MatchedSimilarity(
        float(found.same[0]), float(found.different[0]), float(difference[0]), low, high, float(found.share[0])
    )


@dataclass(frozen=True)
class Balance:
    """How often matched pairs co-occur: equal numbers mean that nothing of co-occurrence is left to compare."""

    same: float
    different: float


def matched_word_co_occurrence(table: PairTable, labelling: Labelling, strata: Strata) -> Balance:
    """Average co-occurrence over matched pairs of words, as similarity is averaged."""
    counts = np.zeros((table.vocabulary, table.vocabulary))
    counts[table.first, table.second] = counts[table.second, table.first] = table.counts / 2
    found = matched_similarity(counts, labelling, strata)
    return Balance(found.same, found.different)


def matched_co_occurrence(table: PairTable, labelling: Labelling, strata: Strata) -> Balance:
    """Average co-occurrence of the words at two positions, over matched pairs of positions (whatever their distance).

    ``table`` counts each pair of positions in both directions.
    """
    usable = (table.first != table.second) & labelling.kept[table.first] & labelling.kept[table.second]
    first, second, counts = table.first[usable], table.second[usable], table.counts[usable] / 2
    same, stratum = labelling.shares(first, second), strata.stratum[first, second].astype(np.int64)
    groups = [(same, counts**2), (same, counts), (~same, counts**2), (~same, counts)]
    sums = [np.bincount(stratum[chosen], values[chosen], strata.strata) for chosen, values in groups]
    # NumPy counts nothing in whole numbers.
    found = matched_averages(*(each[None].astype(np.float64) for each in sums))
    return Balance(float(found.same[0]), float(found.different[0]))


def _by_topic(
    ends: Int[np.ndarray, "two pair"],
    stratum: Int[np.ndarray, " pair"],
    weights: Float[np.ndarray, " pair"],
    strata: int,
    topics: int,
) -> Float[np.ndarray, "topic stratum"]:
    """Sums by stratum over the pairs that touch each topic; a pair within one topic is counted once."""
    sums = sum(np.bincount(end * strata + stratum, weights, topics * strata) for end in ends)
    inside = ends[0] == ends[1]
    twice = np.bincount(ends[0, inside] * strata + stratum[inside], weights[inside], topics * strata)
    return (sums - twice).reshape(topics, strata)


def jackknife_interval(value: float, without: Float[np.ndarray, " group"]) -> tuple[float, float] | tuple[None, None]:
    r"""θ̂ ± 1.96 s with s² = (G − 1)/G Σ_g (θ̂_{(g)} − θ̄)², from the numbers with each group left out."""
    if len(without) < 2 or not np.isfinite([value, *without]).all():
        return None, None
    error = np.sqrt((len(without) - 1) * without.var())
    half = float(special.ndtri((1 + CONFIDENCE) / 2)) * error
    return value - half, value + half
