"""Attention sums over pairs of words equal a loop over every pair of positions."""

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from topicscope.probing.packing import packed, unpacked
from topicscope.probing.statistics.attention import (
    BINS,
    LOOKED_UP,
    UNIFORM,
    PairAccumulator,
    PermutedLabels,
    ShardSums,
    histogram_bin,
    passage_pairs,
)
from topicscope.probing.statistics.labelling import DIFFERENT_TOPIC, SAME_TOPIC, SAME_WORD, Classes, Labelling
from topicscope.probing.statistics.matching import DISTANCES, Strata

WORDS, TOPICS, LAYERS, HEADS = 9, 4, 2, 3


@dataclass(frozen=True, eq=False)
class Passage:
    attention: np.ndarray
    words: np.ndarray
    article: int


def random_passages(draw: np.random.Generator, *, causal: bool = False, count: int = 6) -> list[Passage]:
    found = []
    for _ in range(count):
        length = int(draw.integers(1, 12))
        attention = draw.random((LAYERS, HEADS, length, length)).astype(np.float32)
        if causal:
            attention = np.tril(attention)
        attention /= attention.sum(axis=-1, keepdims=True)
        found.append(Passage(attention, draw.integers(-1, WORDS, size=length), int(draw.integers(3))))
    return found


def random_labellings(draw: np.random.Generator) -> tuple[Labelling, ...]:
    one = np.eye(TOPICS, dtype=bool)[draw.integers(TOPICS, size=WORDS)] & (draw.random((WORDS, 1)) < 0.8)
    several = draw.random((WORDS, TOPICS)) < 0.3
    return Labelling(one), Labelling(several)


def class_by_loop(labelling: Labelling, first: int, second: int) -> int | None:
    if not labelling.membership[first].any() or not labelling.membership[second].any():
        return None
    if first == second:
        return SAME_WORD
    shared = any(labelling.membership[first, t] and labelling.membership[second, t] for t in range(TOPICS))
    return SAME_TOPIC if shared else DIFFERENT_TOPIC


def sums_by_loop(
    passages: list[Passage], labelling: Labelling, *, causal: bool, skip: int = 0
) -> tuple[dict[tuple[int, int, int, int], float], dict[tuple[int, int], int]]:
    """The obvious loop over passages, layers, heads, queries and keys."""
    sums: dict[tuple[int, int, int, int], float] = defaultdict(float)
    counts: dict[tuple[int, int], int] = defaultdict(int)
    for passage in passages:
        length = len(passage.words)
        for query in range(skip, length):
            for key in range(skip, length):
                unusable = query == key or (causal and key > query)
                if unusable or passage.words[query] < 0 or passage.words[key] < 0:
                    continue
                kind = class_by_loop(labelling, passage.words[query], passage.words[key])
                if kind is None:
                    continue
                seen = query + 1 if causal else length
                counts[passage.article, kind] += 1
                for layer in range(LAYERS):
                    for head in range(HEADS):
                        value = float(passage.attention[layer, head, query, key]) * seen / 100
                        sums[passage.article, kind, layer, head] += value
    return sums, counts


def accumulated(
    passages: list[Passage], labellings: tuple[Labelling, ...], *, causal: bool = False, skip: int = 0, **more: Any
) -> ShardSums:
    accumulator = PairAccumulator(labellings, LAYERS, HEADS, **more)
    for passage in passages:
        accumulator.add(
            passage_pairs(list(passage.attention), passage.words, causal=causal, skip=skip), passage.article
        )
    return accumulator.result()


@pytest.mark.parametrize("cases", [12, pytest.param(200, marks=pytest.mark.slow)])
def test_attention_sums_by_class_equal_a_loop_over_queries_and_keys(cases: int) -> None:
    for seed in range(cases):
        draw, causal, skip = np.random.default_rng(seed), seed % 2 == 1, seed // 2 % 2
        passages, labellings = random_passages(draw, causal=causal), random_labellings(draw)
        shard = accumulated(passages, labellings, causal=causal, skip=skip)
        assert shard.article.tolist() == sorted({passage.article for passage in passages})
        for place, labelling in enumerate(labellings):
            sums, counts = sums_by_loop(passages, labelling, causal=causal, skip=skip)
            expected = np.zeros_like(shard.sums[:, place])
            for (article, kind, layer, head), value in sums.items():
                expected[shard.article.tolist().index(article), kind, layer, head] = value
            np.testing.assert_allclose(shard.sums[:, place], expected, rtol=1e-9, atol=1e-15)
            numbers = [[counts[article, kind] for kind in range(3)] for article in shard.article.tolist()]
            assert shard.counts[:, place].tolist() == numbers


def test_uniform_attention_is_one_hundredth_in_every_class_whatever_the_lengths() -> None:
    draw = np.random.default_rng(1)
    for causal in (False, True):
        uniform = []
        for passage in random_passages(draw, count=12):
            length = len(passage.words)
            seen = np.arange(1, length + 1)[:, None] if causal else np.full((length, 1), length)
            flat = np.broadcast_to(1 / seen, (LAYERS, HEADS, length, length)).astype(np.float64)
            uniform.append(Passage(np.tril(flat) if causal else flat, passage.words, passage.article))
        found = accumulated(uniform, random_labellings(draw), causal=causal)
        present = found.counts > 0
        assert present.sum() > 10
        averages = found.sums[present] / found.counts[present][:, None, None]
        assert averages == pytest.approx(UNIFORM, rel=1e-12)
        # The control: without the lengths, shorter passages weigh more.
        raw = [passage.attention[0, 0][-1, 0] for passage in uniform]
        assert np.ptp(raw) > 0.01
    # Special tokens are keys too: with two of them, uniform attention is a little less.
    pairs = passage_pairs([np.full((HEADS, 8, 8), 1 / 10)], np.arange(8))
    assert pairs.directed == pytest.approx(UNIFORM * 8 / 10)


def test_pairs_of_words_hold_the_same_sums_as_the_classes() -> None:
    draw = np.random.default_rng(2)
    passages, labellings = random_passages(draw, count=20), random_labellings(draw)
    shard = accumulated(passages, labellings)
    for place, labelling in enumerate(labellings):
        [classes] = Classes((labelling,)).of(shard.pairs.first, shard.pairs.second)
        for kind in range(3):
            chosen = classes == kind
            expected = shard.sums[:, place, kind].mean(axis=(1, 2)).sum()
            assert shard.pairs.sums[chosen].sum() == pytest.approx(expected, rel=1e-12)
            assert shard.pairs.counts[chosen].sum() == shard.counts[:, place, kind].sum()
    other = shard.sums[:, 0, SAME_TOPIC].sum()
    assert shard.pairs.sums.sum() != pytest.approx(other, rel=1e-3)


def test_a_permuted_labelling_gives_what_the_permuted_words_give() -> None:
    draw = np.random.default_rng(3)
    passages, labellings = random_passages(draw, count=20), random_labellings(draw)
    orders = []
    for labelling in labellings:
        kept = np.flatnonzero(labelling.kept)
        order = np.tile(np.arange(WORDS), (5, 1))
        order[1:, kept] = [draw.permutation(kept) for _ in range(4)]
        orders.append(order)
    permuted = tuple(PermutedLabels(*pair) for pair in zip(labellings, orders, strict=True))
    shard = accumulated(passages, labellings, permuted=permuted)
    for place, (labelling, order) in enumerate(zip(labellings, orders, strict=True)):
        relabelled = tuple(Labelling(labelling.membership[each]) for each in order)
        expected = accumulated(passages, relabelled)
        found = shard.permuted[place]
        assert found.sums == pytest.approx(expected.sums[:, :, SAME_TOPIC].sum(axis=0), rel=1e-12)
        assert found.counts == pytest.approx(expected.counts[:, :, SAME_TOPIC].sum(axis=0))
        # The first permutation moves nothing, and the others do.
        assert found.counts[0] == shard.counts[:, place, SAME_TOPIC].sum()
        assert np.abs(found.sums[1:] - found.sums[0]).max() > 1e-3


@pytest.mark.parametrize("table", [True, False])
def test_words_of_several_topics_are_compared_as_their_topics_are(table: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not table:
        monkeypatch.setattr("topicscope.probing.statistics.attention.LOOKED_UP", 10)
    draw = np.random.default_rng(8)
    # More topics than there are bits to compare them by.
    several = Labelling(draw.random((40, 70)) < 0.05)
    kept = np.flatnonzero(several.kept)
    order = np.tile(np.arange(40), (6, 1))
    order[:, kept] = [draw.permutation(kept) for _ in range(6)]
    first, second = draw.choice(kept, size=(2, 200))
    found = np.zeros((200, 6), dtype=bool)
    found[PermutedLabels(several, order).same_topic(first, second)] = True
    expected = (several.membership[order.T[first]] & several.membership[order.T[second]]).any(axis=-1)
    assert (found == expected).all()
    assert (found != expected[:, ::-1]).any()
    # The table's last place fits into 32 bits for as many words as are looked up, and not for all.
    assert LOOKED_UP**2 - 1 <= np.iinfo(np.int32).max < 46_341**2 - 1


def test_histograms_count_every_direction_of_every_pair_in_increasing_bins() -> None:
    draw = np.random.default_rng(5)
    shard = accumulated(random_passages(draw, count=10), random_labellings(draw))
    assert shard.histograms.sum(axis=-1) == pytest.approx(shard.counts)
    values = UNIFORM * np.geomspace(1 / 200, 50, 500)
    bins = histogram_bin(values)
    assert (np.diff(bins) >= 0).all()
    assert (bins[0], bins[-1], histogram_bin(np.zeros(1))[0]) == (0, BINS - 1, 0)
    inside = (bins > 0) & (bins < BINS - 1)
    # Two values of one bin differ by less than a sixteenth of a doubling.
    for each in np.unique(bins[inside]):
        assert np.ptp(np.log2(values[bins == each])) < 1 / 16


def test_matched_sums_are_by_stratum_and_distance() -> None:
    draw = np.random.default_rng(6)
    passages, labellings = random_passages(draw, count=10), random_labellings(draw)
    stratum = draw.integers(2, size=(WORDS, WORDS))
    strata = Strata(np.maximum(stratum, stratum.T), 2, np.zeros(WORDS, dtype=np.int64))
    shard = accumulated(passages, labellings, strata=(strata, strata))
    expected = np.zeros((3, strata.cells))
    for passage in passages:
        for query, first in enumerate(passage.words):
            for key, second in enumerate(passage.words):
                kind = class_by_loop(labellings[1], first, second) if min(first, second) >= 0 else None
                if kind is not None and query != key:
                    near = sum(abs(query - key) > end for end in DISTANCES)
                    value = passage.attention[:, :, query, key].astype(float).mean() * len(passage.words) / 100
                    expected[kind, strata.pair_bins[first, second] * 5 + near] += value
    assert shard.matched_sums[:, 1].sum(axis=0) == pytest.approx(expected[SAME_TOPIC:], rel=1e-9)
    assert shard.matched_counts.sum(axis=(0, 3)) == pytest.approx(shard.counts.sum(axis=0)[:, SAME_TOPIC:])
    assert np.ptp(expected[DIFFERENT_TOPIC]) > 0.01


def test_a_shard_is_the_same_after_a_file_and_may_be_empty(tmp_path: Path) -> None:
    draw = np.random.default_rng(7)
    labellings = random_labellings(draw)
    permuted = (PermutedLabels(labellings[0], np.tile(np.arange(WORDS), (3, 1))),)
    strata = (Strata(np.zeros((WORDS, WORDS), dtype=np.int64), 1, np.zeros(WORDS, dtype=np.int64)),) * 2
    for passages in (random_passages(draw), []):
        shard = accumulated(passages, labellings, permuted=permuted, strata=strata)
        (tmp_path / "shard").write_bytes(packed(shard))
        restored = unpacked(tmp_path / "shard", ShardSums)
        assert packed(restored) == packed(shard)
        assert restored.sums.shape == shard.sums.shape
        assert restored.sums.shape[1:] == (2, 3, LAYERS, HEADS)
