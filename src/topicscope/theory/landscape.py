r"""The exact loss of Assumption 2's attention under Assumption 1, by sums over classes of words, and its minimum.

A document has τ of T topics of v words; its masked version has token frequencies (eq. D.17)

.. math::
    m = p_m (1 - p_c - p_r) \text{ for [MASK]}, \quad
    a = \frac{A}{\tau v} + \frac{B}{T v} \text{ for its own words}, \quad
    b = \frac{B}{T v} \text{ for all others},

with A = 1 − (1 − p_c)p_m and B = p_m p_r. A query gives weight β to keys with its own token, α to other words of its
topic and 1 to all other keys, divided by their sum. [MASK] is a token of its own and belongs to no topic. A prediction
W^V x̂ takes few distinct values, so the loss costs O(1) for any T. docs/theory.md has the derivation.

The loss is a ratio of quadratics and not convex, so a coarse grid over many orders of magnitude, zero included, finds
the candidates; projected Newton steps with the exact Hessian then bring each to a point where the Karush-Kuhn-Tucker
conditions hold to rounding, and the best one is kept. For a W^V of Lemma 1's family with uniform blocks and v ≥ 2,
β = 1 is known (docs/theory.md, Lemma A), and only the average is searched: where [MASK] queries are rare the loss
depends on β by less than its rounding.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.ndimage import generate_binary_structure, maximum_filter

from topicscope.errors import InputError, check_at_least, refuse
from topicscope.settings.data import Masking
from topicscope.theory.classes import ClassMatrix

# A prediction this close to the best one, in probability over a class of words, differs from it by rounding alone.
LEMMA_1_ROUNDING = 1e-9
# Points per axis of the search grid for one, two and three free weights, and how many candidates are polished.
GRID_POINTS = {1: 400, 2: 120, 3: 48}
CANDIDATES = 6
NEWTON_STEPS = 100
HALVINGS = 25
# A slope that changes 1 − loss by less than this share of it, however far a weight moves, is rounding.
ROUNDING = 1e-16
# The search reaches this many times beyond the weight at which a topic outside the document would fill attention.
BEYOND = 1e3
# Random words rarer than this are taken to be this rare when choosing how far to search.
LEAST_NOISE = 1e-6

# One weight, or one for every point of a grid; the weights of one call broadcast.
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

    def loss(self, alpha: Weight, beta: Weight, mask_key: Weight = 1.0) -> Float[np.ndarray, "..."]:
        """The loss at every (α, β) and weight of word queries on [MASK] keys (1 in Assumption 2, and by default)."""
        return np.asarray(1 - self.explained(alpha, beta, mask_key))

    def explained(self, alpha: Weight, beta: Weight, mask_key: Weight = 1.0) -> Float[np.ndarray, "..."]:
        """1 − loss, without the rounding of that difference; it is 10⁻⁵ and less when a document has many words.

        Where no key gets any weight (T = 1, all weights zero) there is no attention, and the result is −∞.
        """
        weights = np.stack(np.broadcast_arrays(1.0, alpha, beta, mask_key), axis=-1)
        total = np.zeros(weights.shape[:-1])
        for kind in self._kinds:
            z = np.asarray(weights @ kind.normaliser)
            f = weights @ kind.numerator.T / np.where(z > 0, z, 1.0)[..., None]
            total += np.where(z > 0, kind.probability * (2 * f @ kind.target - f**2 @ kind.count), -np.inf)
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


@dataclass(frozen=True)
class AttentionOptimum:
    """The minimiser of a landscape over α, β ≥ 0."""

    alpha: float
    """α, same topic."""
    beta: float
    """β, same word."""
    weighted_average: float
    """((v − 1)α + β)/v."""
    loss: float
    """Loss."""
    loss_uniform: float
    """Loss at α = β = 1."""
    mask_key: float
    """Weight of word queries on [MASK] keys; 1 in Assumption 2's family."""
    flat: str | None
    """In which direction the loss is flat, and which of the points there this is; None where it is nowhere flat."""
    attained: bool
    """False if the loss still falls at the largest weights searched: its infimum is at infinite weights."""


def minimise(landscape: Landscape, *, free_mask_key: bool = False) -> AttentionOptimum:
    """The best weights; with ``free_mask_key`` also that of word queries on [MASK] keys (§5.3's wider family)."""
    v, masking, value = landscape.documents.words, landscape.documents.masking, landscape.value
    weights, search, point = np.full(3, -1.0), None, np.zeros(0)
    blocks = v > 1 and value.same_word == value.same_topic and masking.keep + masking.random > 0
    if blocks and landscape.mask_queries_want_uniform:
        # The α that gives word queries their best average, with β = 1 for the [MASK] queries, if there is one.
        alone = _Search.over(replace(landscape, mask_queries=False), free_mask_key=free_mask_key)
        point = alone.minimum()
        average, _, mask_key = alone.weights(point)
        weights = np.array([(v * average - 1) / (v - 1), 1.0, mask_key])
    if weights[0] < 0:
        alone = search = _Search.over(landscape, free_mask_key=free_mask_key)
        point = search.minimum()
        weights = search.weights(point)
    alpha, beta, mask_key = weights.tolist()
    return AttentionOptimum(
        alpha=alpha,
        beta=beta,
        weighted_average=float(landscape.weighted_average(alpha, beta)),
        loss=float(landscape.loss(alpha, beta, mask_key)),
        loss_uniform=float(landscape.loss(1.0, 1.0)),
        mask_key=mask_key,
        flat=search.flat if search else None,
        attained=bool((point < 0.1 * alone.highest).all()),
    )


@dataclass(frozen=True, eq=False)
class _Search:
    """Minimise over x ≥ 0 at weights ``start + directions x``; x has one coordinate less where the loss is flat."""

    landscape: Landscape
    start: Float[np.ndarray, " weight"]
    directions: Float[np.ndarray, "coordinate weight"]
    highest: float
    flat: str | None

    @classmethod
    def over(cls, landscape: Landscape, *, free_mask_key: bool) -> "_Search":
        """All weights that matter: α and β, and that on [MASK] keys if it is free."""
        d, masking, value = landscape.documents, landscape.documents.masking, landscape.value
        noise = max(masking.mask * masking.random, LEAST_NOISE)
        highest = BEYOND * d.words * (d.per_document + d.topics / noise)
        alpha, beta, mask_key = np.eye(3)
        no_word_queries = masking.keep == masking.random == 0
        if d.words == 1 or no_word_queries:
            why = "there are no word queries" if no_word_queries else "a topic has one word"
            flat, start, directions = f"alpha has no effect, since {why}; 1 is given", alpha + mask_key, [beta]
        elif value.same_word == value.same_topic and (not landscape.mask_queries or masking.replaced == 0):
            flat = "only the weighted average matters, since no query is [MASK]; alpha = beta is given"
            start, directions = mask_key, [alpha + beta]
        else:
            flat, start, directions = None, mask_key, [alpha, beta]
        if free_mask_key and not no_word_queries:
            start, directions = start - mask_key, [*directions, mask_key]
        return cls(landscape, start, np.array(directions), highest, flat)

    def weights(self, point: Float[np.ndarray, "... coordinate"]) -> Float[np.ndarray, "... weight"]:
        return np.asarray(self.start + point @ self.directions)

    def minimum(self) -> Float[np.ndarray, " coordinate"]:
        polished = [self._polish(point) for point in self._candidates()]
        return max(polished, key=lambda point: self.landscape.derivatives(*self.weights(point)).explained)

    def _candidates(self) -> Float[np.ndarray, "candidate coordinate"]:
        """The best points of a grid: zero and many orders of magnitude along each axis, local minima only."""
        dimension = len(self.directions)
        axis = np.concatenate([[0.0], np.geomspace(1e-3, self.highest, GRID_POINTS[dimension])])
        grid = np.stack(np.meshgrid(*[axis] * dimension, indexing="ij"), axis=-1)
        explained = self.landscape.explained(*np.moveaxis(self.weights(grid), -1, 0))
        # Points that are not below their neighbours along any axis.
        peak = explained == maximum_filter(explained, footprint=generate_binary_structure(dimension, 1))
        order = np.argsort(-explained[peak])[:CANDIDATES]
        # Uniform attention too: with p_c = 0 it is the answer, and exactly so.
        uniform = np.ones((1, dimension))
        return np.concatenate([uniform, grid[peak][order]])

    def _polish(self, point: Float[np.ndarray, " coordinate"]) -> Float[np.ndarray, " coordinate"]:
        """Take projected Newton steps until none improves the loss or, at the level of rounding, the gradient."""
        value, gradient, hessian = self._derivatives(point)
        for _ in range(NEWTON_STEPS):
            if _slack(point, gradient) <= ROUNDING * abs(value):
                return point
            step = self._step(point, gradient, hessian)
            for shrink in 0.5 ** np.arange(HALVINGS):
                trial = np.clip(point + shrink * step, 0.0, self.highest)
                trial_value, trial_gradient, trial_hessian = self._derivatives(trial)
                same = abs(trial_value - value) <= 1e-14 * abs(value)
                if trial_value > value or (same and _slack(trial, trial_gradient) < _slack(point, gradient)):
                    break
            else:
                return point
            point, value, gradient, hessian = trial, trial_value, trial_gradient, trial_hessian
        return point

    def _step(
        self,
        point: Float[np.ndarray, " coordinate"],
        gradient: Float[np.ndarray, " coordinate"],
        hessian: Float[np.ndarray, "coordinate coordinate"],
    ) -> Float[np.ndarray, " coordinate"]:
        """A Newton step in the coordinates that are not held at zero, downhill whatever the curvature's sign."""
        free = (point > 0) | (gradient < 0)
        scale = np.where(point > 0, point, 1.0)[free]
        values, vectors = np.linalg.eigh(scale[:, None] * hessian[np.ix_(free, free)] * scale)
        values = np.maximum(abs(values), 1e-14 * abs(values).max(initial=1e-300))
        step = np.zeros_like(point)
        step[free] = -scale * (vectors @ ((vectors.T @ (scale * gradient[free])) / values))
        return step

    def _derivatives(
        self, point: Float[np.ndarray, " coordinate"]
    ) -> tuple[float, Float[np.ndarray, " coordinate"], Float[np.ndarray, "coordinate coordinate"]]:
        explained, gradient, hessian = self.landscape.derivatives(*self.weights(point))
        return explained, self.directions @ gradient, self.directions @ hessian @ self.directions.T


def _slack(point: Float[np.ndarray, " coordinate"], gradient: Float[np.ndarray, " coordinate"]) -> float:
    """How far the Karush-Kuhn-Tucker conditions are from holding, scaled as a change of the loss."""
    return float(np.where(point > 0, abs(point * gradient), np.maximum(-gradient, 0.0)).max())
