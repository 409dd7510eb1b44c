from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topicscope.text import formats
from topicscope.text.formats import Problems


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
