"""Σ w_i w_j v_ij over pairs of words, for many weightings of the words and many values of the pairs at once."""

import numpy as np
from jaxtyping import Float, Int

# Products of two words' weights held at once.
BLOCK = 1_000_000


def pair_forms(
    weights: Float[np.ndarray, "replicate word"],
    first: Int[np.ndarray, " pair"],
    second: Int[np.ndarray, " pair"],
    values: Float[np.ndarray, "pair column"],
) -> Float[np.ndarray, "replicate column"]:
    """By replicate and column, the sum of the pairs' values, each times the weights of its two words."""
    found = np.empty((len(weights), values.shape[1]))
    rows = max(1, BLOCK // max(len(first), 1))
    for start in range(0, len(weights), rows):
        part = weights[start : start + rows]
        found[start : start + rows] = (np.take(part, first, axis=1) * np.take(part, second, axis=1)) @ values
    return found


def form_average(
    sums: Float[np.ndarray, "*shape"], counts: Float[np.ndarray, "*#shape"]
) -> Float[np.ndarray, "*shape"]:
    """Sums by counts; NaN where nothing was drawn (weights are whole numbers but for rounding)."""
    counts = np.broadcast_to(counts, sums.shape)
    return np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 1e-6)
