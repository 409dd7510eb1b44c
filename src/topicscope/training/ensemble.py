"""Many seeds, and learning rates, of one setting, trained in one tensor.

Each member draws its own documents, masks and initial weights, the same as it would draw alone, and writes the same
run folder. Its numbers are those of the run alone up to the rounding of sums taken in another order (about 1e-6
relative in float32 for a step, 1e-14 in float64). Which members are trained together is part of the settings of an
ensemble, never of the machine: that is what makes results repeat to the bit.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from topicscope.errors import InputError
from topicscope.settings import Settings
from topicscope.training.loop import Report, train_together
from topicscope.training.runs import RunFolder


@dataclass(frozen=True, kw_only=True)
class Ensemble:
    """One setting, with several seeds and learning rates."""

    settings: Settings
    seeds: tuple[int, ...]
    learning_rates: tuple[float, ...] = ()
    """Each with every seed; none means that of the settings."""

    def __post_init__(self) -> None:
        for name, values in (("seeds", self.seeds), ("learning_rates", self.learning_rates)):
            if len(set(values)) != len(values):
                raise InputError(f"{name} = {list(values)} is not allowed: give each one once.")
        if not self.seeds:
            raise InputError("seeds = [] is not allowed: give at least one seed.")

    def members(self) -> dict[str, Settings]:
        """The members' settings, by the name of their folder."""
        found = {}
        for rate in self.learning_rates or (self.settings.training.learning_rate,):
            training = dataclasses.replace(self.settings.training, learning_rate=rate)
            for seed in self.seeds:
                name = f"seed-{seed}" + (f"-rate-{rate:g}" if self.learning_rates else "")
                found[name] = dataclasses.replace(self.settings, seed=seed, training=training)
        return found


def train_ensemble(
    ensemble: Ensemble, out: Path, *, resume: bool = False, report: Report | None = None
) -> dict[str, RunFolder]:
    """Train all members at once, each into a run folder of its own below ``out``."""
    members = ensemble.members()
    outs = [out / name for name in members]
    folders = train_together(list(members.values()), outs, resume=resume, report=report)
    return dict(zip(members, folders, strict=True))
