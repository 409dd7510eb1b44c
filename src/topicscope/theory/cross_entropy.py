"""Cross-entropy under uniform attention: the loss of any W^V, and its convex optimum.

The loss is convex in W and does not change when topics, or words within topics, are renamed. Nor does λ‖W‖², which is
strictly convex: the minimiser of the expected loss plus λ‖W‖² is unique and treats all words and topics alike. It has
six different entries, and a sample determines six numbers very well where it would not determine V² entries.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import sparse
from scipy.special import logsumexp, softmax

from topicscope.errors import check_at_least, check_positive
from topicscope.settings.data import Masking
from topicscope.synthetic.documents import Bags
from topicscope.theory.classes import CLASSES, ClassMatrix, Matrix, Vocabulary

# Newton's method stops when a step promises less than this, and takes at most so many steps.
LEAST_GAIN = 1e-14
MOST_STEPS = 200
# Without L2 the optimum is at infinity in directions that the loss does not see; so small a ridge changes nothing else.
SMALL_RIDGE = 1e-9


@dataclass(frozen=True, kw_only=True)
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


def uniform_cross_entropy(matrix: Matrix, bags: Bags) -> float:
    """Mean over documents of −Σ_i y_i log softmax(W x̃)_i."""
    scores = bags.frequencies @ matrix.T
    return float(np.mean(logsumexp(scores, axis=1) - (scores * bags.targets).sum(axis=1)))


def cross_entropy_optimum(bags: Bags, topics: int, words: int, ridge: float) -> CrossEntropyOptimum:
    """Minimise by Newton's method over the six entries; ``ridge`` is λ, above 0 (else the optimum is at infinity)."""
    check_positive("ridge", ridge)
    size = Vocabulary(topics, words)
    # How much each of the six entries adds to each token's score: W x̃ is linear in them.
    features = np.stack([bags.frequencies @ (size.kinds == kind).T.astype(float) for kind in range(6)], axis=2)
    penalty, entries = ridge * size.sizes, np.zeros(6)
    value, gradient, hessian = _six_terms(entries, features, bags.targets, penalty)
    for _ in range(MOST_STEPS):
        step = -np.linalg.solve(hessian, gradient)
        promised, length = float(-gradient @ step), 1.0
        if promised < LEAST_GAIN:
            break
        while True:
            tried = _six_terms(entries + length * step, features, bags.targets, penalty)
            if tried[0] <= value - 0.1 * length * promised:
                break
            length /= 2
        entries = entries + length * step
        value, gradient, hessian = tried
    return CrossEntropyOptimum(**dict(zip(CLASSES, entries.tolist(), strict=True)), objective=value)


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
