"""Attention sums over pairs of words equal a loop over every pair of positions."""

from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.random_pairs import one_stratum
from topicscope.probing.packing import packed, unpacked
from topicscope.probing.statistics.attention import (
    BINS,
    UNIFORM,
    PairAccumulator,
    PermutedLabels,
    ShardSums,
    histogram_bin,
    passage_pairs,
)
from topicscope.probing.statistics.labelling import DIFFERENT_TOPIC, SAME_TOPIC, Labelling, kinds_of
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


def sums_by_loop(
    passages: list[Passage], labelling: Labelling, *, causal: bool, skip: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """The obvious loop over passages, queries and keys: by article, kind and bin of distance."""
    sums, counts = np.zeros((3, 2, 5, LAYERS, HEADS)), np.zeros((3, 2, 5))
    member = labelling.membership
    for passage in passages:
        length = len(passage.words)
        for query in range(skip, length):
            for key in range(skip, query if causal else length):
                one, other = passage.words[query], passage.words[key]
                if one == other or min(one, other) < 0 or not (member[one].any() and member[other].any()):
                    continue
                kind = SAME_TOPIC if (member[one] & member[other]).any() else DIFFERENT_TOPIC
                at = passage.article, kind, sum(abs(query - key) > end for end in DISTANCES)
                sums[at] += passage.attention[:, :, query, key].astype(float) * (query + 1 if causal else length) / 100
                counts[at] += 1
    return sums, counts


def accumulated(
    passages: list[Passage],
    labellings: tuple[Labelling, ...],
    strata: Strata | None = None,
    *,
    causal: bool = False,
    skip: int = 0,
    **more: Any,
) -> ShardSums:
    accumulator = PairAccumulator(labellings, strata or one_stratum(labellings), LAYERS, HEADS, **more)
    for passage in passages:
        accumulator.add(
            passage_pairs(list(passage.attention), passage.words, causal=causal, skip=skip), passage.article
        )
    return accumulator.result()


@pytest.mark.parametrize("cases", [12, pytest.param(200, marks=pytest.mark.slow)])
def test_attention_sums_equal_a_loop_over_queries_and_keys(cases: int) -> None:
    for seed in range(cases):
        draw, causal, skip = np.random.default_rng(seed), seed % 2 == 1, seed // 2 % 2
        passages, labellings = random_passages(draw, causal=causal), random_labellings(draw)
        shard = accumulated(passages, labellings, causal=causal, skip=skip)
        assert shard.article.tolist() == sorted({passage.article for passage in passages})
        for place, labelling in enumerate(labellings):
            sums, counts = sums_by_loop(passages, labelling, causal=causal, skip=skip)
            np.testing.assert_allclose(shard.sums[:, place], sums[shard.article], rtol=1e-9, atol=1e-15)
            assert (shard.counts[:, place] == counts[shard.article]).all()


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
    for place, kinds in enumerate(kinds_of(labellings, shard.pairs.first, shard.pairs.second)):
        for kind in (SAME_TOPIC, DIFFERENT_TOPIC):
            expected = shard.sums[:, place, kind].mean(axis=(-1, -2)).sum()
            assert shard.pairs.sums[kinds == kind].sum() == pytest.approx(expected, rel=1e-12)
            assert shard.pairs.counts[kinds == kind].sum() == shard.counts[:, place, kind].sum()
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
        sums, counts = shard.permuted_sums[place], shard.permuted_counts[place]
        assert sums == pytest.approx(expected.sums[:, :, SAME_TOPIC].sum(axis=(0, 2)), rel=1e-12)
        assert counts == pytest.approx(expected.counts[:, :, SAME_TOPIC].sum(axis=(0, 2)))
        # The first permutation moves nothing, and the others do.
        assert counts[0] == shard.counts[:, place, SAME_TOPIC].sum()
        assert np.abs(sums[1:] - sums[0]).max() > 1e-3


def test_words_of_several_topics_are_compared_as_their_topics_are() -> None:
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


def test_histograms_count_every_direction_of_every_pair_in_increasing_bins() -> None:
    draw = np.random.default_rng(5)
    shard = accumulated(random_passages(draw, count=10), random_labellings(draw))
    assert shard.histograms.sum(axis=-1) == pytest.approx(shard.counts.sum(axis=-1))
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
    strata = replace(one_stratum(labellings), pair_bins=np.maximum(stratum, stratum.T), bins=2)
    shard = accumulated(passages, labellings, strata)
    expected = np.zeros((2, strata.cells))
    for passage in passages:
        for (query, first), (key, second) in product(enumerate(passage.words), repeat=2):
            if first != second and min(first, second) >= 0:
                [kind] = kinds_of(labellings[1:], *np.array([[first], [second]]))[0]
                near = sum(abs(query - key) > end for end in DISTANCES)
                value = passage.attention[:, :, query, key].astype(float).mean() * len(passage.words) / 100
                if kind >= 0:
                    expected[kind, strata.pair_bins[first, second] * 5 + near] += value
    assert shard.cell_sums[:, 1].sum(axis=0) == pytest.approx(expected, rel=1e-9)
    assert shard.cell_counts.sum(axis=(0, 3)) == pytest.approx(shard.counts.sum(axis=(0, 3)))
    assert np.ptp(expected[DIFFERENT_TOPIC]) > 0.01


def test_a_shard_is_the_same_after_a_file_and_may_be_empty(tmp_path: Path) -> None:
    draw = np.random.default_rng(7)
    labellings = random_labellings(draw)
    permuted = (PermutedLabels(labellings[0], np.tile(np.arange(WORDS), (3, 1))),)
    strata = one_stratum(labellings)
    for passages in (random_passages(draw), []):
        shard = accumulated(passages, labellings, strata, permuted=permuted)
        (tmp_path / "shard").write_bytes(packed(shard))
        restored = unpacked(tmp_path / "shard", ShardSums)
        assert packed(restored) == packed(shard)
        assert restored.sums.shape == shard.sums.shape
        assert restored.sums.shape[1:] == (2, 2, 5, LAYERS, HEADS)
