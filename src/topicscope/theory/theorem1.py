r"""Theorem 1: the optimal E = W^E⊤W^E under uniform attention with W^V = I, and what embedding training can reach.

Under Assumption 1 and with Theorem 1's bias the minimisers are Lemma 1's family with c₁ = 0, which the bias replaces.
For finite documents the loss is convex in E, which ranges over the positive semi-definite matrices (of any rank, for
d ≥ V):

.. math:: \min_{E \succeq 0} \; 1 - 2\langle E, B\rangle + \langle ES, E\rangle,
    \qquad B = \tfrac12 (C + C^\top), \quad C = R - b s^\top

In the eigenbasis of S, and with E_ij = F_ij / (s_i s_j)^{1/4}, the objective is Σ h_ij F_ij² − 2⟨F, b⟩ with
h_ij = (s_i + s_j) / (2√(s_i s_j)) ≥ 1: its condition number is about half the square root of that of S, and F ⪰ 0
exactly when E ⪰ 0. Accelerated projected gradient then needs few steps.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from topicscope.errors import InputError, refuse
from topicscope.settings.data import Masking
from topicscope.theory.classes import Matrix, Vector
from topicscope.theory.finite_documents import NULL_EIGENVALUE, Moments, population_loss
from topicscope.theory.lemma1 import Family, constants, topic_gain
from topicscope.theory.theorem2 import Pattern

# The search for the best E ⪰ 0 stops once the duality gap is below this, or after so many steps.
LEAST_GAP = 1e-14
MOST_STEPS = 20_000


def theorem1(topics: int, words: int, masking: Masking = Masking()) -> Family:
    """The minimisers E of eq. 6's loss with uniform attention, W^V = I and Theorem 1's bias, E = W^E⊤W^E left free.

    Those that are symmetric and positive semi-definite are the optimal embeddings (``realisable``).
    """
    c = constants(topics, words, masking)
    return Family(topics, words, 0.0, c.c2, c.c3)


def theorem1_bias(topics: int, words: int, masking: Masking = Masking()) -> Vector:
    r"""b^pred of Theorem 1, which takes away the random words of the masking scheme (Remark 3).

    .. math:: b_0 = 0, \qquad b_i = -\frac{p_m p_r}{(1-(1-p_c)p_m)Tv}

    §4 writes "for all i"; appendix B, and optimality, say i ≥ 1: [MASK] is never a word to predict.
    """
    noise = masking.mask * masking.random * topic_gain(masking) / (topics * words)
    return np.concatenate([[0.0], np.full(topics * words, -noise)])


def realisable(u: Vector, topics: int, words: int, masking: Masking, tolerance: float = 1e-9) -> bool:
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


def theorem1_embedding(
    topics: int,
    words: int,
    masking: Masking,
    pattern: Pattern,
    dimension: int,
    u: Vector | None = None,
) -> Float[np.ndarray, "dimension token"]:
    """A W^E whose E = W^E⊤W^E is optimal by Theorem 1, for any realisable u (by default 0); see ``realisable``.

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
            remedy = "no embedding realises it; give u₀ < 0 and sums −u₀v/c₂ over every topic, or zeros"
            raise refuse("u", f"({u[0]:.6g}, …)", remedy)
        rows = np.vstack([np.sqrt(constants(topics, words, masking).c2 / -u[0]) * u, rows])
    if dimension < len(rows):
        raise refuse(
            "dimension", dimension, f'E of the pattern "{pattern}" has rank {len(rows)}; give {len(rows)} or more'
        )
    return np.vstack([rows, np.zeros((dimension - len(rows), rows.shape[1]))])


def paper_diagonal_embedding(topics: int, words: int, masking: Masking = Masking()) -> Matrix:
    """The paper's example of Theorem 1 (appendix B): W^E = √c₃ I with E₀₀ = c₃, which breaks its clause 1(a).

    Predicting [MASK] costs it (c₃ p_m (1 − p_c − p_r))².
    """
    return np.sqrt(topic_gain(masking)) * np.eye(topics * words + 1)


@dataclass(frozen=True, eq=False)
class SemidefiniteOptimum:
    """The optimal E = W^E⊤W^E and the proof of how good it is."""

    matrix: Matrix
    """E, symmetric and positive semi-definite."""
    loss: float
    """Its expected loss."""
    gap: float
    """A proven bound: the loss exceeds the minimum over all E ⪰ 0 by at most this (duality gap)."""


def semidefinite_optimum(moments: Moments, bias: Vector | None = None) -> SemidefiniteOptimum:
    """The E ⪰ 0 with the least loss, with b held fixed.

    S must be invertible, as it is for finite documents in which every token occurs.
    """
    values, vectors = np.linalg.eigh(moments.second)
    if values[0] < NULL_EIGENVALUE * values[-1]:
        raise InputError(
            "The moments' S is singular, so the best W^E⊤W^E is not unique: give finite documents in which every token "
            "can occur, or see Theorem 1 for infinite ones."
        )
    target = moments.target(bias)
    target = (target + target.T) / 2
    scale = np.outer(values, values) ** 0.25
    weight = (values[:, None] + values[None, :]) / (2 * scale**2)
    scaled, gap = _minimise(weight, vectors.T @ target @ vectors / scale)
    matrix = vectors @ (scaled / scale) @ vectors.T
    matrix = (matrix + matrix.T) / 2
    return SemidefiniteOptimum(matrix, population_loss(matrix, moments, bias), gap)


def _minimise(weight: Matrix, target: Matrix) -> tuple[Matrix, float]:
    """Minimise Σ h_ij F_ij² − 2⟨F, b⟩ over F ⪰ 0 by Nesterov's method for condition number max h / min h, min h = 1."""
    step = 1 / (2 * weight.max())
    root = np.sqrt(weight.max())
    momentum = (root - 1) / (root + 1)
    current = _positive_part(target / weight)
    ahead, gap = current, _duality_gap(current, weight, target)
    for _ in range(MOST_STEPS):
        if gap <= LEAST_GAP:
            break
        following = _positive_part(ahead - step * 2 * (weight * ahead - target))
        ahead = following + momentum * (following - current)
        current, gap = following, _duality_gap(following, weight, target)
    return current, gap


def _duality_gap(point: Matrix, weight: Matrix, target: Matrix) -> float:
    r"""Value minus a lower bound of the minimum.

    For every Z ⪰ 0 the minimum is at least min_F Σ h F² − ⟨F, 2b + Z⟩ = −¼ Σ (2b + Z)² / h. With G the gradient, N
    the positive part of −G and Z = G + N, the difference to the value at F is ⟨F, Z⟩ + ¼ Σ N² / h.
    """
    gradient = 2 * (weight * point - target)
    negative = _positive_part(-gradient)
    # Both F and Z are positive semi-definite, so a negative product is rounding.
    slackness = max(0.0, float(np.vdot(point, gradient + negative)))
    return slackness + 0.25 * float((negative**2 / weight).sum())


def _positive_part(matrix: Matrix) -> Matrix:
    """The nearest positive semi-definite matrix."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return (vectors * np.maximum(values, 0.0)) @ vectors.T
