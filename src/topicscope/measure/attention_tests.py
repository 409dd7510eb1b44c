"""Permutation tests of attention: of the whole model from sums by pair of words, of its heads from the stream."""

import numpy as np
from jaxtyping import Float, Int

from topicscope.measure.labelling import SAME_TOPIC, Labelling
from topicscope.measure.pair_table import PairTable
from topicscope.measure.permutation import maximum_p, permutation_p, permuted_same_topic_sums
from topicscope.measure.permuted_pairs import PermutedSums


def log_ratio(
    same_sum: Float[np.ndarray, "*shape"],
    same_count: Float[np.ndarray, "*#shape"],
    every_sum: Float[np.ndarray, "*#shape"],
    every_count: Float[np.ndarray, "*#shape"],
) -> Float[np.ndarray, "*shape"]:
    """Of the average over same-topic pairs to that over all other pairs of different words; NaN without one."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(same_sum / same_count) - np.log((every_sum - same_sum) / (every_count - same_count))


def model_test(
    table: PairTable,
    labelling: Labelling,
    stratum: Int[np.ndarray, " word"],
    permutations: int,
    *,
    generator: np.random.Generator,
) -> float:
    """The p-value of the log-ratio of attention averaged over layers and heads; one test a labelling, uncorrected."""
    different = table.without_same_word()
    usable = labelling.kept[different.first] & labelling.kept[different.second]
    first, second = different.first[usable], different.second[usable]
    kept = np.flatnonzero(labelling.kept)
    number = np.cumsum(labelling.kept) - 1
    matrices = []
    for values in (different.sums[usable], different.counts[usable]):
        matrix = np.zeros((len(kept), len(kept)))
        matrix[number[first], number[second]] = matrix[number[second], number[first]] = values
        matrices.append(matrix)
    small = Labelling(labelling.membership[kept])
    sums, counts = permuted_same_topic_sums(matrices, small, stratum[kept], permutations, generator=generator)
    place = small.same_topic_pairs
    observed = [float(matrix[place].sum()) for matrix in matrices]
    every = [float(matrix.sum() / 2) for matrix in matrices]
    found = log_ratio(
        np.append(sums, observed[0]), np.append(counts, observed[1]), np.array([every[0]]), np.array([every[1]])
    )
    return permutation_p(float(found[-1]), found[:-1], size=1.0)


def head_tests(
    sums: Float[np.ndarray, "class layer head"], counts: Float[np.ndarray, " class"], permuted: PermutedSums
) -> Float[np.ndarray, "layer head"]:
    """Each head's p-value of its log-ratio, corrected for all layers and heads together (maximum statistic)."""
    every, number = sums[SAME_TOPIC:].sum(axis=0), np.full((1, 1), counts[SAME_TOPIC:].sum())
    observed = log_ratio(sums[SAME_TOPIC], np.full((1, 1), counts[SAME_TOPIC]), every, number)
    drawn = log_ratio(permuted.sums, permuted.counts[:, None, None], every[None], number[None])
    return maximum_p(observed, drawn)
