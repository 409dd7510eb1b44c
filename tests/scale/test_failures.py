"""Both engines as programs: equal to the bit, and killed, interrupted or out of disk they lose nothing finished."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from support import scale_work
from support.helpers import start_python
from support.scale_work import calls, finished, products, products_in_another_order

SOURCE = str(Path(scale_work.__file__))
# Ray takes seconds to start, and more on a busy machine.
LONGEST_WAIT = 120.0
ENGINES = ("local", pytest.param("ray", marks=pytest.mark.slow))


def start(function: str, engine: str, workers: int, folder: Path, count: int, *address: str) -> subprocess.Popen[str]:
    folder.mkdir(exist_ok=True)
    return start_python(SOURCE, function, engine, str(workers), str(folder), str(count), *address)


def digest(function: str, engine: str, workers: int, folder: Path, count: int, *address: str) -> str:
    """Run it to its end."""
    output, errors = start(function, engine, workers, folder, count, *address).communicate(timeout=LONGEST_WAIT)
    assert output, errors
    return output


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LONGEST_WAIT
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def worker_of(folder: Path, number: int) -> int:
    """The process that computes an item, once it does."""
    path = folder / f"worker-of-{number}"
    wait_for(lambda: path.exists() and bool(path.read_text()))
    return int(path.read_text())


def is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@contextlib.contextmanager
def held_program(engine: str, folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """A map of six items of which two are done and two under way."""
    program = start("held", engine, 2, folder, 6)
    try:
        worker_of(folder, 2), worker_of(folder, 3)
        wait_for(lambda: finished(folder) == [0, 1])
        yield program
    finally:
        program.kill()
        program.communicate()


def test_a_small_ray_gives_the_bits_of_the_local_engine(tmp_path: Path) -> None:
    on_ray = digest("products", "ray", 2, tmp_path / "ray", 3)
    assert on_ray == digest("products", "local", 1, tmp_path / "local", 3)
    # The control: the same numbers, added up in another order, have other bits.
    assert on_ray != digest("products_in_another_order", "local", 1, tmp_path / "other", 3)
    one, other = (np.frombuffer(work((0, tmp_path))) for work in (products, products_in_another_order))
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-9)


@pytest.mark.slow
def test_items_with_more_threads_than_there_are_workers_are_computed_on_ray_too(tmp_path: Path) -> None:
    on_ray = digest("threads", "ray", 1, tmp_path / "ray", 2)
    assert on_ray == digest("threads", "local", 1, tmp_path / "local", 2)


@pytest.mark.slow
def test_both_engines_give_the_same_bits_for_1_2_and_4_workers(tmp_path: Path) -> None:
    found = {
        digest("products", engine, workers, tmp_path / f"{engine}-{workers}", 8)
        for engine in ("local", "ray")
        for workers in (1, 2, 4)
    }
    assert len(found) == 1


@pytest.mark.parametrize("engine", ENGINES)
def test_the_item_of_a_killed_worker_is_done_again_and_no_other(tmp_path: Path, engine: str) -> None:
    with held_program(engine, tmp_path) as program:
        os.kill(worker_of(tmp_path, 2), signal.SIGKILL)
        (tmp_path / "go").touch()
        output, errors = program.communicate(timeout=LONGEST_WAIT)
        assert program.returncode == 0, errors
    assert output.endswith(" 6\n")
    assert calls(tmp_path) == [0, 1, 2, 2, 3, 4, 5]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_map_leaves_no_worker_and_goes_on_with_what_is_missing(
    tmp_path: Path, engine: str, stop: signal.Signals
) -> None:
    with held_program(engine, tmp_path) as program:
        workers = [worker_of(tmp_path, number) for number in (2, 3)]
        assert all(map(is_running, workers))
        program.send_signal(stop)
        program.wait(timeout=LONGEST_WAIT)
        wait_for(lambda: not any(map(is_running, workers)))
    assert finished(tmp_path) == [0, 1]
    (tmp_path / "go").touch()
    # Whichever engine began it, the other can go on.
    again = digest("held", "local" if engine == "ray" else engine, 2, tmp_path, 6)
    assert again.endswith(" 6\n")
    assert calls(tmp_path) == [0, 1, 2, 2, 3, 3, 4, 5]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="it takes a system that lists processes")
def test_a_worker_that_ctrl_c_reaches_while_it_starts_says_nothing_and_does_its_work(tmp_path: Path) -> None:
    program = start("square", "local", 2, tmp_path, 4)
    reached = set()
    while program.poll() is None:
        # From its first moment on: workers are children of the program.
        for children in Path(f"/proc/{program.pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                for child in map(int, children.read_text().split()):
                    os.kill(child, signal.SIGINT)
                    reached.add(child)
        time.sleep(0.002)
    output, errors = program.communicate()
    assert (program.returncode, errors) == (0, "")
    assert output.endswith(" 4\n")
    assert len(reached) >= 2


@pytest.mark.slow
def test_ray_computes_only_what_the_local_engine_left_missing_or_damaged(tmp_path: Path) -> None:
    whole = digest("products", "local", 2, tmp_path, 4)
    damaged = next((tmp_path / "work").glob("square-of-1-*.bin"))
    damaged.write_bytes(damaged.read_bytes()[:1000])
    assert digest("products", "ray", 2, tmp_path, 4) == whole
    assert calls(tmp_path) == [0, 1, 1, 2, 3]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no small disk can be mounted here: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.mark.parametrize("engine", ENGINES)
def test_on_a_full_disk_what_was_finished_is_kept_and_nothing_half_written_is_used(
    small_disk: Path, engine: str
) -> None:
    program = start("large", engine, 2, small_disk, 6)
    _, errors = program.communicate(timeout=LONGEST_WAIT)
    assert program.returncode == 1
    assert "No space left on device" in errors
    kept = finished(small_disk)
    assert 0 < len(kept) < 6
    # Parts of files are not left to fill the disk.
    assert not list((small_disk / "work").glob(".*"))
    subprocess.run(["mount", "-o", "remount,size=16m", str(small_disk)], check=True)
    before = calls(small_disk)
    assert digest("large", engine, 2, small_disk, 6).endswith(" 6\n")
    redone = [number for number in range(6) if calls(small_disk).count(number) > before.count(number)]
    assert redone == [number for number in range(6) if number not in kept]
