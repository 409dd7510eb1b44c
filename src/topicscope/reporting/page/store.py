"""What a page is made of: folders, recognised by the files in them, and arrays and drawings, packed for the browser.

Everything on the page is read from disk. What cannot be read is left out, and named on the page. A folder of run
folders (``seed-0``, ``seed-1``, …) stands for its parts.
"""

import base64
import gzip
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float, Real

from topicscope.errors import InputError
from topicscope.store import Row

T = TypeVar("T")

# How deep run folders may be inside a folder that is given: results/runs/figure4/squared/adam-0.003/scale-0.001.
DEPTH = 6

# A file, and what a folder with this file is.
MARKS = {
    "claims.json": "claims",
    "article.json": "claims",
    "settings.toml": "runs",
    "landscape.npz": "landscapes",
    "landscapes.npz": "landscapes",
    "probe.json": "probes",
    "sweep.toml": "sweeps",
}

# Larger drawings, with thousands of marks, would fill the page and stay in the folder.
LARGEST = 1_500_000

Reference = dict[str, int]


@dataclass(eq=False)
class Store:
    """The arrays that the page's script finds by number: ``{"$": 3}`` in its data stands for array 3."""

    index: list[Row] = field(default_factory=list)
    chunks: list[bytes] = field(default_factory=list)
    known: dict[tuple[str, bytes], Reference] = field(default_factory=dict)

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

    def text(self, content: bytes) -> Reference:
        """Bytes as they are: a drawing."""
        return self._add("bytes", np.frombuffer(content, dtype=np.uint8))

    def packed(self) -> str:
        """All arrays for the page, gzipped, then base64."""
        return base64.b64encode(gzip.compress(b"".join(self.chunks), 9, mtime=0)).decode()

    def _add(self, kind: str, array: np.ndarray, **more: Any) -> Reference:
        content, at = array.tobytes(), sum(map(len, self.chunks))
        self.index.append({"kind": kind, "shape": list(array.shape), "at": at, "bytes": len(content), **more})
        # Each begins at a multiple of 4, as the browser's views of 32-bit numbers need.
        self.chunks.append(content + bytes(-len(content) % 4))
        return {"$": len(self.index) - 1}


def script_json(value: Any) -> str:
    """JSON that is safe inside a script element, whatever text is in it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # It must have no end tag, no beginning of a comment, and none of JavaScript's own line ends.
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


@dataclass
class Found:
    """Folders by what they hold, notes about the others, and what the page keeps of them."""

    claims: list[Path] = field(default_factory=list)
    runs: list[Path] = field(default_factory=list)
    landscapes: list[Path] = field(default_factory=list)
    probes: list[Path] = field(default_factory=list)
    sweeps: list[Path] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seen: set[Path] = field(default_factory=set)
    """Folders that were looked at: one that is given twice, or is inside another, is shown once."""
    store: Store = field(default_factory=Store)
    drawings: dict[str, Reference] = field(default_factory=dict)
    """By the anchor under which the page shows each."""

    def __len__(self) -> int:
        return sum(len(getattr(self, kind)) for kind in set(MARKS.values()))

    def read(self, reader: Callable[[Path], T], path: Path) -> T | None:
        """What a reader of ``records`` returns; None if there is nothing, with a note if it cannot be read."""
        if not path.exists():
            return None
        try:
            return reader(path)
        except InputError as error:
            self.notes.append(f"{error} It is left out.")
            return None

    def images(self, paths: Sequence[Path], anchor: str) -> list[Row]:
        """Those of the drawings that can be shown."""
        images = [self.image(path, f"{anchor}-image-{place}") for place, path in enumerate(paths)]
        return [image for image in images if image]

    def image(self, path: Path, anchor: str) -> Row | None:
        """An SVG file, under the name that links use; None, with a note, if it is missing or too large."""
        if not path.exists() or path.stat().st_size > LARGEST:
            self.notes.append(f"{path} is {'too large for the page' if path.exists() else 'not drawn yet'}.")
            return None
        content = path.read_bytes()
        self.drawings[anchor] = self.store.text(content)
        # Its size in pixels (a point has four thirds), so that the page can reserve a place of that shape.
        box = re.search(rb'viewBox="[\d.]+ [\d.]+ ([\d.]+) ([\d.]+)"', content[:2000])
        width, height = (round(float(side) * 4 / 3) for side in box.groups()) if box else (640, 480)
        return {"anchor": anchor, "name": path.stem, "width": width, "height": height}


def find(folders: Sequence[Path]) -> Found:
    """Look through the folders given, and into those inside them."""
    found = Found()
    for folder in folders:
        if not folder.exists():
            raise InputError(
                f"{folder} does not exist: give a folder that reproduce, train, landscape, probe or sweep wrote."
            )
        if not folder.is_dir():
            raise InputError(f"{folder} is a file: give the folder that it is in.")
        before, new = len(found), folder.resolve() not in found.seen
        _look(folder, found, DEPTH)
        if new and len(found) == before:
            state = "is empty" if not any(folder.iterdir()) else "holds nothing that a page can show"
            found.notes.append(f"{folder} {state}.")
    return found


def _look(folder: Path, found: Found, depth: int) -> None:
    if folder.resolve() in found.seen:
        return
    found.seen.add(folder.resolve())
    names = {path.name for path in folder.iterdir()}
    for kind in dict.fromkeys(kind for mark, kind in MARKS.items() if mark in names):
        getattr(found, kind).append(folder)
    # A sweep shows its table; its hundreds of runs would fill the page.
    if depth and folder not in found.sweeps:
        for inner in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
            if inner.name not in ("work", "figures"):
                _look(inner, found, depth - 1)
