"""Which words have which topics, and so which pairs of words are of the same topic.

Words are numbered by their place in a vocabulary that several labellings share (other thresholds, assignments, LDA
seeds), so that one pass over a corpus serves all of them. A word without a topic is left out by that labelling.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Int, UInt64
from scipy import sparse

# Classes of pairs, in the order of every axis named ``class``.
CLASSES = ("same_word", "same_topic", "different_topic")
SAME_WORD, SAME_TOPIC, DIFFERENT_TOPIC = range(3)


@dataclass(frozen=True, eq=False)
class Labelling:
    """Topics of the words of a vocabulary; several topics a word are allowed, and none."""

    membership: Bool[np.ndarray, "word topic"]

    @cached_property
    def kept(self) -> Bool[np.ndarray, " word"]:
        """Words that have a topic."""
        return np.any(self.membership, axis=1)

    @cached_property
    def single(self) -> bool:
        """Whether no word has two topics."""
        return bool((self.membership.sum(axis=1) <= 1).all())

    @cached_property
    def topic(self) -> Int[np.ndarray, " word"]:
        """Each word's topic, the first if it has several; −1 for a word that is left out."""
        return np.where(self.kept, self.membership.argmax(axis=1), -1)

    @cached_property
    def bits(self) -> UInt64[np.ndarray, "word block"]:
        """Topics as bits, so that two words are compared in a few operations."""
        padded = np.zeros((len(self.membership), -(-self.membership.shape[1] // 64) * 64), dtype=bool)
        padded[:, : self.membership.shape[1]] = self.membership
        return np.packbits(padded, axis=1).view(np.uint64)

    def shares(self, first: Int[np.ndarray, "*pairs"], second: Int[np.ndarray, "*pairs"]) -> Bool[np.ndarray, "*pairs"]:
        """Whether the two words have a topic in common."""
        if self.single:
            return (self.topic[first] == self.topic[second]) & (self.topic[first] >= 0)
        return (self.bits[first] & self.bits[second]).any(axis=-1)

    def classes(self, first: Int[np.ndarray, " pair"], second: Int[np.ndarray, " pair"]) -> Int[np.ndarray, " pair"]:
        """The class of each pair, −1 if one of the words is left out; a word with itself is never "same topic"."""
        found = np.where(self.shares(first, second), SAME_TOPIC, DIFFERENT_TOPIC)
        found = np.where(first == second, SAME_WORD, found)
        return np.where(self.kept[first] & self.kept[second], found, -1)

    @cached_property
    def same_topic_pairs(self) -> tuple[Int[np.ndarray, " pair"], Int[np.ndarray, " pair"]]:
        """All pairs of different words that share a topic, each once, the smaller word first."""
        member = sparse.csr_array(self.membership.astype(np.int32))
        shared = sparse.coo_array(sparse.triu(member @ member.T, k=1))
        order = np.lexsort((shared.col, shared.row))
        return shared.row[order].astype(np.int64), shared.col[order].astype(np.int64)

    @cached_property
    def different_topic_pairs(self) -> tuple[Int[np.ndarray, " pair"], Int[np.ndarray, " pair"]]:
        """All pairs of different kept words that share no topic, each once, the smaller word first."""
        outside = np.triu(np.logical_and.outer(self.kept, self.kept), k=1)
        outside[self.same_topic_pairs] = False
        # A vocabulary has far fewer than 2^31 words, and there are many pairs.
        first, second = np.nonzero(outside)
        return first.astype(np.int32), second.astype(np.int32)

    @property
    def among_kept(self) -> "Labelling":
        """The same of the kept words alone, in their order."""
        return Labelling(self.membership[self.kept])
