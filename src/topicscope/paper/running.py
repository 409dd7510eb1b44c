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
from jaxtyping import Bool, Float, Int

from topicscope.errors import DivergedError
from topicscope.measure.attention import pair_classes
from topicscope.model.batch import padded_batch
from topicscope.model.transformer import Transformer
from topicscope.model.weights import Sizes, Weights, initial_weights
from topicscope.paper.experiments import ATTENTION_CLASSES, Experiment, Trained
from topicscope.randomness import Purpose, generator
from topicscope.settings import Settings
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.synthetic.topics import TopicModel
from topicscope.training.checkpoints import newest_checkpoint
from topicscope.training.data import BatchStream
from topicscope.training.ensemble import Ensemble, train_ensemble
from topicscope.training.objective import losses
from topicscope.training.runs import Row, RunFolder

# Held-out documents: the same for every seed and experiment of equal data and masking.
HELD_OUT_SEED = 0
HELD_OUT_DOCUMENTS = 4_000
# Documents of them that attention is averaged over, and that gradients at the start are taken on.
ATTENTION_DOCUMENTS = 100
GRADIENT_DOCUMENTS = 400
# Documents a forward pass.
CHUNK = 100


@dataclass(frozen=True, eq=False)
class Member:
    """One seed's run: its final weights, None if it diverged, and the rows logged on the way."""

    weights: dict[str, np.ndarray] | None
    rows: list[Row]


def run_experiment(experiment: Experiment, seeds: Sequence[int]) -> Trained:
    """Train every seed and measure."""
    with tempfile.TemporaryDirectory() as folder:
        settings = _with_topic_words(experiment, Path(folder))
        topic_model = TopicModel.from_settings(settings.data)
        started = time.perf_counter()
        members = train_members(settings, seeds, Path(folder))
        seconds = time.perf_counter() - started
        held_out = BatchStream(dataclasses.replace(settings, seed=HELD_OUT_SEED), topic_model).held_out(
            HELD_OUT_DOCUMENTS, Purpose.MEASURE
        )
        measured = [_Measured.of(member, settings, topic_model, held_out) for member in members]
        starts = [_Start.of(settings, seed, topic_model, held_out) for seed in seeds]
    last_rows = max((member.rows for member in members), key=len)
    steps = np.array([row["step"] for row in last_rows], dtype=np.int64)
    columns = _Columns(steps, [member.rows for member in members])
    return Trained(
        settings=experiment.settings,
        seeds=tuple(seeds),
        weights=_stack([member.weights for member in members], starts[0].shapes),
        steps=steps,
        loss=columns.of(lambda row: row["loss"]),
        norms={name: columns.of(partial(_norm, name)) for name in starts[0].norms},
        rotation=columns.of(lambda row: row["rotation"][0] if row["rotation"] else np.nan),
        contrasts={
            "value": columns.of(lambda row: _number(row["contrast"]["value"][0])),
            "embedding": columns.of(lambda row: _number(row["contrast"]["embedding"])),
        },
        held_out_loss=np.array([each.loss for each in measured]),
        attention=np.stack([each.attention for each in measured]),
        first_gradients={name: np.array([start.gradients[name] for start in starts]) for name in starts[0].gradients},
        first_norms={name: np.array([start.norms[name] for start in starts]) for name in starts[0].norms},
        seconds=seconds,
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


@dataclass(frozen=True, eq=False)
class _Measured:
    """What is measured of one member's final weights."""

    loss: float
    attention: Float[np.ndarray, " class"]

    @classmethod
    def of(cls, member: Member, settings: Settings, topic_model: TopicModel, held_out: MaskedDocuments) -> "_Measured":
        if member.weights is None:
            return cls(np.nan, np.full(len(ATTENTION_CLASSES), np.nan))
        model = _model(settings, topic_model, member.weights)
        return cls(_loss(model, settings, held_out), _attention(model, settings, topic_model, held_out))


@dataclass(frozen=True, eq=False)
class _Start:
    """Norms of weights and gradients before the first step."""

    norms: dict[str, float]
    gradients: dict[str, float]
    shapes: dict[str, tuple[int, ...]]

    @classmethod
    def of(cls, settings: Settings, seed: int, topic_model: TopicModel, held_out: MaskedDocuments) -> "_Start":
        draw = generator(seed, Purpose.WEIGHTS)
        weights = initial_weights(settings.model, topic_model, settings.masking, generator=draw)
        model = _model(settings, topic_model, weights)
        _chunk_loss(model, settings, held_out.span(0, GRADIENT_DOCUMENTS)).backward()  # type: ignore[no-untyped-call]
        gradients = {
            name: float(parameter.grad.norm()) if parameter.grad is not None else 0.0
            for name, parameter in model.named_parameters()
            if parameter.requires_grad
        }
        shapes = {name: weight.shape for name, weight in weights.items()}
        return cls({name: float(np.linalg.norm(weight)) for name, weight in weights.items()}, gradients, shapes)


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


def _with_topic_words(experiment: Experiment, folder: Path) -> Settings:
    """The settings, with the experiment's own topic-word matrix as the file that they name."""
    if not experiment.topic_words:
        return experiment.settings
    path = folder / "topic_words.npy"
    np.save(path, np.array(experiment.topic_words))
    data = dataclasses.replace(experiment.settings.data, topic_words=str(path))
    return dataclasses.replace(experiment.settings, data=data)


def _model(settings: Settings, topic_model: TopicModel, weights: Weights) -> Transformer:
    sizes = Sizes.of(settings.model, topic_model.vocabulary, topic_model.length[1])
    return Transformer(settings.model, sizes, {name: weight.astype(np.float64) for name, weight in weights.items()})


@torch.no_grad()
def _loss(model: Transformer, settings: Settings, held_out: MaskedDocuments) -> float:
    """The loss of eq. 1 on the held-out documents."""
    assert len(held_out) % CHUNK == 0
    starts = range(0, len(held_out), CHUNK)
    return float(np.mean([_chunk_loss(model, settings, held_out.span(at, at + CHUNK)).item() for at in starts]))


def _chunk_loss(model: Transformer, settings: Settings, documents: MaskedDocuments) -> torch.Tensor:
    batch = padded_batch(documents, masked_keys=settings.model.masked_keys, average=settings.training.average)
    each = losses(model.predict_masked(batch), batch.words, settings.training.loss)
    return each @ torch.from_numpy(batch.weights).to(each)


@torch.no_grad()
def _attention(
    model: Transformer, settings: Settings, topic_model: TopicModel, held_out: MaskedDocuments
) -> Float[np.ndarray, " class"]:
    """Average attention of word queries over the pairs of each class."""
    documents = held_out.span(0, ATTENTION_DOCUMENTS)
    batch = padded_batch(documents, masked_keys=settings.model.masked_keys, average="document")
    attention = model.attention(batch.tokens, batch.visible).mean(dim=(0, 2)).double().numpy()
    tokens = batch.tokens.numpy()
    present = np.arange(tokens.shape[1]) < documents.lengths[:, None]
    classes = pair_classes(tokens, present, topic_model.word_topics)
    word_query = (present & (tokens != 0))[:, None, :]
    to_mask = word_query & (present & (tokens == 0))[:, :, None]
    itself = word_query & np.eye(tokens.shape[1], dtype=bool)
    masks: tuple[Bool[np.ndarray, "document key query"], ...] = (
        classes.same_word,
        classes.same_topic,
        classes.different_topic,
        to_mask,
        itself,
    )
    return np.array([attention[mask].mean() if mask.any() else np.nan for mask in masks])


def _stack(
    weights: Sequence[dict[str, np.ndarray] | None], shapes: dict[str, tuple[int, ...]]
) -> dict[str, np.ndarray]:
    return {
        name: np.stack([np.full(shape, np.nan, np.float32) if each is None else each[name] for each in weights])
        for name, shape in shapes.items()
    }


def _norm(name: str, row: Row) -> float:
    """Of a parameter's layers together."""
    return float(np.linalg.norm(row["norm"][name]))


def _number(value: Any) -> float:
    return np.nan if value is None else float(value)
