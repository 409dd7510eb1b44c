"""Folders that commands write: new or empty, or their own to go on in, and one process in each at a time."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from topicscope.errors import InputError
from topicscope.files import LEFTOVER, alone_in, remove_leftovers


def holds_something(folder: Path) -> bool:
    """Whether there is anything in the folder, which need not exist; refuse a path that is a file."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out {folder} is a file: give a folder.")
    # What a killed process had not finished writing is nothing.
    return folder.is_dir() and not all(LEFTOVER.fullmatch(path.name) for path in folder.iterdir())


def check_empty(folder: Path) -> None:
    """Refuse a folder that holds something."""
    if holds_something(folder):
        raise InputError(
            f"--out {folder} is not empty, and nothing is overwritten: give a new folder, or empty this one."
        )


def is_begun(folder: Path, settings: str, *, what: str, command: str) -> bool:
    """Whether a command has begun in the folder and left its settings; refuse one that holds something else."""
    something, begun = holds_something(folder), (folder / settings).exists()
    if something and not begun:
        raise InputError(
            f"--out {folder} is not empty and holds no {what}: give a new folder, or one that `topicscope {command}` "
            "made."
        )
    return begun


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make the folder, unless it is there, and keep other processes out of it meanwhile.

    What a killed process had not finished writing, in it or in the folders within, is removed.
    """
    with alone_in(
        folder, otherwise=f"--out {folder} is being written by another process: wait for it, or choose another folder."
    ):
        for inside, _, _ in os.walk(folder):
            remove_leftovers(Path(inside))
        yield
