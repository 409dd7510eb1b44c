"""Optima for finite documents, against listed documents, the reference model's own loss, and the infinite limit."""

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize

from topicscope.errors import InputError
from topicscope.settings import Data, Masking
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.synthetic.masking import mask_documents
from topicscope.synthetic.topics import TopicModel, sample_documents
from topicscope.theory.classes import ClassMatrix, Vocabulary
from topicscope.theory.finite_attention import (
    ClassCounts,
    Weights,
    attention_optimum,
    joint_optimum,
    sampled_counts,
)
from topicscope.theory.finite_documents import class_loss, class_moments, class_optimum
from topicscope.theory.landscape import InfiniteDocuments, Landscape, minimise
from topicscope.theory.reduced import Rows
from topicscope.theory.theorem2 import theorem2_classes

STRONG = Masking(mask=0.3, keep=0.3, random=0.2)
VALUE = ClassMatrix(0.02, 0.4, 0.15, -0.03)
WEIGHTS = Weights(2.5, 4.0, 0.6, 1.7)


def documents(data: Data, masking: Masking, count: int, seed: int = 0) -> MaskedDocuments:
    model, generator = TopicModel.from_settings(data), np.random.default_rng(seed)
    return mask_documents(
        sample_documents(model, count, generator=generator), masking, model.vocabulary, generator=generator
    )


def one_by_one(found: MaskedDocuments, size: Vocabulary, value: ClassMatrix, weights: Weights) -> np.ndarray:
    """Each document's loss by position: softmax over all its positions, W^V as a whole matrix."""
    matrix, words, losses = value.matrix(size.topics, size.words), size.words, []
    for number in range(len(found)):
        one = found.span(number, number + 1)
        total = []
        for place in one.where:
            query, given = one.tokens[place], np.ones(len(one.tokens))
            for other, key in enumerate(one.tokens):
                if query == 0:
                    given[other] = weights.mask_on_mask if key == 0 else 1.0
                elif key == 0:
                    given[other] = weights.word_on_mask
                elif key == query:
                    given[other] = weights.beta
                elif (key - 1) // words == (query - 1) // words:
                    given[other] = weights.alpha
            guess = matrix[:, one.tokens] @ (given / given.sum())
            total.append(float(((guess - np.eye(len(matrix))[one.words[place]]) ** 2).sum()))
        losses.append(float(np.mean(total)))
    return np.array(losses)


@pytest.mark.parametrize(
    "data",
    [
        Data(topics=3, words=2, length=(5, 9)),
        Data(sampler="topics", topics=4, words=3, per_document=2, length=(6, 8)),
        Data(topics=4, words=1, length=(4, 7)),
    ],
)
def test_sums_over_classes_give_the_loss_of_attention_over_positions(data: Data) -> None:
    found, size = documents(data, STRONG, 40), Vocabulary(data.topics, data.words)
    counts, brute = ClassCounts.of(Rows.of(found, size)), one_by_one(found, size, VALUE, WEIGHTS)
    assert counts.loss(VALUE, WEIGHTS) == pytest.approx(brute.mean(), rel=1e-12)
    assert counts.loss(VALUE, replace(WEIGHTS, mask_on_mask=1.0)) != pytest.approx(brute.mean(), rel=1e-6)


def test_at_uniform_attention_the_best_value_is_that_of_exact_moments() -> None:
    data = Data(topics=4, words=3, length=(20, 30))
    counts = sampled_counts(data, STRONG, 5_000, generator=np.random.default_rng(0))
    exact = class_moments(data, STRONG)
    square, cross = (part.sum(axis=0) for part in counts.quadratic(Weights()))
    found, best = ClassMatrix(*np.linalg.solve(square, cross).tolist()), class_optimum(exact)
    # A document's loss scatters by about 0.1.
    assert counts.loss(found, Weights()) == pytest.approx(class_loss(best, exact), abs=5 * 0.1 / np.sqrt(5_000))
    assert found.same_word == pytest.approx(best.same_word, rel=0.05)
    assert found.same_topic == pytest.approx(best.same_topic, rel=0.05)
    assert abs(found.same_word - found.same_topic) > 0.3 * found.same_word
    # What the search leaves at uniform attention is what the normal equations leave.
    for place in range(4):
        numbers = [found.mask_column, found.same_word, found.same_topic, found.different_topic]
        numbers[place] += 0.01
        assert counts.loss(ClassMatrix(*numbers), Weights()) > counts.loss(found, Weights())


def test_with_long_documents_it_tends_to_the_landscape_s_optimum() -> None:
    infinite = InfiniteDocuments(topics=5, per_document=2, words=3, masking=STRONG)
    value = theorem2_classes(5, 3, STRONG)
    limit = minimise(Landscape(infinite, value), free_mask_key=True)
    found = {}
    for length in (20, 600):
        data = Data(sampler="topics", topics=5, words=3, per_document=2, length=(length, length))
        counts = sampled_counts(data, STRONG, 1_000, generator=np.random.default_rng(0))
        best = attention_optimum(counts, value, "topics")
        found[length] = best.weighted_average
        narrow = attention_optimum(counts, value, "assumption 2")
        assert (narrow.weights.word_on_mask, narrow.weights.mask_on_mask) == (1.0, narrow.weights.beta)
        assert attention_optimum(counts, value).loss < min(narrow.loss, best.loss) < best.loss_uniform
        if length == 600:
            assert best.loss == pytest.approx(limit.loss, abs=2e-3)
    slack = 2 * (found[600].high - found[600].low)
    assert abs(found[600].value - limit.weighted_average) < slack
    assert abs(found[20].value - limit.weighted_average) > 2 * slack


def test_no_class_parameters_have_a_lower_loss_than_the_joint_optimum() -> None:
    """Against a search over all twelve, [MASK]'s row and column included, by the reduced model's loss and gradient."""
    data, size = Data(topics=3, words=3, length=(10, 14)), Vocabulary(3, 3)
    found = documents(data, STRONG, 300)
    best, rows = joint_optimum(ClassCounts.of(Rows.of(found, size))), Rows.of(found, size)

    def objective(point: np.ndarray) -> tuple[float, np.ndarray]:
        here = rows.gradient(point[:6], point[6:], "squared")
        loss = rows.loss(point[:6], point[6:], "squared")
        return loss, np.concatenate([here.value * size.sizes, here.logits * size.sizes])

    w, value = best.weights, best.value
    start = [0.0, 0.0, value.mask_column, value.same_word, value.same_topic, value.different_topic]
    start += np.log(np.maximum([w.mask_on_mask, w.word_on_mask, 1.0, w.beta, w.alpha, 1.0], 1e-9)).tolist()
    assert objective(np.array(start))[0] == pytest.approx(best.loss, rel=1e-5)
    nudged = np.array(start) + 0.1 * np.random.default_rng(0).normal(size=12)
    lowest = minimize(objective, nudged, jac=True, method="L-BFGS-B", options={"maxiter": 500, "ftol": 1e-14})
    assert best.loss == pytest.approx(lowest.fun, abs=1e-6)
    assert objective(nudged)[0] > best.loss + 1e-4
    assert best.loss < best.loss_uniform - 1e-2


@pytest.mark.parametrize(
    ("data", "masking", "without_effect"),
    [
        (Data(sampler="topics", topics=4, words=1, length=(8, 9)), STRONG, ["alpha"]),
        (Data(topics=3, words=2, length=(8, 9)), Masking(keep=0.0, random=0.0), ["alpha", "beta", "word_on_mask"]),
        (Data(topics=3, words=2, length=(1, 1)), STRONG, ["alpha", "beta", "word_on_mask", "mask_on_mask"]),
    ],
)
def test_a_weight_without_effect_is_one(data: Data, masking: Masking, without_effect: list[str]) -> None:
    counts = sampled_counts(data, masking, 200, generator=np.random.default_rng(0))
    weights = asdict(attention_optimum(counts, VALUE).weights)
    assert [name for name, weight in weights.items() if weight == 1.0] == without_effect


def test_topics_of_unequal_words_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "topics.csv"
    file.write_text("0.7,0.3,0,0\n0,0,0.5,0.5\n")
    with pytest.raises(InputError, match=r"data\.topic_words = .* is not allowed"):
        sampled_counts(Data(topic_words=str(file)), Masking(), 10, generator=np.random.default_rng(0))
    with pytest.raises(InputError, match=r"data\.ends"):
        sampled_counts(Data(ends=True), Masking(), 10, generator=np.random.default_rng(0))
    with pytest.raises(InputError, match="2 or more"):
        sampled_counts(Data(), Masking(), 1, generator=np.random.default_rng(0))
