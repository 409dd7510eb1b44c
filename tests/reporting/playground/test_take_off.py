"""The playground's predicted take-off against the library's reduced model, part by part and as a whole."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from support.wasm import SHOWN, Core, Setting
from topicscope.theory.classes import Vocabulary
from topicscope.theory.logit_gradient import logit_gradient
from topicscope.theory.reduced import Rows
from topicscope.theory.take_off import Stepping, predict

MOST_STEPS = 1e7
SMALL = Setting(
    topics=6,
    words=4,
    sampler=1,
    per_document=3,
    mask=0.2,
    keep=0.3,
    random=0.2,
    optimizer=0,
    rate=5.0,
    parts=0,
    scale=0.01,
)
DIRICHLET = replace(SMALL, sampler=0, dirichlet=0.1)
ADAM: dict[str, Any] = {"optimizer": 2, "rate": 0.003, "epsilon": 1e-6, "scale": 0.001}


def random_setting(number: int) -> Setting:
    draw = np.random.default_rng(2_000 + number)
    keep, random = draw.dirichlet([1, 1, 3])[:2]
    topics, shortest = int(draw.integers(2, 9)), int(draw.integers(3, 40))
    return Setting(
        topics=topics,
        words=int(draw.integers(1, 6)),
        sampler=int(draw.integers(2)),
        per_document=int(draw.integers(1, topics + 1)),
        dirichlet=float(draw.choice([0.05, 0.3, 2.0])),
        shortest=shortest,
        longest=shortest + int(draw.integers(10)),
        mask=float(draw.uniform(0.1, 0.7)),
        keep=float(keep),
        random=float(random),
        loss=number % 2,
    )


@pytest.mark.parametrize("number", range(12))
def test_the_reduced_models_gradient_is_the_librarys_on_the_same_documents(number: int) -> None:
    setting = random_setting(number)
    core, draw = Core(setting, seed=number), np.random.default_rng(number)
    size = Vocabulary(setting.topics, setting.words)
    value, logits, noise = draw.normal(size=6) / 2, draw.normal(size=6), 0.1 * draw.normal(size=6) ** 2
    core.array(core.call("reduced_input"), "<f8", 18)[:] = [*value, *logits, *noise]
    found = core.numbers("reduced_gradient", 29, SHOWN)
    rows = Rows.of(core.masked_documents(), size)
    exact = rows.gradient(value, logits, "squared" if setting.loss else "cross_entropy", noise, squares=True)
    expected = [exact.loss, *exact.value, *exact.logits, *exact.value_squares, *exact.second]
    np.testing.assert_allclose(found, [*expected, *exact.logit_squares.ravel()], rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("number", range(12))
def test_the_exact_gradient_by_the_logits_is_the_librarys(number: int) -> None:
    setting = random_setting(number)
    exact, core = logit_gradient(setting.data, setting.masking), Core(setting)
    for which, expected in enumerate((exact.of_value, exact.of_gram)):
        found = np.reshape(core.numbers("exact_logit_matrix", 36, which), (6, 6))
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-16)


def foretold(setting: Setting, seed: int, sample: int = 1) -> float:
    """The predicted step; −1 for none."""
    core = Core(setting)
    core.call("predict_begin", float(seed), float(sample))
    for _ in range(100_000):
        step = core.call("predict_more", MOST_STEPS)
        if step:
            return float(step)
    pytest.fail("the prediction did not come to an end")
