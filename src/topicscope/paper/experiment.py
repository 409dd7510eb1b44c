"""An experiment is a value: settings to train with several seeds, and what comes out of it as arrays.

``paper.running`` trains, and is imported only where that is done: experiments can be named without torch.
"""

import contextlib
import dataclasses
import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from safetensors.numpy import load, save

from topicscope.errors import DivergedError
from topicscope.measure.attention import pair_classes
from topicscope.model.transformer import Transformer, padded_batch
from topicscope.model.weights import Sizes, Weights, initial_weights, part_of
from topicscope.paper.claim import Claim, Drawing, Given, Measurement, Need, Seeds, plain_details
from topicscope.randomness import Purpose, generator
from topicscope.scale import Item, code_digest
from topicscope.settings import Settings
from topicscope.settings.toml import to_table
from topicscope.synthetic.topics import TopicModel
from topicscope.training.batches import BatchStream
from topicscope.training.checkpoints import newest_checkpoint
from topicscope.training.engines import TopicModelEngine, make_engine
from topicscope.training.loop import Ensemble, train_ensemble
from topicscope.training.machine import torch_threads
from topicscope.training.runs import Row, RunFolder, made_with

# Seconds that a document of a step takes on one core for five seeds, one-hot embeddings and uniform attention; and by
# how much more attention and trained embeddings take.
DOCUMENT_SECONDS = 6e-5


ATTENTION_FACTOR = 2.0


EMBEDDING_FACTOR = 1.6


# Classes of (key, query) pairs that attention is averaged over; queries are words, and each position is one pair.
ATTENTION_CLASSES = ("same_word", "same_topic", "different_topic", "mask_key", "itself")


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Settings trained with several seeds. Two experiments with equal settings are trained once."""

    name: str
    """Readable and unique, with slashes: "figure2/squared-adam"."""

    reproduces: str
    """What of the paper it is for: "Figure 2"."""

    settings: Settings
    """All but the seed, which is the ensemble's to choose."""

    topic_words: tuple[tuple[float, ...], ...] = ()
    """A topic-word matrix (a row a topic), instead of a file named in ``settings.data.topic_words``."""

    suffix: ClassVar[str] = ".safetensors"

    @property
    def cost(self) -> float:
        """Seconds that training takes, roughly."""
        model, training = self.settings.model, self.settings.training
        attention = 1.0 if model.uniform else ATTENTION_FACTOR
        embedding = EMBEDDING_FACTOR if model.embedding.train else 1.0
        return DOCUMENT_SECONDS * training.steps * training.batch * attention * embedding

    def key(self, seeds: Seeds) -> dict[str, Any]:
        """Settings, seeds, code and libraries."""
        return experiment_key(self, seeds)

    def compute(self, seeds: Seeds) -> bytes:
        """Train all seeds."""
        return dump(run_experiment(self, seeds))

    def restore(self, content: bytes) -> "Trained":
        """The result as arrays."""
        return restore(content, self)


@dataclass(frozen=True, eq=False)
class Trained:
    """An experiment's result: arrays with a leading ``seed`` axis.

    A run that diverged has NaN from there on, and NaN everywhere in weights, held-out loss and attention.
    """

    settings: Settings
    seeds: tuple[int, ...]

    weights: Mapping[str, Float[np.ndarray, "seed ..."]]
    """Final weights by parameter, as in a checkpoint: "embedding" is W^E⊤ (token, dimension), "value", "key" and
    "query" have a ``layer`` axis after ``seed``."""

    steps: Int[np.ndarray, " row"]
    """The step that each row of the metrics below belongs to; 0 is before the first update, the last is the end."""

    loss: Float[np.ndarray, "seed row"]
    """Loss of the step's own batch, without L2."""

    norms: Mapping[str, Float[np.ndarray, "seed row"]]
    """Frobenius norm of each parameter; layers together."""

    rotation: Float[np.ndarray, "seed row"]
    """(1 − cos)/2 between the first layer's W^V and itself 10 steps earlier; NaN before step 10."""

    contrasts: Mapping[str, Float[np.ndarray, "seed row"]]
    """Same- minus different-topic average: "value" of W^E⊤W^V W^E (first layer), "embedding" of W^E⊤W^E."""

    held_out_loss: Float[np.ndarray, " seed"]
    """Final loss, without L2, on one large set of documents and masks common to all seeds and, for equal data and
    masking settings, to all experiments: differences between experiments are paired."""

    attention: Float[np.ndarray, "seed class"]
    """Final attention (layers and heads averaged) of word queries by ATTENTION_CLASSES: the average over pairs of
    positions, keys that hold [MASK] and a position's pair with itself apart. Attention is multiplied by the document's
    length over the average length, so that uniform attention is the same in all classes. Hidden keys are in no average;
    NaN for a class without a pair."""

    first_gradients: Mapping[str, Float[np.ndarray, " seed"]]
    """Norm of each trained parameter's gradient at the initial weights, on the held-out set (§8.1)."""

    seconds: float
    """What training all seeds took."""

    film: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Matrices over training for the page, where the settings ask for snapshots."""

    word_topics: Int[np.ndarray, " token"] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Topic of each token, −1 for [MASK]."""

    @property
    def value_products(self) -> Float[np.ndarray, "seed token token"]:
        """W^E⊤ W^V W^E of the first layer: what W^V does between tokens; W^V itself for one-hot embeddings."""
        table = self.weights["embedding"].astype(np.float64)
        return table @ self.weights["value"][:, 0].astype(np.float64) @ table.transpose(0, 2, 1)

    @property
    def embedding_products(self) -> Float[np.ndarray, "seed token token"]:
        """E = W^E⊤ W^E."""
        table = self.weights["embedding"].astype(np.float64)
        return table @ table.transpose(0, 2, 1)


# Trained experiments as bytes and back (safetensors: open them with any tool), and what their names are made of.


GROUPS = ("weights", "norms", "contrasts", "first_gradients", "film")


ARRAYS = ("steps", "loss", "rotation", "held_out_loss", "attention", "seconds", "seeds", "word_topics")


def dump(trained: Trained) -> bytes:
    """All arrays under flat names such as ``weights/value``."""
    arrays = {name: np.asarray(getattr(trained, name)) for name in ARRAYS}
    for group in GROUPS:
        arrays |= {f"{group}/{name}": np.asarray(array) for name, array in getattr(trained, group).items()}
    return save({name: np.ascontiguousarray(array) for name, array in arrays.items()})


def restore(content: bytes, experiment: Experiment) -> Trained:
    """What ``dump`` wrote, for the experiment that it belongs to."""
    arrays = load(content)
    groups: dict[str, Any] = {group: {} for group in GROUPS}
    for path, array in arrays.items():
        group, _, name = path.partition("/")
        if name:
            groups[group][name] = array
    plain: dict[str, Any] = {name: arrays[name] for name in ARRAYS}
    plain |= {"seconds": float(arrays["seconds"].item()), "seeds": tuple(arrays["seeds"].tolist())}
    return Trained(settings=experiment.settings, **groups, **plain)


def experiment_key(experiment: Experiment, seeds: Sequence[int]) -> dict[str, Any]:
    """Everything that an experiment's result depends on; its name is not part of it."""
    return {
        "settings": to_table(experiment.settings) | {"seed": None},
        "topic_words": experiment.topic_words,
        "seeds": list(seeds),
        **made_with("paper/experiment.py"),
    }


# Running an experiment: all its seeds are trained, and what claims need is measured and kept as arrays.
#
# ``train_members`` is the one place that trains; everything else works on its weights and metrics.


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
        rotation=columns.of(lambda row: _number_or_nan(row["rotation"][0]) if row["rotation"] else np.nan),
        contrasts={
            "value": columns.of(lambda row: _number_or_nan(row["contrast"]["value"][0])),
            "embedding": columns.of(lambda row: _number_or_nan(row["contrast"]["embedding"])),
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
    from topicscope.reporting.page.folders import find
    from topicscope.reporting.page.runs import film, run_views

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
        found = engine.loss_gradients(engine.losses(batch), names)
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

    def _engine(self, members: Sequence[Weights]) -> tuple[TopicModelEngine, dict[str, torch.Tensor]]:
        """What trained them, on these weights: all members in one tensor."""
        engine = make_engine([self.settings] * len(members), self.topic_model, members)
        return engine, engine.weights


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


def _number_or_nan(value: Any) -> float:
    return np.nan if value is None else float(value)


# Claims, drawings and what they need as work items: what each result depends on, and its form on disk.


# Parts of the package that a measurement or a figure depends on, beside what it needs.
MEASURING = ("settings", "synthetic", "theory", "measure", "paper", "reporting", "randomness.py")


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
