"""What weights do on documents that none of them was trained on: their loss, its gradients, and their attention.

All take the engine that would train these weights: those of several seeds are in one tensor.
"""

import numpy as np
import torch
from jaxtyping import Float

from topicscope.measure.attention import pair_classes
from topicscope.model.transformer import padded_batch
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.training.engines import TopicModelEngine


@torch.no_grad()
def mean_losses(engine: TopicModelEngine, documents: MaskedDocuments, chunk: int) -> Float[np.ndarray, " seed"]:
    """Each seed's loss of eq. 1, without L2; chunks of so many documents have equal weight."""
    batches = engine.prepare([documents] * len(engine.members), steps=len(documents) // chunk)
    return torch.stack([engine.losses(batch).double() for batch in batches]).mean(dim=0).numpy()


def gradient_norms(engine: TopicModelEngine, documents: MaskedDocuments) -> dict[str, Float[np.ndarray, " seed"]]:
    """The norm of the loss's gradient in every trained parameter; zero where the loss does not depend on it."""
    for name in engine.trained:
        engine.weights[name].requires_grad_()
    [batch] = engine.prepare([documents] * len(engine.members))
    found = engine.loss_gradients(engine.losses(batch), engine.trained)
    zero = torch.zeros(len(engine.members))
    return {
        name: (found[name].flatten(1).norm(dim=1) if name in found else zero).double().numpy()
        for name in engine.trained
    }


@torch.no_grad()
def attention_averages(engine: TopicModelEngine, documents: MaskedDocuments) -> list[dict[str, float]]:
    """Each seed's average attention of word queries over the pairs of each class; NaN for a class without a pair."""
    batch = padded_batch(documents, masked_keys=engine.settings.model.masked_keys, average="document")
    tokens = batch.tokens.numpy()
    present = np.arange(tokens.shape[1]) < documents.lengths[:, None]
    classes = pair_classes(tokens, present, engine.topic_model.word_topics)
    word_query = (present & (tokens != 0))[:, None, :]
    pairs = {
        "same_word": classes.same_word,
        "same_topic": classes.same_topic,
        "different_topic": classes.different_topic,
        "mask_key": word_query & (present & (tokens == 0))[:, :, None],
        "itself": word_query & np.eye(tokens.shape[1], dtype=bool),
    }
    # A hidden key gets no attention whatever it holds: it says nothing of its class.
    masks = {name: pair & batch.visible.numpy()[:, :, None] for name, pair in pairs.items()}
    # Uniform attention is 1/N: without this, short documents would count for more in one class than in another.
    scale = documents.lengths[:, None, None] / np.mean(engine.topic_model.length)
    averages = []
    for model in engine.models:
        attention = model.attention(batch.tokens, batch.visible).mean(dim=(0, 2)).double().numpy() * scale
        averages.append({name: float(attention[mask].mean()) if mask.any() else np.nan for name, mask in masks.items()})
    return averages
