"""Similarity of words within and between topics, over all pairs: no pair is sampled, and no loop runs over pairs.

What is measured is a W × W matrix over the words that a labelling keeps, of embeddings' cosines or dot products or of
hidden states' similarities. The end of the file has each topic by itself: its own words against all other words, in
similarity or in attention.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int32
from msgspec import structs

from topicscope.probing.statistics.labelling import Labelling, OfWords, Replicates, TopicWeights
from topicscope.probing.statistics.pairs import form_average, pair_forms
from topicscope.probing.statistics.permutation import false_discovery_rates, permutation_p, permuted_sums
from topicscope.probing.statistics.resampling import contrast, extended, finite
from topicscope.records import TopicComparison

Kind = Literal["cosine", "dot"]
# The most intervals of equal width that values are sorted into before they are compared.
BUCKETS = 2**20


def prepared(vectors: Float[np.ndarray, "word width"], kind: Kind) -> Float[np.ndarray, "word width"]:
    """Vectors whose dot product is the similarity asked for; one of length zero has cosine 0 with all others."""
    vectors = vectors.astype(np.float64)
    if kind == "dot":
        return vectors
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)


class Tested(NamedTuple):
    """A p-value, and the numbers that it was computed from, the observed one first."""

    p: float
    values: Float[np.ndarray, " permutation_plus_one"]


def similarity_tests(
    matrices: Sequence[Float[np.ndarray, "word word"]],
    labelling: Labelling,
    stratum: OfWords,
    permutations: int,
    *,
    generator: np.random.Generator,
) -> list[Tested]:
    """Test each matrix's same- minus different-topic difference by permuting words of similar frequency.

    All matrices see the same permutations. The numbers of pairs do not change, so the same-topic average orders
    permutations as the difference does: that average is returned with p.
    """
    pairs = labelling.same_topic_pairs
    number = max(len(pairs[0]), 1)
    averages = permuted_sums(matrices, labelling, stratum, permutations, generator=generator)[:, 0] / number
    sizes = [float(np.abs(matrix[pairs]).sum()) / number for matrix in matrices]
    return [Tested(permutation_p(row, size=size), row) for row, size in zip(averages, sizes, strict=True)]


class Placements(NamedTuple):
    """Where pairs stand among those of the other kind; equal ones count half.

    AUC, the probability that a same-topic pair is more similar than a different-topic pair, is the mean of ``inside``.
    """

    inside: Float[np.ndarray, " pair"]
    """For each same-topic pair, the share of different-topic pairs below it."""

    above: Float[np.ndarray, " word"]
    """For each word, the sum over its different-topic pairs of the share of same-topic pairs above them."""

    partners: Float[np.ndarray, " word"]
    """How many different-topic pairs each word has."""


def placements(products: Float[np.ndarray, "word word"], labelling: Labelling) -> Placements:
    """Where same- and different-topic pairs stand, for a labelling that keeps all of its words."""
    same, inside_pairs = products[labelling.same_topic_pairs], np.concatenate(labelling.same_topic_pairs)
    first, second = labelling.different_topic_pairs
    order, words = np.argsort(same, kind="stable"), len(products)
    below, not_above = counts_below(products.take(first * np.int64(words) + second), same[order])
    inside = np.empty(len(same))
    # A different-topic pair is below the j-th same-topic pair (from 0) if at most j of these are not above it, and
    # not above it if at most j are below it. So cumulative counts are the answer, without sorting the many pairs.
    ranks = sum(np.cumsum(np.bincount(each, minlength=len(same) + 1))[:-1] for each in (below, not_above))
    inside[order] = ranks / (2 * max(len(first), 1))
    above = 1 - (below + not_above) / (2 * max(len(same), 1))
    return Placements(
        inside,
        np.bincount(first, above, words) + np.bincount(second, above, words),
        # All other words but those that share a topic.
        (words - 1.0) - np.bincount(inside_pairs, minlength=words),
    )


def counts_below(
    values: Float[np.ndarray, " value"], ordered: Float[np.ndarray, " other"]
) -> tuple[Int32[np.ndarray, " value"], Int32[np.ndarray, " value"]]:
    """How many of the ordered numbers are below each value, and how many are not above it.

    The same as by ``np.searchsorted``, which compares each value with some twenty others. Here values and ordered
    numbers go into buckets first: only a value whose bucket holds an ordered number has to be compared.
    """
    if not len(ordered) or not ordered[-1] > ordered[0]:
        left, right = (np.searchsorted(ordered, values, side) for side in ("left", "right"))
        return left.astype(np.int32), right.astype(np.int32)
    # Few numbers get few buckets, which would otherwise take longer than the numbers.
    buckets = min(BUCKETS, 4 * (len(values) + len(ordered)))
    low, scale = ordered[0], buckets / (ordered[-1] - ordered[0])

    def bucket(numbers: np.ndarray) -> np.ndarray:
        # Rounding never changes the order of two numbers, so a lower bucket means a lower number.
        scaled = (numbers - low) * scale
        return np.clip(scaled, 0, buckets, out=scaled).astype(np.int32)

    number = np.bincount(bucket(ordered), minlength=buckets + 1).astype(np.int32)
    place = bucket(values)
    below = (np.cumsum(number, dtype=np.int32) - number)[place]
    not_above = below.copy()
    unsure = np.flatnonzero((number > 0)[place])
    below[unsure] = np.searchsorted(ordered, values[unsure], "left")
    not_above[unsure] = np.searchsorted(ordered, values[unsure], "right")
    return below, not_above


class PairAverages(NamedTuple):
    """Averages over pairs of different words, and AUC."""

    same: Float[np.ndarray, "measured replicate"]
    different: Float[np.ndarray, "measured replicate"]
    auc: Float[np.ndarray, "measured replicate"]


class Similarities:
    r"""Numbers of several matrices of similarity between all words of one labelling; a matrix is not kept.

    Replicates weight words by ``TopicWeights``, the sample first. With weights u (between) and s (within), S the matrix
    and R the same-topic pairs, averages are quotients of

    .. math::
        \sum_{\text{same}} = \sum_{(i,j) \in R} s_i s_j\, S_{ij}, \qquad
        \sum_{\text{different}} = \tfrac12 \Big( u^\top S u - \sum_i u_i^2 S_{ii} \Big)
        - \sum_{(i,j) \in R} u_i u_j\, S_{ij}

    and the same with all entries 1. AUC is exact for the sample. In the replicates both sides vary to first order:
    same-topic pairs are weighted anew against the sample's different-topic pairs, and the other way round (a word
    counts by its average). So a replicate may be a little beyond 0 or 1; ``contrast`` cuts what is shown.
    """

    def __init__(self, labelling: Labelling, weights: TopicWeights) -> None:
        """``labelling`` keeps all of its words."""
        self.labelling, self.weights = labelling, weights
        self._inside: list[np.ndarray] = []
        self._every: list[np.ndarray] = []
        self._placed: list[Placements] = []

    def add(self, matrix: Float[np.ndarray, "word word"]) -> None:
        """Measure a symmetric matrix; its diagonal does not count."""
        u, diagonal = self.weights.between, np.diagonal(matrix)
        self._every.append((np.einsum("rw,rw->r", u @ matrix, u) - u**2 @ diagonal) / 2)
        self._inside.append(matrix[self.labelling.same_topic_pairs])
        self._placed.append(placements(matrix, self.labelling))

    def averages(self) -> PairAverages:
        """Averages and AUC of all matrices, in the order in which they were added."""
        (first, second), count = self.labelling.same_topic_pairs, len(self._inside)
        u, s = self.weights.between, self.weights.within
        # The last column counts pairs.
        columns = np.column_stack([*self._inside, *(placed.inside for placed in self._placed), np.ones(len(first))])
        same = pair_forms(s, first, second, columns)
        inside = pair_forms(u, first, second, np.delete(columns, np.s_[count:-1], axis=1))
        pairs = (u.sum(axis=1) ** 2 - (u**2).sum(axis=1)) / 2 - inside[:, -1]
        every = np.stack(self._every, axis=1) - inside[:, :-1]
        auc = form_average(same[:, count:-1], same[:, -1:]).T
        return PairAverages(
            same=form_average(same[:, :count], same[:, -1:]).T,
            different=form_average(every, pairs[:, None]).T,
            auc=auc + np.stack([_different_side(placed, u) for placed in self._placed]),
        )


def _different_side(placed: Placements, weights: Float[np.ndarray, "replicate word"]) -> Replicates:
    """How far weighting words moves the average of P(same > value) over different-topic pairs; 0 for the sample."""
    if not placed.partners.any():
        return np.full(len(weights), np.nan)
    deviation = placed.above - placed.partners * (placed.above.sum() / placed.partners.sum())
    return 2 * form_average(weights @ deviation, weights @ placed.partners)


def topic_contrasts(
    values: Sequence[Float[np.ndarray, "word word"]],
    labelling: Labelling,
    draws: Float[np.ndarray, "replicate word"],
    stratum: OfWords,
    permutations: int,
    *,
    counts: Float[np.ndarray, "word word"] | None = None,
    generator: np.random.Generator,
) -> list[list[TopicComparison]]:
    """For each matrix, a comparison per topic: pairs of its words against pairs of one of them and another topic's.

    values: symmetric matrices over the words that the labelling keeps (all of its words): sums over ``counts`` pairs of
    places, if these are given, else one number per pair of words.
    draws: how often each word was drawn, the sample first. The words outside a topic are many and are not drawn.
    stratum: words of one stratum exchange topics. A word's level is its average with words of other topics; the levels
    of its two words are subtracted from each pair, and p tests the average of the rest over the topic's pairs: words
    that are similar to everything, or to all but a few well-encoded topics, do not make a topic. ``q`` is the false
    discovery rate among the topics of a matrix. A topic without a pair has NaN.
    """
    ones = np.ones_like(values[0]) if counts is None else counts
    member = labelling.membership.astype(np.float32)
    apart = member @ member.T == 0
    np.fill_diagonal(apart, False)
    outside = [np.where(apart, each, 0.0).sum(axis=1) for each in (*values, ones)]
    levels = [form_average(each, outside[-1]) for each in outside[:-1]]
    left = [each - ones * (level[:, None] + level) for each, level in zip(values, levels, strict=True)]
    # The last matrix counts pairs.
    permuted = permuted_sums([*left, ones], labelling, stratum, permutations, by_topic=True, generator=generator)
    contrasts: list[list[TopicComparison]] = [[] for _ in values]
    for topic in range(labelling.membership.shape[1]):
        members = np.flatnonzero(labelling.membership[:, topic])
        first, second = (members[each] for each in np.triu_indices(len(members), k=1))
        weights = draws[:, first] * draws[:, second]
        number = weights @ ones[first, second]
        beside = draws[:, members] @ outside[-1][members]
        for place, matrix in enumerate(values):
            same = form_average(weights @ matrix[first, second], number)
            different = form_average(draws[:, members] @ outside[place][members], beside)
            rest = form_average(permuted[place, topic], permuted[-1, topic])
            p = permutation_p(rest, size=float(np.abs(same[0])))
            contrasts[place].append(extended(contrast(same, different, p=p), TopicComparison))
    rates = [false_discovery_rates(np.array([each.p for each in row], dtype=np.float64)) for row in contrasts]
    return [
        [structs.replace(each, q=finite(q)) for each, q in zip(row, own, strict=True)]
        for row, own in zip(contrasts, rates, strict=True)
    ]
