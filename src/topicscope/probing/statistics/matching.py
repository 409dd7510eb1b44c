"""Matched comparison: same-topic against different-topic pairs that are alike in everything else that we can count.

Topics are fitted to co-occurrence, so same-topic pairs co-occur more, and words that co-occur often attend to each
other at short range. Pairs are therefore put into cells of equal co-occurrence, frequency and distance, and compared
within cells: §8.2 asks whether anything of the topic effect is left then. The file has first the cells and the averages
over them, then the permutation test of attention, then averages with topics left out, for intervals.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec
import numpy as np
from jaxtyping import Bool, Float, Int, Int32, Integer
from scipy import sparse, special

from topicscope.measure.uncertainty import CONFIDENCE
from topicscope.probing.statistics.labelling import Labelling, topic_partners
from topicscope.probing.statistics.pairs import PairTable
from topicscope.probing.statistics.permutation import (
    Block,
    Tested,
    blocks,
    exchanged_places,
    log_ratio,
    permutation_p,
)
from topicscope.probing.statistics.resampling import LEAST_WITH_PAIRS, finite
from topicscope.records import MatchedComparison, Sides

# Upper ends of distance bins, in tokens.
DISTANCES = (2, 5, 12, 30)


@dataclass(frozen=True, eq=False)
class Strata:
    """Which pairs of words are alike in co-occurrence and in frequency."""

    pair_bins: Integer[np.ndarray, "word word"]
    """The bin of each pair's co-occurrence."""

    bins: int
    """How many there are."""

    level: Int[np.ndarray, " word"]
    """Each word's level of frequency, 0 to levels − 1."""

    levels: int = 1

    @property
    def strata(self) -> int:
        """Number of strata: bins × pairs of levels."""
        return self.bins * self._level_pairs

    @property
    def cells(self) -> int:
        """Number of cells: strata × bins of distance."""
        return self.strata * (len(DISTANCES) + 1)

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

    def of(
        self,
        first: Int[np.ndarray, " pair"],
        second: Int[np.ndarray, " pair"],
        level: Int[np.ndarray, "*labelling word"] | None = None,
    ) -> Int[np.ndarray, "*labelling pair"]:
        """The stratum of each pair of words; under each of several labellings' levels, if these are given."""
        level = self.level if level is None else level
        bins = self.pair_bins[first, second].astype(np.int64) * self._level_pairs
        return bins + _pair_of_levels(level[..., first], level[..., second])


def cell_of(
    stratum: Int[np.ndarray, "*labelling pair"], distance_bin: Int[np.ndarray, " pair"]
) -> Int[np.ndarray, "*labelling pair"]:
    """The cell of each pair of positions."""
    return stratum * (len(DISTANCES) + 1) + distance_bin


def distance_bins(distance: Int[np.ndarray, " pair"]) -> Int[np.ndarray, " pair"]:
    """The bin of two positions' distance."""
    return np.searchsorted(DISTANCES, distance)


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
    occupied, number = np.unique(quarter_doubling_bins(table.counts / 2), return_inverse=True)
    pair_bins[table.first, table.second] = pair_bins[table.second, table.first] = number + 1
    return Strata(pair_bins, len(occupied) + 1, np.zeros(table.vocabulary, dtype=np.int64))


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
    looked_up = [
        (block, np.ascontiguousarray(cells.number[np.ix_(block.rows, block.columns)]).ravel())
        for block in blocks(stratum, *among.same_topic_pairs)
    ]
    drawn = exchanged_places(among, stratum, permutations, generator=generator)
    every, matched = np.concatenate([cells.log_ratios(looked_up, place) for _, place in drawn], axis=1)
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
        self._stratum, self._strata, self._bins = stratum[order], len(occupied), len(DISTANCES) + 1
        # A pair of words is in one stratum, and in any of the bins.
        values = np.zeros((len(codes), self._bins, 2))
        values[row[pair], different.bin] = np.stack([different.sums, different.counts], axis=1)
        self._values = values.reshape(len(codes), 2 * self._bins)
        # Over all of the pairs: sums and counts by cell.
        self._every = self._by_cell(self._stratum, np.arange(len(codes)), 1)

    def log_ratios(
        self,
        looked_up: Sequence[tuple[Block, Int32[np.ndarray, " _"]]],
        place: Int32[np.ndarray, "word permutation"],
    ) -> Float[np.ndarray, "two permutation"]:
        """Both log-ratios if the words that take the places of these pairs were the same-topic ones.

        Each block comes with its part of ``number``.
        """
        count = place.shape[1]
        rows, orders = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
        for block, number in looked_up:
            # One permutation after the other, so that its sums stay in a processor's cache.
            entries = number.take(block.entries(place)).T.ravel()
            occurs = np.flatnonzero(entries >= 0)
            rows.append(entries[occurs])
            orders.append(occurs // len(block.pairs))
        row, order = np.concatenate(rows), np.concatenate(orders)
        same = self._by_cell(order * self._strata + self._stratum[row], row, count)
        # Counts are whole numbers, so what is left of them is exact; where none is left, the sum is not used.
        matched = matched_averages(*same, *(self._every - same))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.log(matched.same) - np.log(matched.different)
        return np.stack([log_ratio(*same.sum(axis=-1), *self._every.sum(axis=-1)), ratios])

    def _by_cell(
        self, code: Int[np.ndarray, " pair"], row: Integer[np.ndarray, " pair"], drawn: int
    ) -> Float[np.ndarray, "two permutation cell"]:
        """Sums, then counts, over the pairs of words in these rows, added by permutation and stratum."""
        shape = (drawn * self._strata, len(self._values))
        sums = sparse.coo_array((np.ones(len(row)), (code, row)), shape=shape) @ self._values
        return np.ascontiguousarray(np.moveaxis(sums.reshape(drawn, self._strata * self._bins, 2), -1, 0))


class PairsInCells:
    """Pairs of a labelling's different words, each in a cell: averages over matched pairs of any numbers they have."""

    def __init__(
        self,
        labelling: Labelling,
        pairs: tuple[Int[np.ndarray, " pair"], Int[np.ndarray, " pair"]],
        cell: Int[np.ndarray, " pair"],
        counts: Float[np.ndarray, " pair"],
    ) -> None:
        """``counts`` says how many pairs of positions each stands for."""
        self._topics, self._cells = labelling.membership.shape[1], int(cell.max(initial=-1)) + 1
        same = labelling.shares(*pairs)
        self._sides = []
        for chosen in (np.flatnonzero(same), np.flatnonzero(~same)):
            one, other = (labelling.topic[each[chosen]] for each in pairs)
            apart, inside = np.flatnonzero(one != other), cell[chosen]
            touched = np.concatenate([one * self._cells + inside, (other * self._cells + inside)[apart]])
            self._sides.append((inside, touched, chosen, np.concatenate([chosen, chosen[apart]])))
        self._counts = self._leaving_out(counts)

    @classmethod
    def of_words(cls, labelling: Labelling, strata: Strata) -> "PairsInCells":
        """All pairs of the words that a labelling keeps, by stratum; their numbers come in the order of ``triu``."""
        kept = np.flatnonzero(labelling.kept)
        first, second = (kept[each] for each in np.triu_indices(len(kept), k=1))
        return cls(labelling, (first, second), strata.of(first, second), np.ones(len(first)))

    @classmethod
    def of_positions(cls, table: PairTable, labelling: Labelling, strata: Strata) -> "PairsInCells":
        """The pairs of a table that has bins of distance; they must be of different words that are kept."""
        pairs = table.first, table.second
        return cls(labelling, pairs, cell_of(strata.of(*pairs), table.bin), table.counts)

    def averages(self, sums: Float[np.ndarray, " pair"]) -> Matched:
        """Averages over all words first, then with the words of each topic left out (the first, if words have several).

        ``sums`` are over the pairs of positions that a pair stands for.
        """
        (same, different), (same_counts, different_counts) = self._leaving_out(sums), self._counts
        return matched_averages(same, same_counts, different, different_counts)

    def _leaving_out(self, values: Float[np.ndarray, " pair"]) -> list[Float[np.ndarray, "row cell"]]:
        """Sums by cell of same- and of different-topic pairs: over all, then without each topic's words in turn.

        Counts are whole numbers: an emptied cell is exactly 0, and has no part in the averages.
        """
        sums = []
        for inside, touched, chosen, twice in self._sides:
            whole = np.bincount(inside, values[chosen], self._cells)
            left = whole - np.bincount(touched, values[twice], self._topics * self._cells).reshape(self._topics, -1)
            # ``np.bincount`` of an empty array returns integers.
            sums.append(np.concatenate([whole[None], left]).astype(np.float64))
        return sums


def with_topics(
    compared: MatchedComparison,
    same: Float[np.ndarray, " replicate"],
    different: Float[np.ndarray, " replicate"],
    without: Sequence[Matched],
    labellings: Sequence[Labelling],
) -> MatchedComparison:
    """The comparison with intervals for three sources of uncertainty: variances of replicates and jackknife are added.

    Drawing articles alone asks what other text would show for these very words. Which words a topic has is chance too,
    so the interval adds the jackknife over topics, like that of matched similarity.

    same, different: averages over LDA seeds, the sample first and then its replicates (articles, LDA seeds).
    without: averages for each LDA seed's labelling, with topics left out. A topic of the first seed is left out
    together with its partners in the others.
    The ratio's interval comes from its logarithm: log ratio ± 1.96 s. Replicates without pairs of both kinds are left
    out, as ``contrast`` counts them. There is no interval if fewer than half remain, or if a topic cannot be left out.
    """
    left = [_left_out([getattr(each, side) for each in without], labellings) for side in ("same", "different")]
    there = np.isfinite(same) & np.isfinite(different)
    # The sample itself is not a replicate; if it has no number there is no interval.
    there[0] = True
    low, high = _interval((same - different)[there], left[0] - left[1], replicates=len(same) - 1)
    compared = msgspec.structs.replace(compared, difference_low=low, difference_high=high)
    if compared.ratio is None:
        return compared
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = (np.log(same) - np.log(different))[there]
        ends = _interval(logs, np.log(left[0]) - np.log(left[1]), replicates=len(same) - 1)
    low, high = (None if end is None else float(np.exp(end)) for end in ends)
    return msgspec.structs.replace(compared, low=low, high=high)


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


def matched_similarity(
    similarities: Sequence[Matched], labellings: Sequence[Labelling], balances: Sequence[Matched]
) -> MatchedComparison:
    """The average over LDA seeds of similarity, with topics left out, and how often matched pairs co-occur.

    The interval of the difference is by the jackknife, which leaves out each topic's words (None if a topic cannot be
    left out); the variance of the mean over LDA seeds is added to it.
    """
    differences = np.stack([each.same - each.different for each in similarities])
    seeds, difference = len(labellings), float(differences[:, 0].mean())
    between = float(differences[:, 0].var(ddof=1)) / seeds if seeds > 1 else 0.0
    low, high = jackknife_interval(difference, _left_out(list(differences), labellings), more=between)
    return MatchedComparison(
        **mean_of_seeds(similarities, "same", "different", "share"),
        difference=finite(difference),
        difference_low=low,
        difference_high=high,
        co_occurrence=Sides(**mean_of_seeds(balances, "same", "different")),
    )


def mean_of_seeds(averages: Sequence[Matched], *names: str) -> dict[str, Any]:
    """The averages over LDA seeds of the numbers over all pairs."""
    return {name: finite(np.mean([getattr(each, name)[0] for each in averages])) for name in names}


def jackknife_interval(
    value: float, without: Float[np.ndarray, " group"], *, more: float = 0.0
) -> tuple[float, float] | tuple[None, None]:
    r"""θ̂ ± 1.96 s with s² = (G − 1)/G Σ_g (θ̂_{(g)} − θ̄)², from the numbers with each group left out.

    ``more``: a variance of another source, added to s².
    """
    if len(without) < 2 or not np.isfinite([value, *without]).all():
        return None, None
    error = float(np.sqrt((len(without) - 1) * without.var() + more))
    half = float(special.ndtri((1 + CONFIDENCE) / 2)) * error
    return value - half, value + half
