"""Averages by class against averages over masks, and the patterns that a reader sees."""

import numpy as np
import pytest

from topicscope.measure.blocks import block_sums, centred_columns, class_averages, pattern, product_contrasts, stand_out
from topicscope.settings import Data, Masking
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.theorem2 import diagonal_value, theorem2

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


def test_tokens_of_no_topic_are_in_no_class() -> None:
    draw = np.random.default_rng(2)
    topics = np.array([0, 1, 1, 2, 2, 2, 3, 0, 0])
    matrix = draw.normal(size=(9, 9))
    found, small = class_averages(matrix, topics), matrix[:7, :7]
    for name, expected in brute_force(small).items():
        assert getattr(found, name) == pytest.approx(expected, rel=1e-12)
    assert found.mask_column == pytest.approx(small[1:, 0].mean())
    assert stand_out(matrix, topics).block == pytest.approx(stand_out(small, TOPICS).block, rel=1e-12)
    assert block_sums(matrix, topics) == pytest.approx(block_sums(small, TOPICS), rel=1e-12)
    rows = draw.normal(size=(1, 9, 3))
    products = product_contrasts(rows, rows, topics), product_contrasts(rows[:, :7], rows[:, :7], TOPICS)
    assert products[0] == pytest.approx(products[1], rel=1e-12)
    assert class_averages(matrix, np.array([*TOPICS, 4, 4])).different_topic != pytest.approx(found.different_topic)


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


PAPER_TOPICS = TopicModel.from_settings(Data()).word_topics


def _noisy(matrix: np.ndarray, noise: float) -> np.ndarray:
    return matrix + noise * np.random.default_rng(0).normal(size=matrix.shape)


def test_theorem_2_is_a_block_pattern_and_the_diagonal_member_a_diagonal_one() -> None:
    assert pattern(_noisy(theorem2(10, 10, Masking()), 0.02), PAPER_TOPICS) == "block"
    assert pattern(_noisy(diagonal_value(10, 10, Masking()), 0.02), PAPER_TOPICS) == "diagonal"


def test_a_pattern_below_the_noise_or_along_other_topics_is_none() -> None:
    block = theorem2(10, 10, Masking())
    assert pattern(_noisy(block, 1.0), PAPER_TOPICS) == "none"
    shuffled = np.concatenate([[0], np.random.default_rng(0).permutation(PAPER_TOPICS[1:])])
    assert pattern(_noisy(block - np.diag(np.diag(block)), 0.02), shuffled) == "none"


def test_random_embeddings_show_a_diagonal_before_any_training() -> None:
    table = 0.02 * np.random.default_rng(0).normal(size=(101, 101))
    assert pattern(table @ table.T, PAPER_TOPICS) == "diagonal"


def test_centring_columns_leaves_what_softmax_sees() -> None:
    generator = np.random.default_rng(0)
    matrix, frequencies = generator.normal(size=(101, 101)), generator.dirichlet(np.ones(101))

    def probabilities(scores: np.ndarray) -> np.ndarray:
        return np.exp(scores) / np.exp(scores).sum()

    centred = centred_columns(matrix)
    np.testing.assert_allclose(probabilities(centred @ frequencies), probabilities(matrix @ frequencies))
    rows = matrix - matrix.mean(axis=1, keepdims=True)
    assert abs(probabilities(rows @ frequencies) - probabilities(matrix @ frequencies)).max() > 1e-4


def test_block_sums_are_theorem_1s_sums() -> None:
    # Σ over the own topic: v·same-topic entries; over another one: v·different-topic entries.
    own, other = block_sums(theorem2(10, 10, Masking()), PAPER_TOPICS)
    assert own == pytest.approx(10 * 0.1080202, abs=1e-5)
    assert other == pytest.approx(10 * -0.0075867, abs=1e-5)
    assert own - other == pytest.approx(1 / (1 - 0.9 * 0.15))
