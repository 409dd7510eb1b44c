"""What claims and figures rest on: work that is done once, in any process, kept on disk and given back as a result.

Training an experiment is one kind (``paper.experiments``); probing a model on a corpus is another. A new kind is a
frozen dataclass at the top of a module (it is pickled for the worker) with the members of ``Need``. Nothing else has to
know of it::

    @dataclass(frozen=True, kw_only=True)
    class Probe:
        name: str
        model: str
        cost = 20.0
        suffix = ".json"

        def key(self, seeds: Seeds) -> dict[str, Any]:
            return {"probe": self.model, "seeds": list(seeds), "code": code_digest(("probe", "text", "measure"))}

        def compute(self, seeds: Seeds) -> bytes: ...  # Heavy imports go inside.

        def restore(self, content: bytes) -> ProbeResult: ...
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

Seeds = tuple[int, ...]
Results = Mapping[str, Any]
"""What ``restore`` gave, by the need's name."""


@runtime_checkable
class Need(Protocol):
    """One piece of work."""

    @property
    def name(self) -> str:
        """Readable and unique, with slashes: "figure2/squared-adam"."""

    @property
    def cost(self) -> float:
        """Seconds on one idle core with the quick preset's seeds, roughly: orders work and estimates the time left."""

    @property
    def suffix(self) -> str:
        """Ending of the file that keeps it."""

    def key(self, seeds: Seeds) -> dict[str, Any]:
        """Everything that the result depends on, as plain values; the name is not part of it. Equal keys, one work."""

    def compute(self, seeds: Seeds) -> bytes:
        """Do the work."""

    def restore(self, content: bytes) -> Any:
        """The result from what ``compute`` returned; an attribute ``seconds`` of it counts as what it took."""


def total_cost(needs: Sequence[Need]) -> float:
    """Of several."""
    return sum((need.cost for need in needs), start=0.0)
