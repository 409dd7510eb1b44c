"""Similarity of embeddings within and between topics, over all LDA seeds of one threshold and assignment."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from safetensors.numpy import load_file

from topicscope.measure.contrast import SeedDraws, contrast
from topicscope.measure.labelling import Labelling
from topicscope.measure.matched_words import Balance, MatchedWords, matched_similarity, matched_word_co_occurrence
from topicscope.measure.matching import Matched
from topicscope.measure.similarity import Kind, averages_of, prepared, similarity_p_values
from topicscope.measure.similarity_auc import Placements, auc_replicates, placements
from topicscope.measure.topic_weights import TopicDraws, TopicWeights
from topicscope.probe.plan import WORD_FREQUENCY_LEVELS, Plan
from topicscope.randomness import Purpose, generator

KINDS: tuple[Kind, ...] = ("cosine", "dot")
# Similarities of words held at once.
PRODUCTS = 40_000_000


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
    plan, vectors = _plan(task.plan), load_file(task.vectors)
    labellings = [plan.labellings[place] for place in task.labellings]
    # The same draws for all seeds and variants: what differs between variants is the similarity alone.
    draw = generator(task.seed, Purpose.BOOTSTRAP, 0, task.labellings[0])
    draws = TopicDraws.draw(labellings[0], task.replicates, generator=draw)
    of_seeds = [
        _measure_seed(vectors, plan, task, number, draws.weights(each)) for number, each in enumerate(labellings)
    ]
    draw = generator(task.seed, Purpose.MEASURE, task.labellings[0])
    seeds = SeedDraws.draw(len(labellings), task.replicates, generator=draw)
    balance = {"co_occurrence": asdict(Balance.mean([each.balance for each in of_seeds]))}
    found = []
    for variant in VARIANTS:
        row: dict[str, Any] = {kind: _contrast(of_seeds, (variant, kind), seeds) for kind in KINDS}
        matched = matched_similarity([each.matched[variant] for each in of_seeds], labellings)
        found.append(row | {"matched": asdict(matched) | balance})
    return found


@dataclass(frozen=True, eq=False)
class SeedNumbers:
    """What one LDA seed's labelling gives: numbers themselves first, then their bootstrap replicates."""

    same: dict[Measured, Float[np.ndarray, " replicate"]]
    different: dict[Measured, Float[np.ndarray, " replicate"]]
    auc: dict[Measured, Float[np.ndarray, " replicate"]]
    p: dict[Measured, float]
    """Of the first seed alone."""

    matched: dict[Variant, Matched]
    balance: Balance


def _contrast(seeds: Sequence[SeedNumbers], measured: Measured, draws: SeedDraws) -> dict[str, Any]:
    """The average over LDA seeds."""
    same, different, auc = (
        draws.average(np.stack([getattr(each, name)[measured] for each in seeds]))
        for name in ("same", "different", "auc")
    )
    return asdict(contrast(same, different, auc=auc, p=seeds[0].p[measured]))


def _measure_seed(
    vectors: dict[str, np.ndarray], plan: Plan, task: EmbeddingTask, number: int, weights: TopicWeights
) -> SeedNumbers:
    """Exact averages over all pairs of the words that a labelling keeps, with a bootstrap over topics and words."""
    labelling = plan.labellings[task.labellings[number]]
    kept, ready = labelling.among_kept, {each: _ready(vectors, labelling, each) for each in MEASURED}
    words = MatchedWords(labelling, plan.pair_strata(task.labellings[number], WORD_FREQUENCY_LEVELS))
    pairs = _look_at_pairs(ready, kept, words)
    averages = averages_of([ready[each] for each in MEASURED], [pairs.same[each] for each in MEASURED], kept, weights)
    areas = auc_replicates([pairs.placed[each] for each in MEASURED], kept, weights)
    return SeedNumbers(
        same={each: average.same for each, average in zip(MEASURED, averages, strict=True)},
        different={each: average.different for each, average in zip(MEASURED, averages, strict=True)},
        auc=dict(zip(MEASURED, areas, strict=True)),
        p={} if number else _p_values(ready, kept, plan.strata(task.labellings[0])[labelling.kept], task),
        matched=pairs.matched,
        balance=matched_word_co_occurrence(plan.co_occurrence, labelling, words),
    )


@dataclass(frozen=True, eq=False)
class _Pairs:
    """What is taken of the similarities of all pairs of words, a matrix that is not kept."""

    same: dict[Measured, Float[np.ndarray, " pair"]]
    placed: dict[Measured, Placements]
    matched: dict[Variant, Matched]


def _look_at_pairs(ready: dict[Measured, np.ndarray], kept: Labelling, words: MatchedWords) -> _Pairs:
    found = _Pairs({}, {}, {})
    for measured in MEASURED:
        products = ready[measured] @ ready[measured].T
        found.same[measured] = products[kept.same_topic_pairs]
        found.placed[measured] = placements(products, kept)
        if measured[1] == "cosine":
            found.matched[measured[0]] = words.averages(products)
    return found


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


@lru_cache(maxsize=1)
def _plan(path: Path) -> Plan:
    return Plan.restore(path.read_bytes())
