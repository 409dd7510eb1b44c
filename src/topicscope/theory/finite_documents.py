r"""Documents under uniform attention: the moments that the squared loss depends on, its optimum and the path to it.

With uniform attention a prediction is W x̃ + b, where x̃ holds the token frequencies of the masked document; y is the
one-hot word at a masked position. So the expected squared loss of any W and b is determined by

.. math:: S = E[\tilde x \tilde x^\top], \quad R = E[y \tilde x^\top], \quad s = E[\tilde x], \quad r = E[y].

Given topic proportions θ, positions are independent: an unmasked one has the word distribution p = Φ⊤θ, a masked
one κ + p_c p with κ = (1 − p_c − p_r) on [MASK] and p_r/(V−1) on each word. So all four follow from E[p], E[pp⊤]
and the expected numbers of masked and unmasked positions and pairs. docs/theory-finite.md has the derivation.

What follows from the moments holds alike for infinite documents (eq. A.8, and eq. 6 with W = W^E⊤W^V W^E) and for
finite ones, for any topic-word matrix, Dirichlet and masking. In the paper's symmetric setting S and R do not change
when topics, or words within a topic, are permuted, and all of it takes O(1) work, for any T and v (``class_moments``).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import comb, gammaln

from topicscope.errors import check_at_least, check_not_negative, check_positive, refuse
from topicscope.settings.data import Data, Masking
from topicscope.settings.training import Average
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.classes import PLANE, SAME_WORD, TOPIC, ClassMatrix, Matrix, Modes, Vector, Vocabulary, modes_of

# Eigenvalues of S below this share of the largest are rounding: S has exact null directions under Assumption 1.
NULL_EIGENVALUE = 1e-12


@dataclass(frozen=True, eq=False)
class Moments:
    """The moments that determine the population's squared loss; all four are expectations under one measure."""

    second: Matrix
    """S = E[x̃x̃⊤]."""
    cross: Matrix
    """R = E[yx̃⊤]; row i is the word to predict."""
    mean: Vector
    """s = E[x̃]."""
    label: Vector
    """r = E[y]."""

    @property
    def vocabulary(self) -> int:
        """V."""
        return len(self.mean)

    def target(self, bias: Vector | None) -> Matrix:
        """R − b s⊤: what is left for W x̃ to match beside a fixed bias."""
        return self.cross if bias is None else self.cross - np.outer(bias, self.mean)


class Shares(NamedTuple):
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


def moments(model: TopicModel, masking: Masking = Masking(), average: Average = "document") -> Moments:
    """Moments of finite documents of this model, given that at least one position is masked.

    ``average``: "document" is eq. 1, the mean over each document's own masked positions; "batch" is the mean over
    all masked positions of a large batch, so that documents count in proportion to |M|.
    """
    return _assemble(model, masking, finite_shares(model.length, masking.mask, average))


def infinite_moments(model: TopicModel, masking: Masking = Masking()) -> Moments:
    """Moments of infinitely long documents (Assumption 1; eq. A.8): word frequencies equal their probabilities."""
    return _assemble(model, masking, infinite_shares(masking.mask))


def infinite_topic_moments(topics: int, words: int, per_document: int, masking: Masking) -> Moments:
    """Moments of Assumption 1's documents of τ of T topics, in which each word's frequency equals its probability."""
    data = Data(sampler="topics", topics=topics, words=words, per_document=per_document)
    return infinite_moments(TopicModel.from_settings(data), masking)


def topic_moments(model: TopicModel) -> tuple[Float[np.ndarray, " topic"], Float[np.ndarray, "topic topic"]]:
    r"""E[θ] and E[θθ⊤].

    Dirichlet(a), A = Σa: a/A and (aa⊤ + diag a) / (A(A+1)). τ of T topics: see ``_set_moments``.
    """
    model.require_no_ends()
    topics = model.topics
    if model.sampler == "dirichlet":
        total = model.dirichlet.sum()
        mean = model.dirichlet / total
        return mean, (np.outer(mean, model.dirichlet) + np.diag(mean)) / (total + 1)
    same, other = _set_moments(topics, model.per_document)
    return np.full(topics, 1 / topics), np.where(np.eye(topics, dtype=bool), same, other)


def _set_moments(topics: int, per_document: int) -> tuple[float, float]:
    """E[θ_t²] and E[θ_tθ_t'] of τ of T topics: 1/(τT) and (τ−1)/(τT(T−1))."""
    same = 1 / (per_document * topics)
    return same, same * (per_document - 1) / (topics - 1) if topics > 1 else 0.0


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
    return Shares(mask, mask**2, mask * (1 - mask), (1 - mask) ** 2, 0.0, 0.0, 0.0, mask)


def _assemble(model: TopicModel, masking: Masking, shares: Shares) -> Moments:
    theta, theta_second = topic_moments(model)
    p = np.concatenate([[0.0], theta @ model.topic_words])
    pp = np.zeros((model.vocabulary, model.vocabulary))
    pp[1:, 1:] = model.topic_words.T @ theta_second @ model.topic_words
    kappa = np.full(model.vocabulary, masking.random / (model.vocabulary - 1))
    kappa[0] = masking.replaced
    outer = Products(pp, np.outer(p, kappa), np.outer(kappa, p), np.outer(kappa, kappa), np.diag(p), np.diag(kappa))
    second, cross = outer.second_and_cross(shares, masking.keep)
    mean = shares.masked * (kappa + masking.keep * p) + (1 - shares.masked) * p
    return Moments(second=second, cross=cross, mean=mean, label=p)


class Products(NamedTuple):
    """E[pp⊤] and so on, as whole matrices or by classes of entries: what S and R are sums of, entry by entry."""

    pp: Float[np.ndarray, "..."]
    p_kappa: Float[np.ndarray, "..."]
    kappa_p: Float[np.ndarray, "..."]
    kappa_kappa: Float[np.ndarray, "..."]
    diagonal_p: Float[np.ndarray, "..."]
    diagonal_kappa: Float[np.ndarray, "..."]

    def second_and_cross(
        self, shares: Shares, keep: float
    ) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
        """S and R of docs/theory-finite.md."""
        second = (
            (shares.pair_masked * keep**2 + 2 * shares.pair_mixed * keep + shares.pair_seen) * self.pp
            + (shares.pair_masked * keep + shares.pair_mixed) * (self.p_kappa + self.kappa_p)
            + shares.pair_masked * self.kappa_kappa
            + shares.self_masked * (self.diagonal_kappa + keep * self.diagonal_p)
            + shares.self_seen * self.diagonal_p
        )
        cross = (
            shares.own * (self.p_kappa + keep * self.diagonal_p)
            + shares.other_masked * (self.p_kappa + keep * self.pp)
            + (1 - shares.masked) * self.pp
        )
        return second, cross


def population_loss(matrix: Matrix, moments: Moments, bias: Vector | None = None, ridge: float = 0.0) -> float:
    r"""The expected loss of predicting W x̃ + b, plus λ‖W‖².

    .. math:: E\|W\tilde x + b - y\|^2 = 1 - 2\langle W, R\rangle + \langle WS, W\rangle
        + 2 b^\top (W s - r) + \|b\|^2
    """
    loss = 1 - 2 * np.vdot(matrix, moments.cross) + np.vdot(matrix @ moments.second, matrix)
    if bias is not None:
        loss += 2 * bias @ (matrix @ moments.mean - moments.label) + bias @ bias
    return float(loss + ridge * np.vdot(matrix, matrix))


def finite_optimum(moments: Moments, ridge: float = 0.0, bias: Vector | None = None) -> Matrix:
    """The W that minimises the loss plus λ‖W‖² with b held fixed (by default at 0): (R − b s⊤)(S + λI)⁻¹.

    Where S is singular (infinite documents; a token that never occurs) λ = 0 means the limit λ → 0, which is the
    minimiser with the smallest norm.
    """
    check_not_negative("ridge", ridge)
    values, vectors = _spectrum(moments.second)
    return (moments.target(bias) @ vectors * _inverse(values + ridge)) @ vectors.T


def flat_directions(moments: Moments) -> Float[np.ndarray, "direction token"]:
    """Rows n of length one with n S = 0, orthogonal to each other: added to any row of W, they leave the loss as it is.

    They span all such rows: every minimiser of the loss is any one minimiser plus combinations of these in its rows.
    """
    values, vectors = _spectrum(moments.second)
    return vectors[:, values == 0.0].T


def gradient_descent(
    start: Matrix,
    moments: Moments,
    rate: float,
    steps: int,
    ridge: float = 0.0,
    bias: Vector | None = None,
) -> Matrix:
    r"""W after this many steps of gradient descent on the population loss plus λ‖W‖², from ``start``, exactly.

    .. math:: W_k = W_0 (I - 2\eta H)^k + (R - b s^\top) H^{-1} (I - (I - 2\eta H)^k), \qquad H = S + \lambda I

    Along a null direction of H the second factor is its limit 2ηk. From zero, without bias and ridge, this is
    R S⁻¹(I − (I − 2ηS)^k). The bias, if given, is frozen.
    """
    check_not_negative("ridge", ridge)
    check_positive("rate", rate)
    check_at_least("steps", steps, 0)
    values, vectors = _spectrum(moments.second)
    curvature = values + ridge
    # Eigenvectors do not mix. 1 − shrink^k loses its digits where the curvature is small; expm1 keeps them.
    shrink = 1 - 2 * rate * curvature
    progress = np.where(
        shrink > 0, -np.expm1(steps * np.log1p(-np.minimum(2 * rate * curvature, 1 - 1e-16))), 1 - shrink**steps
    )
    reached = np.divide(progress, curvature, out=np.full_like(curvature, 2 * rate * steps), where=curvature > 0)
    return (start @ vectors * shrink**steps + moments.target(bias) @ vectors * reached) @ vectors.T


def _spectrum(second: Matrix) -> tuple[np.ndarray, Matrix]:
    """Eigenvalues and vectors of a positive semi-definite matrix; eigenvalues that are rounding become exact zeros."""
    values, vectors = np.linalg.eigh(second)
    return np.where(values > NULL_EIGENVALUE * values[-1], values, 0.0), vectors


def _inverse(values: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """1/x, and 0 for 0 (the pseudo-inverse)."""
    return np.divide(1.0, values, out=np.zeros_like(values), where=values > 0)


@dataclass(frozen=True, eq=False)
class ClassMoments:
    """S and R of the paper's symmetric setting, on the spaces that are invariant under permutations."""

    vocabulary: Vocabulary
    second: Modes
    cross: Modes


def class_moments(data: Data, masking: Masking, *, infinite: bool = False) -> ClassMoments:
    """``moments`` for T equal topics of v equally likely words and one Dirichlet parameter (or τ of T topics)."""
    size = Vocabulary.of(data)
    shares = infinite_shares(masking.mask) if infinite else finite_shares(data.length, masking.mask, "document")
    n, hidden, noise = size.count, masking.replaced, masking.random / size.count
    same, other = _set_moments(data.topics, data.per_document)
    if data.sampler == "dirichlet":
        alpha, total = data.dirichlet[0], data.topics * data.dirichlet[0]
        same, other = (moment / (data.topics * (total + 1)) for moment in (alpha + 1, alpha))
    # p is 0 for [MASK] and 1/n for every word on average, κ is q for [MASK] and p_r/n for every word.
    products = np.array(
        [
            np.array([0, 0, 0, same, same, other]) / data.words**2,
            [0, 0, hidden / n, noise / n, noise / n, noise / n],
            [0, hidden / n, 0, noise / n, noise / n, noise / n],
            [hidden**2, hidden * noise, hidden * noise, noise**2, noise**2, noise**2],
            [0, 0, 0, 1 / n, 0, 0],
            [hidden, 0, 0, noise, 0, 0],
        ]
    )
    second, cross = Products(*products).second_and_cross(shares, masking.keep)
    return ClassMoments(size, size.modes(second), size.modes(cross))


def class_optimum(moments: ClassMoments, ridge: float = 0.0) -> ClassMatrix:
    """R(S + λI)⁻¹ without bias, by two divisions and a 2 × 2 inverse; if S is singular, λ = 0 means the limit λ → 0."""
    check_not_negative("ridge", ridge)
    second, cross = moments.second + ridge * np.eye(4), moments.cross
    topic, same_word = (cross[mode] / second[mode] if second[mode] > 0 else 0.0 for mode in (TOPIC, SAME_WORD))
    plane = cross[PLANE] @ np.linalg.pinv(second[PLANE], hermitian=True)
    return ClassMatrix(*moments.vocabulary.classes(modes_of(topic, same_word, plane))[2:].tolist())


def class_loss(matrix: ClassMatrix, moments: ClassMoments) -> float:
    """1 − 2⟨W, R⟩ + ⟨WS, W⟩."""
    modes = moments.vocabulary.modes(matrix.numbers)
    return 1 + moments.vocabulary.trace(modes.T @ (modes @ moments.second - 2 * moments.cross))


def topic_count_distribution(data: Data) -> Float[np.ndarray, " count"]:
    r"""How many topics a finite LDA document has words of: P(k topics) for k = 0 … T.

    Given the document's length N, the numbers of words of each topic are Dirichlet-multinomial. With one Dirichlet
    parameter α,

    .. math:: P(n_1, \dots, n_T) \propto \prod_t w(n_t), \quad w(n) = \frac{\Gamma(n + \alpha)}{n!\,\Gamma(\alpha)},
        \quad \sum_t n_t = N, \qquad\text{so}\quad P(k) \propto \binom{T}{k} [x^N] \Big(\sum_{n \ge 1} w(n) x^n\Big)^k.
    """
    if data.sampler != "dirichlet":
        raise refuse("data.sampler", data.sampler, 'topics are counted for the sampler "dirichlet"')
    if len(set(data.dirichlet)) > 1:
        raise refuse("data.dirichlet", data.dirichlet, "topics are counted for one Dirichlet parameter; give one")
    alpha, lengths = data.dirichlet[0], np.arange(data.length[0], data.length[1] + 1)
    counts = np.arange(1, data.length[1] + 1)
    weights = np.concatenate([[0.0], np.exp(gammaln(counts + alpha) - gammaln(counts + 1) - gammaln(alpha))])
    power, ways = np.eye(1, len(weights))[0], []
    for topics in range(data.topics + 1):
        ways.append(comb(data.topics, topics) * power[lengths])
        power = np.convolve(power, weights)[: len(weights)]
    shares: Float[np.ndarray, "count length"] = np.array(ways) / np.sum(ways, axis=0)
    return shares.mean(axis=1)
