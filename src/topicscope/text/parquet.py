"""How much memory a Parquet file asks for: the sizes that the headers of its pages name.

A page is the smallest unit that can be unpacked, pyarrow allocates what its header says, and no mandatory index has its
size. Headers are in Thrift's compact protocol.
"""

import io
from collections.abc import Sequence
from typing import Any

# No page header has more bytes than this, nor more structures inside each other.
LONGEST_HEADER, DEEPEST = 1 << 16, 8


def largest_page(file: Any, group: Any, columns: Sequence[str]) -> int:
    """How many bytes the largest page of these columns unpacks to, from the headers of all pages."""
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
            header = io.BytesIO(file.read(LONGEST_HEADER))
            fields = _thrift(header)
            unpacked, packed = fields.get(2), fields.get(3)
            if unpacked is None or packed is None or unpacked < 0 or packed < 0:
                raise ValueError("a page has no size")
            largest = max(largest, unpacked)
            at += header.tell() + packed
    return largest


def _thrift(content: io.BytesIO, level: int = 0) -> dict[int, int]:
    """The whole numbers of a structure by their ids, in Thrift's compact protocol; everything else is skipped."""
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
