r"""Why W^V comes first (§8.1): how fast each stage goes, in closed form; docs/theory-dynamics.md has the proofs.

**Stage 1.** Attention is uniform, and W^V relaxes under the squared loss at twice the eigenvalues of S = E[x̃x̃⊤], one
for each mode (``stage1_rates``).

**Stage 2.** Let G = ∂L/∂M be the gradient by the logits M = W^K⊤W^Q/√d_a where attention is uniform. To first order

.. math:: \dot W^K = -W^Q G^\top / \sqrt{d_a}, \qquad \dot W^Q = -W^K G / \sqrt{d_a},

so along each pair of singular vectors of G the sum of the two grows as e^{σt/√d_a} and their difference decays. G is a
class matrix for every W^V on stage 1's path, and its singular values are those of three modes (``stage2_rates``):
topics, same word, and [MASK] against the words, whose plane has rank one because a column of G sums to zero. At
Theorem 2's W^V and for infinite documents the topic mode has the closed form ``stage2_topic_rate``.

**The start.** With all entries of W^V, W^K, W^Q drawn from N(0, s²), the first gradients have the ratio
‖E[r x̃⊤]‖ / (κ s²) (``gradient_ratio``). It tells how the two begin, not how long they take: the times above depend on s
through a logarithm only.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import perm, prod

import numpy as np
from jaxtyping import Float
from scipy.special import gammaln, softmax, xlog1py, xlogy
from scipy.special import perm as falling

from topicscope.errors import InputError
from topicscope.settings.data import Data, Masking
from topicscope.settings.training import Loss
from topicscope.synthetic.documents import Bags
from topicscope.theory.classes import PLANE, SAME_WORD, TOPIC, Matrix, Six, Vocabulary
from topicscope.theory.finite_documents import class_moments
from topicscope.theory.lemma1 import require_topic_sets, topic_gain

# An entry of a gradient that is below this share of the terms it sums is rounding.
ROUNDING = 1e-13
# A token of a pattern: [MASK], or a word as (topic, number within it).
Token = tuple[int, int] | None
MASK: Token = None
# How a position comes to show a token: a weight, the words that this asks for, and whether it is masked.
Way = tuple[float, list[Token], int]
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


@dataclass(frozen=True)
class Stage1Rates:
    """How fast W^V relaxes along each mode per unit of flow time (learning rate × steps): 2 × S's eigenvalues."""

    topic: float
    """topics."""
    same_word: float
    """same word (contrasts within a topic); 0 for infinite documents, where a topic's words are equally frequent."""
    mean: float
    """mean word; the larger of the plane's two rates."""
    mask: float
    """[MASK]; the plane's other rate, 0 for infinite documents, in which [MASK]'s share is always the same."""


@dataclass(frozen=True)
class Stage2Rates:
    """Singular values of the gradient by the logits, by mode; W^K and W^Q grow at these over √d_a."""

    topic: float
    """topics; above 0, attention to the query's own topic grows."""
    same_word: float
    """same word; above 0, attention to the query's own word grows."""
    mask: float
    """[MASK]; above 0, [MASK] queries turn to [MASK] keys; below 0, away from them."""


def stage1_rates(data: Data, masking: Masking, *, infinite: bool = False) -> Stage1Rates:
    """Stage 1's exact rates, for finite or infinite documents."""
    second = class_moments(data, masking, infinite=infinite).second
    low, high = np.linalg.eigvalsh(second[PLANE])
    # For infinite documents the plane has rank one, and its other eigenvalue is rounding.
    mask = 0.0 if infinite else 2 * float(low)
    return Stage1Rates(2 * float(second[TOPIC]), 2 * float(second[SAME_WORD]), 2 * float(high), mask)


def stage2_rates(value: Six, data: Data, masking: Masking, *, infinite: bool = False) -> Stage2Rates:
    """Stage 2's exact rates at any W^V that is a class matrix, for the squared loss and uniform attention."""
    gradient_at = logit_gradient(data, masking, infinite=infinite)
    # What is left of terms that cancel is rounding, and no mode.
    terms = abs(gradient_at.of_value) @ abs(value)
    terms = terms + abs(gradient_at.of_gram) @ abs(gradient_at.vocabulary.gram(value))
    gradient = gradient_at(value)
    modes = gradient_at.vocabulary.modes(np.where(abs(gradient) > ROUNDING * terms.max(), gradient, 0.0))
    # A topic of one word has no contrasts within it.
    same_word = -float(modes[SAME_WORD]) if data.words > 1 else 0.0
    mask = np.linalg.norm(modes[PLANE]) * -np.sign(modes[PLANE][0, 0])
    return Stage2Rates(-float(modes[TOPIC]), same_word, float(mask))


def stage1_topic_rate(topics: int, words: int, per_document: int, masking: Masking = Masking()) -> float:
    r"""2 A²(T−τ)/(τ v T(T−1)): how fast W^V's topic mode relaxes for infinite documents of τ topics, squared loss."""
    require_topic_sets(topics, per_document)
    visible = _visible(masking)
    return 2 * visible**2 * (topics - per_document) / (per_document * words * topics * (topics - 1))


def stage2_topic_rate(topics: int, words: int, per_document: int, masking: Masking = Masking()) -> float:
    r"""How strongly the topic mode of attention is pulled where W^V is Theorem 2's; W^K, W^Q grow at this over √d_a.

    .. math::
        \frac{2 p_c (\tau - 1)}{\tau^2 v^2 (T - 1)} \Big(1 + \frac{B}{A} \frac{\tau}{T}\Big),
        \qquad A = 1 - (1 - p_c) p_m, \quad B = p_m p_r

    This is for infinite documents of τ < T topics, the squared loss and uniform attention. It is 0 for p_c = 0, where a
    word query says nothing about its target, and for τ = 1, where all words of a document are of one topic. It does not
    depend on the initial scale.
    """
    require_topic_sets(topics, per_document)
    visible, noise = _visible(masking), masking.mask * masking.random
    alone = 2 * masking.keep * (per_document - 1) / (per_document**2 * words**2 * (topics - 1))
    return alone * (1 + noise / visible * per_document / topics)


def time_ratio(
    topics: int, words: int, per_document: int, masking: Masking = Masking(), width: int | None = None
) -> float:
    r"""How much longer attention's topic mode takes than W^V's: stage 1's rate over stage 2's, with its 1/√d_a.

    .. math:: \frac{A^2 (1 - \tau/T)\, \tau v \sqrt{d_a}}{(\tau - 1)\, p_c\, (1 + (B/A)(\tau/T))}

    ``width`` is d_a, by default V. Settings whose topic mode never grows (p_c = 0, τ = 1) are refused.
    """
    slow = stage2_topic_rate(topics, words, per_document, masking)
    if slow == 0:
        raise InputError(
            f"with keep = {masking.keep:g} and per_document = {per_document} attention's topic mode never takes off at "
            "infinite length: word queries say nothing about their target if keep is 0, and there is nothing to choose "
            "between if all words of a document are of one topic; raise keep, or per_document."
        )
    root = np.sqrt(topics * words + 1 if width is None else width)
    return float(stage1_topic_rate(topics, words, per_document, masking) * root / slow)


def _visible(masking: Masking) -> float:
    """A = 1 − (1 − p_c)p_m: the share of a document's words that masking leaves."""
    return 1 / topic_gain(masking)


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
    missing: Float[np.ndarray, "document document"] = (bags.pairs @ bags.pairs.T).toarray()
    if loss == "cross_entropy":
        missing = missing - bags.queries @ bags.queries.T / bags.frequencies.shape[1]
    return float(np.sqrt(np.vdot(spread, missing)) / count)


def key_gradient(
    bags: Bags,
    loss: Loss,
    value: Matrix,
    query: Float[np.ndarray, "width token"],
    *,
    next_order: bool = False,
) -> Float[np.ndarray, "width token"]:
    """∇_{W^K} = W^Q G⊤/√d_a for given W^V and W^Q, to leading order (half of it for the squared loss).

    In the ``next_order`` what W^V predicts under uniform attention, W^V x̃, is no longer taken for zero: r = y − W^V x̃
    for the squared loss, y − softmax(W^V x̃) for cross-entropy.
    """
    x, queries = bags.frequencies, bags.queries
    pairs = bags.pairs.toarray().reshape(len(x), *2 * x.shape[1:])
    seen = x @ value.T
    prediction = seen if next_order else np.zeros_like(seen)
    if loss == "cross_entropy":
        prediction = softmax(prediction, axis=1)
    # r ⊗ q of a document says how much each word is still missing at each query token. Its product with W^V is weighted
    # by the document's x̃, less what uniform attention already gives.
    weighted = np.tensordot(x, pairs, axes=(0, 0))
    pulled = np.einsum("ik,kib->kb", value, weighted) - (x * (prediction @ value)).T @ queries
    given = np.einsum("di,dib->db", seen, pairs) - (seen * prediction).sum(axis=1, keepdims=True) * queries
    total = x.T @ given - pulled
    return query @ (total / len(x)).T / np.sqrt(len(query))


def _residuals(bags: Bags, loss: Loss) -> Float[np.ndarray, "document token"]:
    return bags.targets - 1 / bags.targets.shape[1] if loss == "cross_entropy" else bags.targets


@dataclass(frozen=True, eq=False)
class LogitGradient:
    """∂L/∂M at uniform attention, by classes, as a linear function of the six entries of W and of W⊤W."""

    vocabulary: Vocabulary
    of_value: Float[np.ndarray, "6 6"]
    of_gram: Float[np.ndarray, "6 6"]

    def __call__(self, value: Six) -> Six:
        """The six entries of the gradient at this W^V; rows are keys, columns queries."""
        return self.of_value @ value + self.of_gram @ self.vocabulary.gram(value)


@lru_cache(maxsize=64)
def logit_gradient(data: Data, masking: Masking, *, infinite: bool = False) -> LogitGradient:
    r"""∂L/∂M of the squared loss for T equal topics of v words, with one Dirichlet parameter or τ topics per document.

    With logits M (rows are keys, columns queries), uniform attention (M = 0) and eq. 7's f = W^V x̃,

    .. math::
        \frac{\partial L}{\partial M_{ab}} = E\big[1\{q = b\}\, \tilde x_a (h_a - \tilde x^\top h)\big],
        \qquad h = 2 W^\top (W \tilde x - y),

    where q is the token that the query holds and y the word to predict. It is linear in W and in P = W⊤W, with
    coefficients that are moments of up to three token frequencies, the query and the target:

    .. math::
        2 \sum_d P_{ad} E_b[\tilde x_a \tilde x_d] - 2 \sum_{cd} P_{cd} E_b[\tilde x_a \tilde x_c \tilde x_d]
        - 2 \sum_y W_{ya} E_{by}[\tilde x_a] + 2 \sum_{yc} W_{yc} E_{by}[\tilde x_a \tilde x_c].

    Where topics, and words within a topic, are all alike, only the pattern of a moment's tokens matters: which are
    [MASK], which are the same word, which are of one topic. There are some hundreds of patterns for any T and v. Each
    moment sums, over the ways in which its tokens fall on positions, a polynomial in the word probabilities, whose
    expectation is known (docs/theory-dynamics.md).
    """
    moment, size = _Moment(data, masking, infinite), Vocabulary.of(data)
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
    """Every kind of token, and how many tokens it has: [MASK], each known word, and one new word of each new kind."""
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

    def __init__(self, data: Data, masking: Masking, infinite: bool) -> None:
        self._data, self._masking = data, masking
        self._shares = {
            keys: _infinite_shares(keys, masking.mask) if infinite else _shares(keys, data.length, masking.mask)
            for keys in PARTITIONS
        }

    def __call__(self, query: Token, target: Token, keys: tuple[Token, ...]) -> float:
        # The query's position: it keeps its word, or shows what does not depend on it.
        starts: list[Way] = [(self._hidden(query), [] if target is None else [target], 0)]
        if query is not None and target in (None, query):
            starts.append((self._masking.keep, [query], 0))
        total = 0.0
        for blocks in PARTITIONS[len(keys)]:
            tokens = [keys[block[0]] for block in blocks]
            if any(keys[place] != token for block, token in zip(blocks, tokens, strict=True) for place in block):
                continue
            # Either no block is at the query's own position, or one that has the query's token.
            for own in (None, *(place for place, token in enumerate(tokens) if token == query)):
                elsewhere = [self._ways(token) for place, token in enumerate(tokens) if place != own]
                share = self._shares[len(keys)][len(elsewhere)]
                for ways in product(starts, *elsewhere):
                    weight = prod(way[0] for way in ways) * share[sum(way[2] for way in ways)]
                    if weight:
                        total += weight * self._expected([word for way in ways for word in way[1]])
        return total

    def _hidden(self, token: Token) -> float:
        """κ: how likely a masked position shows this token whatever its word was."""
        return (
            self._masking.replaced if token is None else self._masking.random / (self._data.topics * self._data.words)
        )

    def _ways(self, token: Token) -> list[Way]:
        hidden: Way = (self._hidden(token), [], 1)
        return [hidden] if token is None else [hidden, (1.0, [token], 0), (self._masking.keep, [token], 1)]

    def _expected(self, words: list[Token]) -> float:
        """E[∏ p_word] = E[∏ θ_topic] / v^count."""
        data, powers = self._data, Counter(word[0] for word in words if word is not None)
        count = powers.total()
        if data.sampler == "dirichlet":
            a = data.dirichlet[0]
            top = prod(a + step for power in powers.values() for step in range(power))
            expected = top / prod(data.topics * a + step for step in range(count))
        else:
            expected = perm(data.per_document, len(powers)) / perm(data.topics, len(powers)) / data.per_document**count
        return float(expected / data.words**count)


def _shares(keys: int, length: tuple[int, int], mask: float) -> list[Float[np.ndarray, " masked"]]:
    """For k = 0 … keys other positions, i of them masked: E[(m−1)_i (N−m)_{k−i}] / N^keys, with falling powers."""
    shares, lengths = [np.zeros(k + 1) for k in range(keys + 1)], range(length[0], length[1] + 1)
    for n in lengths:
        m = np.arange(1, n + 1)
        # The binomial's probabilities, but for a factor.
        weight = np.exp(xlogy(m, mask) + xlog1py(n - m, -mask) - gammaln(m + 1) - gammaln(n - m + 1) + gammaln(n + 1))
        weight /= weight.sum() * len(lengths) * n**keys
        for k, share in enumerate(shares):
            share += [weight @ (falling(m - 1, i) * falling(n - m, k - i)) for i in range(k + 1)]
    return shares


def _infinite_shares(keys: int, mask: float) -> list[Float[np.ndarray, " masked"]]:
    """Their limit: no two keys fall on one position."""
    all_apart = np.array([mask**i * (1 - mask) ** (keys - i) for i in range(keys + 1)])
    return [*(np.zeros(k + 1) for k in range(keys)), all_apart]
