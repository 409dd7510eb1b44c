import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import topicscope
from topicscope.errors import InputError
from topicscope.scale import Item, completed, map_items, read_result, write_result


def squares(folder: Path, count: int = 4) -> list[Item[tuple[int, Path]]]:
    return [Item(f"Square of {number}", {"number": number, "version": 1}, (number, folder)) for number in range(count)]


def square(argument: tuple[int, Path]) -> bytes:
    """Leaves a trace of every call, so that a test can count them."""
    number, folder = argument
    with (folder / "calls").open("a") as calls:
        calls.write(f"{number}\n")
    return str(number**2).encode()


def calls(folder: Path) -> list[int]:
    path = folder / "calls"
    return sorted(map(int, path.read_text().split())) if path.exists() else []


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_the_items_order_whoever_computes_them(tmp_path: Path, workers: int) -> None:
    seen: list[tuple[int, int, str]] = []
    results = map_items(
        square,
        squares(tmp_path),
        folder=tmp_path / "work",
        workers=workers,
        report=lambda done, total, name: seen.append((done, total, name)),
    )
    assert results == [b"0", b"1", b"4", b"9"]
    assert [done for done, _, _ in seen] == [1, 2, 3, 4]
    assert calls(tmp_path) == [0, 1, 2, 3]


def test_what_is_there_and_whole_is_not_computed_again(tmp_path: Path) -> None:
    items = squares(tmp_path)
    first = map_items(square, items[:2], folder=tmp_path / "work")
    assert map_items(square, items, folder=tmp_path / "work")[:2] == first
    assert calls(tmp_path) == [0, 1, 2, 3]


def test_another_key_is_another_result(tmp_path: Path) -> None:
    item = squares(tmp_path)[2]
    other = Item(item.name, {**item.key, "version": 2}, item.argument)
    reordered = Item(item.name, dict(reversed(list(item.key.items()))), item.argument)
    assert item.digest != other.digest
    assert item.digest == reordered.digest
    map_items(square, [item, other], folder=tmp_path / "work")
    assert calls(tmp_path) == [2, 2]


@pytest.mark.parametrize("damage", ["truncated", "changed", "without checksum", "empty checksum"])
def test_a_damaged_result_is_not_used_but_computed_again(tmp_path: Path, damage: str) -> None:
    item = squares(tmp_path)[3]
    folder = tmp_path / "work"
    map_items(square, [item], folder=folder)
    path = item.path(folder)
    checksum = path.with_name(path.name + ".sha256")
    assert read_result(path) == b"9"
    if damage == "without checksum":
        checksum.unlink()
    elif damage == "empty checksum":
        checksum.write_text("")
    else:
        path.write_bytes(b"" if damage == "truncated" else b"8")
    assert read_result(path) is None
    assert map_items(square, [item], folder=folder) == [b"9"]
    assert calls(tmp_path) == [3, 3]


def interrupted(argument: tuple[int, Path]) -> bytes:
    if argument[0] == 2:
        raise KeyboardInterrupt
    return square(argument)


def test_ctrl_c_keeps_finished_items(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        map_items(interrupted, squares(tmp_path), folder=tmp_path / "work")
    assert calls(tmp_path) == [0, 1]
    assert map_items(square, squares(tmp_path), folder=tmp_path / "work") == [b"0", b"1", b"4", b"9"]
    assert calls(tmp_path) == [0, 1, 2, 3]


def killed_once(argument: tuple[int, Path]) -> bytes:
    number, folder = argument
    if number == 1 and not (folder / "killed").exists():
        (folder / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return square(argument)


def test_the_work_of_a_killed_worker_is_taken_up_again(tmp_path: Path) -> None:
    assert map_items(killed_once, squares(tmp_path), folder=tmp_path / "work", workers=2) == [b"0", b"1", b"4", b"9"]
    assert (tmp_path / "killed").exists()


PROGRAM = """
    import pathlib, sys, time
    from topicscope.scale import Item, map_items

    def slow(number):
        pathlib.Path(sys.argv[1], f"began-{number}").touch()
        time.sleep(0.1 if number < 2 else 600)
        return b"done"

    if __name__ == "__main__":
        items = [Item(f"item {number}", {"number": number}, number) for number in range(6)]
        map_items(slow, items, folder=pathlib.Path(sys.argv[1], "work"), workers=2)
"""


@pytest.fixture
def slow_program(tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(PROGRAM))
    environment = os.environ | {"PYTHONPATH": str(Path(topicscope.__file__).parents[1])}
    process = subprocess.Popen([sys.executable, str(script), str(tmp_path)], env=environment, start_new_session=True)
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_map_keeps_finished_items_and_leaves_no_process(
    tmp_path: Path, slow_program: "subprocess.Popen[bytes]", stop: signal.Signals
) -> None:
    wait_for(lambda: (tmp_path / "began-2").exists() and (tmp_path / "began-3").exists())
    slow_program.send_signal(stop)
    slow_program.wait(timeout=20)
    # Its process group is empty once the workers are gone too.
    wait_for(lambda: not group_exists(slow_program.pid))
    kept = sorted(path.name for path in (tmp_path / "work").glob("*.bin"))
    assert [name.split("-")[1] for name in kept] == ["0", "1"]


def wait_for(condition: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_an_unknown_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give one of local"):
        list(completed(square, squares(tmp_path), folder=tmp_path, engine="cloud"))


def test_equal_work_under_two_names_is_done_once(tmp_path: Path) -> None:
    first, second = (Item(name=name, key={"what": 1}, argument=1) for name in ("figure10/a", "figure4/b"))
    write_result(first.path(tmp_path), b"done")
    assert second.path(tmp_path) == first.path(tmp_path)
    assert Item(name="figure10/a", key={"what": 2}, argument=1).path(tmp_path) != first.path(tmp_path)
