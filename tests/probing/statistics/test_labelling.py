"""Which pairs of words are of the same topic, over which vocabulary."""

import numpy as np
import pytest

from topicscope.probing.statistics.labelling import (
    DIFFERENT_TOPIC,
    SAME_TOPIC,
    SAME_WORD,
    Classes,
    Labelling,
    over_one_vocabulary,
)


def labelled(*membership: list[int], assignment: str = "several") -> Labelling:
    rows = np.array(membership, dtype=bool)
    return Labelling(rows, tokens=np.arange(len(rows)) * 3, assignment=assignment)  # type: ignore[arg-type]


def test_two_words_are_of_the_same_topic_if_they_share_one_and_a_word_is_not_with_itself() -> None:
    several = labelled([1, 1, 0], [0, 1, 1], [0, 0, 1])
    first, second = np.indices((3, 3)).reshape(2, -1)
    found = several.classes(first, second).reshape(3, 3)
    word, same, different = SAME_WORD, SAME_TOPIC, DIFFERENT_TOPIC
    assert found.tolist() == [[word, same, different], [same, word, same], [different, same, word]]


def test_labellings_of_one_vocabulary_keep_their_words_and_leave_the_others_out() -> None:
    one = labelled([0, 1, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], assignment="one")
    other = Labelling(np.eye(2, dtype=bool), tokens=np.array([3, 4]), name="other")
    found = over_one_vocabulary([one, other])
    more = over_one_vocabulary([one, other], np.array([found[0].tokens[0], 10_000]))
    assert more[0].tokens.tolist() == [*found[0].tokens.tolist(), 10_000]
    assert not more[0].kept[-1]
    assert not more[1].kept[-1]
    assert [each.tokens.tolist() for each in found] == [[0, 3, 4, 6]] * 2
    assert [each.topic.tolist() for each in found] == [[1, 0, -1, 1], [-1, 0, 1, -1]]
    assert [(each.words, each.topics, each.name) for each in found] == [(3, 2, ""), (2, 2, "other")]


def test_two_topics_under_one_and_tokens_out_of_order_are_refused() -> None:
    with pytest.raises(AssertionError, match="a word has two topics"):
        labelled([1, 0], [1, 1], assignment="one")
    with pytest.raises(AssertionError, match="ascending"):
        Labelling(np.eye(2, dtype=bool), tokens=np.array([4, 3]))


def test_classes_under_many_labellings_are_those_of_each() -> None:
    draw = np.random.default_rng(1)
    one = Labelling(np.eye(80, dtype=bool)[draw.integers(80, size=30)] & (draw.random(30) < 0.8)[:, None])
    several = Labelling(draw.random((30, 80)) < 0.05)
    first, second = draw.integers(30, size=(2, 500))
    for labellings in ((one, several, one), (one,), (several,)):
        found = Classes(labellings).of(first, second)
        expected = [each.classes(first, second) for each in labellings]
        assert (found == expected).all()
    assert (Classes((one,)).of(first, second) != several.classes(first, second)).any()
