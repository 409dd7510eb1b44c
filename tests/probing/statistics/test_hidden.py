"""Hidden states: sums agree with loops over places, and topics planted in one layer are found in that layer alone."""

from collections.abc import Sequence
from itertools import combinations
from typing import cast

import numpy as np
import pytest
import torch
from jaxtyping import Float, Int
from torch import Tensor

from support.planted_model import PlantedModel, layer_means, plan_of, planted_labelling, summary_of, totals_of
from topicscope.probing.settings import MeasureSettings
from topicscope.probing.statistics.hidden import HiddenSums, passage_sums
from topicscope.probing.statistics.labelling import Labelling
from topicscope.records import HiddenLayer, LayerComparison

WORDS, TOPICS = 60, 6
TOPIC = np.arange(WORDS) % TOPICS
MEASURES = MeasureSettings(replicates=60, permutations=99, head_permutations=199)
DRAW = np.random.default_rng(11)
PASSAGES = [DRAW.integers(WORDS, size=size) for size in DRAW.integers(8, 30, size=40)]
LABELS = planted_labelling(TOPIC)


class Deep(PlantedModel):
    """Hidden states with topics in some layers only; all words of a passage share its context, in every layer."""

    def __init__(self, topical: Sequence[float], *, some: Sequence[int] = range(TOPICS), untrained: int = 0) -> None:
        super().__init__(TOPIC, weights=(1.0, 1.0, 1.0), common=0.5, topical=0.0)
        self.by_layer, self.some, draw = topical, some, np.random.default_rng(untrained)
        self.own = draw.normal(size=(len(topical), WORDS, 48)).astype(np.float32)
        self.of_topic = draw.normal(size=(TOPICS, 48)).astype(np.float32)

    def hidden(self, passages: Sequence[Int[np.ndarray, " _"]]) -> list[Float[Tensor, "passage position width"]]:
        longest = max(map(len, passages))
        every = torch.full((len(self.by_layer), len(passages), longest, 48), torch.nan)
        for place, passage in enumerate(passages):
            context = np.random.default_rng(passage.tolist()).normal(size=48).astype(np.float32)
            topical = np.isin(TOPIC[passage], self.some)[:, None] * self.of_topic[TOPIC[passage]]
            for layer, strength in enumerate(self.by_layer):
                states = 3.0 + context + self.own[layer, passage] + np.float32(strength) * topical
                every[layer, place, : len(passage)] = torch.as_tensor(states.astype(np.float32))
        return list(every)


def measured(model: PlantedModel, labels: Labelling = LABELS) -> list[HiddenLayer]:
    [numbers] = summary_of(model, plan_of([labels], PASSAGES, MEASURES.head_permutations), PASSAGES, MEASURES)
    return numbers.hidden or []


def compared(layers: list[HiddenLayer]) -> list[LayerComparison]:
    return [layer.centred_cosine for layer in layers]


def by_hand(model: Deep, layer: int, centre: np.ndarray) -> list[list[float]]:
    """Same- and different-topic averages over pairs of places in different passages, and in any."""
    states = np.concatenate([model.hidden([each])[layer][0].numpy().astype(np.float64) for each in PASSAGES])
    words, passage = np.concatenate(PASSAGES), np.repeat(np.arange(len(PASSAGES)), list(map(len, PASSAGES)))
    vectors = states - centre
    vectors = vectors / np.sqrt((vectors**2).sum(axis=1, keepdims=True))
    similar, apart = vectors @ vectors.T, passage[:, None] != passage
    # Sums over the places of every two words at once.
    places = (words == np.arange(WORDS)[:, None]).astype(float)
    averages = []
    for counted in (apart, np.ones_like(apart)):
        by_pair = (places @ (similar * counted) @ places.T) / (places @ counted @ places.T)
        pairs = list(combinations(range(WORDS), 2))
        same = [by_pair[pair] for pair in pairs if TOPIC[pair[0]] == TOPIC[pair[1]]]
        different = [by_pair[pair] for pair in pairs if TOPIC[pair[0]] != TOPIC[pair[1]]]
        averages.append([float(np.mean(same)), float(np.mean(different))])
    return averages


def test_averages_are_those_of_loops_over_pairs_of_places_in_different_passages() -> None:
    model = Deep((0.0, 1.0))
    numbers, centre = compared(measured(model))[1], layer_means(model, PASSAGES[::5])
    across, anywhere = by_hand(model, 1, centre[1].astype(np.float64))
    assert [numbers.same, numbers.different] == pytest.approx(across, rel=1e-4, abs=1e-5)
    # The control: a passage's own context makes its words alike, so that pairs within it count otherwise.
    assert numbers.different != pytest.approx(anywhere[1], rel=1e-4, abs=1e-5)


def test_topics_in_one_layer_are_found_there_and_nowhere_else_and_not_in_an_untrained_model() -> None:
    planted, untrained = measured(Deep((0.0, 0.0, 1.0, 0.0))), measured(Deep((0.0,) * 4, untrained=1))
    shuffled = measured(Deep((0.0, 1.0)), planted_labelling(np.random.default_rng(7).permutation(TOPIC)))
    found = compared(planted)
    assert [cast(float, each.p_all_layers) < 0.05 for each in found] == [False, False, True, False]
    # No permutation comes near the planted topics, so p is the smallest that there is.
    assert found[2].p == found[2].p_all_layers == pytest.approx(1 / (MEASURES.head_permutations + 1))
    assert cast(float, found[2].difference_low) > 0
    assert cast(float, found[2].auc_low) > 0.6
    # The controls: an untrained model, and shuffled topics.
    assert all(cast(float, each.p_all_layers) > 0.05 for each in compared(untrained))
    assert all(each.auc == pytest.approx(0.5, abs=0.1) for each in compared(untrained))
    assert min(cast(float, each.p) for each in compared(shuffled)) > 0.01
    assert [layer.layer for layer in planted] == [0, 1, 2, 3]


def test_how_passages_are_shared_among_shards_changes_nothing() -> None:
    plan = plan_of([LABELS], PASSAGES, 1)
    one, many = (totals_of(Deep((0.0, 1.0)), plan, PASSAGES, 2, shards).hidden for shards in (1, 7))
    for name in HiddenSums.__dataclass_fields__:
        np.testing.assert_allclose(getattr(one, name), getattr(many, name), rtol=1e-4, atol=1e-4)


def test_a_model_without_hidden_states_has_none_to_compare() -> None:
    assert measured(PlantedModel(TOPIC, weights=(5.0, 3.0, 2.0), common=0.5, topical=1.5)) == []


def test_words_and_pairs_are_counted_by_place_and_passage() -> None:
    states, centre = DRAW.normal(size=(3, 4)).astype(np.float32), np.zeros((1, 4), dtype=np.float32)
    parts = [passage_sums([states], np.array(words), centre, WORDS) for words in ([0, 1, 0], [0, 7, -1])]
    sums = HiddenSums.added(parts)
    assert sums.words.tolist() == [0, 1, 7]
    assert sums.places.tolist() == [3, 1, 1]
    assert sums.passages.tolist() == [2, 1, 1]
    assert sums.pairs.tolist() == [1, 7]


def encoded(model: Deep) -> list[bool]:
    [numbers] = summary_of(model, plan_of([LABELS], PASSAGES, MEASURES.head_permutations), PASSAGES, MEASURES)
    assert numbers.hidden_layer in (0, 1)
    topics = numbers.hidden_by_topic or []
    return [cast(float, each.q) < 0.05 and cast(float, each.difference_low) > 0 for each in topics]


@pytest.mark.parametrize("seeds", [2, pytest.param(40, marks=pytest.mark.slow)])
def test_topics_that_are_encoded_are_told_from_those_that_are_not(seeds: int) -> None:
    """Words of topics that are not encoded lack what the encoded ones have; that alone must not make them a topic."""
    found = np.array([encoded(Deep((0.0, 1.2), some=(1, 4), untrained=seed)) for seed in range(seeds)])
    assert found[:, [1, 4]].mean() > 0.95
    assert found[:, [0, 2, 3, 5]].mean() < 0.05 + 3 * np.sqrt(0.05 / (4 * seeds)) * (seeds > 2)
    # The control: an untrained model has none.
    assert not any(encoded(Deep((0.0, 0.0), untrained=1)))
