"""How a matrix over tokens looks along topic blocks: averages by class of entry, their contrast, and the pattern."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int

Pattern = Literal["block", "diagonal", "none"]


def words_of(word_topics: Int[np.ndarray, " token"]) -> slice | Int[np.ndarray, " word"]:
    """The tokens that have a topic: all but [MASK] (token 0), and START and END where documents have these."""
    return slice(1, None) if word_topics[1:].all() else np.flatnonzero(word_topics)


def class_masks(topic: Int[np.ndarray, " token"]) -> dict[str, Bool[np.ndarray, "token token"]]:
    """Which entries (i, j) belong to which class; row i predicts token i, column j is the token seen."""
    row, column = np.ogrid[: len(topic), : len(topic)]
    is_word = topic > 0
    of_words = is_word[:, None] & is_word
    same = of_words & (topic[:, None] == topic[None, :])
    return {
        "same_word": same & (row == column),
        "same_topic": same & (row != column),
        "different_topic": of_words & ~same,
        "mask_column": is_word[:, None] & (column == 0),
        "mask_row": (row == 0) & (column >= 0),
    }


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
    """Average each class of entries of a V × V matrix (token 0 is [MASK])."""
    averages: list[Any] = [None if math.isnan(own) else own for own in averages_by_class(matrix, word_topics).tolist()]
    return ClassAverages(*averages)


def averages_by_class(
    matrix: Float[np.ndarray, "token token"], word_topics: Int[np.ndarray, " token"]
) -> Float[np.ndarray, " class"]:
    """The averages in the order of ``ClassAverages``, in double precision; NaN for a class without entries."""
    entries = (matrix[where] for where in class_masks(word_topics).values())
    return np.array([own.mean(dtype=np.float64) if own.size else np.nan for own in entries])


def product_contrasts(
    rows: Float[np.ndarray, "*several token dimension"],
    columns: Float[np.ndarray, "*some token dimension"],
    word_topics: Int[np.ndarray, " token"],
) -> Float[np.ndarray, "*several"] | None:
    """``class_averages(rows @ columns.T, …).contrast`` of several products at once; None if either class is empty.

    No product is ever formed: V × V may be too large.
    """
    here, member = words_of(word_topics), _membership(word_topics)
    left, right, sizes = rows[..., here, :], columns[..., here, :], member.sum(axis=0)
    # Pairs of two different words of one topic, and pairs of words of different topics.
    pairs_within, pairs_outside = float((sizes * (sizes - 1)).sum()), float(len(member) ** 2 - (sizes**2).sum())
    if not pairs_within or not pairs_outside:
        return None
    within = ((member.T @ left) * (member.T @ right)).sum(axis=(-2, -1))
    total = (left.sum(axis=-2) * right.sum(axis=-2)).sum(axis=-1)
    diagonal = (left * right).sum(axis=(-2, -1))
    return np.asarray((within - diagonal) / pairs_within - (total - within) / pairs_outside)


def _membership(word_topics: Int[np.ndarray, " token"]) -> Float[np.ndarray, "word topic"]:
    """One for a word's own topic, else zero; tokens of no topic are left out."""
    topics = word_topics[words_of(word_topics)]
    return (topics[:, None] == np.unique(topics)).astype(np.float64)


@dataclass(frozen=True)
class StandOut:
    """How far classes of entries are above the background, in its standard deviations."""

    block: float
    """Two different words of one topic."""
    diagonal: float
    """A word with itself."""


def stand_out(matrix: Float[np.ndarray, "token token"], word_topics: Int[np.ndarray, " token"]) -> StandOut:
    """Averages of blocks and diagonal against the background: entries of words of different topics."""
    entries = {name: matrix[where].astype(np.float64) for name, where in class_masks(word_topics).items()}
    mean = entries["different_topic"].mean()
    # A background without spread, as in theory's own matrices, has rounding errors only; this is the least spread.
    spread = max(entries["different_topic"].std(), 1e-12 * abs(matrix).max()) or 1.0
    return StandOut(
        block=float((entries["same_topic"].mean() - mean) / spread),
        diagonal=float((entries["same_word"].mean() - mean) / spread),
    )


def pattern(matrix: Float[np.ndarray, "token token"], word_topics: Int[np.ndarray, " token"]) -> Pattern:
    """Name the pattern by what stands out from the background, as the eye sees it in a heat map (Figures 1 and 2).

    A class of entries stands out if its average is above the background's by more than the background's standard
    deviation. "block": entries of two different words of one topic stand out; "diagonal": only those of a word with
    itself do; "none": neither class does.
    """
    heights = stand_out(matrix, word_topics)
    if heights.block > 1:
        return "block"
    return "diagonal" if heights.diagonal > 1 else "none"


def centred_columns(matrix: Float[np.ndarray, "token token"]) -> Float[np.ndarray, "token token"]:
    """Subtract each column's mean over rows: softmax does not see it (Remark 1)."""
    return matrix - matrix.mean(axis=0)


def block_sums(matrix: Float[np.ndarray, "token token"], word_topics: Int[np.ndarray, " token"]) -> tuple[float, float]:
    """Theorem 1's Σ_{l ∈ t} E_il, averaged over words i: for i's own topic t, and for the other topics."""
    here, member = words_of(word_topics), _membership(word_topics)
    sums = matrix[here][:, here] @ member
    return float(sums[member == 1].mean()), float(sums[member == 0].mean())
