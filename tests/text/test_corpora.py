import bz2
import json
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from topicscope.errors import InputError
from topicscope.text import hub
from topicscope.text.corpora import Corpus, Document, open_corpus
from topicscope.text.formats import Problems


def texts(corpus: Corpus) -> list[str]:
    return [document.text for document in corpus.documents()]


def test_plain_text_is_a_document_a_line_or_a_paragraph(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("frog pond\ntoad pond\n")
    assert texts(open_corpus(str(path))) == ["frog pond", "toad pond"]
    assert texts(open_corpus(str(path), layout="files")) == ["frog pond\ntoad pond"]
    path.write_text("frog\npond\n\ntoad\npond\n")
    assert texts(open_corpus(str(path))) == ["frog\npond", "toad\npond"]
    assert texts(open_corpus(str(path), layout="lines")) == ["frog", "pond", "toad", "pond"]


def test_a_folder_is_a_document_a_file_and_json_lines_within_it_one_a_line(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("toad\n\npond\n")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "c.txt.bz2").write_bytes(bz2.compress(b"frog\npond"))
    (tmp_path / "z.jsonl").write_text('{"body": "lizard", "title": "L"}\n{"body": "newt"}\n')
    (tmp_path / ".hidden").write_text("nothing")
    found = list(open_corpus(str(tmp_path), field="body").documents())
    assert found == [
        Document(0, "c.txt.bz2", "frog\npond"),
        Document(1, "b.txt", "toad\n\npond"),
        Document(2, "L", "lizard"),
        Document(3, "", "newt"),
    ]


def test_files_of_a_folder_that_are_not_text_are_left_out_and_named(tmp_path: Path) -> None:
    (tmp_path / "logo.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0")
    with pytest.raises(InputError, match=r"logo\.png is not text"):
        texts(open_corpus(str(tmp_path)))
    (tmp_path / "text.txt").write_text("frog")
    corpus = open_corpus(str(tmp_path))
    seen: list[int] = []
    assert [document.text for document in corpus.documents(seen.append)] == ["frog"]
    assert corpus.problems.sentences() == ["1 file is not text in UTF-8 and was left out: logo.png"]
    assert sum(seen) == corpus.size
    (tmp_path / "notes.txt").write_text("toad", encoding="utf-16")
    corpus = open_corpus(str(tmp_path))
    assert texts(corpus) == ["frog"]
    assert corpus.problems.sentences() == ["2 files are not text in UTF-8 and were left out: logo.png, notes.txt"]
    # By its name it is refused, and with nothing else the folder is.
    with pytest.raises(InputError, match="iconv"):
        texts(open_corpus(str(tmp_path / "notes.txt")))
    (tmp_path / "text.txt").unlink()
    with pytest.raises(InputError, match=r"has no document \(2 files are not text in UTF-8"):
        texts(open_corpus(str(tmp_path)))


def test_the_sample_is_read_offline() -> None:
    found = list(islice(open_corpus("wiki-sample").documents(), 4))
    assert [document.index for document in found] == [0, 1, 2, 3]
    assert found[0].title == "Anarchism"
    assert "Anarchism is a political philosophy that advocates self-governed societies" in found[0].text


@pytest.mark.slow
def test_the_sample_has_106_articles_and_progress_adds_up_to_its_bytes() -> None:
    corpus = open_corpus("wiki-sample")
    seen: list[int] = []
    found = list(corpus.documents(seen.append))
    assert sum(seen) == corpus.size
    assert [document.index for document in found] == list(range(106))
    assert corpus.problems == Problems(redirects=99)
    assert corpus.problems.sentences() == []


def test_problems_are_counted_anew_at_each_reading(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(b"frog\nto\xffad\n")
    corpus = open_corpus(str(path))
    for _ in range(2):
        assert len(texts(corpus)) == 2
        assert corpus.problems.bad_encodings == 1


def test_digest_identifies_content_and_reading_not_the_place(tmp_path: Path) -> None:
    for name, content in (("a", "frog"), ("b", "frog"), ("c", "toad")):
        (tmp_path / name).write_text(content)
    a, b, c = (open_corpus(str(tmp_path / name)) for name in "abc")
    assert a.digest == b.digest
    assert a.digest != c.digest
    assert a.digest != open_corpus(str(tmp_path / "a"), layout="lines").digest


def test_a_corrupt_archive_gives_what_was_readable(tmp_path: Path) -> None:
    path = tmp_path / "text.bz2"
    drawn = np.random.default_rng(0).integers(2**62, size=60_000)
    lines = "\n".join(f"frog {number}" for number in drawn)
    whole = bz2.compress(lines.encode(), compresslevel=1)
    path.write_bytes(whole[: len(whole) // 2])
    corpus = open_corpus(str(path))
    found = texts(corpus)
    assert 10_000 < len(found) < 50_000
    assert lines.split("\n")[: len(found) - 1] == found[:-1]
    assert "text.bz2 ends in the middle of its data" in corpus.problems.sentences()[0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has no document: give text"),
        (b"\n \n", "has no document"),
        (b'{"text": 7}\n', "1 broken lines were left out"),
        (b"%XDF\0\0\0", "is not text"),
        (bz2.compress(b"frog " * 10)[:20], "ends in the middle of its data after 20 bytes"),
    ],
)
def test_files_without_documents_are_refused_in_one_sentence(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        texts(open_corpus(str(path)))


def test_what_does_not_exist_is_refused_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "reachable", lambda: False)
    with pytest.raises(InputError, match="does not exist"):
        open_corpus(str(tmp_path / "missing.txt"))
    with pytest.raises(InputError, match="out of reach: give a file, a folder, wiki-sample"):
        open_corpus("no-such-dataset:config")
    with pytest.raises(InputError, match='layout = "pages" is not allowed'):
        open_corpus("wiki-sample", layout="pages")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="has no document"):
        texts(open_corpus(str(tmp_path / "empty")))


@pytest.mark.parametrize("online", [False, True])
def test_datasets_are_read_row_by_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, online: bool) -> None:
    monkeypatch.setattr(hub, "reachable", lambda: online)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    rows = [{"title": "F", "text": "frog"}, {"title": "T", "text": None}, {"title": None, "text": "lizard"}]
    (tmp_path / "data" / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    # The library takes a folder for a name: the same code as for the hub, without the hub.
    dataset = hub.load(str(tmp_path / "data"), "train")
    corpus = Corpus("data", (), dataset=dataset)
    seen: list[int] = []
    assert [(one.title, one.text) for one in corpus.documents(seen.append)] == [("F", "frog"), ("", "lizard")]
    assert corpus.problems.broken_lines == 1
    assert sum(seen) == len("froglizard")
    with pytest.raises(InputError, match="has no field body: it has title, text"):
        texts(Corpus("data", (), dataset=dataset, text_field="body"))
    with pytest.raises(InputError, match="no dataset"):
        hub.load(str(tmp_path / "data"), "no-such-split")
