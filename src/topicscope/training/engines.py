"""Engines: what the training loop needs of seeds that are trained together, and of the way they are computed.

Models of documents of a topic model are computed on bags of tokens or position by position; a model of text has an
engine of its own (``training.text``). All work on dictionaries of tensors with a leading ``seed`` axis. The objective
is here too: squared loss (eq. 3), cross-entropy (eq. 4), their mean (eq. 1), L2 (eq. 2).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from topicscope.model.bag import BagPass, BagTransformer
from topicscope.model.counts import Counting, slot_batches, table_batches
from topicscope.model.transformer import Transformer, padded_batch
from topicscope.model.weights import Sizes, part_of, start_weights
from topicscope.model.weights import Weights as Arrays
from topicscope.settings import Settings
from topicscope.settings.text import TextSettings
from topicscope.settings.training import Loss
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.synthetic.topics import TopicModel
from topicscope.training.batches import BatchStream, PassageStream
from topicscope.training.optimizers import Gradients
from topicscope.training.record import Numbers, SnapshotTaker, StageRecorder, Weights, contrasts
from topicscope.training.schedule import Phase, phase, snapshot_steps


class Engine(ABC):
    """Seeds that are trained together, and how they are computed: all that the loop knows about either."""

    settings: Settings | TextSettings
    """All settings but the seed."""

    seeds: Sequence[int]
    weights: Weights
    """Every parameter of all seeds."""

    trained: Sequence[str]
    """Parameters that are trained at one step or another."""

    streams: Sequence[BatchStream | PassageStream]
    """The documents of each seed."""

    frame_steps: frozenset[int] = frozenset()
    """Steps at which matrices are kept to be looked at."""

    smaller_start: str
    """What to do about a start at which the loss is not finite."""

    def enter(self, step: int) -> bool:
        """Freeze what this step does not train, and return whether batches must be prepared anew for it."""
        return False

    @abstractmethod
    def prepare(self, members: Iterable[MaskedDocuments], steps: int = 1) -> list[Any]:
        """Each step's batch for all seeds, from each seed's documents of these steps.

        Each seed's documents may be drawn only when asked for, so that they are laid out while still in the cache.
        """

    @abstractmethod
    def losses(self, batch: Any) -> Float[Tensor, " seed"]:
        """The loss of eq. 1 on a batch, without L2, for each seed."""

    @abstractmethod
    def gradients(self, losses: Float[Tensor, " seed"]) -> Gradients:
        """Gradients of the losses computed last, and of L2; parameters that they do not depend on are left out."""

    @abstractmethod
    def recorded(self, step: int) -> Numbers:
        """What is recorded beside losses, learning rate, norms and rotation, by the names of a run's metrics."""

    def frame(self) -> Numbers:
        """Matrices as they are, for looking at, by the names of a run's frames."""
        return {}


def losses(
    scores: Float[Tensor, "target token"], words: Int[Tensor, " target"], kind: Loss
) -> Float[Tensor, " target"]:
    r"""One loss per masked position.

    .. math::
        l_{sq} = \lVert x - y \rVert_2^2 = \lVert x \rVert^2 - 2 x_i + 1, \qquad
        l_{ce} = -\log\left( \exp(x_i) / \sum_j \exp(x_j) \right)

    The squared loss sums over the vocabulary; it is not a mean over entries.
    """
    if kind == "cross_entropy":
        return functional.cross_entropy(scores, words, reduction="none")
    chosen = scores.gather(1, words[:, None])[:, 0]
    return scores.square().sum(dim=1) - 2 * chosen + 1


def make_engine(
    settings: Settings, seeds: Sequence[int], topic_model: TopicModel, weights: Sequence[Arrays] | None = None
) -> "TopicModelEngine":
    """The engine of these seeds on documents of a topic model, at the weights given or where they start."""
    weights = weights or [start_weights(settings, seed, topic_model) for seed in seeds]
    sizes = Sizes.of(settings.model, topic_model.vocabulary, topic_model.length[1])
    dtype = torch.float64 if settings.training.precision == "float64" else torch.float32
    models = [Transformer(settings.model, sizes, arrays, dtype=dtype) for arrays in weights]
    kind = BagEngine if settings.engine == "bag" else ReferenceEngine
    return kind(settings, seeds, topic_model, models)


def shared_weights(models: Sequence[Transformer]) -> Weights:
    """All models' weights in one tensor per parameter; the models' own become views of it."""
    named = [dict(model.named_parameters()) for model in models]
    weights = {name: torch.stack([own[name].detach() for own in named]) for name in named[0]}
    for place, own in enumerate(named):
        for name, parameter in own.items():
            parameter.data = weights[name][place]
            weights[name].requires_grad_(parameter.requires_grad)
    return weights


class TopicModelEngine(Engine):
    """Seeds on documents of a topic model; the two engines below decide how they are computed."""

    smaller_start = "let the parts start smaller (model.*.scale)"

    def __init__(
        self, settings: Settings, seeds: Sequence[int], topic_model: TopicModel, models: Sequence[Transformer]
    ) -> None:
        self.settings: Settings = settings
        self.training, self.seeds = settings.training, seeds
        self.topic_model, self.models = topic_model, models
        self.weights = shared_weights(models)
        self.computing: Sequence[Transformer | BagTransformer] = models
        self._unit = self.training.loss_unit(models[0].sizes.vocabulary)
        self.trained = [name for name in self.weights if part_of(name) in settings.model.trained_parts]
        self.frame_steps = snapshot_steps(self.training.steps, self.training.snapshots)
        self._phase: Phase | None = None

    @cached_property
    def streams(self) -> list[BatchStream]:  # type: ignore[override]  # drawn only if they are asked for
        """The documents of each seed."""
        return [BatchStream(replace(self.settings, seed=seed), self.topic_model) for seed in self.seeds]

    @cached_property
    def _stages(self) -> StageRecorder | None:
        can = StageRecorder.can(self.settings, self.topic_model.vocabulary)
        return StageRecorder(self.settings, self.topic_model) if can else None

    @cached_property
    def _snapshot_taker(self) -> SnapshotTaker:
        return SnapshotTaker(self.streams)

    def enter(self, step: int) -> bool:
        """Freeze what this step does not train, and return whether that is another phase, for which batches differ."""
        now = phase(self.settings, step)
        if now == self._phase:
            return False
        self._phase = now
        self.hold_uniform(now.uniform)
        for model in self.models:
            for name, parameter in model.named_parameters():
                parameter.requires_grad_(part_of(name) in now.parts)
        for name, weight in self.weights.items():
            weight.requires_grad_(part_of(name) in now.parts)
        return True

    def hold_uniform(self, uniform: bool) -> None:
        """Hold attention uniform, or compute it; batches are for attention as it was when they were prepared."""
        for model in self.computing:
            model.uniform_attention = uniform

    @abstractmethod
    def loss_gradients(self, losses: Float[Tensor, " seed"], names: Sequence[str]) -> Gradients:
        """Gradients of the losses computed last by those of these parameters that they depend on."""

    def gradients(self, losses: Float[Tensor, " seed"]) -> Gradients:
        """Gradients of the losses computed last, and of L2: 2λθ."""
        moving = [name for name, weight in self.weights.items() if weight.requires_grad]
        gradients = self.loss_gradients(losses, moving)
        if self.training.l2:
            for name in moving:
                if part_of(name) in self.training.l2_parts:
                    weight = self.weights[name].detach()
                    slope = gradients.get(name, torch.zeros_like(weight))
                    gradients[name] = slope.add(weight, alpha=2 * self.training.l2)
        return gradients

    def penalties(self) -> Float[np.ndarray, " seed"]:
        """λ‖θ‖² of each seed over the chosen parts that are trained."""
        names = [name for name in self.trained if part_of(name) in self.training.l2_parts]
        squares = [self.weights[name].detach().flatten(1).square().sum(dim=1) for name in names]
        return self.training.l2 * torch.stack(squares).sum(dim=0).double().numpy()

    @torch.no_grad()
    def recorded(self, step: int) -> Numbers:
        """L2's penalty, the contrast along topic blocks, and how far the two stages have come."""
        penalty = {"penalty": self.penalties()} if self.training.l2 else {}
        stages = self._stages.numbers(self.weights) if self._stages else {}
        return penalty | contrasts(self.weights, self.topic_model.word_topics) | stages

    def frame(self) -> Numbers:
        """W^E⊤W^V W^E, W^E⊤W^E and attention, always on the same held-out documents."""
        return self._snapshot_taker.take(self.models)


class BagEngine(TopicModelEngine):
    """Documents as bags of tokens, all seeds in one tensor."""

    def __init__(
        self, settings: Settings, seeds: Sequence[int], topic_model: TopicModel, models: Sequence[Transformer]
    ) -> None:
        super().__init__(settings, seeds, topic_model, models)
        self._model = BagTransformer(settings.model, models[0].sizes, self.weights)
        self.computing = [*models, self._model]
        self._counting = Counting(
            topic_model.vocabulary,
            settings.model.masked_keys,
            self.training.average,
            self._unit,
            self.weights["value"].dtype,
        )

    def prepare(self, members: Iterable[MaskedDocuments], steps: int = 1) -> list[Any]:
        """Count the documents."""
        if self._model.has_tables:
            by_document = not self._model.queries_matter
            return list(table_batches(members, self._counting, steps=steps, by_document=by_document))
        return list(slot_batches(members, self._counting, steps=steps))

    def losses(self, batch: Any) -> Float[Tensor, " seed"]:
        """The losses, from one row of scores for each distinct masked query."""
        done = BagPass(self._model, batch, self.training.loss)
        if torch.is_grad_enabled():
            self._pass = done
        return done.losses

    def loss_gradients(self, losses: Float[Tensor, " seed"], names: Sequence[str]) -> Gradients:
        """One backward pass for all seeds."""
        assert losses is self._pass.losses, "gradients are those of the losses computed last"
        return self._pass.gradients(names)


class ReferenceEngine(TopicModelEngine):
    """Documents position by position, seed after seed."""

    def prepare(self, members: Iterable[MaskedDocuments], steps: int = 1) -> list[Any]:
        """Pad each seed's documents."""
        pad = partial(padded_batch, masked_keys=self.settings.model.masked_keys, average=self.training.average)
        by_member = [[pad(batch) for batch in member.parts(steps)] for member in members]
        return [list(batches) for batches in zip(*by_member, strict=True)]

    def losses(self, batch: Any) -> Float[Tensor, " seed"]:
        """The losses, from scores at every masked position."""
        by_seed = []
        for model, documents in zip(self.models, batch, strict=True):
            by_target = losses(model.predict_masked(documents), documents.words, self.training.loss)
            by_seed.append(self._unit * (by_target @ torch.from_numpy(documents.weights).to(by_target)))
        return torch.stack(by_seed)

    def loss_gradients(self, losses: Float[Tensor, " seed"], names: Sequence[str]) -> Gradients:
        """The seeds' gradients, stacked."""
        leaves = [model.parameter(name) for name in names for model in self.models]
        gradients = torch.autograd.grad(losses, leaves, torch.ones_like(losses), allow_unused=True)
        count = len(self.models)
        by_name = {name: gradients[count * place : count * (place + 1)] for place, name in enumerate(names)}
        return {name: torch.stack(own) for name, own in by_name.items() if own[0] is not None}
