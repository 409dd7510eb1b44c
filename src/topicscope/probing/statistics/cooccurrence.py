"""Co-occurrence: the pairs of words that are most often in one passage, against pairs of one topic (Table 2)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Int

from topicscope.probing.statistics.labelling import Labelling
from topicscope.probing.statistics.pairs import PairTable, form_average, pair_forms
from topicscope.probing.statistics.resampling import Contrast, SeedDraws, contrast


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
    """One row of Table 2: same-topic pairs, and the pairs of any words that co-occur most.

    In both contrasts ``different`` stands for the top pairs. Their intervals are over words (each counts a Poisson(1)
    number of times, a pair the product of its words'), for which words a topic or the list has is what may be chance,
    and over LDA seeds on top.
    """

    pairs: int
    """How many top pairs."""

    same_topic: float
    """The share of the top pairs that are same-topic pairs themselves, averaged over LDA seeds; NaN without a pair."""

    attention: Contrast
    cosine: Contrast


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

    Attention is averaged over pairs of positions, similarity (dot products) over pairs of words. Same-topic pairs are
    of the words that the labelling keeps, the ``number`` pairs that co-occur most of any words of the table.
    ``vectors``: of each variant, for each labelling, a row per word.
    """
    drawn = generator.poisson(1.0, (replicates, table.vocabulary)).astype(np.float64)
    words = np.concatenate([np.ones((1, table.vocabulary)), drawn])
    seeds = SeedDraws.draw(len(labellings), replicates, generator=generator)
    top, same, frequent = top_pairs(table, number), [], []
    for place, labelling in enumerate(labellings):
        mine = [variant[place] for variant in vectors]
        same.append(_averages(table, labelling.same_topic_pairs, mine, words))
        frequent.append(_averages(table, (table.first[top], table.second[top]), mine, words))
    # A column each: attention first, then each variant's similarity.
    attention, *similar = (
        contrast(*(seeds.average(np.stack([each[column] for each in side])) for side in (same, frequent)))
        for column in range(1 + len(vectors))
    )
    shared = [each.shares(table.first[top], table.second[top]) for each in labellings]
    same_topic = float(np.mean(shared)) if len(top) else np.nan
    return [TopPairs(len(top), same_topic, attention, each) for each in similar]


def _averages(
    table: PairTable,
    pairs: tuple[Int[np.ndarray, " pair"], Int[np.ndarray, " pair"]],
    vectors: Sequence[Float[np.ndarray, "vocabulary _"]],
    words: Float[np.ndarray, "replicate vocabulary"],
) -> Float[np.ndarray, "column replicate"]:
    """Of attention first, then of each variant's similarity."""
    first, second = pairs
    places = table.places(first, second)
    # A pair that is in no passage has place −1: it adds nothing to attention, and does count for similarity.
    attention = [np.append(values, 0.0)[places] for values in (table.sums, table.counts)]
    similar = [np.einsum("pw,pw->p", each[first], each[second]).astype(np.float64) for each in vectors]
    columns = np.stack([attention[0], *similar, attention[1], np.ones(len(first))], axis=1)
    sums = pair_forms(words, first, second, columns)
    counts = np.concatenate([sums[:, -2:-1], np.repeat(sums[:, -1:], len(similar), axis=1)], axis=1)
    return form_average(sums[:, :-2], counts).T
