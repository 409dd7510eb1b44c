"""Ctrl-C while training: the step that is being computed is finished and saved, then the run stops."""

import contextlib
import dataclasses
import hashlib
import json
import logging
import math
import platform
import shlex
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from safetensors.numpy import save

from topicscope.errors import InputError, StoppedTraining, UnreadableError
from topicscope.files import alone_in, remove_leftovers, write_atomically
from topicscope.records import Snapshot, read_metrics, read_reference, read_snapshots, read_versions
from topicscope.scale import code_digest, package_versions
from topicscope.settings import PARTS, Settings, Training
from topicscope.settings.toml import differences, dump_settings, load_settings
from topicscope.training.schedule import logged_steps, snapshot_steps

# Asked between steps: whether to save and stop.
Stop = Callable[[], bool]


def never() -> bool:
    """For work whose stopping is somebody else's: a kill loses what was done since the last checkpoint."""
    return False


@contextmanager
def stop_on_interrupt() -> Iterator[Stop]:
    """Whether Ctrl-C was pressed, as a function to ask between steps; pressed twice, it stops at once.

    An interrupt in the middle of a step would leave some weights updated and others not. Only where Ctrl-C means what
    it usually does: in the main thread, with Python's own handler.
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


def stopped(step: int, out: Path) -> StoppedTraining:
    """What is said of a run that was stopped and saved."""
    again = f"topicscope train --out {shlex.quote(str(out))} --resume"
    return StoppedTraining(f"stopped at step {step}, which is saved: {again} goes on from there.")


# Run folders: settings, metrics, checkpoints, snapshots and versions; atomic, and enough to run it all again.


RECORDED_PACKAGES = ("topicscope", "torch", "numpy", "scipy", "safetensors")


# Parts of the package, and packages, that a run's numbers depend on.
SOURCES = ("settings", "synthetic", "model", "training", "theory", "measure", "randomness.py")


LIBRARIES = ("torch", "numpy", "scipy")


Row = dict[str, Any]


logger = logging.getLogger(__name__)


class RunFolder:
    """A folder that holds one training run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.settings_path = path / "settings.toml"
        self.metrics_path = path / "metrics.jsonl"
        self.snapshots_path = path / "snapshots.safetensors"
        self.reference_path = path / "reference.json"
        self.versions_path = path / "versions.json"

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"

    def _repr_html_(self) -> str:
        from topicscope.reporting.notebook import run_html

        return run_html(str(self.path), self.metrics(), self.settings().training.steps)

    def settings(self) -> Settings:
        """The settings that the run was started with."""
        return load_settings(self.settings_path)

    def metrics(self) -> list[Row]:
        """All logged rows; what follows a line that was cut short or spoilt is left out."""
        return read_metrics(self.metrics_path)

    def snapshots(self) -> dict[int, Snapshot]:
        """Matrices kept for looking at, by step and name; none if there is no file, or a damaged one."""
        try:
            return read_snapshots(self.snapshots_path)
        except UnreadableError:
            return {}

    def missing_before(self, step: int, training: Training) -> str | None:
        """What is not there of the rows and snapshots that a run records before ``step``, in a few words."""
        rows = [row["step"] for row in self.metrics()]
        if [at for at in rows if at < step] != [at for at in logged_steps(training) if at < step]:
            return f"{self.metrics_path.name} is damaged"
        due = {at for at in snapshot_steps(training.steps, training.snapshots) if at < step}
        if not due <= set(self.snapshots()):
            return f"{self.snapshots_path.name} is damaged"
        return None

    def reference(self) -> dict[str, Any]:
        """Losses of the optimum and the floor to compare with."""
        return read_reference(self.reference_path)

    def create(self, settings: Settings) -> None:
        """Lay out a new run; files that the settings name are copied in, so that the folder is complete."""
        write_atomically(self.settings_path, dump_settings(_with_files_inside(settings, self.path)))

    def describe(
        self, settings: Settings, reference: Callable[[], dict[str, Any]], *, together: Sequence[Settings] = ()
    ) -> None:
        """Write what the run is to be held against, and what it was made with, unless it is there already.

        ``together`` are all the runs that it is trained together with, itself included.
        """
        contents: dict[Path, Callable[[], dict[str, Any]]] = {
            self.reference_path: reference,
            self.versions_path: lambda: _versions(settings, together),
        }
        for path, content in contents.items():
            if not path.exists():
                write_atomically(path, json.dumps(content(), indent=2, allow_nan=False) + "\n")

    def check_can_resume(self, settings: Settings, *, together: Sequence[Settings] = ()) -> None:
        """Refuse to go on with other settings, and name each that differs; or in other company."""
        self._check_company(_company(together))
        stored = _comparable(self.settings())
        found = differences(_comparable(settings), stored)
        if not found:
            return
        remedy = remedy_for(found)
        if stored.training.threads != settings.training.threads:
            remedy = (
                "results repeat to the bit for one thread count only, so give "
                f"--training.threads {stored.training.threads}, or choose another --out"
            )
        raise InputError(f"{self.path} holds a run with other settings: {', '.join(found)}; {remedy}.")

    def warn_of_other_versions(self, settings: Settings) -> None:
        """Say if the run was begun with other packages or on another machine: its bits may not repeat."""
        if not self.versions_path.exists():
            return
        before, now = read_versions(self.versions_path), _versions(settings, ())
        for name in (*RECORDED_PACKAGES, "python", "machine"):
            if before.get(name) != now[name]:
                logger.warning(
                    "%s was begun with %s %s and goes on with %s: it may not repeat to the bit.",
                    self.path,
                    name,
                    before.get(name),
                    now[name],
                )

    def _check_company(self, company: list[Row]) -> None:
        if not self.versions_path.exists():
            return
        before = read_versions(self.versions_path).get("together", [])
        if before != company:
            raise InputError(
                f"{self.path} holds a run that was trained {_company_text(before)}, not {_company_text(company)}: "
                "results repeat to the bit in the same company only; go on with the same seeds and learning rates, "
                "or choose another --out."
            )

    def cut_back(self, step: int) -> None:
        """Forget rows and snapshots from ``step`` on: they will be made again, the same."""
        rows = [row for row in self.metrics() if row["step"] < step]
        write_atomically(self.metrics_path, "".join(row_text(row) for row in rows))
        if self.snapshots_path.exists():
            self.write_snapshots({at: arrays for at, arrays in self.snapshots().items() if at < step})

    def write_snapshots(self, snapshots: dict[int, Snapshot]) -> None:
        """Write all snapshots."""
        flat = {f"{step}/{name}": array for step, arrays in snapshots.items() for name, array in arrays.items()}
        write_atomically(self.snapshots_path, save(flat))

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder, unless it is there, and keep other processes from training in it meanwhile."""
        otherwise = f"{self.path} is being trained in by another process: wait for it, or choose another --out."
        with alone_in(self.path, otherwise=otherwise):
            remove_leftovers(self.path)
            yield


def first_not_finite(value: Any, name: str = "") -> str | None:
    """The name of a number in a row that is infinite or NaN, such as ``norm value``."""
    if isinstance(value, dict):
        inner = [(f"{name} {key}".strip(), item) for key, item in value.items()]
    elif isinstance(value, list):
        inner = [(name, item) for item in value]
    else:
        return name if isinstance(value, float) and not math.isfinite(value) else None
    return next((found for key, item in inner if (found := first_not_finite(item, key))), None)


def row_text(row: Row) -> str:
    """One line of metrics.jsonl."""
    return json.dumps(row, allow_nan=False) + "\n"


def check_out(path: Path, *, resume: bool) -> None:
    """Refuse a folder that is not empty, unless the run in it is to be resumed."""
    if path.exists() and not path.is_dir():
        raise InputError(f"--out {path} is a file: give a folder.")
    if not resume and path.is_dir() and any(path.iterdir()):
        raise InputError(
            f"--out {path} is not empty: choose another folder, or add --resume to go on with the run in it."
        )
    if resume and path.is_dir() and not (path / "settings.toml").exists():
        # A run killed before its settings were written leaves copies of the files they name.
        ours = ("topic_words", *PARTS)
        others = [item.name for item in path.iterdir() if item.stem not in ours and item.suffix != ".tmp"]
        if others:
            raise InputError(f"--out {path} holds no run to resume (it has {others[0]}): give the folder of a run.")


def remedy_for(found: Sequence[str]) -> str:
    """What to do about settings that differ from those of the run that is there."""
    if all(each.startswith("training.steps ") for each in found):
        return (
            "what is recorded at which step follows from their number, so a run cannot be made longer; leave it out to "
            "go on, or choose another --out"
        )
    return "leave the settings out to go on, or choose another --out"


def _company(together: Sequence[Settings]) -> list[Row]:
    """What the members of an ensemble differ in; nothing for a run alone."""
    members = [{"seed": each.seed, "learning_rate": each.training.learning_rate} for each in together]
    return members if len(members) > 1 else []


def _company_text(company: list[Row]) -> str:
    return f"together with {len(company) - 1} others" if company else "alone"


def made_with(*sources: str) -> dict[str, Any]:
    """What the numbers of runs depend on beside settings and seeds; ``sources`` are further parts of the package."""
    return {"code": code_digest((*SOURCES, *sources)), "libraries": package_versions(LIBRARIES)}


def recorded_versions() -> dict[str, Any]:
    """Versions of the packages that results depend on, of Python, and the machine's kind."""
    return package_versions(RECORDED_PACKAGES) | {"python": platform.python_version(), "machine": platform.machine()}


def _versions(settings: Settings, together: Sequence[Settings]) -> dict[str, Any]:
    how = {"seed": settings.seed, "threads": settings.training.threads, "engine": settings.engine}
    company = _company(together)
    return recorded_versions() | how | ({"together": company} if company else {})


def _with_files_inside(settings: Settings, folder: Path) -> Settings:
    """Copy every file that the settings name into the folder, and name the copies."""
    return _map_files(settings, lambda file, stem: _copy_in(file, folder, stem))


def _comparable(settings: Settings) -> Settings:
    """The settings with files named by their content, since a run keeps copies under names of its own."""
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


def _copy_in(file: str, folder: Path, stem: str) -> str:
    name = stem + Path(file).suffix
    if Path(file).resolve() != (folder / name).resolve():
        write_atomically(folder / name, Path(file).read_bytes())
    return name


def _digest(file: str) -> str:
    try:
        return "content " + hashlib.sha256(Path(file).read_bytes()).hexdigest()[:12]
    except OSError as error:
        raise InputError(f"{file} cannot be read ({error.strerror}): give an existing file.") from None
