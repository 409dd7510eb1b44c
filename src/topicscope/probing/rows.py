"""Numbers with intervals and tests, by threshold and assignment: what rows of probe.json are made of.

For embeddings, similarity within and between topics is a separate piece of work. For attention, all shards of a model
are added up; then come its contrasts, those of its heads, and the matched comparison. Both average over the LDA seeds
of one threshold and assignment, a group of labellings.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from jaxtyping import Bool, Float
from msgspec import Struct, structs
from safetensors.numpy import load_file

from topicscope.probing.packing import packed, unpacked
from topicscope.probing.passes import WORD_FREQUENCY_LEVELS, Plan, read_plan
from topicscope.probing.settings import MeasureSettings
from topicscope.probing.statistics.attention import AttentionTotals, ShardSums, head_tests, pair_matrices
from topicscope.probing.statistics.hidden import KINDS as STATES
from topicscope.probing.statistics.hidden import HiddenSums
from topicscope.probing.statistics.labelling import DIFFERENT_TOPIC, SAME_TOPIC, SAME_WORD, Labelling, TopicDraws
from topicscope.probing.statistics.matching import (
    Matched,
    PairsInCells,
    attention_tests,
    matched_similarity,
    mean_of_seeds,
    with_topics,
)
from topicscope.probing.statistics.pairs import compare_top_pairs
from topicscope.probing.statistics.permutation import Tested, maximum_p
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
    prepared,
    similarity_tests,
    topic_contrasts,
)
from topicscope.randomness import Purpose, generator
from topicscope.records import (
    AttentionComparison,
    Comparison,
    HeadComparison,
    HiddenLayer,
    LayerAttention,
    LayerComparison,
    MatchedComparison,
    PairCounts,
    Ratio,
    Sides,
    TopicComparison,
    TopPairs,
)

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


class EmbeddingNumbers(Struct, frozen=True, kw_only=True):
    """Similarity under one group of labellings, for one variant."""

    cosine: Comparison
    dot: Comparison
    matched: MatchedComparison
    by_topic: list[TopicComparison] | None


class Embeddings(Struct, frozen=True):
    """The numbers of all variants, in their order, and those by which models are compared, by measure."""

    variants: list[EmbeddingNumbers]
    compared: dict[str, Comparable]


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


class Summary(Struct, frozen=True):
    """What the sums of all of a model's shards say."""

    sink: list[list[float]] | None
    groups: list[AttentionNumbers]


def seed_draws(plan: Plan, places: Sequence[int], replicates: int) -> SeedDraws:
    """The same draws of LDA seeds for every number, at every threshold."""
    return SeedDraws.draw(len(places), replicates, generator=generator(plan.seed, Purpose.MEASURE, 0))


def word_draws(plan: Plan, place: int, replicates: int) -> TopicDraws:
    """The same draws for all seeds, variants, layers and thresholds, which then differ only in what is measured."""
    draw = generator(plan.seed, Purpose.BOOTSTRAP, 0, 0)
    return TopicDraws.draw(plan.labellings[place], replicates, generator=draw)


class _SeedNumbers(NamedTuple):
    """The numbers under one LDA seed's labelling."""

    averages: PairAverages
    matched: list[Matched]
    """The matched averages of each variant's cosines."""

    balance: Matched
    """Averages of co-occurrence."""

    tests: list[Tested]
    """Of the first seed's labelling alone."""


@dataclass(frozen=True)
class EmbeddingTask:
    """The embeddings of one model, under the labellings of one threshold and assignment."""

    vectors: Path
    """A safetensors file with tensors ``matrix`` and ``layer``, a row for each word of the plan's vocabulary."""

    plan: Path
    labellings: tuple[int, ...]
    """Places in the plan, one for each LDA seed; the first is tested."""

    measures: MeasureSettings

    def measure(self) -> bytes:
        """:class:`Embeddings`, as a file."""
        plan, vectors, first = read_plan(self.plan), load_file(self.vectors), self.labellings[0]
        labellings = [plan.labellings[place] for place in self.labellings]
        draws = word_draws(plan, first, self.measures.replicates)
        of_seeds = [self._of_seed(vectors, plan, place, draws) for place in self.labellings]
        seeds = seed_draws(plan, self.labellings, self.measures.replicates)
        same, different, auc = (
            [seeds.average(values) for values in np.stack([getattr(each.averages, name) for each in of_seeds], axis=1)]
            for name in ("same", "different", "auc")
        )
        tests = of_seeds[0].tests
        by_topic: Sequence[list[TopicComparison] | None] = [None] * len(VARIANTS)
        if self.measures.details and first in plan.widest:
            ready = [_ready(vectors, labellings[0], variant, "cosine") for variant in VARIANTS]
            by_topic = contrasts_by_topic([each @ each.T for each in ready], plan, first, draws)
        comparisons = [
            contrast(*sides, auc=area, p=test.p) for *sides, area, test in zip(same, different, auc, tests, strict=True)
        ]
        compared = {
            f"{kind} {variant.name}": Comparable(
                same[at], different[at], auc[at], np.append(tests[at].observed, tests[at].permuted)
            )
            for at, (variant, kind) in enumerate(MEASURED)
        }
        balances = [each.balance for each in of_seeds]
        variants = [
            EmbeddingNumbers(
                cosine=comparisons[MEASURED.index((variant, "cosine"))],
                dot=comparisons[MEASURED.index((variant, "dot"))],
                matched=matched_similarity([each.matched[place] for each in of_seeds], labellings, balances),
                by_topic=by_topic[place],
            )
            for place, variant in enumerate(VARIANTS)
        ]
        return packed(Embeddings(variants, compared))

    def _of_seed(self, vectors: Vectors, plan: Plan, place: int, draws: TopicDraws) -> _SeedNumbers:
        labelling = plan.labellings[place]
        kept, above = labelling.among_kept, np.triu_indices(labelling.words, k=1)
        numbers = Similarities(kept, draws.weights(labelling))
        words = PairsInCells.of_words(labelling, plan.pair_strata(place, WORD_FREQUENCY_LEVELS))
        matched, tests = list[Matched](), list[Tested]()
        # As many matrices at once as memory allows: permutations look up all of them together.
        at_once = max(1, PRODUCTS // labelling.words**2)
        for start in range(0, len(MEASURED), at_once):
            some = MEASURED[start : start + at_once]
            matrices = [ready @ ready.T for ready in (_ready(vectors, labelling, *each) for each in some)]
            for (_, kind), matrix in zip(some, matrices, strict=True):
                numbers.add(matrix)
                if kind == "cosine":
                    matched.append(words.averages(matrix[above]))
            if place == self.labellings[0]:
                stratum, draw = plan.strata(place)[labelling.kept], generator(plan.seed, Purpose.PERMUTATION, place)
                tests += similarity_tests(matrices, kept, stratum, self.measures.permutations, generator=draw)
        together = pair_matrices(plan.co_occurrence, labelling)[1] / 2
        return _SeedNumbers(numbers.averages(), matched, words.averages(together[above]), tests)


def _ready(vectors: Vectors, labelling: Labelling, variant: Variant, kind: Kind) -> Float[np.ndarray, "kept width"]:
    """Vectors of the words that the labelling keeps, centred on their mean if asked for; see ``prepared``."""
    return prepared(vectors[variant.embedding][labelling.kept], kind, centred=variant.centred)


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
    words = np.concatenate([np.ones((1, int(kept.sum()))), draws.words[:, kept]])
    return topic_contrasts(
        values,
        Labelling(plan.labellings[place].membership[kept]),
        words,
        plan.strata(place)[kept],
        plan.permutations,
        counts=counts,
        generator=generator(plan.seed, Purpose.PERMUTATION, place, 3),
    )


@dataclass(frozen=True)
class SummaryTask:
    """All shards of a model, added up."""

    shards: tuple[Path, ...]
    vectors: Path
    plan: Path
    words: tuple[str, ...]
    """The names of the plan's vocabulary."""

    measures: MeasureSettings

    def measure(self) -> bytes:
        """:class:`Summary`, as a file."""
        plan = read_plan(self.plan)
        shards = (unpacked(path, ShardSums) for path in self.shards)
        totals = AttentionTotals(shards, self.measures.replicates, plan.seed)
        return packed(AttentionSummary(totals, plan, self.measures).of(load_file(self.vectors), self.words))


class AttentionSummary:
    """Everything about attention, hidden states and co-occurrence of one model, from the sums of all its shards."""

    def __init__(self, totals: AttentionTotals, plan: Plan, settings: MeasureSettings) -> None:
        self.totals, self.plan, self.settings = totals, plan, settings

    def of(self, vectors: Vectors, words: Sequence[str]) -> Summary:
        """The numbers of each group of labellings.

        vectors: ``matrix`` and ``layer``, a row for each word of the plan's vocabulary. words: their names.
        """
        examples = _named_examples(self.totals.examples.tolist(), words)
        attention = over_groups(self.plan, lambda places: self._attention(places, examples))
        tops = over_groups(self.plan, lambda places: self._top_pairs(places, vectors))
        with_states = self._with_states(attention, self.totals.hidden) if self.totals.hidden else attention
        groups = [structs.replace(group, top_pairs=top) for group, top in zip(with_states, tops, strict=True)]
        sink = None if not self.totals.queries else (self.totals.sunk / self.totals.queries).tolist()
        return Summary(sink, groups)

    def _attention(self, places: tuple[int, ...], examples: Sequence[Sequence[list[str]]]) -> AttentionNumbers:
        totals, plan, first = self.totals, self.plan, places[0]
        labelling, tested = plan.labellings[first], plan.tested.index(first)
        test, matched_p = attention_tests(
            totals.pairs_by_distance,
            labelling,
            plan.strata(first),
            plan.attention_strata[first],
            self.settings.permutations,
            generator=generator(plan.seed, Purpose.PERMUTATION, first),
        )
        seeds = seed_draws(plan, places, self.settings.replicates)
        averages = np.stack([totals.averages(place) for place in places])
        model, by_layer = averages.mean(axis=(3, 4)), averages.mean(axis=4)
        kinds = (SAME_TOPIC, DIFFERENT_TOPIC)
        tests = head_tests(totals.sums(first), totals.counts(first), totals.permuted[tested])
        same, different = totals.matched_heads(tested)
        sides = [seeds.average(model[:, :, kind]) for kind in kinds]
        auc = seeds.average(np.stack([totals.auc(place) for place in places]))
        counts = totals.counts(first).tolist()
        by_topic = None
        if self.settings.details and first in plan.widest:
            sums, counted = pair_matrices(totals.pairs, labelling)
            draws = word_draws(plan, first, self.settings.replicates)
            [by_topic] = contrasts_by_topic([sums], plan, first, draws, counts=counted)

        def head(layer: int, place: int) -> HeadComparison:
            near = contrast(same[:, layer, place], different[:, layer, place])
            one, other = (seeds.average(averages[:, :, kind, layer, place]) for kind in kinds)
            return extended(
                contrast(one, other, p=float(tests.together[layer, place])),
                HeadComparison,
                layer=layer + 1,
                head=place + 1,
                p_single=finite(tests.single[layer, place]),
                q=finite(tests.rates[layer, place]),
                matched=Ratio(ratio=near.ratio, low=near.low, high=near.high),
                examples=examples[layer][place],
            )

        layers, heads = tests.single.shape
        return AttentionNumbers(
            attention=extended(
                contrast(*sides, auc=auc, p=test.p),
                AttentionComparison,
                same_word=finite(model[:, 0, SAME_WORD].mean()),
                pairs=PairCounts(
                    same_word=counts[SAME_WORD], same=counts[SAME_TOPIC], different=counts[DIFFERENT_TOPIC]
                ),
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
            matched=self._matched(places, seeds, matched_p),
            by_topic=by_topic,
            compared={"attention": Comparable(sides[0], sides[1], auc, np.append(test.observed, test.permuted))},
        )

    def _matched(self, places: tuple[int, ...], seeds: SeedDraws, p: float) -> MatchedComparison:
        plan, labellings = self.plan, [self.plan.labellings[place] for place in places]
        averages = [self.totals.matched(place) for place in places]
        without, balances = [], []
        for place, labelling in zip(places, labellings, strict=True):
            table = self.totals.pairs_by_distance.without_same_word().among(labelling.kept)
            pairs = PairsInCells.of_positions(table, labelling, plan.attention_strata[place])
            without.append(pairs.averages(table.sums))
            # A pair that is not in the table of co-occurrence has place −1, and never co-occurs.
            together = np.append(plan.co_occurrence.counts, 0.0)[plan.co_occurrence.places(table.first, table.second)]
            balances.append(pairs.averages(table.counts * together / 2))
        same, different = (
            seeds.average(np.stack([getattr(each, side) for each in averages])) for side in ("same", "different")
        )
        compared = extended(
            contrast(same, different, p=p),
            MatchedComparison,
            **mean_of_seeds(averages, "share"),
            co_occurrence=Sides(**mean_of_seeds(balances, "same", "different")),
        )
        return with_topics(compared, same, different, without, labellings)

    def _top_pairs(self, places: tuple[int, ...], vectors: Vectors) -> list[TopPairs]:
        """A row of Table 2 for each variant."""
        labellings = [self.plan.labellings[place] for place in places]
        return compare_top_pairs(
            self.totals.pairs,
            labellings,
            [[_every_word(vectors, each, variant) for each in labellings] for variant in VARIANTS],
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
        words, measures = np.flatnonzero(common), {}
        for first, *_ in plan.groups:
            measures[first] = _States(plan, first, plan.labellings[first].kept & common, self.settings)
        for layer in range(sums.layers):
            matrices = sums.similarities(layer, words, len(plan.tokens))
            over_groups(plan, lambda places, matrices=matrices: measures[places[0]].add(matrices, words))  # type: ignore[misc]

        def add_states(places: tuple[int, ...]) -> AttentionNumbers:
            group, measure = groups[plan.groups.index(places)], measures[places[0]]
            hidden, compared = measure.by_layer()
            group = structs.replace(group, hidden=hidden, compared=group.compared | compared)
            if places[0] not in plan.widest:
                return group
            best = int(np.argmax([each.centred_cosine.auc or 0.0 for each in hidden]))
            matrix = sums.similarities(best, measure.words, len(plan.tokens))[STATES.index("centred_cosine")]
            draws = word_draws(plan, places[0], self.settings.replicates)
            [by_topic] = contrasts_by_topic([matrix], plan, places[0], draws, kept=measure.chosen)
            return structs.replace(group, hidden_by_topic=by_topic, hidden_layer=best)

        return over_groups(plan, add_states)


class _States:
    """Hidden states under one labelling, layer by layer."""

    def __init__(self, plan: Plan, place: int, chosen: Bool[np.ndarray, " word"], settings: MeasureSettings) -> None:
        """``chosen``: the labelling's words that have similarities."""
        labelling, draws = plan.labellings[place], word_draws(plan, place, settings.replicates)
        self.chosen, self.words = chosen, np.flatnonzero(chosen)
        own = Labelling(labelling.membership & chosen[:, None])
        self._numbers = Similarities(own.among_kept, TopicDraws(own, draws.topics, draws.words).weights(own))
        self._tests: list[list[Tested]] = []
        self._plan, self._place = plan, place

    def add(self, matrices: Float[np.ndarray, "kind common common"], common: np.ndarray) -> None:
        """Measure a layer's similarities, which are of the words ``common``."""
        rows, plan = np.searchsorted(common, self.words), self._plan
        own = [matrix[np.ix_(rows, rows)] for matrix in matrices]
        for matrix in own:
            self._numbers.add(matrix)
        # All layers see the same permutations.
        draw, stratum = generator(plan.seed, Purpose.PERMUTATION, self._place, 2), plan.strata(self._place)[self.chosen]
        self._tests.append(similarity_tests(own, self._numbers.labelling, stratum, plan.permutations, generator=draw))

    def by_layer(self) -> tuple[list[HiddenLayer], dict[str, Comparable]]:
        """The comparisons of each layer, and the numbers by which two models are compared."""
        averages, compared, layers = self._numbers.averages(), dict[str, Comparable](), list[HiddenLayer]()
        observed = np.array([[test.observed for test in tests] for tests in self._tests])
        permuted = np.array([[test.permuted for test in tests] for tests in self._tests])
        together = np.stack(
            [maximum_p(observed[:, [kind]], permuted[:, [kind]].transpose(2, 0, 1)) for kind in range(len(STATES))]
        )
        for layer, tests in enumerate(self._tests):
            comparisons = {}
            for kind, (name, test) in enumerate(zip(STATES, tests, strict=True)):
                at = layer * len(STATES) + kind
                numbers = Comparable(
                    averages.same[at], averages.different[at], averages.auc[at], np.append(test.observed, test.permuted)
                )
                comparisons[name] = extended(
                    contrast(numbers.same, numbers.different, auc=numbers.auc, p=test.p),
                    LayerComparison,
                    p_all_layers=finite(together[kind, layer, 0]),
                )
                compared[f"hidden {name} {layer}"] = numbers
            layers.append(HiddenLayer(layer=layer, words=len(self.words), **comparisons))
        return layers, compared


def over_groups(plan: Plan, function: Callable[[tuple[int, ...]], T]) -> list[T]:
    """A function of each group of labellings, in their order; those with the most pairs are begun first.

    Each group draws from its own generator, so threads change no number. NumPy releases Python's lock in look-ups.
    """
    largest = sorted(plan.groups, key=lambda places: -len(plan.labellings[places[0]].same_topic_pairs[0]))
    with ThreadPoolExecutor(THREADS) as pool:
        results = dict(zip(largest, pool.map(function, largest), strict=True))
    return [results[places] for places in plan.groups]


def top_pair_number(labelling: Labelling) -> int:
    """How many of the most co-occurring pairs: the paper's number at its thresholds, else that of the largest topic."""
    words = int(labelling.membership.sum(axis=0).max())
    return PAPER_TOP_PAIRS.get(labelling.fraction or 0, words * (words - 1) // 2)


def _every_word(vectors: Vectors, labelling: Labelling, variant: Variant) -> Float[np.ndarray, "word width"]:
    """Vectors of all words of the plan, for cosines; centred, if asked for, on the mean of the labelling's words."""
    every = vectors[variant.embedding].astype(np.float64)
    return prepared(every - every[labelling.kept].mean(axis=0) if variant.centred else every, "cosine")


def _named_examples(
    examples: Sequence[Sequence[Sequence[Sequence[float]]]], words: Sequence[str]
) -> list[list[list[str]]]:
    """For each layer and head, the pairs of words that it connects most."""
    return [
        [
            [f"{words[int(one)]} {words[int(other)]}" for value, one, other in head[:SHOWN_PAIRS] if np.isfinite(value)]
            for head in layer
        ]
        for layer in examples
    ]


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
    names = {kind: f"{kind} {variant.name}" for kind in KINDS} | {"attention": "attention"}
    pairs = {measure: [compared[at][name] for at in (place, largest)] for measure, name in names.items()}
    return {
        measure: ratio_of_ratios(*(ratio_replicates(each.same, each.different) for each in pair))
        for measure, pair in pairs.items()
    }
