"""Claims, drawings and experiments as work items: what each result depends on, and its form on disk."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from topicscope.paper.claims import Claim, Drawing, Measurement, plain_details
from topicscope.paper.experiments import Experiment
from topicscope.paper.storage import code_digest, dump, experiment_key
from topicscope.scale import Item

# Parts of the package that a measurement or a figure depends on, beside the trained experiments.
MEASURING = ("settings", "synthetic", "theory", "measure", "paper", "report", "randomness.py")

Run = tuple[Experiment, tuple[int, ...]]


@dataclass(frozen=True)
class Measured:
    """A claim's measurement, and what it took with the training that it needs."""

    measurement: Measurement
    seconds: float

    def dump(self) -> bytes:
        """As JSON; a run without a number is null."""
        values = [value if np.isfinite(value) else None for value in self.measurement.values]
        details = plain_details(self.measurement.details)
        content = {"values": values, "kind": self.measurement.kind, "details": details, "seconds": self.seconds}
        return json.dumps(content, ensure_ascii=False, allow_nan=False).encode()

    @classmethod
    def restore(cls, content: bytes) -> "Measured":
        """What ``dump`` wrote."""
        found = json.loads(content)
        values = tuple(np.nan if value is None else float(value) for value in found["values"])
        return cls(Measurement(values, found["kind"], found["details"]), found["seconds"])


def experiment_item(experiment: Experiment, seeds: Sequence[int]) -> Item[Run]:
    """Training an experiment with these seeds."""
    key = experiment_key(experiment, seeds)
    return Item(experiment.name, key, (experiment, tuple(seeds)), suffix=".safetensors")


def claim_item(claim: Claim, seeds: Sequence[int]) -> Item[Claim]:
    """Measuring a claim."""
    return Item(claim.id, {"claim": claim.id} | _inputs(claim.needs, seeds), claim, suffix=".json")


def drawing_item(drawing: Drawing, seeds: Sequence[int]) -> Item[Drawing]:
    """Drawing a figure."""
    return Item(drawing.name, {"drawing": drawing.name} | _inputs(drawing.needs, seeds), drawing, suffix=".json")


def train_item(run: Run) -> bytes:
    """Train an experiment; PyTorch is imported only where this is called."""
    from topicscope.paper.running import run_experiment

    return dump(run_experiment(*run))


def _inputs(needs: Sequence[Experiment], seeds: Sequence[int]) -> dict[str, Any]:
    digests = [experiment_item(experiment, seeds).digest for experiment in needs]
    return {"experiments": digests, "code": code_digest(MEASURING)}
