"""Training on text as work that claims need: settings with several seeds, and what comes out as arrays.

What trains is imported only where that is done: experiments can be named without torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int
from safetensors.numpy import load, save

from topicscope.paper.needs import Seeds
from topicscope.scale import code_digest, package_versions
from topicscope.settings.text import TextSettings
from topicscope.settings.toml import to_table

# Parts of the package that a result depends on.
SOURCES = (
    "settings",
    "synthetic",
    "text",
    "model",
    "training",
    "measure",
    "probe",
    "paper/emergence.py",
    "paper/text_experiments.py",
    "paper/text_running.py",
    "randomness.py",
)
CORPUS = "wiki-sample"
# As many layers and heads as in the paper's Figure 5.
LAYERS, HEADS = 4, 4
PARTS = ("key", "query", "value")
STRUCTURES = ("embedding", "attention")
# Seconds of a multiply-add of a step, forward and backward (measured: 4e-11 at the paper preset's size, 8e-11 at the
# quick one's), and of reading text and fitting topics.
SECONDS_PER_MULTIPLY = 6e-11
PREPARING_SECONDS = 12.0


def made_with() -> dict[str, Any]:
    """The code and the packages that a result depends on."""
    return {"code": code_digest(SOURCES), "libraries": package_versions()}


@dataclass(frozen=True, kw_only=True)
class TextExperiment:
    """Settings of training on text, trained with several seeds, one after another, on one thread."""

    name: str
    """Readable and unique, with slashes: "figure5/adam-0.0001/scale-0.001"."""

    settings: TextSettings
    """All but the seed."""

    seeds: int
    """How many of the seeds are used, at most: text takes longer than documents of a topic model."""

    skipped: int = 0
    """How many seeds before these are left to experiments of the same settings, which can run at the same time."""

    suffix: ClassVar[str] = ".safetensors"

    @property
    def cost(self) -> float:
        """Seconds, roughly."""
        model, training = self.settings.model, self.settings.training
        layer = 4 * model.width**2 + 2 * model.width * model.feed_forward
        position = 3 * (model.layers * layer + 0.15 * model.width * self.settings.data.vocabulary)
        steps = training.steps * training.batch * self.settings.positions * self.seeds
        return PREPARING_SECONDS + SECONDS_PER_MULTIPLY * steps * position

    def key(self, seeds: Seeds) -> dict[str, Any]:
        """Settings, seeds, code and libraries (the packaged corpus comes with one of them)."""
        return {
            "settings": to_table(self.settings) | {"seed": None},
            "seeds": list(self._chosen(seeds)),
            **made_with(),
        }

    def compute(self, seeds: Seeds) -> bytes:
        """Train the seeds and measure."""
        from topicscope.paper.text_running import run_text_experiment

        return run_text_experiment(self, self._chosen(seeds)).dump()

    def restore(self, content: bytes) -> "TextRuns":
        """The result as arrays."""
        return TextRuns.restore(content)

    def _chosen(self, seeds: Seeds) -> Seeds:
        return seeds[self.skipped : self.skipped + self.seeds]


@dataclass(frozen=True, eq=False)
class TextRuns:
    """All seeds of an experiment; a run that diverged has NaN from there on."""

    steps: Int[np.ndarray, " row"]
    loss: Float[np.ndarray, "seed row"]
    norms: Mapping[str, Float[np.ndarray, "seed row layer"]]
    """Of "key", "query" and "value", heads together."""

    rotation: Float[np.ndarray, "seed row layer"]
    """(1 − cos)/2 between W^V and itself 10 steps earlier; NaN before step 10."""

    measured: Int[np.ndarray, " measured"]
    """Steps at which topic structure was measured."""

    log_ratios: Mapping[str, Float[np.ndarray, "seed measured"]]
    """Log of the same- over the different-topic average: "embedding" (cosine after the embedding layer), "attention"
    (all layers and heads); NaN where the ratio is not defined."""

    final_low: Mapping[str, Float[np.ndarray, " seed"]]
    """Lower end of the 95 % interval of the last log-ratio."""

    layer_log_ratios: Float[np.ndarray, "seed measured layer"]
    """Of attention, layer by layer."""

    layer_final_low: Float[np.ndarray, "seed layer"]
    seconds: float

    def dump(self) -> bytes:
        """All arrays under flat names such as ``norms/value``."""
        arrays: dict[str, np.ndarray] = {}
        for name, value in vars(self).items():
            group = {f"{name}/{key}": each for key, each in value.items()} if isinstance(value, Mapping) else {}
            arrays |= group or {name: np.asarray(value)}
        return save({name: np.ascontiguousarray(array) for name, array in arrays.items()})

    @classmethod
    def restore(cls, content: bytes) -> "TextRuns":
        """What ``dump`` wrote."""
        fields: dict[str, Any] = {}
        for path, array in load(content).items():
            name, _, key = path.partition("/")
            if key:
                fields.setdefault(name, {})[key] = array
            else:
                fields[name] = array
        return cls(**fields | {"seconds": float(fields["seconds"].item())})


def joined(parts: Sequence[TextRuns]) -> TextRuns:
    """Runs of experiments that differ in their seeds alone, as if they were one."""
    first = parts[0]
    by_seed = ("loss", "norms", "rotation", "log_ratios", "final_low", "layer_log_ratios", "layer_final_low")
    fields: dict[str, Any] = {name: _concatenated([getattr(part, name) for part in parts]) for name in by_seed}
    return TextRuns(steps=first.steps, measured=first.measured, seconds=sum(part.seconds for part in parts), **fields)


def _concatenated(values: list[Any]) -> Any:
    if isinstance(values[0], Mapping):
        return {name: np.concatenate([value[name] for value in values]) for name in values[0]}
    return np.concatenate(values)
