"""Files whole or not at all, and folders that one process has to itself."""

from pathlib import Path

import pytest

from helpers import start_python
from topicscope.files import alone_in, write_atomically

WITHOUT_LOCKS = """
import sys
sys.modules["fcntl"] = None
from pathlib import Path
import topicscope.commands.probe, topicscope.commands.reproduce, topicscope.training.runs
from topicscope.files import alone_in
with alone_in(Path(sys.argv[1]), wait=False), alone_in(Path(sys.argv[1]), wait=False):
    print("alone")
"""


def test_a_folder_is_one_holders_at_a_time_and_free_afterwards(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with alone_in(tmp_path, wait=False):
        with pytest.raises(BlockingIOError), alone_in(tmp_path, wait=False):
            pass
        # The control: another folder is free.
        with alone_in(tmp_path / "other", wait=False):
            pass
    with alone_in(tmp_path, wait=True):
        pass


def test_the_package_is_imported_and_works_where_there_are_no_such_locks(tmp_path: Path) -> None:
    said, errors = start_python("-c", WITHOUT_LOCKS, str(tmp_path)).communicate(timeout=300)
    assert (said, errors) == ("alone\n", "")


def test_a_file_that_cannot_be_written_leaves_the_old_one_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_atomically(tmp_path / "file", "old")

    def full(handle: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("topicscope.files.os.fsync", full)
    with pytest.raises(OSError, match="no space left"):
        write_atomically(tmp_path / "file", "new")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("file", "old")]
    monkeypatch.undo()
    write_atomically(tmp_path / "file", "new")
    assert (tmp_path / "file").read_text() == "new"
