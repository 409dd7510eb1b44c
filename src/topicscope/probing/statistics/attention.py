"""Attention between the words of a corpus by what they have in common, one pass for many labellings.

For each passage, all pairs of positions that hold different words of the vocabulary are taken once. Attention is
normalised as in the paper, × (document length) / 100, so that passages of different length can be averaged: uniform
attention is 0.01, or 0.01 n / (n + s) for n content and s special tokens. A causal query sees only itself and what came
before, so its length is the number of content tokens that it sees, and a pair counts once (the later word attends to
the earlier) instead of twice.

Sums are kept by article, because articles, not passages or pairs, are independent: the bootstrap draws articles. The
same pass also sums every head over same-topic pairs under permuted words, for its test. Memory depends on the
labellings and on the articles of one shard, not on the corpus.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Integer
from scipy import sparse

from topicscope.probing.statistics.hidden import HiddenSums
from topicscope.probing.statistics.labelling import DIFFERENT_TOPIC, SAME_TOPIC, Labelling, OfPairs, kinds_of
from topicscope.probing.statistics.matching import DISTANCES, Matched, Strata, distance_bins, matched_averages
from topicscope.probing.statistics.pairs import PairTable, pair_codes, summed_by
from topicscope.probing.statistics.permutation import false_discovery_rates, log_ratio, maximum_p, permutation_p
from topicscope.probing.statistics.resampling import auc_of_histograms, poisson_weights

# Attention is × length / 100: without special tokens, uniform attention has this value.
UNIFORM = 0.01
# Steps of the histogram behind AUC: 16 for each doubling, from 1/64 to 16 times uniform attention.
STEPS_PER_DOUBLING, LOWEST_DOUBLING, HIGHEST_DOUBLING = 16, -6, 4
BINS = STEPS_PER_DOUBLING * (HIGHEST_DOUBLING - LOWEST_DOUBLING) + 2
# What is summed by article.
SUMS = ("sums", "counts", "histograms", "cell_sums", "cell_counts")
# How many of the pairs of words that a head connects most are kept as examples.
EXAMPLES = 5
# Numbers that are held before they are summed under permutations (32 MB), and pairs of words that are compared at once.
WAITING, PERMUTED_BLOCK = 1 << 22, 512
# Passages' tables of pairs, shards' tables, and shards' sums of hidden states that are held before they are put
# together.
TABLES, MERGED, MERGED_STATES = 256, 8, 4
# Articles whose sums are held before they are weighted: all replicates of a sum are then written once for all of them.
WEIGHTED = 128


@dataclass(frozen=True, eq=False)
class PassagePairs:
    """The pairs of positions of one passage that hold different words, the earlier position first."""

    earlier: OfPairs
    """The word at the earlier position."""

    later: OfPairs
    distance: OfPairs
    attention: Float[np.ndarray, "pair layer head"]
    """Normalised attention, summed over the directions that exist."""

    directed: Float[np.ndarray, "direction pair"]
    """Normalised attention of each direction, averaged over layers and heads; backward (to the earlier word) first. A
    causal model has this one alone."""


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
    places = np.flatnonzero(words >= 0)
    places = places[places >= skip]
    early, late = np.triu_indices(len(places), k=1)
    different = words[places[early]] != words[places[late]]
    early, late = places[early[different]], places[late[different]]
    ways = [(late, early)] if causal else [(late, early), (early, late)]
    values = np.empty((len(ways), len(attention), len(attention[0]), len(early)))
    for way, (query, key) in enumerate(ways):
        for number, layer in enumerate(attention):
            values[way, number] = layer[:, query, key]
    values *= (late + 1) / 100 if causal else len(words) / 100
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
    def _words(self) -> Integer[np.ndarray, "word permutation"]:
        """The word whose topics each word takes, numbered among those that are kept."""
        number = np.cumsum(self.labelling.kept) - 1
        smallest = np.int32 if self.labelling.words**2 < 2**31 else np.int64
        return np.ascontiguousarray(number.astype(smallest)[self.order].T)

    @cached_property
    def _related(self) -> Bool[np.ndarray, " word_pair"]:
        """Whether two words share a topic, for all pairs of kept words by their numbers."""
        member = self.labelling.membership[self.labelling.kept].astype(np.float32)
        return (member @ member.T > 0).ravel()

    def same_topic(
        self, first: OfPairs, second: OfPairs
    ) -> tuple[Int[np.ndarray, " match"], Int[np.ndarray, " match"]]:
        """Which pairs of kept words have a topic in common, and under which permutations: places of both."""
        if self.labelling.single:
            shared = self._topics[first] == self._topics[second]
        else:
            codes = self._words[first]
            codes *= codes.dtype.type(self.labelling.words)
            codes += self._words[second]
            # All codes are in the table; with this mode they are not looked at twice.
            shared = self._related.take(codes, mode="wrap")
        where, count = np.flatnonzero(shared), len(self.order)
        # Dividing by one number is quicker than divmod.
        pair = where // count
        return pair, where - pair * count


@dataclass(frozen=True, eq=False)
class ShardSums:
    """Everything measured on one shard of passages: by article, by pair of words, by permutation, and what sinks.

    The sums by article are over pairs of positions; divide them by the counts for averages.
    """

    article: Int[np.ndarray, " article"]
    sums: Float[np.ndarray, "article labelling kind distance layer head"]
    counts: Float[np.ndarray, "article labelling kind distance"]
    histograms: Float[np.ndarray, "article labelling kind bin"]
    """How many values of attention (averaged over layers and heads) are in each bin."""

    cell_sums: Float[np.ndarray, "article labelling kind cell"]
    """Sums of the same values by cell of the strata, for the matched comparison."""

    cell_counts: Float[np.ndarray, "article labelling kind cell"]
    examples: Float[np.ndarray, "example every_head three"]
    """Same-topic pairs that a head (of all layers) connects most, each in one passage: attention and two words; NaN
    for none."""

    pairs: PairTable
    """The table of pairs, by bin of distance."""

    permuted_sums: Float[np.ndarray, "tested permutation layer head"]
    """Same-topic sums under each permutation."""

    permuted_counts: Float[np.ndarray, "tested permutation"]
    sunk: Float[np.ndarray, "layer head"]
    """For a causal model, the sum over queries of their attention to positions that are not measured."""

    queries: int
    """How many queries that sum is over; 0 for a model that is not causal."""

    hidden: HiddenSums | None = None


class PairAccumulator:
    """Sums passages one by one in a fixed order; ``result`` has the sums so far.

    strata: what pairs are matched on, under each of the labellings, which are over one vocabulary.
    permuted: some of the labellings with permuted words, for the test over heads. Examples are same-topic pairs of
    the one of these with the most words.
    """

    def __init__(
        self,
        labellings: Sequence[Labelling],
        strata: Strata,
        layers: int,
        heads: int,
        *,
        permuted: Sequence[PermutedLabels] = (),
    ) -> None:
        self.labellings, self.strata, self.permuted = labellings, strata, permuted
        self.sunk, self.queries = np.zeros((layers, heads)), 0
        self._vocabulary = len(labellings[0].membership)
        by_kind, distances = (len(labellings), 2), len(DISTANCES) + 1
        self._shapes = {
            "sums": (*by_kind, distances, layers, heads),
            "counts": (*by_kind, distances),
            "histograms": (*by_kind, BINS),
            "cell_sums": (*by_kind, strata.cells),
            "cell_counts": (*by_kind, strata.cells),
        }
        self._articles: dict[int, dict[str, np.ndarray]] = {}
        self._tables: list[PairTable] = []
        widest = max((each.labelling for each in permuted), key=lambda each: each.words, default=None)
        self._widest = None if widest is None else list(labellings).index(widest)
        self._examples = [np.full((EXAMPLES, layers * heads, 3), np.nan)]
        # Which words some permuted labelling keeps: pairs of others need not wait.
        self._permutable = np.any([np.zeros(self._vocabulary, bool), *(each.labelling.kept for each in permuted)], 0)
        self._waiting: list[tuple[np.ndarray, np.ndarray, int]] = []
        self._held = 0
        drawn = (len(permuted), len(permuted[0].order) if permuted else 0)
        self._permuted_sums, self._permuted_counts = np.zeros((*drawn, layers, heads)), np.zeros(drawn)

    def add(self, pairs: PassagePairs, article: int) -> None:
        """Add one passage of an article."""
        if article not in self._articles:
            self._articles[article] = {name: np.zeros(shape) for name, shape in self._shapes.items()}
        if not len(pairs.earlier):
            return
        sums, directions = self._articles[article], len(pairs.directed)
        kinds = kinds_of(self.labellings, pairs.earlier, pairs.later)
        near, flat = distance_bins(pairs.distance), pairs.attention.reshape(len(pairs.attention), self.sunk.size)
        distances = len(DISTANCES) + 1
        place = np.where(kinds >= 0, kinds * distances + near, -1)
        indicator = place[:, None] == np.arange(2 * distances)[:, None]
        rows = indicator.reshape(-1, len(flat)).astype(np.float64)
        sums["sums"] += (rows @ flat).reshape(self._shapes["sums"])
        sums["counts"] += directions * indicator.sum(axis=-1).reshape(self._shapes["counts"])
        cells = self.strata.cell_of(pairs.earlier, pairs.later, near)
        for direction in pairs.directed:
            self._add_at(sums["histograms"], kinds, np.broadcast_to(histogram_bin(direction), kinds.shape), 1.0)
        self._add_at(sums["cell_counts"], kinds, cells, float(directions))
        self._add_at(sums["cell_sums"], kinds, cells, pairs.directed.sum(axis=0))
        self._add_example(pairs, kinds, flat)
        self._tables.append(PairTable.of(pairs.earlier, pairs.later, pairs.directed, self._vocabulary, near))
        if len(self._tables) > TABLES:
            self._tables = [PairTable.merged(self._vocabulary, self._tables)]
        if self.permuted:
            usable = np.flatnonzero(self._permutable[pairs.earlier] & self._permutable[pairs.later])
            codes = pair_codes(pairs.earlier[usable], pairs.later[usable], self._vocabulary)
            self._waiting.append((codes, np.ascontiguousarray(flat[usable]), directions))
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
        return ShardSums(
            np.array(order, dtype=np.int64),
            **stacked,
            examples=best_examples(self._examples),
            pairs=PairTable.merged(self._vocabulary, self._tables),
            permuted_sums=self._permuted_sums,
            permuted_counts=self._permuted_counts,
            sunk=self.sunk,
            queries=self.queries,
        )

    def _add_at(
        self,
        sums: Float[np.ndarray, "labelling kind bin"],
        kinds: Int[np.ndarray, "labelling pair"],
        bins: Int[np.ndarray, "labelling pair"],
        values: float | Float[np.ndarray, " pair"],
    ) -> None:
        """Add values of pairs to their bins; few of the bins are met in one passage."""
        labelling, pair = np.nonzero(kinds >= 0)
        codes = (labelling * 2 + kinds[labelling, pair]) * sums.shape[-1] + bins[labelling, pair]
        np.add.at(sums.reshape(-1), codes, values if isinstance(values, float) else values[pair])

    def _add_permuted(self) -> None:
        """Add the waiting passages' pairs, many at once, to the sums under permutations."""
        if not self._waiting:
            return
        directions = self._waiting[0][2]
        codes, attention = (np.concatenate([each[part] for each in self._waiting]) for part in range(2))
        self._waiting, self._held = [], 0
        # Many pairs of positions hold the same two words: these are summed first.
        ones = np.full(len(codes), float(directions))
        codes, (attention, number) = summed_by(codes, attention, ones)
        first, second = np.divmod(codes, self._vocabulary)
        for sums, counts, labels in zip(self._permuted_sums, self._permuted_counts, self.permuted, strict=True):
            kept = labels.labelling.kept
            usable = np.flatnonzero(kept[first] & kept[second])
            for start in range(0, len(usable), PERMUTED_BLOCK):
                chosen = usable[start : start + PERMUTED_BLOCK]
                # Few pairs share a topic: all that follows is done on those alone.
                pair, permutation = labels.same_topic(first[chosen], second[chosen])
                counts += np.bincount(permutation, number[chosen[pair]], minlength=len(counts))
                ends = np.concatenate([[0], np.cumsum(np.bincount(pair, minlength=len(chosen)))])
                matrix = sparse.csr_array((np.ones(len(pair)), permutation, ends), shape=(len(chosen), len(counts)))
                sums += (matrix.T @ attention[chosen]).reshape(sums.shape)

    def _add_example(
        self, pairs: PassagePairs, kinds: Int[np.ndarray, "labelling pair"], flat: Float[np.ndarray, "pair every_head"]
    ) -> None:
        """Add the same-topic pair that each head connects most."""
        if self._widest is None or not len(same := np.flatnonzero(kinds[self._widest] == SAME_TOPIC)):
            return
        best = same[flat[same].argmax(axis=0)]
        value = flat[best, np.arange(flat.shape[1])] / len(pairs.directed)
        words = np.sort(np.stack([pairs.earlier[best], pairs.later[best]]), axis=0)
        self._examples.append(np.stack([value, *words.astype(np.float64)], axis=1)[None])


def best_examples(
    candidates: Sequence[Float[np.ndarray, "_ every_head three"]],
) -> Float[np.ndarray, "example every_head three"]:
    """For each head, the rows with the largest first number, each pair of words once; NaN where there are fewer."""
    every = np.concatenate(candidates)
    order = np.argsort(-np.nan_to_num(every[..., 0], nan=-np.inf), axis=0, kind="stable")
    ranked = np.take_along_axis(every, order[..., None], axis=0)
    for place in range(1, len(ranked)):
        again = (ranked[:place, :, 1:] == ranked[place, :, 1:]).all(axis=-1).any(axis=0)
        ranked[place, again] = np.nan
    order = np.argsort(np.isnan(ranked[..., 0]), axis=0, kind="stable")
    return np.take_along_axis(ranked, order[..., None], axis=0)[:EXAMPLES]


def histogram_bin(values: Float[np.ndarray, " pair"]) -> OfPairs:
    """The bin of a normalised attention: equal steps of its logarithm, and one bin beyond each end."""
    with np.errstate(divide="ignore"):
        steps = np.floor(STEPS_PER_DOUBLING * (np.log2(values / UNIFORM) - LOWEST_DOUBLING))
    return (np.clip(steps, -1, BINS - 2) + 1).astype(np.int64)


class AttentionTotals:
    """All shards of a model added up, over all articles and each replicate's; words, not the corpus, bound its size."""

    def __init__(self, shards: Iterable[ShardSums], replicates: int, seed: int) -> None:
        """Shards are added one after the other, always in one order, so that rounding repeats too."""
        self.replicates, self.seed, self._totals = replicates, seed, dict[str, np.ndarray]()
        self.permuted_sums, self.permuted_counts = np.zeros(()), np.zeros(())
        self.sunk, self.queries = np.zeros(()), 0
        examples, waiting = list[np.ndarray](), list[dict[str, np.ndarray]]()
        tables, hidden = list[PairTable](), list[HiddenSums]()
        for shard in shards:
            waiting.append({name: getattr(shard, name) for name in ("article", *SUMS)})
            if sum(len(each["article"]) for each in waiting) > WEIGHTED:
                self._add_weighted(waiting)
                waiting = []
            tables.append(shard.pairs)
            if len(tables) > MERGED:
                tables = [PairTable.merged(shard.pairs.vocabulary, tables)]
            for name in ("permuted_sums", "permuted_counts", "sunk", "queries"):
                setattr(self, name, getattr(self, name) + getattr(shard, name))
            examples = [best_examples([*examples, shard.examples])]
            hidden += [shard.hidden] if shard.hidden else []
            if len(hidden) > MERGED_STATES:
                hidden = [HiddenSums.added(hidden)]
        if waiting:
            self._add_weighted(waiting)
        self.examples = examples[0]
        """Same-topic pairs that each head connects most, as in ``ShardSums``."""
        self.pairs_by_distance = PairTable.merged(tables[0].vocabulary, tables)
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

    def of(self, name: str, labelling: int) -> Float[np.ndarray, "replicate_plus_one kind *shape"]:
        """One of ``SUMS`` under a labelling, over all articles, then over each replicate's."""
        return np.moveaxis(self._totals[name][labelling], -1, 0)

    def averages(self, labelling: int) -> Float[np.ndarray, "replicate_plus_one kind layer head"]:
        """Average attention by kind; NaN where a replicate has no pair."""
        sums, counts = (self.of(name, labelling).sum(axis=2) for name in ("sums", "counts"))
        with np.errstate(invalid="ignore", divide="ignore"):
            return sums / counts[..., None, None]

    def auc(self, labelling: int) -> Float[np.ndarray, " replicate_plus_one"]:
        """The AUC of attention averaged over layers and heads; its error is that of the histogram's bins."""
        counts = self.of("histograms", labelling)
        return auc_of_histograms(counts[:, SAME_TOPIC], counts[:, DIFFERENT_TOPIC])

    def matched(self, labelling: int) -> Matched:
        """The matched comparison, of attention averaged over layers and heads."""
        sums, counts = self.of("cell_sums", labelling), self.of("cell_counts", labelling)
        return matched_averages(sums[:, 0], counts[:, 0], sums[:, 1], counts[:, 1])

    def matched_heads(self, labelling: int) -> Matched:
        """The comparison of each head over the same distances: ``replicate layer head``."""
        # Cells, which are the bins of distance, come last.
        sums = np.moveaxis(self.of("sums", labelling), 2, -1)
        counts = np.broadcast_to(self.of("counts", labelling)[:, :, None, None], sums.shape)
        return matched_averages(sums[:, 0], counts[:, 0], sums[:, 1], counts[:, 1])

    def head_tests(self, labelling: int, tested: int) -> "HeadTests":
        """Test for each head whether shuffled topics would make its log-ratio as large.

        tested: which of the permuted labellings it is.
        """
        sums, counts = (self.of(name, labelling)[0].sum(axis=1) for name in ("sums", "counts"))
        same = np.concatenate([sums[:1], self.permuted_sums[tested]])
        number = np.append(counts[0], self.permuted_counts[tested])[:, None, None]
        ratios = log_ratio(same, number, sums.sum(axis=0, keepdims=True), np.full((1, 1, 1), counts.sum()))
        single = np.array([permutation_p(values, size=1.0) for values in ratios.reshape(len(ratios), -1).T])
        single = single.reshape(self.sunk.shape)
        return HeadTests(single, maximum_p(ratios), false_discovery_rates(single))


class HeadTests(NamedTuple):
    """p-values of each head's log-ratio: its own; corrected for all heads; and rates of false discovery."""

    single: Float[np.ndarray, "layer head"]
    together: Float[np.ndarray, "layer head"]
    rates: Float[np.ndarray, "layer head"]
