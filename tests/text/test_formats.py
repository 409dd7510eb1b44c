"""Files as documents: bytes, lines, paragraphs, JSON lines and their fields, Wikipedia dumps; and what goes wrong."""

import bz2
import gzip
import json
import lzma
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import zstandard
from gensim.corpora import wikicorpus
from hypothesis import given, settings
from hypothesis import strategies as st

from topicscope.cli import main
from topicscope.errors import InputError
from topicscope.text import formats
from topicscope.text.corpora import open_corpus
from topicscope.text.formats import MOST_FIELDS, Problems, beginning, compression, read_chunks

# Random bytes do not compress, so an archive cut in half holds about half of them.
CONTENT = np.random.default_rng(0).bytes(400_000)
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bz2": lambda content: bz2.compress(content, compresslevel=1),
    "xz": lzma.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize("method", COMPRESS)
def test_archives_of_several_members_give_all_their_content(tmp_path: Path, method: str) -> None:
    path = tmp_path / "file"
    members = [COMPRESS[method](CONTENT[:150_000]), COMPRESS[method](CONTENT[150_000:])]
    path.write_bytes(b"".join(members) + b"\0" * 16)
    problems = Problems()
    seen: list[int] = []
    assert b"".join(read_chunks(path, problems, seen.append)) == CONTENT
    assert problems == Problems()
    assert sum(seen) == path.stat().st_size
    assert compression(path.read_bytes()) == method
    assert beginning(path, 100) == CONTENT[:100]


@pytest.mark.parametrize("method", COMPRESS)
def test_a_truncated_archive_gives_what_can_be_read_and_says_so(tmp_path: Path, method: str) -> None:
    path = tmp_path / "file"
    whole = COMPRESS[method](CONTENT)
    path.write_bytes(whole[: len(whole) * 3 // 4])
    problems = Problems()
    read = b"".join(read_chunks(path, problems))
    assert CONTENT.startswith(read)
    assert len(CONTENT) / 4 < len(read) < len(CONTENT)
    assert len(problems.archives) == 1
    assert "file ends in the middle of its data" in problems.archives[0]


@pytest.mark.parametrize("method", COMPRESS)
def test_an_archive_with_rubbish_behind_it_gives_what_comes_before(tmp_path: Path, method: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(COMPRESS[method](CONTENT) + b"rubbish, and nothing that any of the libraries knows")
    problems = Problems()
    assert b"".join(read_chunks(path, problems)) == CONTENT
    assert "file is corrupt after" in problems.archives[0]
    assert problems.sentences()[0].endswith("what comes before is used")


@pytest.mark.parametrize("method", COMPRESS)
def test_of_a_small_archive_it_is_said_how_much_was_used(tmp_path: Path, method: str) -> None:
    path = tmp_path / "file"
    good, rubbish = COMPRESS[method](CONTENT[:5_000]), b"rubbish, and nothing that any of the libraries knows"
    path.write_bytes(good + rubbish)
    problems = Problems()
    assert b"".join(read_chunks(path, problems)) == CONTENT[:5_000]
    assert problems.archives == [f"file is corrupt after {len(good):,} of {len(good) + len(rubbish):,} bytes"]


def test_of_an_archive_that_gave_nothing_nothing_is_said_to_be_used(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(COMPRESS["gzip"](CONTENT)[:2] + b"rubbish" * 20)
    problems = Problems()
    assert b"".join(read_chunks(path, problems)) == b""
    assert problems.sentences() == ["file is corrupt from its beginning"]


def test_utf_16_is_refused_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("frog", encoding="utf-16")
    with pytest.raises(InputError, match="iconv"):
        beginning(path)


def pieces(content: bytes, size: int) -> Iterator[bytes]:
    return (content[start : start + size] for start in range(0, len(content), size))


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.lists(st.binary(max_size=12).filter(lambda line: b"\n" not in line)), st.integers(1, 9))
def test_lines_are_the_same_however_the_file_is_cut(expected: list[bytes], size: int) -> None:
    content = b"".join(line + b"\n" for line in expected)
    ends = [line.removesuffix(b"\r") for line in expected]
    if ends:
        ends[0] = ends[0] if size < 3 else ends[0].removeprefix(formats.BYTE_ORDER_MARK)
    found = list(formats.lines(pieces(content, size), Problems()))
    assert [line for line in found if line] == [line for line in ends if line]


def test_paragraphs_end_at_blank_lines_and_lines_at_line_breaks() -> None:
    content = "one\r\ntwo\r\n \r\n\r\nthrée\nfour\n".encode()
    assert list(formats.paragraph_texts([content], Problems())) == ["one\ntwo", "thrée\nfour"]
    assert list(formats.line_texts([content], Problems())) == ["one", "two", "thrée", "four"]
    assert list(formats.whole_texts([content], Problems())) == ["one\ntwo\n \n\nthrée\nfour"]
    assert formats.has_paragraphs(content)
    assert not formats.has_paragraphs(b"one\ntwo\nthree\n\n")


def test_bad_encodings_are_counted_and_survived() -> None:
    problems = Problems()
    assert list(formats.line_texts([b"frog\nto\xffad\nlizard\n"], problems)) == ["frog", "to�ad", "lizard"]
    assert problems.bad_encodings == 1
    assert "1 documents had bytes that are not UTF-8" in problems.sentences()[0]


def test_broken_json_lines_are_counted_and_survived() -> None:
    lines = [
        b'{"text": "frog", "title": "A"}',
        b'{"text": "to',
        b'{"other": "toad"}',
        b'{"text": 7}',
        b"[" * 100_000,
        b"",
        b'{"text": "lizard"}',
    ]
    problems = Problems()
    found = list(formats.json_texts([b"\n".join(lines)], problems, "text"))
    assert found == [("A", "frog"), ("", "lizard")]
    assert (problems.broken_lines, problems.lines_without_field) == (3, 1)


def test_half_a_surrogate_pair_in_json_is_replaced_and_counted() -> None:
    problems = Problems()
    content = rb'{"text": "a \ud83d b", "title": "\ud800"}' + b"\n" + rb'{"text": "whole: \ud83d\ude00"}'
    found = list(formats.json_texts(pieces(content, 7), problems, "text"))
    assert found == [("\ufffd", "a \ufffd b"), ("", "whole: 😀")]
    assert problems.bad_encodings == 1
    "".join(text for each in found for text in each).encode()


def test_what_begins_like_an_object_is_json_and_prose_is_not() -> None:
    assert formats.is_json(b'{"text": "a"}\n{"text": "b"}')
    assert formats.is_json(b'{"text": "a line longer than what is seen')
    assert not formats.is_json(b"{curly} prose\nmore")
    assert not formats.is_json(b'{"broken": \nmore')


@pytest.mark.parametrize("texts", [formats.line_texts, formats.paragraph_texts, formats.whole_texts])
def test_a_file_without_an_end_is_read_in_parts(texts: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "LONGEST", 100)
    problems, held = Problems(), []
    for text in texts((b"frog toad " * 3 for _ in range(40)), problems):  # type: ignore[operator]
        held.append(len(text))
    assert sum(held) == 1200
    assert max(held) <= 100 + 2 * 30
    assert problems.long_documents > 5


def write_lines(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_lines_that_all_lack_the_field_are_refused_with_the_fields_they_have(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "texts.jsonl", {"id": 1, "{body}": "frog toad"}, {"{body}": "lizard"})
    with pytest.raises(InputError) as error:
        list(open_corpus(str(path)).documents())
    assert str(error.value) == (
        f'corpus = "{path}" has no document (2 lines were left out, because they lack the field "text"; the first of '
        "them has id, {body}): name the field that holds the text with --field (`topicscope probe`) or --data.field "
        "(`topicscope train`)."
    )
    # The control: with the field named, there is nothing to say.
    corpus = open_corpus(str(path), field="{body}")
    assert [each.text for each in corpus.documents()] == ["frog toad", "lizard"]
    assert corpus.problems.sentences() == []


def test_lines_that_lack_the_field_are_told_from_broken_ones_and_survived(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "texts.jsonl", {"text": "frog"}, {"body": "toad"}, {"text": 7}, [1], {}, {"text": ""})
    corpus = open_corpus(str(path))
    assert [each.text for each in corpus.documents()] == ["frog", ""]
    assert (corpus.problems.broken_lines, corpus.problems.lines_without_field) == (2, 2)
    assert corpus.problems.sentences() == [
        "2 broken lines were left out",
        '2 lines were left out, because they lack the field "text"; the first of them has body',
    ]
    # As a folder of passages keeps them.
    assert Problems(**json.loads(json.dumps(asdict(corpus.problems)))) == corpus.problems


def test_names_of_fields_are_few_and_can_be_printed(tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    names = [r"\ud800", *(f"field-{number}" for number in range(2 * MOST_FIELDS))]
    path.write_text("{" + ", ".join(f'"{name}": 0' for name in names) + "}\n")
    with pytest.raises(InputError, match=rf"has \ufffd, field-0, .*, field-{MOST_FIELDS - 2}\)") as error:
        list(open_corpus(str(path)).documents())
    str(error.value).encode()
    assert f"field-{MOST_FIELDS - 1}" not in str(error.value)


def test_training_on_such_lines_names_its_own_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers")
    path = write_lines(tmp_path / "texts.jsonl", *({"body": "frog toad"} for _ in range(3)))
    assert main(["train", "--data.corpus", str(path), "--out", str(tmp_path / "run"), "--quiet"]) == 2
    said = capsys.readouterr().err
    assert "the first of them has body" in said
    assert "--data.field" in said


WORDS = "The '''frog''' is an [[amphibian|animal]] of ponds. " * 20
HEAD = '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.3/"><siteinfo><sitename>W</sitename></siteinfo>'


def page(title: str, text: str, extra: str = "") -> str:
    body = f"<revision><id>2</id><text>{text}</text></revision>"
    return f"<page><title>{title}</title>{extra}<id>1</id>{body}</page>"


def dump(*pages: str) -> bytes:
    return (HEAD + "".join(pages) + "</mediawiki>").encode()


def titles(content: bytes, problems: Problems | None = None) -> list[str]:
    chunks = (content[start : start + 97] for start in range(0, len(content), 97))
    return [title for title, _ in formats.articles(chunks, problems or Problems(), "dump.xml")]


def test_redirects_stubs_and_pages_that_are_no_articles_are_skipped() -> None:
    namespace = "<ns>{}</ns>".format
    content = dump(
        page("Frog", WORDS, namespace(0)),
        page("Frogs", "#REDIRECT [[Frog]]", namespace(0)),
        page("Froggy", WORDS, namespace(0) + '<redirect title="Frog" />'),
        page("Short", "A stub.", namespace(0)),
        page("Talk:Frog", WORDS, namespace(1)),
        page("Alien: a film", WORDS, namespace(0)),
        page("Frog in a namespace", WORDS, namespace(10)),
    )
    problems = Problems()
    assert titles(content, problems) == ["Frog", "Alien: a film"]
    assert (problems.redirects, problems.stubs) == (2, 1)


def test_old_dumps_without_namespace_elements_are_read_by_their_titles() -> None:
    content = dump(
        page("Frog", WORDS),
        page("Talk:Frog", WORDS),
        page("User talk:Somebody", WORDS),
        page("Template:Frog", WORDS),
        page("Wikipedia:Frogs", WORDS),
        page("Alien: a film", WORDS),
    )
    assert titles(content) == ["Frog", "Alien: a film"]


def test_markup_is_gone_and_words_stay() -> None:
    [(_, text)] = formats.articles([dump(page("Frog", "== Head ==\n" + WORDS))], Problems(), "dump.xml")
    assert text.split()[:9] == ["Head", "The", "frog", "is", "an", "animal", "of", "ponds.", "The"]


def test_a_dump_that_breaks_off_gives_the_pages_before() -> None:
    content = dump(page("Frog", WORDS), page("Toad", WORDS), page("Lizard", WORDS))
    broken = content[: content.index(b"Lizard") + 40]
    for end in (b"", b"<<>"):
        problems = Problems()
        assert titles(broken + end, problems) == ["Frog", "Toad"]
        assert problems.sentences() == ["dump.xml is not XML from line 1 on: what comes before is used"]
    # The control: a whole dump has no such sentence.
    problems = Problems()
    assert titles(content, problems) == ["Frog", "Toad", "Lizard"]
    assert problems == Problems()


def test_of_a_dump_in_an_archive_that_breaks_off_it_is_said_once(tmp_path: Path) -> None:
    path = tmp_path / "dump.xml.bz2"
    first, second = (bz2.compress(part) for part in (dump(page("Frog", WORDS))[:-12], b"</mediawiki>"))
    path.write_bytes(first + second[:-5])
    problems = Problems()
    assert len(list(formats.articles(read_chunks(path, problems), problems, path.name))) == 1
    [said] = problems.sentences()
    assert "dump.xml.bz2 ends in the middle of its data" in said


def pages_equal_gensims(count: int | None) -> int:
    path = open_corpus("wiki-sample").files[0]
    found = formats.pages(read_chunks(path, Problems()), Problems(), path.name)
    ours = [(page.title, page.markup) for page in islice(found, count)]
    with bz2.open(path) as file:
        theirs = [(title, text) for title, text, _ in islice(wikicorpus.extract_pages(file), count)]
    assert ours == theirs
    return len(ours)


def test_the_first_pages_equal_those_of_gensims_reader() -> None:
    assert pages_equal_gensims(20) == 20


@pytest.mark.slow
def test_all_pages_equal_those_of_gensims_reader() -> None:
    assert pages_equal_gensims(None) == 206


def test_only_the_page_at_hand_is_kept() -> None:
    def chunks() -> Iterator[bytes]:
        yield HEAD.encode()
        yield from (page(f"Frog {number}", WORDS).encode() for number in range(1_000))

    reader = formats.pages(chunks(), Problems(), "dump.xml")
    deque(islice(reader, 50), maxlen=0)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    deque(islice(reader, 800), maxlen=0)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    # Elements of all pages, emptied as gensim's reader leaves them, would be over a hundred bytes a page.
    assert grown < 20_000
