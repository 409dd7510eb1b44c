"""The paper's transformer: eq. 6 and 7 by default, and the switches beyond them.

This is the reference. It computes attention between all rows of a document, as the equations are written: a row per
position, or, in a model without positions, a row per distinct token with its count, which gives the same function.
States are rows here where the paper has columns, so the paper's W z is written ``state @ W.T``.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from topicscope.model.weights import LAYERED, NORM_EPSILON, Weights, part_of
from topicscope.settings import Model
from topicscope.settings.model import MaskedKeys
from topicscope.settings.training import Average
from topicscope.synthetic.documents import MaskedDocuments

# One layer's parameters by name.
Layer = Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class Batch:
    """What the model sees and must predict: documents of different lengths, padded to the same number of rows."""

    tokens: Int[Tensor, "document row"]
    keys: Int[Tensor, "document row"]
    """How many positions of a row can be attended to: none of padding, and none that are hidden."""

    queries: Int[Tensor, "document row"]
    """How many positions a row stands for: none if it is padding."""

    masked: Bool[Tensor, "document row"]
    """Rows to predict from."""

    words: Int[Tensor, " target"]
    """The words at the masked positions, document after document."""

    weights: Float[Tensor, " target"]
    """How much each masked position counts in the loss; they sum to one."""

    asked: int
    """Rows to predict from are among so many first ones of each document."""

    row: Int[Tensor, " target"] | None = None
    """Which of the rows to predict from each masked position belongs to; None if each has its own."""

    def to(self, device: torch.device, dtype: torch.dtype) -> "Batch":
        """The same on a device, with weights of a type."""
        moved: dict[str, Any] = {
            name: part.to(device) for name, part in vars(self).items() if isinstance(part, Tensor) and name != "weights"
        }
        return replace(self, **moved, weights=self.weights.to(dtype).to(device))


def padded_batch(
    documents: MaskedDocuments, *, masked_keys: MaskedKeys, average: Average = "document", distinct: bool = False
) -> Batch:
    """Lay documents into rectangles: a row per position, or one per ``distinct`` token."""
    document, tokens, masked = documents.document, documents.tokens, documents.masked
    row = queries = np.ones(len(tokens), dtype=np.int64)
    keys = (~masked).astype(np.int64) if masked_keys == "hidden" else queries
    if distinct:
        vocabulary = int(tokens.max()) + 1
        code = document * vocabulary + tokens
        asked = np.isin(code, code[documents.masked])
        # Those to predict from come first: the last layer needs no other queries.
        code = (2 * document + ~asked) * vocabulary + tokens
        code, row, queries = np.unique(code, return_inverse=True, return_counts=True)
        document, tokens = np.divmod(code, vocabulary)
        document //= 2
        keys = np.bincount(row, weights=keys, minlength=len(code)).astype(np.int64)
        masked = np.bincount(row[documents.masked], minlength=len(code)) > 0
        row = (np.cumsum(masked) - 1)[row[documents.masked]]
    place = np.arange(len(document)) - np.searchsorted(document, document)
    grids = np.zeros((4, len(documents), place.max() + 1), dtype=np.int64)
    grids[:, document, place] = tokens, keys, queries, masked
    return Batch(
        tokens=torch.from_numpy(grids[0]),
        keys=torch.from_numpy(grids[1]),
        queries=torch.from_numpy(grids[2]),
        masked=torch.from_numpy(grids[3] > 0),
        words=torch.from_numpy(documents.words[documents.masked].astype(np.int64)),
        weights=torch.from_numpy(target_weights(documents, average)),
        asked=1 + int(place[masked].max()) if distinct else grids.shape[2],
        row=torch.from_numpy(row) if distinct else None,
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


class Transformer(nn.Module):
    """Attention layers between W^E and W^E⊤, with the switches of the settings.

    A row may stand for several positions of a document that hold the same token: ``keys`` are then their numbers, and
    attention to a row is that to all of them together. Without ``keys`` every row is one position.
    """

    def __init__(self, settings: Model, weights: Weights, *, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.settings: Model = settings
        trained = settings.trained_parts
        for name, array in weights.items():
            tensor = torch.from_numpy(array).to(dtype, copy=True)
            self.register_parameter(name, nn.Parameter(tensor, requires_grad=part_of(name) in trained))
        # Two-stage training holds attention uniform for a while, whatever W^K and W^Q are.
        self.uniform_attention = settings.uniform

    def parameter(self, name: str) -> Tensor:
        """One parameter by name, for instance ``value``."""
        parameter: Tensor = getattr(self, name)
        return parameter

    def forward(
        self, tokens: Int[Tensor, "document row"], keys: Int[Tensor, "document row"] | None = None
    ) -> Float[Tensor, "document row token"]:
        """f(X̃): a score for every token at every position."""
        return self.predict(self.states(tokens, keys)[-1])

    def predict_masked(self, batch: Batch) -> Float[Tensor, "masked_row token"]:
        """Scores at the masked rows alone."""
        state, keys = self._embed(batch.tokens), self._keys(batch.tokens, batch.keys)
        *layers, last = self._layers()
        for layer in layers:
            state = self._finish(state, self._mix(state, keys, layer), layer)
        # The last layer's attention is the last to need the other rows.
        asked = batch.masked[:, : batch.asked]
        mixed = self._mix(state, keys, last, batch.asked)
        return self.predict(self._finish(state[:, : batch.asked][asked], mixed[asked], last))

    def attention(
        self, tokens: Int[Tensor, "document row"], keys: Int[Tensor, "document row"] | None = None
    ) -> Float[Tensor, "layer document head key query"]:
        """A of every layer, in double precision; each column (a query) sums to one over the keys (eq. 5)."""
        counts, states = self._keys(tokens, keys), self.states(tokens, keys)[:-1]
        return torch.stack(
            [
                self._attention(state, counts.double(), layer)
                for state, layer in zip(states, self._layers(), strict=True)
            ]
        )

    def states(
        self, tokens: Int[Tensor, "document row"], keys: Int[Tensor, "document row"] | None = None
    ) -> list[Float[Tensor, "document row dimension"]]:
        """The embeddings, then the output of each layer."""
        states, counts = [self._embed(tokens)], self._keys(tokens, keys)
        for layer in self._layers():
            states.append(self._finish(states[-1], self._mix(states[-1], counts, layer), layer))
        return states

    def tables(self) -> tuple[Float[Tensor, "token token"], Float[Tensor, "query key"] | None]:
        """One layer as tables over tokens: what is predicted where a token is attended to, and attention's logits.

        That is for one head with nothing but linear maps behind it. Attention sums to one, so that predicting before
        it mixes is the same as predicting after it. There are no logits while attention is held uniform.
        """
        [layer], everything = self._layers(), torch.arange(len(self.parameter("embedding")))
        state = self._embed(everything[None])
        values = self.predict(self._finish(state, self._linear(state, "value", layer), layer))[0]
        return values, None if self.uniform_attention else self._logits(state, layer)[0, 0].mT

    def predict(self, state: Float[Tensor, "*row dimension"]) -> Float[Tensor, "*row token"]:
        """W^pred state + b^pred, with W^pred = W^E⊤ unless untied."""
        if self.settings.head_transform:
            state = self._normalise(functional.gelu(self._linear(state, "head")), "head_norm")
        return self._linear(state, "embedding" if self.settings.tied else "prediction", bias="prediction_bias")

    def _keys(self, tokens: Tensor, keys: Tensor | None) -> Float[Tensor, "document row"]:
        return (torch.ones_like(tokens) if keys is None else keys).to(self.parameter("embedding").dtype)

    def _layers(self) -> list[Layer]:
        """Each layer's parameters; taken apart once, so that their gradients are put together once."""
        apart = {name: self.parameter(name).unbind() for name in LAYERED if hasattr(self, name)}
        return [dict(zip(apart, layer, strict=True)) for layer in zip(*apart.values(), strict=True)]

    def _embed(self, tokens: Int[Tensor, "document row"]) -> Float[Tensor, "document row dimension"]:
        state = functional.embedding(tokens, self.parameter("embedding"))
        if self.settings.positions == "learned":
            state = state + self.parameter("positions")[: tokens.shape[1]]
        if self.settings.token_types:
            state = state + self.parameter("token_types")
        return self._normalise(state, "embedding_norm") if self.settings.embedding_norm else state

    def _mix(
        self,
        state: Float[Tensor, "document row dimension"],
        keys: Float[Tensor, "document row"],
        layer: Layer,
        asked: int | None = None,
    ) -> Float[Tensor, "document query dimension"]:
        """W^V Z A, heads side by side; of the first ``asked`` queries, or of all."""
        if self.uniform_attention:
            # A = 1/N: every query gets the mean over the keys, so the mean is taken first.
            mean = torch.einsum("dk,dkw->dw", keys / keys.sum(dim=1, keepdim=True), state)
            return self._linear(mean, "value", layer)[:, None, :].expand_as(state[:, :asked])
        query = self._heads(self._linear(state[:, :asked], "query", layer))
        key, value = (self._heads(self._linear(state, name, layer)) for name in ("key", "value"))
        # The fused kernel does not return A; it takes half the time without numbers to add.
        logs = None if bool((keys == 1).all()) else keys.log()[:, None, None, :]
        mixed = functional.scaled_dot_product_attention(query, key, value, logs)
        return mixed.transpose(1, 2).flatten(start_dim=2)

    def _attention(
        self, state: Float[Tensor, "document row dimension"], keys: Float[Tensor, "document row"], layer: Layer
    ) -> Float[Tensor, "document head key query"]:
        if self.uniform_attention:
            shares = keys / keys.sum(dim=1, keepdim=True)
            documents, rows = keys.shape
            return shares[:, None, :, None].expand(documents, self.settings.heads, rows, rows)
        return (self._logits(state, layer) + keys.log()[:, None, :, None]).softmax(dim=2)

    def _logits(
        self, state: Float[Tensor, "document row dimension"], layer: Layer
    ) -> Float[Tensor, "document head key query"]:
        key, query = (self._heads(self._linear(state, name, layer)) for name in ("key", "query"))
        return key @ query.mT / math.sqrt(query.shape[-1])

    def _heads(self, rows: Float[Tensor, "document row all"]) -> Float[Tensor, "document head row width"]:
        return rows.view(*rows.shape[:2], self.settings.heads, -1).transpose(1, 2)

    def _finish(
        self, before: Float[Tensor, "*row dimension"], mixed: Float[Tensor, "*row dimension"], layer: Layer
    ) -> Float[Tensor, "*row dimension"]:
        """What follows attention in a layer."""
        if self.settings.output_projection:
            mixed = self._linear(mixed, "output", layer)
        state = self._connect(before, mixed, "attention_norm", layer)
        if not self.settings.feed_forward:
            return state
        inner = functional.gelu(self._linear(state, "feed_forward_in", layer))
        return self._connect(state, self._linear(inner, "feed_forward_out", layer), "feed_forward_norm", layer)

    def _connect(self, before: Tensor, after: Tensor, norm: str, layer: Layer) -> Tensor:
        after = before + after if self.settings.residual else after
        return self._normalise(after, norm, layer) if self.settings.layer_norm else after

    def _linear(self, state: Tensor, name: str, layer: Layer | None = None, bias: str = "") -> Tensor:
        """W state + b, with the matrix of this name, of a layer or of the whole model."""
        return functional.linear(state, self._of(name, layer), self._of(bias or name + "_bias", layer))

    def _normalise(self, state: Tensor, norm: str, layer: Layer | None = None) -> Tensor:
        gain, bias = self._of(norm, layer), self._of(norm + "_bias", layer)
        return functional.layer_norm(state, state.shape[-1:], gain, bias, NORM_EPSILON)

    def _of(self, name: str, layer: Layer | None) -> Tensor:
        return self.parameter(name) if layer is None else layer[name]
