r"""Eq. 7 by classes: its loss, its gradient flow and its optima in a handful of numbers.

The distribution of documents does not change when topics, or words within topics, are renamed. So where W^V and the
logits M = W^K⊤W^Q/√d_a have one number per class (``theory/classes.py``), they stay so under gradient flow, and the
expected loss is a function of six numbers of W^V and six of M. W^K and W^Q enter only through M, W^K⊤W^K and W^Q⊤W^Q,

.. math:: \dot W^K = -\frac{W^Q G^\top}{\sqrt{d_a}}, \qquad \dot W^Q = -\frac{W^K G}{\sqrt{d_a}}, \qquad
    G = \frac{\partial L}{\partial M},

so if these are class matrices too, only G couples the modes: a number on contrasts between topics, one on those within
a topic, 2 × 2 matrices on the plane of [MASK] and the mean word. Random W^K and W^Q with entries N(0, s²)
have W^K⊤W^K = W^Q⊤W^Q = s² d_a I and W^K⊤W^Q = 0 on average; that is the start of the reduced model.

Expectations over finite documents are means over a sample, which determines these few numbers very well.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.integrate import solve_ivp
from scipy.special import logsumexp, softmax

from topicscope.errors import InputError, check_positive
from topicscope.settings.training import Loss
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.theory.classes import Modes, Six, Vocabulary

# A path that takes more evaluations of the gradient than this is given up.
MOST_LOOKS = 20_000


class Gradient(NamedTuple):
    """The expected loss's derivatives by the entries, averaged over each class."""

    value: Six
    logits: Six
    value_squares: Six
    """Mean squares of one document's derivatives by W^V, which vary from document to document."""
    logit_squares: Float[np.ndarray, "2 2"]
    """The same by the logits, summed over keys (rows) and queries (columns): [MASK], and all words."""
    second: Six
    """E[AA⊤], A a query's attention: S where it is uniform."""


@dataclass(frozen=True, eq=False)
class Rows:
    """One row per document and distinct query token in it: what attention mixes, and what is to be predicted."""

    vocabulary: Vocabulary
    frequencies: Float[np.ndarray, "row token"]
    """x̃ of the row's document."""
    query: Int[np.ndarray, " row"]
    """The token that queries."""
    targets: Float[np.ndarray, "row token"]
    """Probability of this row and of each word to predict in it; all of them sum to one."""
    document: Int[np.ndarray, " row"]
    """Which document the row is of; rows are ordered by it."""

    @classmethod
    def of(cls, documents: MaskedDocuments, vocabulary: Vocabulary) -> "Rows":
        """The rows of a sample of documents."""
        tokens = vocabulary.count + 1
        count, frequencies = len(documents), documents.frequencies(tokens)
        where = documents.document[documents.where]
        code = where * tokens + documents.tokens[documents.where]
        distinct, row = np.unique(code, return_inverse=True)
        targets = np.zeros((len(distinct), tokens))
        share = 1 / documents.masked_counts[where] / count
        np.add.at(targets, (row, documents.targets), share)
        return cls(vocabulary, frequencies[distinct // tokens], distinct % tokens, targets, distinct // tokens)

    def loss(self, value: Six, logits: Six, loss: Loss) -> float:
        """The expected loss."""
        scores, weight = self._predict(value, self._attention(logits)), self.targets.sum(axis=1)
        hit = float((scores * self.targets).sum())
        if loss == "squared":
            return float(weight.sum() - 2 * hit + weight @ (scores**2).sum(axis=1))
        return float(weight @ logsumexp(scores, axis=1) - hit)

    def distance(self, logits: Six) -> float:
        """How far word queries' attention is from uniform in total variation, on average over masked positions."""
        weight = self.targets.sum(axis=1) * (self.query > 0)
        apart = np.abs(self._attention(logits) - self.frequencies).sum(axis=1) / 2
        return float(weight @ apart / weight.sum()) if weight.any() else 0.0

    def gradient(
        self, value: Six, logits: Six, loss: Loss, noise: Six | None = None, *, squares: bool = False
    ) -> Gradient:
        """The expected loss's gradient by the entries of W^V and of M, averaged over each class.

        ``noise`` is the covariance N of W^V's columns, summed over its rows, where W^V scatters around its mean. Under
        the squared loss it costs A⊤NA at a query with attention A, whatever the mean is; under cross-entropy this is
        taken to second order. ``squares`` asks for the mean squares too, which take longer.
        """
        attention = self._attention(logits)
        scores = self._predict(value, attention)
        weight = self.targets.sum(axis=1, keepdims=True)
        if loss == "squared":
            missing = 2 * (weight * scores - self.targets)
        else:
            missing = weight * softmax(scores, axis=1) - self.targets
        pull = self._back(value, missing)
        if noise is not None:
            # Per row of W^V the loss bends by 2, or by p(1 − p).
            guess = softmax(scores, axis=1) if loss == "cross_entropy" else scores
            bend = (
                2 * weight if loss == "squared" else weight * (1 - (guess**2).sum(axis=1, keepdims=True)) / self.tokens
            )
            pull += bend * self._back(noise, attention)
        through = attention * (pull - (pull * attention).sum(axis=1, keepdims=True))
        by_logits = np.bincount(self._kind.ravel(), weights=through.ravel(), minlength=6)
        sizes = np.maximum(self.vocabulary.sizes, 1)
        spread = (np.zeros(6), np.zeros((2, 2)))
        if squares:
            spread = (self._value_squares(missing), self._logit_squares(through, attention * weight, noise, loss))
        return Gradient(
            value=self._value_sums(missing, attention) / sizes,
            logits=by_logits / sizes,
            value_squares=spread[0],
            logit_squares=spread[1],
            second=self._value_sums(weight * attention, attention) / sizes,
        )

    @property
    def tokens(self) -> int:
        """V."""
        return self.vocabulary.count + 1

    @cached_property
    def documents(self) -> tuple[Int[np.ndarray, " document"], Float[np.ndarray, "document token"]]:
        """Where each document's rows begin, and its frequencies."""
        first = np.flatnonzero(np.diff(self.document, prepend=-1))
        return first, self.frequencies[first]

    def _value_squares(self, missing: Float[np.ndarray, "row token"]) -> Six:
        """E[(r_i x̃_j)²] by class, r a document's residual: attention is taken as uniform."""
        first, x = self.documents
        residual = np.add.reduceat(missing, first, axis=0) * len(first)
        return self._value_sums(residual**2 / len(first), x**2) / np.maximum(self.vocabulary.sizes, 1)

    def _logit_squares(
        self,
        through: Float[np.ndarray, "row token"],
        weighted: Float[np.ndarray, "row token"],
        noise: Six | None,
        loss: Loss,
    ) -> Float[np.ndarray, "2 2"]:
        """Mean squares of a document's gradient by logits, summed: keys by queries, [MASK] and words each."""
        squares = through**2
        if noise is not None:
            # A predicted word's own row of W^V scatters too.
            squares = squares + (4 if loss == "squared" else 1) * noise[3] / self.tokens * weighted**2
        by_key = np.column_stack([squares[:, 0], squares[:, 1:].sum(axis=1)])
        of_mask = by_key[self.query == 0].sum(axis=0)
        return len(self.documents[0]) * np.column_stack([of_mask, by_key.sum(axis=0) - of_mask])

    @cached_property
    def _kind(self) -> Int[np.ndarray, "row token"]:
        """The class of each key with the row's query; in a class matrix rows are keys, columns queries."""
        return self.vocabulary.kinds[:, self.query].T

    def _attention(self, logits: Six) -> Float[np.ndarray, "row token"]:
        weights = self.frequencies * np.exp(logits - logits.max())[self._kind]
        return weights / weights.sum(axis=1, keepdims=True)

    def _topic_sums(self, words: Float[np.ndarray, "row word"]) -> Float[np.ndarray, "row word"]:
        """At each word, the sum over the words of its topic."""
        sums = words.reshape(len(words), self.vocabulary.topics, self.vocabulary.words).sum(axis=2)
        return np.repeat(sums, self.vocabulary.words, axis=1)

    def _predict(self, value: Six, attention: Float[np.ndarray, "row token"]) -> Float[np.ndarray, "row token"]:
        """W^V A; A sums to one."""
        return self._product(value, attention, 1 - attention[:, :1])

    def _back(self, value: Six, missing: Float[np.ndarray, "row token"]) -> Float[np.ndarray, "row token"]:
        """W^V⊤ r: the same with the [MASK] row and column exchanged."""
        return self._product(value[[0, 2, 1, 3, 4, 5]], missing, missing[:, 1:].sum(axis=1, keepdims=True))

    def _product(
        self, value: Six, rows: Float[np.ndarray, "row token"], total: Float[np.ndarray, "row 1"]
    ) -> Float[np.ndarray, "row token"]:
        """The class matrix times each row, whose words sum to ``total``."""
        mask_mask, mask_row, mask_column, same_word, same_topic, different = value
        mask, words = rows[:, :1], rows[:, 1:]
        product = np.empty_like(rows)
        product[:, :1] = mask_mask * mask + mask_row * total
        product[:, 1:] = (
            mask_column * mask
            + different * total
            + (same_topic - different) * self._topic_sums(words)
            + (same_word - same_topic) * words
        )
        return product

    def _value_sums(self, missing: Float[np.ndarray, "row token"], attention: Float[np.ndarray, "row token"]) -> Six:
        """Σ r_i A_a over the entries of each class."""
        mask, words = attention[:, 0], attention[:, 1:]
        total, seen = missing[:, 1:].sum(axis=1), words.sum(axis=1)
        own = float((missing[:, 1:] * words).sum())
        topic = float((missing[:, 1:] * self._topic_sums(words)).sum())
        of_mask = missing[:, 0]
        return np.array(
            [of_mask @ mask, of_mask @ seen, total @ mask, own, topic - own, total @ seen - topic], dtype=float
        )


# Where the six numbers of a matrix on its modes are.
NUMBERS = (np.array([0, 1, 2, 2, 3, 3]), np.array([0, 1, 2, 3, 2, 3]))


@dataclass(frozen=True, eq=False)
class Reduced:
    """W^V by its six entries, and the products of W^K and W^Q, all that the loss and its gradient flow see of them."""

    value: Six
    key: Modes
    """W^K⊤W^K."""
    query: Modes
    """W^Q⊤W^Q."""
    cross: Modes
    """W^K⊤W^Q."""
    noise: Modes
    """How W^V scatters around its mean: the covariance of its columns, summed over its rows."""

    @classmethod
    def start(cls, scale: float, width: int, *, noise: float = 0.0) -> "Reduced":
        """W^V at zero, and W^K and W^Q as random N(0, s²) matrices of ``width`` rows are on average."""
        check_positive("scale", scale)
        square = scale**2 * width * np.eye(4)
        return cls(np.zeros(6), square, square, np.zeros((4, 4)), noise * np.eye(4))

    def flat(self) -> Float[np.ndarray, " 30"]:
        """All numbers in one row."""
        products = (self.key, self.query, self.cross, self.noise)
        return np.concatenate([self.value, *(modes[NUMBERS] for modes in products)])

    @classmethod
    def of(cls, flat: Float[np.ndarray, " 30"]) -> "Reduced":
        """The same from one row."""
        products = np.zeros((4, 4, 4))
        products[:, *NUMBERS] = flat[6:].reshape(4, 6)
        return cls(flat[:6], *products)

    def logits(self, vocabulary: Vocabulary, width: int) -> Six:
        """M by classes."""
        return vocabulary.classes(self.cross / np.sqrt(width))


def _no_change() -> Modes:
    return np.zeros((4, 4))


@dataclass(frozen=True, eq=False)
class Rates:
    """What an optimiser makes of a gradient per unit of time; plain gradient flow if nothing is given."""

    value: Six = field(default_factory=lambda: np.ones(6))
    """Learning rates of each class of W^V."""
    key: Modes = field(default_factory=lambda: np.eye(4))
    """Learning rates of W^K's columns, a diagonal matrix: one for [MASK]'s, one for all words'."""
    query: Modes = field(default_factory=lambda: np.eye(4))
    key_spread: Modes = field(default_factory=_no_change)
    """What noise adds to W^K⊤W^K."""
    query_spread: Modes = field(default_factory=_no_change)
    noise_decay: Modes = field(default_factory=_no_change)
    """X in dN/dt = −XN − NX⊤ + what is added."""
    noise_spread: Modes = field(default_factory=_no_change)


def velocity(state: Reduced, gradient: Gradient, vocabulary: Vocabulary, width: int, rates: Rates) -> Reduced:
    r"""What gradient flow adds per unit of time.

    With G the gradient by the logits and D the rates of the columns,

    .. math::
        \tfrac{d}{dt} W^{K\top} W^Q = -\big(D_K G\, W^{Q\top} W^Q + W^{K\top} W^K G D_Q\big) / \sqrt{d_a}

    and likewise for the other two products.
    """
    slope = vocabulary.modes(gradient.logits) / -np.sqrt(width)
    by_key, by_query = rates.key @ slope, slope @ rates.query
    own_key, own_query = state.cross @ by_key.T, state.cross.T @ by_query
    fading = -rates.noise_decay @ state.noise
    return Reduced(
        -rates.value * gradient.value,
        own_key + own_key.T + rates.key_spread,
        own_query + own_query.T + rates.query_spread,
        by_key @ state.query + state.key @ by_query,
        fading + fading.T + rates.noise_spread,
    )


# The learning rates at a state, where the gradient is this.
Optimiser = Callable[[Reduced, Gradient], Rates]


def flow(
    gradient_at: Callable[..., Gradient],
    size: Vocabulary,
    loss: Loss,
    start: Reduced,
    times: Float[np.ndarray, " time"],
    *,
    width: int,
    optimiser: Optimiser = lambda state, gradient: Rates(),
    enough: Callable[[Reduced], float] | None = None,
    squares: bool = False,
    tolerance: float = 1e-5,
    most_looks: int = MOST_LOOKS,
) -> tuple[Float[np.ndarray, " reached"], list[Reduced]]:
    """Gradient flow of W^V, W^K and W^Q from ``start`` (at time 0), at these times (learning rate × steps).

    ``gradient_at`` is the gradient of ``Rows``, or a more exact one.
    If ``enough`` is given, the path and its times end where it passes zero. An ``optimiser`` that uses the gradient's
    mean squares asks for them with ``squares``.
    """
    looks = count()

    def move(_: float, flat: Float[np.ndarray, " 30"]) -> Float[np.ndarray, " 30"]:
        if next(looks) == most_looks:
            raise InputError(
                f"The reduced model needs more than {most_looks:,} looks at the documents; give fewer steps."
            )
        here = Reduced.of(flat)
        noise = size.classes(here.noise) if flat[24:].any() else None
        gradient = gradient_at(here.value, here.logits(size, width), loss, noise, squares=squares)
        return velocity(here, gradient, size, width, optimiser(here, gradient)).flat()

    def ended(_: float, flat: Float[np.ndarray, " 30"]) -> float:
        assert enough is not None
        return enough(Reduced.of(flat))

    ended.terminal = True  # type: ignore[attr-defined]
    first = start.flat()
    # W^V's entries, the products of W^K and W^Q, and the noise are of very different sizes.
    small = np.concatenate([np.full(6, 1e-3), np.full(18, first[6]), np.full(6, 1e-4)])
    solution = solve_ivp(
        move,
        (0.0, float(times[-1])),
        first,
        "LSODA",
        t_eval=times,
        rtol=tolerance,
        atol=tolerance * small,
        events=None if enough is None else ended,
    )
    if not solution.success:
        raise InputError(f"The reduced model could not be followed to time {times[-1]:g}: {solution.message}")
    at, numbers = solution.t, solution.y.T
    if enough is not None and solution.t_events is not None and len(solution.t_events[0]):
        assert solution.y_events is not None
        at, numbers = np.append(at, solution.t_events[0][0]), np.vstack([numbers, solution.y_events[0][0]])
    return at, [Reduced.of(flat) for flat in numbers]
