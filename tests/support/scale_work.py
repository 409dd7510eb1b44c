"""What the tests of scale map, as functions that workers can import; and a map as a program of its own.

``python scale_work.py FUNCTION ENGINE WORKERS FOLDER COUNT [ADDRESS]`` prints one digest of all results.
"""

import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info

from topicscope.scale import Item, map_items

Argument = tuple[int, Path]


def square(argument: Argument) -> bytes:
    """Leaves a trace of every call, so that a test can count them."""
    number, folder = argument
    with (folder / "calls").open("a") as calls:
        calls.write(f"{number}\n")
    return str(number**2).encode()


def process(argument: Argument) -> bytes:
    """Which process computes, and whether it has loaded a module. It sleeps, so that every worker gets an item."""
    time.sleep(0.5)
    return f"{os.getpid()} {'wave' in sys.modules}".encode()


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


def stuck(argument: Argument) -> bytes:
    content = square(argument)
    if argument[0] == 2:
        time.sleep(600)
    return content


def products(argument: Argument) -> bytes:
    """Sums that depend in the last bit on the order they are taken in."""
    square(argument)
    matrix = np.random.default_rng(argument[0]).normal(size=(300, 300))
    return (matrix @ matrix @ matrix).tobytes()


def products_in_another_order(argument: Argument) -> bytes:
    """The same numbers but for rounding."""
    square(argument)
    matrix = np.random.default_rng(argument[0]).normal(size=(300, 300))
    return (matrix @ (matrix @ matrix)).tobytes()


def held(argument: Argument) -> bytes:
    """From the third on, say who computes it and wait for the file ``go``."""
    number, folder = argument
    content = square(argument)
    if number >= 2:
        (folder / f"worker-of-{number}").write_text(str(os.getpid()))
        (folder / f"machine-of-{number}").write_text(machine())
        while not (folder / "go").exists():
            time.sleep(0.05)
    return content


def machine() -> str:
    """The address of the machine of a Ray cluster that computes this; empty on other engines."""
    ray = sys.modules.get("ray")
    return str(ray.util.get_node_ip_address()) if ray and ray.is_initialized() else ""


def large(argument: Argument) -> bytes:
    square(argument)
    return bytes(300_000)


def threads(argument: Argument) -> bytes:
    np.ones((2, 2)) @ np.ones((2, 2))
    return json.dumps(sorted({pool["num_threads"] for pool in threadpool_info()})).encode()


@dataclass(frozen=True)
class Gated:
    """Work that claims need, and that waits for a file."""

    name: str
    gate: Path
    cost = 1.0
    suffix = ".txt"

    def key(self, seeds: tuple[int, ...]) -> dict[str, Any]:
        return {"gate": str(self.gate), "seeds": list(seeds)}

    def compute(self, seeds: tuple[int, ...]) -> bytes:
        with self.gate.with_suffix(".tries").open("a") as tries:
            tries.write("x")
        while not self.gate.exists():
            time.sleep(0.05)
        return b"done"

    def restore(self, content: bytes) -> bytes:
        return content


def items(folder: Path, count: int = 4, threads: int = 1) -> list[Item[Argument]]:
    return [
        Item(f"Square of {number}", {"number": number, "version": 1}, (number, folder), threads=threads)
        for number in range(count)
    ]


def calls(folder: Path) -> list[int]:
    path = folder / "calls"
    return sorted(map(int, path.read_text().split())) if path.exists() else []


def finished(folder: Path) -> list[int]:
    """Numbers of the items whose results are there, checksum and all."""
    names = (path.name for path in (folder / "work").glob("square-of-*.sha256"))
    return sorted(int(name.split("-")[2]) for name in names)


def main(function: str, engine: str, workers: str, folder: str, count: str, address: str | None = None) -> None:
    work: Callable[[Argument], bytes] = globals()[function]
    path = Path(folder)
    work_items = items(path, int(count), threads=3 if function == "threads" else 1)
    results = map_items(work, work_items, folder=path / "work", workers=int(workers), engine=engine, address=address)
    sys.stdout.write(f"{hashlib.sha256(b''.join(results)).hexdigest()} {len(results)}\n")


if __name__ == "__main__":
    # Under its importable name: workers of either engine find it the same way.
    from support import scale_work

    scale_work.main(*sys.argv[1:])
