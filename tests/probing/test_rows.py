"""A planted model gives the planted numbers, by threshold and assignment, averaged over LDA seeds."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import Int
from safetensors.numpy import save_file

from support.planted import words_of_one_token
from support.planted_model import PlantedModel, planted_labelling
from topicscope.probing.models import Outputs
from topicscope.probing.passes import Plan, attention_sums
from topicscope.probing.rows import (
    RATIOS,
    VARIANTS,
    EmbeddingTask,
    attention_summary,
    over_largest_threshold,
    top_co_occurring,
    top_pair_number,
    unpacked,
)
from topicscope.probing.settings import MeasureSettings
from topicscope.probing.statistics.attention import AttentionTotals, ShardSums
from topicscope.probing.statistics.labelling import Labelling, over_one_vocabulary
from topicscope.probing.statistics.pairs import count_pairs

WORDS, TOPICS = 60, 6
TOPIC = np.arange(WORDS) % TOPICS
MODEL = PlantedModel(TOPIC, weights=(5.0, 3.0, 2.0), common=0.5, topical=1.5)
MEASURES = MeasureSettings(replicates=50, permutations=199, head_permutations=99)
DRAW = np.random.default_rng(3)
PASSAGES = [DRAW.integers(WORDS, size=size) for size in DRAW.integers(10, 40, size=40)]
ARTICLES = [place // 2 for place in range(len(PASSAGES))]


def make_plan(labels: list[Labelling]) -> Plan:
    tokens = np.concatenate(PASSAGES)
    offsets = np.cumsum([0, *map(len, PASSAGES)])
    frequency = np.bincount(tokens, minlength=WORDS).astype(np.float64)
    places = words_of_one_token(WORDS).places(np.arange(WORDS))
    pairs, lengths = count_pairs(tokens, offsets, WORDS), np.ones_like(places)
    return Plan(over_one_vocabulary(labels), frequency, pairs, MEASURES.head_permutations, 0, places, lengths)


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
        found = np.full((self.layers, len(passages), self.heads, longest, longest), np.nan, dtype=np.float32)
        for place, passage in enumerate(passages):
            scores = self.scores[:, :, passage[:, None], passage]
            found[:, place, :, : len(passage), : len(passage)] = scores / scores.sum(axis=-1, keepdims=True)
        return Outputs(list(map(torch.as_tensor, found)), [])


def attention(labels: list[Labelling], shards: int = 3, model: PlantedModel = MODEL) -> dict[str, Any]:
    """Of labellings of one threshold."""
    return attention_groups(labels, shards, model)[0]


def attention_groups(labels: list[Labelling], shards: int = 3, model: PlantedModel = MODEL) -> list[dict[str, Any]]:
    """Through the same steps as a study: shards to files, files to totals, totals to a summary."""
    plan = make_plan(labels)
    found = []
    for part in np.array_split(np.arange(len(PASSAGES)), shards):
        passages = [PASSAGES[place] for place in part]
        articles = [ARTICLES[place] for place in part]
        content = attention_sums(model, passages, passages, articles, plan=plan, batch=100).to_bytes()
        found.append(ShardSums.restore(content))
    totals = AttentionTotals(found, MEASURES.replicates, plan.seed)
    groups: list[dict[str, Any]] = attention_summary(totals, plan, MEASURES)["groups"]
    return groups


def test_a_planted_model_gives_the_planted_attention_ratio() -> None:
    found = attention([planted_labelling(TOPIC)])
    # The first layer attends by class with weights 5, 3 and 2, the second uniformly.
    model = found["attention"]
    assert model["same"] == pytest.approx((0.03 + 0.01) / 2, rel=1e-6)
    assert model["different"] == pytest.approx((0.02 + 0.01) / 2, rel=1e-6)
    assert model["same_word"] == pytest.approx((0.05 + 0.01) / 2, rel=1e-6)
    assert model["ratio"] == pytest.approx(4 / 3, rel=1e-6)
    assert model["low"] == pytest.approx(model["high"], rel=1e-6)
    assert 1 - 1e-12 < model["auc"] <= 1
    assert model["p"] == pytest.approx(1 / 200)
    heads = found["attention_by_layer_head"]
    assert [[head["ratio"] for head in layer] for layer in heads] == pytest.approx(
        np.array([[1.5] * 3, [1.0] * 3]), rel=1e-6
    )
    assert max(head["p"] for head in heads[0]) == pytest.approx(0.01)
    assert min(head["p"] for head in heads[1]) > 0.05
    # Matched on co-occurrence, frequency and distance, the planted effect is all still there.
    assert found["matched"]["ratio"] == pytest.approx(4 / 3, rel=1e-6)
    assert found["matched"]["p"] == pytest.approx(1 / 200)


def test_topics_in_one_head_are_found_in_that_head_alone_and_in_no_head_of_an_untrained_model() -> None:
    planted, untrained = (attention([planted_labelling(TOPIC)], model=OneHead(each, 1)) for each in (0.6, 0.0))
    expected = np.zeros((2, 3), dtype=bool)
    for found, heads in ((untrained, expected), (planted, expected | (np.arange(6) == 5).reshape(2, 3))):
        shown = [[head["p"] < 0.05 for head in layer] for layer in found["attention_by_layer_head"]]
        assert (np.array(shown) == heads).all()
    assert planted["attention_by_layer_head"][1][2]["low"] > 1.3
    assert planted["attention_by_layer"][1]["ratio"] > planted["attention_by_layer"][0]["ratio"] + 0.1


def test_shuffled_labels_find_nothing_in_the_planted_model() -> None:
    found = attention([shuffled()])
    for model in (found["attention"], found["matched"]):
        assert model["ratio"] == pytest.approx(1, abs=0.05)
        assert model["low"] < 1 < model["high"]
        assert model["p"] > 0.05


def test_how_passages_are_shared_among_shards_changes_nothing() -> None:
    one, many = attention([planted_labelling(TOPIC)], shards=1), attention([planted_labelling(TOPIC)], shards=7)
    for name in ("same", "different", "ratio", "low", "high", "auc", "p"):
        assert one["attention"][name] == pytest.approx(many["attention"][name], rel=1e-9)
    shuffled_ = attention([shuffled()], shards=7)
    assert shuffled_["attention"]["same"] != pytest.approx(one["attention"]["same"], rel=1e-3)


def test_lda_seeds_are_averaged_and_widen_the_interval() -> None:
    good, bad = attention([planted_labelling(TOPIC)])["attention"], attention([shuffled()])["attention"]
    both = attention([planted_labelling(TOPIC, 0), shuffled(1)])["attention"]
    assert both["same"] == pytest.approx((good["same"] + bad["same"]) / 2, rel=1e-9)
    assert both["high"] - both["low"] > good["high"] - good["low"] + 0.1


def thresholds(*labels: Labelling) -> list[Labelling]:
    """The same labellings at thresholds 0.1, 0.2 and so on."""
    return [replace(each, fraction=(place + 1) / 10, name=f"{place}") for place, each in enumerate(labels)]


def test_thresholds_share_their_draws_so_that_their_ratios_are_compared_in_pairs(tmp_path: Path) -> None:
    half = Labelling(shuffled().membership & (np.arange(WORDS) < 40)[:, None], assignment=shuffled().assignment, seed=0)
    for other, wide in ((shuffled(), False), (half, True)):
        labels = thresholds(other, shuffled())
        groups = attention_groups(labels)
        similar = [embeddings(labels, tmp_path, places=(place,))[0] for place in range(2)]
        ratios = [each[RATIOS] | group[RATIOS] for each, group in zip(similar, groups, strict=True)]
        smaller, largest = over_largest_threshold(ratios, labels)
        assert largest is None
        assert smaller is not None
        assert set(smaller) == {"cosine", "dot", "attention"}
        for name, found in smaller.items():
            contrasts = [each[name] for each in (groups if name == "attention" else similar)]
            assert found["ratio"] == pytest.approx(contrasts[0]["ratio"] / contrasts[1]["ratio"])
            # A threshold compared with itself leaves no doubt, though each of the two ratios is doubtful.
            assert contrasts[0]["high"] - contrasts[0]["low"] > 0.01
            assert (found["high"] - found["low"] > 0.005) == wide
    # Other assignments are not compared with, and a user's own topics have no threshold.
    apart = [replace(labels[0], assignment="one"), replace(labels[1], assignment="several")]
    assert over_largest_threshold(ratios, apart) == [None, None]
    own = [replace(labels[0], fraction=None)]
    assert over_largest_threshold(ratios[:1], own) == [None]


def test_as_many_top_pairs_are_taken_as_in_the_paper_at_its_thresholds() -> None:
    labels = planted_labelling(TOPIC)
    assert top_pair_number(replace(labels, fraction=0.001)) == 435
    # Ten words per topic.
    assert top_pair_number(replace(labels, fraction=0.3)) == top_pair_number(replace(labels, fraction=None)) == 45


def written(plan: Plan, folder: Path) -> Path:
    path = folder / f"plan-{len(list(folder.iterdir()))}.safetensors"
    path.write_bytes(plan.to_bytes())
    return path


def test_top_pairs_are_of_words_without_a_topic_too(tmp_path: Path) -> None:
    kept = Labelling(
        planted_labelling(TOPIC).membership & (np.arange(WORDS) % 2 == 0)[:, None], assignment="one", seed=0
    )
    plan = make_plan([kept])
    vectors = {"matrix": MODEL.embedding_matrix()[plan.tokens], "layer": MODEL.embedding_layer(plan.tokens)}
    save_file(vectors, tmp_path / "vectors.safetensors")
    task = EmbeddingTask(tmp_path / "vectors.safetensors", written(plan, tmp_path), (0,), MEASURES)
    table = plan.co_occurrence
    rows = top_co_occurring(table, plan, task)
    order = sorted(
        (-count, i, j) for i, j, count in zip(table.first, table.second, table.counts, strict=True) if i != j
    )[: rows[0]["pairs"]]
    assert any(i % 2 or j % 2 for _, i, j in order)
    for row, variant in zip(rows, VARIANTS, strict=True):
        every = vectors[variant.embedding].astype(float)
        # Centred on the mean of the words that have a topic.
        every = every - every[::2].mean(axis=0) if variant.centred else every
        every /= np.linalg.norm(every, axis=1, keepdims=True)
        assert row["cosine"]["different"] == pytest.approx(np.mean([every[i] @ every[j] for _, i, j in order]))


def test_matched_attention_averages_lda_seeds_too() -> None:
    good, bad = attention([planted_labelling(TOPIC)])["matched"], attention([shuffled()])["matched"]
    both = attention([planted_labelling(TOPIC, 0), shuffled(1)])["matched"]
    for name in ("same", "different", "share"):
        assert both[name] == pytest.approx((good[name] + bad[name]) / 2, rel=1e-9)
    balance = [each["co_occurrence"]["same"] for each in (good, bad, both)]
    assert balance[2] == pytest.approx((balance[0] + balance[1]) / 2)
    assert good["high"] == pytest.approx(good["low"], rel=1e-6)
    assert both["high"] - both["low"] > 0.1


def embeddings(
    labels: list[Labelling], folder: Path, permutations: int = 19, places: tuple[int, ...] = ()
) -> list[dict[str, Any]]:
    plan = make_plan(labels)
    vectors = {"matrix": MODEL.embedding_matrix()[plan.tokens], "layer": MODEL.embedding_layer(plan.tokens)}
    save_file(vectors, folder / "vectors.safetensors")
    measures = MeasureSettings(replicates=50, permutations=permutations)
    chosen = places or tuple(range(len(labels)))
    task = EmbeddingTask(folder / "vectors.safetensors", written(plan, folder), chosen, measures)
    path = task.vectors.with_name("measured.safetensors")
    path.write_bytes(task.measure())
    found: list[dict[str, Any]] = unpacked(path)[0]
    return found


def test_similarity_its_auc_and_its_matched_comparison_average_lda_seeds(tmp_path: Path) -> None:
    good, bad = (embeddings([each], tmp_path)[0] for each in (planted_labelling(TOPIC), shuffled()))
    both = embeddings([planted_labelling(TOPIC, 0), shuffled(1)], tmp_path)[0]
    agree = embeddings([planted_labelling(TOPIC, 0), planted_labelling((TOPIC + 1) % TOPICS, 1)], tmp_path)[0]
    for name in ("same", "different", "auc"):
        assert both["cosine"][name] == pytest.approx((good["cosine"][name] + bad["cosine"][name]) / 2)
    for name in ("same", "different", "difference", "share"):
        assert both["matched"][name] == pytest.approx((good["matched"][name] + bad["matched"][name]) / 2)
    # Planted similarities are all alike, so all doubt is about the seeds; two that agree leave none.
    assert both["cosine"]["auc_high"] - both["cosine"]["auc_low"] > 0.1
    assert both["matched"]["difference_high"] - both["matched"]["difference_low"] > 0.1
    # All pairs are in order: 1, but for the rounding of averages, and never more.
    assert 1 - 1e-12 < agree["cosine"]["auc_low"] <= agree["cosine"]["auc_high"] <= 1
    assert agree["matched"]["difference_high"] == pytest.approx(agree["matched"]["difference_low"])
    assert both["cosine"]["p"] == good["cosine"]["p"] != bad["cosine"]["p"]


@pytest.fixture
def planted_embeddings(tmp_path: Path) -> list[dict[str, dict[str, float]]]:
    return embeddings([planted_labelling(TOPIC)], tmp_path, permutations=199)


def test_a_planted_model_gives_the_planted_similarities(planted_embeddings: list[dict[str, dict[str, float]]]) -> None:
    # x·y = 0.5 + 1.5 [same topic]; each vector has the squared length 0.5 + 1.5 + 1 = 3.
    plain = planted_embeddings[0]
    assert (VARIANTS[0].embedding, VARIANTS[0].centred) == ("matrix", False)
    assert plain["dot"]["same"] == pytest.approx(2.0, rel=1e-6)
    assert plain["dot"]["different"] == pytest.approx(0.5, rel=1e-6)
    assert plain["cosine"]["same"] == pytest.approx(2 / 3, rel=1e-6)
    assert plain["cosine"]["ratio"] == pytest.approx(4.0, rel=1e-6)
    assert 1 - 1e-12 < plain["cosine"]["auc"] <= 1
    assert plain["cosine"]["p"] == pytest.approx(1 / 200)
    assert plain["matched"]["same"] == pytest.approx(2 / 3, rel=1e-6)
    assert plain["matched"]["different"] == pytest.approx(1 / 6, rel=1e-6)


def test_centring_takes_the_common_part_away(planted_embeddings: list[dict[str, dict[str, float]]]) -> None:
    # Without the mean: 1.5 (1 − 1/6) − 1/60 within a topic, −1.5/6 − 1/60 between topics: no longer of one sign.
    centred = planted_embeddings[1]
    assert VARIANTS[1].centred
    assert centred["dot"]["same"] == pytest.approx(1.5 * (1 - 1 / 6) - 1 / 60, rel=1e-5)
    assert centred["dot"]["different"] == pytest.approx(-1.5 / 6 - 1 / 60, rel=1e-5)
    assert centred["dot"]["difference"] == pytest.approx(planted_embeddings[0]["dot"]["difference"], rel=1e-5)
