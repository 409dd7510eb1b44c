r"""Optima for finite documents: of attention for a given W^V, and of W^V and attention together.

By symmetry the best attention has one weight per class. A word query gives 1 to words of other topics, α to other words
of its topic, β to its own word and μ to [MASK]; a [MASK] query gives 1 to words and ν to [MASK]. Theorem 3's family has
μ = 1 and ν = β. W^V has four numbers w (its [MASK] row is zero, since nothing is gained by predicting [MASK]).

At fixed attention the loss is 1 − 2 r·w + w·S·w. With token frequencies x, m that of [MASK], query q of topic t, and Z
the sum of all weights,

.. math::
    Z = \mu m + \beta x_q + \alpha X_t' + D,

where X_t' is the frequency of the topic's other words and D that of all others, and S and r follow from what [MASK]
gets, M = μm/Z, from the sums T₂ and w₂ of squares of what topics and single words get, and from what the target and its
topic get. So an expectation over documents of any T and v is one over a dozen numbers per query. They are sampled, and
the joint optimum is a search over four weights with W^V solved for (``joint_optimum``). docs/theory-dynamics.md has the
derivation.
"""

from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import minimize as scipy_minimize

from topicscope.errors import check_at_least
from topicscope.measure.uncertainty import Interval, student_interval
from topicscope.settings.data import Data, Masking
from topicscope.synthetic.masking import mask_documents
from topicscope.synthetic.topics import TopicModel, sample_documents
from topicscope.theory.classes import ClassMatrix, Vocabulary
from topicscope.theory.reduced import Rows

# Weights are searched between e^−this and e^this; at the ends they are 0 or ∞ but for rounding.
FARTHEST = 12.0
# A weight that changes the loss by less than this is without effect.
ROUNDING = 1e-14
# Groups of documents, each of which is left out once to see how an optimum scatters.
GROUPS = 20
# How far logarithms of weights are moved to see how the loss bends.
STEP = 1e-3
# Where the search begins, as (α, β): attention to topics, and to the same word.
STARTS = ((6.0, 6.0), (0.5, 30.0))

Four = Float[np.ndarray, " 4"]
PerRow = Float[np.ndarray, " row"]


@dataclass(frozen=True)
class Weights:
    """Attention's weights by class."""

    alpha: float = 1.0
    """α: same topic."""
    beta: float = 1.0
    """β: same word."""
    word_on_mask: float = 1.0
    """μ: word queries on [MASK]."""
    mask_on_mask: float = 1.0
    """ν: [MASK] queries on [MASK]."""


@dataclass(frozen=True, eq=False)
class ClassCounts:
    """One row per document and distinct query token in it: sums over classes of words, and over the targets."""

    vocabulary: Vocabulary
    groups: Int[np.ndarray, " group"]
    """The first row of each group of documents."""
    weight: PerRow
    """The share of masked positions that have this document and query; all sum to one."""
    by_mask: Bool[np.ndarray, " row"]
    """Whether [MASK] queries."""
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
    def of(cls, rows: Rows) -> "ClassCounts":
        """The sums of these rows."""
        x, targets, at = rows.frequencies[:, 1:], rows.targets[:, 1:], np.arange(len(rows.query))
        is_word = rows.query > 0
        word = np.maximum(rows.query - 1, 0)
        topic = word // rows.vocabulary.words

        def by_topic(values: Float[np.ndarray, "row word"]) -> tuple[Float[np.ndarray, "row topic"], PerRow]:
            """Sums over topics, and that over the query's own."""
            sums = values.reshape(len(values), rows.vocabulary.topics, -1).sum(axis=2)
            return sums, sums[at, topic] * is_word

        (sums, own), (squares, own_squares) = by_topic(x), by_topic(x**2)
        (target_sums, own_target), (hits, own_hits) = by_topic(targets), by_topic(targets * x)
        query, target_query = x[at, word] * is_word, targets[at, word] * is_word
        first = np.linspace(0, rows.document[-1] + 1, GROUPS + 1)[:-1]
        return cls(
            vocabulary=rows.vocabulary,
            groups=np.unique(np.searchsorted(rows.document, np.ceil(first))),
            weight=rows.targets.sum(axis=1),
            by_mask=~is_word,
            mask=rows.frequencies[:, 0],
            query=query,
            topic=own - query,
            topic_squares=np.maximum(own_squares - query**2, 0.0),
            other_topic_squares=(sums**2).sum(axis=1) - own**2,
            other_squares=squares.sum(axis=1) - own_squares,
            target_query=target_query,
            target_topic=own_target,
            target_topic_own=own_hits - target_query * query,
            target_other_own=hits.sum(axis=1) - own_hits,
            target_other_topic=(target_sums * sums).sum(axis=1) - own_target * own,
        )

    def loss(self, value: ClassMatrix, weights: Weights) -> float:
        """The expected squared loss."""
        square, cross = (part.sum(axis=0) for part in self.quadratic(weights))
        return _loss(value.numbers[2:], square, cross)

    def quadratic(self, weights: Weights) -> tuple[Float[np.ndarray, "group 4 4"], Float[np.ndarray, "group 4"]]:
        """S and r of the loss in W^V's four numbers at these weights, group by group."""
        n, v, alpha, beta = self.vocabulary.count, self.vocabulary.words, weights.alpha, weights.beta
        to_mask = np.where(self.by_mask, weights.mask_on_mask, weights.word_on_mask) * self.mask
        to_query, to_topic = beta * self.query, alpha * self.topic
        z = to_mask + to_query + to_topic + (1 - self.mask - self.query - self.topic)
        mask, own_topic, own_word = to_mask / z, (to_query + to_topic) / z, to_query / z
        terms = [
            self.weight * mask**2,
            self.weight * mask * (1 - mask),
            self.weight * (1 - mask) ** 2,
            self.weight * (own_topic**2 + self.other_topic_squares / z**2),
            self.weight * (own_word**2 + (alpha**2 * self.topic_squares + self.other_squares) / z**2),
            self.weight * mask,
            self.weight * (1 - mask),
            self.target_query * own_word + (alpha * self.target_topic_own + self.target_other_own) / z,
            self.target_topic * own_topic + self.target_other_topic / z,
        ]
        mm, ml, ll, tt, ww, hit_mask, hit, own, topic = np.add.reduceat(terms, self.groups, axis=1)
        square = np.array(
            [
                [n * mm, ml, (v - 1) * ml, (n - v) * ml],
                [ml, ww, tt - ww, ll - tt],
                [(v - 1) * ml, tt - ww, (v - 2) * tt + ww, (v - 1) * (ll - tt)],
                [(n - v) * ml, ll - tt, (v - 1) * (ll - tt), (n - 2 * v) * ll + v * tt],
            ]
        )
        return np.moveaxis(square, 2, 0), np.array([hit_mask, own, topic - own, hit - topic]).T


def sampled_counts(data: Data, masking: Masking, documents: int, *, generator: np.random.Generator) -> ClassCounts:
    """The class counts of so many freshly drawn documents."""
    check_at_least("documents", documents, 2)
    size, model = Vocabulary.of(data), TopicModel.from_settings(data)
    drawn = sample_documents(model, documents, shuffled=False, generator=generator)
    masked = mask_documents(drawn, masking, model.vocabulary, generator=generator)
    return ClassCounts.of(Rows.of(masked, size))


@dataclass(frozen=True)
class SampledOptimum:
    """The best weights on sampled documents, and W^V beside them; averages with 95 % intervals over documents."""

    weights: Weights
    """Weight."""
    value: ClassMatrix
    weighted_average: Interval
    """((v − 1)α + β)/v."""
    block_share: Interval
    """Share of the weight on itself that two words of a topic have in W^V; 1 for blocks, 0 for a diagonal."""
    loss: float
    """Loss."""
    loss_uniform: float
    """Loss at uniform attention; with the same W^V, or with the best one there if W^V is free."""
    attained: bool
    """False if a weight has gone to ∞; one that has gone to 0 is attained."""


Family = Literal["all", "topics", "assumption 2"]
# Logarithms of (α, β, μ, ν) as linear functions of what is searched: all four; those with β = α, which treat all words
# of a topic alike; and those of Assumption 2, with μ = 1 and ν = β.
FAMILIES: dict[Family, Float[np.ndarray, "4 searched"]] = {
    "all": np.eye(4),
    "topics": np.array([[1.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]),
    "assumption 2": np.array([[1.0, 0], [0, 1], [0, 0], [0, 1]]),
}


def attention_optimum(counts: ClassCounts, value: ClassMatrix, family: Family = "all") -> SampledOptimum:
    """The best weights for this W^V."""
    return _optimum(counts, value.numbers[2:], FAMILIES[family])


def joint_optimum(counts: ClassCounts) -> SampledOptimum:
    """The best weights and W^V together."""
    return _optimum(counts, None, FAMILIES["all"])


def _optimum(counts: ClassCounts, fixed: Four | None, spread: Float[np.ndarray, "4 searched"]) -> SampledOptimum:
    size, every, quadratic = spread.shape[1], np.ones(len(counts.groups), dtype=bool), cache(counts.quadratic)

    def at(point: np.ndarray, groups: Bool[np.ndarray, " group"] = every) -> tuple[float, Four]:
        """The loss over some groups of documents, and W^V."""
        weights = Weights(*np.exp(spread @ point).tolist())
        square, cross = (part[groups].sum(axis=0) for part in quadratic(weights))
        # Classes without entries (v = 1, T = 1), and [MASK] where it never occurs, are zero rows.
        value = np.linalg.lstsq(square, cross, rcond=1e-13)[0] if fixed is None else fixed
        return _loss(value, square, cross), value

    def objective(point: Float[np.ndarray, " searched"]) -> float:
        return at(point)[0]

    # A weight without effect (topics of one word, no word queries) stays at 1.
    matters = np.array([abs(objective(nudge) - objective(0 * nudge)) > ROUNDING for nudge in np.eye(size)])
    bounds = [(-FARTHEST, FARTHEST) if moves else (0.0, 0.0) for moves in matters]
    starts = [np.linalg.lstsq(spread, np.log([alpha, beta, 1.0, 1.0]), rcond=None)[0] for alpha, beta in STARTS]
    minima = [
        scipy_minimize(
            objective,
            start * matters,
            jac="3-point",
            method="L-BFGS-B",
            bounds=bounds,
            options={"ftol": 1e-15, "gtol": 1e-9, "maxiter": 500},
        )
        for start in starts
    ]
    best = np.asarray(min(minima, key=lambda minimum: float(minimum.fun)).x)
    logs, (loss, value) = spread @ best, at(best)
    # Weights at an end stay there.
    nudges = STEP * np.eye(size)[matters & (abs(best) < FARTHEST - 1e-3)]

    def moved(groups: Bool[np.ndarray, " group"]) -> Float[np.ndarray, " searched"]:
        """The optimum over some groups, by a Newton step from that over all."""

        def loss(move: Float[np.ndarray, " searched"]) -> float:
            return at(best + move, groups)[0]

        slope = np.array([loss(one) - loss(-one) for one in nudges])
        bend = np.array([[loss(a + b) + loss(-a - b) - loss(a - b) - loss(b - a) for a in nudges] for b in nudges])
        return best - 2 * np.linalg.lstsq(bend, slope)[0] @ nudges if len(nudges) else best

    def numbers(
        point: Float[np.ndarray, " searched"], groups: Bool[np.ndarray, " group"] = every
    ) -> Float[np.ndarray, " 2"]:
        """The weighted average and the block share."""
        alpha, beta = np.exp(spread @ point)[:2]
        _, same_word, same_topic, different = at(point, groups)[1]
        average = ((counts.vocabulary.words - 1) * alpha + beta) / counts.vocabulary.words
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.array([average, (same_topic - different) / (same_word - different)])

    # The jackknife: how the numbers scatter as one group after another is left out.
    without = [every ^ one for one in np.eye(len(every), dtype=bool)]
    scattered = np.array([numbers(moved(groups), groups) for groups in without])
    average, share = map(_jackknifed, numbers(best), scattered.T)
    return SampledOptimum(
        # At the lower end a weight is 0 but for rounding.
        weights=Weights(*np.where(logs > 1e-3 - FARTHEST, np.exp(logs), 0.0).tolist()),
        value=ClassMatrix(*value.tolist()),
        weighted_average=average,
        block_share=share,
        loss=loss,
        loss_uniform=at(np.zeros(size))[0],
        attained=bool((logs < FARTHEST - 1e-3).all()),
    )


def _loss(value: Four, square: Float[np.ndarray, "4 4"], cross: Four) -> float:
    return float(1 - 2 * value @ cross + value @ square @ value)


def _jackknifed(value: float, others: Float[np.ndarray, " group"]) -> Interval:
    """A number from all groups, and its interval from those with one group left out."""
    spread = student_interval((len(others) - 1) * others)
    half = spread.high - spread.value
    return Interval(float(value), float(value - half), float(value + half))
