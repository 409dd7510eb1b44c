"""The training loop: runs that are trained together, from their settings or newest checkpoints, into run folders.

A single run is an ensemble of one. Members differ in seed and learning rate alone; they see their own documents and
never each other.
"""

import contextlib
import logging
import math
from collections.abc import Callable, Iterator, Sequence
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
from topicscope.training.checkpoints import checkpoint_steps, newest_checkpoints
from topicscope.training.data import STEPS_PER_CHUNK
from topicscope.training.engines import make_engine
from topicscope.training.members import Member, shared_weights
from topicscope.training.optimizers import Optimizer
from topicscope.training.reference import reference_losses
from topicscope.training.runs import RunFolder, check_out
from topicscope.training.schedule import Phase, learning_rate, phase

logger = logging.getLogger(__name__)

Report = Callable[[int, int, str], None]


def train(settings: Settings, out: Path, *, resume: bool = False, report: Report | None = None) -> RunFolder:
    """Train a model into a new folder, or go on with the run that is in it.

    Everything that can be wrong with the settings is found before anything is written.
    """
    return train_together([settings], [out], resume=resume, report=report)[0]


def train_together(
    members: Sequence[Settings], outs: Sequence[Path], *, resume: bool = False, report: Report | None = None
) -> list[RunFolder]:
    """Train runs that differ in seed and learning rate alone in one tensor, each into a folder of its own."""
    folders = [RunFolder(out) for out in outs]
    settings = list(members)
    for place, folder in enumerate(folders):
        check_out(folder.path, resume=resume)
        if resume and folder.settings_path.exists():
            folder.check_can_resume(settings[place], together=members)
            settings[place] = folder.settings()
        elif resume:
            logger.info("%s holds no run yet: starting one.", folder.path)
    topic_model = TopicModel.from_settings(settings[0].data)
    settings[0].check_vocabulary(topic_model.vocabulary)
    with torch_threads(settings[0].training.threads), contextlib.ExitStack() as stack:
        trainer = Trainer(settings, topic_model)
        for mine, folder in zip(settings, folders, strict=True):
            if not folder.settings_path.exists():
                folder.create(mine)
            stack.enter_context(folder.locked())
            folder.describe(mine, lambda: reference_losses(settings[0], topic_model), together=members)
        trainer.run(folders, report or (lambda done, total, state: None))
    return folders


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
        self._phase: Phase | None = None
        self._chunk = -1
        self._batches: list[Any] = []
        self._validation: Any = None
        count = self.training.validation_documents
        self._held_out = [
            member.stream.held_out(count, Purpose.VALIDATION) for member in self.members if self.training.validate_every
        ]

    def run(self, folders: Sequence[RunFolder], report: Report) -> None:
        """Train to the last step, from the newest checkpoints if there are any."""
        logger.info("the %s engine computes this model.", self.settings.engine)
        checkpoints = newest_checkpoints([folder.path for folder in folders])
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
            if not checkpoints:
                self._save(self.members)
            self._steps(report)

    def _steps(self, report: Report) -> None:
        """Train all members that have not diverged; the last step is observed but not trained."""
        first, going, diverged, state = self.step, list(self.members), [], ""
        while going:
            last = self.step == self.training.steps
            if first < self.step and not last and self.step % self.training.checkpoint_every == 0:
                self._save(going)
            self.enter_phase()
            for member in going:
                member.observe(self.step)
            losses = self.engine.losses(self._batch())
            if not math.isfinite(float(losses.detach().sum())):
                diverged += self._diverged(going, losses.detach())
            if last or self.step % self.training.log_every == 0:
                state = self._log(going, losses.detach())
            report(self.step, self.training.steps, state)
            if last:
                self._save(going)
                break
            self.update(losses)
            self.step += 1
        if diverged:
            raise DivergedError(" ".join(diverged))

    def _batch(self) -> Any:
        """The documents of this step; those of some steps are drawn and laid out at once."""
        chunk, place = divmod(self.step, STEPS_PER_CHUNK)
        if chunk != self._chunk:
            drawn = [member.stream.chunk(chunk) for member in self.members]
            self._chunk, self._batches = chunk, self.engine.prepare(drawn, STEPS_PER_CHUNK)
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
    def _log(self, going: list[Member], losses: Float[Tensor, " seed"]) -> str:
        """Write a row for each member; their mean loss, in words."""
        validation: list[float] | None = None
        every = self.training.validate_every
        if every and (self.step % every == 0 or self.step == self.training.steps):
            validation = self.engine.losses(self._validation).tolist()
        found = losses.tolist()
        for seed, member in enumerate(self.members):
            if member in going:
                member.log(self.step, found[seed], validation[seed] if validation else None)
        kept = [loss for loss, member in zip(found, self.members, strict=True) if member in going]
        return f"loss {math.fsum(kept) / max(len(kept), 1):.4f}"

    def _diverged(self, going: list[Member], losses: Float[Tensor, " seed"]) -> list[str]:
        """Take members whose loss is not finite out of training; what is to be said of each."""
        sentences = []
        for member, loss in zip(self.members, losses.tolist(), strict=True):
            if member not in going or math.isfinite(loss):
                continue
            going.remove(member)
            sentences.append(
                f"training diverged: the loss at step {self.step} is {loss}; lower training.learning_rate "
                f"(now {member.training.learning_rate:g}) and start again; the last good checkpoint is that of step "
                f"{checkpoint_steps(member.folder.path)[-1]}."
            )
        return sentences

    def _save(self, going: list[Member]) -> None:
        for seed, member in enumerate(self.members):
            if member in going:
                member.save(self.step, self.optimizer.tensors(seed))


@contextlib.contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Compute with this many threads, then with as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
