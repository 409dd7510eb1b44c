import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from topicscope.measure.uncertainty import Interval, interval_p, student_interval

numbers = st.floats(-100, 100, allow_nan=False).map(lambda value: round(value, 3))


def test_a_95_percent_interval_of_five_seeds_covers_the_truth_95_percent_of_the_time() -> None:
    draw = np.random.default_rng(0)
    trials, truth = 4000, 0.3
    samples = draw.normal(truth, 2.0, size=(trials, 5))
    covered = [interval.low <= truth <= interval.high for interval in map(student_interval, samples)]
    standard_error = np.sqrt(0.95 * 0.05 / trials)
    assert abs(np.mean(covered) - 0.95) < 5 * standard_error
    # The control: a normal interval is too short for five seeds.
    half = 1.96 * samples.std(axis=1, ddof=1) / np.sqrt(5)
    assert np.mean(abs(samples.mean(axis=1) - truth) <= half) < 0.95 - 5 * standard_error


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.lists(numbers, min_size=2, max_size=20))
def test_students_interval_is_scipys(values: list[float]) -> None:
    sample = np.array(values)
    if sample.std() < 1e-6:
        return
    low, high = stats.ttest_1samp(sample, 0.0).confidence_interval()
    found = student_interval(sample)
    assert found.low == pytest.approx(low, rel=1e-9, abs=1e-9)
    assert found.high == pytest.approx(high, rel=1e-9, abs=1e-9)


def test_one_seed_says_nothing_and_seeds_that_agree_leave_no_doubt() -> None:
    assert student_interval(np.array([3.0])) == Interval(3.0, -np.inf, np.inf)
    diverged = student_interval(np.array([3.0, np.nan]))
    assert (diverged.low, diverged.high) == (-np.inf, np.inf)
    assert student_interval(np.full(5, 2.0)) == Interval(2.0, 2.0, 2.0)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(numbers, st.floats(0.01, 10), st.floats(0.01, 10), numbers)
def test_a_given_intervals_p_value_is_below_5_percent_exactly_outside_of_it(
    value: float, below: float, above: float, threshold: float
) -> None:
    interval = Interval(value, value - below, value + above)
    outside = threshold < interval.low or threshold > interval.high
    if min(abs(threshold - interval.low), abs(threshold - interval.high)) > 1e-9:
        assert (interval_p(interval, threshold) < 0.05) == outside


def test_a_given_normal_intervals_p_value_is_the_normal_tests() -> None:
    interval = Interval(1.0, 1.0 - 1.959964 * 0.3, 1.0 + 1.959964 * 0.3)
    for threshold in (0.0, 0.4, 1.9, 2.5):
        assert interval_p(interval, threshold) == pytest.approx(2 * stats.norm.sf(abs(threshold - 1) / 0.3), rel=1e-5)
    skewed = Interval(1.0, 0.9, 3.0)
    assert interval_p(skewed, 0.5) < 0.001 < interval_p(skewed, 1.5)
    assert interval_p(interval, 1.0) == 1.0
    assert interval_p(interval, np.inf) == 0.0
