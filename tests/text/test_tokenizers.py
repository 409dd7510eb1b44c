"""Tokens of a text, which of them are whole words, and a WordPiece vocabulary trained on a corpus."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Engine
from tokenizers import models, pre_tokenizers

from support.made_up_tokenizers import PIECES, byte_level, metaspace, word_pieces
from support.text_corpus import TOPICS, write_corpus
from topicscope.errors import InputError
from topicscope.text import hub
from topicscope.text.tokenizers import (
    SPECIAL,
    from_engine,
    load_tokenizer,
    save_tokenizer,
    train_wordpiece,
    word_sizes,
)


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
    assert (word_sizes(text, np.array([[start, end]]))[0] == 1) == brute_whole(text, start, end)


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
    assert (minilm.size, minilm.longest, minilm.special) == (30_522, 512, ([101], [102]))
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
    with pytest.raises(InputError, match="and the Hugging Face Hub is out of reach"):
        load_tokenizer("nobody/no-such-model")
    with pytest.raises(InputError, match="cannot be loaded"):
        load_tokenizer(str(tmp_path))
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(InputError, match="cannot be loaded"):
        load_tokenizer(str(tmp_path))


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


tokenizers = pytest.importorskip("tokenizers")
pytest.importorskip("transformers")


def lines(folder: Path) -> list[str]:
    return write_corpus(folder).read_text().splitlines()


def test_a_vocabulary_has_the_size_asked_for_and_repeats(tmp_path: Path) -> None:
    texts = lines(tmp_path)
    vocabularies = [train_wordpiece(lambda: texts, 80).get_vocab() for _ in range(3)]
    assert len(vocabularies[0]) == 80
    assert vocabularies[0] == vocabularies[1] == vocabularies[2]
    assert sorted(vocabularies[0].values()) == list(range(80))
    assert [name for name, number in sorted(vocabularies[0].items(), key=lambda item: item[1])][:5] == list(SPECIAL)
    assert vocabularies[0] != train_wordpiece(lambda: texts, 81).get_vocab()


def test_a_word_that_fills_a_file_is_left_out_of_a_tokenizers_training_and_the_words_beside_it_are_not() -> None:
    texts = ["the frogs and the toads, a frog and a toad"] * 3
    alone = train_wordpiece(lambda: texts, 36).get_vocab()
    # With it, training takes a time that grows with its square: here a minute.
    long = "thefrogs" * 30_000
    assert train_wordpiece(lambda: [f"{texts[0]} {long}, {texts[1]}", texts[2]], 36).get_vocab() == alone
    # The control: words without spaces between them are no long word.
    touching = ["frogs,toads," * 400]
    beside = train_wordpiece(lambda: [*texts, *touching], 36).get_vocab()
    assert beside == train_wordpiece(lambda: [*texts, touching[0].replace(",", ", ")], 36).get_vocab() != alone


def test_frequent_words_become_whole_and_others_are_split(tmp_path: Path) -> None:
    texts = lines(tmp_path)
    engine = train_wordpiece(lambda: texts, 95)
    for word in TOPICS[0]:
        assert engine.encode(word, add_special_tokens=False).tokens == [word]
    assert engine.encode("frogpond", add_special_tokens=False).tokens[0] == "frog"
    assert engine.encode("Toad FROG").tokens == ["[CLS]", "toad", "frog", "[SEP]"]
    assert "[UNK]" in train_wordpiece(lambda: texts, 95, lowercase=False).encode("FROG").tokens


def test_it_is_saved_as_a_folder_that_loads_again(tmp_path: Path) -> None:
    texts = lines(tmp_path)
    engine = train_wordpiece(lambda: texts, 95)
    save_tokenizer(engine, tmp_path / "saved", longest=14)
    loaded = load_tokenizer(str(tmp_path / "saved"))
    assert loaded.size == 95
    assert loaded.longest == 14
    assert [len(each) for each in loaded.special] == [1, 1]
    [encoded] = loaded.encode(["frog toad"])
    assert encoded.tokens.tolist() == engine.encode("frog toad", add_special_tokens=False).ids
    assert encoded.whole.all()


def test_signs_and_ideographs_never_continue_a_word() -> None:
    texts = ["one, two; three 東京 four."] * 3
    vocabulary = train_wordpiece(lambda: texts, 39).get_vocab()
    assert "," in vocabulary
    assert "##," not in vocabulary
    assert "東" in vocabulary
    assert "##東" not in vocabulary
    assert "##o" in vocabulary


@pytest.mark.parametrize(("size", "message"), [(500, r"supports \d+ tokens at most"), (20, r"letters alone take \d+")])
def test_a_size_that_the_corpus_cannot_have_is_refused(size: int, message: str, tmp_path: Path) -> None:
    texts = lines(tmp_path)
    with pytest.raises(InputError, match=message):
        train_wordpiece(lambda: texts, size)
