"""Files whole or not at all, what killed writers leave of them, and folders that one process has to itself."""

import errno
import os
from pathlib import Path
from threading import Thread

import pytest

from support.helpers import start_python
from topicscope.errors import InputError
from topicscope.store import LEFTOVER, alone_in, remove_leftovers, write_atomically

HOLDS = """
import sys, time
from pathlib import Path
from topicscope.store import alone_in
with alone_in(Path(sys.argv[1])):
    print("here", flush=True)
    time.sleep(600)
"""


def test_another_process_keeps_a_folder_until_it_is_killed_and_leaves_no_file(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "by the way"
    holder = start_python("-c", HOLDS, str(folder))
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "here\n"
        with pytest.raises(InputError, match=r"^it is taken\.$"), alone_in(folder, otherwise="it is taken."):
            pass
    finally:
        holder.kill()
        holder.communicate(timeout=60)
    # The controls: it is free afterwards, and another folder all the time.
    with alone_in(folder, otherwise="it is taken."), alone_in(tmp_path, otherwise="it is taken."):
        assert list(folder.iterdir()) == []


def test_without_a_sentence_the_holder_of_a_folder_is_waited_for(tmp_path: Path) -> None:
    order = []

    def come_second() -> None:
        with alone_in(tmp_path):
            order.append("second")

    # A lock is of the opened folder, so another thread is kept out as another process would be.
    other = Thread(target=come_second)
    with alone_in(tmp_path):
        other.start()
        other.join(0.2)
        # The control: it has begun, and is kept waiting.
        assert other.is_alive()
        order.append("first")
    other.join(60)
    assert order == ["first", "second"]


def test_a_file_that_cannot_be_written_leaves_the_old_one_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_atomically(tmp_path / "file", "old")

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr("topicscope.store.os.fsync", full)
    with pytest.raises(OSError, match=rf"no space left: '{tmp_path / 'file'}'"):
        write_atomically(tmp_path / "file", "new")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("file", "old")]

    def interrupted(handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("topicscope.store.os.fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "file", "new")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("file", "old")]
    monkeypatch.undo()
    write_atomically(tmp_path / "file", "new")
    assert (tmp_path / "file").read_text() == "new"


KILLED = """
import os, sys
from pathlib import Path
from topicscope.store import write_atomically
os.fsync = lambda handle: os._exit(9)
write_atomically(Path(sys.argv[1]), "half of it")
"""


def killed_while_writing(path: Path) -> Path:
    """What a process leaves that ends in the middle of writing this file."""
    before = set(path.parent.iterdir())
    process = start_python("-c", KILLED, str(path))
    process.communicate(timeout=60)
    assert process.returncode == 9
    [left] = set(path.parent.iterdir()) - before
    return left


def test_two_that_write_one_file_at_once_leave_it_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, sync = tmp_path / "file", os.fsync
    contents = ["second", "third, which is longer"]

    def meanwhile(handle: int) -> None:
        sync(handle)
        if contents:
            # Another writer comes while the first is at it, and ends before.
            write_atomically(path, contents.pop())
            assert path.read_text() in ("second", "third, which is longer")

    monkeypatch.setattr("topicscope.store.os.fsync", meanwhile)
    write_atomically(path, "first")
    assert contents == []
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("file", "first")]
    # Readable by whom the user lets read files.
    (tmp_path / "usual").touch()
    assert path.stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_what_a_killed_writer_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    for name in (".user.tmp", "notes.tmp", ".hidden"):
        (tmp_path / name).touch()
    left = killed_while_writing(tmp_path / "file")
    assert LEFTOVER.fullmatch(left.name)
    # The control: one that may still be at it is left alone.
    remove_leftovers(tmp_path, older_than=60.0)
    assert left.read_text() == "half of it"
    remove_leftovers(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"file", ".user.tmp", "notes.tmp", ".hidden"}
    assert (tmp_path / "file").read_text() == "old"
