"""Two models compared on the same passages, words and topics, under the same draws.

Replicates of both models draw the same articles, words and topics, so what they share does not count twice: a paired
bootstrap. The test permutes words' topics, the same way for both models: would shuffled topics tell the two models
apart as much as these do? It asks about topics only, so two models that differ in everything else, such as two
untrained ones, differ only by chance.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from topicscope.probing.statistics.permutation import permutation_p
from topicscope.probing.statistics.resampling import (
    percentile_interval,
    ratio_of_ratios,
    ratio_replicates,
    why_no_ratio,
)


class Comparable(NamedTuple):
    """One measure of one model: averages under the draws, and what is tested under the permutations."""

    same: Float[np.ndarray, " replicate"]
    different: Float[np.ndarray, " replicate"]
    auc: Float[np.ndarray, " replicate"]
    permuted: Float[np.ndarray, " permutation_plus_one"]
    """The tested statistic, the observed number first: log-ratio of attention, same-topic average of similarity."""

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        """The arrays, for a file."""
        return {f"{name}/{part}": np.asarray(array, dtype=np.float64) for part, array in self._asdict().items()}


def compared(one: Comparable, other: Comparable) -> dict[str, Any]:
    """How much more topic structure the first has: ratio of ratios, differences of differences and of AUC, and p.

    Numbers are None where they are not defined. There is no ratio of ratios if one of the models has no ratio, because
    the interval of its average over different topics is not above 0.
    """
    quotient: dict[str, float | None] = dict.fromkeys(("ratio", "low", "high"))
    if not any(why_no_ratio(each.same, each.different) for each in (one, other)):
        quotient = ratio_of_ratios(*(ratio_replicates(each.same, each.different) for each in (one, other)))
    found: dict[str, Any] = {"ratio_of_ratios": quotient.pop("ratio"), **quotient}
    differences = {
        "difference": (one.same - one.different) - (other.same - other.different),
        "auc_difference": one.auc - other.auc,
    }
    for name, replicates in differences.items():
        low, high = percentile_interval(replicates[1:])
        value = float(replicates[0]) if np.isfinite(replicates[0]) else None
        found |= {name: value, f"{name}_low": low, f"{name}_high": high}
    permuted = one.permuted - other.permuted
    # Rounding errors are those of each model's own numbers.
    size = float(max(abs(one.permuted[0]), abs(other.permuted[0])))
    p = permutation_p(float(permuted[0]), permuted[1:], size=size if np.isfinite(size) else 0.0)
    return found | {"p": p if np.isfinite(p) else None}


def compared_models(
    one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray], groups: Sequence[tuple[float | None, str]]
) -> list[dict[str, Any]]:
    """A row per threshold, assignment and measure that both models have, from arrays named ``group/measure/part``."""
    found = []
    for name in dict.fromkeys(each.rsplit("/", 1)[0] for each in one):
        if f"{name}/same" not in other:
            continue
        group, measure = name.split("/")
        fraction, assignment = groups[int(group)]
        kind, layer = measure, None
        if measure.startswith("hidden"):
            kind, number = measure.rsplit(" ", 1)
            layer = int(number)
        about = {"fraction": fraction, "assignment": assignment, "measure": kind, "layer": layer}
        mine, theirs = (
            Comparable(*(arrays[f"{name}/{part}"] for part in Comparable._fields)) for arrays in (one, other)
        )
        found.append(about | compared(mine, theirs))
    return sorted(found, key=lambda row: (row["measure"] != "attention", row["layer"] is not None))
