"""Numbers have the digits that their interval is worth."""

import pytest

from topicscope.reporting.rounding import decimals, with_interval


@pytest.mark.parametrize(
    ("numbers", "shown"),
    [
        ((1.0009, 1.0004, 1.0013), "1.00090 [1.00040, 1.00130]"),
        ((1.005, 1.0, 1.01), "1.005 [1.000, 1.010]"),
        ((1.5167, 1.402, 1.633), "1.52 [1.40, 1.63]"),
        ((123.4, 100.2, 160.9), "123 [100, 161]"),
        ((-0.0001, -0.2, 0.2), "0.00 [-0.20, 0.20]"),
        ((1.0, 1.0, 1.0), "1.000000 [1.000000, 1.000000]"),
        ((1.23456, 1.1, None), "1.235 [1.1, no upper end]"),
        ((1.23456, None, None), "1.235 (no interval)"),
    ],
)
def test_all_three_numbers_show_two_digits_of_the_intervals_width(
    numbers: tuple[float, float | None, float | None], shown: str
) -> None:
    assert with_interval(*numbers) == shown


def test_ends_that_differ_are_told_apart_where_three_digits_would_not() -> None:
    low, high = 1.0004, 1.0013
    assert f"{low:.3g}" == f"{high:.3g}"
    assert f"{low:.{decimals(high - low)}f}" != f"{high:.{decimals(high - low)}f}"
