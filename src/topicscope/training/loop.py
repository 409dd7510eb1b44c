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
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from joblib import cpu_count
from threadpoolctl import threadpool_limits
from torch import Tensor

from topicscope.errors import DivergedError, InputError, StoppedTraining, refuse
from topicscope.measure.run import Run
from topicscope.measure.stages import rotation
from topicscope.model.weights import Source, shapes
from topicscope.precision import device_named
from topicscope.randomness import Purpose
from topicscope.settings import Settings, TextData, Training
from topicscope.settings.data import Device
from topicscope.settings.toml import with_absolute_paths
from topicscope.store import as_before_if_refused, struct_text, write_atomically
from topicscope.synthetic.topics import TopicModel
from topicscope.training.engines import CPU, Engine, Optimizer, learning_rate, make_engine
from topicscope.training.folder import Checkpoint, RunFolder
from topicscope.training.record import ROTATION_STEPS, Measures, Recorder, export, final_measures, norms
from topicscope.training.reference import reference
from topicscope.work import Report

logger = logging.getLogger(__name__)

# Copies of every weight: itself, its gradient, and Adam's two averages.
WEIGHT_COPIES = 4
# The share of the free memory that training may take; the rest is left to everything else.
SHARE = 0.9

# Asked between steps: whether to save and stop.
Stop = Callable[[], bool]


def train(
    settings: Settings,
    out: Path,
    *,
    seeds: Sequence[int] = (),
    resume: bool = False,
    device: Device = "auto",
    report: Report | None = None,
    interruptible: bool = True,
) -> RunFolder:
    """Train a model of documents of a topic model or of a text into a new folder, or resume the run in it.

    Several ``seeds``, instead of that of the settings, are trained in one tensor. If something is wrong with the
    settings, the folder is left as it was. ``interruptible``: Ctrl-C finishes the step and saves before it stops.
    """
    folder, on_text = RunFolder(out), isinstance(settings.data, TextData)
    if len(set(seeds)) != len(seeds):
        raise InputError(f"seeds = {list(seeds)} is not allowed: give each one once.")
    if not on_text and device not in ("auto", "cpu"):
        raise refuse("device", device, "topic models are trained on the processor; leave it out")
    place = device_named(device) if on_text and settings.engine == "reference" else CPU
    facts = {"device": place.type}
    # Small matrix products are faster on one thread than on two.
    threads = settings.training.threads or (cpu_count() if on_text else 1)
    settings = with_absolute_paths(replace(settings, training=replace(settings.training, threads=threads)))
    trainer: Trainer | None = None
    with (
        as_before_if_refused(folder.path, folder.locked(), lambda: trainer is not None and trainer.step > 0),
        torch_threads(threads),
    ):
        versions = folder.versions() if resume and not seeds else None
        seeds = versions.seeds if versions and len(versions.seeds) > 1 else list(seeds) or [settings.seed]
        chosen = folder.settings_to_train(settings, seeds, resume=resume, facts=facts)
        if not folder.settings_path.exists():
            if resume:
                logger.info("%s holds no run yet: starting one.", folder.path)
            # A tokenizer is left by a run whose settings are lost, and may have been different. Settings come before
            # the corpus is read: if the run is killed meanwhile, it resumes with them.
            shutil.rmtree(folder.tokenizer_path, ignore_errors=True)
            folder.create(chosen)
        source = _source(chosen, seeds, folder, facts, report)
        chosen.check_vocabulary(source.vocabulary)
        if place == CPU:
            # The weights alone may be too large to be drawn.
            check_memory(chosen, source.vocabulary, len(seeds))
        trainer = Trainer(make_engine(chosen, seeds, source, device=place), folder)
        folder.create(chosen)
        folder.describe(seeds, threads, facts)
        newest = folder.newest()
        if newest is None:
            newest = _with_theory(empty_run(str(folder.path), chosen, seeds, source), source), None
            if newest[0].reference:
                write_atomically(folder.path / "reference.json", struct_text(newest[0].reference))
        trainer.begin(*newest)
        logger.info("the %s engine computes this model, threads: %d.", chosen.engine, threads)
        trainer.run(report, interruptible=interruptible)
        if on_text and chosen.model.is_bert:
            export(trainer.engine, folder.export_path, folder.tokenizer_path)
        elif on_text:
            logger.info("the model is not BERT's architecture: no Hugging Face folder is saved.")
    return folder


def _source(
    settings: Settings, seeds: Sequence[int], folder: RunFolder, facts: dict[str, str], report: Report | None
) -> Source:
    """The topic model; or the passages of the corpus, which must be those of the run that is resumed."""
    if not isinstance(settings.data, TextData):
        return TopicModel.from_settings(settings.data)
    from topicscope.training.text import prepare_text

    text, facts["passages"] = prepare_text(settings.data, folder.path, report=report)
    folder.settings_to_train(settings, seeds, resume=True, facts=facts)
    return text


def train_seeds(
    settings: Settings,
    seeds: Sequence[int],
    source: Source,
    *,
    name: str = "",
    gradients: bool = False,
    folder: RunFolder | None = None,
) -> Run:
    """Train all seeds in memory on one thread, so that numbers do not depend on the machine's cores, and measure.

    One that diverges does not keep the others from finishing. ``gradients`` asks for the norms of gradients at the
    start. With a ``folder``, checkpoints are kept there, and training resumes from the last one.
    """
    settings.check_vocabulary(source.vocabulary)
    settings = replace(settings, training=replace(settings.training, threads=1))
    began = time.perf_counter()
    with torch_threads(1):
        trainer = Trainer(make_engine(settings, seeds, source), folder)
        there = folder.newest() if folder else None
        trainer.begin(*(there or (empty_run(name, settings, seeds, source), None)))
        with contextlib.suppress(DivergedError):
            trainer.run()
        run = replace(trainer.recorded(), name=name, seconds=time.perf_counter() - began)
        if not isinstance(source, TopicModel):
            return run
        final = final_measures(trainer.engine, source, gradients=gradients)
        run = replace(run, weights=trainer.final_weights(), final=final)
    described = np.array_equal(source.topic_words, TopicModel.from_settings(settings.documents).topic_words)
    return _with_theory(run, source) if settings.training.snapshots and described else run


def empty_run(name: str, settings: Settings, seeds: Sequence[int], source: Source) -> Run:
    """A run in which nothing is recorded yet."""
    theory = {"word_topics": source.word_topics} if isinstance(source, TopicModel) else {}
    return Run(name, settings, tuple(seeds), np.zeros(0, dtype=np.int64), {}, theory=theory)


def _with_theory(run: Run, source: Source) -> Run:
    """The run with what theory expects of it; it expects nothing of text."""
    if not isinstance(source, TopicModel):
        return run
    matrices, expected = reference(run.settings, source)
    return replace(run, theory={**run.theory, **matrices}, reference=expected)


class Trainer:
    """The state of training between steps: weights and optimiser of all seeds, whatever they are trained on."""

    def __init__(self, engine: Engine, folder: RunFolder | None = None) -> None:
        """With a folder, the run's arrays and checkpoints are kept there."""
        self.engine, self.folder = engine, folder
        self.training = engine.settings.training
        self.measures = Measures(engine, folder.export_path if folder else None)
        self.optimizer = Optimizer({name: engine.weights[name] for name in engine.trained}, self.training)
        self.step = 0
        self._going = np.ones(len(engine.seeds), dtype=bool)
        self._diverged: list[str] = []
        # W^V at earlier steps that a later row's rotation compares with.
        self._history: dict[int, Tensor] = {}
        self._chunk, self._batches = -1, list[Any]()
        self._validation: Any = None
        self._saved = -1

    def recorded(self) -> Run:
        """Everything recorded so far."""
        return self._recorder.run()

    def final_weights(self) -> dict[str, Float[np.ndarray, "seed ..."]]:
        """The weights; NaN for a seed that has diverged."""
        return {name: weight.cpu().numpy() for name, weight in self.engine.weights.items()}

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

    def run(self, report: Report | None = None, *, interruptible: bool = True) -> None:
        """Train to the last step, or until Ctrl-C is pressed.

        A seed that diverges is left out from there on. The last step is observed but not trained.
        """
        with stop_on_interrupt() if interruptible else contextlib.nullcontext(lambda: False) as stop:
            self._run(report, stop)
        if self.folder and not self._going.any():
            self.folder.save(self.recorded())
        if self._diverged:
            raise DivergedError(" ".join(self._diverged))

    def _run(self, report: Report | None, stop: Stop) -> None:
        training, engine = self.training, self.engine
        while True:
            last = self.step == training.steps
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
            if has_row(training, self.step):
                self._log(numbers)
                if not self._going.any():
                    break
            if report:
                report(self.step, training.steps, f"loss {np.mean(numbers[self._going]):.4f}")
            if last:
                self._save()
                break
            self.update(losses)
            self.step += 1

    def _batch(self) -> Any:
        """The documents of this step; those of some steps are drawn and laid out at once."""
        streams = self.engine.streams
        chunk, place = divmod(self.step, streams[0].steps)
        if chunk != self._chunk:
            members = (stream.chunk(chunk) for stream in streams)
            self._chunk, self._batches = chunk, self.engine.prepare(members, streams[0].steps)
        return self._batches[place]

    def update(self, losses: Float[Tensor, " seed"]) -> None:
        """One step of the optimiser on the losses computed last, and L2."""
        self.optimizer.step(self.engine.gradients(losses), learning_rate(self.training, self.step))

    def _observe(self) -> None:
        """Keep matrices where they are due, and W^V where a row to come compares with it, no longer."""
        if self.step in self.measures.frame_steps:
            self._recorder.add("frames", self.step, self.measures.frame(self.step), self._going)
        if has_row(self.training, self.step + ROTATION_STEPS):
            self._history[self.step] = self.engine.weights["value"].detach().clone()
        self._history.pop(self.step - ROTATION_STEPS - 1, None)

    @torch.no_grad()
    def _log(self, losses: Float[np.ndarray, " seed"]) -> None:
        """Record a row; a seed with a loss or a norm that is not finite has diverged."""
        numbers: dict[str, np.ndarray] = {"loss": losses, **norms(self.engine.weights)}
        if self._validates() and self._held_out():
            numbers["validation_loss"] = self.engine.losses(self._validation).double().cpu().numpy()
        for name, values in numbers.items():
            broken = ~np.isfinite(values).reshape(len(values), -1).all(axis=1)
            words = name.replace("_", " ").replace("/", " ")
            self._leave_out(broken, [f"{words} at step {self.step} is not finite"] * len(broken))
        if (earlier := self._history.get(self.step - ROTATION_STEPS)) is not None:
            now = self.engine.weights["value"].detach()
            numbers["rotation"] = rotation(now.cpu().numpy(), earlier.cpu().numpy())
        self._recorder.add("metrics", self.step, {**numbers, **self.measures.numbers()}, self._going)

    def _validates(self) -> bool:
        """Whether the loss on held-out documents is computed at this step; at the last one it always is."""
        every = self.training.validate_every
        return every > 0 and (self.step % every == 0 or self.step == self.training.steps)

    def _held_out(self) -> bool:
        """Whether there are held-out documents, laid out when they are first asked for."""
        if self._validation is None:
            count = self.training.validation_documents
            held_out = [stream.held_out(count, Purpose.VALIDATION) for stream in self.engine.streams]
            documents = [own for own in held_out if own is not None]
            self._validation = self.engine.prepare(documents)[0] if documents else ()
        return self._validation != ()

    def _leave_out(self, broken: Bool[np.ndarray, " seed"], what: Sequence[str]) -> None:
        """Leave seeds that have diverged out of training from here on, and note a sentence on each."""
        rate = f"lower training.learning_rate (now {self.training.learning_rate:g})"
        remedy = rate if self.step else "let the parts start smaller (model.*.scale)"
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


def has_row(training: Training, step: int) -> bool:
    """Whether a step has a row of metrics, here or, if it is beyond the last one, should the run be made longer."""
    validated = training.validate_every > 0 and step % training.validate_every == 0
    return validated or step % training.log_every == 0 or step == training.steps


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


@contextlib.contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Compute with this many threads, then with as many as before: results repeat to the bit for one count only."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        # NumPy's products, which rows of metrics are made from, have threads of their own.
        with threadpool_limits(count, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)


def check_memory(settings: Settings, vocabulary: int, seeds: int = 1) -> None:
    """Refuse training that cannot fit before it starts: the system would end the process without a word."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        # Only Linux says how much there is.
        return
    needed = needed_bytes(settings, vocabulary, seeds)
    if needed > SHARE * free:
        raise InputError(
            f"training needs about {needed / 1e9:.1f} GB and {free / 1e9:.1f} GB are free: lower training.batch, "
            "training.validation_documents, data.length, model.dimension or the vocabulary."
        )


def needed_bytes(settings: Settings, vocabulary: int, seeds: int = 1) -> float:
    """About how many bytes training keeps at its peak: weights; states of every layer, and scores where masked."""
    model, training, longest = settings.model, settings.training, settings.data.longest
    parameters = shapes(model, vocabulary, longest)
    weights = WEIGHT_COPIES * sum(math.prod(shape) for shape in parameters.values())
    rows = min(longest, vocabulary) if settings.engine == "bag" else longest
    # Kept for the backward pass: queries, keys, values, what attention gives, and the ins and outs of the blocks.
    layers = model.layers * (10 * (model.dimension or vocabulary) + 2 * model.feed_forward)
    scores = 3 * settings.masking.mask * vocabulary
    documents = max(training.batch * (layers + scores), training.validation_documents * scores)
    return (8 if training.precision == "float64" else 4) * seeds * (weights + rows * documents)
