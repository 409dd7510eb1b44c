"""Two models compared on the same passages, words and topics, under the same draws.

Replicates of both models draw the same articles, words and topics, so what they share does not count twice: a paired
bootstrap. The test permutes words' topics, the same way for both models: would shuffled topics tell the two models
apart as much as these do? It asks about topics, so that two models which differ in all else, such as two untrained
ones, differ by chance only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from topicscope.probing.statistics.permutation import permutation_p
from topicscope.probing.statistics.resampling import percentile_interval, ratio_of_ratios, ratio_replicates


@dataclass(frozen=True, eq=False)
class Comparable:
    """One measure of one model: averages under the draws, and what is tested under the permutations."""

    same: Float[np.ndarray, " replicate"]
    different: Float[np.ndarray, " replicate"]
    auc: Float[np.ndarray, " replicate"] | None
    permuted: Float[np.ndarray, " permutation_plus_one"]
    """What the test looks at, the observed number first: log-ratio of attention, same-topic average of similarity."""

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        """For a file."""
        found = {"same": self.same, "different": self.different, "permuted": self.permuted}
        found |= {} if self.auc is None else {"auc": self.auc}
        return {f"{name}/{part}": np.asarray(array, dtype=np.float64) for part, array in found.items()}

    @classmethod
    def read(cls, arrays: dict[str, np.ndarray], name: str) -> "Comparable":
        """What ``arrays`` made."""
        return cls(*(arrays.get(f"{name}/{part}") for part in ("same", "different", "auc", "permuted")))  # type: ignore[arg-type]


def compared(one: Comparable, other: Comparable) -> dict[str, Any]:
    """How much more topic structure the first has: ratio of ratios, differences of differences and of AUC, and p.

    Numbers are None where they are not defined: a ratio where an average over different topics is not above 0.
    """
    quotient = ratio_of_ratios(ratio_replicates(one.same, one.different), ratio_replicates(other.same, other.different))
    found: dict[str, Any] = {"ratio_of_ratios": quotient.ratio, "low": quotient.low, "high": quotient.high}
    difference = (one.same - one.different) - (other.same - other.different)
    found |= _with_interval("difference", difference)
    if one.auc is not None and other.auc is not None:
        found |= _with_interval("auc_difference", one.auc - other.auc)
    permuted = one.permuted - other.permuted
    # Rounding is that of each model's own numbers.
    size = float(max(np.abs(one.permuted[:1]).max(), np.abs(other.permuted[:1]).max(), 0.0))
    p = permutation_p(float(permuted[0]), permuted[1:], size=size if np.isfinite(size) else 0.0)
    return found | {"p": p if np.isfinite(p) else None}


def _with_interval(name: str, replicates: Float[np.ndarray, " replicate"]) -> dict[str, float | None]:
    low, high = percentile_interval(replicates[1:])
    value = float(replicates[0])
    return {name: value if np.isfinite(value) else None, f"{name}_low": low, f"{name}_high": high}


def compared_models(
    one: dict[str, np.ndarray], other: dict[str, np.ndarray], groups: Sequence[tuple[float | None, str]]
) -> list[dict[str, Any]]:
    """A row per threshold, assignment and measure that both models have, from arrays named ``group/measure/part``."""
    found = []
    for name in dict.fromkeys(each.rsplit("/", 1)[0] for each in one):
        if f"{name}/same" not in other:
            continue
        group, measure = name.split("/")
        fraction, assignment = groups[int(group)]
        layer = int(measure.rsplit(" ", 1)[1]) if measure.startswith("hidden") else None
        kind = measure if layer is None else measure.rsplit(" ", 1)[0]
        about = {"fraction": fraction, "assignment": assignment, "measure": kind, "layer": layer}
        found.append(about | compared(Comparable.read(one, name), Comparable.read(other, name)))
    return sorted(found, key=lambda row: (row["measure"] != "attention", row["layer"] is not None))
