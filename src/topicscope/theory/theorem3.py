r"""Theorem 3's interval for the optimal weighted average ((v − 1)α + β)/v, and the limit that sharpens it.

With 0 < p_c < 1, the optimal average divided by τ tends to 1/((1 − p_c)p_m) under Assumption 3; and with τ held fixed
and v ≥ 2 the optimal average itself tends, as T → ∞, to τ/((1 − p_c)p_m) − A/(τ − A), A = 1 − (1 − p_c)p_m.
docs/theory.md has the proofs. Neither needs Assumption 4 or another bound on v. For v = 1 the average is β, which
[MASK] queries share: with τ fixed they keep their weight in the limit and pull β towards 1.
"""

from dataclasses import dataclass

from topicscope.settings.data import Masking
from topicscope.theory.landscape import InfiniteDocuments
from topicscope.theory.lemma1 import topic_gain


@dataclass(frozen=True)
class Theorem3:
    """The interval (λ₁(τ−1), λ₂T), the limit, and the assumptions that a setting does not meet."""

    lambda1: float
    """λ₁."""
    lambda2: float | None
    """λ₂; None if p_m p_r, by which it divides, is 0."""
    low: float
    """λ₁(τ−1), lower bound."""
    high: float | None
    """λ₂T, upper bound; None if p_m p_r, by which λ₂ divides, is 0."""
    limit: float | None
    """Limit, Assumption 3: τ/((1 − p_c)p_m); None if p_c is 0 (word queries say nothing about their target) or 1."""
    limit_fixed: float | None
    """Limit, T → ∞ with τ fixed; None if p_c is 0 or 1, or v = 1 ([MASK] queries pull the average to 1)."""
    violated: tuple[str, ...]


def theorem3(documents: InfiniteDocuments) -> Theorem3:
    r"""Theorem 3 (§5.3) for one setting.

    .. math::
        \lambda_1 = \frac{(1-(1-p_c)p_m + p_m p_r)(1+(1-p_c)p_m)}{2(1-(1-p_c)p_m)}, \qquad
        \lambda_2 = 100\left(\frac{1-(1-p_c)p_m}{p_m p_r} + 1\right)
    """
    masking, tau = documents.masking, documents.per_document
    hidden, noise = (1 - masking.keep) * masking.mask, masking.mask * masking.random
    limit = tau / hidden if masking.keep > 0 and hidden > 0 else None
    lambda1 = (1 - hidden + noise) * (1 + hidden) / 2 * topic_gain(masking)
    lambda2 = 100 * ((1 - hidden) / noise + 1) if noise > 0 else None
    return Theorem3(
        lambda1=lambda1,
        lambda2=lambda2,
        low=lambda1 * (tau - 1),
        high=None if lambda2 is None else lambda2 * documents.topics,
        limit=limit,
        limit_fixed=None if limit is None or documents.words == 1 else limit - (1 - hidden) / (tau - 1 + hidden),
        violated=violated_assumptions(documents),
    )


def violated_assumptions(documents: InfiniteDocuments) -> tuple[str, ...]:
    """Those of Assumptions 3 and 4 that the setting does not meet.

    T → ∞, τ → ∞ and τ = o(T) are limits, from which a finite setting can only be far. Reported are the settings that
    cannot approach them: fewer than two topics per document, or all topics in every document.
    """
    masking, v = documents.masking, documents.words
    fewest = fewest_words(masking)
    checks = {
        f"Assumption 3: v = {v} must be above (1/(1−(1−p_c)p_m) + 1)² + 1 = {fewest:.4g}": v > fewest,
        f"Assumption 3: τ → ∞, but τ = {documents.per_document}": documents.per_document > 1,
        f"Assumption 3: τ = o(T), but τ = T = {documents.topics}": documents.per_document < documents.topics,
        f"Assumption 4: p_m = {masking.mask} must be below 1/2": masking.mask < 0.5,
        f"Assumption 4: p_c = {masking.keep} and p_r = {masking.random} must be equal": masking.keep == masking.random,
        f"Assumption 4: p_c = {masking.keep} must be between 0 and 1/2": 0 < masking.keep < 0.5,
        f"Assumption 4: p_r = {masking.random} must be between 0 and 1/2": 0 < masking.random < 0.5,
    }
    return tuple(text for text, met in checks.items() if not met)


def fewest_words(masking: Masking) -> float:
    """Assumption 3: v must be above (1/(1 − (1 − p_c)p_m) + 1)² + 1."""
    return (topic_gain(masking) + 1) ** 2 + 1
