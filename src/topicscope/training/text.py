"""From a corpus to what training needs: a tokenizer, trained or given, and passages, both kept in a folder."""

import contextlib
import dataclasses
import json
import logging
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
from torch import Tensor

from topicscope.errors import DivergedError, InputError
from topicscope.files import write_atomically
from topicscope.model.bert import bert_config, require_bert, to_bert
from topicscope.model.encoder import ATTENTION, Encoder, PackedBatch, encoder_weights, pack_parts
from topicscope.randomness import Purpose, generator
from topicscope.records import read_versions
from topicscope.scale import Report, available_cores
from topicscope.settings.text import Device, TextData, TextSettings, with_absolute_paths
from topicscope.settings.toml import differences, dump_settings, load_any_settings
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.text.corpora import Corpus, Document, bytes_read, open_corpus
from topicscope.text.formats import Progress, corpus_notes
from topicscope.text.tokenizers import (
    AFTER,
    BEFORE,
    MASK,
    PADDING,
    Tokenizer,
    load_tokenizer,
    save_tokenizer,
    train_wordpiece,
)
from topicscope.text.tokens import Passages, write_passages
from topicscope.training import record
from topicscope.training.batches import PassageStream, Specials, Text
from topicscope.training.checkpoints import Checkpoint, checkpoint_steps, newest_checkpoint, save_checkpoint
from topicscope.training.engines import losses
from topicscope.training.machine import check_memory, out_of_memory_said, torch_threads
from topicscope.training.optimizers import Optimizer
from topicscope.training.runs import (
    RECORDED_PACKAGES,
    Row,
    RunFolder,
    Stop,
    check_out,
    first_not_finite,
    never,
    recorded_versions,
    remedy_for,
    row_text,
    stop_on_interrupt,
    stopped,
)
from topicscope.training.schedule import learning_rate, logged_steps, snapshot_steps, validates

logger = logging.getLogger(__name__)


# Corpora up to this size on disk (compressed or not) are read once and kept; larger ones are read for each pass.
KEPT_BYTES = 32_000_000


@dataclass(frozen=True, eq=False)
class PreparedText:
    """A corpus as passages, with the tokenizer that made them."""

    text: Text
    passages: Passages
    tokenizer: Tokenizer
    tokenizer_folder: Path

    @property
    def digest(self) -> str:
        """Identifies corpus, tokenizer and passages."""
        return self.passages.digest


def prepare_text(data: TextData, folder: Path, *, report: Report | None = None) -> PreparedText:
    """Read the corpus, train or load the tokenizer and cut passages into a folder, but for what is there already."""
    corpus = _kept(open_corpus(data.corpus, field=data.field, split=data.split, layout=data.layout))
    where = folder / "tokenizer"
    if not (where / "tokenizer.json").exists():
        _make_tokenizer(data, corpus, where, report)
    # Named by what the user gave: files of a run do not depend on where its folder is.
    tokenizer = replace(load_tokenizer(str(where)), name=data.tokenizer or "wordpiece")
    passages = write_passages(
        corpus,
        tokenizer,
        length=data.length,
        folder=folder / "passages",
        every=data.every,
        progress=bytes_read(corpus, report),
    )
    specials = read_specials(where, data.tokenizer or "the tokenizer that was trained")
    text = Text(passages.tokens, passages.offsets, passages.articles, specials)
    return PreparedText(text, passages, tokenizer, where)


def read_specials(folder: Path, name: str) -> Specials:
    """The special tokens of a tokenizer; without one of BERT's four it cannot be trained with."""
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    wanted = {"mask": MASK, "cls": BEFORE, "sep": AFTER, "pad": PADDING}
    for kind, example in wanted.items():
        if getattr(tokenizer, f"{kind}_token_id") is None:
            raise InputError(
                f'data.tokenizer = "{name}" has no {kind} token: give a tokenizer that has one (such as {example}), '
                "or leave it out to train one."
            )
    words = np.setdiff1d(np.arange(len(tokenizer)), tokenizer.all_special_ids)
    return Specials(
        before=tokenizer.cls_token_id,
        after=tokenizer.sep_token_id,
        mask=tokenizer.mask_token_id,
        padding=tokenizer.pad_token_id,
        words=words,
        vocabulary=len(tokenizer),
    )


def _make_tokenizer(data: TextData, corpus: Corpus, folder: Path, report: Report | None) -> None:
    """Into a temporary folder first, so that it is there whole or not at all."""
    part = folder.with_name(folder.name + ".tmp")
    shutil.rmtree(part, ignore_errors=True)
    if data.tokenizer:
        _copy_tokenizer(data.tokenizer, part)
    else:
        logger.info("training a tokenizer of %d tokens.", data.vocabulary)

        def texts() -> Iterator[str]:
            progress = bytes_read(corpus, report, why="for the tokenizer")
            return (document.text for document in corpus.documents(progress))

        engine = train_wordpiece(texts, data.vocabulary, lowercase=data.lowercase)
        save_tokenizer(engine, part, longest=data.length + 2)
    part.rename(folder)


def _copy_tokenizer(name: str, folder: Path) -> None:
    """An existing tokenizer, kept with the run so that the folder is complete."""
    from transformers import AutoTokenizer

    from topicscope.text.tokenizers import model_source

    # Loaded once for its checks and one-sentence errors.
    load_tokenizer(name)
    AutoTokenizer.from_pretrained(model_source(name), trust_remote_code=False).save_pretrained(str(folder))


def _kept(corpus: Corpus) -> Corpus:
    if corpus.size is None or corpus.size > KEPT_BYTES:
        return corpus
    same = {each.name: getattr(corpus, each.name) for each in fields(Corpus)}
    return _KeptCorpus(**same)


@dataclass(frozen=True, eq=False, kw_only=True)
class _KeptCorpus(Corpus):
    """A small corpus, kept in memory once it was read: training a tokenizer and cutting passages both need it."""

    kept: list[Document] = field(default_factory=list)

    def documents(self, progress: Progress | None = None) -> Iterator[Document]:
        """All documents."""
        if not self.kept:
            self.kept.extend(super().documents(progress))
        yield from self.kept


# A trained encoder as a Hugging Face folder: ``AutoModelForMaskedLM`` and ``topicscope probe`` load it.


def export(encoder: Encoder, specials: Specials, tokenizer_folder: Path, folder: Path, *, longest: int) -> None:
    """Write settings, weights (safetensors) and tokenizer; whole or not at all."""
    require_bert(encoder.settings)
    try:
        from transformers import BertConfig, BertForMaskedLM
        from transformers.utils import logging
    except ImportError:
        raise InputError(
            'saving a Hugging Face folder needs transformers: pip install "topicscope[language]".'
        ) from None
    logging.disable_progress_bar()
    fields = bert_config(encoder.settings, vocabulary=specials.vocabulary, longest=longest, padding=specials.padding)
    model = BertForMaskedLM(BertConfig(**fields))
    weights = {name: parameter.detach().cpu() for name, parameter in encoder.named_parameters()}
    model.load_state_dict(to_bert(weights))
    part = folder.with_name(folder.name + ".tmp")
    shutil.rmtree(part, ignore_errors=True)
    shutil.copytree(tokenizer_folder, part)
    model.save_pretrained(part)
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)


# Run folders of training on text: as those of the sandbox, with the tokenizer and the passages beside them.


class TextRun(RunFolder):
    """A folder that holds one training run on text."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.tokenizer_path = path / "tokenizer"
        self.passages_path = path / "passages"
        self.export_path = path / "huggingface"

    def _repr_html_(self) -> str:
        from topicscope.reporting.notebook import run_html

        return run_html(str(self.path), self.metrics(), self.text_settings().training.steps)

    def text_settings(self) -> TextSettings:
        """The settings that the run was started with."""
        settings = load_any_settings(self.settings_path)
        if not isinstance(settings, TextSettings):
            raise InputError(f"{self.path} holds a run on documents of a topic model: choose another --out.")
        return settings

    def begin(self, settings: TextSettings) -> None:
        """Write the settings, first of all: a run killed while its corpus is read goes on with them."""
        write_atomically(self.settings_path, dump_settings(settings))

    def record(self, settings: TextSettings, **facts: Any) -> None:
        """Write what the run is made with, unless it is there already."""
        if not self.versions_path.exists():
            made_with = recorded_versions() | {"seed": settings.seed} | facts
            write_atomically(self.versions_path, json.dumps(made_with, indent=2) + "\n")

    def check_same_settings(self, settings: TextSettings, **facts: Any) -> None:
        """Refuse to go on with other settings, another corpus, or on another device, and name what differs."""
        others = []
        found = differences(with_absolute_paths(settings), with_absolute_paths(self.text_settings()))
        if self.versions_path.exists():
            before = read_versions(self.versions_path)
            others = [
                f"{name} ({before[name]} there, {value} here)"
                for name, value in facts.items()
                if before.get(name, value) != value
            ]
            for name in RECORDED_PACKAGES:
                if before.get(name) != recorded_versions()[name]:
                    logger.warning("%s was begun with another %s: it may not repeat to the bit.", self.path, name)
        if others and not found:
            # No setting is about these.
            raise InputError(
                f"{self.path} holds a run made with other things: {', '.join(others)}; go on with the same corpus, "
                "tokenizer, device and threads, or choose another --out."
            )
        if found:
            found += others
            raise InputError(f"{self.path} holds a run with other settings: {', '.join(found)}; {remedy_for(found)}.")

    def rows_are_whole(self, expected: Sequence[int]) -> bool:
        """Whether the metrics have a row for each of these steps first."""
        rows: list[Row] = self.metrics()
        return [row["step"] for row in rows][: len(expected)] == list(expected)


# Training on text: one encoder, from its settings or its newest checkpoint, into a run folder.


TextReport = Callable[[int, int, str], None]


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

    def run(self, folder: TextRun, report: TextReport | None = None, stop: Stop = never) -> None:
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

    def _steps(self, folder: TextRun, metrics: TextIO, report: TextReport, stop: Stop, saved: int) -> None:
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
        earlier = self._history.get(self.step - record.ROTATION_STEPS)
        value, heads = self.weights["value"], self.settings.model.heads
        validation = None
        if self._held_out and validates(self._rules, self.step):
            validation = sum(float(self._loss(batch)) for batch in self._held_out)
        return {
            "step": self.step,
            "loss": loss,
            "validation_loss": validation,
            "learning_rate": learning_rate(self._rules, self.step),
            "norm": record.layer_norms(self.weights),
            "head_norm": {name: record.head_norms(self.weights[name], heads) for name in ATTENTION},
            "rotation": None if earlier is None else record.rotation(value, earlier),
            "gradient_norm": record.layer_norms(gradients),
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
        if self.step + record.ROTATION_STEPS in self._rows:
            self._history[self.step] = self.weights["value"].detach().clone()
        self._history.pop(self.step - record.ROTATION_STEPS - 1, None)

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


# Train an encoder on a corpus into a run folder, or go on with the run that is in it.


# Makes what measures topic structure, once the passages are there; called only if measures are asked for.
Measuring = Callable[[PreparedText, TextSettings], Measure]


@dataclasses.dataclass(frozen=True, eq=False)
class TrainedText:
    """A finished run, and how fast it was."""

    run: TextRun
    speed: Speed
    notes: tuple[str, ...] = ()
    """What could not be read of the corpus."""

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self.run.path

    def _repr_html_(self) -> str:
        return self.run._repr_html_()


def train_text(
    settings: TextSettings,
    out: Path,
    *,
    resume: bool = False,
    device: Device = "auto",
    measuring: Measuring | None = None,
    report: TextReport | None = None,
) -> TrainedText:
    """Train into a new folder, or go on with the run that is in it; at the end save a Hugging Face folder.

    ``measuring`` gives the function that measures topic structure at ``training.measures`` steps. Ctrl-C saves
    and stops.
    """
    run, place = TextRun(Path(out)), find_device(device)
    settings = with_absolute_paths(with_cores(settings))
    _check(run, settings, place, resume)
    with run.locked(), torch_threads(settings.training.threads):
        # Once more, now that nobody else can write here.
        _check(run, settings, place, resume)
        fresh = not run.settings_path.exists()
        with _as_before_on_bad_input(run.path) if fresh else contextlib.nullcontext():
            prepared, trainer = _prepare(run, settings, place, measuring, report)
        with stop_on_interrupt() as stop:
            trainer.run(run, report, stop)
        if settings.model.is_bert:
            specials = prepared.text.specials
            export(trainer.encoder, specials, prepared.tokenizer_folder, run.export_path, longest=settings.positions)
        else:
            logger.info("the model is not BERT's architecture: no Hugging Face folder is saved.")
    return TrainedText(run, trainer.speed, tuple(corpus_notes(prepared.passages.description)))


def _prepare(
    run: TextRun, settings: TextSettings, device: torch.device, measuring: Measuring | None, report: TextReport | None
) -> tuple[PreparedText, TextTrainer]:
    """Everything up to the first step; whatever is wrong with the settings is found here."""
    if not run.settings_path.exists():
        # Of a run whose settings are lost, and may have been others.
        shutil.rmtree(run.tokenizer_path, ignore_errors=True)
        run.begin(settings)
    prepared = prepare_text(settings.data, run.path, report=report)
    facts = {"threads": settings.training.threads, "device": device.type, "passages": prepared.digest}
    run.check_same_settings(settings, **facts)
    measure = measuring(prepared, settings) if measuring and settings.training.measures else None
    with out_of_memory_said(settings, prepared.text.specials.vocabulary):
        trainer = TextTrainer(settings, prepared.text, device=device, measure=measure)
    run.record(settings, **facts)
    return prepared, trainer


@contextlib.contextmanager
def _as_before_on_bad_input(folder: Path) -> Iterator[None]:
    """Leave a folder that held no settings as it was, so that the same --out can be given again."""
    before = set(folder.iterdir())
    try:
        yield
    except InputError:
        for path in set(folder.iterdir()) - before:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        raise


def find_device(name: Device) -> torch.device:
    """The device of that name; "auto" is the fastest that is there."""
    present = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return torch.device(next(each for each in present if present[each]))
    if not present[name]:
        raise InputError(f"--device {name} is not available here: give cpu, or auto.")
    return torch.device(name)


def with_cores(settings: TextSettings) -> TextSettings:
    """The settings with the number of threads chosen, if it was left open."""
    if settings.training.threads:
        return settings
    training = dataclasses.replace(settings.training, threads=available_cores())
    return dataclasses.replace(settings, training=training)


def _check(run: TextRun, settings: TextSettings, device: torch.device, resume: bool) -> None:
    check_text_out(run, resume=resume)
    if resume and run.settings_path.exists():
        run.check_same_settings(settings, device=device.type)


def check_text_out(run: TextRun, *, resume: bool) -> None:
    """Refuse a folder that is not empty, unless the run in it is to be resumed.

    A run killed before its settings were written has its tokenizer, perhaps its passages, and goes on from there.
    """
    ours = {run.tokenizer_path.name, run.passages_path.name, "topics"}
    begun = run.path.is_dir() and not run.settings_path.exists()
    # A file that was being written when the run was killed has a name of its own.
    begun = begun and all(each.name in ours or each.suffix == ".tmp" for each in run.path.iterdir())
    if not (resume and begun):
        check_out(run.path, resume=resume)
