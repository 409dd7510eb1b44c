"""Claims, drawings and what they need as work items: what each result depends on, and its form on disk."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from topicscope.paper.claims import Claim, Drawing, Given, Measurement, plain_details
from topicscope.paper.needs import Need, Seeds
from topicscope.scale import Item, code_digest

# Parts of the package that a measurement or a figure depends on, beside what it needs.
MEASURING = ("settings", "synthetic", "theory", "measure", "paper", "report", "randomness.py")

Run = tuple[Need, Seeds]


@dataclass(frozen=True)
class Measured:
    """A claim's measurement, and what it took with the work that it needs."""

    measurement: Measurement
    seconds: float

    def dump(self) -> bytes:
        """As JSON; a run without a number is null."""
        found = self.measurement
        content = {
            "values": [_plain(value) for value in found.values],
            "kind": found.kind,
            "given": {name: _plain(value) for name, value in asdict(found.given).items()} if found.given else None,
            "details": plain_details(found.details),
            "seconds": self.seconds,
        }
        return json.dumps(content, ensure_ascii=False, allow_nan=False).encode()

    @classmethod
    def restore(cls, content: bytes) -> "Measured":
        """What ``dump`` wrote."""
        found = json.loads(content)
        values = tuple(_number(value) for value in found["values"])
        given = Given(**{name: _number(value) for name, value in found["given"].items()}) if found["given"] else None
        return cls(Measurement(values, found["kind"], found["details"], given), found["seconds"])


def need_item(need: Need, seeds: Seeds) -> Item[Run]:
    """The work itself."""
    return Item(need.name, need.key(seeds), (need, seeds), suffix=need.suffix)


def compute_need(run: Run) -> bytes:
    """Do it, in whatever process this is called."""
    need, seeds = run
    return need.compute(seeds)


def claim_item(claim: Claim, seeds: Seeds) -> Item[Claim]:
    """Measuring a claim."""
    return Item(claim.id, {"claim": claim.id} | _inputs(claim.needs, seeds), claim, suffix=".json")


def drawing_item(drawing: Drawing, seeds: Seeds) -> Item[Drawing]:
    """Drawing a figure."""
    return Item(drawing.name, {"drawing": drawing.name} | _inputs(drawing.needs, seeds), drawing, suffix=".json")


def _inputs(needs: Sequence[Need], seeds: Seeds) -> dict[str, Any]:
    return {"needs": [need_item(need, seeds).digest for need in needs], "code": code_digest(MEASURING)}


def _plain(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _number(value: float | None) -> float:
    return np.nan if value is None else float(value)
