"""Masked documents as bags: token frequencies, what is to be predicted, and at which queries."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import sparse

from topicscope.synthetic.documents import MaskedDocuments


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
    """Share of the masked positions with each (word, token held), one row a document, pairs numbered word·V + token."""

    @classmethod
    def of(cls, documents: MaskedDocuments, vocabulary: int) -> "Bags":
        """Count the documents."""
        count, document = len(documents), documents.document
        frequencies = np.zeros((count, vocabulary))
        np.add.at(frequencies, (document, documents.tokens), 1.0)
        frequencies /= documents.lengths[:, None]
        at = documents.masked
        where, words, tokens = document[at], documents.words[at].astype(np.int64), documents.tokens[at]
        share = 1.0 / np.bincount(where, minlength=count)[where]
        targets, queries = np.zeros((count, vocabulary)), np.zeros((count, vocabulary))
        np.add.at(targets, (where, words), share)
        np.add.at(queries, (where, tokens), share)
        pairs = sparse.csr_array((share, (where, words * vocabulary + tokens)), shape=(count, vocabulary**2))
        return cls(frequencies, targets, queries, pairs)
