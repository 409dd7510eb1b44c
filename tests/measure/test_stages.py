"""The two-stage rule on made-up norms, and the step at which a structure is half there."""

import numpy as np
import pytest

from topicscope.measure.stages import half_way, plateau, stages, turning

STEPS = np.arange(0, 1001, 10)


def _ramp(start: float, end: float, low: float, high: float) -> np.ndarray:
    """Flat at ``low``, rising between two steps, flat at ``high``."""
    return np.interp(STEPS, [start, end], [low, high])


def test_a_value_matrix_that_grows_before_keys_and_queries_take_off_has_two_stages() -> None:
    attention, value = _ramp(400, 1000, 1.0, 7.0), _ramp(0, 400, 0.1, 10.0)
    found = stages(STEPS, attention, attention, value)
    assert found.two
    # 1 + 6 (t − 400)/600 first exceeds 2 at the row after step 500.
    assert found.end == 510
    assert found.steps == pytest.approx(0.51)
    assert found.growth == pytest.approx(1.0)


def test_all_three_growing_at_once_are_not_two_stages() -> None:
    together = _ramp(0, 1000, 0.1, 10.0)
    found = stages(STEPS, together, together, together)
    assert found.end == 20
    assert not found.two


def test_a_third_of_the_growth_in_less_than_a_twentieth_of_the_steps_is_not_a_stage() -> None:
    attention, value = _ramp(0, 20, 1.0, 10.0), _ramp(0, 10, 0.1, 10.0)
    found = stages(STEPS, attention, attention, value)
    assert found.growth > 1 / 3
    assert found.steps < 0.05
    assert not found.two


def test_keys_and_queries_that_never_move_are_one_stage() -> None:
    still = np.ones(len(STEPS))
    found = stages(STEPS, still, still, _ramp(0, 400, 0.1, 10.0))
    assert found.end is None
    assert not found.two


def test_either_of_keys_and_queries_ends_stage_1() -> None:
    still, moving, value = np.ones(len(STEPS)), _ramp(400, 1000, 1.0, 7.0), _ramp(0, 1000, 0.1, 10.0)
    assert stages(STEPS, moving, still, value).end == stages(STEPS, still, moving, value).end == 510


def test_a_run_that_diverges_has_no_stages() -> None:
    attention, value = _ramp(400, 1000, 1.0, 7.0), _ramp(0, 1000, 0.0, 10.0)
    whole = stages(STEPS, attention, attention, value)
    broken = value.copy()
    broken[90:] = np.nan
    cut = stages(STEPS, attention, attention, broken)
    assert whole.growth == pytest.approx(5.1 / 10)
    assert whole.two
    assert np.isnan([cut.growth, cut.steps]).all()
    assert not cut.two


def test_a_shrinking_value_matrix_has_made_none_of_its_growth() -> None:
    attention = _ramp(400, 1000, 1.0, 7.0)
    found = stages(STEPS, attention, attention, _ramp(0, 1000, 10.0, 5.0))
    assert found.growth == 0
    assert not found.two
    # Control: one that grows has.
    assert stages(STEPS, attention, attention, _ramp(0, 1000, 5.0, 10.0)).growth > 0.5


def test_a_share_of_growth_is_at_most_all_of_it() -> None:
    attention, value = _ramp(400, 1000, 1.0, 7.0), _ramp(0, 400, 1.0, 10.0)
    falling = value - _ramp(400, 1000, 0.0, 8.9)
    found = stages(STEPS, attention, attention, falling)
    assert falling[51] > 5 * falling[-1]
    assert found.growth == 1
    assert found.two


def test_plateau_compares_growth_a_step_after_and_before() -> None:
    assert plateau(STEPS, _ramp(0, 400, 0.0, 10.0), 400) == 0
    assert plateau(STEPS, _ramp(0, 1000, 0.0, 10.0), 400) == pytest.approx(1)


def test_turning_tells_rotation_from_growth() -> None:
    # A vector that turns by 0.1 radians a row and grows by 1 %, and one that only grows.
    norm = 1.01 ** np.arange(len(STEPS))
    rotation = np.full(len(STEPS), (1 - np.cos(0.1)) / 2)
    assert turning(STEPS, norm, rotation, 100) == pytest.approx(10, rel=1e-6)
    assert turning(STEPS, norm, np.zeros(len(STEPS)), 100) == 0


MEASURED = np.array([0, 10, 20, 40])


def test_half_way_is_where_a_line_through_the_measured_steps_crosses_half_of_the_end() -> None:
    # Half of 0.8 is 0.4, which the line from (10, 0.1) to (20, 0.5) crosses at 17.5.
    assert half_way(MEASURED, np.array([0.0, 0.1, 0.5, 0.8]), 0.7) == pytest.approx(17.5)
    # The control: with a smaller end it is crossed earlier.
    assert half_way(MEASURED, np.array([0.0, 0.1, 0.5, 0.4]), 0.3) == pytest.approx(12.5)


def test_half_way_is_the_first_crossing() -> None:
    assert half_way(MEASURED, np.array([0.0, 0.6, 0.1, 0.8]), 0.7) == pytest.approx(10 * 0.4 / 0.6)


def test_without_structure_in_the_end_there_is_no_half_way() -> None:
    values = np.array([0.0, 0.1, 0.5, 0.8])
    assert np.isnan(half_way(MEASURED, values, -0.01))
    assert np.isnan(half_way(MEASURED, -values, 0.1))
    assert np.isnan(half_way(MEASURED, np.array([0.0, 0.1, 0.5, np.nan]), np.nan))


def test_an_undefined_ratio_is_not_reached() -> None:
    assert half_way(MEASURED, np.array([np.nan, np.nan, 0.5, 0.8]), 0.7) == 20
    assert half_way(MEASURED, np.array([0.5, 0.1, 0.5, 0.8]), 0.7) == 0
