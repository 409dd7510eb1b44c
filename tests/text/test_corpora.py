"""Corpora as documents: every kind of file gives the same ones, and what cannot be read is refused in one sentence."""

import bz2
import csv
import gzip
import io
import json
import lzma
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

import pytest
import zstandard
from gensim.corpora import wikicorpus

from support.fuzzing import MEGABYTE, little_memory
from topicscope.errors import InputError
from topicscope.text import corpora, hub
from topicscope.text.corpora import Corpus, open_corpus

ROWS = [
    {"title": "Frogs", "body": 'A frog, "green",\nin a pond; it sings.', "views": "12"},
    {"title": "Toads", "body": "A toad\tin a wood.", "views": "3"},
]
EXPECTED = [row["body"] for row in ROWS]
JSON_LINES = "\n".join(map(json.dumps, ROWS)).encode()


def texts(corpus: Corpus) -> list[str]:
    return list(corpus.documents())


def write(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


def table(delimiter: str) -> bytes:
    content = io.StringIO(newline="")
    writer = csv.DictWriter(content, fieldnames=list(ROWS[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(ROWS)
    return b"\xef\xbb\xbf" + content.getvalue().encode()


def parquet(rows: Sequence[Mapping[str, str | None]]) -> bytes:
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as files

    content = io.BytesIO()
    files.write_table(arrow.Table.from_pylist(list(rows)), content, compression="zstd")
    return content.getvalue()


def zst(content: bytes) -> bytes:
    """Two frames, as in large files."""
    packer = zstandard.ZstdCompressor()
    return packer.compress(content[: len(content) // 2]) + packer.compress(content[len(content) // 2 :])


FILES = {
    "news.jsonl": JSON_LINES,
    "news.jsonl.gz": gzip.compress(JSON_LINES),
    "news.jsonl.xz": lzma.compress(JSON_LINES),
    "news.jsonl.zst": zst(JSON_LINES),
    "lying-name.gz": JSON_LINES,
    "news.csv": table(","),
    "semicolons.csv": table(";"),
    "news.tsv": table("\t"),
    "news.csv.bz2": bz2.compress(table(",")),
    "news.parquet": parquet([*ROWS, {"title": "x", "body": None, "views": "1"}]),
}


@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_file_has_the_same_documents(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / name, FILES[name])
    corpus = open_corpus(path, field="body")
    seen: list[int] = []
    assert list(corpus.documents(seen.append)) == EXPECTED
    assert sum(seen) == corpus.size
    assert corpus.problems.broken_lines == ("parquet" in name)
    # The control: another column is other text, or none.
    assert texts(open_corpus(path, field="views"))[:2] == ["12", "3"]
    with pytest.raises(InputError, match=r"title, body, views.*--field"):
        texts(open_corpus(path))


def test_plain_text_is_a_document_a_line_a_paragraph_or_a_file(tmp_path: Path) -> None:
    lines = write(tmp_path / "lines", b"\xef\xbb\xbffrog pond\r\ntoad pond\n\n")
    assert texts(open_corpus(lines)) == ["frog pond", "toad pond"]
    assert texts(open_corpus(lines, layout="files")) == ["frog pond\ntoad pond\n"]
    paragraphs = write(tmp_path / "paragraphs", "one\r\ntwo\r\n \r\n\r\nthrée\nfour\n".encode())
    assert texts(open_corpus(paragraphs)) == ["one\ntwo", "thrée\nfour"]
    assert texts(open_corpus(paragraphs, layout="lines")) == ["one", "two", "thrée", "four"]
    assert texts(open_corpus(write(tmp_path / "prose", b"{curly} prose\nmore"))) == ["{curly} prose", "more"]


def test_a_folder_has_a_document_a_file_and_json_lines_in_it_one_a_line(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    write(tmp_path / "b.txt", b"toad\n\npond\n")
    write(tmp_path / "a" / "c.txt.bz2", bz2.compress(b"frog\npond"))
    write(tmp_path / "z.jsonl", b'{"body": "lizard", "title": "L"}\n{"body": "newt"}\n')
    write(tmp_path / ".hidden", b"nothing")
    assert texts(open_corpus(str(tmp_path), field="body")) == ["frog\npond", "toad\n\npond", "lizard", "newt"]


def test_files_of_a_folder_without_text_are_left_out_and_named(tmp_path: Path) -> None:
    write(tmp_path / "logo.png", b"\x89PNG\r\n\x1a\n\0\0\0")
    with pytest.raises(InputError, match=r"logo\.png is not text"):
        texts(open_corpus(str(tmp_path)))
    write(tmp_path / "text.txt", b"frog")
    (tmp_path / "notes.txt").write_text("toad", encoding="utf-16")
    write(tmp_path / "prices.csv", b"name,price\na,1\n")
    corpus = open_corpus(str(tmp_path))
    assert texts(corpus) == ["frog"]
    left_out = "3 files have no text that can be read and were left out: logo.png, notes.txt, prices.csv"
    assert corpus.problems.sentences() == [left_out]
    (tmp_path / "text.txt").unlink()
    with pytest.raises(InputError, match=r"has no document \(3 files have no text"):
        texts(open_corpus(str(tmp_path)))


def test_bad_lines_are_left_out_counted_and_survived(tmp_path: Path) -> None:
    lines = [
        b'{"text": "frog", "title": "A"}',
        b'{"text": "to',
        b'{"other": "toad"}',
        b'{"text": 7}',
        b"[" * 100_000,
        b"",
        rb'{"text": "a \ud83d b", "title": "\ud800"}',
        b'{"text": "liz\xffard"}',
    ]
    corpus = open_corpus(write(tmp_path / "a.jsonl", b"\n".join(lines)))
    for _ in range(2):
        assert texts(corpus) == ["frog", "a ? b", "liz\ufffdard"]
        # Counted anew each time.
        assert corpus.problems.sentences() == [
            "2 documents had bytes that are not UTF-8, shown as U+FFFD",
            "4 broken lines were left out",
        ]
    rows = open_corpus(write(tmp_path / "a.csv", b"id,text\n1,frog\n2\n\n3,\n4,toad\n"))
    assert texts(rows) == ["frog", "toad"]
    assert rows.problems.broken_lines == 1


# What a file holds, and a part of the sentence that refuses it.
REFUSED: list[tuple[bytes, str]] = [
    (b"", "has no document: give text"),
    (b"\n \n", "has no document"),
    (b'{"text": 7}\n', "1 broken lines were left out"),
    (b"%XDF\0\0\0", "is not text"),
    (b"%PDF-1.7\n", "pdftotext"),
    ("frog".encode("utf-16"), "iconv"),
    (b"PK\x03\x04\x14\0", "is a zip archive or an office document: unpack it"),
    (b"PAR1" + b"\0" * 40, "is damaged or incomplete"),
    (bz2.compress(b"frog " * 10)[:20], "is damaged or incomplete"),
    (gzip.compress(b"frog\n" * 99_999)[:-30], "is damaged or incomplete"),
    (zst(bytes(range(65, 90)) * 9)[:-5], "is damaged or incomplete"),
]


def test_what_cannot_be_read_is_refused_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "reachable", lambda: False)
    for content, message in REFUSED:
        with pytest.raises(InputError, match=message) as error:
            texts(open_corpus(write(tmp_path / "file", content)))
        assert "\n" not in str(error.value)
    (tmp_path / "folder").mkdir()
    missing = {
        str(tmp_path / "missing.txt"): "does not exist",
        "no-such-dataset:config": "out of reach: give a file, a folder, wiki-sample",
        "": 'corpus = "" names nothing',
        str(tmp_path / "folder"): "has no document",
    }
    for source, message in missing.items():
        with pytest.raises(InputError, match=message):
            texts(open_corpus(source))
    with pytest.raises(InputError, match='layout = "pages" is not allowed'):
        open_corpus("wiki-sample", layout="pages")


@pytest.mark.parametrize("online", [False, True])
def test_datasets_are_read_row_by_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, online: bool) -> None:
    monkeypatch.setattr(hub, "reachable", lambda: online)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    rows = [{"title": "F", "text": "frog"}, {"title": "T", "text": None}, {"title": None, "text": "lizard"}]
    (tmp_path / "data" / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    # The library takes a folder for a name: the same code as for the hub, without the hub.
    dataset = hub.load_dataset(str(tmp_path / "data"), "train")
    corpus = Corpus("data", (), dataset=dataset)
    seen: list[int] = []
    assert list(corpus.documents(seen.append)) == ["frog", "lizard"]
    assert corpus.problems.broken_lines == 1
    assert sum(seen) == len("froglizard")
    with pytest.raises(InputError, match='has no column "body"; it has title, text'):
        texts(Corpus("data", (), dataset=dataset, text_field="body"))
    with pytest.raises(InputError, match="no dataset"):
        hub.load_dataset(str(tmp_path / "data"), "no-such-split")


def test_digest_identifies_content_and_reading_not_the_place(tmp_path: Path) -> None:
    a, b, c = (open_corpus(write(tmp_path / name, text)) for name, text in (("a", b"x"), ("b", b"x"), ("c", b"y")))
    assert a.digest == b.digest
    assert a.digest != c.digest
    assert a.digest != open_corpus(str(tmp_path / "a"), layout="lines").digest


# Longer than a document may be: one line, one cell of many lines, one page, one value.
HEAD = '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.3/"><siteinfo><sitename>W</sitename></siteinfo>'
PAGE = HEAD + "<page><title>A</title><ns>0</ns><id>1</id><revision><text>"
BOMBS = {"line.txt": (b"", b"a"), "cell.csv": (b'text\n"', b"ab" * 500 + b"\n"), "page.xml": (PAGE.encode(), b"a")}


@pytest.mark.parametrize(
    ("name", "packed"),
    [*(("line.txt", kind) for kind in ("bz2", "xz", "zst")), *((name, "gz") for name in BOMBS)],
)
def test_a_document_without_an_end_is_refused_while_it_is_read(name: str, packed: str, tmp_path: Path) -> None:
    head, piece = BOMBS[name]
    path = tmp_path / f"{name}.{packed}"
    opener = {"gz": gzip.open, "bz2": bz2.open, "xz": lzma.open, "zst": zstandard.open}[packed]
    with opener(path, "wb") as file:  # type: ignore[operator]
        file.write(head)
        for _ in range(100):
            file.write(piece * (MEGABYTE // len(piece)))
    with little_memory() as grown, pytest.raises(InputError, match="of more than 8,388,608 bytes, too long"):
        texts(open_corpus(str(path)))
    assert grown() < 90 * MEGABYTE, f"{grown() / MEGABYTE:.0f} MB"


def test_a_parquet_file_is_read_a_few_rows_at_a_time_and_its_parts_and_values_have_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "many.parquet", parquet([{"text": "a" * 4 * MEGABYTE}] * 150))
    assert Path(path).stat().st_size < MEGABYTE
    with little_memory() as grown:
        assert sum(map(len, open_corpus(path).documents())) == 600 * MEGABYTE
    assert grown() < 300 * MEGABYTE, f"{grown() / MEGABYTE:.0f} MB"
    with pytest.raises(InputError, match="has a row of more than 8,388,608 bytes"):
        texts(open_corpus(write(tmp_path / "one.parquet", parquet([{"text": "a" * 9 * MEGABYTE}]))))
    monkeypatch.setattr(corpora, "LARGEST_PART", MEGABYTE)
    with pytest.raises(InputError, match="has a part that unpacks to 4,"):
        texts(open_corpus(path))


@pytest.mark.slow
def test_the_sample_has_106_articles_and_progress_adds_up_to_its_bytes() -> None:
    corpus = open_corpus("wiki-sample")
    seen: list[int] = []
    assert len(list(corpus.documents(seen.append))) == 106
    assert sum(seen) == corpus.size


def test_the_samples_articles_are_those_of_gensims_reader() -> None:
    corpus = open_corpus("wiki-sample")
    with bz2.open(corpus.files[0]) as file:
        pages = wikicorpus.extract_pages(file, filter_namespaces=("0",))
        markup = [markup for _, markup, _ in islice(pages, 12) if not corpora.REDIRECT.match(markup)]
    documents = list(islice(corpus.documents(), len(markup)))
    assert [text.split() for text in documents] == [
        corpora.SIGNS.sub("", wikicorpus.filter_wiki(each)).split() for each in markup
    ]
    assert "Anarchism is a political philosophy that advocates self-governed societies" in documents[0]


WORDS = "The '''frog''' is an [[amphibian|animal]] of ponds. " * 20


def page(title: str, text: str, namespace: int | None = 0) -> str:
    body = f"<revision><id>2</id><text>{text}</text></revision>"
    return f"<page><title>{title}</title>{'' if namespace is None else f'<ns>{namespace}</ns>'}<id>1</id>{body}</page>"


def dump(*pages: str) -> bytes:
    return (HEAD + "".join(pages) + "</mediawiki>").encode()


def test_redirects_stubs_and_pages_that_are_no_articles_are_skipped_and_markup_is_gone(tmp_path: Path) -> None:
    content = dump(
        page("Frog", "== Head ==\n" + WORDS),
        page("Frogs", "#REDIRECT [[Frog]]"),
        page("Short", "A stub."),
        page("Talk:Frog", WORDS, 1),
        page("Alien: a film", WORDS),
        page("Frog in a namespace", WORDS, 10),
    )
    frog, alien = open_corpus(write(tmp_path / "dump.xml", content)).documents()
    assert frog.split()[:9] == ["Head", "The", "frog", "is", "an", "animal", "of", "ponds.", "The"]
    assert "Head" not in alien


def test_dumps_that_are_old_or_break_off_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has a page without <ns>, as in dumps before 2008"):
        texts(open_corpus(write(tmp_path / "old.xml", dump(page("Frog", WORDS, None)))))
    whole = dump(page("Frog", WORDS), page("Toad", WORDS))
    assert len(texts(open_corpus(write(tmp_path / "dump.xml", whole)))) == 2
    for end in (b"", b"<<>"):
        read = open_corpus(write(tmp_path / "broken.xml", whole[:-30] + end)).documents()
        assert "frog" in next(read)
        with pytest.raises(InputError, match="damaged or incomplete"):
            list(read)
