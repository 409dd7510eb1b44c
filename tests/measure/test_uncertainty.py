import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from topicscope.measure.uncertainty import (
    Interval,
    holm,
    interval_p,
    proportion_interval,
    proportion_p,
    student_interval,
    student_p,
)

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
@given(st.lists(numbers, min_size=2, max_size=20), numbers)
def test_students_interval_and_p_value_are_scipys(values: list[float], threshold: float) -> None:
    sample = np.array(values)
    if sample.std() < 1e-6:
        return
    reference = stats.ttest_1samp(sample, threshold)
    low, high = reference.confidence_interval()
    found = student_interval(sample)
    assert found.low == pytest.approx(low, rel=1e-9, abs=1e-9)
    assert found.high == pytest.approx(high, rel=1e-9, abs=1e-9)
    assert student_p(sample, threshold) == pytest.approx(reference.pvalue, rel=1e-7, abs=1e-12)


def test_one_seed_says_nothing() -> None:
    interval = student_interval(np.array([3.0]))
    assert (interval.value, interval.low, interval.high) == (3.0, -np.inf, np.inf)
    assert student_p(np.array([3.0]), 0.0) == 1.0


def test_seeds_that_agree_exactly_leave_no_doubt_but_at_the_threshold() -> None:
    same = np.full(5, 2.0)
    assert student_interval(same).low == student_interval(same).high == 2.0
    assert student_p(same, 1.0) == 0.0
    assert student_p(same, 2.0) == 1.0


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.integers(1, 30).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_a_proportions_interval_is_scipys_exact_one(counts: tuple[int, int]) -> None:
    successes, trials = counts
    reference = stats.binomtest(successes, trials).proportion_ci(method="exact")
    found = proportion_interval(successes, trials)
    assert found.low == pytest.approx(reference.low, abs=1e-12)
    assert found.high == pytest.approx(reference.high, abs=1e-12)
    # Below 0.05 exactly outside the interval.
    for threshold in np.linspace(0.005, 0.995, 34):
        outside = not found.low <= threshold <= found.high
        assert (proportion_p(successes, trials, float(threshold)) < 0.05) == outside


def slow_holm(p_values: list[float]) -> list[float]:
    """Step down by definition: the smallest level at which Holm's procedure rejects each."""
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.lists(st.floats(0, 1), max_size=12))
def test_holms_p_values_follow_the_step_down_procedure(p_values: list[float]) -> None:
    found = holm(np.array(p_values, dtype=np.float64))
    assert found.tolist() == pytest.approx(slow_holm(p_values))


def test_after_correction_one_wrong_rejection_among_twenty_is_as_rare_as_among_one() -> None:
    draw = np.random.default_rng(1)
    trials = 2000
    p_values = draw.uniform(size=(trials, 20))
    wrong = np.mean([(holm(each) < 0.05).any() for each in p_values])
    standard_error = np.sqrt(0.05 * 0.95 / trials)
    assert wrong < 0.05 + 5 * standard_error
    # The control: uncorrected, most families have one.
    assert np.mean((p_values < 0.05).any(axis=1)) > 0.5


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
