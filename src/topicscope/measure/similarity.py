"""Similarity of word vectors within and between topics: cosine and dot product over all pairs, exactly.

No pair is sampled and none is looped over: the sum over all pairs is the square of the vectors' sum, and same-topic
pairs, of which there are few, are a sparse matrix. AUC and the permutation test look at the kept words' products, a
matrix of W × W.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import sparse

from topicscope.measure.labelling import Labelling
from topicscope.measure.permutation import permutation_p, permuted_same_topic_sums

Kind = Literal["cosine", "dot"]


def prepared(
    vectors: Float[np.ndarray, "word width"], kind: Kind, *, centred: bool = False
) -> Float[np.ndarray, "word width"]:
    """Vectors whose dot product is the similarity asked for; centred: their mean taken off first.

    A vector of length zero has cosine 0 with all.
    """
    found = vectors.astype(np.float64)
    if centred:
        found = found - found.mean(axis=0)
    if kind == "dot":
        return found
    norms = np.linalg.norm(found, axis=1, keepdims=True)
    return np.divide(found, norms, out=np.zeros_like(found), where=norms > 0)


@dataclass(frozen=True, eq=False)
class PairAverages:
    """Averages of dot products over pairs of different words."""

    same: Float[np.ndarray, " replicate"]
    different: Float[np.ndarray, " replicate"]


@dataclass(frozen=True, eq=False)
class TopicWeights:
    """Bootstrap weights of topics and words: a replicate draws topics, and words within each (Poisson(1) both).

    A pair of one topic counts m_t n_i n_j times, a pair of two topics m_t n_i · m_u n_j times; a word with itself
    never. Drawing both levels makes intervals somewhat too wide, never too narrow. A word with several topics has the
    mean of their draws. The first replicate is the sample itself.
    """

    within: Float[np.ndarray, "replicate word"]
    between: Float[np.ndarray, "replicate word"]

    @classmethod
    def draw(cls, labelling: Labelling, replicates: int, *, generator: np.random.Generator) -> "TopicWeights":
        """Weights of the kept words."""
        member = labelling.membership[labelling.kept].astype(np.float64)
        topics = generator.poisson(1.0, (replicates, member.shape[1])) @ (member / member.sum(axis=1, keepdims=True)).T
        words = generator.poisson(1.0, topics.shape).astype(np.float64)
        first = np.ones((1, len(member)))
        return cls(np.concatenate([first, words * np.sqrt(topics)]), np.concatenate([first, words * topics]))


def pair_averages(
    vectors: Float[np.ndarray, "word width"], labelling: Labelling, weights: TopicWeights | None = None
) -> PairAverages:
    r"""Averages of dot products of kept words over same-topic and different-topic pairs, by replicate.

    With weights u (between) and s (within), and R the same-topic pairs:

    .. math::
        \sum_{\text{same}} = \sum_{(i,j) \in R} s_i s_j\, x_i^\top x_j, \qquad
        \sum_{\text{different}} = \tfrac12 \Big( \big\| \textstyle\sum_i u_i x_i \big\|^2 - \sum_i u_i^2 \|x_i\|^2 \Big)
        - \sum_{(i,j) \in R} u_i u_j\, x_i^\top x_j
    """
    kept = vectors[labelling.kept].astype(np.float64)
    if weights is None:
        one = np.ones((1, len(kept)))
        weights = TopicWeights(one, one)
    first, second = _kept_pairs(labelling)
    products = np.einsum("pw,pw->p", kept[first], kept[second])
    shape = (len(kept), len(kept))
    related = sparse.csr_array((products, (first, second)), shape=shape)
    pattern = sparse.csr_array((np.ones(len(first)), (first, second)), shape=shape)
    u, s = weights.between, weights.within
    every = (((u @ kept) ** 2).sum(axis=1) - u**2 @ (kept**2).sum(axis=1)) / 2
    every_count = (u.sum(axis=1) ** 2 - (u**2).sum(axis=1)) / 2
    return PairAverages(
        same=_average(_form(s, related), _form(s, pattern)),
        different=_average(every - _form(u, related), every_count - _form(u, pattern)),
    )


def _average(
    sums: Float[np.ndarray, " replicate"], counts: Float[np.ndarray, " replicate"]
) -> Float[np.ndarray, " replicate"]:
    """NaN where nothing was drawn; weights are whole numbers but for rounding."""
    return np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 1e-6)


def _form(weights: Float[np.ndarray, "replicate word"], pairs: sparse.csr_array) -> Float[np.ndarray, " replicate"]:
    """Σ w_i w_j over the pairs, by replicate."""
    return (np.asarray((pairs.T @ weights.T).T) * weights).sum(axis=1)


def _kept_pairs(labelling: Labelling) -> tuple[Int[np.ndarray, " pair"], Int[np.ndarray, " pair"]]:
    """Same-topic pairs, numbered among the kept words."""
    number = np.cumsum(labelling.kept) - 1
    first, second = labelling.same_topic_pairs
    return number[first], number[second]


def auc(
    products: Float[np.ndarray, "word word"], labelling: Labelling, weights: TopicWeights
) -> Float[np.ndarray, " replicate"]:
    """The probability that a same-topic pair is more similar than a different-topic pair, ties counting half.

    Exact for the sample, the first replicate. In the others, both sides vary to first order: same-topic pairs are
    weighted anew against the sample's different-topic pairs, and the other way round (a word counts by its average).
    """
    first, second = _kept_pairs(labelling)
    same = products[first, second]
    outside = np.triu(np.ones(products.shape, dtype=bool), k=1)
    outside[first, second] = False
    apart = products[outside]
    if not len(same) or not len(apart):
        return np.full(len(weights.within), np.nan)
    placement = sparse.csr_array((share_below(same, np.sort(apart)), (first, second)), shape=products.shape)
    pattern = sparse.csr_array((np.ones(len(first)), (first, second)), shape=products.shape)
    inside = _average(_form(weights.within, placement), _form(weights.within, pattern))
    return inside + _different_side(1 - share_below(apart, np.sort(same)), outside, weights.between)


def share_below(
    values: Float[np.ndarray, "*shape"], ordered: Float[np.ndarray, " other"]
) -> Float[np.ndarray, "*shape"]:
    """Which part of the others each value is above, equal ones counting half."""
    below, not_above = (np.searchsorted(ordered, values, side=side) for side in ("left", "right"))
    return (below + not_above) / (2 * len(ordered))


def _different_side(
    above: Float[np.ndarray, " pair"],
    outside: Bool[np.ndarray, "word word"],
    weights: Float[np.ndarray, "replicate word"],
) -> Float[np.ndarray, " replicate"]:
    """How far the average over different-topic pairs of P(same > value) moves when words are weighted; 0 at first."""
    (first, second), words = np.nonzero(outside), len(outside)
    sums = np.bincount(first, above, words) + np.bincount(second, above, words)
    partners = (np.bincount(first, minlength=words) + np.bincount(second, minlength=words)).astype(np.float64)
    deviation = sums - partners * (sums.sum() / partners.sum())
    return 2 * _average(weights @ deviation, weights @ partners)


def similarity_p_values(
    products: Sequence[Float[np.ndarray, "word word"]],
    labelling: Labelling,
    stratum: Int[np.ndarray, " word"],
    permutations: int,
    *,
    generator: np.random.Generator,
) -> list[float]:
    """Of each matrix of similarities, p of same- minus different-topic difference: words of like frequency permuted.

    All matrices see the same permutations.
    """
    sums = permuted_same_topic_sums(products, labelling, stratum, permutations, generator=generator)
    pairs = labelling.same_topic_pairs
    # Numbers of pairs stay as they are, so the sum orders permutations as the difference does.
    return [
        permutation_p(float(matrix[pairs].sum()), permuted) for matrix, permuted in zip(products, sums, strict=True)
    ]
