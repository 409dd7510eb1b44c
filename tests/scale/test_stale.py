"""What is half done is kept for the item that it is of, and goes when no item can take it up again."""

from pathlib import Path

import pytest

from topicscope.scale import Item, map_items, scratch_folder


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
