"""The paper's transformer on bags of tokens: the same function as the reference, one row per distinct token.

Attention from token a to token b of a document is n_b exp(s_ab), normalised: log n_b added to the score. Only the
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

from topicscope.model.counts import QueryRows, SlotBatch, TableBatch
from topicscope.model.weights import EMBEDDING_NORM_EPSILON, Sizes
from topicscope.settings import Model

# Up to this vocabulary one layer's scores are computed once for all pairs of tokens.
LARGEST_TABLE = 512


def uses_table(settings: Model, sizes: Sizes) -> bool:
    """Whether batches are to be counted over the whole vocabulary (``TableBatch``)."""
    return settings.layers == 1 and sizes.vocabulary <= LARGEST_TABLE


class BagTransformer:
    """``Transformer`` for documents as bags, with the parameters of one or more members of an ensemble."""

    def __init__(self, settings: Model, sizes: Sizes, weights: dict[str, Float[Tensor, "seed ..."]]) -> None:
        self.settings = settings
        self.sizes = sizes
        self.weights = weights
        self.seeds = len(next(iter(weights.values())))
        self.uniform_attention = settings.uniform
        frozen = {name for name in vars(settings) if name not in settings.trained_parts}
        # With W^E = I nothing is to be multiplied by it; W^E⊤, which predicts, is I whatever is added to embeddings.
        self._identity = "embedding" in frozen and settings.embedding.start == "identity"
        self._one_hot = settings.one_hot
        # Adding a bias that is zero for ever would only take time.
        self._absent = {name for name in frozen if name.endswith("_bias") and settings.part(name).start == "zero"}

    def predict_masked(self, batch: TableBatch | SlotBatch) -> Float[Tensor, "seed row token"]:
        """Scores of every token at the rows of the batch: its distinct masked queries."""
        if isinstance(batch, SlotBatch):
            return self.predict(self._slot_rows(batch))
        if batch.rows is None:
            return self.predict(self._finish(self._table_means(batch, self._inputs()), None, 0))
        return self.predict(self._table_rows(batch, batch.rows))

    @property
    def queries_matter(self) -> bool:
        """Whether a row depends on its query: under uniform attention only through a residual connection."""
        return not self.uniform_attention or self.settings.residual

    def predict(self, state: Float[Tensor, "seed row dimension"]) -> Float[Tensor, "seed row token"]:
        """W^pred state + b^pred, with W^pred = W^E⊤ unless untied."""
        if self.settings.head_transform:
            state = functional.gelu(self._linear(state, "head"))
            state = self._normalise(state, "head_norm")
        if not self.settings.tied:
            return self._linear(state, "prediction")
        if not self._identity:
            return self._linear(state, "embedding", bias="prediction_bias")
        if "prediction_bias" in self._absent:
            return state
        return state + self.weights["prediction_bias"][:, None]

    def _table_rows(self, batch: TableBatch, rows: QueryRows) -> Float[Tensor, "seed row dimension"]:
        """The state at each distinct query after the only layer, from the table of scores between all tokens."""
        shape = (self.seeds, len(rows.query) // self.seeds)
        inputs = self._inputs()
        if self.uniform_attention:
            means = self._table_means(batch, inputs)
            mixed = means.flatten(0, 1).index_select(0, rows.document).view(*shape, -1)
        else:
            scores = functional.embedding(rows.query, self._score_table(inputs))
            log_counts = batch.log_counts.index_select(0, rows.document)
            scores = scores.view(*shape, self.settings.heads, -1)
            attention = (scores + log_counts.view(*shape, 1, -1)).softmax(dim=-1)
            mixed = self._mix_table(attention, inputs)
        if not self.settings.residual:
            return self._finish(mixed, None, 0)
        before = inputs.flatten(0, 1).index_select(0, rows.query)
        return self._finish(mixed, before.view(*shape, -1), 0)

    def _score_table(self, inputs: Float[Tensor, "seed token dimension"]) -> Float[Tensor, "seed_query head_key"]:
        """Scores between all tokens: a row per query token (of each seed), its keys head after head."""
        heads, width = self.settings.heads, self.sizes.attention_dimension
        scale = 1 / math.sqrt(width)
        keys, queries = self._of_all_tokens("key", inputs), self._of_all_tokens("query", inputs)
        if heads == 1:
            return (torch.bmm(queries, keys.mT) * scale).flatten(0, 1)
        keys, queries = keys.view(self.seeds, -1, heads, width), queries.view(self.seeds, -1, heads, width)
        return torch.einsum("sqhw,skhw->sqhk", queries * scale, keys).flatten(0, 1).flatten(1)

    def _mix_table(
        self, attention: Float[Tensor, "seed row head token"], inputs: Float[Tensor, "seed token dimension"]
    ) -> Float[Tensor, "seed row dimension"]:
        values = self._of_all_tokens("value", inputs)
        if self.settings.heads == 1:
            return torch.bmm(attention.squeeze(2), values)
        values = values.view(self.seeds, -1, self.settings.heads, self.sizes.head_dimension)
        return torch.einsum("srhk,skhw->srhw", attention, values).flatten(2)

    def _table_means(
        self, batch: TableBatch, inputs: Float[Tensor, "seed token dimension"]
    ) -> Float[Tensor, "seed document dimension"]:
        """What every query gets under uniform attention: the mean over the keys, n_b / N."""
        shares = batch.log_counts.softmax(dim=-1).view(self.seeds, -1, self.sizes.vocabulary)
        if self._one_hot:
            return self._linear(shares, "value", layer=0)
        return self._linear(torch.bmm(shares, inputs), "value", layer=0)

    def _inputs(self) -> Float[Tensor, "seed token dimension"]:
        """What the embedding layer gives for every token."""
        return self._embedded(self.weights["embedding"])

    def _embedded(self, rows: Float[Tensor, "seed row dimension"]) -> Float[Tensor, "seed row dimension"]:
        """Add to rows of W^E⊤ what the embedding layer adds, and normalise them if it does."""
        if self.settings.token_types:
            rows = rows + self.weights["token_types"][:, None]
        if self.settings.embedding_norm:
            rows = self._normalise(rows, "embedding_norm", epsilon=EMBEDDING_NORM_EPSILON)
        return rows

    def _of_all_tokens(
        self, name: str, inputs: Float[Tensor, "seed token dimension"]
    ) -> Float[Tensor, "seed token width"]:
        """W z + b for what the embedding layer gives for every token, z, in the only layer."""
        if not self._one_hot:
            return self._linear(inputs, name, layer=0)
        columns = self.weights[name][:, 0].mT
        if name + "_bias" in self._absent:
            return columns
        return columns + self.weights[name + "_bias"]

    def _slot_rows(self, batch: SlotBatch) -> Float[Tensor, "seed row dimension"]:
        """The state at each distinct query after the last layer; only this one is not needed at all tokens."""
        documents, slots = batch.tokens.shape
        each = documents // self.seeds
        offset = torch.arange(self.seeds).repeat_interleave(each)[:, None] * self.sizes.vocabulary
        state = functional.embedding(batch.tokens + offset, self.weights["embedding"].flatten(0, 1))
        state = self._embedded(self._by_seed(state)).reshape(documents, slots, -1)
        for layer in range(self.settings.layers):
            queries = batch.queries if layer == self.settings.layers - 1 else slots
            state = self._slot_layer(state, batch.log_counts, queries, layer)
        return state.flatten(0, 1).index_select(0, batch.row_place).view(self.seeds, -1, self.sizes.dimension)

    def _slot_layer(
        self,
        state: Float[Tensor, "documents slot dimension"],
        log_counts: Float[Tensor, "documents slot"],
        queries: int,
        layer: int,
    ) -> Float[Tensor, "documents query dimension"]:
        documents, heads = len(state), self.settings.heads
        asking = state[:, :queries]
        rows, before = self._by_seed(state), self._by_seed(asking)
        if self.uniform_attention:
            means = torch.einsum("dk,dkw->dw", log_counts.softmax(dim=-1), state)
            mixed = self._linear(means.view(self.seeds, -1, self.sizes.dimension), "value", layer=layer)
            mixed = mixed.flatten(0, 1)[:, None].expand(-1, queries, -1)
        else:
            scale = 1 / math.sqrt(self.sizes.attention_dimension)
            keys, asked, values = (
                self._linear(of, name, layer=layer).reshape(documents, -1, heads, width)
                for of, name, width in (
                    (rows, "key", self.sizes.attention_dimension),
                    (before, "query", self.sizes.attention_dimension),
                    (rows, "value", self.sizes.head_dimension),
                )
            )
            scores = torch.einsum("dqhw,dkhw->dhqk", asked * scale, keys) + log_counts[:, None, None]
            mixed = torch.einsum("dhqk,dkhw->dqhw", scores.softmax(dim=-1), values).flatten(2)
        after = self._finish(self._by_seed(mixed), before, layer)
        return after.reshape(documents, queries, -1)

    def _by_seed(self, state: Float[Tensor, "documents slot dimension"]) -> Float[Tensor, "seed row dimension"]:
        return state.reshape(self.seeds, -1, state.shape[-1])

    def _finish(
        self,
        mixed: Float[Tensor, "seed row dimension"],
        before: Float[Tensor, "seed row dimension"] | None,
        layer: int,
    ) -> Float[Tensor, "seed row dimension"]:
        """What follows attention in a layer; ``before`` is needed for the residual connection only."""
        if self.settings.output_projection:
            mixed = self._linear(mixed, "output", layer=layer)
        state = self._connect(before, mixed, "attention_norm", layer)
        if not self.settings.feed_forward:
            return state
        inner = functional.gelu(self._linear(state, "feed_forward_in", layer=layer))
        outer = self._linear(inner, "feed_forward_out", layer=layer)
        return self._connect(state, outer, "feed_forward_norm", layer)

    def _connect(
        self,
        before: Float[Tensor, "seed row dimension"] | None,
        after: Float[Tensor, "seed row dimension"],
        norm: str,
        layer: int,
    ) -> Float[Tensor, "seed row dimension"]:
        if self.settings.residual:
            assert before is not None
            after = before + after
        return self._normalise(after, norm, layer) if self.settings.layer_norm else after

    def _normalise(
        self, state: Float[Tensor, "seed row dimension"], norm: str, layer: int | None = None, epsilon: float = 1e-5
    ) -> Float[Tensor, "seed row dimension"]:
        gain, bias = self._parameter(norm, layer), self._parameter(norm + "_bias", layer)
        return functional.layer_norm(state, (self.sizes.dimension,), eps=epsilon) * gain[:, None] + bias[:, None]

    def _linear(
        self, state: Float[Tensor, "seed row input"], name: str, *, layer: int | None = None, bias: str = ""
    ) -> Float[Tensor, "seed row output"]:
        """W state + b, each seed with its own."""
        matrix, bias = self._parameter(name, layer), bias or name + "_bias"
        if bias in self._absent:
            return torch.bmm(state, matrix.mT)
        return torch.baddbmm(self._parameter(bias, layer)[:, None], state, matrix.mT)

    def _parameter(self, name: str, layer: int | None) -> Float[Tensor, "seed ..."]:
        parameter = self.weights[name]
        return parameter if layer is None else parameter[:, layer]
