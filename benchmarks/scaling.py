"""Writes the part on many runs of docs/performance.md: ``python benchmarks/scaling.py``.

It takes some minutes and needs Ray and two idle cores.

Parts take turns (one worker, two, one, two …), so that a busy moment hits both; medians and ranges over turns.
"""

import argparse
import importlib
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import ray
from joblib import cpu_count

from topicscope.commands.sweep import sweep
from topicscope.settings.sweep import Sweep
from topicscope.work import Task, map_tasks
from training_steps import write_part

# Items of about a second, so that starting workers is not what is measured.
WORK_STEPS = 1_000
WORK_ITEMS = 8
EMPTY_ITEMS = 200
SHORT: dict[str, object] = {
    "data": {"topics": 5, "words": 5, "length": [20, 40], "fresh": True},
    "model": {
        "embedding": {"start": "identity", "train": False},
        **{part: {"scale": 0.001} for part in ("value", "key", "query")},
        **{part: {"train": False} for part in ("key_bias", "query_bias", "value_bias", "prediction_bias")},
    },
    "training": {"steps": 100, "snapshots": 0, "validation_documents": 200},
}


def busy(number: int) -> bytes:
    """About a second of what workers do: small matrix products from Python, on one thread."""
    matrix = np.random.default_rng(number).normal(size=(100, 100)) / 10
    state = matrix
    for _ in range(WORK_STEPS * 10):
        state = np.tanh(matrix @ state)
    return state.tobytes()


def empty(number: int) -> bytes:
    return b""


def seconds(function: Callable[[int], bytes], count: int, engine: str, workers: int) -> float:
    """Of a map, from its call to its last result."""
    tasks = [Task(str(number), {"number": number}, number) for number in range(count)]
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        map_tasks(function, tasks, Path(folder), engine=engine, workers=workers)
        return time.perf_counter() - began


def sweep_seconds(engine: str, runs: int) -> float:
    """A sweep of short runs: 25 combinations, eight seeds each, in one tensor; start of workers included."""
    rates = tuple(float(rate) for rate in np.geomspace(0.003, 0.3, runs // 8))
    asked = Sweep(settings=SHORT, vary={"training.learning_rate": rates}, seeds=tuple(range(8)))
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        result = sweep(asked, Path(folder) / "sweep", engine=engine, workers=2)
        assert len(result.rows) == runs
        return time.perf_counter() - began


def spread(values: list[float], digits: int = 2) -> str:
    return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f}–{max(values):,.{digits}f})"


def measure(turns: int, runs: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        found.setdefault(name, []).append(value)
        print(f"{name}: {value:.3f}", flush=True)

    for _ in range(turns):
        one, two = (seconds(busy, WORK_ITEMS, "local", workers) for workers in (1, 2))
        note("local 1 → 2", one / two)
        note("local per item, ms", 1e3 * seconds(empty, EMPTY_ITEMS, "local", 1) / EMPTY_ITEMS)
        for engine in ("local", "ray"):
            note(f"{engine} start, s", seconds(empty, 2, engine, 2))
            note(f"{engine} runs per minute", 60 * runs / sweep_seconds(engine, runs))
    return found


def page(found: dict[str, list[float]], turns: int, runs: int) -> str:
    load = os.getloadavg()[0]
    lines = [
        "## Many runs\n",
        "Written by `benchmarks/scaling.py`; do not edit. "
        f"Python {platform.python_version()}, {platform.machine()}, {cpu_count()} cores, "
        f"Ray {ray.__version__}; load of the machine at the end {load:.1f}. "
        f"Medians over {turns} turns, least and most in brackets.\n",
        "| | local | Ray |",
        "|---|---:|---:|",
        f"| speed of two workers over one, {WORK_ITEMS} equal items | {spread(found['local 1 → 2'])} | |",
        f"| an empty item, ms, in one process | {spread(found['local per item, ms'])} | |",
        f"| two empty items with the start of two workers, s | {spread(found['local start, s'])} "
        f"| {spread(found['ray start, s'])} |",
        f"| runs per minute: a sweep of {runs} runs of 100 steps, eight seeds in one tensor, two workers, start "
        f"included | {spread(found['local runs per minute'], 0)} | {spread(found['ray runs per minute'], 0)} |",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--runs", type=int, default=200)
    options = parser.parse_args()
    found = measure(options.turns, options.runs)
    write_part("scaling", page(found, options.turns, options.runs))
    print(json.dumps(found))


if __name__ == "__main__":
    # Under its importable name: workers of either engine find it the same way.
    importlib.import_module("scaling").main()
