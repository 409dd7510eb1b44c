"""The training loop: one run, from its settings or from its newest checkpoint, into a run folder."""

import contextlib
import logging
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from topicscope.errors import DivergedError
from topicscope.model.batch import padded_batch
from topicscope.model.transformer import Transformer
from topicscope.model.weights import Sizes, initial_weights, part_of
from topicscope.randomness import Purpose, generator
from topicscope.settings import Settings
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.synthetic.topics import TopicModel
from topicscope.training import dynamics
from topicscope.training.checkpoints import Checkpoint, newest_checkpoint, save_checkpoint
from topicscope.training.data import BatchStream
from topicscope.training.objective import l2_penalty, losses
from topicscope.training.optimizers import make_optimizer, optimizer_tensors, restore_optimizer
from topicscope.training.reference import reference_losses
from topicscope.training.runs import Row, RunFolder, check_out, row_text
from topicscope.training.schedule import learning_rate, phase
from topicscope.training.snapshots import Snapshot, SnapshotTaker, snapshot_steps

logger = logging.getLogger(__name__)

Report = Callable[[int, int, str], None]


def train(settings: Settings, out: Path, *, resume: bool = False, report: Report | None = None) -> RunFolder:
    """Train a model into a new folder, or go on with the run that is in it.

    Everything that can be wrong with the settings is found before anything is written.
    """
    check_out(out, resume=resume)
    folder = RunFolder(out)
    if resume and folder.settings_path.exists():
        folder.check_can_resume(settings)
        settings = folder.settings()
    elif resume:
        logger.info("%s holds no run yet: starting one.", out)
    topic_model = TopicModel.from_settings(settings.data)
    settings.check_vocabulary(topic_model.vocabulary)
    with torch_threads(settings.training.threads):
        trainer = Trainer(settings, topic_model)
        if not folder.settings_path.exists():
            folder.create(settings)
        with folder.locked():
            folder.describe(settings, lambda: reference_losses(settings, topic_model))
            trainer.run(folder, report or (lambda done, total, state: None))
    return folder


class Trainer:
    """The state of a run between steps: weights, optimiser, and what the next rows compare with."""

    def __init__(self, settings: Settings, topic_model: TopicModel) -> None:
        self.settings = settings
        self.training = settings.training
        self.topic_model = topic_model
        draw = generator(settings.seed, Purpose.WEIGHTS)
        weights = initial_weights(settings.model, topic_model, settings.masking, generator=draw)
        sizes = Sizes.of(settings.model, topic_model.vocabulary, topic_model.length[1])
        dtype = torch.float64 if self.training.precision == "float64" else torch.float32
        self.model = Transformer(settings.model, sizes, weights, dtype=dtype)
        self.parameters = {
            name: parameter
            for name, parameter in self.model.named_parameters()
            if part_of(name) in settings.model.trained_parts
        }
        self.optimizer = make_optimizer(self.parameters, self.training)
        self.stream = BatchStream(settings, topic_model)
        self.validation = (
            self.stream.held_out(self.training.validation_documents, Purpose.VALIDATION)
            if self.training.validate_every
            else None
        )
        self.snapshot_taker = SnapshotTaker(self.stream)
        self.step = 0
        self.history: dict[int, Tensor] = {}
        self.snapshot_steps = snapshot_steps(self.training.steps, self.training.snapshots)

    def run(self, folder: RunFolder, report: Report) -> None:
        """Train to the last step, from the newest checkpoint if there is one."""
        checkpoint = newest_checkpoint(folder.path)
        if checkpoint is None:
            self._save(folder, {})
        else:
            self._restore(checkpoint)
        folder.cut_back(self.step)
        snapshots = folder.snapshots()
        state = ""
        with folder.metrics_path.open("a", encoding="utf-8") as metrics:
            for row in self._steps(folder, snapshots, metrics.flush):
                if row is not None:
                    metrics.write(row_text(row))
                    state = f"loss {row['loss']:.4f}"
                report(self.step, self.training.steps, state)
            metrics.flush()
            self._save(folder, snapshots)

    def _steps(
        self, folder: RunFolder, snapshots: dict[int, Snapshot], flush: Callable[[], None]
    ) -> Iterator[Row | None]:
        """One row, or None where none is logged, for every step; the last one is observed but not trained."""
        first = self.step
        while True:
            if (
                self.step > first
                and self.step < self.training.steps
                and self.step % self.training.checkpoint_every == 0
            ):
                flush()
                self._save(folder, snapshots)
            self._enter_phase()
            if self.step in self.snapshot_steps:
                snapshots[self.step] = self.snapshot_taker.take(self.model)
            self._remember_value()
            loss = self.batch_loss(self.stream.batch(self.step))
            self._check_finite(loss, folder, flush)
            last = self.step == self.training.steps
            yield self._row(float(loss.detach())) if last or self.step % self.training.log_every == 0 else None
            if last:
                return
            self._update(loss)
            self.step += 1

    def batch_loss(self, documents: MaskedDocuments) -> Tensor:
        """The loss of eq. 1 on a batch, without L2."""
        batch = padded_batch(documents, masked_keys=self.settings.model.masked_keys, average=self.training.average)
        each = losses(self.model.predict_masked(batch), batch.words, self.training.loss)
        return each @ torch.from_numpy(batch.weights).to(each)

    def _update(self, loss: Tensor) -> None:
        if self.training.l2:
            loss = loss + l2_penalty(self.model, self.training)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.training, self.step)
        self.optimizer.step()

    def _enter_phase(self) -> None:
        """Freeze what this step does not train; a parameter without gradient is not touched by the optimiser."""
        now = phase(self.settings, self.step)
        self.model.uniform_attention = now.uniform
        for name, parameter in self.parameters.items():
            parameter.requires_grad_(part_of(name) in now.parts)

    def _remember_value(self) -> None:
        """Keep W^V where a row to come compares with it, and drop what no row needs any more."""
        oldest = self.step - dynamics.ROTATION_STEPS
        self.history = {step: value for step, value in self.history.items() if step >= oldest}
        later = self.step + dynamics.ROTATION_STEPS
        if later % self.training.log_every == 0 or later == self.training.steps:
            self.history[self.step] = self.model.parameter("value").detach().clone()

    @torch.no_grad()
    def _row(self, loss: float) -> Row:
        earlier = self.history.get(self.step - dynamics.ROTATION_STEPS)
        due = self.validation is not None and (
            self.step % self.training.validate_every == 0 or self.step == self.training.steps
        )
        value = self.model.parameter("value")
        return {
            "step": self.step,
            "loss": loss,
            "penalty": float(l2_penalty(self.model, self.training)),
            "validation_loss": float(self.batch_loss(self.validation)) if due and self.validation else None,
            "learning_rate": learning_rate(self.training, self.step),
            "norm": dynamics.norms(self.model),
            "rotation": None if earlier is None else dynamics.rotation(value, earlier),
            "contrast": dynamics.contrasts(self.model, self.topic_model.word_topics),
        }

    def _check_finite(self, loss: Tensor, folder: RunFolder, flush: Callable[[], None]) -> None:
        if math.isfinite(float(loss.detach())):
            return
        flush()
        kept = newest_checkpoint(folder.path)
        raise DivergedError(
            f"training diverged: the loss at step {self.step} is {float(loss.detach())}; lower training.learning_rate "
            f"(now {self.training.learning_rate:g}) and start again; the last good checkpoint is that of step "
            f"{kept.step if kept else 0}."
        )

    def _save(self, folder: RunFolder, snapshots: dict[int, Snapshot]) -> None:
        weights = {name: parameter.detach() for name, parameter in self.model.named_parameters()}
        if not all(bool(weight.isfinite().all()) for weight in weights.values()):
            return  # the next loss will not be finite: keep the last good checkpoint
        folder.write_snapshots(snapshots)
        tensors = optimizer_tensors(self.optimizer, self.parameters)
        save_checkpoint(folder.path, Checkpoint(self.step, weights, tensors, self.history))

    def _restore(self, checkpoint: Checkpoint) -> None:
        logger.info("going on from step %d.", checkpoint.step)
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(checkpoint.weights[name])
        restore_optimizer(self.optimizer, self.parameters, checkpoint.optimizer)
        self.history = dict(checkpoint.history)
        self.step = checkpoint.step


@contextlib.contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Compute with this many threads, then with as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
