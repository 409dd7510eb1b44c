"""Rows of probe.json: numbers with intervals and tests, by threshold, assignment and embedding.

For embeddings, similarity within and between topics is a separate piece of work. For attention, all shards of a model
are added up; then come its contrasts, those of its heads, and the matched comparison. Both average over the LDA seeds
of one threshold and assignment, a group of labellings, and make a row for each embedding.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from msgspec import Struct, structs
from safetensors.numpy import load_file

from topicscope import records
from topicscope.probing.folder import MeasuredGroup
from topicscope.probing.packing import packed, unpacked
from topicscope.probing.passes import Plan, read_plan
from topicscope.probing.settings import MEASURES, MeasureSettings
from topicscope.probing.statistics.attention import AttentionTotals, ShardSums
from topicscope.probing.statistics.hidden import HiddenSums
from topicscope.probing.statistics.labelling import DIFFERENT_TOPIC, SAME_TOPIC, Labelling, Replicates, TopicDraws
from topicscope.probing.statistics.matching import (
    Matched,
    PairsInCells,
    matched_attention,
    matched_similarity,
)
from topicscope.probing.statistics.pairs import compare_top_pairs
from topicscope.probing.statistics.permutation import maximum_p, permutation_p, permuted_log_ratios
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


class Group:
    """The labellings of one threshold and assignment, one per LDA seed, the tested one first.

    All groups have the same draws of LDA seeds, topics and words, so thresholds, variants and layers differ only in
    what is measured.
    """

    def __init__(self, plan: Plan, places: Sequence[int], measures: MeasureSettings) -> None:
        self.plan, self.places, self.measures = plan, places, measures
        self.labellings = [plan.labellings[place] for place in places]
        self.first, self.tested, self.stratum = places[0], self.labellings[0], plan.strata(places[0])
        draw = generator(plan.seed, Purpose.MEASURE, 0)
        self.seeds = SeedDraws.draw(len(places), measures.replicates, generator=draw)
        draw = generator(plan.seed, Purpose.BOOTSTRAP, 0, 0)
        self.draws = TopicDraws.draw(self.tested, measures.replicates, generator=draw)
        # Only these are measured one by one: of the largest threshold, those with two words or more.
        detailed = measures.details and self.first in plan.widest
        self.topics = np.flatnonzero(self.tested.membership.sum(axis=0) > 1).tolist() if detailed else []

    def average(self, values: Sequence[Replicates]) -> Replicates:
        """The average over LDA seeds."""
        return self.seeds.average(np.stack(values))

    def permuting(self, *counter: int) -> np.random.Generator:
        """What permutations of the tested labelling's words are drawn from."""
        return generator(self.plan.seed, Purpose.PERMUTATION, self.first, *counter)

    def by_topic(
        self,
        values: Sequence[Float[np.ndarray, "kept kept"]],
        kept: Bool[np.ndarray, " word"],
        counts: Float[np.ndarray, "kept kept"] | None = None,
    ) -> list[list[records.TopicComparison]]:
        """Comparisons of single topics, of matrices over these words."""
        contrasts = topic_contrasts(
            values,
            Labelling(self.tested.membership[kept]),
            self.draws.words[:, kept],
            self.stratum[kept],
            self.plan.permutations,
            counts=counts,
            generator=self.permuting(3),
        )
        return [[row[topic] for topic in self.topics] for row in contrasts]


class Embeddings(Struct, frozen=True):
    """Rows with the numbers of embeddings alone, one per variant, and those by which models are compared."""

    rows: list[records.ProbeRow]
    compared: dict[str, Comparable]
    """By measure."""


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
        plan, vectors = read_plan(self.plan), load_file(self.vectors)
        group = Group(plan, self.labellings, self.measures)
        of_seeds, tests = list[PairAverages](), list[Tested]()
        matched: dict[Variant, list[Matched]] = {variant: [] for variant in VARIANTS}
        for place, labelling in zip(group.places, group.labellings, strict=True):
            kept, above = labelling.among_kept, np.triu_indices(labelling.words, k=1)
            numbers = Similarities(kept, group.draws.weights(labelling))
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
                if labelling is group.tested:
                    stratum, permutations = group.stratum[labelling.kept], self.measures.permutations
                    tests += similarity_tests(matrices, kept, stratum, permutations, generator=group.permuting())
            of_seeds.append(numbers.averages())
        comparisons, compared = {}, {}
        for at, ((variant, kind), test) in enumerate(zip(MEASURED, tests, strict=True)):
            same, different, auc = (
                group.average([side[at] for side in sides]) for sides in zip(*of_seeds, strict=True)
            )
            comparisons[variant, kind] = contrast(same, different, auc=auc, p=test.p)
            compared[f"{kind} {variant.name}"] = Comparable(same, different, auc, test.values)
        by_topic: list[list[records.TopicRow] | None] = [None] * len(VARIANTS)
        if group.topics:
            cosines = (_vectors(vectors, group.tested, variant) for variant in VARIANTS)
            contrasts = group.by_topic([each @ each.T for each in cosines], group.tested.kept)
            by_topic = [self._topic_rows(group, each) for each in contrasts]
        rows = [
            records.ProbeRow(
                model="",
                revision="",
                fraction=group.tested.fraction,
                assignment=group.tested.assignment,
                embedding=variant.embedding,
                centred=variant.centred,
                words=group.tested.words,
                topics=group.tested.topics,
                cosine=comparisons[variant, "cosine"],
                dot=comparisons[variant, "dot"],
                by_topic=topics,
                matched=records.MatchedPairs(cosine=matched_similarity(matched[variant], group.labellings)),
            )
            for variant, topics in zip(VARIANTS, by_topic, strict=True)
        ]
        return packed(Embeddings(rows, compared))

    def _topic_rows(self, group: Group, contrasts: Sequence[records.TopicComparison]) -> list[records.TopicRow]:
        names, kept = group.tested.topic_names, group.tested.membership.sum(axis=0).tolist()
        return [
            records.TopicRow(
                topic=names[topic] if names else topic,
                words=list(self.topic_words[topic]),
                kept=kept[topic],
                cosine=cosine,
            )
            for topic, cosine in zip(group.topics, contrasts, strict=True)
        ]


def _vectors(
    vectors: Vectors, labelling: Labelling, variant: Variant, kind: Kind = "cosine", *, every: bool = False
) -> Float[np.ndarray, "word width"]:
    """Vectors whose dot products are similarities, of the words that the labelling keeps, or of every word of the plan.

    If asked for, they are centred on the mean of the words that the labelling keeps.
    """
    chosen = vectors[variant.embedding].astype(np.float64)
    kept = chosen[labelling.kept]
    return prepared((chosen if every else kept) - (kept.mean(axis=0) if variant.centred else 0.0), kind)


class ModelRows(Struct, frozen=True):
    """What is known of a model: rows that lack its name and the corpus, and the numbers that models are compared by."""

    rows: list[records.ProbeRow]
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
        attention = attention_numbers(totals, plan, self.measures, load_file(self.vectors), self.words)
        compared = [one.compared | other.compared for one, other in zip(attention, embeddings, strict=True)]
        sink = (totals.sunk / totals.queries).tolist() if totals.queries else None
        rows = [
            structs.replace(
                row,
                attention=numbers.attention,
                attention_by_layer=numbers.by_layer,
                attention_by_layer_head=numbers.by_layer_head,
                hidden_by_layer=numbers.hidden,
                by_topic=row.by_topic and numbers.with_attention(row.by_topic),
                over_largest_threshold=over_largest_threshold(compared, plan.tested, place, variant),
                top_co_occurring=top,
                matched=row.matched and structs.replace(row.matched, attention=numbers.matched),
                sink=sink,
            )
            for place, (numbers, own) in enumerate(zip(attention, embeddings, strict=True))
            for variant, row, top in zip(VARIANTS, own.rows, numbers.top_pairs, strict=True)
        ]
        groups = [
            MeasuredGroup(labelling.fraction, labelling.assignment, numbers)
            for labelling, numbers in zip(plan.tested, compared, strict=True)
        ]
        return packed(ModelRows(rows, groups))


@dataclass(frozen=True, kw_only=True)
class AttentionNumbers:
    """Attention, hidden states and Table 2 under one group of labellings."""

    attention: records.Comparison
    by_layer: list[records.LayerAttention]
    by_layer_head: list[list[records.HeadComparison]]
    matched: records.MatchedComparison
    by_topic: list[records.TopicComparison]
    hidden: list[records.HiddenLayer] | None
    hidden_by_topic: list[records.TopicComparison]
    top_pairs: list[records.TopPairs]
    """For each variant."""

    compared: dict[str, Comparable]

    @property
    def hidden_layer(self) -> int | None:
        """The layer of ``hidden_by_topic``: the one that distinguishes topics best."""
        return best_layer(self.hidden) if self.hidden_by_topic and self.hidden else None

    def with_attention(self, rows: Sequence[records.TopicRow]) -> list[records.TopicRow]:
        """Rows of single topics, with attention and hidden states too."""
        hidden: Sequence[records.TopicComparison | None] = self.hidden_by_topic or [None] * len(rows)
        return [
            structs.replace(row, attention=attention, hidden=states, hidden_layer=self.hidden_layer)
            for row, attention, states in zip(rows, self.by_topic, hidden, strict=True)
        ]


def attention_numbers(
    totals: AttentionTotals, plan: Plan, measures: MeasureSettings, vectors: Vectors, words: Sequence[str]
) -> list[AttentionNumbers]:
    """Everything about attention, hidden states and co-occurrence of one model, for each group of labellings.

    vectors: ``matrix`` and ``layer``, a row for each word of the plan's vocabulary. words: their names.
    """

    def of_group(places: tuple[int, ...]) -> AttentionNumbers:
        return _of_group(totals, Group(plan, places, measures), vectors, words)

    # Each group draws from its own generator, so threads change no number. NumPy releases Python's lock in look-ups.
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(of_group, plan.groups))


def _of_group(totals: AttentionTotals, group: Group, vectors: Vectors, words: Sequence[str]) -> AttentionNumbers:
    plan, first = group.plan, group.first
    sums, counts = totals.pairs.matrices(group.tested)
    among, stratum, permutations = (
        group.tested.among_kept,
        group.stratum[group.tested.kept],
        group.measures.permutations,
    )
    ratios = permuted_log_ratios(sums, counts, among, stratum, permutations, generator=group.permuting())
    # By LDA seed, replicate, kind, layer and head.
    averages = np.stack([totals.averages(place) for place in group.places])
    tests = totals.head_tests(first, plan.groups.index(tuple(group.places)))
    near, examples = totals.matched_heads(first), totals.examples.reshape(-1, *tests.single.shape, 3)
    same, different = _sides(group, averages.mean(axis=(3, 4)))
    auc = group.average([totals.auc(place) for place in group.places])
    by_topic = list[records.TopicComparison]()
    if group.topics:
        [by_topic] = group.by_topic([sums], group.tested.kept, counts)
    hidden, compared, hidden_by_topic = _hidden(totals.hidden, group) if totals.hidden else (None, {}, [])

    def head(layer: int, place: int) -> records.HeadComparison:
        distant = contrast(near.same[:, layer, place], near.different[:, layer, place])
        shown = examples[:SHOWN_PAIRS, layer, place]
        return extended(
            contrast(*_sides(group, averages[..., layer, place]), p=float(tests.together[layer, place])),
            records.HeadComparison,
            layer=layer + 1,
            head=place + 1,
            p_single=finite(tests.single[layer, place]),
            q=finite(tests.rates[layer, place]),
            matched=records.Ratio(ratio=distant.ratio, low=distant.low, high=distant.high),
            examples=[f"{words[int(one)]} {words[int(two)]}" for value, one, two in shown if np.isfinite(value)],
        )

    layers, heads = tests.single.shape
    return AttentionNumbers(
        attention=contrast(same, different, auc=auc, p=permutation_p(ratios, size=1.0)),
        by_layer=[
            extended(contrast(*_sides(group, values)), records.LayerAttention, layer=layer)
            for layer, values in enumerate(np.moveaxis(averages.mean(axis=4), 3, 0), start=1)
        ],
        by_layer_head=[[head(layer, place) for place in range(heads)] for layer in range(layers)],
        matched=_matched(totals, group),
        by_topic=by_topic,
        hidden=hidden,
        hidden_by_topic=hidden_by_topic,
        top_pairs=compare_top_pairs(
            totals.pairs,
            group.labellings,
            [[_vectors(vectors, each, variant, every=True) for each in group.labellings] for variant in VARIANTS],
            number=top_pair_number(group.tested),
            replicates=group.measures.replicates,
            generator=generator(plan.seed, Purpose.BOOTSTRAP, 2, first),
        ),
        compared=compared | {"attention": Comparable(same, different, auc, ratios)},
    )


def _sides(group: Group, averages: Float[np.ndarray, "seed replicate kind"]) -> list[Replicates]:
    """Same- and different-topic averages over LDA seeds."""
    return [group.seeds.average(averages[:, :, kind]) for kind in (SAME_TOPIC, DIFFERENT_TOPIC)]


def _matched(totals: AttentionTotals, group: Group) -> records.MatchedComparison:
    without = []
    for place, labelling in zip(group.places, group.labellings, strict=True):
        table = totals.pairs_by_distance.among(labelling.kept)
        pairs = PairsInCells.of_positions(table, labelling, group.plan.attention_strata.under(place))
        without.append(pairs.averages(table.sums))
    averages = [totals.matched(place) for place in group.places]
    same, different = (group.average([getattr(each, side) for each in averages]) for side in ("same", "different"))
    return matched_attention(same, different, without, group.labellings)


def _hidden(
    sums: HiddenSums, group: Group
) -> tuple[list[records.HiddenLayer], dict[str, Comparable], list[records.TopicComparison]]:
    """Comparisons of each layer, the numbers by which models are compared, and single topics in the best layer."""
    # Two words that are each in two passages or more always have a pair of places in different passages.
    common, vocabulary = np.zeros(len(group.plan.tokens), dtype=bool), len(group.plan.tokens)
    common[sums.words[sums.passages >= 2]] = True
    own = Labelling(group.tested.membership & common[:, None])
    words, numbers = (
        np.flatnonzero(own.kept),
        Similarities(own.among_kept, replace(group.draws, first=own).weights(own)),
    )
    tests = list[Tested]()
    for layer in range(sums.layers):
        matrix = sums.similarities(layer, words, vocabulary)
        numbers.add(matrix)
        stratum, permutations = group.stratum[own.kept], group.plan.permutations
        # All layers see the same permutations.
        tests += similarity_tests([matrix], own.among_kept, stratum, permutations, generator=group.permuting(2))
    together = maximum_p(np.stack([test.values for test in tests], axis=1))
    compared, layers = dict[str, Comparable](), list[records.HiddenLayer]()
    for layer, (test, same, different, auc) in enumerate(zip(tests, *numbers.averages(), strict=True)):
        comparison = contrast(same, different, auc=auc, p=test.p)
        compared[f"hidden centred_cosine {layer}"] = Comparable(same, different, auc, test.values)
        centred = extended(comparison, records.LayerComparison, p_all_layers=finite(together[layer]))
        layers.append(records.HiddenLayer(layer=layer, words=len(words), centred_cosine=centred))
    by_topic = list[records.TopicComparison]()
    if group.topics:
        [by_topic] = group.by_topic([sums.similarities(best_layer(layers), words, vocabulary)], own.kept)
    return layers, compared, by_topic


def best_layer(layers: Sequence[records.HiddenLayer]) -> int:
    """The layer that distinguishes topics best."""
    return int(np.argmax([layer.centred_cosine.auc or 0.0 for layer in layers]))


def top_pair_number(labelling: Labelling) -> int:
    """How many of the most co-occurring pairs: the paper's number at its thresholds, else that of the largest topic."""
    words = int(labelling.membership.sum(axis=0).max())
    return PAPER_TOP_PAIRS.get(labelling.fraction or 0, words * (words - 1) // 2)


def over_largest_threshold(
    compared: Sequence[Mapping[str, Comparable]], labellings: Sequence[Labelling], place: int, variant: Variant
) -> dict[str, records.Ratio] | None:
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
