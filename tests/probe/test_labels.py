import numpy as np
import pytest

from topicscope.probe.labels import Labels


def labelled(membership: list[list[int]], assignment: str) -> Labels:
    rows = np.array(membership, dtype=bool)
    return Labels(
        name="test",
        tokens=np.arange(len(rows)) * 3,
        membership=rows,
        fraction=0.001,
        assignment=assignment,  # type: ignore[arg-type]
        seed=0,
    )


def test_two_words_are_of_the_same_topic_if_they_share_one_and_a_word_is_not_with_itself() -> None:
    several = labelled([[1, 1, 0], [0, 1, 1], [0, 0, 1]], "several")
    assert several.same_topic.tolist() == [[False, True, False], [True, False, True], [False, True, False]]


def test_topic_is_the_one_topic_of_each_word() -> None:
    one = labelled([[0, 1, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0]], "one")
    assert one.topic.tolist() == [1, 0, 1]
    assert one.words == 3
    assert one.topics == 2


def test_words_without_a_topic_or_with_two_under_one_are_refused() -> None:
    with pytest.raises(AssertionError):
        labelled([[1, 0], [0, 0]], "several")
    with pytest.raises(AssertionError):
        labelled([[1, 0], [1, 1]], "one")
    with pytest.raises(AssertionError, match="several"):
        _ = labelled([[1, 1], [0, 1]], "several").topic
