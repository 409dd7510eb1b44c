"""An experiment is a value: settings to train with several seeds, and what comes out of it as arrays.

``paper.running`` trains, and is imported only where that is done: experiments can be named without torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int

from topicscope.paper.needs import Seeds
from topicscope.settings import Settings

# Seconds that a document of a step takes on one core for five seeds, one-hot embeddings and uniform attention; and by
# how much more attention and trained embeddings take.
DOCUMENT_SECONDS = 6e-5
ATTENTION_FACTOR = 2.0
EMBEDDING_FACTOR = 1.6

# Classes of (key, query) pairs that attention is averaged over; queries are words, and each position is one pair.
ATTENTION_CLASSES = ("same_word", "same_topic", "different_topic", "mask_key", "itself")


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Settings trained with several seeds. Two experiments with equal settings are trained once."""

    name: str
    """Readable and unique, with slashes: "figure2/squared-adam"."""

    reproduces: str
    """What of the paper it is for: "Figure 2"."""

    settings: Settings
    """All but the seed, which is the ensemble's to choose."""

    topic_words: tuple[tuple[float, ...], ...] = ()
    """A topic-word matrix (a row a topic), instead of a file named in ``settings.data.topic_words``."""

    suffix: ClassVar[str] = ".safetensors"

    @property
    def cost(self) -> float:
        """Seconds that training takes, roughly."""
        model, training = self.settings.model, self.settings.training
        attention = 1.0 if model.uniform else ATTENTION_FACTOR
        embedding = EMBEDDING_FACTOR if model.embedding.train else 1.0
        return DOCUMENT_SECONDS * training.steps * training.batch * attention * embedding

    def key(self, seeds: Seeds) -> dict[str, Any]:
        """Settings, seeds, code and libraries."""
        from topicscope.paper.storage import experiment_key

        return experiment_key(self, seeds)

    def compute(self, seeds: Seeds) -> bytes:
        """Train all seeds."""
        from topicscope.paper.running import run_experiment
        from topicscope.paper.storage import dump

        return dump(run_experiment(self, seeds))

    def restore(self, content: bytes) -> "Trained":
        """The result as arrays."""
        from topicscope.paper.storage import restore

        return restore(content, self)


@dataclass(frozen=True, eq=False)
class Trained:
    """An experiment's result: arrays with a leading ``seed`` axis.

    A run that diverged has NaN from there on, and NaN everywhere in weights, held-out loss and attention.
    """

    settings: Settings
    seeds: tuple[int, ...]

    weights: Mapping[str, Float[np.ndarray, "seed ..."]]
    """Final weights by parameter, as in a checkpoint: "embedding" is W^E⊤ (token, dimension), "value", "key" and
    "query" have a ``layer`` axis after ``seed``."""

    steps: Int[np.ndarray, " row"]
    """The step that each row of the metrics below belongs to; 0 is before the first update, the last is the end."""

    loss: Float[np.ndarray, "seed row"]
    """Loss of the step's own batch, without L2."""

    norms: Mapping[str, Float[np.ndarray, "seed row"]]
    """Frobenius norm of each parameter; layers together."""

    rotation: Float[np.ndarray, "seed row"]
    """(1 − cos)/2 between the first layer's W^V and itself 10 steps earlier; NaN before step 10."""

    contrasts: Mapping[str, Float[np.ndarray, "seed row"]]
    """Same- minus different-topic average: "value" of W^E⊤W^V W^E (first layer), "embedding" of W^E⊤W^E."""

    held_out_loss: Float[np.ndarray, " seed"]
    """Final loss, without L2, on one large set of documents and masks common to all seeds and, for equal data and
    masking settings, to all experiments: differences between experiments are paired."""

    attention: Float[np.ndarray, "seed class"]
    """Final attention (layers and heads averaged) of word queries by ATTENTION_CLASSES: the average over pairs of
    positions, keys that hold [MASK] and a position's pair with itself apart. Attention is multiplied by the document's
    length over the average length, so that uniform attention is the same in all classes. Hidden keys are in no average;
    NaN for a class without a pair."""

    first_gradients: Mapping[str, Float[np.ndarray, " seed"]]
    """Norm of each trained parameter's gradient at the initial weights, on the held-out set (§8.1)."""

    seconds: float
    """What training all seeds took."""

    film: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Matrices over training for the page, where the settings ask for snapshots."""

    word_topics: Int[np.ndarray, " token"] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Topic of each token, −1 for [MASK]."""

    @property
    def value_products(self) -> Float[np.ndarray, "seed token token"]:
        """W^E⊤ W^V W^E of the first layer: what W^V does between tokens; W^V itself for one-hot embeddings."""
        table = self.weights["embedding"].astype(np.float64)
        return table @ self.weights["value"][:, 0].astype(np.float64) @ table.transpose(0, 2, 1)

    @property
    def embedding_products(self) -> Float[np.ndarray, "seed token token"]:
        """E = W^E⊤ W^E."""
        table = self.weights["embedding"].astype(np.float64)
        return table @ table.transpose(0, 2, 1)
