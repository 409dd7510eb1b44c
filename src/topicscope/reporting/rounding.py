"""Numbers as people read them: powers of ten, intervals, comparisons of the probe, numbers of claims."""

import math
import re
from typing import SupportsFloat

from topicscope.records import SIGNIFICANT, ClaimRecord, ClaimRowRecord, Comparison

Measured = ClaimRecord | ClaimRowRecord
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


def _power(found: re.Match[str]) -> str:
    factor, sign, digits, square = found.groups()
    written = ("" if factor == "1" else f"{factor}·") + "10" + (sign.strip("+") + digits).translate(HIGH)
    return f"({written})²" if square else written


def with_interval(value: float, low: float | None, high: float | None, *, mark: str = "") -> str:
    """``1.52* [1.40, 1.63]``: two digits of the interval's width; ``mark`` comes after the number.

    A number without an interval, or with one that has no upper end, has four digits, and says so.
    """
    if low is not None and high is None:
        return f"{readable(value)}{mark} [{readable(low)}, no upper end]"
    if low is None or high is None:
        return f"{readable(value)}{mark} (no interval)"
    digits = decimals(high - low)
    return f"{_plain(value, digits)}{mark} [{_plain(low, digits)}, {_plain(high, digits)}]"


def decimals(width: float) -> int:
    """Decimals that show two digits of the width."""
    return min(max(1 - math.floor(math.log10(width)), 0), MOST) if width > 0 else MOST


def _plain(value: float, digits: int) -> str:
    """A number with so many decimals, and without a sign if it is rounded to 0."""
    return f"{round(value, digits) + 0.0:.{digits}f}"


def comparison_text(comparison: Comparison, *, no_ratio: str = "Δ", mark: str = "") -> str:
    """Same- over different-topic average with its interval; their difference where there is no ratio.

    no_ratio: the text before a difference.
    """
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
        return f"{_brief(number)}{unit}"
    ends = (scale * low, scale * high)
    if abs(number) >= MILLION:
        return number_text(number / MILLION, ends[0] / MILLION, ends[1] / MILLION) + f" million{unit}"
    largest = max(abs(number), *map(abs, ends))
    digits = max(min(decimals(ends[1] - ends[0]), 3 - math.floor(math.log10(largest))), 0)
    shown, first, last = (_plain(each, digits).replace("-", "−") for each in (number, *ends))
    return f"{shown}{unit}" if first == last else f"{shown}{unit} [{first}, {last}{unit}]"


def _brief(number: float) -> str:
    text = f"{number:,.0f}" if abs(number) >= 1000 or number.is_integer() else readable(number, 3)
    return text.replace("-", "−")


def claim_number(value: float | int | str | None) -> str:
    """A number of a claim, with five digits, or text."""
    if value is None:
        return NOTHING
    return powers(value) if isinstance(value, str) else readable(value, 5)


def claim_interval(record: Measured) -> str:
    """The 95 % interval of a claim or of one of its rows; empty if there is none."""
    if record.low is None or record.high is None:
        return ""
    return f"[{claim_number(record.low)}, {claim_number(record.high)}]"


def claim_text(record: Measured) -> str:
    """What a claim, or one of its rows, measured, with its interval if there is one."""
    return f"{claim_number(record.measured)} {claim_interval(record)}".rstrip()
