"""Where a run's rows, snapshots and checkpoints go: memory, or a run folder with all that is needed to run it again.

A run folder holds settings, metrics, checkpoints and versions. On documents of a topic model it also holds snapshots
and the reference to compare the run with; on text its tokenizer, its passages and at the end a Hugging Face folder.
Nothing heavy is imported here, so that folders can be looked at without PyTorch.
"""

import contextlib
import dataclasses
import hashlib
import json
import logging
import math
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
from safetensors.numpy import save

from topicscope import scale
from topicscope.errors import InputError, UnreadableError, path_of
from topicscope.files import Row, alone_in, checkpoint_steps, flat_row, frame_of, remove_leftovers, write_atomically
from topicscope.records import LoggedStep, Snapshot, read_metrics, read_reference, read_snapshots, read_versions
from topicscope.settings import PARTS, Settings, Training
from topicscope.settings.text import TextSettings, with_absolute_paths
from topicscope.settings.toml import differences, dump_settings, load_any_settings, load_settings
from topicscope.settings.training import AnyTraining
from topicscope.training.schedule import snapshot_steps, spaced_steps, steps_with_rows, why_not_longer

if TYPE_CHECKING:
    from topicscope.training.checkpoints import Checkpoint

logger = logging.getLogger(__name__)

RECORDED_PACKAGES = ("topicscope", "torch", "numpy", "scipy", "safetensors")
# Parts of the package, and packages, that a run's numbers depend on.
SOURCES = ("settings", "synthetic", "model", "training", "theory", "measure", "randomness.py")
LIBRARIES = ("torch", "numpy", "scipy")

AnySettings = Settings | TextSettings
NO_FACTS: Mapping[str, str] = {}


@dataclass(frozen=True)
class Speed:
    """How fast a run was, from the first step it computed to the last, without the time spent measuring."""

    steps: int
    tokens: int
    seconds: float

    @property
    def steps_per_second(self) -> float:
        """Training steps."""
        return self.steps / self.seconds if self.seconds else 0.0

    @property
    def tokens_per_second(self) -> float:
        """Tokens of documents or passages, special ones not counted."""
        return self.tokens / self.seconds if self.seconds else 0.0

    @property
    def words(self) -> str:
        """The speed in words."""
        return f"{self.steps_per_second:.1f} steps/s, {self.tokens_per_second:,.0f} tokens/s"


class MemoryRun:
    """A run that is not written anywhere: its rows, its snapshots, and its newest weights. It begins at step 0."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.rows: list[Row] = []
        self._saved = -1
        self._weights: dict[str, np.ndarray] = {}
        self._snapshots: dict[int, Snapshot] = {}

    @property
    def weights(self) -> dict[str, np.ndarray] | None:
        """The weights of the last step; None if the run diverged."""
        return self._weights if self._saved == self.settings.training.steps else None

    # The methods that the training loop calls.

    def snapshots(self) -> dict[int, Snapshot]:
        """Matrices kept for looking at, by step and name."""
        return self._snapshots

    def checkpoint_steps(self) -> list[int]:
        """The step of the newest weights."""
        return [self._saved] if self._weights else []

    def recording(self, step: int) -> AbstractContextManager[None]:
        """Nothing to open."""
        return contextlib.nullcontext()

    def add(self, row: Row) -> None:
        """Add a row to the metrics."""
        self.rows.append(row)

    def flush(self) -> None:
        """Nothing to do."""

    def save(self, checkpoint: "Checkpoint", snapshots: dict[int, Snapshot] | None, *, every: int) -> None:
        """Keep copies: training goes on in the tensors given."""
        self._weights = {name: weight.cpu().clone().numpy() for name, weight in checkpoint.part("weights").items()}
        self._saved, self._snapshots = checkpoint.step, dict(snapshots or {})


class RunFolder:
    """A folder that holds one training run."""

    def __init__(self, path: Path | str) -> None:
        self.path = path = path_of(path, "path")
        self.settings_path = path / "settings.toml"
        self.metrics_path = path / "metrics.jsonl"
        self.snapshots_path = path / "snapshots.safetensors"
        self.reference_path = path / "reference.json"
        self.versions_path = path / "versions.json"
        self.tokenizer_path = path / "tokenizer"
        self.passages_path = path / "passages"
        self.export_path = path / "huggingface"
        self.speed: Speed | None = None
        """How fast training was, if this process trained."""

        self.notes: tuple[str, ...] = ()
        """Which parts of the corpus could not be read, if this process trained on one."""

        self._metrics: TextIO | None = None

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"

    def _repr_html_(self) -> str:
        from topicscope.reporting.notebook import run_html

        return run_html(str(self.path), self.metrics(), self.settings().training.steps)

    def to_frame(self) -> Any:
        """The logged rows as a pandas DataFrame, nested numbers by dotted names such as ``norm.value``."""
        return frame_of(map(flat_row, self.metrics()))

    def settings(self) -> AnySettings:
        """The settings that the run was started with."""
        return load_any_settings(self.settings_path)

    def metrics(self) -> list[Row]:
        """All logged rows, up to a line that was cut short or damaged."""
        return read_metrics(self.metrics_path, LoggedStep)

    def snapshots(self) -> dict[int, Snapshot]:
        """Matrices kept for looking at, by step and name; none if the file is damaged."""
        try:
            return read_snapshots(self.snapshots_path)
        except UnreadableError:
            return {}

    def reference(self) -> dict[str, Any]:
        """Losses of the optimum and the floor to compare with."""
        return read_reference(self.reference_path)

    def versions(self) -> dict[str, Any]:
        """The versions that the run was made with; empty if they are not recorded yet."""
        return read_versions(self.versions_path) if self.versions_path.exists() else {}

    def checkpoint_steps(self) -> list[int]:
        """Steps that have a checkpoint, in order."""
        return checkpoint_steps(self.path)

    # Beginning a run, or going on with it.

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder if needed, and keep other processes from training in it meanwhile."""
        otherwise = f"{self.path} is being trained in by another process: wait for it, or choose another --out."
        with alone_in(self.path, otherwise=otherwise):
            remove_leftovers(self.path)
            yield

    def check_is_free(self, *, resume: bool) -> None:
        """Refuse a folder that is not empty, unless the run in it is to be resumed."""
        path = self.path
        if path.exists() and not path.is_dir():
            raise InputError(f"--out {path} is a file: give a folder.")
        if not resume and path.is_dir() and any(path.iterdir()):
            raise InputError(
                f"--out {path} is not empty: choose another folder, or add --resume to go on with the run in it."
            )
        if resume and path.is_dir() and not self.settings_path.exists():
            # A run killed before its settings were written leaves copies of the files they name, or its passages.
            ours = ("topic_words", *PARTS, self.tokenizer_path.name, self.passages_path.name, "topics")
            others = [item.name for item in path.iterdir() if item.stem not in ours and item.suffix != ".tmp"]
            if others:
                raise InputError(f"--out {path} holds no run to resume (it has {others[0]}): give the folder of a run.")

    def check_can_resume(
        self, settings: AnySettings, *, together: Sequence[AnySettings] = (), facts: Mapping[str, str] = NO_FACTS
    ) -> None:
        """Refuse to go on with other settings, naming each that differs, with other runs, or with other inputs.

        ``facts`` are what no setting contains: the device, and the passages of a corpus.
        """
        before = self.versions()
        if before:
            _check_company(self.path, before.get("together", []), _company(together))
        stored = self._settings_like(settings)
        steps = settings.training.steps
        if steps > stored.training.steps and not why_not_longer(stored.training):
            stored = _with_steps(stored, steps)
        found = differences(_comparable(settings), _comparable(stored))
        others = [
            f"{name} ({before[name]} there, {value} here)"
            for name, value in facts.items()
            if before.get(name, value) != value
        ]
        if others and not found:
            raise InputError(
                f"{self.path} holds a run made with other things: {', '.join(others)}; go on with the same corpus, "
                "tokenizer, device and threads, or choose another --out."
            )
        if found:
            remedy = _remedy(found, stored.training, steps)
            raise InputError(f"{self.path} holds a run with other settings: {', '.join(found + others)}; {remedy}.")

    def lengths_before(self, steps: int) -> tuple[int, ...]:
        """The lengths, in order, that the run was meant to have before it was, or is now, made ``steps`` long."""
        if not self.settings_path.exists():
            return ()
        lengths = {*self.versions().get("earlier_steps", ()), self.settings().training.steps}
        return tuple(sorted(length for length in lengths if length < steps))

    def lengthen(self, steps: int) -> None:
        """Write that the run is to have so many steps, and how many it was meant to have before, if these are fewer.

        What was recorded before stays, so the file must say which length it followed up to which step.
        """
        stored, versions = self.settings(), self.versions()
        if stored.training.steps < steps:
            # Without versions nothing was recorded yet.
            if versions:
                _write_json(self.versions_path, versions | {"earlier_steps": list(self.lengths_before(steps))})
            self.create(_with_steps(stored, steps))

    def warn_of_other_versions(self) -> None:
        """Warn if the run was begun with other packages or on another machine: its bits may not repeat."""
        before, now = self.versions(), recorded_versions()
        for name in now:
            if before and before.get(name) != now[name]:
                logger.warning(
                    "%s was begun with %s %s and goes on with %s: it may not repeat to the bit.",
                    self.path,
                    name,
                    before.get(name),
                    now[name],
                )

    def create(self, settings: AnySettings) -> None:
        """Lay out a new run; files that the settings name are copied in, so that the folder is complete.

        For a run on text the settings come first: if it is killed while its corpus is read, it goes on with them.
        """

        def copied(file: str, stem: str) -> str:
            name = stem + Path(file).suffix
            if Path(file).resolve() != (self.path / name).resolve():
                write_atomically(self.path / name, Path(file).read_bytes())
            return name

        if isinstance(settings, Settings):
            settings = _map_files(settings, copied)
        write_atomically(self.settings_path, dump_settings(settings))

    def describe(
        self,
        settings: AnySettings,
        *,
        reference: dict[str, Any] | None = None,
        together: Sequence[AnySettings] = (),
        facts: Mapping[str, str] = NO_FACTS,
    ) -> None:
        """Write what to compare the run with, if given, and its versions, unless they are there already.

        ``together`` are all the runs that are trained together, this one included.
        """
        engine = {"engine": settings.engine} if isinstance(settings, Settings) else {}
        company = _company(together)
        chosen = {"seed": settings.seed, "threads": settings.training.threads}
        versions = recorded_versions() | chosen | engine | dict(facts)
        if reference is not None:
            _write_json(self.reference_path, reference)
        if not self.versions_path.exists():
            _write_json(self.versions_path, versions | ({"together": company} if company else {}))

    def missing_before(self, step: int, training: AnyTraining) -> str | None:
        """Which of the rows and snapshots that a run records before ``step`` are missing, in a few words."""
        rows, earlier = [row["step"] for row in self.metrics()], self.lengths_before(training.steps)
        if [at for at in rows if at < step] != steps_with_rows(training, earlier, before=step):
            return f"{self.metrics_path.name} is damaged"
        count = training.snapshots if isinstance(training, Training) else 0
        due = {at for at in spaced_steps((*earlier, training.steps), count, snapshot_steps) if at < step}
        if not due <= set(self.snapshots()):
            return f"{self.snapshots_path.name} is damaged"
        return None

    # What the training loop writes.

    @contextlib.contextmanager
    def recording(self, step: int) -> Iterator[None]:
        """Forget rows and snapshots from ``step`` on, which will be computed again, the same; then append rows."""
        rows = [row for row in self.metrics() if row["step"] < step]
        write_atomically(self.metrics_path, "".join(_row_text(row) for row in rows))
        if self.snapshots_path.exists():
            self._write_snapshots({at: arrays for at, arrays in self.snapshots().items() if at < step})
        with self.metrics_path.open("a", encoding="utf-8") as self._metrics:
            yield
        self._metrics = None

    def add(self, row: Row) -> None:
        """Add a row to the metrics."""
        assert self._metrics is not None
        self._metrics.write(_row_text(row))

    def flush(self) -> None:
        """Bring the rows to disk."""
        assert self._metrics is not None
        self._metrics.flush()
        os.fsync(self._metrics.fileno())

    def save(self, checkpoint: "Checkpoint", snapshots: dict[int, Snapshot] | None, *, every: int) -> None:
        """Write all snapshots and a checkpoint; ``every`` is the number of steps between checkpoints."""
        from topicscope.training.checkpoints import save_checkpoint

        if snapshots is not None:
            self._write_snapshots(snapshots)
        save_checkpoint(self.path, checkpoint, every=every)

    def _write_snapshots(self, snapshots: dict[int, Snapshot]) -> None:
        flat = {f"{step}/{name}": array for step, arrays in snapshots.items() for name, array in arrays.items()}
        write_atomically(self.snapshots_path, save(flat))

    def _settings_like(self, given: AnySettings) -> AnySettings:
        """The settings in this folder, which must be of the same kind."""
        if isinstance(given, Settings):
            return load_settings(self.settings_path)
        stored = self.settings()
        if not isinstance(stored, TextSettings):
            raise InputError(f"{self.path} holds a run on documents of a topic model: choose another --out.")
        return stored


def first_not_finite(value: Any, name: str = "") -> str | None:
    """The name of a number in a row that is infinite or NaN, such as ``norm value``."""
    if isinstance(value, dict):
        inner = [(f"{name} {key}".strip(), item) for key, item in value.items()]
    elif isinstance(value, list):
        inner = [(name, item) for item in value]
    else:
        return name if isinstance(value, float) and not math.isfinite(value) else None
    return next((found for key, item in inner if (found := first_not_finite(item, key))), None)


def made_with(*sources: str) -> dict[str, Any]:
    """What the numbers of runs depend on beside settings and seeds; ``sources`` are further parts of the package."""
    return scale.made_with((*SOURCES, *sources), LIBRARIES)


def recorded_versions() -> dict[str, Any]:
    """Versions of the packages that results depend on, of Python, and the machine's kind."""
    return scale.package_versions(RECORDED_PACKAGES) | {
        "python": platform.python_version(),
        "machine": platform.machine(),
    }


def _row_text(row: Row) -> str:
    """One line of metrics.jsonl."""
    return json.dumps(row, allow_nan=False) + "\n"


def _write_json(path: Path, content: dict[str, Any]) -> None:
    write_atomically(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def _with_steps(settings: AnySettings, steps: int) -> AnySettings:
    training: Any = dataclasses.replace(settings.training, steps=steps)
    return dataclasses.replace(settings, training=training)


def _remedy(found: Sequence[str], stored: AnyTraining, steps: int) -> str:
    """What to do about settings that differ from those of the existing run; ``steps`` are asked for."""
    if any(each.startswith("training.threads ") for each in found):
        return (
            "results repeat to the bit for one thread count only, so give "
            f"--training.threads {stored.threads}, or choose another --out"
        )
    if all(each.startswith("training.steps ") for each in found):
        longer = f"{why_not_longer(stored)}, so this run cannot be made longer"
        said = longer if steps > stored.steps else "a run cannot be made shorter"
        return f"{said}; leave it out to go on, or choose another --out"
    return "leave the settings out to go on, or choose another --out"


def _company(together: Sequence[AnySettings]) -> list[Row]:
    """What the members of an ensemble differ in; nothing for a run alone."""
    members = [{"seed": each.seed, "learning_rate": each.training.learning_rate} for each in together]
    return members if len(members) > 1 else []


def _with_others(company: list[Row]) -> str:
    others = len(company) - 1
    return f"together with {others} other{'s' if others > 1 else ''}" if company else "alone"


def _check_company(path: Path, before: list[Row], company: list[Row]) -> None:
    if before != company:
        there, here = (_with_others(each) for each in (before, company))
        raise InputError(
            f"{path} holds a run that was trained {there}, not {here}: "
            "results repeat to the bit in the same company only; go on with the same seeds and learning rates, "
            "or choose another --out."
        )


def _comparable(settings: AnySettings) -> AnySettings:
    """The settings with files named by their content, since a run keeps copies under names of its own.

    Settings of a run on text have absolute paths instead, since the corpus stays where it is.
    """
    if isinstance(settings, TextSettings):
        return with_absolute_paths(settings)
    return _map_files(settings, lambda file, stem: _digest(file))


def _map_files(settings: Settings, change: Callable[[str, str], str]) -> Settings:
    data, parts = settings.data, {}
    if data.topic_words:
        data = dataclasses.replace(data, topic_words=change(data.topic_words, "topic_words"))
    for name in PARTS:
        part = settings.model.part(name)
        parts[name] = dataclasses.replace(part, file=change(part.file, name)) if part.file else part
    model: Any = dataclasses.replace(settings.model, **parts)  # type: ignore[arg-type]
    return dataclasses.replace(settings, data=data, model=model)


def _digest(file: str) -> str:
    try:
        return "content " + hashlib.sha256(Path(file).read_bytes()).hexdigest()[:12]
    except OSError as error:
        raise InputError(f"{file} cannot be read ({error.strerror}): give an existing file.") from None
