"""Similarity of word vectors within and between topics: cosine and dot product over all pairs, exactly.

No pair is sampled and none is looped over: the sum over all pairs is the square of the vectors' sum, and same-topic
pairs are few. AUC and the permutation test look at the kept words' products, a matrix of W × W.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from topicscope.measure.labelling import Labelling
from topicscope.measure.pair_forms import form_average, pair_forms
from topicscope.measure.permutation import permutation_p, permuted_same_topic_sums
from topicscope.measure.topic_weights import TopicWeights

Kind = Literal["cosine", "dot"]


def prepared(
    vectors: Float[np.ndarray, "word width"], kind: Kind, *, centred: bool = False
) -> Float[np.ndarray, "word width"]:
    """Vectors whose dot product is the similarity asked for; centred: the mean of these vectors taken off first.

    So pass the words that a labelling keeps, and no others. A vector of length zero has cosine 0 with all.
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


def pair_averages(
    vectors: Float[np.ndarray, "word width"], labelling: Labelling, weights: TopicWeights | None = None
) -> PairAverages:
    """Averages of dot products of kept words over same-topic and different-topic pairs, by replicate."""
    kept = vectors[labelling.kept].astype(np.float64)
    if weights is None:
        one = np.ones((1, len(kept)))
        weights = TopicWeights(one, one)
    among = labelling.among_kept
    first, second = among.same_topic_pairs
    return averages_of([kept], [np.einsum("pw,pw->p", kept[first], kept[second])], among, weights)[0]


def averages_of(
    vectors: Sequence[Float[np.ndarray, "word _"]],
    same_products: Sequence[Float[np.ndarray, " pair"]],
    labelling: Labelling,
    weights: TopicWeights,
) -> list[PairAverages]:
    r"""The same of several sets of vectors, of the kept words alone; their same-topic pairs' products are given.

    With weights u (between) and s (within), and R the same-topic pairs:

    .. math::
        \sum_{\text{same}} = \sum_{(i,j) \in R} s_i s_j\, x_i^\top x_j, \qquad
        \sum_{\text{different}} = \tfrac12 \Big( \big\| \textstyle\sum_i u_i x_i \big\|^2 - \sum_i u_i^2 \|x_i\|^2 \Big)
        - \sum_{(i,j) \in R} u_i u_j\, x_i^\top x_j
    """
    first, second = labelling.same_topic_pairs
    # The last column counts pairs.
    values = np.stack([*same_products, np.ones(len(first))], axis=1)
    u, s = weights.between, weights.within
    same, inside = (pair_forms(each, first, second, values) for each in (s, u))
    every_count = (u.sum(axis=1) ** 2 - (u**2).sum(axis=1)) / 2
    found = []
    for place, each in enumerate(vectors):
        every = (((u @ each) ** 2).sum(axis=1) - u**2 @ (each**2).sum(axis=1)) / 2
        found.append(
            PairAverages(
                same=form_average(same[:, place], same[:, -1]),
                different=form_average(every - inside[:, place], every_count - inside[:, -1]),
            )
        )
    return found


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
        permutation_p(float(matrix[pairs].sum()), permuted, size=float(np.abs(matrix[pairs]).sum()))
        for matrix, permuted in zip(products, sums, strict=True)
    ]
