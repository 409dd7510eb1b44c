"""Permutation tests over word labels: whether words with shuffled topics would show as much.

The null hypothesis is that, among words of similar frequency, topics have nothing to do with what is measured: then
words of one frequency stratum could exchange their topics. p counts the observed labelling among the permutations, so
it is never 0 and is valid for any number of them: P(p ≤ α) ≤ α.
"""

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
from jaxtyping import Bool, Float, Int32
from scipy import sparse

from topicscope.probing.statistics.labelling import Labelling, OfWords

# Strata of equally many words, by frequency; fewer if they would have fewer words than this.
STRATA, WORDS_IN_STRATUM = 10, 10
# Sums in another order differ by rounding, by less than this relative to the size of the terms.
ROUNDING = 1e-10
# Permutations drawn at once, each of four bytes per word, and permutations under which sums are looked up at once.
DRAWN, AT_ONCE = 1_000, 250


def frequency_strata(
    frequency: Float[np.ndarray, " word"], kept: Bool[np.ndarray, " word"], strata: int | None = None
) -> OfWords:
    """Strata of similar frequency with equally many of the kept words each, by default; −1 for other words.

    By default there are ten, or fewer if they would have fewer than ten words each, since strata of one or two words
    would leave next to nothing to permute. Ties are broken by the word's place.
    """
    rank = np.argsort(np.argsort(frequency[kept], kind="stable"), kind="stable")
    stratum = np.full(len(kept), -1)
    stratum[kept] = rank * (strata or min(STRATA, max(len(rank) // WORDS_IN_STRATUM, 1))) // max(len(rank), 1)
    return stratum


def stratified_orders(
    labelling: Labelling, stratum: OfWords, permutations: int, *, generator: np.random.Generator
) -> Iterator[Int32[np.ndarray, "permutation word"]]:
    """Permutations of the kept words within their strata, ``DRAWN`` of them at once.

    Under a permutation word i takes the topics of word ``order[permutation, i]``.
    """
    kept = labelling.kept
    strata = [np.flatnonzero(kept & (stratum == each)) for each in np.unique(stratum[kept])]
    for start in range(0, permutations, DRAWN):
        order = np.tile(np.arange(len(stratum), dtype=np.int32), (min(DRAWN, permutations - start), 1))
        for members in strata:
            order[:, members] = generator.permuted(order[:, members], axis=1)
        yield order


def permuted_sums(
    matrices: Sequence[Float[np.ndarray, "word word"]],
    labelling: Labelling,
    stratum: OfWords,
    permutations: int,
    *,
    by_topic: bool = False,
    generator: np.random.Generator,
) -> Float[np.ndarray, "matrix group permutation_plus_one"]:
    """Sums of symmetric matrices over same-topic pairs, each once: as words are, then when they exchange their places.

    Only same-topic pairs are looked up, the same permutations for all matrices. The labelling keeps all words. There is
    one group, or by topic one for each, with the pairs of its words.

    Words stay in their stratum, so under every permutation a pair stays in one part of a matrix, that of its two
    strata: small enough for a processor's cache, where many permutations look it up.
    """
    pairs = [np.stack(labelling.same_topic_pairs)]
    if by_topic:
        members = [np.flatnonzero(words) for words in labelling.membership.T]
        pairs = [np.stack([words[ends] for ends in np.triu_indices(len(words), k=1)]) for words in members]
    topic = np.repeat(np.arange(len(pairs)), [each.shape[1] for each in pairs])
    # Matrices are symmetric, so the lower stratum comes first.
    ends = np.concatenate(pairs, axis=1)
    first, second = np.take_along_axis(ends, np.argsort(stratum[ends], axis=0, kind="stable"), axis=0)
    parts = []
    for one, other in np.unique(stratum[[first, second]], axis=1).T:
        chosen = np.flatnonzero((stratum[first] == one) & (stratum[second] == other))
        rows, columns = (np.flatnonzero(stratum == each) for each in (one, other))
        part = np.stack([matrix[np.ix_(rows, columns)].ravel() for matrix in matrices], axis=1)
        groups, group = np.unique(topic[chosen], return_inverse=True)
        gather = sparse.csr_array((np.ones(len(group)), (group, np.arange(len(group)))))
        parts.append((first[chosen], second[chosen], np.int32(len(columns)), part, groups, gather))
    # Each word's place within its stratum.
    place = np.empty(len(stratum), dtype=np.int32)
    for each in np.unique(stratum):
        place[stratum == each] = np.arange((stratum == each).sum())
    sums, start = np.zeros((len(pairs), 1 + permutations, len(matrices))), 0
    drawn = stratified_orders(labelling, stratum, permutations, generator=generator)
    for orders in chain([np.arange(len(stratum), dtype=np.int32)[None]], drawn):
        for some in np.split(orders, range(AT_ONCE, len(orders), AT_ONCE)):
            taken, here = np.ascontiguousarray(place[some].T), slice(start, start + len(some))
            start += len(some)
            for one, other, width, part, groups, gather in parts:
                values = part.take(taken[one] * width + taken[other], axis=0).reshape(len(one), -1)
                sums[groups, here] += (gather @ values).reshape(len(groups), len(some), -1)
    return np.moveaxis(sums, -1, 0)


def log_ratio(
    same_sum: Float[np.ndarray, "*shape"],
    same_count: Float[np.ndarray, "*#shape"],
    every_sum: Float[np.ndarray, "*#shape"],
    every_count: Float[np.ndarray, "*#shape"],
) -> Float[np.ndarray, "*shape"]:
    """The log of the same-topic average over that of all other pairs of different words; NaN without such pairs."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(same_sum / same_count) - np.log((every_sum - same_sum) / (every_count - same_count))


def permuted_log_ratios(
    sums: Float[np.ndarray, "word word"],
    counts: Float[np.ndarray, "word word"],
    labelling: Labelling,
    stratum: OfWords,
    permutations: int,
    *,
    generator: np.random.Generator,
) -> Float[np.ndarray, " permutation_plus_one"]:
    """The log-ratio of sums over counts of pairs of positions: as words are, then permuted, as above."""
    same = permuted_sums([sums, counts], labelling, stratum, permutations, generator=generator)[:, 0]
    # Matrices have each pair twice.
    return log_ratio(*same, *(np.array([matrix.sum() / 2]) for matrix in (sums, counts)))


def permutation_p(values: Float[np.ndarray, " permutation_plus_one"], *, size: float = 0.0) -> float:
    """Two-sided: how often a permutation is as far from the mean of all as the observed number, which comes first.

    Numbers that differ only by rounding count as equal. ``size`` is the size of the terms behind the numbers, if
    that is larger; it is 1 for log-ratios, whose rounding is that of the ratio. NaN if the observed number is not
    finite.
    """
    if not np.isfinite(values[0]):
        return np.nan
    every = values[np.isfinite(values)]
    distance = np.abs(every - every.mean())
    return float((distance >= distance[0] - ROUNDING * max(size, np.abs(every).max())).mean())


def false_discovery_rates(p: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """Benjamini and Hochberg's q: of all with q ≤ 0.05, at most 5 % are expected to be wrong. NaN stays NaN."""
    # This takes a second, which workers that only measure passages do not need.
    from scipy import stats

    rates, there = p.copy(), np.isfinite(p)
    if there.any():
        rates[there] = stats.false_discovery_control(p[there])
    return rates


def maximum_p(values: Float[np.ndarray, "permutation_plus_one *shape"]) -> Float[np.ndarray, "*shape"]:
    """Two-sided p-values of all heads (or layers) together: with probability 95 % none below 0.05 is wrong.

    Each head's numbers, of which the observed one comes first, are standardised over the permutations; a head's p is
    how often the largest of all heads is as far out as this head was (Westfall and Young's single step). NaN heads are
    left out, and so are permutations under which some other head has no finite number. A head that permutations change
    by no more than the rounding of log-ratios has p = 1.
    """
    there = np.isfinite(values[0])
    p = np.where(there, 1.0, np.nan)
    every = values[:, there]
    every = every[np.isfinite(every).all(axis=1)]
    spread = every.std(axis=0)
    usable = spread > ROUNDING
    if usable.any():
        distance = np.abs((every - every.mean(axis=0))[:, usable] / spread[usable])
        largest, own = distance.max(axis=1), p[there]
        own[usable] = (largest[:, None] >= distance[0] - ROUNDING / spread[usable]).mean(axis=0)
        p[there] = own
    return p
