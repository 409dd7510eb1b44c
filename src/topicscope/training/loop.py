"""The training loop, and the verbs that use it: one run, of one seed or of several trained in one tensor.

Each seed draws its own documents, masks and initial weights, the same as it would draw alone. Its numbers are those of
the seed alone up to the rounding of sums taken in another order: a relative error of about 1e-6 per step in float32,
1e-14 in float64. The exception is b^K under Adam: it shifts all scores of a query alike and changes no prediction, so
its gradient is nothing but rounding, which Adam scales up. Results repeat to the bit only if the same seeds are trained
together, on equally many threads.
"""

import contextlib
import logging
import math
import shlex
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from topicscope.errors import DivergedError, InputError, StoppedTraining
from topicscope.measure.run import Run
from topicscope.measure.stages import rotation
from topicscope.model.weights import start_weights
from topicscope.settings import Settings
from topicscope.settings.text import TextSettings
from topicscope.store import as_before_if_refused, struct_text, write_atomically
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.synthetic.topics import TopicModel
from topicscope.training.engines import Engine, make_engine
from topicscope.training.final import final_measures
from topicscope.training.folder import Checkpoint, RunFolder, Speed
from topicscope.training.machine import torch_threads, with_threads
from topicscope.training.optimizers import Optimizer
from topicscope.training.record import ROTATION_STEPS, Recorder, norms
from topicscope.training.reference import reference
from topicscope.training.schedule import has_regular_row, has_row, learning_rate, validates
from topicscope.work import Report

logger = logging.getLogger(__name__)

# Asked between steps: whether to save and stop.
Stop = Callable[[], bool]


@dataclass(frozen=True)
class Watching:
    """How training is followed, and whether Ctrl-C finishes the step and saves before it stops."""

    report: Report | None = None
    rows: Callable[[Callable[[], Run]], None] | None = None
    """Called at every recorded row, with a function that returns the run so far."""

    interruptible: bool = True


UNWATCHED = Watching()


def train(
    settings: Settings,
    out: Path,
    *,
    seeds: Sequence[int] = (),
    resume: bool = False,
    watching: Watching = UNWATCHED,
) -> RunFolder:
    """Train a model of documents of a topic model into a new folder, or resume the run in it.

    Several ``seeds``, instead of that of the settings, are trained in one tensor. Everything that can be wrong with the
    settings is found before anything is written.
    """
    folder = RunFolder(out)
    seeds = _checked_seeds(settings, seeds, folder, resume)
    given = with_threads(settings, TopicModel.from_settings(settings.data).vocabulary)
    chosen = folder.settings_to_train(given, seeds, resume=resume)
    topic_model = TopicModel.from_settings(chosen.data)
    chosen.check_vocabulary(topic_model.vocabulary)
    if resume and not folder.settings_path.exists():
        logger.info("%s holds no run yet: starting one.", folder.path)
    with torch_threads(chosen.training.threads), contextlib.ExitStack() as stack:
        trainer = Trainer(make_engine(chosen, seeds, topic_model), folder)
        stack.enter_context(as_before_if_refused(folder.path, folder.locked(), lambda: trainer.step > 0))
        # Once more, now that nobody else can write here.
        folder.settings_to_train(given, seeds, resume=resume)
        folder.create(chosen)
        folder.describe(seeds, chosen.training.threads, {"engine": chosen.engine})
        newest = folder.newest()
        if newest is None:
            matrices, expected = reference(chosen, topic_model)
            theory = {"word_topics": topic_model.word_topics, **matrices}
            newest = replace(empty_run(str(folder.path), chosen, seeds, theory), reference=expected), None
            write_atomically(folder.path / "reference.json", struct_text(expected))
        trainer.begin(*newest)
        logger.info("the %s engine computes this model, threads: %d.", chosen.engine, chosen.training.threads)
        trainer.run(watching)
    return folder


def train_seeds(
    settings: Settings, seeds: Sequence[int], topic_model: TopicModel, *, name: str = "", gradients: bool = False
) -> Run:
    """Train all seeds in memory on one thread, so that numbers do not depend on the machine's cores, and measure.

    One that diverges does not keep the others from finishing. ``gradients`` asks for the norms of gradients at the
    start. What theory expects is there if matrices are kept on the way, and the settings describe the topics.
    """
    settings.check_vocabulary(topic_model.vocabulary)
    settings = replace(settings, training=replace(settings.training, threads=1))
    began = time.perf_counter()
    with torch_threads(1):
        trainer = Trainer(make_engine(settings, seeds, topic_model))
        trainer.begin(empty_run(name, settings, seeds, {"word_topics": topic_model.word_topics}))
        with contextlib.suppress(DivergedError):
            trainer.run()
        seconds = time.perf_counter() - began
        weights = trainer.final_weights()
        by_seed = [{part: array[seed] for part, array in weights.items()} for seed in range(len(seeds))]
        starts = [start_weights(settings, seed, topic_model) for seed in seeds] if gradients else []
        final = final_measures(settings, topic_model, by_seed, starts=starts)
    run = replace(trainer.recorded(), weights=weights, final=final, seconds=seconds)
    described = np.array_equal(topic_model.topic_words, TopicModel.from_settings(settings.data).topic_words)
    if settings.training.snapshots and described:
        matrices, expected = reference(settings, topic_model)
        run = replace(run, theory={**run.theory, **matrices}, reference=expected)
    return run


def empty_run(name: str, settings: Settings | TextSettings, seeds: Sequence[int], theory: Mapping[str, Any]) -> Run:
    """A run in which nothing is recorded yet."""
    return Run(name, settings, tuple(seeds), np.zeros(0, dtype=np.int64), {}, theory=theory)


def _checked_seeds(settings: Settings, seeds: Sequence[int], folder: RunFolder, resume: bool) -> list[int]:
    """The seeds asked for, by default those of the run to resume, or that of the settings."""
    if len(set(seeds)) != len(seeds):
        raise InputError(f"seeds = {list(seeds)} is not allowed: give each one once.")
    versions = folder.versions() if resume and not seeds else None
    if versions and len(versions.seeds) > 1:
        return versions.seeds
    return list(seeds) or [settings.seed]


class Trainer:
    """The state of training between steps: weights and optimiser of all seeds, whatever they are trained on."""

    def __init__(self, engine: Engine, folder: RunFolder | None = None) -> None:
        """With a folder, the run's arrays and checkpoints are kept there."""
        self.engine, self.folder = engine, folder
        self.training = engine.settings.training
        self.optimizer = Optimizer({name: engine.weights[name] for name in engine.trained}, self.training)
        self.step = 0
        self.speed = Speed()
        self._going = np.ones(len(engine.seeds), dtype=bool)
        self._diverged: list[str] = []
        # W^V at earlier steps that a later row's rotation compares with.
        self._history: dict[int, Tensor] = {}
        self._chunk, self._batches = -1, list[Any]()
        self._tokens = 0.0
        self._validation: Any = None
        self._saved = -1

    def recorded(self) -> Run:
        """Everything recorded so far."""
        return self._recorder.run()

    def final_weights(self) -> dict[str, Float[np.ndarray, "seed ..."]]:
        """The weights; NaN for a seed that has diverged."""
        return {name: weight.detach().cpu().numpy() for name, weight in self.engine.weights.items()}

    @torch.no_grad()
    def begin(self, run: Run, checkpoint: Checkpoint | None = None) -> None:
        """Begin at step 0, or resume from a checkpoint with what was recorded before it."""
        self._recorder = Recorder(run)
        if checkpoint is None:
            return
        logger.info("resuming at step %d.", checkpoint.step)
        self.step = self._saved = checkpoint.step
        for name, weight in checkpoint.part("weights").items():
            own = self.engine.weights[name]
            own.copy_(weight)
            self._going &= own.isfinite().flatten(1).all(dim=1).cpu().numpy()
        self.optimizer.restore(checkpoint.part("optimizer"))
        device = self.engine.weights["value"].device
        self._history = {int(step): value.to(device) for step, value in checkpoint.part("history").items()}

    def run(self, watching: Watching = UNWATCHED) -> None:
        """Train to the last step, or until Ctrl-C is pressed.

        A seed that diverges is left out from there on. The last step is observed but not trained.
        """
        with stop_on_interrupt() if watching.interruptible else contextlib.nullcontext(lambda: False) as stop:
            self._run(watching, stop)
        if self.folder:
            self.folder.speed = self.speed
            if not self._going.any():
                self.folder.save(self.recorded())
        if self._diverged:
            raise DivergedError(" ".join(self._diverged))

    def _run(self, watching: Watching, stop: Stop) -> None:
        training, engine, seen = self.training, self.engine, 0.0
        while True:
            last, began = self.step == training.steps, time.perf_counter()
            if engine.enter(self.step):
                self._chunk, self._validation = -1, None
            losses = engine.losses(self._batch())
            numbers = losses.detach().double().cpu().numpy()
            self._leave_out(~np.isfinite(numbers), [f"the loss at step {self.step} is {loss}" for loss in numbers])
            if not self._going.any():
                break
            # Only now: a checkpoint is good if its loss is a number.
            stopping = not last and stop()
            regular = self.step > self._saved and self.step % training.checkpoint_every == 0 and not last
            if stopping or regular:
                self._save()
            if stopping and self.folder:
                again = f"topicscope train --out {shlex.quote(str(self.folder.path))} --resume"
                raise StoppedTraining(f"stopped at step {self.step}, which is saved: {again} resumes there.")
            self._observe()
            spent = time.perf_counter() - began
            if has_row(training, self.step):
                self._log(numbers)
                if watching.rows:
                    watching.rows(self.recorded)
                if not self._going.any():
                    break
            if watching.report:
                loss = f"loss {np.mean(numbers[self._going]):.4f}, {self.speed.words}"
                watching.report(self.step, training.steps, loss)
            if last:
                self._save()
                break
            began = time.perf_counter()
            self.update(losses)
            self.step, seen = self.step + 1, seen + self._tokens
            spent += time.perf_counter() - began
            self.speed = Speed(self.speed.steps + 1, round(seen), self.speed.seconds + spent)

    def _batch(self) -> Any:
        """The documents of this step; those of some steps are drawn and laid out at once."""
        steps = self.engine.streams[0].steps
        chunk, place = divmod(self.step, steps)
        if chunk != self._chunk:
            self._tokens = 0.0
            self._chunk, self._batches = chunk, self.engine.prepare(self._drawn(chunk), steps)
        return self._batches[place]

    def _drawn(self, chunk: int) -> Iterator[MaskedDocuments]:
        """Each seed's documents, and on the way how many tokens a step has."""
        for stream in self.engine.streams:
            documents = stream.chunk(chunk)
            self._tokens += len(documents.tokens) / stream.steps
            yield documents

    def update(self, losses: Float[Tensor, " seed"]) -> None:
        """One step of the optimiser on the losses computed last, and L2."""
        self.optimizer.step(self.engine.gradients(losses), learning_rate(self.training, self.step))

    def _observe(self) -> None:
        """Keep matrices where they are due, and W^V where a row to come compares with it, no longer."""
        if self.step in self.engine.frame_steps:
            self._recorder.add_frame(self.step, self.engine.frame(), self._going)
        later = self.step + ROTATION_STEPS
        if has_row(self.training, later) or has_regular_row(self.training, later):
            self._history[self.step] = self.engine.weights["value"].detach().clone()
        self._history.pop(self.step - ROTATION_STEPS - 1, None)

    @torch.no_grad()
    def _log(self, losses: Float[np.ndarray, " seed"]) -> None:
        """Record a row; a seed with a loss or a norm that is not finite has diverged."""
        numbers: dict[str, np.ndarray] = {"loss": losses, **norms(self.engine.weights)}
        if validates(self.training, self.step) and self._held_out():
            numbers["validation_loss"] = self.engine.losses(self._validation).double().cpu().numpy()
        for name, values in numbers.items():
            broken = ~np.isfinite(values).reshape(len(values), -1).all(axis=1)
            words = name.replace("_", " ").replace("/", " ")
            self._leave_out(broken, [f"{words} at step {self.step} is not finite"] * len(broken))
        numbers["learning_rate"] = np.full(len(losses), learning_rate(self.training, self.step))
        if (earlier := self._history.get(self.step - ROTATION_STEPS)) is not None:
            now = self.engine.weights["value"].detach()
            numbers["rotation"] = rotation(now.cpu().numpy(), earlier.cpu().numpy())
        self._recorder.add(self.step, {**numbers, **self.engine.recorded(self.step)}, self._going)

    def _held_out(self) -> bool:
        """Whether there are held-out documents, laid out when they are first asked for."""
        if self._validation is None:
            held_out = [stream.validation() for stream in self.engine.streams]
            documents = [own for own in held_out if own is not None]
            self._validation = self.engine.prepare(documents)[0] if documents else ()
        return self._validation != ()

    def _leave_out(self, broken: Bool[np.ndarray, " seed"], what: Sequence[str]) -> None:
        """Leave seeds that have diverged out of training from here on, and note a sentence on each."""
        rate = f"lower training.learning_rate (now {self.training.learning_rate:g})"
        remedy = rate if self.step else self.engine.smaller_start
        saved = self._saved >= 0
        good = f"the last good checkpoint is that of step {self._saved}" if saved else "there is no good checkpoint"
        for seed in np.flatnonzero(broken & self._going).tolist():
            which = f" with seed {self.engine.seeds[seed]}" if len(self._going) > 1 else ""
            self._diverged.append(f"training diverged{which}: {what[seed]}; {remedy} and start again; {good}.")
            self._going[seed] = False
            for weight in self.engine.weights.values():
                # Autograd is not to see it: the other seeds' gradients of this step are still to be computed.
                weight.data[seed].fill_(math.nan)

    def _save(self) -> None:
        """Bring the run's arrays and a checkpoint to disk, if there is a folder."""
        if self.folder is None:
            return
        tensors = {f"weights/{name}": weight for name, weight in self.engine.weights.items()}
        tensors |= {f"optimizer/{path}": tensor for path, tensor in self.optimizer.tensors().items()}
        tensors |= {f"history/{step}": value for step, value in self._history.items()}
        self.folder.save(self.recorded(), Checkpoint(self.step, tensors))
        self._saved = self.step


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
