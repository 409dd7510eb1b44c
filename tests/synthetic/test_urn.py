import math
from collections import Counter

import numpy as np
import pytest

from topicscope.synthetic.topics import TopicModel, equal_topics, groups_of_equal_topic, sample_documents

COUNT = 40_000


def assert_shares_are(found: Counter[tuple[int, ...]], expected: dict[tuple[int, ...], float]) -> None:
    """Within five standard errors, and nothing else occurs."""
    total = found.total()
    assert sum(expected.values()) == pytest.approx(1)
    assert set(found) <= set(expected)
    for outcome, probability in expected.items():
        error = math.sqrt(probability * (1 - probability) / total)
        assert abs(found[outcome] / total - probability) <= 5 * error


def rising(start: float, steps: int) -> float:
    """start (start + 1) … (start + steps − 1)."""
    return math.prod(start + step for step in range(steps))


def count_vectors(length: int, topics: int) -> list[tuple[int, ...]]:
    if topics == 1:
        return [(length,)]
    return [(first, *rest) for first in range(length + 1) for rest in count_vectors(length - first, topics - 1)]


def dirichlet_multinomial(length: int, alpha: tuple[float, ...]) -> dict[tuple[int, ...], float]:
    """Multinomial counts with proportions integrated out: N! / A^(N) · Π α_t^(n_t) / n_t!, rising powers."""
    return {
        counts: math.factorial(length)
        / rising(sum(alpha), length)
        * math.prod(rising(a, n) / math.factorial(n) for a, n in zip(alpha, counts, strict=True))
        for counts in count_vectors(length, len(alpha))
    }


def ewens(concentration: float) -> dict[tuple[int, ...], float]:
    """Ewens' formula for the groups of four words, largest first: N! / A^(N) · Π_j (A/j)^(c_j) / c_j!."""
    partitions = [(4,), (3, 1), (2, 2), (2, 1, 1), (1, 1, 1, 1)]
    return {
        sizes: 24
        / rising(concentration, 4)
        * math.prod((concentration / size) ** times / math.factorial(times) for size, times in Counter(sizes).items())
        for sizes in partitions
    }


@pytest.mark.parametrize("concentration", [0.3, 1.0, 7.0])
def test_group_sizes_are_those_of_ewens_formula(concentration: float) -> None:
    """Documents of four words, among others of other lengths."""
    lengths = np.tile(np.array([4, 1, 9], dtype=np.int32), COUNT)
    sizes = groups_of_equal_topic(lengths, concentration, generator=np.random.default_rng(1))
    ends = np.cumsum(sizes)
    # Groups never reach over the end of a document.
    assert np.isin(np.cumsum(lengths), ends).all()
    document = np.searchsorted(np.cumsum(lengths), ends)
    parts = np.split(sizes, np.flatnonzero(np.diff(document)) + 1)
    found = Counter(tuple(sorted(part.tolist(), reverse=True)) for part in parts[::3])
    assert_shares_are(found, ewens(concentration))
    with pytest.raises(AssertionError):
        assert_shares_are(found, ewens(concentration * 1.1))


@pytest.mark.parametrize("alpha", [(0.1, 0.1, 0.1), (0.2, 1.0, 3.0)])
def test_topic_counts_of_documents_are_dirichlet_multinomial(alpha: tuple[float, ...]) -> None:
    """The whole distribution of counts, with equal parameters and with others."""
    model = TopicModel(equal_topics(3, 2), "dirichlet", 1, np.array(alpha), (5, 5))
    documents = sample_documents(model, COUNT, generator=np.random.default_rng(2))
    topics = model.word_topics[documents.tokens].reshape(COUNT, 5)
    found = Counter(map(tuple, np.stack([(topics == topic).sum(axis=1) for topic in (1, 2, 3)], axis=1).tolist()))
    assert_shares_are(found, dirichlet_multinomial(5, alpha))
    # The controls: a flatter Dirichlet of the same mean, and the topics in another order.
    with pytest.raises(AssertionError):
        assert_shares_are(found, dirichlet_multinomial(5, tuple(1.2 * a for a in alpha)))
    with pytest.raises(AssertionError):
        assert_shares_are(found, dirichlet_multinomial(5, (alpha[1], alpha[0] * 1.3, alpha[2])))


def test_extreme_concentrations_give_one_group_or_one_a_word() -> None:
    lengths = np.array([3, 700, 1], dtype=np.int32)
    one = groups_of_equal_topic(lengths, 1e-300, generator=np.random.default_rng(3))
    each = groups_of_equal_topic(lengths, 1e300, generator=np.random.default_rng(3))
    assert one.tolist() == [3, 700, 1]
    assert each.tolist() == [1] * 704
