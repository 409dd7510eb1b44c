"""A map over tasks: results in order, computed once, by any worker; killed, it loses nothing finished."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import topicscope
from support import tasks as tasks_module
from support.helpers import start_python
from support.tasks import (
    always_killed,
    calls,
    finished,
    half_done,
    interrupted,
    killed_once,
    square,
    tasks,
    threads,
    wrong,
)
from topicscope.errors import InputError, LostWorkError
from topicscope.work import (
    Task,
    completed,
    content_digest,
    map_tasks,
)

LONGEST_WAIT = 120.0
SQUARES = [b"0", b"1", b"4", b"9"]


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LONGEST_WAIT
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def is_running(process: int) -> bool:
    """Linux also tells a process that has ended, but which nobody has waited for."""
    try:
        if not sys.platform.startswith("linux"):
            os.kill(process, 0)
            return True
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_the_tasks_order_and_are_computed_once(tmp_path: Path, workers: int) -> None:
    seen: list[tuple[int, int, str]] = []
    folder = tmp_path / "work"
    first = map_tasks(square, tasks(tmp_path)[:2], folder, workers=1)
    again = Task("Square of 3", tasks(tmp_path)[3].key, (3, tmp_path))
    results = map_tasks(
        square, [*tasks(tmp_path), again], folder, workers=workers, report=lambda *progress: seen.append(progress)
    )
    assert first == SQUARES[:2]
    assert results == [*SQUARES, b"9"]
    assert [number for number, _, _ in seen] == [1, 2, 3, 4, 5]
    assert {total for _, total, _ in seen} == {5}
    assert calls(tmp_path) == [0, 1, 2, 3]


def test_another_key_or_version_is_another_result(tmp_path: Path) -> None:
    one = Task("x", {"a": 1, "b": 2, "version": 1}, (2, tmp_path))
    assert one.path(tmp_path) == Task("x", {"version": 1, "b": 2, "a": 1}, (2, tmp_path)).path(tmp_path)
    assert one.path(tmp_path) != Task("x", {"a": 1, "b": 2, "version": 2}, (2, tmp_path)).path(tmp_path)
    assert content_digest({"a": 1.0}) != content_digest({"a": 2.0})


def test_results_come_as_they_are_finished_and_ctrl_c_keeps_them(tmp_path: Path) -> None:
    assert next(completed(square, tasks(tmp_path), tmp_path / "work", workers=1)) == (0, b"0")
    assert calls(tmp_path) == [0]
    with pytest.raises(KeyboardInterrupt):
        map_tasks(interrupted, tasks(tmp_path), tmp_path / "work", workers=1)
    assert map_tasks(square, tasks(tmp_path), tmp_path / "work", workers=1) == SQUARES
    assert calls(tmp_path) == [0, 1, 2, 3]


def test_unfinished_work_of_a_task_is_there_when_it_resumes_and_gone_when_it_is_done(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        map_tasks(half_done, tasks(tmp_path, 1), tmp_path, workers=1)
    assert map_tasks(half_done, tasks(tmp_path, 1), tmp_path, workers=1) == [b"half"]
    assert not list(tmp_path.glob("*.partial"))


def test_killed_workers_are_replaced_and_a_task_that_kills_each_is_named_after_three_attempts(tmp_path: Path) -> None:
    assert map_tasks(killed_once, tasks(tmp_path), tmp_path / "once", workers=2) == SQUARES
    assert (tmp_path / "killed").exists()
    with pytest.raises(LostWorkError, match=r'^"Square of 1" was lost with its worker 3 times .* run it again\.$'):
        map_tasks(always_killed, tasks(tmp_path), tmp_path / "work", workers=2)
    # What was finished is kept.
    assert map_tasks(square, tasks(tmp_path), tmp_path / "work", workers=1) == SQUARES


def test_what_the_function_raises_arrives_and_workers_have_one_thread(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="two is not there"):
        map_tasks(wrong, tasks(tmp_path), tmp_path / "wrong", workers=2)
    for workers in (1, 2):
        results = map_tasks(threads, tasks(tmp_path, 2), tmp_path / f"threads{workers}", workers=workers)
        assert [json.loads(content) for content in results] == [[1], [1]]


def test_a_killed_program_leaves_no_worker_and_resumes_with_what_is_missing(tmp_path: Path) -> None:
    program = start_python(str(tasks_module.__file__), "held", "local", "2", str(tmp_path), "4")
    paths = [tmp_path / f"worker-of-{number}" for number in (2, 3)]
    wait_for(lambda: all(path.exists() and path.read_text() for path in paths) and finished(tmp_path) == [0, 1])
    workers = [int(path.read_text()) for path in paths]
    assert all(map(is_running, workers))
    program.kill()
    program.communicate()
    wait_for(lambda: not any(map(is_running, workers)))
    assert finished(tmp_path) == [0, 1]
    assert map_tasks(square, tasks(tmp_path), tmp_path / "work", workers=1) == SQUARES
    assert calls(tmp_path) == [0, 1, 2, 2, 3, 3]


def test_a_program_stopped_by_ctrl_c_ends_at_once_and_without_a_word_of_its_workers(tmp_path: Path) -> None:
    program = start_python(str(tasks_module.__file__), "held", "local", "2", str(tmp_path), "4", own_group=True)
    wait_for(lambda: (tmp_path / "worker-of-3").exists() and finished(tmp_path) == [0, 1])
    # As a terminal does: to the whole group.
    os.killpg(program.pid, signal.SIGINT)
    _, errors = program.communicate(timeout=LONGEST_WAIT)
    assert errors.count("Traceback") == 1
    assert errors.endswith("KeyboardInterrupt\n")
    assert finished(tmp_path) == [0, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "cloud"}, "give one of local, ray"),
        ({"address": "auto"}, '--address = "auto" is not allowed with --engine local'),
        ({"workers": 0}, "--workers = 0 is not allowed"),
        ({"engine": "ray", "address": "127.0.0.1:1"}, '--address = "127.0.0.1:1" cannot be reached'),
        ({"engine": "ray", "address": "ray://10.0.0.1:10001"}, '--address = "ray://10.0.0.1:10001" cannot be reached'),
        ({"engine": "ray", "address": "10.0.0.1"}, '--address = "10.0.0.1" cannot be reached'),
    ],
)
def test_options_that_cannot_be_are_refused_in_one_sentence(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        map_tasks(square, tasks(tmp_path), tmp_path / "work", **options)
    assert "\n" not in str(caught.value)
    assert calls(tmp_path) == []


@pytest.mark.slow
def test_ray_gives_the_bits_of_the_local_engine_and_retries_a_killed_worker(tmp_path: Path) -> None:
    def digest(function: str, engine: str) -> str:
        folder = tmp_path / f"{function}-{engine}"
        folder.mkdir()
        program = start_python(str(tasks_module.__file__), function, engine, "2", str(folder), "3")
        output, errors = program.communicate(timeout=LONGEST_WAIT)
        assert program.returncode == 0, errors
        # Ray itself prints a line above about a worker that died.
        return output.splitlines()[-1]

    assert digest("products", "ray") == digest("products", "local")
    assert digest("killed_once", "ray") == digest("square", "local")


@pytest.mark.slow
def test_two_machines_of_a_cluster_give_the_bits_of_the_local_engine_and_a_lost_head_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray.cluster_utils import Cluster

    def start(function: str, folder: Path, address: str = "") -> "subprocess.Popen[str]":
        folder.mkdir()
        words = (function, "ray" if address else "local", "2", str(folder), "4", *([address] if address else []))
        return start_python(str(tasks_module.__file__), *words, environment={"RAY_ADDRESS": cluster.address})

    # Workers of the cluster import the code under test.
    monkeypatch.setenv(
        "PYTHONPATH",
        os.pathsep.join(map(str, (Path(topicscope.__file__).parents[1], Path(tasks_module.__file__).parents[1]))),
    )
    machine = {"num_cpus": 1, "object_store_memory": 10**8}
    cluster = Cluster(initialize_head=True, head_node_args={**machine, "include_dashboard": False})
    try:
        cluster.add_node(**machine)
        local, _ = start("products", tmp_path / "local").communicate(timeout=LONGEST_WAIT)
        for address in (cluster.address, "auto"):
            folder = tmp_path / address.replace(":", "-")
            output, _ = start("products", folder, address).communicate(timeout=LONGEST_WAIT)
            assert output == local
        program = start("held", tmp_path / "held", cluster.address)
        wait_for(lambda: (tmp_path / "held" / "worker-of-3").exists())
        cluster.head_node.kill_all_processes(check_alive=False, allow_graceful=False)
        _, errors = program.communicate(timeout=LONGEST_WAIT)
        assert "LostWorkError: The head of the Ray cluster at" in errors.splitlines()[-1]
        assert finished(tmp_path / "held") == [0, 1]
    finally:
        cluster.shutdown()
