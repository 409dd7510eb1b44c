"""Exact expected squared loss under uniform attention: its value, gradient, optimum and gradient-descent path.

Everything is a function of ``Moments``, so it holds alike for infinite documents (eq. A.8, and eq. 6 with
W = W^E⊤W^V W^E) and for finite ones, for any topic-word matrix, Dirichlet and masking.
"""

import numpy as np
from jaxtyping import Float

from topicscope.settings.checks import check_at_least, check_not_negative, check_positive
from topicscope.theory.moments import Moments, infinite_moments, moments

__all__ = [
    "Moments",
    "embedding_loss",
    "finite_optimum",
    "gradient_descent",
    "gradient_descent_with_bias",
    "infinite_moments",
    "moments",
    "optimum_with_bias",
    "population_gradient",
    "population_loss",
    "ridge_path",
]

# Eigenvalues of S below this share of the largest are rounding: S has exact null directions under Assumption 1.
NULL_EIGENVALUE = 1e-12


def population_loss(
    matrix: Float[np.ndarray, "token token"],
    moments: Moments,
    bias: Float[np.ndarray, " token"] | None = None,
    ridge: float = 0.0,
) -> float:
    r"""The expected loss of predicting W x̃ + b, plus λ‖W‖².

    .. math:: E\|W\tilde x + b - y\|^2 = 1 - 2\langle W, R\rangle + \langle WS, W\rangle
        + 2 b^\top (W s - r) + \|b\|^2
    """
    loss = 1 - 2 * np.vdot(matrix, moments.cross) + np.vdot(matrix @ moments.second, matrix)
    if bias is not None:
        loss += 2 * bias @ (matrix @ moments.mean - moments.label) + bias @ bias
    return float(loss + ridge * np.vdot(matrix, matrix))


def embedding_loss(
    embedding: Float[np.ndarray, "dimension token"],
    moments: Moments,
    bias: Float[np.ndarray, " token"] | None = None,
    value: Float[np.ndarray, "dimension dimension"] | None = None,
) -> float:
    """The expected loss of eq. 6 with uniform attention: W = W^E⊤W^V W^E (W^V = I if not given)."""
    inner = embedding if value is None else value @ embedding
    return population_loss(embedding.T @ inner, moments, bias)


def population_gradient(
    matrix: Float[np.ndarray, "token token"],
    moments: Moments,
    bias: Float[np.ndarray, " token"] | None = None,
    ridge: float = 0.0,
) -> Float[np.ndarray, "token token"]:
    """The loss's gradient in W: 2(WS − R + b s⊤ + λW)."""
    gradient = matrix @ moments.second - _target(moments, bias) + ridge * matrix
    return 2 * gradient


def finite_optimum(
    moments: Moments, ridge: float = 0.0, bias: Float[np.ndarray, " token"] | None = None
) -> Float[np.ndarray, "token token"]:
    """The W that minimises the loss plus λ‖W‖² with b held fixed (0 if not given): (R − b s⊤)(S + λI)⁻¹.

    Where S is singular (infinite documents; a token that never occurs) λ = 0 means the limit λ → 0: of all
    minimisers the one with the smallest norm.
    """
    return ridge_path(moments, np.array([ridge]), bias)[0]


def ridge_path(
    moments: Moments, ridges: Float[np.ndarray, " ridge"], bias: Float[np.ndarray, " token"] | None = None
) -> Float[np.ndarray, "ridge token token"]:
    """W(λ) for each λ ≥ 0, from one eigendecomposition of S; at 0 its limit, the minimiser of smallest norm."""
    check_not_negative("ridge", float(ridges.min(initial=0.0)))
    values, vectors = _spectrum(moments.second)
    rotated = _target(moments, bias) @ vectors
    return (rotated * _inverse(values + ridges[:, None])[:, None, :]) @ vectors.T


def optimum_with_bias(
    moments: Moments, ridge: float = 0.0, bias_ridge: float = 0.0
) -> tuple[Float[np.ndarray, "token token"], Float[np.ndarray, " token"]]:
    r"""The W and b^pred that together minimise the loss plus λ‖W‖² + μ‖b‖² (μ is ``bias_ridge``).

    .. math:: W = \Big(R - \frac{r s^\top}{1+\mu}\Big)\Big(S - \frac{s s^\top}{1+\mu} + \lambda I\Big)^{-1},
        \qquad b = \frac{r - W s}{1 + \mu}

    Frequencies sum to one, so with λ = μ = 0 many pairs (W, b) have the same loss; this is then the one with the
    smallest ‖W‖.
    """
    check_not_negative("ridge", ridge)
    check_not_negative("bias_ridge", bias_ridge)
    r, s = moments.label, moments.mean
    centred = moments.second - np.outer(s, s) / (1 + bias_ridge)
    values, vectors = _spectrum(centred, scale=float(np.trace(moments.second)))
    target = (moments.cross - np.outer(r, s) / (1 + bias_ridge)) @ vectors
    matrix = (target * _inverse(values + ridge)) @ vectors.T
    return matrix, (r - matrix @ s) / (1 + bias_ridge)


def gradient_descent(
    start: Float[np.ndarray, "token token"],
    moments: Moments,
    rate: float,
    steps: int,
    ridge: float = 0.0,
    bias: Float[np.ndarray, " token"] | None = None,
) -> Float[np.ndarray, "token token"]:
    r"""W after this many steps of gradient descent on the population loss plus λ‖W‖², from ``start``, exactly.

    .. math:: W_k = W_0 (I - 2\eta H)^k + (R - b s^\top) H^{-1} (I - (I - 2\eta H)^k), \qquad H = S + \lambda I

    Along a null direction of H the second factor is its limit 2ηk. From zero, without bias and ridge, this is
    R S⁻¹(I − (I − 2ηS)^k). The bias, if given, is frozen.
    """
    check_not_negative("ridge", ridge)
    values, vectors = _spectrum(moments.second)
    return _descend(start, _target(moments, bias), values + ridge, vectors, rate, steps)


def gradient_descent_with_bias(
    start: Float[np.ndarray, "token token"],
    start_bias: Float[np.ndarray, " token"],
    moments: Moments,
    rate: float,
    steps: int,
    ridge: float = 0.0,
    bias_ridge: float = 0.0,
) -> tuple[Float[np.ndarray, "token token"], Float[np.ndarray, " token"]]:
    """W and b^pred after this many steps when both are trained: b is the column of an input that is always 1."""
    check_not_negative("ridge", ridge)
    check_not_negative("bias_ridge", bias_ridge)
    s = moments.mean[:, None]
    hessian = np.block([[moments.second, s], [s.T, np.ones((1, 1))]])
    hessian += np.diag(np.append(np.full(moments.vocabulary, ridge), bias_ridge))
    values, vectors = _spectrum(hessian)
    target = np.column_stack([moments.cross, moments.label])
    both = _descend(np.column_stack([start, start_bias]), target, values, vectors, rate, steps)
    return both[:, :-1], both[:, -1]


def _descend(
    start: Float[np.ndarray, "token input"],
    target: Float[np.ndarray, "token input"],
    curvature: Float[np.ndarray, " input"],
    vectors: Float[np.ndarray, "input input"],
    rate: float,
    steps: int,
) -> Float[np.ndarray, "token input"]:
    """Gradient descent along each eigenvector of the Hessian on its own."""
    check_positive("rate", rate)
    check_at_least("steps", steps, 0)
    shrink = 1 - 2 * rate * curvature
    # 1 − shrink^k loses its digits where the curvature is small; expm1 keeps them.
    progress = np.where(
        shrink > 0, -np.expm1(steps * np.log1p(-np.minimum(2 * rate * curvature, 1 - 1e-16))), 1 - shrink**steps
    )
    reached = np.divide(progress, curvature, out=np.full_like(curvature, 2 * rate * steps), where=curvature > 0)
    return (start @ vectors * shrink**steps + target @ vectors * reached) @ vectors.T


def _target(moments: Moments, bias: Float[np.ndarray, " token"] | None) -> Float[np.ndarray, "token token"]:
    """What W x̃ is to match once the bias has done its part: R − b s⊤."""
    return moments.cross if bias is None else moments.cross - np.outer(bias, moments.mean)


def _spectrum(
    second: Float[np.ndarray, "token token"], scale: float | None = None
) -> tuple[Float[np.ndarray, " token"], Float[np.ndarray, "token token"]]:
    """Eigenvalues and vectors of a positive semi-definite matrix; eigenvalues that are rounding become exact zeros."""
    values, vectors = np.linalg.eigh(second)
    floor = NULL_EIGENVALUE * (values[-1] if scale is None else scale)
    return np.where(values > floor, values, 0.0), vectors


def _inverse(values: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """1/x, and 0 for 0 (the pseudo-inverse)."""
    return np.divide(1.0, values, out=np.zeros_like(values), where=values > 0)
