"""Run folders: where a run's arrays and checkpoints go, with all that is needed to resume it.

A run folder holds the settings, the run's arrays (``measure.run``), the two newest checkpoints, the losses to compare
with and versions; on text also its tokenizer, its passages and at the end a Hugging Face folder. The arrays are written
just before each checkpoint, and cut at its step when the run resumes: nothing is ever appended.
"""

import contextlib
import hashlib
import logging
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from topicscope.errors import InputError, UnreadableError, path_of
from topicscope.measure.run import FILE, Run, read_run, run_bytes
from topicscope.records import VERSIONS, Versions
from topicscope.settings import PARTS, Data, Settings, TextData, Training
from topicscope.settings.toml import differences, dump_settings, load_settings, with_absolute_paths
from topicscope.store import (
    alone_in,
    checkpoint_path,
    checkpoint_steps,
    remove_leftovers,
    table_text,
    write_atomically,
)
from topicscope.work import package_versions

logger = logging.getLogger(__name__)

RECORDED_PACKAGES = ("topicscope", "torch", "numpy", "scipy", "safetensors")
# How many checkpoints are kept.
KEPT = 2


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """All that training needs to resume after ``step`` updates; random numbers follow from the step."""

    step: int
    tensors: dict[str, Tensor]
    """``weights/PARAMETER``, ``optimizer/PARAMETER/QUANTITY``, and ``history/STEP``: W^V at earlier steps that a later
    row's rotation compares with."""

    def part(self, name: str) -> dict[str, Tensor]:
        """The weights, the optimizer or the history."""
        start = f"{name}/"
        return {path.removeprefix(start): own for path, own in self.tensors.items() if path.startswith(start)}


class RunFolder:
    """A folder that holds one run, of one seed or of several that are trained together."""

    def __init__(self, path: Path | str) -> None:
        self.path = path = path_of(path, "path")
        self.settings_path = path / "settings.toml"
        self.tokenizer_path = path / "tokenizer"
        self.passages_path = path / "passages"
        self.export_path = path / "huggingface"

    def settings(self) -> Settings:
        """The settings that the run was started with."""
        return load_settings(self.settings_path)

    def versions(self) -> Versions | None:
        """What the run was begun with; None if that is not recorded yet."""
        return VERSIONS.read(self.path) if (self.path / VERSIONS.name).exists() else None

    # Beginning a run, or resuming it.

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder if needed, and keep other processes from training in it meanwhile."""
        otherwise = f"{self.path} is being trained in by another process: wait for it, or choose another --out."
        with alone_in(self.path, otherwise=otherwise):
            remove_leftovers(self.path)
            yield

    def settings_to_train(
        self, settings: Settings, seeds: Sequence[int], *, resume: bool, facts: Mapping[str, str] | None = None
    ) -> Settings:
        """The settings given, or those of the run to resume, which must be the same but may ask for more steps.

        ``facts`` are what no setting contains: the device, and the passages of a corpus.
        """
        self._check_is_free(resume=resume)
        if not (resume and self.settings_path.exists()):
            return settings
        stored, steps = self.settings(), settings.training.steps
        if type(stored.data) is not type(settings.data):
            kind = "text" if isinstance(stored.data, TextData) else "documents of a topic model"
            raise InputError(f"{self.path} holds a run on {kind}: choose another --out.")
        longer = steps > stored.training.steps and not why_not_longer(stored.training)
        comparable = _with_steps(stored, steps) if longer else stored
        different = differences(_comparable(settings), _comparable(comparable))
        others, versions = list[str](), self.versions()
        if versions:
            here, there = dict(facts or {}), versions.facts
            if len(seeds) > 1 or len(versions.seeds) > 1:
                here["seeds"], there = _listed(seeds), {**there, "seeds": _listed(versions.seeds)}
            others = [
                f"{name} ({there[name]} there, {value} here)"
                for name, value in here.items()
                if there.get(name, value) != value
            ]
        if different:
            remedy = _remedy(different, stored.training, steps)
            raise InputError(f"{self.path} holds a run with other settings: {', '.join(different + others)}; {remedy}.")
        if others:
            raise InputError(
                f"{self.path} holds a run made with other things: {', '.join(others)}; resume with the same seeds, "
                "corpus, tokenizer and device, or choose another --out."
            )
        return _with_steps(stored, steps)

    def _check_is_free(self, *, resume: bool) -> None:
        """Refuse a folder that is not empty, unless the run in it is to be resumed."""
        path = self.path
        if path.exists() and not path.is_dir():
            raise InputError(f"--out {path} is a file: give a folder.")
        if not resume and path.is_dir() and any(path.iterdir()):
            raise InputError(
                f"--out {path} is not empty: choose another folder, or add --resume to resume the run in it."
            )
        if resume and path.is_dir() and not self.settings_path.exists():
            # A run killed before its settings were written leaves copies of the files they name, or its passages.
            ours = ("topic_words", *PARTS, self.tokenizer_path.name, self.passages_path.name)
            others = [item.name for item in path.iterdir() if item.stem not in ours and item.suffix != ".tmp"]
            if others:
                raise InputError(f"--out {path} holds no run to resume (it has {others[0]}): give the folder of a run.")

    def create(self, settings: Settings) -> None:
        """Write the settings; files that they name are copied in, so that the folder is complete."""

        def copied(file: str, stem: str) -> str:
            name = stem + Path(file).suffix
            if Path(file).resolve() != (self.path / name).resolve():
                write_atomically(self.path / name, Path(file).read_bytes())
            return name

        write_atomically(self.settings_path, dump_settings(_map_files(settings, copied)))

    def describe(self, seeds: Sequence[int], threads: int, facts: Mapping[str, str]) -> None:
        """Write what the run is made with; if it was begun before, warn of what is different now."""
        now = Versions(
            packages=package_versions(RECORDED_PACKAGES),
            python=platform.python_version(),
            machine=platform.machine(),
            seeds=list(seeds),
            threads=threads,
            facts=dict(facts),
        )
        before = self.versions()
        if before is None:
            VERSIONS.write(self.path, now)
            return
        then = {"python": before.python, "machine": before.machine, **before.packages}
        for name, version in {"python": now.python, "machine": now.machine, **now.packages}.items():
            if then.get(name) != version:
                logger.warning(
                    "%s was begun with %s %s and resumes with %s: it may not repeat to the bit.",
                    self.path,
                    name,
                    then.get(name),
                    version,
                )

    # What training writes, and reads again.

    def save(self, run: Run, checkpoint: Checkpoint | None = None) -> None:
        """Write the run's arrays, and then a checkpoint.

        Of the older checkpoints the newest is kept. One in between the regular ones, where a run was stopped, is
        removed as soon as there is a newer one, so that a run that was stopped ends with the same files as one that was
        not.
        """
        write_atomically(self.path / FILE, run_bytes(run, weights=False))
        write_atomically(self.path / "metrics.csv", table_text(run.rows()))
        if checkpoint is None:
            return
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.tensors.items()}
        # One entry only: safetensors writes several in no fixed order, and files must repeat to the bit.
        metadata = {"checksum": _checksum(checkpoint.step, tensors)}
        write_atomically(checkpoint_path(self.path, checkpoint.step), safetensors.torch.save(tensors, metadata))
        steps, every = checkpoint_steps(self.path), run.settings.training.checkpoint_every
        kept = [step for step in steps if step % every == 0 or step >= checkpoint.step][-KEPT:]
        for step in set(steps) - set(kept):
            checkpoint_path(self.path, step).unlink()

    def newest(self) -> tuple[Run, Checkpoint | None] | None:
        """What was recorded before the newest undamaged checkpoint, and that checkpoint; None if nothing can be read.

        Damaged checkpoints are skipped with a warning, and put aside.
        """
        if not (self.path / FILE).exists() and not checkpoint_steps(self.path):
            return None
        try:
            run = read_run(self.path, weights=False)
        except UnreadableError as error:
            logger.warning("%s Starting again from step 0.", error)
            return None
        steps = checkpoint_steps(self.path)
        for place, step in reversed(list(enumerate(steps))):
            path = checkpoint_path(self.path, step)
            try:
                with safe_open(path, framework="pt") as file:
                    metadata = file.metadata() or {}
                    tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (not a dict)
                if metadata.get("checksum") != _checksum(step, tensors):
                    raise ValueError("its checksum does not match its content")
                return cut(run, step), Checkpoint(step, tensors)
            except (SafetensorError, ValueError, KeyError) as error:
                instead = f"going back to that of step {steps[place - 1]}" if place else "starting again from step 0"
                logger.warning("%s is damaged (%s): %s.", path.name, error, instead)
                path.replace(path.with_name(path.name + ".damaged"))
        return cut(run, 0), None


def cut(run: Run, step: int) -> Run:
    """What was recorded before a step; what comes then is computed again, the same."""
    rows, frames = (int(np.searchsorted(steps, step)) for steps in (run.steps, run.frame_steps))
    return replace(
        run,
        steps=run.steps[:rows],
        metrics={name: array[:, :rows] for name, array in run.metrics.items()},
        frame_steps=run.frame_steps[:frames],
        frames={name: array[:, :frames] for name, array in run.frames.items()},
    )


def _checksum(step: int, tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256(str(step).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _with_steps(settings: Settings, steps: int) -> Settings:
    return replace(settings, training=replace(settings.training, steps=steps))


def why_not_longer(training: Training) -> str | None:
    """The setting that makes early steps depend on how many there are; None if a longer run begins as this one did."""
    if training.decay == "cosine":
        return 'training.decay = "cosine" depends on how many there are'
    if training.schedule == "alternating":
        return 'training.schedule = "alternating" divides all of them into turns'
    if training.schedule == "two_stage" and not training.stage_steps:
        return "training.stage_steps = 0 gives half of them to the first stage"
    return None


def _listed(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))


def _remedy(different: Sequence[str], stored: Training, steps: int) -> str:
    """What to do about settings that differ from those of the existing run; ``steps`` are asked for."""
    if any(phrase.startswith("training.threads ") for phrase in different):
        return (
            "results repeat to the bit for one thread count only, so give "
            f"--training.threads {stored.threads}, or choose another --out"
        )
    if all(phrase.startswith("training.steps ") for phrase in different):
        longer = f"{why_not_longer(stored)}, so this run cannot be made longer"
        reason = longer if steps > stored.steps else "a run cannot be made shorter"
        return f"{reason}; leave it out to resume the run, or choose another --out"
    return "leave the settings out to resume the run, or choose another --out"


def _comparable(settings: Settings) -> Settings:
    """The settings with files named by their content, since a run keeps copies under names of its own.

    A corpus and a tokenizer have absolute paths instead, since they stay where they are.
    """
    return _map_files(with_absolute_paths(settings), lambda file, stem: _digest(file))


def _map_files(settings: Settings, change: Callable[[str, str], str]) -> Settings:
    data, parts = settings.data, {}
    if isinstance(data, Data) and data.topic_words:
        data = replace(data, topic_words=change(data.topic_words, "topic_words"))
    for name in PARTS:
        part = settings.model.part(name)
        parts[name] = replace(part, file=change(part.file, name)) if part.file else part
    return replace(settings, data=data, model=replace(settings.model, **parts))  # type: ignore[arg-type]


def _digest(file: str) -> str:
    try:
        return "content " + hashlib.sha256(Path(file).read_bytes()).hexdigest()[:12]
    except OSError as error:
        raise InputError(f"{file} cannot be read ({error.strerror}): give an existing file.") from None
