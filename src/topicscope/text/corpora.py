"""Documents of a corpus, one at a time: files, folders, Wikipedia dumps, Hugging Face datasets, a packaged sample.

Datasets are read by the library ``datasets``. Files are opened here, by the libraries that it uses itself: its own
readers hold a document in memory however long it is (4.4 GB for 600 MB of one letter) and end at the first broken line.
Here a document that is too long is refused while it is read, whatever a file unpacks to, a broken line is left out and
counted (``ReadingProblems``), and a damaged file is refused.
"""

import bz2
import csv
import gzip
import hashlib
import io
import json
import lzma
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args
from xml.etree.ElementTree import ParseError

from topicscope.errors import InputError, check_one_of, first_few, import_for_language
from topicscope.settings.data import Layout
from topicscope.store import expanded
from topicscope.text import hub

SAMPLE = "wiki-sample"
SAMPLE_FILE = "enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
# Bytes of the longest document, and of the largest part of a Parquet file that is unpacked at once.
LONGEST, LARGEST_PART = 1 << 23, 1 << 30
# Bytes from which a file's kind is seen, and rows of a Parquet file that are read at once.
SEEN, ROWS = 1 << 16, 16
# Other kinds of files that people try, by their first bytes, and what to do with them.
OTHER_KINDS = {
    b"%PDF": "is a PDF: save its text (pdftotext) and give that",
    b"PK\x03\x04": "is a zip archive or an office document: unpack it and give the folder, or save it as text or CSV",
    b"\xff\xfe": "is in UTF-16: convert it to UTF-8 (iconv -f UTF-16 -t UTF-8)",
    b"\xfe\xff": "is in UTF-16: convert it to UTF-8 (iconv -f UTF-16 -t UTF-8)",
}
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# A table's columns are separated by whichever of these its first line has most of.
DELIMITERS = (",", ";", "\t", "|")
BLANK_LINE = re.compile(rb"\n[ \t\r]*\n\s*\S")
# From its content a table could be prose with commas.
TABLE_NAME = re.compile(r"\.[ct]sv(\.(gz|bz2|xz|zst))?$", re.IGNORECASE)
DUMP = re.compile(rb"^\s*(<\?xml[^>]*>\s*)?<mediawiki\b")
REDIRECT = re.compile(r"\s*#\s*redirect", re.IGNORECASE)
# What gensim's filter leaves: headings' signs and quotes for bold and italics.
SIGNS = re.compile(r"={2,}|'{2,}")
# Words of the shortest article; gensim's reader has the same limit.
SHORTEST = 50

# Called with how many more bytes were read from disk: compressed ones, so that they add up to the file's size.
Progress = Callable[[int], None]
Texts = Iterator[str]


class NoTextError(InputError):
    """A file holds no text, or none in UTF-8, or none under the name that was given."""


def open_corpus(source: str, *, field: str = "text", split: str = "train", layout: str = "auto") -> "Corpus":
    """The corpus that a user names.

    source: ``wiki-sample``; a file (text, JSON lines, CSV, TSV, Parquet or a Wikipedia dump, each plain or compressed
    by gzip, bz2, xz or zstd); a folder of such files; else the name of a Hugging Face dataset, as NAME or NAME:CONFIG.
    field: the field of JSON lines, tables and datasets that holds the text.
    split: the part of a dataset.
    layout: what a document is in plain text. With ``auto`` it is each file of a folder; in a single file it is each
    paragraph if blank lines separate any, else each line.
    """
    check_one_of("layout", layout, get_args(Layout))
    check_exists(source)
    path = expanded(source)
    if source == SAMPLE:
        return Corpus(source, (_sample(),))
    if path.is_dir():
        every = (file for file in path.rglob("*") if file.is_file())
        files = sorted(file for file in every if not any(part[0] == "." for part in file.relative_to(path).parts))
        return Corpus(source, tuple(files), text_field=field, layout="files" if layout == "auto" else layout)
    if path.is_file():
        return Corpus(source, (path,), text_field=field, layout=layout)
    return Corpus(source, (), dataset=hub.load_dataset(source, split), text_field=field)


def check_exists(source: str) -> None:
    """Refuse what can only be a path but does not exist, and an empty name, which as a path is the current folder."""
    path = expanded(source)
    a_path = path.is_absolute() or path.suffix or source.startswith((".", "~")) or source.count("/") > 1
    if not source.strip() or (a_path and not path.exists()):
        what = "does not exist" if source.strip() else "names nothing"
        raise InputError(f'corpus = "{source}" {what}: give a file, a folder, wiki-sample or a dataset\'s name.')


@dataclass
class ReadingProblems:
    """What went wrong while a corpus was read: counts that grow meanwhile."""

    bad_encodings: int = 0
    """Documents with bytes that are not UTF-8; each such byte became U+FFFD."""

    broken_lines: int = 0
    """Lines that are not a JSON object, and lines or rows whose text field holds no text; left out."""

    not_text: list[str] = field(default_factory=list)
    """Files of a folder that are not text, not in UTF-8, or lack the text's field; left out."""

    def clear(self) -> None:
        """Count from zero again."""
        self.bad_encodings, self.broken_lines, self.not_text = 0, 0, []

    def sentences(self) -> list[str]:
        """One sentence for each kind of problem that occurred."""
        counted = {
            "documents had bytes that are not UTF-8, shown as U+FFFD": self.bad_encodings,
            "broken lines were left out": self.broken_lines,
            f"files have no text that can be read and were left out: {first_few(self.not_text)}": len(self.not_text),
        }
        return [f"{count:,} {phrase}" for phrase, count in counted.items() if count]


@dataclass(frozen=True, eq=False)
class Corpus:
    """Documents that can be read repeatedly, always the same and in the same order."""

    source: str
    """What the user gave."""

    files: tuple[Path, ...]
    """What is read; empty for a Hugging Face dataset."""

    dataset: hub.HubDataset | None = None
    text_field: str = "text"
    layout: str = "auto"
    problems: ReadingProblems = field(default_factory=ReadingProblems)
    """Counted anew each time the documents are read."""

    @property
    def size(self) -> int | None:
        """Bytes on disk, which progress adds up to; None if unknown."""
        return sum(path.stat().st_size for path in self.files) if self.files else None

    @cached_property
    def digest(self) -> str:
        """Identifies the content and how it is read."""
        digest = hashlib.sha256(repr((self.text_field, self.layout, self.dataset and self.dataset.identity)).encode())
        for path in self.files:
            # A file's name says whether it is a table.
            digest.update(b"table" if TABLE_NAME.search(path.name) else b"")
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        return digest.hexdigest()[:20]

    def documents(self, progress: Progress | None = None) -> Texts:
        """All documents; ``progress`` is called with the bytes of every piece read (of its text, for a dataset).

        Passages are cut from a document, and statistics treat documents as independent.
        """
        self.problems.clear()
        some = False
        for text in self._texts(progress):
            some = True
            yield text
        if not some:
            because = "; ".join(self.problems.sentences())
            raise InputError(
                f'corpus = "{self.source}" has no document{f" ({because})" if because else ""}: give text, JSON lines '
                f"or a table with a field {self.text_field}, or a Wikipedia dump."
            )

    def _texts(self, progress: Progress | None) -> Texts:
        if self.dataset:
            if self.dataset.columns is not None:
                check_column(self.dataset.columns, self.text_field, f'corpus = "{self.source}"')
            for row in self.dataset.rows:
                for text in row_texts(row.get(self.text_field), self.source, self.problems):
                    yield text
                    if progress:
                        progress(len(text.encode()))
        for path in self.files:
            try:
                yield from file_texts(path, self.text_field, self.layout, self.problems, progress)
            except NoTextError:
                if len(self.files) == 1:
                    raise
                # Among other files, like pictures in many folders, it does not end a study.
                self.problems.not_text.append(path.name)


def bytes_read(corpus: Corpus, report: Callable[[int, int, str], None] | None, *, why: str = "") -> Progress:
    """Reports how much of a corpus is read; it is called with the bytes read since its last call."""
    read = 0

    def more(number: int) -> None:
        nonlocal read
        read += number
        if report and corpus.size:
            report(min(read, corpus.size), corpus.size, f"bytes read {why}".strip())

    return more


def _sample() -> Path:
    """The shortened English Wikipedia in gensim's package; gensim itself need not be loaded to find it."""
    package = find_spec("gensim")
    if package is None or package.origin is None:
        raise InputError('corpus = "wiki-sample" is in gensim\'s package: pip install "topicscope[language]".')
    return Path(package.origin).parent / "test" / "test_data" / SAMPLE_FILE


def file_texts(path: Path, text_field: str, layout: str, problems: ReadingProblems, progress: Progress | None) -> Texts:
    """The documents of a file."""
    # A file without a size is empty, or a system file whose reading would never end.
    if not path.stat().st_size:
        return
    try:
        with path.open("rb") as raw, unpacked(raw) as file:
            texts = _reader(file.read(SEEN), path, text_field, layout)
        with path.open("rb") as raw, unpacked(raw) as file:
            reported = 0
            for text in texts(file, path.name, problems):
                yield text
                if progress and raw.tell() > reported:
                    progress(raw.tell() - reported)
                    reported = raw.tell()
        if progress and reported < path.stat().st_size:
            progress(path.stat().st_size - reported)
    except (EOFError, OSError, zlib.error, lzma.LZMAError, ValueError, ParseError) as error:
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        raise InputError(f"{path.name} is damaged or incomplete ({reason}): fetch or write it again.") from None


def unpacked(raw: io.BufferedReader) -> Any:
    """The file's content, read a little at a time; its first bytes say whether and how it is compressed."""
    openers: dict[bytes, Callable[[Any], Any]] = {
        b"\x1f\x8b": gzip.open,
        b"BZh": bz2.open,
        b"\xfd7zXZ\x00": lzma.open,
        b"\x28\xb5\x2f\xfd": _open_zstandard,
    }
    start = raw.peek(8)
    return next((opener(raw) for magic, opener in openers.items() if start.startswith(magic)), raw)


def _open_zstandard(raw: Any) -> Any:
    """Through Arrow, which notices where a file breaks off; ``zstandard`` takes that for its end."""
    arrow = import_for_language("pyarrow", "Reading .zst files needs pyarrow")
    return io.BufferedReader(arrow.CompressedInputStream(arrow.PythonFile(raw, "r"), "zstd"))


def _reader(
    start: bytes, path: Path, text_field: str, layout: str
) -> Callable[[io.BufferedIOBase, str, ReadingProblems], Texts]:
    """How a file is to be read, from its first bytes: names of files often lie."""
    for magic, advice in OTHER_KINDS.items():
        if start.startswith(magic):
            raise NoTextError(f"{path} {advice}.")
    if start.startswith(b"PAR1"):
        return partial(parquet_texts, text_field=text_field)
    if b"\0" in start:
        raise NoTextError(f"{path} is not text: give text, JSON lines, CSV, Parquet or a Wikipedia dump.")
    if DUMP.match(start):
        return articles
    if _is_json(start):
        return partial(json_texts, text_field=text_field)
    if TABLE_NAME.search(path.name):
        return partial(csv_texts, text_field=text_field)
    if layout == "auto":
        layout = "paragraphs" if BLANK_LINE.search(start.lstrip()) else "lines"
    return partial(plain_texts, layout=layout)


def _is_json(start: bytes) -> bool:
    """Whether the first line is a JSON object, or begins like one and is longer than what is seen."""
    line, end, _ = start.removeprefix(BYTE_ORDER_MARK).lstrip().partition(b"\n")
    try:
        return line.startswith(b"{") and isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return not end and re.match(rb'\{\s*"', line) is not None


def too_long(name: str, what: str) -> InputError:
    """A document exceeds what is held in memory."""
    return InputError(f"{name} has {what} of more than {LONGEST:,} bytes, too long for a document: divide it.")


def lines(file: io.BufferedIOBase, name: str) -> Iterator[bytes]:
    """Lines without their end; a longer one than a document may be is refused before it is read to its end."""
    mark = BYTE_ORDER_MARK
    while line := file.readline(LONGEST + 1):
        if len(line) > LONGEST:
            raise too_long(name, "a line")
        yield line.removeprefix(mark).removesuffix(b"\n").removesuffix(b"\r")
        mark = b""


def plain_texts(file: io.BufferedIOBase, name: str, problems: ReadingProblems, layout: str) -> Texts:
    """Each line that is not blank, each paragraph between blank lines, or the whole file."""
    parts: list[bytes] = []
    size = 0
    for line in lines(file, name):
        blank = not line.strip()
        if parts and (layout == "lines" or (layout == "paragraphs" and blank)):
            yield decoded(b"\n".join(parts), problems)
            parts, size = [], 0
        if layout == "files" or not blank:
            parts.append(line)
            size += len(line) + 1
            if size > LONGEST + 1:
                raise too_long(name, "a paragraph" if layout == "paragraphs" else "a text")
    if any(part.strip() for part in parts):
        yield decoded(b"\n".join(parts), problems)


def json_texts(file: io.BufferedIOBase, name: str, problems: ReadingProblems, text_field: str) -> Texts:
    """The field ``text_field`` of each line's object; a file whose first object lacks it is refused."""
    first = True
    for line in filter(bytes.strip, lines(file, name)):
        try:
            row = json.loads(decoded(line, problems))
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            problems.broken_lines += 1
            continue
        if first:
            check_column(list(row), text_field, name)
        first = False
        for text in row_texts(row.get(text_field), name, problems):
            # JSON may escape half of a surrogate pair, which is no character.
            whole = text.encode(errors="replace").decode()
            problems.bad_encodings += whole != text
            yield whole


def csv_texts(file: io.BufferedIOBase, name: str, problems: ReadingProblems, text_field: str) -> Texts:
    """The column ``text_field`` of each row."""
    content = (decoded(line, problems) + "\n" for line in lines(file, name))
    first = next((line for line in content if line.strip()), "")
    delimiter = "\t" if ".tsv" in name.lower() else max(DELIMITERS, key=first.count)
    [header] = list(csv.reader([first], delimiter=delimiter)) or [[]]
    columns = [column.strip() for column in header]
    check_column(columns, text_field, name)
    place = columns.index(text_field)
    # The limit is the process's; by default it is 128 kB.
    csv.field_size_limit(LONGEST)
    rows = csv.reader(content, delimiter=delimiter)
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            if "limit" in str(error):
                raise too_long(name, "a cell") from None
            problems.broken_lines += 1
            continue
        if len(row) <= place:
            problems.broken_lines += bool(row)
        elif row[place].strip():
            yield row[place]


def parquet_texts(file: io.BufferedIOBase, name: str, problems: ReadingProblems, text_field: str) -> Texts:
    """The same for a Parquet file, whose index says what each of its parts unpacks to."""
    parquet = import_for_language("pyarrow.parquet", "Reading Parquet files needs pyarrow")
    # A part is read piece by piece, not as a whole.
    table = parquet.ParquetFile(file, pre_buffer=False, buffer_size=SEEN)
    check_column(table.schema_arrow.names, text_field, name)
    for group in range(table.num_row_groups):
        parts = table.metadata.row_group(group)
        for part in map(parts.column, range(parts.num_columns)):
            if part.path_in_schema == text_field and part.total_uncompressed_size > LARGEST_PART:
                raise InputError(
                    f"{name} has a part that unpacks to {part.total_uncompressed_size:,} bytes, of at most "
                    f"{LARGEST_PART:,}: write it with smaller row groups."
                )
        for batch in table.iter_batches(ROWS, row_groups=[group], columns=[text_field]):
            for text in batch.column(0).to_pylist():
                yield from row_texts(text, name, problems)


def row_texts(text: object, name: str, problems: ReadingProblems) -> Texts:
    """The text of a row of a file or dataset; nothing if it is none."""
    if not isinstance(text, str):
        problems.broken_lines += 1
    elif len(text) > LONGEST:
        raise too_long(name, "a row")
    else:
        yield text


def check_column(columns: Sequence[str], text_field: str, name: str) -> None:
    """Refuse a table that lacks the text's column, with the columns that it has."""
    if text_field not in columns:
        # JSON's names may have halves of surrogate pairs, which cannot be printed.
        names = first_few(columns).encode(errors="replace").decode() or "none"
        raise NoTextError(
            f'{name} has no column "{text_field}"; it has {names}: name the column of the text with --field '
            "(`topicscope probe`) or --data.field (`topicscope train`)."
        )


def decoded(content: bytes, problems: ReadingProblems) -> str:
    """Decode UTF-8; bytes that are not UTF-8 become U+FFFD and are counted."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        problems.bad_encodings += 1
        return content.decode(errors="replace")


def articles(file: io.BufferedIOBase, name: str, problems: ReadingProblems) -> Texts:
    """The dump's articles, by gensim's reader: no talk, no redirects, no stubs, no markup."""
    reader = import_for_language("gensim.corpora.wikicorpus", "Reading Wikipedia needs gensim")
    pages = _Pages(file, name)
    try:
        for _, markup, _ in reader.extract_pages(pages, filter_namespaces=("0",)):
            pages.read_since = 0
            if markup and not REDIRECT.match(markup):
                text = SIGNS.sub("", reader.filter_wiki(markup))
                if len(text.split(maxsplit=SHORTEST)) >= SHORTEST:
                    yield text
    except AttributeError:
        # What gensim looks for in a page is not there; its own corpus then waits for ever.
        raise InputError(
            f"{name} has a page without <ns>, as in dumps before 2008, or without a text: give a newer dump, or its "
            "text as JSON lines."
        ) from None


@dataclass
class _Pages:
    """A dump as gensim reads it; a page is held until it ends, so one that does not end is refused."""

    file: io.BufferedIOBase
    name: str
    read_since: int = 0

    def read(self, size: int) -> bytes:
        """More of the dump."""
        content = self.file.read(size)
        self.read_since += len(content)
        if self.read_since > LONGEST:
            raise too_long(self.name, "a page")
        return content
