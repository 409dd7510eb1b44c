"""Lemma, theorems and remarks on W^E and W^V, computed exactly.

Each statement is compared with a computation that does not use it: the second moments S and R of the masked documents'
frequencies give the loss of any matrix, its minimum, its minimisers and its curvature. Attention is in
:mod:`topicscope.papers.topic_structure.landscapes`.
"""

from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from topicscope.measure.blocks import class_averages
from topicscope.measure.uncertainty import student_interval
from topicscope.papers.claim import ROUNDING, Measurement, Results, exact, interval_given
from topicscope.papers.topic_structure.experiments import LDA, MASKING, TAU, TOPIC_SETS, T, V, zipf_topics
from topicscope.randomness import Purpose, generator
from topicscope.settings.training import Loss
from topicscope.synthetic.documents import Bags
from topicscope.synthetic.masking import mask_documents
from topicscope.synthetic.topics import TopicModel, sample_documents
from topicscope.theory.bayes import bayes_floors, expected_losses
from topicscope.theory.check import equal_word_topics
from topicscope.theory.cross_entropy import cross_entropy_optimum, infinite_bag
from topicscope.theory.finite_documents import (
    Moments,
    finite_optimum,
    flat_directions,
    infinite_moments,
    infinite_topic_moments,
    moments,
    population_loss,
    topic_count_distribution,
)
from topicscope.theory.lemma1 import constants, hessian_rank, lemma1, topic_gain
from topicscope.theory.theorem1 import paper_diagonal_embedding, theorem1, theorem1_bias, theorem1_embedding
from topicscope.theory.theorem2 import theorem2

VOCABULARY = T * V + 1
BIAS = theorem1_bias(T, V, MASKING)
# How many random members of a family theory is tried on.
MEMBERS = 20
# The gain is estimated from this many documents. Each contributes its exact expected loss, so few are enough: the gain
# is known to about one per cent.
GAIN_DOCUMENTS = 1_000
# λ along which the optimum of cross-entropy is followed to λ = 0, each a tenth of the one before.
RIDGES = 10.0 ** -np.arange(5, 11)
# Samples on which the finite documents' optimum is taken, and the documents of each.
SAMPLES, SAMPLED_DOCUMENTS = 5, 400

Matrix = Float[np.ndarray, "token token"]


def infinite_documents(per_document: int = TAU) -> Moments:
    """Moments of Assumption 1's infinite documents of τ topics."""
    return infinite_topic_moments(T, V, per_document, MASKING)


@cache
def paper_moments() -> Moments:
    """Exact moments of the paper's finite documents."""
    return moments(TopicModel.from_settings(LDA), MASKING)


def least_loss(documents: Moments, bias: Float[np.ndarray, " token"] | None = None) -> float:
    """The minimum over all matrices."""
    return population_loss(finite_optimum(documents, bias=bias), documents, bias)


def excess(matrix: Matrix, documents: Moments, bias: Float[np.ndarray, " token"] | None = None) -> float:
    """The squared loss of a matrix over that minimum."""
    return population_loss(matrix, documents, bias) - least_loss(documents, bias)


def best_constant(documents: Moments) -> float:
    """The least squared loss of one prediction for all documents."""
    return 1 - float(documents.label @ documents.label)


class Gain(NamedTuple):
    """The scale of "only slightly worse": what the Bayes floor gains over the best constant prediction."""

    constant: float
    floor: float

    @property
    def value(self) -> float:
        """What a model can gain at most by looking at the document."""
        return self.constant - self.floor


@cache
def gains() -> dict[Loss, Gain]:
    """The gain on the paper's documents, by loss."""
    model = TopicModel.from_settings(LDA)
    draw = generator(0, Purpose.THEORY)
    floor = bayes_floors(model, MASKING, samples=GAIN_DOCUMENTS, generator=draw).masked
    floors: dict[Loss, float] = {"cross_entropy": floor.cross_entropy.value, "squared": floor.squared.value}
    constant = constant_losses(model)
    return {loss: Gain(constant[loss], floors[loss]) for loss in floors}


def constant_losses(model: TopicModel) -> dict[Loss, float]:
    """The least loss of one prediction for all documents: words by how likely they are."""
    weights = model.dirichlet / model.dirichlet.sum() if model.sampler == "dirichlet" else np.ones(model.topics)
    cross_entropy, squared = expected_losses(weights / weights.sum() @ model.topic_words)
    return {"cross_entropy": float(cross_entropy), "squared": float(squared)}


# Remark 1, §3.1 and §6.1: losses, topics and documents.


def growth_of_logits(results: Results) -> Measurement:
    """The least growth, relative to log(1/λ), of both gaps between one λ and the next, at the optimum of each λ.

    The gaps are those of the first word's logit, which the document has, over the last one's, which it lacks, and over
    [MASK]'s.
    """
    bag = infinite_bag(T, V, TAU, MASKING)
    logits = [cross_entropy_optimum(bag, T, V, ridge).matrix(T, V) @ bag.frequencies[0] for ridge in RIDGES]
    gaps = np.array([(own[1] - own[-1], own[1] - own[0]) for own in logits])
    return exact((np.diff(gaps, axis=0) / np.log(RIDGES[0] / RIDGES[1])).min())


def growth_on_finite_documents(results: Results) -> Measurement:
    """The relative growth of same minus different topic between the last two λ; beside it how far [MASK]'s falls."""
    model, draw = TopicModel.from_settings(LDA), generator(1, Purpose.THEORY)
    # [MASK]'s average share of the positions.
    share = MASKING.mask * MASKING.replaced
    contrasts, masks = [], []
    for _ in range(SAMPLES):
        documents = sample_documents(model, SAMPLED_DOCUMENTS, generator=draw)
        bags = Bags.of(mask_documents(documents, MASKING, model.vocabulary, generator=draw), model.vocabulary)
        before, after = (cross_entropy_optimum(bags, T, V, ridge) for ridge in RIDGES[-2:])
        contrasts.append((after.same_topic - after.different_topic) / (before.same_topic - before.different_topic) - 1)
        masks.append(share * (before.mask_mask - after.mask_mask) + (1 - share) * (before.mask_row - after.mask_row))
    # The interval is over samples of documents, not over seeds of training.
    growth = student_interval(np.array(contrasts))
    return interval_given(growth.value, growth.low, growth.high, mask_logit_falls_by=np.array(masks))


@cache
def shared_documents() -> Moments:
    """Infinite documents of topics that have v words of their own and the last word of the topic before."""
    member = np.kron(np.eye(T), np.ones((1, V)))
    member[(np.arange(T) + 1) % T, np.arange(V - 1, T * V, V)] = 1.0
    return infinite_moments(TopicModel.from_settings(TOPIC_SETS, member / (V + 1)), MASKING)


def block_excess(results: Results) -> Measurement:
    """What the best matrix with one number within topics, one between them and one for [MASK] lacks.

    The loss is a quadratic in the three numbers. Beside it is the same where topics are disjoint.
    """
    topic = equal_word_topics(T, V)
    same, word = topic[:, None] == topic, topic > 0
    predicted = word[:, None]
    patterns = np.stack([same & predicted & word, ~same & predicted & word, predicted & ~word]).astype(float)

    def best(documents: Moments) -> Matrix:
        curvature = np.array([[np.vdot(a @ documents.second, b) for b in patterns] for a in patterns])
        slope = np.array([np.vdot(pattern, documents.cross) for pattern in patterns])
        # Frequencies sum to one, and [MASK]'s is the same in all: the numbers are not determined, their best loss is.
        return np.tensordot(np.linalg.lstsq(curvature, slope)[0], patterns, axes=1)

    shared, disjoint = shared_documents(), infinite_documents()
    return exact(excess(best(shared), shared), with_disjoint_topics=excess(best(disjoint), disjoint))


def opposite_excess(results: Results) -> Measurement:
    """The excess loss of the minimiser with the contrast −c₃/v that is nearest to that of smallest norm.

    The contrast is the average within topics, diagonal included, minus that between them.
    """
    documents = shared_documents()
    same = np.kron(np.eye(T), np.ones((V, V)))
    contrast = np.zeros((VOCABULARY, VOCABULARY))
    contrast[1:, 1:] = same / same.sum() - (1 - same) / (1 - same).sum()
    smallest, flat = finite_optimum(documents), flat_directions(documents)
    free = contrast @ flat.T @ flat
    missing = -topic_gain(MASKING) / V - np.vdot(contrast, smallest)
    opposite = smallest + missing / np.vdot(contrast, free) * free
    return exact(abs(excess(opposite, documents)), contrast=np.vdot(contrast, opposite))


def weighted_contrasts(results: Results) -> Measurement:
    """The largest difference from c₃P(i|topic), over rows, other topics, and minimisers drawn at random."""
    draw, likely = np.random.default_rng(0), zipf_topics(T, V)
    documents = infinite_moments(TopicModel.from_settings(TOPIC_SETS, likely), MASKING)
    flat, smallest = flat_directions(documents), finite_optimum(documents)
    own = np.kron(np.eye(T, dtype=bool), np.ones((V, 1), dtype=bool))
    wanted = topic_gain(MASKING) * likely.sum(axis=0)
    worst = 0.0
    for _ in range(MEMBERS):
        matrix = smallest + draw.normal(size=(VOCABULARY, len(flat))) @ flat
        averages = matrix[1:, 1:] @ likely.T
        contrasts = averages[own][:, None] - averages[~own].reshape(T * V, T - 1)
        worst = max(worst, float(abs(contrasts - wanted[:, None]).max()))
    return exact(worst)


def two_to_four_topics(results: Results) -> Measurement:
    """The share of the experiments' documents that have words of two, three or four topics."""
    shares = topic_count_distribution(LDA)
    return exact(shares[2:5].sum(), average_number=shares @ np.arange(len(shares)), more_than_four=shares[5:].sum())


# Lemma 1.


def family_excess(results: Results) -> Measurement:
    """The largest excess loss of members of Lemma 1's family, u and splits drawn at random."""
    documents, family, draw = infinite_documents(), lemma1(T, V, MASKING), np.random.default_rng(0)
    members = (
        family.member(draw.normal(size=VOCABULARY), draw.normal(size=(VOCABULARY, T * V))) for _ in range(MEMBERS)
    )
    return exact(max(abs(excess(member, documents)) for member in members))


def additional_dimensions(results: Results, *, per_document: list[int]) -> dict[str, Measurement]:
    """Dimensions along which the loss is flat, V(V − rank S), minus those of Lemma 1's family, V(V − T), for each τ."""
    return {f"τ = {tau}": exact(VOCABULARY * (T - _rank(infinite_documents(tau)))) for tau in per_document}


def _rank(documents: Moments) -> int:
    return int(np.linalg.matrix_rank(documents.second, hermitian=True))


# Theorem 1, Remarks 2 and 3: E = W^E⊤W^E.


def family_of_embeddings_excess(results: Results) -> Measurement:
    """The largest excess loss of embeddings W^E that Theorem 1 calls optimal: block, diagonal, and with a random u.

    Some embedding has u if u₀ < 0 and its sums over every topic are −u₀v/c₂.
    """
    c2, draw = constants(T, V, MASKING).c2, np.random.default_rng(1)
    members = [theorem1_embedding(T, V, MASKING, pattern, T * V + 2) for pattern in ("block", "diagonal")]
    for first in -draw.uniform(0.001, 0.1, size=MEMBERS):
        within = draw.normal(scale=0.01, size=(T, V))
        within += -first / c2 - within.mean(axis=1, keepdims=True)
        u = np.concatenate([[first], within.ravel()])
        members.append(theorem1_embedding(T, V, MASKING, "block", T * V + 2, u))
    return exact(max(abs(excess(table.T @ table, infinite_documents(), BIAS)) for table in members))


def outside_the_family(results: Results) -> Measurement:
    """The largest difference from the nearest matrix of the family, for a minimiser and along all flat directions.

    Every minimiser E is one minimiser plus flat directions in its rows, and the clauses are linear: if these meet them,
    all minimisers do, including the positive semi-definite ones (W^E⊤W^E).
    """
    documents, family = infinite_documents(), theorem1(T, V, MASKING)
    minimiser, flat = finite_optimum(documents, bias=BIAS), flat_directions(documents)
    rows = np.vstack([flat, np.zeros((VOCABULARY - len(flat), VOCABULARY))])
    # What may be added to a member: the clauses without their constant.
    differences = replace(family, c3=0.0)
    return exact(max(abs(minimiser - family.project(minimiser)).max(), abs(rows - differences.project(rows)).max()))


def least_contrast(results: Results) -> Measurement:
    """The least contrast of minimisers found without the theorem (random along flat directions), minus c₃/v."""
    documents, draw = infinite_documents(), np.random.default_rng(0)
    minimiser, flat = finite_optimum(documents, bias=BIAS), flat_directions(documents)
    contrasts = []
    for _ in range(MEMBERS):
        matrix = minimiser + draw.normal(size=(VOCABULARY, len(flat))) @ flat
        blocks = matrix[1:, 1:].reshape(T, V, T, V).mean(axis=(1, 3))
        contrasts.append(np.trace(blocks) / T - (blocks.sum() - np.trace(blocks)) / (T * (T - 1)))
    return exact(min(contrasts) - theorem1(T, V, MASKING).c3 / V)


def _diagonal() -> Matrix:
    """diag(0, c₃, …, c₃)."""
    embedding = theorem1_embedding(T, V, MASKING, "diagonal", T * V + 1)
    return embedding.T @ embedding


def what_random_words_add(results: Results) -> Measurement:
    """What random words, instead of [MASK], add to the average prediction of diag(0, c₃, …, c₃), plus the bias."""
    without = infinite_topic_moments(T, V, TAU, replace(MASKING, random=0.0)).mean
    return exact(abs(_diagonal() @ (infinite_documents().mean - without) + BIAS).max())


def unbiased_excess(results: Results) -> Measurement:
    r"""The excess loss, without bias, of an embedding whose W^E⊤W^E is in Lemma 1's family.

    With u₀ = −c₁ and uᵢ = 0 the clauses ask for E₀₀ = c₁c₂ and E_0i = −c₁; the rank-one matrix with this 0-th row has
    c₁/c₂ between all words, and what is left of the blocks, G_il = c₃/v [topic(i) = topic(l)] − c₁/c₂, is positive
    semi-definite: its smallest eigenvalue but 0 is c₃ − Tvc₁/c₂ = c₃(1 − p_m p_r / (1 − p_m(1 − p_c − p_r))).
    """
    c = constants(T, V, MASKING)
    product = np.full((VOCABULARY, VOCABULARY), -c.c1)
    product[0, 0] = c.c1 * c.c2
    product[1:, 1:] = np.kron(np.eye(T), np.full((V, V), c.c3 / V))
    assert np.linalg.eigvalsh(product)[0] > -ROUNDING, "no embedding has this product"
    return exact(abs(excess(product, infinite_documents())), product_of_mask_and_word=-c.c1)


def printed_example(results: Results) -> Measurement:
    """The excess loss of the proof's example, its [MASK] entry included; beside it that of diag(0, c₃, …, c₃)."""
    printed = paper_diagonal_embedding(T, V, MASKING)
    documents = infinite_documents()
    return exact(excess(printed.T @ printed, documents, BIAS), corrected_example=excess(_diagonal(), documents, BIAS))


# Theorem 2 and Remark 8.


def theorem2_difference(results: Results) -> Measurement:
    """The largest difference of an entry of Theorem 2's matrix from the minimiser of smallest norm."""
    return exact(abs(theorem2(T, V, MASKING) - finite_optimum(infinite_documents())).max())


def finite_ratio(results: Results) -> Measurement:
    """Same word over same topic in the optimum for the experiments' finite LDA documents; 1 in Theorem 2."""
    averages = class_averages(finite_optimum(paper_moments()), equal_word_topics(T, V))
    assert averages.same_topic is not None
    return exact(
        averages.same_word / averages.same_topic,
        same_word=averages.same_word,
        same_topic=averages.same_topic,
        different_topic=averages.different_topic,
        mask_column=averages.mask_column,
    )


def finite_excess(results: Results) -> Measurement:
    """How much Theorem 2's matrix loses on the experiments' finite LDA documents against their own optimum."""
    documents, matrix = paper_moments(), theorem2(T, V, MASKING)
    return exact(excess(matrix, documents) / (best_constant(documents) - least_loss(documents)))


def rank_of_hessian(results: Results) -> Measurement:
    """The rank of the Hessian 2 I ⊗ S, from the singular values of S."""
    return exact(VOCABULARY * _rank(infinite_documents()), corrected=hessian_rank(T, V, TAU, MASKING))


def least_curvature(results: Results) -> Measurement:
    """The smallest eigenvalue of the Hessian, 2S."""
    return exact(2 * np.linalg.eigvalsh(infinite_documents().second)[0])
