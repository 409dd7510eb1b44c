r"""How many topics a finite LDA document has, exactly.

Given its length N, the numbers of words of each topic are Dirichlet-multinomial: with one Dirichlet parameter α,

.. math:: P(n_1, \dots, n_T) \propto \prod_t w(n_t), \qquad w(n) = \frac{\Gamma(n + \alpha)}{n!\,\Gamma(\alpha)},
    \quad \sum_t n_t = N.

Split the generating function of w into few words, n < m, and many, n ≥ m. With T topics, k of which have many,

.. math:: P(k) = \binom{T}{k} \frac{[x^N]\, M(x)^k F(x)^{T-k}}{[x^N]\, (M(x) + F(x))^T}.

All terms are positive: no digits are lost.
"""

import numpy as np
from jaxtyping import Float
from scipy.special import comb, gammaln

from topicscope.errors import refuse
from topicscope.settings.data import Data


def topic_count_distribution(data: Data, least: float = 0.0) -> Float[np.ndarray, " count"]:
    """P(k topics) for k = 0 … T, a topic counting if it has this share of the document's words, and one at least."""
    if data.sampler != "dirichlet" or len(set(data.dirichlet)) > 1:
        raise refuse("data.dirichlet", data.dirichlet, "topics are counted for one Dirichlet parameter; give one")
    lengths = range(data.length[0], data.length[1] + 1)
    return np.mean([_of_length(data, length, least) for length in lengths], axis=0)


def _of_length(data: Data, length: int, least: float) -> Float[np.ndarray, " count"]:
    counts, alpha = np.arange(length + 1), data.dirichlet[0]
    weights = np.exp(gammaln(counts + alpha) - gammaln(counts + 1) - gammaln(alpha))
    # The share is reached from this many words on; a share of 0.05 of 100 words is 5 in spite of rounding.
    needed = max(1, int(np.ceil(least * length - 1e-9)))
    many, few = np.where(counts >= needed, weights, 0.0), np.where(counts < needed, weights, 0.0)
    powers = {name: _powers(each, data.topics) for name, each in (("many", many), ("few", few))}
    ways = np.array(
        [
            comb(data.topics, k) * (powers["many"][k] @ powers["few"][data.topics - k][::-1])
            for k in range(data.topics + 1)
        ]
    )
    return np.asarray(ways / ways.sum())


def _powers(series: Float[np.ndarray, " count"], highest: int) -> list[Float[np.ndarray, " count"]]:
    """The series to the powers 0 … highest, up to x^N."""
    found = [np.eye(1, len(series))[0]]
    for _ in range(highest):
        found.append(np.convolve(found[-1], series)[: len(series)])
    return found
