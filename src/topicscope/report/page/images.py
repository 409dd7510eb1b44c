"""Drawings of a folder that the page shows as they are, with the numbers that they show."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv

from topicscope.report.numbers import COLUMNS
from topicscope.report.page.folders import Found
from topicscope.report.page.store import Reference, Store

# Larger ones, drawn with thousands of marks, would fill the page; they stay in the folder.
LARGEST = 1_500_000
MOST_NUMBERS = 400_000
# Points of a drawing that are kept to seven digits; of more there are four.
MOST_EXACT, EXACT_DIGITS, DIGITS = 2_000, 7, 4
TYPES = {
    **dict.fromkeys(("panel", "series"), pa.dictionary(pa.int32(), pa.string())),
    **dict.fromkeys(("x", "y", "value"), pa.float64()),
    "text": pa.string(),
}


@dataclass(frozen=True)
class Image:
    """An SVG file, under the name that links lead to."""

    anchor: str
    name: str
    reference: Reference
    numbers: dict[str, Any] | None
    """For the script: the points of the drawing; None if they were not written beside it."""

    @property
    def rounded(self) -> bool:
        """Whether the page has fewer digits of its points than the table beside the drawing."""
        return self.numbers is not None and self.numbers["digits"] < EXACT_DIGITS


def image_of(path: Path, anchor: str, store: Store, found: Found) -> Image | None:
    """The drawing; None, with a note, if it is not there or too large."""
    if not path.exists():
        found.notes.append(f"{path} is not drawn yet.")
        return None
    if path.stat().st_size > LARGEST:
        found.notes.append(f"{path} is too large for the page.")
        return None
    numbers = path.with_suffix(".csv")
    points = _numbers(numbers, store, found) if store.points and numbers.exists() else None
    return Image(anchor, path.stem, store.text(path.read_bytes()), points)


def images_of(paths: Sequence[Path], anchor: str, store: Store, found: Found) -> tuple[Image, ...]:
    """Those of several drawings that can be shown."""
    images = [image_of(path, f"{anchor}-image-{place}", store, found) for place, path in enumerate(paths)]
    return tuple(image for image in images if image)


def _numbers(path: Path, store: Store, found: Found) -> dict[str, Any] | None:
    """A drawing's points: how many each series has, then all of them in three arrays; texts where there are any."""
    try:
        options = csv.ConvertOptions(column_types=TYPES, include_columns=COLUMNS, strings_can_be_null=False)
        table = csv.read_csv(path, convert_options=options).combine_chunks()
    except (OSError, pa.ArrowInvalid, pa.ArrowKeyError) as error:
        found.notes.append(f"{path} cannot be read ({str(error).splitlines()[0]}); its numbers are left out.")
        return None
    if not 0 < len(table) <= MOST_NUMBERS:
        found.notes.append(f"{path} has {len(table):,} points, which the page leaves out.")
        return None
    panel, series = (table[name].combine_chunks() for name in ("panel", "series"))
    codes = np.stack([each.indices.to_numpy() for each in (panel, series)])
    starts = np.concatenate([[0], 1 + np.flatnonzero(np.diff(codes).any(axis=0))])
    counts = np.diff([*starts, len(table)])
    names = [
        [each.dictionary[int(code)].as_py() for code in row[starts]]
        for each, row in zip((panel, series), codes, strict=True)
    ]
    texts = table["text"].to_pylist()
    arrays = {name: table[name].to_numpy() for name in ("x", "y", "value")}
    exact = len(table) <= MOST_EXACT
    return {
        "series": [list(each) for each in zip(*names, counts.tolist(), strict=True)],
        **{name: store.rounded(array, exact=exact) for name, array in arrays.items() if np.isfinite(array).any()},
        "digits": EXACT_DIGITS if exact else DIGITS,
        "texts": [[place, text] for place, text in enumerate(texts) if text],
    }
