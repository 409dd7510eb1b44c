"""The two ways of computing a batch's losses and gradients: on bags of tokens, or position by position.

Both work on the same weights, dictionaries of tensors with a leading ``seed`` axis, and take the documents of all
members of an ensemble; a single run is an ensemble of one.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from topicscope.model.bag import BagTransformer, uses_table
from topicscope.model.batch import padded_batch
from topicscope.model.one_hot import OneHotPass, is_equation_7
from topicscope.model.slot_counts import slot_batches
from topicscope.model.table_counts import table_batches
from topicscope.model.transformer import Transformer
from topicscope.model.weights import Sizes
from topicscope.settings import Settings
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.training.objective import losses, row_losses
from topicscope.training.optimizers import Gradients

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
