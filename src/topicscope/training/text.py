"""Train an encoder on a corpus into a run folder, or go on with the run that is in it."""

import contextlib
import dataclasses
import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from topicscope.errors import InputError
from topicscope.scale import available_cores
from topicscope.settings.text import Device, TextSettings
from topicscope.settings.text_files import with_absolute_paths
from topicscope.text.problems import corpus_notes
from topicscope.training.export import export
from topicscope.training.interrupts import stop_on_interrupt
from topicscope.training.machine import torch_threads
from topicscope.training.memory import out_of_memory_said
from topicscope.training.prepare import PreparedText, prepare_text
from topicscope.training.runs import check_out
from topicscope.training.text_loop import Measure, Report, Speed, TextTrainer
from topicscope.training.text_runs import TextRun

logger = logging.getLogger(__name__)

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
    report: Report | None = None,
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
    run: TextRun, settings: TextSettings, device: torch.device, measuring: Measuring | None, report: Report | None
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
