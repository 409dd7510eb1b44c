"""Attention's averages, and what a row says about the two stages, against the model itself."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from support.helpers import small_settings
from topicscope.model.transformer import Transformer, padded_batch
from topicscope.model.weights import start_weights
from topicscope.randomness import Purpose
from topicscope.settings import Part, Settings
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.finite_documents import finite_optimum, moments, population_loss
from topicscope.training.batches import BatchStream
from topicscope.training.engines import make_engine
from topicscope.training.record import ROW_DOCUMENTS, AttentionByClass, Measures, uniform_gain


@pytest.mark.parametrize("masked_keys", ["visible", "hidden"])
@pytest.mark.parametrize("uniform", [False, True])
def test_average_attention_of_bags_equals_that_of_all_pairs_of_positions(masked_keys: str, uniform: bool) -> None:
    settings = small_settings(model={"masked_keys": masked_keys, "layers": 2, "residual": True})
    topics = TopicModel.from_settings(settings.documents)
    draw = np.random.default_rng(3)
    weights = start_weights(settings, 0, topics)
    weights = {name: array + draw.normal(size=array.shape) for name, array in weights.items()}
    model = Transformer(settings.model, weights, dtype=torch.float64)
    model.uniform_attention = uniform
    stream = BatchStream(settings, topics)
    documents = stream.held_out(8, Purpose.MEASURE)
    others = stream.held_out(8, Purpose.VALIDATION)
    # With positions in the settings it is computed from positions; this model has none either way.
    by_position = dataclasses.replace(settings, model=dataclasses.replace(settings.model, positions="learned"))
    found, expected, other = (
        AttentionByClass(chosen, how, topics).averages(model)
        for chosen, how in ((documents, settings), (documents, by_position), (others, settings))
    )
    assert found == pytest.approx(expected, rel=1e-12, nan_ok=True)
    # Uniform attention to visible keys is the same in all documents.
    assert (abs(other - expected)[:3] > 1e-6).all() or (uniform and masked_keys == "visible")


def _one_hot(loss: str, **training: object) -> Settings:
    still = {"start": "zero", "train": False}
    biases = {f"{name}_bias": still for name in ("key", "query", "value", "prediction")}
    model = {"embedding": {"start": "identity", "train": False}, **biases}
    return small_settings(model=model, training={"loss": loss, **training})


@pytest.mark.parametrize("masked_keys", ["visible", "hidden"])
@pytest.mark.parametrize("switches", [{}, {"token_types": 1.0}, {"token_types": 1.0, "embedding_norm": True}], ids=str)
def test_recorded_attention_is_the_models_own(masked_keys: str, switches: dict[str, Any]) -> None:
    settings = small_settings(model={"masked_keys": masked_keys, **switches})
    topics, draw = TopicModel.from_settings(settings.documents), np.random.default_rng(4)
    engine = make_engine(settings, (0, 1), topics)
    for weight in engine.weights.values():
        weight += torch.from_numpy(draw.normal(size=weight.shape))
    measures = Measures(engine)
    found, documents = measures.numbers(), measures._documents
    assert documents is not None
    batch = padded_batch(documents.span(0, ROW_DOCUMENTS), masked_keys=settings.model.masked_keys)
    tokens, seen, present = batch.tokens.numpy(), batch.keys.numpy(), batch.queries.numpy() > 0
    uniform = seen / seen.sum(axis=1, keepdims=True)
    for place, model in enumerate(engine.models):
        attention = model.attention(batch.tokens, batch.keys)[0, :, 0].detach().numpy()
        distance = np.abs(attention - uniform[:, :, None]).sum(axis=1) / 2
        for name, queries in (("words", tokens > 0), ("mask", tokens == 0)):
            expected = distance[present & queries].mean()
            assert found[f"attention/{name}"][place, 0] == pytest.approx(expected, rel=1e-5)
    assert found["attention/words"][0] != pytest.approx(found["attention/words"][1], rel=1e-3)


def test_the_gain_under_uniform_attention_is_one_at_the_optimum_and_zero_at_nothing() -> None:
    settings = _one_hot("squared")
    topics = TopicModel.from_settings(settings.documents)
    gain = uniform_gain(settings, topics, BatchStream(settings, topics).held_out(20, Purpose.MEASURE))
    assert gain is not None
    best = finite_optimum(moments(topics, settings.masking))
    assert gain(best) == pytest.approx(1)
    assert gain(0 * best) == pytest.approx(0, abs=1e-12)
    # 1 − (1 − t)² of the way, the loss being quadratic; and beyond the optimum it falls again.
    assert gain(best / 2) == pytest.approx(0.75)
    assert gain(3 * best) < 0


def test_the_gain_under_cross_entropy_is_that_of_losses_on_the_same_documents() -> None:
    settings = _one_hot("cross_entropy")
    still = Part(start="zero", train=False)
    frozen = dataclasses.replace(settings, model=dataclasses.replace(settings.model, key=still, query=still))
    topics, draw = TopicModel.from_settings(settings.documents), np.random.default_rng(5)
    documents = BatchStream(settings, topics).held_out(200, Purpose.MEASURE)
    gain = uniform_gain(settings, topics, documents)
    assert gain is not None
    matrices = [size * draw.normal(size=(topics.vocabulary, topics.vocabulary)) for size in (0.0, 0.5, 1.0)]
    engine = make_engine(frozen, range(3), topics)
    engine.weights["value"].copy_(torch.from_numpy(np.stack(matrices))[:, None])
    with torch.no_grad():
        nothing, first, second = engine.losses(engine.prepare([documents] * 3)[0]).tolist()
    assert gain(matrices[0]) == pytest.approx(0, abs=1e-12)
    assert gain(matrices[1]) / gain(matrices[2]) == pytest.approx((nothing - first) / (nothing - second), rel=1e-4)
    # Control: they are two different numbers.
    assert first != pytest.approx(second, rel=1e-2)


def test_biases_count_as_part_of_what_the_value_matrix_gains() -> None:
    """Held against the exact loss of a prediction with a bias, which treats it apart from the matrix."""
    settings = _one_hot("squared")
    trained = Part(start="zero")
    model = dataclasses.replace(settings.model, value_bias=trained, prediction_bias=trained)
    biased = dataclasses.replace(settings, model=model)
    topics, draw = TopicModel.from_settings(settings.documents), np.random.default_rng(5)
    engine = make_engine(biased, [0], topics)
    weights = {name: engine.weights[name] for name in ("value", "value_bias", "prediction_bias")}
    for weight in weights.values():
        weight.copy_(0.1 * torch.from_numpy(draw.normal(size=weight.shape)))
    gain = Measures(engine).numbers()["uniform_gain"][0]
    exact = moments(topics, settings.masking)
    best = population_loss(finite_optimum(exact), exact)
    matrix = weights["value"][0, 0].double().numpy()
    bias = (weights["value_bias"][0, 0] + weights["prediction_bias"][0]).double().numpy()
    loss = population_loss(matrix, exact, bias)
    assert gain == pytest.approx((1 - loss) / (1 - best), rel=1e-5)
    # Control: without the biases it is another number.
    assert gain != pytest.approx((1 - population_loss(matrix, exact)) / (1 - best), rel=1e-2)


def test_the_gain_is_not_defined_where_the_optimum_is_not_known() -> None:
    settings = _one_hot("squared")
    topics = TopicModel.from_settings(settings.documents)
    documents = BatchStream(settings, topics).held_out(20, Purpose.MEASURE)
    hidden = dataclasses.replace(settings, model=dataclasses.replace(settings.model, masked_keys="hidden"))
    normed = dataclasses.replace(settings, model=dataclasses.replace(settings.model, embedding_norm=True))
    assert uniform_gain(hidden, topics, documents) is uniform_gain(normed, topics, documents) is None
    assert uniform_gain(settings, topics, documents) is not None
