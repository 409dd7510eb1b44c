"""Map a function over work items: in this process or in several, each result written once and found again.

An item is fixed by its key, never by who computes it or when. Its result is a file named by the key's digest, written
atomically beside a checksum; what is there and whole is not computed again. So an interrupted map goes on where it
was, a truncated file is never used, and items finished before Ctrl-C are kept.

Engines: ``local`` runs processes on this machine.
"""

import contextlib
import hashlib
import json
import multiprocessing
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Generic, TypeVar

from topicscope.errors import InputError
from topicscope.files import write_atomically

T = TypeVar("T")
ENGINES = ("local",)
# How often work is taken up again after a worker was lost.
# What linear algebra libraries read when they are loaded.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
ATTEMPTS = 3
# Called with how many items are done, how many there are, and the name of the last.
Report = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Item(Generic[T]):
    """One piece of work."""

    name: str
    """For people: it begins the file's name."""

    key: Mapping[str, Any]
    """All that determines the result, as plain values: settings, version of the code, digests of inputs."""

    argument: T
    """What the function is called with; must be picklable."""

    suffix: str = ".bin"
    """Ending of the file's name."""

    @property
    def digest(self) -> str:
        """The key's name: equal for equal keys, whatever their order."""
        text = json.dumps(self.key, sort_keys=True, ensure_ascii=False, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    def path(self, folder: Path) -> Path:
        """Where its result is kept."""
        readable = re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")[:80]
        # The digest decides: equal work that is there under another name is not done again.
        there = sorted(folder.glob(f"*-{self.digest}{self.suffix}"))
        return there[0] if there else folder / f"{readable}-{self.digest}{self.suffix}"


def read_result(path: Path) -> bytes | None:
    """A result that is there and whole; None if it is missing, truncated or otherwise not what was written."""
    try:
        content, checksum = path.read_bytes(), _checksum_path(path).read_text(encoding="utf-8").split()[0]
    except (OSError, UnicodeDecodeError, IndexError):
        return None
    return content if hashlib.sha256(content).hexdigest() == checksum else None


def write_result(path: Path, content: bytes) -> None:
    """Write a result, then the checksum (as ``sha256sum`` prints it) that makes it whole."""
    write_atomically(path, content)
    write_atomically(_checksum_path(path), f"{hashlib.sha256(content).hexdigest()}  {path.name}\n")


def map_items(
    function: Callable[[T], bytes],
    items: Sequence[Item[T]],
    *,
    folder: Path,
    workers: int = 1,
    engine: str = "local",
    report: Report | None = None,
) -> list[bytes]:
    """The results of all items, in their order."""
    found: dict[int, bytes] = {}
    for place, content in completed(function, items, folder=folder, workers=workers, engine=engine):
        found[place] = content
        if report:
            report(len(found), len(items), items[place].name)
    return [found[place] for place in range(len(items))]


def completed(
    function: Callable[[T], bytes],
    items: Sequence[Item[T]],
    *,
    folder: Path,
    workers: int = 1,
    engine: str = "local",
) -> Iterator[tuple[int, bytes]]:
    """(Place, result) pairs: first of the items already there, then of each as it is finished.

    Work is taken up in the items' order; with one worker, in this process. Other workers go on while the caller is busy
    with a result. Closing the iterator stops what is under way and keeps what is finished.
    """
    if engine not in ENGINES:
        raise InputError(f'--engine "{engine}" is not allowed: give one of {", ".join(ENGINES)}.')
    folder.mkdir(parents=True, exist_ok=True)
    missing = []
    for place, item in enumerate(items):
        content = read_result(item.path(folder))
        if content is None:
            missing.append(place)
        else:
            yield place, content
    if workers <= 1 or len(missing) <= 1:
        for place in missing:
            yield place, _compute(function, items[place].argument, items[place].path(folder))
    else:
        yield from _in_processes(function, items, missing, folder, workers)


def _in_processes(
    function: Callable[[T], bytes], items: Sequence[Item[T]], missing: Sequence[int], folder: Path, workers: int
) -> Iterator[tuple[int, bytes]]:
    """Results as they are finished; if a worker is lost (killed, out of memory), what is left is tried again."""
    left = list(missing)
    for attempt in range(ATTEMPTS):
        with _processes(min(workers, len(left))) as pool:
            futures = {
                pool.submit(_compute, function, items[place].argument, items[place].path(folder)): place
                for place in left
            }
            try:
                for future in as_completed(futures):
                    yield futures[future], future.result()
                    left.remove(futures[future])
                return
            except BrokenProcessPool:
                if attempt == ATTEMPTS - 1:
                    raise


def _compute(function: Callable[[T], bytes], argument: T, path: Path) -> bytes:
    """Written where it is computed, so that it is kept whatever happens to the process that asked for it."""
    content = function(argument)
    write_result(path, content)
    return content


@contextlib.contextmanager
def _processes(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Worker processes that end with this block, and with this process however it ends.

    Each holds the reading end of a pipe whose writing end is here alone: when that closes, the workers exit.
    """
    context = multiprocessing.get_context("spawn")
    reader, writer = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker, initargs=(reader,))
    try:
        with _one_thread_each():
            yield pool
    finally:
        writer.close()
        pool.shutdown(cancel_futures=True)
        reader.close()


@contextlib.contextmanager
def _one_thread_each() -> Iterator[None]:
    """Have processes started meanwhile compute on one thread: as many workers as cores would fight over them."""
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def _start_worker(stop: Connection) -> None:
    # Ctrl-C reaches the whole process group; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def exit_when_told() -> None:
        with contextlib.suppress(EOFError, OSError):
            stop.recv_bytes()
        os._exit(1)

    threading.Thread(target=exit_when_told, daemon=True).start()


def _checksum_path(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")
