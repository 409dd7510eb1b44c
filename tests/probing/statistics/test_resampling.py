"""Bootstrap over articles, intervals of ratios and differences, AUC, and LDA seeds."""

from dataclasses import replace

import numpy as np
import pytest

from topicscope.probing.statistics import attention
from topicscope.probing.statistics.attention import SUMS, AttentionTotals, ShardSums
from topicscope.probing.statistics.labelling import Labelling, TopicDraws
from topicscope.probing.statistics.pairs import PairTable
from topicscope.probing.statistics.resampling import (
    Comparable,
    SeedDraws,
    auc_of_histograms,
    compared,
    contrast,
    percentile_interval,
    poisson_weights,
)
from topicscope.probing.statistics.similarity import Similarities, prepared, similarity_tests
from topicscope.records import PairedRow

SHAPE = (1, 2, 1, 2, 2)


def articles(draw: np.random.Generator, count: int, *, ratio: float = 1.5) -> ShardSums:
    """Articles of different length and attention scale, the same in both kinds; same topic ``ratio`` as much."""
    counts = draw.integers(20, 200, size=(count, 1, 2)).astype(np.float64)
    level = 0.01 * draw.lognormal(0, 0.4, size=(count, 1, 1)) * np.array([ratio, 1.0])
    sums = (counts * level)[..., None, None, None] * draw.lognormal(0, 0.1, size=(count, *SHAPE))
    empty = {name: np.zeros((count, 1, 2, 0)) for name in ("cell_sums", "cell_counts")}
    histograms = draw.integers(1, 9, size=(count, 1, 2, 5)).astype(np.float64)
    examples, heads = np.full((1, 4, 3), np.nan), np.zeros(SHAPE[3:])
    rest = {
        "examples": examples,
        "pairs": PairTable.merged(1, []),
        "permuted_sums": np.zeros((0, 0, 2, 2)),
        "permuted_counts": np.zeros((0, 0)),
        "sunk": heads,
        "queries": 0,
    }
    return ShardSums(np.arange(count), sums, counts[..., None], histograms, **empty, **rest)  # type: ignore[arg-type]


def part(sums: ShardSums, places: slice) -> ShardSums:
    return replace(sums, **{name: getattr(sums, name)[places] for name in ("article", *SUMS)})


def replicates_of(*shards: ShardSums, replicates: int = 200, seed: int = 0) -> AttentionTotals:
    return AttentionTotals(shards, replicates, seed)


def test_an_articles_weights_depend_on_its_index_and_the_seed_alone() -> None:
    together = poisson_weights(np.array([3, 7, 11]), 50, seed=1)
    alone = poisson_weights(np.array([7]), 50, seed=1)
    assert (together[:, 1] == alone[:, 0]).all()
    assert (together[0] == 1).all()
    assert (poisson_weights(np.array([7]), 50, seed=2) != alone).any()
    many = poisson_weights(np.arange(400), 100, seed=0)[1:]
    error = 1 / np.sqrt(many.size)
    assert abs(many.mean() - 1) < 5 * error
    # A Poisson number's variance is 1, too; the variance of its square deviation is 1 + 2.
    assert abs(many.var() - 1) < 5 * np.sqrt(3) * error


def test_shards_change_nothing_and_the_first_replicate_is_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)
    sums = articles(draw, 12)
    whole = replicates_of(sums).averages(0)
    split = replicates_of(part(sums, slice(0, 5)), part(sums, slice(5, 12))).averages(0)
    assert split == pytest.approx(whole, rel=1e-12)
    # Nor does it matter how many articles are weighted at once.
    monkeypatch.setattr(attention, "WEIGHTED", 4)
    weighted = replicates_of(part(sums, slice(0, 5)), part(sums, slice(5, 7)), part(sums, slice(7, 12))).averages(0)
    assert weighted == pytest.approx(whole, rel=1e-12)
    expected = sums.sums[:, 0, :, 0].sum(axis=0) / sums.counts[:, 0].sum(axis=0)[..., None]
    assert whole[0] == pytest.approx(expected, rel=1e-12)
    doubled = replicates_of(sums, part(sums, slice(0, 1)))
    assert doubled.averages(0)[0] != pytest.approx(expected, rel=1e-6)


def test_replicates_are_weighted_sums_by_hand() -> None:
    draw = np.random.default_rng(1)
    sums = articles(draw, 6)
    weights = poisson_weights(sums.article, 4, seed=9)
    found = replicates_of(sums, replicates=4, seed=9).averages(0)
    for replicate in range(5):
        total, count = np.zeros((2, 2, 2)), np.zeros(2)
        for article in range(6):
            total += weights[replicate, article] * sums.sums[article, 0, :, 0]
            count += weights[replicate, article] * sums.counts[article, 0, :, 0]
        assert found[replicate] == pytest.approx(total / count[:, None, None], rel=1e-12)


def test_an_interval_is_the_middle_95_per_cent_of_the_replicates_that_have_a_number() -> None:
    for number in (1, 2, 7, 40, 1_000):
        values = np.random.default_rng(number).normal(size=number)
        expected = np.quantile(values, [0.025, 0.975])
        assert percentile_interval(np.append(values, np.nan)) == pytest.approx(expected, rel=1e-12, abs=1e-14)
        assert percentile_interval(np.append(values, [np.nan] * (number + 1))) == (None, None)


def test_the_interval_covers_the_ratio_where_one_over_pairs_would_not() -> None:
    draw = np.random.default_rng(2)
    trials, covered, naive = 80, 0, 0
    for trial in range(trials):
        sums = articles(draw, 60)
        averages = replicates_of(sums, replicates=300, seed=trial).averages(0).mean(axis=(2, 3))
        low, high = percentile_interval(averages[1:, 0])
        truth = 0.015 * np.exp(0.4**2 / 2) * np.exp(0.1**2 / 2)
        assert low is not None
        assert high is not None
        covered += low < truth < high
        # As if pairs were independent: their spread is the articles', their number is thousands.
        spread = 0.015 * 0.43 / np.sqrt(sums.counts[:, 0, 0].sum())
        naive += abs(averages[0, 0] - truth) < 1.96 * spread
    # Percentile intervals of 60 skewed articles fall a little short of 95 %.
    assert covered / trials > 0.95 - 5 * np.sqrt(0.95 * 0.05 / trials)
    assert naive / trials < 0.5


def test_a_ratio_is_null_without_pairs_or_unless_its_denominator_is_above_zero() -> None:
    draw = np.random.default_rng(4)
    same = 1 + 0.1 * draw.normal(size=200)
    for level, there in ((1.0, True), (0.05, False), (-0.05, False), (-1.0, False)):
        found = contrast(same, level + 0.1 * draw.normal(size=200))
        assert [found.ratio is not None, found.low is not None] == [there, there]
        assert found.difference_low is not None
    # Without replicates the number itself decides.
    ratios = [contrast(same[:1], np.array([level])).ratio for level in (0.1, 0.0, -0.1)]
    assert [ratio is None for ratio in ratios] == [False, True, True]
    for sides in ((same * np.nan, same), (same, same * np.nan)):
        assert contrast(*sides).ratio is None
    for one, other in (([1.0, 1.1, 0.9], [2.0, np.nan, np.nan]), ([1.0, np.nan, np.nan], [2.0, 1.9, 2.1])):
        gap = contrast(np.array(one), np.array(other))
        assert (gap.ratio, gap.low, gap.high, gap.difference_low) == (0.5, None, None, None)
        assert gap.replicates_left_out == 2


def test_intervals_are_over_the_replicates_that_have_pairs_of_both_kinds() -> None:
    draw = np.random.default_rng(7)
    same, different, auc = (level + 0.1 * draw.normal(size=401) for level in (2.0, 1.0, 0.7))
    same[5:60], different[40:100] = np.nan, np.nan
    found = contrast(same, different, auc=auc)
    there = np.r_[1:5, 100:401]
    expected = {
        ("low", "high"): same[there] / different[there],
        ("difference_low", "difference_high"): same[there] - different[there],
        ("auc_low", "auc_high"): auc[there],
    }
    for ends, values in expected.items():
        assert [getattr(found, end) for end in ends] == pytest.approx(np.quantile(values, [0.025, 0.975]))
    assert found.replicates_left_out == 95
    # The control: without gaps none is left out, and the interval is another.
    whole = contrast(np.nan_to_num(same, nan=3.0), np.nan_to_num(different, nan=1.0), auc=auc)
    assert whole.replicates_left_out == 0
    assert whole.auc_low != found.auc_low


def test_a_replicate_whose_denominator_crosses_0_is_in_the_upper_tail() -> None:
    draw = np.random.default_rng(9)
    different = np.append(1.0, 1 + 0.49 * draw.standard_normal(20_000))
    same = np.append(3.0, 3 + 0.1 * draw.standard_normal(20_000))
    crossing = int((different <= 0).sum())
    assert 0 < crossing < 500
    found = contrast(same, different)
    ordered = np.sort(np.where(different <= 0, np.inf, same / different)[1:])
    assert found.ratio == 3
    assert (found.low, found.high) == (ordered[499], ordered[-501])
    # The control: with its sign, the ratio of such a replicate would move both ends.
    naive = np.quantile((same / different)[1:], [0.025, 0.975])
    assert naive[0] < ordered[499] - 0.1
    assert naive[1] < ordered[-501] / 1.5
    # Few replicates, one of which crosses: the order statistic is infinite, and there is no upper end.
    few = contrast(np.ones(22), np.append(np.ones(21), -0.01))
    assert few.ratio == 1
    assert (few.low, few.high) == (1, None)


def auc_error(same: np.ndarray, different: np.ndarray) -> float:
    """Half the probability that the two values fall into one bin."""
    return float((same * different).sum() / (same.sum() * different.sum()) / 2)


def test_auc_of_a_histogram_is_exact_up_to_its_bins() -> None:
    draw = np.random.default_rng(5)
    same, different = draw.normal(0.4, 1, size=300), draw.normal(0, 1, size=400)
    exact = (same[:, None] > different).mean()
    for bins in (8, 64, 512):
        edges = np.linspace(-5, 5, bins + 1)
        counts = [np.histogram(values, edges)[0][None].astype(np.float64) for values in (same, different)]
        assert abs(auc_of_histograms(*counts)[0] - exact) <= auc_error(counts[0][0], counts[1][0])
    assert auc_error(counts[0][0], counts[1][0]) < 0.005
    assert auc_of_histograms(counts[1], counts[0]) == pytest.approx(1 - auc_of_histograms(*counts))


def test_seeds_widen_the_interval_by_their_own_spread() -> None:
    draw = np.random.default_rng(6)
    shared = 0.1 * draw.normal(size=2001)
    seeds = np.array([-1.0, 0, 0.5, 1, 2])
    found = SeedDraws.draw(5, 2000, generator=draw).average(seeds[:, None] + shared)
    assert found[0] == pytest.approx(0.5 + shared[0])
    expected = 0.1**2 + seeds.var() / 5
    # The variance of a sample variance of 2,000 normal numbers.
    assert abs(found[1:].var() - expected) < 5 * expected * np.sqrt(2 / 2000)
    assert shared[1:].var() < expected / 5


# Two models.

WORDS, TOPICS, WIDTH = 80, 8, 16
LABELS = Labelling(np.arange(WORDS)[:, None] % TOPICS == np.arange(TOPICS))
DRAWS = TopicDraws.draw(LABELS, 100, generator=np.random.default_rng(0)).weights(LABELS)
ABOUT = PairedRow(model="one", against="other", assignment="one", measure="cosine")


def model(draw: np.random.Generator, topical: float = 0.0, common: float = 1.0) -> Comparable:
    """Cosines of embeddings as they are initialised, with a part that words of one topic share, and one that all do.

    The draws and the permutations are those of every other model.
    """
    own, shared = draw.normal(size=(WORDS, WIDTH)), draw.normal(size=(TOPICS, WIDTH))
    ready = prepared(own + topical * shared[np.arange(WORDS) % TOPICS] + common, "cosine")
    similarities, stratum = Similarities(LABELS, DRAWS), np.zeros(WORDS, dtype=np.int64)
    similarities.add(ready @ ready.T)
    averages = similarities.averages()
    [test] = similarity_tests([ready @ ready.T], LABELS, stratum, 99, generator=np.random.default_rng(1))
    return Comparable(averages.same[0], averages.different[0], averages.auc[0], test.values)


def test_a_model_with_more_topic_structure_is_told_from_one_with_less_and_not_from_itself() -> None:
    draw = np.random.default_rng(5)
    more, less = model(draw, 1.2), model(draw, 0.3)
    found, turned, itself = (compared(*pair, ABOUT) for pair in ((more, less), (less, more), (more, more)))
    assert found.p == turned.p == pytest.approx(0.01)
    assert found.difference_low is not None
    assert found.difference_low > 0
    assert found.low is not None
    assert found.low > 1
    one, other = (contrast(each.same, each.different).ratio for each in (more, less))
    assert one is not None
    assert other is not None
    assert found.ratio_of_ratios == pytest.approx(one / other)
    # The other way round it is the other way round.
    assert turned.difference == pytest.approx(-(found.difference or 0))
    assert turned.difference_high == pytest.approx(-found.difference_low)
    assert (itself.p, itself.difference) == (1, 0)
    assert itself.ratio_of_ratios == pytest.approx(1)


def test_ratios_are_compared_only_where_both_models_have_one() -> None:
    draw = np.random.default_rng(7)
    # Without the part that all words share, cosines of different topics are about 0, and their ratio may be anything.
    topical, centred = model(draw, 1.2), model(draw, common=0.0)
    assert contrast(centred.same, centred.different).ratio is None
    for found in (compared(topical, centred, ABOUT), compared(centred, topical, ABOUT)):
        assert (found.ratio_of_ratios, found.low, found.high) == (None, None, None)
        assert found.difference is not None
    assert compared(topical, topical, ABOUT).ratio_of_ratios is not None


@pytest.mark.parametrize("trials", [100, pytest.param(1_000, marks=pytest.mark.slow)])
def test_two_independent_untrained_models_are_told_apart_in_five_per_cent_of_the_cases(trials: int) -> None:
    draw = np.random.default_rng(8)
    p = [compared(model(draw), model(draw), ABOUT).p or 0 for _ in range(trials)]
    assert abs(np.mean(np.array(p) <= 0.05) - 0.05) < 3 * np.sqrt(0.05 * 0.95 / trials)
    # The control: a trained one is told from an untrained one nearly always.
    p = [compared(model(draw, 0.8), model(draw), ABOUT).p or 0 for _ in range(20)]
    assert np.mean(np.array(p) <= 0.05) > 0.9
