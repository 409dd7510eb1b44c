"""Tables and zip archives hold the same documents as JSON lines do, and say what is missing."""

import bz2
import csv
import io
import json
import zipfile
from pathlib import Path

import pytest

from topicscope.errors import InputError
from topicscope.text.corpora import open_corpus

ROWS = [
    {"title": "Frogs", "body": 'A frog, "green",\nin a pond; it sings.', "views": "12"},
    {"title": "Toads", "body": "A toad\tin a wood.", "views": "3"},
]
EXPECTED = [(row["title"], row["body"]) for row in ROWS]


def table(delimiter: str) -> bytes:
    content = io.StringIO(newline="")
    writer = csv.DictWriter(content, fieldnames=list(ROWS[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(ROWS)
    return b"\xef\xbb\xbf" + content.getvalue().encode()


def parquet() -> bytes:
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as files

    content = io.BytesIO()
    files.write_table(arrow.Table.from_pylist([*ROWS, {"title": "x", "body": None, "views": "1"}]), content)
    return content.getvalue()


def zipped(**members: bytes) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    return content.getvalue()


JSON_LINES = "\n".join(map(json.dumps, ROWS)).encode()
FILES = {
    "news.csv": table(","),
    "semicolons.csv": table(";"),
    "news.tsv": table("\t"),
    "news.csv.bz2": bz2.compress(table(",")),
    "news.zip": zipped(**{"news/news.jsonl": JSON_LINES, "__MACOSX/x": b"\0", "news/.hidden": b"no"}),
    "table.zip": zipped(**{"news.csv": table(",")}),
    "twice.zip": zipped(**{"news.csv.bz2": bz2.compress(table(","))}),
}


@pytest.mark.parametrize("name", [*FILES, "news.parquet", "parquet.zip"])
def test_tables_and_archives_have_the_documents_of_json_lines(name: str, tmp_path: Path) -> None:
    content = FILES.get(name) or (parquet() if name == "news.parquet" else zipped(**{"a.parquet": parquet()}))
    path = tmp_path / name
    path.write_bytes(content)
    corpus = open_corpus(str(path), field="body")
    seen: list[int] = []
    assert [(each.title, each.text) for each in corpus.documents(seen.append)] == EXPECTED
    assert sum(seen) == corpus.size
    assert corpus.problems.broken_lines == (1 if "parquet" in name else 0)
    # The control: another column is other text, or none.
    assert [each.text for each in open_corpus(str(path), field="views").documents()][:2] == ["12", "3"]
    with pytest.raises(InputError, match="title, body, views"):
        list(open_corpus(str(path)).documents())


def test_the_files_of_an_archive_are_documents_as_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(zipped(**{"b.txt": b"toad\n\npond", "a.txt": b"frog", "logo.png": b"\x89PNG\0"}))
    corpus = open_corpus(str(tmp_path / "a.zip"))
    assert [(each.title, each.text) for each in corpus.documents()] == [("a.txt", "frog"), ("b.txt", "toad\n\npond")]
    assert corpus.problems.not_text == ["logo.png"]


def test_broken_rows_are_counted_and_survived(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,text\n1,frog\n2\n\n3,\n4,toad\n")
    corpus = open_corpus(str(tmp_path / "a.csv"))
    assert [each.text for each in corpus.documents()] == ["frog", "toad"]
    assert corpus.problems.broken_lines == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (zipped(**{"[Content_Types].xml": b"<x/>", "word/document.xml": b"<x/>"}), "office program: save it as"),
        (zipped(**{"a.txt": b"frog " * 999})[:60], "is corrupt from its"),
        (b"%PDF-1.7\n", "pdftotext"),
        (b"Rar!\x1a\x07", "unpack it and give the folder"),
        (b"PAR1" + b"\0" * 40, "Parquet file that cannot be read"),
        (zipped(**{"notes.txt": b""}), "has no document"),
    ],
    # An archive has the time of its making in it, which must not be part of a test's name.
    ids=["office", "corrupt-zip", "pdf", "rar", "corrupt-parquet", "empty-zip"],
)
def test_files_that_hold_no_text_get_a_sentence_that_says_what_to_do(
    content: bytes, message: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(InputError, match=message):
        list(open_corpus(str(tmp_path / "file")).documents())


def test_an_empty_name_is_not_the_current_folder() -> None:
    with pytest.raises(InputError, match='corpus = "" names nothing'):
        open_corpus("")
