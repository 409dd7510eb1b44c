r"""§8.1 as a formula: how much larger W^V's gradient is than W^K's and W^Q's when all start near zero.

One-hot embeddings, no biases, masked keys visible, all entries of W^V, W^K, W^Q independent N(0, s²). To leading order
in s attention is uniform and the prediction zero, so with r = y (squared loss, gradients twice as large) or
r = y − 1/V (cross-entropy), q the one-hot token at the query and x̃ the document's frequencies,

.. math::
    \nabla_{W^V} = -E[r \tilde x^\top], \qquad
    \nabla_{W^K} = \frac{W^Q G^\top}{\sqrt{d_a}}, \quad
    G_{ab} = -E\big[\tilde x_a\, (e_a - \tilde x)^\top {W^V}^\top r\, q_b\big].

∇_{W^K} contains W^Q, as the paper says, and W^V besides: attention matters only through W^V. Over the draw of the
weights, with ⊗ the tensor product and diag(x̃) − x̃x̃⊤ the softmax's derivative at uniform attention,

.. math::
    E\|\nabla_{W^K}\|^2 = E\|\nabla_{W^Q}\|^2 = s^4 \kappa^2, \qquad
    \kappa = \big\|E[(\mathrm{diag}(\tilde x) - \tilde x \tilde x^\top) \otimes r \otimes q]\big\|_F,

so the ratio is ‖E[r x̃⊤]‖ / (κ s²): it grows as 1/s², and d_a does not matter.
"""

import numpy as np
from jaxtyping import Float

from topicscope.settings.training import Loss
from topicscope.synthetic.documents import Bags


def gradient_ratio(bags: Bags, loss: Loss, scale: float) -> float:
    """‖∇W^V‖ / ‖∇W^K‖ at the start, on these documents, for weights drawn with standard deviation ``scale``."""
    return value_gradient(bags, loss) / (scale**2 * attention_coefficient(bags, loss))


def value_gradient(bags: Bags, loss: Loss) -> float:
    """‖E[r x̃⊤]‖ (half the gradient's norm for the squared loss)."""
    return float(np.linalg.norm(_residuals(bags, loss).T @ bags.frequencies) / len(bags.frequencies))


def attention_coefficient(bags: Bags, loss: Loss) -> float:
    """κ: its square is a mean over all pairs of documents, since ‖E[Z]‖² = E⟨Z, Z'⟩."""
    x, count = bags.frequencies, len(bags.frequencies)
    together = x @ x.T
    # ⟨diag(x) − xx⊤, diag(x') − x'x'⊤⟩ for every pair of documents.
    spread = together - x**2 @ x.T - x @ (x**2).T + together**2
    alike: Float[np.ndarray, "document document"] = (bags.pairs @ bags.pairs.T).toarray()
    if loss == "cross_entropy":
        alike = alike - bags.queries @ bags.queries.T / bags.frequencies.shape[1]
    return float(np.sqrt(np.vdot(spread, alike)) / count)


def key_gradient(
    bags: Bags, loss: Loss, value: Float[np.ndarray, "token token"], query: Float[np.ndarray, "width token"]
) -> Float[np.ndarray, "width token"]:
    """∇_{W^K} = W^Q G⊤/√d_a for given W^V and W^Q, to leading order (half of it for the squared loss)."""
    vocabulary = bags.frequencies.shape[1]
    total = np.zeros((vocabulary, vocabulary))
    for number, (x, queries) in enumerate(zip(bags.frequencies, bags.queries, strict=True)):
        # r ⊗ q of this document: how much each word is still missing at each query token.
        missing = bags.pairs[[number]].toarray().reshape(vocabulary, vocabulary)
        if loss == "cross_entropy":
            missing = missing - queries / vocabulary
        pull = value.T @ missing
        total -= x[:, None] * (pull - x @ pull)
    return query @ (total / len(bags.frequencies)).T / np.sqrt(len(query))


def _residuals(bags: Bags, loss: Loss) -> Float[np.ndarray, "document token"]:
    return bags.targets - 1 / bags.targets.shape[1] if loss == "cross_entropy" else bags.targets
