"""The paper as claims: what each says, how it is measured, and the experiments that it needs.

A file per group of theorems, per figure and per table; ``paper.registry`` has all of their claims.
"""

from topicscope.paper.claim import (
    PRESETS,
    Claim,
    Drawing,
    Measurement,
    Need,
    Preset,
    Rule,
    above,
    below,
    corrected_verdicts,
    exact,
    interval_given,
    near,
    over_seeds,
    proportion,
    verdict,
    within,
)
from topicscope.paper.experiment import Experiment, Trained
from topicscope.paper.registry import Registry

__all__ = [
    "PRESETS",
    "Claim",
    "Drawing",
    "Experiment",
    "Measurement",
    "Need",
    "Preset",
    "Registry",
    "Rule",
    "Trained",
    "above",
    "below",
    "corrected_verdicts",
    "exact",
    "interval_given",
    "near",
    "over_seeds",
    "proportion",
    "verdict",
    "within",
]
