"""The paper's transformer on bags of tokens: the same function as the reference, with one row per distinct token.

Without positions, equal tokens of a document have equal states at every depth. So a document needs each token's count,
and one prediction for each distinct token among its masked positions. Attention from token a to token b of a document
is n_b exp(s_ab), normalised: log n_b is added to the score. All members of an ensemble are computed in one tensor:
every parameter has a leading ``seed`` axis.

What all models have in common is the last step, from a row of scores per distinct query to the losses
(``RowLosses``). One linear layer over a small vocabulary needs three tables over tokens, whatever the documents
(``TablePass``); all else is computed on each document's distinct tokens (``SlotPass``). At the paper's size a step is
some twenty small operations, and autograd would double their cost, so gradients by rows and tables are written out.
"""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.linalg import vecdot
from torch.nn import functional

from topicscope.model.counts import SlotBatch, TableBatch, Targets
from topicscope.model.transformer import Blocks, Layer
from topicscope.model.weights import NORM_EPSILON
from topicscope.settings import Model
from topicscope.settings.training import Loss

# Up to this vocabulary one layer's scores are computed once for all pairs of tokens.
LARGEST_TABLE = 512
# What autograd calls for softmax. PyTorch does not promise to keep it: where it is gone this is None, and the product
# of Jacobian and vector is written out.
SOFTMAX_BACKWARD: Callable[..., Tensor] | None = getattr(torch, "_softmax_backward_data", None)

Gradients = dict[str, Float[Tensor, "seed ..."]]


class RowLosses:
    r"""Each seed's weighted sum of losses, from one row of scores for all masked positions that share it.

    .. math::
        \sum_n w_n l_{sq}(x_{r(n)}) = \sum_r w_r \lVert x_r \rVert^2 + \sum_n w_n (1 - 2 x_{r(n), i_n}), \qquad
        \sum_n w_n l_{ce}(x_{r(n)}) = \sum_r w_r \log \sum_i \exp(x_{ri}) - \sum_n w_n x_{r(n), i_n}

    with w_r the sum of w_n over the positions n of row r. The gradient by :math:`x_r` is :math:`w_r \sigma(x_r) - t_r`
    for the cross-entropy and :math:`2 (w_r x_r - t_r)` for the squared loss, t_r the shares of the words to be
    predicted.
    """

    @torch.no_grad()
    def __init__(self, scores: Float[Tensor, "seed row token"], targets: Targets, kind: Loss) -> None:
        self._targets, self._kind, self._kept = targets, kind, scores
        chosen = scores.reshape(-1).index_select(0, targets.place).view_as(targets.weight)
        if kind == "cross_entropy":
            # log Σ exp(x) = max x − log max σ(x), which spares taking exponentials again for the gradient.
            self._kept = probabilities = scores.softmax(dim=2)
            log_sums = scores.amax(dim=2) - probabilities.amax(dim=2).log_()
            self.losses = vecdot(targets.row_weight, log_sums) - vecdot(targets.weight, chosen)
        else:
            squares = vecdot((scores * targets.row_weight[:, :, None]).flatten(1), scores.flatten(1))
            self.losses = squares + vecdot(1 - 2 * chosen, targets.weight)

    @torch.no_grad()
    def gradient(self) -> Float[Tensor, "seed row token"]:
        """∂L/∂x of every row."""
        targets = self._targets
        gradient = self._kept * targets.row_weight[:, :, None]
        gradient.view(-1).index_add_(0, targets.place, targets.weight.view(-1), alpha=-1)
        return gradient if self._kind == "cross_entropy" else gradient.mul_(2)


@dataclass(frozen=True, eq=False)
class Tables:
    """One layer as tables over tokens; with several heads each has its own."""

    values: Float[Tensor, "seed_head token width"]
    """v: what a token contributes where it is attended to; scores themselves where nothing but a matrix follows."""

    scores: Float[Tensor, "seed_head query token"] | None
    """s: attention's logits between all tokens; None if attention is uniform."""


class TableAttention:
    r"""What one layer's attention mixes for each row r, a document and its query token a(r).

    .. math::
        A_{rb} \propto n_b \exp(s_{a(r) b}), \qquad m_r = \sum_b A_{rb} v_b

    With :math:`H_r = \partial L / \partial m_r`,

    .. math::
        \partial v_b = \sum_r A_{rb} H_r, \qquad
        \partial s_r = A_r \circ (g_r - \langle g_r, A_r \rangle), \quad g_{rb} = \langle v_b, H_r \rangle

    and the rows of each query token add up to its scores' gradient. Heads stand side by side in :math:`m_r`.
    """

    @torch.no_grad()
    def __init__(self, tables: Tables, batch: TableBatch) -> None:
        self._tables = tables
        count, vocabulary, _ = tables.values.shape
        seeds = len(batch.targets.weight)
        self._heads = count // seeds
        logits = batch.log_counts if batch.document is None else batch.log_counts.index_select(0, batch.document)
        if tables.scores is not None:
            assert batch.query is not None
            self._queries = batch.query
            if self._heads > 1:
                # Tables are numbered seed · heads + head: those of the seeds before, and of the heads before.
                earlier = torch.arange(seeds)[:, None, None] * (self._heads - 1) + torch.arange(self._heads)[:, None]
                self._queries = (batch.query.view(seeds, 1, -1) + earlier * vocabulary).flatten()
                logits = logits.view(seeds, 1, -1, vocabulary).expand(-1, self._heads, -1, -1).flatten(0, 2)
            logits = tables.scores.reshape(-1, vocabulary).index_select(0, self._queries).add_(logits)
        self._attention = logits.softmax(dim=1).view(count, -1, vocabulary)
        mixed = torch.bmm(self._attention, tables.values)
        if self._heads > 1:
            mixed = mixed.view(seeds, self._heads, *mixed.shape[1:]).transpose(1, 2).flatten(2)
        self.mixed = mixed

    @torch.no_grad()
    def gradients(self, wanted: Collection[str], gradient: Float[Tensor, "seed row width"]) -> dict[str, Tensor]:
        """Gradients by these tables, from that by what was mixed."""
        if self._heads > 1:
            gradient = gradient.view(*gradient.shape[:2], self._heads, -1).transpose(1, 2).flatten(0, 1)
        by_table = {"values": torch.bmm(self._attention.mT, gradient)} if "values" in wanted else {}
        if "scores" in wanted and self._tables.scores is not None:
            slopes = torch.bmm(gradient, self._tables.values.mT)
            through = _through_softmax(slopes, self._attention).flatten(0, 1)
            table = torch.zeros_like(self._tables.scores).flatten(0, 1)
            by_table["scores"] = table.index_add_(0, self._queries, through).view_as(self._tables.scores)
        return by_table


def _through_softmax(
    gradient: Float[Tensor, "table row token"], softmax: Float[Tensor, "table row token"]
) -> Float[Tensor, "table row token"]:
    """A_r ∘ (g_r − ⟨g_r, A_r⟩) for each row g_r of the gradient."""
    if SOFTMAX_BACKWARD is not None:
        return SOFTMAX_BACKWARD(gradient, softmax, 2, softmax.dtype)
    return softmax * (gradient - vecdot(gradient, softmax)[:, :, None])


class BagTransformer(Blocks):
    """``Transformer`` for documents as bags, with the parameters of one or more members of an ensemble."""

    layer_axis = 1

    def __init__(self, settings: Model, weights: dict[str, Float[Tensor, "seed ..."]]) -> None:
        self.settings: Model = settings
        self.weights = weights
        self.seeds, self.vocabulary, self.dimension = weights["embedding"].shape
        self._scale = 1 / math.sqrt(weights["key"].shape[2] // settings.heads)
        self.uniform_attention = settings.uniform
        frozen = {name for name in vars(settings) if name not in settings.trained_parts}
        # With W^E = I there is nothing to multiply; W^E⊤, which predicts, is I whatever is added to embeddings.
        self._identity = "embedding" in frozen and settings.embedding.start == "identity"
        # Adding a bias that stays zero would only take time.
        self._absent = {name for name in frozen if name.endswith("_bias") and settings.part(name).start == "zero"}
        self.has_tables = settings.layers == 1 and self.vocabulary <= LARGEST_TABLE
        """Whether it is one layer over a small vocabulary, to be computed from tables."""

        # Where nothing but W^pred follows attention, tables hold predictions: as small, and no row is multiplied again.
        beyond = settings.residual or {"output", "feed_forward", "layer_norm", "head"} & {*settings.extras}
        one_hot = settings.tied and self._identity
        wide = one_hot or self.dimension >= self.vocabulary
        self._predicts_in_tables = self.has_tables and settings.heads == 1 and wide and not beyond
        self.is_equation_7 = self.has_tables and settings.equation_7
        # Its three matrices without their layer axis; they share memory with the weights.
        self._matrices = [weights[name].detach()[:, 0] for name in ("key", "query", "value")]
        # baddbmm multiplies by a number on the way, but wants something to add to.
        self._nothing = torch.zeros((), dtype=weights["value"].dtype)

    def parameter(self, name: str) -> Float[Tensor, "seed ..."]:
        """One parameter of all members, by its name."""
        return self.weights[name]

    def _has(self, name: str) -> bool:
        return name in self.weights

    # From tables.

    @property
    def queries_matter(self) -> bool:
        """Whether a row depends on its query: under uniform attention only through a residual connection."""
        return not self.uniform_attention or self.settings.residual

    def tables(self, inputs: Tensor | None) -> Tables:
        """The model as tables over tokens; for eq. 7 they are its matrices, and autograd does not see them."""
        if self.is_equation_7:
            key, query, value = self._matrices
            return Tables(value.mT, None if self.uniform_attention else self._scaled_product(query.mT, key))
        [layer], heads = self._layers(), 1 if self.uniform_attention else self.settings.heads
        values: Tensor = self._linear(inputs, "value", layer)
        if self._predicts_in_tables:
            # Attention sums to one, so it makes no difference to add the bias before.
            values = self.predict(values)
        scores: Tensor | None = None
        if not self.uniform_attention:
            keys, queries = (self._by_head(self._linear(inputs, name, layer), heads) for name in ("key", "query"))
            scores = self._scaled_product(queries, keys.mT)
        return Tables(self._by_head(values, heads), scores)

    def inputs(self) -> Float[Tensor, "seed token dimension"] | None:
        """What the embedding layer returns for every token; None for the unit vectors."""
        return None if self.settings.one_hot else self._embedded(self.weights["embedding"])

    def after_attention(
        self, mixed: Float[Tensor, "seed row dimension"], inputs: Tensor | None, batch: TableBatch
    ) -> Float[Tensor, "seed row token"]:
        """Scores from what attention mixed, unless tables hold predictions."""
        if self._predicts_in_tables:
            return mixed
        [layer], before = self._layers(), None
        if self.settings.residual:
            assert batch.query is not None
            table = self.weights["embedding"] if inputs is None else inputs
            before = self._by_seed(table.flatten(0, 1).index_select(0, batch.query))
        return self.predict(self._finish(before, mixed, layer))

    def _by_head(self, rows: Float[Tensor, "seed token all"], heads: int) -> Float[Tensor, "seed_head token width"]:
        """The heads' parts of rows, one table after another."""
        return rows if heads == 1 else rows.view(*rows.shape[:2], heads, -1).transpose(1, 2).flatten(0, 1)

    def _scaled_product(self, left: Tensor, right: Tensor) -> Tensor:
        return torch.baddbmm(self._nothing, left, right, beta=0, alpha=self._scale)

    @torch.no_grad()
    def gradients_of_equation_7(self, by_table: dict[str, Tensor]) -> Gradients:
        r"""∂W^V = (∂v)⊤, ∂W^K = W^Q ∂S / √d_a and ∂W^Q = W^K ∂S⊤ / √d_a, with the layer axis that parameters have."""
        gradients = {"value": by_table["values"].mT[:, None]} if "values" in by_table else {}
        if "scores" not in by_table:
            return gradients
        scores, (key, query, _) = by_table["scores"], self._matrices
        return gradients | {
            "key": self._scaled_product(query, scores)[:, None],
            "query": self._scaled_product(key, scores.mT)[:, None],
        }

    # From each document's distinct tokens.

    def slot_scores(self, batch: SlotBatch) -> Float[Tensor, "seed row token"]:
        """Scores of every token at each distinct query; only those are needed of the last layer."""
        documents, slots = batch.tokens.shape
        offset = torch.arange(self.seeds).repeat_interleave(documents // self.seeds)[:, None] * self.vocabulary
        state = functional.embedding(batch.tokens + offset, self.weights["embedding"].flatten(0, 1))
        state = self._embedded(self._by_seed(state)).reshape(documents, slots, -1)
        for number, layer in enumerate(self._layers(), start=1):
            queries = batch.queries if number == self.settings.layers else slots
            state = self._slot_layer(state, batch.log_counts, queries, layer)
        rows = state.flatten(0, 1).index_select(0, batch.row_place)
        return self.predict(rows.view(self.seeds, -1, self.dimension))

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
            # Every query gets the mean over the keys, n_b / N.
            means = torch.einsum("dk,dkw->dw", log_counts.softmax(dim=-1), state)
            mixed = self._linear(means.view(self.seeds, -1, self.dimension), "value", layer)
            mixed = mixed.flatten(0, 1)[:, None].expand(-1, queries, -1)
        else:
            keys, asked, values = (
                self._linear(of, name, layer).reshape(documents, -1, heads, self.weights[name].shape[2] // heads)
                for of, name in ((rows, "key"), (before, "query"), (rows, "value"))
            )
            scores = torch.einsum("dqhw,dkhw->dhqk", asked * self._scale, keys) + log_counts[:, None, None]
            mixed = torch.einsum("dhqk,dkhw->dqhw", scores.softmax(dim=-1), values).flatten(2)
        after = self._finish(before, self._by_seed(mixed), layer)
        return after.reshape(documents, queries, -1)

    def _embedded(self, rows: Float[Tensor, "seed row dimension"]) -> Float[Tensor, "seed row dimension"]:
        """Add to rows of W^E⊤ what the embedding layer adds, and normalise them if it does."""
        if self.settings.token_types:
            rows = rows + self.weights["token_types"][:, None]
        if self.settings.embedding_norm:
            rows = self._normalise(rows, "embedding_norm")
        return rows

    def _by_seed(self, state: Float[Tensor, "... dimension"]) -> Float[Tensor, "seed row dimension"]:
        return state.reshape(self.seeds, -1, state.shape[-1])

    def _normalise(self, state: Tensor, norm: str, layer: Layer | None = None) -> Tensor:
        gain, bias = self._of(norm, layer), self._of(norm + "_bias", layer)
        normal = functional.layer_norm(state, state.shape[-1:], eps=NORM_EPSILON)
        return normal * gain[:, None] + bias[:, None]

    def _linear(self, state: Tensor | None, name: str, layer: Layer | None = None, bias: str = "") -> Tensor:
        """W state + b, each seed with its own; without a state, that of the unit vectors of all tokens."""
        bias = bias or name + "_bias"
        if state is None or (name == "embedding" and self._identity):
            product = self._of(name, layer).mT if state is None else state
            return product if bias in self._absent else product + self._of(bias, layer)[:, None]
        if bias in self._absent:
            return torch.bmm(state, self._of(name, layer).mT)
        return torch.baddbmm(self._of(bias, layer)[:, None], state, self._of(name, layer).mT)


class BagPass:
    """The losses of a batch for all members, and the gradients by their parameters."""

    def __init__(self, model: BagTransformer, batch: TableBatch | SlotBatch, kind: Loss) -> None:
        self._model, self._attention = model, None
        if isinstance(batch, SlotBatch):
            self._scores = model.slot_scores(batch)
        else:
            inputs = None if model.is_equation_7 else model.inputs()
            self._tables = model.tables(inputs)
            self._attention = TableAttention(self._tables, batch)
            self._mixed = self._attention.mixed.requires_grad_(not model.is_equation_7)
            self._scores = model.after_attention(self._mixed, inputs, batch)
        self._rows = RowLosses(self._scores.detach(), batch.targets, kind)
        self.losses = self._rows.losses

    def gradients(self, names: Collection[str]) -> Gradients:
        """One backward pass for all members: no member's loss depends on another's weights.

        Parameters that the losses do not depend on are left out.
        """
        gradient, model = self._rows.gradient(), self._model
        if model.is_equation_7 and self._attention:
            wanted = (*(("values",) if "value" in names else ()), *(("scores",) if {"key", "query"} & {*names} else ()))
            by_parameter = model.gradients_of_equation_7(self._attention.gradients(wanted, gradient))
            return {name: own for name, own in by_parameter.items() if name in names}
        leaves = {name: model.weights[name] for name in names}
        by_parameter = {}
        if self._attention is None or self._scores is not self._mixed:
            sources = leaves if self._attention is None else leaves | {"": self._mixed}
            by_parameter = _gradients({"scores": self._scores}, sources, {"scores": gradient})
            gradient = by_parameter.pop("", gradient)
        if self._attention:
            moving = {
                name: table for name, table in vars(self._tables).items() if table is not None and table.requires_grad
            }
            by_table = self._attention.gradients(moving, gradient)
            for name, own in _gradients(moving, leaves, by_table).items():
                by_parameter[name] = by_parameter[name] + own if name in by_parameter else own
        return by_parameter


def _gradients(outputs: dict[str, Tensor], sources: dict[str, Tensor], slopes: dict[str, Tensor]) -> dict[str, Tensor]:
    """What reaches the sources of these slopes; what the outputs do not depend on is left out."""
    if not outputs:
        return {}
    reached = torch.autograd.grad(
        [outputs[name] for name in slopes], list(sources.values()), list(slopes.values()),
        allow_unused=True, retain_graph=True,
    )  # fmt: skip
    return {name: slope for name, slope in zip(sources, reached, strict=True) if slope is not None}
