"""The rows of a sweep: its table, or, while it goes on, what its finished groups have left."""

import json
import tomllib
from pathlib import Path
from typing import Any

from topicscope.errors import InputError
from topicscope.report.page.folders import Found, read_table
from topicscope.scale import read_result
from topicscope.settings.sweep import Sweep
from topicscope.settings.sweep_toml import load_sweep
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
