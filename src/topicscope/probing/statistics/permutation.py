"""Permutation tests over word labels: whether words with shuffled topics would show as much.

The null hypothesis is that, among words of similar frequency, topics have nothing to do with what is measured: then the
topics of words of one frequency stratum could be exchanged. p counts the observed labelling among the permutations, so
it is never 0 and is valid for any number of them: P(p ≤ α) ≤ α.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

from topicscope.probing.statistics.labelling import Labelling

# Strata of equally many words, by frequency; fewer if they would have fewer words than this.
STRATA, WORDS_IN_STRATUM = 10, 10
# Sums in another order differ by rounding, by less than this relative to the size of the terms.
ROUNDING = 1e-10
# Permutations drawn at once: few enough for their orders to stay in a processor's cache.
DRAWN = 100


def frequency_strata(frequency: Float[np.ndarray, " word"], strata: int | None = None) -> Int[np.ndarray, " word"]:
    """Strata of words of similar frequency, equally many in each; ties are broken by the word's place.

    Strata of one or two words would leave next to nothing to permute, so few words make fewer strata.
    """
    rank = np.argsort(np.argsort(frequency, kind="stable"), kind="stable")
    strata = strata or min(STRATA, max(len(frequency) // WORDS_IN_STRATUM, 1))
    return rank * min(strata, len(frequency)) // max(len(frequency), 1)


def stratified_orders(
    labelling: Labelling, stratum: Int[np.ndarray, " word"], permutations: int, *, generator: np.random.Generator
) -> Int[np.ndarray, "permutation word"]:
    """Permutations of the kept words within their strata: word i takes the topics of ``order[permutation, i]``."""
    order = np.tile(np.arange(len(stratum)), (permutations, 1))
    for members in _members(labelling, stratum):
        order[:, members] = generator.permuted(np.tile(members, (permutations, 1)), axis=1)
    return order


def permuted_same_topic_sums(
    matrices: Sequence[Float[np.ndarray, "word word"]],
    labelling: Labelling,
    stratum: Int[np.ndarray, " word"],
    permutations: int,
    *,
    generator: np.random.Generator,
) -> Float[np.ndarray, "matrix permutation"]:
    """Sums of symmetric matrices over same-topic pairs, each once, when words exchange their places.

    Only same-topic pairs are looked up, the same permutations for all matrices. Topics of kept words are exchanged with
    those of kept words only.
    """
    blocks = _blocks(matrices, labelling, stratum)
    # A word's place within its stratum.
    place = np.zeros(len(stratum), dtype=np.int64)
    for members in _members(labelling, stratum):
        place[members] = np.arange(len(members))
    sums = np.zeros((len(matrices), permutations))
    for drawn in range(0, permutations, DRAWN):
        orders = stratified_orders(labelling, stratum, min(DRAWN, permutations - drawn), generator=generator)
        local = place[orders]
        for block in blocks:
            sums[:, drawn : drawn + len(orders)] += block.sums(local)
    return sums


@dataclass(frozen=True, eq=False)
class _Block:
    """Same-topic pairs between two strata.

    Words stay in their stratum, so under every permutation such a pair is within one small part of the matrices, which
    stays in a processor's cache.
    """

    first: Int[np.ndarray, " pair"]
    second: Int[np.ndarray, " pair"]
    table: Float[np.ndarray, "entry matrix"]
    """That part of all matrices side by side, so that one memory access serves all of them."""

    width: int
    """Words of the second stratum."""

    def sums(self, local: Int[np.ndarray, "permutation word"]) -> Float[np.ndarray, "matrix permutation"]:
        entries = local[:, self.first] * self.width + local[:, self.second]
        # This sums over the middle axis three times as fast as ``sum``.
        return (np.ones(len(self.first)) @ np.take(self.table, entries, axis=0)).T


def _blocks(
    matrices: Sequence[Float[np.ndarray, "word word"]], labelling: Labelling, stratum: Int[np.ndarray, " word"]
) -> list[_Block]:
    members = _members(labelling, stratum)
    number = np.zeros(len(stratum), dtype=np.int64)
    for each, words in enumerate(members):
        number[words] = each
    first, second = labelling.same_topic_pairs
    # Matrices are symmetric: the lower stratum first.
    swapped = number[first] > number[second]
    first, second = np.where(swapped, second, first), np.where(swapped, first, second)
    codes = number[first] * len(members) + number[second]
    order = np.argsort(codes, kind="stable")
    present, starts = np.unique(codes[order], return_index=True)
    found = []
    # Without a pair there is no block, although ``np.split`` returns one part.
    for code, chosen in zip(present.tolist(), np.split(order, starts[1:]), strict=False):
        rows, columns = members[code // len(members)], members[code % len(members)]
        table = np.stack([matrix[np.ix_(rows, columns)].ravel() for matrix in matrices], axis=1)
        found.append(_Block(first[chosen], second[chosen], table, len(columns)))
    return found


def _members(labelling: Labelling, stratum: Int[np.ndarray, " word"]) -> list[Int[np.ndarray, " _"]]:
    """The kept words of each stratum that has any."""
    return [np.flatnonzero(labelling.kept & (stratum == each)) for each in np.unique(stratum[labelling.kept])]


class Tested(NamedTuple):
    """A p-value, and the numbers that it was computed from."""

    p: float
    observed: float
    permuted: Float[np.ndarray, " permutation"]


def permutation_p(observed: float, permuted: Float[np.ndarray, " permutation"], *, size: float = 0.0) -> float:
    """Two-sided: how often a permutation is as far from the mean of all as the observed number; NaN if that is NaN.

    Numbers that differ only by rounding count as equal. ``size`` is the size of the terms behind the numbers, if
    that is larger; it is 1 for log-ratios, whose rounding is that of the ratio.
    """
    if not np.isfinite(observed):
        return np.nan
    every = np.append(permuted[np.isfinite(permuted)], observed)
    distance = np.abs(every - every.mean())
    return float((distance >= distance[-1] - ROUNDING * max(size, np.abs(every).max())).mean())


def false_discovery_rates(p: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """Benjamini and Hochberg's q: of all with q ≤ 0.05, at most 5 % are expected to be wrong. NaN stays NaN."""
    found, there = p.copy(), np.isfinite(p)
    if there.any():
        found[there] = stats.false_discovery_control(p[there])
    return found


def maximum_p(
    observed: Float[np.ndarray, "layer head"], permuted: Float[np.ndarray, "permutation layer head"]
) -> Float[np.ndarray, "layer head"]:
    """Two-sided p-values of all heads together: with probability 95 % none below 0.05 is wrong.

    Each head's numbers, the observed one included, are standardised over the permutations; a head's p is how often the
    largest of all heads is as far out as this head was (Westfall and Young's single step). NaN heads are left out, and
    so are permutations under which some other head has no finite number. A head that permutations change by no more
    than the rounding of log-ratios has p = 1.
    """
    there = np.isfinite(observed)
    finite = np.isfinite(permuted[:, there]).all(axis=1)
    every = np.concatenate([permuted[finite], observed[None]])
    with np.errstate(invalid="ignore"):
        spread = every.std(axis=0)
    usable = there & (spread > ROUNDING)
    found = np.where(there, 1.0, np.nan)
    if not usable.any():
        return found
    distance = np.abs((every - every.mean(axis=0))[:, usable] / spread[usable])
    largest = distance.max(axis=1)
    found[usable] = (largest[:, None] >= distance[-1] - ROUNDING / spread[usable]).mean(axis=0)
    return found
