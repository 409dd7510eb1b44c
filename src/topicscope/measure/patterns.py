"""Which pattern a matrix over tokens shows: a block a topic, a diagonal, or none (Figures 1 and 2)."""

from typing import Literal

import numpy as np
from jaxtyping import Float, Int

Pattern = Literal["block", "diagonal", "none"]


def pattern(matrix: Float[np.ndarray, "token token"], word_topics: Int[np.ndarray, " token"]) -> Pattern:
    """Name the pattern by what stands out of the background, as an eye sees it in a heat map.

    The background are the entries of words of different topics. A class of entries stands out if its average is above
    the background's by more than the background's standard deviation. "block": entries of two different words of one
    topic stand out; "diagonal": those of a word with itself do, and not those; "none": neither does.
    """
    words, topics = matrix[1:, 1:], word_topics[1:]
    same = topics[:, None] == topics[None, :]
    itself = np.eye(len(topics), dtype=bool)
    background = words[~same]
    visible = background.mean() + background.std()
    if words[same & ~itself].mean() > visible:
        return "block"
    return "diagonal" if words[itself].mean() > visible else "none"


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
