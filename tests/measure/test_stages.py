"""The two-stage rules on made-up curves, and distances and modes against sums over positions."""

import numpy as np
import pytest

from topicscope.measure.stages import (
    distance_from_uniform,
    mode_norms,
    norm_stages,
    plateau,
    stages,
    turning,
)

STEPS = np.arange(0, 1001, 10)


def _ramp(start: float, end: float, low: float, high: float) -> np.ndarray:
    """Flat at ``low``, rising between two steps, flat at ``high``."""
    return np.interp(STEPS, [start, end], [low, high])


def test_two_stages_are_a_value_matrix_that_is_there_before_attention_takes_off() -> None:
    attention = _ramp(400, 1000, 0.0, 0.6)
    late, early = (stages(STEPS, attention, gain) for gain in (_ramp(0, 400, 0.0, 0.9), _ramp(400, 1000, 0.0, 0.9)))
    # 0.6 (t − 400)/600 reaches 0.05 at step 450.
    assert late.take_off == early.take_off == 450
    assert late.gain == pytest.approx(0.9)
    assert late.two
    # Control: the same attention, and a value matrix that comes with it.
    assert early.gain == pytest.approx(0.9 * 50 / 600)
    assert not early.two


def test_attention_that_never_takes_off_or_diverges_shows_nothing() -> None:
    still, gain = np.full(len(STEPS), 0.049), _ramp(0, 400, 0.0, 1.0)
    broken = np.concatenate([gain[:-5], np.full(5, np.nan)])
    for nothing in (stages(STEPS, still, gain), stages(STEPS, still + 0.002, broken)):
        assert (nothing.take_off, nothing.two) == (None, False)
        assert np.isnan(nothing.gain)
    # Control: just above the threshold it does.
    assert stages(STEPS, still + 0.002, gain).take_off == 0


def test_a_longer_run_has_the_same_stages() -> None:
    attention, gain = _ramp(400, 1000, 0.0, 0.6), _ramp(0, 400, 0.0, 0.9)
    longer = np.concatenate([STEPS, STEPS[1:] + 1000])
    held = [np.concatenate([curve, np.full(100, curve[-1])]) for curve in (attention, gain)]
    growing = held[1] + np.concatenate([np.zeros(101), np.linspace(0, 9, 100)])
    assert stages(longer, held[0], growing) == stages(STEPS, attention, gain)
    # Control: the rule on norms has another verdict for the same curves.
    small = 1e-3
    long_run = norm_stages(longer, held[0] + small, held[0] + small, growing)
    assert long_run.two != norm_stages(STEPS, attention + small, attention + small, gain).two


def _by_position(scores: np.ndarray, tokens: np.ndarray, hidden: np.ndarray) -> tuple[list[float], list[float]]:
    """Total variation from uniform of each query of one document, position by position: words, then [MASK]."""
    words: list[float] = []
    mask: list[float] = []
    for query in tokens:
        logits = np.array([-np.inf if out else scores[key, query] for key, out in zip(tokens, hidden, strict=True)])
        attention = np.exp(logits) / np.exp(logits).sum()
        uniform = (~hidden) / (~hidden).sum()
        (words if query else mask).append(np.abs(attention - uniform).sum() / 2)
    return words, mask


@pytest.mark.parametrize("hide", [False, True])
def test_distance_from_uniform_is_that_of_all_pairs_of_positions(hide: bool) -> None:
    draw = np.random.default_rng(0)
    tokens = [draw.integers(0, 7, size=size) for size in (12, 20, 15)]
    hidden = [draw.random(len(each)) < 0.3 if hide else np.zeros(len(each), dtype=bool) for each in tokens]
    scores = 2 * draw.normal(size=(4, 7, 7))
    keys = np.stack([np.bincount(each[~out], minlength=7) for each, out in zip(tokens, hidden, strict=True)])
    queries = np.stack([np.bincount(each, minlength=7) for each in tokens])
    words, mask = distance_from_uniform(scores, keys, queries)
    for place, mine in enumerate(scores):
        found = [_by_position(mine, *each) for each in zip(tokens, hidden, strict=True)]
        assert words[place] == pytest.approx(np.mean([value for each, _ in found for value in each]))
        assert mask[place] == pytest.approx(np.mean([value for _, each in found for value in each]))
    # Control: scores that do not depend on the key leave attention uniform, these do not.
    assert words.min() > 0.1
    flat = np.broadcast_to(scores[:, :1], scores.shape)
    assert np.max(distance_from_uniform(flat, keys, queries)) < 1e-12


def test_modes_of_keys_are_projections() -> None:
    draw = np.random.default_rng(1)
    topics = np.array([0, 1, 1, 1, 2, 2, 3])
    matrix = draw.normal(size=(2, 5, 7))
    mask, of_topics = mode_norms(matrix, topics)
    indicators = (topics[1:, None] == [1, 2, 3]) / np.sqrt([3.0, 2.0, 1.0])
    common = np.ones((6, 1)) / np.sqrt(6)
    projector = indicators @ indicators.T - common @ common.T
    assert mask == pytest.approx(np.linalg.norm(matrix[:, :, 0], axis=1))
    assert of_topics == pytest.approx(np.linalg.norm(matrix[:, :, 1:] @ projector, axis=(1, 2)))
    # Control: what all words share is in no mode.
    assert mode_norms(np.ones((1, 5, 7)), topics)[1] == pytest.approx(0, abs=1e-12)
    assert of_topics.min() > 0.1


LATE = _ramp(400, 1000, 1.0, 7.0)


@pytest.mark.parametrize(
    ("attention", "value", "end", "growth", "two"),
    [
        # 1 + 6 (t − 400)/600 first exceeds 2 at the row after step 500.
        pytest.param(LATE, _ramp(0, 400, 0.1, 10.0), 510, 1.0, True, id="first W^V"),
        pytest.param(LATE, _ramp(0, 1000, 0.0, 10.0), 510, 0.51, True, id="W^V half way"),
        pytest.param(_ramp(0, 1000, 0.1, 10.0), _ramp(0, 1000, 0.1, 10.0), 20, 0.02, False, id="all at once"),
        pytest.param(_ramp(0, 20, 1.0, 10.0), _ramp(0, 10, 0.1, 10.0), 10, 1.0, False, id="too short a stage"),
        pytest.param(np.ones(len(STEPS)), _ramp(0, 400, 0.1, 10.0), None, 1.0, False, id="attention never moves"),
        pytest.param(LATE, _ramp(0, 1000, 10.0, 5.0), 510, 0.0, False, id="W^V shrinks"),
        pytest.param(LATE, _ramp(0, 400, 1.0, 10.0) - _ramp(400, 1000, 0.0, 8.9), 510, 1.0, True, id="W^V falls back"),
    ],
)
def test_the_rule_on_norms(attention: np.ndarray, value: np.ndarray, end: int | None, growth: float, two: bool) -> None:
    found, still = norm_stages(STEPS, attention, attention, value), np.ones(len(STEPS))
    assert (found.end, found.two) == (end, two)
    assert found.growth == pytest.approx(growth)
    # Either of keys and queries ends stage 1.
    assert norm_stages(STEPS, attention, still, value) == norm_stages(STEPS, still, attention, value) == found
    broken = norm_stages(STEPS, attention, attention, np.where(STEPS > 900, np.nan, value))
    assert np.isnan([broken.growth, broken.steps]).all()
    assert not broken.two


def test_plateau_compares_growth_per_step_where_stage_1_ends_with_its_first_half() -> None:
    assert plateau(STEPS, _ramp(0, 200, 0.0, 10.0), 400) == 0
    assert plateau(STEPS, _ramp(0, 1000, 0.0, 10.0), 400) == pytest.approx(1)
    # Up to 400 it grows by 0.05 per step in the first half and by 0.02 in the second, then not at all until 600.
    bent = np.interp(STEPS, [0, 200, 400, 1000], [0.0, 10.0, 14.0, 14.0])
    assert plateau(STEPS, bent, 400) == pytest.approx((4 / 400) / (10 / 200))
    # What comes later does not matter.
    assert plateau(STEPS, bent + _ramp(600, 1000, 0.0, 100.0), 400) == pytest.approx(plateau(STEPS, bent, 400))


def test_turning_tells_rotation_from_growth() -> None:
    # A vector that turns by 0.1 radians a row and grows by 1 %, and one that only grows.
    norm = 1.01 ** np.arange(len(STEPS))
    rotation = np.full(len(STEPS), (1 - np.cos(0.1)) / 2)
    assert turning(STEPS, norm, rotation, 100) == pytest.approx(10, rel=1e-6)
    assert turning(STEPS, norm, np.zeros(len(STEPS)), 100) == 0
