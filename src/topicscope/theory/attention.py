r"""The exact loss of Assumption 2's attention under Assumption 1, by sums over classes of words.

A document has τ of T topics of v words; its masked version has token frequencies (eq. D.17)

.. math::
    m = p_m (1 - p_c - p_r) \text{ for [MASK]}, \quad
    a = \frac{A}{\tau v} + \frac{B}{T v} \text{ for its own words}, \quad
    b = \frac{B}{T v} \text{ for all others},

with A = 1 − (1 − p_c)p_m and B = p_m p_r. A query gives weight β to keys with its own token, α to other words of its
topic and 1 to all other keys, divided by their sum. [MASK] is a token of its own and of no topic. A prediction
W^V x̂ takes few distinct values, so the loss costs O(1) for any T. docs/theory.md has the derivation.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from topicscope.errors import InputError
from topicscope.settings.checks import check_at_least, refuse
from topicscope.settings.data import Masking
from topicscope.theory.classes import ClassMatrix
from topicscope.theory.lemma import constants

# The weights that attention may vary: α, β and the weight of word queries on [MASK] keys (1 in Assumption 2).
WEIGHTS = ("alpha", "beta", "mask_key")

# A prediction this close to the best one, in probability over a class of words, is it but for rounding.
LEMMA_1_ROUNDING = 1e-9

# One weight, or one for every point of a grid; those of one call broadcast.
Weight = float | Float[np.ndarray, "..."]


@dataclass(frozen=True, kw_only=True)
class InfiniteDocuments:
    """Assumption 1's documents, and their masking."""

    topics: int
    """T."""
    per_document: int
    """τ."""
    words: int
    """v."""
    masking: Masking = Masking()

    def __post_init__(self) -> None:
        check_at_least("topics", self.topics, 1)
        check_at_least("words", self.words, 1)
        check_at_least("per_document", self.per_document, 1)
        if self.per_document > self.topics:
            raise refuse(
                "per_document", self.per_document, f"a document cannot have more than topics = {self.topics} topics"
            )


def diagonal_classes(topics: int, words: int, masking: Masking) -> ClassMatrix:
    """The diagonal W^V of D.4 by its four classes: W_i0 = −c₁, W_ii = c₃, else 0."""
    c = constants(topics, words, masking)
    return ClassMatrix(-c.c1, c.c3, 0.0, 0.0)


@dataclass(frozen=True, eq=False)
class _Kind:
    """One kind of query. Its prediction takes one value per class of words, N_k / Z, both linear in (1, weights)."""

    probability: float
    """How often a masked position is a query of this kind."""
    count: Float[np.ndarray, " class"]
    """How many words are in each class."""
    target: Float[np.ndarray, " class"]
    """How likely the word to predict is in each class."""
    numerator: Float[np.ndarray, "class weight"]
    normaliser: Float[np.ndarray, " weight"]


class Derivatives(NamedTuple):
    """1 − loss, and the loss's gradient and Hessian in (α, β, weight on [MASK] keys)."""

    explained: float
    gradient: Float[np.ndarray, " weight"]
    hessian: Float[np.ndarray, "weight weight"]


@dataclass(frozen=True)
class Landscape:
    """The expected squared loss (eq. 1, 3, 7; b^pred = 0) as a function of attention's weights, for a fixed W^V.

    ``mask_queries = False`` leaves [MASK] queries out: the loss is then the mean over masked positions that hold a
    word, and for a W^V of uniform blocks only ((v−1)α + β)/v matters (Remark 5).
    """

    documents: InfiniteDocuments
    value: ClassMatrix
    mask_queries: bool = True

    def __post_init__(self) -> None:
        if not self._kinds:
            raise InputError(
                "mask_queries = False is not allowed with masking.keep = masking.random = 0: "
                "no query is left; keep the [MASK] queries or raise one of the two."
            )

    def loss(self, alpha: Weight, beta: Weight, mask_key: Weight | None = None) -> Float[np.ndarray, "..."]:
        """The loss at every (α, β)."""
        return np.asarray(1 - self.explained(alpha, beta, mask_key))

    def explained(self, alpha: Weight, beta: Weight, mask_key: Weight | None = None) -> Float[np.ndarray, "..."]:
        """1 − loss without the rounding of that difference: 10⁻⁵ and less when a document has many words.

        Where no key gets any weight (T = 1, all weights zero) there is no attention, and it is −∞.
        """
        weights = _weights(alpha, beta, mask_key)
        total = np.zeros(weights.shape[:-1])
        for kind in self._kinds:
            z = np.asarray(weights @ kind.normaliser)
            f = weights @ kind.numerator.T / np.where(z > 0, z, 1.0)[..., None]
            total += np.where(z > 0, kind.probability * (2 * f @ kind.target - f**2 @ kind.count), -np.inf)
        return total

    def gradient(self, alpha: Weight, beta: Weight, mask_key: Weight | None = None) -> Float[np.ndarray, "... weight"]:
        """The loss's gradient in (α, β, weight on [MASK] keys) at every point; NaN where no key gets any weight."""
        weights = _weights(alpha, beta, mask_key)
        total = np.zeros((*weights.shape[:-1], len(WEIGHTS)))
        for kind in self._kinds:
            z = np.asarray(weights @ kind.normaliser)[..., None]
            z = np.where(z > 0, z, np.nan)
            f = weights @ kind.numerator.T / z
            # d(N/Z) = (dN − f dZ) / Z, since N and Z are linear in the weights.
            slope = (kind.numerator[:, 1:] - f[..., None] * kind.normaliser[1:]) / z[..., None]
            total += 2 * kind.probability * np.einsum("...k,...kw->...w", kind.count * f - kind.target, slope)
        return total

    def derivatives(self, alpha: float, beta: float, mask_key: float = 1.0) -> Derivatives:
        """Value, gradient and Hessian at one point; −∞ and NaN where no key gets any weight."""
        weights = np.array([1.0, alpha, beta, mask_key])
        if any(weights @ kind.normaliser <= 0 for kind in self._kinds):
            return Derivatives(-np.inf, np.full(3, np.nan), np.full((3, 3), np.nan))
        explained, gradient, hessian = 0.0, np.zeros(3), np.zeros((3, 3))
        for kind in self._kinds:
            z = weights @ kind.normaliser
            f = kind.numerator @ weights / z
            slope = (kind.numerator[:, 1:] - f[:, None] * kind.normaliser[1:]) / z
            residual = 2 * (kind.count * f - kind.target)
            # The second derivative of N/Z is −(f_a Z_b + f_b Z_a) / Z.
            bend = np.outer(residual @ slope, kind.normaliser[1:]) / z
            explained += kind.probability * (2 * f @ kind.target - f**2 @ kind.count)
            gradient += kind.probability * (residual @ slope)
            hessian += kind.probability * (2 * slope.T @ (kind.count[:, None] * slope) - bend - bend.T)
        return Derivatives(explained, gradient, hessian)

    @property
    def mask_queries_want_uniform(self) -> bool:
        """Whether there are [MASK] queries and uniform attention (β = 1) makes their prediction the best there is.

        It does for every W^V of Lemma 1's family: the prediction is then P_w, their target's distribution.
        """
        if not self.mask_queries or self.documents.masking.replaced == 0:
            return False
        kind = self._mask_query(1.0)
        predicted = kind.count * kind.numerator.sum(axis=1) / kind.normaliser.sum()
        return bool((abs(predicted - kind.target) < LEMMA_1_ROUNDING).all())

    def weighted_average(self, alpha: Weight, beta: Weight) -> Float[np.ndarray, "..."]:
        """Theorem 3's ((v − 1)α + β) / v."""
        v = self.documents.words
        return np.asarray(((v - 1) * alpha + beta) / v)

    @cached_property
    def _kinds(self) -> tuple[_Kind, ...]:
        """The kinds of query that occur, with probabilities that sum to one."""
        masking, d = self.documents.masking, self.documents
        inside = d.per_document / d.topics
        kinds = (
            (masking.keep, lambda share: self._word_query(share, in_document=True, kept=True)),
            (masking.random * inside, lambda share: self._word_query(share, in_document=True, kept=False)),
            (masking.random * (1 - inside), lambda share: self._word_query(share, in_document=False, kept=False)),
            (masking.replaced if self.mask_queries else 0.0, self._mask_query),
        )
        total = sum(share for share, _ in kinds)
        return tuple(make(share / total) for share, make in kinds if share > 0)

    def _word_query(self, probability: float, *, in_document: bool, kept: bool) -> _Kind:
        """A word as query. Classes: itself, its topic's others, other words of the document, all other words."""
        tau, v, rest = self.documents.per_document, self.documents.words, self.documents.topics
        mask, own, noise = self._frequencies()
        if in_document:
            count = np.array([1.0, v - 1, (tau - 1) * v, (rest - tau) * v])
            key = np.array([own, own, own, noise])
        else:
            count = np.array([1.0, v - 1, tau * v, (rest - tau - 1) * v])
            key = np.array([noise, noise, own, noise])
        if kept:
            target = np.array([1.0, 0, 0, 0])
        else:
            target = np.array([1.0, v - 1, (tau - 1) * v, 0]) / (tau * v) if in_document else np.array([0.0, 0, 1, 0])
        mass = count * key
        # Weight given to keys, each as coefficients of (1, α, β, weight on [MASK] keys).
        words = np.array([mass[2] + mass[3], mass[1], mass[0], 0.0])
        topic = np.array([[0, mass[1], mass[0], 0]] * 2 + [[v * key[2], 0, 0, 0], [v * key[3], 0, 0, 0]])
        word = np.array([[0, 0, key[0], 0], [0, key[1], 0, 0], [key[2], 0, 0, 0], [key[3], 0, 0, 0]])
        to_mask = np.array([0.0, 0, 0, mask])
        return _Kind(probability, count, target, self._numerator(to_mask, words, topic, word), words + to_mask)

    def _mask_query(self, probability: float) -> _Kind:
        """[MASK] as query. Classes: words of the document, all other words."""
        d = self.documents
        mask, own, noise = self._frequencies()
        count = np.array([float(d.per_document * d.words), (d.topics - d.per_document) * d.words])
        key = np.array([own, noise])
        words = np.array([count @ key, 0, 0, 0])
        word = key[:, None] * np.array([1.0, 0, 0, 0])
        to_mask = np.array([0.0, 0, mask, 0])
        numerator = self._numerator(to_mask, words, d.words * word, word)
        return _Kind(probability, count, np.array([1.0, 0.0]), numerator, words + to_mask)

    def _numerator(
        self,
        to_mask: Float[np.ndarray, " weight"],
        words: Float[np.ndarray, " weight"],
        topic: Float[np.ndarray, "class weight"],
        word: Float[np.ndarray, "class weight"],
    ) -> Float[np.ndarray, "class weight"]:
        """(W^V x̂)_i Z: W_i0 of [MASK]'s weight, W_il of all words', and what i's topic and i itself add."""
        w = self.value
        common = w.mask_column * to_mask + w.different_topic * words
        return common + (w.same_topic - w.different_topic) * topic + (w.same_word - w.same_topic) * word

    def _frequencies(self) -> tuple[float, float, float]:
        """m, a and b of eq. D.17: frequencies of [MASK], of a word of the document and of any other word."""
        d, masking = self.documents, self.documents.masking
        noise = masking.mask * masking.random / (d.topics * d.words)
        own = (1 - (1 - masking.keep) * masking.mask) / (d.per_document * d.words) + noise
        return masking.mask * masking.replaced, own, noise


def _weights(alpha: Weight, beta: Weight, mask_key: Weight | None) -> Float[np.ndarray, "... coefficient"]:
    """(1, α, β, weight on [MASK] keys) at every point."""
    weights = np.broadcast_arrays(1.0, alpha, beta, 1.0 if mask_key is None else mask_key)
    return np.stack(weights, axis=-1)
