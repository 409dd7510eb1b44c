"""Arrays of a page: packed into few bits, gzipped together, and unpacked in the browser."""

import base64
import gzip
import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Integer

# Least loss of space for the time; the page is written once and sent often.
COMPRESSION = 9


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
        low, scale = _range(array)
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


def _range(array: Float[np.ndarray, "..."]) -> tuple[float, float]:
    finite = np.asarray(array, dtype=np.float64)[np.isfinite(array)]
    if not finite.size:
        return 0.0, 1.0
    return float(finite.min()), float(finite.max() - finite.min()) or 1.0
