"""Documents end to end: choosing some of them."""

import numpy as np

from topicscope.settings import Data
from topicscope.synthetic.topics import TopicModel, sample_documents


def test_selected_documents_are_the_chosen_ones_in_the_chosen_order() -> None:
    model = TopicModel.from_settings(Data(length=(1, 5)))
    documents = sample_documents(model, 6, generator=np.random.default_rng(10))
    parts = np.split(documents.tokens, documents.offsets[1:-1])
    chosen = documents.select(np.array([4, 0, 4]))
    assert chosen.tokens.tolist() == np.concatenate([parts[4], parts[0], parts[4]]).tolist()
    assert chosen.lengths.tolist() == [len(parts[4]), len(parts[0]), len(parts[4])]
