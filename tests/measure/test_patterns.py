"""Patterns by rule, on matrices made by hand."""

import numpy as np
import pytest

from topicscope.measure.blocks import block_sums, centred_columns, pattern
from topicscope.settings import Data, Masking
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.theorem2 import diagonal_value, theorem2

TOPICS = TopicModel.from_settings(Data()).word_topics


def _noisy(matrix: np.ndarray, noise: float) -> np.ndarray:
    return matrix + noise * np.random.default_rng(0).normal(size=matrix.shape)


def test_theorem_2_is_a_block_pattern_and_the_diagonal_member_a_diagonal_one() -> None:
    assert pattern(_noisy(theorem2(10, 10, Masking()), 0.02), TOPICS) == "block"
    assert pattern(_noisy(diagonal_value(10, 10, Masking()), 0.02), TOPICS) == "diagonal"


def test_a_pattern_below_the_noise_or_along_other_topics_is_none() -> None:
    block = theorem2(10, 10, Masking())
    assert pattern(_noisy(block, 1.0), TOPICS) == "none"
    shuffled = np.concatenate([[0], np.random.default_rng(0).permutation(TOPICS[1:])])
    assert pattern(_noisy(block - np.diag(np.diag(block)), 0.02), shuffled) == "none"


def test_random_embeddings_show_a_diagonal_before_any_training() -> None:
    table = 0.02 * np.random.default_rng(0).normal(size=(101, 101))
    assert pattern(table @ table.T, TOPICS) == "diagonal"


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
    own, other = block_sums(theorem2(10, 10, Masking()), TOPICS)
    assert own == pytest.approx(10 * 0.1080202, abs=1e-5)
    assert other == pytest.approx(10 * -0.0075867, abs=1e-5)
    assert own - other == pytest.approx(1 / (1 - 0.9 * 0.15))
