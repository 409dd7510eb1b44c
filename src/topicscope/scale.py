"""Map a function over work items: in this process, in several, or on Ray; each result written once and found again.

An item is determined by its key, never by who computes it or when. Its result is a file named by the key's digest,
written atomically beside a checksum; an undamaged result is not computed again, whichever engine wrote it. So an
interrupted map goes on where it was, a truncated file is never used, and items finished before Ctrl-C are kept.

Engine ``local`` runs processes on this machine, each with one task at a time and a pipe to this process. One that ends
while it has a task (killed, out of memory, out of time) is replaced, and its task is tried again. When this process
ends, in whatever way, the pipes close and the workers exit.

Engine ``ray`` runs tasks on a Ray of our own on this machine, or on an existing cluster. Ray only runs them. The files
tell what is finished, so nothing depends on Ray's own state.
"""

import contextlib
import hashlib
import importlib
import json
import logging
import multiprocessing
import os
import pickle
import platform
import queue
import re
import shutil
import signal
import socket
import tempfile
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Generic, TypeVar

from threadpoolctl import threadpool_limits

from topicscope.errors import InputError, LostWorkError
from topicscope.files import alone_in, remove_leftovers, write_atomically

T = TypeVar("T")
# Called with the number of pieces of work done, the number in all, and the name or state of the last.
Report = Callable[[int, int, str], None]

# Names of folders with unfinished work end like this.
PARTIAL = ".partial"
# Packages whose version can change a number.
PACKAGES = ("numpy", "scipy", "torch", "transformers", "tokenizers", "tomotopy", "gensim")
ROOT = Path(__file__).parent

ENGINES = ("local", "ray")
# Writing a result surely takes fewer seconds than this; workers of another process may be writing.
LONGEST_WRITE = 3600.0
# How often an item is tried if its worker is lost.
ATTEMPTS = 3

# The exit code of a worker that imports a script which asks for work while it is being imported.
UNGUARDED = 78

# What linear algebra libraries read when they are loaded: without this, as many workers as cores would compete.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
# glibc keeps up to 512 MB for the next arrays: returning memory and getting it cleared again took a tenth of a probe's
# time.
KEPT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**26), "MALLOC_TRIM_THRESHOLD_": str(2**29)}

# Results go to disk, so Ray's object store carries arguments only; this is close to the least that Ray accepts.
OBJECT_STORE_BYTES = 100 * 2**20
# Tasks queued at Ray per worker, so that none is idle while the caller is busy.
AHEAD = 4
# How long a cluster may take to answer at all.
KNOCK_SECONDS = 10.0
# How often to look whether a cluster's head is there while nothing finishes, and how long it may be away.
LOOK_SECONDS, GONE_SECONDS = 1.0, 2.0


# Items, and their results on disk.


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

    Older code began it, under the same name and another key; or its process was killed just after writing the result.
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


# What a result depends on beside its key: cores, code and packages.


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


# The map itself.


def map_items(function: Callable[[T], bytes], items: Sequence[Item[T]], **options: Any) -> list[bytes]:
    """The results of all items, in their order; the options are those of ``completed``."""
    return [content for _, content in sorted(completed(function, items, **options))]


def completed(
    function: Callable[[T], bytes],
    items: Sequence[Item[T]],
    *,
    folder: Path,
    workers: int | None = 1,
    engine: str = "local",
    address: str | None = None,
    timeout: float | None = None,
    report: Report | None = None,
) -> Iterator[tuple[int, bytes]]:
    """Yield (place, result) pairs: first for the items already there, then for each as it is finished.

    Engine ``local`` computes in processes of this machine, or in this one if there is one worker and no timeout;
    ``ray`` computes on a Ray of its own on this machine, or on the cluster at ``address``, where the folder must be on
    a disk that all its machines share. ``workers`` is the number of items at once, by default one; None means as
    many as there are cores. ``timeout`` is the number of seconds that an item may take. An item whose worker is lost
    (killed, out of memory, out of time) is tried again, three times in all.

    Work is taken up in the items' order. Other workers go on while the caller is busy with a result. Closing the
    iterator stops what is under way and keeps what is finished.
    """
    check_engine(engine, address=address, workers=workers, timeout=timeout)
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    remove_leftovers(folder, older_than=LONGEST_WRITE)
    paths = result_paths(items, folder)
    places: dict[Path, list[int]] = {}
    for place, path in enumerate(paths):
        places.setdefault(path, []).append(place)
    done = count(1)

    def results(path: Path, content: bytes) -> Iterator[tuple[int, bytes]]:
        """The results of all items that are this work."""
        for place in places[path]:
            if report:
                report(next(done), len(items), items[place].name)
            yield place, content

    tasks = []
    for path, (first, *_) in places.items():
        content = read_result(path)
        if content is None:
            item = items[first]
            tasks.append(Task(item.name, function, item.argument, path, item.threads, timeout))
        else:
            yield from results(path, content)
    remove_stale(folder, paths, [task.path for task in tasks])
    processes = min(len(tasks), workers or available_cores())
    here = engine == "local" and processes <= 1 and timeout is None
    finished: Iterator[Task] = iter(tasks)
    if tasks and not here:
        finished = run_local(tasks, processes) if engine == "local" else run_on_ray(tasks, workers, address)
    for task in finished:
        if here:
            task.compute()
        content = read_result(task.path)
        if content is None:
            raise LostWorkError(
                f'The result of "{task.name}" was written by its worker but is not at {task.path}: '
                "use a folder on a disk that all workers share."
            )
        yield from results(task.path, content)


def check_engine(
    engine: str, *, address: str | None = None, workers: int | None = None, timeout: float | None = None
) -> None:
    """Refuse options that do not go together; end a worker that is only importing the script."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        os._exit(UNGUARDED)
    if engine not in ENGINES:
        raise InputError(f'--engine = "{engine}" is not allowed: give one of {", ".join(ENGINES)}.')
    if address is not None and engine != "ray":
        raise InputError(f'--address = "{address}" is not allowed with --engine {engine}: add --engine ray.')
    if address is not None and address != "auto" and not re.fullmatch(r"[^/]+:\d+", address):
        raise InputError(
            f'--address = "{address}" is not allowed: on a machine of a running Ray cluster, give HOST:PORT of its '
            'head, or "auto" (addresses of Ray\'s client, ray://, are not supported).'
        )
    if workers is not None and workers < 1:
        raise InputError(f"--workers = {workers} is not allowed: give a whole number, 1 or more.")
    if timeout is not None and not 0 < timeout < float("inf"):
        raise InputError(f"--timeout = {timeout} is not allowed: give seconds, above 0.")


# Processes on this machine.


def run_local(tasks: Sequence[Task], workers: int) -> Iterator[Task]:
    """Yield each task when it is finished; a thread hands out tasks, also while the caller is busy."""
    crew = _Crew(tasks, workers)
    thread = threading.Thread(target=crew.work, daemon=True)
    thread.start()
    try:
        while (outcome := crew.outcomes.get()) is not None:
            if isinstance(outcome, BaseException):
                raise outcome
            yield outcome
    finally:
        crew.stop()
        thread.join()


@contextlib.contextmanager
def keeping_workers(ready: int = 0, modules: tuple[str, ...] = ()) -> Iterator[None]:
    """Let one map after the other use the same processes: to start one, and to load a model in it, takes seconds.

    ready: how many are started at once. They import the modules while the caller prepares the first map.
    """
    global _kept
    check_engine("local")
    if _kept is not None:
        yield
        return
    try:
        _kept = []
        if ready:
            with _without_interrupts():
                for _ in range(ready):
                    _kept.append(_Worker(modules))
        yield
    finally:
        with _keeping:
            ended, _kept = _kept or [], None
        for worker in ended:
            worker.end()


@contextlib.contextmanager
def worker_environment() -> Iterator[None]:
    """Make processes started meanwhile compute on one thread and keep their memory."""
    wanted = ONE_THREAD | KEPT_MEMORY
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


class _Worker:
    """A process, and the task that it has."""

    def __init__(self, modules: tuple[str, ...] = ()) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, modules), daemon=True)
        with worker_environment():
            self.process.start()
        theirs.close()
        self.task: Task | None = None

    def give(self, task: Task) -> None:
        self.task = task
        # A process that is already gone is noticed when its answer is read.
        with contextlib.suppress(BrokenPipeError):
            self.connection.send_bytes(pickle.dumps(task))

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()
        if self.task:
            # What it was just writing would be left to fill the disk.
            for part in self.task.path.parent.glob(f".{self.task.path.name}.*.tmp"):
                part.unlink(missing_ok=True)


# Workers that wait for the next map, while ``keeping_workers`` lasts. A map takes and returns them in its own thread.
_kept: list[_Worker] | None = None
_keeping = threading.Lock()


class _Crew:
    """Workers, and what is waiting for them."""

    def __init__(self, tasks: Sequence[Task], workers: int) -> None:
        self.outcomes: queue.SimpleQueue[Task | BaseException | None] = queue.SimpleQueue()
        self._waiting = deque(tasks)
        self._workers: list[_Worker] = []
        self._count = workers
        self._lost: Counter[Task] = Counter()
        self._told, self._tell = multiprocessing.Pipe(duplex=False)

    def stop(self) -> None:
        """End the thread that works, and the workers with it."""
        self._tell.close()

    def work(self) -> None:
        """Hand out tasks until all are done or one fails, then report None or the error."""
        with _without_interrupts():
            self._work()

    def _work(self) -> None:
        try:
            self._hand_out()
            while busy := {worker.connection: worker for worker in self._workers if worker.task}:
                ready = wait([*busy, self._told])
                if self._told in ready:
                    break
                for connection in ready:
                    self._take(busy[connection])  # type: ignore[index]
                self._hand_out()
            else:
                with _keeping:
                    if _kept is not None:
                        _kept.extend(self._workers)
                        self._workers = []
            self.outcomes.put(None)
        except BaseException as error:
            self.outcomes.put(error)
        finally:
            for worker in self._workers:
                worker.end()

    def _hand_out(self) -> None:
        while len(self._workers) < min(self._count, len(self._waiting)):
            self._workers.append(self._kept_worker() or _Worker())
        for worker in self._workers:
            if worker.task is None and self._waiting:
                worker.give(self._waiting.popleft())

    def _kept_worker(self) -> _Worker | None:
        """One that waits; those that have died meanwhile are left out."""
        with _keeping:
            while _kept:
                worker = _kept.pop()
                if worker.process.is_alive():
                    return worker
                worker.end()
        return None

    def _take(self, worker: _Worker) -> None:
        """A worker's answer: nothing when its task is done, the error that the function raised, or its end."""
        task = worker.task
        assert task is not None
        ended = False
        try:
            error = worker.connection.recv()
        except (EOFError, OSError):
            ended = True
        # Raised outside the handler, whose error means nothing to the user.
        if ended:
            self._replace(worker, task)
            return
        if error is not None:
            raise error
        worker.task = None
        self.outcomes.put(task)

    def _replace(self, worker: _Worker, task: Task) -> None:
        worker.end()
        if worker.process.exitcode == UNGUARDED:
            raise InputError(
                "Work is asked for at the top level of a script, which each worker process imports: "
                'put it below if __name__ == "__main__":, or give workers = 1.'
            )
        self._workers.remove(worker)
        self._workers.append(_Worker())
        self._lost[task] += 1
        if self._lost[task] == ATTEMPTS:
            raise lost(task)
        self._waiting.appendleft(task)


def lost(task: Task) -> LostWorkError:
    """The error for a task whose worker was lost every time."""
    time = "" if task.timeout is None else f", or over the {task.timeout:g} s allowed"
    return LostWorkError(
        f'"{task.name}" was lost with its worker {ATTEMPTS} times (killed, out of memory{time}); '
        "what was finished is kept: find the cause and run it again."
    )


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Block Ctrl-C, which reaches the whole process group, in this thread and in what it starts meanwhile."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # The process that multiprocessing starts before the first worker would unblock it.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(connection: Connection, modules: tuple[str, ...]) -> None:
    """A worker's loop: compute what arrives and answer, until the pipe closes."""
    # The parent decides what Ctrl-C means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    inbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, inbox), daemon=True).start()
    for module in modules:
        # Work that needs one that cannot be loaded says so.
        with contextlib.suppress(Exception):
            importlib.import_module(module)
    while True:
        connection.send(_outcome(inbox.get()))


def _receive(connection: Connection, inbox: "queue.SimpleQueue[bytes]") -> None:
    """Receive beside the computation, so that a worker ends with its parent even in the middle of a task."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            inbox.put(connection.recv_bytes())
    os._exit(1)


def _outcome(message: bytes) -> BaseException | None:
    try:
        pickle.loads(message).compute()  # noqa: S301 (from our own parent)
    except BaseException as error:
        error.add_note(traceback.format_exc())
        try:
            pickle.loads(pickle.dumps(error))  # noqa: S301
        except Exception:
            return RuntimeError(traceback.format_exc())
        return error
    return None


# Ray.


def run_on_ray(tasks: Sequence[Task], workers: int | None, address: str | None) -> Iterator[Task]:
    """Yield each task when it is finished; on a cluster at most ``workers`` run at once, if that is given."""
    ray = _ray()
    waiting, running = deque(tasks), dict[Any, Task]()
    # A Ray of our own is told that it has cores enough for all workers, and each task takes its share: so as many run
    # at once as were asked for, and none waits for ever for more cores than the machine has.
    share = max(task.threads for task in tasks)
    own = address is None and not ray.is_initialized()
    with _connected(ray, address, share * min(len(tasks), workers or available_cores())):
        # A task that fits on no machine is refused: Ray would wait for one for ever.
        largest = max((int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]), default=0)
        for task in tasks:
            if task.threads > largest:
                raise InputError(
                    f'"{task.name}" has threads = {task.threads}, and no machine of the Ray cluster has more than '
                    f"{largest} cores: lower its threads, or add a machine."
                )
        # Ray's own retries have no end for tasks that run out of memory, so attempts are counted here.
        remote, attempts = ray.remote(max_retries=0)(compute_alike), Counter[Task]()
        most = workers if workers and address else AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
        head = ray.get_runtime_context().gcs_address
        try:
            while waiting or running:
                while waiting and len(running) < most:
                    task = waiting.popleft()
                    sent = remote.options(num_cpus=share if own else task.threads, name=task.name)
                    running[sent.remote(task, versions())] = task
                done, _ = ray.wait(list(running), num_returns=1, timeout=LOOK_SECONDS)
                if not done and not _is_there(head):
                    # Nobody is left who could cancel it.
                    running.clear()
                    raise LostWorkError(
                        f"The head of the Ray cluster at {head} is gone; what was finished is kept: start the cluster "
                        "and run it again."
                    )
                for reference in done:
                    task = running.pop(reference)
                    try:
                        ray.get(reference)
                    except ray.exceptions.RayTaskError as error:
                        # What the function raised, as it raised it.
                        raise error.cause from error
                    except ray.exceptions.RayError:
                        # The worker is lost.
                        attempts[task] += 1
                        if attempts[task] == ATTEMPTS:
                            raise lost(task) from None
                        waiting.append(task)
                    else:
                        yield task
        finally:
            for reference in running:
                ray.cancel(reference, force=True)


def compute_alike(task: Task, asked: dict[str, str]) -> None:
    """A worker's part: a result's name says which code made it, so worker and caller must have the same code."""
    here = versions()
    if different := [f"{name} {here[name]} there, {asked[name]} here" for name in asked if here[name] != asked[name]]:
        raise InputError(
            f"The machine {platform.node()} of the Ray cluster has other versions ({'; '.join(different)}): install "
            "the same on all machines."
        )
    task.compute()


@contextlib.contextmanager
def _connected(ray: Any, address: str | None, workers: int) -> Iterator[None]:
    """A Ray of our own that ends with this block, a connection to a cluster, or the one this process already has."""
    if ray.is_initialized():
        yield
        return
    quietly = {"log_to_driver": False, "logging_level": logging.ERROR}
    logging.getLogger("ray").setLevel(logging.ERROR)
    if address is None:
        # Options of Ray: send no usage reports, and print no warning about accelerators that nobody asked for.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        with worker_environment():
            ray.init(
                address="local",
                num_cpus=workers,
                num_gpus=0,
                include_dashboard=False,
                object_store_memory=OBJECT_STORE_BYTES,
                **quietly,
            )
    else:
        try:
            _knock(address)
            ray.init(address=address, **quietly)
        except (OSError, ValueError, RuntimeError) as error:
            reason = str(error).splitlines()[0].rstrip(".")
            raise InputError(
                f'--address = "{address}" cannot be reached ({reason}): on a machine of a running Ray cluster, '
                'give HOST:PORT of its head, or "auto".'
            ) from None
    try:
        yield
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Find out within seconds that nobody answers or that access is denied: Ray itself takes minutes."""
    from ray._private.services import get_ray_address_from_environment

    found = get_ray_address_from_environment("auto", None) if address == "auto" else address
    try:
        _connect(found)
    except OSError as error:
        raise ConnectionError(f"nobody answers at {found}: {error.strerror or error}") from None
    _show_token(found)


def _is_there(address: str) -> bool:
    """Whether anybody answers at an address within some seconds: Ray itself would end the program, but later."""
    end = time.monotonic() + GONE_SECONDS
    while True:
        try:
            _connect(address)
        except OSError:
            if time.monotonic() > end:
                return False
            time.sleep(LOOK_SECONDS / 4)
        else:
            return True


def _connect(address: str) -> None:
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK_SECONDS).close()


def _show_token(address: str) -> None:
    """Make Ray use the token that this machine has, and refuse a cluster that does not accept it.

    ``ray start`` asks for a token if it finds one. Ray looks for it by itself when it connects to "auto", but not when
    it connects to HOST:PORT. RAY_AUTH_MODE, if it is set, decides.
    """
    try:
        from ray._private.authentication.authentication_token_setup import maybe_enable_token_auth_if_token_available
        from ray._raylet import GcsClient  # type: ignore[attr-defined]
        from ray.exceptions import AuthenticationError
    except ImportError:
        return  # This version of Ray knows no tokens.
    maybe_enable_token_auth_if_token_available(warn_if_disabled=False)
    try:
        GcsClient(address=address)
    except AuthenticationError:
        raise InputError(
            f'--address = "{address}" asks for a token that this machine does not have: copy ~/.ray/auth_token from '
            "the cluster's head, or set RAY_AUTH_TOKEN."
        ) from None


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise InputError('--engine ray needs Ray: install it with `pip install "topicscope[scale]"`.') from None
    return ray
