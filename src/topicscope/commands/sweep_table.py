"""A sweep's table: a row a run, settings then measures, as CSV and Parquet."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from topicscope.files import write_atomically

Row = dict[str, Any]


def table_rows(points: Sequence[tuple[Mapping[str, Any], Sequence[Row]]]) -> list[Row]:
    """One row a run: the varied settings by dotted name, then the seed and the measures; all rows the same columns."""
    rows = [{name: _cell(value) for name, value in values.items()} | run for values, runs in points for run in runs]
    # A run that diverged has fewer measures than the others, and models of different kinds have different parts.
    found = dict.fromkeys(name for row in rows for name in row)
    columns = [name for name in found if name not in ("train_seconds", "run")] + ["train_seconds", "run"]
    return [{name: row.get(name) for name in columns} for row in rows]


def write_table(rows: Sequence[Row], out: Path) -> None:
    """Write sweep.csv and sweep.parquet; the same rows give the same bytes."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(out / "sweep.csv", text.getvalue())
    buffer = io.BytesIO()
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    pq.write_table(pa.table(columns), buffer)
    write_atomically(out / "sweep.parquet", buffer.getvalue())


def _cell(value: Any) -> Any:
    """A setting that is a list becomes its JSON text: a table's cell is one value."""
    return json.dumps(value) if isinstance(value, list | tuple) else value
