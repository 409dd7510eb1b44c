import numpy as np
import pytest

from topicscope.probing.passes import over_vocabulary
from topicscope.probing.statistics.labelling import DIFFERENT_TOPIC, SAME_TOPIC, SAME_WORD
from topicscope.probing.topics import Labels


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
    first, second = np.indices((3, 3)).reshape(2, -1)
    found = over_vocabulary(several, several.tokens).classes(first, second).reshape(3, 3)
    word, same, different = SAME_WORD, SAME_TOPIC, DIFFERENT_TOPIC
    assert found.tolist() == [[word, same, different], [same, word, same], [different, same, word]]


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
