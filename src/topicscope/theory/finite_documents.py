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

import numpy as np
from jaxtyping import Float
from scipy.special import comb, gammaln

from topicscope.errors import check_at_least, check_not_negative, check_positive, refuse
from topicscope.settings.data import Data, Masking
from topicscope.settings.training import Average
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.classes import ClassMatrix, Modes, Vocabulary

# Eigenvalues of S below this share of the largest are rounding: S has exact null directions under Assumption 1.
NULL_EIGENVALUE = 1e-12


@dataclass(frozen=True, eq=False)
class Moments:
    """The moments that determine the population's squared loss; all four are expectations under one measure."""

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

    def target(self, bias: Float[np.ndarray, " token"] | None) -> Float[np.ndarray, "token token"]:
        """R − b s⊤: what is left for W x̃ to match beside a fixed bias."""
        return self.cross if bias is None else self.cross - np.outer(bias, self.mean)

    def centred(self, bias_ridge: float) -> "Moments":
        """S − s s⊤/(1 + μ) and R − r s⊤/(1 + μ): the moments that W sees when b is trained too, at a cost of μ‖b‖²."""
        second = self.second - np.outer(self.mean, self.mean) / (1 + bias_ridge)
        return Moments(second, self.cross - np.outer(self.label, self.mean) / (1 + bias_ridge), self.mean, self.label)


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

    Dirichlet(a), A = Σa: a/A and (aa⊤ + diag a) / (A(A+1)). τ of T topics: 1/T; 1/(τT) on the diagonal and
    (τ−1)/(τT(T−1)) off it.
    """
    model.require_no_ends()
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


def population_loss(
    matrix: Float[np.ndarray, "token token"],
    moments: Moments,
    bias: Float[np.ndarray, " token"] | None = None,
    ridge: float = 0.0,
) -> float:
    r"""The expected loss of predicting W x̃ + b, plus λ‖W‖².

    .. math:: E\|W\tilde x + b - y\|^2 = 1 - 2\langle W, R\rangle + \langle WS, W\rangle
        + 2 b^\top (W s - r) + \|b\|^2
    """
    loss = 1 - 2 * np.vdot(matrix, moments.cross) + np.vdot(matrix @ moments.second, matrix)
    if bias is not None:
        loss += 2 * bias @ (matrix @ moments.mean - moments.label) + bias @ bias
    return float(loss + ridge * np.vdot(matrix, matrix))


def embedding_loss(
    embedding: Float[np.ndarray, "dimension token"],
    moments: Moments,
    bias: Float[np.ndarray, " token"] | None = None,
    value: Float[np.ndarray, "dimension dimension"] | None = None,
) -> float:
    """The expected loss of eq. 6 with uniform attention: W = W^E⊤W^V W^E (by default W^V = I)."""
    inner = embedding if value is None else value @ embedding
    return population_loss(embedding.T @ inner, moments, bias)


def finite_optimum(
    moments: Moments, ridge: float = 0.0, bias: Float[np.ndarray, " token"] | None = None
) -> Float[np.ndarray, "token token"]:
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


def optimum_with_bias(
    moments: Moments, ridge: float = 0.0, bias_ridge: float = 0.0
) -> tuple[Float[np.ndarray, "token token"], Float[np.ndarray, " token"]]:
    r"""The W and b^pred that together minimise the loss plus λ‖W‖² + μ‖b‖² (μ is ``bias_ridge``).

    .. math:: W = \Big(R - \frac{r s^\top}{1+\mu}\Big)\Big(S - \frac{s s^\top}{1+\mu} + \lambda I\Big)^{-1},
        \qquad b = \frac{r - W s}{1 + \mu}

    Frequencies sum to one, so with λ = μ = 0 many pairs (W, b) have the same loss; this is then the one with the
    smallest ‖W‖.
    """
    check_not_negative("ridge", ridge)
    check_not_negative("bias_ridge", bias_ridge)
    centred = moments.centred(bias_ridge)
    values, vectors = _spectrum(centred.second, scale=float(np.trace(moments.second)))
    matrix = (centred.cross @ vectors * _inverse(values + ridge)) @ vectors.T
    return matrix, (moments.label - matrix @ moments.mean) / (1 + bias_ridge)


def gradient_descent(
    start: Float[np.ndarray, "token token"],
    moments: Moments,
    rate: float,
    steps: int,
    ridge: float = 0.0,
    bias: Float[np.ndarray, " token"] | None = None,
) -> Float[np.ndarray, "token token"]:
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


def _spectrum(
    second: Float[np.ndarray, "token token"], scale: float | None = None
) -> tuple[Float[np.ndarray, " token"], Float[np.ndarray, "token token"]]:
    """Eigenvalues and vectors of a positive semi-definite matrix; eigenvalues that are rounding become exact zeros."""
    values, vectors = np.linalg.eigh(second)
    floor = NULL_EIGENVALUE * (values[-1] if scale is None else scale)
    return np.where(values > floor, values, 0.0), vectors


def _inverse(values: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """1/x, and 0 for 0 (the pseudo-inverse)."""
    return np.divide(1.0, values, out=np.zeros_like(values), where=values > 0)


@dataclass(frozen=True, eq=False)
class ClassMoments:
    """S and R of the paper's symmetric setting, on the spaces that are invariant under permutations."""

    vocabulary: Vocabulary
    second: Modes
    cross: Modes


def class_moments(
    data: Data, masking: Masking, average: Average = "document", *, infinite: bool = False
) -> ClassMoments:
    """``moments`` for T equal topics of v equally likely words and one Dirichlet parameter (or τ of T topics)."""
    size = Vocabulary.of(data)
    shares = infinite_shares(masking.mask) if infinite else finite_shares(data.length, masking.mask, average)
    # S and R of docs/theory-finite.md with p = θ_topic/v.
    n, keep = size.count, masking.keep
    noise = masking.random / n
    topic_variance = _topic_contrast(data) / data.words

    pairs = shares.pair_masked * keep**2 + 2 * shares.pair_mixed * keep + shares.pair_seen
    mixed = shares.pair_masked * keep + shares.pair_mixed
    itself = shares.self_masked * (noise + keep / n) + shares.self_seen / n
    mask = masking.replaced * (shares.pair_masked * masking.replaced + shares.self_masked)
    coupling = np.sqrt(n) * masking.replaced * (shares.pair_masked * noise + mixed / n)
    mean = itself + pairs / n + 2 * mixed * noise + shares.pair_masked * n * noise**2
    second = Modes(itself + pairs * topic_variance, itself, np.array([[mask, coupling], [coupling, mean]]))
    kept = shares.own * keep / n
    others = shares.other_masked * keep + 1 - shares.masked
    masked = shares.own + shares.other_masked
    # [MASK] is never a word to predict.
    target = [masked * masking.replaced / np.sqrt(n), kept + others / n + masked * noise]
    cross = Modes(kept + others * topic_variance, kept, np.array([[0.0, 0.0], target]))
    return ClassMoments(size, second, cross)


def class_optimum(moments: ClassMoments, ridge: float = 0.0) -> ClassMatrix:
    """R(S + λI)⁻¹ without bias, by two divisions and a 2 × 2 inverse; if S is singular, λ = 0 means the limit λ → 0."""
    check_not_negative("ridge", ridge)
    second, cross = moments.second, moments.cross
    plane = np.zeros((2, 2))
    plane[1] = cross.plane[1] @ np.linalg.pinv(second.plane + ridge * np.eye(2), hermitian=True)
    topic, same_word = _ratio(cross.topic, second.topic + ridge), _ratio(cross.same_word, second.same_word + ridge)
    return ClassMatrix(*moments.vocabulary.classes(Modes(topic, same_word, plane))[2:].tolist())


def class_loss(matrix: ClassMatrix, moments: ClassMoments) -> float:
    """1 − 2⟨W, R⟩ + ⟨WS, W⟩."""
    size, second, cross = moments.vocabulary, moments.second, moments.cross
    within = matrix.same_word - matrix.same_topic
    between = within + size.words * (matrix.same_topic - matrix.different_topic)
    plane = np.array([np.sqrt(size.count) * matrix.mask_column, between + size.count * matrix.different_topic])
    spaces = (
        (size.topics * (size.words - 1), within, cross.same_word, second.same_word),
        (size.topics - 1, between, cross.topic, second.topic),
    )
    loss = 1 + sum(dimension * (w * w * s - 2 * w * r) for dimension, w, r, s in spaces)
    return float(loss + plane @ second.plane @ plane - 2 * plane @ cross.plane[1])


def _topic_contrast(data: Data) -> float:
    """E[θ_t²] − E[θ_tθ_t'] for two topics."""
    topics = data.topics
    if data.sampler == "dirichlet":
        return 1 / (topics * (topics * data.dirichlet[0] + 1))
    chosen = data.per_document
    return (topics - chosen) / (chosen * topics * (topics - 1)) if topics > 1 else 0.0


def _ratio(cross: float, second: float) -> float:
    """``cross`` divided by ``second``; 0 on a space that the documents never reach."""
    return cross / second if second > 0 else 0.0


def topic_count_distribution(data: Data, least: float = 0.0) -> Float[np.ndarray, " count"]:
    r"""How many topics a finite LDA document has: P(k topics) for k = 0 … T.

    A topic counts if it has at least the share ``least`` of the document's words, and at least one word. Given the
    document's length N, the numbers of words of each topic are Dirichlet-multinomial: with one Dirichlet parameter α,

    .. math:: P(n_1, \dots, n_T) \propto \prod_t w(n_t), \qquad w(n) = \frac{\Gamma(n + \alpha)}{n!\,\Gamma(\alpha)},
        \quad \sum_t n_t = N.

    Split the generating function of w into few words, n < m, and many, n ≥ m. With T topics, k of which have many,

    .. math:: P(k) = \binom{T}{k} \frac{[x^N]\, M(x)^k F(x)^{T-k}}{[x^N]\, (M(x) + F(x))^T}.

    All terms are positive: no digits are lost.
    """
    if data.sampler != "dirichlet":
        raise refuse("data.sampler", data.sampler, 'topics are counted for the sampler "dirichlet"')
    if len(set(data.dirichlet)) > 1:
        raise refuse("data.dirichlet", data.dirichlet, "topics are counted for one Dirichlet parameter; give one")
    lengths = range(data.length[0], data.length[1] + 1)
    return np.mean([_of_length(data, length, least) for length in lengths], axis=0)


def _of_length(data: Data, length: int, least: float) -> Float[np.ndarray, " count"]:
    counts, alpha = np.arange(length + 1), data.dirichlet[0]
    weights = np.exp(gammaln(counts + alpha) - gammaln(counts + 1) - gammaln(alpha))
    # The share is reached from this many words on; a share of 0.05 of 100 words is 5 in spite of rounding.
    needed = max(1, int(np.ceil(least * length - 1e-9)))
    many, few = np.where(counts >= needed, weights, 0.0), np.where(counts < needed, weights, 0.0)
    with_many, with_few = _powers(many, data.topics), _powers(few, data.topics)
    ways = np.array([comb(data.topics, k) * (with_many[k] @ with_few[-1 - k][::-1]) for k in range(data.topics + 1)])
    return np.asarray(ways / ways.sum())


def _powers(series: Float[np.ndarray, " count"], highest: int) -> list[Float[np.ndarray, " count"]]:
    """The series to the powers 0 … highest, up to x^N."""
    powers = [np.eye(1, len(series))[0]]
    for _ in range(highest):
        powers.append(np.convolve(powers[-1], series)[: len(series)])
    return powers
