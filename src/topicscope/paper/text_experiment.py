"""Training on text as work that claims need: settings with several seeds, and what comes out as arrays.

What trains is imported only where that is done: experiments can be named without torch.
"""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Float, Int

from topicscope.errors import DivergedError
from topicscope.files import Row, alone_in
from topicscope.paper.claim import Seeds
from topicscope.paper.experiment import column, dump_arrays, load_arrays
from topicscope.scale import content_digest, made_with, scratch_folder, shared_folder
from topicscope.settings.text import TextSettings
from topicscope.settings.toml import to_table
from topicscope.training.runs import RunFolder
from topicscope.training.schedule import measured_steps, steps_with_rows

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
# The queries whose attention is compared with uniform attention.
QUERIES = ("words", "mask")
# What log-ratios are computed from, as training records it. The embedding's cosines are positive from the start, so the
# ratio is defined.
STRUCTURES = {"embedding": "embedding_layer", "attention": "attention"}
# Seconds per multiply-add of a step, forward and backward (measured: 4e-11 at the paper preset's size, 8e-11 at the
# quick one's), and seconds for reading text and fitting topics.
SECONDS_PER_MULTIPLY = 6e-11
PREPARING_SECONDS = 12.0


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

    attention_passages: int = 0
    """How many held-out passages each layer's attention is compared with uniform attention on; 0 for none."""

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
            "attention_passages": self.attention_passages,
            **made_with(SOURCES),
        }

    def compute(self, seeds: Seeds) -> bytes:
        """Train every seed and measure: the fields of ``TextRuns``, as safetensors.

        One that diverges does not keep the others from finishing. If it is stopped and resumed as a work item, it goes
        on from the last checkpoint.
        """
        from topicscope.training.loop import Trainer
        from topicscope.training.machine import torch_threads
        from topicscope.training.text import TextEngine

        began = time.perf_counter()
        training, layers = self.settings.training, self.settings.model.layers
        members = []
        with scratch_folder() as folder, shared_folder() as everybodys, torch_threads(1):
            prepared, measure = _prepare(self.settings, everybodys)
            for seed in self._chosen(seeds):
                run = RunFolder(folder / f"seed-{seed}")
                run.path.mkdir(exist_ok=True)
                engine = TextEngine(
                    dataclasses.replace(self.settings, seed=seed),
                    prepared.text,
                    measure=measure,
                    attention_passages=self.attention_passages,
                )
                with contextlib.suppress(DivergedError):
                    Trainer(engine).run([run])
                members.append(run.metrics())
        steps = np.array(steps_with_rows(training), dtype=np.int64)
        measured = np.array(sorted(measured_steps(training.steps, training.measures)), dtype=np.int64)
        rows = partial(column, members, steps)
        chosen = partial(column, [[row for row in each if row["topics"]] for each in members], measured)
        last = partial(column, [[row for row in each if row["step"] == training.steps] for each in members], steps[-1:])
        return dump_arrays(
            {
                "steps": steps,
                "loss": rows(lambda row: row["loss"]),
                "norms": {name: rows(lambda row, name=name: row["norm"][name], layers) for name in PARTS},  # type: ignore[misc]
                "rotation": rows(lambda row: row["rotation"] or np.nan, layers),
                "attention_distance": {
                    name: rows(lambda row, name=name: row.get("attention", {}).get(name, np.nan), layers)  # type: ignore[misc]
                    for name in QUERIES
                },
                "measured": measured,
                "log_ratios": {name: chosen(partial(_log, name, "ratio")) for name in STRUCTURES},
                "final_low": {name: last(partial(_log, name, "low"))[:, 0] for name in STRUCTURES},
                "layer_log_ratios": chosen(partial(_layer_logs, "ratio"), layers),
                "layer_final_low": last(partial(_layer_logs, "low"), layers)[:, 0],
                "seconds": time.perf_counter() - began,
            }
        )

    def restore(self, content: bytes) -> "TextRuns":
        """The result as arrays."""
        fields = load_arrays(content)
        return TextRuns(**fields | {"seconds": float(fields["seconds"].item())})

    def _chosen(self, seeds: Seeds) -> Seeds:
        return seeds[self.skipped : self.skipped + self.seeds]


@dataclass(frozen=True, eq=False)
class TextRuns:
    """All seeds of an experiment; a run that diverged has NaN from there on."""

    steps: Int[np.ndarray, " row"]
    loss: Float[np.ndarray, "seed row"]
    norms: Mapping[str, Float[np.ndarray, "seed row layer"]]
    """Norms of "key", "query" and "value", heads together."""

    rotation: Float[np.ndarray, "seed row layer"]
    """(1 − cos)/2 between W^V and itself 10 steps earlier; NaN before step 10."""

    attention_distance: Mapping[str, Float[np.ndarray, "seed row layer"]]
    """a(t): how far attention of "words" and of "mask" queries is from uniform, in total variation, averaged over heads
    (``training.text.AttentionDistances``); NaN where it is not recorded."""

    measured: Int[np.ndarray, " measured"]
    """Steps at which topic structure was measured."""

    log_ratios: Mapping[str, Float[np.ndarray, "seed measured"]]
    """Log of the same- over the different-topic average: "embedding" (cosine after the embedding layer), "attention"
    (all layers and heads); NaN where the ratio is not defined."""

    final_low: Mapping[str, Float[np.ndarray, " seed"]]
    """Lower end of the 95 % interval of the last log-ratio."""

    layer_log_ratios: Float[np.ndarray, "seed measured layer"]
    """The log-ratio of attention, layer by layer."""

    layer_final_low: Float[np.ndarray, "seed layer"]
    seconds: float


# Fields with an axis of seeds.
BY_RUN = tuple(
    field.name for field in dataclasses.fields(TextRuns) if field.name not in {"steps", "measured", "seconds"}
)


def joined(parts: Sequence[TextRuns]) -> TextRuns:
    """Runs of experiments that differ in their seeds alone, as if they were one."""
    fields: dict[str, Any] = {}
    for name in BY_RUN:
        values: list[Any] = [getattr(part, name) for part in parts]
        if isinstance(values[0], Mapping):
            fields[name] = {key: np.concatenate([value[key] for value in values]) for key in values[0]}
        else:
            fields[name] = np.concatenate(values)
    return dataclasses.replace(parts[0], seconds=sum(part.seconds for part in parts), **fields)


def _prepare(settings: TextSettings, folder: Path) -> "tuple[PreparedText, Measure | None]":
    """Text and topics, the same for all seeds and for experiments that differ in training alone: made once."""
    from topicscope.training.text import prepare_text

    content = {"data": asdict(settings.data), "topics": asdict(settings.topics), **made_with(SOURCES)}
    shared = folder / f"text-{content_digest(content)}"
    with alone_in(shared):
        prepared = prepare_text(settings.data, shared)
        return prepared, measuring(shared)(prepared, settings) if settings.training.measures else None


def _log(structure: str, which: str, row: Row) -> float:
    return _logarithm(row["topics"][STRUCTURES[structure]][which]) if row["topics"] else np.nan


def _layer_logs(which: str, row: Row) -> list[float] | None:
    return [_logarithm(layer[which]) for layer in row["topics"]["attention_by_layer"]] if row["topics"] else None


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
