"""Permutations stay within strata, their sums are those of relabelled words, and p is uniform under the null."""

from collections.abc import Callable

import numpy as np
import pytest

from support.random_pairs import check_uniform, one_stratum
from topicscope.probing.statistics import permutation
from topicscope.probing.statistics.attention import PairAccumulator, ShardSums, passage_pairs
from topicscope.probing.statistics.labelling import Labelling
from topicscope.probing.statistics.pairs import PairTable
from topicscope.probing.statistics.permutation import (
    frequency_strata,
    maximum_p,
    permutation_p,
    permuted_log_ratios,
    permuted_sums,
    stratified_orders,
)
from topicscope.probing.statistics.similarity import similarity_tests


def topics_of(labels: np.ndarray) -> Labelling:
    return Labelling(labels[:, None] == np.arange(labels.max() + 1))


def orders_of(
    labelling: Labelling, stratum: np.ndarray, permutations: int, generator: np.random.Generator
) -> np.ndarray:
    return np.concatenate(list(stratified_orders(labelling, stratum, permutations, generator=generator)))


def test_permutations_stay_within_frequency_strata_and_leave_other_words_alone() -> None:
    draw = np.random.default_rng(0)
    frequency = draw.zipf(1.5, size=50).astype(np.float64)
    stratum = frequency_strata(frequency, np.ones(50, dtype=bool), 5)
    assert np.bincount(stratum).tolist() == [10] * 5
    assert all(frequency[stratum == low].max() <= frequency[stratum == low + 1].min() for low in range(4))
    labels = draw.integers(0, 4, size=50)
    membership = topics_of(labels).membership.copy()
    membership[::7] = False
    labelling = Labelling(membership)
    orders = orders_of(labelling, stratum, 300, draw)
    assert (np.sort(orders, axis=1) == np.arange(50)).all()
    assert (stratum[orders] == stratum).all()
    assert (orders[:, ::7] == np.arange(50)[::7]).all()
    # Every kept word of a stratum is as likely at each place: 300/n of the times, within five standard errors.
    members = np.flatnonzero(labelling.kept & (stratum == 2))
    share = (orders[:, members[0]] == members[1]).mean()
    chance = 1 / len(members)
    assert abs(share - chance) < 5 * np.sqrt(chance * (1 - chance) / 300)


@pytest.mark.parametrize("several", [False, True])
def test_permuted_sums_are_those_of_relabelled_words(several: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(1)
    member = draw.random((20, 4)) < 0.3 if several else topics_of(draw.integers(0, 4, size=20)).membership
    member[~member.any(axis=1), 0] = True
    labelling, stratum, half = Labelling(member), np.arange(20) % 3, draw.normal(size=(20, 20))
    matrix = half + half.T
    # However many are looked up at once.
    for at_once in (1, 4, 250):
        monkeypatch.setattr(permutation, "AT_ONCE", at_once)
        drawn = [np.random.default_rng(2) for _ in range(3)]
        sums = permuted_sums([matrix, 2 * matrix], labelling, stratum, 6, generator=drawn[0])[:, 0]
        of_topics = permuted_sums([matrix, -matrix], labelling, stratum, 6, by_topic=True, generator=drawn[1])
        for number, order in enumerate([np.arange(20), *orders_of(labelling, stratum, 6, drawn[2])]):
            relabelled = Labelling(member[np.argsort(order)])
            expected = matrix[relabelled.same_topic_pairs].sum()
            assert sums[:, number] == pytest.approx([expected, 2 * expected])
            for topic, words in enumerate(relabelled.membership.T):
                expected = np.triu(matrix[np.ix_(words, words)], k=1).sum()
                assert of_topics[:, topic, number] == pytest.approx([expected, -expected])
    assert np.ptp(sums[0]) > 0.1
    assert np.ptp(of_topics[0], axis=1).min() > 0.1


def test_words_of_which_no_two_share_a_topic_have_nothing_to_sum() -> None:
    matrix, stratum = np.ones((3, 3)), np.zeros(3, dtype=np.int64)
    sums = [
        permuted_sums([matrix], Labelling(each), stratum, 4, generator=np.random.default_rng(2))[0]
        for each in (np.eye(3, dtype=bool), np.ones((3, 1), dtype=bool))
    ]
    assert [each.tolist() for each in sums] == [[[0.0] * 5], [[3.0] * 5]]


def test_p_counts_the_observed_among_the_permutations() -> None:
    permuted = np.arange(-49.5, 50)
    found = [permutation_p(np.append(observed, permuted)) for observed in (1000.0, -1000.0, 0.1, np.nan)]
    assert found == pytest.approx([1 / 101, 1 / 101, 1.0, np.nan], nan_ok=True)


def test_few_words_have_few_strata_so_that_there_is_something_to_permute() -> None:
    strata = {
        words: np.bincount(frequency_strata(np.arange(words, dtype=np.float64), np.ones(words, dtype=bool)))
        for words in (1, 9, 25, 99, 400)
    }
    assert {words: len(each) for words, each in strata.items()} == {1: 1, 9: 1, 25: 2, 99: 9, 400: 10}
    assert all(each.min() >= min(words, 10) for words, each in strata.items())


def test_what_differs_by_rounding_alone_is_equal() -> None:
    draw = np.random.default_rng(5)
    noise = 1e-15 * draw.normal(size=500)
    # As of a sum of 1, and of a log-ratio of 0.
    assert permutation_p(1.0 + np.append(5e-15, noise)) == 1.0
    assert permutation_p(np.append(5e-15, noise), size=1.0) == 1.0
    heads = maximum_p(np.stack([np.append(5e-15, noise), np.append(3.0, draw.normal(size=500))], axis=1))
    assert heads[0] == 1.0
    # The controls: what is more than rounding, in numbers as small, counts.
    assert permutation_p(np.append(5e-15, noise)) < 0.01
    assert heads[1] < 0.01
    assert permutation_p(1.0 + np.append(5e-6, 1e9 * noise)) < 0.01


def test_the_largest_of_many_heads_is_no_more_often_significant_than_one() -> None:
    draw = np.random.default_rng(3)
    trials, wrong, naive = 200, 0, 0
    scale = np.geomspace(0.01, 100, 24).reshape(4, 6)
    for _ in range(trials):
        every = scale * draw.normal(size=(100, 4, 6))
        wrong += bool((maximum_p(every) < 0.05).any())
        naive += any(permutation_p(values) < 0.05 for values in every.reshape(100, -1).T)
    error = np.sqrt(0.05 * 0.95 / trials)
    assert wrong / trials < 0.05 + 5 * error
    # The control: uncorrected, most models have such a head.
    assert naive / trials > 0.5
    # And a head that stands out is found, whatever its scale.
    every[0, 0, 0] = 0.01 * 9
    assert maximum_p(every)[0, 0] == pytest.approx(0.01)


WORDS, TOPICS = 60, 6
STRATUM = np.zeros(WORDS, dtype=np.int64)
HALVES = np.repeat([0, 1], WORDS // 2)


def test_a_permutation_without_a_number_takes_no_heads_p_away() -> None:
    draw = np.random.default_rng(1)
    values = draw.normal(size=(51, 2, 2))
    broken = values.copy()
    broken[7, 0, 1], broken[9, 1, 1] = np.nan, -np.inf
    assert (maximum_p(broken) == maximum_p(np.delete(values, [7, 9], axis=0))).all()
    # A head that has no number itself has no p, and costs the others no permutation.
    values[:, 1, 1] = np.nan
    found = maximum_p(values).ravel()
    assert np.isnan(found[3])
    assert (found[:3] == maximum_p(values.reshape(51, 4)[:, :3])).all()


def random_vectors(draw: np.random.Generator) -> np.ndarray:
    """A few directions dominate, as in real models."""
    return draw.normal(size=(WORDS, 8)) * np.array([5, 3, 1, 1, 1, 1, 1, 1]) + np.array([4, 0, 0, 0, 0, 0, 0, 0])


def shuffled_p_values(trials: int, permutations: int, seed: int) -> np.ndarray:
    """Labels shuffled anew each time, so there is no effect; p of the similarity's test."""
    draw = np.random.default_rng(seed)
    vectors, labels = random_vectors(draw), np.repeat(np.arange(TOPICS), WORDS // TOPICS)
    products = vectors @ vectors.T
    shuffled = (topics_of(draw.permutation(labels)) for _ in range(trials))
    return np.array(
        [similarity_tests([products], each, HALVES, permutations, generator=draw)[0].p for each in shuffled]
    )


def model_p(pairs: PairTable, labelling: Labelling, permutations: int, draw: np.random.Generator) -> float:
    sums, counts = pairs.over_bins().matrices(labelling)
    ratios = permuted_log_ratios(sums, counts, labelling, HALVES, permutations, generator=draw)
    return permutation_p(ratios, size=1.0)


def shuffled_attention_p_values(trials: int, permutations: int, seed: int) -> np.ndarray:
    """The same of the attention's test; words have strong biases of their own."""
    draw = np.random.default_rng(seed)
    labels = np.repeat(np.arange(TOPICS), WORDS // TOPICS)
    pairs = attention_shard(draw, labels).pairs
    shuffled = (topics_of(draw.permutation(labels)) for _ in range(trials))
    return np.array([model_p(pairs, each, permutations, draw) for each in shuffled])


@pytest.mark.parametrize(("trials", "permutations"), [(100, 99), pytest.param(400, 199, marks=pytest.mark.slow)])
@pytest.mark.parametrize("p_values", [shuffled_p_values, shuffled_attention_p_values])
def test_shuffled_labels_give_uniform_p(p_values: Callable[..., np.ndarray], trials: int, permutations: int) -> None:
    check_uniform(p_values(trials, permutations, seed=trials), permutations)


def attention_shard(draw: np.random.Generator, labels: np.ndarray) -> ShardSums:
    """Attention whose words have biases of their own."""
    labellings, bias = (topics_of(labels),), draw.gamma(3, size=WORDS)
    accumulator = PairAccumulator(labellings, one_stratum(labellings), 1, 3)
    for article in range(12):
        words = draw.integers(WORDS, size=40)
        scores = np.tile(bias[words], (1, 3, 40, 1)) * draw.gamma(5, size=(1, 3, 40, 40))
        accumulator.add(passage_pairs(list(scores / scores.sum(axis=-1, keepdims=True)), words), article)
    return accumulator.result()
