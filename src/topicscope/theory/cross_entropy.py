r"""Cross-entropy under uniform attention: the loss of any W^V, its convex optimum, and where that goes with length.

The loss is convex in W and does not change when topics, or words within topics, are renamed. Nor does λ‖W‖², which is
strictly convex: the minimiser of the expected loss plus λ‖W‖² is unique and treats all words and topics alike. It has
six different entries, and a sample determines six numbers very well where it would not determine V² entries.

Without L2 the loss sees two combinations of the six. A word's score is W x̃ = W_{i0}m + W_d(1 − m) + κ₁X_{t(i)} + κ₂x_i
with κ₁ = W_t − W_d, κ₂ = W_s − W_t. The first two terms are the same for all words, and [MASK]'s own score goes to −∞.
What is left is K = κ₁ + κ₂/v on contrasts between topics, and κ₂ on those within.

As N → ∞ (docs/theory-dynamics.md has the proof; A = 1 − (1 − p_c)p_m, B = p_m p_r)

.. math:: \kappa_2 \to \frac{p_c v}{A\, E\sum_t \theta_t^2 + B/T},

and for LDA documents K tends to the solution of E[Σθ_t softmax_t(KAθ)] = E[Σθ_t²]. For documents of τ ≥ 2 topics it
goes to ∞ as (τ/A) log N: to leading order

.. math:: \frac{A}{\tau}\,\frac{T-\tau}{\tau}\, e^{-KA/\tau} = \frac{1 - 1/\tau}{N} (K p - p_c), \qquad
    p = \frac{A}{\tau} + \frac{B}{T}.

The left side is what words of absent topics still cost; the right is what chance imbalances between the document's own
topics cost.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import sparse
from scipy.optimize import brentq
from scipy.special import logsumexp, softmax

from topicscope.errors import InputError, check_at_least, check_positive
from topicscope.settings.data import Data, Masking
from topicscope.synthetic.documents import Bags
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.classes import ClassMatrix
from topicscope.theory.finite_documents import topic_moments

# Newton's method stops when a step promises less than this, and takes at most so many steps.
LEAST_GAIN = 1e-14
MOST_STEPS = 200
# A true minimum has at least this second derivative along W^V itself.
LEAST_BEND = 1e-9
# Draws of θ that the limit of LDA documents is taken over.
DRAWS = 20_000
# Beyond this the exponential of the topic mode is zero.
LARGEST_MODE = 1e6


@dataclass(frozen=True)
class CrossEntropyOptimum(ClassMatrix):
    """The minimiser of cross-entropy plus λ‖W‖² by its six entries."""

    mask_row: float
    """W_0j for words j."""
    mask_mask: float
    """W_00."""

    objective: float
    """Its loss plus λ‖W‖², on the sample."""


def infinite_bag(topics: int, words: int, per_document: int, masking: Masking) -> Bags:
    """One of Assumption 1's infinite documents, the one with the first τ topics.

    It stands for all of them: a W^V with one number per class, such as the optimum, has the same loss on each.
    """
    vocabulary = topics * words + 1
    check_at_least("per_document", per_document, 1)
    original = np.zeros(vocabulary)
    original[1 : per_document * words + 1] = 1 / (per_document * words)
    filled = np.full(vocabulary, masking.random / (vocabulary - 1))
    filled[0] = masking.replaced
    queries = filled + masking.keep * original
    pairs = np.outer(original, filled) + masking.keep * np.diag(original)
    seen = (1 - masking.mask) * original + masking.mask * queries
    return Bags(seen[None], original[None], queries[None], sparse.csr_array(pairs.reshape(1, -1)))


def uniform_cross_entropy(matrix: Float[np.ndarray, "token token"], bags: Bags) -> float:
    """Mean over documents of −Σ_i y_i log softmax(W x̃)_i."""
    scores = bags.frequencies @ matrix.T
    return float(np.mean(logsumexp(scores, axis=1) - (scores * bags.targets).sum(axis=1)))


def cross_entropy_optimum(bags: Bags, topics: int, words: int, ridge: float) -> CrossEntropyOptimum:
    """Minimise by Newton's method over the six entries; ``ridge`` is λ, above 0 (else the optimum is at infinity)."""
    check_positive("ridge", ridge)
    features = _six_features(bags, topics, words)
    count = topics * words
    penalty = ridge * np.array([count, count, count * (words - 1), count * (count - words), count, 1.0])
    entries = np.zeros(6)
    value, gradient, hessian = _six_terms(entries, features, bags.targets, penalty)
    for _ in range(MOST_STEPS):
        step = -np.linalg.solve(hessian, gradient)
        promised, size = float(-gradient @ step), 1.0
        if promised < LEAST_GAIN:
            break
        while True:
            tried = _six_terms(entries + size * step, features, bags.targets, penalty)
            if tried[0] <= value - 0.1 * size * promised:
                break
            size /= 2
        entries = entries + size * step
        value, gradient, hessian = tried
    return CrossEntropyOptimum(*np.append(entries, value).tolist())


def _six_features(bags: Bags, topics: int, words: int) -> Float[np.ndarray, "document token 6"]:
    """How much each of the six entries adds to each token's score: W x̃ is linear in them."""
    x = bags.frequencies
    mask, own = x[:, :1], x[:, 1:]
    topic = np.repeat(own.reshape(len(x), topics, words).sum(axis=2), words, axis=1)
    features = np.zeros((*x.shape, 6))
    features[:, 1:, 0] = mask
    features[:, 1:, 1] = own
    features[:, 1:, 2] = topic - own
    features[:, 1:, 3] = (1 - mask) - topic
    features[:, 0, 4] = 1 - mask[:, 0]
    features[:, 0, 5] = mask[:, 0]
    return features


def _six_terms(
    entries: Float[np.ndarray, " 6"],
    features: Float[np.ndarray, "document token 6"],
    targets: Float[np.ndarray, "document token"],
    penalty: Float[np.ndarray, " 6"],
) -> tuple[float, Float[np.ndarray, " 6"], Float[np.ndarray, "6 6"]]:
    """The objective, its gradient and Hessian."""
    scores = features @ entries
    guess = softmax(scores, axis=1)
    count = len(features)
    value = float(np.mean(logsumexp(scores, axis=1) - (scores * targets).sum(axis=1)) + penalty @ entries**2)
    gradient = np.einsum("dt,dtk->k", guess - targets, features) / count + 2 * penalty * entries
    mean = np.einsum("dt,dtk->dk", guess, features)
    weighted = (np.sqrt(guess)[:, :, None] * features).reshape(-1, 6)
    hessian = (weighted.T @ weighted - mean.T @ mean) / count + 2 * np.diag(penalty)
    return value, gradient, hessian


@dataclass(frozen=True)
class Contrasts:
    """W^V by what cross-entropy sees of it."""

    topic: float
    """κ₁ = W_t − W_d."""
    same_word: float
    """κ₂ = W_s − W_t."""
    words: int

    @property
    def topic_mode(self) -> float:
        """K = κ₁ + κ₂/v."""
        return self.topic + self.same_word / self.words

    @property
    def block_share(self) -> float:
        """(W_t − W_d)/(W_s − W_d): 1 for blocks, 0 for a diagonal."""
        return self.topic / (self.topic + self.same_word)


def contrasts(bags: Bags, topics: int, words: int) -> tuple[Contrasts, float]:
    """The two numbers that minimise cross-entropy on these documents, without ridge, and the loss, by Newton's method.

    Documents without a minimum are refused: there, at some W^V, every target is among its document's likeliest words.
    """
    features = _two_features(bags.frequencies, topics, words)
    targets = bags.targets[:, 1:]
    point = np.zeros(2)
    value, gradient, hessian = _two_terms(point, features, targets)
    for _ in range(MOST_STEPS):
        # With one word per topic only κ₁ + κ₂ matters: of all steps that do the same, take the shortest.
        step = -np.linalg.pinv(hessian, rcond=1e-12, hermitian=True) @ gradient
        promised, size = float(-gradient @ step), 1.0
        if promised < LEAST_GAIN:
            # Far out, where the loss has no curvature left, it only falls towards infinity.
            if np.linalg.norm(point) > 1 and point @ hessian @ point < LEAST_BEND:
                break
            return Contrasts(float(point[0]), float(point[1]), words), value
        while (tried := _two_terms(point + size * step, features, targets))[0] > value - 0.1 * size * promised:
            size /= 2
        point = point + size * step
        value, gradient, hessian = tried
    raise InputError(
        "cross-entropy has no minimum on these documents: no target is of a topic that its document does not show; "
        "give shorter documents, or more of them."
    )


def _two_features(
    x: Float[np.ndarray, "document token"], topics: int, words: int
) -> Float[np.ndarray, "2 document word"]:
    own = x[:, 1:]
    return np.stack([np.repeat(own.reshape(len(x), topics, words).sum(axis=2), words, axis=1), own])


def _two_terms(
    point: Float[np.ndarray, " 2"],
    features: Float[np.ndarray, "2 document word"],
    targets: Float[np.ndarray, "document word"],
) -> tuple[float, Float[np.ndarray, " 2"], Float[np.ndarray, "2 2"]]:
    """The loss of κ₁ and κ₂, its gradient and Hessian."""
    scores = np.tensordot(point, features, axes=1)
    guess = softmax(scores, axis=1)
    value = float(np.mean(logsumexp(scores, axis=1) - (scores * targets).sum(axis=1)))
    gradient = ((guess - targets) * features).sum(axis=2).mean(axis=1)
    mean = (guess * features).sum(axis=2)
    second = np.einsum("adw,bdw,dw->ab", features, features, guess, optimize=True) - mean @ mean.T
    return value, gradient, second / len(targets)


def limit_contrasts(data: Data, masking: Masking, *, draws: int = DRAWS, seed: int = 0) -> Contrasts:
    """What the two tend to as documents get longer: for LDA documents, or those of τ ≥ 2 topics of mean length N.

    For LDA the expectation over θ is a mean over ``draws`` draws; for τ topics the two are the leading order at N.
    """
    visible = 1 - (1 - masking.keep) * masking.mask
    noise = masking.mask * masking.random / data.topics
    squares = float(np.trace(topic_moments(TopicModel.from_settings(data))[1]))
    same_word = masking.keep * data.words / (visible * squares + noise)
    if data.sampler == "dirichlet":
        mode = _limit_of_lda(data, visible, draws, seed)
    else:
        mode = _at_length(data, masking, visible, noise)
    return Contrasts(mode - same_word / data.words, same_word, data.words)


def _limit_of_lda(data: Data, visible: float, draws: int, seed: int) -> float:
    """The K that solves E[Σθ softmax(KAθ)] = E[Σθ²]; the left side grows with K from 1/T to E[max θ]."""
    theta = np.random.default_rng(seed).dirichlet(np.full(data.topics, data.dirichlet[0]), size=draws)
    wanted = float((theta**2).sum(axis=1).mean())

    def missing(mode: float) -> float:
        return float((theta * softmax(mode * visible * theta, axis=1)).sum(axis=1).mean()) - wanted

    return float(brentq(missing, 0.0, LARGEST_MODE))


def _at_length(data: Data, masking: Masking, visible: float, noise: float) -> float:
    tau, topics, length = data.per_document, data.topics, float(np.mean(data.length))
    if not 2 <= tau < topics:
        raise InputError(
            f"per_document = {tau} is not allowed here: give from 2 to topics − 1; with one topic nothing holds the "
            "optimum back but documents too short to show it, and with all topics there is none to rule out."
        )
    own = visible / tau + noise

    def missing(mode: float) -> float:
        absent = visible / tau * (topics - tau) / tau * np.exp(-mode * visible / tau)
        return float(absent - (1 - 1 / tau) / length * (mode * own - masking.keep))

    return float(brentq(missing, 0.0, LARGEST_MODE))
