"""Eq. 6 near zero: how long gradient flow stays at the saddle behind Figure 1, against the initial scale.

Attention is uniform to leading order, the prediction W = W^E⊤W^V W^E, and the loss 1 − 2⟨W, R⟩ of third order in the
weights: from s times a start the flow takes 1/s times as long. LayerNorm on the embedding takes one factor away, and
leaves a logarithm.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from topicscope.errors import InputError
from topicscope.settings import Data, Masking
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.finite_documents import Moments, class_moments, infinite_topic_moments, moments, population_loss
from topicscope.theory.reduced import escape, topic_escape_time

MOMENTS = infinite_topic_moments(3, 2, 1, Masking())
SIZE = MOMENTS.vocabulary
FINITE = Data(topics=3, words=2, dirichlet=(0.3,), length=(8, 12))


def followed(start: np.ndarray, *, layer_norm: bool, exact: Moments = MOMENTS) -> float:
    """Flow time of all entries of W^E and W^V until a tenth of what the loss can fall has been gained."""
    second, cross = torch.tensor(exact.second), torch.tensor(exact.cross)
    most = 1 - population_loss(exact.cross @ np.linalg.pinv(exact.second, rcond=1e-10), exact)

    def explained(flat: torch.Tensor) -> torch.Tensor:
        embedding, value = flat.reshape(2, SIZE, SIZE)
        seen = embedding
        if layer_norm:
            seen = (embedding - embedding.mean(dim=0)) / embedding.std(dim=0, correction=0)
        matrix = embedding.T @ value @ seen
        return 2 * (matrix * cross).sum() - (matrix @ second * matrix).sum()

    def move(_: float, flat: np.ndarray) -> np.ndarray:
        here = torch.tensor(flat, requires_grad=True)
        return np.asarray(torch.autograd.grad(explained(here), here)[0].numpy())

    def gained(_: float, flat: np.ndarray) -> float:
        return float(explained(torch.tensor(flat))) - 0.1 * most

    gained.terminal = True  # type: ignore[attr-defined]
    found = solve_ivp(move, (0.0, 1e7), start, rtol=1e-6, atol=1e-12, events=gained)
    assert found.t_events is not None
    return float(found.t_events[0][0])


def from_random(scale: float, *, layer_norm: bool) -> float:
    """The same from ``scale`` times one random start."""
    return followed(scale * np.random.default_rng(0).normal(size=2 * SIZE**2), layer_norm=layer_norm)


def test_without_layer_norm_the_escape_takes_as_long_as_one_over_the_scale() -> None:
    times = np.array([from_random(scale, layer_norm=False) for scale in (4e-2, 1e-2, 2.5e-3)])
    # The closer to zero, the closer to proportional: four times as long.
    ratios = times[1:] / times[:-1]
    assert ratios[1] == pytest.approx(4, rel=0.05)
    assert abs(ratios[1] - 4) < abs(ratios[0] - 4)


def test_with_layer_norm_it_takes_a_logarithm_of_it() -> None:
    times = np.array([from_random(scale, layer_norm=True) for scale in (9e-3, 3e-3, 1e-3)])
    added = np.diff(times)
    assert added[0] > 0
    assert added[1] == pytest.approx(added[0], rel=0.1)
    # Not as one over the scale, which would be three times as long.
    assert times[2] < 2 * times[1]


@pytest.mark.parametrize("layer_norm", [False, True])
def test_from_the_identity_a_handful_of_numbers_takes_as_long_as_all_entries(layer_norm: bool) -> None:
    start, exact = 0.02 * np.tile(np.eye(SIZE).ravel(), 2), moments(TopicModel.from_settings(FINITE), Masking())
    expected = followed(start, layer_norm=layer_norm, exact=exact)
    found = escape(FINITE, Masking(), 0.02, layer_norm=layer_norm)
    assert found.time == pytest.approx(expected, rel=1e-4)
    assert found.gain[-1] == pytest.approx(0.1, rel=1e-6)
    assert (np.diff(found.gain) > 0).all()
    # Another scale, and the other embedding layer, take another time.
    assert escape(FINITE, Masking(), 0.03, layer_norm=layer_norm).time != pytest.approx(expected, rel=0.05)
    assert escape(FINITE, Masking(), 0.02, layer_norm=not layer_norm).time != pytest.approx(expected, rel=0.05)


def test_the_papers_setting_escapes_in_one_over_the_scale_or_its_logarithm() -> None:
    scales = (1e-3, 1e-4, 1e-5)
    plain = [escape(Data(), Masking(), scale).time * scale for scale in scales[1:]]
    assert plain[1] == pytest.approx(plain[0], rel=0.01)
    normed = [escape(Data(), Masking(), scale, layer_norm=True).time for scale in scales]
    assert normed[2] - normed[1] == pytest.approx(normed[1] - normed[0], rel=0.01)
    assert normed[2] / normed[1] < 2


def test_the_topic_modes_closed_form_is_that_of_the_path() -> None:
    scale = 1e-4
    rate, closed = class_moments(FINITE, Masking()).cross.topic, topic_escape_time(FINITE, Masking(), scale)
    path = escape(FINITE, Masking(), scale)

    def predicted(factor: float) -> np.ndarray:
        """e²v with v = s/√2 · coth(2√2 r s (t* − t)), which is infinite at t*."""
        value = scale / np.sqrt(2) / np.tanh(2 * np.sqrt(2) * rate * scale * (factor * closed - path.times))
        return np.asarray((2 * value**2 - scale**2) * value)

    assert len(path.times) > 20
    assert path.topic == pytest.approx(predicted(1.0), rel=0.01)
    assert path.topic != pytest.approx(predicted(1.1), rel=0.05)


@pytest.mark.parametrize(
    ("data", "scale", "sentence"),
    [
        (FINITE, 0.0, "scale = 0"),
        (replace(FINITE, topics=1), 0.02, "data.topics = 1 is not allowed: with one topic there is no contrast"),
        (replace(FINITE, ends=True), 0.02, "data.ends = True is not allowed: classes of entries need equal topics"),
    ],
)
def test_a_start_at_zero_one_topic_and_other_words_are_refused(data: Data, scale: float, sentence: str) -> None:
    for function in (escape, topic_escape_time):
        with pytest.raises(InputError, match=sentence):
            function(data, Masking(), scale)
