import numpy as np

from step_costs import repeated
from topicscope.synthetic.documents import MaskedDocuments


def test_repeated_documents_have_the_same_tokens_so_many_times() -> None:
    masked = np.array([True, False, True])
    documents = MaskedDocuments(np.array([1, 2]), np.array([0, 4, 5]), np.array([3, 4, 6]), masked)
    twice = repeated(documents, 2)
    assert twice.tokens.tolist() == [0, 0, 4, 5, 4, 5]
    assert twice.words.tolist() == [3, 3, 4, 6, 4, 6]
    assert twice.masked.tolist() == [True, True, False, True, False, True]
    assert twice.lengths.tolist() == [2, 4]
