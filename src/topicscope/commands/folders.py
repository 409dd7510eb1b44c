"""Folders that commands write: new or empty, or the command's own to go on in, with one process in each at a time."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from topicscope.errors import InputError
from topicscope.store import LEFTOVER, alone_in, remove_leftovers


def check_empty(folder: Path) -> None:
    """Refuse a folder that holds something."""
    if _holds_something(folder):
        raise InputError(
            f"--out {folder} is not empty, and nothing is overwritten: give a new folder, or empty this one."
        )


def is_begun(folder: Path, settings: str, *, what: str, command: str) -> bool:
    """Whether a command has begun in the folder and left its settings; refuse one that holds something else."""
    something, begun = _holds_something(folder), (folder / settings).exists()
    if something and not begun:
        raise InputError(
            f"--out {folder} is not empty and holds no {what}: give a new folder, or one that `topicscope {command}` "
            "made."
        )
    return begun


def _holds_something(folder: Path) -> bool:
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out {folder} is a file: give a folder.")
    # Unfinished files of a killed process do not count.
    return folder.is_dir() and not all(LEFTOVER.fullmatch(path.name) for path in folder.iterdir())


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make the folder if needed, and keep other processes out of it meanwhile.

    Unfinished files of killed processes, in it or in the folders within, are removed.
    """
    with alone_in(
        folder, otherwise=f"--out {folder} is being written by another process: wait for it, or choose another folder."
    ):
        for inside, _, _ in os.walk(folder):
            remove_leftovers(Path(inside))
        yield
