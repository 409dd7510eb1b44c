r"""The exact gradient of the squared loss by attention's logits where attention is uniform: what starts stage 2.

With logits M (row the key, column the query), uniform attention (M = 0) and eq. 7's f = W^V x̃,

.. math::
    \frac{\partial L}{\partial M_{ab}} = E\big[1\{q = b\}\, \tilde x_a (h_a - \tilde x^\top h)\big],
    \qquad h = 2 W^\top (W \tilde x - y),

q the token that the query holds and y the word to predict. It is linear in W and in P = W⊤W, with coefficients that
are moments of up to three token frequencies, the query and the target:

.. math::
    2 \sum_d P_{ad} E_b[\tilde x_a \tilde x_d] - 2 \sum_{cd} P_{cd} E_b[\tilde x_a \tilde x_c \tilde x_d]
    - 2 \sum_y W_{ya} E_{by}[\tilde x_a] + 2 \sum_{yc} W_{yc} E_{by}[\tilde x_a \tilde x_c].

For documents in which topics, and words within a topic, are all alike only the pattern of a moment's tokens matters:
which are [MASK], which the same word, which of one topic. There are some hundreds of patterns, whatever T and v, and
each moment is a sum over the ways in which its tokens fall on positions, of a polynomial in the word probabilities,
whose expectation is known (docs/theory-dynamics.md).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import perm, prod

import numpy as np
from jaxtyping import Float
from scipy.special import gammaln, xlog1py, xlogy

from topicscope.errors import refuse
from topicscope.settings.data import Data, Masking
from topicscope.settings.training import Average
from topicscope.theory.classes import Six, Vocabulary

# A token of a pattern: [MASK], or a word as (topic, number within it).
Token = tuple[int, int] | None
MASK: Token = None
# (query, key) that stand for each class of the gradient; its rows are keys.
REPRESENTATIVES: tuple[tuple[Token, Token], ...] = (
    (MASK, MASK),
    ((0, 0), MASK),
    (MASK, (0, 0)),
    ((0, 0), (0, 0)),
    ((0, 0), (0, 1)),
    ((0, 0), (1, 0)),
)
# Ways in which one, two and three keys fall on distinct positions.
PARTITIONS: dict[int, tuple[tuple[tuple[int, ...], ...], ...]] = {
    1: (((0,),),),
    2: (((0,), (1,)), ((0, 1),)),
    3: (((0,), (1,), (2,)), ((0, 1), (2,)), ((0, 2), (1,)), ((1, 2), (0,)), ((0, 1, 2),)),
}


@dataclass(frozen=True, eq=False)
class LogitGradient:
    """∂L/∂M at uniform attention, by classes, as a linear function of W's six entries and of W⊤W's."""

    vocabulary: Vocabulary
    of_value: Float[np.ndarray, "6 6"]
    of_gram: Float[np.ndarray, "6 6"]

    def __call__(self, value: Six) -> Six:
        """The six entries of the gradient at this W^V; row the key, column the query."""
        return self.of_value @ value + self.of_gram @ self.vocabulary.gram(value)


def logit_gradient(
    data: Data, masking: Masking, average: Average = "document", *, infinite: bool = False
) -> LogitGradient:
    """For T equal topics of v equally likely words and one Dirichlet parameter, or τ of T topics."""
    if data.topic_words or len(set(data.dirichlet)) > 1:
        name = "data.topic_words" if data.topic_words else "data.dirichlet"
        raise refuse(name, getattr(data, name.removeprefix("data.")), "classes need equal topics; leave it out")
    return _logit_gradient(data, masking, average, infinite)


@lru_cache(maxsize=64)
def _logit_gradient(data: Data, masking: Masking, average: Average, infinite: bool) -> LogitGradient:
    moment, size = _Moment(data, masking, average, infinite), Vocabulary(data.topics, data.words)
    of_value, of_gram = np.zeros((2, 6, 6))
    for row, (query, key) in enumerate(REPRESENTATIVES):
        if size.sizes[row] == 0:
            continue
        known = [query, key]
        for other, ways in _others(known, size):
            of_gram[row, _class(key, other)] += 2 * ways * moment(query, None, (key, other))
            for third, more in _others([*known, other], size):
                weight = ways * more
                of_gram[row, _class(other, third)] -= 2 * weight * moment(query, None, (key, other, third))
                if third is not MASK:
                    of_value[row, _class(third, other)] += 2 * weight * moment(query, third, (key, other))
            if other is not MASK:
                of_value[row, _class(other, key)] -= 2 * ways * moment(query, other, (key,))
    return LogitGradient(size, of_value, of_gram)


def _class(row: Token, column: Token) -> int:
    """The class of an entry, in the order of ``CLASSES``."""
    if row is None or column is None:
        return (0 if column is None else 1) if row is None else 2
    return 3 if row == column else 4 if row[0] == column[0] else 5


def _others(known: list[Token], size: Vocabulary) -> Iterator[tuple[Token, int]]:
    """Every kind of token beside those known, with how many there are: themselves, and one new of each kind."""
    words = {token for token in known if token is not None}
    yield MASK, 1
    for word in words:
        yield word, 1
    topics = {topic for topic, _ in words}
    for topic in topics:
        used = [number for of, number in words if of == topic]
        if size.words > len(used):
            yield (topic, max(used) + 1), size.words - len(used)
    if size.topics > len(topics):
        yield (max(topics, default=-1) + 1, 0), (size.topics - len(topics)) * size.words


class _Moment:
    """E[1{q = query, y = target} ∏ x̃_key], for any target if it is None."""

    def __init__(self, data: Data, masking: Masking, average: Average, infinite: bool) -> None:
        self._data, self._masking = data, masking
        self._count = data.topics * data.words
        self._shares = {
            keys: _infinite_shares(keys, masking.mask)
            if infinite
            else _shares(keys, data.length, masking.mask, average)
            for keys in PARTITIONS
        }
        self._known: dict[tuple[tuple[int, int], ...], float] = {}

    def __call__(self, query: Token, target: Token, keys: tuple[Token, ...]) -> float:
        # The query's position: it keeps its word, or shows what does not depend on it.
        starts: list[tuple[float, list[Token]]] = [(self._hidden(query), [] if target is None else [target])]
        if query is not None and target in (None, query):
            starts.append((self._masking.keep, [query]))
        total = 0.0
        for blocks in PARTITIONS[len(keys)]:
            tokens = [keys[block[0]] for block in blocks]
            if any(keys[each] != keys[block[0]] for block in blocks for each in block):
                continue
            # No block is at the query's own position, or one that has the query's token.
            for own in (None, *(place for place, token in enumerate(tokens) if token == query)):
                elsewhere = [token for place, token in enumerate(tokens) if place != own]
                for factor, words in starts:
                    if factor:
                        total += factor * self._expand(elsewhere, words, self._shares[len(keys)][len(elsewhere)], 0)
        return total

    def _expand(
        self, tokens: list[Token], words: list[Token], share: Float[np.ndarray, " masked"], masked: int
    ) -> float:
        """Each position in turn: seen, masked and kept, or masked and shown without regard to its word."""
        if not tokens:
            return float(share[masked]) * self._expected(words) if share[masked] else 0.0
        token, *rest = tokens
        total = 0.0
        if self._hidden(token):
            total += self._hidden(token) * self._expand(rest, words, share, masked + 1)
        if token is not None:
            total += self._expand(rest, [*words, token], share, masked)
            if self._masking.keep:
                total += self._masking.keep * self._expand(rest, [*words, token], share, masked + 1)
        return total

    def _hidden(self, token: Token) -> float:
        """κ: how likely a masked position shows this token whatever its word was."""
        return self._masking.replaced if token is None else self._masking.random / self._count

    def _expected(self, words: list[Token]) -> float:
        """E[∏ p_word] = E[∏ θ_topic] / v^count."""
        topics = sorted(word[0] for word in words if word is not None)
        powers = tuple(sorted((topics.count(topic) for topic in set(topics)), reverse=True))
        data = self._data
        if data.sampler == "dirichlet":
            a = data.dirichlet[0]
            top = prod(a + step for power in powers for step in range(power))
            bottom = prod(data.topics * a + step for step in range(len(topics)))
            expected = top / bottom
        else:
            chosen = perm(data.per_document, len(powers)) / perm(data.topics, len(powers))
            expected = chosen / data.per_document ** len(topics)
        return float(expected / data.words ** len(topics))


def _shares(keys: int, length: tuple[int, int], mask: float, average: Average) -> list[Float[np.ndarray, " masked"]]:
    """For k = 0 … keys other positions, i of them masked: E[(m−1)_i (N−m)_{k−i}] / N^keys, with falling powers."""
    found = [np.zeros(k + 1) for k in range(keys + 1)]
    lengths = range(length[0], length[1] + 1)
    total = 0.0
    for n in lengths:
        m = np.arange(1, n + 1)
        # The binomial's probabilities, but for a factor.
        weight = np.exp(xlogy(m, mask) + xlog1py(n - m, -mask) - gammaln(m + 1) - gammaln(n - m + 1) + gammaln(n + 1))
        weight = weight / weight.sum() * (m if average == "batch" else 1)
        total += weight.sum()
        for k, share in enumerate(found):
            for i in range(k + 1):
                ways = prod([m - 1 - step for step in range(i)], start=np.ones(n))
                ways = prod([n - m - step for step in range(k - i)], start=ways)
                share[i] += weight @ np.maximum(ways, 0.0) / n**keys
    return [share / total for share in found]


def _infinite_shares(keys: int, mask: float) -> list[Float[np.ndarray, " masked"]]:
    """Their limit: no two keys fall on one position."""
    all_apart = np.array([mask**i * (1 - mask) ** (keys - i) for i in range(keys + 1)])
    return [*(np.zeros(k + 1) for k in range(keys)), all_apart]
