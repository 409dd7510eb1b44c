"""Words are what people take for words: spellings that differ in case or leading space, and several tokens, are one."""

from pathlib import Path

import numpy as np
import pytest

from support.made_up_tokenizers import PIECES, byte_level, metaspace, word_pieces
from topicscope.text.corpora import open_corpus
from topicscope.text.tokenizers import Tokenizer
from topicscope.text.tokens import Passages, write_passages
from topicscope.text.words import Words, attention_between_words, mean_vectors, states_of_words

NETS = "net Net net NET. The net, a Net"


def passages_of(folder: Path, text: str, tokenizer: Tokenizer, *, several: bool = False) -> Passages:
    (folder / "text").write_text(text)
    return write_passages(
        open_corpus(str(folder / "text")), tokenizer, length=99, folder=folder / "passages", several=several
    )


def test_spellings_that_differ_in_case_or_leading_space_are_one_word(tmp_path: Path) -> None:
    tokenizer = byte_level(" net", " Net", " NET", " The", " a", "net")
    passages = passages_of(tmp_path, NETS, tokenizer)
    words = Words.of(passages, tokenizer)
    found = words.word[passages.spelled(0)[passages.spelled(0) >= 0]]
    assert words.named(found) == ["net", "net", "net", "net", "the", "net", "a", "net"]
    assert len(np.unique(found)) == 3
    assert words.find("Net") == words.find("net") == found[0]
    # The control: apart, each spelling is a word.
    apart = Words.of(passages, tokenizer, merged=False)
    assert len(np.unique(apart.word[passages.spelled(0)[passages.spelled(0) >= 0]])) == 6
    assert apart.find("Net") != apart.find("net")


def test_merging_changes_nothing_for_a_tokenizer_without_case() -> None:
    tokenizer = word_pieces()
    words = Words.of(None, tokenizer)
    assert (words.word == np.arange(len(PIECES))).all()
    vectors = np.random.default_rng(0).normal(size=(len(PIECES), 3)).astype(np.float32)
    chosen = np.array([1, 4, 8])
    tokens, mean = words.token_means(chosen)
    assert (mean_vectors(mean, vectors[tokens]) == vectors[chosen]).all()


def test_a_words_vector_is_the_mean_over_its_occurrences_and_their_tokens(tmp_path: Path) -> None:
    tokenizer = byte_level(" net", " Net", "net", " fr", "og")
    passages = passages_of(tmp_path, "net net Net net frog Frog frog", tokenizer, several=True)
    words = Words.of(passages, tokenizer)
    size = tokenizer.size
    vectors = np.random.default_rng(1).normal(size=(size, 4))
    numbers = [number for name in ("net", "frog", "absent") if (number := words.find(name)) is not None]
    assert len(numbers) == 2

    def tokens(spelled: str) -> list[int]:
        # A space that is a token of its own is no part of the word.
        space = tokenizer.engine.token_to_id("Ġ")
        return [token for token in tokenizer.engine.encode(spelled).ids if token != space]

    net = [tokens(each)[0] for each in ("net", " net", " Net", " net")]
    frog = [tokens(each) for each in (" frog", " Frog", " frog")]
    assert len(set(net)) == 3
    assert min(map(len, frog)) == 2
    order = np.sort(numbers)
    expected = {
        numbers[0]: vectors[net].mean(axis=0),
        numbers[1]: np.mean([vectors[each].mean(axis=0) for each in frog], axis=0),
    }
    written, mean = words.token_means(order)
    assert mean_vectors(mean, vectors[written]) == pytest.approx(np.stack([expected[each] for each in order]))
    assert words.named(order) == [{numbers[0]: "net", numbers[1]: "frog"}[each] for each in order]


@pytest.mark.parametrize("kind", ["pieces", "bytes", "spaces"])
def test_words_of_several_tokens_are_words_only_if_asked_for(kind: str, tmp_path: Path) -> None:
    tokenizer = {"pieces": word_pieces(), "bytes": byte_level(" frog", "let"), "spaces": metaspace("▁frog", "let")}[
        kind
    ]
    text = "the froglet froglet, 7froglet frog"
    words = Words.of(passages_of(tmp_path, text, tokenizer, several=True), tokenizer)
    passages = passages_of(tmp_path, text, tokenizer, several=True)
    spelled = passages.spelled(0)
    names = words.named(words.word[spelled[spelled >= 0]])
    assert names == ["the", "froglet", "froglet", "frog"]
    lengths = words.lengths[spelled[spelled >= 0]]
    assert lengths[1] == lengths[2] >= 2
    # The control: without the switch a word is one token.
    alone = passages_of(tmp_path, text, tokenizer)
    assert alone.several == []
    assert "froglet" not in Words.of(alone, tokenizer).named(alone.spelled(0)[alone.spelled(0) >= 0])
    assert alone.digest != passages.digest


def test_a_word_cut_by_the_end_of_a_passage_is_none(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("froglets frog toad")
    corpus = open_corpus(str(tmp_path / "text"))
    passages = write_passages(corpus, word_pieces(), length=2, folder=tmp_path / "passages", several=True)
    # frog ##let | ##s frog; toad alone is too short.
    assert [row.tolist() for row in passages] == [[1, 2], [3, 1]]
    assert passages.spelled(0).tolist() == [-1, -1]
    assert passages.spelled(1).tolist() == [-1, 1]


def test_the_share_of_whole_words_counts_unknown_ones_as_split(tmp_path: Path) -> None:
    passages = passages_of(tmp_path, "the frog froglets lizard in 7 pond.", word_pieces())
    # froglets is split, lizard unknown; 7 is no word.
    assert passages.whole_share == pytest.approx(4 / 6)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_summed_over_a_words_keys_and_averaged_over_its_queries(causal: bool) -> None:
    draw = np.random.default_rng(2)
    spans = [(0, 1), (1, 4), (4, 5), (5, 7), (7, 9), (9, 10)]
    attention = draw.random((3, 10, 10))
    if causal:
        attention = np.tril(attention)
    lengths = np.ones(10, dtype=np.int64)
    for start, stop in spans:
        lengths[start] = stop - start
    found = attention_between_words(attention, lengths, causal=causal)
    states = draw.normal(size=(10, 4))
    means = states_of_words(states, lengths)
    for query_start, query_stop in spans:
        assert means[query_start] == pytest.approx(states[query_start:query_stop].mean(axis=0))
        for key_start, key_stop in spans:
            rows = [
                attention[:, query, key_start:key_stop].sum(axis=-1)
                * ((query + 1) / (query_start + 1) if causal else 1)
                for query in range(query_start, query_stop)
            ]
            assert found[:, query_start, key_start] == pytest.approx(np.mean(rows, axis=0))
    # The control: words of one token are left as they are.
    assert attention_between_words(attention, np.ones(10, dtype=np.int64), causal=causal) is attention
