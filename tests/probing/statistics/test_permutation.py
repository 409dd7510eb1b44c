"""Permutations stay within strata, their sums are those of relabelled words, and p is uniform under the null."""

from collections.abc import Callable

import numpy as np
import pytest

from support.random_pairs import check_uniform
from topicscope.probing.statistics import permutation
from topicscope.probing.statistics.attention import (
    PairAccumulator,
    PermutedLabels,
    ShardSums,
    head_tests,
    passage_pairs,
)
from topicscope.probing.statistics.labelling import Labelling
from topicscope.probing.statistics.matching import Strata, attention_tests
from topicscope.probing.statistics.pairs import PairTable
from topicscope.probing.statistics.permutation import (
    SMALL_SUM,
    frequency_strata,
    maximum_p,
    permutation_p,
    permuted_same_topic_sums,
    permuted_topic_sums,
    stratified_orders,
)
from topicscope.probing.statistics.similarity import similarity_tests


def topics_of(labels: np.ndarray) -> Labelling:
    return Labelling(labels[:, None] == np.arange(labels.max() + 1))


def test_permutations_stay_within_frequency_strata_and_leave_other_words_alone() -> None:
    draw = np.random.default_rng(0)
    frequency = draw.zipf(1.5, size=50).astype(np.float64)
    stratum = frequency_strata(frequency, 5)
    assert np.bincount(stratum).tolist() == [10] * 5
    assert all(frequency[stratum == low].max() <= frequency[stratum == low + 1].min() for low in range(4))
    labels = draw.integers(0, 4, size=50)
    membership = topics_of(labels).membership.copy()
    membership[::7] = False
    labelling = Labelling(membership)
    orders = stratified_orders(labelling, stratum, 300, generator=draw)
    assert (np.sort(orders, axis=1) == np.arange(50)).all()
    assert (stratum[orders] == stratum).all()
    assert (orders[:, ::7] == np.arange(50)[::7]).all()
    # Every kept word of a stratum is as likely at each place: 300/n of the times, within five standard errors.
    members = np.flatnonzero(labelling.kept & (stratum == 2))
    share = (orders[:, members[0]] == members[1]).mean()
    chance = 1 / len(members)
    assert abs(share - chance) < 5 * np.sqrt(chance * (1 - chance) / 300)


@pytest.mark.parametrize("several", [False, True])
def test_permuted_sums_are_those_of_relabelled_words(several: bool) -> None:
    draw = np.random.default_rng(1)
    member = draw.random((20, 4)) < 0.3 if several else topics_of(draw.integers(0, 4, size=20)).membership
    labelling, stratum = Labelling(member), np.repeat([0, 1], 10)
    half = draw.normal(size=(20, 20))
    matrix = half + half.T
    sums = permuted_same_topic_sums([matrix, 2 * matrix], labelling, stratum, 6, generator=np.random.default_rng(2))
    place = stratified_orders(labelling, stratum, 6, generator=np.random.default_rng(2))
    for number, row in enumerate(place):
        relabelled = Labelling(member[np.argsort(row)])
        expected = matrix[relabelled.same_topic_pairs].sum()
        assert sums[:, 1 + number] == pytest.approx([expected, 2 * expected])
    assert np.ptp(sums[0]) > 0.1


@pytest.mark.parametrize("several", [False, True])
def test_permuted_sums_of_a_topic_are_those_of_its_relabelled_words(several: bool) -> None:
    draw = np.random.default_rng(1)
    member = draw.random((20, 4)) < 0.3 if several else topics_of(draw.integers(0, 4, size=20)).membership
    labelling, stratum = Labelling(member), np.repeat([0, 1], 10)
    half = draw.normal(size=(20, 20))
    matrix = half + half.T
    sums = permuted_topic_sums([matrix, -matrix], labelling, stratum, 6, generator=np.random.default_rng(2))
    orders = stratified_orders(labelling, stratum, 6, generator=np.random.default_rng(2))
    for number, order in enumerate([np.arange(20), *orders]):
        for topic, words in enumerate(member[np.argsort(order)].T):
            expected = np.triu(matrix[np.ix_(words, words)], k=1).sum()
            assert sums[:, topic, number] == pytest.approx([expected, -expected])
    assert np.ptp(sums[0], axis=1).min() > 0.1


def test_the_same_pairs_in_another_order_have_the_same_sum_and_rounding_is_small() -> None:
    draw = np.random.default_rng(3)
    half = draw.normal(size=(40, 40)) + 100
    matrix, stratum = half + half.T, np.zeros(40, dtype=np.int64)
    labelling = topics_of(np.repeat([0, 1], 20))
    few = topics_of(np.array([0, 0, 0, 1, 1, 1]))
    sums = permuted_same_topic_sums([matrix[:6, :6]], few, stratum[:6], 300, generator=draw)
    # There are ten ways to make two topics of three words.
    assert len(np.unique(sums)) == 10
    # The control: sums of floats depend on the order of the pairs.
    first, second = few.same_topic_pairs
    orders = stratified_orders(few, stratum[:6], 300, generator=draw)
    assert len(np.unique(matrix[orders[:, first], orders[:, second]].sum(axis=1))) > 10
    [[found, *_]] = permuted_same_topic_sums([matrix], labelling, stratum, 1, generator=draw)
    pairs = labelling.same_topic_pairs
    error = abs(found - matrix[pairs].sum())
    # Each of the pairs is rounded by less than half a millionth of the range.
    assert 0 < error < 0.5e-6 * np.ptp(matrix) * len(pairs[0])
    # The control: differences that a test looks at are far larger.
    assert np.ptp(permuted_same_topic_sums([matrix], labelling, stratum, 50, generator=draw)) > 1000 * error


def test_a_word_with_itself_has_no_part_in_rounding() -> None:
    draw = np.random.default_rng(4)
    half = draw.normal(size=(30, 30))
    matrix, stratum = half + half.T, np.repeat([0, 1], 15)
    labelling = topics_of(np.arange(30) % 3)
    huge = matrix + 1e9 * np.eye(30)
    one, other = permuted_same_topic_sums([matrix, huge], labelling, stratum, 5, generator=draw)
    assert (one == other).all()
    # The control: any other entry has a part in it.
    huge[0, 1] = huge[1, 0] = 1e9
    assert permuted_same_topic_sums([huge], labelling, stratum, 0, generator=draw)[0, 0] != one[0]


def test_many_pairs_of_two_strata_are_summed_without_overflow() -> None:
    words = 400
    matrix = np.where(np.arange(words)[:, None] + np.arange(words) == 1, -1.0, 1.0)
    labelling, stratum = topics_of(np.zeros(words, dtype=np.int64)), np.zeros(words, dtype=np.int64)
    [sums] = permuted_same_topic_sums([matrix], labelling, stratum, 2, generator=np.random.default_rng(0))
    # All pairs are of one topic, whatever the permutation: all are 1 but one, of words 0 and 1.
    number = words * (words - 1) // 2
    assert number > SMALL_SUM
    assert sums == pytest.approx(number - 2, abs=0.5e-6 * 2 * number)


def test_what_is_not_finite_has_no_sum() -> None:
    draw, labelling, stratum = np.random.default_rng(3), topics_of(np.repeat([0, 1], 5)), np.zeros(10, dtype=np.int64)
    good, odd = np.ones((10, 10)), np.ones((10, 10))
    for value in (np.nan, np.inf, -np.inf):
        odd[4, 5] = odd[5, 4] = value
        sums = permuted_same_topic_sums([good, odd], labelling, stratum, 3, generator=draw)
        assert np.isnan(sums[1]).all()
        assert sums[0] == pytest.approx(20)


@pytest.mark.parametrize("permutations", [1, 4, 5, 6, 11])
def test_every_permutation_has_its_sum_however_many_are_drawn_at_once(
    permutations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(permutation, "DRAWN", 5)
    monkeypatch.setattr(permutation, "ENTRIES_AT_ONCE", 60)
    half = np.random.default_rng(5).normal(size=(12, 12))
    matrix, labelling, stratum = half + half.T + 10, topics_of(np.arange(12) % 3), np.repeat([0, 1], 6)
    draw = np.random.default_rng(6)
    [sums] = permuted_same_topic_sums([matrix], labelling, stratum, permutations, generator=draw)
    # Three topics of four words have 18 pairs, of about 10 each; permutations differ in which pairs these are.
    assert sums == pytest.approx(180, abs=80)
    assert len(np.unique(sums)) == 1 + permutations


def test_words_of_which_no_two_share_a_topic_have_nothing_to_sum() -> None:
    matrix, stratum = np.ones((3, 3)), np.zeros(3, dtype=np.int64)
    sums = [
        permuted_same_topic_sums([matrix], Labelling(each), stratum, 4, generator=np.random.default_rng(2))
        for each in (np.eye(3, dtype=bool), np.ones((3, 1), dtype=bool))
    ]
    assert [each.tolist() for each in sums] == [[[0.0] * 5], [[3.0] * 5]]


def test_p_counts_the_observed_among_the_permutations() -> None:
    permuted = np.arange(-49.5, 50)
    assert permutation_p(1000.0, permuted) == pytest.approx(1 / 101)
    assert permutation_p(-1000.0, permuted) == pytest.approx(1 / 101)
    assert permutation_p(0.1, permuted) == 1.0
    assert np.isnan(permutation_p(np.nan, permuted))


def test_few_words_have_few_strata_so_that_there_is_something_to_permute() -> None:
    strata = {words: np.bincount(frequency_strata(np.arange(words, dtype=np.float64))) for words in (1, 9, 25, 99, 400)}
    assert {words: len(each) for words, each in strata.items()} == {1: 1, 9: 1, 25: 2, 99: 9, 400: 10}
    assert all(each.min() >= min(words, 10) for words, each in strata.items())


@pytest.mark.parametrize(("strata", "expected"), [(None, 1 / 280), (9, 1.0)])
def test_nine_words_in_three_clear_topics_are_told_from_chance(strata: int | None, expected: float) -> None:
    draw = np.random.default_rng(4)
    vectors = np.repeat(np.eye(3), 3, axis=0) + 0.01 * draw.normal(size=(9, 3))
    products, stratum = vectors @ vectors.T, frequency_strata(np.arange(9, dtype=np.float64), strata)
    labelling = topics_of(np.repeat([0, 1, 2], 3))
    # 9! / (3!)^4 = 280 ways to make three topics of three; with a stratum a word (the control) there is but one.
    [(p, *_)] = similarity_tests([products], labelling, stratum, 4_999, generator=draw)
    assert abs(p - expected) <= 5 * np.sqrt(expected * (1 - expected) / 5_000)


def test_what_differs_by_rounding_alone_is_equal() -> None:
    draw = np.random.default_rng(5)
    noise = 1e-15 * draw.normal(size=500)
    # As of a sum of 1, and of a log-ratio of 0.
    assert permutation_p(1.0 + 5e-15, 1.0 + noise) == 1.0
    assert permutation_p(5e-15, noise, size=1.0) == 1.0
    heads = maximum_p(np.array([[5e-15, 3.0]]), np.stack([noise, draw.normal(size=500)], axis=1)[:, None])
    assert heads[0, 0] == 1.0
    # The controls: what is more than rounding, in numbers as small, counts.
    assert permutation_p(5e-15, noise) < 0.01
    assert heads[0, 1] < 0.01
    assert permutation_p(1.0 + 5e-6, 1.0 + 1e9 * noise) < 0.01


def test_the_largest_of_many_heads_is_no_more_often_significant_than_one() -> None:
    draw = np.random.default_rng(3)
    trials, wrong, naive = 400, 0, 0
    scale = np.geomspace(0.01, 100, 24).reshape(4, 6)
    for _ in range(trials):
        every = scale * draw.normal(size=(100, 4, 6))
        p = maximum_p(every[-1], every[:-1])
        wrong += bool((p < 0.05).any())
        naive += any(permutation_p(every[-1, i, j], every[:-1, i, j]) < 0.05 for i in range(4) for j in range(6))
    error = np.sqrt(0.05 * 0.95 / trials)
    assert wrong / trials < 0.05 + 5 * error
    # The control: uncorrected, most models have such a head.
    assert naive / trials > 0.5
    # And a head that stands out is found, whatever its scale.
    every[-1, 0, 0] = 0.01 * 9
    assert maximum_p(every[-1], every[:-1])[0, 0] == pytest.approx(0.01)


WORDS, TOPICS = 60, 6
STRATUM = np.zeros(WORDS, dtype=np.int64)
HALVES = np.repeat([0, 1], WORDS // 2)


def test_a_permutation_without_a_number_takes_no_heads_p_away() -> None:
    draw = np.random.default_rng(1)
    observed, permuted = draw.normal(size=(2, 2)), draw.normal(size=(50, 2, 2))
    broken = permuted.copy()
    broken[7, 0, 1], broken[9, 1, 1] = np.nan, -np.inf
    assert (maximum_p(observed, broken) == maximum_p(observed, np.delete(permuted, [7, 9], axis=0))).all()
    # A head that has no number itself has no p, and costs the others no permutation.
    observed[1, 1] = np.nan
    permuted[:, 1, 1] = np.nan
    found = maximum_p(observed, permuted)
    three = maximum_p(observed.reshape(1, 4)[:, :3], permuted.reshape(50, 1, 4)[:, :, :3])
    assert np.isnan(found[1, 1])
    assert (found.ravel()[:3] == three[0]).all()


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


def model_test(
    pairs: PairTable, labelling: Labelling, stratum: np.ndarray, permutations: int, draw: np.random.Generator
) -> float:
    """p of the test of all pairs, whose result does not depend on what pairs are matched on."""
    strata = Strata(np.zeros((WORDS, WORDS), dtype=np.uint8), 1, distances=())
    return attention_tests(pairs, labelling, stratum, strata, permutations, generator=draw).every.p


def shuffled_attention_p_values(trials: int, permutations: int, seed: int) -> np.ndarray:
    """The same of the attention's test; words have strong biases of their own."""
    draw = np.random.default_rng(seed)
    labels = np.repeat(np.arange(TOPICS), WORDS // TOPICS)
    pairs = attention_shard(draw, labels, effect=0.0, permuted=1).pairs
    shuffled = (topics_of(draw.permutation(labels)) for _ in range(trials))
    return np.array([model_test(pairs, each, HALVES, permutations, draw) for each in shuffled])


TESTS = pytest.mark.parametrize("p_values", [shuffled_p_values, shuffled_attention_p_values])


@TESTS
def test_shuffled_labels_give_uniform_p(p_values: Callable[..., np.ndarray]) -> None:
    check_uniform(p_values(120, 99, seed=4), 99)


@pytest.mark.slow
@TESTS
def test_400_shuffles_of_199_permutations_give_uniform_p(p_values: Callable[..., np.ndarray]) -> None:
    check_uniform(p_values(400, 199, seed=5), 199)


def attention_shard(draw: np.random.Generator, labels: np.ndarray, *, effect: float, permuted: int) -> ShardSums:
    """Attention with word biases, and to words of the same topic times 1 + effect in the first head only."""
    labelling = topics_of(labels)
    order = stratified_orders(labelling, STRATUM, permuted, generator=draw)
    accumulator = PairAccumulator((labelling,), 1, 3, permuted=(PermutedLabels(labelling, order),))
    bias = draw.gamma(3, size=WORDS)
    for article in range(12):
        words = draw.integers(WORDS, size=40)
        scores = np.tile(bias[words], (1, 3, 40, 1))
        scores[:, 0] *= 1 + effect * (labels[words][:, None] == labels[words])
        scores *= draw.gamma(5, size=scores.shape)
        attention = scores / scores.sum(axis=-1, keepdims=True)
        accumulator.add(passage_pairs(list(attention), words), article)
    return accumulator.result()


def test_planted_attention_is_found_in_its_head_and_shuffled_labels_are_not() -> None:
    draw = np.random.default_rng(6)
    labels = draw.permutation(np.repeat(np.arange(TOPICS), WORDS // TOPICS))
    for effect, found in ((0.5, True), (0.0, False)):
        shard = attention_shard(draw, labels, effect=effect, permuted=199)
        sums, counts = shard.sums.sum(axis=0)[0], shard.counts.sum(axis=0)[0]
        heads = head_tests(sums, counts, shard.permuted[0]).together[0]
        model = model_test(shard.pairs, topics_of(labels), STRATUM, 199, draw)
        assert (heads[0] < 0.05) == found
        assert (model < 0.05) == found
        assert (heads[1:] > 0.05).all()


def test_the_models_test_uses_the_permutations_that_the_heads_test_streams() -> None:
    draw = np.random.default_rng(7)
    labels = draw.permutation(np.repeat(np.arange(TOPICS), WORDS // TOPICS))
    shard = attention_shard(draw, labels, effect=0.2, permuted=400)
    # The same statistic of one head only, over many permutations, has the same null: p agrees within its own error.
    sums, counts = shard.sums.sum(axis=0)[0], shard.counts.sum(axis=0)[0]
    mean = shard.permuted[0].sums.mean(axis=(1, 2))
    streamed = head_tests(
        sums.mean(axis=(1, 2))[:, None, None],
        counts,
        type(shard.permuted[0])(mean[:, None, None], shard.permuted[0].counts),
    )
    looked_up = model_test(shard.pairs, topics_of(labels), STRATUM, 4000, draw)
    p = float(streamed.together[0, 0])
    assert abs(p - looked_up) < 5 * np.sqrt(looked_up * (1 - looked_up) / 400) + 1 / 400
