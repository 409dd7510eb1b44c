"""Map a function over tasks: in this process, in several, or on Ray; each result is a file, and is computed once.

A task is determined by its key, never by who computes it or when. Its result is a file named by the task and the key's
digest. A worker writes it atomically, so a file that exists is whole, and files alone say what is finished: a map that
was interrupted or killed resumes with what is missing, on whichever engine.

Engine ``local`` runs tasks in processes of this machine (joblib's loky), ``ray`` on a Ray of its own or on the cluster
at an address, whose machines must share the folder.
"""

import hashlib
import itertools
import json
import logging
import os
import re
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from joblib import cpu_count
from threadpoolctl import threadpool_limits

from topicscope.errors import InputError, LostWorkError, check_at_least, check_one_of
from topicscope.store import remove_leftovers, write_atomically

T = TypeVar("T")
# Called with the number of tasks done, the number in all, and the name or state of the last.
Report = Callable[[int, int, str], None]

# How often a task is tried if its worker is lost.
ATTEMPTS = 3
# Writing a result takes fewer seconds than this; workers of another process may be writing.
LONGEST_WRITE = 3600.0
# Linear algebra on one thread, since there are as many workers as cores; and memory that glibc keeps for the next
# arrays: to return it and get it cleared again took a tenth of a probe's time.
WORKER_ENVIRONMENT = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    "MALLOC_MMAP_THRESHOLD_": str(2**26),
    "MALLOC_TRIM_THRESHOLD_": str(2**29),
}
# How long a cluster's head may take to answer, and how often it is asked while nothing finishes.
ANSWER_SECONDS, ASK_SECONDS = 10.0, 2.0


def content_digest(content: Any) -> str:
    """A name for plain values: equal values have equal names, whatever the order of a mapping."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


@dataclass(frozen=True)
class Task(Generic[T]):
    """One piece of work."""

    name: str
    """A name for people, with which the file's name begins."""

    key: Mapping[str, Any]
    """The settings that determine the result, and a "version" that a person raises when the computation changes."""

    argument: T
    """What the function is called with; it must be picklable."""

    suffix: str = ".json"
    """The ending of the file's name."""

    def path(self, folder: Path) -> Path:
        """Where its result is kept."""
        readable = re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")[:80]
        return folder / f"{readable}-{content_digest(self.key)}{self.suffix}"

    def scratch(self, folder: Path) -> Path:
        """A folder for unfinished work: kept if the task is stopped, removed when it is done."""
        return _scratch(self.path(folder.resolve()))


def _scratch(result: Path) -> Path:
    return result.with_name(result.name + ".partial")


def map_tasks(function: Callable[[T], bytes], tasks: Sequence[Task[T]], folder: Path, **options: Any) -> list[bytes]:
    """The results of all tasks, in their order; the options are those of ``completed``."""
    return [content for _, content in sorted(completed(function, tasks, folder, **options))]


def completed(
    function: Callable[[T], bytes],
    tasks: Sequence[Task[T]],
    folder: Path,
    *,
    workers: int | None = None,
    engine: str = "local",
    address: str | None = None,
    report: Report | None = None,
) -> Iterator[tuple[int, bytes]]:
    """Yield (place, result) pairs: first of the tasks already done, then of each as it finishes.

    ``workers`` is the number of tasks at once, by default the number of cores; one local worker is this process. Tasks
    are begun in their order, and go on while the caller is busy with a result. A task whose worker is lost is tried
    again. Closing the iterator, an error and Ctrl-C stop what is under way and keep what is finished.
    """
    check_engine(engine, address=address, workers=workers)
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    remove_leftovers(folder, older_than=LONGEST_WRITE)
    places: dict[Path, list[int]] = {}
    for place, task in enumerate(tasks):
        places.setdefault(task.path(folder), []).append(place)
    missing = {path: tasks[own[0]] for path, own in places.items() if not path.exists()}
    processes = min(len(missing), workers or cpu_count())
    if engine == "ray" and missing:
        finished = _on_ray(function, missing, processes if address is None else workers, address)
    else:
        finished = (_in_processes if processes > 1 else _here)(function, missing, processes)
    done = 0
    for path in itertools.chain([path for path in places if path not in missing], finished):
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise LostWorkError(
                f"A worker has written {path}, which is not there: use a folder on a disk that all workers share."
            ) from None
        for place in places[path]:
            done += 1
            if report:
                report(done, len(tasks), tasks[place].name)
            yield place, content


def check_engine(engine: str, *, address: str | None = None, workers: int | None = None) -> None:
    """Refuse options that do not go together."""
    check_one_of("--engine", engine, ("local", "ray"))
    if address is not None and engine != "ray":
        raise InputError(f'--address = "{address}" is not allowed with --engine {engine}: add --engine ray.')
    if workers is not None:
        check_at_least("--workers", workers, 1)


def _run(function: Callable[[T], bytes], argument: T, path: Path) -> None:
    """What a worker does. It writes the result, which is then kept whatever happens to the process that asked."""
    with threadpool_limits(1):
        content = function(argument)
    write_atomically(path, content)
    shutil.rmtree(_scratch(path), ignore_errors=True)


def _here(function: Callable[[T], bytes], tasks: Mapping[Path, Task[T]], workers: int) -> Iterator[Path]:
    for path, task in tasks.items():
        _run(function, task.argument, path)
        yield path


def _lost(name: str) -> LostWorkError:
    return LostWorkError(
        f'"{name}" was lost with its worker {ATTEMPTS} times (killed, or out of memory); what was finished is kept: '
        "find the cause and run it again."
    )


def _in_processes(function: Callable[[T], bytes], tasks: Mapping[Path, Task[T]], workers: int) -> Iterator[Path]:
    """Results as they finish; if a worker dies its pool is lost, and what is missing begins again in a new one.

    Three pools in a row that finish nothing end the map. The third has one worker, so the task it was lost with is
    known.
    """
    from joblib.externals.loky import ProcessPoolExecutor
    from joblib.externals.loky.process_executor import BrokenProcessPool

    left, attempts = dict(tasks), 0
    while left:
        count = 1 if attempts == ATTEMPTS - 1 else min(workers, len(left))
        pool = ProcessPoolExecutor(count, env=WORKER_ENVIRONMENT, initializer=_begin_worker, initargs=(os.getpid(),))
        try:
            futures = {pool.submit(_run, function, task.argument, path): path for path, task in left.items()}
            for future in as_completed(futures):
                future.result()
                attempts = 0
                del left[futures[future]]
                yield futures[future]
        except BrokenProcessPool:
            attempts += 1
            for path in [path for path in left if path.exists()]:
                del left[path]
                yield path
            if attempts == ATTEMPTS and left:
                raise _lost(next(iter(left.values())).name) from None
        finally:
            pool.shutdown(kill_workers=True)


def _begin_worker(parent: int) -> None:
    """Leave Ctrl-C, which reaches all processes, to the parent, and end with it even in the middle of a task."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _on_ray(
    function: Callable[[T], bytes], tasks: Mapping[Path, Task[T]], workers: int | None, address: str | None
) -> Iterator[Path]:
    """Results as they finish, on a Ray of our own with so many workers, or on a cluster with at most so many."""
    try:
        import ray
    except ImportError:
        raise InputError('--engine ray needs Ray: install it with `pip install "topicscope[scale]"`.') from None
    try:
        if address not in (None, "auto"):
            # Ray itself would take minutes to find out that nobody answers.
            _ask(address)
        own = {"address": "local", "num_cpus": workers, "include_dashboard": False}
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        ray.init(log_to_driver=False, logging_level=logging.ERROR, **({"address": address} if address else own))
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise InputError(
            f'--address = "{address}" cannot be reached ({reason}): on a machine of a running Ray cluster, '
            'give HOST:PORT of its head, or "auto".'
        ) from None
    remote = ray.remote(max_retries=ATTEMPTS - 1, num_cpus=1)(_run)
    waiting, head, running = iter(tasks), ray.get_runtime_context().gcs_address, dict[Any, Path]()
    most = workers if workers and address else 4 * max(1, int(ray.cluster_resources()["CPU"]))
    try:
        while True:
            for path in itertools.islice(waiting, most - len(running)):
                running[remote.options(name=tasks[path].name).remote(function, tasks[path].argument, path)] = path
            if not running:
                return
            done, _ = ray.wait(list(running), timeout=ASK_SECONDS)
            if not done:
                _check_head(head, running)
            for reference in done:
                path = running.pop(reference)
                try:
                    ray.get(reference)
                except ray.exceptions.RayTaskError as error:
                    raise error.cause from error
                except ray.exceptions.RayError:
                    raise _lost(tasks[path].name) from None
                yield path
    finally:
        for reference in running:
            ray.cancel(reference, force=True)
        ray.shutdown()


def _check_head(address: str, running: dict[Any, Path]) -> None:
    try:
        _ask(address)
    except OSError:
        # Without its head nothing can be cancelled.
        running.clear()
        raise LostWorkError(
            f"The head of the Ray cluster at {address} is gone; what was finished is kept: start the cluster and run "
            "it again."
        ) from None


def _ask(address: str) -> None:
    """Raise an ``OSError`` if nobody answers at HOST:PORT."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_SECONDS).close()
