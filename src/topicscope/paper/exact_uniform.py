"""Exact claims under uniform attention: Lemma 1, Theorems 1 and 2, Remarks 2 and 8.

Each compares what the paper states with a computation that does not use it: the second moments S and R of the masked
documents' frequencies give the loss of any matrix, its minimum, its minimiser of smallest norm and its curvature.
Where a statement fails as printed, the corrected one stands beside it (``ours``).
"""

import numpy as np
from jaxtyping import Float

from topicscope.measure.blocks import class_averages
from topicscope.paper.claim import Claim, Measurement, Results, equal, exact, larger, zero
from topicscope.settings import Data, Masking
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.check import equal_word_topics
from topicscope.theory.finite_documents import (
    Moments,
    embedding_loss,
    finite_optimum,
    infinite_topic_moments,
    moments,
    population_loss,
)
from topicscope.theory.lemma1 import constants, hessian_rank, lemma1
from topicscope.theory.theorem1 import paper_diagonal_embedding, theorem1, theorem1_bias, theorem1_embedding
from topicscope.theory.theorem2 import theorem2

T, TAU, V = 10, 2, 10
MASKING = Masking()
# Members of a family that are tried, with u and splits within topics drawn at random.
MEMBERS = 20
RIDGE = 1e-4


def lemma_1_excess(trained: Results) -> Measurement:
    """The largest excess loss of members of Lemma 1's family, u and splits drawn at random."""
    documents, family = _documents(), lemma1(T, V, MASKING)
    draw = np.random.default_rng(0)
    members = [family.member(draw.normal(size=T * V + 1), draw.normal(size=(T * V + 1, T * V))) for _ in range(MEMBERS)]
    return exact(max(abs(_excess(member, documents)) for member in members))


def lemma_1_dimension(trained: Results) -> Measurement:
    """Dimensions along which the loss is flat, V(V − rank S), minus those of the family, V(V − T)."""
    rank = _rank(_documents())
    return exact(_vocabulary() * (_vocabulary() - rank) - _vocabulary() * (_vocabulary() - T), rank=rank)


def lemma_1_dimension_all_topics(trained: Results) -> Measurement:
    """The same where every document has all topics, τ = T."""
    rank = _rank(_documents(per_document=T))
    return exact(_vocabulary() * (_vocabulary() - rank) - _vocabulary() * (_vocabulary() - T), rank=rank)


def theorem_1_excess(trained: Results) -> Measurement:
    """The largest excess loss of embeddings W^E that Theorem 1 calls optimal, over the minimum over all E."""
    documents, bias = _documents(), theorem1_bias(T, V, MASKING)
    least = population_loss(finite_optimum(documents, bias=bias), documents, bias)
    embeddings = [theorem1_embedding(T, V, MASKING, pattern, T * V + 2) for pattern in ("block", "diagonal")]
    embeddings += [theorem1_embedding(T, V, MASKING, "block", T * V + 2, u) for u in _realisable_u()]
    return exact(max(abs(embedding_loss(each, documents, bias) - least) for each in embeddings), minimum=least)


def theorem_1_example(trained: Results) -> Measurement:
    """The excess loss of the paper's example E = I/(1−(1−p_c)p_m), its [MASK] entry included."""
    return exact(_embedding_excess(paper_diagonal_embedding(T, V, MASKING)))


def theorem_1_corrected_example(trained: Results) -> Measurement:
    """The excess loss of E = diag(0, c₃, …, c₃)."""
    return exact(_embedding_excess(theorem1_embedding(T, V, MASKING, "diagonal", T * V + 1)))


def remark_2_contrast(trained: Results) -> Measurement:
    """The smallest difference of block averages, same minus different topic, among optimal E (own word included)."""
    embeddings = [theorem1_embedding(T, V, MASKING, pattern, T * V + 2) for pattern in ("block", "diagonal")]
    embeddings += [theorem1_embedding(T, V, MASKING, "block", T * V + 2, u) for u in _realisable_u()]
    return exact(min(_block_contrast(each.T @ each) for each in embeddings))


def remark_2_other_words(trained: Results) -> Measurement:
    """The contrast of an optimal E between different words: that of the diagonal one."""
    embedding = theorem1_embedding(T, V, MASKING, "diagonal", T * V + 1)
    contrast = class_averages(embedding.T @ embedding, equal_word_topics(T, V)).contrast
    assert contrast is not None
    return exact(contrast, excess_loss=_embedding_excess(embedding))


def theorem_2_entry(trained: Results) -> Measurement:
    """The largest difference of an entry of Theorem 2's matrix from the minimiser of smallest norm."""
    smallest = finite_optimum(_documents())
    ridge = finite_optimum(_documents(), ridge=1e-9)
    matrix = theorem2(T, V, MASKING)
    return exact(float(abs(matrix - smallest).max()), difference_at_ridge_1e_9=float(abs(ridge - matrix).max()))


def theorem_2_averages(trained: Results) -> dict[str, float]:
    """Class averages of the minimiser of smallest norm."""
    averages = class_averages(finite_optimum(_documents()), equal_word_topics(T, V))
    assert averages.same_topic is not None
    assert averages.different_topic is not None
    return {
        "mask-column": averages.mask_column,
        "same-topic": averages.same_topic,
        "different-topic": averages.different_topic,
    }


def finite_ratio(trained: Results) -> Measurement:
    """Same word over same topic in the optimum for the experiments' finite LDA documents; 1 in Theorem 2."""
    optimum = finite_optimum(_finite_documents())
    averages = class_averages(optimum, equal_word_topics(T, V))
    assert averages.same_topic is not None
    return exact(
        averages.same_word / averages.same_topic,
        same_word=averages.same_word,
        same_topic=averages.same_topic,
        different_topic=averages.different_topic,
        mask_column=averages.mask_column,
    )


def finite_excess(trained: Results) -> Measurement:
    """What Theorem 2's matrix loses on the experiments' finite LDA documents against their own optimum."""
    documents = _finite_documents()
    least = population_loss(finite_optimum(documents), documents)
    loss = population_loss(theorem2(T, V, MASKING), documents)
    return exact(loss - least, optimum=least, theorem_2=loss)


def remark_8_rank(trained: Results) -> Measurement:
    """The rank of the Hessian 2 I ⊗ S, from the singular values of S."""
    return exact(_vocabulary() * _rank(_documents()), size=_vocabulary() ** 2)


def remark_8_curvature(trained: Results) -> Measurement:
    """The Hessian's smallest eigenvalue."""
    return exact(float(2 * np.linalg.eigvalsh(_documents().second)[0]))


def remark_8_ridge_curvature(trained: Results) -> Measurement:
    """The same with L2, at λ = 10⁻⁴."""
    second = _documents().second
    return exact(float(2 * np.linalg.eigvalsh(second + RIDGE * np.eye(len(second)))[0]))


def _vocabulary() -> int:
    return T * V + 1


def _documents(per_document: int = TAU) -> Moments:
    return infinite_topic_moments(T, V, per_document, MASKING)


def _finite_documents() -> Moments:
    return moments(TopicModel.from_settings(Data()), MASKING)


def _excess(matrix: Float[np.ndarray, "token token"], documents: Moments) -> float:
    return population_loss(matrix, documents) - population_loss(finite_optimum(documents), documents)


def _embedding_excess(embedding: Float[np.ndarray, "dimension token"]) -> float:
    documents, bias = _documents(), theorem1_bias(T, V, MASKING)
    least = population_loss(finite_optimum(documents, bias=bias), documents, bias)
    return embedding_loss(embedding, documents, bias) - least


def _rank(documents: Moments) -> int:
    return int(np.linalg.matrix_rank(documents.second, hermitian=True))


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


_C = constants(T, V, MASKING)
_FAMILY = theorem1(T, V, MASKING)
_THEOREM_2 = theorem2(T, V, MASKING)
_ENTRIES = {"mask-column": _THEOREM_2[1, 0], "same-topic": _THEOREM_2[1, 2], "different-topic": _THEOREM_2[1, -1]}
_WORDS = {
    "mask-column": "W_i0 = (c₂c₃ − c₁Tv)/(c₂² + Tv)",
    "same-topic": "W_same-topic = W_diff-topic + c₃/v",
    "different-topic": "W_diff-topic = −(c₁c₂ + c₃)/(c₂² + Tv)",
}


def _theorem_2_claim(name: str) -> Claim:
    return equal(
        float(_ENTRIES[name]),
        tolerance=1e-8,
        id=f"theorem2/{name}",
        source="Theorem 2",
        statement=f"The optimal W^V under uniform attention and mild L2 has {_WORDS[name]}.",
        measure=lambda trained: exact(theorem_2_averages(trained)[name]),
    )


CLAIMS: tuple[Claim, ...] = (
    zero(
        id="lemma1/minimisers",
        source="Lemma 1",
        statement="Every matrix of the family minimises the loss under uniform attention.",
        unit="excess loss",
        measure=lemma_1_excess,
    ),
    equal(
        0,
        tolerance=0.5,
        id="lemma1/no-others",
        source="Lemma 1",
        statement="No other matrix does: the loss is flat along as many dimensions as the family has (τ < T).",
        unit="dimensions",
        measure=lemma_1_dimension,
    ),
    equal(
        0,
        tolerance=0.5,
        id="lemma1/all-topics",
        source="Lemma 1",
        statement="The same for any τ, as printed: also where every document has all topics, τ = T.",
        unit="dimensions",
        measure=lemma_1_dimension_all_topics,
    ),
    zero(
        id="theorem1/optimal",
        source="Theorem 1",
        statement="Embeddings whose W^E⊤W^E meets the three clauses are optimal with W^V = I and the theorem's bias.",
        unit="excess loss",
        measure=theorem_1_excess,
    ),
    zero(
        id="theorem1/example",
        source="Theorem 1",
        statement="E = I/(1−(1−p_c)p_m), the proof's example, is optimal.",
        unit="excess loss",
        measure=theorem_1_example,
    ),
    zero(
        id="theorem1/example-corrected",
        source="Theorem 1",
        statement="diag(0, c₃, …, c₃) is: clause 1(a) asks for E₀₀ = 0.",
        unit="excess loss",
        measure=theorem_1_corrected_example,
        ours=True,
    ),
    equal(
        _FAMILY.c3 / V,
        id="remark2/contrast",
        source="Remark 2",
        statement="Entries of an optimal W^E⊤W^E are on average larger within a topic than between topics, by c₃/v.",
        measure=remark_2_contrast,
    ),
    equal(
        0,
        id="remark2/other-words",
        source="Remark 2",
        statement="This may all be in a word's product with itself: an optimal E has no contrast between other words.",
        measure=remark_2_other_words,
        ours=True,
    ),
    zero(
        id="theorem2/matrix",
        source="Theorem 2",
        statement="The matrix is the limit of the ridge optimum: the minimiser of smallest norm, entry by entry.",
        unit="largest difference",
        measure=theorem_2_entry,
    ),
    *(_theorem_2_claim(name) for name in _ENTRIES),
    larger(
        1,
        id="theorem2/finite-ratio",
        source="Theorem 2",
        statement="For the experiments' finite documents the optimum is another: a word weighs more than its topic.",
        unit="same word / same topic",
        measure=finite_ratio,
        ours=True,
    ),
    larger(
        0,
        id="theorem2/finite-excess",
        source="Theorem 2",
        statement="On the experiments' finite documents the theorem's matrix is not optimal, though nearly so.",
        unit="excess loss",
        measure=finite_excess,
        ours=True,
    ),
    equal(
        1,
        tolerance=0.5,
        id="remark8/rank",
        source="Remark 8",
        statement="The Hessian of the loss under uniform attention is of rank 1.",
        unit="rank",
        measure=remark_8_rank,
    ),
    equal(
        hessian_rank(T, V, TAU, MASKING),
        tolerance=0.5,
        id="remark8/rank-corrected",
        source="Remark 8",
        statement="It is of rank T(Tv + 1), since documents differ in their topics.",
        unit="rank",
        measure=remark_8_rank,
        ours=True,
    ),
    zero(
        id="remark8/not-strongly-convex",
        source="Remark 8",
        statement="The objective is not strongly convex.",
        unit="smallest eigenvalue",
        measure=remark_8_curvature,
    ),
    equal(
        2 * RIDGE,
        id="remark8/ridge",
        source="Remark 8",
        statement="With L2 it is, with curvature 2λ (here λ = 10⁻⁴).",
        unit="smallest eigenvalue",
        measure=remark_8_ridge_curvature,
    ),
)
