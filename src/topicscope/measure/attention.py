"""Average attention between words by what they have in common (Table 3)."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int


@dataclass(frozen=True, eq=False)
class AttentionAverages:
    """Average attention from one word position to another, over all pairs of positions of all documents.

    [MASK] positions are left out, as keys and as queries, and so is a position's attention to itself. A class
    without a pair is NaN.
    """

    same_word: Float[np.ndarray, "layer head"]
    same_topic: Float[np.ndarray, "layer head"]
    """The same topic, but another word."""

    different_topic: Float[np.ndarray, "layer head"]


def attention_averages(
    attention: Float[np.ndarray, "layer document head key query"],
    tokens: Int[np.ndarray, "document position"],
    present: Bool[np.ndarray, "document position"],
    word_topics: Int[np.ndarray, " token"],
) -> AttentionAverages:
    """Average attention over pairs of positions that hold the same word, the same topic, different topics."""
    topics = word_topics[tokens]
    usable = present & (tokens != 0)
    pair = usable[:, :, None] & usable[:, None, :] & ~np.eye(tokens.shape[1], dtype=bool)
    alike = tokens[:, :, None] == tokens[:, None, :]
    related = topics[:, :, None] == topics[:, None, :]
    return AttentionAverages(
        same_word=_mean(attention, pair & alike),
        same_topic=_mean(attention, pair & related & ~alike),
        different_topic=_mean(attention, pair & ~related),
    )


def _mean(
    attention: Float[np.ndarray, "layer document head key query"], pairs: Bool[np.ndarray, "document key query"]
) -> Float[np.ndarray, "layer head"]:
    count = np.count_nonzero(pairs)
    total = np.einsum("ldhkq,dkq->lh", attention, pairs.astype(attention.dtype), optimize=True)
    return total / count if count else np.full(total.shape, np.nan)
