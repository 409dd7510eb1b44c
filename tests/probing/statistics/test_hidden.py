"""Hidden states: sums agree with loops over places, and topics planted in one layer are found in that layer alone."""

from collections.abc import Sequence
from dataclasses import asdict
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import Float, Int
from safetensors.numpy import load
from torch import Tensor

from support.planted import word_tokenizer, words_of_one_token
from support.planted_model import PlantedModel, layer_means, planted_labelling
from topicscope.probing.models import Subject
from topicscope.probing.passes import Plan, attention_sums
from topicscope.probing.rows import attention_summary
from topicscope.probing.settings import MeasureSettings
from topicscope.probing.statistics.attention import AttentionTotals, ShardSums
from topicscope.probing.statistics.hidden import KINDS, HiddenAccumulator, HiddenSums
from topicscope.probing.statistics.labelling import Labelling, over_one_vocabulary
from topicscope.probing.statistics.pairs import count_pairs
from topicscope.probing.study import CENTRED, GivenModel, Study
from topicscope.scale import Item

WORDS, TOPICS = 60, 6
TOPIC = np.arange(WORDS) % TOPICS
MEASURES = MeasureSettings(replicates=60, permutations=99, head_permutations=199)
DRAW = np.random.default_rng(11)
PASSAGES = [DRAW.integers(WORDS, size=size) for size in DRAW.integers(8, 30, size=40)]
ARTICLES = [place // 2 for place in range(len(PASSAGES))]


class Deep(PlantedModel):
    """Hidden states with topics in some layers only; all words of a passage share its context, in every layer."""

    def __init__(self, topical: Sequence[float], *, some: Sequence[int] = range(TOPICS), untrained: int = 0) -> None:
        super().__init__(TOPIC, weights=(1.0, 1.0, 1.0), common=0.5, topical=0.0)
        self.by_layer, self.some, self.draw = topical, some, np.random.default_rng(untrained)
        self.own = self.draw.normal(size=(len(topical), WORDS, 48)).astype(np.float32)
        self.of_topic = self.draw.normal(size=(TOPICS, 48)).astype(np.float32)

    def hidden(self, passages: Sequence[Int[np.ndarray, " _"]]) -> list[Float[Tensor, "passage position width"]]:
        longest = max(map(len, passages))
        found = torch.full((len(self.by_layer), len(passages), longest, 48), torch.nan)
        for place, passage in enumerate(passages):
            context = np.random.default_rng(passage.tolist()).normal(size=48).astype(np.float32)
            for layer, strength in enumerate(self.by_layer):
                part = (
                    np.where(np.isin(TOPIC[passage], self.some), strength, 0.0)[:, None] * self.of_topic[TOPIC[passage]]
                )
                states = 3.0 + context + self.own[layer, passage] + part.astype(np.float32)
                found[layer, place, : len(passage)] = torch.as_tensor(states)
        return list(found)


def make_plan(labels: list[Labelling]) -> Plan:
    tokens, offsets = np.concatenate(PASSAGES), np.cumsum([0, *map(len, PASSAGES)])
    frequency = np.bincount(tokens, minlength=WORDS).astype(np.float64)
    places = words_of_one_token(WORDS).places(np.arange(WORDS))
    pairs, lengths = count_pairs(tokens, offsets, WORDS), np.ones_like(places)
    return Plan(over_one_vocabulary(labels), frequency, pairs, MEASURES.head_permutations, 0, places, lengths)


def summed(model: Subject, plan: Plan, shards: int = 3) -> AttentionTotals:
    """Through the same steps as a study: shards to files, files to totals."""
    centre, found = layer_means(model, PASSAGES[::5]), []
    for part in np.array_split(np.arange(len(PASSAGES)), shards):
        passages = [PASSAGES[place] for place in part]
        articles, hidden = [ARTICLES[place] for place in part], [True] * len(part)
        shard = attention_sums(model, passages, passages, articles, plan=plan, batch=100, hidden=hidden, centre=centre)
        found.append(ShardSums.restore(shard.to_bytes()))
    return AttentionTotals(found, MEASURES.replicates, plan.seed)


def test_hidden_states_are_centred_on_the_mean_of_each_layer_over_a_few_passages() -> None:
    model = GivenModel(Deep((0.0, 1.0)), 64, word_tokenizer(1, 1))
    study: Any = SimpleNamespace(
        words=words_of_one_token(WORDS),
        plan=SimpleNamespace(tokens=np.arange(WORDS)),
        passages=PASSAGES,
        chosen=np.arange(len(PASSAGES)),
        detailed=True,
        item=lambda model, kind, work, suffix: Item(kind, {}, work),
    )
    every = -(-len(PASSAGES) // CENTRED)
    centre = load(Study.vectors(study, model).argument.measure())["centre"]
    # Means of some 300 numbers of the size of 3, rounded to float32.
    assert centre == pytest.approx(layer_means(model, PASSAGES[::every]), rel=1e-6, abs=1e-6)
    assert centre != pytest.approx(layer_means(model, PASSAGES), rel=1e-3)
    study.detailed = False
    assert load(Study.vectors(study, model).argument.measure())["centre"].shape == (0, 0)


def by_layer(model: Subject, labels: Labelling) -> list[dict[str, Any]]:
    plan = make_plan([labels])
    found: list[dict[str, Any]] = attention_summary(summed(model, plan), plan, MEASURES)["groups"][0]["hidden_by_layer"]
    return found


def by_hand(model: Deep, layer: int, centre: np.ndarray) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """All pairs of places: of each kind, same- and different-topic averages across passages and within them."""
    states = np.concatenate([model.hidden([each])[layer][0].numpy().astype(np.float64) for each in PASSAGES])
    words, passage = np.concatenate(PASSAGES), np.repeat(np.arange(len(PASSAGES)), list(map(len, PASSAGES)))
    across, within = {}, {}
    for kind in KINDS:
        vectors = states - centre if kind.startswith("centred") else states
        if kind.endswith("cosine"):
            vectors = vectors / np.sqrt((vectors**2).sum(axis=1, keepdims=True))
        similar, together = vectors @ vectors.T, passage[:, None] == passage
        sides: tuple[list[float], list[float]] = ([], [])
        for one, other in combinations(range(WORDS), 2):
            pairs = (words[:, None] == one) & (words == other) & ~together
            sides[int(TOPIC[one] != TOPIC[other])].append(similar[pairs].mean())
        across[kind] = [float(np.mean(side)) for side in sides]
        same, apart = TOPIC[words][:, None] == TOPIC[words], words[:, None] != words
        within[kind] = [float(similar[together & apart & chosen].mean()) for chosen in (same, ~same)]
    return across, within


def test_averages_are_those_of_loops_over_pairs_of_places_in_different_passages() -> None:
    model, labels = Deep((0.0, 1.0)), planted_labelling(TOPIC)
    found = by_layer(model, labels)
    centre = layer_means(model, PASSAGES[::5])
    across, within = by_hand(model, 1, centre[1].astype(np.float64))
    for kind in KINDS:
        numbers = found[1][kind]
        assert [numbers["same"], numbers["different"]] == pytest.approx(across[kind], rel=1e-4, abs=1e-5)
        inside = found[1]["within"][kind]
        assert [inside["same"], inside["different"]] == pytest.approx(within[kind], rel=1e-4, abs=1e-5)
        # The control: a passage's own context makes its words alike, so that pairs within it are others.
        assert inside["different"] > numbers["different"] + 0.05


def test_topics_in_one_layer_are_found_there_and_nowhere_else_and_not_in_an_untrained_model() -> None:
    labels = planted_labelling(TOPIC)
    planted, untrained = by_layer(Deep((0.0, 0.0, 1.0, 0.0)), labels), by_layer(Deep((0.0,) * 4, untrained=1), labels)
    for kind in KINDS:
        assert [layer[kind]["p_all_layers"] < 0.05 for layer in planted] == [False, False, True, False]
        assert all(layer[kind]["p_all_layers"] > 0.05 for layer in untrained)
        # No permutation comes near the planted topics, so p is the smallest that there is.
        smallest = pytest.approx(1 / (MEASURES.head_permutations + 1))
        assert planted[2][kind]["p"] == planted[2][kind]["p_all_layers"] == smallest
        assert planted[2][kind]["difference_low"] > 0
        assert planted[2][kind]["auc_low"] > 0.6
        assert all(layer[kind]["auc"] == pytest.approx(0.5, abs=0.1) for layer in untrained)


def test_shuffled_topics_find_nothing_in_the_planted_layer() -> None:
    shuffled = planted_labelling(np.random.default_rng(7).permutation(TOPIC))
    found = by_layer(Deep((0.0, 1.0)), shuffled)
    assert min(layer[kind]["p"] for layer in found for kind in KINDS) > 0.01
    assert all(
        layer["centred_cosine"]["difference_low"] < 0 < layer["centred_cosine"]["difference_high"] for layer in found
    )


def test_how_passages_are_shared_among_shards_changes_nothing() -> None:
    plan = make_plan([planted_labelling(TOPIC)])
    one, many = (summed(Deep((0.0, 1.0)), plan, shards).hidden for shards in (1, 7))
    assert one is not None
    assert many is not None
    for name in HiddenSums.__dataclass_fields__:
        np.testing.assert_allclose(getattr(one, name), getattr(many, name), rtol=1e-4, atol=1e-4)


def test_a_model_without_hidden_states_has_none_to_compare() -> None:
    plan = make_plan([planted_labelling(TOPIC)])
    model = PlantedModel(TOPIC, weights=(5.0, 3.0, 2.0), common=0.5, topical=1.5)
    totals = summed(model, plan)
    assert totals.hidden is None
    assert attention_summary(totals, plan, MEASURES)["groups"][0]["hidden_by_layer"] is None


def test_words_in_one_passage_alone_are_left_out() -> None:
    labels = planted_labelling(TOPIC)
    accumulator = HiddenAccumulator([labels], np.arange(WORDS), np.zeros((1, 4), dtype=np.float32))
    states = DRAW.normal(size=(3, 4)).astype(np.float32)
    accumulator.add([states], np.array([0, 1, 0]))
    accumulator.add([states], np.array([0, 7, -1]))
    found = accumulator.result()
    assert found.words.tolist() == [0, 1, 7]
    assert found.places.tolist() == [3, 1, 1]
    assert found.passages.tolist() == [2, 1, 1]
    assert asdict(found)["pairs"].tolist() == [1, 7]


def topics_of(model: Subject, labels: Labelling) -> list[dict[str, Any]]:
    plan = make_plan([labels])
    found: list[dict[str, Any]] = attention_summary(summed(model, plan), plan, MEASURES)["groups"][0]["by_topic"]
    return found


@pytest.mark.parametrize("seed", range(4))
def test_topics_that_are_encoded_are_told_from_those_that_are_not(seed: int) -> None:
    labels = planted_labelling(TOPIC)
    planted = topics_of(Deep((0.0, 1.2), some=(1, 4), untrained=seed), labels)
    encoded = [topic["hidden"]["q"] < 0.05 and topic["hidden"]["difference_low"] > 0 for topic in planted]
    assert [topic for topic, each in enumerate(encoded) if each] == [1, 4]
    assert {topic["hidden_layer"] for topic in planted} == {1}
    # The control: an untrained model has none.
    assert all(topic["hidden"]["q"] > 0.05 for topic in topics_of(Deep((0.0, 0.0), untrained=seed), labels))


@pytest.mark.slow
def test_topics_that_are_not_encoded_have_uniform_p_beside_encoded_ones() -> None:
    """Words of topics that are not encoded lack what the encoded ones have; that alone must not make them a topic."""
    labels = planted_labelling(TOPIC)
    seeds = [topics_of(Deep((0.0, 1.2), some=(1, 4), untrained=seed), labels) for seed in range(40)]
    p = np.array([[each["hidden"]["p"] for each in found] for found in seeds])
    few = float(np.mean(p[:, [0, 2, 3, 5]] <= 0.05))
    # Topics of one model are not independent: the standard error is over models.
    error = float(np.std(np.mean(p[:, [0, 2, 3, 5]] <= 0.05, axis=1)) / np.sqrt(len(seeds)))
    assert few < 0.05 + 3 * max(error, 0.01)
    assert float(np.mean(p[:, [1, 4]] <= 0.05)) > 0.95
