"""The paper's transformer on bags of tokens: the same function as the reference, with one row per distinct token.

Attention from token a to token b of a document is n_b exp(s_ab), normalised: log n_b is added to the score. Only the
distinct tokens at masked positions are predicted. All members of an ensemble are computed in one tensor: every
parameter has a leading ``seed`` axis.

One layer over a small vocabulary has a table of all scores between tokens, V × V, whatever the documents. Otherwise
the distinct tokens of each document are gathered, and nothing but the prediction itself grows with V.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from topicscope.model.counts import SlotBatch, TableBatch
from topicscope.model.transformer import LAYERED, Blocks, Layer
from topicscope.model.weights import EMBEDDING_NORM_EPSILON, Sizes
from topicscope.settings import Model

# Up to this vocabulary one layer's scores are computed once for all pairs of tokens.
LARGEST_TABLE = 512


def uses_table(settings: Model, sizes: Sizes) -> bool:
    """Whether batches are to be counted over the whole vocabulary (``TableBatch``)."""
    return settings.layers == 1 and sizes.vocabulary <= LARGEST_TABLE


class BagTransformer(Blocks):
    """``Transformer`` for documents as bags, with the parameters of one or more members of an ensemble."""

    def __init__(self, settings: Model, sizes: Sizes, weights: dict[str, Float[Tensor, "seed ..."]]) -> None:
        self.settings = settings
        self.sizes = sizes
        self.weights = weights
        self.seeds = len(next(iter(weights.values())))
        self.uniform_attention = settings.uniform
        frozen = {name for name in vars(settings) if name not in settings.trained_parts}
        # With W^E = I there is nothing to multiply; W^E⊤, which predicts, is I whatever is added to embeddings.
        self._identity = "embedding" in frozen and settings.embedding.start == "identity"
        self._one_hot = settings.one_hot
        # Adding a bias that stays zero would only take time.
        self._absent = {name for name in frozen if name.endswith("_bias") and settings.part(name).start == "zero"}

    def predict_masked(self, batch: TableBatch | SlotBatch) -> Float[Tensor, "seed row token"]:
        """Scores of every token at the rows of the batch: its distinct masked queries."""
        return self.predict(self._slot_rows(batch) if isinstance(batch, SlotBatch) else self._table_rows(batch))

    @property
    def queries_matter(self) -> bool:
        """Whether a row depends on its query: under uniform attention only through a residual connection."""
        return not self.uniform_attention or self.settings.residual

    def parameter(self, name: str) -> Float[Tensor, "seed ..."]:
        """One parameter of all members, by its name."""
        return self.weights[name]

    def _table_rows(self, batch: TableBatch) -> Float[Tensor, "seed row dimension"]:
        """The state at each distinct query after the only layer, or of each document where queries do not matter."""
        inputs, layer, rows = self._embedded(self.weights["embedding"]), self._layer(0), batch.rows
        if self.uniform_attention:
            # Every query gets the mean over the keys, n_b / N.
            shares = batch.log_counts.softmax(dim=-1).view(self.seeds, -1, self.sizes.vocabulary)
            mixed = self._linear(shares if self._one_hot else torch.bmm(shares, inputs), "value", layer)
            if rows is not None:
                mixed = self._by_seed(mixed.flatten(0, 1).index_select(0, rows.document))
        else:
            assert rows is not None
            heads = self.settings.heads
            scores = functional.embedding(rows.query, self._score_table(inputs, layer))
            log_counts = batch.log_counts.index_select(0, rows.document)
            scores = scores.view(self.seeds, -1, heads, self.sizes.vocabulary)
            attention = (scores + log_counts.view(self.seeds, -1, 1, self.sizes.vocabulary)).softmax(dim=-1)
            values = self._of_all_tokens("value", inputs, layer)
            if heads == 1:
                mixed = torch.bmm(attention.squeeze(2), values)
            else:
                values = values.view(self.seeds, -1, heads, self.sizes.head_dimension)
                mixed = torch.einsum("srhk,skhw->srhw", attention, values).flatten(2)
        before = None
        if self.settings.residual:
            assert rows is not None
            before = self._by_seed(inputs.flatten(0, 1).index_select(0, rows.query))
        return self._finish(before, mixed, layer)

    def _score_table(
        self, inputs: Float[Tensor, "seed token dimension"], layer: Layer
    ) -> Float[Tensor, "seed_query head_key"]:
        """Scores between all tokens: a row per query token (of each seed), its keys head after head."""
        heads, width = self.settings.heads, self.sizes.attention_dimension
        scale = 1 / math.sqrt(width)
        keys, queries = (self._of_all_tokens(name, inputs, layer) for name in ("key", "query"))
        if heads == 1:
            return (torch.bmm(queries, keys.mT) * scale).flatten(0, 1)
        keys, queries = keys.view(self.seeds, -1, heads, width), queries.view(self.seeds, -1, heads, width)
        return torch.einsum("sqhw,skhw->sqhk", queries * scale, keys).flatten(0, 1).flatten(1)

    def _embedded(self, rows: Float[Tensor, "seed row dimension"]) -> Float[Tensor, "seed row dimension"]:
        """Add to rows of W^E⊤ what the embedding layer adds, and normalise them if it does."""
        if self.settings.token_types:
            rows = rows + self.weights["token_types"][:, None]
        if self.settings.embedding_norm:
            rows = self._normalise(rows, "embedding_norm", epsilon=EMBEDDING_NORM_EPSILON)
        return rows

    def _of_all_tokens(
        self, name: str, inputs: Float[Tensor, "seed token dimension"], layer: Layer
    ) -> Float[Tensor, "seed token width"]:
        """W z + b, where z is what the embedding layer returns for every token."""
        if not self._one_hot:
            return self._linear(inputs, name, layer)
        columns, bias = layer[name].mT, name + "_bias"
        return columns if bias in self._absent else columns + layer[bias][:, None]

    def _slot_rows(self, batch: SlotBatch) -> Float[Tensor, "seed row dimension"]:
        """The state at each distinct query after the last layer, the only one that is not needed at all tokens."""
        documents, slots = batch.tokens.shape
        each = documents // self.seeds
        offset = torch.arange(self.seeds).repeat_interleave(each)[:, None] * self.sizes.vocabulary
        state = functional.embedding(batch.tokens + offset, self.weights["embedding"].flatten(0, 1))
        state = self._embedded(self._by_seed(state)).reshape(documents, slots, -1)
        for layer in range(self.settings.layers):
            queries = batch.queries if layer == self.settings.layers - 1 else slots
            state = self._slot_layer(state, batch.log_counts, queries, self._layer(layer))
        return state.flatten(0, 1).index_select(0, batch.row_place).view(self.seeds, -1, self.sizes.dimension)

    def _slot_layer(
        self,
        state: Float[Tensor, "documents slot dimension"],
        log_counts: Float[Tensor, "documents slot"],
        queries: int,
        layer: Layer,
    ) -> Float[Tensor, "documents query dimension"]:
        documents, heads = len(state), self.settings.heads
        rows, before = self._by_seed(state), self._by_seed(state[:, :queries])
        if self.uniform_attention:
            means = torch.einsum("dk,dkw->dw", log_counts.softmax(dim=-1), state)
            mixed = self._linear(means.view(self.seeds, -1, self.sizes.dimension), "value", layer)
            mixed = mixed.flatten(0, 1)[:, None].expand(-1, queries, -1)
        else:
            scale = 1 / math.sqrt(self.sizes.attention_dimension)
            keys, asked, values = (
                self._linear(of, name, layer).reshape(documents, -1, heads, width)
                for of, name, width in (
                    (rows, "key", self.sizes.attention_dimension),
                    (before, "query", self.sizes.attention_dimension),
                    (rows, "value", self.sizes.head_dimension),
                )
            )
            scores = torch.einsum("dqhw,dkhw->dhqk", asked * scale, keys) + log_counts[:, None, None]
            mixed = torch.einsum("dhqk,dkhw->dqhw", scores.softmax(dim=-1), values).flatten(2)
        after = self._finish(before, self._by_seed(mixed), layer)
        return after.reshape(documents, queries, -1)

    def _by_seed(self, state: Float[Tensor, "... dimension"]) -> Float[Tensor, "seed row dimension"]:
        return state.reshape(self.seeds, -1, state.shape[-1])

    def _normalise(self, state: Tensor, norm: str, layer: Layer | None = None, epsilon: float | None = None) -> Tensor:
        gain, bias = self._of(norm, layer), self._of(norm + "_bias", layer)
        normal = functional.layer_norm(state, state.shape[-1:], eps=epsilon or self.norm_epsilon)
        return normal * gain[:, None] + bias[:, None]

    def _linear(self, state: Tensor, name: str, layer: Layer | None = None, bias: str = "") -> Tensor:
        """W state + b, each seed with its own."""
        bias = bias or name + "_bias"
        if name == "embedding" and self._identity:
            return state if bias in self._absent else state + self.weights[bias][:, None]
        matrix = self._of(name, layer)
        if bias in self._absent:
            return torch.bmm(state, matrix.mT)
        return torch.baddbmm(self._of(bias, layer)[:, None], state, matrix.mT)

    def _layer(self, number: int) -> Layer:
        return {name: self.weights[name][:, number] for name in LAYERED if name in self.weights}
