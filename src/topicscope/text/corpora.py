"""Documents of a corpus, one at a time: files, folders, Wikipedia dumps, Hugging Face datasets, a packaged sample."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

from topicscope import scale
from topicscope.errors import InputError, check_one_of
from topicscope.files import expanded
from topicscope.settings.text import Layout
from topicscope.text import formats, hub
from topicscope.text.formats import (
    FIELD_OPTION,
    AnyPath,
    NotTextError,
    Problems,
    Progress,
    beginning,
    read_chunks,
    size_on_disk,
)

SAMPLE = "wiki-sample"
SAMPLE_FILE = "enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"


@dataclass(frozen=True)
class Document:
    """A document: passages are cut from it, and statistics treat documents as independent."""

    index: int
    title: str
    text: str


def open_corpus(source: str, *, field: str = "text", split: str = "train", layout: str = "auto") -> "Corpus":
    """The corpus that a user names.

    source: ``wiki-sample``; a file (text, JSON lines, CSV, TSV, Parquet or a Wikipedia dump, each plain or compressed
    by gzip, bz2, xz or zstd); a zip archive or folder of such files; else the name of a Hugging Face dataset, as NAME
    or NAME:CONFIG.
    field: the field of JSON lines, tables and datasets that holds the text.
    split: the part of a dataset.
    layout: what a document is in plain text. With ``auto`` it is each file of a folder, or of an archive that has
    several; in a single file it is each paragraph if blank lines separate any, else each line.
    """
    check_one_of("layout", layout, get_args(Layout))
    check_exists(source)
    if source == SAMPLE:
        return Corpus(source, (_sample(),))
    path = expanded(source)
    if path.is_dir():
        files = tuple(file for file in sorted(path.rglob("*")) if file.is_file() and not _hidden(file, path))
        return Corpus(source, files, text_field=field, layout="files" if layout == "auto" else layout)
    if path.is_file():
        return Corpus(source, (path,), text_field=field, layout=layout)
    return Corpus(source, (), dataset=hub.load(source, split), text_field=field)


def check_exists(source: str) -> None:
    """Refuse what can only be a path but does not exist, and an empty name, which as a path is the current folder."""
    if not source.strip():
        raise InputError('corpus = "" names nothing: give a file, a folder, wiki-sample or a dataset\'s name.')
    path = expanded(source)
    a_path = path.is_absolute() or path.suffix or source.startswith((".", "~")) or source.count("/") > 1
    if a_path and not path.exists():
        raise InputError(
            f'corpus = "{source}" does not exist: give a file, a folder, wiki-sample or a dataset\'s name.'
        )


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
    problems: Problems = field(default_factory=Problems)
    """Counted anew each time the documents are read."""

    @property
    def size(self) -> int | None:
        """Bytes on disk, which progress adds up to; None if unknown."""
        return sum(path.stat().st_size for path in self.files) if self.files else None

    @cached_property
    def digest(self) -> str:
        """Identifies the content and how it is read."""
        found = hashlib.sha256(repr((self.text_field, self.layout, self.dataset and self.dataset.identity)).encode())
        for path in self.files:
            # A file's name says whether it is a table.
            found.update(b"table" if formats.is_table(path.name) else b"")
            with path.open("rb") as file:
                found.update(hashlib.file_digest(file, "sha256").digest())
        return found.hexdigest()[:20]

    def documents(self, progress: Progress | None = None) -> Iterator[Document]:
        """All documents; ``progress`` is called with the bytes of every piece read (of its text, for a dataset)."""
        self.problems.clear()
        found = 0
        for title, text in self._texts(progress):
            yield Document(found, title, text)
            found += 1
        if not found:
            because = "; ".join(self.problems.sentences())
            remedy = f"give text, JSON lines or a table with a field {self.text_field}, or a Wikipedia dump"
            if self.problems.lines_without_field:
                remedy = f"name the field that holds the text with {FIELD_OPTION}"
            raise InputError(f'corpus = "{self.source}" has no document{f" ({because})" if because else ""}: {remedy}.')

    def _texts(self, progress: Progress | None) -> Iterator[tuple[str, str]]:
        if self.dataset:
            yield from self.dataset.texts(self.text_field, self.problems, progress)
        for path in self.files:
            yield from self._readable(path, progress, alone=len(self.files) == 1)

    def _readable(self, path: AnyPath, progress: Progress | None, *, alone: bool) -> Iterator[tuple[str, str]]:
        """The texts of a file; a file that is not text is refused if it is the only one, else counted."""
        try:
            texts = self._file_texts(path, progress, alone=alone)
        except NotTextError:
            if alone:
                raise
            # Among other files, like pictures in many folders, it does not end a study.
            self.problems.not_text.append(path.name)
            if progress:
                progress(size_on_disk(path))
        else:
            yield from texts

    def _archive_texts(
        self, path: Path, members: Sequence[AnyPath], progress: Progress | None, *, alone: bool
    ) -> Iterator[tuple[str, str]]:
        for member in members:
            yield from self._readable(member, progress, alone=alone and len(members) == 1)
        if progress:
            # What the archive holds besides its files.
            progress(path.stat().st_size - sum(map(size_on_disk, members)))

    def _file_texts(self, path: AnyPath, progress: Progress | None, *, alone: bool) -> Iterator[tuple[str, str]]:
        if isinstance(path, Path) and formats.is_zip(path):
            return self._archive_texts(path, formats.zip_members(path, self.problems), progress, alone=alone)
        start = beginning(path)
        if formats.is_parquet(start):
            return formats.parquet_texts(path, self.problems, self.text_field, progress)
        if b"\0" in start:
            raise NotTextError(f"{path} is not text: give text, JSON lines, CSV, Parquet or a Wikipedia dump.")
        chunks = read_chunks(path, self.problems, progress)
        if formats.is_dump(start):
            return formats.articles(chunks, self.problems, path.name)
        if formats.is_json(start):
            return formats.json_texts(chunks, self.problems, self.text_field)
        if formats.is_table(path.name):
            return formats.csv_texts(chunks, self.problems, self.text_field, path.name)
        layout = self.layout
        if layout == "auto" and not alone:
            layout = "files"
        elif layout == "auto":
            layout = "paragraphs" if formats.has_paragraphs(start) else "lines"
        split = {"lines": formats.line_texts, "paragraphs": formats.paragraph_texts, "files": formats.whole_texts}
        return ((path.name, text) for text in split[layout](chunks, self.problems))


def bytes_read(corpus: Corpus, report: scale.Report | None, *, why: str = "") -> Progress:
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


def _hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(folder).parts)
