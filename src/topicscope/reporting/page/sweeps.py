"""A sweep: its table or, while it goes on, the results of finished groups; any measure against any setting."""

import math
from collections.abc import Mapping
from pathlib import Path

from topicscope.errors import InputError
from topicscope.records import read_sweep_group, read_sweep_rows
from topicscope.reporting.page.store import Found
from topicscope.reporting.rounding import readable
from topicscope.settings.sweep import labels, load_sweep
from topicscope.store import Row

MOST_ROWS = 1_000
MOST_IMAGES = 12

Cells = dict[str, str]
Shown = Mapping[str, Mapping[str, str]]

# What people sweep for, in words; the first one that was measured counts.
SWEPT_FOR = {
    "excess_over_optimum": "excess loss over the exact optimum",
    "distance_to_optimum": "distance to the exact optimum",
    "excess_loss": "excess loss over the Bayes floor",
    "validation_loss": "validation loss",
    "loss": "loss of the batch",
}


def sweep_rows(folder: Path, found: Found) -> list[Cells]:
    """A row per run; none, with a note, if there is none to read."""
    if (folder / "sweep.csv").exists():
        return found.read(read_sweep_rows, folder / "sweep.csv") or []
    try:
        sweep = load_sweep(folder / "sweep.toml")
        total = len(sweep.points()) * len(sweep.groups())
    except InputError as error:
        found.notes.append(f"{folder}: sweep.toml cannot be read: {error}")
        return []
    groups = [rows for path in sorted((folder / "work").glob("*.json")) if (rows := found.read(read_sweep_group, path))]
    again = f"topicscope sweep --out {folder} --resume resumes it."
    found.notes.append(f"{folder}: {len(groups)} of {total} groups of the sweep's runs are finished; {again}")
    cells = [row.cells() for group in groups for row in group]
    # Models of different kinds have different parts. Cells are in the form of a finished sweep's table.
    names = dict.fromkeys(name for row in cells for name in row)
    return [{name: "" if row.get(name) is None else str(row[name]) for name in names} for row in cells]


def sweep_section(folder: Path, number: int, found: Found) -> Row | None:
    """The sweep in a folder; None, with a note, if no run is finished."""
    rows = sweep_rows(folder, found)
    if not rows:
        return None
    names = tuple(name for name in rows[0] if len({row[name] for row in rows}) > 1)
    columns = {name: [_number(row[name]) for row in rows] for name in names}
    numeric = {name: values for name, values in columns.items() if any(value is not None for value in values)}
    # Files by the parts of their paths that distinguish them; the table's CSV has whole paths.
    shown = {name: labels(list(dict.fromkeys(row[name] for row in rows))) for name in names if name not in numeric}
    texts = {name: [each[row[name]] for row in rows] for name, each in shown.items()}
    anchor = f"sweep-{number}"
    return {
        "anchor": anchor,
        "folder": str(folder),
        "names": names,
        "rows": [
            [(row[name], shown[name][row[name]] if name in shown else four_digits(row[name])) for name in names]
            for row in rows[:MOST_ROWS]
        ],
        "said": f"{len(rows)} runs. {_best(columns, [name for name in names if '.' in name], rows, shown)}".strip(),
        # Whether the runs themselves are there, for a separate page.
        "has_runs": (folder / "runs").is_dir(),
        "images": found.images(sorted((folder / "figures").glob("*.svg"))[:MOST_IMAGES], anchor),
        # For the script: numbers by column, to be drawn against each other; columns of words; which are settings.
        "columns": {
            "anchor": anchor,
            "name": folder.resolve().name,
            "numbers": numeric,
            "texts": texts,
            "settings": [name for name in names if "." in name],
            "first": list(SWEPT_FOR),
        },
    }


def _best(columns: Mapping[str, list[float | None]], settings: list[str], rows: list[Cells], shown: Shown) -> str:
    """Where the measure that people sweep for is smallest, averaged over seeds; empty without it or with one place."""
    measure = next((name for name in SWEPT_FOR if name in columns), None)
    groups: dict[tuple[str, ...], list[float]] = {}
    for row, value in zip(rows, columns[measure] if measure else (), strict=False):
        if value is not None:
            groups.setdefault(tuple(row[name] for name in settings), []).append(value)
    if measure is None or len(groups) < 2:
        return ""
    means = {values: sum(found) / len(found) for values, found in groups.items()}
    best = min(means, key=lambda values: means[values])
    texts = [
        shown[name][value] if name in shown else four_digits(value) for name, value in zip(settings, best, strict=True)
    ]
    where = " and ".join(f"{name} = {text}" for name, text in zip(settings, texts, strict=True))
    return f"The {SWEPT_FOR[measure]} is smallest at {where}: {readable(means[best])} on average over seeds."


def four_digits(text: str) -> str:
    """A number with a fraction to four digits; all else as it is."""
    value = _number(text)
    return text if value is None or float(value).is_integer() else readable(value)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None
