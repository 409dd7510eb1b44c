"""Files whole or not at all, and folders that one process has to itself."""

from pathlib import Path
from threading import Thread

import pytest

from support.helpers import start_python
from topicscope.errors import InputError
from topicscope.files import alone_in, write_atomically

WITHOUT_LOCKS = """
import sys, warnings
sys.modules["fcntl"] = None
warnings.filterwarnings("ignore", "only soft file lock is available")
from pathlib import Path
import topicscope.commands.probe, topicscope.commands.reproduce, topicscope.training.runs
from topicscope.files import alone_in
with alone_in(Path(sys.argv[1]), otherwise="taken"), alone_in(Path(sys.argv[1])):
    print("alone")
"""

HOLDS = """
import sys, time
from pathlib import Path
from topicscope.files import alone_in
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
    with alone_in(folder, otherwise="it is taken."):
        assert list(folder.iterdir()) == []


def test_a_folder_is_one_holders_at_a_time_and_free_afterwards(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with alone_in(tmp_path, otherwise="somebody is here"):
        with pytest.raises(InputError, match=r"^it is taken\.$"), alone_in(tmp_path, otherwise="it is taken."):
            pass
        # The control: another folder is free.
        with alone_in(tmp_path / "other", otherwise="it is taken."):
            pass
    with alone_in(tmp_path, otherwise="it is taken."):
        pass


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
