"""One run among those that are trained together: its documents, its view of the weights, and what it records."""

import contextlib
import dataclasses
import logging
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from topicscope.errors import DivergedError, InputError
from topicscope.model.transformer import Transformer
from topicscope.model.weights import Sizes, initial_weights, part_of
from topicscope.randomness import Purpose, generator
from topicscope.records import Snapshot
from topicscope.settings import Settings
from topicscope.synthetic.topics import TopicModel
from topicscope.training import record
from topicscope.training.batches import BatchStream
from topicscope.training.checkpoints import Checkpoint, checkpoint_steps, newest_checkpoints, save_checkpoint
from topicscope.training.engines import l2_penalty, make_engine
from topicscope.training.machine import torch_threads, with_threads
from topicscope.training.optimizers import Optimizer
from topicscope.training.record import SnapshotTaker
from topicscope.training.reference import reference_losses, write_reference_matrices
from topicscope.training.runs import (
    Row,
    RunFolder,
    Stop,
    check_out,
    first_not_finite,
    never,
    row_text,
    stop_on_interrupt,
    stopped,
)
from topicscope.training.schedule import Phase, learning_rate, logged_steps, phase, snapshot_steps, validates


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
        if step + record.ROTATION_STEPS in self._logged_steps:
            self._history[step] = self.model.parameter("value").detach().clone()
        self._history.pop(step - record.ROTATION_STEPS - 1, None)

    @torch.no_grad()
    def row(
        self, step: int, loss: float, validation_loss: float | None, norm: dict[str, list[float]], contrast: Row
    ) -> Row:
        """What is recorded of a step; norms and contrasts are computed for all members at once."""
        earlier = self._history.get(step - record.ROTATION_STEPS)
        value = self.model.parameter("value")
        return {
            "step": step,
            "loss": loss,
            "penalty": float(l2_penalty(self.model, self.training)) if self.training.l2 else 0.0,
            "validation_loss": validation_loss,
            "learning_rate": learning_rate(self.training, step),
            "norm": norm,
            "rotation": None if earlier is None else record.rotation(value, earlier),
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

    def checkpoint_steps(self) -> list[int]:
        """Steps of the checkpoints that are there."""
        return checkpoint_steps(self.folder.path)

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


# The training loop: runs that are trained together, from their settings or newest checkpoints, into run folders.
#
# A single run is an ensemble of one. Members differ in seed and learning rate alone; they see their own documents and
# never each other.


logger = logging.getLogger(__name__)


Report = Callable[[int, int, str], None]


def train(settings: Settings, out: Path, *, resume: bool = False, report: Report | None = None) -> RunFolder:
    """Train a model into a new folder, or go on with the run that is in it.

    Everything that can be wrong with the settings is found before anything is written. Ctrl-C saves and stops.
    """
    return train_together([settings], [out], resume=resume, report=report, interruptible=True)[0]


def train_together(
    members: Sequence[Settings],
    outs: Sequence[Path],
    *,
    resume: bool = False,
    report: Report | None = None,
    interruptible: bool = False,
) -> list[RunFolder]:
    """Train runs that differ in seed and learning rate alone in one tensor, each into a folder of its own.

    ``interruptible``: on Ctrl-C finish the step and save before stopping.
    """
    folders = [RunFolder(Path(out)) for out in outs]
    vocabulary = TopicModel.from_settings(members[0].data).vocabulary
    members = [with_threads(mine, vocabulary) for mine in members]
    settings = [_settings_to_train(*pair, members, resume) for pair in zip(folders, members, strict=True)]
    topic_model = TopicModel.from_settings(settings[0].data)
    settings[0].check_vocabulary(topic_model.vocabulary)
    for folder in folders:
        if resume and not folder.settings_path.exists():
            logger.info("%s holds no run yet: starting one.", folder.path)
    with torch_threads(settings[0].training.threads), contextlib.ExitStack() as stack:
        trainer = Trainer(settings, topic_model)
        for mine, folder in zip(settings, folders, strict=True):
            stack.enter_context(folder.locked())
            # Once more, now that nobody else can write here.
            _settings_to_train(folder, mine, members, resume)
            if not folder.settings_path.exists():
                folder.create(mine)
            folder.describe(mine, partial(_reference, folder.path, mine, topic_model), together=members)
        stop = stack.enter_context(stop_on_interrupt()) if interruptible else never
        trainer.run(folders, report or (lambda done, total, state: None), stop)
    return folders


def _reference(folder: Path, settings: Settings, topic_model: TopicModel) -> dict[str, Any]:
    """What the run is to be held against: losses, and which matrices are beside them in a file of their own."""
    said = write_reference_matrices(folder, settings, topic_model)
    return {**reference_losses(settings, topic_model), "matrices": said}


def _settings_to_train(folder: RunFolder, given: Settings, members: Sequence[Settings], resume: bool) -> Settings:
    """The settings given, or those of the run to resume, which must be the same."""
    check_out(folder.path, resume=resume)
    if resume and folder.settings_path.exists():
        folder.check_can_resume(given, together=members)
        folder.warn_of_other_versions(given)
        return folder.settings()
    return given


class Trainer:
    """The state of training between steps: weights and optimiser of all members."""

    def __init__(self, members: Sequence[Settings], topic_model: TopicModel, kind: type[Member] = Member) -> None:
        self.settings = members[0]
        self.training = self.settings.training
        self.members = [kind(settings, topic_model) for settings in members]
        self.weights = shared_weights(self.members)
        models = [member.model for member in self.members]
        self.engine = make_engine(self.settings, models[0].sizes, self.weights, models)
        trained = {
            name: weight for name, weight in self.weights.items() if part_of(name) in self.settings.model.trained_parts
        }
        alike = len({settings.training.learning_rate for settings in members}) == 1
        self.optimizer = Optimizer(trained, self.training, alike=alike)
        self.step = 0
        self._state = ""
        self._logged_steps = frozenset(logged_steps(self.training))
        self._phase: Phase | None = None
        self._chunk = -1
        self._batches: list[Any] = []
        self._validation: Any = None
        count = self.training.validation_documents
        self._held_out = [
            member.stream.held_out(count, Purpose.VALIDATION) for member in self.members if self.training.validate_every
        ]

    def run(self, folders: Sequence[RunFolder], report: Report, stop: Stop = never) -> None:
        """Train to the last step, from the newest checkpoints if there are any; or until it is to stop."""
        logger.info("the %s engine computes this model, threads: %d.", self.settings.engine, self.training.threads)
        checkpoints = self._whole_checkpoints(folders)
        for seed, checkpoint in enumerate(checkpoints or ()):
            self.step = checkpoint.step
            self.members[seed].restore(checkpoint)
            self.optimizer.restore(seed, checkpoint.optimizer)
        if checkpoints:
            logger.info("going on from step %d.", self.step)
        with contextlib.ExitStack() as stack:
            for member, folder in zip(self.members, folders, strict=True):
                folder.cut_back(self.step)
                member.begin(folder, stack.enter_context(folder.metrics_path.open("a", encoding="utf-8")))
            self.train(report, stop, saved=self.step if checkpoints else -1)

    def _whole_checkpoints(self, folders: Sequence[RunFolder]) -> list[Checkpoint] | None:
        """The newest checkpoints, if all that was recorded before them is there too; else none, and it is said."""
        checkpoints = newest_checkpoints([folder.path for folder in folders])
        for folder, member in zip(folders, self.members, strict=True):
            if checkpoints and (missing := folder.missing_before(checkpoints[0].step, member.training)):
                logger.warning("%s: %s; starting again from step 0.", folder.path, missing)
                return None
        return checkpoints

    def train(self, report: Report, stop: Stop = never, saved: int = -1) -> None:
        """Train all members that have not diverged; the last step is observed but not trained.

        ``saved`` is the step of the checkpoints that are there, −1 if there are none.
        """
        going, diverged = list(self.members), []
        while going:
            last = self.step == self.training.steps
            self.enter_phase()
            losses = self.engine.losses(self._batch())
            if not math.isfinite(float(losses.detach().sum())):
                diverged += self._diverged(going, losses.detach())
            # Only now: a checkpoint is good if its loss is a number.
            stopping = bool(going) and not last and stop()
            if stopping or (self.step > saved and self.step % self.training.checkpoint_every == 0 and not last):
                self._save(going)
            if stopping:
                raise stopped(self.step, self.members[0].folder.path)
            for member in going:
                member.observe(self.step)
            if self.step in self._logged_steps:
                diverged += self._log(going, losses.detach())
            report(self.step, self.training.steps, self._state)
            if last:
                self._save(going)
                break
            self.update(losses)
            self.step += 1
        if diverged:
            raise DivergedError(" ".join(diverged))

    def _batch(self) -> Any:
        """The documents of this step; those of some steps are drawn and laid out at once."""
        steps = self.members[0].stream.steps
        chunk, place = divmod(self.step, steps)
        if chunk != self._chunk:
            drawn = (member.stream.chunk(chunk) for member in self.members)
            self._chunk, self._batches = chunk, self.engine.prepare(drawn, steps)
        return self._batches[place]

    def enter_phase(self) -> None:
        """Freeze what this step does not train."""
        now = phase(self.settings, self.step)
        if now == self._phase:
            return
        self._phase = now
        self.engine.hold_uniform(now.uniform)
        self._chunk = -1
        self._validation = self.engine.prepare(self._held_out)[0] if self._held_out else None
        for member in self.members:
            member.model.uniform_attention = now.uniform
            for name, parameter in member.model.named_parameters():
                parameter.requires_grad_(part_of(name) in now.parts)
        for name, weight in self.weights.items():
            weight.requires_grad_(part_of(name) in now.parts)

    def update(self, losses: Float[Tensor, " seed"]) -> None:
        """One step of the optimiser on the losses and L2; 2λθ is L2's gradient."""
        moving = [name for name, weight in self.weights.items() if weight.requires_grad]
        gradients = self.engine.gradients(losses, moving)
        if self.training.l2:
            for name in moving:
                if part_of(name) in self.training.l2_parts:
                    weight = self.weights[name].detach()
                    gradients[name] = gradients.get(name, torch.zeros_like(weight)).add(
                        weight, alpha=2 * self.training.l2
                    )
        self.optimizer.step(gradients, [learning_rate(member.training, self.step) for member in self.members])

    @torch.no_grad()
    def _log(self, going: list[Member], losses: Float[Tensor, " seed"]) -> list[str]:
        """Write each member's row; one with a number that is not finite has diverged."""
        due = self._held_out and validates(self.training, self.step)
        validation = self.engine.losses(self._validation).tolist() if due else [None] * len(self.members)
        norms = record.norms(self.weights)
        contrasts = record.contrasts(self.weights, self.members[0].topic_model.word_topics)
        sentences = []
        for member, loss, *recorded in zip(self.members, losses.tolist(), validation, norms, contrasts, strict=True):
            if member not in going:
                continue
            row = member.row(self.step, loss, *recorded)
            if name := first_not_finite(row):
                sentences.append(self._take_out(member, going, f"{name} at step {self.step} is not finite"))
            else:
                member.write(row)
                self._state = f"loss {loss:.4f}"
        return sentences

    def _diverged(self, going: list[Member], losses: Float[Tensor, " seed"]) -> list[str]:
        """Take members whose loss is not finite out of training; what is to be said of each."""
        return [
            self._take_out(member, going, f"the loss at step {self.step} is {loss}")
            for member, loss in zip(self.members, losses.tolist(), strict=True)
            if member in going and not math.isfinite(loss)
        ]

    def _take_out(self, member: Member, going: list[Member], what: str) -> str:
        going.remove(member)
        member.flush()
        kept = member.checkpoint_steps()
        remedy = f"lower training.learning_rate (now {member.training.learning_rate:g})"
        if not self.step:
            remedy = "let the parts start smaller (model.*.scale)"
        good = f"the last good checkpoint is that of step {kept[-1]}" if kept else "there is no good checkpoint"
        return f"training diverged: {what}; {remedy} and start again; {good}."

    def _save(self, going: list[Member]) -> None:
        for seed, member in enumerate(self.members):
            if member in going:
                member.save(self.step, self.optimizer.tensors(seed))


# Many seeds, and learning rates, of one setting, trained in one tensor.
#
# Each member draws its own documents, masks and initial weights, the same as it would draw alone, and writes the same
# run folder. Its numbers are those of the run alone up to the rounding of sums taken in another order: about 1e-6
# relative a step in float32, 1e-14 in float64. Only b^K is another matter under Adam: it shifts all scores of a query
# alike and changes no prediction, so its gradient is nothing but rounding, which Adam scales up.
#
# Which members are trained together is part of the settings of an ensemble, never of the machine: that is what makes
# results repeat to the bit.


@dataclass(frozen=True, kw_only=True)
class Ensemble:
    """One setting, with several seeds and learning rates."""

    settings: Settings
    seeds: tuple[int, ...]
    learning_rates: tuple[float, ...] = ()
    """Each with every seed; none means that of the settings."""

    def __post_init__(self) -> None:
        for name, values in (("seeds", self.seeds), ("learning_rates", self.learning_rates)):
            if len(set(values)) != len(values):
                raise InputError(f"{name} = {list(values)} is not allowed: give each one once.")
        if not self.seeds:
            raise InputError("seeds = [] is not allowed: give at least one seed.")

    def members(self) -> dict[str, Settings]:
        """The members' settings, by the name of their folder."""
        found = {}
        for rate in self.learning_rates or (self.settings.training.learning_rate,):
            training = dataclasses.replace(self.settings.training, learning_rate=rate)
            for seed in self.seeds:
                name = f"seed-{seed}" + (f"-rate-{rate:g}" if self.learning_rates else "")
                found[name] = dataclasses.replace(self.settings, seed=seed, training=training)
        return found


def train_ensemble(
    ensemble: Ensemble, out: Path, *, resume: bool = False, report: Report | None = None
) -> dict[str, RunFolder]:
    """Train all members at once, each into a run folder of its own below ``out``."""
    members = ensemble.members()
    outs = [out / name for name in members]
    folders = train_together(list(members.values()), outs, resume=resume, report=report)
    return dict(zip(members, folders, strict=True))


# The same in memory, for whoever keeps only what follows from it.


class MemberInMemory(Member):
    """A run that writes nothing: its rows, its snapshots, and its final weights unless it diverges."""

    def __init__(self, settings: Settings, topic_model: TopicModel) -> None:
        super().__init__(settings, topic_model)
        self.rows: list[Row] = []
        self.weights: dict[str, np.ndarray] | None = None

    @property
    def snapshots(self) -> dict[int, Snapshot]:
        """Matrices kept for looking at, by step and name."""
        return self._snapshots

    def write(self, row: Row) -> None:
        """Keep a row."""
        self.rows.append(row)

    def flush(self) -> None:
        """Nothing has to be brought to disk."""

    def save(self, step: int, optimizer: dict[str, Tensor]) -> None:
        """Keep the weights of the last step, if they are finite."""
        weights = {name: parameter.detach().numpy().copy() for name, parameter in self.model.named_parameters()}
        if step == self.training.steps and all(np.isfinite(weight).all() for weight in weights.values()):
            self.weights = weights

    def checkpoint_steps(self) -> list[int]:
        """None."""
        return []


def train_in_memory(members: Sequence[Settings], topic_model: TopicModel) -> list[MemberInMemory]:
    """Train runs as ``train_together`` does, with the same numbers, and without folders.

    One that diverges does not keep the others from finishing.
    """
    members[0].check_vocabulary(topic_model.vocabulary)
    with torch_threads(members[0].training.threads):
        trainer = Trainer(members, topic_model, MemberInMemory)
        with contextlib.suppress(DivergedError):
            trainer.train(lambda done, total, state: None)
    return [member for member in trainer.members if isinstance(member, MemberInMemory)]
