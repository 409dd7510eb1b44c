"""One layer on bags of tokens: the same function as the reference, from tables over the vocabulary.

Without positions equal tokens of a document have equal states. So a document needs each token's count, and one
prediction for each distinct token among its masked positions. Attention from token a to token b of a document is
n_b exp(s_ab), normalised: log n_b is added to the score. All members of an ensemble are computed in one tensor with a
leading ``seed`` axis.

A step consists of some twenty small operations at the paper's size, and autograd would double their cost, so gradients
are written out.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.linalg import vecdot

from topicscope.model.transformer import target_weights
from topicscope.settings import BIASES, Model
from topicscope.settings.model import MaskedKeys
from topicscope.settings.training import Average, Loss
from topicscope.synthetic.documents import MaskedDocuments

# Up to this vocabulary scores are computed once for all pairs of tokens.
LARGEST_TABLE = 512
# What autograd calls for softmax. PyTorch does not promise to keep it: where it is gone this is None, and the product
# of Jacobian and vector is written out.
SOFTMAX_BACKWARD: Callable[..., Tensor] | None = getattr(torch, "_softmax_backward_data", None)

Gradients = dict[str, Float[Tensor, "seed ..."]]


def has_tables(model: Model, vocabulary: int) -> bool:
    """Whether a model without positions has one layer and head over a small vocabulary, and is linear behind them."""
    beyond = model.residual or model.layer_norm or model.feed_forward or model.head_transform
    return model.layers == model.heads == 1 and vocabulary <= LARGEST_TABLE and not beyond


# Counting. Some steps' documents are counted at once, but member after member: one member's positions fit into the
# processor's cache. Then each step's batch is put together from slices.


@dataclass(frozen=True, eq=False)
class BagBatch:
    """Documents of all seeds as counts, and what is to be predicted from each row of scores.

    A row is a document and one of its distinct masked tokens, the query; or a document alone where every query gets
    the same scores.
    """

    log_counts: Float[Tensor, "documents token"]
    """log n of each token as a key, −∞ where it is absent; documents of all seeds, one after another."""

    document: Int[Tensor, " seed_row"] | None
    """Each row's document; None if a row is a document."""

    query: Int[Tensor, " seed_row"] | None
    """Each row's query, as seed · V + token; None likewise."""

    place: Int[Tensor, " seed_target"]
    """Flat places in (row, token) of the words to be predicted."""

    weight: Float[Tensor, "seed target"]
    """Their shares of the loss; they sum to one for each seed."""

    row_weight: Float[Tensor, "seed row"]
    """The sum of a row's shares."""


@dataclass(frozen=True)
class Counting:
    """How documents are counted."""

    vocabulary: int
    masked_keys: MaskedKeys
    average: Average
    dtype: torch.dtype
    by_document: bool
    """Whether queries do not matter, so that one row per document is enough."""


def bag_batches(members: Iterable[MaskedDocuments], counting: Counting, steps: int = 1) -> list[BagBatch]:
    """Count the documents of some steps, for each member of an ensemble.

    Where members have different numbers of rows or targets, the shorter ones are filled up with entries of weight zero
    that read their own seed's first ones.
    """
    counted = [_Member.of(member, counting, steps) for member in members]
    seeds, vocabulary = len(counted), counting.vocabulary
    log_counts = torch.cat([own.log_counts for own in counted], dim=1).unbind()
    rows, targets = (SideBySide([own.bounds[kind] for own in counted]) for kind in (0, 1))
    document: Sequence[Tensor | None] = [None] * steps
    query: Sequence[Tensor | None] = [None] * steps
    if not counting.by_document:
        document = rows.join([own.document for own in counted], len(log_counts[0]) // seeds)
        query = rows.join([own.query for own in counted], vocabulary)
    place = targets.join([own.place for own in counted], rows.widths * vocabulary)
    weight, row_weight = (
        [step.view(seeds, -1) for step in kind.join([getattr(own, name) for own in counted])]
        for kind, name in ((targets, "weight"), (rows, "row_weight"))
    )
    return [BagBatch(*parts) for parts in zip(log_counts, document, query, place, weight, row_weight, strict=True)]


@dataclass(frozen=True, eq=False)
class _Member:
    """One member's documents of some steps, step after step; what a ``BagBatch`` has, without the other members."""

    log_counts: Float[Tensor, "step document token"]
    document: Int[np.ndarray, " row"]
    query: Int[np.ndarray, " row"]
    place: Int[np.ndarray, " target"]
    weight: Float[np.ndarray, " target"]
    row_weight: Float[np.ndarray, " row"]
    bounds: tuple[Int[np.ndarray, " bound"], Int[np.ndarray, " bound"]]
    """Where each step's rows begin, and the last one's end; and its targets."""

    @classmethod
    def of(cls, member: MaskedDocuments, counting: Counting, steps: int) -> "_Member":
        """Count the documents."""
        vocabulary, documents = counting.vocabulary, len(member) // steps
        code = np.repeat(np.arange(0, len(member) * vocabulary, vocabulary), member.lengths)
        code += member.tokens
        number = np.bincount(code, minlength=len(member) * vocabulary)
        masked = code.take(member.where)
        if counting.masked_keys == "hidden":
            number -= np.bincount(masked, minlength=len(number))
        log_number = log_of_counts(int(member.lengths.max()), counting.dtype).take(number, mode="clip")
        if counting.by_document:
            code = np.arange(0, len(number), vocabulary)
            row = np.repeat(np.arange(len(member)), member.masked_counts)
        else:
            is_row = np.zeros(len(number), dtype=bool)
            is_row[masked] = True
            code = np.flatnonzero(is_row)
            row_of_code = np.empty(len(number), dtype=np.int32)
            row_of_code[code] = np.arange(len(code), dtype=np.int32)
            row = row_of_code.take(masked).astype(np.int64)
        rows = np.searchsorted(code, np.arange(steps + 1) * (documents * vocabulary))
        sizes = np.diff(rows)
        # Dividing by one number is quicker than divmod.
        document = code // vocabulary
        query = code - document * vocabulary
        document -= np.repeat(np.arange(steps) * documents, sizes)

        weight = target_weights(member, counting.average, batches=steps)
        row_weight = np.bincount(row, weights=weight, minlength=len(code))
        # Where each row's scores begin among those of its step.
        begins = (np.arange(len(code)) - np.repeat(rows[:-1], sizes)) * vocabulary
        precision = np.float64 if counting.dtype == torch.float64 else np.float32
        return cls(
            log_counts=torch.from_numpy(log_number).view(steps, -1, vocabulary),
            document=document,
            query=query,
            place=begins.take(row) + member.targets,
            weight=weight.astype(precision),
            row_weight=row_weight.astype(precision),
            bounds=(rows, bounds_of(member.masked_counts.reshape(steps, -1).sum(axis=1))),
        )


class SideBySide:
    """Joins what members have for each step: equally many items for each seed, with zeros where it has fewer."""

    def __init__(self, bounds: Sequence[Int[np.ndarray, " bound"]]) -> None:
        """Where each member's steps begin among its items, and the last one ends."""
        self.seeds, self._bounds = len(bounds), np.array(bounds)
        self._sizes = np.diff(self._bounds, axis=1)
        self.widths: Int[np.ndarray, " step"] = self._sizes.max(axis=0)
        """Items for each seed."""

    @cached_property
    def _places(self) -> list[Int[np.ndarray, " item"]]:
        """Where each member's items go."""
        begins = bounds_of(self.widths * self.seeds)[:-1] + np.arange(self.seeds)[:, None] * self.widths
        shifts = begins - self._bounds[:, :-1]
        return [
            np.repeat(shift, sizes) + np.arange(self._bounds[seed, 0], self._bounds[seed, -1])
            for seed, (shift, sizes) in enumerate(zip(shifts, self._sizes, strict=True))
        ]

    def join(
        self, members: Sequence[Shaped[np.ndarray, "..."]], offset: int | Int[np.ndarray, " step"] | None = None
    ) -> Sequence[Shaped[Tensor, " seed_item"]]:
        """Each step's items, seed after seed; a seed's numbers are moved on by seed · ``offset``."""
        sizes = self.widths * self.seeds
        if self.seeds == 1:
            return torch.from_numpy(members[0]).split_with_sizes(sizes.tolist())
        joined = np.zeros(sizes.sum(), dtype=members[0].dtype)
        for own, places in zip(members, self._places, strict=True):
            joined[places] = own
        if offset is not None:
            offsets = np.multiply.outer(np.broadcast_to(offset, len(sizes)), np.arange(self.seeds))
            joined += np.repeat(offsets, np.repeat(self.widths, self.seeds))
        return torch.from_numpy(joined).split_with_sizes(sizes.tolist())


@lru_cache(maxsize=8)
def log_of_counts(longest: int, dtype: torch.dtype) -> Float[np.ndarray, " count"]:
    """Logarithms of n = 0 … longest, −∞ for 0: counts are small, and looking up is faster than computing."""
    return torch.arange(longest + 1, dtype=torch.float64).log().to(dtype).numpy()


def bounds_of(sizes: Int[np.ndarray, " step"]) -> Int[np.ndarray, " bound"]:
    """Where pieces of these sizes begin, one after another, and the last one ends."""
    return np.append(0, np.cumsum(sizes))


# Computing.


class BagPass:
    r"""Each seed's losses on a batch, from the tables of its layer, and their gradients by these.

    Row r, a document and its query a(r), has the prediction

    .. math::
        x_r = \sum_b A_{rb} v_b, \qquad A_{rb} \propto n_b \exp(s_{a(r) b}),

    v the table of values and s that of scores. With w_n the share of masked position n, which is predicted from row
    r(n), and w_r the sum of the shares of a row,

    .. math::
        \sum_n w_n l_{sq}(x_{r(n)}) = \sum_r w_r \lVert x_r \rVert^2 + \sum_n w_n (1 - 2 x_{r(n), i_n}), \qquad
        \sum_n w_n l_{ce}(x_{r(n)}) = \sum_r w_r \log \sum_i \exp(x_{ri}) - \sum_n w_n x_{r(n), i_n}.

    The gradient :math:`H_r` by :math:`x_r` is :math:`2 (w_r x_r - t_r)`, or :math:`w_r \sigma(x_r) - t_r`, t_r the
    shares of the words to be predicted. From it follow

    .. math::
        \partial v_b = \sum_r A_{rb} H_r, \qquad
        \partial s_r = A_r \circ (g_r - \langle g_r, A_r \rangle), \quad g_{rb} = \langle v_b, H_r \rangle,

    and the rows of each query add up to its scores' gradient.
    """

    @torch.no_grad()
    def __init__(
        self,
        values: Float[Tensor, "seed token predicted"],
        scores: Float[Tensor, "seed query key"] | None,
        batch: BagBatch,
        kind: Loss,
    ) -> None:
        """``scores`` are None under uniform attention."""
        self._values, self._scores, self._batch, self._kind = values, scores, batch, kind
        seeds, vocabulary, _ = values.shape
        logits = batch.log_counts if batch.document is None else batch.log_counts.index_select(0, batch.document)
        if scores is not None:
            assert batch.query is not None
            logits = scores.reshape(-1, vocabulary).index_select(0, batch.query).add_(logits)
        self._attention = logits.softmax(dim=1).view(seeds, -1, vocabulary)
        self._predicted = predicted = torch.bmm(self._attention, values)
        chosen = predicted.view(-1).index_select(0, batch.place).view_as(batch.weight)
        if kind == "cross_entropy":
            # log Σ exp(x) = max x − log max σ(x), which spares taking exponentials again for the gradient.
            self._predicted = probabilities = predicted.softmax(dim=2)
            log_sums = predicted.amax(dim=2) - probabilities.amax(dim=2).log_()
            self.losses = vecdot(batch.row_weight, log_sums) - vecdot(batch.weight, chosen)
        else:
            squares = vecdot((predicted * batch.row_weight[:, :, None]).flatten(1), predicted.flatten(1))
            self.losses = squares + vecdot(1 - 2 * chosen, batch.weight)

    @torch.no_grad()
    def gradients(
        self, *, values: bool = True, scores: bool = True
    ) -> tuple[Float[Tensor, "seed token predicted"] | None, Float[Tensor, "seed query key"] | None]:
        """Gradients by the two tables, as far as they are wanted."""
        batch, attention = self._batch, self._attention
        slope = self._predicted * batch.row_weight[:, :, None]
        slope.view(-1).index_add_(0, batch.place, batch.weight.view(-1), alpha=-1)
        slope = slope if self._kind == "cross_entropy" else slope.mul_(2)
        by_values = torch.bmm(attention.mT, slope) if values else None
        if not scores or self._scores is None:
            return by_values, None
        assert batch.query is not None
        through = _through_softmax(torch.bmm(slope, self._values.mT), attention).flatten(0, 1)
        table = torch.zeros_like(self._scores).flatten(0, 1)
        return by_values, table.index_add_(0, batch.query, through).view_as(self._scores)


def _through_softmax(
    gradient: Float[Tensor, "seed row token"], softmax: Float[Tensor, "seed row token"]
) -> Float[Tensor, "seed row token"]:
    """A_r ∘ (g_r − ⟨g_r, A_r⟩) for each row g_r of the gradient."""
    if SOFTMAX_BACKWARD is not None:
        return SOFTMAX_BACKWARD(gradient, softmax, 2, softmax.dtype)
    return softmax * (gradient - vecdot(gradient, softmax)[:, :, None])


class Equation6:
    r"""The tables of eq. 6 for all seeds, with X = W^E, its columns the tokens; X = I where embeddings are one-hot.

    .. math::
        v_b = X^\top (W^V X_b + b^V) + b^{pred}, \qquad
        s_{ab} = (W^Q X_a + b^Q)^\top (W^K X_b + b^K) / \sqrt{d_a}
    """

    def __init__(self, model: Model, weights: dict[str, Float[Tensor, "seed ..."]]) -> None:
        """The parameters share memory with the weights."""
        # Without their layer axis; biases as columns. Adding a bias that stays zero would only take time.
        self._matrices = {name: weights[name][:, 0] for name in ("value", "key", "query")}
        present = [name for name in BIASES if not model.part(name).absent]
        self._biases = {name: weights[name].flatten(1)[:, :, None] for name in present}
        self._embedding = None if model.one_hot else weights["embedding"].mT
        self._scale = self._matrices["key"].shape[1] ** -0.5
        # baddbmm multiplies by a number on the way, but wants something to add to.
        self._nothing = torch.zeros((), dtype=weights["value"].dtype)

    def tables(
        self, *, uniform: bool
    ) -> tuple[Float[Tensor, "seed token predicted"], Float[Tensor, "seed query key"] | None]:
        """The tables as the weights are now."""
        embedding = self._embedding
        self._columns = columns = {name: self._map(name) for name in (["value"] if uniform else self._matrices)}
        values = columns["value"].mT if embedding is None else torch.bmm(columns["value"].mT, embedding)
        if "prediction_bias" in self._biases:
            values = values + self._biases["prediction_bias"].mT
        return values, None if uniform else self._product(columns["query"].mT, columns["key"])

    def gradients(
        self,
        by_values: Float[Tensor, "seed token predicted"] | None,
        by_scores: Float[Tensor, "seed query key"] | None,
        names: Collection[str],
    ) -> Gradients:
        """The gradients by these parameters that follow from those by the tables computed last."""
        columns, embedding, slopes, gradients = self._columns, self._embedding, dict[str, Tensor](), Gradients()
        by_embedding = []
        if by_values is not None:
            slopes["value"] = by_values.mT
            if "prediction_bias" in names:
                gradients["prediction_bias"] = by_values.sum(dim=1)
            if embedding is not None:
                slopes["value"] = torch.bmm(embedding, by_values.mT)
                by_embedding.append(torch.bmm(columns["value"], by_values))
        if by_scores is not None:
            slopes["key"] = self._product(columns["query"], by_scores)
            slopes["query"] = self._product(columns["key"], by_scores.mT)
        for name, slope in slopes.items():
            if f"{name}_bias" in names:
                gradients[f"{name}_bias"] = slope.sum(dim=2)[:, None]
            if name in names:
                gradients[name] = (slope if embedding is None else torch.bmm(slope, embedding.mT))[:, None]
            if "embedding" in names:
                by_embedding.append(torch.bmm(self._matrices[name].mT, slope))
        if "embedding" in names:
            gradients["embedding"] = torch.stack(by_embedding).sum(dim=0).mT
        return gradients

    def _map(self, name: str) -> Float[Tensor, "seed all token"]:
        """W X + b."""
        matrix, bias = self._matrices[name], self._biases.get(f"{name}_bias")
        columns = matrix if self._embedding is None else torch.bmm(matrix, self._embedding)
        return columns if bias is None else columns + bias

    def _product(self, left: Tensor, right: Tensor) -> Tensor:
        return torch.baddbmm(self._nothing, left, right, beta=0, alpha=self._scale)
