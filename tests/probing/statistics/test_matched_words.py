"""Matched similarity of words equals a loop over pairs, and its interval is the jackknife over topics."""

import numpy as np
import pytest

from support.random_pairs import WORDS, width
from topicscope.probing.statistics.labelling import Labelling
from topicscope.probing.statistics.matching import (
    MatchedSimilarity,
    MatchedWords,
    Strata,
    jackknife_interval,
    matched_similarity,
)


def matched_over(labelling: Labelling, strata: Strata, products: np.ndarray) -> MatchedSimilarity:
    kept = np.ix_(labelling.kept, labelling.kept)
    return matched_similarity([MatchedWords(labelling, strata).averages(products[kept])], [labelling])


def test_matched_similarity_equals_a_loop_over_pairs() -> None:
    draw = np.random.default_rng(5)
    labelling = Labelling(np.eye(3, dtype=bool)[draw.integers(3, size=WORDS)] & (draw.random((WORDS, 1)) < 0.8))
    vectors = draw.normal(size=(WORDS, 4))
    products = vectors @ vectors.T
    stratum = draw.integers(3, size=(WORDS, WORDS))
    strata = Strata(np.maximum(stratum, stratum.T), 3)
    cells: dict[int, tuple[list[float], list[float]]] = {each: ([], []) for each in range(3)}
    for i in range(WORDS):
        for j in range(i):
            if labelling.kept[i] and labelling.kept[j]:
                apart = int(labelling.topic[i] != labelling.topic[j])
                cells[int(strata.pair_bins[i, j])][apart].append(float(products[i, j]))
    both = [(same, apart) for same, apart in cells.values() if same and apart]
    total = sum(len(same) for same, _ in both)
    found = matched_over(labelling, strata, products)
    assert found.same == pytest.approx(sum(sum(same) for same, _ in both) / total)
    assert found.different == pytest.approx(sum(len(same) * np.mean(apart) for same, apart in both) / total)
    assert found.different != pytest.approx(np.mean([value for _, apart in both for value in apart]))


def test_the_jackknife_leaves_each_topics_words_out_in_turn() -> None:
    draw = np.random.default_rng(6)
    topic = np.repeat(np.arange(6), 5)
    labelling = Labelling(topic[:, None] == np.arange(6))
    vectors = draw.normal(size=(30, 4)) + draw.normal(size=(6, 4))[topic]
    products = vectors @ vectors.T
    stratum = draw.integers(2, size=(30, 30))
    strata = Strata(np.maximum(stratum, stratum.T), 2)
    found = matched_over(labelling, strata, products)
    without = []
    for left_out in range(6):
        rest = np.flatnonzero(topic != left_out)
        part = Strata(strata.pair_bins[np.ix_(rest, rest)], 2)
        smaller = matched_over(Labelling(labelling.membership[rest]), part, products[np.ix_(rest, rest)])
        without.append(smaller.same - smaller.different)
    expected = jackknife_interval(found.difference, np.array(without))
    assert (found.difference_low, found.difference_high) == pytest.approx(expected)
    assert found.difference_low is not None
    assert found.difference_low < found.difference


def test_matched_similarity_averages_lda_seeds_and_leaves_out_a_topic_with_its_partners() -> None:
    draw = np.random.default_rng(14)
    topic = np.repeat(np.arange(6), 5)
    vectors = draw.normal(size=(30, 4)) + draw.normal(size=(6, 4))[topic]
    products = vectors @ vectors.T
    strata = Strata(np.zeros((30, 30), dtype=np.uint8), 1)
    # The same topics under other numbers, and topics that share no more than chance has it.
    numbers = draw.permutation(6)
    first, same, other = (
        Labelling(each[:, None] == np.arange(6)) for each in (topic, numbers[topic], draw.permutation(topic))
    )
    found = {each: MatchedWords(each, strata).averages(products) for each in (first, same, other)}
    alone = matched_over(first, strata, products)
    again = matched_similarity([found[first], found[same]], [first, same])
    assert width(again) == pytest.approx(width(alone))
    assert again.difference == pytest.approx(alone.difference)
    mixed = matched_similarity([found[first], found[other]], [first, other])
    second = matched_over(other, strata, products)
    assert mixed.difference == pytest.approx((alone.difference + second.difference) / 2)
    between = (alone.difference - second.difference) ** 2 / 2 / 2
    assert width(mixed) > 2 * 1.959964 * np.sqrt(between)
    # The control: were topics not partners, leaving two different ones out would seem to change less.
    rows = np.stack([found[each].same - found[each].different for each in (first, same)])
    unpaired = jackknife_interval(alone.difference, rows[:, 1:].mean(axis=0))
    assert unpaired[0] is not None
    assert unpaired[1] is not None
    assert unpaired[1] - unpaired[0] < 0.95 * width(alone)


def test_the_jackknife_of_a_mean_is_its_standard_error() -> None:
    values = np.random.default_rng(7).normal(size=20)
    without = (values.sum() - values) / 19
    low, high = jackknife_interval(float(values.mean()), without)
    assert low is not None
    assert high is not None
    assert (high - low) / 2 == pytest.approx(1.959964 * values.std(ddof=1) / np.sqrt(20), rel=1e-5)
    assert jackknife_interval(1.0, np.array([1.0, np.nan])) == (None, None)
