"""A tokenizer trained on a corpus: of the size asked for, the same every time, and what the library makes of it."""

from pathlib import Path

import pytest

from support.text_corpus import TOPICS, write_corpus
from topicscope.errors import InputError
from topicscope.text.tokenizers import SPECIAL, load_tokenizer, save_tokenizer, train_wordpiece

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
    assert loaded.special == 2
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
