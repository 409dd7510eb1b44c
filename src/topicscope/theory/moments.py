r"""The moments that the squared loss under uniform attention depends on, in closed form.

With uniform attention a prediction is W x̃ + b, x̃ the token frequencies of the masked document and y the
one-hot word at a masked position. So the expected squared loss of any W and b is a quadratic in

.. math:: S = E[\tilde x \tilde x^\top], \quad R = E[y \tilde x^\top], \quad s = E[\tilde x], \quad r = E[y].

Given topic proportions θ, positions are independent: an unmasked one has the word distribution p = Φ⊤θ, a masked
one κ + p_c p with κ = (1 − p_c − p_r) on [MASK] and p_r/(V−1) on each word. So all four follow from E[p], E[pp⊤]
and the expected numbers of masked and unmasked positions and pairs. docs/theory-finite.md has the derivation.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from topicscope.settings.data import Masking
from topicscope.settings.training import Average
from topicscope.synthetic.topics import TopicModel


@dataclass(frozen=True, eq=False)
class Moments:
    """What the population's squared loss depends on; all four are expectations under one measure."""

    second: Float[np.ndarray, "token token"]
    """S = E[x̃x̃⊤]."""

    cross: Float[np.ndarray, "token token"]
    """R = E[yx̃⊤]; row i is the word to predict."""

    mean: Float[np.ndarray, " token"]
    """s = E[x̃]."""

    label: Float[np.ndarray, " token"]
    """r = E[y]."""

    @property
    def vocabulary(self) -> int:
        """V."""
        return len(self.mean)


@dataclass(frozen=True)
class Shares:
    """Expected shares of positions and of ordered pairs of positions, by whether they are masked."""

    masked: float
    """E[m/N], m = |M|."""
    pair_masked: float
    """E[m(m−1)/N²]."""
    pair_mixed: float
    """E[m(N−m)/N²]."""
    pair_seen: float
    """E[(N−m)(N−m−1)/N²]."""
    self_masked: float
    """E[m/N²]: a masked position with itself."""
    self_seen: float
    """E[(N−m)/N²]."""
    own: float
    """E[1/N]: the predicted position itself among the keys."""
    other_masked: float
    """E[(m−1)/N]: the other masked positions."""


def moments(model: TopicModel, masking: Masking, average: Average = "document") -> Moments:
    """Moments of finite documents of this model, given that at least one position is masked.

    ``average``: "document" is eq. 1, the mean over each document's own masked positions; "batch" is the mean over
    all masked positions of a large batch, so that documents count in proportion to |M|.
    """
    return _assemble(model, masking, finite_shares(model.length, masking.mask, average))


def infinite_moments(model: TopicModel, masking: Masking) -> Moments:
    """Moments of infinitely long documents (Assumption 1; eq. A.8): word frequencies equal their probabilities."""
    return _assemble(model, masking, infinite_shares(masking.mask))


def topic_moments(model: TopicModel) -> tuple[Float[np.ndarray, " topic"], Float[np.ndarray, "topic topic"]]:
    r"""E[θ] and E[θθ⊤].

    Dirichlet(a), A = Σa: a/A and (aa⊤ + diag a) / (A(A+1)). τ of T topics: 1/T; 1/(τT) on the diagonal and
    (τ−1)/(τT(T−1)) off it.
    """
    topics = model.topics
    if model.sampler == "dirichlet":
        total = model.dirichlet.sum()
        mean = model.dirichlet / total
        return mean, (np.outer(mean, model.dirichlet) + np.diag(mean)) / (total + 1)
    chosen = model.per_document
    together = (chosen - 1) / (chosen * topics * (topics - 1)) if topics > 1 else 0.0
    second = np.full((topics, topics), together)
    np.fill_diagonal(second, 1 / (chosen * topics))
    return np.full(topics, 1 / topics), second


def finite_shares(length: tuple[int, int], mask: float, average: Average) -> Shares:
    """The shares for N uniform on ``length``, m binomial given m ≥ 1, documents weighted equally or by m."""
    n = np.arange(length[0], length[1] + 1, dtype=float)
    with np.errstate(divide="ignore"):
        some_masked = -np.expm1(n * np.log1p(-mask))
    # E[m], E[m²], E[m³] from the binomial's factorial moments; dividing by P(m ≥ 1) conditions them.
    falling = [n * mask, n * (n - 1) * mask**2, n * (n - 1) * (n - 2) * mask**3]
    first = falling[0] / some_masked
    square = (falling[1] + falling[0]) / some_masked
    cube = (falling[2] + 3 * falling[1] + falling[0]) / some_masked
    powers = (np.ones_like(n), first, square) if average == "document" else (first, square, cube)
    weight, m, m2 = (power / powers[0].sum() for power in powers)
    return Shares(
        masked=float((m / n).sum()),
        pair_masked=float(((m2 - m) / n**2).sum()),
        pair_mixed=float(((n * m - m2) / n**2).sum()),
        pair_seen=float(((n * (n - 1) * weight - (2 * n - 1) * m + m2) / n**2).sum()),
        self_masked=float((m / n**2).sum()),
        self_seen=float(((n * weight - m) / n**2).sum()),
        own=float((weight / n).sum()),
        other_masked=float(((m - weight) / n).sum()),
    )


def infinite_shares(mask: float) -> Shares:
    """Their limit for N → ∞: a position with itself no longer counts."""
    return Shares(
        masked=mask,
        pair_masked=mask**2,
        pair_mixed=mask * (1 - mask),
        pair_seen=(1 - mask) ** 2,
        self_masked=0.0,
        self_seen=0.0,
        own=0.0,
        other_masked=mask,
    )


def _assemble(model: TopicModel, masking: Masking, shares: Shares) -> Moments:
    vocabulary, keep = model.vocabulary, masking.keep
    theta, theta_second = topic_moments(model)
    p = np.concatenate([[0.0], theta @ model.topic_words])
    pp = np.zeros((vocabulary, vocabulary))
    pp[1:, 1:] = model.topic_words.T @ theta_second @ model.topic_words
    kappa = np.full(vocabulary, masking.random / (vocabulary - 1))
    kappa[0] = masking.replaced

    both = np.outer(p, kappa)
    second = (
        (shares.pair_masked * keep**2 + 2 * shares.pair_mixed * keep + shares.pair_seen) * pp
        + (shares.pair_masked * keep + shares.pair_mixed) * (both + both.T)
        + shares.pair_masked * np.outer(kappa, kappa)
        + np.diag(shares.self_masked * (kappa + keep * p) + shares.self_seen * p)
    )
    other_seen = 1 - shares.masked
    cross = shares.own * (both + keep * np.diag(p)) + shares.other_masked * (both + keep * pp) + other_seen * pp
    mean = shares.masked * (kappa + keep * p) + other_seen * p
    return Moments(second=second, cross=cross, mean=mean, label=p)
