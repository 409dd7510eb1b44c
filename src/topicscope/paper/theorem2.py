"""Lemma 1, Theorem 2 and Remark 8: W^V under uniform attention, exactly.

Each claim compares what the paper states with a computation that does not use it: the second moments S and R of the
masked documents' frequencies give the loss of any matrix, its minimum, its minimiser of smallest norm and its
curvature. Where a statement fails as printed, the corrected one stands beside it (``ours``).
"""

from typing import Any

import numpy as np

from topicscope.measure.blocks import ClassAverages, class_averages
from topicscope.paper.claim import (
    Before,
    Claim,
    Diagnosis,
    Measurement,
    Preset,
    Results,
    above,
    equal,
    exact,
    within,
    zero,
)
from topicscope.paper.setups import MASKING, MEMBERS, SLIGHTLY, TAU, T, V, infinite_documents, paper_moments
from topicscope.theory.check import equal_word_topics
from topicscope.theory.finite_documents import Moments, finite_optimum, population_loss
from topicscope.theory.lemma1 import hessian_rank, lemma1
from topicscope.theory.theorem2 import theorem2

VOCABULARY = T * V + 1
# λ at which Remark 8's curvature is looked at.
CURVATURE_L2 = 1e-4


def lemma1_claims(preset: Preset) -> tuple[Claim, ...]:
    """The family minimises the loss, and nothing else does."""
    return (
        zero(
            id="lemma1/minimisers",
            statement="Every matrix of the family minimises the loss under uniform attention.",
            unit="excess loss",
            measure=_family_excess,
        ),
        _whole_number(
            0,
            id="lemma1/no-others",
            statement="No other matrix does: the loss is flat along as many dimensions as the family has, for every "
            "τ < T.",
            unit="dimensions",
            measure=lambda results: _more_dimensions(range(1, T)),
        ),
        _whole_number(
            0,
            id="lemma1/all-topics",
            statement="The same for any τ, as printed: also where every document has all topics, τ = T.",
            unit="dimensions",
            measure=lambda results: _more_dimensions(range(T, T + 1)),
            diagnosis=Diagnosis(
                "error",
                "A condition is missing. The proof compares documents that have one topic and not another; with τ = T "
                "all documents are alike, so that W need only be right for one of them, and most minimisers have no "
                "blocks.",
                holds="for every τ < T",
                see=("lemma1/no-others",),
            ),
        ),
    )


def _whole_number(value: int, **claim: Any) -> Claim:
    """A claim that a number of dimensions is this one: half of one is no choice of a threshold."""
    return Claim(expected=value, rule=within(value - 0.5, value + 0.5), **claim)


def _family_excess(results: Results) -> Measurement:
    """The largest excess loss of members of Lemma 1's family, u and splits drawn at random."""
    documents, family = infinite_documents(), lemma1(T, V, MASKING)
    least = population_loss(finite_optimum(documents), documents)
    draw = np.random.default_rng(0)
    members = [
        family.member(draw.normal(size=VOCABULARY), draw.normal(size=(VOCABULARY, T * V))) for _ in range(MEMBERS)
    ]
    return exact(max(abs(population_loss(member, documents) - least) for member in members))


def _more_dimensions(per_document: range) -> Measurement:
    """Dimensions along which the loss is flat, V(V − rank S), minus those of the family, V(V − T); most of all τ."""
    ranks = [_rank(infinite_documents(each)) for each in per_document]
    most = max((VOCABULARY * (VOCABULARY - rank) - VOCABULARY * (VOCABULARY - T) for rank in ranks), key=abs)
    return exact(most, smallest_rank=min(ranks), largest_rank=max(ranks))


def _rank(documents: Moments) -> int:
    return int(np.linalg.matrix_rank(documents.second, hermitian=True))


def claims(preset: Preset) -> tuple[Claim, ...]:
    """Theorem 2's matrix, for infinite documents and for the experiments' own; the Hessian of Remark 8."""
    return (
        zero(
            id="theorem2/matrix",
            statement="The matrix is the limit of the ridge optimum: the minimiser of smallest norm, entry by entry, "
            "with the theorem's numbers for [MASK]'s column, within topics and between them.",
            unit="largest difference",
            measure=_largest_difference,
        ),
        Claim(
            id="theorem2/finite-ratio",
            statement="For the experiments' finite documents the optimum is another: a word weighs more than its "
            "topic.",
            unit="same word / same topic",
            rule=above(1),
            measure=_finite_ratio,
            kind="ours",
        ),
        Claim(
            id="theorem2/finite-excess",
            statement="On the experiments' finite documents the theorem's matrix is nearly optimal all the same: it "
            "lacks less than a tenth of the optimum's gain over the best constant prediction.",
            unit="of the gain",
            rule=SLIGHTLY,
            measure=_finite_excess,
            kind="ours",
            before=Before("an excess loss above 0", rule=above(0), measure=_finite_excess),
        ),
        _whole_number(
            1,
            id="remark8/rank",
            statement="The Hessian of the loss under uniform attention is of rank 1.",
            unit="rank",
            measure=_hessian_rank,
            diagnosis=Diagnosis(
                "error",
                "Attention is of rank 1 in each document, and the Hessian is the average over documents of I ⊗ x̃x̃⊤: "
                "each document's term has rank Tv + 1, one for every row of W, and documents of different topics add "
                "up to T times that. What the remark concludes from it, no strong convexity, is right.",
                holds="for a single row of W on a single document",
                see=("remark8/rank-corrected", "remark8/not-strongly-convex"),
            ),
        ),
        _whole_number(
            hessian_rank(T, V, TAU, MASKING),
            id="remark8/rank-corrected",
            statement="It is of rank T(Tv + 1), since documents differ in their topics.",
            unit="rank",
            measure=_hessian_rank,
            kind="check",
        ),
        zero(
            id="remark8/not-strongly-convex",
            statement="The objective is not strongly convex.",
            unit="smallest eigenvalue",
            measure=lambda results: _curvature(l2=0.0),
        ),
        equal(
            2 * CURVATURE_L2,
            id="remark8/ridge",
            statement="With L2 it is, with curvature 2λ (here λ = 10⁻⁴).",
            unit="smallest eigenvalue",
            measure=lambda results: _curvature(l2=CURVATURE_L2),
            # So it is for every convex loss. (The remark prints ‖W‖ without the square that eq. 2 has.)
            kind="check",
        ),
    )


def _largest_difference(results: Results) -> Measurement:
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


def _finite_ratio(results: Results) -> Measurement:
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


def _finite_excess(results: Results) -> Measurement:
    """How much Theorem 2's matrix loses on the experiments' finite LDA documents against their own optimum."""
    documents = paper_moments()
    least = population_loss(finite_optimum(documents), documents)
    loss = population_loss(theorem2(T, V, MASKING), documents)
    gain = 1 - float(documents.label @ documents.label) - least
    return exact((loss - least) / gain, excess_loss=loss - least, optimum=least, theorem_2=loss)


def _hessian_rank(results: Results) -> Measurement:
    """The rank of the Hessian 2 I ⊗ S, from the singular values of S."""
    return exact(VOCABULARY * _rank(infinite_documents()), size=VOCABULARY**2)


def _curvature(l2: float) -> Measurement:
    """The smallest eigenvalue of the Hessian, 2 (S + λI)."""
    second = infinite_documents().second
    return exact(float(2 * np.linalg.eigvalsh(second + l2 * np.eye(len(second)))[0]))
