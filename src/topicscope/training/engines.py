"""Engines: what the training loop needs of seeds that are trained together, and of the way they are computed.

The reference computes any model, seed after seed: position by position, or from distinct tokens if the model has no
positions. One layer over a small vocabulary is computed for all seeds at once from tables over the vocabulary. Weights
are a dictionary of tensors with a leading ``seed`` axis. The objective is here too: squared loss (eq. 3), cross-entropy
(eq. 4), their mean (eq. 1), L2 (eq. 2).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from topicscope.model.bag import BagPass, Counting, Equation6, bag_batches, has_tables
from topicscope.model.transformer import Transformer, padded_batch
from topicscope.model.weights import Source, part_of, start_weights
from topicscope.settings import ATTENTION_PARTS, PARTS, Settings, Training
from topicscope.settings.training import MOMENTUM, Loss
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.training.batches import BatchStream, PassageStream, stream_of

Weights = dict[str, Float[Tensor, "seed ..."]]
Gradients = dict[str, Float[Tensor, "seed ..."]]

CPU = torch.device("cpu")
# What the table of values is made of without embeddings.
VALUE_PARTS = frozenset({"value", "value_bias", "prediction_bias"})
# Alternating training consists of so many turns.
TURNS = 4
# What each keeps of a parameter.
STATE = {"sgd": (), "momentum": ("momentum_buffer",), "adam": ("exp_avg", "exp_avg_sq", "step")}


@dataclass(frozen=True)
class Phase:
    """A stretch of training: the parts that move, and whether attention is held uniform."""

    parts: frozenset[str]
    uniform: bool


def phase(settings: Settings, step: int) -> Phase:
    """The phase that a step belongs to (§5.1, §8.1).

    joint: all trained parts. two_stage: all but keys and queries under uniform attention, then keys and queries
    alone. alternating: the same two, twice in turn, with attention frozen at what it is instead of held uniform.
    """
    trained, training = frozenset(settings.model.trained_parts), settings.training
    if training.schedule == "joint":
        return Phase(trained, settings.model.uniform)
    if training.schedule == "two_stage":
        attention = step >= (training.stage_steps or training.steps // 2)
        uniform = settings.model.uniform or not attention
    else:
        turn = min(step * TURNS // training.steps, TURNS - 1)
        attention, uniform = turn % 2 == 1, settings.model.uniform
    return Phase(trained & ATTENTION_PARTS if attention else trained - ATTENTION_PARTS, uniform)


def losses(
    scores: Float[Tensor, "row token"],
    words: Int[Tensor, " target"],
    kind: Loss,
    row: Int[Tensor, " target"] | None = None,
) -> Float[Tensor, " target"]:
    r"""One loss per masked position, from the row of scores that it has, or shares with others (``row``).

    .. math::
        l_{sq} = \lVert x - y \rVert_2^2 = \lVert x \rVert^2 - 2 x_i + 1, \qquad
        l_{ce} = -\log\left( \exp(x_i) / \sum_j \exp(x_j) \right)

    The squared loss sums over the vocabulary; it is not a mean over entries.
    """
    if row is None and kind == "cross_entropy":
        return functional.cross_entropy(scores, words, reduction="none")
    row = torch.arange(len(words), device=words.device) if row is None else row
    if kind == "cross_entropy":
        return scores.logsumexp(dim=1)[row] - scores[row, words]
    return scores.square().sum(dim=1)[row] - 2 * scores[row, words] + 1


def make_engine(settings: Settings, seeds: Sequence[int], source: Source, *, device: torch.device = CPU) -> "Engine":
    """The engine of these seeds on documents of a source, with weights where they start."""
    dtype = torch.float64 if settings.training.precision == "float64" else torch.float32
    weights = (start_weights(settings, seed, source) for seed in seeds)
    models = [Transformer(settings.model, arrays, dtype=dtype).to(device) for arrays in weights]
    tables = settings.engine == "bag" and has_tables(settings.model, source.vocabulary)
    return (TableEngine if tables else Engine)(settings, seeds, source, models)


def shared_weights(models: Sequence[Transformer]) -> Weights:
    """All models' weights in one tensor per parameter; the models' own become views of it."""
    named = [dict(model.named_parameters()) for model in models]
    weights = {name: torch.stack([own[name].detach() for own in named]) for name in named[0]}
    for place, own in enumerate(named):
        for name, parameter in own.items():
            parameter.data = weights[name][place]
    return weights


class Engine:
    """Seeds that are trained together: their documents, their weights, and the gradients of their losses."""

    def __init__(self, settings: Settings, seeds: Sequence[int], source: Source, models: Sequence[Transformer]) -> None:
        """``settings`` are all but the seed."""
        self.settings, self.training, self.seeds, self.source = settings, settings.training, seeds, source
        self.models = models
        self.weights = shared_weights(models)
        self.trained = [name for name in self.weights if part_of(name) in settings.model.trained_parts]
        self._phase: Phase | None = None
        self._moving = self.trained

    @cached_property
    def streams(self) -> Sequence[BatchStream | PassageStream]:
        """The documents of each seed; drawn only if they are asked for."""
        return [stream_of(self.settings, seed, self.source) for seed in self.seeds]

    def enter(self, step: int) -> bool:
        """Freeze what this step does not train, and return whether that is another phase, for which batches differ."""
        now = phase(self.settings, step)
        if now == self._phase:
            return False
        self._phase = now
        self._moving = [name for name in self.trained if part_of(name) in now.parts]
        for model in self.models:
            model.uniform_attention = now.uniform
            for name, parameter in model.named_parameters():
                parameter.requires_grad_(part_of(name) in now.parts)
        return True

    def prepare(self, members: Iterable[MaskedDocuments], steps: int = 1) -> list[Any]:
        """Each step's batch for all seeds, from each seed's documents of these steps.

        Each seed's documents may be drawn only when asked for, so that they are laid out while still in the cache.
        Batches are for attention as it is in the phase entered last.
        """
        weight, keys, distinct = self.weights["value"], self.settings.model.masked_keys, self.settings.engine == "bag"
        pad = partial(padded_batch, masked_keys=keys, average=self.training.average, distinct=distinct)
        by_member = [[pad(batch).to(weight.device, weight.dtype) for batch in own.parts(steps)] for own in members]
        return [list(batches) for batches in zip(*by_member, strict=True)]

    def losses(self, batch: Any) -> Float[Tensor, " seed"]:
        """The loss of eq. 1 on a batch, without L2, for each seed."""
        by_seed = []
        for model, documents in zip(self.models, batch, strict=True):
            by_target = losses(model.predict_masked(documents), documents.words, self.training.loss, documents.row)
            by_seed.append(by_target @ documents.weights)
        return torch.stack(by_seed)

    def loss_gradients(self, losses: Float[Tensor, " seed"], names: Sequence[str]) -> Gradients:
        """Gradients of the losses computed last by those of these parameters that they depend on."""
        return self._backward([losses], [torch.ones_like(losses)], names)

    def gradients(self, losses: Float[Tensor, " seed"]) -> Gradients:
        """Gradients of the losses computed last, and of L2: 2λθ; parameters that they do not depend on are left out."""
        gradients = self.loss_gradients(losses, self._moving)
        for name in self._moving if self.training.l2 else ():
            if name in PARTS:
                slope = gradients.get(name, torch.zeros_like(self.weights[name]))
                gradients[name] = slope.add(self.weights[name], alpha=2 * self.training.l2)
        return gradients

    def penalties(self) -> Float[np.ndarray, " seed"]:
        """λ‖θ‖² of each seed over the trained parts of eq. 6."""
        squares = [self.weights[name].flatten(1).square().sum(dim=1) for name in self.trained if name in PARTS]
        return self.training.l2 * torch.stack(squares).sum(dim=0).double().cpu().numpy()

    def _backward(self, outputs: Sequence[Tensor], slopes: Sequence[Tensor], names: Sequence[str]) -> Gradients:
        """What reaches the parameters from these slopes, for all seeds: no loss depends on another seed's weights."""
        leaves = [model.parameter(name) for name in names for model in self.models]
        gradients = torch.autograd.grad(outputs, leaves, slopes, allow_unused=True)
        count = len(self.models)
        by_name = {name: gradients[count * place : count * (place + 1)] for place, name in enumerate(names)}
        return {name: torch.stack(own) for name, own in by_name.items() if own[0] is not None}


class TableEngine(Engine):
    """One layer on bags of tokens, all seeds in one tensor."""

    def __init__(self, settings: Settings, seeds: Sequence[int], source: Source, models: Sequence[Transformer]) -> None:
        super().__init__(settings, seeds, source, models)
        self._equation_6 = None if settings.model.extras else Equation6(settings.model, self.weights)

    @property
    def _uniform(self) -> bool:
        return self.models[0].uniform_attention

    def prepare(self, members: Iterable[MaskedDocuments], steps: int = 1) -> list[Any]:
        """Count the documents."""
        counting = Counting(
            self.source.vocabulary,
            self.settings.model.masked_keys,
            self.training.average,
            self.weights["value"].dtype,
            by_document=self._uniform,
        )
        return list(bag_batches(members, counting, steps))

    def losses(self, batch: Any) -> Float[Tensor, " seed"]:
        """The losses, from one row of scores for each distinct masked query."""
        tables: list[Tensor | None]
        if self._equation_6:
            tables = [*self._equation_6.tables(uniform=self._uniform)]
        else:
            by_seed = zip(*(model.tables() for model in self.models), strict=True)
            tables = [None if kind[0] is None else torch.stack(kind) for kind in by_seed]
        values, scores = tables
        assert values is not None
        last = BagPass(values.detach(), None if scores is None else scores.detach(), batch, self.training.loss)
        if torch.is_grad_enabled():
            self._last, self._tables = last, tables
        return last.losses

    def loss_gradients(self, losses: Float[Tensor, " seed"], names: Sequence[str]) -> Gradients:
        """One backward pass for all seeds."""
        assert losses is self._last.losses, "gradients are those of the losses computed last"
        if self._equation_6:
            values, scores = not ATTENTION_PARTS.issuperset(names), not VALUE_PARTS.issuperset(names)
            return self._equation_6.gradients(*self._last.gradients(values=values, scores=scores), names)
        wanted = [table is not None and table.requires_grad for table in self._tables]
        slopes = self._last.gradients(values=wanted[0], scores=wanted[1])
        outputs = [table for table, moving in zip(self._tables, wanted, strict=True) if table is not None and moving]
        return self._backward(outputs, [slope for slope in slopes if slope is not None], names)


class Optimizer:
    """The optimiser of the settings; a parameter without a gradient is left alone, and so is its state.

    Updates are PyTorch's own functions. The bookkeeping of its classes takes a twentieth of a step at the paper's size.
    """

    def __init__(self, parameters: dict[str, Float[Tensor, "seed ..."]], training: Training) -> None:
        self.parameters, self.training = parameters, training
        self._state = {
            quantity: {
                name: torch.zeros((), device=parameter.device) if quantity == "step" else torch.zeros_like(parameter)
                for name, parameter in parameters.items()
            }
            for quantity in STATE[training.optimizer]
        }

    @torch.no_grad()
    def step(self, gradients: Gradients, rate: float) -> None:
        """One update of the parameters that have a gradient."""
        parameters = [self.parameters[name] for name in gradients]
        # The fused update reads memory in order, whatever the strides.
        slopes = [gradient.contiguous() for gradient in gradients.values()]
        state = [[own[name] for name in gradients] for own in self._state.values()]
        if self.training.optimizer == "adam":
            averages, squares, steps = state
            first, second = self.training.adam_betas
            adam(
                parameters, slopes, averages, squares, [], steps, fused=True, amsgrad=False, maximize=False,
                lr=rate, beta1=first, beta2=second, eps=self.training.adam_epsilon, weight_decay=0.0,
            )  # fmt: skip
            return
        buffers: list[Tensor | None] = [*state[0]] if state else [None] * len(slopes)
        sgd(
            parameters, slopes, buffers, foreach=False, nesterov=False, maximize=False,
            lr=rate, momentum=MOMENTUM if state else 0.0, dampening=0.0, weight_decay=0.0,
        )  # fmt: skip

    def tensors(self) -> dict[str, Tensor]:
        """The state as ``parameter/quantity``."""
        return {
            f"{name}/{quantity}": tensor for quantity, state in self._state.items() for name, tensor in state.items()
        }

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Put back what ``tensors`` took out."""
        own = self.tensors()
        for path, value in tensors.items():
            own[path].copy_(value)


def learning_rate(training: Training, step: int) -> float:
    """The rate at a step: constant, or falling to zero along a cosine."""
    if training.decay == "cosine":
        return training.learning_rate * 0.5 * (1 + math.cos(math.pi * step / training.steps))
    return training.learning_rate
