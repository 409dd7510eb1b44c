"""Similarity of word vectors within and between topics: cosine and dot product over all pairs, exactly.

No pair is sampled and no loop runs over pairs: the sum over all pairs is the square of the vectors' sum, and same-topic
pairs are few. AUC and the permutation test look at the kept words' products, a W × W matrix. The end of the file has
each topic by itself: its own words against all other words, in similarity or in attention.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int, Int32

from topicscope.probing.statistics.labelling import Labelling, TopicWeights
from topicscope.probing.statistics.pairs import form_average, pair_forms
from topicscope.probing.statistics.permutation import (
    Tested,
    false_discovery_rates,
    permutation_p,
    permuted_same_topic_sums,
    permuted_topic_sums,
)
from topicscope.probing.statistics.resampling import contrast

Kind = Literal["cosine", "dot"]
# The most intervals of equal width that values are sorted into before they are compared.
BUCKETS = 2**20
# The fields of a contrast that are reported per topic.
SAID = ("same", "different", "ratio", "low", "high", "difference", "difference_low", "difference_high", "p")


def prepared(
    vectors: Float[np.ndarray, "word width"], kind: Kind, *, centred: bool = False
) -> Float[np.ndarray, "word width"]:
    """Vectors whose dot product is the similarity asked for; ``centred`` subtracts the mean of these vectors first.

    So pass the words that a labelling keeps, and no others. A vector of length zero has cosine 0 with all others.
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


def principal_places(
    vectors: Float[np.ndarray, "word width"],
) -> tuple[Float[np.ndarray, "word 2"], float]:
    """Words in two dimensions: their directions (unit vectors) along the two in which these vary most.

    Principal components of unit vectors are classical multidimensional scaling of their distances √(2 − 2 cosine). The
    second number is the share of the variance that the two dimensions hold. Signs are chosen so that in each
    dimension the coordinate of largest size is positive.
    """
    ready = prepared(prepared(vectors, "cosine"), "dot", centred=True)
    left, sizes, _ = np.linalg.svd(ready, full_matrices=False)
    places = np.zeros((len(vectors), 2))
    found = left[:, :2] * sizes[:2]
    places[:, : found.shape[1]] = found
    signs = np.sign(places[np.abs(places).argmax(axis=0), np.arange(2)])
    total = float((sizes**2).sum())
    return places * np.where(signs == 0, 1.0, signs), float((sizes[:2] ** 2).sum()) / total if total > 0 else 0.0


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
    r"""The same for several sets of vectors of the kept words; the products of their same-topic pairs are given.

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


def similarity_tests(
    products: Sequence[Float[np.ndarray, "word word"]],
    labelling: Labelling,
    stratum: Int[np.ndarray, " word"],
    permutations: int,
    *,
    generator: np.random.Generator,
) -> list[Tested]:
    """Test each matrix's same- minus different-topic difference by permuting words of similar frequency.

    All matrices see the same permutations. The numbers of pairs do not change, so the same-topic average orders
    permutations as the difference does: that average is returned with p.
    """
    sums = permuted_same_topic_sums(products, labelling, stratum, permutations, generator=generator)
    pairs = labelling.same_topic_pairs
    number = max(len(pairs[0]), 1)
    found = []
    for matrix, (average, permuted) in zip(products, ((each[0], each[1:]) for each in sums / number), strict=True):
        p = permutation_p(float(average), permuted, size=float(np.abs(matrix[pairs]).sum()) / number)
        found.append(Tested(p, float(average), permuted))
    return found


@dataclass(frozen=True, eq=False)
class Placements:
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
        found = (numbers - low) * scale
        return np.clip(found, 0, buckets, out=found).astype(np.int32)

    number = np.bincount(bucket(ordered), minlength=buckets + 1).astype(np.int32)
    place = bucket(values)
    below = (np.cumsum(number, dtype=np.int32) - number)[place]
    not_above = below.copy()
    unsure = np.flatnonzero((number > 0)[place])
    below[unsure] = np.searchsorted(ordered, values[unsure], "left")
    not_above[unsure] = np.searchsorted(ordered, values[unsure], "right")
    return below, not_above


def auc_replicates(
    found: Sequence[Placements], labelling: Labelling, weights: TopicWeights
) -> list[Float[np.ndarray, " replicate"]]:
    """AUC of several similarities of one labelling's words, with replicates.

    It is exact for the sample, the first replicate. In the others, both sides vary to first order: same-topic pairs are
    weighted anew against the sample's different-topic pairs, and the other way round (a word counts by its average).
    So a replicate may be a little beyond 0 or 1, as may the sample by rounding: ``contrast`` cuts what is shown.
    """
    first, second = labelling.same_topic_pairs
    values = np.stack([*(each.inside for each in found), np.ones(len(first))], axis=1)
    inside = pair_forms(weights.within, first, second, values)
    averages = form_average(inside[:, :-1], inside[:, -1:])
    return [average + _different_side(each, weights.between) for each, average in zip(found, averages.T, strict=True)]


def _different_side(found: Placements, weights: Float[np.ndarray, "replicate word"]) -> Float[np.ndarray, " replicate"]:
    """How far weighting words moves the average of P(same > value) over different-topic pairs; 0 for the sample."""
    if not found.partners.any():
        return np.full(len(weights), np.nan)
    deviation = found.above - found.partners * (found.above.sum() / found.partners.sum())
    return 2 * form_average(weights @ deviation, weights @ found.partners)


def topic_contrasts(
    values: Sequence[Float[np.ndarray, "word word"]],
    labelling: Labelling,
    draws: Float[np.ndarray, "replicate word"],
    stratum: Int[np.ndarray, " word"],
    permutations: int,
    *,
    counts: Float[np.ndarray, "word word"] | None = None,
    generator: np.random.Generator,
) -> list[list[dict[str, Any]]]:
    """For each matrix, a contrast per topic: pairs of its words against pairs of one of them and one of another topic.

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
    permuted = permuted_topic_sums([*left, ones], labelling, stratum, permutations, generator=generator)
    found: list[list[dict[str, Any]]] = [[] for _ in values]
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
            p = permutation_p(float(rest[0]), rest[1:], size=float(np.abs(same[0])))
            said = asdict(contrast(same, different, p=p))
            found[place].append({name: said[name] for name in SAID})
    for each in found:
        rates = false_discovery_rates(np.array([np.nan if row["p"] is None else row["p"] for row in each]))
        for row, rate in zip(each, rates.tolist(), strict=True):
            row["q"] = rate
    return found
