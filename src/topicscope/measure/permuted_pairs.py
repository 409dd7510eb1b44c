"""Same-topic attention under permuted words, for every head, in the same pass as the attention itself.

A permutation gives each kept word the topics of another kept word. The kept words stay, so the sum over all pairs of
different words does not change and only the same-topic sums are needed; they are few pairs, so the product is sparse.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int, Int32, Integer
from scipy import sparse

from topicscope.measure.labelling import Labelling

# Pairs compared under all permutations at once.
BLOCK = 2048
# Up to so many words, a table of all their pairs is kept. Its places fit into 32 bits up to 46,340 words; beyond this
# number it would be larger than all else.
LOOKED_UP = 20_000


@dataclass(frozen=True, eq=False)
class PermutedLabels:
    """A labelling and permutations of its words: word i takes the topics of word ``order[permutation, i]``."""

    labelling: Labelling
    order: Int[np.ndarray, "permutation word"]
    stratum: Int[np.ndarray, " word"] | None = None
    """Words that exchange topics, if known: numbered side by side, they are quicker to look up."""

    @cached_property
    def _number(self) -> Int32[np.ndarray, " word"]:
        """The kept words' numbers, stratum after stratum; nobody asks for the others'."""
        kept = np.flatnonzero(self.labelling.kept)
        order = kept if self.stratum is None else kept[np.argsort(self.stratum[kept], kind="stable")]
        number = np.zeros(len(self.labelling.kept), dtype=np.int32)
        number[order] = np.arange(len(order), dtype=np.int32)
        return number

    @cached_property
    def _permuted(self) -> Integer[np.ndarray, "word permutation"]:
        """A row a word, so that all permutations of a pair are compared in two contiguous reads.

        Topics themselves if words have one each; else the words' numbers, to be looked up in ``_related``.
        """
        if not self.labelling.single:
            return np.ascontiguousarray(self._number[self.order].T)
        small = np.uint8 if self.labelling.membership.shape[1] < 255 else np.int32
        return np.ascontiguousarray(self.labelling.topic[self.order].astype(small).T)

    @cached_property
    def _related(self) -> Bool[np.ndarray, " word_pair"]:
        """Whether two words share a topic, for all pairs of kept words by their numbers."""
        kept = np.flatnonzero(self.labelling.kept)
        member = np.empty((len(kept), self.labelling.membership.shape[1]), dtype=np.float32)
        member[self._number[kept]] = self.labelling.membership[kept]
        return (member @ member.T > 0).ravel()

    def same_topic(
        self, first: Int[np.ndarray, " pair"], second: Int[np.ndarray, " pair"]
    ) -> Bool[np.ndarray, "pair permutation"]:
        """Whether two kept words have a topic in common, under each permutation."""
        if self.labelling.single:
            return self._permuted[first] == self._permuted[second]
        words = int(self.labelling.kept.sum())
        if words > LOOKED_UP:
            return self.labelling.shares(self.order.T[first], self.order.T[second])
        return self._related[self._permuted[first] * np.int32(words) + self._permuted[second]]


@dataclass(frozen=True, eq=False)
class PermutedSums:
    """Same-topic sums under each permutation."""

    sums: Float[np.ndarray, "permutation layer head"]
    counts: Float[np.ndarray, " permutation"]

    @classmethod
    def empty(cls, labels: PermutedLabels, layers: int, heads: int) -> "PermutedSums":
        """Nothing summed."""
        return cls(np.zeros((len(labels.order), layers, heads)), np.zeros(len(labels.order)))

    def add(
        self,
        labels: PermutedLabels,
        first: Int[np.ndarray, " pair"],
        second: Int[np.ndarray, " pair"],
        attention: Float[np.ndarray, "pair place"],
        directions: int,
    ) -> None:
        """Add pairs of positions, with the attention of every layer and head."""
        kept = labels.labelling.kept
        usable = np.flatnonzero(kept[first] & kept[second] & (first != second))
        for start in range(0, len(usable), BLOCK):
            chosen = usable[start : start + BLOCK]
            same = labels.same_topic(first[chosen], second[chosen])
            # Few pairs share a topic: all that follows is done on those alone.
            pair, permutation = np.divmod(np.flatnonzero(same), same.shape[1])
            self.counts[:] += directions * np.bincount(permutation, minlength=same.shape[1])
            ends = np.concatenate([[0], np.cumsum(np.bincount(pair, minlength=len(chosen)))])
            matrix = sparse.csr_array((np.ones(len(pair)), permutation, ends), shape=same.shape)
            self.sums[:] += (matrix.T @ attention[chosen]).reshape(self.sums.shape)
