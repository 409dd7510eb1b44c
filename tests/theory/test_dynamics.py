"""The ratio of gradients at the start, against automatic differentiation and against the definition of κ."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from topicscope.model.transformer import Transformer, padded_batch
from topicscope.model.weights import Sizes
from topicscope.settings import Data, Masking, Model, Part
from topicscope.settings.training import Loss
from topicscope.synthetic.documents import Bags, MaskedDocuments
from topicscope.synthetic.masking import mask_documents
from topicscope.synthetic.topics import TopicModel, sample_documents
from topicscope.theory.dynamics import attention_coefficient, gradient_ratio, key_gradient, value_gradient
from topicscope.training.engines import losses

DATA = Data(topics=3, words=2, length=(8, 12))
VOCABULARY = 7
STILL = Part(start="zero", train=False)


def _documents(count: int) -> MaskedDocuments:
    generator = np.random.default_rng(0)
    documents = sample_documents(TopicModel.from_settings(DATA), count, generator=generator)
    return mask_documents(documents, Masking(mask=0.3), VOCABULARY, generator=generator)


def _gradient_norms(documents: MaskedDocuments, loss: Loss, scale: float, draws: int) -> dict[str, np.ndarray]:
    """Norms by automatic differentiation of the reference model, for several draws of the weights."""
    start = Part(scale=scale)
    model = replace(
        Model(attention_dimension=5),
        embedding=Part(start="identity", train=False),
        value=start,
        key=start,
        query=start,
        key_bias=STILL,
        query_bias=STILL,
        value_bias=STILL,
        prediction_bias=STILL,
    )
    generator = np.random.default_rng(1)
    batch = padded_batch(documents, masked_keys="visible", average="document")
    found: dict[str, list[float]] = {"value": [], "key": [], "query": []}
    shapes = {"value": (1, 7, 7), "key": (1, 5, 7), "query": (1, 5, 7)}
    for _ in range(draws):
        weights = {name: generator.normal(scale=scale, size=shape) for name, shape in shapes.items()}
        weights |= {"embedding": np.eye(7), "value_bias": np.zeros((1, 7)), "prediction_bias": np.zeros(7)}
        weights |= {"key_bias": np.zeros((1, 5)), "query_bias": np.zeros((1, 5))}
        net = Transformer(model, Sizes.of(model, VOCABULARY, DATA.length[1]), weights, dtype=torch.float64)
        each = losses(net.predict_masked(batch), batch.words, loss)
        (each @ torch.from_numpy(batch.weights).to(each)).backward()  # type: ignore[no-untyped-call]
        for name, norms in found.items():
            gradient = net.parameter(name).grad
            assert gradient is not None
            norms.append(float(gradient.norm()))
    return {name: np.array(norms) for name, norms in found.items()}


@pytest.mark.parametrize("loss", ["squared", "cross_entropy"])
def test_the_formula_is_the_mean_squared_gradient_of_the_reference_model(loss: Loss) -> None:
    documents, scale = _documents(10), 1e-3
    bags, found = Bags.of(documents, VOCABULARY), _gradient_norms(documents, loss, scale, 200)
    factor = 2 if loss == "squared" else 1
    np.testing.assert_allclose(found["value"], factor * value_gradient(bags, loss), rtol=0.01)
    expected = (factor * scale**2 * attention_coefficient(bags, loss)) ** 2
    for name in ("key", "query"):
        squares = found[name] ** 2
        error = squares.std() / np.sqrt(len(squares))
        assert abs(squares.mean() - expected) < 5 * error
        # A control: the other loss's coefficient, and a scale to another power, are far outside.
        assert abs(squares.mean() - expected / scale) > 5 * error
    other: Loss = "squared" if loss == "cross_entropy" else "cross_entropy"
    assert abs(attention_coefficient(bags, other) / attention_coefficient(bags, loss) - 1) > 0.02
    rms = np.sqrt((found["value"] ** 2).mean() / (found["key"] ** 2).mean())
    assert gradient_ratio(bags, loss, scale) == pytest.approx(rms, rel=0.15)


@pytest.mark.parametrize("loss", ["squared", "cross_entropy"])
def test_the_key_gradient_of_given_weights_is_that_of_the_reference_model(loss: Loss) -> None:
    documents, scale = _documents(30), 1e-4
    bags, found = Bags.of(documents, VOCABULARY), _gradient_norms(documents, loss, scale, 1)
    generator = np.random.default_rng(1)
    value, _, query = (generator.normal(scale=scale, size=shape) for shape in ((7, 7), (5, 7), (5, 7)))
    factor = 2 if loss == "squared" else 1
    norm = factor * np.linalg.norm(key_gradient(bags, loss, value, query))
    assert norm == pytest.approx(found["key"][0], rel=2e-3)
    wrong = factor * np.linalg.norm(key_gradient(bags, loss, value.T, query))
    assert wrong != pytest.approx(found["key"][0], rel=2e-2)


@pytest.mark.parametrize("loss", ["squared", "cross_entropy"])
def test_kappa_is_the_norm_of_the_expected_tensor(loss: Loss) -> None:
    documents = _documents(20)
    bags = Bags.of(documents, VOCABULARY)
    total = np.zeros((VOCABULARY,) * 4)
    for number in range(len(documents)):
        one = documents.span(number, number + 1)
        x = np.bincount(one.tokens, minlength=VOCABULARY) / len(one.tokens)
        joint = np.zeros((VOCABULARY, VOCABULARY))
        for word, token in zip(one.words[one.masked], one.tokens[one.masked], strict=True):
            residual = np.eye(VOCABULARY)[word] - (1 / VOCABULARY if loss == "cross_entropy" else 0)
            joint += np.outer(residual, np.eye(VOCABULARY)[token]) / one.masked.sum()
        total += np.einsum("ac,ib->acib", np.diag(x) - np.outer(x, x), joint)
    assert attention_coefficient(bags, loss) == pytest.approx(np.linalg.norm(total / len(documents)))


def test_the_ratio_grows_as_one_over_the_square_of_the_scale() -> None:
    bags = Bags.of(_documents(20), VOCABULARY)
    assert gradient_ratio(bags, "squared", 0.001) == pytest.approx(400 * gradient_ratio(bags, "squared", 0.02))
