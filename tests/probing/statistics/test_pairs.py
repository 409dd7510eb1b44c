"""Co-occurrence counts and Table 2's rows equal loops."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from support.planted import words_of_one_token
from support.random_pairs import WORDS, random_words, width
from topicscope.probing.statistics.labelling import Labelling
from topicscope.probing.statistics.pairs import (
    PairTable,
    compare_top_pairs,
    count_pairs,
    form_average,
    pair_forms,
    top_pairs,
)
from topicscope.probing.study import MeasuredText
from topicscope.records import PassagesFile, TopPairs
from topicscope.text.tokens import Passages


def counted_by_loop(words: np.ndarray, offsets: np.ndarray) -> Counter[tuple[int, int]]:
    counts: Counter[tuple[int, int]] = Counter()
    for start, stop in pairwise(offsets):
        for query in range(start, stop):
            for key in range(start, stop):
                if words[query] != words[key] and words[query] >= 0 and words[key] >= 0:
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
    first, directed = draw.integers(0, 5, 40), draw.random((2, 40))
    second = (first + draw.integers(1, 5, 40)) % 5
    whole = PairTable.of(first, second, directed, 5)
    parts = [PairTable.of(first[part], second[part], directed[:, part], 5) for part in (slice(0, 9), slice(9, 40))]
    merged = PairTable.merged(5, parts)
    assert (merged.codes == whole.codes).all()
    assert merged.sums == pytest.approx(whole.sums)
    assert (np.diff(whole.codes) > 0).all()
    expected = [directed.sum(axis=0)[((first == i) & (second == j)) | ((first == j) & (second == i))].sum()
                for i, j in zip(first, second, strict=True)]  # fmt: skip
    assert whole.values("sums", second, first) == pytest.approx(expected)
    assert PairTable.merged(5, []).values("counts", first, second).tolist() == [0.0] * 40


def test_table_2_compares_same_topic_pairs_with_so_many_top_pairs() -> None:
    draw = np.random.default_rng(2)
    words, offsets = random_words(draw)
    counted = count_pairs(words, offsets, WORDS)
    table = PairTable(WORDS, counted.codes, counted.counts, counted.counts * draw.random(len(counted.codes)))
    labelling = Labelling(np.repeat(np.arange(3), 4)[:, None] == np.arange(3))
    vectors = draw.normal(size=(WORDS, 5))
    [found] = compare_top_pairs(table, [labelling], [[vectors]], number=6, replicates=50, generator=draw)
    assert found.pairs == 6
    rows = [
        (count, int(i), int(j), total)
        for i, j, count, total in zip(table.first, table.second, table.counts, table.sums, strict=True)
    ]
    best = sorted(rows, key=lambda row: (-row[0], row[1], row[2]))[:6]
    assert found.attention.different == pytest.approx(sum(row[3] for row in best) / sum(row[0] for row in best))
    assert found.cosine.different == pytest.approx(np.mean([vectors[i] @ vectors[j] for _, i, j, _ in best]))
    same = [row for row in rows if row[1] // 4 == row[2] // 4]
    assert found.attention.same == pytest.approx(sum(row[3] for row in same) / sum(row[0] for row in same))
    pairs = [vectors[i] @ vectors[j] for i in range(WORDS) for j in range(i) if i // 4 == j // 4]
    assert found.cosine.same == pytest.approx(np.mean(pairs))
    assert found.attention.different != pytest.approx(found.attention.same)
    assert len(top_pairs(table, 10**6)) == len(rows)


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
        [found] = compare_top_pairs(
            table, labellings, sets, number=190, replicates=400, generator=np.random.default_rng(0)
        )
        return found

    one, other, both, twice = compared(good), compared(bad), compared(good, bad), compared(good, good)
    for name in ("attention", "cosine"):
        expected = (getattr(one, name).same + getattr(other, name).same) / 2
        assert getattr(both, name).same == pytest.approx(expected)
    # Seeds that agree add nothing, those that do not add their spread: ± half of their distance or nothing.
    assert width(twice.cosine) == pytest.approx(width(one.cosine))
    gap = abs((one.cosine.difference or 0) - (other.cosine.difference or 0)) / 2
    assert width(both.cosine) > max(width(one.cosine), 1.5 * gap)


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
    monkeypatch.setattr("topicscope.probing.statistics.pairs.BLOCK", 1)
    assert (pair_forms(words, first, second, values) == found).all()


def test_the_words_of_top_pairs_are_found_among_all_words(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(5)
    words, offsets = random_words(draw)
    # Tokens are other numbers than places; every tenth is part of a word, and one token is a stop word.
    tokens, whole = (words + 7).astype(np.int32), np.arange(len(words)) % 10 != 0
    articles = np.zeros(len(offsets) - 1, dtype=np.int32)
    spellings = np.where(whole, tokens, np.int32(-1))
    about = PassagesFile(source="", problems=[])
    passages = Passages(tokens, spellings, offsets.astype(np.int64), articles, about)
    every = np.setdiff1d(np.unique(tokens[words >= 0]), [9])
    seen = np.where(whole & np.isin(tokens, every), words, -1)
    expected = counted_by_loop(seen, offsets)
    best = sorted((-count, pair) for pair, count in expected.items() if pair[0] != pair[1])[:4]
    text = MeasuredText(passages, words_of_one_token(int(tokens.max()) + 1), np.arange(len(passages)))
    found = text.most_co_occurring(every, 4)
    assert found.tolist() == sorted({word + 7 for _, pair in best for word in pair})
    # The controls: more pairs have more words; the least frequent words are not looked at.
    assert len(text.most_co_occurring(every, 60)) > len(found)
    monkeypatch.setattr("topicscope.probing.study.MOST_FREQUENT", 3)
    assert len(text.most_co_occurring(every, 60)) == 3
