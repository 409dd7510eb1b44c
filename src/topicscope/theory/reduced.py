r"""Eq. 7 by classes: its loss, its gradient flow and its optima in a handful of numbers.

Documents do not change when topics, or words within topics, are renamed. So where W^V and the logits M = W^K⊤W^Q/√d_a
have one number per class (``theory/classes.py``) they keep having one under gradient flow, and the expected loss is a
function of six numbers of W^V and six of M. W^K and W^Q enter through M and through W^K⊤W^K and W^Q⊤W^Q alone,

.. math:: \dot W^K = -\frac{W^Q G^\top}{\sqrt{d_a}}, \qquad \dot W^Q = -\frac{W^K G}{\sqrt{d_a}}, \qquad
    G = \frac{\partial L}{\partial M},

so if these are class matrices too, each mode evolves on its own but for G: a number on contrasts between topics, one on
those within a topic, 2 × 2 matrices on the plane of [MASK] and the mean word. Random W^K and W^Q with entries N(0, s²)
have W^K⊤W^K = W^Q⊤W^Q = s² d_a I and W^K⊤W^Q = 0 on average; that is the start of the reduced model.

Expectations over finite documents are means over a sample, which determines so few numbers very well; those over
infinite documents need one document (``Rows.infinite``).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.integrate import solve_ivp
from scipy.special import logsumexp, softmax

from topicscope.errors import InputError, check_positive
from topicscope.settings.data import Data, Masking
from topicscope.settings.training import Average, Loss
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.synthetic.masking import mask_documents
from topicscope.synthetic.topics import TopicModel, sample_documents
from topicscope.theory.classes import Modes, Six, Vocabulary

# Rows of this many numbers in all are looked at in one go.
MOST_NUMBERS = 50_000_000


class Gradient(NamedTuple):
    """The expected loss, and its derivatives by a class's entries, each on average over the class."""

    loss: float
    value: Six
    logits: Six


@dataclass(frozen=True, eq=False)
class Rows:
    """One row per document and distinct token that queries in it: what attention mixes, and what is to be predicted."""

    vocabulary: Vocabulary
    frequencies: Float[np.ndarray, "row token"]
    """x̃ of the row's document."""
    query: Int[np.ndarray, " row"]
    """The token that queries."""
    targets: Float[np.ndarray, "row token"]
    """Probability of this row and of each word to predict in it; all of them sum to one."""

    @classmethod
    def infinite(cls, topics: int, words: int, per_document: int, masking: Masking) -> "Rows":
        """Assumption 1's documents: that of the first τ topics stands for all, and one query for each kind."""
        size = Vocabulary(topics, words)
        if 4 * (size.count + 1) > MOST_NUMBERS:
            raise InputError(f"topics · words = {size.count} is not allowed here: give fewer, the model lists all words.")
        original = np.zeros(size.count + 1)
        original[1 : per_document * words + 1] = 1 / (per_document * words)
        hidden = np.full(size.count + 1, masking.random / size.count)
        hidden[0] = masking.replaced
        seen = (1 - masking.mask + masking.mask * masking.keep) * original + masking.mask * hidden
        inside = per_document / topics
        kept = np.eye(1, size.count + 1, 1)[0]
        kinds = [
            (0, masking.replaced * original),
            (1, masking.keep * kept),
            (1, masking.random * inside * original),
            (size.count, masking.random * (1 - inside) * original),
        ]
        some = [(query, target) for query, target in kinds if target.any()]
        return cls(
            size,
            np.broadcast_to(seen, (len(some), size.count + 1)),
            np.array([query for query, _ in some]),
            np.array([target for _, target in some]),
        )

    @classmethod
    def of(cls, documents: MaskedDocuments, vocabulary: Vocabulary, average: Average = "document") -> "Rows":
        """Those of a sample."""
        tokens = vocabulary.count + 1
        count = len(documents)
        frequencies = np.zeros((count, tokens))
        np.add.at(frequencies, (documents.document, documents.tokens), 1.0)
        frequencies /= documents.lengths[:, None]
        where = documents.document[documents.where]
        code = where * tokens + documents.tokens[documents.where]
        distinct, row = np.unique(code, return_inverse=True)
        targets = np.zeros((len(distinct), tokens))
        share = 1 / documents.masked_counts[where] / count if average == "document" else 1 / len(where)
        np.add.at(targets, (row, documents.targets), share)
        return cls(vocabulary, frequencies[distinct // tokens], distinct % tokens, targets)

    def loss(self, value: Six, logits: Six, loss: Loss) -> float:
        """The expected loss."""
        attention = self._attention(logits)
        return self._losses(self._predict(value, attention), loss)

    def gradient(self, value: Six, logits: Six, loss: Loss) -> Gradient:
        """The loss and its gradient by the entries of W^V and of M: those of one entry of each class."""
        attention = self._attention(logits)
        scores = self._predict(value, attention)
        weight = self.targets.sum(axis=1, keepdims=True)
        if loss == "squared":
            missing = 2 * (weight * scores - self.targets)
        else:
            missing = weight * softmax(scores, axis=1) - self.targets
        pull = self._back(value, missing)
        through = attention * (pull - (pull * attention).sum(axis=1, keepdims=True))
        by_logits = np.bincount(self._kind.ravel(), weights=through.ravel(), minlength=6)
        sizes = np.maximum(self.vocabulary.sizes, 1)
        return Gradient(self._losses(scores, loss), self._value_sums(missing, attention) / sizes, by_logits / sizes)

    @property
    def _kind(self) -> Int[np.ndarray, "row token"]:
        """The class of (key, query) for each key: row the key, column the query."""
        cached = self.__dict__.get("_kinds")
        if cached is None:
            words = self.vocabulary.words
            key, query = np.arange(self.vocabulary.count + 1), self.query[:, None]
            topic, own = (key - 1) // words, (query - 1) // words
            cached = np.where(key == query, 3, np.where(topic == own, 4, 5))
            cached = np.where(query == 0, 2, np.where(key == 0, 1, cached))
            cached = np.where((query == 0) & (key == 0), 0, cached)
            self.__dict__["_kinds"] = cached
        return cached

    def _attention(self, logits: Six) -> Float[np.ndarray, "row token"]:
        weights = self.frequencies * np.exp(logits - logits.max())[self._kind]
        return weights / weights.sum(axis=1, keepdims=True)

    def _topic_sums(self, words: Float[np.ndarray, "row word"]) -> Float[np.ndarray, "row word"]:
        """At each word, the sum over the words of its topic."""
        sums = words.reshape(len(words), self.vocabulary.topics, self.vocabulary.words).sum(axis=2)
        return np.repeat(sums, self.vocabulary.words, axis=1)

    def _predict(self, value: Six, attention: Float[np.ndarray, "row token"]) -> Float[np.ndarray, "row token"]:
        """W^V A."""
        mask_mask, mask_row, mask_column, same_word, same_topic, different = value
        mask, words = attention[:, :1], attention[:, 1:]
        scores = np.empty_like(attention)
        scores[:, :1] = mask_mask * mask + mask_row * (1 - mask)
        scores[:, 1:] = (
            mask_column * mask
            + different * (1 - mask)
            + (same_topic - different) * self._topic_sums(words)
            + (same_word - same_topic) * words
        )
        return scores

    def _back(self, value: Six, missing: Float[np.ndarray, "row token"]) -> Float[np.ndarray, "row token"]:
        """W^V⊤ r: the same with the [MASK] row and column exchanged."""
        mask_mask, mask_row, mask_column, same_word, same_topic, different = value
        mask, words = missing[:, :1], missing[:, 1:]
        total = words.sum(axis=1, keepdims=True)
        pull = np.empty_like(missing)
        pull[:, :1] = mask_mask * mask + mask_column * total
        pull[:, 1:] = (
            mask_row * mask
            + different * total
            + (same_topic - different) * self._topic_sums(words)
            + (same_word - same_topic) * words
        )
        return pull

    def _value_sums(self, missing: Float[np.ndarray, "row token"], attention: Float[np.ndarray, "row token"]) -> Six:
        """Σ r_i A_a over the entries of each class."""
        mask, words = attention[:, 0], attention[:, 1:]
        total = missing[:, 1:].sum(axis=1)
        own = float((missing[:, 1:] * words).sum())
        topic = float((missing[:, 1:] * self._topic_sums(words)).sum())
        everything = float(total @ (1 - mask))
        of_mask = missing[:, 0]
        return np.array(
            [of_mask @ mask, of_mask @ (1 - mask), total @ mask, own, topic - own, everything - topic], dtype=float
        )

    def _losses(self, scores: Float[np.ndarray, "row token"], loss: Loss) -> float:
        weight = self.targets.sum(axis=1)
        hit = float((scores * self.targets).sum())
        if loss == "squared":
            return float(weight.sum() - 2 * hit + weight @ (scores**2).sum(axis=1))
        return float(weight @ logsumexp(scores, axis=1) - hit)


def sampled_rows(
    data: Data, masking: Masking, documents: int, *, generator: np.random.Generator, average: Average = "document"
) -> Rows:
    """Rows of so many documents drawn afresh."""
    model = TopicModel.from_settings(data)
    if model.equal_words is None:
        raise InputError("Classes are those of T disjoint topics of v equally likely words; leave data.topic_words out.")
    size = Vocabulary(model.topics, model.equal_words)
    drawn = sample_documents(model, documents, generator=generator)
    return Rows.of(mask_documents(drawn, masking, model.vocabulary, generator=generator), size, average)


@dataclass(frozen=True, eq=False)
class Reduced:
    """W^V by its six entries; W^K and W^Q on each mode.

    On each mode W^K and W^Q live in the plane (or, for the two-dimensional one, in four dimensions) that the start
    spans: only their products matter, and training never leaves it.
    """

    value: Six
    key_topic: Float[np.ndarray, " 2"]
    query_topic: Float[np.ndarray, " 2"]
    key_word: Float[np.ndarray, " 2"]
    query_word: Float[np.ndarray, " 2"]
    key_plane: Float[np.ndarray, "4 2"]
    query_plane: Float[np.ndarray, "4 2"]

    @classmethod
    def start(cls, scale: float, width: int, value: Six | None = None) -> "Reduced":
        """W^V at zero, or as given; W^K and W^Q as random matrices N(0, s²) of ``width`` rows are on average."""
        check_positive("scale", scale)
        norm = scale * np.sqrt(width)
        one, two = norm * np.eye(2)
        four = norm * np.eye(4)
        return cls(np.zeros(6) if value is None else value, one, two, one, two, four[:, :2], four[:, 2:])

    def flat(self) -> Float[np.ndarray, " number"]:
        """All numbers in one row."""
        return np.concatenate([np.ravel(each) for each in self.__dict__.values()])

    @classmethod
    def of(cls, flat: Float[np.ndarray, " number"]) -> "Reduced":
        """The same from one row."""
        value, kt, qt, kw, qw, kp, qp = np.split(flat, np.cumsum([6, 2, 2, 2, 2, 8]))
        return cls(value, kt, qt, kw, qw, kp.reshape(4, 2), qp.reshape(4, 2))

    def logits(self, vocabulary: Vocabulary, width: int) -> Six:
        """M by classes."""
        root = np.sqrt(width)
        return vocabulary.classes(
            Modes(
                float(self.key_topic @ self.query_topic) / root,
                float(self.key_word @ self.query_word) / root,
                self.key_plane.T @ self.query_plane / root,
            )
        )

    def downhill(self, gradient: Gradient, vocabulary: Vocabulary, width: int, ridge: float = 0.0) -> "Reduced":
        """Minus the gradient, as what gradient flow adds per unit of time."""
        slope, root = vocabulary.modes(gradient.logits), np.sqrt(width)
        return Reduced(
            -gradient.value - 2 * ridge * self.value,
            -slope.topic * self.query_topic / root - 2 * ridge * self.key_topic,
            -slope.topic * self.key_topic / root - 2 * ridge * self.query_topic,
            -slope.same_word * self.query_word / root - 2 * ridge * self.key_word,
            -slope.same_word * self.key_word / root - 2 * ridge * self.query_word,
            -self.query_plane @ slope.plane.T / root - 2 * ridge * self.key_plane,
            -self.key_plane @ slope.plane / root - 2 * ridge * self.query_plane,
        )


@dataclass(frozen=True, eq=False)
class Path:
    """The reduced model at given times."""

    times: Float[np.ndarray, " time"]
    value: Float[np.ndarray, "time 6"]
    logits: Float[np.ndarray, "time 6"]
    states: tuple[Reduced, ...]


def flow(
    rows: Rows,
    loss: Loss,
    start: Reduced,
    times: Float[np.ndarray, " time"],
    *,
    width: int,
    ridge: float = 0.0,
    tolerance: float = 1e-6,
) -> Path:
    """Gradient flow of W^V, W^K and W^Q from ``start`` (at time 0); time is learning rate times steps."""

    def move(_: float, flat: Float[np.ndarray, " number"]) -> Float[np.ndarray, " number"]:
        here = Reduced.of(flat)
        gradient = rows.gradient(here.value, here.logits(rows.vocabulary, width), loss)
        return here.downhill(gradient, rows.vocabulary, width, ridge).flat()

    scale = np.abs(start.flat()).max()
    found = solve_ivp(
        move, (0.0, float(times[-1])), start.flat(), "LSODA", t_eval=times, rtol=tolerance, atol=tolerance * 1e-3 * scale
    )
    if not found.success:
        raise InputError(f"The reduced model could not be followed to time {times[-1]:g}: {found.message}")
    states = tuple(Reduced.of(flat) for flat in found.y.T)
    return Path(
        times,
        np.array([state.value for state in states]),
        np.array([state.logits(rows.vocabulary, width) for state in states]),
        states,
    )
