"""Average attention between words by what they have in common (Table 3)."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

Pairs = Bool[np.ndarray, "document key query"]


@dataclass(frozen=True, eq=False)
class AttentionAverages:
    """Average attention over all pairs of a class in all documents; NaN for a class without a pair."""

    same_word: Float[np.ndarray, "layer head"]
    same_topic: Float[np.ndarray, "layer head"]
    different_topic: Float[np.ndarray, "layer head"]


def pair_classes(
    tokens: Int[np.ndarray, "document position"],
    present: Bool[np.ndarray, "document position"],
    word_topics: Int[np.ndarray, " token"],
) -> tuple[Pairs, Pairs, Pairs]:
    """Which pairs of positions hold the same word, other words of the same topic, and words of different topics.

    Positions of no topic ([MASK], START, END) are left out, as keys and as queries, and so is a position's pair with
    itself.
    """
    topics = word_topics[tokens]
    usable = present & (topics > 0)
    pair = usable[:, :, None] & usable[:, None, :] & ~np.eye(tokens.shape[1], dtype=bool)
    alike = tokens[:, :, None] == tokens[:, None, :]
    related = topics[:, :, None] == topics[:, None, :]
    return pair & alike, pair & related & ~alike, pair & ~related


def attention_averages(
    attention: Float[np.ndarray, "layer document head key query"], classes: tuple[Pairs, Pairs, Pairs]
) -> AttentionAverages:
    """Average attention over the pairs of each class that ``pair_classes`` returns."""
    return AttentionAverages(*(_mean(attention, pairs) for pairs in classes))


def _mean(
    attention: Float[np.ndarray, "layer document head key query"], pairs: Pairs
) -> Float[np.ndarray, "layer head"]:
    document, key, query = np.nonzero(pairs)
    if not len(document):
        return np.full((attention.shape[0], attention.shape[2]), np.nan)
    return attention[:, document, :, key, query].mean(axis=0, dtype=np.float64)


def bag_attention_averages(
    attention: Float[np.ndarray, "layer document head key query"],
    tokens: Int[np.ndarray, "document token"],
    counts: Int[np.ndarray, "document token"],
    word_topics: Int[np.ndarray, " token_number"],
) -> AttentionAverages:
    r"""The same averages for documents as bags: distinct tokens, and how often each occurs in its document.

    With A_{ba} the attention of a query a to all keys b together, the n_a queries a give to other positions

    .. math:: \sum_{i \ne j,\; w_i = b,\; w_j = a} A_{ij} = (n_a - [a = b]) A_{ba}
        \quad\text{over}\quad n_b (n_a - [a = b]) \;\text{pairs.}

    That holds with masked positions hidden as keys too: their own share of A is zero.
    """
    topics = word_topics[tokens]
    usable = (counts > 0) & (topics > 0)
    pair = usable[:, :, None] & usable[:, None, :]
    alike = tokens[:, :, None] == tokens[:, None, :]
    related = topics[:, :, None] == topics[:, None, :]
    queries = pair * (counts[:, None, :] - (alike & pair).astype(np.float64))
    found = []
    for kind in (alike, related & ~alike, ~related):
        weights = kind * queries
        pairs = float((weights * counts[:, :, None]).sum())
        total = np.einsum("ldhkq,dkq->lh", attention, weights, optimize=True)
        found.append(total / pairs if pairs else np.full(total.shape, np.nan))
    return AttentionAverages(*found)


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
