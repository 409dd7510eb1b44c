"""The local engine: processes on this machine, each with one task at a time and a pipe to this process.

A process that ends while it has a task (killed, out of memory, out of time) is replaced, and its task tried again.
When this process ends, however it does, the pipes close and the workers exit.
"""

import contextlib
import multiprocessing
import os
import pickle
import queue
import signal
import threading
import traceback
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait

from topicscope.errors import LostWorkError
from topicscope.scale.items import Task

# How often an item is tried if its worker is lost.
ATTEMPTS = 3
# What linear algebra libraries read when they are loaded: as many workers as cores would fight over them.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
# Have glibc keep up to 512 MB for the next arrays: giving it back and getting it cleared again took a tenth of a
# probe's time.
KEPT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**26), "MALLOC_TRIM_THRESHOLD_": str(2**29)}


def run(tasks: Sequence[Task], *, workers: int) -> Iterator[Task]:
    """The tasks, each when it is finished; tasks are handed out by a thread, also while the caller is busy."""
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
def worker_environment() -> Iterator[None]:
    """Have processes started meanwhile compute on one thread and keep their memory."""
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

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,), daemon=True)
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
        """Hand out tasks until all are done or one fails, then say so with None or the error."""
        try:
            self._hand_out()
            while busy := {worker.connection: worker for worker in self._workers if worker.task}:
                ready = wait([*busy, self._told])
                if self._told in ready:
                    break
                for connection in ready:
                    self._take(busy[connection])  # type: ignore[index]
                self._hand_out()
            self.outcomes.put(None)
        except BaseException as error:
            self.outcomes.put(error)
        finally:
            for worker in self._workers:
                worker.end()

    def _hand_out(self) -> None:
        while len(self._workers) < min(self._count, len(self._waiting)):
            self._workers.append(_Worker())
        for worker in self._workers:
            if worker.task is None and self._waiting:
                worker.give(self._waiting.popleft())

    def _take(self, worker: _Worker) -> None:
        """A worker's answer: nothing when its task is done, the error that the function raised, or its end."""
        task = worker.task
        assert task is not None
        try:
            error = worker.connection.recv()
        except (EOFError, OSError):
            self._replace(worker, task)
            return
        if error is not None:
            raise error
        worker.task = None
        self.outcomes.put(task)

    def _replace(self, worker: _Worker, task: Task) -> None:
        worker.end()
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


def _serve(connection: Connection) -> None:
    """A worker's life: compute what arrives, answer, until the pipe closes."""
    # Ctrl-C reaches the whole process group; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    inbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, inbox), daemon=True).start()
    while True:
        connection.send(_outcome(inbox.get()))


def _receive(connection: Connection, inbox: "queue.SimpleQueue[bytes]") -> None:
    """Beside the computation, so that a worker ends with its parent even in the middle of a task."""
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
