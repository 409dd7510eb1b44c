"""A map over items: results in order, computed once, by whichever worker is there."""

import json
import os
import signal
import threading
from pathlib import Path

import pytest

from support.helpers import start_python
from support.scale_work import calls, interrupted, items, killed_once, process, square, stuck, threads, wrong
from topicscope import scale
from topicscope.errors import InputError, LostWorkError
from topicscope.scale import Item, completed, keeping_workers, map_items, read_result


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_the_items_order_whoever_computes_them(tmp_path: Path, workers: int) -> None:
    seen: list[tuple[int, int, str]] = []
    results = map_items(
        square,
        items(tmp_path),
        folder=tmp_path / "work",
        workers=workers,
        report=lambda done, total, name: seen.append((done, total, name)),
    )
    assert results == [b"0", b"1", b"4", b"9"]
    assert [done for done, _, _ in seen] == [1, 2, 3, 4]
    assert calls(tmp_path) == [0, 1, 2, 3]


def test_what_is_there_and_whole_is_not_computed_again(tmp_path: Path) -> None:
    four = items(tmp_path)
    first = map_items(square, four[:2], folder=tmp_path / "work")
    assert map_items(square, four, folder=tmp_path / "work")[:2] == first
    assert calls(tmp_path) == [0, 1, 2, 3]


@pytest.mark.parametrize("damage", ["truncated", "changed", "without checksum", "empty checksum"])
def test_a_damaged_result_is_not_used_but_computed_again(tmp_path: Path, damage: str) -> None:
    item = items(tmp_path)[3]
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


def processes(folder: Path, name: str) -> tuple[set[str], set[str]]:
    """The processes of a map by two workers, and whether each had loaded the module."""
    found = [each.decode().split() for each in map_items(process, items(folder), folder=folder / name, workers=2)]
    return {number for number, _ in found}, {loaded for _, loaded in found}


def test_kept_workers_serve_one_map_after_the_other_with_what_they_loaded(tmp_path: Path) -> None:
    with keeping_workers(2, ("wave", "no_such_module")):
        first, loaded = processes(tmp_path, "first")
        # One that dies while it waits is replaced.
        os.kill(int(min(first)), signal.SIGKILL)
        second, _ = processes(tmp_path, "second")
    assert loaded == {"True"}
    assert len(first) == 2
    assert first & second == first - {min(first)}
    assert not any(Path(f"/proc/{number}").exists() for number in first | second)
    # The control: without being kept they are others each time, and load nothing.
    third, loaded = processes(tmp_path, "third")
    assert not third & (first | second)
    assert loaded == {"False"}


def test_kept_workers_end_with_an_error_and_the_next_map_has_others(tmp_path: Path) -> None:
    with keeping_workers(2):
        first, _ = processes(tmp_path, "first")
        with pytest.raises(LookupError, match="two is not there"):
            map_items(wrong, items(tmp_path), folder=tmp_path / "work", workers=2)
        assert map_items(square, items(tmp_path), folder=tmp_path / "work", workers=2) == [b"0", b"1", b"4", b"9"]
    assert not any(Path(f"/proc/{number}").exists() for number in first)


def test_workers_end_if_ctrl_c_comes_while_they_are_started(monkeypatch: pytest.MonkeyPatch) -> None:
    started, ended = list[object](), list[object]()

    class Started:
        def __init__(self, modules: tuple[str, ...]) -> None:
            started.append(self)
            if len(started) == 2:
                # To this thread alone: another one, which does not block the signal, could take it at any time.
                signal.pthread_kill(threading.get_ident(), signal.SIGINT)

        def end(self) -> None:
            ended.append(self)

    monkeypatch.setattr(scale, "_Worker", Started)
    # Tests may run in a background job of a shell, which ignores Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), keeping_workers(2):
            pytest.fail("went on after Ctrl-C")
    finally:
        signal.signal(signal.SIGINT, before)
    # The second too, which was being started when Ctrl-C came.
    assert ended == started
    assert scale._kept is None


def test_ctrl_c_keeps_finished_items(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        map_items(interrupted, items(tmp_path), folder=tmp_path / "work")
    assert calls(tmp_path) == [0, 1]
    assert map_items(square, items(tmp_path), folder=tmp_path / "work") == [b"0", b"1", b"4", b"9"]
    assert calls(tmp_path) == [0, 1, 2, 3]


def test_the_work_of_a_killed_worker_is_taken_up_again(tmp_path: Path) -> None:
    assert map_items(killed_once, items(tmp_path), folder=tmp_path / "work", workers=2) == [b"0", b"1", b"4", b"9"]
    assert (tmp_path / "killed").exists()


UNGUARDED = """
import topicscope as ts
data = {"topics": 3, "words": 2, "length": [4, 9], "documents": 30}
sweep = ts.Sweep(settings={"data": data, "training": {"steps": 2}}, vary={"training.learning_rate": [0.1, 0.2]})
"""


@pytest.mark.parametrize("ready", [0, 2])
def test_a_script_that_asks_for_work_while_it_is_imported_is_told_to_have_a_guard(tmp_path: Path, ready: int) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from pathlib import Path\n"
        "from support.scale_work import items, square\n"
        "from topicscope.scale import keeping_workers, map_items\n"
        f"folder = Path({str(tmp_path)!r})\n"
        f"with keeping_workers({ready}):\n"
        "    map_items(square, items(folder), folder=folder / 'work', workers=2)\n"
    )
    _, errors = start_python(str(script)).communicate()
    assert 'put it below if __name__ == "__main__":' in errors.splitlines()[-1]
    # One traceback, the script's own, and none of the workers or of their pipes.
    assert errors.count("Traceback") == 1
    assert "spawn" not in errors


@pytest.mark.slow
def test_a_sweep_without_a_guard_is_told_to_have_one_and_leaves_nothing(tmp_path: Path) -> None:
    script, out = tmp_path / "script.py", tmp_path / "out"
    call = f"ts.sweep(sweep, {str(out)!r}, workers=2)"
    script.write_text(f"{UNGUARDED}\n{call}\n")
    process = start_python(str(script))
    _, errors = process.communicate()
    assert process.returncode == 1
    assert 'put it below if __name__ == "__main__":' in errors.splitlines()[-1]
    # One traceback, the script's own, and none of the workers or of their pipes.
    assert errors.count("Traceback") == 1
    assert "spawn" not in errors
    assert not out.exists()
    # Control: with the guard it works.
    script.write_text(f"{UNGUARDED}\nif __name__ == '__main__':\n    print(len({call}.rows))\n")
    printed, errors = start_python(str(script)).communicate()
    assert (printed, errors) == ("2\n", "")


def test_an_unknown_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give one of local, ray"):
        list(completed(square, items(tmp_path), folder=tmp_path, engine="cloud"))


def test_work_that_appears_twice_in_a_map_is_done_once(tmp_path: Path) -> None:
    item = items(tmp_path)[3]
    again = Item("The same", item.key, item.argument)
    assert map_items(square, [item, again], folder=tmp_path / "work", workers=2) == [b"9", b"9"]
    assert calls(tmp_path) == [3]


def test_an_item_that_takes_too_long_is_ended_tried_three_times_and_named(tmp_path: Path) -> None:
    with pytest.raises(LostWorkError, match=r'"Square of 2" was lost .* over the 1 s allowed'):
        map_items(stuck, items(tmp_path, 3), folder=tmp_path / "work", timeout=1.0)
    assert calls(tmp_path) == [0, 1, 2, 2, 2]
    # What was finished is kept, and the same work is not refused for ever.
    assert map_items(square, items(tmp_path, 3), folder=tmp_path / "work") == [b"0", b"1", b"4"]
    assert calls(tmp_path) == [0, 1, 2, 2, 2, 2]


def test_what_the_function_raises_arrives_as_it_was_raised(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="two is not there") as caught:
        map_items(wrong, items(tmp_path), folder=tmp_path / "work", workers=2)
    # The message has the place in the worker where it was raised.
    assert "scale_work.py" in caught.value.__notes__[0]
    assert 2 not in calls(tmp_path)


@pytest.mark.parametrize("workers", [1, 2])
def test_threads_belong_to_the_item_not_to_the_worker(tmp_path: Path, workers: int) -> None:
    two = [Item(f"{count}", {}, (0, tmp_path), threads=count) for count in (1, 2)]
    assert two[0].digest != two[1].digest
    found = [json.loads(content) for content in map_items(threads, two, folder=tmp_path / "work", workers=workers)]
    assert found == [[1], [2]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"address": "auto"}, '--address = "auto" is not allowed with --engine local'),
        ({"workers": 0}, "--workers = 0 is not allowed"),
        ({"timeout": 0.0}, r"--timeout = 0\.0 is not allowed"),
        ({"engine": "ray", "address": "127.0.0.1:1"}, '--address = "127.0.0.1:1" cannot be reached'),
        ({"engine": "ray", "address": "ray://10.0.0.1:10001"}, "ray://, are not supported"),
        ({"engine": "ray", "address": "10.0.0.1"}, '--address = "10.0.0.1" is not allowed'),
    ],
)
def test_options_that_cannot_be_are_refused_in_one_sentence(
    tmp_path: Path, options: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        map_items(square, items(tmp_path), folder=tmp_path / "work", **options)
    assert "\n" not in str(caught.value)
    assert calls(tmp_path) == []
