"""Which pairs of words are of the same topic, over which vocabulary."""

import numpy as np
import pytest

from topicscope.probing.statistics.labelling import (
    DIFFERENT_TOPIC,
    SAME_TOPIC,
    Labelling,
    kinds_of,
    over_one_vocabulary,
)


def labelled(*membership: list[int], assignment: str = "several") -> Labelling:
    rows = np.array(membership, dtype=bool)
    return Labelling(rows, tokens=np.arange(len(rows)) * 3, assignment=assignment)  # type: ignore[arg-type]


def test_kinds_under_many_labellings_are_those_of_loops_over_pairs() -> None:
    draw = np.random.default_rng(1)
    one = Labelling(np.eye(80, dtype=bool)[draw.integers(80, size=30)] & (draw.random(30) < 0.8)[:, None])
    several = Labelling(draw.random((30, 80)) < 0.03)
    first, second = draw.integers(30, size=(2, 500))

    def by_loop(member: np.ndarray, i: int, j: int) -> int:
        if not (member[i].any() and member[j].any()):
            return -1
        return SAME_TOPIC if (member[i] & member[j]).any() else DIFFERENT_TOPIC

    for labellings in ((one, several, one), (one,), (several,)):
        pairs = list(zip(first, second, strict=True))
        expected = [[by_loop(each.membership, *pair) for pair in pairs] for each in labellings]
        assert kinds_of(labellings, first, second).tolist() == expected
    assert len(np.unique(expected)) == 3


def test_labellings_of_one_vocabulary_keep_their_words_and_leave_the_others_out() -> None:
    one = labelled([0, 1, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], assignment="one")
    other = Labelling(np.eye(2, dtype=bool), tokens=np.array([3, 4]))
    found = over_one_vocabulary([one, other])
    more = over_one_vocabulary([one, other], np.array([found[0].tokens[0], 10_000]))
    assert more[0].tokens.tolist() == [*found[0].tokens.tolist(), 10_000]
    assert not more[0].kept[-1]
    assert not more[1].kept[-1]
    assert [each.tokens.tolist() for each in found] == [[0, 3, 4, 6]] * 2
    assert [each.topic.tolist() for each in found] == [[1, 0, -1, 1], [-1, 0, 1, -1]]
    assert [(each.words, each.topics) for each in found] == [(3, 2), (2, 2)]


def test_two_topics_under_one_and_tokens_out_of_order_are_refused() -> None:
    with pytest.raises(AssertionError, match="a word has two topics"):
        labelled([1, 0], [1, 1], assignment="one")
    with pytest.raises(AssertionError, match="ascending"):
        Labelling(np.eye(2, dtype=bool), tokens=np.array([4, 3]))
