"""Training on text as work that claims need: settings with several seeds, and what comes out as arrays.

What trains is imported only where that is done: experiments can be named without torch.
"""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Float, Int

from topicscope.errors import DivergedError
from topicscope.files import Row, alone_in
from topicscope.paper.claim import Seeds
from topicscope.paper.experiment import dump_arrays, load_arrays
from topicscope.scale import code_digest, content_digest, package_versions, scratch_folder, shared_folder
from topicscope.settings.text import TextSettings
from topicscope.settings.toml import to_table
from topicscope.training.runs import RunFolder
from topicscope.training.schedule import snapshot_steps, steps_with_rows

if TYPE_CHECKING:
    from topicscope.model.encoder import Encoder
    from topicscope.training.text import Measure, PreparedText

# Parts of the package that a result depends on.
SOURCES = (
    "settings",
    "synthetic",
    "text",
    "model",
    "training",
    "measure",
    "probing",
    "paper/text_experiment.py",
    "paper/experiment.py",
    "randomness.py",
)
CORPUS = "wiki-sample"
# As many layers and heads as in the paper's Figure 5.
LAYERS, HEADS = 4, 4
PARTS = ("key", "query", "value")
# What log-ratios are taken of, as training records it. The embedding's cosines are positive from the start, so that the
# ratio is defined.
STRUCTURES = {"embedding": "embedding_layer", "attention": "attention"}
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
        """As safetensors."""
        return dump_arrays(vars(self))

    @classmethod
    def restore(cls, content: bytes) -> "TextRuns":
        """What ``dump`` wrote."""
        fields = load_arrays(content)
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


def run_text_experiment(experiment: TextExperiment, seeds: Seeds) -> TextRuns:
    """Train every seed; one that diverges does not keep the others from finishing.

    Stopped and taken up again as a work item, it goes on from the last checkpoint.
    """
    from topicscope.training.loop import Trainer
    from topicscope.training.machine import torch_threads
    from topicscope.training.text import TextEngine

    began = time.perf_counter()
    settings = experiment.settings
    with scratch_folder() as folder, shared_folder() as everybodys, torch_threads(1):
        prepared, measure = _prepare(settings, everybodys)
        members = []
        for seed in seeds:
            run = RunFolder(folder / f"seed-{seed}")
            run.path.mkdir(exist_ok=True)
            engine = TextEngine(dataclasses.replace(settings, seed=seed), prepared.text, measure=measure)
            with contextlib.suppress(DivergedError):
                Trainer(engine).run([run])
            members.append(run.metrics())
    return as_arrays(experiment, members, time.perf_counter() - began)


def _prepare(settings: TextSettings, folder: Path) -> "tuple[PreparedText, Measure | None]":
    """Text and topics, the same for all seeds and for experiments that differ in training alone: made once."""
    from topicscope.training.text import prepare_text

    content = {"data": asdict(settings.data), "topics": asdict(settings.topics), **made_with()}
    shared = folder / f"text-{content_digest(content)}"
    with alone_in(shared):
        prepared = prepare_text(settings.data, shared)
        return prepared, measuring(shared)(prepared, settings) if settings.training.measures else None


def as_arrays(experiment: TextExperiment, members: list[list[Row]], seconds: float) -> TextRuns:
    """Rows of all seeds as arrays."""
    training, layers = experiment.settings.training, experiment.settings.model.layers
    steps = np.array(steps_with_rows(training), dtype=np.int64)
    measured = np.array(sorted(snapshot_steps(training.steps, training.measures)), dtype=np.int64)
    rows = _Column(members, steps)
    chosen = _Column([[row for row in each if row["topics"]] for each in members], measured)
    last = _Column([[row for row in each if row["step"] == training.steps] for each in members], steps[-1:])
    return TextRuns(
        steps=steps,
        loss=rows.of(lambda row: row["loss"]),
        norms={name: rows.of(lambda row, name=name: row["norm"][name], layers) for name in PARTS},  # type: ignore[misc]
        rotation=rows.of(lambda row: row["rotation"] or [np.nan] * layers, layers),
        measured=measured,
        log_ratios={name: chosen.of(lambda row, name=name: _log(row, name, "ratio")) for name in STRUCTURES},  # type: ignore[misc]
        final_low={name: last.of(lambda row, name=name: _log(row, name, "low"))[:, 0] for name in STRUCTURES},  # type: ignore[misc]
        layer_log_ratios=chosen.of(lambda row: _layer_logs(row, "ratio", layers), layers),
        layer_final_low=last.of(lambda row: _layer_logs(row, "low", layers), layers)[:, 0],
        seconds=seconds,
    )


class _Column:
    """Rows of all members as arrays, by step; NaN where a member has no such row."""

    def __init__(self, members: list[list[Row]], steps: np.ndarray) -> None:
        self.members, self.steps = members, steps

    def of(self, pick: Callable[[Row], Any], *shape: int) -> Float[np.ndarray, "seed row *rest"]:
        """One quantity of every row."""
        column = np.full((len(self.members), len(self.steps), *shape), np.nan)
        for place, rows in enumerate(self.members):
            for row in rows:
                column[place, np.searchsorted(self.steps, row["step"])] = pick(row)
        return column


def _log(row: Row, structure: str, which: str) -> float:
    return _logarithm(row["topics"][STRUCTURES[structure]][which]) if row["topics"] else np.nan


def _layer_logs(row: Row, which: str, layers: int) -> list[float]:
    if not row["topics"]:
        return [np.nan] * layers
    return [_logarithm(layer[which]) for layer in row["topics"]["attention_by_layer"]]


def _logarithm(value: float | None) -> float:
    return float(np.log(value)) if value is not None and value > 0 else np.nan


def measuring(folder: Path) -> "Callable[[PreparedText, TextSettings], Measure]":
    """What makes the function that training calls to measure topic structure; topics are fitted into ``topics`` there.

    Training and the probe do not know each other: training is given this function, and the probe a model with
    embeddings and attention.
    """
    from topicscope.probing.emergence import prepare_emergence
    from topicscope.probing.models import EncoderSubject

    def make(prepared: "PreparedText", settings: TextSettings) -> "Measure":
        emergence = prepare_emergence(prepared.passages, prepared.tokenizer, settings.topics, Path(folder) / "topics")
        specials = prepared.text.specials

        def measure(encoder: "Encoder") -> dict[str, Any]:
            return emergence.measure(EncoderSubject(encoder, specials.before, specials.after))

        return measure

    return make
