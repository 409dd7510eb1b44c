"""Similarity of embeddings within and between topics, over all LDA seeds of one threshold and assignment."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from safetensors.numpy import load_file

from topicscope.measure.contrast import Contrast, contrast, over_seeds
from topicscope.measure.cooccurrence import matched_similarity, matched_word_co_occurrence
from topicscope.measure.labelling import Labelling
from topicscope.measure.matching import Strata, word_strata
from topicscope.measure.similarity import Kind, TopicWeights, pair_averages, prepared, similarity_p_values
from topicscope.measure.similarity import auc as area
from topicscope.probe.plan import Plan
from topicscope.randomness import Purpose, generator

KINDS: tuple[Kind, ...] = ("cosine", "dot")
# Products of words held at once in the permutation test.
PRODUCTS = 40_000_000


@dataclass(frozen=True)
class EmbeddingTask:
    """The embeddings of one model, under the labellings of one threshold and assignment."""

    vectors: Path
    """A safetensors file with tensors ``matrix`` and ``layer``, a row for each word of the plan's vocabulary."""

    plan: Path
    labellings: tuple[int, ...]
    """Places in the plan, one for each LDA seed; the first is tested and matched."""

    replicates: int
    permutations: int
    seed: int


@dataclass(frozen=True)
class Variant:
    """Which vectors are compared, and whether their mean is taken off first."""

    embedding: str
    centred: bool


VARIANTS = tuple(Variant(embedding, centred) for embedding in ("matrix", "layer") for centred in (False, True))


def measure_embedding(task: EmbeddingTask) -> list[dict[str, Any]]:
    """Of each variant: contrasts of cosine and dot product, and what is matched on co-occurrence and frequency."""
    plan, strata = _plan(task.plan)
    vectors = load_file(task.vectors)
    labellings = [plan.labellings[place] for place in task.labellings]
    weights = [_weights(labelling, task, number) for number, labelling in enumerate(labellings)]
    p_values = _p_values(vectors, labellings[0], plan, task)
    balance = asdict(matched_word_co_occurrence(plan.co_occurrence, labellings[0], strata))
    found = []
    for variant in VARIANTS:
        row: dict[str, Any] = {}
        for kind in KINDS:
            numbers = [
                SeedNumbers.measure(vectors[variant.embedding], labelling, kind, variant.centred, weight, auc=not place)
                for place, (labelling, weight) in enumerate(zip(labellings, weights, strict=True))
            ]
            draw = generator(task.seed, Purpose.MEASURE, task.labellings[0])
            row[kind] = asdict(seed_contrast(numbers, p_values[variant, kind], generator=draw))
        ready = prepared(vectors[variant.embedding], "cosine", centred=variant.centred)
        row["matched"] = asdict(matched_similarity(ready @ ready.T, labellings[0], strata)) | {"co_occurrence": balance}
        found.append(row)
    return found


@dataclass(frozen=True, eq=False)
class SeedNumbers:
    """Averages and AUC of one labelling: the number itself first, then its bootstrap replicates."""

    same: Float[np.ndarray, " replicate"]
    different: Float[np.ndarray, " replicate"]
    auc: Float[np.ndarray, " replicate"] | None

    @classmethod
    def measure(
        cls,
        vectors: Float[np.ndarray, "word width"],
        labelling: Labelling,
        kind: Kind,
        centred: bool,
        weights: TopicWeights,
        *,
        auc: bool,
    ) -> "SeedNumbers":
        """Exact averages over all pairs of kept words, and bootstrap over topics and words."""
        ready = prepared(vectors[labelling.kept], kind, centred=centred)
        kept = Labelling(labelling.membership[labelling.kept])
        averages = pair_averages(ready, kept, weights)
        return cls(averages.same, averages.different, area(ready @ ready.T, kept, weights) if auc else None)


def seed_contrast(seeds: Sequence[SeedNumbers], p: float | None, *, generator: np.random.Generator) -> Contrast:
    """The average over LDA seeds, whose draws are the same for both averages of a replicate; AUC is the first's."""
    state = generator.bit_generator.state
    averages = []
    for numbers in ([each.same for each in seeds], [each.different for each in seeds]):
        generator.bit_generator.state = state
        averages.append(over_seeds(np.stack(numbers), generator=generator))
    return contrast(averages[0], averages[1], auc=seeds[0].auc, p=p)


def _weights(labelling: Labelling, task: EmbeddingTask, number: int) -> TopicWeights:
    """The same draws for all variants: what differs between them is the similarity alone."""
    draw = generator(task.seed, Purpose.BOOTSTRAP, 0, task.labellings[number])
    return TopicWeights.draw(Labelling(labelling.membership[labelling.kept]), task.replicates, generator=draw)


def _p_values(
    vectors: dict[str, np.ndarray], labelling: Labelling, plan: Plan, task: EmbeddingTask
) -> dict[tuple[Variant, Kind], float]:
    """Of the difference, under permutations of words of like frequency; the first LDA seed's."""
    kept = Labelling(labelling.membership[labelling.kept])
    asked = [(variant, kind) for variant in VARIANTS for kind in KINDS]
    found: dict[tuple[Variant, Kind], float] = {}
    at_once = max(1, PRODUCTS // kept.kept.size**2)
    for start in range(0, len(asked), at_once):
        products = []
        for variant, kind in asked[start : start + at_once]:
            ready = prepared(vectors[variant.embedding][labelling.kept], kind, centred=variant.centred)
            products.append(ready @ ready.T)
        draw = generator(task.seed, Purpose.PERMUTATION, task.labellings[0])
        stratum = plan.strata[labelling.kept]
        p_values = similarity_p_values(products, kept, stratum, task.permutations, generator=draw)
        found |= dict(zip(asked[start : start + at_once], p_values, strict=True))
    return found


@lru_cache(maxsize=1)
def _plan(path: Path) -> tuple[Plan, Strata]:
    plan = Plan.restore(path.read_bytes())
    return plan, word_strata(plan.co_occurrence, plan.frequency)
