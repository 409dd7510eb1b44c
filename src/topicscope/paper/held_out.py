"""What weights do on documents that none of them was trained on: their loss, its gradients, and their attention."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float

from topicscope.measure.attention import pair_classes
from topicscope.model.transformer import Transformer, padded_batch
from topicscope.model.weights import Sizes, Weights, part_of
from topicscope.settings import Settings
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.synthetic.topics import TopicModel
from topicscope.training.engines import TopicModelEngine, make_engine


class Evaluator:
    """Evaluates weights of one setting, those of several seeds in one tensor."""

    def __init__(self, settings: Settings, topic_model: TopicModel) -> None:
        self.settings, self.topic_model = settings, topic_model
        self.sizes = Sizes.of(settings.model, topic_model.vocabulary, topic_model.length[1])

    @torch.no_grad()
    def losses(self, members: Sequence[Weights], documents: MaskedDocuments, chunk: int) -> Float[np.ndarray, " seed"]:
        """Each member's loss of eq. 1, without L2; chunks of so many documents have equal weight."""
        engine, _ = self._engine(members)
        batches = engine.prepare([documents] * len(members), steps=len(documents) // chunk)
        return torch.stack([engine.losses(batch).double() for batch in batches]).mean(dim=0).numpy()

    def gradient_norms(
        self, members: Sequence[Weights], documents: MaskedDocuments
    ) -> dict[str, Float[np.ndarray, " seed"]]:
        """The norm of the loss's gradient in every trained parameter; zero where the loss does not depend on it."""
        engine, weights = self._engine(members)
        names = [name for name in weights if part_of(name) in self.settings.model.trained_parts]
        for name in names:
            weights[name].requires_grad_()
        batch = engine.prepare([documents] * len(members))[0]
        found = engine.loss_gradients(engine.losses(batch), names)
        zero = torch.zeros(len(members))
        return {
            name: (found[name].flatten(1).norm(dim=1) if name in found else zero).double().numpy() for name in names
        }

    @torch.no_grad()
    def attention(self, weights: Weights, documents: MaskedDocuments) -> dict[str, float]:
        """Average attention of word queries over the pairs of each class; NaN for a class without a pair."""
        batch = padded_batch(documents, masked_keys=self.settings.model.masked_keys, average="document")
        model = Transformer(self.settings.model, self.sizes, weights)
        attention = model.attention(batch.tokens, batch.visible).mean(dim=(0, 2)).double().numpy()
        # Uniform attention is 1/N: without this, short documents would count for more in one class than in another.
        attention *= documents.lengths[:, None, None] / np.mean(self.topic_model.length)
        tokens = batch.tokens.numpy()
        present = np.arange(tokens.shape[1]) < documents.lengths[:, None]
        classes = pair_classes(tokens, present, self.topic_model.word_topics)
        word_query = (present & (tokens != 0))[:, None, :]
        pairs = {
            "same_word": classes.same_word,
            "same_topic": classes.same_topic,
            "different_topic": classes.different_topic,
            "mask_key": word_query & (present & (tokens == 0))[:, :, None],
            "itself": word_query & np.eye(tokens.shape[1], dtype=bool),
        }
        # A hidden key gets no attention whatever it holds: it says nothing of its class.
        seen = batch.visible.numpy()[:, :, None]
        masks = {name: pair & seen for name, pair in pairs.items()}
        return {name: float(attention[mask].mean()) if mask.any() else np.nan for name, mask in masks.items()}

    def _engine(self, members: Sequence[Weights]) -> tuple[TopicModelEngine, dict[str, torch.Tensor]]:
        """What trained them, on these weights: all members in one tensor."""
        engine = make_engine([self.settings] * len(members), self.topic_model, members)
        return engine, engine.weights
