"""The logarithmic axis of ratios, the same in pictures and on the page."""

from collections.abc import Sequence

import numpy as np

STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10, 20, 50, 100, 200, 500, 1000)


def ratio_axis(numbers: Sequence[float | None]) -> tuple[list[float], tuple[float, float]]:
    """Ticks and ends of an axis that has room for all of these numbers above 0, and for 1.

    Ticks are whole factors: a logarithmic axis would label powers of ten alone.
    """
    ends = [number for number in numbers if number is not None and np.isfinite(number) and number > 0]
    low, high = min([*ends, 0.9]), max([*ends, 1.1])
    ticks = [step for step in STEPS if low / 1.3 <= step <= high * 1.3]
    if high / low < 2.2:
        even = np.arange(0.4, 2.55, 0.1 if high / low < 1.7 else 0.2)
        ticks = [step for step in np.round(even, 2).tolist() if low / 1.06 <= step <= high * 1.06]
    return [float(tick) for tick in ticks], (low / 1.08, high * 1.08)
