"""The attention weights that minimise the exact loss, over all α, β ≥ 0 and, in a wider family, [MASK] keys' weight.

The loss is a ratio of quadratics and not convex, so a coarse grid over many orders of magnitude, zero included, finds
the candidates; projected Newton steps with the exact Hessian then bring each to a point where the Karush-Kuhn-Tucker
conditions hold to rounding, and the best one is kept.

For a W^V of Lemma 1's family with uniform blocks and v ≥ 2, β = 1 is known (docs/theory.md, Lemma A), and the average
alone is searched: where [MASK] queries are rare the loss depends on β by less than its rounding.
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from topicscope.theory.attention import Landscape

# Points of the search grid along one axis for two and for three free weights, and how many candidates are polished.
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


@dataclass(frozen=True)
class AttentionOptimum:
    """The minimiser of a landscape over α, β ≥ 0."""

    alpha: float
    beta: float
    weighted_average: float
    """Theorem 3's ((v − 1)α + β) / v."""
    loss: float
    loss_uniform: float
    """The loss at α = β = 1."""
    mask_key: float
    """The weight of word queries on [MASK] keys; 1 in Assumption 2's family."""
    flat: str | None
    """Along which direction the loss does not change, and which of its points is given; None if the point is alone."""
    attained: bool
    """False if the loss still falls at the largest weights searched: its infimum is at infinite weights."""


def minimise(landscape: Landscape, *, free_mask_key: bool = False) -> AttentionOptimum:
    """The best weights; with ``free_mask_key`` also that of word queries on [MASK] keys (§5.3's wider family)."""
    weights, search, point = _decoupled(landscape, free_mask_key) or _searched(landscape, free_mask_key)
    alpha, beta, mask_key = (float(weight) for weight in weights)
    return AttentionOptimum(
        alpha=alpha,
        beta=beta,
        weighted_average=float(landscape.weighted_average(alpha, beta)),
        loss=float(landscape.loss(alpha, beta, mask_key)),
        loss_uniform=float(landscape.loss(1.0, 1.0)),
        mask_key=mask_key,
        flat=search.flat if search.landscape == landscape else None,
        attained=bool((point < 0.1 * search.highest).all()),
    )


def _searched(landscape: Landscape, free_mask_key: bool) -> "_Found":
    """By search over all weights that matter."""
    search = _Search.over(landscape, free_mask_key=free_mask_key)
    point = search.minimum()
    return search.weights(point), search, point


def _decoupled(landscape: Landscape, free_mask_key: bool) -> "_Found | None":
    """β = 1 for the [MASK] queries, and the α that gives word queries their best average; None if there is none."""
    d, value, masking = landscape.documents, landscape.value, landscape.documents.masking
    blocks = d.words > 1 and value.same_word == value.same_topic
    if not blocks or masking.keep == masking.random == 0 or not landscape.mask_queries_want_uniform:
        return None
    (average, _, mask_key), search, point = _searched(replace(landscape, mask_queries=False), free_mask_key)
    if d.words * average < 1:
        return None
    return np.array([(d.words * average - 1) / (d.words - 1), 1.0, mask_key]), search, point


@dataclass(frozen=True, eq=False)
class _Search:
    """Minimise over points x ≥ 0 with weights ``start + directions x``: one coordinate less where the loss is flat."""

    landscape: Landscape
    start: Float[np.ndarray, " weight"]
    directions: Float[np.ndarray, "coordinate weight"]
    highest: float
    flat: str | None

    @classmethod
    def over(cls, landscape: Landscape, *, free_mask_key: bool) -> "_Search":
        d, masking, value = landscape.documents, landscape.documents.masking, landscape.value
        noise = max(masking.mask * masking.random, LEAST_NOISE)
        highest = BEYOND * d.words * (d.per_document + d.topics / noise)
        axes = np.eye(3)
        no_word_queries = masking.keep == masking.random == 0
        if d.words == 1 or no_word_queries:
            why = "there are no word queries" if no_word_queries else "a topic has one word"
            flat, start, directions = f"alpha has no effect, since {why}; 1 is given", axes[0] + axes[2], axes[1:2]
        elif value.same_word == value.same_topic and (not landscape.mask_queries or masking.replaced == 0):
            flat = "only the weighted average matters, since no query is [MASK]; alpha = beta is given"
            start, directions = axes[2], axes[0:1] + axes[1:2]
        else:
            flat, start, directions = None, axes[2], axes[:2]
        if free_mask_key and not no_word_queries:
            start, directions = start - axes[2], np.vstack([directions, axes[2]])
        return cls(landscape, start, directions, highest, flat)

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
        peak = np.ones(explained.shape, dtype=bool)
        for i in range(dimension):
            padded = np.pad(
                explained, [(1, 1) if j == i else (0, 0) for j in range(dimension)], constant_values=-np.inf
            )
            below, above = np.take(padded, range(len(axis)), axis=i), np.take(padded, range(2, len(axis) + 2), axis=i)
            peak &= (explained >= below) & (explained >= above)
        order = np.argsort(-explained[peak])[:CANDIDATES]
        # Uniform attention too: with p_c = 0 it is the answer, and exactly so.
        uniform = np.ones((1, dimension))
        return np.concatenate([uniform, grid[peak][order]])

    def _polish(self, point: Float[np.ndarray, " coordinate"]) -> Float[np.ndarray, " coordinate"]:
        """Projected Newton steps until none improves on the loss or, at rounding, on the gradient."""
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


# Weights (α, β, that on [MASK] keys), the search that they are from, and its point.
_Found = tuple[Float[np.ndarray, " weight"], _Search, Float[np.ndarray, " coordinate"]]


def _slack(point: Float[np.ndarray, " coordinate"], gradient: Float[np.ndarray, " coordinate"]) -> float:
    """How far the Karush-Kuhn-Tucker conditions are from holding, scaled as a change of the loss."""
    return float(np.where(point > 0, abs(point * gradient), np.maximum(-gradient, 0.0)).max())
