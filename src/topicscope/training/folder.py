"""Run folders: where a run's arrays and checkpoints go, with all that is needed to resume it.

A run folder holds the settings, the run's arrays (``measure.run``), the two newest checkpoints, the losses to compare
with and versions; on text also its tokenizer, its passages and at the end a Hugging Face folder. The arrays are written
just before each checkpoint, and cut at its step when the run resumes: nothing is ever appended.
"""

import contextlib
import hashlib
import logging
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

import numpy as np
import safetensors.torch
import tomli_w
from safetensors import SafetensorError, safe_open
from torch import Tensor

from topicscope.errors import InputError, UnreadableError, path_of, shown
from topicscope.measure.run import FILE, Run, read_run, run_bytes
from topicscope.records import VERSIONS, Versions
from topicscope.settings import PARTS, Settings, TextData, Training
from topicscope.settings.toml import FILE_SETTINGS, comparable, file_content, flat, load_settings, nested, to_table
from topicscope.store import (
    alone_in,
    checkpoint_path,
    checkpoint_steps,
    remove_leftovers,
    table_text,
    write_atomically,
)

logger = logging.getLogger(__name__)

NO_FACTS: Mapping[str, str] = {}
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
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"--out {self.path} is a file: give a folder.")
        otherwise = f"{self.path} is being trained in by another process: wait for it, or choose another --out."
        with alone_in(self.path, otherwise=otherwise):
            remove_leftovers(self.path)
            yield

    def settings_to_train(
        self, settings: Settings, seeds: Sequence[int], *, resume: bool, facts: Mapping[str, str] = NO_FACTS
    ) -> Settings:
        """The settings given, or those of the run to resume, which must be the same but may ask for more steps.

        ``facts`` are what the settings do not contain: the device, and the passages of a corpus.
        """
        if not (resume and self.settings_path.exists()):
            self._check_is_free(resume=resume)
            return settings
        stored, steps = self.settings(), settings.training.steps
        if type(stored.data) is not type(settings.data):
            kind = "text" if isinstance(stored.data, TextData) else "documents of a topic model"
            raise InputError(f"{self.path} holds a run on {kind}: choose another --out.")
        longer = steps > stored.training.steps and stored.training.can_grow
        versions = self.versions()
        here, there = comparable(settings), comparable(_with_steps(stored, steps) if longer else stored)
        if versions:
            here, there = {**here, **facts}, there | versions.facts
            if len(versions.seeds) > 1 or len(seeds) > 1:
                here["seed"], there["seed"] = list(seeds), versions.seeds
        different = [name for name in here if there.get(name, here[name]) != here[name]]
        if different:
            pairs = ", ".join(f"{name} ({shown(there[name])} there, {shown(here[name])} here)" for name in different)
            remedy = self._remedy(different, stored.training, steps)
            raise InputError(f"{self.path} holds another run: {pairs}; {remedy}, or choose another --out.")
        return _with_steps(stored, steps)

    def _check_is_free(self, *, resume: bool) -> None:
        """Refuse a folder that is not empty, unless all in it is of a run that was killed before it had settings."""
        if resume:
            # Copies of the files that settings name, and passages.
            ours = ("topic_words", *PARTS, self.tokenizer_path.name, self.passages_path.name)
            others = [item.name for item in self.path.iterdir() if item.stem not in ours and item.suffix != ".tmp"]
            if others:
                raise InputError(
                    f"--out {self.path} holds no run to resume (it has {others[0]}): give the folder of a run."
                )
        elif any(self.path.iterdir()):
            raise InputError(
                f"--out {self.path} is not empty: choose another folder, or add --resume to resume the run in it."
            )

    @staticmethod
    def _remedy(different: Sequence[str], stored: Training, steps: int) -> str:
        """What to do about what differs from the existing run; ``steps`` are asked for."""
        if "training.threads" in different:
            return f"results repeat to the bit for one thread count only, so give --training.threads {stored.threads}"
        if different == ["training.steps"]:
            longer = "its beginning depends on the number of steps (decay, schedule), so it cannot be made longer"
            return (
                f"{longer if steps > stored.steps else 'a run cannot be made shorter'}: leave it out to resume the run"
            )
        return "leave the settings out to resume the run, with the same seeds, corpus and device"

    def create(self, settings: Settings) -> None:
        """Write the settings; files that they name are copied in, so that the folder is complete."""
        values = flat(to_table(settings))
        for name in FILE_SETTINGS:
            if file := values.get(name):
                values[name] = name.split(".")[1] + Path(file).suffix
                if Path(file).resolve() != (self.path / values[name]).resolve():
                    write_atomically(self.path / values[name], file_content(name, file))
        write_atomically(self.settings_path, tomli_w.dumps(nested(values)))

    def describe(self, seeds: Sequence[int], threads: int, facts: Mapping[str, str]) -> None:
        """Write what the run is made with; if it was begun before, warn of what is different now."""
        now = Versions(
            packages={name: metadata.version(name) for name in RECORDED_PACKAGES},
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
        here, there = ({"python": own.python, "machine": own.machine, **own.packages} for own in (now, before))
        for name in here:
            if there.get(name) != here[name]:
                logger.warning(
                    "%s was begun with %s %s and resumes with %s: it may not repeat to the bit.",
                    *(self.path, name, there.get(name), here[name]),
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
    return hashlib.sha256(str(step).encode() + safetensors.torch.save(tensors)).hexdigest()


def _with_steps(settings: Settings, steps: int) -> Settings:
    return replace(settings, training=replace(settings.training, steps=steps))
