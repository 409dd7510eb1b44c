import numpy as np
import pytest

from topicscope.measure.blocks import class_averages, product_contrasts

TOPICS = np.array([0, 1, 1, 2, 2, 2, 3])


def brute_force(matrix: np.ndarray) -> dict[str, float]:
    classes: dict[str, list[float]] = {"same_word": [], "same_topic": [], "different_topic": []}
    for i in range(1, len(matrix)):
        for j in range(1, len(matrix)):
            name = "same_word" if i == j else "same_topic" if TOPICS[i] == TOPICS[j] else "different_topic"
            classes[name].append(matrix[i, j])
    return {name: float(np.mean(entries)) for name, entries in classes.items()}


def test_class_averages_equal_a_loop_over_pairs_of_words() -> None:
    """The released code looks topics up by token id, four off: same- and different-topic pairs are miscounted."""
    matrix = np.random.default_rng(1).normal(size=(7, 7))
    found = class_averages(matrix, TOPICS)
    for name, expected in brute_force(matrix).items():
        assert getattr(found, name) == pytest.approx(expected, rel=1e-12)
    assert found.mask_column == pytest.approx(matrix[1:, 0].mean())
    assert found.mask_row == pytest.approx(matrix[0].mean())
    shifted = class_averages(matrix, np.roll(TOPICS, 1))
    assert shifted.same_topic != pytest.approx(found.same_topic)


def test_empty_classes_are_none() -> None:
    one_topic = class_averages(np.ones((3, 3)), np.array([0, 1, 1]))
    one_word_each = class_averages(np.ones((3, 3)), np.array([0, 1, 2]))
    assert one_topic.different_topic is None
    assert one_topic.contrast is None
    assert one_word_each.same_topic is None
    assert class_averages(np.eye(7), TOPICS).contrast == pytest.approx(0)


def test_contrasts_of_several_products_are_those_of_each() -> None:
    draw = np.random.default_rng(5)
    columns = draw.normal(size=(2, 1, len(TOPICS), 3))
    rows = draw.normal(size=(2, 4, len(TOPICS), 3))
    found = product_contrasts(rows, columns, TOPICS)
    assert found is not None
    each = [
        [class_averages(row @ mine[0].T, TOPICS).contrast for row in several]
        for several, mine in zip(rows, columns, strict=True)
    ]
    assert found == pytest.approx(np.array(each, dtype=float), rel=1e-12)
    assert product_contrasts(rows, columns[::-1], TOPICS) != pytest.approx(found)
    assert product_contrasts(rows, columns, np.minimum(TOPICS, 1)) is None
