"""Numbers as text: one with its interval, a comparison of the probe, a number of a claim."""

import math
from collections.abc import Mapping
from typing import Any

from topicscope.records import SIGNIFICANT

# Decimals, at most: a narrower interval is shown as one of width 0.
MOST = 6

# Words for what is not a number.
NOTHING = "–"


def with_interval(value: float, low: float | None, high: float | None, *, mark: str = "") -> str:
    """``1.52* [1.40, 1.63]``: two digits of the interval's width; ``mark`` comes after the number.

    A number without an interval, or with one that has no upper end, has four digits, and says so.
    """
    if low is not None and high is None:
        return f"{value:.4g}{mark} [{low:.4g}, no upper end]"
    if low is None or high is None:
        return f"{value:.4g}{mark} (no interval)"
    digits = decimals(high - low)
    return f"{_plain(value, digits)}{mark} [{_plain(low, digits)}, {_plain(high, digits)}]"


def decimals(width: float) -> int:
    """Decimals that show two digits of the width."""
    return min(max(1 - math.floor(math.log10(width)), 0), MOST) if width > 0 else MOST


def _plain(value: float, digits: int) -> str:
    """No sign before what is rounded to 0."""
    return f"{round(value, digits) + 0.0:.{digits}f}"


def comparison_text(comparison: Mapping[str, Any], *, no_ratio: str = "Δ", mark: str = "") -> str:
    """Same- over different-topic average with its interval; their difference where there is no ratio.

    comparison: of a row of probe.json. no_ratio: what stands before a difference.
    """
    for name, ends, before in (
        ("ratio", ("low", "high"), ""),
        ("difference", ("difference_low", "difference_high"), f"{no_ratio} "),
    ):
        if (value := comparison.get(name)) is not None:
            return before + with_interval(value, *(comparison.get(end) for end in ends), mark=mark)
    return NOTHING


def is_significant(comparison: Mapping[str, Any]) -> bool:
    """Whether its difference is told from chance."""
    return comparison.get("p") is not None and bool(comparison["p"] < SIGNIFICANT)


def claim_number(value: float | int | str | None) -> str:
    """A number of a claim, with five digits; text as it is."""
    if value is None:
        return NOTHING
    return value if isinstance(value, str) else f"{value:.5g}"


def claim_interval(row: Mapping[str, Any]) -> str:
    """The 95 % interval of a row of claims.json; empty if there is none."""
    if row.get("low") is None or row.get("high") is None:
        return ""
    return f"[{claim_number(row['low'])}, {claim_number(row['high'])}]"


def claim_text(row: Mapping[str, Any]) -> str:
    """What a claim measured, with its interval if there is one."""
    return f"{claim_number(row['measured'])} {claim_interval(row)}".rstrip()
