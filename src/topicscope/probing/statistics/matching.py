"""Matched comparison: same-topic against different-topic pairs that are alike in everything else that we can count.

Topics are fitted to co-occurrence, so same-topic pairs co-occur more, and words that co-occur often attend to each
other at short range. Pairs are therefore put into cells of equal co-occurrence, frequency and distance, and compared
within cells: §8.2 asks whether anything of the topic effect is left then. The file has first the cells and the averages
over them, then averages with topics left out, for intervals.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Integer
from msgspec import structs
from scipy import special

from topicscope.measure.uncertainty import CONFIDENCE
from topicscope.probing.statistics.labelling import Labelling, OfPairs, Pairs, Replicates, topic_partners
from topicscope.probing.statistics.pairs import PairTable
from topicscope.probing.statistics.resampling import LEAST_WITH_PAIRS, contrast, extended, finite
from topicscope.records import MatchedComparison

# Upper ends of distance bins, in tokens.
DISTANCES = (2, 5, 12, 30)


@dataclass(frozen=True, eq=False)
class Strata:
    """Which pairs of words are alike in co-occurrence and in frequency, under one labelling or several."""

    pair_bins: Integer[np.ndarray, "word word"]
    """The bin of each pair's co-occurrence."""

    bins: int
    """How many there are."""

    level: Int[np.ndarray, "*labelling word"]
    """Each word's level of frequency, 0 to levels − 1; −1 for a word that the labelling leaves out."""

    levels: int = 1

    @property
    def cells(self) -> int:
        """Number of cells: bins × pairs of levels × bins of distance."""
        return self.bins * self._level_pairs * (len(DISTANCES) + 1)

    @property
    def _level_pairs(self) -> int:
        return self.levels * (self.levels + 1) // 2

    def under(self, labelling: int) -> "Strata":
        """The strata of one of several labellings."""
        return replace(self, level=self.level[labelling])

    def of(self, first: OfPairs, second: OfPairs) -> Int[np.ndarray, "*labelling pair"]:
        """The stratum of each pair of words: bins × the pairs of levels (0, 0), (0, 1), (1, 1), (0, 2) and so on."""
        one, other = self.level[..., first], self.level[..., second]
        rarer, commoner = np.minimum(one, other), np.maximum(one, other)
        bins = self.pair_bins[first, second].astype(np.int64)
        return bins * self._level_pairs + commoner * (commoner + 1) // 2 + rarer

    def cell_of(self, first: OfPairs, second: OfPairs, near: OfPairs) -> Int[np.ndarray, "*labelling pair"]:
        """The cell of each pair of positions, from their words and their bin of distance."""
        return self.of(first, second) * (len(DISTANCES) + 1) + near


def distance_bins(distance: OfPairs) -> OfPairs:
    """The bin of two positions' distance."""
    return np.searchsorted(DISTANCES, distance)


def quarter_doubling_bins(counts: Float[np.ndarray, "*shape"]) -> Int[np.ndarray, "*shape"]:
    """0 for nothing, then four bins per doubling: small counts have one each, larger ones in one differ by up to 19 %.

    There is no last bin for everything above: it would hold the pairs that topics have most of.
    """
    with np.errstate(divide="ignore"):
        return np.maximum(np.floor(4 * np.log2(counts)) + 1, 0).astype(np.int64)


def co_occurrence_bins(table: PairTable) -> tuple[Integer[np.ndarray, "word word"], int]:
    """The bin of each pair's co-occurrence by quarter doublings, and how many bins there are.

    Co-occurrence is the number of pairs of positions within passages; the table counts each in both directions.
    """
    # A count of 2^53 is in bin 213: a byte holds them all.
    pair_bins = np.zeros((table.vocabulary, table.vocabulary), dtype=np.uint8)
    # Bins that no pair is in have no number: cells are kept for each article and replicate.
    occupied, number = np.unique(quarter_doubling_bins(table.counts / 2), return_inverse=True)
    pair_bins[table.first, table.second] = pair_bins[table.second, table.first] = number + 1
    return pair_bins, len(occupied) + 1


class Matched(NamedTuple):
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


class PairsInCells:
    """Pairs of a labelling's different words, each in a cell: averages over matched pairs of any numbers they have."""

    def __init__(self, labelling: Labelling, pairs: Pairs, cell: OfPairs, counts: Float[np.ndarray, " pair"]) -> None:
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
        """The pairs of a table that has bins of distance; their words must be kept."""
        pairs = table.first, table.second
        return cls(labelling, pairs, strata.cell_of(*pairs, table.bin), table.counts)

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


def matched_attention(
    same: Replicates,
    different: Replicates,
    left_out: Sequence[Matched],
    labellings: Sequence[Labelling],
) -> MatchedComparison:
    """Matched attention; its intervals add the variances of replicates and of the jackknife over topics.

    Drawing articles alone asks what other text would show for these very words. Which words a topic has is chance too,
    so the interval adds the jackknife over topics, like that of matched similarity.

    same, different: averages over LDA seeds, the sample first and then its replicates (articles, LDA seeds).
    left_out: for each LDA seed's labelling, averages over all topics and with topics left out. A topic of the first
    seed is left out together with its partners in the others.
    The ratio's interval comes from its logarithm: log ratio ± 1.96 s. Replicates without pairs of both kinds are left
    out, as ``contrast`` counts them. There is no interval if fewer than half remain, or if a topic cannot be left out.
    """
    one, other = (
        _partners_left_out([getattr(each, side) for each in left_out], labellings) for side in ("same", "different")
    )
    there = np.isfinite(same) & np.isfinite(different)
    # The sample itself is not a replicate; if it has no number there is no interval.
    there[0] = True

    def interval(values: Replicates, left: Float[np.ndarray, " topic"]) -> Interval:
        values = values[there]
        # A variance takes two.
        if len(values) - 1 < max(LEAST_WITH_PAIRS * (len(same) - 1), 2) or not np.isfinite(values).all():
            return None, None
        return jackknife_interval(float(values[0]), left, more=float(values[1:].var(ddof=1)))

    compared = extended(contrast(same, different), MatchedComparison, share=_mean(left_out, "share"))
    low, high = interval(same - different, one - other)
    compared = structs.replace(compared, difference_low=low, difference_high=high)
    if compared.ratio is None:
        return compared
    with np.errstate(divide="ignore", invalid="ignore"):
        ends = interval(np.log(same) - np.log(different), np.log(one) - np.log(other))
    low, high = (None if end is None else float(np.exp(end)) for end in ends)
    return structs.replace(compared, low=low, high=high)


def matched_similarity(left_out: Sequence[Matched], labellings: Sequence[Labelling]) -> MatchedComparison:
    """Matched similarity, averaged over LDA seeds; arguments as above.

    The interval of the difference is by the jackknife, which leaves out each topic's words (None if a topic cannot be
    left out); the variance of the mean over LDA seeds is added to it.
    """
    differences = np.stack([each.same - each.different for each in left_out])
    seeds, difference = len(labellings), float(differences[:, 0].mean())
    between = float(differences[:, 0].var(ddof=1)) / seeds if seeds > 1 else 0.0
    low, high = jackknife_interval(difference, _partners_left_out(list(differences), labellings), more=between)
    return MatchedComparison(
        same=_mean(left_out, "same"),
        different=_mean(left_out, "different"),
        difference=finite(difference),
        difference_low=low,
        difference_high=high,
        share=_mean(left_out, "share"),
    )


def _mean(averages: Sequence[Matched], name: str) -> float | None:
    """The average over LDA seeds of a number over all topics."""
    return finite(np.mean([getattr(each, name)[0] for each in averages]))


def _partners_left_out(
    of_seeds: Sequence[Float[np.ndarray, " row"]], labellings: Sequence[Labelling]
) -> Float[np.ndarray, " topic"]:
    """Averages over LDA seeds with each topic of the first left out, together with its partners in the others.

    of_seeds: a number over all words, then one without the words of each topic.
    """
    first = labellings[0].membership
    present = np.flatnonzero(first.any(axis=0))
    partners = [np.argsort(topic_partners(first, each.membership)[0])[present] for each in labellings]
    return np.stack([row[1 + of] for row, of in zip(of_seeds, partners, strict=True)]).mean(axis=0)


Interval = tuple[float, float] | tuple[None, None]


def jackknife_interval(value: float, without: Float[np.ndarray, " group"], *, more: float = 0.0) -> Interval:
    r"""θ̂ ± 1.96 s with s² = (G − 1)/G Σ_g (θ̂_{(g)} − θ̄)², from the numbers with each group left out.

    ``more``: a variance of another source, added to s².
    """
    if len(without) < 2 or not np.isfinite([value, *without]).all():
        return None, None
    error = float(np.sqrt((len(without) - 1) * without.var() + more))
    half = float(special.ndtri((1 + CONFIDENCE) / 2)) * error
    return value - half, value + half
