"""The paper's transformer, position by position: eq. 6 and 7 by default, and the switches beyond them.

This is the reference: it computes attention between all positions, as the equations are written, on documents padded
to the longest of the batch. States are rows here (a row per position) where the paper has columns, so the paper's W z
is written ``state @ W.T``.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from topicscope.model.weights import NORM_EPSILON, Weights, part_of
from topicscope.settings import Model
from topicscope.settings.model import MaskedKeys
from topicscope.settings.training import Average
from topicscope.synthetic.documents import MaskedDocuments


@dataclass(frozen=True, eq=False)
class Batch:
    """What the model sees and must predict, position by position."""

    tokens: Int[Tensor, "document position"]
    visible: Bool[Tensor, "document position"]
    """Positions that can be attended to: not padding, and not hidden."""

    masked: Bool[Tensor, "document position"]
    words: Int[Tensor, " target"]
    """The words at the masked positions, document after document."""

    weights: Float[Tensor, " target"]
    """How much each masked position counts in the loss; they sum to one."""

    def to(self, device: torch.device, dtype: torch.dtype) -> "Batch":
        """The same on a device, with weights of a type."""
        moved = {name: tensor.to(device) for name, tensor in vars(self).items() if name != "weights"}
        return Batch(**moved, weights=self.weights.to(dtype).to(device))


def padded_batch(documents: MaskedDocuments, *, masked_keys: MaskedKeys, average: Average) -> Batch:
    """Lay documents of different lengths into rectangles; padding is neither attended to nor predicted."""
    longest = int(documents.lengths.max())
    present = np.arange(longest) < documents.lengths[:, None]
    tokens = np.zeros(present.shape, dtype=np.int64)
    masked = np.zeros(present.shape, dtype=bool)
    tokens[present], masked[present] = documents.tokens, documents.masked
    visible = present & ~masked if masked_keys == "hidden" else present
    return Batch(
        tokens=torch.from_numpy(tokens),
        visible=torch.from_numpy(visible),
        masked=torch.from_numpy(masked),
        words=torch.from_numpy(documents.words[documents.masked].astype(np.int64)),
        weights=torch.from_numpy(target_weights(documents, average)),
    )


def target_weights(documents: MaskedDocuments, average: Average, *, batches: int = 1) -> Float[np.ndarray, " target"]:
    """Each masked position's share of the loss.

    ``document`` is eq. 1: 1/|M| within a document, then the mean over documents. ``batch`` gives all masked
    positions the same share, so a document counts by how many it has. The documents may be several ``batches`` of
    the same number of documents, one after another; the shares of each sum to one.
    """
    counts = documents.masked_counts
    if average == "batch":
        counts = counts.reshape(batches, -1).sum(axis=1)
        return np.repeat(1.0 / counts, counts)
    return np.repeat(batches / (len(documents) * counts), counts)


BLOCKS = (
    "key",
    "query",
    "value",
    "output",
    "feed_forward_in",
    "feed_forward_out",
    "attention_norm",
    "feed_forward_norm",
)
# Parameters that each layer has its own of.
LAYERED = tuple(name + end for name in BLOCKS for end in ("", "_bias"))

# One layer's parameters by name.
Layer = Mapping[str, Tensor]


class Blocks:
    """What both ways of computing the model have in common: everything but embedding and attention."""

    settings: Model
    layer_axis = 0
    """The axis of parameters that each layer has its own of."""

    def parameter(self, name: str) -> Tensor:
        """One parameter by name, for instance ``value``."""
        parameter = getattr(self, name)
        assert isinstance(parameter, Tensor)
        return parameter

    def _has(self, name: str) -> bool:
        return hasattr(self, name)

    def predict(self, state: Float[Tensor, "*row dimension"]) -> Float[Tensor, "*row token"]:
        """W^pred state + b^pred, with W^pred = W^E⊤ unless untied."""
        if self.settings.head_transform:
            state = self._normalise(functional.gelu(self._linear(state, "head")), "head_norm")
        return self._linear(state, "embedding" if self.settings.tied else "prediction", bias="prediction_bias")

    def _layers(self) -> list[Layer]:
        """Each layer's parameters; taken apart once, so that their gradients are put together once."""
        names = [name for name in LAYERED if self._has(name)]
        apart = [self.parameter(name).unbind(self.layer_axis) for name in names]
        return [dict(zip(names, each, strict=True)) for each in zip(*apart, strict=True)]

    def _finish(
        self, before: Float[Tensor, "*row dimension"] | None, mixed: Float[Tensor, "*row dimension"], layer: Layer
    ) -> Float[Tensor, "*row dimension"]:
        """What follows attention in a layer; ``before`` is needed for the residual connection only."""
        if self.settings.output_projection:
            mixed = self._linear(mixed, "output", layer)
        state = self._connect(before, mixed, "attention_norm", layer)
        if not self.settings.feed_forward:
            return state
        inner = functional.gelu(self._linear(state, "feed_forward_in", layer))
        return self._connect(state, self._linear(inner, "feed_forward_out", layer), "feed_forward_norm", layer)

    def _connect(self, before: Tensor | None, after: Tensor, norm: str, layer: Layer) -> Tensor:
        if self.settings.residual:
            assert before is not None
            after = before + after
        return self._normalise(after, norm, layer) if self.settings.layer_norm else after

    def _linear(self, state: Tensor, name: str, layer: Layer | None = None, bias: str = "") -> Tensor:
        """W state + b, with the matrix of this name, of a layer or of the whole model."""
        return functional.linear(state, self._of(name, layer), self._of(bias or name + "_bias", layer))

    def _normalise(self, state: Tensor, norm: str, layer: Layer | None = None) -> Tensor:
        gain, bias = self._of(norm, layer), self._of(norm + "_bias", layer)
        return functional.layer_norm(state, state.shape[-1:], gain, bias, NORM_EPSILON)

    def _of(self, name: str, layer: Layer | None) -> Tensor:
        return self.parameter(name) if layer is None else layer[name]


class Transformer(Blocks, nn.Module):
    """Attention layers between W^E and W^E⊤, with the switches of the settings."""

    def __init__(self, settings: Model, weights: Weights, *, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.settings: Model = settings
        trained = settings.trained_parts
        for name, array in weights.items():
            tensor = torch.from_numpy(array).to(dtype, copy=True)
            self.register_parameter(name, nn.Parameter(tensor, requires_grad=part_of(name) in trained))
        # Two-stage training holds attention uniform for a while, whatever W^K and W^Q are.
        self.uniform_attention = settings.uniform

    def forward(
        self, tokens: Int[Tensor, "document position"], visible: Bool[Tensor, "document position"] | None = None
    ) -> Float[Tensor, "document position token"]:
        """f(X̃): a score for every token at every position."""
        return self.predict(self.states(tokens, visible)[-1])

    def predict_masked(self, batch: Batch) -> Float[Tensor, "target token"]:
        """Scores at the masked positions alone."""
        state, keys = self._embed(batch.tokens), self._keys(batch.tokens, batch.visible)
        *layers, last = self._layers()
        for layer in layers:
            state = self._finish(state, self._mix(state, keys, layer), layer)
        # The last layer's attention is the last to need the other positions.
        mixed = self._mix(state, keys, last)
        return self.predict(self._finish(state[batch.masked], mixed[batch.masked], last))

    def attention(
        self,
        tokens: Int[Tensor, "document position"],
        visible: Bool[Tensor, "document position"] | Int[Tensor, "document position"] | None = None,
    ) -> Float[Tensor, "layer document head key query"]:
        """A of every layer; each column (a query) sums to one over the keys (eq. 5).

        Without positions equal tokens have equal rows, so a row may stand for several tokens: ``visible`` is then
        their number, and A is the attention to all of them together.
        """
        keys = self._keys(tokens, visible)
        states = self.states(tokens, visible)[:-1]
        return torch.stack(
            [self._attention(state, keys, layer) for state, layer in zip(states, self._layers(), strict=True)]
        )

    def states(
        self,
        tokens: Int[Tensor, "document position"],
        visible: Bool[Tensor, "document position"] | Int[Tensor, "document position"] | None = None,
    ) -> list[Float[Tensor, "document position dimension"]]:
        """The embeddings, then the output of each layer."""
        states, keys = [self._embed(tokens)], self._keys(tokens, visible)
        for layer in self._layers():
            states.append(self._finish(states[-1], self._mix(states[-1], keys, layer), layer))
        return states

    def _keys(self, tokens: Tensor, visible: Tensor | None) -> Float[Tensor, "document position"]:
        """How many keys a row stands for: none where it cannot be attended to."""
        return (torch.ones_like(tokens) if visible is None else visible).to(self.parameter("embedding").dtype)

    def _embed(self, tokens: Int[Tensor, "document position"]) -> Float[Tensor, "document position dimension"]:
        state = functional.embedding(tokens, self.parameter("embedding"))
        _, length, dimension = state.shape
        if self.settings.positions == "learned":
            state = state + self.parameter("positions")[:length]
        if self.settings.positions == "sinusoidal":
            state = state + sinusoids(length, dimension).to(state)
        if self.settings.token_types:
            state = state + self.parameter("token_types")
        return self._normalise(state, "embedding_norm") if self.settings.embedding_norm else state

    def _mix(
        self,
        state: Float[Tensor, "document position dimension"],
        keys: Float[Tensor, "document position"],
        layer: Layer,
    ) -> Float[Tensor, "document position dimension"]:
        """W^V Z A, heads side by side."""
        if self.uniform_attention:
            # A = 1/N: every query gets the mean over the keys, so the mean is taken first.
            mean = torch.einsum("dk,dkw->dw", keys / keys.sum(dim=1, keepdim=True), state)
            return self._linear(mean, "value", layer)[:, None, :].expand_as(state)
        query, key, value = (self._heads(self._linear(state, name, layer)) for name in ("query", "key", "value"))
        # The fused kernel does not return A; it takes half the time without numbers to add.
        logs = None if bool((keys == 1).all()) else keys.log()[:, None, None, :]
        mixed = functional.scaled_dot_product_attention(query, key, value, logs)
        return mixed.transpose(1, 2).flatten(start_dim=2)

    def _attention(
        self,
        state: Float[Tensor, "document position dimension"],
        keys: Float[Tensor, "document position"],
        layer: Layer,
    ) -> Float[Tensor, "document head key query"]:
        if self.uniform_attention:
            shares = keys / keys.sum(dim=1, keepdim=True)
            documents, positions = keys.shape
            return shares[:, None, :, None].expand(documents, self.settings.heads, positions, positions)
        key, query = (self._heads(self._linear(state, name, layer)) for name in ("key", "query"))
        scores = key @ query.mT / math.sqrt(query.shape[-1])
        return (scores + keys.log()[:, None, :, None]).softmax(dim=2)

    def _heads(self, rows: Float[Tensor, "document position all"]) -> Float[Tensor, "document head position width"]:
        return rows.view(*rows.shape[:2], self.settings.heads, -1).transpose(1, 2)


def sinusoids(length: int, dimension: int) -> Float[Tensor, "position dimension"]:
    """The fixed positional encoding of Vaswani et al. (2017): sines, then cosines, of falling frequency."""
    half = (dimension + 1) // 2
    frequency = torch.exp(torch.arange(half, dtype=torch.float64) * (-math.log(10_000.0) / half))
    angle = torch.arange(length, dtype=torch.float64)[:, None] * frequency
    return torch.cat([angle.sin(), angle.cos()], dim=1)[:, :dimension]
