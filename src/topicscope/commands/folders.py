"""Folders that commands write: new or empty, or their own to go on in, and one process in each at a time."""

import contextlib
import csv
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from topicscope.errors import InputError
from topicscope.files import Row, alone_in, write_atomically
from topicscope.records import read_reproduce_settings


class ResultsFolder:
    """Claims, figures and finished work of one preset, number of seeds and seed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.figures = path / "figures"
        self.work = path / "work"
        self._settings = path / "settings.json"

    @contextlib.contextmanager
    def opened(self, settings: dict[str, Any]) -> Iterator[None]:
        """Make the folder, or go on in it, with other processes kept out; refuse one that holds something else."""
        # Refused before anything is made; asked again with the lock, as another command may have begun here meanwhile.
        self._check(settings)
        with locked(self.path):
            self._check(settings)
            self.figures.mkdir(exist_ok=True)
            write_atomically(self._settings, json.dumps(settings, indent=2) + "\n")
            yield

    def write_claims(self, rows: Sequence[Row]) -> None:
        """Write claims.json and the same as claims.csv."""
        text = json.dumps(rows, indent=2, ensure_ascii=False, allow_nan=False)
        write_atomically(self.path / "claims.json", text + "\n")
        table = io.StringIO()
        writer = csv.DictWriter(table, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows({**row, "details": json.dumps(row["details"], ensure_ascii=False)} for row in rows)
        write_atomically(self.path / "claims.csv", table.getvalue())

    def write_progress(self, asked: int, measured: int) -> None:
        """How many claims were asked for, and how many of them are done: a page of a stopped run can say so."""
        text = json.dumps({"asked": asked, "measured": measured})
        write_atomically(self.path / "progress.json", text + "\n")

    def _check(self, settings: dict[str, Any]) -> None:
        if not is_begun(self.path, self._settings.name, what="claims", command="reproduce"):
            return
        stored = read_reproduce_settings(self._settings)
        found = [
            f"--{name} {_shown(stored.get(name))} there, {_shown(settings[name])} here"
            for name in settings
            if stored.get(name) != settings[name]
        ]
        if found:
            raise InputError(
                f"--out {self.path} holds claims of other settings ({'; '.join(found)}): give those, or another --out."
            )


def holds_something(folder: Path) -> bool:
    """Whether there is anything in the folder, which need not exist; refuse a path that is a file."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out {folder} is a file: give a folder.")
    return folder.is_dir() and any(folder.iterdir())


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


def locked(folder: Path) -> contextlib.AbstractContextManager[None]:
    """Make the folder, unless it is there, and keep other processes out of it meanwhile."""
    return alone_in(
        folder, otherwise=f"--out {folder} is being written by another process: wait for it, or choose another folder."
    )


def _shown(value: Any) -> str:
    """As it is given on the command line."""
    if isinstance(value, list):
        return " ".join(map(str, value)) or "not given"
    return str(value)
