"""Residuals: zero on the theorems' matrices, and equal to what was added off them."""

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from support.theory import drawn
from topicscope.errors import InputError
from topicscope.settings.data import Data, Masking
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.check import (
    FamilyResiduals,
    check_matrix,
    class_statistics,
    equal_word_topics,
    theorem_residuals,
)
from topicscope.theory.finite_documents import infinite_topic_moments, population_loss
from topicscope.theory.lemma1 import constants, lemma1
from topicscope.theory.theorem1 import paper_diagonal_embedding, theorem1_embedding
from topicscope.theory.theorem2 import block_value, theorem2

MASKING = Masking()


def residuals(matrix: np.ndarray, topics: int = 10, words: int = 10, per_document: int = 2) -> dict[str, Any]:
    data = Data(sampler="topics", topics=topics, words=words, per_document=per_document)
    return theorem_residuals(TopicModel.from_settings(data), MASKING, value=matrix)


CLAUSES = ("1a", "1b", "2a", "3a", "3b")


def test_theorem_2_has_no_residual_and_the_block_member_is_in_the_family_alone() -> None:
    found = residuals(theorem2(10, 10, MASKING))
    assert max(found["lemma_1"].clauses[name].worst for name in CLAUSES) < 1e-14
    assert found["theorem_2"].distance == 0
    assert found["theorem_2"].loss == pytest.approx(0.95, abs=1e-12)
    block = residuals(block_value(10, 10, MASKING))
    assert block["lemma_1"].distance < 1e-13
    assert block["lemma_1"].excess_loss < 1e-20
    assert max(map(abs, block["lemma_1"].u)) < 1e-15
    assert block["theorem_2"].distance > 0.5
    assert block["theorem_2"].clauses["different_topic"].worst == pytest.approx(0.0075867, abs=5e-8)


@drawn(st.integers(2, 4), st.integers(1, 4), st.integers(0, 2**32 - 1), few=20)
def test_the_distance_and_the_excess_loss_are_those_of_the_projection(topics: int, words: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    matrix = random.normal(size=(topics * words + 1,) * 2)
    found = residuals(matrix, topics, words, per_document=1)["lemma_1"]
    nearest = lemma1(topics, words, MASKING).project(matrix)
    assert found.distance == pytest.approx(np.linalg.norm(matrix - nearest))
    population = infinite_topic_moments(topics, words, 1, MASKING)
    excess = population_loss(matrix, population) - population_loss(nearest, population)
    assert found.excess_loss == pytest.approx(excess, abs=1e-12)
    # Clauses add up to the distance: a topic's sum off by s moves each of its v entries by s/v.
    squares = {name: deviation.rms**2 for name, deviation in found.clauses.items()}
    tokens = topics * words
    total = squares["1a"] + tokens * squares["2a"]
    total += (topics * squares["1b"] + tokens * squares["3a"] + tokens * (topics - 1) * squares["3b"]) / words
    assert total == pytest.approx(found.distance**2)
    assert found.distance > 1e-3


def test_a_nudge_shows_in_its_own_class_and_clause() -> None:
    topic = equal_word_topics(10, 10)
    matrix = theorem2(10, 10, MASKING)
    matrix[5, 5] += 0.3
    found = residuals(matrix)
    assert found["theorem_2"].clauses["same_word"].worst == pytest.approx(0.3)
    assert found["theorem_2"].clauses["same_word"].rms == pytest.approx(0.3 / 10)
    assert found["theorem_2"].clauses["same_topic"].worst == 0
    # u takes up a share 1/(c₂² + Tv) of the nudge, v times.
    c2 = constants(10, 10, MASKING).c2
    assert found["lemma_1"].clauses["3a"].worst == pytest.approx(0.3 * (1 - 10 / (c2**2 + 100)))
    average = class_statistics(matrix, topic)["same_word"]
    assert average is not None
    assert average.mean == pytest.approx(matrix[1, 1] + 0.003)
    assert average.spread == pytest.approx(0.3 * np.sqrt(0.01 * 0.99))
    assert average.count == 100


def test_classes_without_entries_are_none() -> None:
    single = class_statistics(np.ones((4, 4)), equal_word_topics(3, 1))
    assert single["same_topic"] is None
    assert single["different_topic"] is not None
    assert class_statistics(np.ones((4, 4)), equal_word_topics(1, 3))["different_topic"] is None


def test_theorem_1_residuals_single_out_the_papers_example() -> None:
    def of_embedding(embedding: np.ndarray) -> FamilyResiduals:
        model = TopicModel.from_settings(Data())
        found: FamilyResiduals = theorem_residuals(model, MASKING, gram=embedding.T @ embedding)["theorem_1"]
        return found

    right = of_embedding(theorem1_embedding(10, 10, MASKING, "diagonal", 100))
    assert max(deviation.worst for deviation in right.clauses.values()) < 1e-14
    printed = of_embedding(paper_diagonal_embedding(10, 10, MASKING))
    assert printed.clauses["1a"].worst > 0.5
    assert printed.excess_loss == pytest.approx(0.01925, abs=5e-6)


def test_a_matrix_of_the_wrong_size_is_told_what_it_would_fit() -> None:
    with pytest.raises(InputError, match=r"61 × 61, but .* need 101 × 101: it fits .*topics = 10 and words = 6"):
        check_matrix(np.zeros((61, 61)), Data(), MASKING, "w.npy")
    with pytest.raises(InputError, match="give a square matrix"):
        check_matrix(np.zeros((101, 100)), Data(), MASKING, "w.npy")
    with pytest.raises(InputError, match="only one set of topics"):
        check_matrix(np.zeros((101, 101)), Data(per_document=10), MASKING, "w.npy")
