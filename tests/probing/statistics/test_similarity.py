"""Similarities within and between topics equal loops over all pairs of words; planted topics alone are found."""

from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topicscope.probing.statistics.labelling import Labelling, TopicDraws, TopicWeights, topic_partners
from topicscope.probing.statistics.resampling import SeedDraws, contrast
from topicscope.probing.statistics.similarity import (
    PairAverages,
    Similarities,
    counts_below,
    prepared,
    similarity_tests,
    topic_contrasts,
)
from topicscope.records import Comparison


def random_labelling(draw: np.random.Generator, words: int, topics: int, *, several: bool) -> Labelling:
    if several:
        return Labelling(draw.random((words, topics)) < 0.35)
    return Labelling(np.eye(topics, dtype=bool)[draw.integers(topics, size=words)] & (draw.random((words, 1)) < 0.8))


def labelled(topic: np.ndarray) -> Labelling:
    return Labelling(topic[:, None] == np.arange(topic.max() + 1))


def measured(labelling: Labelling, weights: TopicWeights | None, *vectors: np.ndarray) -> PairAverages:
    """Dot products of sets of vectors, a row for each word of the labelling."""
    ones = np.ones((1, labelling.words))
    similarities = Similarities(labelling.among_kept, weights or TopicWeights(ones, ones))
    for each in vectors:
        kept = each[labelling.kept]
        similarities.add(kept @ kept.T)
    return similarities.averages()


def compared(labelling: Labelling, vectors: np.ndarray, replicates: int, draw: np.random.Generator) -> Comparison:
    weights = TopicDraws.draw(labelling, replicates, generator=draw).weights(labelling)
    averages = measured(labelling, weights, vectors)
    return contrast(averages.same[0], averages.different[0], auc=averages.auc[0])


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


@settings(derandomize=True, deadline=None, max_examples=40)
@given(st.integers(0, 2**32), st.booleans())
def test_averages_and_auc_over_all_pairs_equal_a_loop(seed: int, several: bool) -> None:
    draw = np.random.default_rng(seed)
    words, topics = int(draw.integers(6, 25)), int(draw.integers(2, 5))
    labelling = random_labelling(draw, words, topics, several=several)
    # Whole numbers, so that there are ties.
    vectors = draw.integers(-1, 3, size=(words, 3)).astype(np.float64)
    same, different = by_loop(vectors, labelling)
    averages = measured(labelling, None, vectors)
    for values, average in ((same, averages.same[0, 0]), (different, averages.different[0, 0])):
        assert average == pytest.approx(np.mean(values) if values else np.nan, rel=1e-9, abs=1e-12, nan_ok=True)
    above = [(x > y) + 0.5 * (x == y) for x in same for y in different]
    assert averages.auc[0, 0] == pytest.approx(np.mean(above) if above else np.nan, rel=1e-12, nan_ok=True)


def test_weighted_averages_count_pairs_as_often_as_their_words_and_topics_were_drawn() -> None:
    draw = np.random.default_rng(1)
    labelling = random_labelling(draw, 14, 3, several=False)
    sets = [draw.normal(size=(14, width)) + 0.3 for width in (4, 7)]
    weights = TopicDraws.draw(labelling, 5, generator=draw).weights(labelling)
    averages = measured(labelling, weights, *sets)
    kept, topic = np.flatnonzero(labelling.kept), labelling.topic[labelling.kept]
    for at, vectors in enumerate(sets):
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
            found = [averages.same[at, replicate], averages.different[at, replicate]]
            assert found == pytest.approx(expected, rel=1e-9, nan_ok=True)
    # Within a topic the draws are m_t n_i n_j: u_i u_j = m_t² n_i n_j is that times m_t once more.
    assert np.nanstd(averages.same[0]) > 1e-3


def test_cosine_is_the_dot_product_of_directions() -> None:
    vectors = np.array([[3.0, 4.0], [0.0, 2.0], [0.0, 0.0]])
    assert prepared(vectors, "cosine") == pytest.approx(np.array([[0.6, 0.8], [0, 1], [0, 0]]))
    assert prepared(vectors, "dot") == pytest.approx(vectors)


def test_replicates_of_auc_follow_those_counted_pair_by_pair() -> None:
    draw = np.random.default_rng(3)
    topic = np.repeat(np.arange(25), 8)
    labelling = labelled(topic)
    vectors = draw.normal(size=(200, 8)) + 0.8 * draw.normal(size=(25, 8))[topic]
    weights = TopicDraws.draw(labelling, 40, generator=draw).weights(labelling)
    auc = measured(labelling, weights, vectors).auc[0]
    first, second = np.triu_indices(200, k=1)
    values, same = (vectors @ vectors.T)[first, second], topic[first] == topic[second]
    above = values[same][:, None] > values[~same]
    exact = []
    for u, s in zip(weights.between, weights.within, strict=True):
        inside, outside = (s[first] * s[second])[same], (u[first] * u[second])[~same]
        exact.append(float(inside @ above @ outside / inside.sum() / outside.sum()))
    assert auc[0] == pytest.approx(exact[0], rel=1e-12)
    assert np.corrcoef(auc, exact)[0, 1] > 0.95
    assert 0.8 < np.std(auc) / np.std(exact) < 1.25
    # The control: replicates of other draws have nothing to do with them.
    other = measured(labelling, TopicDraws.draw(labelling, 40, generator=draw).weights(labelling), vectors).auc[0]
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


def planted(draw: np.random.Generator, *, mean: float, effect: float, topics: int = 12, size: int = 10) -> np.ndarray:
    """Vectors with a common part, a part of their topic and a part of their own; words in the order of topics."""
    width, words = 64, topics * size
    common, own = np.zeros(width), draw.normal(size=(words, width)) / 8
    common[0] = mean
    return common + effect * np.repeat(draw.normal(size=(topics, width)) / 8, size, axis=0) + own


def test_planted_vectors_give_the_planted_ratio_and_shuffled_topics_one() -> None:
    draw = np.random.default_rng(4)
    vectors, topic = planted(draw, mean=1.0, effect=1.0), np.repeat(np.arange(12), 10)
    stratum = np.zeros(120, dtype=np.int64)
    for labels, there in ((topic, True), (draw.permutation(topic), False)):
        labelling = labelled(labels)
        [test] = similarity_tests([vectors @ vectors.T], labelling, stratum, 199, generator=draw)
        found = compared(labelling, vectors, 300, draw)
        low, high, auc = cast(float, found.low), cast(float, found.high), cast(float, found.auc)
        # Same topic: 1 + 1 on average, different: 1.
        assert low < (2 if there else 1) < high
        assert (low > 1.5, auc > 0.95, test.p == 1 / 200, test.p <= 0.05) == (there,) * 4


def test_topics_of_another_seed_find_the_partners_with_most_words_in_common() -> None:
    draw = np.random.default_rng(8)
    topic, numbers = np.repeat(np.arange(5), 6), draw.permutation(5)
    moved = numbers[topic]
    moved[::7] = draw.integers(5, size=len(moved[::7]))
    partner = topic_partners(labelled(topic).membership, labelled(moved).membership)[0]
    assert partner[numbers].tolist() == list(range(5)) != partner.tolist()


@pytest.mark.parametrize("sign", [1, -1])
def test_auc_and_its_interval_are_probabilities(sign: int) -> None:
    """Topics that are all but apart: to first order, some replicates are beyond the end."""
    draw, labelling = np.random.default_rng(12), Labelling(np.repeat(np.eye(5, dtype=bool), 6, axis=0))
    vectors = np.repeat(np.eye(5), 6, axis=0) + 0.15 * draw.normal(size=(30, 5))
    similarities = Similarities(labelling, TopicDraws.draw(labelling, 300, generator=draw).weights(labelling))
    similarities.add(sign * (vectors @ vectors.T))
    [auc] = similarities.averages().auc
    found = contrast(np.ones_like(auc), np.ones_like(auc), auc=auc)
    ends = [cast(float, end) for end in (found.auc_low, found.auc, found.auc_high)]
    assert sorted(ends) == ends
    assert (ends[0] > 0.9, ends[2] == 1) == (sign > 0,) * 2
    assert (ends[0] == 0, ends[2] < 0.1) == (sign < 0,) * 2
    # The control: the replicates themselves go on beyond the end.
    assert np.nanquantile(sign * auc, 0.975) > (1 if sign > 0 else 0)


def test_seeds_that_agree_leave_the_interval_as_wide_as_that_of_one() -> None:
    draw = np.random.default_rng(9)
    topic, vectors = np.repeat(np.arange(12), 10), planted(draw, mean=1.0, effect=1.0)
    first, same = labelled(topic), labelled(draw.permutation(12)[topic])
    draws = TopicDraws.draw(first, 500, generator=draw)
    seeds = [measured(each, draws.weights(each), vectors).same[0] for each in (first, same)]
    both = SeedDraws.draw(2, 500, generator=draw).average(np.stack(seeds))
    assert both == pytest.approx(seeds[0], rel=1e-9)
    # The control: draws of its own for each seed make doubt about words and topics seem to average out, to three
    # quarters of the variance; within five standard errors of a ratio of two variances of 500 replicates.
    weights = [TopicDraws.draw(each, 500, generator=draw).weights(each) for each in (first, same)]
    alone = [measured(each, own, vectors).same[0] for each, own in zip((first, same), weights, strict=True)]
    narrow = SeedDraws.draw(2, 500, generator=draw).average(np.stack(alone))
    assert abs(narrow[1:].var() / seeds[0][1:].var() - 0.75) < 5 * 0.75 * np.sqrt(2 * 2 / 500)
    assert narrow[1:].var() < 0.9 * seeds[0][1:].var()


# Of 95 % intervals over topics and words, the share that holds the truth: docs/measures.md states these.
STATED = {"difference": 0.996, "ratio": 0.985}


@pytest.mark.parametrize("trials", [60, pytest.param(1_000, marks=pytest.mark.slow)])
def test_intervals_over_topics_and_words_hold_the_truth_as_often_as_stated(trials: int) -> None:
    """Topics and their words are drawn anew each time."""
    draw, topic = np.random.default_rng(trials), np.repeat(np.arange(25), 8)
    labelling = labelled(topic)
    held, independent = dict.fromkeys(STATED, 0), 0
    for _ in range(trials):
        vectors = (draw.normal(size=(200, 16)) + draw.normal(size=(25, 16))[topic]) / 4
        vectors[:, 0] += 1
        found = compared(labelling, vectors, 200, draw)
        # Same topic: 1 + 1 on average, different: 1.
        held["difference"] += cast(float, found.difference_low) < 1 < cast(float, found.difference_high)
        held["ratio"] += cast(float, found.low) < 2 < cast(float, found.high)
        pairs = (labelling.same_topic_pairs, labelling.different_topic_pairs)
        values = [np.einsum("pw,pw->p", vectors[first], vectors[second]) for first, second in pairs]
        error = np.sqrt(sum(each.var() / len(each) for each in values))
        independent += abs(cast(float, found.difference) - 1) < 1.96 * error
    for name, stated in STATED.items():
        assert abs(held[name] / trials - stated) < 5 * np.sqrt(stated * (1 - stated) / trials)
    # The control: as if pairs were independent.
    assert independent / trials < 0.8


def test_few_topics_have_intervals_that_hold_the_truth_and_two_have_none() -> None:
    # docs/probe.md states these.
    for topics, stated, trials in ((3, 0.951, 90), (4, 0.985, 90), (2, None, 30)):
        draw, topic, held = np.random.default_rng(topics), np.repeat(np.arange(topics), 10), []
        for _ in range(trials):
            vectors = (draw.normal(size=(len(topic), 16)) + draw.normal(size=(topics, 16))[topic]) / 4
            found = compared(labelled(topic), vectors, 200, draw)
            if found.difference_low is not None:
                held.append(found.difference_low < 1 < cast(float, found.difference_high))
        assert len(held) == (0 if stated is None else trials)
        assert stated is None or abs(np.mean(held) - stated) < 5 * np.sqrt(stated * (1 - stated) / trials)


# Single topics.

WORDS, TOPICS = 60, 6


def similarities_of(draw: np.random.Generator, some: tuple[int, ...]) -> tuple[np.ndarray, Labelling]:
    """Similarities with the words of some topics more alike."""
    topic = np.arange(WORDS) % TOPICS
    noise = draw.normal(0.3, 0.1, size=(WORDS, WORDS))
    values = (noise + noise.T) / 2
    values += 0.3 * (np.isin(topic, some)[:, None] & (topic[:, None] == topic))
    return values, labelled(topic)


def draws(draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray, int]:
    """Weights of words, one stratum for all of them, and the number of permutations."""
    words = np.concatenate([np.ones((1, WORDS)), draw.poisson(1.0, size=(200, WORDS))])
    return words, np.zeros(WORDS, dtype=np.int64), 499


def test_averages_of_a_topic_are_those_of_loops_and_planted_topics_alone_are_found() -> None:
    draw = np.random.default_rng(2)
    values, labelling = similarities_of(draw, (0, 3))
    counts = draw.integers(1, 5, size=(WORDS, WORDS)).astype(np.float64)
    counts = counts + counts.T
    [found] = topic_contrasts([values * counts], labelling, *draws(draw), counts=counts, generator=draw)
    for topic, each in enumerate(found):
        member = labelling.membership[:, topic]
        pairs = [(i, j) for i in range(WORDS) for j in range(i) if member[i] and member[j]]
        others = [(i, j) for i in range(WORDS) for j in range(i) if member[i] != member[j]]
        for side, chosen in ((each.same, pairs), (each.different, others)):
            first, second = np.array(chosen).T
            assert side == pytest.approx((values * counts)[first, second].sum() / counts[first, second].sum())
    assert [cast(float, each.q) < 0.05 for each in found] == [True, False, False, True, False, False]
    assert cast(float, found[0].low) > 1.3
    assert cast(float, found[1].low) < 1 < cast(float, found[1].high)


def test_topics_of_words_with_several_leave_out_pairs_that_share_another() -> None:
    draw = np.random.default_rng(4)
    values, one = similarities_of(draw, ())
    membership = one.membership.copy()
    membership[1, 0] = True
    [found] = topic_contrasts([values], Labelling(membership), *draws(draw), generator=draw)
    apart = ~(membership.astype(int) @ membership.T.astype(int) > 0)
    rows = np.flatnonzero(membership[:, 0])
    assert found[0].different == pytest.approx(values[rows][apart[rows]].mean())
    # The control: with word 1 and the words of its other topic among them, the average is another.
    assert found[0].different != pytest.approx(values[rows][:, ~membership[:, 0]].mean(), rel=1e-9)
