"""The rows of a sweep: its table, or, while it goes on, what its finished groups have left."""

import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topicscope.errors import InputError
from topicscope.reporting.page.claims import Image, images_of
from topicscope.reporting.page.folders import Found, read_table
from topicscope.reporting.page.store import Store
from topicscope.scale import read_result
from topicscope.settings.sweep import Sweep, load_sweep
from topicscope.settings.toml import flat

Cells = dict[str, str]


def sweep_rows(folder: Path, found: Found) -> list[Cells]:
    """A row a run; none, with a note, if there is none to read."""
    if (folder / "sweep.csv").exists():
        return _table(folder, found)
    try:
        sweep = load_sweep(folder / "sweep.toml")
        total = len(sweep.points()) * len(sweep.groups())
    except InputError as error:
        found.notes.append(f"{folder}: sweep.toml cannot be read: {error}")
        return []
    groups = [rows for path in sorted((folder / "work").glob("*.json")) if (rows := _group(path, folder, sweep))]
    found.notes.append(
        f"{folder}: {len(groups)} of {total} groups of the sweep's runs are finished; {_again(folder)} goes on."
    )
    rows = [row for group in groups for row in group]
    # A run that diverged has fewer measures than the others.
    names = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name, "") for name in names} for row in rows]


def _table(folder: Path, found: Found) -> list[Cells]:
    path, before = folder / "sweep.csv", len(found.notes)
    rows = read_table(path, found)
    whole = bool(rows) and all("seed" in row and None not in row and None not in row.values() for row in rows)
    if whole or len(found.notes) > before:
        return rows
    again = f"{_again(folder)} writes it again" if (folder / "sweep.toml").exists() else "it is left out"
    found.notes.append(f"{path} cannot be read (it is not the whole table of a sweep); {again}.")
    return []


def _again(folder: Path) -> str:
    return f"topicscope sweep --out {folder} --resume"


def _group(path: Path, folder: Path, sweep: Sweep) -> list[Cells]:
    """Rows of runs that were trained together; none if their result is not whole."""
    content = read_result(path)
    try:
        rows: list[dict[str, Any]] = json.loads(content)["rows"] if content is not None else []
        return [
            _varied(folder / row["run"], sweep) | {name: _cell(value) for name, value in row.items()} for row in rows
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _varied(run: Path, sweep: Sweep) -> Cells:
    settings = flat(tomllib.loads((run / "settings.toml").read_text(encoding="utf-8")))
    return {name: _cell(settings[name]) for name in sweep.vary}


def _cell(value: Any) -> str:
    """As the table has it."""
    if value is None:
        return ""
    return json.dumps(value) if isinstance(value, list) else str(value)


# A sweep: its table, and any measure against any setting.


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
