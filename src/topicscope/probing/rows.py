"""Numbers with intervals and tests, by threshold and assignment: what rows of probe.json are made of.

Embeddings: similarity within and between topics, as a piece of work of its own. Attention: all shards of a model added
up, then its contrasts, those of its heads, and the matched comparison. Both average over the LDA seeds of one threshold
and assignment.
"""

import json
import math
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from safetensors.numpy import load_file

from topicscope.probing.passes import WORD_FREQUENCY_LEVELS, Plan, read_plan
from topicscope.probing.settings import MeasureSettings
from topicscope.probing.statistics.attention import (
    AttentionReplicates,
    PermutedSums,
    ShardSums,
    head_tests,
    model_test,
)
from topicscope.probing.statistics.cooccurrence import compare_top_pairs
from topicscope.probing.statistics.labelling import (
    DIFFERENT_TOPIC,
    SAME_TOPIC,
    SAME_WORD,
    Labelling,
    TopicDraws,
    TopicWeights,
)
from topicscope.probing.statistics.matching import (
    Balance,
    Matched,
    MatchedWords,
    matched_co_occurrence,
    matched_similarity,
    matched_test,
    matched_without_topics,
    matched_word_co_occurrence,
    with_topics,
)
from topicscope.probing.statistics.pairs import PairTable
from topicscope.probing.statistics.resampling import SeedDraws, contrast
from topicscope.probing.statistics.similarity import (
    Kind,
    auc_replicates,
    averages_of,
    placements,
    prepared,
    similarity_p_values,
)
from topicscope.randomness import Purpose, generator

KINDS: tuple[Kind, ...] = ("cosine", "dot")
# Similarities of words held at once.
PRODUCTS = 40_000_000
# Groups of labellings summed up at once: permutations wait for memory more than for a processor.
THREADS = 2
# Shards' tables of pairs that are held before they are put together.
MERGED = 8


@dataclass(frozen=True)
class EmbeddingTask:
    """The embeddings of one model, under the labellings of one threshold and assignment."""

    vectors: Path
    """A safetensors file with tensors ``matrix`` and ``layer``, a row for each word of the plan's vocabulary."""

    plan: Path
    labellings: tuple[int, ...]
    """Places in the plan, one for each LDA seed; the first is tested."""

    replicates: int
    permutations: int
    seed: int


@dataclass(frozen=True)
class Variant:
    """Which vectors are compared, and whether their mean is taken off first."""

    embedding: str
    centred: bool


Measured = tuple[Variant, Kind]
VARIANTS = tuple(Variant(embedding, centred) for embedding in ("matrix", "layer") for centred in (False, True))
MEASURED: tuple[Measured, ...] = tuple((variant, kind) for variant in VARIANTS for kind in KINDS)


def measure_embedding(task: EmbeddingTask) -> list[dict[str, Any]]:
    """Of each variant: contrasts of cosine and dot product, and what is matched on co-occurrence and frequency."""
    plan, vectors = read_plan(task.plan), load_file(task.vectors)
    labellings = [plan.labellings[place] for place in task.labellings]
    # The same draws for all seeds and variants: what differs between variants is the similarity alone.
    draw = generator(task.seed, Purpose.BOOTSTRAP, 0, task.labellings[0])
    draws = TopicDraws.draw(labellings[0], task.replicates, generator=draw)
    of_seeds = [
        _measure_seed(vectors, plan, task, number, draws.weights(each)) for number, each in enumerate(labellings)
    ]
    seeds = _seed_draws(task.seed, task.labellings, task.replicates)
    balance = {"co_occurrence": asdict(Balance.mean([each.balance for each in of_seeds]))}
    found = []
    for variant in VARIANTS:
        row: dict[str, Any] = {kind: _contrast(of_seeds, (variant, kind), seeds) for kind in KINDS}
        matched = matched_similarity([each.matched[variant] for each in of_seeds], labellings)
        found.append(row | {"matched": asdict(matched) | balance})
    return found


@dataclass(frozen=True, eq=False)
class _SeedNumbers:
    """What one LDA seed's labelling gives: numbers themselves first, then their bootstrap replicates."""

    same: dict[Measured, Float[np.ndarray, " replicate"]]
    different: dict[Measured, Float[np.ndarray, " replicate"]]
    auc: dict[Measured, Float[np.ndarray, " replicate"]]
    p: dict[Measured, float]
    """Of the first seed alone."""

    matched: dict[Variant, Matched]
    balance: Balance


def _contrast(seeds: Sequence[_SeedNumbers], measured: Measured, draws: SeedDraws) -> dict[str, Any]:
    """The average over LDA seeds."""
    same, different, auc = (
        draws.average(np.stack([getattr(each, name)[measured] for each in seeds]))
        for name in ("same", "different", "auc")
    )
    return asdict(contrast(same, different, auc=auc, p=seeds[0].p[measured]))


def _measure_seed(
    vectors: dict[str, np.ndarray], plan: Plan, task: EmbeddingTask, number: int, weights: TopicWeights
) -> _SeedNumbers:
    """Exact averages over all pairs of the words that a labelling keeps, with a bootstrap over topics and words."""
    labelling = plan.labellings[task.labellings[number]]
    kept, ready = labelling.among_kept, {each: _ready(vectors, labelling, each) for each in MEASURED}
    words = MatchedWords(labelling, plan.pair_strata(task.labellings[number], WORD_FREQUENCY_LEVELS))
    same, placed, matched = [], [], {}
    for measured in MEASURED:
        # A matrix of all pairs of words, which is not kept.
        products = ready[measured] @ ready[measured].T
        same.append(products[kept.same_topic_pairs])
        placed.append(placements(products, kept))
        if measured[1] == "cosine":
            matched[measured[0]] = words.averages(products)
    averages = averages_of([ready[each] for each in MEASURED], same, kept, weights)
    areas = auc_replicates(placed, kept, weights)
    return _SeedNumbers(
        same={each: average.same for each, average in zip(MEASURED, averages, strict=True)},
        different={each: average.different for each, average in zip(MEASURED, averages, strict=True)},
        auc=dict(zip(MEASURED, areas, strict=True)),
        p={} if number else _p_values(ready, kept, plan.strata(task.labellings[0])[labelling.kept], task),
        matched=matched,
        balance=matched_word_co_occurrence(plan.co_occurrence, labelling, words),
    )


def _ready(vectors: dict[str, np.ndarray], labelling: Labelling, measured: Measured) -> Float[np.ndarray, "word width"]:
    """Centred on the mean of the words that the labelling keeps, if at all."""
    variant, kind = measured
    return prepared(vectors[variant.embedding][labelling.kept], kind, centred=variant.centred)


def _p_values(
    ready: dict[Measured, np.ndarray], kept: Labelling, stratum: Int[np.ndarray, " word"], task: EmbeddingTask
) -> dict[Measured, float]:
    """Of the difference, under permutations of words of like frequency: the same ones for all similarities."""
    found: list[float] = []
    # As many as memory allows: permutations look up all of them together.
    at_once = max(1, PRODUCTS // len(stratum) ** 2)
    for start in range(0, len(MEASURED), at_once):
        products = [ready[each] @ ready[each].T for each in MEASURED[start : start + at_once]]
        draw = generator(task.seed, Purpose.PERMUTATION, task.labellings[0])
        found += similarity_p_values(products, kept, stratum, task.permutations, generator=draw)
    return dict(zip(MEASURED, found, strict=True))


@dataclass(eq=False)
class AttentionTotals:
    """All shards of a model added up, in one order; what is kept does not grow with the corpus."""

    replicates: AttentionReplicates
    pairs: PairTable
    pairs_by_distance: PairTable
    permuted: list[PermutedSums]
    sunk: Float[np.ndarray, "layer head"]
    queries: int

    @classmethod
    def of(cls, shards: Iterable[bytes], plan: Plan, settings: MeasureSettings) -> "AttentionTotals":
        """From the shards' files, in their order."""
        replicates = AttentionReplicates(settings.replicates, plan.seed)
        tables, sunk, queries = [PairTable.empty(len(plan.tokens))], np.zeros(()), 0
        permuted: list[PermutedSums] = []
        for content in shards:
            shard = ShardSums.restore(content)
            replicates.add(shard.articles)
            tables.append(shard.pairs)
            if len(tables) > MERGED:
                tables = [PairTable.merged(tables)]
            permuted = [
                PermutedSums(old.sums + new.sums, old.counts + new.counts)
                for old, new in zip(permuted or _nothing(shard.permuted), shard.permuted, strict=True)
            ]
            sunk, queries = sunk + shard.sunk, queries + shard.queries
        pairs = PairTable.merged(tables)
        return cls(replicates, pairs.over_bins(), pairs, permuted, sunk, queries)


def _nothing(like: Sequence[PermutedSums]) -> list[PermutedSums]:
    return [PermutedSums(np.zeros_like(each.sums), np.zeros_like(each.counts)) for each in like]


def attention_summary(totals: AttentionTotals, plan: Plan, settings: MeasureSettings) -> dict[str, Any]:
    """Of each group of labellings, what rows of probe.json hold of attention; and what sinks into the first token."""
    sink = None if not totals.queries else (totals.sunk / totals.queries).tolist()
    # Each group draws from its own generator, so threads change no number; NumPy lets go of the lock while it looks up.
    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(lambda places: _group(totals, plan, places, settings), plan.groups))
    return plain({"sink": sink, "groups": found})


def _group(totals: AttentionTotals, plan: Plan, places: tuple[int, ...], settings: MeasureSettings) -> dict[str, Any]:
    replicates, first = totals.replicates, places[0]
    draw = generator(plan.seed, Purpose.PERMUTATION, first)
    p = model_test(totals.pairs, plan.labellings[first], plan.strata(first), settings.permutations, generator=draw)
    seeds = _seed_draws(plan.seed, places, settings.replicates)
    averages = np.stack([replicates.averages(place) for place in places])
    model = averages.mean(axis=(3, 4))
    attention = contrast(
        seeds.average(model[:, :, SAME_TOPIC]),
        seeds.average(model[:, :, DIFFERENT_TOPIC]),
        auc=seeds.average(np.stack([replicates.auc(place) for place in places])),
        p=p,
    )
    return {
        "attention": {
            **asdict(attention),
            "same_word": float(model[:, 0, SAME_WORD].mean()),
            "pairs": dict(zip(("same_word", "same", "different"), replicates.pairs(first).tolist(), strict=True)),
        },
        "attention_by_layer_head": _heads(totals, averages, seeds, first, plan.tested.index(first)),
        "matched": _matched(totals, plan, places, seeds, settings),
    }


def _matched(
    totals: AttentionTotals, plan: Plan, places: tuple[int, ...], seeds: SeedDraws, settings: MeasureSettings
) -> dict[str, Any]:
    pairs, first = totals.pairs_by_distance, places[0]
    labellings, strata = (
        [plan.labellings[place] for place in places],
        [plan.attention_strata[place] for place in places],
    )
    draw = generator(plan.seed, Purpose.PERMUTATION, first, 1)
    p = matched_test(pairs, labellings[0], plan.strata(first), strata[0], settings.permutations, generator=draw)
    found = [totals.replicates.matched(place) for place in places]
    same = seeds.average(np.stack([each.same for each in found]))
    different = seeds.average(np.stack([each.different for each in found]))
    without = [matched_without_topics(pairs, *each) for each in zip(labellings, strata, strict=True)]
    compared = with_topics(contrast(same, different, p=p), same, different, without, labellings)
    balances = [
        matched_co_occurrence(pairs, plan.co_occurrence, *each) for each in zip(labellings, strata, strict=True)
    ]
    return {
        **asdict(compared),
        "share": float(np.mean([each.share[0] for each in found])),
        "co_occurrence": asdict(Balance.mean(balances)),
    }


def _heads(
    totals: AttentionTotals,
    averages: Float[np.ndarray, "seed replicate class layer head"],
    seeds: SeedDraws,
    first: int,
    tested: int,
) -> list[list[dict[str, Any]]]:
    replicates = totals.replicates
    p = head_tests(replicates.sums(first), replicates.pairs(first), totals.permuted[tested])
    return [
        [
            asdict(
                contrast(
                    seeds.average(averages[:, :, SAME_TOPIC, layer, head]),
                    seeds.average(averages[:, :, DIFFERENT_TOPIC, layer, head]),
                    p=float(p[layer, head]),
                )
            )
            for head in range(averages.shape[4])
        ]
        for layer in range(averages.shape[3])
    ]


def _seed_draws(seed: int, places: Sequence[int], replicates: int) -> SeedDraws:
    """The same draws of LDA seeds for every number of a group of labellings."""
    return SeedDraws.draw(len(places), replicates, generator=generator(seed, Purpose.MEASURE, places[0]))


def top_pairs(pairs: PairTable, plan: Plan, task: EmbeddingTask) -> list[dict[str, Any]]:
    """A row of Table 2 for each variant."""
    stored = load_file(task.vectors)
    labellings = [plan.labellings[place] for place in task.labellings]
    vectors = [[_ready(stored, each, (variant, "cosine")) for each in labellings] for variant in VARIANTS]
    draw = generator(task.seed, Purpose.BOOTSTRAP, 2, task.labellings[0])
    found = compare_top_pairs(pairs, labellings, vectors, replicates=task.replicates, generator=draw)
    return [asdict(each) for each in found]


def plain(value: Any) -> Any:
    """The same with None for what is not a finite number, as JSON needs it."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def dump(value: Any) -> bytes:
    """Plain values as a file."""
    return json.dumps(plain(value), allow_nan=False).encode()
