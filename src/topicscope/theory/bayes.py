r"""The floor below any model: the loss of the Bayes-optimal predictor of a masked word.

The predictor sees the whole masked document and knows that its own position is masked; which other positions hold a
kept or a random word it does not know. Losses are under eq. 1: the mean over documents of the mean over their masked
positions, |M| ≥ 1. Three floors: all masked positions, [MASK] queries alone, and the best predictor that sees the
document as a bag of tokens but not which of them is its own (all that uniform attention can use).

Each document's posterior is exact (``posterior``, or ``topic_sets`` for topics that share words); Monte-Carlo is over
documents only, and each document contributes its expected loss given what is seen, not that of one drawn word or mask.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import comb

import numpy as np
from jaxtyping import Float

from topicscope.errors import InputError
from topicscope.settings.checks import check_at_least
from topicscope.settings.data import Masking
from topicscope.settings.training import Average
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.synthetic.masking import mask_documents
from topicscope.synthetic.topics import TopicModel, sample_documents
from topicscope.theory.bayes_losses import DocumentLosses, disjoint_losses
from topicscope.theory.topic_sets import MOST_SETS, listed_losses

# Called with how many documents are done, how many there are, and a few words on the state.
Report = Callable[[int, int, str], None]

# Two-sided 95 % of a normal distribution.
NORMAL_95 = 1.959963984540054
# An interval over fewer documents than this means little; of [MASK] queries there may be few.
FEWEST_DOCUMENTS = 30
# Numbers held at a time, which sets how many documents are worked on together.
CHUNK_NUMBERS = 4_000_000


@dataclass(frozen=True)
class Estimate:
    """A mean over documents and its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Floor:
    """The least expected loss, for either loss."""

    cross_entropy: Estimate
    squared: Estimate


@dataclass(frozen=True)
class BayesFloors:
    """The three floors of one setting."""

    masked: Floor
    """All masked positions."""
    mask_queries: Floor | None
    """[MASK] queries alone; None if no position becomes [MASK], or too few of the sampled documents have one."""
    query_blind: Floor
    """The best predictor that ignores which token its own position holds."""
    documents: int
    documents_with_mask: int
    """How many of the sampled documents have a [MASK]."""
    method: str


def bayes_floors(
    model: TopicModel,
    masking: Masking,
    *,
    samples: int,
    generator: np.random.Generator,
    average: Average = "document",
    report: Report | None = None,
) -> BayesFloors:
    """The floors of documents of this model, from ``samples`` documents."""
    check_at_least("samples", samples, 2)
    losses_of, method = _solver(model)
    parts: list[DocumentLosses] = []
    done = 0
    while done < samples:
        size = min(_chunk(model, masking), samples - done)
        documents = sample_documents(model, size, shuffled=False, generator=generator)
        masked = mask_documents(documents, masking, model.vocabulary, generator=generator)
        parts.append(losses_of(model, masking, masked, average))
        done += size
        if report is not None:
            report(done, samples, "documents")
    return _summary(DocumentLosses.joined(parts), average, method)


def document_losses(
    model: TopicModel, masking: Masking, masked: MaskedDocuments, average: Average = "document"
) -> DocumentLosses:
    """The Bayes-optimal predictor's expected losses in these masked documents."""
    return _solver(model)[0](model, masking, masked, average)


def _solver(
    model: TopicModel,
) -> tuple[Callable[[TopicModel, Masking, MaskedDocuments, Average], DocumentLosses], str]:
    """How this model's posterior is computed, and in words."""
    if model.equal_words is not None:
        by = "a sum over genuine words" if model.sampler == "dirichlet" else "a sum over topic sets"
        return disjoint_losses, f"exact posterior of each document by {by}; Monte-Carlo over documents"
    if model.sampler == "topics" and comb(model.topics, model.per_document) <= MOST_SETS:
        return listed_losses, "exact posterior of each document, all topic sets listed; Monte-Carlo over documents"
    raise InputError(
        "data.topic_words is not allowed for the Bayes floor of these documents: topics that share words or have "
        "unequal ones have no finite sum for Dirichlet proportions, and for the sampler "
        f'"topics" all topic sets are listed, at most {MOST_SETS}; use that sampler, or equal disjoint topics.'
    )


def _chunk(model: TopicModel, masking: Masking) -> int:
    """How many documents to work on together."""
    ranks = min(model.topics, model.length[1])
    numbers = ranks * (model.length[1] + model.topics) + model.vocabulary
    if model.equal_words is None:
        numbers = model.length[1] * (model.vocabulary + comb(model.topics, model.per_document) * model.length[1])
    elif model.sampler == "topics":
        numbers = (ranks * (ranks + model.per_document)) * min(model.length[1], 64) + model.vocabulary
    return max(1, min(256, CHUNK_NUMBERS // numbers))


def _summary(losses: DocumentLosses, average: Average, method: str) -> BayesFloors:
    everywhere = np.ones(len(losses.size)) if average == "document" else losses.size
    at_mask = everywhere * losses.mask_share
    with_mask = int(np.count_nonzero(losses.mask_share))
    return BayesFloors(
        masked=_floor(losses.masked, everywhere),
        mask_queries=_floor(losses.mask_queries, at_mask) if with_mask >= FEWEST_DOCUMENTS else None,
        query_blind=_floor(losses.query_blind, everywhere),
        documents=len(losses.size),
        documents_with_mask=with_mask,
        method=method,
    )


def _floor(losses: Float[np.ndarray, "document loss"], weight: Float[np.ndarray, " document"]) -> Floor:
    """Weighted means with intervals; the standard error of a ratio of means, to first order."""
    value = weight @ losses / weight.sum()
    spread = (weight[:, None] * (losses - value)).std(axis=0, ddof=1)
    half = NORMAL_95 * spread / (weight.mean() * np.sqrt(len(losses)))
    cross_entropy, squared = (Estimate(float(v), float(v - h), float(v + h)) for v, h in zip(value, half, strict=True))
    return Floor(cross_entropy, squared)
