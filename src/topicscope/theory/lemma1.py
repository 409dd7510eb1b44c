"""Lemma 1: every matrix that minimises the loss under uniform attention and infinite documents, as one family.

Token 0 is [MASK]; T topics of v words each, so V = Tv + 1 tokens. p_m, p_c, p_r are ``masking.mask``,
``masking.keep`` and ``masking.random``. Beside the family are the constants that it shares with Theorems 1 and 2, and
Remark 8 on the Hessian of its loss.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from topicscope.errors import InputError, check_at_least, refuse
from topicscope.settings.data import Masking
from topicscope.theory.classes import Matrix, Vector


@dataclass(frozen=True)
class Constants:
    """c₁, c₂, c₃ of Theorem 2."""

    c1: float
    c2: float
    c3: float


def constants(topics: int, words: int, masking: Masking = Masking()) -> Constants:
    r"""The constants of Theorem 2 (§5.2).

    .. math::
        c_1 = \frac{p_r}{(1-p_c-p_r)(1-(1-p_c)p_m)Tv}, \quad
        c_2 = \frac{1}{(1-p_c-p_r)p_m} - 1, \quad
        c_3 = \frac{1}{1-(1-p_c)p_m}
    """
    check_at_least("topics", topics, 1)
    check_at_least("words", words, 1)
    if masking.replaced == 0:
        raise refuse(
            "masking.keep + masking.random",
            masking.keep + masking.random,
            "no position becomes [MASK], and the constants of Lemma 1 and Theorem 2 divide by p_m(1 − p_c − p_r) = 0; "
            "lower one of them",
        )
    c3 = topic_gain(masking)
    c1 = masking.random / masking.replaced * c3 / (topics * words)
    return Constants(c1=c1, c2=1 / (masking.replaced * masking.mask) - 1, c3=c3)


def topic_gain(masking: Masking) -> float:
    """c₃ = 1 / (1 − (1 − p_c) p_m): what undoes the share of words that masking hides."""
    visible = 1 - (1 - masking.keep) * masking.mask
    if visible == 0:
        raise refuse(
            "masking.mask", masking.mask, "with masking.keep = 0 no word of the document is seen; lower masking.mask"
        )
    return 1 / visible


def require_topic_sets(topics: int, per_document: int) -> None:
    """Refuse T = τ: every document then has the same topics, and more matrices than Lemma 1's are optimal."""
    if topics < per_document:
        raise refuse(
            "per_document", per_document, f"a document cannot have more than topics = {topics} distinct topics"
        )
    if topics == per_document:
        raise InputError(
            f"topics = {topics} with per_document = {per_document} is not allowed for Lemma 1 and Theorem 2: "
            "there is only one set of topics, every infinite document has the same frequencies, and any matrix "
            "that maps them right is a minimiser; give more topics, or a smaller per_document."
        )


@dataclass(frozen=True)
class Family:
    r"""The matrices W of Lemma 1 (with ``c1``) or E of Theorem 1 (with c₁ = 0).

    There are numbers u₀ … u_Tv such that

    - 1(a) W₀₀ = −c₂ u₀, 1(b) Σ_{l∈t} W₀ₗ = v u₀ for every topic t;
    - 2(a) W_{i0} = −c₁ − c₂ uᵢ for every word i;
    - 3(a) Σ_{l∈topic(i)} W_{il} = c₃ + v uᵢ, 3(b) Σ_{l∈t} W_{il} = v uᵢ for every other topic t.

    How a topic's sum is split over its words is free. This is an affine space of dimension V(V − T).
    """

    topics: int
    words: int
    c1: float
    c2: float
    c3: float

    @property
    def vocabulary(self) -> int:
        """V = Tv + 1."""
        return self.topics * self.words + 1

    def member(self, u: Vector, split: Float[np.ndarray, "token word"] | None = None) -> Matrix:
        """The member with these u whose entries within a topic vary as ``split`` does around its topic means.

        Without ``split`` the entries of a topic are equal.
        """
        matrix = self._centre + u[:, None] * self._direction
        if split is not None:
            matrix[:, 1:] += split - np.repeat(self.topic_means(split), self.words, axis=1)
        return matrix

    def fit(self, matrix: Matrix) -> Vector:
        r"""The nearest member's u: the least squares solution, row by row.

        .. math:: u_i = \frac{\sum_{l \ge 1} W_{il} - c_3 - c_2 (W_{i0} + c_1)}{c_2^2 + Tv}

        (without c₁ and c₃ for i = 0).
        """
        return (matrix - self._centre) @ self._direction / (self._direction @ self._direction)

    def project(self, matrix: Matrix) -> Matrix:
        """The nearest member in Frobenius norm: u by least squares, while the splits within topics stay as they are."""
        return self.member(self.fit(matrix), matrix[:, 1:])

    def topic_means(self, rows: Float[np.ndarray, "token word"]) -> Float[np.ndarray, "token topic"]:
        """Each row's mean over the words of each topic."""
        return rows.reshape(len(rows), self.topics, self.words).mean(axis=2)

    @property
    def _direction(self) -> Vector:
        """How a row moves with its u: apart from the splits, along the one direction that the loss does not see."""
        return np.concatenate([[-self.c2], np.ones(self.topics * self.words)])

    @property
    def _centre(self) -> Matrix:
        """The member with u = 0 and equal entries within a topic."""
        matrix = np.zeros((self.vocabulary, self.vocabulary))
        matrix[1:, 0] = -self.c1
        matrix[1:, 1:] = np.kron(np.eye(self.topics), np.full((self.words, self.words), self.c3 / self.words))
        return matrix


def lemma1(topics: int, words: int, masking: Masking = Masking()) -> Family:
    """The minimisers of the loss of eq. A.8: f(X̃) = W X̃ [1/N], squared loss, Assumption 1, τ < T."""
    c = constants(topics, words, masking)
    return Family(topics, words, c.c1, c.c2, c.c3)


def hessian_rank(topics: int, words: int, per_document: int, masking: Masking = Masking()) -> int:
    """Remark 8: the rank of the loss's (V² × V²) Hessian in W, T(Tv + 1) for τ < T.

    The loss is a quadratic in each row of W with the same matrix S = E[x̃x̃⊤], so its Hessian in vec(W) is 2 I_V ⊗ S,
    of rank V · rank(S). The remark says that the rank is 1; S has rank T, because documents differ in their topics,
    and 1 only if all look alike (τ = T, or every word is hidden). The conclusion of the remark stands: V(V − T) > 0
    directions are flat, and the objective is not strongly convex.
    """
    all_look_the_same = per_document == topics or (1 - masking.keep) * masking.mask == 1
    return (topics * words + 1) * (1 if all_look_the_same else topics)
