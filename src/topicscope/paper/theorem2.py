"""Lemma 1, Theorem 2 and Remark 8: W^V under uniform attention, exactly.

Each claim compares what the paper states with a computation that does not use it: the second moments S and R of the
masked documents' frequencies give the loss of any matrix, its minimum, its minimiser of smallest norm and its
curvature. Where a statement fails as printed, the corrected one stands beside it (``ours``).
"""

import numpy as np

from topicscope.measure.blocks import ClassAverages, class_averages
from topicscope.paper.claim import Claim, Measurement, Preset, Results, above, equal, exact, zero
from topicscope.paper.setups import MASKING, MEMBERS, TAU, T, V, infinite_documents, paper_moments
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
        equal(
            0,
            tolerance=0.5,
            id="lemma1/no-others",
            statement="No other matrix does: the loss is flat along as many dimensions as the family has (τ < T).",
            unit="dimensions",
            measure=lambda results: _more_dimensions(infinite_documents()),
        ),
        equal(
            0,
            tolerance=0.5,
            id="lemma1/all-topics",
            statement="The same for any τ, as printed: also where every document has all topics, τ = T.",
            unit="dimensions",
            measure=lambda results: _more_dimensions(infinite_documents(per_document=T)),
        ),
    )


def _family_excess(results: Results) -> Measurement:
    """The largest excess loss of members of Lemma 1's family, u and splits drawn at random."""
    documents, family = infinite_documents(), lemma1(T, V, MASKING)
    least = population_loss(finite_optimum(documents), documents)
    draw = np.random.default_rng(0)
    members = [
        family.member(draw.normal(size=VOCABULARY), draw.normal(size=(VOCABULARY, T * V))) for _ in range(MEMBERS)
    ]
    return exact(max(abs(population_loss(member, documents) - least) for member in members))


def _more_dimensions(documents: Moments) -> Measurement:
    """Dimensions along which the loss is flat, V(V − rank S), minus those of the family, V(V − T)."""
    rank = _rank(documents)
    return exact(VOCABULARY * (VOCABULARY - rank) - VOCABULARY * (VOCABULARY - T), rank=rank)


def _rank(documents: Moments) -> int:
    return int(np.linalg.matrix_rank(documents.second, hermitian=True))


def claims(preset: Preset) -> tuple[Claim, ...]:
    """Theorem 2's matrix, for infinite documents and for the experiments' own; the Hessian of Remark 8."""
    return (
        zero(
            id="theorem2/matrix",
            statement="The matrix is the limit of the ridge optimum: the minimiser of smallest norm, entry by entry.",
            unit="largest difference",
            measure=_largest_difference,
        ),
        *_entry_claims(),
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
            statement="On the experiments' finite documents the theorem's matrix is not optimal, though nearly so.",
            unit="excess loss",
            rule=above(0),
            measure=_finite_excess,
            kind="ours",
        ),
        equal(
            1,
            tolerance=0.5,
            id="remark8/rank",
            statement="The Hessian of the loss under uniform attention is of rank 1.",
            unit="rank",
            measure=_hessian_rank,
        ),
        equal(
            hessian_rank(T, V, TAU, MASKING),
            tolerance=0.5,
            id="remark8/rank-corrected",
            statement="It is of rank T(Tv + 1), since documents differ in their topics.",
            unit="rank",
            measure=_hessian_rank,
            kind="ours",
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
        ),
    )


def _largest_difference(results: Results) -> Measurement:
    """The largest difference of an entry of Theorem 2's matrix from the minimiser of smallest norm."""
    smallest, ridge = finite_optimum(infinite_documents()), finite_optimum(infinite_documents(), ridge=1e-9)
    matrix = theorem2(T, V, MASKING)
    return exact(float(abs(matrix - smallest).max()), difference_at_ridge_1e_9=float(abs(ridge - matrix).max()))


def _entry_claims() -> list[Claim]:
    """Each kind of entry, as the theorem gives it, against the average over the minimiser of smallest norm."""
    matrix = theorem2(T, V, MASKING)
    entries = {
        "mask-column": (matrix[1, 0], "W_i0 = (c₂c₃ − c₁Tv)/(c₂² + Tv)"),
        "same-topic": (matrix[1, 2], "W_same-topic = W_diff-topic + c₃/v"),
        "different-topic": (matrix[1, -1], "W_diff-topic = −(c₁c₂ + c₃)/(c₂² + Tv)"),
    }
    return [
        equal(
            float(entry),
            tolerance=1e-8,
            id=f"theorem2/{name}",
            statement=f"The optimal W^V under uniform attention and mild L2 has {words}.",
            measure=lambda results, name=name: exact(getattr(_averages(infinite_documents()), name.replace("-", "_"))),
        )
        for name, (entry, words) in entries.items()
    ]


def _averages(documents: Moments) -> ClassAverages:
    """Of the minimiser of smallest norm."""
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
    """What Theorem 2's matrix loses on the experiments' finite LDA documents against their own optimum."""
    documents = paper_moments()
    least = population_loss(finite_optimum(documents), documents)
    loss = population_loss(theorem2(T, V, MASKING), documents)
    return exact(loss - least, optimum=least, theorem_2=loss)


def _hessian_rank(results: Results) -> Measurement:
    """The rank of the Hessian 2 I ⊗ S, from the singular values of S."""
    return exact(VOCABULARY * _rank(infinite_documents()), size=VOCABULARY**2)


def _curvature(l2: float) -> Measurement:
    """The smallest eigenvalue of the Hessian, 2 (S + λI)."""
    second = infinite_documents().second
    return exact(float(2 * np.linalg.eigvalsh(second + l2 * np.eye(len(second)))[0]))
