"""What a page is made of: folders, recognised by the files in them, and arrays and drawings packed for the browser.

Everything on the page is read from disk. What cannot be read is left out and named on the page. A folder of run folders
(``seed-0``, ``seed-1``, …) stands for its parts.
"""

import base64
import gzip
import os
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float, Int, Real

from topicscope.errors import InputError
from topicscope.records import File

T = TypeVar("T")
# What the template and the script get: sections, tables and charts by the names of their parts.
Row = dict[str, Any]

# How deep run folders may be inside a folder that is given: results/runs/figure4/squared/adam-0.003/scale-0.001.
DEPTH = 6

# A file, and what a folder with this file is.
MARKS = {
    "claims.json": "claims",
    "settings.toml": "runs",
    "landscapes.json": "landscapes",
    "probe.json": "probes",
    "sweep.toml": "sweeps",
}
WROTE = "give a folder that reproduce, train, landscape, probe or sweep wrote."

# Larger drawings, with thousands of marks, would fill the page and stay in the folder.
LARGEST = 1_500_000

# The place of an array for the page's script, which finds ``{"$": 3}`` in its data.
Reference = dict[str, int]


@dataclass(eq=False)
class Material:
    """Folders by what they hold, notes about what is missing, and the arrays and drawings that the page keeps."""

    folders: dict[str, list[Path]] = field(default_factory=lambda: defaultdict(list))
    notes: list[str] = field(default_factory=list)
    drawings: dict[str, Reference] = field(default_factory=dict)
    """By the anchor under which the page shows each."""

    arrays: list[Row] = field(default_factory=list)
    """Where each array is among the bytes, and its shape."""

    content: bytearray = field(default_factory=bytearray)
    known: dict[tuple[str, bytes], Reference] = field(default_factory=dict)

    def read(self, file: File[T], folder: Path) -> T | None:
        """What a file of a folder holds; None if it is not there, with a note if it cannot be read."""
        return self.tried(file.read, folder) if (folder / file.name).exists() else None

    def tried(self, reader: Callable[[Path], T], folder: Path) -> T | None:
        """What a reader returns; None, with a note, if it cannot read."""
        try:
            return reader(folder)
        except InputError as error:
            self.notes.append(f"{error} It is left out.")
            return None

    def numbers(self, array: Real[np.ndarray, "..."]) -> Reference:
        """Numbers of a curve or a map, as float32; NaN where there is none. The same numbers are kept once."""
        packed = np.ascontiguousarray(array, dtype="<f4")
        key = (str(packed.shape), packed.tobytes())
        if key not in self.known:
            self.known[key] = self._add("float32", packed)
        return self.known[key]

    def frames(self, array: Float[np.ndarray, "frame row column"]) -> Reference:
        """Matrices over time, as uint8: each frame's range in 255 equal steps."""
        flat = np.asarray(array, dtype=np.float64).reshape(len(array), -1)
        low, high = flat.min(axis=1), flat.max(axis=1)
        step = np.where(high > low, (high - low) / 255, 1.0)
        packed = np.rint((flat - low[:, None]) / step[:, None]).astype(np.uint8)
        return self._add("uint8", packed.reshape(np.shape(array)), low=low.tolist(), scale=step.tolist())

    def images(self, paths: Sequence[Path], anchor: str) -> list[Row]:
        """Those SVG files that can be shown, under names that links use; a note for each that is missing or large."""
        images = []
        for place, path in enumerate(paths):
            if not path.exists() or path.stat().st_size > LARGEST:
                self.notes.append(f"{path} is {'too large for the page' if path.exists() else 'not drawn yet'}.")
                continue
            content, name = path.read_bytes(), f"{anchor}-{place}"
            self.drawings[name] = self._add("bytes", np.frombuffer(content, dtype=np.uint8))
            # Its size in pixels (a point has four thirds), so that the page can reserve a place of that shape.
            box = re.search(rb'viewBox="[\d.]+ [\d.]+ ([\d.]+) ([\d.]+)"', content[:2000])
            width, height = (round(float(side) * 4 / 3) for side in box.groups()) if box else (640, 480)
            images.append({"anchor": name, "name": path.stem, "width": width, "height": height})
        return images

    def packed(self) -> str:
        """All arrays for the page, gzipped, then base64."""
        return base64.b64encode(gzip.compress(bytes(self.content), 9, mtime=0)).decode()

    def _add(self, kind: str, array: np.ndarray, **more: Any) -> Reference:
        self.arrays.append({"kind": kind, "shape": list(array.shape), "at": len(self.content), **more})
        self.content += array.tobytes()
        # Each begins at a multiple of 4, as the browser's views of 32-bit numbers need.
        self.content += bytes(-len(self.content) % 4)
        return {"$": len(self.arrays) - 1}


def gather(folders: Sequence[Path]) -> Material:
    """Look through these folders and those inside them; refuse them if no page can show anything of them."""
    made, seen = Material(), set[Path]()
    for folder in folders:
        if not folder.exists():
            raise InputError(f"{folder} does not exist: {WROTE}")
        if not folder.is_dir():
            raise InputError(f"{folder} is a file: give the folder that it is in.")
        shown = False
        for place, inner, names in os.walk(folder, followlinks=True):
            here = Path(place)
            kinds = dict.fromkeys(MARKS[name] for name in MARKS if name in names)
            known = (resolved := here.resolve()) in seen
            shown |= known or bool(kinds)
            if known:
                inner.clear()
                continue
            seen.add(resolved)
            for kind in kinds:
                made.folders[kind].append(here)
            # A sweep shows its table; its hundreds of runs would fill the page.
            if "sweeps" in kinds or len(here.relative_to(folder).parts) >= DEPTH:
                inner.clear()
            inner[:] = sorted(name for name in inner if name not in ("work", "figures") and not name.startswith("."))
        if not shown:
            made.notes.append(f"{folder} {'holds nothing to show' if any(folder.iterdir()) else 'is empty'}.")
    if not made.folders:
        raise InputError(f"{' '.join(made.notes).removesuffix('.')}: {WROTE}")
    return made


def evenly(count: int, most: int) -> Int[np.ndarray, " kept"]:
    """At most so many places out of ``count``, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))
