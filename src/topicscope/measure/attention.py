"""Average attention between words by what they have in common (Table 3)."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

# Classes of (key, query) pairs of positions whose query is a word: keys of the same word elsewhere, of its topic, of
# other topics, of no topic ([MASK]), and the position itself.
ATTENTION_CLASSES = ("same_word", "same_topic", "different_topic", "mask_key", "itself")


def attention_by_class(
    attention: Float[np.ndarray, "layer document head key query"],
    tokens: Int[np.ndarray, "document row"],
    keys: Int[np.ndarray, "document row"],
    queries: Int[np.ndarray, "document row"],
    word_topics: Int[np.ndarray, " token"],
) -> Float[np.ndarray, "class layer head"]:
    r"""Average attention by ATTENTION_CLASSES over all pairs of positions; NaN for a class without a pair.

    A row stands for positions that hold the same token: ``keys`` of them can be attended to, ``queries`` attend. It may
    be one position, or all positions of a document with this token. With A_ba the attention of a query of row a to all
    keys of row b together, c the numbers of keys and n those of queries, pairs of different positions get

    .. math:: \sum_{i \ne j,\; i \in b,\; j \in a} A_{ij} = (n_a - [a = b]) A_{ba}
        \quad\text{over}\quad c_b n_a - [a = b] c_a \;\text{pairs.}

    Positions that cannot be attended to are in no average.
    """
    topics, row = word_topics[tokens], np.eye(tokens.shape[1], dtype=bool)
    attends = ((queries > 0) & (topics > 0))[:, None, :]
    there, is_word = (keys > 0)[:, :, None], (topics > 0)[:, :, None]
    same_token = tokens[:, :, None] == tokens[:, None, :]
    related = topics[:, :, None] == topics[:, None, :]
    pairs = keys[:, :, None] * queries[:, None, :] - row * keys[:, :, None]
    times = np.broadcast_to(queries[:, None, :] - row, pairs.shape)
    classes = (is_word & same_token, is_word & related & ~same_token, is_word & ~related, ~is_word)
    chosen = [(kind & there & attends, times, pairs) for kind in classes]
    chosen.append((row & there & attends, np.ones_like(pairs), np.broadcast_to(keys[:, :, None], pairs.shape)))
    averages = []
    for kind, weights, count in chosen:
        total = np.einsum("ldhkq,dkq->lh", attention, (kind * weights).astype(np.float64), optimize=True)
        number = float((kind * count).sum())
        averages.append(total / number if number else np.full(total.shape, np.nan))
    return np.array(averages, dtype=np.float64)


@dataclass(frozen=True)
class ImpliedWeights:
    """Assumption 2's (α, β) that average attention implies: its ratios to attention between different topics."""

    alpha: float
    """Same topic, another word."""

    beta: float
    """The same word."""

    def weighted_average(self, words: int) -> float:
        """Theorem 3's ((v − 1)α + β) / v."""
        return ((words - 1) * self.alpha + self.beta) / words


def implied_weights(same_word: float, same_topic: float, different_topic: float) -> ImpliedWeights:
    """Assumption 2's weights from average attention at word queries: α̂ = c₂/c₃ and β̂ = c₁/c₃."""
    return ImpliedWeights(alpha=same_topic / different_topic, beta=same_word / different_topic)
