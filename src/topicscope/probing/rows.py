"""Rows of probe.json: numbers with intervals and tests, by threshold, assignment and embedding.

For embeddings, similarity within and between topics is a separate piece of work. For attention, all shards of a model
are added up; then come its contrasts, those of its heads, and the matched comparison. Both average over the LDA seeds
of one threshold and assignment, a group of labellings, and make a row for each embedding.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int
from msgspec import Struct, structs
from safetensors.numpy import load_file

from topicscope.probing.folder import MeasuredGroup
from topicscope.probing.packing import packed, unpacked
from topicscope.probing.passes import Plan, read_plan
from topicscope.probing.settings import MEASURES, MeasureSettings
from topicscope.probing.statistics.attention import AttentionTotals, ShardSums
from topicscope.probing.statistics.hidden import HiddenSums
from topicscope.probing.statistics.labelling import DIFFERENT_TOPIC, SAME_TOPIC, Labelling, TopicDraws
from topicscope.probing.statistics.matching import (
    Matched,
    PairsInCells,
    matched_attention,
    matched_similarity,
    permuted_log_ratios,
)
from topicscope.probing.statistics.pairs import compare_top_pairs
from topicscope.probing.statistics.permutation import maximum_p, permutation_p
from topicscope.probing.statistics.resampling import (
    Comparable,
    SeedDraws,
    contrast,
    extended,
    finite,
    ratio_of_ratios,
    ratio_replicates,
)
from topicscope.probing.statistics.similarity import (
    Kind,
    PairAverages,
    Similarities,
    Tested,
    prepared,
    similarity_tests,
    topic_contrasts,
)
from topicscope.randomness import Purpose, generator
from topicscope.records import (
    AttentionComparison,
    HeadComparison,
    HiddenLayer,
    LayerAttention,
    LayerComparison,
    MatchedComparison,
    MatchedPairs,
    ProbeRow,
    Ratio,
    Sides,
    TopicComparison,
    TopicRow,
    TopPairs,
)

S = TypeVar("S")
T = TypeVar("T")
Vectors = Mapping[str, np.ndarray]
KINDS: tuple[Kind, ...] = ("cosine", "dot")
# Pairs that co-occur most in the paper's Table 2, by threshold: as many as one of its topics has.
PAPER_TOP_PAIRS = {0.0005: 105, 0.001: 435, 0.002: 1_711}
# Similarities of words held at once.
PRODUCTS = 40_000_000
# How many groups of labellings are summed up at once: permutations wait for memory more than for a processor.
THREADS = 2
# How many pairs of words describe a head.
SHOWN_PAIRS = 3


class Variant(NamedTuple):
    """Which vectors are compared, and whether their mean is subtracted first."""

    embedding: str
    centred: bool

    @property
    def name(self) -> str:
        """Its name for people and files."""
        return f"{self.embedding}, centred" if self.centred else self.embedding


VARIANTS = tuple(Variant(embedding, centred) for embedding in ("matrix", "layer") for centred in (False, True))
# Every variant with every kind, in the order of every axis named ``measured``.
MEASURED: tuple[tuple[Variant, Kind], ...] = tuple((variant, kind) for variant in VARIANTS for kind in KINDS)


class Embeddings(Struct, frozen=True):
    """Rows with the numbers of embeddings alone, one per variant, and those by which models are compared."""

    rows: list[ProbeRow]
    compared: dict[str, Comparable]
    """By measure."""


def seed_draws(plan: Plan, places: Sequence[int], replicates: int) -> SeedDraws:
    """The same draws of LDA seeds for every number, at every threshold."""
    return SeedDraws.draw(len(places), replicates, generator=generator(plan.seed, Purpose.MEASURE, 0))


def word_draws(plan: Plan, place: int, replicates: int) -> TopicDraws:
    """The same draws for all seeds, variants, layers and thresholds, which then differ only in what is measured."""
    draw = generator(plan.seed, Purpose.BOOTSTRAP, 0, 0)
    return TopicDraws.draw(plan.labellings[place], replicates, generator=draw)


@dataclass(frozen=True)
class EmbeddingTask:
    """The embeddings of one model, under the labellings of one threshold and assignment."""

    vectors: Path
    """A safetensors file with tensors ``matrix`` and ``layer``, a row for each word of the plan's vocabulary."""

    plan: Path
    labellings: tuple[int, ...]
    """Places in the plan, one for each LDA seed; the first is tested."""

    topic_words: tuple[tuple[str, ...], ...]
    """Each topic's first words."""

    measures: MeasureSettings

    def measure(self) -> bytes:
        """:class:`Embeddings`, as a file."""
        plan, vectors, first = read_plan(self.plan), load_file(self.vectors), self.labellings[0]
        labellings = [plan.labellings[place] for place in self.labellings]
        draws = word_draws(plan, first, self.measures.replicates)
        of_seeds, tests, balances = list[PairAverages](), list[Tested](), list[Matched]()
        matched: dict[Variant, list[Matched]] = {variant: [] for variant in VARIANTS}
        for place, labelling in zip(self.labellings, labellings, strict=True):
            kept, above = labelling.among_kept, np.triu_indices(labelling.words, k=1)
            numbers = Similarities(kept, draws.weights(labelling))
            words = PairsInCells.of_words(labelling, plan.pair_strata(place))
            # As many matrices at once as memory allows: permutations look up all of them together.
            at_once = max(1, PRODUCTS // labelling.words**2)
            for start in range(0, len(MEASURED), at_once):
                some = MEASURED[start : start + at_once]
                matrices = [ready @ ready.T for ready in (_vectors(vectors, labelling, *each) for each in some)]
                for (variant, kind), matrix in zip(some, matrices, strict=True):
                    numbers.add(matrix)
                    if kind == "cosine":
                        matched[variant].append(words.averages(matrix[above]))
                if place == first:
                    stratum, draw = plan.strata(place)[labelling.kept], generator(plan.seed, Purpose.PERMUTATION, place)
                    tests += similarity_tests(matrices, kept, stratum, self.measures.permutations, generator=draw)
            of_seeds.append(numbers.averages())
            together = plan.co_occurrence.matrices(labelling)[1] / 2
            balances.append(words.averages(together[above]))
        seeds = seed_draws(plan, self.labellings, self.measures.replicates)
        averages = [
            [seeds.average(np.stack([side[at] for side in sides])) for sides in zip(*of_seeds, strict=True)]
            for at in range(len(MEASURED))
        ]
        by_topic: Sequence[list[TopicRow] | None] = [None] * len(VARIANTS)
        if self.measures.details and first in plan.widest:
            cosines = [_vectors(vectors, labellings[0], variant) for variant in VARIANTS]
            contrasts = contrasts_by_topic([each @ each.T for each in cosines], plan, first, draws)
            by_topic = [self._topic_rows(labellings[0], each) for each in contrasts]
        comparisons, compared = {}, {}
        for (variant, kind), test, (same, different, auc) in zip(MEASURED, tests, averages, strict=True):
            comparisons[variant, kind] = contrast(same, different, auc=auc, p=test.p)
            compared[f"{kind} {variant.name}"] = Comparable(same, different, auc, test.values)
        rows = [
            ProbeRow(
                model="",
                revision="",
                fraction=labellings[0].fraction,
                assignment=labellings[0].assignment,
                embedding=variant.embedding,
                centred=variant.centred,
                words=labellings[0].words,
                topics=labellings[0].topics,
                cosine=comparisons[variant, "cosine"],
                dot=comparisons[variant, "dot"],
                by_topic=topics,
                matched=MatchedPairs(cosine=matched_similarity(matched[variant], balances, labellings)),
                lda_seeds=len(labellings),
            )
            for variant, topics in zip(VARIANTS, by_topic, strict=True)
        ]
        return packed(Embeddings(rows, compared))

    def _topic_rows(self, labelling: Labelling, contrasts: Sequence[TopicComparison]) -> list[TopicRow]:
        """A row for each topic with two words or more."""
        return [
            TopicRow(
                topic=labelling.topic_names[topic] if labelling.topic_names else topic,
                words=list(self.topic_words[topic]),
                kept=int(labelling.membership[:, topic].sum()),
                cosine=contrasts[topic],
            )
            for topic in _of_two_words(labelling)
        ]


def _of_two_words(labelling: Labelling) -> list[int]:
    """The topics with two words or more."""
    return np.flatnonzero(labelling.membership.sum(axis=0) > 1).tolist()


def _vectors(
    vectors: Vectors, labelling: Labelling, variant: Variant, kind: Kind = "cosine", *, every: bool = False
) -> Float[np.ndarray, "word width"]:
    """Vectors whose dot products are similarities, of the words that the labelling keeps, or of every word of the plan.

    If asked for, they are centred on the mean of the words that the labelling keeps.
    """
    chosen = vectors[variant.embedding].astype(np.float64)
    kept = chosen[labelling.kept]
    return prepared((chosen if every else kept) - (kept.mean(axis=0) if variant.centred else 0.0), kind)


def contrasts_by_topic(
    values: Sequence[Float[np.ndarray, "kept kept"]],
    plan: Plan,
    place: int,
    draws: TopicDraws,
    *,
    kept: Bool[np.ndarray, " word"] | None = None,
    counts: Float[np.ndarray, "kept kept"] | None = None,
) -> list[list[TopicComparison]]:
    """Comparisons of single topics, of matrices over the words that a labelling keeps, or over those given."""
    kept = plan.labellings[place].kept if kept is None else kept
    return topic_contrasts(
        values,
        Labelling(plan.labellings[place].membership[kept]),
        draws.words[:, kept],
        plan.strata(place)[kept],
        plan.permutations,
        counts=counts,
        generator=generator(plan.seed, Purpose.PERMUTATION, place, 3),
    )


class ModelRows(Struct, frozen=True):
    """What is known of a model: rows that lack its name and the corpus, and the numbers that models are compared by."""

    rows: list[ProbeRow]
    groups: list[MeasuredGroup]


@dataclass(frozen=True)
class SummaryTask:
    """All shards of a model added up, and its embeddings."""

    shards: tuple[Path, ...]
    embeddings: tuple[Path, ...]
    """For each group of labellings."""

    vectors: Path
    plan: Path
    words: tuple[str, ...]
    """The names of the plan's vocabulary."""

    measures: MeasureSettings

    def measure(self) -> bytes:
        """:class:`ModelRows`, as a file."""
        plan, embeddings = read_plan(self.plan), [unpacked(path, Embeddings) for path in self.embeddings]
        shards = (unpacked(path, ShardSums) for path in self.shards)
        totals = AttentionTotals(shards, self.measures.replicates, plan.seed)
        attention = AttentionSummary(totals, plan, self.measures).of(load_file(self.vectors), self.words)
        compared = [one.compared | other.compared for one, other in zip(attention, embeddings, strict=True)]
        sink = (totals.sunk / totals.queries).tolist() if totals.queries else None
        rows = [
            structs.replace(
                row,
                attention=group.attention,
                attention_by_layer=group.by_layer,
                attention_by_layer_head=group.by_layer_head,
                hidden_by_layer=group.hidden,
                by_topic=row.by_topic and group.with_attention(row.by_topic, _of_two_words(plan.tested[place])),
                over_largest_threshold=over_largest_threshold(compared, plan.tested, place, variant),
                top_co_occurring=top,
                matched=row.matched and structs.replace(row.matched, attention=group.matched),
                sink=sink,
            )
            for place, (group, own) in enumerate(zip(attention, embeddings, strict=True))
            for variant, row, top in zip(VARIANTS, own.rows, group.top_pairs, strict=True)
        ]
        groups = [
            MeasuredGroup(labelling.fraction, labelling.assignment, numbers)
            for labelling, numbers in zip(plan.tested, compared, strict=True)
        ]
        return packed(ModelRows(rows, groups))


class AttentionNumbers(Struct, frozen=True, kw_only=True):
    """Attention, hidden states and Table 2 under one group of labellings."""

    attention: AttentionComparison
    by_layer: list[LayerAttention]
    by_layer_head: list[list[HeadComparison]]
    matched: MatchedComparison
    by_topic: list[TopicComparison] | None = None
    hidden: list[HiddenLayer] | None = None
    hidden_by_topic: list[TopicComparison] | None = None
    hidden_layer: int | None = None
    """The layer of ``hidden_by_topic``: the one that distinguishes topics best."""

    top_pairs: list[TopPairs] = []
    """For each variant."""

    compared: dict[str, Comparable] = {}

    def with_attention(self, rows: Sequence[TopicRow], topics: Sequence[int]) -> list[TopicRow]:
        """Rows of these topics, with attention and hidden states too."""
        assert self.by_topic is not None, "single topics have attention where they have similarity"
        hidden: Sequence[TopicComparison | None] = self.hidden_by_topic or [None] * len(self.by_topic)
        return [
            structs.replace(row, attention=self.by_topic[at], hidden=hidden[at], hidden_layer=self.hidden_layer)
            for row, at in zip(rows, topics, strict=True)
        ]


class AttentionSummary:
    """Everything about attention, hidden states and co-occurrence of one model, from the sums of all its shards."""

    def __init__(self, totals: AttentionTotals, plan: Plan, settings: MeasureSettings) -> None:
        self.totals, self.plan, self.settings = totals, plan, settings

    def of(self, vectors: Vectors, words: Sequence[str]) -> list[AttentionNumbers]:
        """The numbers of each group of labellings.

        vectors: ``matrix`` and ``layer``, a row for each word of the plan's vocabulary. words: their names.
        """
        groups = _in_threads(lambda places: self._group(places, vectors, words), self.plan.groups)
        return self._with_states(groups, self.totals.hidden) if self.totals.hidden else groups

    def _group(self, places: tuple[int, ...], vectors: Vectors, words: Sequence[str]) -> AttentionNumbers:
        totals, plan, first = self.totals, self.plan, places[0]
        labelling = plan.labellings[first]
        ratios, matched_ratios = permuted_log_ratios(
            totals.pairs_by_distance,
            labelling,
            plan.strata(first),
            plan.attention_strata.under(first),
            self.settings.permutations,
            generator=generator(plan.seed, Purpose.PERMUTATION, first),
        )
        seeds = seed_draws(plan, places, self.settings.replicates)
        averages = np.stack([totals.averages(place) for place in places])
        # Over heads, then over layers too: by LDA seed, replicate, kind (and layer).
        by_layer = averages.mean(axis=4)
        kinds = (SAME_TOPIC, DIFFERENT_TOPIC)
        tests = totals.head_tests(first, totals.permuted[plan.groups.index(places)])
        near = totals.matched_heads(first)
        same, different = (seeds.average(averages.mean(axis=(3, 4))[:, :, kind]) for kind in kinds)
        auc = seeds.average(np.stack([totals.auc(place) for place in places]))
        pairs = totals.of("counts", first)[0].sum(axis=1).tolist()
        by_topic = None
        if self.settings.details and first in plan.widest:
            sums, counted = totals.pairs.matrices(labelling)
            draws = word_draws(plan, first, self.settings.replicates)
            [by_topic] = contrasts_by_topic([sums], plan, first, draws, counts=counted)
        examples = totals.examples.reshape(-1, *tests.single.shape, 3)

        def head(layer: int, place: int) -> HeadComparison:
            distant = contrast(near.same[:, layer, place], near.different[:, layer, place])
            one, other = (seeds.average(averages[:, :, kind, layer, place]) for kind in kinds)
            shown = examples[:SHOWN_PAIRS, layer, place]
            return extended(
                contrast(one, other, p=float(tests.together[layer, place])),
                HeadComparison,
                layer=layer + 1,
                head=place + 1,
                p_single=finite(tests.single[layer, place]),
                q=finite(tests.rates[layer, place]),
                matched=Ratio(ratio=distant.ratio, low=distant.low, high=distant.high),
                examples=[f"{words[int(one)]} {words[int(two)]}" for value, one, two in shown if np.isfinite(value)],
            )

        layers, heads = tests.single.shape
        return AttentionNumbers(
            attention=extended(
                contrast(same, different, auc=auc, p=permutation_p(ratios, size=1.0)),
                AttentionComparison,
                pairs=Sides(same=pairs[SAME_TOPIC], different=pairs[DIFFERENT_TOPIC]),
            ),
            by_layer=[
                extended(
                    contrast(*(seeds.average(by_layer[:, :, kind, layer]) for kind in kinds)),
                    LayerAttention,
                    layer=layer + 1,
                )
                for layer in range(layers)
            ],
            by_layer_head=[[head(layer, place) for place in range(heads)] for layer in range(layers)],
            matched=self._matched(places, seeds, permutation_p(matched_ratios, size=1.0)),
            by_topic=by_topic,
            top_pairs=self._top_pairs(places, vectors),
            compared={"attention": Comparable(same, different, auc, ratios)},
        )

    def _matched(self, places: tuple[int, ...], seeds: SeedDraws, p: float) -> MatchedComparison:
        plan, labellings = self.plan, [self.plan.labellings[place] for place in places]
        averages = [self.totals.matched(place) for place in places]
        without, balances = [], []
        for place, labelling in zip(places, labellings, strict=True):
            table = self.totals.pairs_by_distance.among(labelling.kept)
            pairs = PairsInCells.of_positions(table, labelling, plan.attention_strata.under(place))
            without.append(pairs.averages(table.sums))
            together = plan.co_occurrence.values("counts", table.first, table.second)
            balances.append(pairs.averages(table.counts * together / 2))
        same, different = (
            seeds.average(np.stack([getattr(each, side) for each in averages])) for side in ("same", "different")
        )
        return matched_attention(same, different, p, without, balances, labellings)

    def _top_pairs(self, places: tuple[int, ...], vectors: Vectors) -> list[TopPairs]:
        """A row of Table 2 for each variant."""
        labellings = [self.plan.labellings[place] for place in places]
        return compare_top_pairs(
            self.totals.pairs,
            labellings,
            [[_vectors(vectors, each, variant, every=True) for each in labellings] for variant in VARIANTS],
            number=top_pair_number(labellings[0]),
            replicates=self.settings.replicates,
            generator=generator(self.plan.seed, Purpose.BOOTSTRAP, 2, places[0]),
        )

    def _with_states(self, groups: Sequence[AttentionNumbers], sums: HiddenSums) -> list[AttentionNumbers]:
        """The same with hidden states: each layer under each group's tested labelling."""
        plan = self.plan
        # Two words that are each in two passages or more always have a pair of places in different passages.
        common = np.zeros(len(plan.tokens), dtype=bool)
        common[sums.words[sums.passages >= 2]] = True
        words = np.flatnonzero(common)
        measures = [_States(plan, first, common, self.settings.replicates) for first, *_ in plan.groups]
        for layer in range(sums.layers):
            matrix = sums.similarities(layer, words, len(plan.tokens))
            _in_threads(partial(_States.add, matrix=matrix, common=words), measures)

        def add_states(at: int) -> AttentionNumbers:
            measure, group = measures[at], groups[at]
            hidden, compared = measure.by_layer()
            group = structs.replace(group, hidden=hidden, compared=group.compared | compared)
            if measure.place not in plan.widest:
                return group
            best = int(np.argmax([each.centred_cosine.auc or 0.0 for each in hidden]))
            matrix = sums.similarities(best, np.flatnonzero(measure.kept), len(plan.tokens))
            [by_topic] = contrasts_by_topic([matrix], plan, measure.place, measure.draws, kept=measure.kept)
            return structs.replace(group, hidden_by_topic=by_topic, hidden_layer=best)

        return _in_threads(add_states, range(len(groups)))


def _in_threads(function: Callable[[S], T], items: Sequence[S]) -> list[T]:
    """A function of each item: each group of labellings draws from its own generator, so threads change no number.

    NumPy releases Python's lock in look-ups.
    """
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(function, items))


class _States:
    """Hidden states under one labelling, layer by layer."""

    def __init__(self, plan: Plan, place: int, common: Bool[np.ndarray, " word"], replicates: int) -> None:
        """``common``: the plan's words that have similarities."""
        self.plan, self.place, self.draws = plan, place, word_draws(plan, place, replicates)
        self.kept = plan.labellings[place].kept & common
        own = Labelling(plan.labellings[place].membership & common[:, None])
        self._numbers = Similarities(own.among_kept, TopicDraws(own, self.draws.topics, self.draws.words).weights(own))
        self._tests: list[Tested] = []

    def add(self, matrix: Float[np.ndarray, "common common"], common: Int[np.ndarray, " common"]) -> None:
        """Measure a layer's similarities, which are of the words ``common``."""
        rows, plan = np.searchsorted(common, np.flatnonzero(self.kept)), self.plan
        own = matrix[np.ix_(rows, rows)]
        self._numbers.add(own)
        # All layers see the same permutations.
        draw, stratum = generator(plan.seed, Purpose.PERMUTATION, self.place, 2), plan.strata(self.place)[self.kept]
        self._tests += similarity_tests([own], self._numbers.labelling, stratum, plan.permutations, generator=draw)

    def by_layer(self) -> tuple[list[HiddenLayer], dict[str, Comparable]]:
        """The comparisons of each layer, and the numbers by which two models are compared."""
        together = maximum_p(np.stack([test.values for test in self._tests], axis=1))
        compared, layers = dict[str, Comparable](), list[HiddenLayer]()
        for layer, (test, *numbers) in enumerate(zip(self._tests, *self._numbers.averages(), strict=True)):
            same, different, auc = numbers
            comparison = extended(
                contrast(same, different, auc=auc, p=test.p), LayerComparison, p_all_layers=finite(together[layer])
            )
            compared[f"hidden centred_cosine {layer}"] = Comparable(same, different, auc, test.values)
            layers.append(HiddenLayer(layer=layer, words=int(self.kept.sum()), centred_cosine=comparison))
        return layers, compared


def top_pair_number(labelling: Labelling) -> int:
    """How many of the most co-occurring pairs: the paper's number at its thresholds, else that of the largest topic."""
    words = int(labelling.membership.sum(axis=0).max())
    return PAPER_TOP_PAIRS.get(labelling.fraction or 0, words * (words - 1) // 2)


def over_largest_threshold(
    compared: Sequence[Mapping[str, Comparable]], labellings: Sequence[Labelling], place: int, variant: Variant
) -> dict[str, Ratio] | None:
    """How many times as large a labelling's ratios are as those of the largest threshold of the same assignment.

    compared: for each labelling, numbers by measure, all under the same draws. There is nothing for the largest
    threshold itself, and for the user's own topics.
    """
    own = labellings[place]
    places = [at for at, each in enumerate(labellings) if each.assignment == own.assignment]
    largest = max(places, key=lambda at: labellings[at].fraction or 0)
    if own.fraction == labellings[largest].fraction:
        return None
    ratios = {}
    for measure in MEASURES:
        name = measure if measure == "attention" else f"{measure} {variant.name}"
        pair = (compared[at][name] for at in (place, largest))
        ratios[measure] = ratio_of_ratios(*(ratio_replicates(each.same, each.different) for each in pair))
    return ratios
