"""Passages: cut at words, written once, found again, and cut anew where anything differs."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.made_up_tokenizers import PIECES, word_pieces
from topicscope.errors import InputError
from topicscope.text import tokens
from topicscope.text.corpora import open_corpus
from topicscope.text.tokens import cut, half, open_passages, write_passages


def brute_cut(starts: list[bool], length: int) -> list[tuple[int, int]]:
    cuts, first = [], 0
    while first < len(starts):
        last = min(first + length, len(starts))
        back = last
        while back > first and back < len(starts) and not starts[back]:
            back -= 1
        last = back if back > first else last
        cuts.append((first, last))
        first = last
    return [(first, last) for first, last in cuts if last - first >= 2]


@settings(derandomize=True, deadline=None, max_examples=150)
@given(st.lists(st.booleans(), max_size=40), st.integers(2, 9))
def test_passages_are_cut_at_words_that_fit(starts: list[bool], length: int) -> None:
    starts = [True, *starts[1:]] if starts else starts
    found = cut(np.array(starts, dtype=bool), length)
    assert [tuple(row) for row in found.tolist()] == brute_cut(starts, length)
    assert (found[:, 1] - found[:, 0] <= length).all()


def test_passages_hold_each_documents_tokens_in_order(tmp_path: Path) -> None:
    texts = ["the frog in the pond the toad", "toad", "froglets in the pond"]
    (tmp_path / "text").write_text("\n".join(texts))
    pieces = word_pieces()
    seen: list[int] = []
    corpus = open_corpus(str(tmp_path / "text"))
    passages = write_passages(corpus, pieces, length=3, folder=tmp_path / "passages", progress=seen.append)
    spelled = [[PIECES[token] for token in passage] for passage in passages]
    # The last word of the first document and the second document are too short for a pair.
    assert spelled == [
        ["the", "frog", "in"], ["the", "pond", "the"], ["frog", "##let", "##s"], ["in", "the", "pond"],
    ]  # fmt: skip
    assert passages.articles.tolist() == [0, 0, 2, 2]
    assert passages.lengths.tolist() == [3, 3, 3, 3]
    assert passages.spelled(2).tolist() == [-1, -1, -1]
    assert passages.spelled(1).tolist() == passages[1].tolist()
    assert isinstance(passages.tokens, np.memmap)
    assert sum(seen) == corpus.size
    assert passages.about.documents == 3
    some = write_passages(corpus, pieces, length=3, folder=tmp_path / "some", every=3)
    assert [passage.tolist() for passage in some] == [passages[0].tolist(), passages[3].tolist()]
    assert some.digest != passages.digest


def test_passages_that_are_there_are_not_written_again_and_others_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text").write_text("the frog in the pond\nthe toad")
    corpus, pieces = open_corpus(str(tmp_path / "text")), word_pieces()
    first = write_passages(corpus, pieces, length=4, folder=tmp_path / "passages")

    def refused(*_: object) -> Iterator[object]:
        raise AssertionError("read again")

    with monkeypatch.context() as patch:
        patch.setattr(type(corpus), "documents", refused)
        assert write_passages(corpus, pieces, length=4, folder=tmp_path / "passages").digest == first.digest
        with pytest.raises(AssertionError, match="read again"):
            write_passages(corpus, pieces, length=3, folder=tmp_path / "passages")
    # The interrupted one has left nothing that could be taken for whole.
    with pytest.raises(InputError, match="has no whole set of passages"):
        open_passages(tmp_path / "passages")
    again = write_passages(corpus, pieces, length=4, folder=tmp_path / "passages")
    assert again.digest == first.digest
    # What another version cut is cut again.
    monkeypatch.setattr(tokens, "VERSION", 0)
    older = write_passages(corpus, pieces, length=4, folder=tmp_path / "passages")
    assert older.about.version == 0
    monkeypatch.undo()
    assert write_passages(corpus, pieces, length=4, folder=tmp_path / "passages").about.version == tokens.VERSION
    (tmp_path / "passages" / "tokens.bin").write_bytes(b"")
    with pytest.raises(InputError, match="has no whole set of passages"):
        open_passages(tmp_path / "passages")


@pytest.mark.parametrize("name", ["tokens", "spellings", "offsets", "articles"])
def test_passages_with_a_changed_byte_are_cut_again(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text").write_text("the frog in the pond\nthe toad in the pond")
    corpus, pieces, folder = open_corpus(str(tmp_path / "text")), word_pieces(), tmp_path / "passages"
    write_passages(corpus, pieces, length=4, folder=folder)
    path = folder / f"{name}.bin"
    whole = path.read_bytes()
    path.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    # Its size and description are as they were.
    open_passages(folder)
    write_passages(corpus, pieces, length=4, folder=folder)
    assert path.read_bytes() == whole

    def refused(*_: object) -> Iterator[object]:
        raise AssertionError("read again")

    monkeypatch.setattr(type(corpus), "documents", refused)
    write_passages(corpus, pieces, length=4, folder=folder)


def test_halves_are_equal_and_unlike_even_and_odd() -> None:
    articles = np.arange(10_001, dtype=np.int32)
    fitted = half(articles)
    assert abs(fitted.sum() - 5_000) <= 1
    # Five standard errors of a fair coin over the pairs.
    assert abs(fitted[0::2].mean() - 0.5) < 5 * 0.5 / 5_000**0.5
    assert (half(articles[:500]) == fitted[:500]).all()
    runs = (fitted[1:] == fitted[:-1]).mean()
    assert 0.2 < runs < 0.3


@pytest.mark.parametrize(
    ("text", "message"), [("frog\ntoad", "has no passage of 2 tokens"), (". . 7 .", "keeps no word")]
)
def test_a_corpus_without_usable_passages_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "text").write_text(text)
    with pytest.raises(InputError, match=message):
        write_passages(open_corpus(str(tmp_path / "text")), word_pieces(), length=4, folder=tmp_path / "passages")


def test_batches_of_documents_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text").write_text("\n".join(["the frog in the pond", "the toad in the pond"] * 20))
    corpus = open_corpus(str(tmp_path / "text"))
    once = write_passages(corpus, word_pieces(), length=4, folder=tmp_path / "a")
    monkeypatch.setattr(tokens, "BATCH_CHARACTERS", 1)
    assert write_passages(corpus, word_pieces(), length=4, folder=tmp_path / "b").digest == once.digest
