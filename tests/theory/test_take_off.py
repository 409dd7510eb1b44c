"""The predicted take-off against training."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from topicscope.errors import InputError
from topicscope.measure.stages import run_stages
from topicscope.settings import Data, Masking, Model, Part, Settings, Training
from topicscope.settings.model import BIASES
from topicscope.settings.training import Loss
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.dynamics import logit_gradient
from topicscope.theory.take_off import Population, Stepping, predict
from topicscope.training.loop import train_seeds

SMALL = Data(topics=3, words=3, length=(10, 20))
STRONG = Masking(mask=0.3, keep=0.4, random=0.1)


def measured(loss: Loss, rate: float, scale: float, training: Training) -> tuple[float, float]:
    """The step at which word queries' attention takes off in training, and g there: means over the seeds."""
    start, still = Part(scale=scale), Part(start="zero", train=False)
    parts: dict[str, Any] = dict.fromkeys(("value", "key", "query"), start) | dict.fromkeys(BIASES, still)
    model = Model(embedding=Part(start="identity", train=False), **parts)
    settings = Settings(data=Data(fresh=True), model=model, training=replace(training, loss=loss, learning_rate=rate))
    run = train_seeds(
        settings, range(5 if loss == "cross_entropy" else 1), TopicModel.from_settings(settings.documents)
    )
    seeds = run_stages(run)
    return float(np.mean([seed.take_off for seed in seeds])), float(np.mean([seed.gain for seed in seeds]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "rate", "scale", "steps", "every"),
    [("cross_entropy", 30.0, 0.02, 500, 5), ("cross_entropy", 30.0, 1e-6, 600, 5), ("squared", 20.0, 0.2, 10_000, 50)],
)
def test_sgd_takes_off_when_it_is_predicted_to(loss: Loss, rate: float, scale: float, steps: int, every: int) -> None:
    training = Training(optimizer="sgd", steps=steps, log_every=every, validate_every=0, snapshots=0)
    when, gain = measured(loss, rate, scale, training)
    prediction = predict(Data(), Masking(), Stepping(loss=loss, rate=rate, scale=scale), steps=1e5)
    assert prediction.take_off == pytest.approx(when, rel=0.15)
    assert prediction.gain_at_take_off == pytest.approx(gain, abs=0.08)
    # A control: the same start with a d_a four times as large takes off elsewhere.
    other = predict(Data(), Masking(), Stepping(loss=loss, rate=rate, scale=scale, width=1616), steps=1e6)
    assert other.take_off != pytest.approx(when, rel=0.15)


def test_a_sample_that_is_corrected_has_the_exact_gradient_where_attention_is_uniform() -> None:
    population = Population(SMALL, STRONG, "squared")
    value = np.random.default_rng(0).normal(size=6)
    exact = logit_gradient(SMALL, STRONG)(value)
    np.testing.assert_allclose(population.gradient(value, np.zeros(6), "squared").logits, exact, atol=1e-14)
    assert abs(population.rows.gradient(value, np.zeros(6), "squared").logits - exact).max() > 1e-4


def test_rate_and_momentum_only_stretch_time_and_a_smaller_start_takes_a_little_longer() -> None:
    def take_off(**stepping: object) -> float:
        prediction = predict(SMALL, STRONG, Stepping(scale=0.05, batch=10**6, **stepping), steps=1e7).take_off  # type: ignore[arg-type]
        assert prediction is not None
        return prediction

    plain = take_off(rate=0.1)
    assert take_off(rate=0.005, optimizer="momentum") == pytest.approx(2 * plain, rel=0.01)
    smaller = predict(SMALL, STRONG, Stepping(scale=5e-4, rate=0.1, batch=10**6), steps=1e7).take_off
    assert smaller is not None
    assert 1.2 * plain < smaller < 10 * plain, "a start a hundred times smaller costs a logarithm"


def test_what_cannot_be_predicted_is_refused_in_a_sentence() -> None:
    with pytest.raises(InputError, match="W\\^V diverges"):
        predict(SMALL, STRONG, Stepping(rate=1e3))
    with pytest.raises(InputError, match="give at most 400"):
        predict(Data(topics=100), Masking(), Stepping())
    with pytest.raises(InputError, match=r"data\.ends"):
        predict(replace(SMALL, ends=True), STRONG, Stepping(loss="cross_entropy"))
    with pytest.raises(InputError, match=r"data\.dirichlet"):
        predict(replace(SMALL, dirichlet=(0.1, 0.2, 0.3)), STRONG, Stepping(loss="cross_entropy"))
    with pytest.raises(InputError, match="scale"):
        Stepping(scale=0.0)
