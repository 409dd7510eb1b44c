"""Matrices kept at a few steps, for looking at: W^V, W^E⊤W^E, and attention by class of word pairs."""

import numpy as np
import torch
from jaxtyping import Float, Int

from topicscope.measure.attention import AttentionAverages, attention_averages, bag_attention_averages, pair_classes
from topicscope.model.batch import padded_batch
from topicscope.model.transformer import Transformer
from topicscope.randomness import Purpose
from topicscope.settings.model import MaskedKeys
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.training import dynamics
from topicscope.training.data import BatchStream
from topicscope.training.runs import Snapshot

# V × V matrices are for looking at entry by entry; larger vocabularies are not.
LARGEST_VOCABULARY = 512
# Documents that attention is averaged over.
DOCUMENTS = 32


class SnapshotTaker:
    """Takes snapshots of a model, always on the same held-out documents."""

    def __init__(self, stream: BatchStream) -> None:
        documents, masked_keys = stream.held_out(DOCUMENTS, Purpose.MEASURE), stream.settings.model.masked_keys
        self._attention: BagAttention | PositionAttention
        if stream.settings.model.positions == "none":
            self._attention = BagAttention(documents, masked_keys, stream.topic_model.word_topics)
        else:
            self._attention = PositionAttention(documents, masked_keys, stream.topic_model.word_topics)

    @torch.no_grad()
    def take(self, model: Transformer) -> Snapshot:
        """W^V of each layer, W^E⊤W^E, W^E⊤W^V W^E, and each head's attention to the same word, topic, other topics."""
        snapshot = {"value": model.parameter("value").detach().float().numpy().copy()}
        if model.sizes.vocabulary <= LARGEST_VOCABULARY:
            snapshot["embedding_products"] = dynamics.embedding_products(model).astype(np.float32)
            # With one-hot embeddings this is W^V itself, kept once.
            if not one_hot(model):
                snapshot["value_products"] = dynamics.value_products(model)
        averages = self._attention.averages(model)
        classes = (averages.same_word, averages.same_topic, averages.different_topic)
        return snapshot | {"attention": np.stack(classes).astype(np.float32)}


def one_hot(model: Transformer) -> bool:
    """Whether the embedding is frozen at the identity."""
    part = model.settings.embedding
    return part.start == "identity" and not part.train


def length_shares(documents: MaskedDocuments) -> Float[np.ndarray, "1 document 1 1 1"]:
    """Lengths over their mean, to multiply attention with.

    Uniform attention is 1/N: without this, short documents would count for more in one class than in another.
    """
    shares = documents.lengths / documents.lengths.mean()
    return shares.astype(np.float32)[None, :, None, None, None]


class PositionAttention:
    """Average attention by class, from all pairs of positions: for any model."""

    def __init__(
        self, documents: MaskedDocuments, masked_keys: MaskedKeys, word_topics: Int[np.ndarray, " token"]
    ) -> None:
        self._batch = padded_batch(documents, masked_keys=masked_keys, average="document")
        present = np.arange(self._batch.tokens.shape[1]) < documents.lengths[:, None]
        self._classes = pair_classes(self._batch.tokens.numpy(), present, word_topics)
        self._shares = length_shares(documents)

    @torch.no_grad()
    def averages(self, model: Transformer) -> AttentionAverages:
        """Average attention over the pairs of each class."""
        attention = model.attention(self._batch.tokens, self._batch.visible).numpy()
        return attention_averages(attention * self._shares, self._classes)


class BagAttention:
    """The same from distinct tokens and their counts: for models without positions, and far fewer pairs."""

    def __init__(
        self, documents: MaskedDocuments, masked_keys: MaskedKeys, word_topics: Int[np.ndarray, " token"]
    ) -> None:
        vocabulary = len(word_topics)
        code = documents.document * vocabulary + documents.tokens
        distinct, number, total = np.unique(code, return_inverse=True, return_counts=True)
        hidden = documents.masked if masked_keys == "hidden" else np.zeros_like(documents.masked)
        visible = np.bincount(number[~hidden], minlength=len(distinct))
        document, token = np.divmod(distinct, vocabulary)
        slot = np.arange(len(distinct)) - np.searchsorted(document, document)
        self._tokens, self._counts, self._visible = np.zeros((3, len(documents), slot.max() + 1), dtype=np.int64)
        for grid, values in ((self._tokens, token), (self._counts, total), (self._visible, visible)):
            grid[document, slot] = values
        self._word_topics = word_topics
        self._shares = length_shares(documents)

    @torch.no_grad()
    def averages(self, model: Transformer) -> AttentionAverages:
        """Average attention over the pairs of each class."""
        attention = model.attention(torch.from_numpy(self._tokens), torch.from_numpy(self._visible)).numpy()
        return bag_attention_averages(attention * self._shares, self._tokens, self._counts, self._word_topics)
