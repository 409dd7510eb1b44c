"""How a matrix over tokens looks along topic blocks: averages by class of entry, and their contrast."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int


@dataclass(frozen=True)
class ClassAverages:
    """Averages of a matrix's entries by what row and column have in common; None where a class is empty."""

    same_word: float
    """The diagonal, [MASK] left out."""

    same_topic: float | None
    """Two different words of one topic."""

    different_topic: float | None
    """Two words of different topics."""

    mask_column: float
    """Word rows of [MASK]'s column."""

    mask_row: float
    """[MASK]'s row, its own entry included."""

    @property
    def contrast(self) -> float | None:
        """Same minus different topic; None if either class is empty."""
        if self.same_topic is None or self.different_topic is None:
            return None
        return self.same_topic - self.different_topic


def class_averages(matrix: Float[np.ndarray, "token token"], word_topics: Int[np.ndarray, " token"]) -> ClassAverages:
    """Average each class of entries of a V × V matrix (token 0 is [MASK]), from sums over topics."""
    words, topics = matrix[1:, 1:].astype(np.float64), word_topics[1:]
    member = (topics[:, None] == np.unique(topics)).astype(np.float64)
    diagonal = float(np.trace(words))
    within = float(np.einsum("it,ij,jt->", member, words, member, optimize=True)) - diagonal
    outside = float(words.sum()) - within - diagonal
    sizes = member.sum(axis=0)
    pairs_within = float((sizes * (sizes - 1)).sum())
    pairs_outside = float(len(topics) ** 2 - (sizes**2).sum())
    return ClassAverages(
        same_word=diagonal / len(topics),
        same_topic=within / pairs_within if pairs_within else None,
        different_topic=outside / pairs_outside if pairs_outside else None,
        mask_column=float(matrix[1:, 0].mean()),
        mask_row=float(matrix[0].mean()),
    )
