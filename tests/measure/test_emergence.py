import numpy as np
import pytest

from topicscope.measure.stages import half_way

STEPS = np.array([0, 10, 20, 40])


def test_half_way_is_where_a_line_through_the_measured_steps_crosses_half_of_the_end() -> None:
    # Half of 0.8 is 0.4, which the line from (10, 0.1) to (20, 0.5) crosses at 17.5.
    assert half_way(STEPS, np.array([0.0, 0.1, 0.5, 0.8]), 0.7) == pytest.approx(17.5)
    # The control: with a smaller end it is crossed earlier.
    assert half_way(STEPS, np.array([0.0, 0.1, 0.5, 0.4]), 0.3) == pytest.approx(12.5)


def test_half_way_is_the_first_crossing() -> None:
    assert half_way(STEPS, np.array([0.0, 0.6, 0.1, 0.8]), 0.7) == pytest.approx(10 * 0.4 / 0.6)


def test_without_structure_in_the_end_there_is_no_half_way() -> None:
    values = np.array([0.0, 0.1, 0.5, 0.8])
    assert np.isnan(half_way(STEPS, values, -0.01))
    assert np.isnan(half_way(STEPS, -values, 0.1))
    assert np.isnan(half_way(STEPS, np.array([0.0, 0.1, 0.5, np.nan]), np.nan))


def test_an_undefined_ratio_is_not_reached() -> None:
    assert half_way(STEPS, np.array([np.nan, np.nan, 0.5, 0.8]), 0.7) == 20
    assert half_way(STEPS, np.array([0.5, 0.1, 0.5, 0.8]), 0.7) == 0
