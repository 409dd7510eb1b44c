"""Optimal matrices in closed form: Theorems 1 and 2, and named members of Lemma 1's family."""

from typing import Literal

import numpy as np
from jaxtyping import Float

from topicscope.settings.checks import refuse
from topicscope.settings.data import Masking
from topicscope.theory.lemma import Constants, constants, lemma_1, topic_gain

__all__ = [
    "Constants",
    "Pattern",
    "block_value",
    "constants",
    "diagonal_value",
    "paper_diagonal_embedding",
    "paper_diagonal_excess_loss",
    "realisable",
    "theorem_1_bias",
    "theorem_1_embedding",
    "theorem_2",
]

Pattern = Literal["block", "diagonal"]


def theorem_2(topics: int, words: int, masking: Masking) -> Float[np.ndarray, "token token"]:
    r"""The ridge optimum of W^V under uniform attention as λ → 0 (Theorem 2; Assumption 1, b^pred = 0, τ < T).

    .. math::
        W_{i0} = \frac{c_2 c_3 - c_1 T v}{c_2^2 + T v}, \quad
        W_{\text{diff-topic}} = -\frac{c_1 c_2 + c_3}{c_2^2 + T v}, \quad
        W_{\text{same-topic}} = W_{\text{diff-topic}} + \frac{c_3}{v}, \quad
        W_{0j} = 0

    It is the member of Lemma 1's family with the smallest norm.
    """
    c = constants(topics, words, masking)
    norm = c.c2**2 + topics * words
    different = -(c.c1 * c.c2 + c.c3) / norm
    matrix = np.full((topics * words + 1, topics * words + 1), different)
    matrix[0, :] = 0
    matrix[1:, 0] = (c.c2 * c.c3 - c.c1 * topics * words) / norm
    matrix[1:, 1:] += np.kron(np.eye(topics), np.full((words, words), c.c3 / words))
    return matrix


def block_value(topics: int, words: int, masking: Masking) -> Float[np.ndarray, "token token"]:
    """Lemma 1's member with u = 0 and equal blocks: W_i0 = −c₁, c₃/v within a topic, else 0."""
    return lemma_1(topics, words, masking).member(np.zeros(topics * words + 1))


def diagonal_value(topics: int, words: int, masking: Masking) -> Float[np.ndarray, "token token"]:
    """Lemma 1's member with u = 0 and a diagonal (D.4): W_i0 = −c₁, W_ii = c₃ for words i, else 0."""
    c = constants(topics, words, masking)
    return lemma_1(topics, words, masking).member(
        np.zeros(topics * words + 1), c.c3 * np.eye(topics * words + 1)[:, 1:]
    )


def theorem_1_bias(topics: int, words: int, masking: Masking) -> Float[np.ndarray, " token"]:
    r"""b^pred of Theorem 1, which takes away the random words of the masking scheme (Remark 3).

    .. math:: b_0 = 0, \qquad b_i = -\frac{p_m p_r}{(1-(1-p_c)p_m)Tv}

    §4 writes "for all i"; appendix B, and optimality, say i ≥ 1: [MASK] is never a word to predict.
    """
    noise = masking.mask * masking.random * topic_gain(masking) / (topics * words)
    return np.concatenate([[0.0], np.full(topics * words, -noise)])


def realisable(
    u: Float[np.ndarray, " token"], topics: int, words: int, masking: Masking, tolerance: float = 1e-9
) -> bool:
    r"""Whether some W^E has E = W^E⊤W^E in Theorem 1's family with this u.

    Symmetry and E ⪰ 0 ask for u₀ ≤ 0 and, in every topic t, Σ_{l∈t} u_l = −u₀ v / c₂; if u₀ = 0 then E₀₀ = 0,
    the 0-th row vanishes and u = 0. These suffice: with a = −u₀ > 0,

    .. math:: E = \frac{c_2}{a} \tilde u \tilde u^\top + \begin{pmatrix} 0 & 0 \\ 0 & G \end{pmatrix},
        \qquad \tilde u = (-a, u_1, \dots, u_{Tv})

    is in the family for every G ⪰ 0 whose rows sum to c₃ over their own topic and to 0 over each other one.
    """
    c2 = constants(topics, words, masking).c2
    scale = tolerance * max(1.0, float(abs(u).max()))
    if abs(u[0]) <= scale:
        return bool((abs(u) <= scale).all())
    sums = u[1:].reshape(topics, words).sum(axis=1)
    return bool(u[0] < 0 and (abs(sums + u[0] * words / c2) <= words * scale).all())


def theorem_1_embedding(
    topics: int,
    words: int,
    masking: Masking,
    pattern: Pattern,
    dimension: int,
    u: Float[np.ndarray, " token"] | None = None,
) -> Float[np.ndarray, "dimension token"]:
    """A W^E whose E = W^E⊤W^E is optimal by Theorem 1, for any realisable u (0 if not given); see ``realisable``.

    "block": E is c₃/v within a topic, of the least rank there is, T (T + 1 if u ≠ 0). "diagonal": E is
    diag(0, c₃, …, c₃), of rank Tv (Tv + 1). E₀₀ = −c₂u₀, so it is 0 for u = 0, unlike in the paper's example.
    """
    c3 = topic_gain(masking)
    if pattern == "block":
        factor = np.sqrt(c3 / words) * np.kron(np.eye(topics), np.ones((1, words)))
    else:
        factor = np.sqrt(c3) * np.eye(topics * words)
    rows = np.hstack([np.zeros((len(factor), 1)), factor])
    if u is not None and u.any():
        if not realisable(u, topics, words, masking):
            raise refuse(
                "u",
                f"({u[0]:.6g}, …)",
                "no embedding realises it; give u₀ < 0 and sums −u₀v/c₂ over every topic, or zeros",
            )
        rows = np.vstack([np.sqrt(constants(topics, words, masking).c2 / -u[0]) * u, rows])
    if dimension < len(rows):
        raise refuse(
            "dimension", dimension, f'E of the pattern "{pattern}" has rank {len(rows)}; give {len(rows)} or more'
        )
    return np.vstack([rows, np.zeros((dimension - len(rows), rows.shape[1]))])


def paper_diagonal_embedding(topics: int, words: int, masking: Masking) -> Float[np.ndarray, "token token"]:
    """The paper's example of Theorem 1 (appendix B): W^E = √c₃ I with E₀₀ = c₃, which breaks its clause 1(a)."""
    return np.sqrt(topic_gain(masking)) * np.eye(topics * words + 1)


def paper_diagonal_excess_loss(masking: Masking) -> float:
    """What the paper's example costs by predicting [MASK]: (c₃ p_m (1 − p_c − p_r))²."""
    return (topic_gain(masking) * masking.mask * masking.replaced) ** 2
