"""Words: what "net", "Net" and " net" have in common, and words that a tokenizer writes with several tokens.

A *spelling* is what a passage contains: one token, whose number it has, or several in a row, with numbers from the
tokenizer's size on. A *word* is one spelling, or all spellings that differ in case and leading space only; its number
is the smallest of its spellings'. Everything that is counted or compared is a word; only a model sees tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int, Int32, Int64
from scipy import sparse

from topicscope.text.tokenizers import Tokenizer
from topicscope.text.tokens import Passages

# Spellings of this many tokens are counted at once, so memory does not grow with the corpus.
BLOCK = 1 << 22


@dataclass(frozen=True, eq=False)
class Words:
    """The words of some passages, and the tokens that they are written with."""

    tokenizer: Tokenizer
    tokens: Int[np.ndarray, " spelling_token"]
    """Tokens of all spellings, one after the other."""

    lengths: Int32[np.ndarray, " spelling"]
    """How many tokens each spelling has."""

    word: Int32[np.ndarray, " spelling"]
    """The number of the word that each spelling belongs to."""

    counts: Int64[np.ndarray, " spelling"]
    """How often each spelling is in the passages."""

    names: Sequence[str]
    """Each spelling as people read it, without case if words are merged."""

    merged: bool

    @classmethod
    def of(cls, passages: Passages | None, tokenizer: Tokenizer, *, merged: bool = True) -> "Words":
        """The words of these passages, or, without passages, all words of one token.

        merged: spellings that differ only in case and leading space are one word.
        """
        written = passages.several if passages else ()
        names = [*tokenizer.words(np.arange(tokenizer.size)), *(name for name, _ in written)]
        several = [tokens for _, tokens in written]
        numbers = np.arange(len(names), dtype=np.int32)
        if merged:
            names = [name.lower() for name in names]
            first: dict[str, int] = {}
            numbers = np.array([first.setdefault(name, place) for place, name in enumerate(names)], dtype=np.int32)
        return cls(
            tokenizer,
            tokens=np.concatenate([np.arange(tokenizer.size), *map(np.array, several)]).astype(np.int64),
            lengths=np.array([1] * tokenizer.size + [len(tokens) for tokens in several], dtype=np.int32),
            word=numbers,
            counts=_counts(passages, len(names)) if passages else np.zeros(len(names), dtype=np.int64),
            names=names,
            merged=merged,
        )

    def named(self, words: Int[np.ndarray, " word"]) -> list[str]:
        """Words as people read them."""
        return [self.names[word] for word in words.tolist()]

    def find(self, name: str) -> int | None:
        """The number of a word; None if it is not one here, as when the tokenizer splits it."""
        token = self.tokenizer.token(name)
        if token is not None:
            return int(self.word[token])
        return self._by_name.get(name.lower() if self.merged else name)

    @cached_property
    def _by_name(self) -> dict[str, int]:
        """Words that occur, by name."""
        return {self.names[place]: int(self.word[place]) for place in np.flatnonzero(self.counts).tolist()}

    def places(self, words: Int[np.ndarray, " word"]) -> Int32[np.ndarray, " spelling_plus_one"]:
        """Where each spelling's word is among these, −1 if it is not; the last entry, for no spelling, is −1."""
        place = np.full(len(self.word), -1, dtype=np.int32)
        place[words] = np.arange(len(words), dtype=np.int32)
        return np.append(place[self.word], np.int32(-1))

    def token_means(self, words: Int[np.ndarray, " word"]) -> tuple[Int[np.ndarray, " token"], sparse.csr_array]:
        """The tokens that words are written with, and the matrix that turns the tokens' vectors into the words'.

        A spelling's vector is the mean over its tokens, and a word's is the mean over its spellings, weighted by how
        often they occur; all spellings of a word that does not occur count alike.
        """
        place = self.places(words)[:-1]
        occurring = np.bincount(place[place >= 0], self.counts[place >= 0], len(words))
        weight = np.where(occurring[place] > 0, self.counts, 1) * (place >= 0) / self.lengths
        token_word, token_weight = np.repeat(place, self.lengths), np.repeat(weight, self.lengths)
        used = token_weight > 0
        tokens, column = np.unique(self.tokens[used], return_inverse=True)
        matrix = sparse.csr_array((token_weight[used], (token_word[used], column)), shape=(len(words), len(tokens)))
        # A row with one entry yields that token's vector exactly.
        return tokens, sparse.csr_array(matrix.multiply(1 / matrix.sum(axis=1)[:, None]))


def mean_vectors(mean: sparse.csr_array, vectors: Float[np.ndarray, "token width"]) -> Float[np.ndarray, "word width"]:
    """Words' vectors from those of the tokens that ``token_means`` returned."""
    return (mean @ vectors.astype(np.float64)).astype(vectors.dtype)


def _counts(passages: Passages, spellings: int) -> Int64[np.ndarray, " spelling"]:
    counts = np.zeros(spellings, dtype=np.int64)
    for start in range(0, len(passages.spellings), BLOCK):
        block = passages.spellings[start : start + BLOCK]
        counts += np.bincount(block[block >= 0], minlength=spellings)
    return counts


def attention_between_words(
    attention: Float[np.ndarray, "head query key"], lengths: Int[np.ndarray, " position"], *, causal: bool = False
) -> Float[np.ndarray, "head query key"]:
    """Attention with each word at its first token: summed over the tokens of a key, averaged over those of a query.

    lengths: how many tokens the word that begins at each position has, 1 where none begins. What is left at a word's
    other tokens means nothing. In a causal model a query at position q sees q + 1 tokens, and its attention is later
    multiplied by the number that its word's first token sees; so each query is weighted by the number it sees itself.
    """
    if (lengths <= 1).all():
        return attention
    begins = _begins(lengths)
    result = attention.astype(np.float64)
    result[..., begins] = np.add.reduceat(result, begins, axis=-1)
    sizes = lengths[begins]
    if causal:
        seen = np.arange(1, len(lengths) + 1)
        result = result * (seen / np.repeat(seen[begins], sizes))[:, None]
    result[:, begins] = np.add.reduceat(result, begins, axis=1) / sizes[:, None]
    return result


def states_of_words(
    states: Float[np.ndarray, "position width"], lengths: Int[np.ndarray, " position"]
) -> Float[np.ndarray, "position width"]:
    """Each word's mean over its tokens, at the first of them; what is left at the others means nothing."""
    if (lengths <= 1).all():
        return states
    begins, result = _begins(lengths), states.astype(np.float64)
    result[begins] = np.add.reduceat(result, begins, axis=0) / lengths[begins][:, None]
    return result


def _begins(lengths: Int[np.ndarray, " position"]) -> Int[np.ndarray, " unit"]:
    """Positions that are not within a word that began before."""
    inside = np.zeros(len(lengths) + 1, dtype=np.int64)
    first = np.flatnonzero(lengths > 1)
    np.add.at(inside, first + 1, 1)
    np.add.at(inside, first + lengths[first], -1)
    return np.flatnonzero(np.cumsum(inside[:-1]) == 0)
