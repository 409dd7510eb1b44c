"""Eq. 6 near zero: how long gradient flow stays at the saddle behind Figure 1, against the initial scale.

Attention is uniform to leading order, the prediction W = W^E⊤W^V W^E, and the loss 1 − 2⟨W, R⟩ of third order in the
weights: from s times a start the flow takes 1/s times as long. LayerNorm on the embedding takes one factor away, and
leaves a logarithm.
"""

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from topicscope.settings import Masking
from topicscope.theory.finite_documents import infinite_topic_moments, population_loss

MOMENTS = infinite_topic_moments(3, 2, 1, Masking())
SIZE = MOMENTS.vocabulary


def escape(scale: float, *, layer_norm: bool) -> float:
    """Flow time until a tenth of what the loss can fall has been gained, from ``scale`` times one random start."""
    second, cross = torch.tensor(MOMENTS.second), torch.tensor(MOMENTS.cross)
    most = 1 - population_loss(MOMENTS.cross @ np.linalg.pinv(MOMENTS.second, rcond=1e-10), MOMENTS)

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
    start = scale * np.random.default_rng(0).normal(size=2 * SIZE**2)
    found = solve_ivp(move, (0.0, 1e7), start, rtol=1e-6, atol=1e-12, events=gained)
    assert found.t_events is not None
    return float(found.t_events[0][0])


def test_without_layer_norm_the_escape_takes_as_long_as_one_over_the_scale() -> None:
    times = np.array([escape(scale, layer_norm=False) for scale in (4e-2, 1e-2, 2.5e-3)])
    # The closer to zero, the closer to proportional: four times as long.
    ratios = times[1:] / times[:-1]
    assert ratios[1] == pytest.approx(4, rel=0.05)
    assert abs(ratios[1] - 4) < abs(ratios[0] - 4)


def test_with_layer_norm_it_takes_a_logarithm_of_it() -> None:
    times = np.array([escape(scale, layer_norm=True) for scale in (9e-3, 3e-3, 1e-3)])
    added = np.diff(times)
    assert added[0] > 0
    assert added[1] == pytest.approx(added[0], rel=0.1)
    # Not as one over the scale, which would be three times as long.
    assert times[2] < 2 * times[1]
