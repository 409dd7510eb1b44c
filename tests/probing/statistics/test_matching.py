"""Strata hold like pairs, matching removes what it matches on and nothing else, and its tests and intervals hold."""

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from support.random_pairs import WORDS, pairs_of, random_words, width
from topicscope.probing.statistics.attention import AttentionTotals, PairAccumulator, ShardSums
from topicscope.probing.statistics.labelling import Labelling
from topicscope.probing.statistics.matching import (
    Matched,
    PairsInCells,
    Strata,
    co_occurrence_bins,
    jackknife_interval,
    matched_attention,
    matched_averages,
    matched_similarity,
    quarter_doubling_bins,
)
from topicscope.probing.statistics.pairs import PairTable, count_pairs
from topicscope.probing.statistics.permutation import frequency_strata
from topicscope.probing.statistics.resampling import contrast
from topicscope.records import MatchedComparison


def one_level(pair_bins: np.ndarray, bins: int) -> Strata:
    """Strata of words of any frequency."""
    return Strata(pair_bins, bins, np.zeros(len(pair_bins), dtype=np.int64))


def strata_of(table: PairTable, frequency: np.ndarray, levels: int) -> Strata:
    """Those of a labelling that keeps all words."""
    kept = np.ones(len(frequency), dtype=bool)
    return Strata(*co_occurrence_bins(table), frequency_strata(frequency, kept, levels), levels)


def accumulated(words: np.ndarray, attention: np.ndarray, labelling: Labelling, strata: Strata) -> ShardSums:
    """Each passage is an article."""
    adding = PairAccumulator((labelling,), replace(strata, level=strata.level[None]), 1, 1)
    for article, (passage, directed) in enumerate(zip(words, attention, strict=True)):
        adding.add(pairs_of(passage, directed), article)
    return adding.result()


def over_words(labelling: Labelling, strata: Strata, values: np.ndarray) -> Matched:
    kept = values[np.ix_(labelling.kept, labelling.kept)]
    return PairsInCells.of_words(labelling, strata).averages(kept[np.triu_indices(len(kept), k=1)])


def without_topics(table: PairTable, labelling: Labelling, strata: Strata, *, balance: bool = False) -> Matched:
    """Averages of attention, or of co-occurrence, over all topics and with each of them left out."""
    pairs = table.among(labelling.kept)
    return PairsInCells.of_positions(pairs, labelling, strata).averages(pairs.counts**2 / 2 if balance else pairs.sums)


def matched_of(same: np.ndarray, different: np.ndarray, without: Matched, labelling: Labelling) -> MatchedComparison:
    return matched_attention(same, different, [without], [labelling])


def test_bins_double_in_four_steps_and_strata_hold_like_pairs() -> None:
    counts = np.array([0.0, 1, 2, 3, 4, 5, 6, 7, 8, 16, 19, 20, 22, 23, 1024, 1500])
    assert quarter_doubling_bins(counts).tolist() == [0, 1, 5, 7, 9, 10, 11, 12, 13, 17, 17, 18, 18, 19, 41, 43]
    draw = np.random.default_rng(3)
    words, offsets = random_words(draw)
    table, frequency = count_pairs(words, offsets, WORDS), draw.random(WORDS)
    strata = strata_of(table, frequency, 3)
    matrix = strata.of(*np.indices((WORDS, WORDS)).reshape(2, -1)).reshape(WORDS, WORDS)
    assert (matrix == matrix.T).all()
    assert matrix.max() < strata.cells / 5 == (len(np.unique(quarter_doubling_bins(table.counts / 2))) + 1) * 6
    first, second = np.triu_indices(WORDS)
    assert (strata.of(first, second) == matrix[first, second]).all()
    level = np.argsort(np.argsort(frequency)) * 3 // WORDS
    counts = np.zeros((WORDS, WORDS))
    counts[table.first, table.second] = counts[table.second, table.first] = table.counts / 2
    seen: dict[int, set[tuple[int, ...]]] = {}
    for i in range(WORDS):
        for j in range(WORDS):
            key = (int(quarter_doubling_bins(counts[[i], j])[0]), *sorted((int(level[i]), int(level[j]))))
            seen.setdefault(int(matrix[i, j]), set()).add(key)
    assert all(len(keys) == 1 for keys in seen.values())
    assert len({next(iter(keys)) for keys in seen.values()}) == len(seen)


def topical_passages(draw: np.random.Generator, articles: int) -> tuple[np.ndarray, Labelling]:
    """Passages of 30 words, mostly of one or two of 6 topics of 20 words, the first of each far commoner."""
    weights = 1 / np.arange(1, 21)
    topics = np.stack([draw.choice(6, articles), draw.choice(6, articles)])
    # Two thirds of the words are of the article's topics, the others of any.
    chosen = topics[draw.integers(2, size=(articles, 30)), np.arange(articles)[:, None]]
    chosen = np.where(draw.random((articles, 30)) < 2 / 3, chosen, draw.integers(6, size=(articles, 30)))
    words = 20 * chosen + draw.choice(20, size=(articles, 30), p=weights / weights.sum())
    return words, Labelling(np.repeat(np.arange(6), 20)[:, None] == np.arange(6))


def matched_ratio(
    words: np.ndarray, attention: np.ndarray, labelling: Labelling, strata: Strata
) -> tuple[float, float]:
    """The interval of the matched ratio over articles, from passages' words and the attention of their pairs."""
    matched = replicates_of(accumulated(words, attention, labelling, strata), 200).matched(0)
    found = contrast(matched.same, matched.different)
    return cast(float, found.low), cast(float, found.high)


def test_attention_that_follows_co_occurrence_alone_is_no_topic_effect_once_matched() -> None:
    draw = np.random.default_rng(9)
    words, labelling = topical_passages(draw, 100)
    table = count_pairs(words.ravel(), np.arange(0, words.size + 1, 30), 120)
    counts = np.zeros((120, 120))
    counts[table.first, table.second] = counts[table.second, table.first] = table.counts / 2
    early, late = np.triu_indices(30, k=1)
    expected = 0.01 * np.log2(1 + counts[words[:, early], words[:, late]])
    attention = expected[:, None] * draw.exponential(size=(100, 2, len(early)))
    frequency = np.bincount(words.ravel(), minlength=120).astype(np.float64)
    fine = strata_of(table, frequency, 3)
    low, high = matched_ratio(words, attention, labelling, fine)
    assert low < 1 < high
    balance = without_topics(table, labelling, fine, balance=True)
    assert abs(balance.same[0] / balance.different[0] - 1) < 0.1
    of_words = over_words(labelling, fine, counts)
    assert abs(of_words.same[0] / of_words.different[0] - 1) < 0.1
    # The control: with all pairs of 16 co-occurrences and more in one bin, what is left of them looks like topics.
    capped = one_level(
        np.where(counts > 0, np.clip(np.floor(np.log2(np.maximum(counts, 1))) + 2, 0, 6), 0).astype(int), 7
    )
    assert matched_ratio(words, attention, labelling, capped)[0] > 1
    coarse = without_topics(table, labelling, capped, balance=True)
    assert coarse.same[0] / coarse.different[0] > 1.2
    # And what topics have beside is not matched away.
    same = labelling.shares(words[:, early].ravel(), words[:, late].ravel()).reshape(100, 1, -1)
    assert matched_ratio(words, attention * np.where(same, 1.2, 1.0), labelling, fine)[0] > 1.1


def test_matching_removes_what_it_matches_on_and_keeps_what_it_does_not() -> None:
    draw = np.random.default_rng(4)
    cell = draw.integers(5, size=20_000)
    # Same-topic pairs are commoner in high cells, and high cells have more attention.
    same = draw.random(20_000) < 0.1 + 0.15 * cell
    for effect in (0.0, 0.5):
        values = 1.0 + cell + effect * same + 0.1 * draw.normal(size=20_000)
        groups = [(same, values), (same, np.ones(20_000)), (~same, values), (~same, np.ones(20_000))]
        found = matched_averages(*(np.bincount(cell[chosen], each[chosen], 5)[None] for chosen, each in groups))
        error = 0.1 * np.sqrt(1 / same.sum() + 1 / (~same).sum()) * 2
        assert abs(found.same[0] - found.different[0] - effect) < 5 * error
        assert found.share[0] == 1
        # The control: unmatched, the cells' difference is taken for the topics'.
        assert values[same].mean() - values[~same].mean() > effect + 0.5


def test_cells_without_a_match_are_left_out_and_said_so() -> None:
    rows = ([6.0, 50.0], [3.0, 5.0], [2.0, 0.0], [2.0, 0.0])
    found = matched_averages(*(np.array([row]) for row in rows))
    assert (found.same[0], found.different[0], found.share[0]) == (2.0, 1.0, 3 / 8)
    nothing = matched_averages(np.zeros((1, 2)), np.zeros((1, 2)), np.ones((1, 2)), np.ones((1, 2)))
    assert np.isnan(nothing.same[0])


def matched_over(labelling: Labelling, strata: Strata, products: np.ndarray) -> Any:
    found = over_words(labelling, strata, products)
    return matched_similarity([found], [labelling])


def test_matched_similarity_equals_a_loop_over_pairs() -> None:
    draw = np.random.default_rng(5)
    labelling = Labelling(np.eye(3, dtype=bool)[draw.integers(3, size=WORDS)] & (draw.random((WORDS, 1)) < 0.8))
    vectors = draw.normal(size=(WORDS, 4))
    products = vectors @ vectors.T
    stratum = draw.integers(3, size=(WORDS, WORDS))
    strata = one_level(np.maximum(stratum, stratum.T), 3)
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


def test_matched_similarity_averages_lda_seeds_and_leaves_out_a_topic_with_its_partners() -> None:
    draw = np.random.default_rng(14)
    topic = np.repeat(np.arange(6), 5)
    vectors = draw.normal(size=(30, 4)) + draw.normal(size=(6, 4))[topic]
    products = vectors @ vectors.T
    strata = one_level(np.zeros((30, 30), dtype=np.uint8), 1)
    # The same topics under other numbers, and topics that share no more than chance has it.
    numbers = draw.permutation(6)
    first, same, other = (
        Labelling(each[:, None] == np.arange(6)) for each in (topic, numbers[topic], draw.permutation(topic))
    )
    found = {each: over_words(each, strata, products) for each in (first, same, other)}

    def seeds_of(*labellings: Labelling) -> Any:
        averages = [found[each] for each in labellings]
        return matched_similarity(averages, labellings)

    alone = matched_over(first, strata, products)
    again = seeds_of(first, same)
    assert width(again) == pytest.approx(width(alone))
    assert again.difference == pytest.approx(alone.difference)
    mixed = seeds_of(first, other)
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


WORLD_WORDS, TOPICS, LENGTH = 60, 6, 30


class World:
    """Passages of words that keep to a topic each, and attention that follows co-occurrence, distance and words."""

    def __init__(self, seed: int, *, articles: int = 60, topics: int = TOPICS) -> None:
        draw = np.random.default_rng(seed)
        self.topics = topics
        self.topic = draw.permutation(np.repeat(np.arange(topics), WORLD_WORDS // topics))
        likely = np.where(self.topic == draw.integers(topics, size=(articles, 1)), 6.0, 1.0) * draw.gamma(
            2, size=WORLD_WORDS
        )
        self.words = np.stack([draw.choice(WORLD_WORDS, LENGTH, p=each / each.sum()) for each in likely])
        frequency = np.bincount(self.words.ravel(), minlength=WORLD_WORDS).astype(np.float64)
        counted = count_pairs(self.words.ravel(), np.arange(0, self.words.size + 1, LENGTH), WORLD_WORDS)
        self.strata = strata_of(counted, frequency, 2)
        together = np.zeros((WORLD_WORDS, WORLD_WORDS))
        together[counted.first, counted.second] = together[counted.second, counted.first] = counted.counts
        bias = draw.gamma(3, size=WORLD_WORDS)
        pair = draw.gamma(5, size=(WORLD_WORDS, WORLD_WORDS))
        level = np.log2(2 + together) * (bias[:, None] + bias) * (pair + pair.T)
        early, late = np.triu_indices(LENGTH, k=1)
        noise = draw.exponential(size=(articles, 2, len(early)))
        self.attention = (level[self.words[:, early], self.words[:, late]] / (late - early))[:, None] * noise

    def labelling(self) -> Labelling:
        return Labelling(self.topic[:, None] == np.arange(self.topics))

    def shard(self, labelling: Labelling) -> ShardSums:
        return accumulated(self.words, self.attention, labelling, self.strata)


def replicates_of(shard: ShardSums, replicates: int = 1) -> AttentionTotals:
    return AttentionTotals([shard], replicates, seed=0)


@pytest.mark.parametrize("trials", [12, pytest.param(200, marks=pytest.mark.slow)])
def test_an_interval_with_topics_left_out_holds_where_one_over_articles_does_not(trials: int) -> None:
    """Attention knows of co-occurrence alone: the interval keeps 1 inside, one over articles alone does not.

    Nor would the permutations do alone: where topics shape co-occurrence, same-topic pairs are in sparser cells than
    those of permuted words, so their ratio is less certain than permutations say.
    """
    missed, missed_over_articles = 0, 0
    for seed in range(trials):
        world = World(1000 + seed, topics=15, articles=80)
        labelling = world.labelling()
        shard = world.shard(labelling)
        matched = replicates_of(shard, 200).matched(0)
        alone = contrast(matched.same, matched.different)
        found = matched_of(
            matched.same, matched.different, without_topics(shard.pairs, labelling, world.strata), labelling
        )
        assert None not in (alone.low, alone.high, found.low, found.high)
        missed += not cast(float, found.low) < 1 < cast(float, found.high)
        missed_over_articles += not cast(float, alone.low) < 1 < cast(float, alone.high)
    error = np.sqrt(0.05 * 0.95 / trials)
    assert missed / trials < 0.05 + 5 * error
    assert missed_over_articles / trials > 0.05 + 5 * error


def test_leaving_a_topic_out_is_what_passages_without_its_words_give() -> None:
    world = World(3, articles=20)
    labelling = world.labelling()
    shard = world.shard(labelling)
    found = without_topics(shard.pairs, labelling, world.strata)
    for place, topic in enumerate([None, *range(TOPICS)]):
        member = labelling.membership & (world.topic != topic)[:, None]
        expected = replicates_of(world.shard(Labelling(member))).matched(0)
        for name in ("same", "different", "share"):
            assert getattr(found, name)[place] == pytest.approx(getattr(expected, name)[0], rel=1e-9)
    # The control: it matters which topic is left out.
    assert len(np.unique(found.same.round(9))) == TOPICS + 1


def test_the_interval_adds_the_variances_of_replicates_and_of_topics() -> None:
    world = World(4)
    labelling = world.labelling()
    shard = world.shard(labelling)
    matched, without = replicates_of(shard, 100).matched(0), without_topics(shard.pairs, labelling, world.strata)
    found = matched_of(matched.same, matched.different, without, labelling)
    left = np.log(without.same / without.different)[1:]
    jackknife = (TOPICS - 1) / TOPICS * ((left - left.mean()) ** 2).sum()
    error = np.sqrt(np.log(matched.same / matched.different)[1:].var(ddof=1) + jackknife)
    assert found.ratio == matched.same[0] / matched.different[0]
    ends = found.ratio * np.exp(1.959964 * error * np.array([-1, 1]))
    assert (found.low, found.high) == pytest.approx(ends, rel=1e-6)
    # The control: a topic that cannot be left out leaves no interval.
    one = Labelling(np.arange(WORLD_WORDS)[:, None] % 7 == np.zeros(1))
    nothing = matched_of(matched.same, matched.different, without_topics(shard.pairs, one, world.strata), one)
    assert (nothing.low, nothing.difference_low) == (None, None)


LEFT_OUT, REPLICATES = 5, 200
LABELLING = Labelling(np.repeat(np.eye(LEFT_OUT, dtype=bool), 3, axis=0))


def test_replicates_without_pairs_are_left_out_up_to_half_of_them() -> None:
    draw = np.random.default_rng(0)
    same, different = (mean * np.exp(0.1 * draw.normal(size=1 + REPLICATES)) for mean in (3.0, 2.0))
    left = [mean * np.exp(0.1 * draw.normal(size=1 + LEFT_OUT)) for mean in (3.0, 2.0)]
    without = Matched(left[0], left[1], np.ones(1 + LEFT_OUT))

    def ends(one: np.ndarray, other: np.ndarray) -> list[float | None]:
        found = matched_of(one, other, without, LABELLING)
        return [found.low, found.high, found.difference_low, found.difference_high]

    for gone in (1, REPLICATES // 2, REPLICATES // 2 + 1):
        gaps = np.append(same[:-gone], np.full(gone, np.nan))
        assert contrast(gaps, different).replicates_left_out == gone
        fewer = ends(same[: REPLICATES + 1 - gone], different[: REPLICATES + 1 - gone])
        assert ends(gaps, different) == (fewer if gone <= REPLICATES // 2 else [None] * 4)
    # The control: with all of them the interval is another.
    assert None not in ends(same, different) != fewer
    # A sample without pairs, or a single replicate, has no interval; two have a variance.
    assert ends(np.append(np.nan, same[1:]), different) == ends(same[:2], different[:2]) == [None] * 4
    assert None not in ends(same[:3], different[:3])
    # A replicate whose logarithm is infinite leaves the ratio without an interval.
    same[7] = 0.0
    assert [end is None for end in ends(same, different)] == [True, True, False, False]
