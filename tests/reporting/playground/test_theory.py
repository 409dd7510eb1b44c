"""The playground's theory, compiled, against the library's functions on random settings."""

from dataclasses import astuple, replace
from typing import Any

import numpy as np
import pytest

from support.wasm import SHOWN, Core, Setting, random_setting
from topicscope.papers.topic_structure.experiments import overlapping_topics
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.bayes import bayes_floors, document_losses
from topicscope.theory.classes import ClassMatrix
from topicscope.theory.finite_documents import (
    class_loss,
    class_moments,
    class_optimum,
    finite_optimum,
    gradient_descent,
    moments,
    population_loss,
)
from topicscope.theory.landscape import InfiniteDocuments, Landscape, minimise
from topicscope.theory.theorem2 import diagonal_classes, theorem2_classes
from topicscope.theory.theorem3 import theorem3

# Of 20 random settings a few are looked at each time.
SETTINGS = [*range(6), *(pytest.param(number, marks=pytest.mark.slow) for number in range(6, 20))]


def disjoint_setting(number: int, **changes: Any) -> Setting:
    return random_setting(1_000 + number, topics=25, shortest=150, overlap=0.0, hidden=0, parts=0, loss=1, **changes)


def infinite(setting: Setting) -> InfiniteDocuments:
    return InfiniteDocuments(
        topics=setting.topics, per_document=setting.per_document, words=setting.words, masking=setting.masking
    )


def close(found: object, expected: object) -> None:
    np.testing.assert_allclose(np.array(found), np.array(expected), rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("number", SETTINGS)
def test_optima_rates_and_paths(number: int) -> None:
    setting = disjoint_setting(number)
    core = Core(setting)
    found = core.numbers("theory", 22)
    exact, theorem = (
        class_moments(setting.data, setting.masking),
        theorem2_classes(setting.topics, setting.words, setting.masking),
    )
    optimum = class_optimum(exact, setting.l2)
    close(found[:5], [*astuple(theorem), class_loss(theorem, exact)])
    close(found[5:10], [*astuple(optimum), class_loss(optimum, exact)])
    whole = moments(TopicModel.from_settings(setting.data), setting.masking)
    values = np.linalg.eigvalsh(whole.second)
    close(found[12], values[-1])
    close(sorted({*found[10:14]}), sorted({min(values, key=lambda value: abs(value - each)) for each in found[10:14]}))
    bounds = theorem3(infinite(setting))
    close(found[18:20], [bounds.lambda1, bounds.lambda2])
    start = np.zeros((setting.vocabulary, setting.vocabulary))
    for steps in (1, 100, 100_000):
        reached = gradient_descent(start, whole, setting.rate, steps, setting.l2)
        close(
            core.numbers("descent", 4, setting.rate, float(steps)),
            [reached[1, 0], reached[1, 1], reached[1, 2], reached[1, -1]],
        )


@pytest.mark.parametrize("number", SETTINGS)
def test_landscapes_and_their_minima(number: int) -> None:
    setting = disjoint_setting(number)
    core = Core(setting)
    theorem = theorem2_classes(setting.topics, setting.words, setting.masking)
    diagonal = diagonal_classes(setting.topics, setting.words, setting.masking)
    trained = ClassMatrix(0.01, 0.2, 0.1, -0.002)
    for value in (theorem, diagonal, trained):
        exact = Landscape(infinite(setting), value)
        arguments = (0, 0.0, 0.0, 0.0, 0.0) if value is theorem else (1, *astuple(value))
        alpha, beta, loss, uniform = core.numbers("landscape", 4, *arguments)
        best = minimise(exact)
        assert loss == pytest.approx(best.loss, rel=1e-9)
        assert uniform == pytest.approx(best.loss_uniform, rel=1e-12)
        if best.attained:
            close([alpha, beta], [best.alpha, best.beta])
        low, high = np.log(0.01), np.log(1e4)
        weights = np.exp(np.linspace(low, high, 30))
        grid = core.numbers("landscape_grid", 900, 30, float(low), float(high))
        close(np.reshape(grid, (30, 30)), exact.loss(weights[:, None], weights[None, :]))


@pytest.mark.parametrize("overlap", [0.0, 0.3, 1.0])
def test_the_optimum_of_overlapping_topics(overlap: float) -> None:
    setting = Setting(topics=4, words=3, overlap=overlap, shortest=10, longest=20, l2=1e-4)
    model = TopicModel.from_settings(setting.data, overlapping_topics(4, 3, overlap))
    exact = moments(model, setting.masking)
    optimum = finite_optimum(exact, setting.l2)
    found = Core(setting).numbers("theory", 20)
    close(found[5:9], [optimum[1, 0], optimum[1, 1], optimum[1, 2], optimum[1, -1]])
    assert found[9] == pytest.approx(population_loss(optimum, exact), rel=1e-9)


@pytest.mark.parametrize("number", SETTINGS)
def test_the_bayes_floor_of_each_document(number: int) -> None:
    core = Core(disjoint_setting(number, longest=160), seed=number)
    model = TopicModel.from_settings(core.setting.data)
    exact = document_losses(model, core.setting.masking, core.masked_documents()).masked
    core.call("floor_begin", 0.0)
    found = [core.numbers("bayes_of_shown", 2, document) for document in range(SHOWN)]
    np.testing.assert_allclose(found, exact, rtol=1e-7)


def test_the_floor_and_its_interval() -> None:
    setting = Setting(topics=4, words=3, shortest=20, longest=30)
    core = Core(setting)
    core.call("floor_begin", 7.0)
    count, *sums = core.numbers("floor_add", 5, 400)
    assert count == 400
    expected = bayes_floors(
        TopicModel.from_settings(setting.data), setting.masking, samples=400, generator=np.random.default_rng(0)
    ).masked
    for place, floor in enumerate((expected.cross_entropy, expected.squared)):
        mean = sums[2 * place] / count
        error = np.sqrt((sums[2 * place + 1] / count - mean**2) / count)
        theirs = (floor.high - floor.low) / (2 * 1.96)
        assert error == pytest.approx(theirs, rel=0.3)
        assert abs(mean - floor.value) <= 5 * np.hypot(error, theirs)


def test_rates_of_both_stages_at_infinite_length() -> None:
    # Of docs: the gradient by the logits at Theorem 2's W^V has these eigenvalues on topic contrasts.
    paper = Setting(sampler=1, per_document=2)
    other = Setting(topics=6, words=4, sampler=1, per_document=3, mask=0.2, keep=0.3, random=0.2)
    for setting, slope in ((paper, 5.5748234e-5), (other, 1.7054264e-3)):
        assert Core(setting).numbers("theory", 22)[21] == pytest.approx(slope, rel=1e-7)
    # W^V's topics relax at twice S's eigenvalue, which long documents approach.
    long = replace(other, shortest=400, longest=400)
    numbers = Core(long).numbers("theory", 22)
    assert numbers[20] == pytest.approx(2 * numbers[11], rel=0.02)
