"""Numbers have the digits that their interval is worth."""

from typing import SupportsFloat

import numpy as np
import pytest
from msgspec.structs import replace

from topicscope.records import ClaimRowRecord, Comparison
from topicscope.reporting.rounding import (
    claim_number,
    claim_text,
    comparison_text,
    is_significant,
    powers,
    readable,
    with_interval,
)


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


def test_a_comparison_is_its_ratio_or_its_difference_or_nothing() -> None:
    comparison = Comparison(ratio=1.5167, low=1.402, high=1.633, difference=0.112, p=0.01)
    assert comparison_text(comparison, mark="*") == "1.52* [1.40, 1.63]"
    no_ratio = replace(comparison, ratio=None, difference_low=0.09, difference_high=0.134)
    assert comparison_text(no_ratio) == "Δ 0.112 [0.090, 0.134]"
    assert comparison_text(no_ratio, no_ratio="no ratio; difference") == "no ratio; difference 0.112 [0.090, 0.134]"
    assert comparison_text(replace(no_ratio, difference=None)) == comparison_text(Comparison()) == "–"
    assert is_significant(comparison)
    assert not is_significant(replace(comparison, p=0.05))
    assert not is_significant(replace(comparison, p=None))


@pytest.mark.parametrize(
    ("value", "digits", "shown"),
    [
        (0.000032, 2, "3.2·10⁻⁵"),
        (-0.000032, 2, "-3.2·10⁻⁵"),
        (1e-12, 3, "10⁻¹²"),
        (58_666_667.0, 4, "5.867·10⁷"),
        (0.00012345, 3, "0.000123"),
        (0.0, 4, "0"),
        (np.float32(0.25), 4, "0.25"),
    ],
)
def test_a_power_of_ten_is_written_as_one(value: SupportsFloat, digits: int, shown: str) -> None:
    assert readable(value, digits) == shown


def test_powers_are_found_in_sentences_and_not_in_names() -> None:
    assert powers("from -1.5e-07 to 2e+10 [1e-06, 3e-06], N(0, 1e-06²)") == (
        "from -1.5·10⁻⁷ to 2·10¹⁰ [10⁻⁶, 3·10⁻⁶], N(0, (10⁻⁶)²)"
    )
    names = "adam-1e-06, scale-1e-06/value, v1e5, 1.e5"
    assert powers(names) == names
    assert claim_number("< 1e-10") == "< 10⁻¹⁰"
    assert with_interval(3e-05, 1e-05, None) == "3·10⁻⁵ [10⁻⁵, no upper end]"


def row(measured: float | None, low: float | None = None, high: float | None = None) -> ClaimRowRecord:
    return ClaimRowRecord(name="", measured=measured, low=low, high=high, verdict="holds", margin=None)


def test_numbers_of_claims_have_five_digits() -> None:
    assert claim_text(row(1.234567, 1.0, 2.000004)) == "1.2346 [1, 2]"
    assert claim_text(row(1.234567)) == "1.2346"
    assert claim_text(row(None)) == "–"
    assert claim_number("> 0") == "> 0"
