"""Work items, their results on disk, and what results depend on beside their keys: code, packages and cores."""

import contextlib
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Generic, TypeVar

from threadpoolctl import threadpool_limits

from topicscope.files import alone_in, write_atomically

T = TypeVar("T")
# Names of folders with unfinished work end like this.
PARTIAL = ".partial"
# Packages whose version can change a number.
PACKAGES = ("numpy", "scipy", "torch", "transformers", "tokenizers", "tomotopy", "gensim")
ROOT = Path(__file__).parents[1]


def content_digest(content: Any) -> str:
    """A name for plain values: equal values have equal names, whatever the order of a mapping."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


@dataclass(frozen=True)
class Item(Generic[T]):
    """One piece of work."""

    name: str
    """A name for people, with which the file's name begins. It identifies the same work of older code."""

    key: Mapping[str, Any]
    """Everything that determines the result, as plain values: settings, version of the code, digests of inputs."""

    argument: T
    """What the function is called with; it must be picklable."""

    suffix: str = ".bin"
    """The ending of the file's name."""

    threads: int = 1
    """Threads of linear algebra. Sums depend on them in the last bit, so they belong to the item, not to the worker."""

    @property
    def digest(self) -> str:
        """The key's digest: equal for equal keys, whatever their order."""
        return content_digest([self.key, self.threads])

    def path(self, folder: Path) -> Path:
        """Where its result is kept."""
        return result_paths([self], folder)[0]


# The folder for unfinished work of the item that is being computed.
_HALF_DONE: ContextVar[Path | None] = ContextVar("half_done", default=None)


@dataclass(frozen=True, eq=False)
class Task:
    """What a worker is sent: the function, its argument, and where the result goes."""

    name: str
    function: Callable[[Any], bytes]
    argument: Any
    path: Path
    threads: int
    timeout: float | None

    def compute(self) -> None:
        """Write the result where it is computed, so that it is kept whatever happens to the process that asked."""
        with threadpool_limits(self.threads), _ending_after(self.timeout):
            half_done = _half_done(self.path)
            token = _HALF_DONE.set(half_done)
            try:
                content = self.function(self.argument)
            finally:
                _HALF_DONE.reset(token)
            write_result(self.path, content)
            shutil.rmtree(half_done, ignore_errors=True)


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder for unfinished work.

    While an item is computed the folder is the item's own: it stays if the work is stopped, is there again when the
    work goes on, and is removed when the result is written. One process has it at a time. Outside of an item it is a
    temporary folder.
    """
    if half_done := _HALF_DONE.get():
        otherwise = f"{half_done} is being worked in by another process: wait for it, or choose another folder."
        with alone_in(half_done, otherwise=otherwise):
            yield half_done
    else:
        with tempfile.TemporaryDirectory() as name:
            yield Path(name)


@contextlib.contextmanager
def shared_folder() -> Iterator[Path]:
    """A folder beside the results for what several items use: name what you put there by its content.

    Outside of an item it is a temporary folder.
    """
    if half_done := _HALF_DONE.get():
        folder = half_done.parent / "shared"
        folder.mkdir(exist_ok=True)
        yield folder
    else:
        with tempfile.TemporaryDirectory() as name:
            yield Path(name)


def remove_stale(folder: Path, paths: Sequence[Path], unfinished: Sequence[Path]) -> None:
    """Remove unfinished work under these results' names, unless it belongs to a result that is still to be computed.

    Older code began it, under the same name and another key; or its process was killed when the result was written.
    """
    names, kept = {_title(path) for path in paths}, {_half_done(path) for path in unfinished}
    for half_done in folder.glob("*" + PARTIAL):
        if _title(half_done) in names and half_done not in kept:
            shutil.rmtree(half_done, ignore_errors=True)


def result_paths(items: Sequence[Item[Any]], folder: Path) -> list[Path]:
    """Where the items' results are kept.

    The digest decides: equal work under another name, on disk or in this list, is not done again.
    """
    names = sorted((path.name for path in folder.iterdir()), reverse=True) if folder.is_dir() else []
    there = {name.rpartition("-")[2]: name for name in names}
    endings = [f"{item.digest}{item.suffix}" for item in items]
    return [
        folder / there.setdefault(ending, f"{_readable(item.name)}-{ending}")
        for item, ending in zip(items, endings, strict=True)
    ]


def read_result(path: Path) -> bytes | None:
    """A stored result; None if it is missing, truncated or otherwise not what was written."""
    try:
        content, checksum = path.read_bytes(), _checksum_path(path).read_text(encoding="utf-8").split()[0]
    except (OSError, UnicodeDecodeError, IndexError):
        return None
    return content if hashlib.sha256(content).hexdigest() == checksum else None


def write_result(path: Path, content: bytes) -> None:
    """Write a result, making its folder if needed, then the checksum (as ``sha256sum`` prints it) that completes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content)
    write_atomically(_checksum_path(path), f"{hashlib.sha256(content).hexdigest()}  {path.name}\n")


@contextlib.contextmanager
def _ending_after(seconds: float | None) -> Iterator[None]:
    """Have the system end this process if it still runs after so many seconds, whatever it is stuck in."""
    if seconds is None:
        yield
        return
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _half_done(path: Path) -> Path:
    return path.with_name(path.name + PARTIAL)


def _title(path: Path) -> str:
    """The part of a file's name that is the item's."""
    return path.name.rpartition("-")[0]


def _readable(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:80]


def _checksum_path(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def available_cores() -> int:
    """The number of cores that this process may use; on macOS, which does not say, all."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def code_digest(sources: tuple[str, ...]) -> str:
    """A digest of the package's source under these paths: results of other code are never taken for this code's."""
    digest = hashlib.sha256()
    for source in sources:
        path = ROOT / source
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def package_versions(names: tuple[str, ...] = ()) -> dict[str, str]:
    """Versions of the packages that a result depends on; of all that compute if none are named."""
    return {name: _version(name) for name in names or PACKAGES}


def made_with(sources: tuple[str, ...], packages: tuple[str, ...] = ()) -> dict[str, Any]:
    """The code under these paths, and these packages (all that compute if none are named), as a part of a key."""
    return {"code": code_digest(sources), "libraries": package_versions(packages)}


@cache
def versions() -> dict[str, str]:
    """Versions of Python and of the packages that compute, and a digest of all our own code."""
    return {"python": platform.python_version(), "topicscope": code_digest((".",)), **package_versions()}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
