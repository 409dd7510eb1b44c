"""The objective: squared loss (eq. 3), cross-entropy (eq. 4), their mean (eq. 1) and L2 (eq. 2)."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from topicscope.model.bag import BagTransformer, uses_table
from topicscope.model.counts import Targets, slot_batches, table_batches
from topicscope.model.one_hot import OneHotPass, is_equation_7
from topicscope.model.transformer import Transformer, padded_batch
from topicscope.model.weights import Sizes, part_of
from topicscope.settings import Settings, Training
from topicscope.settings.training import Loss
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.training.optimizers import Gradients


def losses(
    scores: Float[Tensor, "target token"], words: Int[Tensor, " target"], kind: Loss
) -> Float[Tensor, " target"]:
    r"""One loss a masked position.

    .. math::
        l_{sq} = \lVert x - y \rVert_2^2 = \lVert x \rVert^2 - 2 x_i + 1, \qquad
        l_{ce} = -\log\left( \exp(x_i) / \sum_j \exp(x_j) \right)

    The squared loss sums over the vocabulary; it is not a mean over entries.
    """
    if kind == "cross_entropy":
        return functional.cross_entropy(scores, words, reduction="none")
    chosen = scores.gather(1, words[:, None])[:, 0]
    return scores.square().sum(dim=1) - 2 * chosen + 1


def row_losses(scores: Float[Tensor, "seed row token"], targets: Targets, kind: Loss) -> Float[Tensor, " seed"]:
    r"""Each seed's weighted sum of ``losses``, from one row of scores for all masked positions that share it.

    .. math::
        \sum_n w_n l_{sq}(x_{r(n)}) = \sum_r w_r \lVert x_r \rVert^2 + \sum_n w_n (1 - 2 x_{r(n), i_n}), \qquad
        \sum_n w_n l_{ce}(x_{r(n)}) = - \sum_n w_n \log\sigma(x_{r(n)})_{i_n}

    with w_r the sum of w_n over the positions n of row r.
    """
    if kind == "cross_entropy":
        chosen = scores.log_softmax(dim=-1).flatten().index_select(0, targets.place)
        return -(chosen.view_as(targets.weight) * targets.weight).sum(dim=1)
    chosen = scores.flatten().index_select(0, targets.place).view_as(targets.weight)
    row_weight = targets.row_weight.view(len(scores), -1, 1)
    return (scores.square() * row_weight).sum(dim=(1, 2)) + ((1 - 2 * chosen) * targets.weight).sum(dim=1)


def l2_penalty(model: Transformer, training: Training) -> Float[Tensor, ""]:
    """λ‖θ‖² over the chosen parts that are trained; it has a gradient."""
    parameters = [
        parameter
        for name, parameter in model.named_parameters()
        if part_of(name) in training.l2_parts and part_of(name) in model.settings.trained_parts
    ]
    norms = [parameter.square().sum() for parameter in parameters]
    return training.l2 * torch.stack(norms).sum() if norms else torch.zeros(())


# The two ways of computing a batch's losses and gradients: on bags of tokens, or position by position.
#
# Both work on the same weights, dictionaries of tensors with a leading ``seed`` axis, and take the documents of all
# members of an ensemble; a single run is an ensemble of one.


Weights = dict[str, Float[Tensor, "seed ..."]]


@runtime_checkable
class Engine(Protocol):
    """What training needs of a way of computing."""

    def prepare(self, members: Iterable[MaskedDocuments], steps: int = 1) -> list[Any]:
        """Each step's batch for all members, from each member's documents of these steps.

        Members may be drawn as they are asked for: one's positions, laid out at once, are still in the cache.
        A batch is for attention as it is then: computed, or held uniform.
        """

    def losses(self, batch: Any) -> Float[Tensor, " seed"]:
        """The loss of eq. 1 on a batch, without L2, for each member."""

    def gradients(self, values: Float[Tensor, " seed"], names: Iterable[str]) -> Gradients:
        """Gradients of the losses; parameters that they do not depend on are left out."""

    def hold_uniform(self, uniform: bool) -> None:
        """Hold attention uniform, or compute it."""


def make_engine(settings: Settings, sizes: Sizes, weights: Weights, models: Sequence[Transformer]) -> Engine:
    """The engine for these settings on these weights, of which ``models`` are the members' views."""
    return BagEngine(settings, sizes, weights) if settings.engine == "bag" else ReferenceEngine(settings, models)


class BagEngine:
    """Documents as bags of tokens, all members in one tensor."""

    def __init__(self, settings: Settings, sizes: Sizes, weights: Weights) -> None:
        self.loss = settings.training.loss
        self.weights = weights
        self.model = BagTransformer(settings.model, sizes, weights)
        self._table = uses_table(settings.model, sizes)
        self._equation_7 = self._table and is_equation_7(settings.model)
        # Its three matrices without their layer axis; they share memory with the weights.
        value, key, query = (weights[name].detach()[:, 0] for name in ("value", "key", "query"))
        self._matrices = value, key, query
        self._counting: dict[str, Any] = {
            "vocabulary": sizes.vocabulary,
            "masked_keys": settings.model.masked_keys,
            "average": settings.training.average,
            "dtype": weights["value"].dtype,
        }

    def prepare(self, members: Iterable[MaskedDocuments], steps: int = 1) -> list[Any]:
        """Count the documents."""
        if self._table:
            by_document = not self.model.queries_matter
            return list(table_batches(members, steps=steps, by_document=by_document, **self._counting))
        return list(slot_batches(members, steps=steps, **self._counting))

    def losses(self, batch: Any) -> Float[Tensor, " seed"]:
        """From one row of scores for each distinct masked query."""
        if self._equation_7:
            done = OneHotPass(*self._matrices, batch, self.loss)
            if torch.is_grad_enabled():
                self._pass = done
            return done.losses
        return row_losses(self.model.predict_masked(batch), batch.targets, self.loss)

    def gradients(self, values: Float[Tensor, " seed"], names: Iterable[str]) -> Gradients:
        """One backward pass for all members: no member's loss depends on another's weights."""
        named = list(names)
        if self._equation_7:
            assert values is self._pass.losses, "gradients are those of the losses computed last"
            return self._pass.gradients(named)
        leaves = [self.weights[name] for name in named]
        found = torch.autograd.grad(values, leaves, torch.ones_like(values), allow_unused=True)
        return {name: gradient for name, gradient in zip(named, found, strict=True) if gradient is not None}

    def hold_uniform(self, uniform: bool) -> None:
        """Hold attention uniform, or compute it."""
        self.model.uniform_attention = uniform


class ReferenceEngine:
    """Documents position by position, member after member."""

    def __init__(self, settings: Settings, models: Sequence[Transformer]) -> None:
        self.loss = settings.training.loss
        self.models = models
        self._batch = partial(padded_batch, masked_keys=settings.model.masked_keys, average=settings.training.average)

    def prepare(self, members: Iterable[MaskedDocuments], steps: int = 1) -> list[Any]:
        """Pad each member's documents."""
        by_member = [[self._batch(batch) for batch in member.parts(steps)] for member in members]
        return [list(batches) for batches in zip(*by_member, strict=True)]

    def losses(self, batch: Any) -> Float[Tensor, " seed"]:
        """From scores at every masked position."""
        found = []
        for model, mine in zip(self.models, batch, strict=True):
            each = losses(model.predict_masked(mine), mine.words, self.loss)
            found.append(each @ torch.from_numpy(mine.weights).to(each))
        return torch.stack(found)

    def gradients(self, values: Float[Tensor, " seed"], names: Iterable[str]) -> Gradients:
        """The members' gradients, stacked."""
        named = list(names)
        leaves = [model.parameter(name) for name in named for model in self.models]
        found = torch.autograd.grad(values, leaves, torch.ones_like(values), allow_unused=True)
        seeds = len(self.models)
        by_name = {name: found[seeds * place : seeds * (place + 1)] for place, name in enumerate(named)}
        return {name: torch.stack(each) for name, each in by_name.items() if each[0] is not None}

    def hold_uniform(self, uniform: bool) -> None:
        """Hold attention uniform, or compute it."""
        for model in self.models:
            model.uniform_attention = uniform
