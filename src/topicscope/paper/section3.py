"""What §3 and §6.1 say about the setup: Remark 1 on the losses, footnote 2 on topics, and the experiments' documents.

All of it is exact except one number on the experiments' finite documents, for which cross-entropy has no closed form.
"""

from functools import cache

import numpy as np
from jaxtyping import Float

from topicscope.measure.uncertainty import student_interval
from topicscope.paper.claim import (
    ROUNDING,
    Claim,
    Measurement,
    Preset,
    Results,
    above,
    below,
    exact,
    interval_given,
    share_above,
    zero,
)
from topicscope.paper.robustness import overlapping_topics, zipf_topics
from topicscope.paper.setups import LDA, MASKING, MEMBERS, TAU, TOPIC_SETS, T, V, infinite_documents
from topicscope.randomness import Purpose, generator
from topicscope.synthetic.documents import Bags
from topicscope.synthetic.masking import mask_documents
from topicscope.synthetic.topics import TopicModel, sample_documents
from topicscope.theory.check import equal_word_topics
from topicscope.theory.cross_entropy import cross_entropy_optimum, infinite_bag, uniform_cross_entropy
from topicscope.theory.finite_documents import (
    Moments,
    finite_optimum,
    flat_directions,
    infinite_moments,
    population_loss,
    topic_count_distribution,
)
from topicscope.theory.lemma1 import topic_gain
from topicscope.theory.theorem2 import diagonal_value, theorem2

VOCABULARY = T * V + 1
# λ along which the optimum of cross-entropy is followed to λ = 0, each a tenth of the one before.
RIDGES = 10.0 ** -np.arange(5, 11)
# Gaps between logits that have a finite limit do not grow with log(1/λ); those at infinity grow as fast as it does.
GROWS = share_above(0.5)
# A contrast between words that has its limit grows by less than this share for every tenth of λ.
SETTLES = below(0.01, origin=0)
# Samples on which the finite documents' optimum is taken, and the documents of each.
SAMPLES, SAMPLED_DOCUMENTS = 5, 400
# Share of every topic's probability that is common to all, where words of a topic are to stay alike.
OVERLAP = 0.3
# A claim counts a topic if a document has any word of it; its details, if it has at least this share of the words.
NOTICED = 0.05


def claims(preset: Preset) -> tuple[Claim, ...]:
    """Remark 1, footnote 2, and how many topics a document has."""
    return (*_loss_claims(), *_topic_claims(), _count_claim())


def _loss_claims() -> tuple[Claim, ...]:
    return (
        zero(
            id="remark1/constant",
            statement="Adding one constant to all logits leaves cross-entropy as it is, so optimal logits are not "
            "unique.",
            unit="largest difference of losses",
            measure=_shifted,
            kind="check",
        ),
        Claim(
            id="remark1/infinity",
            statement="Cross-entropy's optimal logits are at infinity: under uniform attention and infinite documents, "
            "words of the document's topics gain on all other words, and on [MASK], as fast as log(1/λ) as λ → 0.",
            unit="growth / log(1/λ)",
            rule=GROWS,
            measure=_growth_of_logits,
        ),
        Claim(
            id="remark1/finite-documents",
            statement="On the experiments' finite documents it is [MASK] alone that is at infinity, since it is never "
            "the word to predict: the contrast between words has a finite limit as λ → 0.",
            unit="growth for a tenth of λ",
            rule=SETTLES,
            measure=_growth_on_finite_documents,
            kind="ours",
        ),
    )


def _topic_claims() -> tuple[Claim, ...]:
    return (
        Claim(
            id="section3.1/disjoint",
            statement="The results depend on disjoint topics (footnote 2): where every topic shares one word with the "
            "next, no matrix with uniform blocks is optimal, whatever its three numbers.",
            unit="excess loss",
            rule=above(ROUNDING),
            measure=_block_excess,
        ),
        zero(
            id="section3.1/any-contrast",
            statement="With such shared words an optimal W^V need not tell topics apart: one has −c₃/v as the contrast "
            "that would be c₃/v for every optimal one if topics were disjoint.",
            unit="excess loss",
            measure=_opposite_excess,
            kind="ours",
        ),
        zero(
            id="section3.1/unequal-words",
            statement="Equal probabilities within a topic are not crucial (footnote 2): with probabilities as 1/rank, "
            "row i of every optimal W^V is larger for its own topic than for others by c₃P(i|topic), averages weighted "
            "by the words' probabilities.",
            unit="largest difference",
            measure=_weighted_contrasts,
        ),
    )


def _count_claim() -> Claim:
    return Claim(
        id="section6.1/topics",
        statement="Most documents of the experiments contain 2 to 4 topics, a single word of one being enough.",
        unit="of the documents",
        rule=above(0.5),
        measure=_two_to_four_topics,
    )


def _shifted(results: Results) -> Measurement:
    """How much the loss of random matrices changes when one row of numbers is added to all rows."""
    draw, bag = np.random.default_rng(0), infinite_bag(T, V, TAU, MASKING)
    matrices = draw.normal(size=(MEMBERS, VOCABULARY, VOCABULARY))
    shifts = draw.normal(size=(MEMBERS, 1, VOCABULARY))
    differences = [
        abs(uniform_cross_entropy(matrix + shift, bag) - uniform_cross_entropy(matrix, bag))
        for matrix, shift in zip(matrices, shifts, strict=True)
    ]
    documents = infinite_documents()
    squared = population_loss(matrices[0] + shifts[0], documents) - population_loss(matrices[0], documents)
    return exact(max(differences), difference_of_squared_losses=squared)


def _growth_of_logits(results: Results) -> Measurement:
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


def _growth_on_finite_documents(results: Results) -> Measurement:
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


def _excess(matrix: Float[np.ndarray, "token token"], documents: Moments) -> float:
    return population_loss(matrix, documents) - population_loss(finite_optimum(documents), documents)


def _block_excess(results: Results) -> Measurement:
    """What the best matrix with one number within topics, one between them and one for [MASK] lacks."""
    documents, alike = _documents_of("shared"), _documents_of("alike")
    best = _best_blocks(documents)
    least = population_loss(finite_optimum(documents), documents)
    return exact(
        _excess(best, documents),
        of_the_gain=_excess(best, documents) / (1 - float(documents.label @ documents.label) - least),
        with_disjoint_topics=_excess(_best_blocks(infinite_documents()), infinite_documents()),
        excess_of_theorem_2=_excess(theorem2(T, V, MASKING), documents),
        excess_of_the_diagonal=_excess(diagonal_value(T, V, MASKING), documents),
        # Words of a topic are still alike in that case, and a block is enough to predict them.
        if_every_topic_has_all_words=_excess(_best_blocks(alike), alike),
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


def _opposite_excess(results: Results) -> Measurement:
    """The excess loss of the minimiser with the contrast −c₃/v that is nearest to that of smallest norm."""
    documents = _documents_of("shared")
    smallest, wanted = finite_optimum(documents), -topic_gain(MASKING) / V
    contrast = _contrast_weights()
    flat = flat_directions(documents)
    free = contrast @ flat.T @ flat
    opposite = smallest + (wanted - np.vdot(contrast, smallest)) / np.vdot(contrast, free) * free
    disjoint = flat_directions(infinite_documents())
    return exact(
        abs(_excess(opposite, documents)),
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


def _weighted_contrasts(results: Results) -> Measurement:
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


def _two_to_four_topics(results: Results) -> Measurement:
    shares, noticed = topic_count_distribution(LDA), topic_count_distribution(LDA, NOTICED)
    return exact(
        float(shares[2:5].sum()),
        topics_with_5_percent_of_the_words=float(noticed[2:5].sum()),
        average_number=float(shares @ np.arange(len(shares))),
        more_than_four=float(shares[5:].sum()),
    )
