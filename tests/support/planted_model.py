"""A model whose topic structure is known: what the probe must find in it."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from topicscope.probing.models import Outputs, Subject
from topicscope.probing.statistics.labelling import Labelling


class PlantedModel:
    """Attention and embeddings built from topics.

    Attention between two words is ``weights[class] / length``, so that normalised by length it is ``weights / 100``
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
        found = torch.full((self.layers, len(passages), self.heads, longest, longest), torch.nan)
        for place, passage in enumerate(passages):
            same_word = passage[:, None] == passage
            same_topic = self.topic[passage][:, None] == self.topic[passage]
            kind = np.where(same_word, 0, np.where(same_topic, 1, 2))
            size = len(passage)
            found[0, place, :, :size, :size] = torch.as_tensor(self.weights[kind] / size)
            found[1, place, :, :size, :size] = 1 / size
        return Outputs(list(found), self.hidden(passages))

    def hidden(self, passages: Sequence[Int[np.ndarray, " _"]]) -> list[Float[Tensor, "passage position width"]]:
        """None of them."""
        return []


def planted_labelling(topic: Int[np.ndarray, " token"], seed: int = 0) -> Labelling:
    """All tokens with their own topics."""
    membership = topic[:, None] == np.arange(topic.max() + 1)
    return Labelling(membership, name=f"planted/{seed}", fraction=0.1, assignment="one", seed=seed)


def layer_means(model: Subject, passages: Sequence[Int[np.ndarray, " _"]]) -> Float[np.ndarray, "layer width"]:
    """Each layer's mean hidden state over all tokens of some passages; no layer if there are none."""
    outputs = [model.run([passage]).hidden for passage in passages]
    layers = [np.concatenate([layer[0].numpy() for layer in alike]) for alike in zip(*outputs, strict=True)]
    means = [states.mean(axis=0, dtype=np.float64) for states in layers]
    return np.stack(means).astype(np.float32) if means else np.zeros((0, 0), dtype=np.float32)
