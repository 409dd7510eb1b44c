r"""Sums over products of one polynomial a topic, with one topic's word removed and one topic's proportion marked.

A document's likelihood under disjoint topics is a sum of products: each topic t gives a polynomial whose degree-k
coefficient stands for "k of its words are genuine" (Dirichlet) or "the topic is one of the document's" (k = 0 or 1).
The prior depends on the total degree K alone, as a functional ``end`` on polynomials: Σ_K end[K] [x^K] ∏_t p_t(x).
Everything that a posterior needs is such a sum with the polynomials of at most two topics replaced. All terms are
positive, so nothing cancels; forward and backward passes share the work, as in a hidden Markov model.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.lib.stride_tricks import sliding_window_view


@dataclass(frozen=True, eq=False)
class Factors:
    """One polynomial a row (document) and rank (topic), and what takes its place at a marked topic."""

    base: Float[np.ndarray, "row rank degree"]
    removed: Float[np.ndarray, "row rank degree"]
    """With one of the topic's words taken out."""
    moment: Float[np.ndarray, "row rank degree"]
    """With one more factor θ of the topic's proportion."""
    both: Float[np.ndarray, "row rank degree"]

    @property
    def ranks(self) -> int:
        """How many topics have a polynomial."""
        return int(self.base.shape[1])

    def width(self, rank: int) -> int:
        """Coefficients of a rank beyond this one are zero in every row."""
        return int(np.flatnonzero(self.base[:, rank].any(axis=0))[-1]) + 1


def marked_sums(
    factors: Factors,
    mask_end: Float[np.ndarray, "row total"],
    word_end: Float[np.ndarray, "row total"],
    unseen_mask_end: Float[np.ndarray, "row total"],
    unseen_word_end: Float[np.ndarray, "row total"],
) -> tuple[
    Float[np.ndarray, "row rank"],
    Float[np.ndarray, " row"],
    Float[np.ndarray, "row rank rank"],
    Float[np.ndarray, "row rank"],
]:
    """The sums that [MASK] queries and word queries need.

    1. ``mask_end`` of the product with rank s marked by ``moment``; 2. ``unseen_mask_end`` of the plain product;
    3. ``word_end`` with rank t marked by ``removed`` and rank s by ``moment`` (by ``both`` if s = t);
    4. ``unseen_word_end`` with rank t marked by ``removed``. The "unseen" ends are those for a moment of a topic
    that has no polynomial because none of its words occurs.
    """
    rows, ranks, totals = *factors.base.shape[:2], mask_end.shape[1]
    first, pair = np.zeros((rows, ranks)), np.zeros((rows, ranks, ranks))
    after_mask, after_word = _backward(factors, mask_end), _backward(factors, word_end)
    plain = np.zeros((rows, 1, totals))
    plain[:, 0, 0] = 1.0
    removed, moment = np.zeros((rows, 0, totals)), np.zeros((rows, 0, totals))
    for rank in range(ranks):
        width = factors.width(rank)
        base, cut, mark, both = (
            part[:, rank, :width] for part in (factors.base, factors.removed, factors.moment, factors.both)
        )
        first[:, rank] = _pairing(plain, mark, after_mask[rank])[:, 0]
        pair[:, rank, rank] = _pairing(plain, both, after_word[rank])[:, 0]
        pair[:, :rank, rank] = _pairing(removed, mark, after_word[rank])
        pair[:, rank, :rank] = _pairing(moment, cut, after_word[rank])
        removed = np.concatenate([_multiply(removed, base), _multiply(plain, cut)], axis=1)
        moment = np.concatenate([_multiply(moment, base), _multiply(plain, mark)], axis=1)
        plain = _multiply(plain, base)
    return (
        first,
        np.einsum("rk,rk->r", plain[:, 0], unseen_mask_end),
        pair,
        np.einsum("rtk,rk->rt", removed, unseen_word_end),
    )


def _backward(factors: Factors, end: Float[np.ndarray, "row total"]) -> list[Float[np.ndarray, "row total"]]:
    """For each rank the functional that multiplies by all later ranks' polynomials and then applies ``end``."""
    after = [end]
    for rank in range(factors.ranks - 1, 0, -1):
        after.append(_adjoint(factors.base[:, rank, : factors.width(rank)], after[-1]))
    return after[::-1]


def _multiply(
    polynomials: Float[np.ndarray, "row chain total"], factor: Float[np.ndarray, "row degree"]
) -> Float[np.ndarray, "row chain total"]:
    """Products of polynomials, cut at the highest total that counts."""
    degree = factor.shape[1] - 1
    padded = np.pad(polynomials, ((0, 0), (0, 0), (degree, 0)))
    return np.asarray(np.einsum("rckj,rj->rck", sliding_window_view(padded, degree + 1, axis=2), factor[:, ::-1]))


def _adjoint(
    factor: Float[np.ndarray, "row degree"], functional: Float[np.ndarray, "row total"]
) -> Float[np.ndarray, "row total"]:
    """The functional p ↦ functional(factor · p)."""
    degree = factor.shape[1] - 1
    padded = np.pad(functional, ((0, 0), (0, degree)))
    return np.asarray(np.einsum("rkj,rj->rk", sliding_window_view(padded, degree + 1, axis=1), factor))


def _pairing(
    polynomials: Float[np.ndarray, "row chain total"],
    factor: Float[np.ndarray, "row degree"],
    functional: Float[np.ndarray, "row total"],
) -> Float[np.ndarray, "row chain"]:
    """functional(factor · p) for each p."""
    return np.asarray(np.einsum("rck,rk->rc", polynomials, _adjoint(factor, functional)))
