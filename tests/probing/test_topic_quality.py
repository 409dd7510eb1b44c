from itertools import permutations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from support.planted import planted_bags
from topicscope.probing.topics import coherence, diversity, overlap, stability, top_words


def test_top_words_are_the_likeliest_first_of_equals_first() -> None:
    assert top_words(np.array([[0.1, 0.4, 0.1, 0.4]]), 3).tolist() == [[1, 3, 0]]


def test_diversity_is_the_share_of_distinct_top_words() -> None:
    assert diversity(np.array([[0, 1], [2, 3]])) == 1
    assert diversity(np.array([[0, 1], [1, 0]])) == 0.5


@settings(derandomize=True, deadline=None, max_examples=40)
@given(st.integers(0, 10_000))
def test_stability_is_the_mean_jaccard_index_of_the_best_matching(seed: int) -> None:
    draw = np.random.default_rng(seed)
    one, other = (np.array([draw.choice(9, 3, replace=False) for _ in range(4)]) for _ in range(2))
    jaccard = [[len({*a} & {*b}) / len({*a} | {*b}) for b in other.tolist()] for a in one.tolist()]
    assert np.allclose(overlap(one, other), jaccard)
    best = max(sum(jaccard[i][j] for i, j in enumerate(order)) / 4 for order in permutations(range(4)))
    assert np.isclose(stability([one, other]), best)  # type: ignore[arg-type]


def test_stability_is_one_for_reordered_topics_and_less_for_others() -> None:
    top = np.arange(12).reshape(4, 3)
    assert stability([top, top[::-1, ::-1], top]) == 1
    assert stability([top, (top + 1) % 12]) == 0.5
    assert stability([top]) is None


def test_words_that_occur_together_are_coherent_and_mixed_ones_are_not() -> None:
    bags = planted_bags(topics=3, words=10, documents=60, length=40)
    true = np.arange(30).reshape(3, 10)
    of_true, of_mixed = (coherence(top, bags.documents(), 30) for top in (true, true.T.reshape(3, 10)))
    assert of_true["c_v"] > of_mixed["c_v"] + 0.2
    assert of_true["c_npmi"] > of_mixed["c_npmi"] + 0.2


def test_topics_with_words_that_never_occur_have_no_coherence_and_spoil_no_mean() -> None:
    bags = planted_bags(topics=3, words=10, documents=60, length=40)
    true = np.arange(30).reshape(3, 10)
    missing = true.copy()
    missing[2, 4:] = np.arange(30, 36)
    found = coherence(missing, bags.documents(), 36)
    assert np.isfinite(list(found.values())).all()
    assert np.isclose(found["c_npmi"], coherence(true[:2], bags.documents(), 36)["c_npmi"])
