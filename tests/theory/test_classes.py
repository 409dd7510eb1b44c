"""The symmetric setting by classes equals the whole matrices, and goes on where these do not fit in memory."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topicscope.errors import InputError
from topicscope.settings.data import Data, Masking
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.finite_documents import (
    ClassMatrix,
    class_loss,
    class_moments,
    class_optimum,
    finite_optimum,
    infinite_moments,
    moments,
    population_loss,
    theorem2_classes,
)
from topicscope.theory.theorem2 import theorem2


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    topics, shortest = draw(st.integers(1, 5)), draw(st.integers(1, 30))
    return {
        "data": {
            "sampler": draw(st.sampled_from(["dirichlet", "topics"])),
            "topics": topics,
            "words": draw(st.integers(1, 4)),
            "per_document": draw(st.integers(1, topics)),
            "dirichlet": (draw(st.floats(0.05, 3)),),
            "length": (shortest, shortest + draw(st.integers(0, 20))),
        },
        "masking": {
            "mask": draw(st.floats(0.05, 0.95)),
            "keep": draw(st.floats(0, 0.5)),
            "random": draw(st.floats(0, 0.5)),
        },
        "average": draw(st.sampled_from(["document", "batch"])),
        "infinite": draw(st.booleans()),
        "ridge": draw(st.sampled_from([0.0, 1e-3])),
    }


def check_classes_equal_whole_matrices(case: dict[str, Any]) -> None:
    data, masking = Data(**case["data"]), Masking(**case["masking"])
    model, ridge = TopicModel.from_settings(data), case["ridge"]
    whole = infinite_moments(model, masking) if case["infinite"] else moments(model, masking, case["average"])
    by_class = class_moments(data, masking, case["average"], infinite=case["infinite"])
    optimum = class_optimum(by_class, ridge)
    np.testing.assert_allclose(optimum.matrix(data.topics, data.words), finite_optimum(whole, ridge), atol=1e-8)
    any_matrix = ClassMatrix(0.3, 0.7, -0.4, 0.2)
    expected = population_loss(any_matrix.matrix(data.topics, data.words), whole)
    assert class_loss(any_matrix, by_class) == pytest.approx(expected, abs=1e-10)
    nudged = ClassMatrix(0.31, 0.71, -0.4, 0.2)
    assert class_loss(nudged, by_class) != pytest.approx(expected, abs=1e-7)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(cases())
def test_classes_equal_whole_matrices(case: dict[str, Any]) -> None:
    check_classes_equal_whole_matrices(case)


@pytest.mark.slow
@settings(derandomize=True, deadline=None, max_examples=400)
@given(cases())
def test_classes_equal_whole_matrices_over_many_settings(case: dict[str, Any]) -> None:
    check_classes_equal_whole_matrices(case)


def test_the_papers_setting_by_classes() -> None:
    by_class = class_moments(Data(), Masking())
    found = class_optimum(by_class)
    values = [found.mask_column, found.same_word, found.same_topic, found.different_topic]
    np.testing.assert_allclose(values, [0.01, 0.2152863, 0.1016500, -0.0014460], atol=5e-8)
    assert class_loss(found, by_class) == pytest.approx(0.94532184, abs=5e-9)
    theorem = theorem2_classes(10, 10, Masking())
    np.testing.assert_allclose(theorem.matrix(10, 10), theorem2(10, 10, Masking()), atol=1e-16)
    assert class_loss(theorem, by_class) == pytest.approx(0.94562537, abs=5e-9)


def test_very_many_topics_take_no_time() -> None:
    data = Data(sampler="topics", topics=10**8, per_document=3000)
    infinite = class_moments(data, Masking(), infinite=True)
    theorem = theorem2_classes(data.topics, data.words, Masking())
    least = class_loss(class_optimum(infinite), infinite)
    # A word of the document has probability 1/(τv): the least loss is 1 − 1/(τv).
    assert class_loss(theorem, infinite) == pytest.approx(1 - 1 / 30_000, abs=1e-12)
    assert least == pytest.approx(1 - 1 / 30_000, abs=1e-12)


def test_unequal_topics_are_refused() -> None:
    with pytest.raises(InputError, match=r"data.dirichlet = \[0.1, 0.2\]"):
        class_moments(Data(topics=2, dirichlet=(0.1, 0.2)), Masking())
