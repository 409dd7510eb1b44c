"""Numbers as people read them: powers of ten, intervals, comparisons of the probe, numbers of claims."""

import math
import re
from typing import SupportsFloat

from topicscope.records import SIGNIFICANT, ClaimRecord, ClaimRowRecord, Comparison

MILLION = 1_000_000

# Decimals, at most: a narrower interval is shown as one of width 0.
MOST = 6

# Stands for what is not a number.
NOTHING = "–"

# A number such as 3e-05, squared or not, and the digits of its power.
POWER = re.compile(r"(?<![\w.])(?<![\w.]-)(\d+(?:\.\d+)?)e([+-]?)0*(\d+)(²|\b)")
HIGH = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def readable(value: SupportsFloat, digits: int = 4) -> str:
    """So many significant digits, and powers of ten as people write them: ``0.0123``, ``3.2·10⁻⁵``."""
    return powers(f"{float(value):.{digits}g}")


def powers(text: str) -> str:
    """``3e-05`` as ``3·10⁻⁵``, and ``1e-05`` as ``10⁻⁵``."""
    return POWER.sub(_power, text)


def _power(match: re.Match[str]) -> str:
    factor, sign, digits, square = match.groups()
    written = ("" if factor == "1" else f"{factor}·") + "10" + (sign.strip("+") + digits).translate(HIGH)
    return f"({written})²" if square else written


def with_interval(value: float, low: float | None, high: float | None, *, mark: str = "") -> str:
    """``1.52* [1.40, 1.63]``: two digits of the interval's width; ``mark`` comes after the number.

    A number without an interval, or with one that has no upper end, has four digits, and says so.
    """
    if low is None or high is None:
        interval = "(no interval)" if low is None else f"[{readable(low)}, no upper end]"
        return f"{readable(value)}{mark} {interval}"
    shown, first, last = (_plain(number, decimals(high - low)) for number in (value, low, high))
    return f"{shown}{mark} [{first}, {last}]"


def decimals(width: float) -> int:
    """Decimals that show two digits of the width."""
    return min(max(1 - math.floor(math.log10(width)), 0), MOST) if width > 0 else MOST


def _plain(value: float, digits: int) -> str:
    """A number with so many decimals, and without a sign if it is rounded to 0."""
    return f"{round(value, digits) + 0.0:.{digits}f}"


def comparison_text(comparison: Comparison, *, no_ratio: str = "Δ", mark: str = "") -> str:
    """Same- over different-topic average with its interval; after ``no_ratio`` their difference where there is none."""
    if comparison.ratio is not None:
        return with_interval(comparison.ratio, comparison.low, comparison.high, mark=mark)
    if comparison.difference is not None:
        ends = comparison.difference_low, comparison.difference_high
        return f"{no_ratio} {with_interval(comparison.difference, *ends, mark=mark)}"
    return NOTHING


def is_significant(comparison: Comparison) -> bool:
    """Whether its difference is distinguished from chance."""
    return comparison.p is not None and comparison.p < SIGNIFICANT


def number_text(
    value: SupportsFloat | None, low: float | None = None, high: float | None = None, *, percent: bool = False
) -> str:
    """A number with its interval, to at most four digits, for sentences: ``0.51 [0.48, 0.55]``, ``51 % [48, 55 %]``."""
    if value is None or not math.isfinite(float(value)):
        return NOTHING
    scale, unit = (100.0, " %") if percent else (1.0, "")
    number = scale * float(value)
    if low is None or high is None or math.isclose(low, high, rel_tol=1e-9):
        whole = abs(number) >= 1000 or number.is_integer()
        return (f"{number:,.0f}" if whole else readable(number, 3)).replace("-", "−") + unit
    if abs(number) >= MILLION:
        value, low, high = (scale * float(each) / MILLION for each in (value, low, high))
        return f"{number_text(value, low, high)} million{unit}"
    numbers = [scale * float(each) for each in (value, low, high)]
    largest = max(map(abs, numbers))
    digits = max(min(decimals(numbers[2] - numbers[1]), 3 - math.floor(math.log10(largest))), 0)
    shown, first, last = (_plain(each, digits).replace("-", "−") for each in numbers)
    return f"{shown}{unit}" if first == last else f"{shown}{unit} [{first}, {last}{unit}]"


def claim_number(value: float | int | str | None) -> str:
    """A number of a claim, with five digits, or text."""
    if value is None:
        return NOTHING
    return powers(value) if isinstance(value, str) else readable(value, 5)


def claim_text(record: ClaimRecord | ClaimRowRecord) -> str:
    """What a claim, or one of its rows, measured, with its 95 % interval if there is one."""
    if record.low is None or record.high is None:
        return claim_number(record.measured)
    return f"{claim_number(record.measured)} [{claim_number(record.low)}, {claim_number(record.high)}]"
