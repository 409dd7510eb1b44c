"""What a folder holds, told by its files; everything on the page is read from disk.

``claims.json`` → claims, ``settings.toml`` → a run (on text, if it names a corpus), ``landscape.npz`` or
``landscapes.npz`` → landscapes, ``probe.json`` → a probe, ``sweep.csv``, or ``sweep.toml`` beside ``work``, → a sweep.
A folder of run folders (``seed-0``, ``seed-1``, …) is taken as its parts. What cannot be read is left out, and named
on the page.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from topicscope.errors import InputError, UnreadableError
from topicscope.files import read_toml
from topicscope.settings.toml import names_a_corpus

T = TypeVar("T")

# How deep run folders may lie inside a folder that is given: results/runs/figure4/squared/adam-0.003/scale-0.001.
DEPTH = 6


@dataclass
class Found:
    """Folders by what they hold, and what there is to say of the others."""

    claims: list[Path] = field(default_factory=list)
    runs: list[Path] = field(default_factory=list)
    texts: list[Path] = field(default_factory=list)
    landscapes: list[Path] = field(default_factory=list)
    probes: list[Path] = field(default_factory=list)
    sweeps: list[Path] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seen: set[Path] = field(default_factory=set)
    """Folders that were looked at: one that is given twice, or lies in another, is shown once."""

    def __len__(self) -> int:
        return sum(map(len, (self.claims, self.runs, self.texts, self.landscapes, self.probes, self.sweeps)))

    def read(self, reader: Callable[[Path], T], path: Path) -> T | None:
        """What a reader of ``records`` finds; None if there is nothing, with a note if it cannot be read."""
        if not path.exists():
            return None
        try:
            return reader(path)
        except UnreadableError as error:
            self.notes.append(f"{error} It is left out.")
            return None


# A file's name → what the folder that holds it is.
MARKS = {
    "claims.json": "claims",
    "trained.safetensors": "runs",
    "settings.toml": "runs",
    "landscape.npz": "landscapes",
    "landscapes.npz": "landscapes",
    "probe.json": "probes",
    "sweep.csv": "sweeps",
}


def find(folders: list[Path]) -> Found:
    """Look through the folders given, and into those inside them."""
    found = Found()
    for folder in folders:
        if not folder.exists():
            raise InputError(
                f"{folder} does not exist: give a folder that reproduce, train, landscape, probe or sweep wrote."
            )
        if not folder.is_dir():
            raise InputError(f"{folder} is a file: give the folder that it is in.")
        if folder.resolve() in found.seen:
            continue
        before = len(found)
        _look(folder, found, DEPTH)
        if len(found) == before:
            state = "is empty" if not any(folder.iterdir()) else "holds nothing that a page can show"
            found.notes.append(f"{folder} {state}.")
    return found


def _look(folder: Path, found: Found, depth: int) -> None:
    if folder.resolve() in found.seen:
        return
    found.seen.add(folder.resolve())
    names = {path.name for path in folder.iterdir()}
    on_text = False
    with contextlib.suppress(UnreadableError):
        on_text = names_a_corpus(read_toml(folder / "settings.toml", ""))
    for kind in dict.fromkeys(kind for mark, kind in MARKS.items() if mark in names):
        getattr(found, "texts" if kind == "runs" and on_text else kind).append(folder)
    # One that is not finished has no table yet.
    if {"sweep.toml", "work"} <= names and "sweep.csv" not in names:
        found.sweeps.append(folder)
    # A sweep shows its table; its hundreds of runs would fill the page.
    if depth and folder not in found.sweeps:
        for inner in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
            if inner.name not in ("work", "figures"):
                _look(inner, found, depth - 1)
