"""Passages as LDA sees them: words that the tokenizer keeps whole, without stop words, in the order of the text."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int, Int32, Int64
from safetensors.numpy import load_file, save

from topicscope.errors import InputError
from topicscope.files import write_atomically
from topicscope.text.tokens import Passages, Tokenizer

# Passages looked at together: memory does not grow with the corpus.
BLOCK = 10_000


@dataclass(frozen=True, eq=False)
class Bags:
    """Documents of words; a word is its place among ``tokens``."""

    words: Int32[np.ndarray, " occurrence"]
    offsets: Int64[np.ndarray, " passage_plus_one"]
    tokens: Int32[np.ndarray, " word"]
    """The tokenizer's number of each word, ascending."""

    counts: Int64[np.ndarray, " word"]
    """How often each word occurs in these passages."""

    @property
    def digest(self) -> str:
        """Identifies the content."""
        found = hashlib.sha256()
        for array in (self.words, self.offsets, self.tokens):
            found.update(np.ascontiguousarray(array).tobytes())
        return found.hexdigest()[:20]

    def documents(self) -> list[Int32[np.ndarray, " _"]]:
        """The words of each passage that has any."""
        return [bag for bag in np.split(self.words, self.offsets[1:-1]) if len(bag)]

    def save(self, path: Path) -> None:
        """Write the arrays to a file."""
        arrays = {name: np.ascontiguousarray(array) for name, array in vars(self).items()}
        write_atomically(path, save(arrays))


def load_bags(path: Path) -> Bags:
    """What ``Bags.save`` wrote."""
    return Bags(**load_file(path))


def stop_word_list(name: str) -> frozenset[str]:
    """``gensim``: the list in gensim's package; ``none``; else a file with one word a line."""
    if name == "none":
        return frozenset()
    if name == "gensim":
        try:
            from gensim.parsing.preprocessing import STOPWORDS
        except ImportError:
            raise InputError('The list of stop words is in gensim: pip install "topicscope[language]".') from None
        return frozenset(STOPWORDS)
    try:
        content = Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise InputError(
            f'--stop-words "{name}" cannot be read: give gensim, none, or a UTF-8 file with one word a line.'
        ) from None
    return frozenset(line.strip().lower() for line in content.splitlines() if line.strip())


def collect_bags(
    passages: Passages,
    tokenizer: Tokenizer,
    *,
    chosen: Int64[np.ndarray, " chosen"],
    most_tokens: int,
    stop_words: frozenset[str],
    shortest: int,
    generator: np.random.Generator,
) -> Bags:
    """The words of the chosen passages, or of as many of them, drawn at random, as have ``most_tokens`` tokens."""
    sampled = sample(chosen, passages.lengths[chosen], most_tokens, generator=generator)
    seen = np.zeros(tokenizer.size, dtype=np.int64)
    for block in _blocks(sampled):
        tokens, _ = _whole_tokens(passages, block)
        seen += np.bincount(tokens, minlength=tokenizer.size)
    tokens = np.flatnonzero(seen)
    kept = tokens[are_words(tokenizer.words(tokens), stop_words, shortest)]
    place = np.full(tokenizer.size, -1, dtype=np.int32)
    place[kept] = np.arange(len(kept), dtype=np.int32)
    words, lengths = [np.empty(0, dtype=np.int32)], [np.empty(0, dtype=np.int64)]
    for block in _blocks(sampled):
        tokens, passage = _whole_tokens(passages, block)
        inside = place[tokens] >= 0
        words.append(place[tokens[inside]])
        lengths.append(np.bincount(passage[inside], minlength=len(block)))
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int64)
    return Bags(np.concatenate(words), offsets, kept.astype(np.int32), seen[kept])


def are_words(spelled: list[str], stop_words: frozenset[str], shortest: int) -> Bool[np.ndarray, " word"]:
    """Which of these LDA is to see."""
    return np.array([len(word) >= shortest and word.lower() not in stop_words for word in spelled], dtype=bool)


def sample(
    chosen: Int64[np.ndarray, " chosen"],
    lengths: Int64[np.ndarray, " chosen"],
    most: int,
    *,
    generator: np.random.Generator,
) -> Int64[np.ndarray, " sampled"]:
    """All of the chosen if they have at most so many tokens together, else a random part of them; in their order."""
    if lengths.sum() <= most:
        return chosen
    order = generator.permutation(len(chosen))
    fits = np.cumsum(lengths[order]) <= most
    return np.sort(chosen[order[fits]])


def _blocks(passages: Int64[np.ndarray, " sampled"]) -> list[Int64[np.ndarray, " block"]]:
    return np.split(passages, range(BLOCK, len(passages), BLOCK))


def _whole_tokens(
    passages: Passages, block: Int64[np.ndarray, " block"]
) -> tuple[Int[np.ndarray, " occurrence"], Int[np.ndarray, " occurrence"]]:
    """The tokens of a block's passages that are whole words, and the passage within the block that each is of."""
    lengths = passages.lengths[block]
    starts = passages.offsets[block]
    passage = np.repeat(np.arange(len(block)), lengths)
    # Each passage's places follow its start: a ramp that begins anew at every passage.
    ramp = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    places = np.repeat(starts, lengths) + ramp
    whole = passages.whole[places]
    return passages.tokens[places[whole]], passage[whole]
