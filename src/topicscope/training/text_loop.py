"""Training on text: one encoder, from its settings or its newest checkpoint, into a run folder."""

import logging
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TextIO

import torch
from torch import Tensor

from topicscope.errors import DivergedError
from topicscope.model.encoder import ATTENTION, Encoder, encoder_weights
from topicscope.model.packed import PackedBatch, pack_parts
from topicscope.randomness import Purpose, generator
from topicscope.settings.text import TextSettings
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.training import dynamics
from topicscope.training.checkpoints import Checkpoint, checkpoint_steps, newest_checkpoint, save_checkpoint
from topicscope.training.interrupts import Stop, never, stopped
from topicscope.training.memory import check_memory, out_of_memory_said
from topicscope.training.objective import losses
from topicscope.training.optimizers import Optimizer
from topicscope.training.passages import PassageStream, Text
from topicscope.training.runs import Row, first_not_finite, row_text
from topicscope.training.schedule import learning_rate, logged_steps, snapshot_steps, validates
from topicscope.training.text_runs import TextRun

logger = logging.getLogger(__name__)

Report = Callable[[int, int, str], None]
# What topic structure the current weights have, as plain values; passed in, since training knows nothing of topics.
Measure = Callable[[Encoder], dict[str, Any]]


@dataclass(frozen=True)
class Speed:
    """How fast a run was, from the first step it computed to the last, without what was measured on the way."""

    steps: int
    tokens: int
    seconds: float

    @property
    def steps_per_second(self) -> float:
        """Training steps."""
        return self.steps / self.seconds if self.seconds else 0.0

    @property
    def tokens_per_second(self) -> float:
        """Tokens of passages, special ones not counted."""
        return self.tokens / self.seconds if self.seconds else 0.0

    @property
    def words(self) -> str:
        """As shown."""
        return f"{self.steps_per_second:.1f} steps/s, {self.tokens_per_second:,.0f} tokens/s"


def steps_with_rows(settings: TextSettings) -> list[int]:
    """Steps that have a row of metrics: the logged ones, and those at which topic structure is measured."""
    training = settings.training
    return sorted({*logged_steps(training.sandbox()), *snapshot_steps(training.steps, training.measures)})


class TextTrainer:
    """The state of training between steps: weights and optimiser."""

    def __init__(
        self,
        settings: TextSettings,
        text: Text,
        *,
        device: torch.device | None = None,
        measure: Measure | None = None,
    ) -> None:
        self.settings, self.training = settings, settings.training
        self.text, self.measure = text, measure
        self.device = device or torch.device("cpu")
        self.stream = PassageStream(settings, text)
        sizes = (settings.model, text.specials.vocabulary, settings.positions)
        if self.device.type == "cpu":
            # Before weights are drawn: they alone may be too large.
            check_memory(settings, text.specials.vocabulary)
        weights = encoder_weights(*sizes, generator=generator(settings.seed, Purpose.WEIGHTS))
        self.encoder = Encoder(settings.model, weights).to(self.device)
        self.weights = dict(self.encoder.named_parameters())
        self._rules = self.training.sandbox()
        # The optimiser is that of ensembles, of which a single run is one.
        members = {name: weight.detach()[None] for name, weight in self.weights.items()}
        self.optimizer = Optimizer(members, self._rules, alike=True)
        self.step = 0
        self._rows = frozenset(steps_with_rows(settings))
        self._measured = snapshot_steps(self.training.steps, self.training.measures) if measure else frozenset()
        self._history: dict[int, Tensor] = {}
        held_out = self.stream.held_out() if self.training.validate_every else None
        self._held_out = self._packed(held_out) if held_out is not None else []
        self._spent = self._seen = self._done = 0.0

    @property
    def speed(self) -> Speed:
        """How fast it has been so far."""
        return Speed(int(self._done), int(self._seen), self._spent)

    def run(self, folder: TextRun, report: Report | None = None, stop: Stop = never) -> None:
        """Train to the last step, from the newest checkpoint if there is one; or until it is to stop."""
        checkpoint = newest_checkpoint(folder.path)
        if checkpoint and not folder.rows_are_whole([step for step in sorted(self._rows) if step < checkpoint.step]):
            logger.warning("%s: metrics.jsonl is damaged; starting again from step 0.", folder.path)
            checkpoint = None
        if checkpoint:
            self.restore(checkpoint)
            logger.info("going on from step %d.", self.step)
        folder.cut_back(self.step)
        said = out_of_memory_said(self.settings, self.text.specials.vocabulary)
        with folder.metrics_path.open("a", encoding="utf-8") as metrics, said:
            saved = self.step if checkpoint else -1
            self._steps(folder, metrics, report or (lambda done, total, state: None), stop, saved)

    def _steps(self, folder: TextRun, metrics: TextIO, report: Report, stop: Stop, saved: int) -> None:
        """The last step is observed but not trained. ``saved`` is the step of the checkpoint that is there, or −1."""
        while True:
            began = time.perf_counter()
            passages = self.stream.batch(self.step)
            loss, gradients = self.gradients(passages)
            if not math.isfinite(loss):
                raise self._diverged(folder, metrics, f"the loss at step {self.step} is {loss}")
            last = self.step == self.training.steps
            # Only now: a checkpoint is good if its loss is a number.
            stopping = not last and stop()
            if stopping or (self.step > saved and not last and self.step % self.training.checkpoint_every == 0):
                self._save(folder, metrics)
            if stopping:
                raise stopped(self.step, folder.path)
            self._remember()
            self._spent += time.perf_counter() - began
            if self.step in self._rows:
                row = self.row(loss, gradients)
                if name := first_not_finite(row):
                    raise self._diverged(folder, metrics, f"{name} at step {self.step} is not finite")
                metrics.write(row_text(row))
            report(self.step, self.training.steps, f"loss {loss:.4f}, {self.speed.words}")
            if last:
                self._save(folder, metrics)
                return
            began = time.perf_counter()
            self.update(gradients)
            self.step += 1
            self._spent += time.perf_counter() - began
            self._done, self._seen = self._done + 1, self._seen + len(passages.tokens)

    def gradients(self, passages: MaskedDocuments) -> tuple[float, dict[str, Tensor]]:
        """The loss of eq. 1 on these passages and its gradient, part after part."""
        total, found = 0.0, {name: torch.zeros_like(weight) for name, weight in self.weights.items()}
        for batch in self._packed(passages):
            loss = self._loss(batch)
            parts = torch.autograd.grad(loss, list(self.weights.values()), allow_unused=True)
            for sum_, part in zip(found.values(), parts, strict=True):
                if part is not None:
                    sum_ += part
            total += float(loss.detach())
        return total, found

    def update(self, gradients: dict[str, Tensor]) -> None:
        """One step of the optimiser."""
        members = {name: gradient[None] for name, gradient in gradients.items()}
        self.optimizer.step(members, [learning_rate(self._rules, self.step)])

    @torch.no_grad()
    def row(self, loss: float, gradients: dict[str, Tensor]) -> Row:
        """What is recorded of a step."""
        earlier = self._history.get(self.step - dynamics.ROTATION_STEPS)
        value, heads = self.weights["value"], self.settings.model.heads
        validation = None
        if self._held_out and validates(self._rules, self.step):
            validation = sum(float(self._loss(batch)) for batch in self._held_out)
        return {
            "step": self.step,
            "loss": loss,
            "validation_loss": validation,
            "learning_rate": learning_rate(self._rules, self.step),
            "norm": dynamics.layer_norms(self.weights),
            "head_norm": {name: dynamics.head_norms(self.weights[name], heads) for name in ATTENTION},
            "rotation": None if earlier is None else dynamics.rotation(value, earlier),
            "gradient_norm": dynamics.layer_norms(gradients),
            "topics": self.measure(self.encoder) if self.measure and self.step in self._measured else None,
        }

    @torch.no_grad()
    def restore(self, checkpoint: Checkpoint) -> None:
        """Weights, optimiser and history as they were."""
        self.step = checkpoint.step
        for name, weight in self.weights.items():
            weight.copy_(checkpoint.weights[name])
        self.optimizer.restore(0, checkpoint.optimizer)
        self._history = {step: value.to(self.device) for step, value in checkpoint.history.items()}

    def _loss(self, batch: PackedBatch) -> Tensor:
        scores = self.encoder.predict_masked(batch)
        return losses(scores, batch.words, self.training.loss) @ batch.weights

    def _packed(self, passages: MaskedDocuments) -> list[PackedBatch]:
        specials = self.text.specials
        parts = max(self.training.accumulate, -(-len(passages) * self.training.accumulate // self.training.batch))
        batches = pack_parts(
            passages,
            min(parts, len(passages)),
            before=specials.before,
            after=specials.after,
            average=self.training.average,
        )
        return [batch.to(self.device) for batch in batches]

    def _remember(self) -> None:
        """Keep W^V where a row to come compares with it, and no longer."""
        if self.step + dynamics.ROTATION_STEPS in self._rows:
            self._history[self.step] = self.weights["value"].detach().clone()
        self._history.pop(self.step - dynamics.ROTATION_STEPS - 1, None)

    def _save(self, folder: TextRun, metrics: TextIO) -> None:
        """Bring rows and a checkpoint to disk."""
        _flush(metrics)
        tensors = {name: weight.detach().cpu() for name, weight in self.weights.items()}
        optimizer = {name: tensor.cpu() for name, tensor in self.optimizer.tensors(0).items()}
        history = {step: value.cpu() for step, value in self._history.items()}
        checkpoint = Checkpoint(self.step, tensors, optimizer, history)
        save_checkpoint(folder.path, checkpoint, every=self.training.checkpoint_every)

    def _diverged(self, folder: TextRun, metrics: TextIO, what: str) -> DivergedError:
        _flush(metrics)
        kept = checkpoint_steps(folder.path)
        good = f"the last good checkpoint is that of step {kept[-1]}" if kept else "there is no good checkpoint"
        remedy = f"lower training.learning_rate (now {self.training.learning_rate:g})"
        if not self.step:
            remedy = "let the weights start smaller (model.scale, model.attention_scale)"
        return DivergedError(f"training diverged: {what}; {remedy} and start again; {good}.")


def _flush(metrics: TextIO) -> None:
    metrics.flush()
    os.fsync(metrics.fileno())
