"""When a structure appears in training: the step at which its log-ratio is half of what it is in the end."""

import numpy as np
from jaxtyping import Float, Int


def half_way(steps: Int[np.ndarray, " measured"], log_ratio: Float[np.ndarray, " measured"], final_low: float) -> float:
    """The first step at which the log-ratio reaches half of its final value, linear between measured steps.

    NaN if there is no structure in the end, that is, if ``final_low``, the lower end of the final log-ratio's interval,
    is not above 0: half of what may be nothing is reached at no step in particular. Values that are NaN (a ratio that
    is not defined) count as not reached.
    """
    final = log_ratio[-1]
    if not (final_low > 0 and final > 0):
        return np.nan
    row = int(np.argmax(log_ratio >= final / 2))
    before = log_ratio[row - 1] if row else np.nan
    if row == 0 or np.isnan(before):
        return float(steps[row])
    share = (final / 2 - before) / (log_ratio[row] - before)
    return float(steps[row - 1] + share * (steps[row] - steps[row - 1]))
