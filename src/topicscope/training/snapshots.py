"""Matrices kept at a few steps, for looking at: W^V, W^E⊤W^E, and attention by class of word pairs."""

import numpy as np
import torch

from topicscope.measure.attention import attention_averages, pair_classes
from topicscope.model.batch import padded_batch
from topicscope.model.transformer import Transformer
from topicscope.randomness import Purpose
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
        documents = stream.held_out(DOCUMENTS, Purpose.MEASURE)
        self._batch = padded_batch(documents, masked_keys=stream.settings.model.masked_keys, average="document")
        # By layer, document, head, key and query.
        shares = documents.lengths / np.mean(stream.topic_model.length)
        self._length = shares.astype(np.float32)[None, :, None, None, None]
        present = np.arange(self._batch.tokens.shape[1]) < documents.lengths[:, None]
        self._classes = pair_classes(self._batch.tokens.numpy(), present, stream.topic_model.word_topics)

    @torch.no_grad()
    def take(self, model: Transformer) -> Snapshot:
        """W^V of each layer, W^E⊤W^E, W^E⊤W^V W^E, and each head's attention to the same word, topic, other topics."""
        snapshot = {"value": model.parameter("value").detach().float().numpy().copy()}
        if model.sizes.vocabulary <= LARGEST_VOCABULARY:
            snapshot["embedding_products"] = dynamics.embedding_products(model).astype(np.float32)
            # With one-hot embeddings this is W^V itself, kept once.
            if not one_hot(model):
                snapshot["value_products"] = dynamics.value_products(model)
        # Uniform attention is 1/N: without this, short documents would count for more in one class than in another.
        attention = model.attention(self._batch.tokens, self._batch.visible).numpy() * self._length
        averages = attention_averages(attention, self._classes)
        classes = (averages.same_word, averages.same_topic, averages.different_topic)
        return snapshot | {"attention": np.stack(classes).astype(np.float32)}


def one_hot(model: Transformer) -> bool:
    """Whether the embedding is frozen at the identity."""
    part = model.settings.embedding
    return part.start == "identity" and not part.train
