"""What training records: norms, W^V's rotation, the contrast along topic blocks, how far the stages are, and snapshots.

Snapshots are matrices kept at a few steps to be looked at: W^V, W^E⊤W^E, and attention by class of word pairs.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, float64

from topicscope.files import Row
from topicscope.measure.attention import AttentionAverages, attention_averages, bag_attention_averages, pair_classes
from topicscope.measure.blocks import product_contrasts
from topicscope.measure.stages import distance_from_uniform, mode_norms
from topicscope.model.transformer import Transformer, padded_batch
from topicscope.model.weights import embedded
from topicscope.randomness import Purpose
from topicscope.records import Snapshot
from topicscope.settings import Settings
from topicscope.settings.model import MaskedKeys
from topicscope.synthetic.documents import Bags, MaskedDocuments
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.cross_entropy import cross_entropy_optimum, uniform_cross_entropy
from topicscope.theory.finite_documents import finite_optimum, moments, population_loss
from topicscope.training.batches import BatchStream

Weights = dict[str, Float[Tensor, "seed ..."]]

COLUMNS = (
    "step",
    "loss",
    "penalty",
    "validation_loss",
    "learning_rate",
    "norm",
    "head_norm",
    "rotation",
    "gradient_norm",
    "contrast",
    "attention",
    "modes",
    "uniform_gain",
    "topics",
)
# How many steps back W^V's rotation looks (Figure 5).
ROTATION_STEPS = 10
# V × V matrices up to this size can be looked at entry by entry.
LARGEST_VOCABULARY = 512
# Attention is averaged over this many documents.
DOCUMENTS = 32
# At every row attention is compared with uniform attention on this many documents: a thousand word queries, and cheap.
STAGE_DOCUMENTS = 8
# Cross-entropy under uniform attention is computed on this many documents, the optimum's and the run's alike.
GAIN_DOCUMENTS = 250
# This ridge keeps the optimum of cross-entropy finite; its cost is far below a thousandth of the gain.
GAIN_RIDGE = 1e-9
# The seed of these documents, which no run has.
STAGE_SEED = 2**40
# Matrices that the model has once, not once per layer.
UNLAYERED = frozenset({"embedding", "positions", "token_types", "prediction", "head"})


def in_order(row: Row) -> Row:
    """A row with its columns in order; runs on documents of a topic model and runs on text each have some of them."""
    return {name: row[name] for name in COLUMNS if name in row}


def norms(weights: Weights) -> list[dict[str, list[float]]]:
    """Frobenius norm of every parameter, one per layer, for each seed."""
    layered = {
        name: weight if weight.dim() > 2 and name not in UNLAYERED else weight[:, None]
        for name, weight in weights.items()
    }
    found = {
        name: weight.detach().cpu().flatten(start_dim=2).norm(dim=2, dtype=float64).tolist()
        for name, weight in layered.items()
    }
    return [dict(zip(found, each, strict=True)) for each in zip(*found.values(), strict=True)]


def head_norms(matrix: Float[Tensor, "layer row column"], heads: int) -> list[list[float]]:
    """Frobenius norm of each head's rows of W^K, W^Q or W^V, by layer; their squares sum to the layer's."""
    return matrix.cpu().reshape(len(matrix), heads, -1).norm(dim=2, dtype=float64).tolist()


def value_products(model: Transformer) -> Float[np.ndarray, "layer token token"]:
    """W^E⊤ W^V W^E of each layer: what W^V does between tokens."""
    table = model.parameter("embedding").detach()
    return (table @ model.parameter("value").detach() @ table.T).float().numpy()


def contrasts(weights: Weights, word_topics: Int[np.ndarray, " token"]) -> list[dict[str, Any]]:
    """Same- minus different-topic averages of W^E⊤ W^V W^E (one per layer) and of W^E⊤ W^E, for each seed."""
    table = weights["embedding"].detach().double().numpy()[:, None]
    values = weights["value"].detach().double().numpy()
    by_layer, alone = (product_contrasts(rows, table, word_topics) for rows in (table @ values, table))
    if by_layer is None or alone is None:
        return [{"value": [None] * values.shape[1], "embedding": None} for _ in values]
    return [
        {"value": of_layers, "embedding": of_embedding}
        for of_layers, of_embedding in zip(by_layer.tolist(), alone[:, 0].tolist(), strict=True)
    ]


class StageRecorder:
    """Measures at each row how far attention is from uniform, and how much W^V alone has gained.

    This is for one layer without positions, where attention follows from pairs of tokens. The documents are the same
    for all seeds, and none of them is trained on.
    """

    def __init__(self, settings: Settings, topic_model: TopicModel) -> None:
        stream = BatchStream(dataclasses.replace(settings, seed=STAGE_SEED), topic_model)
        documents = stream.held_out(GAIN_DOCUMENTS, Purpose.MEASURE)
        self.documents = few = documents.span(0, STAGE_DOCUMENTS)
        hidden = settings.model.masked_keys == "hidden"
        self._keys, self._queries = np.zeros((2, STAGE_DOCUMENTS, topic_model.vocabulary), dtype=np.int64)
        np.add.at(self._queries, (few.document, few.tokens), 1)
        np.add.at(self._keys, (few.document, few.tokens), ~few.masked if hidden else 1)
        self._word_topics = topic_model.word_topics
        self._gain = uniform_gain(settings, topic_model, documents)

    @staticmethod
    def can(settings: Settings, vocabulary: int) -> bool:
        """Whether there is attention to measure, and by tokens alone."""
        model = settings.model
        plain = model.layers == 1 and model.heads == 1 and model.positions == "none"
        return plain and not model.uniform and vocabulary <= LARGEST_VOCABULARY

    # A seed that has diverged has numbers that are not finite, and its row says so.
    @np.errstate(all="ignore")
    def rows(self, weights: Weights) -> list[Row]:
        """For each seed: a(t) of word and of [MASK] queries, norms of W^K's and W^Q's modes, and g(t) if defined."""
        found = {name: weight.detach().double().cpu().numpy() for name, weight in weights.items()}
        table, inputs = found["embedding"], embedded(found)
        key, query = (
            inputs @ found[name][:, 0].transpose(0, 2, 1) + found[f"{name}_bias"] for name in ("key", "query")
        )
        scores = key @ query.transpose(0, 2, 1) / np.sqrt(key.shape[-1])
        words, mask = distance_from_uniform(scores, self._keys, self._queries)
        # Without [MASK] tokens (p_c + p_r = 1) no query is one.
        masks_attend = self._queries[:, 0].any()
        modes = {
            name: mode_norms(tokens.transpose(0, 2, 1), self._word_topics)
            for name, tokens in (("key", key), ("query", query))
        }
        # Frequencies sum to one, so a bias of the prediction is the same as one added to every column of W^V.
        bias = np.einsum("std,sd->st", table, found["value_bias"][:, 0]) + found["prediction_bias"]
        products = table @ found["value"][:, 0] @ table.transpose(0, 2, 1) + bias[:, :, None]
        gains = [self._gain(product) for product in products] if self._gain else [None] * len(table)
        return [
            {
                "attention": {"words": float(words[seed]), "mask": float(mask[seed]) if masks_attend else None},
                "modes": {
                    name: {"mask": float(of_mask[seed]), "topics": float(of_topics[seed])}
                    for name, (of_mask, of_topics) in modes.items()
                },
                "uniform_gain": gain,
            }
            for seed, gain in enumerate(gains)
        ]


def uniform_gain(
    settings: Settings, topic_model: TopicModel, documents: MaskedDocuments
) -> Callable[[Float[np.ndarray, "token token"]], float] | None:
    """g: the gain of W^V under uniform attention as a share of the gain of the optimum under uniform attention.

    The gain is that over predicting nothing (W^V = 0), without L2. It is exact for the squared loss; for cross-entropy
    both losses are computed on the same documents. Biases count as part of W^V (``StageRecorder.rows``), and add
    nothing to the optimum. It is None where the optimum is not known: with hidden keys, START and END or parts beyond
    eq. 6, and for cross-entropy with words that are not equally likely or the average over a batch.
    """
    model, loss = settings.model, settings.training.loss
    if model.masked_keys == "hidden" or model.residual or model.extras or topic_model.ends:
        return None
    if loss == "squared":
        exact = moments(topic_model, settings.masking, settings.training.average)
        best = population_loss(finite_optimum(exact), exact)
        return lambda matrix: (1 - population_loss(matrix, exact)) / (1 - best)
    if topic_model.equal_words is None or settings.training.average != "document":
        return None
    bags = Bags.of(documents, topic_model.vocabulary)
    best = cross_entropy_optimum(bags, topic_model.topics, topic_model.equal_words, GAIN_RIDGE).objective
    nothing = float(np.log(topic_model.vocabulary))
    return lambda matrix: (nothing - uniform_cross_entropy(matrix, bags)) / (nothing - best)


class SnapshotTaker:
    """Takes snapshots of a model, always on the same held-out documents."""

    def __init__(self, stream: BatchStream) -> None:
        self._attention = AttentionByClass(
            stream.held_out(DOCUMENTS, Purpose.MEASURE),
            stream.settings.model.masked_keys,
            stream.topic_model.word_topics,
            bags=stream.settings.model.positions == "none",
        )

    @torch.no_grad()
    def take(self, model: Transformer) -> Snapshot:
        """W^V of each layer, W^E⊤W^E, W^E⊤W^V W^E, and each head's attention to the same word, topic, other topics."""
        snapshot = {"value": model.parameter("value").detach().float().numpy().copy()}
        if model.sizes.vocabulary <= LARGEST_VOCABULARY:
            table = model.parameter("embedding").detach()
            snapshot["embedding_products"] = (table @ table.T).numpy().astype(np.float32)
            # With one-hot embeddings this is W^V itself, kept once.
            if model.settings.embedding.start != "identity" or model.settings.embedding.train:
                snapshot["value_products"] = value_products(model)
        averages = self._attention.averages(model)
        classes = (averages.same_word, averages.same_topic, averages.different_topic)
        return snapshot | {"attention": np.stack(classes).astype(np.float32)}


class AttentionByClass:
    """Average attention by class of word pairs, from all pairs of positions.

    For models without positions it can be computed from ``bags``, distinct tokens and their counts: the result is the
    same, from far fewer pairs.
    """

    def __init__(
        self,
        documents: MaskedDocuments,
        masked_keys: MaskedKeys,
        word_topics: Int[np.ndarray, " token"],
        *,
        bags: bool,
    ) -> None:
        self._word_topics = word_topics
        # Uniform attention is 1/N: without this, short documents would count for more in one class than in another.
        shares = documents.lengths / documents.lengths.mean()
        self._shares = shares.astype(np.float32)[None, :, None, None, None]
        if not bags:
            batch = padded_batch(documents, masked_keys=masked_keys, average="document")
            self._tokens, self._visible, self._counts = batch.tokens.numpy(), batch.visible.numpy(), None
            present = np.arange(self._tokens.shape[1]) < documents.lengths[:, None]
            self._classes = pair_classes(self._tokens, present, word_topics)
            return
        vocabulary = len(word_topics)
        code = documents.document * vocabulary + documents.tokens
        distinct, number, total = np.unique(code, return_inverse=True, return_counts=True)
        hidden = documents.masked if masked_keys == "hidden" else np.zeros_like(documents.masked)
        visible = np.bincount(number[~hidden], minlength=len(distinct))
        document, token = np.divmod(distinct, vocabulary)
        slot = np.arange(len(distinct)) - np.searchsorted(document, document)
        grids = np.zeros((3, len(documents), slot.max() + 1), dtype=np.int64)
        grids[:, document, slot] = token, visible, total
        self._tokens, self._visible, self._counts = grids

    @torch.no_grad()
    def averages(self, model: Transformer) -> AttentionAverages:
        """Average attention over the pairs of each class."""
        attention = model.attention(torch.from_numpy(self._tokens), torch.from_numpy(self._visible)).numpy()
        attention = attention * self._shares
        if self._counts is None:
            return attention_averages(attention, self._classes)
        return bag_attention_averages(attention, self._tokens, self._counts, self._word_topics)
