"""A number with its interval as text: as many digits as the interval is worth, the same for all three."""

import math

# Decimals, at most: a narrower interval is shown as one of width 0.
MOST = 6


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
