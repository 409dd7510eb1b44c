import numpy as np
import pytest
import torch

from support.helpers import small_settings
from topicscope.model.transformer import Transformer
from topicscope.model.weights import Sizes, initial_weights
from topicscope.randomness import Purpose
from topicscope.synthetic.topics import TopicModel
from topicscope.training.batches import BatchStream
from topicscope.training.record import BagAttention, PositionAttention


@pytest.mark.parametrize("masked_keys", ["visible", "hidden"])
@pytest.mark.parametrize("uniform", [False, True])
def test_average_attention_of_bags_equals_that_of_all_pairs_of_positions(masked_keys: str, uniform: bool) -> None:
    settings = small_settings(model={"masked_keys": masked_keys, "layers": 2, "residual": True})
    topics = TopicModel.from_settings(settings.data)
    draw = np.random.default_rng(3)
    weights = initial_weights(settings.model, topics, settings.masking, average="document", generator=draw)
    weights = {name: array + draw.normal(size=array.shape) for name, array in weights.items()}
    sizes = Sizes.of(settings.model, topics.vocabulary, topics.length[1])
    model = Transformer(settings.model, sizes, weights, dtype=torch.float64)
    model.uniform_attention = uniform
    stream = BatchStream(settings, topics)
    documents = stream.held_out(8, Purpose.MEASURE)
    keys = settings.model.masked_keys
    found = BagAttention(documents, keys, topics.word_topics).averages(model)
    expected = PositionAttention(documents, keys, topics.word_topics).averages(model)
    other = BagAttention(stream.held_out(8, Purpose.VALIDATION), keys, topics.word_topics).averages(model)
    for name in ("same_word", "same_topic", "different_topic"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-12)
        assert getattr(other, name) != pytest.approx(getattr(expected, name), rel=1e-6)
