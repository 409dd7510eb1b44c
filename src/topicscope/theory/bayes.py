r"""The floor below any model: the loss of the Bayes-optimal predictor of a masked word.

The predictor sees the whole masked document and knows that its own position is masked; it does not know which other
positions hold a kept or a random word. Losses follow eq. 1: the mean over documents of the mean over their masked
positions, |M| ≥ 1. There are two floors: for all masked positions, and for [MASK] queries alone.

Each document's posterior is exact: for disjoint topics of equally likely words it is computed as below, for other
topics by listing all sets of τ topics. Only the mean over documents is a Monte-Carlo estimate, and each document
contributes its expected loss given what is seen, not that of one drawn word or mask.

Given θ, a token of a word of topic t has probability (A θ_t + B/T)/v with A = 1 − p_m + z p_m p_c, B = z p_m p_r, where
z marks masked positions; eq. 1 weights a query by 1/|M|, the integral of z^{|M| − 1} over [0, 1], for which Gauss-
Legendre nodes are exact. What a query needs is E[θ_s · likelihood of all other tokens] for every topic s. The
likelihood is a sum of products: each topic t gives a polynomial whose degree-k coefficient stands for "k of its words
are genuine" (Dirichlet) or "the topic is one of the document's" (k = 0 or 1). The prior depends on the total degree K
alone, as a functional ``end`` on polynomials: Σ_K end[K] [x^K] ∏_t p_t(x); the factor θ_s replaces one polynomial
(``marked_sums``). All terms are positive, so nothing cancels. docs/theory.md has the derivation.
"""

from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
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
# How many documents are drawn at a time, and numbers held at a time, which sets how many are solved together.
DRAWN, MOST_NUMBERS = 256, 20_000_000
# More sets of topics than this are not listed one by one.
MOST_SETS = 5_000


@dataclass(frozen=True)
class Floor:
    """The least expected loss, for either loss: a mean over documents and its 95 % interval."""

    cross_entropy: Interval
    """cross-entropy."""
    squared: Interval
    """squared."""


@dataclass(frozen=True)
class BayesFloors:
    """The floors of one setting."""

    masked: Floor
    """All masked positions."""
    mask_queries: Floor | None
    """[MASK] queries alone; None if no position becomes [MASK], or too few of the sampled documents have one."""
    documents: int
    documents_with_mask: int
    """How many of the sampled documents have a [MASK]."""
    method: str


class DocumentLosses(NamedTuple):
    """The least expected losses of each document, given the tokens that are seen but not where M is.

    The axis "loss" has cross-entropy and squared loss, in this order.
    """

    masked: Float[np.ndarray, "document loss"]
    """Mean over masked positions and all possible M: each token's loss, weighted by how likely the query holds it."""
    mask_queries: Float[np.ndarray, "document loss"]
    """The loss at a [MASK] query; 0 where a document has none."""
    mask_share: Float[np.ndarray, " document"]
    """How likely the query holds [MASK]."""
    size: Float[np.ndarray, " document"]
    """|M|."""


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
    method, at_once = _method(model), max(1, MOST_NUMBERS // _numbers(model))
    parts: list[DocumentLosses] = []
    for done in range(0, samples, DRAWN):
        count = min(DRAWN, samples - done)
        documents = sample_documents(model, count, shuffled=False, generator=generator)
        masked = mask_documents(documents, masking, model.vocabulary, generator=generator)
        for first in range(0, count, at_once):
            last = min(first + at_once, count)
            parts.append(document_losses(model, masking, masked.span(first, last), average))
            if report is not None:
                report(done + last, samples, "documents")
    losses = DocumentLosses(*map(np.concatenate, zip(*parts, strict=True)))
    everywhere = np.ones(samples) if average == "document" else losses.size
    with_mask = int(np.count_nonzero(losses.mask_share))
    at_mask = with_mask >= FEWEST_DOCUMENTS
    return BayesFloors(
        masked=_floor(losses.masked, everywhere),
        mask_queries=_floor(losses.mask_queries, everywhere * losses.mask_share) if at_mask else None,
        documents=samples,
        documents_with_mask=with_mask,
        method=f"exact posterior of each document{method}; Monte-Carlo over documents",
    )


def _floor(losses: Float[np.ndarray, "document loss"], weight: Float[np.ndarray, " document"]) -> Floor:
    """Weighted means with intervals; the standard error of a ratio of means, to first order."""
    value = weight @ losses / weight.sum()
    spread = (weight[:, None] * (losses - value)).std(axis=0, ddof=1)
    half = ndtri((1 + CONFIDENCE) / 2) * spread / (weight.mean() * np.sqrt(len(losses)))
    cross_entropy, squared = (Interval(float(v), float(v - h), float(v + h)) for v, h in zip(value, half, strict=True))
    return Floor(cross_entropy, squared)


def _method(model: TopicModel) -> str:
    """How this model's posterior is computed, in words; models without a finite sum are refused."""
    if model.equal_words is not None:
        return " by a sum over " + ("genuine words" if model.sampler == "dirichlet" else "topic sets")
    if model.sampler == "topics" and comb(model.topics, model.per_document) <= MOST_SETS:
        return ", all topic sets listed"
    raise InputError(
        "data.topic_words is not allowed for the Bayes floor of these documents: topics that share words or have "
        "unequal ones have no finite sum for Dirichlet proportions, and for the sampler "
        f'"topics" all topic sets are listed, at most {MOST_SETS}; use that sampler, or equal disjoint topics.'
    )


def _numbers(model: TopicModel) -> int:
    """How many numbers the posterior of one document takes at most."""
    longest = model.length[1]
    if model.equal_words is None:
        return longest * (model.vocabulary + comb(model.topics, model.per_document) * longest)
    ranks = min(model.topics, longest)
    return (ranks + 1) * (model.topics + ranks * (longest if model.sampler == "dirichlet" else 2 * min(longest, 64)))


def document_losses(
    model: TopicModel, masking: Masking, masked: MaskedDocuments, average: Average = "document"
) -> DocumentLosses:
    """The Bayes-optimal predictor's expected losses in these masked documents."""
    solve = listed_queries if model.equal_words is None else disjoint_queries
    return losses_of(solve(model, masking, masked, average), masked)


def losses_of(queries: "Queries", masked: MaskedDocuments) -> DocumentLosses:
    """The losses of each document from what may be asked of it."""
    document, count = queries.document, len(masked)
    total = (queries.words * queries.joint).sum(axis=1)
    losses = expected_losses(queries.joint / np.where(total > 0, total, 1.0)[:, None], queries.words)
    share = queries.positions * total
    share = share / np.bincount(document, share, count)[document]
    everywhere, at_mask = np.zeros((2, count, 2))
    np.add.at(everywhere, document, share[:, None] * losses)
    at_mask[document[queries.is_mask]] = losses[queries.is_mask]
    mask_share = np.bincount(document, share * queries.is_mask, count)
    return DocumentLosses(everywhere, at_mask, mask_share, masked.masked_counts.astype(float))


def expected_losses(
    prediction: Float[np.ndarray, "*rest outcome"], number: Float[np.ndarray, "..."] | float = 1.0
) -> Float[np.ndarray, "*rest loss"]:
    """The cross-entropy and squared loss of a distribution under itself: −Σ p log p and 1 − Σ p².

    ``number`` says how many words share each entry.
    """
    entropy = -(number * xlogy(prediction, prediction)).sum(axis=-1)
    return np.stack([entropy, 1 - (number * prediction**2).sum(axis=-1)], axis=-1)


class Queries(NamedTuple):
    """What may stand at a masked position of each document: [MASK], or a word; alike words are one row."""

    document: Int[np.ndarray, " query"]
    positions: Int[np.ndarray, " query"]
    """How many positions of the document hold it."""
    is_mask: Bool[np.ndarray, " query"]
    joint: Float[np.ndarray, "query outcome"]
    """P(other tokens, this token at a masked position, the word below), up to a factor that depends on the document."""
    words: Float[np.ndarray, "query outcome"]
    """How many words an outcome stands for, each of them with this probability."""


def disjoint_queries(model: TopicModel, masking: Masking, masked: MaskedDocuments, average: Average) -> Queries:
    """For disjoint topics of equally likely words: a row for [MASK], and one for the words of each topic that occurs.

    Outcomes are the words of each topic, and last the query's own.
    """
    topics, v = model.topics, (model.vocabulary - 1) // model.topics
    topic_of = (masked.tokens - 1) // v + 1
    table = np.bincount(masked.document * (topics + 1) + topic_of, minlength=len(masked) * (topics + 1))
    masks, by_topic = np.split(table.reshape(len(masked), topics + 1), [1], axis=1)
    # The topics that occur, most frequent first.
    ranks = max(1, int((by_topic > 0).sum(axis=1).max()))
    ranked = np.argsort(-by_topic, axis=1, kind="stable")[:, :ranks]
    counts = np.take_along_axis(by_topic, ranked, axis=1)
    positions = np.hstack([masks, counts])
    document, kind = np.nonzero(positions)
    is_mask, ranked = kind == 0, ranked[document]
    # The document without the query's own token.
    others = np.hstack([masks, counts])[document] - np.eye(ranks + 1, dtype=int)[kind]
    solve = _dirichlet_sums if model.sampler == "dirichlet" else _topic_set_sums
    seen, unseen, log_scale = solve(model, masking, ranked, others[:, 1:], others[:, 0], average)
    # All topics without a word in the document have the same sum, times each one's prior parameter.
    prior = model.dirichlet if model.sampler == "dirichlet" else np.ones(topics)
    sums = unseen[:, None] * prior
    np.put_along_axis(sums, ranked, seen, axis=1)
    largest = np.full(len(masked), -np.inf)
    np.maximum.at(largest, document, log_scale)
    sums *= np.exp(log_scale - largest[document])[:, None]

    random = masking.mask * masking.random / (topics * v)
    joint, words = np.zeros((len(sums), topics + 1)), np.full((len(sums), topics + 1), float(v))
    joint[:, :-1] = sums * np.where(is_mask, 1 / v, random)[:, None]
    query = np.flatnonzero(~is_mask)
    own = ranked[query, kind[query] - 1]
    joint[query, -1] = sums[query, own] * (random + masking.mask * masking.keep)
    words[query, own], words[:, -1] = v - 1, 1
    return Queries(document, positions[document, kind], is_mask, joint, words)


# E[θ_s · likelihood] of the topics that occur, by rank; the same for others, over their prior; a logarithm to add.
Sums = tuple[Float[np.ndarray, "row rank"], Float[np.ndarray, " row"], Float[np.ndarray, " row"]]


def _dirichlet_sums(
    model: TopicModel,
    masking: Masking,
    ranked: Int[np.ndarray, "row rank"],
    counts: Int[np.ndarray, "row rank"],
    masks: Int[np.ndarray, " row"],
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

    k = np.arange(counts.max() + 1)
    rising = gammaln(model.dirichlet[:, None] + k) - gammaln(model.dirichlet[:, None])
    log_base = _log_binomial(k[:, None], k)[counts] + rising[ranked] + k * log_y[:, None, None]
    log_norm = log_base.max(axis=2)
    base = np.exp(log_base - log_norm[:, :, None])
    log_end = (
        _log_mask_integral(words + masks, total, masking, average)
        - (gammaln(prior + total + 1) - gammaln(prior))
        - total * log_y[:, None]
        + xlogy(np.maximum(words[:, None] - total, 0), noise)
    )
    log_end = np.where(total <= words[:, None], log_end, -np.inf)
    offset = log_end.max(axis=1)
    end = np.exp(log_end - offset[:, None])
    moment = base * (model.dirichlet[ranked][:, :, None] + k)
    return *marked_sums(base, moment, end, end), offset + log_norm.sum(axis=1)


def _topic_set_sums(
    model: TopicModel,
    masking: Masking,
    ranked: Int[np.ndarray, "row rank"],
    counts: Int[np.ndarray, "row rank"],
    masks: Int[np.ndarray, " row"],
    average: Average,
) -> Sums:
    """Sum over all sets of τ topics: a topic gives (A/τ + B/T)^{n_t} if it is in the set, else (B/T)^{n_t}."""
    rows, tau, unseen = len(counts), model.per_document, model.topics - counts.shape[1]
    z, log_share = mask_nodes(int((counts.sum(axis=1) + masks).max()) + 1, average)
    noise = z * masking.mask * masking.random / model.topics
    inside = (1 - masking.mask + z * masking.mask * masking.keep) / tau + noise
    # A row at a node of z.
    weight = np.tile(np.stack([noise, inside], axis=1), (rows, 1))[:, None, :]
    log_base = xlogy(np.repeat(counts, len(z), axis=0)[:, :, None], weight)
    log_norm = log_base.max(axis=2)
    base = np.exp(log_base - log_norm[:, :, None])
    size = np.arange(tau + 1)
    log_ways, log_ways_with = _log_binomial(unseen, tau - size), _log_binomial(unseen - 1, tau - size - 1)
    end = np.exp(log_ways - log_ways.max())
    end_with = np.exp(log_ways_with - log_ways.max()) / tau
    ends = (np.broadcast_to(part, (len(base), tau + 1)) for part in (end, end_with))
    seen, others = marked_sums(base, base * [0.0, 1.0 / tau], *ends)

    log_row = log_norm.sum(axis=1).reshape(rows, -1) + log_share + xlogy(masks[:, None], z)
    offset = log_row.max(axis=1)
    weights = np.exp(log_row - offset[:, None])
    return (
        np.einsum("rzs,rz->rs", seen.reshape(rows, len(z), -1), weights),
        np.einsum("rz,rz->r", others.reshape(rows, -1), weights),
        offset,
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
    others: Int[np.ndarray, " row"], total: Int[np.ndarray, " total"], masking: Masking, average: Average
) -> Float[np.ndarray, "row total"]:
    """The logarithm of ∫ z^{N−K} (1 − p_m + z p_m p_c)^K dz for N other positions and every K; −∞ where K > N."""
    distinct, where = np.unique(others, return_inverse=True)
    z, log_share = mask_nodes(int(distinct.max()) + 1, average)
    rest = distinct[:, None] - total
    seen = xlogy(total[:, None], 1 - masking.mask + z * masking.mask * masking.keep)
    table = logsumexp(log_share + xlogy(np.maximum(rest, 0)[:, :, None], z) + seen, axis=2)
    return np.where(rest >= 0, table, -np.inf)[where]


def _log_binomial(n: Int[np.ndarray, "..."] | int, k: Int[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """The logarithm of C(n, k), −∞ where k < 0 or k > n."""
    inside = (k >= 0) & (k <= n)
    safe = np.where(inside, k, 0)
    value = gammaln(np.maximum(n, 0) + 1) - gammaln(safe + 1) - gammaln(np.maximum(n - safe, 0) + 1)
    return np.where(inside, value, -np.inf)


def marked_sums(
    base: Float[np.ndarray, "row rank degree"],
    moment: Float[np.ndarray, "row rank degree"],
    end: Float[np.ndarray, "row total"],
    unseen_end: Float[np.ndarray, "row total"],
) -> tuple[Float[np.ndarray, "row rank"], Float[np.ndarray, " row"]]:
    """``end`` of the product of all ranks' polynomials with one after the other replaced by its moment, and the rest.

    The rest is ``unseen_end`` of the plain product, for a moment of a topic without a polynomial: none of its words
    occur.
    """
    # How many coefficients of each rank's polynomial, and of the product of those before it, are not zero in all rows.
    widths = [int(np.flatnonzero(base[:, rank].any(axis=0))[-1]) + 1 for rank in range(base.shape[1])]
    lengths = np.minimum(np.cumsum([1, *(width - 1 for width in widths)]), end.shape[1])
    after = [end[:, : lengths[-1]]]
    for rank in range(len(widths) - 1, 0, -1):
        after.append(_adjoint(base[:, rank, : widths[rank]], after[-1])[:, : lengths[rank]])
    product, seen = np.ones((len(base), 1)), []
    for rank, width in enumerate(widths):
        marked = _adjoint(moment[:, rank, :width], after.pop())
        seen.append(np.einsum("rk,rk->r", product, marked[:, : lengths[rank]]))
        product = np.pad(product, ((0, 0), (0, lengths[rank + 1] - lengths[rank])))
        product = _adjoint(base[:, rank, :width], product[:, ::-1])[:, ::-1]
    return np.stack(seen, axis=1), np.einsum("rk,rk->r", product, unseen_end[:, : lengths[-1]])


def _adjoint(
    factor: Float[np.ndarray, "row degree"], functional: Float[np.ndarray, "row total"]
) -> Float[np.ndarray, "row total"]:
    """The functional p ↦ functional(factor · p); with the order of coefficients reversed, the product itself."""
    padded = np.pad(functional, ((0, 0), (0, factor.shape[1] - 1)))
    return np.asarray(np.einsum("rkj,rj->rk", sliding_window_view(padded, factor.shape[1], axis=1), factor))


def listed_queries(model: TopicModel, masking: Masking, masked: MaskedDocuments, average: Average) -> Queries:
    """For any topics, also those that share words: a row per document and token, by listing every set of τ topics.

    The prior is a sum over C(T, τ) sets, each with its own word distribution, and the likelihood is a product over
    tokens; z brings in 1/|M| as above. This is exact, and feasible for few sets; Dirichlet proportions have no such
    list.
    """
    vocabulary, count = model.vocabulary, len(masked)
    pair, seen = np.unique(masked.document * vocabulary + masked.tokens, return_counts=True)
    document, token = np.divmod(pair, vocabulary)
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
    log_other = np.log(np.where(impossible, 1.0, other))
    log_all = np.einsum("dt,szt->dsz", table, log_other) + log_share
    blocked = np.einsum("dt,szt->dsz", table, impossible.astype(float))
    log_rest = log_all[document] - np.moveaxis(log_other[:, :, token], 2, 0)
    log_rest[blocked[document] - np.moveaxis(impossible[:, :, token], 2, 0) > 0] = -np.inf
    offset = np.full(count, -np.inf)
    np.maximum.at(offset, document, log_rest.max(axis=(1, 2)))
    by_set = np.exp(log_rest - offset[document][:, None, None]).sum(axis=2)
    joint = by_set @ words * token_likelihood(model, masking, token)
    return Queries(document, seen, token == 0, joint, np.ones(joint.shape))


def token_likelihood(
    model: TopicModel, masking: Masking, token: Int[np.ndarray, " query"]
) -> Float[np.ndarray, "query word"]:
    """P(token | word) at a masked position: [MASK], a random word, or the word itself."""
    words = model.vocabulary - 1
    likelihood = np.repeat(np.where(token == 0, masking.replaced, masking.random / words)[:, None], words, axis=1)
    is_word = np.flatnonzero(token > 0)
    likelihood[is_word, token[is_word] - 1] += masking.keep
    return likelihood
