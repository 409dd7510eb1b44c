"""Plain text and JSON lines as documents: a line, a paragraph or a file each."""

import json
import re
from collections.abc import Iterable, Iterator

from topicscope.text.problems import Problems

# Longer documents are cut, so that a file without line breaks is read in constant memory too.
LONGEST = 1 << 24
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
BLANK_LINE = re.compile(rb"\S[^\n]*\n[ \t\r]*\n\s*\S")

LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")


def lines(chunks: Iterable[bytes], problems: Problems) -> Iterator[bytes]:
    """Lines without their end, of at most ``LONGEST`` bytes."""
    rest, first = b"", True
    for chunk in chunks:
        if first and chunk:
            chunk, first = chunk.removeprefix(BYTE_ORDER_MARK), False
        *whole, rest = (rest + chunk).split(b"\n") if b"\n" in chunk else (rest + chunk,)
        yield from (line.removesuffix(b"\r") for line in whole)
        if len(rest) > LONGEST:
            problems.long_documents += 1
            yield rest
            rest = b""
    if rest:
        yield rest.removesuffix(b"\r")


def line_texts(chunks: Iterable[bytes], problems: Problems) -> Iterator[str]:
    """One document a line; empty lines are none."""
    return (decoded(line, problems) for line in lines(chunks, problems) if line.strip())


def paragraph_texts(chunks: Iterable[bytes], problems: Problems) -> Iterator[str]:
    """One document a paragraph: paragraphs are set apart by blank lines."""
    paragraph: list[bytes] = []
    size = 0
    for line in lines(chunks, problems):
        blank, too_long = not line.strip(), size > LONGEST
        if paragraph and (blank or too_long):
            problems.long_documents += not blank
            yield decoded(b"\n".join(paragraph), problems)
            paragraph, size = [], 0
        if not blank:
            paragraph.append(line)
            size += len(line)
    if paragraph:
        yield decoded(b"\n".join(paragraph), problems)


def whole_texts(chunks: Iterable[bytes], problems: Problems) -> Iterator[str]:
    """One document: the whole file."""
    parts: list[bytes] = []
    size = 0
    for line in lines(chunks, problems):
        if size > LONGEST:
            problems.long_documents += 1
            yield decoded(b"\n".join(parts), problems)
            parts, size = [], 0
        parts.append(line)
        size += len(line)
    if any(part.strip() for part in parts):
        yield decoded(b"\n".join(parts), problems)


def json_texts(chunks: Iterable[bytes], problems: Problems, field: str) -> Iterator[tuple[str, str]]:
    """(Title, text) of each line: the object's fields ``title``, if it has one, and ``field``."""
    for line in lines(chunks, problems):
        if not line.strip():
            continue
        text = decoded(line, problems)
        try:
            row = json.loads(text)
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict) and field not in row:
            problems.add_line_without(field, (_encodable(name, Problems()) for name in row))
            continue
        if not isinstance(row, dict) or not isinstance(row[field], str):
            problems.broken_lines += 1
            continue
        yield _encodable(str(row.get("title", "")), Problems()), _encodable(row[field], problems)


def decoded(content: bytes, problems: Problems) -> str:
    """UTF-8; what is not becomes U+FFFD and is counted."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        problems.bad_encodings += 1
        return content.decode(errors="replace")


def _encodable(text: str, problems: Problems) -> str:
    r"""JSON may escape half of a surrogate pair (``\ud800``), no character: it becomes U+FFFD and is counted."""
    replaced = LONE_SURROGATE.sub("\ufffd", text)
    problems.bad_encodings += replaced != text
    return replaced


def has_paragraphs(start: bytes) -> bool:
    """Whether blank lines set parts of this text apart."""
    return BLANK_LINE.search(start) is not None


def is_json(start: bytes) -> bool:
    """Whether the first line is a JSON object, or begins like one and is longer than what is seen."""
    line, end, _ = start.removeprefix(BYTE_ORDER_MARK).lstrip().partition(b"\n")
    if not line.startswith(b"{"):
        return False
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return not end and re.match(rb'\{\s*"', line) is not None
