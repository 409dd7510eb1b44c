"""Matched similarity: same- against different-topic pairs of words of equal co-occurrence and frequency (§8.2)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import special

from topicscope.measure.labelling import Labelling
from topicscope.measure.matching import Matched, Strata, matched_averages
from topicscope.measure.pair_table import PairTable
from topicscope.measure.topic_weights import topic_partners
from topicscope.measure.uncertainty import CONFIDENCE


@dataclass(frozen=True)
class MatchedSimilarity:
    """Similarity of same-topic pairs, and of different-topic pairs of the same co-occurrence and frequency."""

    same: float
    different: float
    difference: float
    difference_low: float | None
    difference_high: float | None
    """95 %, by the jackknife over topics: each topic's words left out in turn. None if a topic cannot be.

    The variance of the mean over LDA seeds is added to it.
    """

    share: float
    """Of the same-topic pairs, those that have a match."""


class MatchedWords:
    """All pairs of the words that a labelling keeps, by stratum: sorted once, for many matrices of similarities."""

    def __init__(self, labelling: Labelling, strata: Strata) -> None:
        """Over one vocabulary."""
        self._kept = labelling.among_kept
        strata = strata.among(labelling.kept)
        words, self._strata = len(self._kept.membership), strata.strata
        self._topics = self._kept.membership.shape[1]
        self._topic = self._kept.topic
        self._pairs = self._kept.same_topic_pairs
        self._same_stratum = strata.of(*self._pairs)
        # Topic of the row's word and stratum of the pair; same-topic pairs and the diagonal are put aside.
        stratum, diagonal = strata.matrix + self._topic[:, None] * self._strata, np.arange(words)
        aside = self._topics * self._strata
        stratum[self._pairs] = stratum[self._pairs[::-1]] = stratum[diagonal, diagonal] = aside
        self._codes = stratum.ravel()
        ones = np.bincount(self._codes, minlength=aside + 1).astype(np.float64)
        self._different_counts = self._without(ones[:-1].reshape(self._topics, -1))
        self._same_counts = self._same(np.ones(len(self._same_stratum)))

    def averages(self, similarity: Float[np.ndarray, "word word"]) -> Matched:
        """Over all words first, then with the words of each topic left out (the first topic, if words have several).

        ``similarity`` is symmetric, of the kept words alone.
        """
        touched = np.bincount(self._codes, similarity.ravel(), self._topics * self._strata + 1)
        different = self._without(touched[:-1].reshape(self._topics, -1))
        return matched_averages(
            self._same(similarity[self._pairs]), self._same_counts, different, self._different_counts
        )

    def _same(self, values: Float[np.ndarray, " pair"]) -> Float[np.ndarray, "row stratum"]:
        """Sums over same-topic pairs by stratum, of which those with a word in a topic are taken off in turn."""
        whole = np.bincount(self._same_stratum, values, self._strata)
        first, second = (self._topic[each] for each in self._pairs)
        apart = first != second
        size = self._topics * self._strata
        touched = np.bincount(first * self._strata + self._same_stratum, values, size)
        touched += np.bincount((second * self._strata + self._same_stratum)[apart], values[apart], size)
        return np.concatenate([whole[None], whole - touched.reshape(self._topics, -1)])

    def _without(self, touched: Float[np.ndarray, "topic stratum"]) -> Float[np.ndarray, "row stratum"]:
        """The same of different-topic pairs, each of which touches two topics."""
        whole = touched.sum(axis=0) / 2
        return np.concatenate([whole[None], whole - touched])


def matched_similarity(similarities: Sequence[Matched], labellings: Sequence[Labelling]) -> MatchedSimilarity:
    """The average over LDA seeds of what ``MatchedWords.averages`` gave for each.

    A topic of the first seed is left out together with its partners of the others.
    """
    first = labellings[0]
    partner = [np.argsort(topic_partners(first, each)) for each in labellings]
    differences = np.stack([each.same - each.different for each in similarities])
    present = np.flatnonzero(first.membership.any(axis=0))
    left_out = np.stack([row[1 + of[present]] for row, of in zip(differences, partner, strict=True)]).mean(axis=0)
    seeds = len(labellings)
    between = float(differences[:, 0].var(ddof=1)) / seeds if seeds > 1 else 0.0
    same, different, share = (
        float(np.mean([getattr(each, name)[0] for each in similarities])) for name in ("same", "different", "share")
    )
    low, high = jackknife_interval(float(differences[:, 0].mean()), left_out, more=between)
    return MatchedSimilarity(same, different, float(differences[:, 0].mean()), low, high, share)


@dataclass(frozen=True)
class Balance:
    """How often matched pairs co-occur: equal numbers mean that nothing of co-occurrence is left to compare."""

    same: float
    different: float

    @classmethod
    def mean(cls, found: Sequence["Balance"]) -> "Balance":
        """Over LDA seeds."""
        return cls(*(float(np.mean([getattr(each, name) for each in found])) for name in ("same", "different")))


def matched_word_co_occurrence(table: PairTable, labelling: Labelling, words: MatchedWords) -> Balance:
    """Average co-occurrence over matched pairs of words, as similarity is averaged."""
    counts = np.zeros((table.vocabulary, table.vocabulary))
    counts[table.first, table.second] = counts[table.second, table.first] = table.counts / 2
    found = words.averages(counts[np.ix_(labelling.kept, labelling.kept)])
    return Balance(float(found.same[0]), float(found.different[0]))


def matched_co_occurrence(table: PairTable, co_occurrence: PairTable, labelling: Labelling, strata: Strata) -> Balance:
    """Average co-occurrence of the words at two positions, over matched pairs of positions, as attention is averaged.

    table: how many pairs of positions there are of each pair of words and bin of distance.
    co_occurrence: how often two words co-occur; it counts each pair of positions in both directions.
    """
    table = table.without_same_word().among(labelling.kept)
    first, second, counts = table.first, table.second, table.counts
    # A pair that is not there has place −1, and co-occurs never.
    together = counts * np.append(co_occurrence.counts, 0.0)[co_occurrence.places(first, second)] / 2
    same, cell = labelling.shares(first, second), strata.cells_of_bins(first, second, table.bin)
    groups = [(same, together), (same, counts), (~same, together), (~same, counts)]
    sums = [np.bincount(cell[chosen], values[chosen], strata.size) for chosen, values in groups]
    # NumPy counts nothing in whole numbers.
    found = matched_averages(*(each[None].astype(np.float64) for each in sums))
    return Balance(float(found.same[0]), float(found.different[0]))


def jackknife_interval(
    value: float, without: Float[np.ndarray, " group"], *, more: float = 0.0
) -> tuple[float, float] | tuple[None, None]:
    r"""θ̂ ± 1.96 s with s² = (G − 1)/G Σ_g (θ̂_{(g)} − θ̄)², from the numbers with each group left out.

    ``more``: a variance of another source, added to s².
    """
    if len(without) < 2 or not np.isfinite([value, *without]).all():
        return None, None
    error = np.sqrt((len(without) - 1) * without.var() + more)
    half = float(special.ndtri((1 + CONFIDENCE) / 2)) * error
    return value - half, value + half
