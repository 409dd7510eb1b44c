r"""The floor below any model: the loss of the Bayes-optimal predictor of a masked word.

The predictor sees the whole masked document and knows that its own position is masked; it does not know which other
positions hold a kept or a random word. Losses follow eq. 1: the mean over documents of the mean over their masked
positions, |M| ≥ 1. There are three floors: for all masked positions, for [MASK] queries alone, and for the best
predictor that sees the document as a bag of tokens but not which of them is its own (all that uniform attention uses).

Each document's posterior is exact: for disjoint topics of equally likely words it is computed as below, for other
topics by listing all sets of τ topics. Only the mean over documents is a Monte-Carlo estimate, and each document
contributes its expected loss given what is seen, not that of one drawn word or mask.

Given θ, a token of a word of topic t has probability (A θ_t + B/T)/v with A = 1 − p_m + z p_m p_c, B = z p_m p_r,
where z marks masked positions. Only at [MASK] and at the query is it known that a position is masked, and eq. 1 weights
a query by 1/|M|; the weight enters through

.. math:: \frac{1}{|M|} = \int_0^1 z^{|M| - 1} dz.

The integrand is a polynomial in z, so Gauss-Legendre nodes make the integral exact (docs/theory.md).

The likelihood is then a sum of products: each topic t gives a polynomial whose degree-k coefficient stands for "k of
its words are genuine" (Dirichlet) or "the topic is one of the document's" (k = 0 or 1). The prior depends on the total
degree K alone, as a functional ``end`` on polynomials: Σ_K end[K] [x^K] ∏_t p_t(x). Everything that a posterior needs
is such a sum with the polynomials of at most two topics replaced (``marked_sums``). All terms are positive, so nothing
cancels; forward and backward passes share the work, as in a hidden Markov model.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
from jaxtyping import Float, Int
from numpy.lib.stride_tricks import sliding_window_view
from scipy.special import gammaln, logsumexp, ndtri, roots_legendre, xlogy

from topicscope.errors import InputError, check_at_least
from topicscope.measure.uncertainty import CONFIDENCE, Interval
from topicscope.settings.data import Masking
from topicscope.settings.training import Average
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.synthetic.masking import mask_documents
from topicscope.synthetic.topics import TopicModel, sample_documents
from topicscope.work import Report

# An interval over fewer documents than this means little; few documents may have a [MASK] query.
FEWEST_DOCUMENTS = 30
# Numbers held at a time, which sets how many documents are worked on together.
CHUNK_NUMBERS = 4_000_000
# More sets of topics than this are not listed one by one.
MOST_SETS = 5_000

# What ``marked_sums`` returns; a row is a document, or a document at a node of z.
Sums = tuple[
    Float[np.ndarray, "row rank"],
    Float[np.ndarray, " row"],
    Float[np.ndarray, "row rank rank"],
    Float[np.ndarray, "row rank"],
]


@dataclass(frozen=True)
class Floor:
    """The least expected loss, for either loss: a mean over documents and its 95 % interval."""

    cross_entropy: Interval
    squared: Interval


@dataclass(frozen=True)
class BayesFloors:
    """The three floors of one setting."""

    masked: Floor
    """All masked positions."""
    mask_queries: Floor | None
    """[MASK] queries alone; None if no position becomes [MASK], or too few of the sampled documents have one."""
    query_blind: Floor
    """The best predictor that ignores which token its own position holds."""
    documents: int
    documents_with_mask: int
    """How many of the sampled documents have a [MASK]."""
    method: str


@dataclass(frozen=True, eq=False)
class DocumentLosses:
    """The least expected losses of each document, given the tokens that are seen but not where M is.

    The axis "loss" has cross-entropy and squared loss, in this order.
    """

    masked: Float[np.ndarray, "document loss"]
    """Mean over masked positions and all possible M: each token's loss, weighted by how likely the query holds it."""
    mask_queries: Float[np.ndarray, "document loss"]
    """The loss at a [MASK] query; 0 where a document has none."""
    query_blind: Float[np.ndarray, "document loss"]
    """The loss at any masked position, for the one prediction that does not know which token its position holds."""
    mask_share: Float[np.ndarray, " document"]
    """How likely the query holds [MASK]."""
    size: Float[np.ndarray, " document"]
    """|M|."""

    @classmethod
    def joined(cls, parts: list["DocumentLosses"]) -> "DocumentLosses":
        """All documents of all parts."""
        names = cls.__dataclass_fields__
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


def bayes_floors(
    model: TopicModel,
    masking: Masking,
    *,
    samples: int,
    generator: np.random.Generator,
    average: Average = "document",
    report: Report | None = None,
) -> BayesFloors:
    """The floors for this model, estimated from ``samples`` documents.

    ``report`` is called with the number of documents done, the number in all, and a few words on the state.
    """
    check_at_least("samples", samples, 2)
    model.require_no_ends()
    parts: list[DocumentLosses] = []
    done = 0
    # How many documents to work on together.
    ranks, longest = min(model.topics, model.length[1]), model.length[1]
    numbers = ranks * (longest + model.topics) + model.vocabulary
    if model.equal_words is None:
        numbers = longest * (model.vocabulary + comb(model.topics, model.per_document) * longest)
    elif model.sampler == "topics":
        numbers = (ranks * (ranks + model.per_document)) * min(longest, 64) + model.vocabulary
    chunk = max(1, min(256, CHUNK_NUMBERS // numbers))
    while done < samples:
        size = min(chunk, samples - done)
        documents = sample_documents(model, size, shuffled=False, generator=generator)
        masked = mask_documents(documents, masking, model.vocabulary, generator=generator)
        parts.append(document_losses(model, masking, masked, average))
        done += size
        if report is not None:
            report(done, samples, "documents")
    losses = DocumentLosses.joined(parts)
    everywhere = np.ones(len(losses.size)) if average == "document" else losses.size
    at_mask = everywhere * losses.mask_share
    with_mask = int(np.count_nonzero(losses.mask_share))
    return BayesFloors(
        masked=_floor(losses.masked, everywhere),
        mask_queries=_floor(losses.mask_queries, at_mask) if with_mask >= FEWEST_DOCUMENTS else None,
        query_blind=_floor(losses.query_blind, everywhere),
        documents=samples,
        documents_with_mask=with_mask,
        method=_solver(model)[1],
    )


def _floor(losses: Float[np.ndarray, "document loss"], weight: Float[np.ndarray, " document"]) -> Floor:
    """Weighted means with intervals; the standard error of a ratio of means, to first order."""
    value = weight @ losses / weight.sum()
    spread = (weight[:, None] * (losses - value)).std(axis=0, ddof=1)
    half = ndtri((1 + CONFIDENCE) / 2) * spread / (weight.mean() * np.sqrt(len(losses)))
    cross_entropy, squared = (Interval(float(v), float(v - h), float(v + h)) for v, h in zip(value, half, strict=True))
    return Floor(cross_entropy, squared)


def document_losses(
    model: TopicModel, masking: Masking, masked: MaskedDocuments, average: Average = "document"
) -> DocumentLosses:
    """The Bayes-optimal predictor's expected losses in these masked documents."""
    return _solver(model)[0](model, masking, masked, average)


def _solver(
    model: TopicModel,
) -> tuple[Callable[[TopicModel, Masking, MaskedDocuments, Average], DocumentLosses], str]:
    """The function that computes this model's posterior, and its description in words."""
    if model.equal_words is not None:
        by = "a sum over genuine words" if model.sampler == "dirichlet" else "a sum over topic sets"
        return disjoint_losses, f"exact posterior of each document by {by}; Monte-Carlo over documents"
    if model.sampler == "topics" and comb(model.topics, model.per_document) <= MOST_SETS:
        return listed_losses, "exact posterior of each document, all topic sets listed; Monte-Carlo over documents"
    raise InputError(
        "data.topic_words is not allowed for the Bayes floor of these documents: topics that share words or have "
        "unequal ones have no finite sum for Dirichlet proportions, and for the sampler "
        f'"topics" all topic sets are listed, at most {MOST_SETS}; use that sampler, or equal disjoint topics.'
    )


def expected_losses(
    prediction: Float[np.ndarray, "*rest outcome"], number: Float[np.ndarray, "..."] | float = 1.0
) -> Float[np.ndarray, "*rest loss"]:
    """The cross-entropy and squared loss of a distribution under itself: −Σ p log p and 1 − Σ p².

    ``number`` says how many words share each entry.
    """
    entropy = -(number * xlogy(prediction, prediction)).sum(axis=-1)
    return np.stack([entropy, 1 - (number * prediction**2).sum(axis=-1)], axis=-1)


@dataclass(frozen=True, eq=False)
class TopicMasses:
    """Masses E[θ_s · likelihood of all other tokens], in units that all queries of a document share.

    A query's prediction needs only their ratios; the best query-blind prediction weights queries by their sums.
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
    """The masses of documents with these numbers of visible words per topic and of [MASK] tokens."""
    order = np.argsort(-counts, axis=1, kind="stable")
    ranks = max(1, int((counts > 0).sum(axis=1).max()))
    ranked = order[:, :ranks]
    sorted_counts = np.take_along_axis(counts, ranked, axis=1)
    solve = _dirichlet_masses if model.sampler == "dirichlet" else _topic_set_masses
    first, unseen_first, pair, unseen_pair = solve(model, masking, ranked, sorted_counts, masks, average)
    # All topics without a word in the document have the same mass, times each one's prior parameter.
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
        """How many of a rank's coefficients are needed: all later ones are zero in every row."""
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
    that has no polynomial because none of its words occur.
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
    """For each rank, the functional that multiplies by all later ranks' polynomials and then applies ``end``."""
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


def disjoint_losses(
    model: TopicModel, masking: Masking, masked: MaskedDocuments, average: Average = "document"
) -> DocumentLosses:
    """Each document's losses, for a model of disjoint topics of equally likely words."""
    counts, masks = _token_counts(model, masked)
    topics = counts.sum(axis=2)
    masses = topic_masses(model, masking, topics, masks, average)
    at_mask = _mask_losses(model, masses)
    at_word = _word_losses(model, masking, masses)

    mask_share, word_share = _query_shares(model, masking, masses, topics, masks)
    blind = expected_losses(_query_blind_predictions(model, masking, masses, counts, masks))
    return DocumentLosses(
        masked=mask_share[:, None] * at_mask + np.einsum("dr,drl->dl", word_share, at_word),
        mask_queries=at_mask,
        query_blind=blind,
        mask_share=mask_share,
        size=masked.masked_counts.astype(float),
    )


def _query_shares(
    model: TopicModel,
    masking: Masking,
    masses: TopicMasses,
    topics: Int[np.ndarray, "document topic"],
    masks: Int[np.ndarray, " document"],
) -> tuple[Float[np.ndarray, " document"], Float[np.ndarray, "document rank"]]:
    """How likely a query holds [MASK], and a word of each ranked topic, given the tokens that are seen."""
    random, kept = masking.mask * masking.random / model.topics, masking.mask * masking.keep
    one_word = random * masses.word.sum(axis=2) + kept * _own_topic(masses)
    word = np.take_along_axis(topics, masses.ranked, axis=1) * one_word
    mask = masks * masses.mask.sum(axis=1)
    total = mask + word.sum(axis=1)
    return mask / total, word / total[:, None]


def _mask_losses(model: TopicModel, masses: TopicMasses) -> Float[np.ndarray, "document loss"]:
    """The losses at a [MASK] query, where every word of topic s has probability E[θ_s]/v."""
    v = (model.vocabulary - 1) // model.topics
    total = masses.mask.sum(axis=1, keepdims=True)
    losses = expected_losses(masses.mask / np.where(total > 0, total, 1.0) / v, float(v))
    return np.where(total > 0, losses, 0.0)


def _word_losses(model: TopicModel, masking: Masking, masses: TopicMasses) -> Float[np.ndarray, "document rank loss"]:
    """The losses at a word query of each ranked topic; a topic's words, but for the query's own, are equally likely."""
    v = (model.vocabulary - 1) // model.topics
    random = masking.random / (model.vocabulary - 1)
    own = _own_topic(masses)
    joint = np.concatenate([masses.word * random, (own * (masking.keep + random))[:, :, None]], axis=2)
    number = np.full(joint.shape, float(v))
    number[:, :, -1] = 1.0
    np.put_along_axis(number, masses.ranked[:, :, None], v - 1.0, axis=2)
    total = (number * joint).sum(axis=2, keepdims=True)
    return expected_losses(joint / np.where(total > 0, total, 1.0), number)


def _query_blind_predictions(
    model: TopicModel,
    masking: Masking,
    masses: TopicMasses,
    counts: Int[np.ndarray, "document topic within"],
    masks: Int[np.ndarray, " document"],
) -> Float[np.ndarray, "document word"]:
    """The best prediction from a bag of tokens: the mean of theirs, weighted by how likely each token is the query."""
    documents, topics, v = counts.shape
    ranked_counts = np.take_along_axis(counts.sum(axis=2), masses.ranked, axis=1)
    random = masking.mask * masking.random / topics
    # First a word of topic s for any query; then what is added where the query is that word, kept.
    base = masks[:, None] * masses.mask + random * np.einsum("dr,drs->ds", ranked_counts, masses.word)
    own = np.zeros((documents, topics))
    np.put_along_axis(own, masses.ranked, _own_topic(masses), axis=1)
    joint = base[:, :, None] + v * masking.mask * masking.keep * counts * own[:, :, None]
    prediction = joint / joint.sum(axis=(1, 2), keepdims=True)
    return np.asarray(prediction.reshape(documents, topics * v))


def _own_topic(masses: TopicMasses) -> Float[np.ndarray, "document rank"]:
    """The mass of the case that the word under a word query is of the query's own topic."""
    return np.take_along_axis(masses.word, masses.ranked[:, :, None], axis=2)[:, :, 0]


def _token_counts(
    model: TopicModel, masked: MaskedDocuments
) -> tuple[Int[np.ndarray, "document topic within"], Int[np.ndarray, " document"]]:
    """How often each word is seen in each document, by topic, and how many [MASK] tokens there are."""
    vocabulary = model.vocabulary
    flat = np.bincount(masked.document * vocabulary + masked.tokens, minlength=len(masked) * vocabulary)
    table = flat.reshape(len(masked), vocabulary)
    return table[:, 1:].reshape(len(masked), model.topics, -1), table[:, 0]


def listed_losses(
    model: TopicModel, masking: Masking, masked: MaskedDocuments, average: Average = "document"
) -> DocumentLosses:
    """Each document's losses for any topics, also those that share words, by listing every set of τ topics.

    The prior is a sum over C(T, τ) sets, each with its own word distribution, and the likelihood is a product over
    tokens; z brings in 1/|M| as above. This is exact, and feasible for few sets; Dirichlet proportions have no such
    list.
    """
    vocabulary, count = model.vocabulary, len(masked)
    flat = masked.document * vocabulary + masked.tokens
    pair, inverse = np.unique(flat, return_inverse=True)
    document, token = pair // vocabulary, pair % vocabulary
    seen = np.bincount(inverse)
    joint = _joint_masses(model, masking, masked, pair, seen, average)

    total = joint.sum(axis=1, keepdims=True)
    losses = expected_losses(joint / np.where(total > 0, total, 1.0))
    share = seen * total[:, 0]
    share = share / np.bincount(document, weights=share)[document]
    masked_mean = np.zeros((count, 2))
    np.add.at(masked_mean, document, share[:, None] * losses)
    at_mask = np.zeros((count, 2))
    at_mask[document[token == 0]] = losses[token == 0]
    blind = np.zeros((count, vocabulary - 1))
    np.add.at(blind, document, seen[:, None] * joint)
    return DocumentLosses(
        masked=masked_mean,
        mask_queries=at_mask,
        query_blind=expected_losses(blind / blind.sum(axis=1, keepdims=True)),
        mask_share=np.bincount(document, weights=share * (token == 0), minlength=count),
        size=masked.masked_counts.astype(float),
    )


def _joint_masses(
    model: TopicModel,
    masking: Masking,
    masked: MaskedDocuments,
    pair: np.ndarray,
    seen: np.ndarray,
    average: Average,
) -> Float[np.ndarray, "pair word"]:
    """P(other tokens, this token at a masked position, its word), up to a factor that depends on the document alone."""
    vocabulary, count = model.vocabulary, len(masked)
    document, token = pair // vocabulary, pair % vocabulary
    sets = np.array(list(combinations(range(model.topics), model.per_document)))
    words = model.topic_words[sets].mean(axis=1)
    z, log_share = mask_nodes(int(masked.lengths.max()), average)
    genuine, noise = 1 - masking.mask + z * masking.mask * masking.keep, z * masking.mask * masking.random
    # P(token | set, z) at a position that is not the query.
    other = np.empty((len(sets), len(z), vocabulary))
    other[:, :, 0] = z * masking.mask * masking.replaced
    other[:, :, 1:] = words[:, None] * genuine[:, None] + (noise / (vocabulary - 1))[:, None]
    table = np.zeros((count, vocabulary))
    table[document, token] = seen
    # For the document without one token of this kind. Impossible tokens are counted apart: −∞ − (−∞) is no number.
    impossible = other == 0
    log_other = np.where(impossible, 0.0, np.log(np.where(impossible, 1.0, other)))
    log_all = np.einsum("dt,szt->dsz", table, log_other) + log_share
    blocked = np.einsum("dt,szt->dsz", table, impossible.astype(float))
    log_rest = log_all[document] - np.moveaxis(log_other[:, :, token], 2, 0)
    still = blocked[document] - np.moveaxis(impossible[:, :, token], 2, 0) > 0
    log_rest = np.where(still, -np.inf, log_rest)
    offset = np.full(count, -np.inf)
    np.maximum.at(offset, document, log_rest.max(axis=(1, 2)))
    by_set = np.exp(log_rest - offset[document][:, None, None]).sum(axis=2)
    return np.asarray(by_set @ words * _token_likelihood(model, masking, token))


def _token_likelihood(
    model: TopicModel, masking: Masking, token: Int[np.ndarray, " query"]
) -> Float[np.ndarray, "query word"]:
    """P(token | word) at a masked position: [MASK], a random word, or the word itself."""
    words = model.vocabulary - 1
    likelihood = np.repeat(np.where(token == 0, masking.replaced, masking.random / words)[:, None], words, axis=1)
    is_word = np.flatnonzero(token > 0)
    likelihood[is_word, token[is_word] - 1] += masking.keep
    return likelihood
