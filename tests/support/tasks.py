"""What the tests of work map, as functions that workers can import; and a map as a program of its own.

``python tasks.py FUNCTION ENGINE WORKERS FOLDER COUNT [ADDRESS]`` prints one digest of all results.
"""

import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_info

from topicscope.work import Task, map_tasks

Argument = tuple[int, Path]


def square(argument: Argument) -> bytes:
    """Leaves a trace of every call, so that a test can count them."""
    number, folder = argument
    with (folder / "calls").open("a") as calls:
        calls.write(f"{number}\n")
    return str(number**2).encode()


def interrupted(argument: Argument) -> bytes:
    if argument[0] == 2:
        raise KeyboardInterrupt
    return square(argument)


def wrong(argument: Argument) -> bytes:
    if argument[0] == 2:
        raise LookupError("two is not there")
    return square(argument)


def killed_once(argument: Argument) -> bytes:
    number, folder = argument
    if number == 1 and not (folder / "killed").exists():
        (folder / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return square(argument)


def always_killed(argument: Argument) -> bytes:
    if argument[0] == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return square(argument)


def half_done(argument: Argument) -> bytes:
    """Stops the first time, and finds what it had done the second time."""
    folder = tasks(argument[1], 1)[0].scratch(argument[1])
    folder.mkdir(exist_ok=True)
    if not (folder / "half").exists():
        (folder / "half").write_text("half")
        raise KeyboardInterrupt
    return (folder / "half").read_bytes()


def products(argument: Argument) -> bytes:
    """Sums that depend in the last bit on the order they are taken in."""
    square(argument)
    matrix = np.random.default_rng(argument[0]).normal(size=(300, 300))
    return (matrix @ matrix @ matrix).tobytes()


def held(argument: Argument) -> bytes:
    """From the third on, write which process computes it and wait for the file ``go``."""
    number, folder = argument
    content = square(argument)
    if number >= 2:
        (folder / f"worker-of-{number}").write_text(str(os.getpid()))
        while not (folder / "go").exists():
            time.sleep(0.05)
    return content


def threads(argument: Argument) -> bytes:
    np.ones((2, 2)) @ np.ones((2, 2))
    return json.dumps(sorted({pool["num_threads"] for pool in threadpool_info()})).encode()


def tasks(folder: Path, count: int = 4) -> list[Task[Argument]]:
    return [Task(f"Square of {number}", {"number": number, "version": 1}, (number, folder)) for number in range(count)]


def calls(folder: Path) -> list[int]:
    path = folder / "calls"
    return sorted(map(int, path.read_text().split())) if path.exists() else []


def finished(folder: Path) -> list[int]:
    """Numbers of the tasks whose results are there."""
    return sorted(int(path.name.split("-")[2]) for path in (folder / "work").glob("square-of-*.json"))


def main(function: str, engine: str, workers: str, folder: str, count: str, address: str | None = None) -> None:
    work: Callable[[Argument], bytes] = globals()[function]
    path = Path(folder)
    options = {"workers": int(workers), "engine": engine, "address": address}
    results = map_tasks(work, tasks(path, int(count)), path / "work", **options)
    sys.stdout.write(f"{hashlib.sha256(b''.join(results)).hexdigest()} {len(results)}\n")


if __name__ == "__main__":
    # Under its importable name: workers of either engine find it the same way.
    from support import tasks as module

    module.main(*sys.argv[1:])
