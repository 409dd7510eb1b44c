"""Tables as documents: CSV, TSV and Parquet, a row for a document, one column with its text."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from topicscope.errors import InputError, import_for_language
from topicscope.text.formats import (
    CHUNK,
    COMPRESSIONS,
    FIELD_OPTION,
    LONGEST,
    AnyPath,
    Problems,
    Progress,
    decoded,
    lines,
    parts,
    size_on_disk,
)

# How the first line of a table sets its columns apart: what it has most of.
DELIMITERS = (",", ";", "\t", "|")
PARQUET = b"PAR1"
# Rows of a Parquet file that are read at once, and bytes that its pages may unpack to; structures within structures.
ROWS, LONGEST_UNPACKED, DEEPEST = 256, 1 << 26, 8
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
    """The same of a Parquet file; ``progress`` is told of a share of its bytes after every few rows.

    A page is unpacked as a whole, so that the size in its header is looked at before. No value is larger than a page.
    """
    parquet = import_for_language("pyarrow.parquet", "Reading Parquet files needs pyarrow")
    arrow = import_for_language("pyarrow", "Reading Parquet files needs pyarrow")
    with path.open("rb") as file, path.open("rb") as headers:
        size, told = size_on_disk(path), 0
        try:
            # A chunk of a column is read piece by piece, not as a whole beforehand.
            table = parquet.ParquetFile(file, pre_buffer=False, buffer_size=CHUNK)
            columns = table.schema_arrow.names
            _column(columns, field, path.name)
            wanted = [each for each in (TITLE, field) if each in columns]
            done, every = 0, max(table.metadata.num_rows, 1)
            for group in range(table.num_row_groups):
                largest = _largest_page(headers, table.metadata.row_group(group), wanted)
                if largest > LONGEST_UNPACKED:
                    problems.archives.append(
                        f"{path.name} has a part that unpacks to {largest:,} bytes at once, of at most "
                        f"{LONGEST_UNPACKED:,}"
                    )
                    break
                rows = max(1, min(ROWS, LONGEST_UNPACKED // max(largest, 1)))
                for batch in table.iter_batches(rows, row_groups=[group], columns=wanted):
                    for row in batch.to_pylist():
                        if isinstance(row[field], str):
                            title = str(row.get(TITLE) or "") if field != TITLE else ""
                            yield from ((title, part) for part in parts(row[field], problems))
                        else:
                            problems.broken_lines += 1
                    done += batch.num_rows
                    if progress:
                        progress(size * done // every - told)
                        told = size * done // every
        except (arrow.ArrowException, OSError, ValueError) as error:
            reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
            problems.archives.append(f"{path.name} is a Parquet file that cannot be read to its end ({reason})")
    if progress:
        progress(size - told)


def _largest_page(file: Any, group: Any, columns: Sequence[str]) -> int:
    """Bytes that the largest page of these columns unpacks to, from the headers of all pages."""
    largest = 0
    for number in range(group.num_columns):
        chunk = group.column(number)
        if chunk.path_in_schema.partition(".")[0] not in columns:
            continue
        starts = [chunk.data_page_offset, chunk.dictionary_page_offset if chunk.has_dictionary_page else None]
        at = min(start for start in starts if start is not None)
        end = at + chunk.total_compressed_size
        while at < end:
            file.seek(at)
            header = io.BytesIO(file.read(CHUNK))
            fields = _thrift(header)
            unpacked, packed = fields.get(2), fields.get(3)
            if unpacked is None or packed is None or unpacked < 0 or packed < 0:
                raise ValueError("a page has no size")
            largest = max(largest, unpacked)
            at += header.tell() + packed
    return largest


def _thrift(content: io.BytesIO, level: int = 0) -> dict[int, int]:
    """Whole numbers of a structure by their ids, in Thrift's compact protocol; all else is passed over."""
    found, name = {}, 0
    while (head := _byte(content)) and level < DEEPEST:
        name = name + (head >> 4) if head >> 4 else _zigzag(content)
        value = _thrift_value(content, head & 15, level)
        if value is not None:
            found[name] = value
    return found


def _thrift_value(content: io.BytesIO, kind: int, level: int) -> int | None:
    if kind in (4, 5, 6):
        return _zigzag(content)
    if kind == 12:
        _thrift(content, level + 1)
    elif kind == 8:
        content.seek(_varint(content), io.SEEK_CUR)
    elif kind in (3, 7):
        content.seek(1 if kind == 3 else 8, io.SEEK_CUR)
    elif kind not in (1, 2):
        # Headers of pages have no lists and no maps.
        raise ValueError("a page's header is not one")
    return None


def _zigzag(content: io.BytesIO) -> int:
    number = _varint(content)
    return (number >> 1) ^ -(number & 1)


def _varint(content: io.BytesIO) -> int:
    number, shift = 0, 0
    while shift < 64:
        byte = _byte(content)
        number |= (byte & 127) << shift
        if byte < 128:
            return number
        shift += 7
    raise ValueError("a number in a page's header has no end")


def _byte(content: io.BytesIO) -> int:
    if not (found := content.read(1)):
        raise ValueError("a page's header is cut short")
    return found[0]


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
