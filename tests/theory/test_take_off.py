"""The predicted take-off against training."""

from dataclasses import replace

import numpy as np
import pytest

from topicscope.errors import InputError
from topicscope.measure.stages import stages
from topicscope.paper.figure4 import Cell
from topicscope.settings import Data, Masking
from topicscope.settings.training import Loss
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.dynamics import logit_gradient
from topicscope.theory.take_off import Population, Stepping, predict
from topicscope.training.loop import train_in_memory

SMALL = Data(topics=3, words=3, length=(10, 20))
STRONG = Masking(mask=0.3, keep=0.4, random=0.1)


def measured(cell: Cell, seeds: int, steps: int, every: int) -> tuple[list[float], list[float]]:
    """Steps at which attention takes off in training, and g there."""
    settings = cell.experiment().settings
    training = replace(settings.training, steps=steps, log_every=every, threads=1)
    settings = replace(settings, training=training)
    topics = TopicModel.from_settings(settings.data)
    found = []
    for run in train_in_memory([replace(settings, seed=seed) for seed in range(seeds)], topics):
        words, mask = (np.array([row["attention"][name] for row in run.rows]) for name in ("words", "mask"))
        gain = np.array([row["uniform_gain"] for row in run.rows])
        found.append(stages(np.array([row["step"] for row in run.rows]), words, mask, gain))
    assert all(each.take_off is not None for each in found)
    return [float(each.take_off or 0) for each in found], [each.gain for each in found]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "rate", "scale", "steps", "every"),
    [("cross_entropy", 30.0, 0.02, 500, 5), ("cross_entropy", 30.0, 1e-6, 600, 5), ("squared", 20.0, 0.2, 10_000, 50)],
)
def test_sgd_takes_off_when_it_is_predicted_to(loss: Loss, rate: float, scale: float, steps: int, every: int) -> None:
    seeds = 5 if loss == "cross_entropy" else 1
    when, gain = measured(Cell(loss, "sgd", rate, scale), seeds, steps, every)
    found = predict(Data(), Masking(), Stepping(loss=loss, rate=rate, scale=scale), steps=1e5)
    assert found.take_off is not None
    assert found.gain_at_take_off is not None
    assert found.take_off == pytest.approx(np.mean(when), rel=0.15)
    assert found.gain_at_take_off == pytest.approx(np.mean(gain), abs=0.08)
    # A control: the same start with a d_a four times as large takes off elsewhere.
    other = predict(Data(), Masking(), Stepping(loss=loss, rate=rate, scale=scale, width=1616), steps=1e6)
    assert other.take_off != pytest.approx(np.mean(when), rel=0.15)


def test_a_sample_that_is_corrected_has_the_exact_gradient_where_attention_is_uniform() -> None:
    population = Population(SMALL, STRONG, "squared")
    value = np.random.default_rng(0).normal(size=6)
    exact = logit_gradient(SMALL, STRONG)(value)
    np.testing.assert_allclose(population.gradient(value, np.zeros(6), "squared").logits, exact, atol=1e-14)
    assert abs(population.rows.gradient(value, np.zeros(6), "squared").logits - exact).max() > 1e-4


def test_rate_and_momentum_only_stretch_time_and_a_smaller_start_takes_a_little_longer() -> None:
    def take_off(**stepping: object) -> float:
        found = predict(SMALL, STRONG, Stepping(scale=0.05, batch=10**6, **stepping), steps=1e7).take_off  # type: ignore[arg-type]
        assert found is not None
        return found

    plain = take_off(rate=0.1)
    assert take_off(rate=0.05) == pytest.approx(2 * plain, rel=0.01)
    assert take_off(rate=0.01, optimizer="momentum", momentum=0.9) == pytest.approx(plain, rel=0.01)
    smaller = predict(SMALL, STRONG, Stepping(scale=5e-4, rate=0.1, batch=10**6), steps=1e7).take_off
    assert smaller is not None
    assert 1.2 * plain < smaller < 10 * plain, "a start a hundred times smaller costs a logarithm"


def test_what_cannot_be_predicted_is_refused_in_a_sentence() -> None:
    with pytest.raises(InputError, match="W\\^V diverges"):
        predict(SMALL, STRONG, Stepping(rate=1e3))
    with pytest.raises(InputError, match="give at most 400"):
        predict(Data(topics=100), Masking(), Stepping())
    with pytest.raises(InputError, match="without START and END"):
        predict(replace(SMALL, ends=True), STRONG, Stepping(loss="cross_entropy"))
    with pytest.raises(InputError, match="give one number as"):
        predict(replace(SMALL, dirichlet=(0.1, 0.2, 0.3)), STRONG, Stepping(loss="cross_entropy"))
    with pytest.raises(InputError, match="momentum"):
        Stepping(momentum=1.0)
