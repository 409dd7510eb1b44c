"""Permutation tests over word labels: whether words with shuffled topics would show as much.

The null hypothesis is that, among words of similar frequency, topics have nothing to do with what is measured: then the
topics of words of one frequency stratum could be exchanged. p counts the observed labelling among the permutations, so
it is never 0 and is valid for any number of them: P(p ≤ α) ≤ α.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Int32, Shaped
from scipy import sparse

from topicscope.probing.statistics.labelling import Labelling

# Strata of equally many words, by frequency; fewer if they would have fewer words than this.
STRATA, WORDS_IN_STRATUM = 10, 10
# Sums in another order differ by rounding, by less than this relative to the size of the terms.
ROUNDING = 1e-10
# Permutations drawn at once: each takes four bytes per word.
DRAWN = 1_000
# Entries of a matrix that are looked up at once: few enough to stay in a processor's cache.
ENTRIES_AT_ONCE = 50_000
# Pairs between two strata whose sum is made in 32 bits; there are seldom more.
SMALL_SUM = 2_000


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


@dataclass(frozen=True, eq=False)
class PairBlock:
    """Pairs of words between two strata.

    Words stay in their stratum, so under every permutation such a pair is within one small part of a matrix over all
    words, which stays in a processor's cache.
    """

    chosen: Int[np.ndarray, " pair"]
    """Which of all pairs these are, ascending."""

    first: Int[np.ndarray, " pair"]
    second: Int[np.ndarray, " pair"]
    rows: Int[np.ndarray, " _"]
    """All words of the stratum of the first words."""

    columns: Int[np.ndarray, " _"]

    def part(self, matrix: Shaped[np.ndarray, "word word"]) -> Shaped[np.ndarray, " entry"]:
        """The entries of a matrix between the two strata, row by row.

        A word with itself is no pair and is never looked up: in the place of that entry stands another.
        """
        found = matrix[np.ix_(self.rows, self.columns)].ravel()
        if self.rows is self.columns:
            found[:: len(self.rows) + 1] = found[1]
        return found

    def entries(self, places: Int32[np.ndarray, "word permutation"]) -> Int32[np.ndarray, "pair permutation"]:
        """Where each pair stands in such a part, from every word's place within its stratum."""
        found = places[self.first]
        found *= np.int32(len(self.columns))
        found += places[self.second]
        return found


class Exchange:
    """Kept words exchange their places within strata."""

    def __init__(self, labelling: Labelling, stratum: Int[np.ndarray, " word"]) -> None:
        """Only words that the labelling keeps are exchanged."""
        self._words, self._members = len(stratum), _members(labelling, stratum)
        self._number = np.zeros(self._words, dtype=np.int64)
        for number, members in enumerate(self._members):
            self._number[members] = number

    def blocks(self, first: Int[np.ndarray, " pair"], second: Int[np.ndarray, " pair"]) -> list[PairBlock]:
        """Pairs of kept words by the strata of their two words."""
        # What is looked up is symmetric: the word of the lower stratum comes first.
        swapped = self._number[first] > self._number[second]
        first, second = np.where(swapped, second, first), np.where(swapped, first, second)
        codes = self._number[first] * len(self._members) + self._number[second]
        order = np.argsort(codes, kind="stable")
        present, starts = np.unique(codes[order], return_index=True)
        return [
            PairBlock(
                chosen,
                first[chosen],
                second[chosen],
                *(self._members[each] for each in divmod(code, len(self._members))),
            )
            # Without a pair there is no block, although ``np.split`` returns one part.
            for code, chosen in zip(present.tolist(), np.split(order, starts[1:]), strict=False)
        ]

    def places(
        self, permutations: int, *, generator: np.random.Generator
    ) -> Iterator[tuple[int, Int32[np.ndarray, "word permutation"]]]:
        """Every word's place within its stratum, first with words as they are, then under ``DRAWN`` permutations each.

        Each part comes with the number of its first column among all. If there are no more than ``DRAWN`` permutations
        in all, they are those of ``stratified_orders``.
        """
        for start in (0, *range(1, 1 + permutations, DRAWN)):
            number = min(DRAWN, 1 + permutations - start) if start else 1
            found = np.zeros((self._words, number), dtype=np.int32)
            for members in self._members:
                places = np.tile(np.arange(len(members), dtype=np.int32), (number, 1))
                found[members] = (generator.permuted(places, axis=1) if start else places).T
            yield start, found

    def entries(
        self, blocks: Sequence[PairBlock], permutations: int, *, generator: np.random.Generator
    ) -> Iterator[tuple[int, slice, Int32[np.ndarray, "pair permutation"]]]:
        """Where the pairs of each block stand in its part of a matrix, under a few of these permutations at once.

        Each comes with the number of its block, and with the place of its permutations among all.
        """
        for start, places in self.places(permutations, generator=generator):
            for number, block in enumerate(blocks):
                at_once = max(ENTRIES_AT_ONCE // len(block.first), 1)
                for begin in range(0, places.shape[1], at_once):
                    found = block.entries(places[:, begin : begin + at_once])
                    yield number, slice(start + begin, start + begin + found.shape[1]), found


def permuted_same_topic_sums(
    matrices: Sequence[Float[np.ndarray, "word word"]],
    labelling: Labelling,
    stratum: Int[np.ndarray, " word"],
    permutations: int,
    *,
    generator: np.random.Generator,
) -> Float[np.ndarray, "matrix permutation_plus_one"]:
    """Sums of symmetric matrices over same-topic pairs, each once: as words are, then when they exchange their places.

    Only same-topic pairs are looked up, the same permutations for all matrices. Topics of kept words are exchanged with
    those of kept words only.

    Entries are rounded to less than a millionth of the largest difference between entries of the same two strata. So
    these are sums of whole numbers: the same pairs in another order have the same sum, to the last digit.
    """
    exchange = Exchange(labelling, stratum)
    blocks = exchange.blocks(*labelling.same_topic_pairs)
    rounded = [
        _rounded(np.stack([block.part(each) for each in matrices], axis=1), len(block.first)) for block in blocks
    ]
    sums = np.zeros((1 + permutations, len(matrices)))
    for number, here, entries in exchange.entries(blocks, permutations, generator=generator):
        table, step, middle = rounded[number]
        # Small whole numbers, whose sum fits into 32 bits unless they are many.
        kind = np.int32 if len(entries) <= SMALL_SUM else np.int64
        sums[here] += np.take(table, entries, axis=0).sum(axis=0, dtype=kind) * step + len(entries) * middle
    return np.ascontiguousarray(sums.T)


def _rounded(
    table: Float[np.ndarray, "entry matrix"], pairs: int
) -> tuple[Int32[np.ndarray, "entry matrix"], Float[np.ndarray, " matrix"], Float[np.ndarray, " matrix"]]:
    """Each column as whole number × step + middle; the sum of so many, up to ``SMALL_SUM``, fits into 32 bits."""
    low, high = table.min(axis=0), table.max(axis=0)
    # What is not finite has no step, so that its sums are not numbers either.
    with np.errstate(invalid="ignore"):
        middle = (low + high) / 2
        step = np.where(high == low, 1.0, (high - low) / 2) * min(pairs, SMALL_SUM) / 2**30
        step = np.where(np.isfinite(step), step, np.nan)
        whole = table - middle
        whole /= step
        return np.rint(whole, out=whole).astype(np.int32), step, middle


def permuted_topic_sums(
    matrices: Sequence[Float[np.ndarray, "word word"]],
    labelling: Labelling,
    stratum: Int[np.ndarray, " word"],
    permutations: int,
    *,
    generator: np.random.Generator,
) -> Float[np.ndarray, "matrix topic permutation_plus_one"]:
    """The same over the pairs of each topic, and not rounded."""
    topic, first, second = labelling.pairs_by_topic
    exchange = Exchange(labelling, stratum)
    blocks, prepared = exchange.blocks(first, second), []
    for block in blocks:
        # A row of ones for each topic: its pairs stand together.
        topics, starts = np.unique(topic[block.chosen], return_index=True)
        ends, pairs = np.append(starts, len(block.chosen)), np.arange(len(block.chosen))
        gather = sparse.csr_array((np.ones(len(pairs)), pairs, ends), shape=(len(topics), len(pairs)))
        prepared.append((np.stack([block.part(each) for each in matrices], axis=1), topics, gather))
    sums = np.zeros((labelling.membership.shape[1], 1 + permutations, len(matrices)))
    for number, here, entries in exchange.entries(blocks, permutations, generator=generator):
        table, topics, gather = prepared[number]
        found = gather @ np.take(table, entries, axis=0).reshape(len(entries), -1)
        sums[topics, here] += found.reshape(len(topics), entries.shape[1], -1)
    return np.moveaxis(sums, -1, 0)


def _members(labelling: Labelling, stratum: Int[np.ndarray, " word"]) -> list[Int[np.ndarray, " _"]]:
    """The kept words of each stratum that has any."""
    return [np.flatnonzero(labelling.kept & (stratum == each)) for each in np.unique(stratum[labelling.kept])]


def log_ratio(
    same_sum: Float[np.ndarray, "*shape"],
    same_count: Float[np.ndarray, "*#shape"],
    every_sum: Float[np.ndarray, "*#shape"],
    every_count: Float[np.ndarray, "*#shape"],
) -> Float[np.ndarray, "*shape"]:
    """The log of the same-topic average over that of all other pairs of different words; NaN without such pairs."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(same_sum / same_count) - np.log((every_sum - same_sum) / (every_count - same_count))


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
    # This takes a second, which workers that only measure passages do not need.
    from scipy import stats

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
