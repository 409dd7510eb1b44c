from pathlib import Path

import numpy as np
import pytest

from support.planted import planted_passages
from topicscope.errors import InputError
from topicscope.probing import topics
from topicscope.probing.topics import Bags, collect_bags, load_bags, sample, stop_word_list
from topicscope.text.tokenizers import Tokenizer
from topicscope.text.tokens import Passages


def collected(passages: Passages, tokenizer: Tokenizer, chosen: np.ndarray, most: int = 10**9) -> Bags:
    return collect_bags(
        passages,
        tokenizer,
        chosen=chosen,
        most_tokens=most,
        stop_words=stop_word_list("gensim"),
        shortest=3,
        generator=np.random.default_rng(0),
    )


def brute_force(passages: Passages, tokenizer: Tokenizer, chosen: np.ndarray) -> list[list[int]]:
    documents = []
    for passage in chosen.tolist():
        kept = []
        for place in range(passages.offsets[passage], passages.offsets[passage + 1]):
            word = tokenizer.engine.id_to_token(int(passages.tokens[place]))
            if passages.whole[place] and word not in {"the", "[UNK]"} and len(word) >= 3:
                kept.append(int(passages.tokens[place]))
        documents.append(kept)
    return documents


def test_bags_hold_whole_words_that_are_no_stop_words_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passages, tokenizer = planted_passages(tmp_path, documents=15)
    chosen = passages.for_topics
    expected = brute_force(passages, tokenizer, chosen)
    monkeypatch.setattr(topics, "BLOCK", 4)
    bags = collected(passages, tokenizer, chosen)
    found = [
        bags.tokens[bags.words[first:last]].tolist()
        for first, last in zip(bags.offsets, bags.offsets[1:], strict=False)
    ]
    assert found == expected
    assert [bag.tolist() for bag in bags.documents()] == [
        np.searchsorted(bags.tokens, kept).tolist() for kept in expected if kept
    ]
    assert bags.counts.tolist() == [sum(document.count(token) for document in expected) for token in bags.tokens]
    # Whole words only: the passages have more tokens of these than the bags.
    assert np.isin(passages.tokens, bags.tokens).sum() > len(
        collected(passages, tokenizer, np.arange(len(passages))).words
    )
    bags.save(tmp_path / "bags")
    assert load_bags(tmp_path / "bags").digest == bags.digest


def test_a_sample_has_at_most_the_stated_tokens_and_is_drawn_at_random() -> None:
    chosen, lengths = np.arange(100) * 2, np.full(100, 7)
    assert sample(chosen, lengths, 700, generator=np.random.default_rng(0)).tolist() == chosen.tolist()
    drawn = [sample(chosen, lengths, 350, generator=np.random.default_rng(seed)) for seed in range(200)]
    assert all(len(one) == 50 and (np.diff(one) > 0).all() and np.isin(one, chosen).all() for one in drawn)
    often = np.bincount(np.concatenate(drawn) // 2, minlength=100)
    # Each passage is in half of the samples, to five standard errors.
    assert (abs(often - 100) < 5 * 50**0.5).all()
    assert (often != 100).any()


def test_stop_words_come_from_gensim_or_a_file(tmp_path: Path) -> None:
    assert {"the", "however"} <= stop_word_list("gensim")
    assert stop_word_list("none") == frozenset()
    (tmp_path / "words").write_text("Frog\n\n toad \n")
    assert stop_word_list(str(tmp_path / "words")) == {"frog", "toad"}
    with pytest.raises(InputError, match="cannot be read: give gensim, none, or a UTF-8 file"):
        stop_word_list(str(tmp_path / "missing"))
