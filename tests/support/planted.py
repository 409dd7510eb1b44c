"""Small texts and tokenizers whose topics are known."""

from pathlib import Path

import numpy as np
from tokenizers import Tokenizer as Engine
from tokenizers import models, pre_tokenizers

from topicscope.probing.topics import Bags
from topicscope.text.corpora import open_corpus
from topicscope.text.tokenizers import Tokenizer, from_engine
from topicscope.text.tokens import Passages, write_passages
from topicscope.text.words import Words


def spelled(topic: int, word: int) -> str:
    """Words of letters only, three of them, such as ``bax``: the first is the topic's."""
    return f"{chr(97 + topic)}{chr(97 + word)}x"


def word_tokenizer(topics: int, words: int) -> Tokenizer:
    vocabulary = {"[UNK]": 0, "the": 1, "##s": 2, ".": 3}
    for topic in range(topics):
        for word in range(words):
            vocabulary[spelled(topic, word)] = len(vocabulary)
    engine = Engine(models.WordPiece(vocabulary, unk_token="[UNK]"))
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return from_engine(engine, name="words")


def planted_passages(
    folder: Path, *, topics: int = 4, words: int = 8, documents: int = 120, length: int = 30, seed: int = 0
) -> tuple[Passages, Tokenizer]:
    """Documents of one topic each, with stop words, a stop after each and words that are split."""
    draw = np.random.default_rng(seed)
    lines = []
    for topic in draw.integers(topics, size=documents):
        chosen = [spelled(int(topic), int(word)) for word in draw.integers(words, size=length)]
        lines.append(" the ".join(chosen) + f" {chosen[0]}s.")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "text").write_text("\n".join(lines))
    tokenizer = word_tokenizer(topics, words)
    return write_passages(open_corpus(str(folder / "text")), tokenizer, length=40, folder=folder), tokenizer


def words_of_one_token(size: int) -> Words:
    """Each of so many tokens is a word; nobody has counted them."""
    numbers, ones = np.arange(size, dtype=np.int32), np.ones(size, dtype=np.int32)
    names = [str(number) for number in numbers]
    return Words(word_tokenizer(1, 1), numbers, ones, numbers, ones.astype(np.int64), names, merged=False)


def planted_bags(*, topics: int, words: int, documents: int, length: int, seed: int = 0) -> Bags:
    """Each document's words are of one topic, all its words equally likely; word w is of topic w // words."""
    draw = np.random.default_rng(seed)
    topic = draw.integers(topics, size=documents)
    drawn = topic[:, None] * words + draw.integers(words, size=(documents, length))
    return Bags(
        words=drawn.ravel().astype(np.int32),
        offsets=np.arange(documents + 1, dtype=np.int64) * length,
        tokens=np.arange(topics * words, dtype=np.int32),
    )
