r"""Optima for finite documents: of attention for a given W^V, and of W^V and attention together.

By symmetry the best attention has one weight per class. A word query gives 1 to words of other topics, α to other words
of its topic, β to its own word and μ to [MASK]; a [MASK] query gives 1 to words and ν to [MASK]. Theorem 3's family has
μ = 1 and ν = β. W^V has four numbers (its [MASK] row is zero, since nothing is gained by predicting [MASK]).

For one document and one query the squared loss then depends on a dozen sums over classes of words. With token
frequencies x, m that of [MASK], query q of topic t, and Z the sum of all weights,

.. math::
    Z = \mu m + \beta x_q + \alpha X_t' + D, \qquad
    \|f\|^2 = n c^2 + 2c\,(v\kappa_1 + \kappa_2) L + (v\kappa_1^2 + 2\kappa_1\kappa_2)\, T_2 + \kappa_2^2\, w_2,

where X_t' is the frequency of the topic's other words, D that of all others, c = W_{i0} M + W_d L with M = μm/Z and
L = 1 − M, κ₁ = W_t − W_d and κ₂ = W_s − W_t, n = Tv, T₂ the sum of squares of what topics get, and w₂ that of what
single words get. So an expectation over documents of any T and v is one over a dozen numbers. They are sampled; the
error of what follows from them is that of a minimiser of a sample mean (``Estimate``).

At fixed attention the loss is quadratic in W^V's four numbers, which are solved for: the joint optimum is a search over
four weights (``joint_optimum``). docs/theory-dynamics.md has the derivation.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import minimize as scipy_minimize

from topicscope.errors import InputError, check_at_least
from topicscope.settings.data import Data, Masking
from topicscope.settings.training import Average
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.synthetic.masking import mask_documents
from topicscope.synthetic.topics import TopicModel, sample_documents
from topicscope.theory.classes import ClassMatrix, Vocabulary

# Documents that an expectation is taken over.
DOCUMENTS = 10_000
# Weights are searched between e^−this and e^this; at the ends they are 0 or ∞ but for rounding.
FARTHEST = 12.0
# A slope by the logarithm of a weight that is smaller is rounding.
ROUNDING = 1e-14
# Half the 95 % interval of a normal estimate, in standard errors.
INTERVAL = 1.96
# Where the search begins, as (α, β): attention to topics, and to the same word.
STARTS = ((6.0, 6.0), (0.5, 30.0))

Four = Float[np.ndarray, " 4"]
PerRow = Float[np.ndarray, " row"]


class Weights(NamedTuple):
    """Attention's weights by class."""

    alpha: float = 1.0
    """α: of a word query on other words of its topic."""
    beta: float = 1.0
    """β: of a word query on its own word."""
    word_on_mask: float = 1.0
    """μ: of a word query on [MASK]."""
    mask_on_mask: float = 1.0
    """ν: of a [MASK] query on [MASK]."""

    def weighted_average(self, words: int) -> float:
        """Theorem 3's ((v − 1)α + β)/v."""
        return ((words - 1) * self.alpha + self.beta) / words


class _Shares(NamedTuple):
    """What attention makes of each row: the numbers that the loss is a function of, and their slopes by log weights."""

    mask: PerRow
    topic_squares: PerRow
    word_squares: PerRow
    own: PerRow
    topic: PerRow
    slopes: tuple[Float[np.ndarray, "4 row"], ...]


@dataclass(frozen=True, eq=False)
class ClassCounts:
    """One row per document and distinct query token in it: sums over classes of words, and over the targets."""

    vocabulary: Vocabulary
    document: Int[np.ndarray, " row"]
    """Which document the row is of; rows are ordered by it."""
    weight: PerRow
    """The share of masked positions that have this document and query; all sum to one."""
    by_mask: Float[np.ndarray, " row"]
    """1 where [MASK] queries, else 0."""
    mask: PerRow
    """m, the frequency of [MASK]."""
    query: PerRow
    """x_q; 0 for a [MASK] query, as are all that belong to the query's topic."""
    topic: PerRow
    """X_t', the frequency of the topic's other words."""
    topic_squares: PerRow
    """Σ x² over the topic's other words."""
    other_topic_squares: PerRow
    """Σ X_s² over the other topics."""
    other_squares: PerRow
    """Σ x² over their words."""
    target_query: PerRow
    """How often q is the target, on the scale of ``weight``, as are the next four."""
    target_topic: PerRow
    """How often a word of q's topic is the target."""
    target_topic_own: PerRow
    """Σ p_y x_y over the topic's other words."""
    target_other_own: PerRow
    """Σ p_y x_y over words y of other topics."""
    target_other_topic: PerRow
    """Σ p_y X_s over words y of other topics s."""

    @classmethod
    def of(
        cls,
        documents: MaskedDocuments,
        vocabulary: Vocabulary,
        average: Average = "document",
        chances: Float[np.ndarray, " document"] | None = None,
    ) -> "ClassCounts":
        """The counts of these documents; ``chances`` are their probabilities, by default equal."""
        tokens, count = vocabulary.count + 1, len(documents)
        frequencies = np.zeros((count, tokens))
        np.add.at(frequencies, (documents.document, documents.tokens), 1.0)
        frequencies /= documents.lengths[:, None]
        where = documents.document[documents.where]
        row_code = where * tokens + documents.tokens[documents.where]
        distinct, row = np.unique(row_code, return_inverse=True)
        share = np.ones(count) / count if chances is None else chances / chances.sum()
        if average == "batch":
            share = share * documents.masked_counts
            share = share / share.sum()
        shares = (share / documents.masked_counts)[where]
        targets = np.zeros((len(distinct), tokens))
        np.add.at(targets, (row, documents.targets), shares)
        return cls._rows(vocabulary, frequencies, distinct // tokens, distinct % tokens, targets)

    @classmethod
    def _rows(
        cls,
        vocabulary: Vocabulary,
        frequencies: Float[np.ndarray, "document token"],
        document: Int[np.ndarray, " row"],
        query: Int[np.ndarray, " row"],
        targets: Float[np.ndarray, "row token"],
    ) -> "ClassCounts":
        topics, words = vocabulary.topics, vocabulary.words
        x, rows = frequencies[document, 1:], np.arange(len(document))
        is_word = (query > 0).astype(np.float64)
        topic = np.maximum(query - 1, 0) // words
        by_topic = x.reshape(-1, topics, words)
        sums, squares = by_topic.sum(axis=2), (by_topic**2).sum(axis=2)
        own_targets = (targets[:, 1:] * x).reshape(-1, topics, words).sum(axis=2)
        topic_targets = targets[:, 1:].reshape(-1, topics, words).sum(axis=2)
        at_query = x[rows, np.maximum(query - 1, 0)] * is_word
        target_query = targets[rows, query] * is_word
        of_topic, target_topic = sums[rows, topic] * is_word, topic_targets[rows, topic] * is_word
        squares_of_topic, own_of_topic = squares[rows, topic] * is_word, own_targets[rows, topic] * is_word
        return cls(
            vocabulary=vocabulary,
            document=document,
            weight=targets.sum(axis=1),
            by_mask=1.0 - is_word,
            mask=frequencies[document, 0],
            query=at_query,
            topic=of_topic - at_query,
            topic_squares=np.maximum(squares_of_topic - at_query**2, 0.0),
            other_topic_squares=(sums**2).sum(axis=1) - of_topic**2,
            other_squares=squares.sum(axis=1) - squares_of_topic,
            target_query=target_query,
            target_topic=target_topic,
            target_topic_own=own_of_topic - target_query * at_query,
            target_other_own=own_targets.sum(axis=1) - own_of_topic,
            target_other_topic=(topic_targets * sums).sum(axis=1) - target_topic * of_topic,
        )

    def loss(self, value: ClassMatrix, weights: Weights) -> float:
        """The expected squared loss."""
        return float(1 + self._losses(value.numbers[2:], self._shares(np.log(weights))).sum())

    def best_value(self, weights: Weights) -> ClassMatrix:
        """The W^V that minimises it at these weights."""
        return ClassMatrix(*self._solve(self._shares(np.log(weights))).tolist())

    @cached_property
    def documents(self) -> Int[np.ndarray, " document"]:
        """Where each document's rows begin."""
        return np.flatnonzero(np.diff(self.document, prepend=-1))

    def _shares(self, logs: Four, *, slopes: bool = False) -> _Shares:
        alpha, beta, on_mask, mask_on_mask = np.exp(logs)
        to_mask = np.where(self.by_mask > 0, mask_on_mask, on_mask) * self.mask
        to_query, to_topic = beta * self.query, alpha * self.topic
        together = to_query + to_topic
        z = to_mask + together + (1 - self.mask - self.query - self.topic)
        own_query, own_topic = beta * self.target_query * self.query, alpha * self.target_topic_own
        shares = _Shares(
            mask=to_mask / z,
            topic_squares=(together**2 + self.other_topic_squares) / z**2,
            word_squares=(to_query**2 + alpha**2 * self.topic_squares + self.other_squares) / z**2,
            own=(own_query + own_topic + self.target_other_own) / z,
            topic=(self.target_topic * together + self.target_other_topic) / z,
            slopes=(),
        )
        if not slopes:
            return shares
        nothing = np.zeros_like(z)
        by_word, by_mask = to_mask * (1 - self.by_mask), to_mask * self.by_mask
        grows = np.stack([to_topic, to_query, by_word, by_mask]) / z
        of_mask = np.stack([nothing, nothing, by_word, by_mask]) / z
        of_topic = np.stack([to_topic, to_query, nothing, nothing]) / z
        of_words = np.stack([alpha**2 * self.topic_squares, to_query**2, nothing, nothing]) / z**2
        of_own = np.stack([own_topic, own_query, nothing, nothing]) / z
        return shares._replace(
            slopes=(
                of_mask - shares.mask * grows,
                2 * (together / z * of_topic - shares.topic_squares * grows),
                2 * (of_words - shares.word_squares * grows),
                of_own - shares.own * grows,
                self.target_topic * of_topic - shares.topic * grows,
            )
        )

    def _losses(self, value: Four, shares: _Shares) -> PerRow:
        """Each row's part of the loss, without the 1 that comes from the targets themselves."""
        mask_column, _, _, different = value
        seen, (square, linear) = 1 - shares.mask, self._coefficients(value)
        quadratic = (
            square[0] * shares.mask**2
            + square[1] * shares.mask * seen
            + square[2] * seen**2
            + square[3] * shares.topic_squares
            + square[4] * shares.word_squares
        )
        hit = self.weight * (mask_column * shares.mask + different * seen)
        return self.weight * quadratic - 2 * (hit + linear[0] * shares.own + linear[1] * shares.topic)

    def _coefficients(self, value: Four) -> tuple[tuple[float, float, float, float, float], tuple[float, float]]:
        """The coefficients of M², ML, L², T₂ and w₂ in ‖f‖², and of the target's own share and its topic's in f_y."""
        mask_column, same_word, same_topic, different = value.tolist()
        n, v = self.vocabulary.count, self.vocabulary.words
        topic, word = same_topic - different, same_word - same_topic
        common = v * topic + word
        square = (
            n * mask_column**2,
            2 * mask_column * (n * different + common),
            n * different**2 + 2 * different * common,
            v * topic**2 + 2 * topic * word,
            word**2,
        )
        return square, (word, topic)

    def _value_slopes(self, value: Four, shares: _Shares) -> Float[np.ndarray, "4 row"]:
        """Each row's derivatives by W^V's four numbers."""
        square, cross = self._normal_equations(shares, rows=True)
        return 2 * (np.einsum("ijr,j->ir", square, value) - cross)

    def _normal_equations(self, shares: _Shares, *, rows: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """S and r of the loss 1 − 2 w·r + w·S·w in W^V's four numbers, summed over rows or for each."""
        n, v = self.vocabulary.count, self.vocabulary.words
        seen = 1 - shares.mask

        def add(terms: PerRow) -> np.ndarray:
            return terms if rows else np.asarray(terms.sum())

        mm, ml, ll = (add(self.weight * term) for term in (shares.mask**2, shares.mask * seen, seen**2))
        tt, ww = add(self.weight * shares.topic_squares), add(self.weight * shares.word_squares)
        hit_mask, hit = add(self.weight * shares.mask), add(self.weight * seen)
        own, topic = add(shares.own), add(shares.topic)
        square = np.array(
            [
                [n * mm, ml, (v - 1) * ml, (n - v) * ml],
                [ml, ww, tt - ww, ll - tt],
                [(v - 1) * ml, tt - ww, (v - 2) * tt + ww, (v - 1) * (ll - tt)],
                [(n - v) * ml, ll - tt, (v - 1) * (ll - tt), (n - 2 * v) * ll + v * tt],
            ]
        )
        return square, np.array([hit_mask, own, topic - own, hit - topic])

    def _solve(self, shares: _Shares) -> Four:
        square, cross = self._normal_equations(shares)
        # Classes without entries (v = 1, T = 1), and [MASK] where it never occurs, are zero rows.
        return np.asarray(np.linalg.lstsq(square, cross, rcond=1e-13)[0])

    def _log_slopes(self, value: Four, shares: _Shares) -> Float[np.ndarray, "4 row"]:
        """Each row's derivatives by the logarithms of the weights."""
        mask_column, _, _, different = value
        square, linear = self._coefficients(value)
        seen = 1 - shares.mask
        by_mask = 2 * square[0] * shares.mask + square[1] * (seen - shares.mask) - 2 * square[2] * seen
        mask, topics, words, own, topic = shares.slopes
        return np.asarray(
            self.weight * (by_mask * mask + square[3] * topics + square[4] * words)
            - 2 * (self.weight * (mask_column - different) * mask + linear[0] * own + linear[1] * topic)
        )


def sampled_counts(
    data: Data,
    masking: Masking,
    documents: int = DOCUMENTS,
    *,
    generator: np.random.Generator,
    average: Average = "document",
) -> ClassCounts:
    """The class counts of so many freshly drawn documents."""
    check_at_least("documents", documents, 2)
    model = TopicModel.from_settings(data)
    model.require_no_ends()
    if model.equal_words is None:
        raise InputError(
            "Classes are those of T disjoint topics of v equally likely words; leave data.topic_words out."
        )
    drawn = sample_documents(model, documents, shuffled=False, generator=generator)
    masked = mask_documents(drawn, masking, model.vocabulary, generator=generator)
    return ClassCounts.of(masked, Vocabulary(model.topics, model.equal_words), average)


@dataclass(frozen=True)
class Estimate:
    """A number of an optimum, with its 95 % interval over sampled documents."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Optimum:
    """The best weights on sampled documents, and W^V beside them."""

    weights: Weights
    value: ClassMatrix
    loss: float
    loss_uniform: float
    """The loss at uniform attention with the same W^V, or with the best one there if W^V is free."""
    free_value: bool
    attained: bool
    """False if a weight has gone to ∞; one that has gone to 0 is attained."""
    vocabulary: Vocabulary
    covariance: Float[np.ndarray, "8 8"]
    """The covariance of the logarithms of the weights and of W^V's numbers, as estimates."""

    @property
    def weighted_average(self) -> Estimate:
        """Theorem 3's ((v − 1)α + β)/v."""
        return self.estimate(lambda weights, value: weights.weighted_average(self.vocabulary.words))

    @property
    def block_share(self) -> Estimate:
        """The same-topic contrast of W^V over its same-word one: 1 for blocks, 0 for a diagonal."""
        return self.estimate(
            lambda weights, value: (
                (value.same_topic - value.different_topic) / (value.same_word - value.different_topic)
            )
        )

    def estimate(self, number: Callable[[Weights, ClassMatrix], float]) -> Estimate:
        """Any function of the optimum with its interval, by the delta method."""
        here = np.concatenate([np.log(np.maximum(self.weights, np.exp(-FARTHEST))), self.value.numbers[2:]])

        def at(point: Float[np.ndarray, " 8"]) -> float:
            return number(Weights(*np.exp(point[:4]).tolist()), ClassMatrix(*point[4:].tolist()))

        nudges = 1e-6 * np.eye(8)
        slope = np.array([(at(here + nudge) - at(here - nudge)) / 2e-6 for nudge in nudges])
        error = INTERVAL * float(np.sqrt(max(slope @ self.covariance @ slope, 0.0)))
        return Estimate(at(here), at(here) - error, at(here) + error)


Family = Literal["all", "topics", "assumption 2"]
# Logarithms of (α, β, μ, ν) as linear functions of what is searched: all four; those with β = α, which treat all words
# of a topic alike; and those of Assumption 2, with μ = 1 and ν = β.
FAMILIES: dict[Family, Float[np.ndarray, "4 searched"]] = {
    "all": np.eye(4),
    "topics": np.array([[1.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]),
    "assumption 2": np.array([[1.0, 0], [0, 1], [0, 0], [0, 1]]),
}


def attention_optimum(counts: ClassCounts, value: ClassMatrix, family: Family = "all") -> Optimum:
    """The best weights for this W^V."""
    fixed = value.numbers[2:]
    return _optimum(counts, lambda shares: fixed, FAMILIES[family], free_value=False)


def joint_optimum(counts: ClassCounts) -> Optimum:
    """The best weights and W^V together."""
    return _optimum(counts, counts._solve, FAMILIES["all"], free_value=True)


def _optimum(
    counts: ClassCounts,
    value_at: Callable[[_Shares], Four],
    spread: Float[np.ndarray, "4 searched"],
    *,
    free_value: bool,
) -> Optimum:
    def objective(point: np.ndarray) -> tuple[float, np.ndarray]:
        shares = counts._shares(spread @ point, slopes=True)
        value = value_at(shares)
        # Where W^V is the best one the loss does not change with it: the slope by the weights is the whole slope.
        slope = counts._log_slopes(value, shares).sum(axis=1)
        return float(counts._losses(value, shares).sum()), slope @ spread

    starts = [np.linalg.lstsq(spread, np.log([alpha, beta, 1.0, 1.0]), rcond=None)[0] for alpha, beta in STARTS]
    # A weight without effect (topics of one word, no word queries) stays at 1.
    matters = abs(np.array([objective(start)[1] for start in starts])).max(axis=0) > ROUNDING
    minima = [
        scipy_minimize(
            objective,
            start * matters,
            jac=True,
            method="L-BFGS-B",
            bounds=[(-FARTHEST, FARTHEST)] * spread.shape[1],
            options={"ftol": 1e-15, "gtol": 1e-9, "maxiter": 500},
        )
        for start in starts
    ]
    best = min(minima, key=lambda minimum: float(minimum.fun))
    logs = spread @ np.asarray(best.x)
    shares, uniform = counts._shares(logs), counts._shares(np.zeros(4))
    value = value_at(shares)
    # The space in which the optimum scatters with the sample: weights that are not at an end, and W^V if it is free.
    inside = abs(logs) < FARTHEST - 1e-3
    scatters = np.zeros((8, spread.shape[1] + 4))
    scatters[:4, : spread.shape[1]] = spread * inside[:, None]
    scatters[4:, spread.shape[1] :] = free_value * np.eye(4)
    return Optimum(
        # At the lower end a weight is 0 but for rounding.
        weights=Weights(*np.where(logs > 1e-3 - FARTHEST, np.exp(logs), 0.0).tolist()),
        value=ClassMatrix(*value.tolist()),
        loss=float(1 + best.fun),
        loss_uniform=float(1 + counts._losses(value_at(uniform), uniform).sum()),
        free_value=free_value,
        attained=bool((logs < FARTHEST - 1e-3).all()),
        vocabulary=counts.vocabulary,
        covariance=_covariance(counts, logs, value, scatters),
    )


def _covariance(
    counts: ClassCounts, logs: Four, value: Four, scatters: Float[np.ndarray, "8 direction"]
) -> Float[np.ndarray, "8 8"]:
    """H⁻¹ C H⁻¹, where C is the covariance of the mean of documents' slopes: that of a minimiser of a sample mean."""

    def slopes(point: Float[np.ndarray, " 8"]) -> Float[np.ndarray, "8 row"]:
        shares = counts._shares(point[:4], slopes=True)
        return np.vstack([counts._log_slopes(point[4:], shares), counts._value_slopes(point[4:], shares)])

    here = np.concatenate([logs, value])
    # A document's slopes have its probability as a factor: the sum of their squares is the covariance of the mean.
    by_document = scatters.T @ np.add.reduceat(slopes(here), counts.documents, axis=1)
    by_document = by_document - by_document.mean(axis=1, keepdims=True)
    nudges = 1e-5 * np.eye(8)
    bend = np.array([(slopes(here + nudge) - slopes(here - nudge)).sum(axis=1) / 2e-5 for nudge in nudges])
    inverse = np.linalg.pinv(scatters.T @ (bend + bend.T) @ scatters / 2, rcond=1e-12)
    return np.asarray(scatters @ inverse @ (by_document @ by_document.T) @ inverse @ scatters.T)
