"""A model whose topic structure is known: what the probe must find in it."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from support.planted import words_of_one_token
from topicscope.probing.models import Outputs, Subject
from topicscope.probing.passes import Plan, Text, attention_sums
from topicscope.probing.rows import AttentionNumbers, attention_numbers
from topicscope.probing.settings import MeasureSettings
from topicscope.probing.statistics.attention import AttentionTotals
from topicscope.probing.statistics.labelling import Labelling, over_one_vocabulary
from topicscope.probing.statistics.pairs import count_pairs


class PlantedModel:
    """Attention and embeddings built from topics.

    Attention between two words is ``weights[kind] / length``, so that normalised by length it is ``weights / 100``
    exactly; heads of the second layer have none of it. Embeddings of different words have a squared common part, a
    squared topic part and a part of their own.
    """

    layers, heads, causal, first = 2, 3, False, 0

    def __init__(
        self, topic: Int[np.ndarray, " token"], *, weights: tuple[float, float, float], common: float, topical: float
    ) -> None:
        self.topic, self.weights = topic, np.array(weights)
        topics = int(topic.max()) + 1
        # Orthonormal directions: one common, one a topic, one a word.
        self.vectors = np.zeros((len(topic), 1 + topics + len(topic)), dtype=np.float32)
        self.vectors[:, 0] = np.sqrt(common)
        self.vectors[np.arange(len(topic)), 1 + topic] = np.sqrt(topical)
        self.vectors[np.arange(len(topic)), 1 + topics + np.arange(len(topic))] = 1.0

    def embedding_matrix(self) -> Float[np.ndarray, "token width"]:
        return self.vectors

    def embedding_layer(self, tokens: Int[np.ndarray, " word"]) -> Float[np.ndarray, "word model_width"]:
        return self.vectors[tokens]

    def run(self, passages: Sequence[Int[np.ndarray, " _"]]) -> Outputs:
        longest = max(map(len, passages))
        # What is padding's must not be used.
        attention = torch.full((self.layers, len(passages), self.heads, longest, longest), torch.nan)
        for place, passage in enumerate(passages):
            same_word = passage[:, None] == passage
            same_topic = self.topic[passage][:, None] == self.topic[passage]
            kind = np.where(same_word, 0, np.where(same_topic, 1, 2))
            size = len(passage)
            attention[0, place, :, :size, :size] = torch.as_tensor(self.weights[kind] / size)
            attention[1, place, :, :size, :size] = 1 / size
        return Outputs(list(attention), self.hidden(passages))

    def hidden(self, passages: Sequence[Int[np.ndarray, " _"]]) -> list[Float[Tensor, "passage position width"]]:
        """None of them."""
        return []


def planted_labelling(topic: Int[np.ndarray, " token"], seed: int = 0) -> Labelling:
    """All tokens with their own topics."""
    membership = topic[:, None] == np.arange(topic.max() + 1)
    return Labelling(membership, fraction=0.1, assignment="one", seed=seed)


def layer_means(model: Subject, passages: Sequence[Int[np.ndarray, " _"]]) -> Float[np.ndarray, "layer width"]:
    """Each layer's mean hidden state over all tokens of some passages; no layer if there are none."""
    outputs = [model.run([passage]).hidden for passage in passages]
    layers = [np.concatenate([layer[0].numpy() for layer in alike]) for alike in zip(*outputs, strict=True)]
    means = [states.mean(axis=0, dtype=np.float64) for states in layers]
    return np.stack(means).astype(np.float32) if means else np.zeros((0, 0), dtype=np.float32)


def plan_of(labels: Sequence[Labelling], passages: Sequence[Int[np.ndarray, " _"]], permutations: int) -> Plan:
    """What is measured on passages of one-token words, all of which the labellings know."""
    vocabulary, tokens = len(labels[0].membership), np.concatenate(passages)
    frequency = np.bincount(tokens, minlength=vocabulary).astype(np.float64)
    pairs = count_pairs(tokens, np.cumsum([0, *map(len, passages)]), vocabulary)
    places = words_of_one_token(vocabulary).places(np.arange(vocabulary))
    return Plan(over_one_vocabulary(labels), frequency, pairs, permutations, 0, places, np.ones_like(places))


def totals_of(
    model: Subject, plan: Plan, passages: Sequence[Int[np.ndarray, " _"]], replicates: int, shards: int = 3
) -> AttentionTotals:
    """Shards to totals; two passages are an article, and hidden states are summed if there are any."""
    centre, sums = layer_means(model, passages[::5]), []
    for part in np.array_split(np.arange(len(passages)), shards):
        texts = [Text(passages[place], passages[place], place // 2, hidden=True) for place in part.tolist()]
        sums.append(attention_sums(model, texts, plan=plan, batch=100, centre=centre))
    return AttentionTotals(sums, replicates, plan.seed)


def summary_of(
    model: Subject,
    plan: Plan,
    passages: Sequence[Int[np.ndarray, " _"]],
    measures: MeasureSettings,
    shards: int = 3,
) -> list[AttentionNumbers]:
    """The numbers of each group of labellings, through the same steps as a study."""
    totals = totals_of(model, plan, passages, measures.replicates, shards)
    vectors = {"matrix": model.embedding_matrix()[plan.tokens], "layer": model.embedding_layer(plan.tokens)}
    return attention_numbers(totals, plan, measures, vectors, list(map(str, plan.tokens)))
