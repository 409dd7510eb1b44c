"""The matched comparison's test and interval: p is uniform for shuffled topics, and 1 is inside without an effect."""

from typing import cast

import numpy as np
import pytest
from scipy import stats

from topicscope.probing.statistics.attention import (
    AttentionReplicates,
    PairAccumulator,
    PassagePairs,
    ShardSums,
)
from topicscope.probing.statistics.cooccurrence import count_pairs
from topicscope.probing.statistics.labelling import Labelling
from topicscope.probing.statistics.matching import (
    Strata,
    co_occurrence_strata,
    matched_test,
    matched_without_topics,
    with_topics,
)
from topicscope.probing.statistics.permutation import frequency_strata, permutation_p, stratified_orders
from topicscope.probing.statistics.resampling import contrast

WORDS, TOPICS, LENGTH = 60, 6, 30


class World:
    """Passages of words that keep to a topic each, and attention that follows co-occurrence, distance and words."""

    def __init__(self, seed: int, *, effect: float = 0.0, articles: int = 60, topics: int = TOPICS) -> None:
        draw = np.random.default_rng(seed)
        self.topics = topics
        self.topic = draw.permutation(np.repeat(np.arange(topics), WORDS // topics))
        likely = np.where(self.topic == draw.integers(topics, size=(articles, 1)), 6.0, 1.0) * draw.gamma(2, size=WORDS)
        self.words = np.stack([draw.choice(WORDS, LENGTH, p=each / each.sum()) for each in likely])
        frequency = np.bincount(self.words.ravel(), minlength=WORDS).astype(np.float64)
        counted = count_pairs(self.words.ravel(), np.arange(0, self.words.size + 1, LENGTH), WORDS)
        self.strata = co_occurrence_strata(counted).by_frequency(frequency, np.ones(WORDS, dtype=bool), 2)
        self.stratum = frequency_strata(frequency, 4)
        together = np.zeros((WORDS, WORDS))
        together[counted.first, counted.second] = together[counted.second, counted.first] = counted.counts
        bias = draw.gamma(3, size=WORDS)
        pair = draw.gamma(5, size=(WORDS, WORDS))
        same = self.topic[:, None] == self.topic
        level = np.log2(2 + together) * (bias[:, None] + bias) * (pair + pair.T) * np.where(same, 1 + effect, 1)
        early, late = np.triu_indices(LENGTH, k=1)
        noise = draw.exponential(size=(articles, 2, len(early)))
        self.attention = (level[self.words[:, early], self.words[:, late]] / (late - early))[:, None] * noise

    def labelling(self, topic: np.ndarray | None = None) -> Labelling:
        return Labelling((self.topic if topic is None else topic)[:, None] == np.arange(self.topics))

    def shard(self, labelling: Labelling) -> ShardSums:
        adding = PairAccumulator((labelling,), 1, 1, strata=(self.strata,))
        early, late = np.triu_indices(LENGTH, k=1)
        for article, (words, directed) in enumerate(zip(self.words, self.attention, strict=True)):
            both = directed.sum(axis=0)[:, None, None]
            adding.add(PassagePairs(words[early], words[late], late - early, both, directed), article)
        return adding.result()

    def shuffled(self, draw: np.random.Generator) -> Labelling:
        """Topics exchanged among words of like frequency: nothing is there."""
        [order] = stratified_orders(self.labelling(), self.stratum, 1, generator=draw)
        return self.labelling(self.topic[order])


def replicates_of(shard: ShardSums, replicates: int = 1) -> AttentionReplicates:
    found = AttentionReplicates(replicates, seed=0)
    found.add(shard.articles)
    return found


@pytest.mark.parametrize("several", [False, True])
def test_permuted_matched_ratios_are_those_of_passages_with_relabelled_words(several: bool) -> None:
    world = World(0, articles=12)
    member = world.labelling().membership.copy()
    member[::9] = False
    if several:
        member[::4, 2] = True
    labelling = Labelling(member)
    pairs = world.shard(labelling).pairs
    permutations = 12
    found = matched_test(
        pairs, labelling, world.stratum, world.strata, permutations, generator=np.random.default_rng(1)
    )
    orders = stratified_orders(labelling, world.stratum, permutations, generator=np.random.default_rng(1))
    expected = []
    for order in [*orders, np.arange(WORDS)]:
        matched = replicates_of(world.shard(Labelling(member[np.argsort(order)]))).matched(0)
        expected.append(np.log(matched.same[0] / matched.different[0]))
    assert found == permutation_p(expected[-1], np.array(expected[:-1]))
    # The control: with all distances in one cell p is another.
    coarse = Strata(world.strata.pair_bins, world.strata.bins, world.strata.level, world.strata.levels, ())
    whole = pairs.over_bins()
    arguments = (whole, labelling, world.stratum, coarse, 999)
    fine = (pairs, labelling, world.stratum, world.strata, 999)
    assert matched_test(*arguments, generator=np.random.default_rng(2)) != matched_test(
        *fine, generator=np.random.default_rng(2)
    )


def shuffled_p_values(trials: int, permutations: int, seed: int) -> np.ndarray:
    draw, world = np.random.default_rng(seed), World(seed)
    pairs = world.shard(world.labelling()).pairs
    return np.array(
        [
            matched_test(pairs, world.shuffled(draw), world.stratum, world.strata, permutations, generator=draw)
            for _ in range(trials)
        ]
    )


def check_uniform(trials: int, permutations: int, seed: int) -> None:
    p_values = shuffled_p_values(trials, permutations, seed)
    grid = np.arange(1, permutations + 2) / (permutations + 1)
    limit = float(stats.kstwobign.isf(1e-4)) / np.sqrt(trials)
    assert max(abs((p_values <= each + 1e-9).mean() - each) for each in grid) < limit
    # The control: p-values that are smaller by a third are told apart.
    wrong = p_values**1.5
    assert max(abs((wrong <= each + 1e-9).mean() - each) for each in grid) > (limit if trials >= 400 else 0.1)


def test_shuffled_topics_give_uniform_p_of_the_matched_ratio() -> None:
    check_uniform(120, 99, seed=4)


@pytest.mark.slow
def test_400_shuffled_topics_give_uniform_p_of_the_matched_ratio() -> None:
    check_uniform(400, 199, seed=5)


def check_interval(trials: int, *, topics: int) -> None:
    """Attention knows of co-occurrence alone: the interval keeps 1 inside, one over articles alone does not.

    Nor would the permutations do alone: where topics shape co-occurrence, same-topic pairs are in sparser cells than
    those of permuted words, so their ratio is less certain than permutations say.
    """
    missed, missed_over_articles = 0, 0
    for seed in range(trials):
        world = World(1000 + seed, topics=topics, articles=80)
        labelling = world.labelling()
        shard = world.shard(labelling)
        matched = replicates_of(shard, 200).matched(0)
        alone = contrast(matched.same, matched.different)
        without = matched_without_topics(shard.pairs, labelling, world.strata)
        found = with_topics(alone, matched.same, matched.different, [without], [labelling])
        assert None not in (alone.low, alone.high, found.low, found.high)
        missed += not cast(float, found.low) < 1 < cast(float, found.high)
        missed_over_articles += not cast(float, alone.low) < 1 < cast(float, alone.high)
    error = np.sqrt(0.05 * 0.95 / trials)
    assert missed / trials < 0.05 + 5 * error
    assert missed_over_articles / trials > 0.05 + 5 * error


def test_an_interval_with_topics_left_out_holds_where_one_over_articles_does_not() -> None:
    check_interval(16, topics=15)


@pytest.mark.slow
def test_an_interval_with_topics_left_out_holds_in_200_worlds() -> None:
    check_interval(200, topics=15)


def test_leaving_a_topic_out_is_what_passages_without_its_words_give() -> None:
    world = World(3, articles=20)
    labelling = world.labelling()
    shard = world.shard(labelling)
    found = matched_without_topics(shard.pairs, labelling, world.strata)
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
    matched = replicates_of(shard, 100).matched(0)
    without = matched_without_topics(shard.pairs, labelling, world.strata)
    alone = contrast(matched.same, matched.different)
    found = with_topics(alone, matched.same, matched.different, [without], [labelling])
    left = np.log(without.same / without.different)[1:]
    jackknife = (TOPICS - 1) / TOPICS * ((left - left.mean()) ** 2).sum()
    error = np.sqrt(np.log(matched.same / matched.different)[1:].var(ddof=1) + jackknife)
    assert found.ratio is not None
    assert (found.low, found.high) == pytest.approx(
        (found.ratio * np.exp(-1.959964 * error), found.ratio * np.exp(1.959964 * error)), rel=1e-6
    )
    assert found.ratio == alone.ratio
    # The controls: neither source alone is as wide; and a topic that cannot be left out leaves no interval.
    assert cast(float, found.low) < cast(float, alone.low)
    one = Labelling(np.arange(WORDS)[:, None] % 7 == np.zeros(1))
    whole = matched_without_topics(shard.pairs, one, world.strata)
    nothing = with_topics(alone, matched.same, matched.different, [whole], [one])
    assert (nothing.low, nothing.difference_low) == (None, None)


def test_topics_that_attention_has_beside_co_occurrence_are_found_and_shuffled_ones_are_not() -> None:
    draw, world = np.random.default_rng(7), World(7, effect=0.6)
    pairs = world.shard(world.labelling()).pairs
    for labelling, found in ((world.labelling(), True), (world.shuffled(draw), False)):
        p = matched_test(pairs, labelling, world.stratum, world.strata, 199, generator=draw)
        assert (p < 0.05) == found


def test_without_a_cell_that_has_both_kinds_there_is_no_p() -> None:
    world = World(8, articles=4)
    alone = Labelling(np.ones((WORDS, 1), dtype=bool))
    p = matched_test(
        world.shard(alone).pairs, alone, world.stratum, world.strata, 9, generator=np.random.default_rng(0)
    )
    assert np.isnan(p)
