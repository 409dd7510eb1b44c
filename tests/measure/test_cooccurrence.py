"""Co-occurrence counts, Table 2's rows and matched comparisons equal loops, and matching removes what it matches on."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from topicscope.measure.attention_pairs import PairAccumulator, PairPlan, PassagePairs
from topicscope.measure.bootstrap import AttentionReplicates
from topicscope.measure.contrast import Contrast, contrast
from topicscope.measure.cooccurrence import TopPairs, compare_top_pairs, count_pairs, top_pairs
from topicscope.measure.labelling import Labelling
from topicscope.measure.matched_words import (
    MatchedSimilarity,
    MatchedWords,
    jackknife_interval,
    matched_co_occurrence,
    matched_similarity,
    matched_word_co_occurrence,
)
from topicscope.measure.matching import (
    Strata,
    cells_by_labelling,
    co_occurrence_strata,
    matched_averages,
    quarter_doubling_bins,
)
from topicscope.measure.pair_forms import form_average, pair_forms
from topicscope.measure.pair_table import PairTable

WORDS = 12


def random_words(draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    lengths = draw.integers(0, 15, size=30)
    return draw.integers(-1, WORDS, size=lengths.sum()), np.concatenate([[0], np.cumsum(lengths)])


def counted_by_loop(words: np.ndarray, offsets: np.ndarray) -> Counter[tuple[int, int]]:
    counts: Counter[tuple[int, int]] = Counter()
    for start, stop in pairwise(offsets):
        for query in range(start, stop):
            for key in range(start, stop):
                if query != key and words[query] >= 0 and words[key] >= 0:
                    first, second = sorted((int(words[query]), int(words[key])))
                    counts[first, second] += 1
    return counts


def test_counts_equal_a_loop_over_positions() -> None:
    words, offsets = random_words(np.random.default_rng(0))
    table, expected = count_pairs(words, offsets, WORDS), counted_by_loop(words, offsets)
    pairs = zip(table.first.tolist(), table.second.tolist(), strict=True)
    assert dict(zip(pairs, table.counts, strict=True)) == expected
    # The control: passages count, not the whole text.
    assert counted_by_loop(words, offsets[[0, -1]]) != expected


def test_tables_merge_by_adding_and_find_their_pairs() -> None:
    draw = np.random.default_rng(1)
    first, second, directed = draw.integers(0, 5, 40), draw.integers(0, 5, 40), draw.random((2, 40))
    whole = PairTable.of(first, second, directed, 5)
    parts = [PairTable.of(first[part], second[part], directed[:, part], 5) for part in (slice(0, 9), slice(9, 40))]
    merged = PairTable.merged(parts)
    assert (merged.codes == whole.codes).all()
    assert merged.sums == pytest.approx(whole.sums)
    assert (np.diff(whole.codes) > 0).all()
    places = whole.places(second, first)
    assert (whole.first[places] == np.minimum(first, second)).all()
    assert PairTable.empty(5).places(first, second).tolist() == [-1] * 40
    gone = PairTable(5, whole.codes[1:], whole.counts[1:], whole.sums[1:])
    assert gone.places(whole.first[:1], whole.second[:1]).tolist() == [-1]


def test_table_2_takes_as_many_top_pairs_as_a_topic_has() -> None:
    draw = np.random.default_rng(2)
    words, offsets = random_words(draw)
    counted = count_pairs(words, offsets, WORDS)
    table = PairTable(WORDS, counted.codes, counted.counts, counted.counts * draw.random(len(counted.codes)))
    labelling = Labelling(np.repeat(np.arange(3), 4)[:, None] == np.arange(3))
    vectors = draw.normal(size=(WORDS, 5))
    [found] = compare_top_pairs(table, [labelling], [[vectors]], replicates=50, generator=draw)
    assert found.pairs == 6
    rows = [
        (count, int(i), int(j), total)
        for i, j, count, total in zip(table.first, table.second, table.counts, table.sums, strict=True)
        if i != j
    ]
    best = sorted(rows, key=lambda row: (-row[0], row[1], row[2]))[:6]
    assert found.attention.different == pytest.approx(sum(row[3] for row in best) / sum(row[0] for row in best))
    assert found.cosine.different == pytest.approx(np.mean([vectors[i] @ vectors[j] for _, i, j, _ in best]))
    same = [row for row in rows if row[1] // 4 == row[2] // 4]
    assert found.attention.same == pytest.approx(sum(row[3] for row in same) / sum(row[0] for row in same))
    pairs = [vectors[i] @ vectors[j] for i in range(WORDS) for j in range(i) if i // 4 == j // 4]
    assert found.cosine.same == pytest.approx(np.mean(pairs))
    assert found.attention.different != pytest.approx(found.attention.same)
    assert len(top_pairs(table, 10**6, labelling.kept)) == len(rows)


def test_words_that_never_meet_have_no_attention_and_do_have_similarity() -> None:
    labelling = Labelling(np.repeat(np.arange(2), 3)[:, None] == np.arange(2))
    vectors = np.eye(6) + 1

    def compared(table: PairTable) -> TopPairs:
        draw = np.random.default_rng(0)
        [found] = compare_top_pairs(table, [labelling], [[vectors]], replicates=40, generator=draw)
        return found

    alone = compared(PairTable.empty(6))
    assert alone.pairs == 0
    assert (alone.attention.ratio, alone.attention.ratio_note) == (None, "no pair to average over")
    # (e_i + 1)·(e_j + 1) = 6 + 2.
    assert alone.cosine.same == pytest.approx(8)
    # The control: two words that meet once have attention.
    met = compared(PairTable(6, np.array([0 * 6 + 1, 0 * 6 + 4]), np.array([2.0, 2.0]), np.array([1.0, 0.5])))
    assert (met.pairs, met.attention.same) == (2, 0.5)
    assert met.attention.different == pytest.approx(0.375)


def test_table_2_is_of_the_words_that_the_threshold_keeps() -> None:
    draw = np.random.default_rng(11)
    words, offsets = random_words(draw)
    counted = count_pairs(words, offsets, WORDS)
    table = PairTable(WORDS, counted.codes, counted.counts, counted.counts * draw.random(len(counted.codes)))
    member = np.repeat(np.arange(3), 4)[:, None] == np.arange(3)
    kept = np.arange(WORDS) % 4 != 0
    vectors = draw.normal(size=(WORDS, 5))
    part = Labelling(member & kept[:, None])
    [found] = compare_top_pairs(table, [part], [[vectors[kept]]], replicates=20, generator=draw)
    rows = [
        (count, int(i), int(j), total)
        for i, j, count, total in zip(table.first, table.second, table.counts, table.sums, strict=True)
        if i != j and kept[i] and kept[j]
    ]
    best = sorted(rows, key=lambda row: (-row[0], row[1], row[2]))[:3]
    assert found.pairs == 3
    assert found.attention.different == pytest.approx(sum(row[3] for row in best) / sum(row[0] for row in best))
    assert found.cosine.different == pytest.approx(np.mean([vectors[i] @ vectors[j] for _, i, j, _ in best]))
    # The control: the pairs that co-occur most have other words too.
    every = top_pairs(table, 3, np.ones(WORDS, dtype=bool))
    assert not (kept[table.first[every]] & kept[table.second[every]]).all()


def test_table_2_averages_lda_seeds_and_its_intervals_hold_their_spread() -> None:
    draw = np.random.default_rng(12)
    first, second = np.triu_indices(60, k=1)
    counts = draw.integers(1, 100, size=len(first)).astype(np.float64)
    table = PairTable(60, first * 60 + second, counts, counts * draw.random(len(counts)))
    topic = np.repeat(np.arange(3), 20)
    vectors = 2 * np.eye(3)[topic] + 0.1 * draw.normal(size=(60, 3))
    good, bad = (Labelling(each[:, None] == np.arange(3)) for each in (topic, np.roll(topic, 5)))

    def compared(*labellings: Labelling) -> TopPairs:
        sets = [[vectors] * len(labellings)]
        [found] = compare_top_pairs(table, labellings, sets, replicates=400, generator=np.random.default_rng(0))
        return found

    one, other, both, twice = compared(good), compared(bad), compared(good, bad), compared(good, good)
    for name in ("attention", "cosine"):
        expected = (getattr(one, name).same + getattr(other, name).same) / 2
        assert getattr(both, name).same == pytest.approx(expected)
    # Seeds that agree add nothing, those that do not add their spread: ± half of their distance or nothing.
    assert width(twice.cosine) == pytest.approx(width(one.cosine))
    gap = abs(one.cosine.difference - other.cosine.difference) / 2
    assert width(both.cosine) > max(width(one.cosine), 1.5 * gap)


def width(found: Contrast | MatchedSimilarity) -> float:
    assert found.difference_low is not None
    assert found.difference_high is not None
    return found.difference_high - found.difference_low


def test_bins_double_in_four_steps_and_strata_hold_like_pairs() -> None:
    counts = np.array([0.0, 1, 2, 3, 4, 5, 6, 7, 8, 16, 19, 20, 22, 23, 1024, 1500])
    assert quarter_doubling_bins(counts).tolist() == [0, 1, 5, 7, 9, 10, 11, 12, 13, 17, 17, 18, 18, 19, 41, 43]
    draw = np.random.default_rng(3)
    words, offsets = random_words(draw)
    table, frequency = count_pairs(words, offsets, WORDS), draw.random(WORDS)
    strata = co_occurrence_strata(table).by_frequency(frequency, np.ones(len(frequency), dtype=bool), 3)
    matrix = strata.matrix
    assert (matrix == matrix.T).all()
    assert matrix.max() < strata.strata == (len(np.unique(quarter_doubling_bins(table.counts / 2))) + 1) * 6
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


def test_levels_of_frequency_are_those_of_the_kept_words() -> None:
    draw = np.random.default_rng(13)
    frequency = draw.permutation(np.arange(30.0))
    kept = frequency >= 15
    strata = Strata(np.zeros((30, 30), dtype=np.uint8), 1).by_frequency(frequency, kept, 3)
    assert strata.level is not None
    assert np.bincount(strata.level[kept]).tolist() == [5, 5, 5]
    assert all((strata.level[kept & (frequency >= 15 + 5 * each)] >= each).all() for each in range(3))
    # The control: among all words they would have two levels only, one of them of five words.
    every = Strata(strata.pair_bins, 1).by_frequency(frequency, np.ones(30, dtype=bool), 3)
    assert every.level is not None
    assert np.bincount(every.level[kept]).tolist() == [0, 5, 10]
    several = cells_by_labelling([strata, every], *np.triu_indices(30, k=1), np.full(435, 4))
    for each, cells in zip((strata, every), several, strict=True):
        assert (cells == each.cells(*np.triu_indices(30, k=1), np.full(435, 4))).all()
    small = strata.among(kept)
    assert (small.matrix == strata.matrix[np.ix_(kept, kept)]).all()


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
) -> tuple[float | None, float | None]:
    """The interval of the matched ratio, from passages' words and the attention of their pairs of positions."""
    adding = PairAccumulator(PairPlan((labelling,), strata=(strata,)), 1, 1)
    early, late = np.triu_indices(words.shape[1], k=1)
    for article, (passage, directed) in enumerate(zip(words, attention, strict=True)):
        both = directed.sum(axis=0)[:, None, None]
        adding.add(PassagePairs(passage[early], passage[late], late - early, both, directed), article)
    replicates = AttentionReplicates(200, seed=0)
    replicates.add(adding.result().articles)
    found = contrast(replicates.matched(0).same, replicates.matched(0).different)
    return found.low, found.high


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
    fine = co_occurrence_strata(table).by_frequency(frequency, np.ones(len(frequency), dtype=bool), 3)
    low, high = matched_ratio(words, attention, labelling, fine)
    assert low is not None
    assert high is not None
    assert low < 1 < high
    balance = matched_co_occurrence(table, table, labelling, fine)
    assert abs(balance.same / balance.different - 1) < 0.1
    of_words = matched_word_co_occurrence(table, labelling, MatchedWords(labelling, fine))
    assert abs(of_words.same / of_words.different - 1) < 0.1
    # The control: with all pairs of 16 co-occurrences and more in one bin, what is left of them looks like topics.
    capped = Strata(np.where(counts > 0, np.clip(np.floor(np.log2(np.maximum(counts, 1))) + 2, 0, 6), 0).astype(int), 7)
    low, _ = matched_ratio(words, attention, labelling, capped)
    assert low is not None
    assert low > 1
    coarse = matched_co_occurrence(table, table, labelling, capped)
    assert coarse.same / coarse.different > 1.2
    # And what topics have beside is not matched away.
    same = labelling.shares(words[:, early].ravel(), words[:, late].ravel()).reshape(100, 1, -1)
    low, _ = matched_ratio(words, attention * np.where(same, 1.2, 1.0), labelling, fine)
    assert low is not None
    assert low > 1.1


def test_distance_is_part_of_a_cell() -> None:
    strata = Strata(np.array([[0, 1], [1, 0]]), 2, distances=(2, 5))
    first, second = np.array([0, 0, 0, 0, 1]), np.array([1, 1, 1, 0, 0])
    assert strata.cells(first, second, np.array([1, 2, 3, 6, 9])).tolist() == [3, 3, 4, 2, 5]
    assert strata.size == 6


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


def test_pair_forms_count_a_pair_as_often_as_both_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(8)
    first, second = np.array([0, 0, 1]), np.array([1, 2, 2])
    values, words = draw.random((3, 2)) + 1, np.array([[1.0, 1, 1], [2, 1, 0], [0, 0, 3]])
    found = pair_forms(words, first, second, values)
    assert found[0] == pytest.approx(values.sum(axis=0))
    assert found[1] == pytest.approx(2 * values[0])
    assert found[2] == pytest.approx([0, 0])
    average = form_average(found[:, 0], found[:, 1])
    assert average[1] == pytest.approx(values[0, 0] / values[0, 1])
    assert np.isnan(average[2])
    monkeypatch.setattr("topicscope.measure.pair_forms.BLOCK", 1)
    assert (pair_forms(words, first, second, values) == found).all()
