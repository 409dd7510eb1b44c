"""The training loop, and the verbs that use it: runs trained together, on documents of a topic model or on text.

A single run is an ensemble of one. Members of an ensemble differ in seed and learning rate alone; each draws its own
documents, masks and initial weights, the same as it would draw alone, and writes the same run folder. Its numbers are
those of the run alone up to the rounding of sums taken in another order: a relative error of about 1e-6 per step in
float32, 1e-14 in float64. The exception is b^K under Adam: it shifts all scores of a query alike and changes no
prediction, so its gradient is nothing but rounding, which Adam scales up.

Which members are trained together is part of the settings of an ensemble, never of the machine: that is what makes
results repeat to the bit.
"""

import contextlib
import dataclasses
import logging
import math
import shlex
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from topicscope.errors import DivergedError, InputError, StoppedTraining, path_of
from topicscope.files import as_before_if_refused
from topicscope.measure.stages import rotation
from topicscope.records import Snapshot
from topicscope.scale import Report
from topicscope.settings import Settings
from topicscope.settings.text import Device, TextSettings, with_absolute_paths
from topicscope.settings.values import convert
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.synthetic.topics import TopicModel
from topicscope.text.formats import corpus_notes
from topicscope.training import record
from topicscope.training.checkpoints import Checkpoint, newest_checkpoints
from topicscope.training.engines import Engine, make_engine
from topicscope.training.machine import find_device, out_of_memory_said, torch_threads, with_threads
from topicscope.training.optimizers import Optimizer
from topicscope.training.reference import reference_losses, reference_stages, write_reference_matrices
from topicscope.training.runs import AnySettings, MemoryRun, RunFolder, Speed, first_not_finite
from topicscope.training.schedule import has_regular_row, has_row, learning_rate, steps_measured, validates
from topicscope.training.text import Measure, PreparedText, TextEngine, export, prepare_text

logger = logging.getLogger(__name__)

# Asked between steps: whether to save and stop.
Stop = Callable[[], bool]
# Returns the function that measures topic structure, once the passages are there; called only if it is needed.
Measuring = Callable[[PreparedText, TextSettings], Measure]


def train(
    settings: AnySettings,
    out: Path,
    *,
    resume: bool = False,
    device: Device = "auto",
    measuring: Measuring | None = None,
    report: Report | None = None,
) -> RunFolder:
    """Train a model into a new folder, or go on with the run in it. Ctrl-C saves and stops.

    For documents of a topic model, everything that can be wrong with the settings is found before anything is written.
    A run on text must read its corpus first, and leaves the folder as it was if something is wrong. ``device`` is where
    to compute a run on text, and ``measuring`` returns the function that measures topic structure at
    ``training.measures`` steps.
    """
    if isinstance(settings, TextSettings):
        return _train_on_text(settings, Path(out), resume, find_device(device), measuring, report)
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

    If ``interruptible``, Ctrl-C finishes the step and saves before stopping.
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
    earlier = folders[0].lengths_before(settings[0].training.steps)
    with torch_threads(settings[0].training.threads), contextlib.ExitStack() as stack:
        trainer = Trainer(make_engine(settings, topic_model, earlier=earlier))
        for mine, folder in zip(settings, folders, strict=True):
            stack.enter_context(as_before_if_refused(folder.path, folder.locked(), lambda: trainer.step > 0))
            # Once more, now that nobody else can write here.
            _settings_to_train(folder, mine, members, resume)
            if not folder.settings_path.exists():
                folder.create(mine)
            folder.lengthen(mine.training.steps)
            folder.warn_of_other_versions()
            reference = None
            if not folder.reference_path.exists():
                said = write_reference_matrices(folder.path, mine, topic_model)
                stages = reference_stages(mine, topic_model)
                reference = {**reference_losses(mine, topic_model), "matrices": said, "stages": stages}
            folder.describe(mine, reference=reference, together=members)
        logger.info("the %s engine computes this model, threads: %d.", settings[0].engine, settings[0].training.threads)
        stop = stack.enter_context(stop_on_interrupt()) if interruptible else None
        trainer.run(folders, report, stop)
    return folders


def _settings_to_train(folder: RunFolder, given: Settings, members: Sequence[Settings], resume: bool) -> Settings:
    """The settings given, or those of the run to resume, which must be the same."""
    folder.check_is_free(resume=resume)
    if resume and folder.settings_path.exists():
        folder.check_can_resume(given, together=members)
        stored = folder.settings()
        assert isinstance(stored, Settings)
        # A run may be made longer; all else is as it was.
        return dataclasses.replace(stored, training=dataclasses.replace(stored.training, steps=given.training.steps))
    return given


@dataclass(frozen=True, kw_only=True)
class Ensemble:
    """One setting, with several seeds and learning rates."""

    settings: Settings
    seeds: tuple[int, ...]
    learning_rates: tuple[float, ...] = ()
    """Each with every seed; none means that of the settings."""

    def __post_init__(self) -> None:
        for name, kind in (("seeds", int), ("learning_rates", float)):
            object.__setattr__(self, name, convert(tuple[kind, ...], getattr(self, name), name))  # type: ignore[valid-type]
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
    ensemble: Ensemble, out: Path | str, *, resume: bool = False, report: Report | None = None
) -> dict[str, RunFolder]:
    """Train all members at once, each into a run folder of its own below ``out``."""
    if not isinstance(ensemble, Ensemble):
        raise InputError(
            "ensemble is not allowed: give Ensemble(settings=…, seeds=(0, 1, …)), or use train for one run."
        )
    members = ensemble.members()
    outs = [path_of(out, "out") / name for name in members]
    folders = train_together(list(members.values()), outs, resume=resume, report=report)
    return dict(zip(members, folders, strict=True))


def train_in_memory(
    members: Sequence[Settings], topic_model: TopicModel, *, report: Report | None = None
) -> list[MemoryRun]:
    """Train runs as ``train_together`` does, with the same numbers, and write nothing.

    One that diverges does not keep the others from finishing, and has no weights.
    """
    members[0].check_vocabulary(topic_model.vocabulary)
    members = [with_threads(settings, topic_model.vocabulary) for settings in members]
    runs = [MemoryRun(settings) for settings in members]
    with torch_threads(members[0].training.threads), contextlib.suppress(DivergedError):
        Trainer(make_engine(members, topic_model)).run(runs, report)
    return runs


def _train_on_text(
    settings: TextSettings,
    out: Path,
    resume: bool,
    device: torch.device,
    measuring: Measuring | None,
    report: Report | None,
) -> RunFolder:
    """Train on text; at the end a Hugging Face folder is saved, if the architecture is BERT's."""
    folder = RunFolder(out)
    settings = with_absolute_paths(with_threads(settings))
    facts = {"device": device.type}

    def check() -> None:
        folder.check_is_free(resume=resume)
        if resume and folder.settings_path.exists():
            folder.check_can_resume(settings, facts=facts)

    check()
    trainer: Trainer | None = None
    with (
        as_before_if_refused(out, folder.locked(), lambda: trainer is not None and trainer.step > 0),
        torch_threads(settings.training.threads),
    ):
        # Once more, now that nobody else can write here.
        check()
        if not folder.settings_path.exists():
            # Left by a run whose settings are lost, and may have been different.
            shutil.rmtree(folder.tokenizer_path, ignore_errors=True)
            folder.create(settings)
        prepared = prepare_text(settings.data, out, report=report)
        facts["passages"] = prepared.passages.digest
        folder.check_can_resume(settings, facts=facts)
        folder.warn_of_other_versions()
        earlier = folder.lengths_before(settings.training.steps)
        measure = measuring(prepared, settings) if measuring and settings.training.measures else None
        specials = prepared.text.specials
        with out_of_memory_said(settings, specials.vocabulary):
            engine = TextEngine(settings, prepared.text, device=device, measure=measure, earlier=earlier)
            trainer = Trainer(engine)
        folder.lengthen(settings.training.steps)
        folder.describe(settings, facts=facts)
        with stop_on_interrupt() as stop, out_of_memory_said(settings, specials.vocabulary):
            trainer.run([folder], report, stop)
        if settings.model.is_bert:
            longest = settings.positions
            export(engine.encoder, specials, prepared.tokenizer_folder, folder.export_path, longest=longest)
        else:
            logger.info("the model is not BERT's architecture: no Hugging Face folder is saved.")
    folder.notes = tuple(corpus_notes(prepared.passages.description))
    return folder


@dataclass(eq=False)
class _Member:
    """A run among those that are trained together, and what is kept of it between steps."""

    seed: int
    """Its place in the tensors."""

    settings: AnySettings
    run: RunFolder | MemoryRun
    snapshots: dict[int, Snapshot]
    history: dict[int, Tensor]
    """W^V at earlier steps that a later row's rotation compares with."""


class Trainer:
    """The state of training between steps: weights and optimiser of all members, whatever they are trained on."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.training = engine.members[0].training
        alike = len({settings.training.learning_rate for settings in engine.members}) == 1
        trained = {name: engine.weights[name] for name in engine.trained}
        self.optimizer = Optimizer(trained, self.training, alike=alike)
        self.step = 0
        self._measured = steps_measured(self.training, engine.earlier)
        self._chunk = -1
        self._batches: list[Any] = []
        self._tokens = 0.0
        held_out = [stream.validation() for stream in engine.streams if self.training.validate_every]
        self._held_out = [documents for documents in held_out if documents is not None]
        self._validation: Any = None
        self._done, self._seen, self._seconds = 0, 0.0, 0.0

    @property
    def speed(self) -> Speed:
        """How fast it has been so far."""
        return Speed(self._done, round(self._seen), self._seconds)

    def run(
        self, runs: Sequence[RunFolder | MemoryRun], report: Report | None = None, stop: Stop | None = None
    ) -> None:
        """Train to the last step, from the newest checkpoints if there are any; or until it is to stop.

        A member that diverges is left out from there on. The last step is observed but not trained.
        """
        training, engine = self.training, self.engine
        checkpoints = self._whole_checkpoints([run for run in runs if isinstance(run, RunFolder)])
        if checkpoints:
            self.restore(checkpoints)
            logger.info("going on from step %d.", self.step)
        saved, diverged = self.step if checkpoints else -1, list[str]()
        with contextlib.ExitStack() as stack:
            for run in runs:
                stack.enter_context(run.recording(self.step))
            going = []
            for seed, (settings, run) in enumerate(zip(engine.members, runs, strict=True)):
                earlier = checkpoints[seed].part("history") if checkpoints else {}
                history = {int(step): value.to(engine.weights["value"].device) for step, value in earlier.items()}
                going.append(_Member(seed, settings, run, run.snapshots(), history))
            while going:
                last, began = self.step == training.steps, time.perf_counter()
                if engine.enter(self.step):
                    self._chunk, self._validation = -1, None
                losses = engine.losses(self._batch())
                found = losses.detach().tolist()
                for member in [each for each in going if not math.isfinite(found[each.seed])]:
                    what = f"the loss at step {self.step} is {found[member.seed]}"
                    diverged.append(self._take_out(member, going, what))
                # Only now: a checkpoint is good if its loss is a number.
                stopping = stop is not None and bool(going) and not last and stop()
                if stopping or (self.step > saved and self.step % training.checkpoint_every == 0 and not last):
                    self._save(going)
                if stopping:
                    folder = next(run for run in runs if isinstance(run, RunFolder))
                    again = f"topicscope train --out {shlex.quote(str(folder.path))} --resume"
                    raise StoppedTraining(f"stopped at step {self.step}, which is saved: {again} goes on from there.")
                self._observe(going)
                self._seconds += time.perf_counter() - began
                if has_row(self.training, self.step, self._measured):
                    diverged += self._log(going, found)
                if report:
                    loss = f"loss {found[going[-1].seed]:.4f}, " if going else ""
                    report(self.step, training.steps, f"{loss}{self.speed.words}")
                if last:
                    self._save(going)
                    break
                began = time.perf_counter()
                self.update(losses)
                self.step += 1
                self._done, self._seen = self._done + 1, self._seen + self._tokens
                self._seconds += time.perf_counter() - began
            if diverged:
                raise DivergedError(" ".join(diverged))
        for run in runs:
            if isinstance(run, RunFolder):
                run.speed = self.speed

    def _whole_checkpoints(self, folders: Sequence[RunFolder]) -> list[Checkpoint]:
        """The newest checkpoints, if all that was recorded before them is there; else none, as the log explains."""
        checkpoints = newest_checkpoints([folder.path for folder in folders]) if folders else []
        for folder in folders:
            if checkpoints and (missing := folder.missing_before(checkpoints[0].step, self.training)):
                logger.warning("%s: %s; starting again from step 0.", folder.path, missing)
                return []
        return checkpoints

    @torch.no_grad()
    def restore(self, checkpoints: Sequence[Checkpoint]) -> None:
        """Weights and optimiser of all members as they were."""
        self.step = checkpoints[0].step
        for seed, checkpoint in enumerate(checkpoints):
            for name, weight in checkpoint.part("weights").items():
                self.engine.weights[name][seed].copy_(weight)
            self.optimizer.restore(seed, checkpoint.part("optimizer"))

    def _batch(self) -> Any:
        """The documents of this step; those of some steps are drawn and laid out at once."""
        steps = self.engine.streams[0].steps
        chunk, place = divmod(self.step, steps)
        if chunk != self._chunk:
            self._tokens = 0.0
            self._chunk, self._batches = chunk, self.engine.prepare(self._drawn(chunk), steps)
        return self._batches[place]

    def _drawn(self, chunk: int) -> Iterator[MaskedDocuments]:
        """Each member's documents, and on the way how many tokens a step has."""
        for stream in self.engine.streams:
            documents = stream.chunk(chunk)
            self._tokens += len(documents.tokens) / stream.steps
            yield documents

    def update(self, losses: Float[Tensor, " seed"]) -> None:
        """One step of the optimiser on the losses computed last, and L2."""
        rates = [learning_rate(settings.training, self.step) for settings in self.engine.members]
        self.optimizer.step(self.engine.gradients(losses), rates)

    def _observe(self, going: Sequence[_Member]) -> None:
        """Take snapshots where they are due; keep W^V where a row to come compares with it, and no longer."""
        for member in going:
            if self.step in (self.engine.snapshot_steps or ()):
                member.snapshots[self.step] = self.engine.snapshot(member.seed)
            later = self.step + record.ROTATION_STEPS
            if has_row(self.training, later, self._measured) or has_regular_row(self.training, later):
                member.history[self.step] = self.engine.weights["value"][member.seed].detach().clone()
            member.history.pop(self.step - record.ROTATION_STEPS - 1, None)

    @torch.no_grad()
    def _log(self, going: list[_Member], losses: list[float]) -> list[str]:
        """Write each member's row; one with a number that is not finite has diverged."""
        norms, recorded, validation = record.norms(self.engine.weights), self.engine.recorded(self.step), None
        if self._held_out and validates(self.training, self.step):
            if self._validation is None:
                [self._validation] = self.engine.prepare(self._held_out)
            validation = self.engine.losses(self._validation).tolist()
        sentences = []
        for member in list(going):
            seed, earlier = member.seed, member.history.get(self.step - record.ROTATION_STEPS)
            value = self.engine.weights["value"][seed]
            row = record.in_order(
                recorded[seed]
                | {
                    "step": self.step,
                    "loss": losses[seed],
                    "validation_loss": validation and validation[seed],
                    "learning_rate": learning_rate(member.settings.training, self.step),
                    "norm": norms[seed],
                    "rotation": earlier
                    if earlier is None
                    else rotation(value.detach().cpu().numpy(), earlier.detach().cpu().numpy()),
                }
            )
            if name := first_not_finite(row):
                sentences.append(self._take_out(member, going, f"{name} at step {self.step} is not finite"))
            else:
                member.run.add(row)
        return sentences

    def _take_out(self, member: _Member, going: list[_Member], what: str) -> str:
        """Leave a member that diverged out of training from here on, and return the sentence that tells of it."""
        going.remove(member)
        member.run.flush()
        kept = member.run.checkpoint_steps()
        remedy = f"lower training.learning_rate (now {member.settings.training.learning_rate:g})"
        if not self.step:
            remedy = self.engine.smaller_start
        good = f"the last good checkpoint is that of step {kept[-1]}" if kept else "there is no good checkpoint"
        return f"training diverged: {what}; {remedy} and start again; {good}."

    def _save(self, going: Sequence[_Member]) -> None:
        """Bring rows, snapshots and checkpoints to disk; weights that are not finite are not worth keeping."""
        for member in going:
            member.run.flush()
            weights = {name: weight[member.seed].detach() for name, weight in self.engine.weights.items()}
            if all(bool(weight.isfinite().all()) for weight in weights.values()):
                tensors = {f"weights/{name}": weight for name, weight in weights.items()}
                tensors |= {f"optimizer/{path}": each for path, each in self.optimizer.tensors(member.seed).items()}
                tensors |= {f"history/{step}": value for step, value in member.history.items()}
                checkpoint = Checkpoint(self.step, tensors)
                snapshots = None if self.engine.snapshot_steps is None else member.snapshots
                member.run.save(checkpoint, snapshots, every=self.training.checkpoint_every)


@contextlib.contextmanager
def stop_on_interrupt() -> Iterator[Stop]:
    """Whether Ctrl-C was pressed, as a function to ask between steps; pressed twice, it stops at once.

    An interrupt in the middle of a step would leave some weights updated and others not. This applies only where
    Ctrl-C means what it usually does: in the main thread, with Python's own handler.
    """
    pressed = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True

    main = threading.current_thread() is threading.main_thread()
    usual = main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if usual:
        signal.signal(signal.SIGINT, note)
    try:
        yield lambda: pressed
    finally:
        if usual:
            signal.signal(signal.SIGINT, signal.default_int_handler)
