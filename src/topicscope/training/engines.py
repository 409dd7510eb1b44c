"""Engines: what the training loop needs of runs that are trained together, and of the way they are computed.

Runs on documents of a topic model are computed on bags of tokens or position by position; runs on text have an engine
of their own (``training.text``). All work on dictionaries of tensors with a leading ``seed`` axis: a single run is an
ensemble of one. The objective is here too: squared loss (eq. 3), cross-entropy (eq. 4), their mean (eq. 1), L2 (eq. 2).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property, partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from topicscope.files import Row
from topicscope.model.bag import BagTransformer, Targets, slot_batches, table_batches, uses_table
from topicscope.model.one_hot import OneHotPass, is_equation_7
from topicscope.model.transformer import Transformer, padded_batch
from topicscope.model.weights import Sizes, initial_weights, part_of
from topicscope.model.weights import Weights as Arrays
from topicscope.randomness import Purpose, generator
from topicscope.records import Snapshot
from topicscope.settings import Settings, Training
from topicscope.settings.text import TextSettings
from topicscope.settings.training import Loss
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.synthetic.topics import TopicModel
from topicscope.training.batches import BatchStream, PassageStream
from topicscope.training.optimizers import Gradients
from topicscope.training.record import SnapshotTaker, StageRecorder, Weights, contrasts
from topicscope.training.schedule import Phase, phase, snapshot_steps, spaced_steps


class Engine(ABC):
    """Runs that are trained together, and how they are computed: all that the loop knows about either."""

    members: Sequence[Settings | TextSettings]
    """The runs; they differ in seed and learning rate alone."""

    weights: Weights
    """Every parameter of all members."""

    trained: Sequence[str]
    """Parameters that are trained at one step or another."""

    streams: Sequence[BatchStream | PassageStream]
    """The documents of each member."""

    snapshot_steps: frozenset[int] | None = None
    """Steps at which matrices are kept; None for runs that have no such file."""

    earlier: Sequence[int] = ()
    """How many steps the runs were meant to have before they were made longer."""

    smaller_start: str
    """What to do about a start at which the loss is not finite."""

    def enter(self, step: int) -> bool:
        """Freeze what this step does not train, and return whether batches must be prepared anew for it."""
        return False

    @abstractmethod
    def prepare(self, members: Iterable[MaskedDocuments], steps: int = 1) -> list[Any]:
        """Each step's batch for all members, from each member's documents of these steps.

        Each member's documents may be drawn only when asked for, so that they are laid out while still in the cache.
        """

    @abstractmethod
    def losses(self, batch: Any) -> Float[Tensor, " seed"]:
        """The loss of eq. 1 on a batch, without L2, for each member."""

    @abstractmethod
    def gradients(self, losses: Float[Tensor, " seed"]) -> Gradients:
        """Gradients of the losses computed last, and of L2; parameters that they do not depend on are left out."""

    @abstractmethod
    def recorded(self, step: int) -> list[Row]:
        """What each member's row has beside losses, learning rate, norms and rotation."""

    def snapshot(self, seed: int) -> Snapshot:
        """A member's matrices as they are, for looking at."""
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


def make_engine(
    members: Sequence[Settings],
    topic_model: TopicModel,
    weights: Sequence[Arrays] | None = None,
    *,
    earlier: Sequence[int] = (),
) -> "TopicModelEngine":
    """The engine of these runs on documents of a topic model, at the weights given or where they start."""
    settings, average = members[0], members[0].training.average
    if weights is None:
        draws = [generator(member.seed, Purpose.WEIGHTS) for member in members]
        start = partial(initial_weights, settings.model, topic_model, settings.masking, average=average)
        weights = [start(generator=draw) for draw in draws]
    sizes = Sizes.of(settings.model, topic_model.vocabulary, topic_model.length[1])
    dtype = torch.float64 if settings.training.precision == "float64" else torch.float32
    models = [Transformer(settings.model, sizes, arrays, dtype=dtype) for arrays in weights]
    kind = BagEngine if settings.engine == "bag" else ReferenceEngine
    engine = kind(members, topic_model, models)
    engine.earlier = earlier
    return engine


def shared_weights(models: Sequence[Transformer]) -> Weights:
    """All models' weights in one tensor per parameter; the models' own become views of it."""
    named = [dict(model.named_parameters()) for model in models]
    weights = {name: torch.stack([mine[name].detach() for mine in named]) for name in named[0]}
    for place, mine in enumerate(named):
        for name, parameter in mine.items():
            parameter.data = weights[name][place]
            weights[name].requires_grad_(parameter.requires_grad)
    return weights


class TopicModelEngine(Engine):
    """Runs on documents of a topic model; the two engines below decide how they are computed."""

    smaller_start = "let the parts start smaller (model.*.scale)"

    def __init__(self, members: Sequence[Settings], topic_model: TopicModel, models: Sequence[Transformer]) -> None:
        self.members: Sequence[Settings] = members
        self.topic_model, self.models = topic_model, models
        self.settings, self.training = members[0], members[0].training
        self.weights = shared_weights(models)
        self.computing: Sequence[Transformer | BagTransformer] = models
        self._unit = self.training.loss_unit(models[0].sizes.vocabulary)
        self.trained = [name for name in self.weights if part_of(name) in self.settings.model.trained_parts]
        self._phase: Phase | None = None

    @cached_property
    def streams(self) -> list[BatchStream]:  # type: ignore[override]  # drawn only if they are asked for
        """The documents of each member."""
        return [BatchStream(settings, self.topic_model) for settings in self.members]

    @cached_property
    def snapshot_steps(self) -> frozenset[int]:  # type: ignore[override]
        """Steps at which matrices are kept."""
        return spaced_steps((*self.earlier, self.training.steps), self.training.snapshots, snapshot_steps)

    @cached_property
    def _stages(self) -> StageRecorder | None:
        can = StageRecorder.can(self.settings, self.topic_model.vocabulary)
        return StageRecorder(self.settings, self.topic_model) if can else None

    @cached_property
    def _snapshot_takers(self) -> list[SnapshotTaker]:
        return [SnapshotTaker(stream) for stream in self.streams]

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
        found = self.loss_gradients(losses, moving)
        if self.training.l2:
            for name in moving:
                if part_of(name) in self.training.l2_parts:
                    weight = self.weights[name].detach()
                    found[name] = found.get(name, torch.zeros_like(weight)).add(weight, alpha=2 * self.training.l2)
        return found

    @torch.no_grad()
    def recorded(self, step: int) -> list[Row]:
        """L2's penalty, the contrast along topic blocks, and how far the two stages have come."""
        by_seed = contrasts(self.weights, self.topic_model.word_topics)
        stages = self._stages.rows(self.weights) if self._stages else [{} for _ in self.models]
        return [
            {"penalty": float(l2_penalty(model, self.training)) if self.training.l2 else 0.0, "contrast": contrast}
            | stage
            for model, contrast, stage in zip(self.models, by_seed, stages, strict=True)
        ]

    def snapshot(self, seed: int) -> Snapshot:
        """Snapshots of W^V, of products with the embedding, and of attention, always on the same held-out documents."""
        return self._snapshot_takers[seed].take(self.models[seed])


class BagEngine(TopicModelEngine):
    """Documents as bags of tokens, all members in one tensor."""

    def __init__(self, members: Sequence[Settings], topic_model: TopicModel, models: Sequence[Transformer]) -> None:
        super().__init__(members, topic_model, models)
        model, sizes = self.settings.model, models[0].sizes
        self._model = BagTransformer(model, sizes, self.weights)
        self.computing = [*models, self._model]
        self._table = uses_table(model, sizes)
        self._equation_7 = self._table and is_equation_7(model)
        # Its three matrices without their layer axis; they share memory with the weights.
        value, key, query = (self.weights[name].detach()[:, 0] for name in ("value", "key", "query"))
        self._matrices = value, key, query
        self._counting: dict[str, Any] = {
            "vocabulary": sizes.vocabulary,
            "masked_keys": model.masked_keys,
            "average": self.training.average,
            "dtype": self.weights["value"].dtype,
        }

    def prepare(self, members: Iterable[MaskedDocuments], steps: int = 1) -> list[Any]:
        """Count the documents."""
        if self._table:
            by_document = not self._model.queries_matter
            return list(table_batches(members, steps=steps, by_document=by_document, **self._counting))
        return list(slot_batches(members, steps=steps, **self._counting))

    def losses(self, batch: Any) -> Float[Tensor, " seed"]:
        """The losses, from one row of scores for each distinct masked query."""
        if self._equation_7:
            done = OneHotPass(*self._matrices, batch, self.training.loss, self._unit)
            if torch.is_grad_enabled():
                self._pass = done
            return done.losses
        return self._unit * row_losses(self._model.predict_masked(batch), batch.targets, self.training.loss)

    def loss_gradients(self, losses: Float[Tensor, " seed"], names: Sequence[str]) -> Gradients:
        """One backward pass for all members: no member's loss depends on another's weights."""
        if self._equation_7:
            assert losses is self._pass.losses, "gradients are those of the losses computed last"
            return self._pass.gradients(names)
        leaves = [self.weights[name] for name in names]
        found = torch.autograd.grad(losses, leaves, torch.ones_like(losses), allow_unused=True)
        return {name: gradient for name, gradient in zip(names, found, strict=True) if gradient is not None}


class ReferenceEngine(TopicModelEngine):
    """Documents position by position, member after member."""

    def prepare(self, members: Iterable[MaskedDocuments], steps: int = 1) -> list[Any]:
        """Pad each member's documents."""
        pad = partial(padded_batch, masked_keys=self.settings.model.masked_keys, average=self.training.average)
        by_member = [[pad(batch) for batch in member.parts(steps)] for member in members]
        return [list(batches) for batches in zip(*by_member, strict=True)]

    def losses(self, batch: Any) -> Float[Tensor, " seed"]:
        """The losses, from scores at every masked position."""
        found = []
        for model, mine in zip(self.models, batch, strict=True):
            each = losses(model.predict_masked(mine), mine.words, self.training.loss)
            found.append(self._unit * (each @ torch.from_numpy(mine.weights).to(each)))
        return torch.stack(found)

    def loss_gradients(self, losses: Float[Tensor, " seed"], names: Sequence[str]) -> Gradients:
        """The members' gradients, stacked."""
        leaves = [model.parameter(name) for name in names for model in self.models]
        found = torch.autograd.grad(losses, leaves, torch.ones_like(losses), allow_unused=True)
        seeds = len(self.models)
        by_name = {name: found[seeds * place : seeds * (place + 1)] for place, name in enumerate(names)}
        return {name: torch.stack(each) for name, each in by_name.items() if each[0] is not None}
