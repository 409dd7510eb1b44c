"""Eq. 7 on bags of tokens with its gradient written out: this is the paper's own setting, and it must be fast.

At V = 101 a step is a few small matrix products, and PyTorch's overhead takes most of the time. Here nothing is
computed twice, only what the gradient needs is kept, and a step is some twenty operations.
"""

import math
from collections.abc import Callable, Collection

import torch
from jaxtyping import Float
from torch import Tensor
from torch.linalg import vecdot

from topicscope.model.bag import TableBatch, Targets
from topicscope.settings import Model
from topicscope.settings.training import Loss

# What autograd calls for softmax. PyTorch does not promise to keep it: where it is gone this is None, and the product
# of Jacobian and vector is written out.
SOFTMAX_BACKWARD: Callable[..., Tensor] | None = getattr(torch, "_softmax_backward_data", None)

Matrices = Float[Tensor, "seed _ token"]


def is_equation_7(settings: Model) -> bool:
    """Whether the model is eq. 7 with one-hot embeddings and no biases, and nothing that the switches add."""
    zero = all(
        settings.part(name).start == "zero" and not settings.part(name).train
        for name in ("key_bias", "query_bias", "value_bias", "prediction_bias")
    )
    return (
        zero
        and settings.one_hot
        and settings.layers == settings.heads == 1
        and not settings.residual
        and not settings.extras
    )


class OneHotPass:
    r"""The losses of eq. 1 for f(X̃) = W^V X̃ A, for each seed, from a row of scores x_r for each distinct query r.

    .. math::
        s_{ab} = (W^Q e_a)^\top W^K e_b / \sqrt{d_a}, \qquad
        A_{rb} \propto n_b \exp(s_{a(r) b}), \qquad x_r = W^V A_r

    With :math:`G_r = \partial L / \partial x_r`, which is :math:`w_r \sigma(x_r) - t_r` for the cross-entropy and
    :math:`2 (w_r x_r - t_r)` for the squared loss (t_r the shares of the words to be predicted, w_r their sum),

    .. math::
        \partial W^V = G^\top A, \qquad
        \partial s_r = A_r \circ (H_r - \langle H_r, A_r \rangle), \quad H = G W^V, \qquad
        \partial W^K = W^Q \, \partial S / \sqrt{d_a}, \qquad \partial W^Q = W^K \, \partial S^\top / \sqrt{d_a}

    where :math:`\partial S` adds up the rows of each query token. Without distinct queries in the batch attention is
    uniform, A_b = n_b / N, and only W^V has a gradient.
    """

    @torch.no_grad()
    def __init__(
        self, value: Matrices, key: Matrices, query: Matrices, batch: TableBatch, kind: Loss, unit: float = 1.0
    ) -> None:
        """``unit`` is what the losses are multiplied by."""
        self._value, self._key, self._query = value, key, query
        self._batch, self._kind, self._unit = batch, kind, unit
        self._scale = 1 / math.sqrt(key.shape[1])
        seeds, vocabulary, _ = value.shape
        logits = batch.log_counts
        if batch.rows is not None:
            table = key.new_empty(seeds, vocabulary, vocabulary)
            torch.baddbmm(table, query.mT, key, beta=0, alpha=self._scale, out=table)
            logits = table.view(-1, vocabulary).index_select(0, batch.rows.query)
            logits += batch.log_counts.index_select(0, batch.rows.document)
        self._attention = logits.softmax(dim=1).view(seeds, -1, vocabulary)
        scores = torch.bmm(self._attention, value.mT)
        losses, self._kept = _losses(scores, batch.targets, kind)
        self.losses = losses if unit == 1 else losses * unit

    @torch.no_grad()
    def gradients(self, names: Collection[str]) -> dict[str, Float[Tensor, "seed 1 _ token"]]:
        """Gradients of the losses by the matrices of these names, with the layer axis that parameters have."""
        gradient, rows = _score_gradient(self._kept, self._batch.targets, self._kind), self._batch.rows
        if self._unit != 1:
            gradient.mul_(self._unit)
        found = {"value": torch.bmm(gradient.mT, self._attention)[:, None]} if "value" in names else {}
        if rows is None or not ("key" in names or "query" in names):
            return found
        attention, shape = self._attention, self._value.shape
        through = _through_softmax(torch.bmm(gradient, self._value), attention)
        table = attention.new_zeros(shape[0] * shape[1], shape[2])
        table = table.index_add_(0, rows.query, through.view(-1, shape[2])).view(shape)
        for_key, for_query = torch.empty_like(self._key), torch.empty_like(self._query)
        torch.baddbmm(for_key, self._query, table, beta=0, alpha=self._scale, out=for_key)
        torch.baddbmm(for_query, self._key, table.mT, beta=0, alpha=self._scale, out=for_query)
        both = {"key": for_key[:, None], "query": for_query[:, None]}
        return found | {name: matrix for name, matrix in both.items() if name in names}


def _through_softmax(
    gradient: Float[Tensor, "seed row token"], softmax: Float[Tensor, "seed row token"]
) -> Float[Tensor, "seed row token"]:
    """A_r ∘ (H_r − ⟨H_r, A_r⟩) for each row H_r of the gradient."""
    if SOFTMAX_BACKWARD is not None:
        return SOFTMAX_BACKWARD(gradient, softmax, 2, softmax.dtype)
    return softmax * (gradient - vecdot(gradient, softmax)[:, :, None])


def _losses(scores: Tensor, targets: Targets, kind: Loss) -> tuple[Tensor, Tensor]:
    """The losses, and what their gradient needs: probabilities, or the scores."""
    chosen = scores.view(-1).index_select(0, targets.place).view_as(targets.weight)
    row_weight = targets.row_weight.view(len(scores), -1)
    if kind == "cross_entropy":
        # log Σ exp(x) = max x − log max σ(x), which spares taking exponentials again for the gradient.
        probabilities = scores.softmax(dim=2)
        log_sums = scores.amax(dim=2) - probabilities.amax(dim=2).log_()
        return vecdot(row_weight, log_sums) - vecdot(targets.weight, chosen), probabilities
    squares = vecdot((scores * row_weight[:, :, None]).flatten(1), scores.flatten(1))
    return squares + vecdot(1 - 2 * chosen, targets.weight), scores


def _score_gradient(kept: Tensor, targets: Targets, kind: Loss) -> Tensor:
    """∂L/∂x of every row."""
    gradient = kept * targets.row_weight.view(len(kept), -1, 1)
    gradient.view(-1).index_add_(0, targets.place, targets.weight.view(-1), alpha=-1)
    return gradient if kind == "cross_entropy" else gradient.mul_(2)
