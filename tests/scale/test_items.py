"""Items are known by their keys; what is half done of one is kept for it, and goes when none can take it up again."""

from pathlib import Path

import pytest

from support.scale_work import calls, items, square
from topicscope.errors import InputError
from topicscope.files import alone_in
from topicscope.scale import Item, map_items, scratch_folder, shared_folder, write_result


class StoppedError(Exception):
    """As by Ctrl-C."""


def stop(name: str) -> bytes:
    with scratch_folder() as own:
        (own / "half").write_text(name)
    raise StoppedError


def finish(name: str) -> bytes:
    """What an earlier call left of this item."""
    with scratch_folder() as own:
        return b" ".join(path.read_bytes() for path in own.iterdir())


def item(name: str, code: str, seed: int = 0) -> Item[str]:
    return Item(name, {"name": name, "code": code, "seed": seed}, f"{name} by {code}")


def begun(folder: Path, *items: Item[str]) -> set[str]:
    """Stop in the midst of each; what is half done then."""
    for each in items:
        with pytest.raises(StoppedError):
            map_items(stop, [each], folder=folder)
    return half_done(folder)


def half_done(folder: Path) -> set[str]:
    return {(path / "half").read_text() for path in folder.glob("*.partial")}


def test_half_done_work_of_older_code_goes_when_the_same_work_is_asked_for(tmp_path: Path) -> None:
    assert begun(tmp_path, item("a", "old"), item("b", "old")) == {"a by old", "b by old"}
    # Other work may still be asked for by the old code.
    assert map_items(finish, [item("a", "new")], folder=tmp_path) == [b""]
    assert half_done(tmp_path) == {"b by old"}
    # The control: by the same code it is taken up.
    assert map_items(finish, [item("b", "old")], folder=tmp_path) == [b"b by old"]
    assert half_done(tmp_path) == set()


def test_half_done_work_of_items_that_share_a_name_is_kept_for_each(tmp_path: Path) -> None:
    both = [item("a", "new", seed) for seed in (1, 2)]
    with pytest.raises(StoppedError):
        map_items(stop, both, folder=tmp_path)
    [first] = tmp_path.glob("*.partial")
    with pytest.raises(StoppedError):
        map_items(stop, list(reversed(both)), folder=tmp_path)
    assert first.exists()
    assert len(list(tmp_path.glob("*.partial"))) == 2
    assert map_items(finish, both, folder=tmp_path) == [b"a by new"] * 2


def test_what_a_process_killed_after_its_result_left_goes_and_other_folders_stay(tmp_path: Path) -> None:
    asked = item("a", "new")
    assert map_items(finish, [asked], folder=tmp_path) == [b""]
    left = asked.path(tmp_path).with_name(asked.path(tmp_path).name + ".partial")
    left.mkdir()
    for name in ("mine.partial", "shared", "b-0.bin.partial"):
        (tmp_path / name).mkdir()
    assert map_items(finish, [asked], folder=tmp_path) == [b""]
    assert not left.exists()
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"mine.partial", "shared", "b-0.bin.partial"}


def test_another_key_is_another_result(tmp_path: Path) -> None:
    item = items(tmp_path)[2]
    other = Item(item.name, {**item.key, "version": 2}, item.argument)
    reordered = Item(item.name, dict(reversed(list(item.key.items()))), item.argument)
    assert item.digest != other.digest
    assert item.digest == reordered.digest
    map_items(square, [item, other], folder=tmp_path / "work")
    assert calls(tmp_path) == [2, 2]


def test_equal_work_under_two_names_is_done_once(tmp_path: Path) -> None:
    first, second = (Item(name=name, key={"what": 1}, argument=1) for name in ("figure10/a", "figure4/b"))
    write_result(first.path(tmp_path), b"done")
    assert second.path(tmp_path) == first.path(tmp_path)
    assert Item(name="figure10/a", key={"what": 2}, argument=1).path(tmp_path) != first.path(tmp_path)


def test_a_second_process_is_kept_out_of_what_is_half_done_until_the_first_has_left(tmp_path: Path) -> None:
    def work(name: str) -> bytes:
        with scratch_folder() as own:
            (own / "half").write_text(name)
        return name.encode()

    item = Item("a", {"name": "a"}, "a")
    half_done = item.path(tmp_path).with_name(item.path(tmp_path).name + ".partial")
    half_done.mkdir()
    # A lock is of the opened folder, so this process's own keeps it out as another's would.
    with alone_in(half_done):
        with pytest.raises(InputError, match=r"\.partial is being worked in by another process: wait for it"):
            map_items(work, [item], folder=tmp_path)
        assert not list(half_done.iterdir())
    assert map_items(work, [item], folder=tmp_path) == [b"a"]
    assert not half_done.exists()


def test_items_share_a_folder_beside_their_results_and_have_one_each_while_half_done(tmp_path: Path) -> None:
    def work(name: str) -> bytes:
        with scratch_folder() as own, shared_folder() as shared:
            assert not list(own.iterdir())
            (own / "half").write_text(name)
            with (shared / "seen").open("a") as file:
                file.write(name)
            return (shared / "seen").read_bytes()

    both = [Item(name, {"name": name}, name) for name in "ab"]
    assert map_items(work, both, folder=tmp_path) == [b"a", b"ab"]
    assert not list(tmp_path.glob("*.partial"))
    # Outside of an item, what is shared is shared with nobody.
    assert work("c") == work("c") == b"c"
