"""What is measured of trained weights on held-out documents: losses, attention by class, gradients at the start.

The documents are the same for every seed, and for all experiments of equal data and masking: differences are paired.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float

from topicscope.model.transformer import Transformer
from topicscope.model.weights import Sizes, Weights
from topicscope.settings import Settings
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.synthetic.topics import TopicModel
from topicscope.training.batches import held_out_documents
from topicscope.training.engines import TopicModelEngine, make_engine
from topicscope.training.record import AttentionByClass

# Documents per forward pass.
CHUNK = 500
# How many of them attention is averaged over, and gradients at the start are computed on.
ATTENTION_DOCUMENTS, GRADIENT_DOCUMENTS = 100, 400


def final_measures(
    settings: Settings, topic_model: TopicModel, weights: Sequence[Weights], *, starts: Sequence[Weights] = ()
) -> dict[str, Float[np.ndarray, "seed ..."]]:
    """Loss and attention at each seed's final weights; norms of gradients at its initial weights, if they are given."""
    documents, seeds = held_out_documents(settings, topic_model), range(len(weights))
    measures = {
        "held_out_loss": mean_losses(make_engine(settings, seeds, topic_model, weights), documents, CHUNK),
        "attention": attention_averages(weights, settings, documents.span(0, ATTENTION_DOCUMENTS), topic_model),
    }
    if starts:
        engine = make_engine(settings, seeds, topic_model, starts)
        norms = gradient_norms(engine, documents.span(0, GRADIENT_DOCUMENTS))
        measures |= {f"first_gradients/{part}": norm for part, norm in norms.items()}
    return measures


def mean_losses(engine: TopicModelEngine, documents: MaskedDocuments, chunk: int) -> Float[np.ndarray, " seed"]:
    """Each seed's loss of eq. 1, without L2; chunks of so many documents have equal weight."""
    batches = engine.prepare([documents] * len(engine.seeds), steps=len(documents) // chunk)
    with torch.no_grad():
        return torch.stack([engine.losses(batch).double() for batch in batches]).mean(dim=0).numpy()


def gradient_norms(engine: TopicModelEngine, documents: MaskedDocuments) -> dict[str, Float[np.ndarray, " seed"]]:
    """The norm of the loss's gradient in every trained parameter; zero where the loss does not depend on it."""
    for name in engine.trained:
        engine.weights[name].requires_grad_()
    [batch] = engine.prepare([documents] * len(engine.seeds))
    gradients = engine.loss_gradients(engine.losses(batch), engine.trained)
    norms = {name: gradient.flatten(1).norm(dim=1).double().numpy() for name, gradient in gradients.items()}
    return {name: norms.get(name, np.zeros(len(engine.seeds))) for name in engine.trained}


def attention_averages(
    weights: Sequence[Weights], settings: Settings, documents: MaskedDocuments, topic_model: TopicModel
) -> Float[np.ndarray, "seed class"]:
    """Each seed's average attention by ``measure.attention.ATTENTION_CLASSES``, layers and heads averaged.

    Attention is multiplied by the document's length over the average length, so that uniform attention is the same in
    all classes.
    """
    by_class = AttentionByClass(documents, settings, topic_model)
    sizes = Sizes.of(settings.model, topic_model.vocabulary, topic_model.length[1])
    models = (Transformer(settings.model, sizes, arrays, dtype=torch.float64) for arrays in weights)
    return np.array([by_class.averages(model).mean(axis=(1, 2)) for model in models])
