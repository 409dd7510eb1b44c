"""Attention between the words of a corpus by what they have in common, one pass for many labellings.

For each passage, all pairs of positions whose words are in the vocabulary are taken once. Attention is normalised as in
the paper, × (document length) / 100, so that passages of different length can be averaged: uniform attention is 0.01,
or 0.01 n / (n + s) of n content and s special tokens. A causal query sees itself and what came before only, so its
length is the number of content tokens that it sees, and a pair counts once (the later word attends to the earlier)
instead of twice. The sums are kept by article, because
articles, not passages or pairs, are independent: the bootstrap draws articles.

Memory depends on the labellings and on the articles of one shard, not on the corpus.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from topicscope.measure.labelling import CLASSES, SAME_TOPIC, Labelling
from topicscope.measure.matching import Strata, cells_by_labelling
from topicscope.measure.pair_table import PairTable
from topicscope.measure.permuted_pairs import PermutedLabels, PermutedSums

# Attention is × length / 100: without special tokens, uniform attention has this value.
UNIFORM = 0.01
# Steps of the histogram that AUC is taken from: 16 for each doubling, from 1/64 to 16 times uniform attention.
STEPS_PER_DOUBLING, LOWEST_DOUBLING, HIGHEST_DOUBLING = 16, -6, 4
BINS = STEPS_PER_DOUBLING * (HIGHEST_DOUBLING - LOWEST_DOUBLING) + 2

# Pairs of positions that are held before they are summed under permutations.
WAITING = 4096


@dataclass(frozen=True, eq=False)
class PassagePairs:
    """The pairs of positions of one passage, the earlier position first."""

    earlier: Int[np.ndarray, " pair"]
    """Word at the earlier position."""

    later: Int[np.ndarray, " pair"]
    distance: Int[np.ndarray, " pair"]
    attention: Float[np.ndarray, "pair layer head"]
    """Normalised, summed over the directions that exist."""

    directed: Float[np.ndarray, "direction pair"]
    """Normalised attention of each direction, averaged over layers and heads; backward (to the earlier word) first."""

    @property
    def directions(self) -> int:
        """2; 1 for a causal model."""
        return len(self.directed)


def passage_pairs(
    attention: Sequence[Float[np.ndarray, "head query key"]],
    words: Int[np.ndarray, " position"],
    *,
    causal: bool = False,
    skip: int = 0,
) -> PassagePairs:
    """Pairs of one passage's content positions; ``words`` are places in the vocabulary, −1 for other tokens.

    ``attention`` is given layer by layer: all of it in one array would have to be copied there, and few pairs are used.
    The first ``skip`` positions are left out, as queries and as keys (a decoder's position 0 is an attention sink).
    """
    length = len(words)
    places = np.flatnonzero(words >= 0)
    places = places[places >= skip]
    early, late = np.triu_indices(len(places), k=1)
    early, late = places[early], places[late]
    backward = np.stack([layer[:, late, early] for layer in attention]).astype(np.float64)
    if causal:
        backward *= (late + 1) / 100
        directed, both = backward.mean(axis=(0, 1))[None], backward
    else:
        backward *= length / 100
        forward = np.stack([layer[:, early, late] for layer in attention]).astype(np.float64) * (length / 100)
        directed = np.stack([backward.mean(axis=(0, 1)), forward.mean(axis=(0, 1))])
        both = backward + forward
    return PassagePairs(words[early], words[late], late - early, np.moveaxis(both, -1, 0), directed)


@dataclass(frozen=True, eq=False)
class PairPlan:
    """What is summed in the pass: labellings of one vocabulary, some of them also with permuted words."""

    labellings: tuple[Labelling, ...]
    permuted: tuple[PermutedLabels, ...] = ()
    strata: tuple[Strata, ...] = ()
    """One a labelling, if given: sums are also kept by stratum and distance, for the matched comparison."""

    @property
    def vocabulary(self) -> int:
        """Number of words."""
        return len(self.labellings[0].membership)

    def bins(self, pairs: PassagePairs) -> Int[np.ndarray, " pair"] | None:
        """The strata's bins of distance; none without strata."""
        return np.searchsorted(self.strata[0].distances, pairs.distance) if self.strata else None


@dataclass(frozen=True, eq=False)
class ArticleSums:
    """Sums over the pairs of positions of each article; divide sums by counts for averages."""

    article: Int[np.ndarray, " article"]
    sums: Float[np.ndarray, "article labelling class layer head"]
    counts: Float[np.ndarray, "article labelling class"]
    histograms: Float[np.ndarray, "article labelling class bin"]
    """How many values of attention (averaged over layers and heads) are in each bin."""

    matched_sums: Float[np.ndarray, "article matched kind cell"]
    """By cell of the strata, of same- and then of different-topic pairs; for each labelling, or none."""

    matched_counts: Float[np.ndarray, "article matched kind cell"]


@dataclass(frozen=True, eq=False)
class ShardSums:
    """All that one shard of passages gives: by article, by pair of words, and by permutation."""

    articles: ArticleSums
    pairs: PairTable
    """By bin of distance, if there are strata."""

    permuted: tuple[PermutedSums, ...]


@dataclass(eq=False)
class _Article:
    sums: np.ndarray
    counts: np.ndarray
    histograms: np.ndarray
    matched_sums: np.ndarray
    matched_counts: np.ndarray


@dataclass(eq=False)
class PairAccumulator:
    """Takes passages one by one in a fixed order; ``result`` is what has been summed so far."""

    plan: PairPlan
    layers: int
    heads: int
    _articles: dict[int, _Article] = field(default_factory=dict)
    _tables: list[PairTable] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._waiting: list[tuple[np.ndarray, np.ndarray, np.ndarray, int]] = []
        self._permuted = [PermutedSums.empty(each, self.layers, self.heads) for each in self.plan.permuted]

    def add(self, pairs: PassagePairs, article: int) -> None:
        """Add one passage of an article."""
        found = self._articles.get(article)
        if found is None:
            found = self._articles[article] = self._empty()
        if not len(pairs.earlier):
            return
        classes = np.stack([each.classes(pairs.earlier, pairs.later) for each in self.plan.labellings])
        indicator = classes[:, None, :] == np.arange(len(CLASSES))[:, None]
        flat = pairs.attention.reshape(len(pairs.attention), self.layers * self.heads)
        rows = indicator.reshape(-1, indicator.shape[-1])
        found.sums += (rows.astype(np.float64) @ flat).reshape(found.sums.shape)
        found.counts += pairs.directions * indicator.sum(axis=-1)
        for direction in pairs.directed:
            found.histograms += _histograms(classes, histogram_bin(direction), BINS)
        if self.plan.strata:
            self._add_matched(found, pairs, classes)
        self._tables.append(
            PairTable.of(pairs.earlier, pairs.later, pairs.directed, self.plan.vocabulary, self.plan.bins(pairs))
        )
        if len(self._tables) > 256:
            self._tables = [PairTable.merged(self._tables)]
        if self.plan.permuted:
            self._waiting.append((pairs.earlier, pairs.later, flat, pairs.directions))
            if sum(len(each[0]) for each in self._waiting) > WAITING:
                self._add_permuted()

    def _add_permuted(self) -> None:
        """Add the waiting passages' pairs, many at once, to what the permutations give."""
        if not self._waiting:
            return
        earlier, later, flat, directions = zip(*self._waiting, strict=True)
        self._waiting = []
        for sums, labels in zip(self._permuted, self.plan.permuted, strict=True):
            sums.add(labels, np.concatenate(earlier), np.concatenate(later), np.concatenate(flat), directions[0])

    def result(self) -> ShardSums:
        """The sums by article, in the order of the articles' indices."""
        self._add_permuted()
        order = sorted(self._articles)
        gathered = [self._articles[article] for article in order]
        names = ("sums", "counts", "histograms", "matched_sums", "matched_counts")
        empty = self._empty()
        stacked = {
            name: np.array([getattr(each, name) for each in gathered]).reshape(len(order), *getattr(empty, name).shape)
            for name in names
        }
        table = PairTable.merged(self._tables) if self._tables else PairTable.empty(self.plan.vocabulary)
        return ShardSums(ArticleSums(np.array(order, dtype=np.int64), **stacked), table, tuple(self._permuted))

    def _add_matched(self, found: _Article, pairs: PassagePairs, classes: Int[np.ndarray, "labelling pair"]) -> None:
        strata = self.plan.strata
        cells = cells_by_labelling(strata, pairs.earlier, pairs.later, pairs.distance)
        labelling, pair = np.nonzero(classes >= SAME_TOPIC)
        kind = classes[labelling, pair] - SAME_TOPIC
        codes = (labelling * 2 + kind) * strata[0].size + cells[labelling, pair]
        size, shape = len(strata) * 2 * strata[0].size, found.matched_sums.shape
        found.matched_counts += pairs.directions * np.bincount(codes, minlength=size).reshape(shape)
        found.matched_sums += np.bincount(codes, pairs.directed.sum(axis=0)[pair], size).reshape(shape)

    def _empty(self) -> _Article:
        shape = (len(self.plan.labellings), len(CLASSES))
        matched = (len(self.plan.strata), 2, self.plan.strata[0].size if self.plan.strata else 0)
        return _Article(
            sums=np.zeros((*shape, self.layers, self.heads)),
            counts=np.zeros(shape),
            histograms=np.zeros((*shape, BINS)),
            matched_sums=np.zeros(matched),
            matched_counts=np.zeros(matched),
        )


def histogram_bin(values: Float[np.ndarray, " pair"]) -> Int[np.ndarray, " pair"]:
    """The bin of a normalised attention: equal steps of its logarithm, and one bin beyond each end."""
    with np.errstate(divide="ignore"):
        steps = np.floor(STEPS_PER_DOUBLING * (np.log2(values / UNIFORM) - LOWEST_DOUBLING))
    return (np.clip(steps, -1, BINS - 2) + 1).astype(np.int64)


def _histograms(
    classes: Int[np.ndarray, "labelling pair"], bins: Int[np.ndarray, " pair"], size: int
) -> Float[np.ndarray, "labelling class bin"]:
    """Counts of each labelling's pairs by class and bin."""
    labelling, pair = np.nonzero(classes >= 0)
    codes = (labelling * len(CLASSES) + classes[labelling, pair]) * size + bins[pair]
    counted = np.bincount(codes, minlength=len(classes) * len(CLASSES) * size)
    return counted.astype(np.float64).reshape(len(classes), len(CLASSES), size)
