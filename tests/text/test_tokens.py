from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Engine
from tokenizers import decoders, models, pre_tokenizers

from topicscope.errors import InputError
from topicscope.text import hub, tokens
from topicscope.text.corpora import open_corpus
from topicscope.text.tokenizers import Tokenizer, from_engine, load_tokenizer, whole_words
from topicscope.text.tokens import cut, half, open_passages, write_passages

PIECES = ["[UNK]", "frog", "##let", "##s", "toad", "pond", "in", "the", "naïve", ".", "'", "7"]


def word_pieces() -> Tokenizer:
    engine = Engine(models.WordPiece({piece: place for place, piece in enumerate(PIECES)}, unk_token="[UNK]"))
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    # Saved tokenizers often cut and pad.
    engine.enable_truncation(3)
    engine.enable_padding(length=16)
    return from_engine(engine, name="pieces", longest=16, special=2)


def byte_level(*words: str) -> Tokenizer:
    """GPT-2's kind: a word after a space is a token of its own."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {sign: place for place, sign in enumerate(alphabet)}
    merges: list[tuple[str, str]] = []
    for word in words:
        signs = word.replace(" ", "Ġ")
        for end in range(1, len(signs)):
            merges.append((signs[:end], signs[end]))
            vocabulary.setdefault(signs[: end + 1], len(vocabulary))
    engine = Engine(models.BPE(vocabulary, list(dict.fromkeys(merges))))
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    return from_engine(engine, name="bytes")


def metaspace(*words: str) -> Tokenizer:
    """SentencePiece's kind: words begin with a sign for the space and are split at spaces alone."""
    pieces = [(piece, -1.0) for piece in ("<unk>", "▁", *words)] + [
        (sign, -9.0) for sign in "abcdefghijklmnopqrstuvwxyz,."
    ]
    engine = Engine(models.Unigram(pieces, unk_id=0, byte_fallback=False))
    engine.pre_tokenizer = pre_tokenizers.Metaspace()
    engine.decoder = decoders.Metaspace()
    return from_engine(engine, name="spaces")


def test_tokens_are_those_of_the_engine_whole_and_without_padding() -> None:
    [encoded] = word_pieces().encode(["the froglets in the pond.frog's 7frog"])
    spelled = [PIECES[token] for token in encoded.tokens]
    assert spelled == ["the", "frog", "##let", "##s", "in", "the", "pond", ".", "frog", "'", "[UNK]", "[UNK]"]
    assert [piece for piece, whole in zip(spelled, encoded.whole, strict=True) if whole] == [
        "the", "in", "the", "pond", "frog",
    ]  # fmt: skip
    assert np.flatnonzero(~encoded.starts).tolist() == [2, 3]


def test_a_word_that_the_tokenizer_does_not_know_is_no_whole_word() -> None:
    for tokenizer in (word_pieces(), metaspace("▁frog")):
        [encoded] = tokenizer.encode(["лягушка frog жаба"])
        assert encoded.whole.sum() == 1
        assert tokenizer.words(encoded.tokens[encoded.whole]) == ["frog"]


def test_whole_words_are_found_whatever_the_tokenizers_sign_for_a_space() -> None:
    text = "frog, frogs a frog."
    for tokenizer in (byte_level(" frog", "frog"), metaspace("▁frog", "frog")):
        [encoded] = tokenizer.encode([text])
        spelled = np.array(tokenizer.words(encoded.tokens))
        assert (spelled == "frog").sum() == 3
        # The second one is the beginning of "frogs".
        assert encoded.whole[spelled == "frog"].tolist() == [True, False, True]


def brute_whole(text: str, start: int, end: int) -> bool:
    inside = text[start:end].lstrip()
    if end - start - len(inside) > 2:
        return False
    start = end - len(inside)
    around = text[max(start - 1, 0) : start] + text[end : end + 1]
    return bool(inside) and all(sign.isalpha() for sign in inside) and not any(sign.isalnum() for sign in around)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(st.text(alphabet="ab é7 .,\n日𝔘", max_size=20), st.data())
def test_whole_words_equal_a_look_at_every_character(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    assert whole_words(text, np.array([[start, end]]))[0] == brute_whole(text, start, end)


def test_a_word_has_a_token_only_if_it_is_kept_whole() -> None:
    pieces = word_pieces()
    assert pieces.token("frog") == 1
    assert pieces.words(np.array([1, 8])) == ["frog", "naïve"]
    for word in ("froglet", "lizard", "frog toad", ".", ""):
        assert pieces.token(word) is None
    spaced = byte_level(" frog", "frog")
    assert spaced.engine.id_to_token(spaced.token("frog")) == "Ġfrog"
    assert metaspace("▁frog").token("frog") == 2


def test_digest_is_that_of_what_the_tokenizer_does() -> None:
    assert word_pieces().digest == word_pieces().digest
    assert word_pieces().digest != byte_level("frog").digest


def test_minilm_is_the_packaged_tokenizer_and_its_random_twin_has_the_same() -> None:
    minilm = load_tokenizer("minilm")
    assert (minilm.size, minilm.longest, minilm.special) == (30_522, 512, 2)
    # The packaged file cuts at 128 tokens.
    [encoded] = minilm.encode(["frog " * 300])
    assert len(encoded.tokens) == 300
    assert set(encoded.tokens.tolist()) == {minilm.token("frog")}
    assert minilm.token("frog") != minilm.token("mozart")
    assert load_tokenizer("random:minilm").digest == minilm.digest


def test_tokenizers_that_cannot_be_had_are_refused_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "reachable", lambda: False)
    with pytest.raises(InputError, match="not in the local cache and the Hugging Face Hub is out of reach"):
        load_tokenizer("nobody/no-such-model")
    with pytest.raises(InputError, match="cannot be loaded"):
        load_tokenizer(str(tmp_path))
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(InputError, match="cannot be loaded"):
        load_tokenizer(str(tmp_path))


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
    assert passages.whole_tokens(2).tolist() == [-1, -1, -1]
    assert passages.whole_tokens(1).tolist() == passages[1].tolist()
    assert isinstance(passages.tokens, np.memmap)
    assert sum(seen) == corpus.size
    assert passages.description["documents"] == 3
    some = write_passages(corpus, pieces, length=3, folder=tmp_path / "some", every=3)
    assert [passage.tolist() for passage in some] == [passages[0].tolist(), passages[3].tolist()]
    assert some.digest != passages.digest


def test_special_tokens_written_in_a_text_are_read_as_text() -> None:
    engine = Engine(models.WordPiece({piece: place for place, piece in enumerate([*PIECES, "[", "]"])}))
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    engine.add_special_tokens(["[frog]"])
    special = engine.token_to_id("[frog]")
    # As the engine comes, it reads the special token.
    assert special in engine.encode("the [frog] in the pond", add_special_tokens=False).ids
    [encoded] = from_engine(engine, name="pieces").encode(["the [frog] in the pond"])
    spelled = [[*PIECES, "[", "]"][token] for token in encoded.tokens]
    assert spelled == ["the", "[", "frog", "]", "in", "the", "pond"]


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
    (tmp_path / "passages" / "tokens.bin").write_bytes(b"")
    with pytest.raises(InputError, match="has no whole set of passages"):
        open_passages(tmp_path / "passages")


@pytest.mark.parametrize("name", ["tokens", "whole", "offsets", "articles"])
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
