from importlib.util import find_spec
from statistics import median

import numpy as np
import pytest

import training_steps
from topicscope.synthetic.documents import MaskedDocuments


@pytest.mark.slow
@pytest.mark.skipif(find_spec("transformers") is None, reason="the benchmark compares with transformers")
def test_every_way_of_training_is_timed_and_the_bag_engine_is_faster_than_hugging_face() -> None:
    turns = training_steps.compare(rounds=2)
    assert set(turns) == set(training_steps.TITLES)
    assert median(turns["bag"]) < median(turns["huggingface"])
    layers = [training_steps.point("layers", 1, reference=True)]
    page = training_steps.page(turns, {"layers": layers})
    assert f"| 1 | {layers[0].bag * 1e3:,.2f} |" in page


def test_repeated_documents_have_the_same_tokens_so_many_times() -> None:
    masked = np.array([True, False, True])
    documents = MaskedDocuments(np.array([1, 2]), np.array([0, 4, 5]), np.array([3, 4, 6]), masked)
    twice = training_steps.repeated(documents, 2)
    assert twice.tokens.tolist() == [0, 0, 4, 5, 4, 5]
    assert twice.words.tolist() == [3, 3, 4, 6, 4, 6]
    assert twice.masked.tolist() == [True, True, False, True, False, True]
    assert twice.lengths.tolist() == [2, 4]
