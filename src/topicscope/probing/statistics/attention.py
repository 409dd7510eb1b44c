"""Attention between the words of a corpus by what they have in common, one pass for many labellings.

For each passage, all pairs of positions whose words are in the vocabulary are taken once. Attention is normalised as in
the paper, × (document length) / 100, so that passages of different length can be averaged: uniform attention is 0.01,
or 0.01 n / (n + s) for n content and s special tokens. A causal query sees only itself and what came before, so its
length is the number of content tokens that it sees, and a pair counts once (the later word attends to the earlier)
instead of twice.

Sums are kept by article, because articles, not passages or pairs, are independent: the bootstrap draws articles. The
same pass also sums every head over same-topic pairs under permuted words, for its test. Memory depends on the
labellings and on the articles of one shard, not on the corpus.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Int32, Integer
from scipy import sparse

from topicscope.probing.statistics.hidden import HiddenSums
from topicscope.probing.statistics.labelling import CLASSES, DIFFERENT_TOPIC, SAME_TOPIC, Classes, Labelling
from topicscope.probing.statistics.matching import DISTANCES, Matched, Strata, cell_of, distance_bins, matched_averages
from topicscope.probing.statistics.pairs import PairTable
from topicscope.probing.statistics.permutation import false_discovery_rates, log_ratio, maximum_p, permutation_p
from topicscope.probing.statistics.resampling import auc_of_histograms, poisson_weights

# Attention is × length / 100: without special tokens, uniform attention has this value.
UNIFORM = 0.01
# Steps of the histogram behind AUC: 16 for each doubling, from 1/64 to 16 times uniform attention.
STEPS_PER_DOUBLING, LOWEST_DOUBLING, HIGHEST_DOUBLING = 16, -6, 4
BINS = STEPS_PER_DOUBLING * (HIGHEST_DOUBLING - LOWEST_DOUBLING) + 2
# What is summed by article.
SUMS = ("sums", "counts", "histograms", "matched_sums", "matched_counts", "distance_sums", "distance_counts")
# How many of the pairs of words that a head connects most are kept as examples.
EXAMPLES = 5
# Passages whose candidates for examples are held before the best are chosen.
MOST_CANDIDATES = 64
# Numbers that are held before they are summed under permutations (32 MB), and pairs of words that are compared at once.
WAITING, PERMUTED_BLOCK = 1 << 22, 512
# Up to so many words, a table of all their pairs is kept; with more words it would be larger than everything else. Its
# places would fit into 32 bits up to 46,340 words.
LOOKED_UP = 20_000
# Shards' tables of pairs, and sums of hidden states, that are held before they are put together.
MERGED, MERGED_STATES = 8, 4
# Articles whose sums are held before they are weighted: all replicates of a sum are then written once for all of them.
WEIGHTED = 128


@dataclass(frozen=True, eq=False)
class PassagePairs:
    """The pairs of positions of one passage, the earlier position first."""

    earlier: Int[np.ndarray, " pair"]
    """The word at the earlier position."""

    later: Int[np.ndarray, " pair"]
    distance: Int[np.ndarray, " pair"]
    attention: Float[np.ndarray, "pair layer head"]
    """Normalised attention, summed over the directions that exist."""

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

    ``attention`` comes layer by layer: one array would need a copy of all of it, and few pairs are used.
    The first ``skip`` positions are left out, as queries and as keys (a decoder's position 0 is an attention sink).
    """
    length = len(words)
    places = np.flatnonzero(words >= 0)
    places = places[places >= skip]
    early, late = np.triu_indices(len(places), k=1)
    early, late = places[early], places[late]
    ways = [(late, early)] if causal else [(late, early), (early, late)]
    values = np.empty((len(ways), len(attention), len(attention[0]), len(early)))
    for way, (query, key) in enumerate(ways):
        for number, layer in enumerate(attention):
            values[way, number] = layer[:, query, key]
    values *= (late + 1) / 100 if causal else length / 100
    both = np.moveaxis(values.sum(axis=0), -1, 0)
    return PassagePairs(words[early], words[late], late - early, both, values.mean(axis=(1, 2)))


@dataclass(frozen=True, eq=False)
class PermutedLabels:
    """A labelling and permutations of its words: word i takes the topics of word ``order[permutation, i]``.

    A permutation gives each kept word the topics of another kept word. The kept words stay the same, so the sum over
    all pairs of different words does not change and only the same-topic sums are needed.
    """

    labelling: Labelling
    order: Int[np.ndarray, "permutation word"]

    @cached_property
    def _topics(self) -> Integer[np.ndarray, "word permutation"]:
        """The topic that each word takes, if words have one each.

        A row per word, so that all permutations of a pair are compared in two contiguous reads.
        """
        label = self.labelling.topic.astype(np.uint8 if self.labelling.membership.shape[1] < 255 else np.int32)
        return np.ascontiguousarray(label[self.order].T)

    @cached_property
    def _words(self) -> Int32[np.ndarray, "word permutation"]:
        """The word whose topics each word takes, numbered among those that are kept."""
        number = (np.cumsum(self.labelling.kept) - 1).astype(np.int32)
        return np.ascontiguousarray(number[self.order].T)

    @cached_property
    def _related(self) -> Bool[np.ndarray, " word_pair"]:
        """Whether two words share a topic, for all pairs of kept words by their numbers."""
        member = self.labelling.membership[self.labelling.kept].astype(np.float32)
        return (member @ member.T > 0).ravel()

    def same_topic(
        self, first: Int[np.ndarray, " pair"], second: Int[np.ndarray, " pair"]
    ) -> tuple[Int[np.ndarray, " match"], Int[np.ndarray, " match"]]:
        """Which pairs of kept words have a topic in common, and under which permutations: places of both."""
        words, count = self.labelling.words, len(self.order)
        if self.labelling.single:
            shared = self._topics[first] == self._topics[second]
        elif words > LOOKED_UP:
            shared = self.labelling.shares(self.order[:, first].T, self.order[:, second].T)
        else:
            codes = self._words[first]
            codes *= np.int32(words)
            codes += self._words[second]
            # All codes are in the table; with this mode they are not looked at twice.
            shared = self._related.take(codes, mode="wrap")
        where = np.flatnonzero(shared)
        # Dividing by one number is quicker than divmod.
        pair = where // count
        return pair, where - pair * count


class PermutedSums(NamedTuple):
    """Same-topic sums under each permutation."""

    sums: Float[np.ndarray, "permutation layer head"]
    counts: Float[np.ndarray, " permutation"]


@dataclass(frozen=True, eq=False)
class ShardSums:
    """Everything measured on one shard of passages: by article, by pair of words, by permutation, and what sinks.

    The sums by article are over pairs of positions; divide them by the counts for averages.
    """

    article: Int[np.ndarray, " article"]
    sums: Float[np.ndarray, "article labelling class layer head"]
    counts: Float[np.ndarray, "article labelling class"]
    histograms: Float[np.ndarray, "article labelling class bin"]
    """How many values of attention (averaged over layers and heads) are in each bin."""

    matched_sums: Float[np.ndarray, "article matched kind cell"]
    """Sums by cell of the strata, of same- and then of different-topic pairs; for each labelling, or for none."""

    matched_counts: Float[np.ndarray, "article matched kind cell"]
    distance_sums: Float[np.ndarray, "article tested kind distance layer head"]
    """Sums by bin of distance, of same- and then of different-topic pairs; for the labellings that are tested."""

    distance_counts: Float[np.ndarray, "article tested kind distance"]
    examples: Float[np.ndarray, "layer head example three"]
    """Same-topic pairs that a head connects most, each in one passage: attention and two words; NaN for none."""

    pairs: PairTable
    """The table of pairs, by bin of distance if there are strata."""

    permuted: tuple[PermutedSums, ...]
    sunk: Float[np.ndarray, "layer head"]
    """For a causal model, the sum over queries of their attention to positions that are not measured."""

    queries: int
    """How many queries that sum is over; 0 for a model that is not causal."""

    hidden: HiddenSums | None = None


class PairAccumulator:
    """Sums passages one by one in a fixed order; ``result`` has the sums so far.

    permuted: some of the labellings with permuted words, for the test over heads.
    strata: one for each labelling, if given: sums are also kept by stratum and distance, for the matched comparison.
    """

    def __init__(
        self,
        labellings: Sequence[Labelling],
        layers: int,
        heads: int,
        *,
        permuted: Sequence[PermutedLabels] = (),
        strata: Sequence[Strata] = (),
    ) -> None:
        """All labellings are over one vocabulary."""
        self.labellings, self.permuted, self.strata = labellings, permuted, strata
        self.sunk, self.queries = np.zeros((layers, heads)), 0
        self._vocabulary, self._classes = len(labellings[0].membership), Classes(labellings)
        self._levels = np.stack([each.level for each in strata]) if strata else None
        by_class, cells = (len(labellings), len(CLASSES)), strata[0].cells if strata else 0
        self._shapes = {
            "sums": (*by_class, layers, heads),
            "counts": by_class,
            "histograms": (*by_class, BINS),
            "matched_sums": (len(strata), 2, cells),
            "matched_counts": (len(strata), 2, cells),
            "distance_sums": (len(permuted), 2, len(DISTANCES) + 1, layers, heads),
            "distance_counts": (len(permuted), 2, len(DISTANCES) + 1),
        }
        self._tested = [[each is one.labelling for each in labellings].index(True) for one in permuted]
        # Examples come from the labelling with the most words.
        self._widest = max(self._tested, key=lambda place: labellings[place].words, default=None)
        self._examples = [np.full((EXAMPLES, layers * heads, 3), np.nan)]
        self._articles: dict[int, dict[str, np.ndarray]] = {}
        self._tables: list[PairTable] = []
        # Which words some permuted labelling keeps: pairs of others need not wait.
        self._permutable = np.any(
            [np.zeros(self._vocabulary, dtype=bool), *(one.labelling.kept for one in permuted)], axis=0
        )
        self._waiting: list[tuple[np.ndarray, np.ndarray, int]] = []
        self._held = 0
        self._permuted = tuple(
            PermutedSums(np.zeros((len(each.order), layers, heads)), np.zeros(len(each.order))) for each in permuted
        )

    def add(self, pairs: PassagePairs, article: int) -> None:
        """Add one passage of an article."""
        if article not in self._articles:
            self._articles[article] = {name: np.zeros(shape) for name, shape in self._shapes.items()}
        if not len(pairs.earlier):
            return
        sums = self._articles[article]
        classes = self._classes.of(pairs.earlier, pairs.later)
        indicator = classes[:, None, :] == np.arange(len(CLASSES))[:, None]
        flat = pairs.attention.reshape(len(pairs.attention), self.sunk.size)
        rows = indicator.reshape(-1, indicator.shape[-1])
        sums["sums"] += (rows.astype(np.float64) @ flat).reshape(self._shapes["sums"])
        sums["counts"] += pairs.directions * indicator.sum(axis=-1)
        for direction in pairs.directed:
            sums["histograms"] += _histograms(classes, histogram_bin(direction), BINS)
        bins = distance_bins(pairs.distance)
        self._add_by_distance(sums, pairs, classes[self._tested], flat, bins)
        self._add_example(pairs, classes, flat)
        if self.strata:
            self._add_matched(sums, pairs, classes, bins)
        by_bin = bins if self.strata else None
        self._tables.append(PairTable.of(pairs.earlier, pairs.later, pairs.directed, self._vocabulary, by_bin))
        if len(self._tables) > 256:
            self._tables = [PairTable.merged(self._tables)]
        if self.permuted:
            first, second = np.minimum(pairs.earlier, pairs.later), np.maximum(pairs.earlier, pairs.later)
            usable = np.flatnonzero(self._permutable[first] & self._permutable[second] & (first != second))
            codes = first[usable] * np.int64(self._vocabulary) + second[usable]
            self._waiting.append((codes, np.ascontiguousarray(flat[usable]), pairs.directions))
            self._held += len(usable) * flat.shape[1]
            if self._held > WAITING:
                self._add_permuted()

    def result(self) -> ShardSums:
        """The sums by article, in the order of the articles' indices."""
        self._add_permuted()
        order = sorted(self._articles)
        stacked: dict[str, Any] = {
            name: np.array([self._articles[article][name] for article in order]).reshape(len(order), *shape)
            for name, shape in self._shapes.items()
        }
        examples = best_examples(np.concatenate(self._examples))
        return ShardSums(
            np.array(order, dtype=np.int64),
            **stacked,
            examples=np.moveaxis(examples, 0, 1).reshape(*self.sunk.shape, EXAMPLES, 3),
            pairs=PairTable.merged(self._tables) if self._tables else PairTable.empty(self._vocabulary),
            permuted=self._permuted,
            sunk=self.sunk,
            queries=self.queries,
        )

    def _add_permuted(self) -> None:
        """Add the waiting passages' pairs, many at once, to the sums under permutations."""
        if not self._waiting:
            return
        directions = self._waiting[0][2]
        codes, attention = (np.concatenate([each[part] for each in self._waiting]) for part in range(2))
        self._waiting, self._held = [], 0
        # Many pairs of positions hold the same two words: these are summed first.
        order, ends, codes = grouped(codes)
        gather = sparse.csr_array((np.ones(len(order)), order, ends), shape=(len(codes), len(order)))
        attention, number = gather @ attention, directions * np.diff(ends)
        first, second = np.divmod(codes, self._vocabulary)
        for (sums, counts), labels in zip(self._permuted, self.permuted, strict=True):
            kept = labels.labelling.kept
            usable = np.flatnonzero(kept[first] & kept[second])
            for start in range(0, len(usable), PERMUTED_BLOCK):
                chosen = usable[start : start + PERMUTED_BLOCK]
                # Few pairs share a topic: all that follows is done on those alone.
                pair, permutation = labels.same_topic(first[chosen], second[chosen])
                counts[:] += np.bincount(permutation, number[chosen[pair]], minlength=len(counts))
                ends = np.concatenate([[0], np.cumsum(np.bincount(pair, minlength=len(chosen)))])
                matrix = sparse.csr_array((np.ones(len(pair)), permutation, ends), shape=(len(chosen), len(counts)))
                sums[:] += (matrix.T @ attention[chosen]).reshape(sums.shape)

    def _add_by_distance(
        self,
        sums: dict[str, np.ndarray],
        pairs: PassagePairs,
        classes: Int[np.ndarray, "tested pair"],
        flat: Float[np.ndarray, "pair column"],
        bins: Int[np.ndarray, " pair"],
    ) -> None:
        number = len(DISTANCES) + 1
        code = np.where(classes >= SAME_TOPIC, (classes - SAME_TOPIC) * number + bins, -1)
        cells = (code[:, None] == np.arange(2 * number)[:, None]).astype(np.float64)
        sums["distance_sums"] += (cells @ flat).reshape(self._shapes["distance_sums"])
        sums["distance_counts"] += pairs.directions * cells.sum(axis=-1).reshape(self._shapes["distance_counts"])

    def _add_example(
        self, pairs: PassagePairs, classes: Int[np.ndarray, "labelling pair"], flat: Float[np.ndarray, "pair column"]
    ) -> None:
        """Add the same-topic pair that each head connects most."""
        if self._widest is None or not len(same := np.flatnonzero(classes[self._widest] == SAME_TOPIC)):
            return
        best = same[flat[same].argmax(axis=0)]
        value = flat[best, np.arange(flat.shape[1])] / pairs.directions
        words = np.sort(np.stack([pairs.earlier[best], pairs.later[best]]), axis=0)
        self._examples.append(np.stack([value, *words.astype(np.float64)], axis=1)[None])
        if len(self._examples) > MOST_CANDIDATES:
            self._examples = [best_examples(np.concatenate(self._examples))]

    def _add_matched(
        self,
        sums: dict[str, np.ndarray],
        pairs: PassagePairs,
        classes: Int[np.ndarray, "labelling pair"],
        bins: Int[np.ndarray, " pair"],
    ) -> None:
        # Strata of several labellings differ in their words' levels alone.
        cells = cell_of(self.strata[0].of(pairs.earlier, pairs.later, self._levels), bins)
        labelling, pair = np.nonzero(classes >= SAME_TOPIC)
        kind = classes[labelling, pair] - SAME_TOPIC
        # Few of the cells are met in one passage.
        codes = (labelling * 2 + kind) * self.strata[0].cells + cells[labelling, pair]
        np.add.at(sums["matched_counts"].reshape(-1), codes, pairs.directions)
        np.add.at(sums["matched_sums"].reshape(-1), codes, pairs.directed.sum(axis=0)[pair])


def grouped(
    codes: Int[np.ndarray, " pair"],
) -> tuple[Int[np.ndarray, " pair"], Int[np.ndarray, " bound"], Int[np.ndarray, " code"]]:
    """An order in which equal codes stand together, where each group begins and the last one ends, and their codes."""
    order = np.argsort(codes, kind="stable")
    begins = np.flatnonzero(np.diff(codes[order], prepend=-1))
    return order, np.append(begins, len(order)), codes[order[begins]]


def best_examples(candidates: Float[np.ndarray, "candidate column three"]) -> Float[np.ndarray, "example column three"]:
    """For each column, the rows with the largest first number, each pair of words once; NaN where there are fewer."""
    order = np.argsort(-np.nan_to_num(candidates[..., 0], nan=-np.inf), axis=0, kind="stable")
    ranked = np.take_along_axis(candidates, order[..., None], axis=0)
    for place in range(1, len(ranked)):
        again = (ranked[:place, :, 1:] == ranked[place, :, 1:]).all(axis=-1).any(axis=0)
        ranked[place, again] = np.nan
    order = np.argsort(np.isnan(ranked[..., 0]), axis=0, kind="stable")
    return np.take_along_axis(ranked, order[..., None], axis=0)[:EXAMPLES]


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


class AttentionTotals:
    """All shards of a model added up, over all articles and each replicate's; words, not the corpus, bound its size."""

    def __init__(self, shards: Iterable[ShardSums], replicates: int, seed: int) -> None:
        """Shards are added one after the other, always in one order, so that rounding repeats too."""
        self.replicates, self.seed = replicates, seed
        self.permuted: list[PermutedSums] = []
        self.sunk, self.queries = np.zeros(()), 0
        self._totals: dict[str, np.ndarray] = {}
        self._examples: list[np.ndarray] = []
        waiting, tables, hidden = list[dict[str, np.ndarray]](), list[PairTable](), list[HiddenSums]()
        for shard in shards:
            waiting.append({name: getattr(shard, name) for name in ("article", *SUMS)})
            if sum(len(each["article"]) for each in waiting) > WEIGHTED:
                self._add_weighted(waiting)
                waiting = []
            tables.append(shard.pairs)
            if len(tables) > MERGED:
                tables = [PairTable.merged(tables)]
            before = self.permuted or [PermutedSums(*map(np.zeros_like, each)) for each in shard.permuted]
            self.permuted = [
                PermutedSums(old.sums + new.sums, old.counts + new.counts)
                for old, new in zip(before, shard.permuted, strict=True)
            ]
            self.sunk, self.queries = self.sunk + shard.sunk, self.queries + shard.queries
            self._examples.append(shard.examples)
            if shard.hidden:
                hidden.append(shard.hidden)
            if len(hidden) > MERGED_STATES:
                hidden = [HiddenSums.added(hidden)]
        if waiting:
            self._add_weighted(waiting)
        self.pairs_by_distance = PairTable.merged(tables)
        """Sums by pair of words and bin of distance."""
        self.pairs = self.pairs_by_distance.over_bins()
        """Sums by pair of words."""
        self.hidden = HiddenSums.added(hidden) if hidden else None
        """Sums of hidden states, if there are any."""

    def _add_weighted(self, shards: Sequence[Mapping[str, np.ndarray]]) -> None:
        """Add the sums of these shards' articles to the totals, with each replicate's weights."""
        weights = poisson_weights(np.concatenate([each["article"] for each in shards]), self.replicates, self.seed)
        for name in SUMS:
            sums = np.concatenate([each[name] for each in shards])
            if name not in self._totals:
                self._totals[name] = np.zeros((*sums.shape[1:], len(weights)))
            # Most cells of the matched comparison are empty; these are the largest arrays of a probe. With replicates
            # last, the cells that are met are whole rows.
            sums = sums.reshape(len(sums), -1)
            used = np.flatnonzero(sums.any(axis=0))
            self._totals[name].reshape(-1, len(weights))[used] += sums[:, used].T @ weights.T

    def _total(self, name: str) -> Float[np.ndarray, "replicate_plus_one *shape"]:
        return np.moveaxis(self._totals[name], -1, 0)

    @property
    def examples(self) -> Float[np.ndarray, "layer head example three"]:
        """Same-topic pairs that each head connects most: attention and two words, NaN for none."""
        every = np.concatenate(self._examples, axis=2)
        columns = np.moveaxis(every, 2, 0).reshape(every.shape[2], -1, 3)
        return np.moveaxis(best_examples(columns), 0, 1).reshape(*every.shape[:2], EXAMPLES, 3)

    def matched_heads(self, tested: int) -> tuple[np.ndarray, np.ndarray]:
        """Same- and different-topic averages of each head over the same distances: ``replicate layer head`` each."""
        sums = self._total("distance_sums")[:, tested]
        counts = np.broadcast_to(self._total("distance_counts")[:, tested][..., None, None], sums.shape)
        # Cells, which are the bins of distance, come last.
        sums, counts = (np.moveaxis(each, 2, -1) for each in (sums, counts))
        matched = matched_averages(sums[:, 0], counts[:, 0], sums[:, 1], counts[:, 1])
        return matched.same, matched.different

    def averages(self, labelling: int) -> Float[np.ndarray, "replicate_plus_one class layer head"]:
        """Average attention by class; NaN where a replicate has no pair."""
        counts = self._total("counts")[:, labelling]
        with np.errstate(invalid="ignore", divide="ignore"):
            return self._total("sums")[:, labelling] / counts[..., None, None]

    def counts(self, labelling: int) -> Float[np.ndarray, " class"]:
        """How many pairs of positions each class has, each direction of attention counted."""
        return self._total("counts")[0, labelling]

    def sums(self, labelling: int) -> Float[np.ndarray, "class layer head"]:
        """Sums over all articles."""
        return self._total("sums")[0, labelling]

    def auc(self, labelling: int) -> Float[np.ndarray, " replicate_plus_one"]:
        """The AUC of attention averaged over layers and heads; its error is that of the histogram's bins."""
        counts = self._total("histograms")[:, labelling]
        return auc_of_histograms(counts[:, SAME_TOPIC], counts[:, DIFFERENT_TOPIC])

    def matched(self, labelling: int) -> Matched:
        """The matched comparison of a labelling."""
        sums, counts = self._total("matched_sums")[:, labelling], self._total("matched_counts")[:, labelling]
        return matched_averages(sums[:, 0], counts[:, 0], sums[:, 1], counts[:, 1])


def pair_matrices(
    table: PairTable, labelling: Labelling
) -> tuple[Float[np.ndarray, "kept kept"], Float[np.ndarray, "kept kept"]]:
    """Sums and counts of a table as matrices over the words that a labelling keeps; 0 for a word with itself."""
    different = table.without_same_word().among(labelling.kept)
    number = np.cumsum(labelling.kept) - 1
    first, second = number[different.first], number[different.second]
    matrices = np.zeros((2, labelling.words, labelling.words))
    for matrix, values in zip(matrices, (different.sums, different.counts), strict=True):
        matrix[first, second] = matrix[second, first] = values
    return matrices[0], matrices[1]


class HeadTests(NamedTuple):
    """p-values of each head's log-ratio."""

    single: Float[np.ndarray, "layer head"]
    """Each head's own p, not corrected."""

    together: Float[np.ndarray, "layer head"]
    """Corrected for all layers and heads (maximum statistic): with probability 95 % none below 0.05 is wrong."""

    rates: Float[np.ndarray, "layer head"]
    """False discovery rates (Benjamini and Hochberg): of all heads up to 0.05, at most 5 % are expected wrong."""


def head_tests(
    sums: Float[np.ndarray, "class layer head"], counts: Float[np.ndarray, " class"], permuted: PermutedSums
) -> HeadTests:
    """Test for each head whether shuffled topics would make its log-ratio as large."""
    every, number = sums[SAME_TOPIC:].sum(axis=0), np.full((1, 1), counts[SAME_TOPIC:].sum())
    observed = log_ratio(sums[SAME_TOPIC], np.full((1, 1), counts[SAME_TOPIC]), every, number)
    drawn = log_ratio(permuted.sums, permuted.counts[:, None, None], every[None], number[None])
    single = np.array(
        [
            permutation_p(float(one), values, size=1.0)
            for one, values in zip(observed.ravel(), drawn.reshape(len(drawn), -1).T, strict=True)
        ]
    ).reshape(observed.shape)
    return HeadTests(single, maximum_p(observed, drawn), false_discovery_rates(single))
