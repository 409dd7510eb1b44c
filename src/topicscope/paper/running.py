"""Running an experiment: all its seeds are trained, and what claims need is measured and kept as arrays.

``train_members`` is the one place that trains; everything else works on its weights and metrics.
"""

import contextlib
import dataclasses
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from topicscope.errors import DivergedError
from topicscope.measure.attention import pair_classes
from topicscope.model.batch import padded_batch
from topicscope.model.transformer import Transformer
from topicscope.model.weights import Sizes, Weights, initial_weights, part_of
from topicscope.paper.experiments import Experiment, Trained
from topicscope.randomness import Purpose, generator
from topicscope.settings import Settings
from topicscope.synthetic.topics import TopicModel
from topicscope.training.checkpoints import newest_checkpoint
from topicscope.training.data import BatchStream
from topicscope.training.engines import Engine, make_engine
from topicscope.training.ensemble import Ensemble, train_ensemble
from topicscope.training.machine import torch_threads
from topicscope.training.runs import Row, RunFolder

# Held-out documents: the same for every seed and experiment of equal data and masking.
HELD_OUT_SEED = 0
HELD_OUT_DOCUMENTS = 4_000
# Documents of them that attention is averaged over, and that gradients at the start are taken on.
ATTENTION_DOCUMENTS = 100
GRADIENT_DOCUMENTS = 400
# Documents a forward pass.
CHUNK = 500


@dataclass(frozen=True, eq=False)
class Member:
    """One seed's run: its final weights, None if it diverged, and the rows logged on the way."""

    weights: dict[str, np.ndarray] | None
    rows: list[Row]


def run_experiment(experiment: Experiment, seeds: Sequence[int]) -> Trained:
    """Train every seed and measure."""
    with tempfile.TemporaryDirectory() as folder:
        settings = _on_one_thread(_with_topic_words(experiment, Path(folder)))
        topic_model = TopicModel.from_settings(settings.data)
        started = time.perf_counter()
        members = train_members(settings, seeds, Path(folder))
        seconds = time.perf_counter() - started
        kept = _film(experiment, Path(folder)) if settings.training.snapshots else {}
    with torch_threads(settings.training.threads):
        probe = _Probe(settings, topic_model)
        starts = [_start(settings, seed, topic_model) for seed in seeds]
        shapes = {name: weight.shape for name, weight in starts[0].items()}
        final = [member.weights or _nothing(shapes) for member in members]
        gradients = probe.gradient_norms(starts)
        losses, attention = probe.losses(final), np.stack([probe.attention(weights) for weights in final])
    steps = np.array([row["step"] for row in max((member.rows for member in members), key=len)], dtype=np.int64)
    columns = _Columns(steps, [member.rows for member in members])
    return Trained(
        settings=experiment.settings,
        seeds=tuple(seeds),
        weights={name: np.stack([weights[name] for weights in final]) for name in shapes},
        steps=steps,
        loss=columns.of(lambda row: row["loss"]),
        norms={name: columns.of(partial(_norm, name)) for name in shapes},
        rotation=columns.of(lambda row: _number(row["rotation"][0]) if row["rotation"] else np.nan),
        contrasts={
            "value": columns.of(lambda row: _number(row["contrast"]["value"][0])),
            "embedding": columns.of(lambda row: _number(row["contrast"]["embedding"])),
        },
        held_out_loss=losses,
        attention=attention,
        first_gradients=gradients,
        seconds=seconds,
        film=kept,
        word_topics=topic_model.word_topics,
    )


def train_members(settings: Settings, seeds: Sequence[int], folder: Path) -> list[Member]:
    """Train all seeds in one tensor; one that diverges does not keep the others from finishing."""
    ensemble = Ensemble(settings=settings, seeds=tuple(seeds))
    with contextlib.suppress(DivergedError):
        train_ensemble(ensemble, folder)
    return [_member(RunFolder(folder / name), settings.training.steps) for name in ensemble.members()]


def _member(run: RunFolder, steps: int) -> Member:
    checkpoint = newest_checkpoint(run.path)
    assert checkpoint is not None
    finished = checkpoint.step == steps
    weights = {name: weight.numpy() for name, weight in checkpoint.weights.items()} if finished else None
    return Member(weights, run.metrics())


def _film(experiment: Experiment, folder: Path) -> dict[str, np.ndarray]:
    """Matrices over training, read from the run folders as the page reads them; none if a run diverged."""
    from topicscope.report.page.folders import find
    from topicscope.report.page.view import film
    from topicscope.report.page.views import run_views

    found = find([folder])
    views = run_views(found.runs, found)
    whole = len(views) == 1 and all(np.isfinite(matrix.frames).all() for matrix in views[0].matrices)
    return film(dataclasses.replace(views[0], name=experiment.name)) if whole else {}


class _Probe:
    """Measures weights on documents that are the same for every seed, and for every experiment on equal documents."""

    def __init__(self, settings: Settings, topic_model: TopicModel) -> None:
        self.settings, self.topic_model = settings, topic_model
        self.sizes = Sizes.of(settings.model, topic_model.vocabulary, topic_model.length[1])
        stream = BatchStream(dataclasses.replace(settings, seed=HELD_OUT_SEED), topic_model)
        self.documents = stream.held_out(HELD_OUT_DOCUMENTS, Purpose.MEASURE)

    @torch.no_grad()
    def losses(self, members: Sequence[Weights]) -> Float[np.ndarray, " seed"]:
        """Each member's loss of eq. 1, without L2; chunks of documents have equal weight."""
        engine, _ = self._engine(members)
        batches = engine.prepare([self.documents] * len(members), steps=HELD_OUT_DOCUMENTS // CHUNK)
        return torch.stack([engine.losses(batch).double() for batch in batches]).mean(dim=0).numpy()

    def gradient_norms(self, members: Sequence[Weights]) -> dict[str, Float[np.ndarray, " seed"]]:
        """The norm of the loss's gradient in every trained parameter; zero where the loss does not depend on it."""
        engine, weights = self._engine(members)
        names = [name for name in weights if part_of(name) in self.settings.model.trained_parts]
        for name in names:
            weights[name].requires_grad_()
        batch = engine.prepare([self.documents.span(0, GRADIENT_DOCUMENTS)] * len(members))[0]
        found = engine.gradients(engine.losses(batch), names)
        zero = torch.zeros(len(members))
        return {
            name: (found[name].flatten(1).norm(dim=1) if name in found else zero).double().numpy() for name in names
        }

    @torch.no_grad()
    def attention(self, weights: Weights) -> Float[np.ndarray, " class"]:
        """Average attention of word queries over the pairs of each class."""
        documents = self.documents.span(0, ATTENTION_DOCUMENTS)
        batch = padded_batch(documents, masked_keys=self.settings.model.masked_keys, average="document")
        model = Transformer(self.settings.model, self.sizes, weights)
        attention = model.attention(batch.tokens, batch.visible).mean(dim=(0, 2)).double().numpy()
        # Uniform attention is 1/N: without this, short documents would count for more in one class than in another.
        attention *= documents.lengths[:, None, None] / np.mean(self.topic_model.length)
        tokens = batch.tokens.numpy()
        present = np.arange(tokens.shape[1]) < documents.lengths[:, None]
        classes = pair_classes(tokens, present, self.topic_model.word_topics)
        word_query = (present & (tokens != 0))[:, None, :]
        to_mask = word_query & (present & (tokens == 0))[:, :, None]
        itself = word_query & np.eye(tokens.shape[1], dtype=bool)
        # A hidden key gets no attention whatever it holds: it says nothing of its class.
        seen = batch.visible.numpy()[:, :, None]
        pairs = (classes.same_word, classes.same_topic, classes.different_topic, to_mask, itself)
        masks = [pair & seen for pair in pairs]
        return np.array([attention[mask].mean() if mask.any() else np.nan for mask in masks])

    def _engine(self, members: Sequence[Weights]) -> tuple[Engine, dict[str, torch.Tensor]]:
        """What trained them, on these weights: all members in one tensor."""
        dtype = torch.float64 if self.settings.training.precision == "float64" else torch.float32
        weights = {
            name: torch.from_numpy(np.stack([member[name] for member in members])).to(dtype) for name in members[0]
        }
        models = [Transformer(self.settings.model, self.sizes, member, dtype=dtype) for member in members]
        return make_engine(self.settings, self.sizes, weights, models), weights


class _Columns:
    """Logged rows of all members as arrays; NaN from where a member diverged."""

    def __init__(self, steps: Int[np.ndarray, " row"], members: list[list[Row]]) -> None:
        self.steps = steps
        self.members = members

    def of(self, pick: Callable[[Row], float]) -> Float[np.ndarray, "seed row"]:
        """One quantity of every row."""
        column = np.full((len(self.members), len(self.steps)), np.nan)
        for place, rows in enumerate(self.members):
            column[place, : len(rows)] = [pick(row) for row in rows]
        return column


def _on_one_thread(settings: Settings) -> Settings:
    """Experiments run side by side in processes, and their numbers must not depend on the machine's cores."""
    return dataclasses.replace(settings, training=dataclasses.replace(settings.training, threads=1))


def _with_topic_words(experiment: Experiment, folder: Path) -> Settings:
    """The settings, with the experiment's own topic-word matrix as the file that they name."""
    if not experiment.topic_words:
        return experiment.settings
    path = folder / "topic_words.npy"
    np.save(path, np.array(experiment.topic_words))
    data = dataclasses.replace(experiment.settings.data, topic_words=str(path), topics=0, words=0)
    return dataclasses.replace(experiment.settings, data=data)


def _start(settings: Settings, seed: int, topic_model: TopicModel) -> Weights:
    return initial_weights(settings.model, topic_model, settings.masking, generator=generator(seed, Purpose.WEIGHTS))


def _nothing(shapes: dict[str, tuple[int, ...]]) -> Weights:
    """The weights of a run that diverged."""
    return {name: np.full(shape, np.nan, dtype=np.float32) for name, shape in shapes.items()}


def _norm(name: str, row: Row) -> float:
    """Of a parameter's layers together."""
    return float(np.linalg.norm(row["norm"][name]))


def _number(value: Any) -> float:
    return np.nan if value is None else float(value)
