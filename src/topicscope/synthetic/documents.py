"""Documents of different lengths, held end to end in one array, and what uniform attention sees of them."""

from dataclasses import dataclass, fields
from functools import cached_property
from typing import TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import sparse

Ragged = TypeVar("Ragged", bound="_Ragged")


@dataclass(frozen=True, eq=False)
class _Ragged:
    """Documents of different lengths in one array."""

    lengths: Int[np.ndarray, " document"]

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def offsets(self) -> Int[np.ndarray, " bound"]:
        """Where each document begins in the array, and at the end where the last one stops."""
        return np.concatenate([[0], np.cumsum(self.lengths, dtype=np.int64)])

    @cached_property
    def document(self) -> Int[np.ndarray, " position"]:
        """Which document each position belongs to."""
        return np.repeat(np.arange(len(self)), self.lengths)

    def select(self: Ragged, chosen: Int[np.ndarray, " chosen"]) -> Ragged:
        """These documents, in this order (a document may be chosen twice)."""
        lengths = self.lengths[chosen]
        starts_in_result = np.cumsum(lengths, dtype=np.int64) - lengths
        positions = np.arange(lengths.sum()) + np.repeat(self.offsets[chosen] - starts_in_result, lengths)
        return type(self)(lengths, *(getattr(self, field.name)[positions] for field in fields(self)[1:]))


@dataclass(frozen=True, eq=False)
class Documents(_Ragged):
    """Documents of words, end to end."""

    tokens: Int[np.ndarray, " position"]

    def between(self, before: int, after: int) -> "Documents":
        """The documents with one token before and one after each."""
        places = np.stack([self.offsets[:-1], self.offsets[1:]], axis=1).ravel()
        tokens = np.insert(self.tokens, places, np.tile([before, after], len(self)))
        return Documents(self.lengths + np.int32(2), tokens)


@dataclass(frozen=True, eq=False)
class MaskedDocuments(_Ragged):
    """Documents after masking: what the model sees, where it must predict, and what."""

    tokens: Int[np.ndarray, " position"]
    """w̃: the tokens that the model sees."""
    words: Int[np.ndarray, " position"]
    """w: the words that were there."""
    masked: Bool[np.ndarray, " position"]
    """Whether a position is in M, to be predicted."""

    @cached_property
    def where(self) -> Int[np.ndarray, " target"]:
        """The masked positions, in order."""
        return np.flatnonzero(self.masked)

    @cached_property
    def targets(self) -> Int[np.ndarray, " target"]:
        """The words at the masked positions, in order."""
        return self.words.take(self.where)

    @cached_property
    def masked_counts(self) -> Int[np.ndarray, " document"]:
        """|M| of each document."""
        return np.diff(np.searchsorted(self.where, self.offsets))

    def frequencies(self, vocabulary: int) -> Float[np.ndarray, "document token"]:
        """x̃: the share of each document's positions that hold each token."""
        counts = np.zeros((len(self), vocabulary))
        np.add.at(counts, (self.document, self.tokens), 1.0)
        return counts / self.lengths[:, None]

    def span(self, first: int, last: int) -> "MaskedDocuments":
        """Documents ``first`` up to, not including, ``last``, as views."""
        here = slice(self.offsets[first], self.offsets[last])
        return MaskedDocuments(self.lengths[first:last], self.tokens[here], self.words[here], self.masked[here])

    def parts(self, count: int) -> list["MaskedDocuments"]:
        """The documents in ``count`` parts of equal size, as views."""
        size = len(self) // count
        return [self.span(part * size, (part + 1) * size) for part in range(count)]


@dataclass(frozen=True, eq=False)
class Bags:
    """What uniform attention sees of each document, and its targets; eq. 1's mean over the masked positions."""

    frequencies: Float[np.ndarray, "document token"]
    """x̃: share of the document's positions that hold each token."""
    targets: Float[np.ndarray, "document token"]
    """Share of the masked positions whose word is each token (0 for [MASK])."""
    queries: Float[np.ndarray, "document token"]
    """Share of the masked positions that hold each token."""
    pairs: sparse.csr_array
    """Share of the masked positions with each (word, token held): a row per document, pairs numbered word·V + token."""

    @classmethod
    def of(cls, documents: MaskedDocuments, vocabulary: int) -> "Bags":
        """Count the documents."""
        count, at = len(documents), documents.masked
        where, words, tokens = documents.document[at], documents.words[at].astype(np.int64), documents.tokens[at]
        share = 1.0 / np.bincount(where, minlength=count)[where]
        targets, queries = np.zeros((count, vocabulary)), np.zeros((count, vocabulary))
        np.add.at(targets, (where, words), share)
        np.add.at(queries, (where, tokens), share)
        pairs = sparse.csr_array((share, (where, words * vocabulary + tokens)), shape=(count, vocabulary**2))
        return cls(documents.frequencies(vocabulary), targets, queries, pairs)
