"""The training loop: runs that are trained together, from their settings or newest checkpoints, into run folders.

A single run is an ensemble of one. Members differ in seed and learning rate alone; they see their own documents and
never each other.
"""

import contextlib
import logging
import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from topicscope.errors import DivergedError
from topicscope.model.weights import part_of
from topicscope.randomness import Purpose
from topicscope.settings import Settings
from topicscope.synthetic.topics import TopicModel
from topicscope.training import dynamics
from topicscope.training.checkpoints import Checkpoint, checkpoint_steps, newest_checkpoints
from topicscope.training.engines import make_engine
from topicscope.training.interrupts import Stop, never, stop_on_interrupt, stopped
from topicscope.training.machine import torch_threads, with_threads
from topicscope.training.members import Member, shared_weights
from topicscope.training.optimizers import Optimizer
from topicscope.training.reference import reference_losses
from topicscope.training.reference_matrices import write_reference_matrices
from topicscope.training.runs import RunFolder, check_out, first_not_finite
from topicscope.training.schedule import Phase, learning_rate, logged_steps, phase, validates

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

    def __init__(self, members: Sequence[Settings], topic_model: TopicModel) -> None:
        self.settings = members[0]
        self.training = self.settings.training
        self.members = [Member(settings, topic_model) for settings in members]
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
            self._steps(report, stop, saved=self.step if checkpoints else -1)

    def _whole_checkpoints(self, folders: Sequence[RunFolder]) -> list[Checkpoint] | None:
        """The newest checkpoints, if all that was recorded before them is there too; else none, and it is said."""
        checkpoints = newest_checkpoints([folder.path for folder in folders])
        for folder, member in zip(folders, self.members, strict=True):
            if checkpoints and (missing := folder.missing_before(checkpoints[0].step, member.training)):
                logger.warning("%s: %s; starting again from step 0.", folder.path, missing)
                return None
        return checkpoints

    def _steps(self, report: Report, stop: Stop, saved: int) -> None:
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
        norms = dynamics.norms(self.weights)
        contrasts = dynamics.contrasts(self.weights, self.members[0].topic_model.word_topics)
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
        kept = checkpoint_steps(member.folder.path)
        remedy = f"lower training.learning_rate (now {member.training.learning_rate:g})"
        if not self.step:
            remedy = "let the parts start smaller (model.*.scale)"
        good = f"the last good checkpoint is that of step {kept[-1]}" if kept else "there is no good checkpoint"
        return f"training diverged: {what}; {remedy} and start again; {good}."

    def _save(self, going: list[Member]) -> None:
        for seed, member in enumerate(self.members):
            if member in going:
                member.save(self.step, self.optimizer.tensors(seed))
