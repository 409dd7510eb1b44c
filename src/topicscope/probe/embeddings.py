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
from topicscope.measure.cooccurrence import matched_similarity
from topicscope.measure.labelling import Labelling
from topicscope.measure.matching import Strata, word_strata
from topicscope.measure.permutation import permutation_p, permuted_same_topic_sums
from topicscope.measure.similarity import Kind, TopicWeights, auc, pair_averages, prepared
from topicscope.probe.plan import Plan
from topicscope.randomness import Purpose, generator

KINDS: tuple[Kind, ...] = ("cosine", "dot")


@dataclass(frozen=True)
class EmbeddingTask:
    """One kind of embedding of one model, under the labellings of one threshold and assignment."""

    vectors: Path
    """A safetensors file with a row for each word of the plan's vocabulary."""

    embedding: str
    """Which tensor of it: ``matrix`` or ``layer``."""

    centred: bool
    plan: Path
    labellings: tuple[int, ...]
    """Places in the plan, one for each LDA seed; the first is tested and matched."""

    replicates: int
    permutations: int
    seed: int


def measure_embedding(task: EmbeddingTask) -> dict[str, Any]:
    """Contrasts of cosine and dot product, and the comparison matched on co-occurrence and frequency."""
    plan, strata = _plan(task.plan)
    vectors = load_file(task.vectors)[task.embedding]
    labellings = [plan.labellings[place] for place in task.labellings]
    found: dict[str, Any] = {}
    for place, kind in enumerate(KINDS):
        # The same draws for both kinds: what differs between them is the similarity alone.
        measured = [
            SeedNumbers.measure(vectors, labelling, kind, task, number) for number, labelling in enumerate(labellings)
        ]
        p = _p(vectors, labellings[0], kind, plan, task)
        draw = generator(task.seed, Purpose.BOOTSTRAP, place, task.labellings[0])
        found[kind] = asdict(seed_contrast(measured, p, generator=draw))
    ready = prepared(vectors, "cosine", centred=task.centred)
    found["matched"] = asdict(matched_similarity(ready @ ready.T, labellings[0], strata))
    return found


@dataclass(frozen=True, eq=False)
class SeedNumbers:
    """Averages and AUC of one labelling: the number itself first, then its bootstrap replicates."""

    same: Float[np.ndarray, " replicate"]
    different: Float[np.ndarray, " replicate"]
    auc: Float[np.ndarray, " replicate"]

    @classmethod
    def measure(
        cls, vectors: Float[np.ndarray, "word width"], labelling: Labelling, kind: Kind, task: EmbeddingTask, seed: int
    ) -> "SeedNumbers":
        """Exact averages over all pairs of kept words, and bootstrap over topics and words."""
        ready = prepared(vectors[labelling.kept], kind, centred=task.centred)
        kept = Labelling(labelling.membership[labelling.kept])
        draw = generator(task.seed, Purpose.BOOTSTRAP, 0, task.labellings[seed])
        weights = TopicWeights.draw(kept, task.replicates, generator=draw)
        averages = pair_averages(ready, kept, weights)
        return cls(averages.same, averages.different, auc(ready @ ready.T, kept, weights))


def seed_contrast(seeds: Sequence[SeedNumbers], p: float | None, *, generator: np.random.Generator) -> Contrast:
    """The average over LDA seeds, whose draws are the same for all three numbers of a replicate."""
    numbers = np.stack([[each.same, each.different, each.auc] for each in seeds])
    state = generator.bit_generator.state
    averages = []
    for number in numbers.swapaxes(0, 1):
        generator.bit_generator.state = state
        averages.append(over_seeds(number, generator=generator))
    return contrast(averages[0], averages[1], auc=averages[2], p=p)


def _p(
    vectors: Float[np.ndarray, "word width"], labelling: Labelling, kind: Kind, plan: Plan, task: EmbeddingTask
) -> float:
    """Of the difference, under permutations of words of like frequency; the first LDA seed's."""
    kept = Labelling(labelling.membership[labelling.kept])
    ready = prepared(vectors[labelling.kept], kind, centred=task.centred)
    products = ready @ ready.T
    draw = generator(task.seed, Purpose.PERMUTATION, task.labellings[0])
    stratum = plan.strata[labelling.kept]
    sums = permuted_same_topic_sums([products], kept, stratum, task.permutations, generator=draw)[0]
    # Numbers of pairs stay as they are, so the sum orders permutations as the difference does.
    return permutation_p(float(products[kept.same_topic_pairs].sum()), sums)


@lru_cache(maxsize=1)
def _plan(path: Path) -> tuple[Plan, Strata]:
    plan = Plan.restore(path.read_bytes())
    return plan, word_strata(plan.co_occurrence, plan.frequency)
