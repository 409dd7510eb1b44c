"""One run among those that are trained together: its documents, its view of the weights, and what it records."""

import os
from functools import cached_property
from typing import TextIO

import torch
from jaxtyping import Float
from torch import Tensor

from topicscope.model.transformer import Transformer
from topicscope.model.weights import Sizes, initial_weights
from topicscope.randomness import Purpose, generator
from topicscope.settings import Settings
from topicscope.synthetic.topics import TopicModel
from topicscope.training import dynamics
from topicscope.training.checkpoints import Checkpoint, save_checkpoint
from topicscope.training.data import BatchStream
from topicscope.training.objective import l2_penalty
from topicscope.training.runs import Row, RunFolder, Snapshot, row_text
from topicscope.training.schedule import learning_rate, logged_steps, snapshot_steps
from topicscope.training.snapshots import SnapshotTaker


class Member:
    """A run's own part of training; a single run is the only member."""

    def __init__(self, settings: Settings, topic_model: TopicModel) -> None:
        self.settings = settings
        self.training = settings.training
        self.topic_model = topic_model
        draw = generator(settings.seed, Purpose.WEIGHTS)
        weights = initial_weights(
            settings.model, topic_model, settings.masking, average=self.training.average, generator=draw
        )
        sizes = Sizes.of(settings.model, topic_model.vocabulary, topic_model.length[1])
        dtype = torch.float64 if self.training.precision == "float64" else torch.float32
        self.model = Transformer(settings.model, sizes, weights, dtype=dtype)
        self.stream = BatchStream(settings, topic_model)
        self._logged_steps = frozenset(logged_steps(self.training))
        self._snapshot_steps = snapshot_steps(self.training.steps, self.training.snapshots)
        self._snapshots: dict[int, Snapshot] = {}
        self._history: dict[int, Tensor] = {}

    @cached_property
    def _snapshot_taker(self) -> SnapshotTaker:
        return SnapshotTaker(self.stream)

    def begin(self, folder: RunFolder, metrics: TextIO) -> None:
        """Go on in this folder, and write rows here."""
        self.folder = folder
        self._metrics = metrics
        self._snapshots = folder.snapshots()

    def observe(self, step: int) -> None:
        """Take a snapshot where one is due; keep W^V where a row to come compares with it, and no longer."""
        if step in self._snapshot_steps:
            self._snapshots[step] = self._snapshot_taker.take(self.model)
        if step + dynamics.ROTATION_STEPS in self._logged_steps:
            self._history[step] = self.model.parameter("value").detach().clone()
        self._history.pop(step - dynamics.ROTATION_STEPS - 1, None)

    @torch.no_grad()
    def row(
        self, step: int, loss: float, validation_loss: float | None, norm: dict[str, list[float]], contrast: Row
    ) -> Row:
        """What is recorded of a step; norms and contrasts are computed for all members at once."""
        earlier = self._history.get(step - dynamics.ROTATION_STEPS)
        value = self.model.parameter("value")
        return {
            "step": step,
            "loss": loss,
            "penalty": float(l2_penalty(self.model, self.training)) if self.training.l2 else 0.0,
            "validation_loss": validation_loss,
            "learning_rate": learning_rate(self.training, step),
            "norm": norm,
            "rotation": None if earlier is None else dynamics.rotation(value, earlier),
            "contrast": contrast,
        }

    def write(self, row: Row) -> None:
        """Add a row to the metrics."""
        self._metrics.write(row_text(row))

    def flush(self) -> None:
        """Bring the rows to disk."""
        self._metrics.flush()
        os.fsync(self._metrics.fileno())

    def save(self, step: int, optimizer: dict[str, Tensor]) -> None:
        """Bring rows, snapshots and a checkpoint to disk; weights that are not finite are not worth keeping."""
        self.flush()
        weights = {name: parameter.detach() for name, parameter in self.model.named_parameters()}
        if all(bool(weight.isfinite().all()) for weight in weights.values()):
            self.folder.write_snapshots(self._snapshots)
            checkpoint = Checkpoint(step, weights, optimizer, self._history)
            save_checkpoint(self.folder.path, checkpoint, every=self.training.checkpoint_every)

    @torch.no_grad()
    def restore(self, checkpoint: Checkpoint) -> None:
        """Weights and history as they were."""
        for name, parameter in self.model.named_parameters():
            parameter.copy_(checkpoint.weights[name])
        self._history = dict(checkpoint.history)


def shared_weights(members: list[Member]) -> dict[str, Float[Tensor, "seed ..."]]:
    """All members' weights in one tensor a parameter; the members' own become views of it."""
    named = [dict(member.model.named_parameters()) for member in members]
    weights = {name: torch.stack([mine[name].detach() for mine in named]) for name in named[0]}
    for place, mine in enumerate(named):
        for name, parameter in mine.items():
            parameter.data = weights[name][place]
    return weights
