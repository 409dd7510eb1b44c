"""Which pattern a matrix over tokens shows: a block a topic, a diagonal, or none (Figures 1 and 2)."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

Pattern = Literal["block", "diagonal", "none"]


@dataclass(frozen=True)
class StandOut:
    """How far classes of entries are above the background, in its standard deviations."""

    block: float
    """Two different words of one topic."""

    diagonal: float
    """A word with itself."""


def stand_out(matrix: Float[np.ndarray, "token token"], word_topics: Int[np.ndarray, " token"]) -> StandOut:
    """Averages of blocks and diagonal against the background: entries of words of different topics."""
    words, topics = matrix[1:, 1:].astype(np.float64), word_topics[1:]
    same = topics[:, None] == topics[None, :]
    itself = np.eye(len(topics), dtype=bool)
    background = words[~same]
    mean, spread = background.mean(), background.std()
    return StandOut(
        block=float((words[same & ~itself].mean() - mean) / spread),
        diagonal=float((words[itself].mean() - mean) / spread),
    )


def pattern(matrix: Float[np.ndarray, "token token"], word_topics: Int[np.ndarray, " token"]) -> Pattern:
    """Name the pattern by what stands out of the background, as an eye sees it in a heat map.

    A class of entries stands out if its average is above the background's by more than the background's standard
    deviation. "block": entries of two different words of one
    topic stand out; "diagonal": those of a word with itself do, and not those; "none": neither does.
    """
    found = stand_out(matrix, word_topics)
    if found.block > 1:
        return "block"
    return "diagonal" if found.diagonal > 1 else "none"


def centred_columns(matrix: Float[np.ndarray, "token token"]) -> Float[np.ndarray, "token token"]:
    """Subtract each column's mean over rows: softmax does not see it (Remark 1)."""
    return matrix - matrix.mean(axis=0)


def block_sums(matrix: Float[np.ndarray, "token token"], word_topics: Int[np.ndarray, " token"]) -> tuple[float, float]:
    """Theorem 1's Σ_{l ∈ t} E_il, averaged over words i: for i's own topic t, and for the other topics."""
    words, topics = matrix[1:, 1:], word_topics[1:]
    numbers = np.unique(topics)
    sums = words @ (topics[:, None] == numbers).astype(float)
    own = topics[:, None] == numbers
    return float(sums[own].mean()), float(sums[~own].mean())
