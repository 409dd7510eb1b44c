import numpy as np
import pytest

from step_costs import repeated, thread_gains
from topicscope.settings.training import Engine
from topicscope.synthetic.documents import MaskedDocuments


def test_thread_gains_are_ordered_by_the_size_of_a_step_and_compare_its_two_times() -> None:
    larger_first: list[tuple[Engine, int, int, int]] = [("bag", 2, 8, 2), ("bag", 2, 8, 1)]
    found = thread_gains(larger_first, turns=1)
    assert [gain.name for gain in found] == ["bag, V = 21, d = 8, 1 layer", "bag, V = 21, d = 8, 2 layers"]
    assert found[0].multiply_adds < found[1].multiply_adds
    for gain in found:
        assert gain.gain == pytest.approx(gain.one / gain.several, rel=1e-12)


def test_repeated_documents_have_the_same_tokens_so_many_times() -> None:
    masked = np.array([True, False, True])
    documents = MaskedDocuments(np.array([1, 2]), np.array([0, 4, 5]), np.array([3, 4, 6]), masked)
    twice = repeated(documents, 2)
    assert twice.tokens.tolist() == [0, 0, 4, 5, 4, 5]
    assert twice.words.tolist() == [3, 3, 4, 6, 4, 6]
    assert twice.masked.tolist() == [True, True, False, True, False, True]
    assert twice.lengths.tolist() == [2, 4]
