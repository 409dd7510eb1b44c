"""Arrays and drawings of a page: packed into few bits, gzipped together, and unpacked in the browser."""

import base64
import gzip
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Float, Integer
from pyarrow import csv

from topicscope.files import Row
from topicscope.reporting.page.folders import Found

# Least loss of space for the time; the page is written once and sent often.
COMPRESSION = 9

# Larger drawings, of thousands of marks, would fill the page; they stay in the folder. So do tables of more rows.
LARGEST, MOST_ROWS = 1_500_000, 400_000

# Rows of a drawing's table that are kept to seven digits; of more there are four.
MOST_EXACT, EXACT_DIGITS, DIGITS = 2_000, 7, 4

Reference = dict[str, int]


@dataclass(eq=False)
class Store:
    """What the page's script finds by number: ``{"$": 3}`` in its data stands for array 3."""

    index: list[dict[str, Any]] = field(default_factory=list)
    chunks: list[bytes] = field(default_factory=list)
    size: int = 0
    points: bool = True
    """Whether there is room for the points of drawings."""

    def numbers(self, array: Float[np.ndarray, "..."] | Integer[np.ndarray, "..."]) -> Reference:
        """Numbers of a curve, as float32; NaN where there is none."""
        return self._add("float32", np.asarray(array, dtype="<f4"))

    def halves(self, array: Float[np.ndarray, "..."]) -> Reference:
        """Numbers of a map, as float16 above its least: exact to 1/2,000 of the distance to that."""
        finite = np.asarray(array, dtype=np.float64)[np.isfinite(array)]
        low, scale = (float(finite.min()), float(np.ptp(finite)) or 1.0) if finite.size else (0.0, 1.0)
        # float16 holds numbers up to 65,504, so the map is brought between 0 and 1.
        packed = ((np.asarray(array, dtype=np.float64) - low) / scale).astype("<f2")
        return self._add("float16", packed, low=low, scale=scale)

    def rounded(
        self, array: Float[np.ndarray, "..."] | Integer[np.ndarray, "..."], *, exact: bool = False
    ) -> Reference:
        """Numbers of a table, to four digits: float32 with 12 bits of its fraction; whole numbers exactly.

        With ``exact`` all bits are kept: seven digits.
        """
        values = np.asarray(array, dtype="<f4")
        bits = values.view("<u4")
        if not exact and not np.array_equal(values, np.rint(values), equal_nan=True):
            # Half of the last bit that is kept, so that cutting the rest off rounds.
            bits = np.where(np.isfinite(values), (bits + 0x400) & 0xFFFFF800, bits).astype("<u4")
        # Bytes of equal weight together: those that are alike pack best side by side.
        planes = np.ascontiguousarray(bits.reshape(-1, 1).view(np.uint8).T)
        return self._add("planes", planes.reshape(4, *np.shape(array)))

    def frames(self, array: Float[np.ndarray, "frame row column"]) -> Reference:
        """Matrices over time, as uint8: each frame's range in 255 equal steps."""
        flat = np.asarray(array, dtype=np.float64).reshape(len(array), -1)
        low, high = flat.min(axis=1), flat.max(axis=1)
        step = np.where(high > low, (high - low) / 255, 1.0)
        packed = np.rint((flat - low[:, None]) / step[:, None]).astype(np.uint8)
        return self._add("uint8", packed.reshape(np.shape(array)), low=low.tolist(), scale=step.tolist())

    def text(self, content: bytes) -> Reference:
        """Bytes as they are: a script, a drawing."""
        return self._add("bytes", np.frombuffer(content, dtype=np.uint8))

    def estimate(self) -> int:
        """About how many characters ``packed`` will have, in a tenth of the time."""
        return len(packed(b"".join(self.chunks), compression=1))

    def packed(self) -> str:
        """All arrays, for the page."""
        return packed(b"".join(self.chunks))

    def _add(self, kind: str, array: np.ndarray, **more: Any) -> Reference:
        content = np.ascontiguousarray(array).tobytes()
        self.index.append({"kind": kind, "shape": list(array.shape), "at": self.size, "bytes": len(content), **more})
        # Each begins at a multiple of 4, as the browser's views of 32-bit numbers need.
        padding = -len(content) % 4
        self.chunks.append(content + bytes(padding))
        self.size += len(content) + padding
        return {"$": len(self.index) - 1}


def packed(content: bytes, compression: int = COMPRESSION) -> str:
    """Gzipped, then base64."""
    return base64.b64encode(gzip.compress(content, compression, mtime=0)).decode()


def script_json(value: Any) -> str:
    """JSON that can stand inside a script element, whatever text is in it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # Neither an end tag, nor a comment's beginning, nor JavaScript's own line ends.
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


# Drawings of a folder that the page shows as they are, with the numbers that they show.


def image_of(path: Path, anchor: str, store: Store, found: Found) -> Row | None:
    """An SVG file, under the name that links lead to; None, with a note, if it is not there or too large.

    ``numbers`` is its table, for the script, if that was written beside it, and ``rounded`` whether the page has fewer
    digits of it.
    """
    if not path.exists():
        found.notes.append(f"{path} is not drawn yet.")
        return None
    if path.stat().st_size > LARGEST:
        found.notes.append(f"{path} is too large for the page.")
        return None
    numbers = path.with_suffix(".csv")
    points = _numbers(numbers, store, found) if store.points and numbers.exists() else None
    content = path.read_bytes()
    width, height = _size(content)
    return {
        "anchor": anchor,
        "name": path.stem,
        "drawing": store.text(content),
        "width": width,
        "height": height,
        "numbers": points,
        "rounded": points is not None and points["digits"] < EXACT_DIGITS,
    }


def _size(svg: bytes) -> tuple[int, int]:
    """Width and height in pixels, so that the page can keep a place of that shape."""
    box = re.search(rb'viewBox="[\d.]+ [\d.]+ ([\d.]+) ([\d.]+)"', svg[:2000])
    # A point is four thirds of a pixel.
    return (round(float(box[1]) * 4 / 3), round(float(box[2]) * 4 / 3)) if box else (640, 480)


def images_of(paths: Sequence[Path], anchor: str, store: Store, found: Found) -> list[Row]:
    """Those of several drawings that can be shown."""
    images = [image_of(path, f"{anchor}-image-{place}", store, found) for place, path in enumerate(paths)]
    return [image for image in images if image]


def _numbers(path: Path, store: Store, found: Found) -> dict[str, Any] | None:
    """A drawing's table, by column: numbers as an array; words, many of them alike, as a list and places in it."""
    try:
        texts = dict.fromkeys(csv.open_csv(path).schema.names, pa.string())
        options = csv.ConvertOptions(column_types=texts, strings_can_be_null=True)
        table = csv.read_csv(path, convert_options=options).combine_chunks()
    except (OSError, ValueError, pa.ArrowInvalid) as error:
        found.notes.append(f"{path} cannot be read ({str(error).splitlines()[0]}); its numbers are left out.")
        return None
    if not 0 < len(table) <= MOST_ROWS:
        found.notes.append(f"{path} has {len(table):,} points, which the page leaves out.")
        return None
    exact = len(table) <= MOST_EXACT
    columns = [_column(table[name].combine_chunks(), store, exact) for name in table.column_names]
    return {
        "names": table.column_names,
        "columns": columns,
        "rows": len(table),
        "digits": EXACT_DIGITS if exact else DIGITS,
    }


def _column(cells: pa.StringArray, store: Store, exact: bool) -> dict[str, Any]:
    try:
        return {"numbers": store.rounded(cells.cast(pa.float64()).to_numpy(zero_copy_only=False), exact=exact)}
    except pa.ArrowInvalid:
        words = cells.fill_null("").dictionary_encode()
        return {"words": words.dictionary.to_pylist(), "numbers": store.rounded(words.indices.to_numpy())}
