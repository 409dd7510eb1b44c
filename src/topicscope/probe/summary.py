"""From shards' sums to numbers with intervals: attention of a model by threshold and assignment, and of its heads."""

import json
import math
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from topicscope.measure.attention_tests import head_tests, model_test
from topicscope.measure.bootstrap import AttentionReplicates
from topicscope.measure.contrast import SeedDraws, contrast
from topicscope.measure.labelling import DIFFERENT_TOPIC, SAME_TOPIC, SAME_WORD
from topicscope.measure.matched_attention import matched_without_topics, with_topics
from topicscope.measure.matched_test import matched_test
from topicscope.measure.matched_words import Balance, matched_co_occurrence
from topicscope.measure.pair_table import PairTable
from topicscope.measure.permuted_pairs import PermutedSums
from topicscope.probe.plan import Plan
from topicscope.probe.settings import MeasureSettings
from topicscope.probe.shards import ShardResult
from topicscope.randomness import Purpose, generator

# Groups summed up at once: permutations wait for memory more than for a processor.
THREADS = 2
# Shards' tables of pairs that are held before they are put together.
MERGED = 8


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
            shard = ShardResult.restore(content)
            replicates.add(shard.sums.articles)
            tables.append(shard.sums.pairs)
            if len(tables) > MERGED:
                tables = [PairTable.merged(tables)]
            added = shard.sums.permuted
            permuted = [
                PermutedSums(old.sums + new.sums, old.counts + new.counts)
                for old, new in zip(permuted or [_nothing(each) for each in added], added, strict=True)
            ]
            sunk, queries = sunk + shard.sunk, queries + shard.queries
        pairs = PairTable.merged(tables)
        return cls(replicates, pairs.over_bins(), pairs, permuted, sunk, queries)


def _nothing(like: PermutedSums) -> PermutedSums:
    return PermutedSums(np.zeros_like(like.sums), np.zeros_like(like.counts))


def groups(plan: Plan) -> list[tuple[int, ...]]:
    """Labellings of one threshold and assignment, a place for each LDA seed, the tested one first."""
    found: dict[tuple[object, str], list[int]] = {}
    for place, each in enumerate(plan.labels):
        found.setdefault((each.fraction, each.assignment), []).append(place)
    return [tuple(places) for places in found.values()]


def attention_summary(totals: AttentionTotals, plan: Plan, settings: MeasureSettings) -> dict[str, Any]:
    """Of each group of labellings, what rows of probe.json hold of attention; and what sinks into the first token."""
    sink = None if not totals.queries else (totals.sunk / totals.queries).tolist()
    # Each group draws from its own generator, so threads change no number; NumPy lets go of the lock while it looks up.
    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(lambda places: _group(totals, plan, places, settings), groups(plan)))
    return plain({"sink": sink, "groups": found})


def _group(totals: AttentionTotals, plan: Plan, places: tuple[int, ...], settings: MeasureSettings) -> dict[str, Any]:
    replicates, first = totals.replicates, places[0]
    draw = generator(plan.seed, Purpose.PERMUTATION, first)
    p = model_test(totals.pairs, plan.labellings[first], plan.strata(first), settings.permutations, generator=draw)
    seeds = seed_draws(plan.seed, places, settings.replicates)
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


def seed_draws(seed: int, places: tuple[int, ...], replicates: int) -> SeedDraws:
    """The same draws of LDA seeds for every number of a group."""
    return SeedDraws.draw(len(places), replicates, generator=generator(seed, Purpose.MEASURE, places[0]))


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
