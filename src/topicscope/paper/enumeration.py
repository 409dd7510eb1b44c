"""The loss of Assumption 2's attention by brute force: every topic set, every query, whole matrices.

It shares nothing with the closed form in ``theory.attention`` but Assumptions 1 and 2, and is for small T and v only.
"""

from itertools import combinations

import numpy as np
from jaxtyping import Float

from topicscope.theory.landscape import InfiniteDocuments


def enumerated_loss(
    documents: InfiniteDocuments, value: Float[np.ndarray, "token token"], alpha: float, beta: float
) -> float:
    """The expected squared loss at one (α, β), averaged over all C(T, τ) documents."""
    chosen = list(combinations(range(documents.topics), documents.per_document))
    return float(np.mean([_document_loss(documents, value, alpha, beta, topics) for topics in chosen]))


def _document_loss(
    documents: InfiniteDocuments,
    value: Float[np.ndarray, "token token"],
    alpha: float,
    beta: float,
    topics: tuple[int, ...],
) -> float:
    masking, vocabulary = documents.masking, documents.topics * documents.words + 1
    topic = np.concatenate([[-1], np.repeat(np.arange(documents.topics), documents.words)])
    words = np.isin(topic, topics) / (documents.per_document * documents.words)
    noise = np.concatenate([[0.0], np.full(vocabulary - 1, 1 / (vocabulary - 1))])
    mask = np.eye(vocabulary)[0]
    # How a masked position looks, and the frequencies of the whole masked document.
    masked = masking.keep * words + masking.random * noise + masking.replaced * mask
    frequencies = (1 - masking.mask) * words + masking.mask * masked
    # Columns are queries: weights by word and topic, times how often each key occurs.
    weights = np.where(topic[:, None] == topic, alpha, 1.0)
    np.fill_diagonal(weights, beta)
    attended = weights * frequencies[:, None]
    predictions = value @ (attended / attended.sum(axis=0))
    # P(target, query): a kept word is its own target; otherwise the target does not depend on the query.
    joint = np.outer(words, masking.random * noise + masking.replaced * mask) + masking.keep * np.diag(words)
    square = (predictions**2).sum(axis=0)
    return float((joint * (1 - 2 * predictions + square)).sum())
