"""Files as documents: bytes compressed or not, zip archives, plain text, JSON lines, tables, Wikipedia dumps.

Everything is read in constant memory and as far as possible. Real text is never clean, and one bad line must not end a
study, so what goes wrong is counted (``Problems``). Pages of a dump are walked here and not by gensim's
``extract_pages``: that one stops at pages without an ``<ns>`` element (dumps before 2008), keeps an element of every
page in memory, and returns nothing at all from a dump that breaks off.
"""

import bz2
import csv
import io
import json
import lzma
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, cast
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

from topicscope.errors import InputError, import_for_language

# Said of an archive from which nothing could be read.
FROM_THE_BEGINNING = "from its beginning"
# How many fields of a line, and how many files of a kind, a sentence names.
MOST_FIELDS, MOST_FILES = 8, 8
# The options that say where the text is.
FIELD_OPTION = "--field (`topicscope probe`) or --data.field (`topicscope train`)"

CHUNK = 1 << 16
# The first bytes of a compressed file say how it is compressed; names of files often lie.
MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")
# Files that are only in documents of office programs; these documents are zip archives too.
OFFICE = {"[Content_Types].xml", "mimetype"}
# Other kinds of files that people try, by their first bytes, and what to do with them.
OTHER_KINDS = {
    b"%PDF": "a PDF: save its text (pdftotext) and give that",
    b"7z\xbc\xaf": "a 7z archive: unpack it and give the folder",
    b"Rar!": "a rar archive: unpack it and give the folder",
}
UTF16 = (b"\xff\xfe", b"\xfe\xff")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Longer documents are cut, so that a file without line breaks is read in constant memory too; longer pages end reading.
LONGEST, LONGEST_PAGE = 1 << 22, 1 << 23
# Archives are unpacked in parts of so many bytes; zstandard gets so few at a time; xz may have so large a window.
MOST_UNPACKED, LITTLE, MOST_MEMORY = 1 << 20, 1 << 8, 1 << 28
# A table's columns are separated by whichever of these its first line has most of.
DELIMITERS = (",", ";", "\t", "|")
# Rows of a Parquet file that are read at once, and the column of titles.
PARQUET, ROWS, TITLE = b"PAR1", 256, "title"
# Bytes that a page of a Parquet file may unpack to.
LARGEST_PAGE = 1 << 26
# No page header has more bytes than this, nor more structures inside each other.
LONGEST_HEADER, DEEPEST = 1 << 16, 8
BLANK_LINE = re.compile(rb"\S[^\n]*\n[ \t\r]*\n\s*\S")
LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")

DUMP = re.compile(rb"^\s*(<\?xml[^>]*>\s*)?<mediawiki\b")
REDIRECT = re.compile(r"\s*#\s*redirect", re.IGNORECASE)
# What gensim's filter leaves: headings' signs and quotes for bold and italics.
SIGNS = re.compile(r"={2,}|'{2,}")
# Shorter articles are stubs; gensim's reader has the same limit.
SHORTEST = 50

# Called with how many more bytes were read from disk: compressed ones, so that they add up to the file's size.
Progress = Callable[[int], None]


@dataclass
class Problems:
    """Counts that grow while a corpus is read."""

    bad_encodings: int = 0
    """Documents with bytes that are not UTF-8; each such byte became U+FFFD."""

    broken_lines: int = 0
    """Lines that are not a JSON object, and lines or rows whose text field holds no text; left out."""

    lines_without_field: int = 0
    """JSON lines that lack the text's field; left out."""

    first_without_field: str = ""
    """What the first of them lacks, and what it has instead, in words."""

    long_documents: int = 0
    """Documents cut into several because they exceed what is held in memory."""

    broken_markup: list[str] = field(default_factory=list)
    """Where a Wikipedia dump stops being XML."""

    archives: list[str] = field(default_factory=list)
    """Compressed files that could be read in part only, and how far."""

    not_text: list[str] = field(default_factory=list)
    """Files of a folder that are not text, or not in UTF-8; left out."""

    redirects: int = 0
    """Pages of a dump that only point to another one; left out, as they should be."""

    stubs: int = 0
    """Pages of a dump with too few words; left out, as they should be."""

    def add_line_without(self, field: str, there: Iterable[str]) -> None:
        """Count a line that lacks ``field``; for the first, note some of the fields that it has."""
        self.lines_without_field += 1
        if not self.first_without_field:
            names = ", ".join(islice(there, MOST_FIELDS))
            self.first_without_field = f'the field "{field}"; the first of them has {names or "none"}'

    def clear(self) -> None:
        """Count from zero again."""
        vars(self).update(vars(Problems()))

    def sentences(self) -> list[str]:
        """One sentence for each kind of problem that occurred. Redirects and stubs are no problem and have none."""
        counted = {
            "documents had bytes that are not UTF-8, shown as U+FFFD": self.bad_encodings,
            "broken lines were left out": self.broken_lines,
            f"lines were left out, because they lack {self.first_without_field}": self.lines_without_field,
            "very long documents were cut into several": self.long_documents,
        }
        found = [f"{count:,} {phrase}" for phrase, count in counted.items() if count]
        if self.not_text:
            found.append(_files_left_out(self.not_text))
        return found + [
            place if place.endswith(FROM_THE_BEGINNING) else f"{place}: what comes before is used"
            for place in self.archives + self.broken_markup
        ]


def corpus_notes(description: Mapping[str, Any]) -> list[str]:
    """Sentences on the parts of a corpus that could not be read, from the description kept with its passages."""
    return [f"{description['source']}: {sentence}." for sentence in Problems(**description["problems"]).sentences()]


def _files_left_out(names: list[str]) -> str:
    listed = ", ".join(names[:MOST_FILES])
    more = f" and {len(names) - MOST_FILES:,} more" if len(names) > MOST_FILES else ""
    said = (
        "1 file is not text in UTF-8 and was"
        if len(names) == 1
        else f"{len(names):,} files are not text in UTF-8 and were"
    )
    return f"{said} left out: {listed}{more}"


class NotTextError(InputError):
    """A file holds no text, or none in UTF-8."""


# A file, or one within a zip archive: both have a name and can be opened.
AnyPath = Path | zipfile.Path


def is_zip(path: Path) -> bool:
    """Whether a file is a zip archive; a file without a size is none, and reading it might never end."""
    if not path.stat().st_size:
        return False
    with path.open("rb") as file:
        return file.read(4) in (b"PK\x03\x04", b"PK\x05\x06")


def zip_members(path: Path, problems: Problems) -> list[zipfile.Path]:
    """The files in a zip archive in the order of their names; hidden ones, and what macOS adds, are left out."""
    try:
        archive = zipfile.Path(zipfile.ZipFile(path))
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError):
        problems.archives.append(f"{path.name} is corrupt {FROM_THE_BEGINNING}")
        return []
    infos = archive.root.infolist()
    if OFFICE & {each.filename for each in infos}:
        raise NotTextError(f"{path} is a document of an office program: save it as plain text or CSV.")
    names = sorted(each.filename for each in infos if not each.is_dir())
    shown = [name for name in names if not name.startswith("__MACOSX/") and not re.search(r"(^|/)\.", name)]
    return [zipfile.Path(archive.root, name) for name in shown]


def size_on_disk(path: AnyPath) -> int:
    """Bytes that a file takes, within its zip archive if it is in one."""
    return path.root.getinfo(path.at).compress_size if isinstance(path, zipfile.Path) else path.stat().st_size


def read_chunks(path: AnyPath, problems: Problems, progress: Progress | None = None) -> Iterator[bytes]:
    """The file's content, decompressed; ends early, and says so in ``problems``, where an archive is corrupt."""
    if isinstance(path, zipfile.Path):
        yield from _zipped_chunks(path, problems)
        if progress:
            progress(size_on_disk(path))
        return
    if path.exists() and not path.is_file():
        raise NotTextError(f"{path} is not a regular file: give a file of text.")
    # A file without a size has no text, or is a system file: reading its log would never end.
    if not path.stat().st_size:
        return
    with path.open("rb") as file:
        method = compression(file.peek(8))
        raw = _counted(iter(lambda: file.read(CHUNK), b""), progress)
        if method is None:
            yield from raw
        else:
            yield from _decompressed(raw, method, path.name, path.stat().st_size, problems)


def _zipped_chunks(path: zipfile.Path, problems: Problems) -> Iterator[bytes]:
    read = 0
    try:
        with cast(zipfile.ZipExtFile, path.open("rb")) as file:
            method = compression(file.peek(8))
            raw = iter(lambda: file.read(CHUNK), b"")
            size = path.root.getinfo(path.at).file_size
            for chunk in raw if method is None else _decompressed(raw, method, path.name, size, problems):
                read += len(chunk)
                yield chunk
    except RuntimeError:
        problems.archives.append(f"{path.name} is protected by a password and cannot be read {FROM_THE_BEGINNING}")
    except (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, NotImplementedError):
        where = f"after {read:,} bytes" if read else FROM_THE_BEGINNING
        problems.archives.append(f"{path.name} is corrupt {where}")


def beginning(path: AnyPath, size: int = CHUNK) -> bytes:
    """The first bytes of the content, to see what it is."""
    found = b""
    for chunk in read_chunks(path, Problems()):
        found += chunk
        if len(found) >= size:
            break
    if found.startswith(UTF16):
        raise NotTextError(f"{path} is in UTF-16: convert it to UTF-8 (iconv -f UTF-16 -t UTF-8).")
    for magic, advice in OTHER_KINDS.items():
        if found.startswith(magic):
            raise NotTextError(f"{path} is {advice}.")
    if found[257:262] == b"ustar":
        raise NotTextError(f"{path} is a tar archive: unpack it (tar -xf) and give the folder.")
    return found[:size]


def compression(start: bytes) -> str | None:
    """How a file that begins like this is compressed; None if it is not."""
    return next((method for magic, method in MAGIC.items() if start.startswith(magic)), None)


def _counted(chunks: Iterator[bytes], progress: Progress | None) -> Iterator[bytes]:
    for chunk in chunks:
        yield chunk
        if progress:
            progress(len(chunk))


def _decompressed(chunks: Iterator[bytes], method: str, name: str, size: int, problems: Problems) -> Iterator[bytes]:
    """The members of an archive in turn (dumps of Wikipedia have thousands)."""
    engine, read, given = _decompressor(method), 0, 0
    bad = (_zstandard().ZstdError,) if method == "zstd" else (OSError, EOFError, zlib.error, lzma.LZMAError)
    try:
        for chunk in chunks:
            left = chunk
            while left:
                if engine.eof:
                    engine = _decompressor(method)
                for content, rest in _bounded(engine, method, left):
                    read, given, left = read + len(left) - len(rest), given + len(content), rest
                    yield content
    except bad:
        where = f"after {read:,} of {size:,} bytes" if given else FROM_THE_BEGINNING
        problems.archives.append(f"{name} is corrupt {where}")
        return
    if not engine.eof:
        problems.archives.append(f"{name} ends in the middle of its data after {read:,} bytes")


def _bounded(engine: Any, method: str, content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """What a member of an archive unpacks to, a few megabytes at a time, with the rest of its content each time.

    A kilobyte may unpack to gigabytes. Two of the libraries can be asked for at most so much, and then for the rest;
    zlib reports what it has not looked at yet; zstandard, whose blocks have at most 128 kB, is given little at a time.
    """
    left = content
    while True:
        if method == "zstd":
            some, left = left[:LITTLE], left[LITTLE:]
            unpacked = engine.decompress(some)
            left = engine.unused_data + left if engine.eof else left
        elif method == "gzip":
            unpacked = engine.decompress(left, MOST_UNPACKED)
            left = engine.unused_data if engine.eof else engine.unconsumed_tail
        else:
            unpacked = engine.decompress(left, MOST_UNPACKED)
            left = engine.unused_data if engine.eof else b""
        # Some writers fill up the last block with zeros.
        left = left.lstrip(b"\0") if engine.eof else left
        yield unpacked, left
        if engine.eof or not (left or (method in ("bz2", "xz") and not engine.needs_input)):
            return


def _decompressor(method: str) -> Any:
    if method == "zstd":
        return _zstandard().ZstdDecompressor().decompressobj()
    if method == "gzip":
        return zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    return bz2.BZ2Decompressor() if method == "bz2" else lzma.LZMADecompressor(memlimit=MOST_MEMORY)


def _zstandard() -> Any:
    return import_for_language("zstandard", "Reading .zst files needs zstandard")


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
    """One document per line; empty lines are skipped."""
    return (decoded(line, problems) for line in lines(chunks, problems) if line.strip())


def paragraph_texts(chunks: Iterable[bytes], problems: Problems, *, at_blank_lines: bool = True) -> Iterator[str]:
    """One document per paragraph, separated by blank lines; without ``at_blank_lines`` the whole file is one."""
    parts: list[bytes] = []
    size = 0
    for line in lines(chunks, problems):
        blank, too_long = at_blank_lines and not line.strip(), size > LONGEST
        if parts and (blank or too_long):
            problems.long_documents += not blank
            yield decoded(b"\n".join(parts), problems)
            parts, size = [], 0
        if not blank:
            parts.append(line)
            size += len(line) + 1
    if any(part.strip() for part in parts):
        yield decoded(b"\n".join(parts), problems)


def whole_texts(chunks: Iterable[bytes], problems: Problems) -> Iterator[str]:
    """One document: the whole file."""
    return paragraph_texts(chunks, problems, at_blank_lines=False)


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


def parts(text: str, problems: Problems) -> Iterator[str]:
    """A document, cut into several if it is too long; an empty one stays."""
    problems.long_documents += len(text) > LONGEST
    yield from (text[at : at + LONGEST] for at in range(0, max(len(text), 1), LONGEST))


def decoded(content: bytes, problems: Problems) -> str:
    """Decode UTF-8; bytes that are not UTF-8 become U+FFFD and are counted."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        problems.bad_encodings += 1
        return content.decode(errors="replace")


def _encodable(text: str, problems: Problems) -> str:
    r"""JSON may escape half of a surrogate pair (``\ud800``), not a character: it becomes U+FFFD and is counted."""
    replaced = LONE_SURROGATE.sub("\ufffd", text)
    problems.bad_encodings += replaced != text
    return replaced


def has_paragraphs(start: bytes) -> bool:
    """Whether blank lines separate parts of this text."""
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
    while True:
        try:
            row = _long_row(rows)
        except StopIteration:
            return
        except csv.Error:
            problems.broken_lines += 1
            continue
        if len(row) <= place:
            problems.broken_lines += bool(row)
        elif row[place].strip():
            yield row[title] if title is not None and len(row) > title else "", row[place]


def _long_row(rows: Iterator[list[str]]) -> list[str]:
    """The next row, whose cells may be as long as a document; the limit belongs to the process, so it is put back."""
    before = csv.field_size_limit(LONGEST)
    try:
        return next(rows)
    finally:
        csv.field_size_limit(before)


def parquet_texts(
    path: AnyPath, problems: Problems, field: str, progress: Progress | None
) -> Iterator[tuple[str, str]]:
    """The same for a Parquet file; ``progress`` is called with a share of its bytes after every few rows.

    A page is unpacked as a whole, so the size in its header is checked first. No value is larger than a page.
    """
    parquet = import_for_language("pyarrow.parquet", "Reading Parquet files needs pyarrow")
    arrow = import_for_language("pyarrow", "Reading Parquet files needs pyarrow")
    with path.open("rb") as file, path.open("rb") as headers:
        size, told = size_on_disk(path), 0
        try:
            # A chunk of a column is read piece by piece, not as a whole.
            table = parquet.ParquetFile(file, pre_buffer=False, buffer_size=CHUNK)
            columns = table.schema_arrow.names
            _column(columns, field, path.name)
            wanted = [each for each in (TITLE, field) if each in columns]
            done, every = 0, max(table.metadata.num_rows, 1)
            for group in range(table.num_row_groups):
                largest = largest_page(headers, table.metadata.row_group(group), wanted)
                if largest > LARGEST_PAGE:
                    problems.archives.append(
                        f"{path.name} has a part that unpacks to {largest:,} bytes at once, of at most {LARGEST_PAGE:,}"
                    )
                    break
                rows = max(1, min(ROWS, LARGEST_PAGE // max(largest, 1)))
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


def largest_page(file: Any, group: Any, columns: Sequence[str]) -> int:
    """How many bytes the largest page of these columns unpacks to, from the headers of all pages.

    A page is the smallest unit that can be unpacked, pyarrow allocates what its header says, and no mandatory index has
    its size. Headers are in Thrift's compact protocol.
    """
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


def _column(columns: list[Any], field: str, name: str) -> int:
    if field not in columns:
        if not columns:
            raise InputError(f"{name} is empty: give a file with a header and a column of text.")
        listed = ", ".join(map(str, columns[:20]))
        raise InputError(
            f'{name} has no column "{field}": its columns are {listed}; name the one of the text with {FIELD_OPTION}.'
        )
    return columns.index(field)


def _without_compression(name: str) -> str:
    for ending in COMPRESSIONS:
        name = name.lower().removesuffix(ending)
    return name


class Page(NamedTuple):
    """A page as the dump has it."""

    title: str
    namespace: str | None
    redirect: bool
    markup: str


def is_dump(start: bytes) -> bool:
    """Whether a file that begins like this is a Wikipedia dump."""
    return DUMP.match(start) is not None


def articles(chunks: Iterable[bytes], problems: Problems, name: str) -> Iterator[tuple[str, str]]:
    """(Title, text) of the dump's articles, by gensim's markup filter: no talk, no redirects, no stubs, no markup."""
    reader = import_for_language("gensim.corpora.wikicorpus", "Reading Wikipedia needs gensim")
    for page in pages(chunks, problems, name):
        if not _is_article(page, reader.IGNORED_NAMESPACES):
            continue
        if page.redirect or REDIRECT.match(page.markup):
            problems.redirects += 1
            continue
        text = SIGNS.sub("", reader.filter_wiki(page.markup))
        if len(text.split(maxsplit=SHORTEST)) < SHORTEST:
            problems.stubs += 1
        else:
            yield from ((page.title, part) for part in parts(text, problems))


def pages(chunks: Iterable[bytes], problems: Problems, name: str) -> Iterator[Page]:
    """Pages one at a time; where the XML breaks or ends too early, all pages before have been yielded."""
    root: Element | None = None
    archives = len(problems.archives)
    try:
        for event, element in _events(chunks):
            if event == "start":
                root = element if root is None else root
            elif _is_page(element):
                yield _page(element)
                # Children of the root would be kept to the end of the dump.
                assert root is not None
                root.clear()
    except _LongPageError:
        problems.broken_markup.append(f"{name} has a page of more than {LONGEST_PAGE:,} bytes")
    except ParseError as error:
        # An archive that broke off has been noted already.
        if len(problems.archives) == archives:
            problems.broken_markup.append(f"{name} is not XML from line {error.position[0]:,} on")


class _LongPageError(Exception):
    """A page does not end within reasonable memory."""


def _is_page(element: Element) -> bool:
    return element.tag.rpartition("}")[2] == "page"


def _events(chunks: Iterable[bytes]) -> Iterator[tuple[str, Element]]:
    """The beginnings and ends of elements."""
    parser: XMLPullParser[Any] = XMLPullParser(("start", "end"))
    since = 0
    for chunk in chunks:
        parser.feed(chunk)
        since += len(chunk)
        for event, element in cast("Iterator[tuple[str, Element]]", parser.read_events()):
            if event == "end" and _is_page(element):
                since = 0
            yield event, element
        # All of a page is kept until it ends.
        if since > LONGEST_PAGE:
            raise _LongPageError
    try:
        # Raises where the root has no end.
        parser.close()
    finally:
        # What the parser had held back, waiting for more.
        yield from cast("Iterator[tuple[str, Element]]", parser.read_events())


def _page(element: Element) -> Page:
    """A page from its element, in any XML namespace, since this changes with every version of the dumps' format."""
    revisions = element.findall("{*}revision")
    return Page(
        title=element.findtext("{*}title") or "",
        namespace=element.findtext("{*}ns") or None,
        redirect=element.find("{*}redirect") is not None,
        markup=(revisions[-1].findtext("{*}text") or "") if revisions else "",
    )


def _is_article(page: Page, other_namespaces: Iterable[str]) -> bool:
    if page.namespace is not None:
        return page.namespace.strip() == "0"
    # Dumps from before <ns> distinguish talk, templates and users from articles by the title's prefix alone.
    prefix, colon, _ = page.title.partition(":")
    return not colon or (prefix not in other_namespaces and not prefix.lower().endswith("talk"))
