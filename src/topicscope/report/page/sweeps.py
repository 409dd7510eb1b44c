"""A sweep: its table, and any measure against any setting."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topicscope.report.page.folders import Found
from topicscope.report.page.images import Image, images_of
from topicscope.report.page.store import Store
from topicscope.report.page.sweep_rows import sweep_rows

MOST_ROWS = 1_000
MOST_IMAGES = 12


@dataclass(frozen=True)
class SweepSection:
    """One sweep folder."""

    anchor: str
    folder: str
    names: tuple[str, ...]
    rows: tuple[Mapping[str, str], ...]
    runs: int
    has_runs: bool
    """Whether the runs themselves are there, for a page of their own."""
    images: tuple[Image, ...]
    columns: dict[str, Any]
    """For the script: numbers by column, to be drawn against each other; columns of words; which are settings."""


def sweep_section(folder: Path, number: int, store: Store, found: Found) -> SweepSection | None:
    """The sweep in a folder; None, with a note, if no run is finished."""
    rows = sweep_rows(folder, found)
    if not rows:
        return None
    names = tuple(name for name in rows[0] if len({row[name] for row in rows}) > 1)
    columns = {name: [_number(row[name]) for row in rows] for name in names}
    numeric = {name: values for name, values in columns.items() if any(value is not None for value in values)}
    texts = {name: [row[name] for row in rows] for name in names if name not in numeric}
    anchor = f"sweep-{number}"
    return SweepSection(
        anchor=anchor,
        folder=str(folder),
        names=names,
        rows=tuple(rows[:MOST_ROWS]),
        runs=len(rows),
        has_runs=(folder / "runs").is_dir(),
        images=images_of(sorted((folder / "figures").glob("*.svg"))[:MOST_IMAGES], anchor, store, found),
        columns={
            "anchor": anchor,
            "name": folder.resolve().name,
            "numbers": numeric,
            "texts": texts,
            "settings": [name for name in names if "." in name],
        },
    )


def four_digits(text: str) -> str:
    """A number with a fraction to four digits; all else as it is."""
    value = _number(text)
    return text if value is None or float(value).is_integer() else f"{value:.4g}"


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None
