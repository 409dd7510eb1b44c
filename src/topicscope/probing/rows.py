"""Numbers with intervals and tests, by threshold and assignment: what rows of probe.json are made of.

For embeddings, similarity within and between topics is a separate piece of work. For attention, all shards of a model
are added up; then come its contrasts, those of its heads, and the matched comparison. Both average over the LDA seeds
of one threshold and assignment.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Bool, Float
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save

from topicscope.files import Row
from topicscope.probing.passes import WORD_FREQUENCY_LEVELS, Plan, read_plan
from topicscope.probing.settings import MeasureSettings
from topicscope.probing.statistics.attention import AttentionTotals, head_tests, pair_matrices
from topicscope.probing.statistics.comparison import Comparable
from topicscope.probing.statistics.hidden import KINDS as STATES
from topicscope.probing.statistics.hidden import HiddenLayer, HiddenMeasure, HiddenSums
from topicscope.probing.statistics.labelling import (
    DIFFERENT_TOPIC,
    SAME_TOPIC,
    SAME_WORD,
    Labelling,
    TopicDraws,
)
from topicscope.probing.statistics.matching import (
    Matched,
    MatchedWords,
    attention_tests,
    matched_co_occurrence,
    matched_similarity,
    matched_without_topics,
    matched_word_co_occurrence,
    mean_of_seeds,
    with_topics,
)
from topicscope.probing.statistics.pairs import PairTable, compare_top_pairs
from topicscope.probing.statistics.permutation import Tested
from topicscope.probing.statistics.resampling import SeedDraws, contrast, ratio_of_ratios, ratio_replicates
from topicscope.probing.statistics.similarity import (
    Kind,
    auc_replicates,
    averages_of,
    placements,
    prepared,
    similarity_tests,
    topic_contrasts,
)
from topicscope.randomness import Purpose, generator

T = TypeVar("T")
KINDS: tuple[Kind, ...] = ("cosine", "dot")
# The key under which finished work (not a row) has the ratios of all replicates, to compare thresholds.
RATIOS = "ratio_replicates"
# Arrays that two models are compared by, and what is reported per topic.
COMPARED, BY_TOPIC = "compared", "by_topic"
# Pairs that co-occur most in the paper's Table 2, by threshold: as many as one of its topics has.
PAPER_TOP_PAIRS = {0.0005: 105, 0.001: 435, 0.002: 1_711}
# Similarities of words held at once.
PRODUCTS = 40_000_000
# How many groups of labellings, or layers, are summed up at once: permutations wait for memory more than for a
# processor.
THREADS = 2


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


@dataclass(frozen=True)
class EmbeddingTask:
    """The embeddings of one model, under the labellings of one threshold and assignment."""

    vectors: Path
    """A safetensors file with tensors ``matrix`` and ``layer``, a row for each word of the plan's vocabulary."""

    plan: Path
    labellings: tuple[int, ...]
    """Places in the plan, one for each LDA seed; the first is tested."""

    measures: MeasureSettings
    by_topic: bool = True

    def measure(self) -> bytes:
        """For each variant, contrasts of cosine and dot product, also by topic, and matched ones; see ``packed``."""
        plan, vectors, first = read_plan(self.plan), load_file(self.vectors), self.labellings[0]
        labellings = [plan.labellings[place] for place in self.labellings]
        draws = _word_draws(plan, first, self.measures)
        of_seeds = [_measure_seed(vectors, plan, place, draws) for place in self.labellings]
        seeds = _seed_draws(plan, self.labellings, self.measures)
        same, different, auc = (
            [seeds.average(values) for values in np.stack([getattr(each, name) for each in of_seeds], axis=1)]
            for name in ("same", "different", "auc")
        )
        tests = _tests(vectors, plan, first, self.measures.permutations)
        by_topic: list[list[Row]] | list[None] = [None] * len(VARIANTS)
        if self.by_topic and first in plan.widest:
            similar = [(each @ each.T) for each in (_ready(vectors, labellings[0], one, "cosine") for one in VARIANTS)]
            by_topic = _contrasts_by_topic(similar, plan, first, draws, self.measures)
        balance = mean_of_seeds([each.balance for each in of_seeds], "same", "different")
        found, arrays = list[Row](), dict[str, np.ndarray]()
        for place, variant in enumerate(VARIANTS):
            row, ratios = Row(), Row()
            for kind in KINDS:
                at = MEASURED.index((variant, kind))
                sides, test = (same[at], different[at]), tests[at]
                row[kind] = asdict(contrast(*sides, auc=auc[at], p=test.p))
                ratios[kind] = ratio_replicates(*sides).tolist()
                compared = Comparable(*sides, auc[at], np.append(test.observed, test.permuted))
                arrays |= compared.arrays(f"{kind} {variant.name}")
            matched = matched_similarity([each.matched[place] for each in of_seeds], labellings)
            row["matched"] = asdict(matched) | {"co_occurrence": balance}
            found.append(row | {RATIOS: ratios, BY_TOPIC: by_topic[place]})
        return packed(found, arrays)


class _SeedNumbers(NamedTuple):
    """The numbers under one LDA seed's labelling: the sample's first, then their bootstrap replicates."""

    same: Float[np.ndarray, "measured replicate"]
    different: Float[np.ndarray, "measured replicate"]
    auc: Float[np.ndarray, "measured replicate"]
    matched: list[Matched]
    """The matched averages of each variant's cosines."""

    balance: Matched
    """Averages of co-occurrence."""


def _measure_seed(vectors: dict[str, np.ndarray], plan: Plan, place: int, draws: TopicDraws) -> _SeedNumbers:
    """Exact averages over all pairs of the words that a labelling keeps, with a bootstrap over topics and words."""
    labelling = plan.labellings[place]
    kept, weights = labelling.among_kept, draws.weights(labelling)
    ready = [_ready(vectors, labelling, *each) for each in MEASURED]
    words = MatchedWords(labelling, plan.pair_strata(place, WORD_FREQUENCY_LEVELS))
    same, placed, matched = [], [], []
    for each, (_, kind) in zip(ready, MEASURED, strict=True):
        # This matrix of all pairs of words is not kept.
        products = each @ each.T
        same.append(products[kept.same_topic_pairs])
        placed.append(placements(products, kept))
        if kind == "cosine":
            matched.append(words.averages(products))
    averages = averages_of(ready, same, kept, weights)
    return _SeedNumbers(
        same=np.stack([each.same for each in averages]),
        different=np.stack([each.different for each in averages]),
        auc=np.stack(auc_replicates(placed, kept, weights)),
        matched=matched,
        balance=matched_word_co_occurrence(plan.co_occurrence, labelling, words),
    )


def _ready(
    vectors: dict[str, np.ndarray], labelling: Labelling, variant: Variant, kind: Kind
) -> Float[np.ndarray, "word width"]:
    """Vectors of the words that the labelling keeps, centred on their mean if asked for; see ``prepared``."""
    return prepared(vectors[variant.embedding][labelling.kept], kind, centred=variant.centred)


def _contrasts_by_topic(
    values: Sequence[Float[np.ndarray, "kept kept"]],
    plan: Plan,
    place: int,
    draws: TopicDraws,
    settings: MeasureSettings,
    *,
    kept: Bool[np.ndarray, " word"] | None = None,
    counts: Float[np.ndarray, "kept kept"] | None = None,
) -> list[list[Row]]:
    """Contrasts of single topics, of matrices over the words that a labelling keeps, or over those given."""
    kept = plan.labellings[place].kept if kept is None else kept
    words = np.concatenate([np.ones((1, int(kept.sum()))), draws.words[:, kept]])
    return topic_contrasts(
        values,
        Labelling(plan.labellings[place].membership[kept]),
        words,
        plan.strata(place)[kept],
        settings.head_permutations,
        counts=counts,
        generator=generator(plan.seed, Purpose.PERMUTATION, place, 3),
    )


def _tests(vectors: dict[str, np.ndarray], plan: Plan, place: int, permutations: int) -> list[Tested]:
    """Tests of the difference under permutations of words of similar frequency, the same for all similarities."""
    labelling, found = plan.labellings[place], list[Tested]()
    stratum = plan.strata(place)[labelling.kept]
    # As many at once as memory allows: permutations look up all of them together.
    at_once = max(1, PRODUCTS // len(stratum) ** 2)
    for start in range(0, len(MEASURED), at_once):
        ready = [_ready(vectors, labelling, *each) for each in MEASURED[start : start + at_once]]
        products, draw = [each @ each.T for each in ready], generator(plan.seed, Purpose.PERMUTATION, place)
        found += similarity_tests(products, labelling.among_kept, stratum, permutations, generator=draw)
    return found


def over_groups(plan: Plan, function: Callable[[tuple[int, ...]], T]) -> list[T]:
    """A function of each group of labellings, in their order; those with the most pairs are begun first.

    Each group draws from its own generator, so threads change no number. NumPy releases Python's lock in look-ups.
    """
    largest = sorted(plan.groups, key=lambda places: -len(plan.labellings[places[0]].same_topic_pairs[0]))
    with ThreadPoolExecutor(THREADS) as pool:
        found = dict(zip(largest, pool.map(function, largest), strict=True))
    return [found[places] for places in plan.groups]


def attention_summary(totals: AttentionTotals, plan: Plan, settings: MeasureSettings, *, by_topic: bool = True) -> Row:
    """For each group of labellings, what rows of probe.json hold about attention and hidden states.

    Also the attention that sinks into the first token, and the pairs of words that each head connects most.
    """
    sink = None if not totals.queries else (totals.sunk / totals.queries).tolist()
    groups = over_groups(plan, lambda places: _group(totals, plan, places, settings, by_topic))
    if totals.hidden is not None:
        for group, states in zip(groups, _hidden(totals, totals.hidden, plan, settings), strict=True):
            group["hidden_by_layer"] = states["hidden_by_layer"]
            group[COMPARED] |= states[COMPARED]
            for topic, more in zip(group[BY_TOPIC] or (), states[BY_TOPIC] or (), strict=False):
                topic |= more
    return plain({"sink": sink, "examples": totals.examples.tolist(), "groups": groups})


def _group(
    totals: AttentionTotals, plan: Plan, places: tuple[int, ...], settings: MeasureSettings, single_topics: bool
) -> Row:
    first = places[0]
    labelling = plan.labellings[first]
    test, matched_p = attention_tests(
        totals.pairs_by_distance,
        labelling,
        plan.strata(first),
        plan.attention_strata[first],
        settings.permutations,
        generator=generator(plan.seed, Purpose.PERMUTATION, first),
    )
    seeds = _seed_draws(plan, places, settings)
    averages = np.stack([totals.averages(place) for place in places])
    model = averages.mean(axis=(3, 4))
    kinds = (SAME_TOPIC, DIFFERENT_TOPIC)
    tested = plan.tested.index(first)
    tests = head_tests(totals.sums(first), totals.counts(first), totals.permuted[tested])
    same, different = totals.matched_heads(tested)
    sides = [seeds.average(model[:, :, kind]) for kind in kinds]
    auc = seeds.average(np.stack([totals.auc(place) for place in places]))
    attention = contrast(*sides, auc=auc, p=test.p)
    by_topic = None
    if single_topics and first in plan.widest:
        sums, counts = pair_matrices(totals.pairs, labelling)
        draws = _word_draws(plan, first, settings)
        [found] = _contrasts_by_topic([sums], plan, first, draws, settings, counts=counts)
        by_topic = [{"attention": each} for each in found]

    def head(layer: int, head: int) -> Row:
        found = contrast(
            *(seeds.average(averages[:, :, kind, layer, head]) for kind in kinds), p=float(tests.together[layer, head])
        )
        alike = contrast(same[:, layer, head], different[:, layer, head])
        return asdict(found) | {
            "p_single": tests.single[layer, head],
            "q": tests.rates[layer, head],
            "matched": {name: getattr(alike, name) for name in ("ratio", "low", "high")},
        }

    layers, heads = tests.single.shape
    by_layer = averages.mean(axis=4)
    return {
        RATIOS: {"attention": ratio_replicates(*sides).tolist()},
        COMPARED: Comparable(sides[0], sides[1], auc, np.append(test.observed, test.permuted)).arrays("attention"),
        BY_TOPIC: by_topic,
        "hidden_by_layer": None,
        "attention": {
            **asdict(attention),
            "same_word": float(model[:, 0, SAME_WORD].mean()),
            "pairs": dict(zip(("same_word", "same", "different"), totals.counts(first).tolist(), strict=True)),
        },
        "attention_by_layer": [
            asdict(contrast(*(seeds.average(by_layer[:, :, kind, layer]) for kind in kinds))) for layer in range(layers)
        ],
        "attention_by_layer_head": [[head(layer, place) for place in range(heads)] for layer in range(layers)],
        "matched": _matched(totals, plan, places, seeds, matched_p),
    }


def _hidden(totals: AttentionTotals, sums: HiddenSums, plan: Plan, settings: MeasureSettings) -> list[Row]:
    """For each group and layer: similarity of hidden states in different passages and, separately, within passages."""
    # Two words that are each in two passages or more always have a pair of places in different passages.
    common, permutations = sums.words[sums.passages >= 2], settings.head_permutations
    measures = {
        first: HiddenMeasure(
            plan.labellings[first], plan.strata(first), common, _word_draws(plan, first, settings), permutations
        )
        for first, *_ in plan.groups
    }

    def layer(number: int) -> dict[int, HiddenLayer]:
        similar = sums.similarities(number, common, len(plan.tokens))
        return {
            first: each.layer(similar, generator=generator(plan.seed, Purpose.PERMUTATION, first, 2))
            for first, each in measures.items()
        }

    # As many layers at once as memory allows.
    at_once = min(THREADS, max(1, PRODUCTS // max(len(STATES) * len(common) ** 2, 1)))
    with ThreadPoolExecutor(at_once) as pool:
        layers = list(pool.map(layer, range(sums.layers)))
    return over_groups(
        plan,
        lambda places: _hidden_group(
            totals, sums, plan, places[0], measures[places[0]], [each[places[0]] for each in layers], settings
        ),
    )


def _hidden_group(
    totals: AttentionTotals,
    sums: HiddenSums,
    plan: Plan,
    first: int,
    measure: HiddenMeasure,
    layers: Sequence[HiddenLayer],
    settings: MeasureSettings,
) -> Row:
    within, by_layer, arrays = totals.within(first), list[Row](), dict[str, np.ndarray]()
    for layer, measured in enumerate(measure.by_layer(layers)):
        found: Row = {"layer": layer, "words": len(measure.words), "within": {}}
        for place, (kind, (compared, p_all_layers, comparable)) in enumerate(zip(STATES, measured, strict=True)):
            found[kind] = asdict(compared) | {"p_all_layers": p_all_layers}
            found["within"][kind] = asdict(contrast(within[:, 0, layer, place], within[:, 1, layer, place]))
            arrays |= comparable.arrays(f"hidden {kind} {layer}")
        by_layer.append(found)
    by_topic = None
    if first in plan.widest:
        # In the layer that distinguishes topics best.
        best = int(np.argmax([np.nan_to_num(each["centred_cosine"]["auc"] or 0.0) for each in by_layer]))
        labelling = plan.labellings[first]
        chosen = np.zeros(len(labelling.kept), dtype=bool)
        chosen[measure.words] = True
        similar = sums.similarities(best, measure.words, len(plan.tokens))[STATES.index("centred_cosine")]
        draws = _word_draws(plan, first, settings)
        [found_topics] = _contrasts_by_topic([similar], plan, first, draws, settings, kept=chosen)
        by_topic = [{"hidden": each, "hidden_layer": best} for each in found_topics]
    return {"hidden_by_layer": by_layer, COMPARED: arrays, BY_TOPIC: by_topic}


def _matched(totals: AttentionTotals, plan: Plan, places: tuple[int, ...], seeds: SeedDraws, p: float) -> Row:
    pairs = totals.pairs_by_distance
    labellings = [plan.labellings[place] for place in places]
    strata = [plan.attention_strata[place] for place in places]
    found = [totals.matched(place) for place in places]
    same = seeds.average(np.stack([each.same for each in found]))
    different = seeds.average(np.stack([each.different for each in found]))
    without = [matched_without_topics(pairs, *each) for each in zip(labellings, strata, strict=True)]
    compared = with_topics(contrast(same, different, p=p), same, different, without, labellings)
    balances = [
        matched_co_occurrence(pairs, plan.co_occurrence, *each) for each in zip(labellings, strata, strict=True)
    ]
    return {
        **asdict(compared),
        **mean_of_seeds(found, "share"),
        "co_occurrence": mean_of_seeds(balances, "same", "different"),
    }


def _word_draws(plan: Plan, place: int, settings: MeasureSettings) -> TopicDraws:
    """The same draws for all seeds, variants, layers and thresholds, which then differ only in what is measured."""
    draw = generator(plan.seed, Purpose.BOOTSTRAP, 0, 0)
    return TopicDraws.draw(plan.labellings[place], settings.replicates, generator=draw)


def _seed_draws(plan: Plan, places: Sequence[int], settings: MeasureSettings) -> SeedDraws:
    """The same draws of LDA seeds for every number, at every threshold."""
    draw = generator(plan.seed, Purpose.MEASURE, 0)
    return SeedDraws.draw(len(places), settings.replicates, generator=draw)


def top_co_occurring(pairs: PairTable, plan: Plan, task: EmbeddingTask) -> list[Row]:
    """A row of Table 2 for each variant."""
    stored = load_file(task.vectors)
    labellings = [plan.labellings[place] for place in task.labellings]
    vectors = [[_every_word(stored, each, variant) for each in labellings] for variant in VARIANTS]
    draw = generator(plan.seed, Purpose.BOOTSTRAP, 2, task.labellings[0])
    found = compare_top_pairs(
        pairs,
        labellings,
        vectors,
        number=top_pair_number(labellings[0]),
        replicates=task.measures.replicates,
        generator=draw,
    )
    return [asdict(each) for each in found]


def top_pair_number(labelling: Labelling) -> int:
    """How many of the most co-occurring pairs: the paper's number at its thresholds, else that of the largest topic."""
    words = int(labelling.membership.sum(axis=0).max())
    return PAPER_TOP_PAIRS.get(labelling.fraction or 0, words * (words - 1) // 2)


def _every_word(
    vectors: dict[str, np.ndarray], labelling: Labelling, variant: Variant
) -> Float[np.ndarray, "word width"]:
    """Vectors of all words of the plan, for cosines; centred, if asked for, on the mean of the labelling's words."""
    found = vectors[variant.embedding].astype(np.float64)
    return prepared(found - found[labelling.kept].mean(axis=0) if variant.centred else found, "cosine")


def over_largest_threshold(
    ratios: Sequence[dict[str, list[float | None]]], labellings: Sequence[Labelling]
) -> list[Row | None]:
    """How many times as large each labelling's ratios are as those of the largest threshold of the same assignment.

    ``ratios`` has one entry per labelling: by measure, the replicates of its ratio, all under the same draws. The
    result is None for the largest threshold itself, and for the user's own topics.
    """
    rows: list[Row | None] = []
    for mine, labelling in zip(ratios, labellings, strict=True):
        alike = [place for place, each in enumerate(labellings) if each.assignment == labelling.assignment]
        largest = max(alike, key=lambda place: labellings[place].fraction or 0)
        if labelling.fraction == labellings[largest].fraction:
            rows.append(None)
            continue
        pairs = {name: (np.array(mine[name], float), np.array(ratios[largest][name], float)) for name in mine}
        rows.append({name: ratio_of_ratios(*pair) for name, pair in pairs.items()})
    return rows


def plain(value: Any) -> Any:
    """The same with None for whatever is not a finite number, as JSON needs it."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def packed(value: Any, arrays: Mapping[str, np.ndarray]) -> bytes:
    """Plain values and arrays as one safetensors file."""
    said = json.dumps(plain(value), allow_nan=False)
    return save({name: np.ascontiguousarray(array) for name, array in arrays.items()}, metadata={"value": said})


def said_of(path: Path) -> dict[str, Any]:
    """The plain values alone; none if there is no such file, or a damaged one."""
    try:
        with safe_open(path, framework="np") as file:
            found = json.loads(file.metadata()["value"])
    except (OSError, SafetensorError, ValueError, LookupError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def unpacked(path: Path) -> tuple[Any, dict[str, np.ndarray]]:
    """What ``packed`` made."""
    with safe_open(path, framework="np") as file:
        return json.loads(file.metadata()["value"]), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
