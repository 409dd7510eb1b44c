"""Same-topic attention under permuted words, for every head, in the same pass as the attention itself.

A permutation gives each kept word the topics of another kept word. The kept words stay, so the sum over all pairs of
different words does not change and only the same-topic sums are needed; they are few pairs, so the product is sparse.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int, Integer
from scipy import sparse

from topicscope.measure.labelling import Labelling

# Pairs compared under all permutations at once.
BLOCK = 2048


@dataclass(frozen=True, eq=False)
class PermutedLabels:
    """A labelling and permutations of its words: word i takes the topics of word ``order[permutation, i]``."""

    labelling: Labelling
    order: Int[np.ndarray, "permutation word"]

    @cached_property
    def _permuted(self) -> Integer[np.ndarray, "word permutation"]:
        """A row a word, so that all permutations of a pair are compared in two contiguous reads.

        Topics themselves if words have one each; else the words, to be looked up in ``_related``.
        """
        if not self.labelling.single:
            return np.ascontiguousarray(self.order.T.astype(np.int32))
        small = np.uint8 if self.labelling.membership.shape[1] < 255 else np.int32
        return np.ascontiguousarray(self.labelling.topic[self.order].astype(small).T)

    @cached_property
    def _related(self) -> Bool[np.ndarray, " word_pair"]:
        """Whether two words share a topic, for all pairs of words."""
        member = self.labelling.membership.astype(np.float32)
        return (member @ member.T > 0).ravel()

    def same_topic(
        self, first: Int[np.ndarray, " pair"], second: Int[np.ndarray, " pair"]
    ) -> Bool[np.ndarray, "pair permutation"]:
        """Whether two kept words have a topic in common, under each permutation."""
        left, right = self._permuted[first], self._permuted[second]
        if self.labelling.single:
            return left == right
        return self._related[left * np.int32(self.order.shape[1]) + right]


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
