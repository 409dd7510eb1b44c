"""Numbers as people read them: powers of ten, intervals, comparisons of the probe, numbers of claims."""

import math
import re
from collections.abc import Mapping
from typing import Any, SupportsFloat

from topicscope.records import SIGNIFICANT

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


def comparison_text(comparison: Mapping[str, Any], *, no_ratio: str = "Δ", mark: str = "") -> str:
    """Same- over different-topic average with its interval; their difference where there is no ratio.

    comparison: one in a row of probe.json. no_ratio: the text before a difference.
    """
    for name, ends, before in (
        ("ratio", ("low", "high"), ""),
        ("difference", ("difference_low", "difference_high"), f"{no_ratio} "),
    ):
        if (value := comparison.get(name)) is not None:
            return before + with_interval(value, *(comparison.get(end) for end in ends), mark=mark)
    return NOTHING


def is_significant(comparison: Mapping[str, Any]) -> bool:
    """Whether its difference is distinguished from chance."""
    return comparison.get("p") is not None and bool(comparison["p"] < SIGNIFICANT)


def claim_number(value: float | int | str | None) -> str:
    """A number of a claim, with five digits, or text."""
    if value is None:
        return NOTHING
    return powers(value) if isinstance(value, str) else readable(value, 5)


def claim_interval(row: Mapping[str, Any]) -> str:
    """The 95 % interval of a row of claims.json; empty if there is none."""
    if row.get("low") is None or row.get("high") is None:
        return ""
    return f"[{claim_number(row['low'])}, {claim_number(row['high'])}]"


def claim_text(row: Mapping[str, Any]) -> str:
    """What a claim measured, with its interval if there is one."""
    return f"{claim_number(row['measured'])} {claim_interval(row)}".rstrip()
