"""Tables as documents: CSV, TSV and Parquet, a row for a document, one column with its text."""

import csv
from collections.abc import Iterable, Iterator
from typing import Any

from topicscope.errors import InputError, import_for_language
from topicscope.text.formats import (
    COMPRESSIONS,
    FIELD_OPTION,
    LONGEST,
    AnyPath,
    Problems,
    Progress,
    decoded,
    lines,
    size_on_disk,
)

# How the first line of a table sets its columns apart: what it has most of.
DELIMITERS = (",", ";", "\t", "|")
PARQUET = b"PAR1"
# Rows of a Parquet file that are read at once.
ROWS = 256
TITLE = "title"


def is_table(name: str) -> bool:
    """Whether a file's name says that it is CSV or TSV: from its content it could be prose with commas."""
    return _without_compression(name).endswith((".csv", ".tsv"))


def is_parquet(start: bytes) -> bool:
    """Whether a file that begins like this is Parquet."""
    return start.startswith(PARQUET)


def csv_texts(chunks: Iterable[bytes], problems: Problems, field: str, name: str) -> Iterator[tuple[str, str]]:
    """(Title, text) of each row: the columns ``title``, if there is one, and ``field``."""
    content = (decoded(line, problems) + "\n" for line in lines(chunks, problems))
    first = next((line for line in content if line.strip()), "")
    tabs = _without_compression(name).endswith(".tsv")
    delimiter = "\t" if tabs else max(DELIMITERS, key=first.count)
    [columns] = list(csv.reader([first], delimiter=delimiter)) or [[]]
    columns = [each.strip() for each in columns]
    place = _column(columns, field, name)
    title = columns.index(TITLE) if TITLE in columns else None
    rows = csv.reader(content, delimiter=delimiter)
    # A cell may be as long as a document.
    csv.field_size_limit(max(LONGEST, csv.field_size_limit()))
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error:
            problems.broken_lines += 1
            continue
        if len(row) <= place:
            problems.broken_lines += bool(row)
        elif row[place].strip():
            yield row[title] if title is not None and len(row) > title else "", row[place]


def parquet_texts(
    path: AnyPath, problems: Problems, field: str, progress: Progress | None
) -> Iterator[tuple[str, str]]:
    """The same of a Parquet file; ``progress`` is told of a share of its bytes after every few rows."""
    parquet = import_for_language("pyarrow.parquet", "Reading Parquet files needs pyarrow")
    arrow = import_for_language("pyarrow", "Reading Parquet files needs pyarrow")
    with path.open("rb") as file:
        size, told = size_on_disk(path), 0
        try:
            table = parquet.ParquetFile(file)
            columns = table.schema_arrow.names
            _column(columns, field, path.name)
            done, every = 0, max(table.metadata.num_rows, 1)
            for batch in table.iter_batches(ROWS, columns=[each for each in (TITLE, field) if each in columns]):
                for row in batch.to_pylist():
                    if isinstance(row[field], str):
                        yield str(row.get(TITLE) or "") if field != TITLE else "", row[field]
                    else:
                        problems.broken_lines += 1
                done += batch.num_rows
                if progress:
                    progress(size * done // every - told)
                    told = size * done // every
        except (arrow.ArrowException, OSError) as error:
            reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
            problems.archives.append(f"{path.name} is a Parquet file that cannot be read to its end ({reason})")
    if progress:
        progress(size - told)


def _column(columns: list[Any], field: str, name: str) -> int:
    if field not in columns:
        listed = ", ".join(map(str, columns[:20])) or "none"
        raise InputError(
            f'{name} has no column "{field}": its columns are {listed}; name the one with the text by {FIELD_OPTION}.'
        )
    return columns.index(field)


def _without_compression(name: str) -> str:
    for ending in COMPRESSIONS:
        name = name.lower().removesuffix(ending)
    return name
