"""Planted models give the planted numbers through the same steps as a study; shuffled topics and noise give none."""

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from jaxtyping import Int
from safetensors.numpy import save_file

from support.planted_model import PlantedModel, plan_of, planted_labelling, summary_of
from topicscope.probing.models import Outputs
from topicscope.probing.packing import packed, unpacked
from topicscope.probing.rows import (
    VARIANTS,
    AttentionNumbers,
    Embeddings,
    EmbeddingTask,
    over_largest_threshold,
    top_pair_number,
)
from topicscope.probing.settings import MeasureSettings
from topicscope.probing.statistics.labelling import Labelling

WORDS, TOPICS = 60, 6
TOPIC = np.arange(WORDS) % TOPICS
MODEL = PlantedModel(TOPIC, weights=(5.0, 3.0, 2.0), common=0.5, topical=1.5)
MEASURES = MeasureSettings(replicates=50, permutations=199, head_permutations=99)
DRAW = np.random.default_rng(3)
PASSAGES = [DRAW.integers(WORDS, size=size) for size in DRAW.integers(10, 40, size=40)]
GOOD = planted_labelling(TOPIC)


def shuffled(seed: int = 0) -> Labelling:
    """The same topics on other words."""
    return planted_labelling(np.random.default_rng(7).permutation(TOPIC), seed)


class OneHead(PlantedModel):
    """Attention with noise of its own between any two words of a head; the last head has topics beside it."""

    def __init__(self, strength: float, seed: int) -> None:
        super().__init__(TOPIC, weights=(1.0, 1.0, 1.0), common=0.5, topical=0.0)
        size = (self.layers, self.heads, WORDS, WORDS)
        self.scores = np.random.default_rng(seed).gamma(2.0, size=size).astype(np.float32)
        self.scores[-1, -1] *= 1 + strength * (TOPIC[:, None] == TOPIC)

    def run(self, passages: Sequence[Int[np.ndarray, " _"]]) -> Outputs:
        longest = max(map(len, passages))
        every = np.full((self.layers, len(passages), self.heads, longest, longest), np.nan, dtype=np.float32)
        for place, passage in enumerate(passages):
            scores = self.scores[:, :, passage[:, None], passage]
            every[:, place, :, : len(passage), : len(passage)] = scores / scores.sum(axis=-1, keepdims=True)
        return Outputs(list(map(torch.as_tensor, every)), [])


def attention(labels: list[Labelling], shards: int = 3, model: PlantedModel = MODEL) -> Any:
    """Numbers of the first group of labellings; their optional fields are there."""
    return groups(labels, shards, model)[0]


def groups(labels: list[Labelling], shards: int = 3, model: PlantedModel = MODEL) -> list[AttentionNumbers]:
    return summary_of(model, plan_of(labels, PASSAGES, MEASURES.head_permutations), PASSAGES, MEASURES, shards)


def test_a_planted_model_gives_the_planted_attention_ratio() -> None:
    found = attention([GOOD])
    # The first layer attends by class with weights 5, 3 and 2, the second uniformly.
    model = found.attention
    assert model.same == pytest.approx((0.03 + 0.01) / 2, rel=1e-6)
    assert model.different == pytest.approx((0.02 + 0.01) / 2, rel=1e-6)
    assert model.ratio == pytest.approx(4 / 3, rel=1e-6)
    assert model.low == pytest.approx(model.high, rel=1e-6)
    assert 1 - 1e-12 < model.auc <= 1
    assert model.p == pytest.approx(1 / 200)
    heads = found.by_layer_head
    ratios = [[head.ratio for head in layer] for layer in heads]
    assert ratios == pytest.approx(np.array([[1.5] * 3, [1.0] * 3]), rel=1e-6)
    assert [[(head.layer, head.head) for head in layer] for layer in heads][1] == [(2, 1), (2, 2), (2, 3)]
    assert [layer.layer for layer in found.by_layer] == [1, 2]
    assert max(head.p for head in heads[0]) == pytest.approx(0.01)
    assert min(head.p for head in heads[1]) > 0.05
    # Matched on co-occurrence, frequency and distance, the planted effect is all still there.
    assert found.matched.ratio == pytest.approx(4 / 3, rel=1e-6)
    assert found.matched.low == pytest.approx(found.matched.high, rel=1e-6)


def test_topics_in_one_head_are_found_in_that_head_alone_and_in_no_head_of_an_untrained_model() -> None:
    planted, untrained = (attention([GOOD], model=OneHead(each, 1)) for each in (0.6, 0.0))
    for found, expected in ((untrained, []), (planted, [(2, 3)])):
        shown = [(head.layer, head.head) for layer in found.by_layer_head for head in layer if head.p < 0.05]
        assert shown == expected
    assert planted.by_layer_head[1][2].low > 1.3
    assert planted.by_layer[1].ratio > planted.by_layer[0].ratio + 0.1


def test_shuffled_labels_find_nothing_in_the_planted_model() -> None:
    found = attention([shuffled()])
    for model in (found.attention, found.matched):
        assert model.ratio == pytest.approx(1, abs=0.05)
        assert model.low < 1 < model.high
    assert found.attention.p > 0.05


def test_shards_change_nothing_and_lda_seeds_are_averaged_and_widen_the_interval() -> None:
    one, many, bad = attention([GOOD], shards=1), attention([GOOD], shards=7), attention([shuffled()], shards=7)
    for name in ("same", "different", "ratio", "low", "high", "auc", "p"):
        assert getattr(one.attention, name) == pytest.approx(getattr(many.attention, name), rel=1e-9)
    assert bad.attention.same != pytest.approx(one.attention.same, rel=1e-3)
    both = attention([GOOD, shuffled(1)])
    assert both.attention.same == pytest.approx((one.attention.same + bad.attention.same) / 2, rel=1e-9)
    for name in ("same", "different", "share"):
        mean = (getattr(one.matched, name) + getattr(bad.matched, name)) / 2
        assert getattr(both.matched, name) == pytest.approx(mean, rel=1e-9)
    assert one.matched.high == pytest.approx(one.matched.low, rel=1e-6)
    for name in ("attention", "matched"):
        wide, narrow = getattr(both, name), getattr(one, name)
        assert wide.high - wide.low > narrow.high - narrow.low + 0.1


def thresholds(*labels: Labelling) -> list[Labelling]:
    """The same labellings at thresholds 0.1, 0.2 and so on."""
    return [replace(each, fraction=(place + 1) / 10) for place, each in enumerate(labels)]


def test_thresholds_share_their_draws_so_that_their_ratios_are_compared_in_pairs(tmp_path: Path) -> None:
    half = Labelling(shuffled().membership & (np.arange(WORDS) < 40)[:, None], assignment="one", seed=0)
    for other, wide in ((shuffled(), False), (half, True)):
        labels = thresholds(other, shuffled())
        own, similar = groups(labels), [embeddings(labels, tmp_path, places=(place,)) for place in range(2)]
        compared = [one.compared | each.compared for one, each in zip(own, similar, strict=True)]
        assert over_largest_threshold(compared, labels, 1, VARIANTS[0]) is None
        smaller = over_largest_threshold(compared, labels, 0, VARIANTS[0])
        assert smaller is not None
        assert set(smaller) == {"cosine", "dot", "attention"}
        for name, found in smaller.items():
            parts: list[Any] = [own if name == "attention" else [each.rows[0] for each in similar]]
            one, two = (getattr(each, name) for each in parts[0])
            assert found.ratio == pytest.approx(one.ratio / two.ratio)
            # A threshold compared with itself leaves no doubt, though each of the two ratios is doubtful.
            assert one.high - one.low > 0.01
            assert (cast(float, found.high) - cast(float, found.low) > 0.005) == wide
    # Other assignments are not compared with, and a user's own topics have no threshold.
    apart = [replace(labels[0], assignment="one"), replace(labels[1], assignment="several")]
    assert over_largest_threshold(compared, apart, 0, VARIANTS[0]) is None
    assert over_largest_threshold(compared, [replace(labels[0], fraction=None)], 0, VARIANTS[0]) is None


def test_top_pairs_are_as_many_as_in_the_paper_and_of_words_without_a_topic_too() -> None:
    assert top_pair_number(replace(GOOD, fraction=0.001)) == 435
    # Ten words per topic.
    assert top_pair_number(replace(GOOD, fraction=0.3)) == top_pair_number(replace(GOOD, fraction=None)) == 45
    kept = Labelling(GOOD.membership & (np.arange(WORDS) % 2 == 0)[:, None], assignment="one", seed=0)
    table, rows = plan_of([kept], PASSAGES, 1).co_occurrence, attention([kept]).top_pairs
    pairs = zip(table.first, table.second, table.counts, strict=True)
    order = sorted((-count, i, j) for i, j, count in pairs if i != j)[: rows[0].pairs]
    assert any(i % 2 or j % 2 for _, i, j in order)
    for row, variant in zip(rows, VARIANTS, strict=True):
        every = MODEL.vectors.astype(float)
        # Centred on the mean of the words that have a topic.
        every = every - every[::2].mean(axis=0) if variant.centred else every
        every /= np.linalg.norm(every, axis=1, keepdims=True)
        assert row.cosine.different == pytest.approx(np.mean([every[i] @ every[j] for _, i, j in order]))


def embeddings(
    labels: list[Labelling], folder: Path, permutations: int = 19, places: tuple[int, ...] = ()
) -> Embeddings:
    vectors, plan, path = folder / "vectors", folder / f"plan{len(list(folder.iterdir()))}", folder / "measured"
    save_file({"matrix": MODEL.vectors, "layer": MODEL.vectors}, vectors)
    plan.write_bytes(packed(plan_of(labels, PASSAGES, 99)))
    measures = MeasureSettings(replicates=50, permutations=permutations)
    topic_words = tuple(("word",) for _ in range(TOPICS))
    path.write_bytes(EmbeddingTask(vectors, plan, places or tuple(range(len(labels))), topic_words, measures).measure())
    return unpacked(path, Embeddings)


def test_similarity_its_auc_and_its_matched_comparison_average_lda_seeds(tmp_path: Path) -> None:
    def first(*labels: Labelling) -> Any:
        return embeddings(list(labels), tmp_path).rows[0]

    good, bad, both = first(GOOD), first(shuffled()), first(GOOD, shuffled(1))
    agree = first(GOOD, planted_labelling((TOPIC + 1) % TOPICS, 1))
    for part, names in (("cosine", ("same", "different", "auc")), ("matched.cosine", ("same", "different", "share"))):
        for name in names:
            one, other, mean = (attrgetter(f"{part}.{name}")(each) for each in (good, bad, both))
            assert mean == pytest.approx((one + other) / 2)
    # Planted similarities are all alike, so all doubt is about the seeds; two that agree leave none.
    assert both.cosine.auc_high - both.cosine.auc_low > 0.1
    assert both.matched.cosine.difference_high - both.matched.cosine.difference_low > 0.1
    # All pairs are in order: 1, but for the rounding of averages, and never more.
    assert 1 - 1e-12 < agree.cosine.auc_low <= agree.cosine.auc_high <= 1
    assert agree.matched.cosine.difference_high == pytest.approx(agree.matched.cosine.difference_low)
    assert both.cosine.p == good.cosine.p != bad.cosine.p


def test_a_planted_model_gives_the_planted_similarities_and_centring_takes_the_common_part_away(tmp_path: Path) -> None:
    plain, centred, *_ = cast("list[Any]", embeddings([GOOD], tmp_path, permutations=199).rows)
    # x·y = 0.5 + 1.5 [same topic]; each vector has the squared length 0.5 + 1.5 + 1 = 3.
    assert (VARIANTS[0].embedding, VARIANTS[0].centred, VARIANTS[1].centred) == ("matrix", False, True)
    assert (plain.dot.same, plain.dot.different) == pytest.approx((2.0, 0.5), rel=1e-6)
    assert (plain.cosine.same, plain.cosine.ratio) == pytest.approx((2 / 3, 4.0), rel=1e-6)
    assert 1 - 1e-12 < plain.cosine.auc <= 1
    assert plain.cosine.p == pytest.approx(1 / 200)
    assert (plain.matched.cosine.same, plain.matched.cosine.different) == pytest.approx((2 / 3, 1 / 6), rel=1e-6)
    # Without the mean: 1.5 (1 − 1/6) − 1/60 within a topic, −1.5/6 − 1/60 between topics: no longer of one sign.
    assert centred.dot.same == pytest.approx(1.5 * (1 - 1 / 6) - 1 / 60, rel=1e-5)
    assert centred.dot.different == pytest.approx(-1.5 / 6 - 1 / 60, rel=1e-5)
    assert centred.dot.difference == pytest.approx(plain.dot.difference, rel=1e-5)
