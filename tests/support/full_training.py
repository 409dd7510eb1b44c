"""Eq. 7 on listed infinite documents, trained by automatic differentiation with nothing reduced."""

from itertools import combinations

import numpy as np
import torch

from topicscope.settings import Masking
from topicscope.settings.training import Loss


def full_rows(topics: int, words: int, per_document: int, masking: Masking) -> tuple[np.ndarray, np.ndarray]:
    """x̃ of every infinite document, and P(document, query, word), both in full."""
    n = topics * words
    sets = list(combinations(range(topics), per_document))
    x, pairs = np.zeros((len(sets), n + 1)), np.zeros((len(sets), n + 1, n + 1))
    for row, chosen in enumerate(sets):
        p = np.zeros(n + 1)
        for topic in chosen:
            p[1 + topic * words : 1 + (topic + 1) * words] = 1 / (per_document * words)
        hidden = np.full(n + 1, masking.random / n)
        hidden[0] = masking.replaced
        x[row] = (1 - masking.mask) * p + masking.mask * (hidden + masking.keep * p)
        pairs[row] = (np.outer(hidden, p) + masking.keep * np.diag(p)) / len(sets)
    return x, pairs


def full_loss(
    value: torch.Tensor, key: torch.Tensor, query: torch.Tensor, x: torch.Tensor, pairs: torch.Tensor, loss: Loss
) -> torch.Tensor:
    """Eq. 7 with eq. 3 or 4, all written out."""
    logits = query.T @ key / key.shape[0] ** 0.5
    attention = torch.softmax(logits[None] + x.log()[:, None], dim=2)
    scores = attention @ value.T
    weight = pairs.sum(dim=2)
    if loss == "squared":
        return (weight * (scores**2).sum(dim=2)).sum() - 2 * (pairs * scores).sum() + pairs.sum()
    return (weight * scores.logsumexp(dim=2)).sum() - (pairs * scores).sum()


def descend(
    start: tuple[np.ndarray, np.ndarray, np.ndarray],
    documents: tuple[np.ndarray, np.ndarray],
    loss: Loss,
    rate: float,
    steps: int,
    every: int,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Gradient descent on all entries; W^V and M (row the key) every so many steps."""
    weights = [torch.tensor(matrix, requires_grad=True) for matrix in start]
    x, pairs = (torch.tensor(each) for each in documents)
    x = x.clamp_min(1e-300)
    found = []
    for step in range(steps + 1):
        if step % every == 0:
            value, key, query = (weight.detach().numpy().copy() for weight in weights)
            found.append((value, key.T @ query / np.sqrt(len(key))))
        slopes = torch.autograd.grad(full_loss(weights[0], weights[1], weights[2], x, pairs, loss), weights)
        with torch.no_grad():
            for weight, slope in zip(weights, slopes, strict=True):
                weight -= rate * slope
    return found
