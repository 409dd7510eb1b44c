"""Permutation tests over word labels: whether words with shuffled topics would give as much.

Under the hypothesis tested, topics have nothing to do with what is measured, among words of like frequency: then the
topics of words of one frequency stratum could be exchanged. p counts the observed labelling among the permutations, so
it is never 0 and is valid for any number of them: P(p ≤ α) ≤ α.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from topicscope.measure.labelling import Labelling

MODEL_PERMUTATIONS = 9_999
HEAD_PERMUTATIONS = 999
# Strata of equally many words, by frequency.
STRATA = 10
# Pairs looked up at once, over the permutations of a block: few enough to stay in a processor's cache.
BLOCK = 200_000
# Permutations drawn at once.
DRAWN = 500


def frequency_strata(frequency: Float[np.ndarray, " word"], strata: int = STRATA) -> Int[np.ndarray, " word"]:
    """Words of like frequency, equally many a stratum; ties by the word's place."""
    rank = np.argsort(np.argsort(frequency, kind="stable"), kind="stable")
    return rank * min(strata, len(frequency)) // max(len(frequency), 1)


def stratified_orders(
    labelling: Labelling, stratum: Int[np.ndarray, " word"], permutations: int, *, generator: np.random.Generator
) -> Int[np.ndarray, "permutation word"]:
    """Permutations of the kept words within their strata: word i takes the topics of ``order[permutation, i]``."""
    order = np.tile(np.arange(len(stratum)), (permutations, 1))
    for each in np.unique(stratum[labelling.kept]):
        members = np.flatnonzero(labelling.kept & (stratum == each))
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
    """Sums of symmetric matrices over same-topic pairs, each once, when words stand in one another's places.

    Only same-topic pairs are looked up, the same permutations for all matrices. Topics of kept words are exchanged with
    those of kept words only.
    """
    first, second = labelling.same_topic_pairs
    words = len(stratum)
    rows = max(1, BLOCK // max(len(first), 1))
    sums = np.empty((len(matrices), permutations))
    # An entry of all matrices side by side: one look into memory serves all of them.
    table = np.stack([matrix.ravel() for matrix in matrices], axis=1)
    for drawn in range(0, permutations, DRAWN):
        places = stratified_orders(labelling, stratum, min(DRAWN, permutations - drawn), generator=generator)
        for start in range(0, len(places), rows):
            place = places[start : start + rows]
            entries = place[:, first] * words + place[:, second]
            found = np.ones(len(first)) @ np.take(table, entries, axis=0)
            sums[:, drawn + start : drawn + start + len(place)] = found.T
    return sums


def permutation_p(observed: float, permuted: Float[np.ndarray, " permutation"]) -> float:
    """Two-sided: how often a permutation is as far from the mean of all as the observed number; NaN if that is."""
    if not np.isfinite(observed):
        return np.nan
    every = np.append(permuted[np.isfinite(permuted)], observed)
    distance = np.abs(every - every.mean())
    # Sums in another order differ in the last digits: what is equal but for these counts as equal.
    return float((distance >= distance[-1] * (1 - 1e-9)).mean())


def maximum_p(
    observed: Float[np.ndarray, "layer head"], permuted: Float[np.ndarray, "permutation layer head"]
) -> Float[np.ndarray, "layer head"]:
    """Two-sided p-values of all heads together: with probability 95 % none below 0.05 is wrong.

    Each head's numbers are standardised over the permutations and the observed one alike; a head's p is how often the
    largest of all heads is as far out as this head was (Westfall and Young's single step). NaN heads are left out, and
    so are permutations under which some other head has no finite number.
    """
    there = np.isfinite(observed)
    finite = np.isfinite(permuted[:, there]).all(axis=1)
    every = np.concatenate([permuted[finite], observed[None]])
    with np.errstate(invalid="ignore"):
        spread = every.std(axis=0)
    usable = there & (spread > 0)
    found = np.where(there, 1.0, np.nan)
    if not usable.any():
        return found
    distance = np.abs((every - every.mean(axis=0))[:, usable] / spread[usable])
    largest = distance.max(axis=1)
    found[usable] = (largest[:, None] >= distance[-1] * (1 - 1e-9)).mean(axis=0)
    return found
