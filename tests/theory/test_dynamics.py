"""The start, against automatic differentiation; rates in closed form and by exact moments, against listed documents."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch

from support.theory import sampled_rows
from topicscope.errors import InputError
from topicscope.model.transformer import Transformer, padded_batch
from topicscope.settings import Data, Masking, Model, Part
from topicscope.settings.data import Sampler
from topicscope.settings.training import Loss
from topicscope.synthetic.documents import Bags, MaskedDocuments
from topicscope.synthetic.masking import mask_documents
from topicscope.synthetic.topics import TopicModel, sample_documents
from topicscope.theory.classes import Vocabulary
from topicscope.theory.dynamics import (
    attention_coefficient,
    gradient_ratio,
    key_gradient,
    logit_gradient,
    stage1_rates,
    stage1_topic_rate,
    stage2_rates,
    stage2_topic_rate,
    time_ratio,
    value_gradient,
)
from topicscope.theory.finite_documents import (
    class_moments,
    class_optimum,
    gradient_descent,
    infinite_topic_moments,
    moments,
)
from topicscope.theory.theorem2 import theorem2_classes
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
        net = Transformer(model, weights, dtype=torch.float64)
        each = losses(net.predict_masked(batch), batch.words, loss)
        (each @ batch.weights.to(each)).backward()  # type: ignore[no-untyped-call]
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


def test_the_ratio_grows_as_one_over_the_square_of_the_scale() -> None:
    bags = Bags.of(_documents(20), VOCABULARY)
    assert gradient_ratio(bags, "squared", 0.001) == pytest.approx(400 * gradient_ratio(bags, "squared", 0.02))


# T, v, τ and a masking: three settings and more for every closed form.
LISTED: list[tuple[int, int, int, Masking]] = [
    (6, 4, 3, Masking(mask=0.2, keep=0.3, random=0.2)),
    (4, 2, 2, Masking()),
    (5, 3, 4, Masking(mask=0.5, keep=0.2, random=0.0)),
    (3, 1, 2, Masking(mask=0.3, keep=0.6, random=0.3)),
    (4, 3, 1, Masking(mask=0.4, keep=0.3, random=0.3)),
]


def listed_logit_gradient(
    value: np.ndarray, topics: int, words: int, per_document: int, masking: Masking
) -> np.ndarray:
    """∂L/∂M at M = 0 over every topic set, query and word, entry by entry, as the definition says."""
    n = topics * words
    total = np.zeros((n + 1, n + 1))
    sets = list(combinations(range(topics), per_document))
    for chosen in sets:
        p = np.zeros(n + 1)
        for topic in chosen:
            p[1 + topic * words : 1 + (topic + 1) * words] = 1 / (per_document * words)
        hidden = np.full(n + 1, masking.random / n)
        hidden[0] = masking.replaced
        x = (1 - masking.mask) * p + masking.mask * (hidden + masking.keep * p)
        for query in range(n + 1):
            for word in np.flatnonzero(p):
                chance = p[word] * (hidden[query] + masking.keep * (query == word))
                pull = 2 * value.T @ (value @ x - np.eye(n + 1)[word])
                total[:, query] += chance * x * (pull - x @ pull) / len(sets)
    return total


def _contrast(topics: int, words: int) -> np.ndarray:
    contrast = np.zeros(topics * words + 1)
    contrast[1 : 1 + words], contrast[1 + words : 1 + 2 * words] = 1, -1
    return contrast / np.linalg.norm(contrast)


@pytest.mark.parametrize(("topics", "words", "per_document", "masking"), LISTED)
def test_stage_2s_closed_form_is_the_eigenvalue_over_all_topic_sets(
    topics: int, words: int, per_document: int, masking: Masking
) -> None:
    value = theorem2_classes(topics, words, masking).matrix(topics, words)
    gradient = listed_logit_gradient(value, topics, words, per_document, masking)
    contrast, rate = _contrast(topics, words), stage2_topic_rate(topics, words, per_document, masking)
    np.testing.assert_allclose(gradient @ contrast, -rate * contrast, atol=1e-12, rtol=1e-10)
    # Controls: the formula without its last factor, and another matrix.
    if per_document > 1 and masking.random:
        alone = 2 * masking.keep * (per_document - 1) / (per_document**2 * words**2 * (topics - 1))
        assert abs(alone / rate - 1) > 1e-3
    half = listed_logit_gradient(value / 2, topics, words, per_document, masking)
    assert abs(contrast @ half @ contrast + rate) > 1e-5


def test_the_two_numbers_known_from_elsewhere() -> None:
    assert stage2_topic_rate(10, 10, 2) == pytest.approx(5.5748234e-5, rel=1e-8)
    assert stage2_topic_rate(6, 4, 3, Masking(mask=0.2, keep=0.3, random=0.2)) == pytest.approx(1.7054264e-3, rel=1e-7)
    assert time_ratio(10, 10, 2) == pytest.approx(1199, abs=1)


@pytest.mark.parametrize(("topics", "words", "per_document", "masking"), LISTED)
def test_along_stage_1_the_rates_are_those_over_all_topic_sets(
    topics: int, words: int, per_document: int, masking: Masking
) -> None:
    size = Vocabulary(topics, words)
    exact = infinite_topic_moments(topics, words, per_document, masking)
    data = Data(sampler="topics", topics=topics, words=words, per_document=per_document)
    nothing, slopes = np.zeros((size.count + 1, size.count + 1)), list[float]()
    for steps in (1, 7, 60):
        value = gradient_descent(nothing, exact, 0.5, steps)
        gradient, classes = listed_logit_gradient(value, topics, words, per_document, masking), size.means(value)
        contrast = _contrast(topics, words)
        np.testing.assert_allclose(
            size.matrix(logit_gradient(data, masking, infinite=True)(classes)), gradient, atol=1e-13
        )
        rates = stage2_rates(classes, data, masking, infinite=True)
        singular = np.linalg.svd(gradient, compute_uv=False)
        assert rates.topic == pytest.approx(-contrast @ gradient @ contrast, rel=1e-10, abs=1e-15)
        slopes.append(rates.topic)
        for rate in (rates.topic, rates.same_word, rates.mask):
            assert abs(singular - abs(rate)).min() < 1e-12
        assert singular[0] == pytest.approx(max(abs(rates.topic), abs(rates.same_word), abs(rates.mask)), rel=1e-9)
    # A control: the rate moves along the path.
    assert abs(slopes[0] / slopes[-1] - 1) > 0.1


@pytest.mark.parametrize(("topics", "words", "per_document", "masking"), LISTED)
def test_stage_1s_rates_are_twice_the_eigenvalues_of_s(
    topics: int, words: int, per_document: int, masking: Masking
) -> None:
    data = Data(sampler="topics", topics=topics, words=words, per_document=per_document, length=(3, 6))
    found = stage1_rates(data, masking)
    values = 2 * np.linalg.eigvalsh(moments(TopicModel.from_settings(data), masking).second)
    wanted = [found.topic] * (topics - 1) + [found.same_word] * (topics * (words - 1)) + [found.mean, found.mask]
    np.testing.assert_allclose(np.sort(wanted), values, atol=1e-14)
    infinite = 2 * np.linalg.eigvalsh(infinite_topic_moments(topics, words, per_document, masking).second)
    rate = stage1_topic_rate(topics, words, per_document, masking)
    assert (abs(infinite - rate) < 1e-14).sum() >= topics - 1
    assert abs(values - rate).min() > 1e-6, "finite documents relax at other rates"


@pytest.mark.parametrize("sampler", ["dirichlet", "topics"])
def test_the_exact_gradient_of_finite_documents_is_that_of_sampled_ones(sampler: Sampler) -> None:
    data = Data(sampler=sampler, topics=3, words=2, per_document=2, dirichlet=(0.4,), length=(3, 6))
    masking, generator = Masking(mask=0.4, keep=0.3, random=0.3), np.random.default_rng(5)
    value = generator.normal(size=6)
    exact = logit_gradient(data, masking)(value)
    found = np.array(
        [
            sampled_rows(data, masking, 1_500, generator=generator).gradient(value, np.zeros(6), "squared").logits
            for _ in range(20)
        ]
    )
    error = found.std(axis=0, ddof=1) / np.sqrt(len(found))
    assert (abs(found.mean(axis=0) - exact) < 5 * error).all()
    infinite = logit_gradient(data, masking, infinite=True)(value)
    assert (abs(found.mean(axis=0) - infinite) > 5 * error).any()


def test_a_gradient_by_logits_sums_to_zero_over_keys() -> None:
    size = Vocabulary(10, 10)
    gradient = size.matrix(logit_gradient(Data(), Masking())(np.array([0.3, -0.1, 0.01, 0.2, 0.1, -0.001])))
    np.testing.assert_allclose(gradient.sum(axis=0), 0, atol=1e-15)
    assert abs(gradient.sum(axis=1)).max() > 1e-4


@pytest.mark.parametrize(("per_document", "keep"), [(2, 0.0), (1, 0.1)])
def test_without_kept_words_or_with_one_topic_only_finite_documents_move_attention(
    per_document: int, keep: float
) -> None:
    masking = Masking(keep=keep)
    assert stage2_topic_rate(10, 10, per_document, masking) == 0
    with pytest.raises(InputError, match="never takes off at infinite length"):
        time_ratio(10, 10, per_document, masking)
    data = Data(sampler="topics", per_document=per_document)
    infinite = stage2_rates(theorem2_classes(10, 10, masking).numbers, data, masking, infinite=True)
    assert (infinite.topic, infinite.same_word, infinite.mask) == (0, 0, 0)
    finite = stage2_rates(class_optimum(class_moments(data, masking)).numbers, data, masking)
    assert abs(finite.mask) > 1e-5
    assert finite.same_word != 0
