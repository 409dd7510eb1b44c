r"""What a masked document says about its topic proportions, exactly, for disjoint topics of equally likely words.

Given θ, a token of a word of topic t has probability (A θ_t + B/T)/v with A = 1 − p_m + z p_m p_c, B = z p_m p_r,
where z marks masked positions. Which positions are masked is seen at [MASK] and at the query only, and eq. 1 weighs a
query by 1/|M|; the weight is put in by

.. math:: \frac{1}{|M|} = \int_0^1 z^{|M| - 1} dz.

The integrand is a polynomial in z, so Gauss-Legendre nodes make the integral exact (docs/theory.md).

The likelihood is then a sum of products: each topic t gives a polynomial whose degree-k coefficient stands for "k of
its words are genuine" (Dirichlet) or "the topic is one of the document's" (k = 0 or 1). The prior depends on the total
degree K alone, as a functional ``end`` on polynomials: Σ_K end[K] [x^K] ∏_t p_t(x). Everything that a posterior needs
is such a sum with the polynomials of at most two topics replaced (``marked_sums``). All terms are positive, so nothing
cancels; forward and backward passes share the work, as in a hidden Markov model.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy.lib.stride_tricks import sliding_window_view
from scipy.special import gammaln, logsumexp, roots_legendre, xlogy

from topicscope.errors import InputError
from topicscope.settings.data import Masking
from topicscope.settings.training import Average
from topicscope.synthetic.topics import TopicModel

# What ``marked_sums`` gives; a row is a document, or a document at a node of z.
Sums = tuple[
    Float[np.ndarray, "row rank"],
    Float[np.ndarray, " row"],
    Float[np.ndarray, "row rank rank"],
    Float[np.ndarray, "row rank"],
]


@dataclass(frozen=True, eq=False)
class TopicMasses:
    """Masses E[θ_s · likelihood of all other tokens], in units that all queries of a document share.

    A query's prediction needs only their ratios; the best query-blind prediction weighs queries by their sums.
    """

    mask: Float[np.ndarray, "document topic"]
    """For a [MASK] query; 0 in documents that have no [MASK]."""

    word: Float[np.ndarray, "document rank topic"]
    """For a word query: rank is its topic's place in ``ranked``."""

    ranked: Int[np.ndarray, "document rank"]
    """The topics that occur, most frequent first (padded with ones that do not)."""


def topic_masses(
    model: TopicModel,
    masking: Masking,
    counts: Int[np.ndarray, "document topic"],
    masks: Int[np.ndarray, " document"],
    average: Average = "document",
) -> TopicMasses:
    """The masses of documents with these numbers of visible words a topic and of [MASK] tokens."""
    if model.equal_words is None:
        raise InputError(
            "data.topic_words is not allowed here: the closed form needs disjoint topics of equally likely words; "
            'use the sampler "topics" with few topics, where all topic sets can be listed.'
        )
    order = np.argsort(-counts, axis=1, kind="stable")
    ranks = max(1, int((counts > 0).sum(axis=1).max()))
    ranked = order[:, :ranks]
    sorted_counts = np.take_along_axis(counts, ranked, axis=1)
    solve = _dirichlet_masses if model.sampler == "dirichlet" else _topic_set_masses
    first, unseen_first, pair, unseen_pair = solve(model, masking, ranked, sorted_counts, masks, average)
    # A topic of no word in the document has the same mass as any other such topic, times its prior's parameter.
    prior = model.dirichlet if model.sampler == "dirichlet" else np.ones(model.topics)
    mask, word = unseen_first[:, None] * prior, unseen_pair[:, :, None] * prior
    np.put_along_axis(mask, ranked, first, axis=1)
    np.put_along_axis(word, np.broadcast_to(ranked[:, None], pair.shape), pair, axis=2)
    return TopicMasses(np.where(masks[:, None] > 0, mask, 0.0), word, ranked)


def _dirichlet_masses(
    model: TopicModel,
    masking: Masking,
    ranked: Int[np.ndarray, "document rank"],
    counts: Int[np.ndarray, "document rank"],
    masks: Int[np.ndarray, " document"],
    average: Average,
) -> Sums:
    r"""Expand ∏ (Aθ_t + B/T)^{n_t} in the numbers k_t of genuine words, K = Σ k_t, and integrate θ out.

    .. math:: E\Bigl[\theta_s \prod_t \theta_t^{k_t}\Bigr] =
        \frac{(a_s + k_s) \prod_t (a_t)_{k_t}}{(a_0)_{K+1}}, \qquad a_0 = \sum_t a_t
    """
    words = counts.sum(axis=1)
    total = np.arange(words.max() + 1)
    prior = float(model.dirichlet.sum())
    noise = masking.mask * masking.random / model.topics
    genuine = 1 - (1 - masking.keep) * masking.mask
    # x^k → (x·y)^k balances the growth of (a)_k against that of (a₀)_K; it cancels between factors and end.
    log_y = np.log(max(genuine, 1e-3) / max(noise, 1e-9)) - np.log(prior + words + 1)

    n, k = counts[:, :, None], np.arange(counts.max() + 1)
    a = model.dirichlet[ranked][:, :, None]
    with np.errstate(invalid="ignore"):
        log_base = _log_binomial(n, k) + gammaln(a + k) - gammaln(a) + k * log_y[:, None, None]
    log_base = np.where(k <= n, log_base, -np.inf)
    base = np.exp(log_base - logsumexp(log_base, axis=2, keepdims=True))
    left = np.where(k <= n, 1 - k / np.maximum(n, 1), 0.0) * (n > 0)
    factors = Factors(base, base * left, base * (a + k), base * left * (a + k))

    shared = (
        _log_mask_integral(words + masks, total, masking, average)
        - (gammaln(prior + total + 1) - gammaln(prior))
        - total * log_y[:, None]
    )
    log_mask = np.where(total <= words[:, None], shared + xlogy(np.maximum(words[:, None] - total, 0), noise), -np.inf)
    log_word = np.where(
        total < words[:, None], shared + xlogy(np.maximum(words[:, None] - 1 - total, 0), noise), -np.inf
    )
    offset = np.maximum(log_mask.max(axis=1), log_word.max(axis=1))[:, None]
    mask_end, word_end = np.exp(log_mask - offset), np.exp(log_word - offset)
    return marked_sums(factors, mask_end, word_end, mask_end, word_end)


def _topic_set_masses(
    model: TopicModel,
    masking: Masking,
    ranked: Int[np.ndarray, "document rank"],
    counts: Int[np.ndarray, "document rank"],
    masks: Int[np.ndarray, " document"],
    average: Average,
) -> Sums:
    """Sum over all sets of τ topics: a topic gives (A/τ + B/T)^{n_t} if it is in the set, else (B/T)^{n_t}."""
    documents, tau, unseen = len(counts), model.per_document, model.topics - counts.shape[1]
    z, log_share = mask_nodes(int((counts.sum(axis=1) + masks).max()), average)
    noise = z * masking.mask * masking.random / model.topics
    inside = (1 - masking.mask + z * masking.mask * masking.keep) / tau + noise
    # Row: a document at a node of z.
    n = np.repeat(counts, len(z), axis=0)
    weight = np.tile(np.stack([noise, inside], axis=1), (documents, 1))[:, None, :]
    log_full = xlogy(n[:, :, None], weight)
    log_norm = logsumexp(log_full, axis=2, keepdims=True)
    base = np.exp(log_full - log_norm)
    cut = np.exp(xlogy(np.maximum(n[:, :, None] - 1, 0), weight) - log_norm) * (n[:, :, None] > 0)
    chosen = np.array([0.0, 1.0 / tau])
    factors = Factors(base, cut, base * chosen, cut * chosen)

    size = np.arange(tau + 1)
    log_ways, log_ways_with = _log_binomial(unseen, tau - size), _log_binomial(unseen - 1, tau - size - 1)
    end = np.exp(log_ways - log_ways.max())
    end_with = np.exp(log_ways_with - log_ways.max()) / tau
    ends = (np.broadcast_to(part, (len(n), tau + 1)) for part in (end, end, end_with, end_with))
    first, unseen_first, pair, unseen_pair = marked_sums(factors, *ends)

    log_row = log_norm.sum(axis=(1, 2)).reshape(documents, -1) + log_share + xlogy(masks[:, None], z)
    row = np.exp(log_row - log_row.max(axis=1, keepdims=True))
    # A [MASK] query is not among the other [MASK]s: one factor z less.
    row_mask = row / z

    def integrate(
        values: Float[np.ndarray, "row *rest"], weights: Float[np.ndarray, "document node"]
    ) -> Float[np.ndarray, "document *rest"]:
        by_node = values.reshape(documents, len(z), *values.shape[1:])
        return np.asarray(np.einsum("dz...,dz->d...", by_node, weights))

    return (
        integrate(first, row_mask),
        integrate(unseen_first, row_mask),
        integrate(pair, row),
        integrate(unseen_pair, row),
    )


def mask_nodes(length: int, average: Average) -> tuple[Float[np.ndarray, " node"], Float[np.ndarray, " node"]]:
    """Nodes in z and the logarithms of their weights, exact for polynomials of a document of this length.

    Long documents get fewer nodes than degree/2: z^N is resolved to rounding by a multiple of √N of them. With
    "batch" averaging a query's weight is 1 instead of 1/|M|, which is the one node z = 1.
    """
    if average == "batch":
        return np.ones(1), np.zeros(1)
    nodes, weights = roots_legendre(min(-(-length // 2), 16 + 4 * int(np.sqrt(length))))
    return (1 + nodes) / 2, np.log(weights / 2)


def _log_mask_integral(
    lengths: Int[np.ndarray, " document"], total: Int[np.ndarray, " total"], masking: Masking, average: Average
) -> Float[np.ndarray, "document total"]:
    """The logarithm of ∫ z^{N−1−K} (1 − p_m + z p_m p_c)^K dz for every document and K; −∞ where K > N − 1."""
    distinct, where = np.unique(lengths, return_inverse=True)
    z, log_share = mask_nodes(int(distinct.max()), average)
    rest = distinct[:, None] - 1 - total
    seen = xlogy(total[:, None], 1 - masking.mask + z * masking.mask * masking.keep)
    table = logsumexp(log_share + xlogy(np.maximum(rest, 0)[:, :, None], z) + seen, axis=2)
    return np.where(rest >= 0, table, -np.inf)[where]


def _log_binomial(n: Int[np.ndarray, "..."] | int, k: Int[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """The logarithm of C(n, k), −∞ where k < 0 or k > n."""
    inside = (k >= 0) & (k <= n)
    safe = np.where(inside, k, 0)
    value = gammaln(np.maximum(n, 0) + 1) - gammaln(safe + 1) - gammaln(np.maximum(n - safe, 0) + 1)
    return np.where(inside, value, -np.inf)


@dataclass(frozen=True, eq=False)
class Factors:
    """One polynomial per row (document) and rank (topic), and what takes its place at a marked topic."""

    base: Float[np.ndarray, "row rank degree"]
    removed: Float[np.ndarray, "row rank degree"]
    """With one of the topic's words taken out."""
    moment: Float[np.ndarray, "row rank degree"]
    """With one more factor θ of the topic's proportion."""
    both: Float[np.ndarray, "row rank degree"]

    @property
    def ranks(self) -> int:
        """How many topics have a polynomial."""
        return int(self.base.shape[1])

    def width(self, rank: int) -> int:
        """Coefficients of a rank beyond this one are zero in every row."""
        return int(np.flatnonzero(self.base[:, rank].any(axis=0))[-1]) + 1


def marked_sums(
    factors: Factors,
    mask_end: Float[np.ndarray, "row total"],
    word_end: Float[np.ndarray, "row total"],
    unseen_mask_end: Float[np.ndarray, "row total"],
    unseen_word_end: Float[np.ndarray, "row total"],
) -> Sums:
    """The sums that [MASK] queries and word queries need.

    1. ``mask_end`` of the product with rank s marked by ``moment``; 2. ``unseen_mask_end`` of the plain product;
    3. ``word_end`` with rank t marked by ``removed`` and rank s by ``moment`` (by ``both`` if s = t);
    4. ``unseen_word_end`` with rank t marked by ``removed``. The "unseen" ends are those for a moment of a topic
    that has no polynomial because none of its words occurs.
    """
    rows, ranks, totals = *factors.base.shape[:2], mask_end.shape[1]
    first, pair = np.zeros((rows, ranks)), np.zeros((rows, ranks, ranks))
    after_mask, after_word = _backward(factors, mask_end), _backward(factors, word_end)
    plain = np.zeros((rows, 1, totals))
    plain[:, 0, 0] = 1.0
    removed, moment = np.zeros((rows, 0, totals)), np.zeros((rows, 0, totals))
    for rank in range(ranks):
        width = factors.width(rank)
        base, cut, mark, both = (
            part[:, rank, :width] for part in (factors.base, factors.removed, factors.moment, factors.both)
        )
        first[:, rank] = _pairing(plain, mark, after_mask[rank])[:, 0]
        pair[:, rank, rank] = _pairing(plain, both, after_word[rank])[:, 0]
        pair[:, :rank, rank] = _pairing(removed, mark, after_word[rank])
        pair[:, rank, :rank] = _pairing(moment, cut, after_word[rank])
        removed = np.concatenate([_multiply(removed, base), _multiply(plain, cut)], axis=1)
        moment = np.concatenate([_multiply(moment, base), _multiply(plain, mark)], axis=1)
        plain = _multiply(plain, base)
    return (
        first,
        np.einsum("rk,rk->r", plain[:, 0], unseen_mask_end),
        pair,
        np.einsum("rtk,rk->rt", removed, unseen_word_end),
    )


def _backward(factors: Factors, end: Float[np.ndarray, "row total"]) -> list[Float[np.ndarray, "row total"]]:
    """For each rank the functional that multiplies by all later ranks' polynomials and then applies ``end``."""
    after = [end]
    for rank in range(factors.ranks - 1, 0, -1):
        after.append(_adjoint(factors.base[:, rank, : factors.width(rank)], after[-1]))
    return after[::-1]


def _multiply(
    polynomials: Float[np.ndarray, "row chain total"], factor: Float[np.ndarray, "row degree"]
) -> Float[np.ndarray, "row chain total"]:
    """Products of polynomials, cut at the highest total that counts."""
    degree = factor.shape[1] - 1
    padded = np.pad(polynomials, ((0, 0), (0, 0), (degree, 0)))
    return np.asarray(np.einsum("rckj,rj->rck", sliding_window_view(padded, degree + 1, axis=2), factor[:, ::-1]))


def _adjoint(
    factor: Float[np.ndarray, "row degree"], functional: Float[np.ndarray, "row total"]
) -> Float[np.ndarray, "row total"]:
    """The functional p ↦ functional(factor · p)."""
    degree = factor.shape[1] - 1
    padded = np.pad(functional, ((0, 0), (0, degree)))
    return np.asarray(np.einsum("rkj,rj->rk", sliding_window_view(padded, degree + 1, axis=1), factor))


def _pairing(
    polynomials: Float[np.ndarray, "row chain total"],
    factor: Float[np.ndarray, "row degree"],
    functional: Float[np.ndarray, "row total"],
) -> Float[np.ndarray, "row chain"]:
    """functional(factor · p) for each p."""
    return np.asarray(np.einsum("rck,rk->rc", polynomials, _adjoint(factor, functional)))
