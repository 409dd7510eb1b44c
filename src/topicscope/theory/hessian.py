"""Remark 8: the Hessian of the loss in W under uniform attention and infinite documents (Assumption 1).

The loss is a quadratic in each row of W with the same matrix, so its Hessian in vec(W) is 2 I_V ⊗ S. The remark says
that it has rank 1. It has rank V · rank(S) = V · T, because documents differ in their topics; the conclusion of the
remark stands, as V(V − T) > 0 directions are flat: the objective is not strongly convex.
"""

import numpy as np
from jaxtyping import Float
from scipy.linalg import helmert, null_space

from topicscope.settings.data import Masking


def second_moment_rank(topics: int, per_document: int, masking: Masking) -> int:
    """The rank of S = E[x̃x̃⊤]: T; 1 if all documents look alike (τ = T, or every word is hidden)."""
    visible = (1 - masking.keep) * masking.mask < 1
    return topics if per_document < topics and visible else 1


def hessian_rank(topics: int, words: int, per_document: int, masking: Masking) -> int:
    """The rank of the (V² × V²) Hessian: V times that of S, so T(Tv + 1) for τ < T."""
    return (topics * words + 1) * second_moment_rank(topics, per_document, masking)


def hessian_null_rows(
    topics: int, words: int, per_document: int, masking: Masking
) -> Float[np.ndarray, "direction token"]:
    """An orthonormal basis of the directions in which any row of W moves freely: n with n·x̃ = 0 in every document.

    The Hessian's null space is all matrices whose rows are in its span. For τ < T these are the contrasts within a
    topic, T(v − 1) of them, and (−c₂, 1, …, 1), along which u moves in Lemma 1.
    """
    hidden = masking.mask * masking.replaced
    if second_moment_rank(topics, per_document, masking) < topics:
        # One frequency vector only: [MASK] at p_m(1 − p_c − p_r), all words alike.
        frequencies = np.append(hidden, np.full(topics * words, (1 - hidden) / (topics * words)))
        return null_space(frequencies[None, :]).T
    # (−c₂, 1, …, 1) times p_m(1 − p_c − p_r), which may be 0.
    shift = np.append(-(1 - hidden), np.full(topics * words, hidden))
    basis = shift[None, :] / np.linalg.norm(shift)
    if words == 1:
        return basis
    contrasts = np.kron(np.eye(topics), helmert(words))
    return np.vstack([basis, np.hstack([np.zeros((len(contrasts), 1)), contrasts])])
