"""Similarities within and between topics equal loops over all pairs of words."""

from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topicscope.probing.statistics.labelling import Labelling, TopicDraws, TopicWeights, topic_partners
from topicscope.probing.statistics.resampling import SeedDraws, contrast
from topicscope.probing.statistics.similarity import (
    auc_replicates,
    averages_of,
    counts_below,
    pair_averages,
    placements,
    prepared,
    principal_places,
    similarity_tests,
)


def random_labelling(draw: np.random.Generator, words: int, topics: int, *, several: bool) -> Labelling:
    if several:
        return Labelling(draw.random((words, topics)) < 0.35)
    return Labelling(np.eye(topics, dtype=bool)[draw.integers(topics, size=words)] & (draw.random((words, 1)) < 0.8))


def by_loop(vectors: np.ndarray, labelling: Labelling) -> tuple[list[float], list[float]]:
    """Products of all same-topic and of all different-topic pairs, one by one."""
    same: list[float] = []
    different: list[float] = []
    for i in range(len(vectors)):
        for j in range(i):
            if labelling.membership[i].any() and labelling.membership[j].any():
                shared = (labelling.membership[i] & labelling.membership[j]).any()
                (same if shared else different).append(float(vectors[i] @ vectors[j]))
    return same, different


def check_averages(seed: int, several: bool) -> None:
    draw = np.random.default_rng(seed)
    words, topics = int(draw.integers(6, 25)), int(draw.integers(2, 5))
    labelling = random_labelling(draw, words, topics, several=several)
    vectors = draw.normal(size=(words, 4)) + 0.5
    same, different = by_loop(vectors, labelling)
    found = pair_averages(vectors, labelling)
    for values, average in ((same, found.same[0]), (different, found.different[0])):
        if values:
            assert average == pytest.approx(np.mean(values), rel=1e-9, abs=1e-12)
        else:
            assert np.isnan(average)


@settings(derandomize=True, deadline=None, max_examples=25)
@given(st.integers(0, 2**32), st.booleans())
def test_averages_over_all_pairs_equal_a_loop(seed: int, several: bool) -> None:
    check_averages(seed, several)


@pytest.mark.slow
@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.integers(0, 2**32), st.booleans())
def test_averages_over_all_pairs_equal_a_loop_in_300_cases(seed: int, several: bool) -> None:
    check_averages(seed, several)


def test_weighted_averages_count_pairs_as_often_as_their_words_and_topics_were_drawn() -> None:
    draw = np.random.default_rng(1)
    labelling = random_labelling(draw, 14, 3, several=False)
    vectors = draw.normal(size=(14, 4)) + 0.3
    weights = TopicDraws.draw(labelling, 5, generator=draw).weights(labelling)
    found = pair_averages(vectors, labelling, weights)
    kept, topic = np.flatnonzero(labelling.kept), labelling.topic[labelling.kept]
    for replicate in range(6):
        sums, counts = np.zeros(2), np.zeros(2)
        u, s = weights.between[replicate], weights.within[replicate]
        for i in range(len(kept)):
            for j in range(i):
                apart = int(topic[i] != topic[j])
                weight = u[i] * u[j] if apart else s[i] * s[j]
                sums[apart] += weight * float(vectors[kept[i]] @ vectors[kept[j]])
                counts[apart] += weight
        expected = [total / count if count else np.nan for total, count in zip(sums, counts, strict=True)]
        assert [found.same[replicate], found.different[replicate]] == pytest.approx(expected, rel=1e-9, nan_ok=True)
    # Within a topic the draws are m_t n_i n_j: u_i u_j = m_t² n_i n_j is that times m_t once more.
    assert np.nanstd(found.same) > 1e-3


def test_cosine_is_the_dot_product_of_directions_and_centring_takes_the_mean_off() -> None:
    vectors = np.array([[3.0, 4.0], [0.0, 2.0], [0.0, 0.0]])
    assert prepared(vectors, "cosine") == pytest.approx(np.array([[0.6, 0.8], [0, 1], [0, 0]]))
    assert prepared(vectors, "dot") == pytest.approx(vectors)
    assert prepared(vectors, "dot", centred=True).mean(axis=0) == pytest.approx(np.zeros(2), abs=1e-12)
    assert prepared(vectors, "cosine", centred=True) != pytest.approx(prepared(vectors, "cosine"))


def test_places_in_two_dimensions_are_classical_scaling_of_the_distances_between_directions() -> None:
    draw = np.random.default_rng(9)
    vectors = draw.normal(size=(12, 7)) * np.array([5, 3, 1, 1, 1, 1, 1])
    places, share = principal_places(vectors)
    cosine = prepared(vectors, "cosine") @ prepared(vectors, "cosine").T
    # Torgerson: squared distances centred twice, their two largest eigenvalues.
    centre = np.eye(12) - 1 / 12
    values, axes = np.linalg.eigh(-centre @ (2 - 2 * cosine) @ centre / 2)
    expected = axes[:, -2:] * np.sqrt(values[-2:])
    assert places @ places.T == pytest.approx(expected @ expected.T, abs=1e-12)
    assert share == pytest.approx(values[-2:].sum() / values.sum())
    # The control: vectors whose lengths count have other places.
    assert principal_places(vectors * draw.uniform(0.1, 3, size=(12, 1)))[0] == pytest.approx(places, abs=1e-12)
    lengths = prepared(vectors, "dot", centred=True)
    assert np.linalg.svd(lengths)[1][:2] != pytest.approx(np.sqrt(values[-2:])[::-1], rel=0.1)
    # One direction alone has the second dimension 0, and no direction none.
    assert principal_places(np.array([[1.0], [-1.0], [2.0]]))[0][:, 1] == pytest.approx(np.zeros(3))
    assert principal_places(np.ones((3, 2)))[1] == pytest.approx(0, abs=1e-12)


def auc(products: np.ndarray, labelling: Labelling, weights: TopicWeights) -> np.ndarray:
    [found] = auc_replicates([placements(products, labelling)], labelling, weights)
    return found


@settings(derandomize=True, deadline=None, max_examples=25)
@given(st.integers(0, 2**32), st.booleans())
def test_auc_is_the_share_of_pairs_of_pairs_in_order(seed: int, several: bool) -> None:
    draw = np.random.default_rng(seed)
    labelling = random_labelling(draw, 15, 3, several=several)
    labelling = Labelling(labelling.membership[labelling.kept])
    # Whole numbers, so that there are ties.
    vectors = draw.integers(-1, 2, size=(len(labelling.membership), 3)).astype(np.float64)
    same, different = by_loop(vectors, labelling)
    weights = TopicDraws.draw(labelling, 2, generator=draw).weights(labelling)
    found = auc(vectors @ vectors.T, labelling, weights)[0]
    if not same or not different:
        assert np.isnan(found)
        return
    above = [(x > y) + 0.5 * (x == y) for x in same for y in different]
    assert found == pytest.approx(np.mean(above), rel=1e-12)


def test_replicates_of_auc_follow_those_counted_pair_by_pair() -> None:
    draw = np.random.default_rng(3)
    topic = np.repeat(np.arange(30), 8)
    labelling = Labelling(topic[:, None] == np.arange(30))
    vectors = draw.normal(size=(240, 8)) + 0.8 * draw.normal(size=(30, 8))[topic]
    weights = TopicDraws.draw(labelling, 60, generator=draw).weights(labelling)
    found = auc(vectors @ vectors.T, labelling, weights)
    first, second = np.triu_indices(240, k=1)
    values, same = (vectors @ vectors.T)[first, second], topic[first] == topic[second]
    above = values[same][:, None] > values[~same]
    exact = []
    for u, s in zip(weights.between, weights.within, strict=True):
        inside, outside = (s[first] * s[second])[same], (u[first] * u[second])[~same]
        exact.append(float(inside @ above @ outside / inside.sum() / outside.sum()))
    assert found[0] == pytest.approx(exact[0], rel=1e-12)
    assert np.corrcoef(found, exact)[0, 1] > 0.95
    assert 0.8 < np.std(found) / np.std(exact) < 1.25
    # The control: replicates of other draws have nothing to do with them.
    other = auc(vectors @ vectors.T, labelling, TopicDraws.draw(labelling, 60, generator=draw).weights(labelling))
    assert abs(np.corrcoef(other, exact)[0, 1]) < 0.5


@settings(derandomize=True, deadline=None, max_examples=25)
@given(st.integers(0, 2**32))
def test_counting_by_buckets_is_searching_an_ordered_list(seed: int) -> None:
    draw = np.random.default_rng(seed)
    ordered = np.sort(np.round(draw.normal(size=draw.integers(0, 40)), draw.integers(0, 17)))
    values = np.concatenate([draw.normal(size=50), draw.permutation(ordered), [-1e300, 1e300, -0.0]])
    below, not_above = counts_below(values, ordered)
    assert (below == np.searchsorted(ordered, values, "left")).all()
    assert (not_above == np.searchsorted(ordered, values, "right")).all()
    # The control: numbers that are equal to some of the list are told from those that are not.
    assert ((not_above > below) == np.isin(values, ordered)).all()


def test_several_similarities_at_once_are_those_one_by_one() -> None:
    draw = np.random.default_rng(7)
    labelling = Labelling(draw.random((80, 8)) < 0.2).among_kept
    sets = [draw.normal(size=(len(labelling.membership), width)) for width in (3, 8)]
    weights = TopicDraws.draw(labelling, 5, generator=draw).weights(labelling)
    products = [each @ each.T for each in sets]
    found = averages_of(sets, [each[labelling.same_topic_pairs] for each in products], labelling, weights)
    areas = auc_replicates([placements(each, labelling) for each in products], labelling, weights)
    for vectors, product, averages, area in zip(sets, products, found, areas, strict=True):
        alone = pair_averages(vectors, labelling, weights)
        assert averages.same == pytest.approx(alone.same, rel=1e-9)
        assert averages.different == pytest.approx(alone.different, rel=1e-9)
        assert area == pytest.approx(auc(product, labelling, weights), rel=1e-9)
    assert found[0].same != pytest.approx(found[1].same, rel=1e-3)


def planted(draw: np.random.Generator, *, mean: float, effect: float, topics: int = 12, size: int = 10) -> np.ndarray:
    """Vectors with a common part, a part of their topic and a part of their own; words in the order of topics."""
    width, words = 64, topics * size
    common, own = np.zeros(width), draw.normal(size=(words, width)) / 8
    common[0] = mean
    return common + effect * np.repeat(draw.normal(size=(topics, width)) / 8, size, axis=0) + own


def test_planted_vectors_give_the_planted_ratio_and_shuffled_topics_one() -> None:
    draw = np.random.default_rng(4)
    vectors = planted(draw, mean=1.0, effect=1.0)
    topic = np.repeat(np.arange(12), 10)
    stratum = np.zeros(120, dtype=np.int64)
    ratios = []
    for labels in (topic, draw.permutation(topic)):
        labelling = Labelling(labels[:, None] == np.arange(12))
        weights = TopicDraws.draw(labelling, 300, generator=draw).weights(labelling)
        products = vectors @ vectors.T
        [(p, *_)] = similarity_tests([products], labelling, stratum, 199, generator=draw)
        averages = pair_averages(vectors, labelling, weights)
        ratios.append(contrast(averages.same, averages.different, auc=auc(products, labelling, weights), p=p))
    true, shuffled = ratios
    # Same topic: 1 + 1 on average, different: 1.
    assert true.low is not None
    assert true.high is not None
    assert true.low < 2 < true.high
    assert true.low > 1.5
    assert true.p == 1 / 200
    assert true.auc is not None
    assert true.auc > 0.95
    assert shuffled.low is not None
    assert shuffled.high is not None
    assert shuffled.low < 1 < shuffled.high
    assert shuffled.p is not None
    assert shuffled.p > 0.05


def test_a_ratio_over_nothing_is_null_and_the_difference_is_not() -> None:
    draw = np.random.default_rng(5)
    vectors = planted(draw, mean=0.0, effect=1.0)
    labelling = Labelling(np.repeat(np.arange(12), 10)[:, None] == np.arange(12))
    weights = TopicDraws.draw(labelling, 300, generator=draw).weights(labelling)
    centred = pair_averages(prepared(vectors, "dot", centred=True), labelling, weights)
    found = contrast(centred.same, centred.different)
    assert (found.ratio, found.low, found.high, found.p) == (None, None, None, None)
    assert found.difference_low is not None
    assert found.difference_low > 0.5
    # The control: with a common part the denominator is far from 0.
    averages = pair_averages(vectors + 1.0, labelling, weights)
    moved = contrast(averages.same, averages.different)
    assert moved.ratio is not None


def test_topics_of_another_seed_find_the_partners_with_most_words_in_common() -> None:
    draw = np.random.default_rng(8)
    topic = np.repeat(np.arange(5), 6)
    first = Labelling(topic[:, None] == np.arange(5))
    numbers = draw.permutation(5)
    moved = numbers[topic]
    moved[::7] = draw.integers(5, size=len(moved[::7]))
    partner = topic_partners(first, Labelling(moved[:, None] == np.arange(5)))
    assert partner[numbers].tolist() == list(range(5))
    assert partner.tolist() != list(range(5))
    assert topic_partners(first, first).tolist() == list(range(5))


@pytest.mark.parametrize("sign", [1, -1])
def test_auc_and_its_interval_are_probabilities(sign: int) -> None:
    """Topics that are all but apart: to first order, some replicates are beyond the end."""
    draw = np.random.default_rng(12)
    labelling = Labelling(np.repeat(np.eye(5, dtype=bool), 6, axis=0))
    vectors = np.repeat(np.eye(5), 6, axis=0) + 0.15 * draw.normal(size=(30, 5))
    weights = TopicDraws.draw(labelling, 300, generator=draw).weights(labelling)
    products = sign * (vectors @ vectors.T)
    [auc] = auc_replicates([placements(products, labelling)], labelling, weights)
    found = contrast(np.ones_like(auc), np.ones_like(auc), auc=auc)
    ends = (found.auc_low, found.auc, found.auc_high)
    if sign > 0:
        assert 0.9 < cast(float, ends[0]) <= cast(float, ends[1]) <= cast(float, ends[2]) == 1
    else:
        assert 0 == cast(float, ends[0]) <= cast(float, ends[1]) <= cast(float, ends[2]) < 0.1
    # The control: the replicates themselves go on beyond the end.
    assert np.nanquantile(sign * auc, 0.975) > (1 if sign > 0 else 0)
    # Rounding is cut too.
    assert contrast(np.ones(2), np.ones(2), auc=np.array([1.0000000000000002, 1.0])).auc == 1


def test_seeds_that_agree_leave_the_interval_as_wide_as_that_of_one() -> None:
    draw = np.random.default_rng(9)
    topic = np.repeat(np.arange(12), 10)
    vectors = planted(draw, mean=1.0, effect=1.0)
    first, same = (Labelling(each[:, None] == np.arange(12)) for each in (topic, draw.permutation(12)[topic]))
    draws = TopicDraws.draw(first, 500, generator=draw)
    seeds = [pair_averages(vectors, each, draws.weights(each)).same for each in (first, same)]
    both = SeedDraws.draw(2, 500, generator=draw).average(np.stack(seeds))
    assert both == pytest.approx(seeds[0], rel=1e-9)
    # The control: draws of its own for each seed make doubt about words and topics seem to average out, to three
    # quarters of the variance; within five standard errors of a ratio of two variances of 500 replicates.
    alone = [
        pair_averages(vectors, each, TopicDraws.draw(each, 500, generator=draw).weights(each)).same
        for each in (first, same)
    ]
    narrow = SeedDraws.draw(2, 500, generator=draw).average(np.stack(alone))
    assert abs(narrow[1:].var() / seeds[0][1:].var() - 0.75) < 5 * 0.75 * np.sqrt(2 * 2 / 500)
    assert narrow[1:].var() < 0.9 * seeds[0][1:].var()


# Of 95 % intervals over topics and words, the share that holds the truth: docs/measures.md states these.
STATED = {"difference": 0.996, "ratio": 0.985}


def coverage(trials: int, seed: int) -> dict[str, float]:
    """Topics and their words drawn anew each time: how often the interval holds the true difference and ratio."""
    draw = np.random.default_rng(seed)
    topic = np.repeat(np.arange(25), 8)
    labelling = Labelling(topic[:, None] == np.arange(25))
    held = dict.fromkeys((*STATED, "as if pairs were independent"), 0)
    for _ in range(trials):
        vectors = (draw.normal(size=(200, 16)) + draw.normal(size=(25, 16))[topic]) / 4
        vectors[:, 0] += 1
        averages = pair_averages(vectors, labelling, TopicDraws.draw(labelling, 200, generator=draw).weights(labelling))
        found = contrast(averages.same, averages.different)
        # Same topic: 1 + 1 on average, different: 1.
        assert found.low is not None
        assert found.high is not None
        assert found.difference_low is not None
        assert found.difference_high is not None
        held["difference"] += found.difference_low < 1 < found.difference_high
        held["ratio"] += found.low < 2 < found.high
        pairs = (labelling.same_topic_pairs, labelling.different_topic_pairs)
        values = [np.einsum("pw,pw->p", vectors[first], vectors[second]) for first, second in pairs]
        error = np.sqrt(sum(each.var() / len(each) for each in values))
        held["as if pairs were independent"] += abs(found.difference - 1) < 1.96 * error
    return {name: number / trials for name, number in held.items()}


def check_coverage(trials: int, seed: int) -> None:
    found = coverage(trials, seed)
    for name, stated in STATED.items():
        assert abs(found[name] - stated) < 5 * np.sqrt(stated * (1 - stated) / trials)
    assert found["as if pairs were independent"] < 0.8


def test_intervals_over_topics_and_words_hold_the_truth_as_often_as_stated() -> None:
    check_coverage(80, seed=10)


@pytest.mark.slow
def test_intervals_over_topics_and_words_hold_the_truth_as_often_as_stated_in_1000_trials() -> None:
    check_coverage(1000, seed=11)


def held_with(topics: int, trials: int) -> list[bool]:
    """Topics of ten words, drawn anew each time: whether the interval holds the true difference, where there is one."""
    draw = np.random.default_rng(topics)
    topic = np.repeat(np.arange(topics), 10)
    labelling = Labelling(topic[:, None] == np.arange(topics))
    held = []
    for _ in range(trials):
        vectors = (draw.normal(size=(len(topic), 16)) + draw.normal(size=(topics, 16))[topic]) / 4
        averages = pair_averages(vectors, labelling, TopicDraws.draw(labelling, 200, generator=draw).weights(labelling))
        found = contrast(averages.same, averages.different)
        if found.difference_low is not None and found.difference_high is not None:
            held.append(found.difference_low < 1 < found.difference_high)
    return held


def test_few_topics_have_intervals_that_hold_the_truth_and_two_have_none() -> None:
    # docs/probe.md states these.
    for topics, stated in ((3, 0.951), (4, 0.985)):
        held = held_with(topics, 150)
        assert len(held) == 150
        assert abs(np.mean(held) - stated) < 5 * np.sqrt(stated * (1 - stated) / 150)
    assert held_with(2, 50) == []
