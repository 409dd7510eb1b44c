"""Strata hold like pairs, and matching removes what it matches on and nothing else."""

import numpy as np

from support.random_pairs import WORDS, random_words
from topicscope.probing.statistics.attention import AttentionReplicates, PairAccumulator, PassagePairs
from topicscope.probing.statistics.cooccurrence import count_pairs
from topicscope.probing.statistics.labelling import Labelling
from topicscope.probing.statistics.matching import (
    MatchedWords,
    Strata,
    cells_by_labelling,
    co_occurrence_strata,
    matched_averages,
    matched_co_occurrence,
    matched_word_co_occurrence,
    quarter_doubling_bins,
)
from topicscope.probing.statistics.resampling import contrast


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
    adding = PairAccumulator((labelling,), 1, 1, strata=(strata,))
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
