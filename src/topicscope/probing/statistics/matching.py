"""Matched comparison: same-topic against different-topic pairs that are alike in everything else that we can count.

Topics are fitted to co-occurrence, so same-topic pairs co-occur more, and words that co-occur often attend to each
other at short range. Pairs are therefore put into cells of equal co-occurrence, frequency and distance, and compared
within cells: §8.2 asks whether anything of the topic effect is left then. The file has first the cells and the averages
over them; then attention, with a permutation test and an interval; then similarity; then the balance of co-occurrence.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Int32, Integer
from scipy import sparse, special

from topicscope.measure.uncertainty import CONFIDENCE
from topicscope.probing.statistics.labelling import Labelling, topic_partners
from topicscope.probing.statistics.pairs import PairTable
from topicscope.probing.statistics.permutation import (
    DRAWN,
    ENTRIES_AT_ONCE,
    Exchange,
    PairBlock,
    Tested,
    log_ratio,
    permutation_p,
)
from topicscope.probing.statistics.resampling import LEAST_WITH_PAIRS, Contrast

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
    """Each word's level of frequency, 0 to levels − 1; None if that makes no difference."""

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
        """The strata of some of the words alone."""
        level = None if self.level is None else self.level[kept]
        return replace(self, pair_bins=self.pair_bins[np.ix_(kept, kept)], level=level)

    def of(self, first: Int[np.ndarray, "*#pairs"], second: Int[np.ndarray, "*#pairs"]) -> Int[np.ndarray, "*pairs"]:
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
    """0 for nothing, then four bins per doubling: small counts have one each, larger ones in one differ by up to 19 %.

    There is no last bin for everything above: it would hold the pairs that topics have most of.
    """
    with np.errstate(divide="ignore"):
        return np.maximum(np.floor(4 * np.log2(counts)) + 1, 0).astype(np.int64)


def co_occurrence_strata(table: PairTable) -> Strata:
    """Strata of similar co-occurrence, by quarter doublings.

    Co-occurrence is the number of pairs of positions within passages; the table counts each in both directions.
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

    same: Float[np.ndarray, "replicate *head"]
    different: Float[np.ndarray, "replicate *head"]
    share: Float[np.ndarray, "replicate *head"]
    """The share of same-topic pairs in cells that have different-topic pairs too."""


def matched_averages(
    same_sums: Float[np.ndarray, "replicate *head cell"],
    same_counts: Float[np.ndarray, "replicate *head cell"],
    different_sums: Float[np.ndarray, "replicate *head cell"],
    different_counts: Float[np.ndarray, "replicate *head cell"],
) -> Matched:
    r"""Standardised averages: different-topic pairs weighted so that their cells are those of the same-topic pairs.

    .. math:: \bar s = \frac{\sum_c n_c \bar s_c}{\sum_c n_c}, \qquad \bar d = \frac{\sum_c n_c \bar d_c}{\sum_c n_c}

    over the cells c that have both, where n_c is the number of same-topic pairs in c. NaN if there is no such cell.
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


class AttentionTests(NamedTuple):
    """The tests of two log-ratios of attention averaged over layers and heads, neither corrected."""

    every: Tested
    """Of the same-topic average over that of all other pairs of different words."""

    matched: float
    """Of the matched averages: its p-value, NaN if no cell has both kinds of pair."""


def attention_tests(
    table: PairTable,
    labelling: Labelling,
    word_stratum: Int[np.ndarray, " word"],
    strata: Strata,
    permutations: int,
    *,
    generator: np.random.Generator,
) -> AttentionTests:
    """Test both log-ratios, under the same permutations.

    Words of similar frequency exchange their topics. What two words' pairs of positions are matched on (their
    co-occurrence, frequency and distance) stays the same, so a permutation only moves same-topic pairs from cell to
    cell; all other pairs of a cell are different-topic pairs.

    table: sums by pair of words and bin of distance.
    word_stratum: each word's stratum of frequency, within which words exchange topics.
    strata: what pairs are matched on.
    """
    cells = _Cells(table, labelling, word_stratum, strata)
    # From here on only the kept words are numbered.
    among, stratum = labelling.among_kept, word_stratum[labelling.kept]
    exchange, (first, second) = Exchange(among, stratum), among.same_topic_pairs
    blocks = [(each, each.part(cells.number)) for each in exchange.blocks(first, second)]
    at_once = max(ENTRIES_AT_ONCE * len(blocks) // len(first), 1) if blocks else DRAWN
    found = [
        cells.log_ratios(blocks, places[:, start : start + at_once])
        for _, places in exchange.places(permutations, generator=generator)
        for start in range(0, places.shape[1], at_once)
    ]
    every, matched = np.concatenate(found, axis=1)
    return AttentionTests(
        Tested(permutation_p(float(every[0]), every[1:], size=1.0), float(every[0]), every[1:]),
        permutation_p(float(matched[0]), matched[1:], size=1.0),
    )


class _Cells:
    """Sums and counts of all pairs of different kept words that occur, by stratum and bin of distance."""

    def __init__(
        self, table: PairTable, labelling: Labelling, word_stratum: Int[np.ndarray, " word"], strata: Strata
    ) -> None:
        different = table.without_same_word().among(labelling.kept)
        codes, pair = np.unique(different.codes % table.vocabulary**2, return_inverse=True)
        first, second = np.divmod(codes, table.vocabulary)
        # Pairs that are looked up together, those of the same two strata of frequency, have neighbouring rows.
        ends = np.sort(word_stratum[[first, second]], axis=0)
        order = np.lexsort((ends[1], ends[0]))
        row = np.argsort(order)
        self.number = np.full((labelling.words, labelling.words), -1, dtype=np.int32)
        """The row of each pair of kept words in what follows; −1 if the pair does not occur."""
        kept = np.cumsum(labelling.kept) - 1
        self.number[kept[first], kept[second]] = self.number[kept[second], kept[first]] = row
        occupied, stratum = np.unique(strata.of(first, second), return_inverse=True)
        self._stratum, self._strata, self._bins = stratum[order], len(occupied), len(strata.distances) + 1
        # A pair of words is in one stratum, and in any of the bins.
        values = np.zeros((len(codes), self._bins, 2))
        values[row[pair], different.bin] = np.stack([different.sums, different.counts], axis=1)
        self._values = values.reshape(len(codes), 2 * self._bins)
        # Over all of the pairs: sums and counts by cell.
        self._every = self._by_cell(self._stratum, np.arange(len(codes)), 1)

    def log_ratios(
        self, blocks: Sequence[tuple[PairBlock, Int32[np.ndarray, " _"]]], places: Int32[np.ndarray, "word permutation"]
    ) -> Float[np.ndarray, "two permutation"]:
        """Both log-ratios if the words in these pairs' places were the same-topic ones.

        Each block comes with its part of ``number``.
        """
        drawn = places.shape[1]
        rows, orders = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
        for block, number in blocks:
            # One permutation after the other, so that its sums stay in a processor's cache.
            found = number.take(block.entries(places)).T.ravel()
            occurs = np.flatnonzero(found >= 0)
            rows.append(found[occurs])
            bounds = np.searchsorted(occurs, np.arange(drawn + 1) * len(block.first))
            orders.append(np.repeat(np.arange(drawn), np.diff(bounds)))
        row, order = np.concatenate(rows), np.concatenate(orders)
        same = self._by_cell(order * self._strata + self._stratum[row], row, drawn)
        # Counts are whole numbers, so what is left of them is exact; where none is left, the sum is not used.
        matched = matched_averages(*same, *(self._every - same))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.log(matched.same) - np.log(matched.different)
        return np.stack([log_ratio(*same.sum(axis=-1), *self._every.sum(axis=-1)), ratios])

    def _by_cell(
        self, code: Int[np.ndarray, " found"], row: Integer[np.ndarray, " found"], drawn: int
    ) -> Float[np.ndarray, "two permutation cell"]:
        """Sums, then counts, over the pairs of words in these rows, added by permutation and stratum."""
        shape = (drawn * self._strata, len(self._values))
        found = sparse.coo_array((np.ones(len(row)), (code, row)), shape=shape) @ self._values
        return np.ascontiguousarray(np.moveaxis(found.reshape(drawn, self._strata * self._bins, 2), -1, 0))


def matched_without_topics(table: PairTable, labelling: Labelling, strata: Strata) -> Matched:
    """Averages over all words first, then with the words of each topic left out (the first, if words have several).

    ``table`` has sums by pair of words and bin of distance.
    """
    pairs = table.without_same_word().among(labelling.kept)
    _, cell = np.unique(strata.cells_of_bins(pairs.first, pairs.second, pairs.bin), return_inverse=True)
    same, cells = labelling.shares(pairs.first, pairs.second), int(cell.max(initial=-1)) + 1
    # Counts are whole numbers: an emptied cell is exactly 0, and has no part in the averages.
    sides = [np.where(chosen, values, 0.0) for chosen in (same, ~same) for values in (pairs.sums, pairs.counts)]
    return matched_averages(*(_leaving_out(labelling, pairs.first, pairs.second, cell, cells, each) for each in sides))


def _leaving_out(
    labelling: Labelling,
    first: Int[np.ndarray, " pair"],
    second: Int[np.ndarray, " pair"],
    cell: Int[np.ndarray, " pair"],
    cells: int,
    values: Float[np.ndarray, " pair"],
) -> Float[np.ndarray, "row cell"]:
    """Sums over pairs by cell: over all pairs, then over those without a word of a topic, for each topic in turn."""
    one, other, topics = labelling.topic[first], labelling.topic[second], labelling.membership.shape[1]
    apart, whole = one != other, np.bincount(cell, values, cells)
    touched = np.bincount(one * cells + cell, values, topics * cells)
    touched += np.bincount((other * cells + cell)[apart], values[apart], topics * cells)
    # ``np.bincount`` of an empty array returns integers.
    return np.concatenate([whole[None], whole - touched.reshape(topics, cells)]).astype(np.float64)


def with_topics(
    found: Contrast,
    same: Float[np.ndarray, " replicate"],
    different: Float[np.ndarray, " replicate"],
    without: Sequence[Matched],
    labellings: Sequence[Labelling],
) -> Contrast:
    """The contrast with intervals for three sources of uncertainty: variances of replicates and jackknife are added.

    Drawing articles alone asks what other text would show for these very words. Which words a topic has is chance too,
    so the interval adds the jackknife over topics, like that of matched similarity.

    same, different: averages over LDA seeds, the sample first and then its replicates (articles, LDA seeds).
    without: for each LDA seed's labelling, the result of ``matched_without_topics``. A topic of the first seed is left
    out together with its partners in the others.
    The ratio's interval comes from its logarithm: log ratio ± 1.96 s. Replicates without pairs of both kinds are left
    out, as ``contrast`` counts them. There is no interval if fewer than half remain, or if a topic cannot be left out.
    """
    left = [_left_out([getattr(each, side) for each in without], labellings) for side in ("same", "different")]
    there = np.isfinite(same) & np.isfinite(different)
    # The sample itself is not a replicate; if it has no number there is no interval.
    there[0] = True
    low, high = _interval((same - different)[there], left[0] - left[1], replicates=len(same) - 1)
    found = replace(found, difference_low=low, difference_high=high)
    if found.ratio is None:
        return found
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = (np.log(same) - np.log(different))[there]
        low, high = _interval(logs, np.log(left[0]) - np.log(left[1]), replicates=len(same) - 1)
    if low is None or high is None:
        return replace(found, low=None, high=None)
    return replace(found, low=float(np.exp(low)), high=float(np.exp(high)))


def _left_out(
    of_seeds: Sequence[Float[np.ndarray, " row"]], labellings: Sequence[Labelling]
) -> Float[np.ndarray, " topic"]:
    """Averages over LDA seeds with each topic of the first left out, together with its partners in the others.

    of_seeds: a number over all words, then one without the words of each topic.
    """
    first = labellings[0]
    present = np.flatnonzero(first.membership.any(axis=0))
    partners = [np.argsort(topic_partners(first, each))[present] for each in labellings]
    return np.stack([row[1 + of] for row, of in zip(of_seeds, partners, strict=True)]).mean(axis=0)


def _interval(
    values: Float[np.ndarray, " there"], left_out: Float[np.ndarray, " topic"], *, replicates: int
) -> tuple[float, float] | tuple[None, None]:
    """The interval from the sample's number, those of its replicates that have one, and the jackknife's."""
    # A variance takes two.
    if len(values) - 1 < max(LEAST_WITH_PAIRS * replicates, 2) or not np.isfinite(values).all():
        return None, None
    return jackknife_interval(float(values[0]), left_out, more=float(values[1:].var(ddof=1)))


@dataclass(frozen=True)
class MatchedSimilarity:
    """Similarity of same-topic pairs, and of different-topic pairs of the same co-occurrence and frequency."""

    same: float
    different: float
    difference: float
    difference_low: float | None
    difference_high: float | None
    """A 95 % interval by the jackknife, which leaves out each topic's words; None if a topic cannot be left out.

    The variance of the mean over LDA seeds is added to it.
    """

    share: float
    """The share of same-topic pairs that have a match."""


class MatchedWords:
    """All pairs of the words that a labelling keeps, by stratum: sorted once, for many matrices of similarities."""

    def __init__(self, labelling: Labelling, strata: Strata) -> None:
        """The pairs of one labelling's words; both are over one vocabulary."""
        self._kept = labelling.among_kept
        strata = strata.among(labelling.kept)
        words, self._strata = np.arange(len(self._kept.membership)), strata.strata
        self._topics = self._kept.membership.shape[1]
        self._pairs = self._kept.same_topic_pairs
        self._same_stratum = strata.of(*self._pairs)
        # The topic of the row's word and the stratum of the pair; same-topic pairs and the diagonal are left out.
        stratum = strata.of(*np.ix_(words, words)) + self._kept.topic[:, None] * self._strata
        aside = self._topics * self._strata
        stratum[self._pairs] = stratum[self._pairs[::-1]] = stratum[words, words] = aside
        self._codes = stratum.ravel()
        ones = np.bincount(self._codes, minlength=aside + 1).astype(np.float64)
        self._different_counts = self._without(ones[:-1].reshape(self._topics, -1))
        self._same_counts = self._same(np.ones(len(self._same_stratum)))

    def averages(self, similarity: Float[np.ndarray, "word word"]) -> Matched:
        """Averages over all words first, then with the words of each topic left out (the first, if words have several).

        ``similarity`` is symmetric and has the kept words alone.
        """
        touched = np.bincount(self._codes, similarity.ravel(), self._topics * self._strata + 1)
        different = self._without(touched[:-1].reshape(self._topics, -1))
        return matched_averages(
            self._same(similarity[self._pairs]), self._same_counts, different, self._different_counts
        )

    def _same(self, values: Float[np.ndarray, " pair"]) -> Float[np.ndarray, "row stratum"]:
        return _leaving_out(self._kept, *self._pairs, self._same_stratum, self._strata, values)

    def _without(self, touched: Float[np.ndarray, "topic stratum"]) -> Float[np.ndarray, "row stratum"]:
        """Like ``_leaving_out`` for different-topic pairs, each of which touches two topics."""
        whole = touched.sum(axis=0) / 2
        return np.concatenate([whole[None], whole - touched])


def matched_similarity(similarities: Sequence[Matched], labellings: Sequence[Labelling]) -> MatchedSimilarity:
    """The average over LDA seeds of what ``MatchedWords.averages`` returned for each."""
    differences = np.stack([each.same - each.different for each in similarities])
    seeds, difference = len(labellings), float(differences[:, 0].mean())
    between = float(differences[:, 0].var(ddof=1)) / seeds if seeds > 1 else 0.0
    low, high = jackknife_interval(difference, _left_out(list(differences), labellings), more=between)
    found = mean_of_seeds(similarities, "same", "different", "share")
    return MatchedSimilarity(difference=difference, difference_low=low, difference_high=high, **found)


def mean_of_seeds(found: Sequence[Matched], *names: str) -> dict[str, float]:
    """The averages over LDA seeds of the numbers over all pairs.

    For co-occurrence, they say how often matched pairs co-occur; equal numbers mean that no difference is left.
    """
    return {name: float(np.mean([getattr(each, name)[0] for each in found])) for name in names}


def matched_word_co_occurrence(table: PairTable, labelling: Labelling, words: MatchedWords) -> Matched:
    """Average co-occurrence over matched pairs of words, as similarity is averaged."""
    pairs, number = table.among(labelling.kept), np.cumsum(labelling.kept) - 1
    first, second = number[pairs.first], number[pairs.second]
    counts = np.zeros((labelling.words, labelling.words))
    counts[first, second] = counts[second, first] = pairs.counts / 2
    return words.averages(counts)


def matched_co_occurrence(table: PairTable, co_occurrence: PairTable, labelling: Labelling, strata: Strata) -> Matched:
    """Average co-occurrence of the words at two positions, over matched pairs of positions, as attention is averaged.

    table: how many pairs of positions there are of each pair of words and bin of distance.
    co_occurrence: how often two words co-occur; it counts each pair of positions in both directions.
    """
    table = table.without_same_word().among(labelling.kept)
    first, second, counts = table.first, table.second, table.counts
    # A pair that is not in the table has place −1, and never co-occurs.
    together = counts * np.append(co_occurrence.counts, 0.0)[co_occurrence.places(first, second)] / 2
    same, cell = labelling.shares(first, second), strata.cells_of_bins(first, second, table.bin)
    groups = [(same, together), (same, counts), (~same, together), (~same, counts)]
    sums = [np.bincount(cell[chosen], values[chosen], strata.size) for chosen, values in groups]
    # ``np.bincount`` of an empty array returns integers.
    return matched_averages(*(each[None].astype(np.float64) for each in sums))


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
