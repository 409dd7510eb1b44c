"""Lemma, theorems and remarks on W^E and W^V, computed exactly.

Each statement is compared with a computation that does not use it: the second moments S and R of the masked documents'
frequencies give the loss of any matrix, its minimum, its minimisers and its curvature. Attention is in
:mod:`topicscope.papers.topic_structure.landscapes`.
"""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from jaxtyping import Float

from topicscope.measure.blocks import ClassAverages, class_averages
from topicscope.measure.uncertainty import student_interval
from topicscope.papers.claim import ROUNDING, Measurement, Results, exact, interval_given
from topicscope.papers.topic_structure.experiments import (
    LDA,
    MASKING,
    TOPIC_SETS,
    overlapping_topics,
    zipf_topics,
)
from topicscope.randomness import Purpose, generator
from topicscope.settings import Data, Masking
from topicscope.settings.training import Loss
from topicscope.synthetic.documents import Bags
from topicscope.synthetic.masking import mask_documents
from topicscope.synthetic.topics import TopicModel, sample_documents
from topicscope.theory.bayes import bayes_floors, expected_losses
from topicscope.theory.check import equal_word_topics
from topicscope.theory.cross_entropy import cross_entropy_optimum, infinite_bag, uniform_cross_entropy
from topicscope.theory.finite_documents import (
    Moments,
    embedding_loss,
    finite_optimum,
    flat_directions,
    infinite_moments,
    infinite_topic_moments,
    moments,
    population_loss,
    topic_count_distribution,
)
from topicscope.theory.lemma1 import constants, hessian_rank, lemma1, topic_gain
from topicscope.theory.theorem1 import (
    paper_diagonal_embedding,
    theorem1,
    theorem1_bias,
    theorem1_embedding,
)
from topicscope.theory.theorem2 import diagonal_value, theorem2

T, TAU, V = TOPIC_SETS.topics, TOPIC_SETS.per_document, TOPIC_SETS.words
VOCABULARY = T * V + 1
# How many random members of a family theory is tried on.
MEMBERS = 20
# The gain is estimated from this many documents. Each contributes its exact expected loss, so few are enough: the gain
# is known to about one per cent.
GAIN_DOCUMENTS = 1_000
# λ along which the optimum of cross-entropy is followed to λ = 0, each a tenth of the one before.
RIDGES = 10.0 ** -np.arange(5, 11)
# Samples on which the finite documents' optimum is taken, and the documents of each.
SAMPLES, SAMPLED_DOCUMENTS = 5, 400
# Share of every topic's probability that is common to all, where words of a topic are to stay alike.
OVERLAP = 0.3


def infinite_documents(per_document: int = TAU) -> Moments:
    """Moments of Assumption 1's infinite documents of τ topics."""
    return infinite_topic_moments(T, V, per_document, MASKING)


@cache
def paper_moments() -> Moments:
    """Exact moments of the paper's finite documents."""
    return moments(TopicModel.from_settings(LDA), MASKING)


@dataclass(frozen=True)
class Gain:
    """The scale of "only slightly worse": what the Bayes floor gains over the best constant prediction."""

    constant: float
    floor: float

    @property
    def value(self) -> float:
        """What a model can gain at most by looking at the document."""
        return self.constant - self.floor


def gain(data: Data, masking: Masking, loss: Loss) -> Gain:
    """The gain for documents of equal, disjoint topics; the number of training documents plays no part."""
    return _gains(replace(data, fresh=True, documents=1), masking)[loss]


@cache
def _gains(data: Data, masking: Masking) -> dict[Loss, Gain]:
    model = TopicModel.from_settings(data)
    draw = generator(0, Purpose.THEORY)
    floor = bayes_floors(model, masking, samples=GAIN_DOCUMENTS, generator=draw).masked
    constant = constant_losses(model)
    return {
        "cross_entropy": Gain(constant["cross_entropy"], floor.cross_entropy.value),
        "squared": Gain(constant["squared"], floor.squared.value),
    }


def constant_losses(model: TopicModel) -> dict[Loss, float]:
    """The least loss of one prediction for all documents: words by how likely they are."""
    weights = model.dirichlet / model.dirichlet.sum() if model.sampler == "dirichlet" else np.ones(model.topics)
    cross_entropy, squared = expected_losses(weights / weights.sum() @ model.topic_words)
    return {"cross_entropy": float(cross_entropy), "squared": float(squared)}


# Remark 1, §3.1 and §6.1: losses, topics and documents.


def growth_of_logits(results: Results) -> Measurement:
    """The least growth, relative to log(1/λ), of both gaps between one λ and the next, at the optimum of each λ."""
    bag = infinite_bag(T, V, TAU, MASKING)
    matrices = [cross_entropy_optimum(bag, T, V, ridge).matrix(T, V) for ridge in RIDGES]
    gaps = np.array([_gaps(matrix, bag) for matrix in matrices])
    squared = np.array([_gaps(finite_optimum(infinite_documents(), ridge=ridge), bag)[0] for ridge in RIDGES])
    return exact(
        float(_growth(gaps).min()),
        words_gap=gaps[-1, 0],
        mask_gap=gaps[-1, 1],
        excess_over_infimum=uniform_cross_entropy(matrices[-1], bag) - float(np.log(TAU * V)),
        growth_with_squared_loss=float(_growth(squared).max()),
    )


def _gaps(matrix: Float[np.ndarray, "token token"], bag: Bags) -> tuple[float, float]:
    """The first word's logit, which the document has, minus the last one's, which it lacks, and minus [MASK]'s."""
    logits = matrix @ bag.frequencies[0]
    return float(logits[1] - logits[-1]), float(logits[1] - logits[0])


def _growth(gaps: Float[np.ndarray, "ridge ..."]) -> Float[np.ndarray, "step ..."]:
    return np.asarray(np.diff(gaps, axis=0) / np.log(RIDGES[0] / RIDGES[1]))


def growth_on_finite_documents(results: Results) -> Measurement:
    """The relative growth of same minus different topic between the last two λ; in the details, [MASK]'s logit."""
    model, draw = TopicModel.from_settings(LDA), generator(1, Purpose.THEORY)
    contrasts, masks = np.zeros((SAMPLES, 2)), np.zeros((SAMPLES, 2))
    for sample in range(SAMPLES):
        documents = sample_documents(model, SAMPLED_DOCUMENTS, generator=draw)
        bags = Bags.of(mask_documents(documents, MASKING, model.vocabulary, generator=draw), model.vocabulary)
        for place, ridge in enumerate(RIDGES[-2:]):
            best = cross_entropy_optimum(bags, T, V, ridge)
            contrasts[sample, place] = best.same_topic - best.different_topic
            # At [MASK]'s average share of the positions.
            share = MASKING.mask * MASKING.replaced
            masks[sample, place] = share * best.mask_mask + (1 - share) * best.mask_row
    # The interval is over samples of documents, not over seeds of training.
    growth = student_interval(contrasts[:, 1] / contrasts[:, 0] - 1)
    return interval_given(
        growth.value,
        growth.low,
        growth.high,
        contrast=float(contrasts[:, 1].mean()),
        mask_logit=float(masks[:, 1].mean()),
        mask_logit_falls_by=float((masks[:, 0] - masks[:, 1]).mean()),
    )


def shared_topics(topics: int, words: int) -> Float[np.ndarray, "topic word"]:
    """Topics of v words of their own and the last word of the topic before; all v + 1 are equally likely."""
    member = np.kron(np.eye(topics), np.ones((1, words)))
    last = np.arange(words - 1, topics * words, words)
    member[(np.arange(topics) + 1) % topics, last] = 1.0
    return member / (words + 1)


@cache
def _documents_of(name: str) -> Moments:
    """Infinite documents of τ topics that share some words, that share all, or whose words are not equally likely."""
    matrices = {
        "shared": shared_topics(T, V),
        "alike": overlapping_topics(T, V, OVERLAP),
        "unequal": zipf_topics(T, V),
    }
    return infinite_moments(TopicModel.from_settings(TOPIC_SETS, matrices[name]), MASKING)


def _excess_over_optimum(matrix: Float[np.ndarray, "token token"], documents: Moments) -> float:
    return population_loss(matrix, documents) - population_loss(finite_optimum(documents), documents)


def block_excess(results: Results) -> Measurement:
    """What the best matrix with one number within topics, one between them and one for [MASK] lacks."""
    documents, alike = _documents_of("shared"), _documents_of("alike")
    best = _best_blocks(documents)
    least = population_loss(finite_optimum(documents), documents)
    return exact(
        _excess_over_optimum(best, documents),
        of_the_gain=_excess_over_optimum(best, documents) / (1 - float(documents.label @ documents.label) - least),
        with_disjoint_topics=_excess_over_optimum(_best_blocks(infinite_documents()), infinite_documents()),
        excess_of_theorem_2=_excess_over_optimum(theorem2(T, V, MASKING), documents),
        excess_of_the_diagonal=_excess_over_optimum(diagonal_value(T, V, MASKING), documents),
        # Words of a topic are still alike in that case, and a block is enough to predict them.
        if_every_topic_has_all_words=_excess_over_optimum(_best_blocks(alike), alike),
    )


def _best_blocks(documents: Moments) -> Float[np.ndarray, "token token"]:
    """The matrix of uniform blocks with the least loss: a quadratic in its three numbers."""
    topic = equal_word_topics(T, V)
    same = topic[:, None] == topic
    word = topic > 0
    predicted = word[:, None]
    patterns = np.stack([same & predicted & word, ~same & predicted & word, predicted & ~word]).astype(float)
    curvature = np.array([[np.vdot(a @ documents.second, b) for b in patterns] for a in patterns])
    slope = np.array([np.vdot(pattern, documents.cross) for pattern in patterns])
    # Frequencies sum to one, and [MASK]'s is the same in all: the three numbers are not determined, their best loss is.
    return np.tensordot(np.linalg.lstsq(curvature, slope)[0], patterns, axes=1)


def opposite_excess(results: Results) -> Measurement:
    """The excess loss of the minimiser with the contrast −c₃/v that is nearest to that of smallest norm."""
    documents = _documents_of("shared")
    smallest, wanted = finite_optimum(documents), -topic_gain(MASKING) / V
    contrast = _contrast_weights()
    flat = flat_directions(documents)
    free = contrast @ flat.T @ flat
    opposite = smallest + (wanted - np.vdot(contrast, smallest)) / np.vdot(contrast, free) * free
    disjoint = flat_directions(infinite_documents())
    return exact(
        abs(_excess_over_optimum(opposite, documents)),
        contrast=float(np.vdot(contrast, opposite)),
        contrast_of_smallest_norm=float(np.vdot(contrast, smallest)),
        norm=float(np.linalg.norm(opposite)),
        smallest_norm=float(np.linalg.norm(smallest)),
        free_part_with_disjoint_topics=float(np.linalg.norm(contrast @ disjoint.T)),
    )


def _contrast_weights() -> Float[np.ndarray, "token token"]:
    """The matrix whose product with W is the average within topics, diagonal included, minus that between them."""
    same = np.kron(np.eye(T), np.ones((V, V)))
    weights = np.zeros((VOCABULARY, VOCABULARY))
    weights[1:, 1:] = same / same.sum() - (1 - same) / (1 - same).sum()
    return weights


def weighted_contrasts(results: Results) -> Measurement:
    """The largest difference from c₃P(i|topic), over rows, other topics, and minimisers drawn at random."""
    documents, draw = _documents_of("unequal"), np.random.default_rng(0)
    likely = zipf_topics(T, V)
    flat, smallest = flat_directions(documents), finite_optimum(documents)
    own = np.kron(np.eye(T, dtype=bool), np.ones((V, 1), dtype=bool))
    wanted = topic_gain(MASKING) * likely.sum(axis=0)
    worst = 0.0
    for _ in range(MEMBERS):
        matrix = smallest + draw.normal(size=(VOCABULARY, len(flat))) @ flat
        averages = matrix[1:, 1:] @ likely.T
        contrasts = averages[own][:, None] - averages[~own].reshape(T * V, T - 1)
        worst = max(worst, float(abs(contrasts - wanted[:, None]).max()))
    return exact(worst, plain_contrast_of_smallest_norm=float(np.vdot(_contrast_weights(), smallest)))


def two_to_four_topics(results: Results) -> Measurement:
    """The share of the experiments' documents that have words of two, three or four topics."""
    shares = topic_count_distribution(LDA)
    return exact(
        float(shares[2:5].sum()),
        average_number=float(shares @ np.arange(len(shares))),
        more_than_four=float(shares[5:].sum()),
    )


# Lemma 1.


def family_excess(results: Results) -> Measurement:
    """The largest excess loss of members of Lemma 1's family, u and splits drawn at random."""
    documents, family = infinite_documents(), lemma1(T, V, MASKING)
    least = population_loss(finite_optimum(documents), documents)
    draw = np.random.default_rng(0)
    members = [
        family.member(draw.normal(size=VOCABULARY), draw.normal(size=(VOCABULARY, T * V))) for _ in range(MEMBERS)
    ]
    return exact(max(abs(population_loss(member, documents) - least) for member in members))


def additional_dimensions(results: Results, *, per_document: list[int]) -> dict[str, Measurement]:
    """Dimensions along which the loss is flat, V(V − rank S), minus those of Lemma 1's family, V(V − T), for each τ."""
    ranks = {each: _rank(infinite_documents(each)) for each in per_document}
    return {f"τ = {each}": exact(VOCABULARY * (T - rank), rank=rank) for each, rank in ranks.items()}


def _rank(documents: Moments) -> int:
    return int(np.linalg.matrix_rank(documents.second, hermitian=True))


# Theorem 1, Remarks 2 and 3.


def _least_loss() -> float:
    """The minimum over all E."""
    documents, bias = infinite_documents(), theorem1_bias(T, V, MASKING)
    return population_loss(finite_optimum(documents, bias=bias), documents, bias)


def _embedding_excess(embedding: Float[np.ndarray, "dimension token"]) -> float:
    return embedding_loss(embedding, infinite_documents(), theorem1_bias(T, V, MASKING)) - _least_loss()


def family_of_embeddings_excess(results: Results) -> Measurement:
    """The largest excess loss of embeddings W^E that Theorem 1 calls optimal, over the minimum over all E."""
    # §4 prints the bias "for all i", [MASK] included; appendix B has words only.
    bias, documents = theorem1_bias(T, V, MASKING), infinite_documents()
    bias[0] = bias[1]
    least = population_loss(finite_optimum(documents, bias=bias), documents, bias)
    return exact(
        max(abs(_embedding_excess(each)) for each in _family_of_embeddings()),
        minimum=_least_loss(),
        excess_with_the_bias_of_mask_too=min(embedding_loss(each, documents, bias) for each in _family_of_embeddings())
        - least,
    )


def outside_the_family(results: Results) -> Measurement:
    """The largest difference from the nearest matrix of the family, for a minimiser and along all flat directions.

    Every minimiser E is one minimiser plus flat directions in its rows, and the clauses are linear: if these meet them,
    all minimisers do, including the positive semi-definite ones (W^E⊤W^E).
    """
    documents, family = infinite_documents(), theorem1(T, V, MASKING)
    found = finite_optimum(documents, bias=theorem1_bias(T, V, MASKING))
    flat = flat_directions(documents)
    rows = np.vstack([flat, np.zeros((len(found) - len(flat), len(found)))])
    # What may be added to a member: the clauses without their constant.
    differences = replace(family, c3=0.0)
    return exact(
        max(float(abs(found - family.project(found)).max()), float(abs(rows - differences.project(rows)).max())),
        flat_directions_of_a_row=len(flat),
    )


def least_contrast(results: Results) -> Measurement:
    """The least contrast of minimisers found without the theorem (random along flat directions), minus c₃/v."""
    documents, draw = infinite_documents(), np.random.default_rng(0)
    found, flat = finite_optimum(documents, bias=theorem1_bias(T, V, MASKING)), flat_directions(documents)
    contrasts = [_block_contrast(found + draw.normal(size=(len(found), len(flat))) @ flat) for _ in range(MEMBERS)]
    # A diagonal embedding is optimal too: the contrast may be in a word's product with itself alone.
    diagonal = _diagonal()
    other_words = class_averages(diagonal.T @ diagonal, equal_word_topics(T, V)).contrast
    return exact(
        min(contrasts) - theorem1(T, V, MASKING).c3 / V,
        least=min(contrasts),
        largest=max(contrasts),
        least_between_other_words=other_words,
    )


def what_random_words_add(results: Results) -> Measurement:
    """What random words, instead of [MASK], add to the average prediction of diag(0, c₃, …, c₃), plus the bias."""
    without = replace(MASKING, random=0.0)
    frequencies = infinite_documents().mean - infinite_topic_moments(T, V, TAU, without).mean
    embedding = _diagonal()
    added = embedding.T @ embedding @ frequencies
    return exact(
        float(abs(added + theorem1_bias(T, V, MASKING)).max()),
        added_to_each_word=added[1],
        bias_without_random_words=float(abs(theorem1_bias(T, V, without)).max()),
    )


def unbiased_excess(results: Results) -> Measurement:
    """The excess loss of ``unbiased_embedding`` over the minimum over all matrices, both without bias."""
    documents = infinite_documents()
    embedding = unbiased_embedding()
    return exact(
        abs(embedding_loss(embedding, documents) - population_loss(finite_optimum(documents), documents)),
        product_of_mask_and_word=float(embedding[:, 0] @ embedding[:, 1]),
        mask_with_itself=float(embedding[:, 0] @ embedding[:, 0]),
        excess_of_the_diagonal_without_bias=embedding_loss(_diagonal(), documents)
        - population_loss(finite_optimum(documents), documents),
    )


def unbiased_embedding() -> Float[np.ndarray, "dimension token"]:
    r"""A W^E with W^E⊤W^E in Lemma 1's family, which is optimal without bias.

    With u₀ = −c₁ and uᵢ = 0 the clauses ask for E₀₀ = c₁c₂ and E_0i = −c₁; the rank-one matrix with this 0-th row has
    c₁/c₂ between all words, and what is left of the blocks, G_il = c₃/v [topic(i) = topic(l)] − c₁/c₂, is positive
    semi-definite: its smallest eigenvalue but 0 is c₃ − Tvc₁/c₂ = c₃(1 − p_m p_r / (1 − p_m(1 − p_c − p_r))).
    """
    c = constants(T, V, MASKING)
    product = np.full((T * V + 1, T * V + 1), -c.c1)
    product[0, 0] = c.c1 * c.c2
    product[1:, 1:] = np.kron(np.eye(T), np.full((V, V), c.c3 / V))
    values, vectors = np.linalg.eigh(product)
    assert values[0] > -ROUNDING, "no embedding has this product"
    return (np.sqrt(np.maximum(values, 0.0)) * vectors).T


def _family_of_embeddings() -> list[Float[np.ndarray, "dimension token"]]:
    """Embeddings that Theorem 1 calls optimal: block, diagonal, and block with a random u."""
    found = [theorem1_embedding(T, V, MASKING, pattern, T * V + 2) for pattern in ("block", "diagonal")]
    return found + [theorem1_embedding(T, V, MASKING, "block", T * V + 2, u) for u in _realisable_u()]


def _diagonal() -> Float[np.ndarray, "dimension token"]:
    return theorem1_embedding(T, V, MASKING, "diagonal", T * V + 1)


def _realisable_u() -> list[Float[np.ndarray, " token"]]:
    """Random u that some embedding has: u₀ < 0, and sums −u₀v/c₂ over every topic."""
    c2 = constants(T, V, MASKING).c2
    draw = np.random.default_rng(1)
    found = []
    for first in -draw.uniform(0.001, 0.1, size=MEMBERS):
        within = draw.normal(scale=0.01, size=(T, V))
        within += -first / c2 - within.mean(axis=1, keepdims=True)
        found.append(np.concatenate([[first], within.ravel()]))
    return found


def _block_contrast(matrix: Float[np.ndarray, "token token"]) -> float:
    """Average within topic blocks, diagonal included, minus average outside them."""
    blocks = matrix[1:, 1:].reshape(T, V, T, V).mean(axis=(1, 3))
    return float(np.trace(blocks) / T - (blocks.sum() - np.trace(blocks)) / (T * (T - 1)))


def printed_example(results: Results) -> Measurement:
    """The excess loss of the proof's example, its [MASK] entry included; beside it that of diag(0, c₃, …, c₃)."""
    return exact(
        _embedding_excess(paper_diagonal_embedding(T, V, MASKING)),
        corrected_example=_embedding_excess(_diagonal()),
    )


# Theorem 2 and Remark 8.


def theorem2_difference(results: Results) -> Measurement:
    """The largest difference of an entry of Theorem 2's matrix from the minimiser of smallest norm."""
    smallest, ridge = finite_optimum(infinite_documents()), finite_optimum(infinite_documents(), ridge=1e-9)
    matrix = theorem2(T, V, MASKING)
    averages = _averages(infinite_documents())
    return exact(
        float(abs(matrix - smallest).max()),
        difference_at_ridge_1e_9=float(abs(ridge - matrix).max()),
        mask_column=averages.mask_column,
        same_topic=averages.same_topic,
        different_topic=averages.different_topic,
    )


def _averages(documents: Moments) -> ClassAverages:
    """The class averages of the minimiser of smallest norm."""
    return class_averages(finite_optimum(documents), equal_word_topics(T, V))


def finite_ratio(results: Results) -> Measurement:
    """Same word over same topic in the optimum for the experiments' finite LDA documents; 1 in Theorem 2."""
    averages = _averages(paper_moments())
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
    documents = paper_moments()
    least = population_loss(finite_optimum(documents), documents)
    loss = population_loss(theorem2(T, V, MASKING), documents)
    gain = 1 - float(documents.label @ documents.label) - least
    return exact((loss - least) / gain, excess_loss=loss - least, optimum=least, theorem_2=loss)


def rank_of_hessian(results: Results) -> Measurement:
    """The rank of the Hessian 2 I ⊗ S, from the singular values of S."""
    return exact(
        VOCABULARY * _rank(infinite_documents()), corrected=hessian_rank(T, V, TAU, MASKING), size=VOCABULARY**2
    )


def least_curvature(results: Results) -> Measurement:
    """The smallest eigenvalue of the Hessian, 2S."""
    return exact(float(2 * np.linalg.eigvalsh(infinite_documents().second)[0]))
