"""An experiment is a value: settings that are trained with several seeds, and what comes out of it as arrays.

On documents of a topic model (:class:`Experiment`) all seeds are trained in memory, in one tensor; on text
(:class:`TextExperiment`) one after another. What claims and figures need is measured and kept, and nothing else.
What trains is imported only where that is done: experiments can be named without torch.
"""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Float, Int
from safetensors.numpy import load, save

from topicscope import scale
from topicscope.errors import DivergedError
from topicscope.files import Row, alone_in
from topicscope.measure.film import film, run_view, together
from topicscope.model.weights import Weights, embedded, initial_weights
from topicscope.paper.claim import PRESETS, Seeds
from topicscope.randomness import Purpose, generator
from topicscope.settings import Settings
from topicscope.settings.text import TextSettings
from topicscope.settings.toml import to_table
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.synthetic.topics import TopicModel
from topicscope.training.batches import BatchStream
from topicscope.training.runs import RunFolder, made_with
from topicscope.training.schedule import measured_steps, steps_with_rows

if TYPE_CHECKING:
    from topicscope.training.engines import TopicModelEngine
    from topicscope.training.runs import MemoryRun
    from topicscope.training.text import Measure, PreparedText

# Seconds per document of a step on one core, for the quick preset's seeds, one-hot embeddings and uniform attention;
# how much more attention, trained embeddings and biases beside one-hot words take; seconds of a snapshot for the page
# and of everything around training. ``benchmarks/reproduce.py`` compares their sum with measured times.
DOCUMENT_SECONDS = 6e-5
ATTENTION_FACTOR = 2.9
EMBEDDING_FACTOR = 2.1
BIAS_FACTOR = 1.6
SNAPSHOT_SECONDS = 0.05
AROUND_SECONDS = 0.6
# Held-out documents, their seed and number, are the same for every seed and experiment of equal data and masking.
HELD_OUT_SEED = 0
HELD_OUT_DOCUMENTS = 4_000
# How many of them attention is averaged over, and gradients at the start are computed on.
ATTENTION_DOCUMENTS = 100
GRADIENT_DOCUMENTS = 400
# Documents per forward pass.
CHUNK = 500
# Classes of (key, query) pairs that attention is averaged over; queries are words, and each position is one pair.
ATTENTION_CLASSES = ("same_word", "same_topic", "different_topic", "mask_key", "itself")

# Parts of the package that a result of training on text depends on.
TEXT_SOURCES = (
    "settings",
    "synthetic",
    "text",
    "model",
    "training",
    "measure",
    "probing",
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
class Experiment:
    """Settings trained with several seeds. Two experiments with equal settings are trained once."""

    name: str
    """Readable and unique, with slashes: "figure2/squared-adam"."""

    settings: Settings
    """All settings except the seed, which the ensemble chooses."""

    topic_words: tuple[tuple[float, ...], ...] = ()
    """A topic-word matrix (one row per topic), instead of the topics that ``settings.data`` describes."""

    most_seeds: int = 0
    """How many of the seeds are trained at most; 0 means all."""

    gradients: bool = False
    """Whether the norms of gradients at the start are kept."""

    suffix: ClassVar[str] = ".safetensors"

    @property
    def cost(self) -> float:
        """Seconds that training takes, roughly."""
        model, training = self.settings.model, self.settings.training
        attention = 1.0 if model.uniform else ATTENTION_FACTOR
        embedding = EMBEDDING_FACTOR if model.embedding.train else BIAS_FACTOR if model.value_bias.train else 1.0
        seeds = min(self.most_seeds, PRESETS["quick"].seeds) / PRESETS["quick"].seeds if self.most_seeds else 1.0
        step = DOCUMENT_SECONDS * training.batch * attention * embedding
        return seeds * (training.steps * step + training.snapshots * SNAPSHOT_SECONDS + AROUND_SECONDS)

    @property
    def topic_model(self) -> TopicModel:
        """The topic model that its documents are drawn from."""
        return TopicModel.from_settings(self.settings.data, np.array(self.topic_words) if self.topic_words else None)

    def key(self, seeds: Seeds) -> dict[str, Any]:
        """Settings, seeds, code and libraries."""
        return {
            "settings": to_table(self.settings) | {"seed": None},
            "topic_words": self.topic_words,
            "seeds": list(self._chosen(seeds)),
            "gradients": self.gradients,
            **made_with("paper/experiment.py"),
        }

    def compute(self, seeds: Seeds) -> bytes:
        """Train all seeds in memory and measure: the fields of ``Trained`` without the settings, as safetensors."""
        from topicscope.training.engines import make_engine
        from topicscope.training.loop import train_in_memory
        from topicscope.training.machine import torch_threads

        seeds = self._chosen(seeds)
        # Experiments run side by side in processes, and their numbers must not depend on the machine's cores.
        training = dataclasses.replace(self.settings.training, threads=1)
        settings, topic_model = dataclasses.replace(self.settings, training=training), self.topic_model
        began = time.perf_counter()
        members = train_in_memory([dataclasses.replace(settings, seed=seed) for seed in seeds], topic_model)
        seconds = time.perf_counter() - began
        starts = [start_weights(settings, seed, topic_model) for seed in seeds]
        diverged = {name: np.full(weight.shape, np.nan, dtype=np.float32) for name, weight in starts[0].items()}
        final = [member.weights or diverged for member in members]
        documents = held_out_documents(settings, topic_model)
        with torch_threads(1):
            at_start, at_end = (make_engine([settings] * len(seeds), topic_model, each) for each in (starts, final))
            gradients = gradient_norms(at_start, documents.span(0, GRADIENT_DOCUMENTS)) if self.gradients else {}
            losses = mean_losses(at_end, documents, CHUNK)
        attention = attention_averages(final, settings, documents.span(0, ATTENTION_DOCUMENTS), topic_model)
        rows = [member.rows for member in members]
        steps = np.array([row["step"] for row in max(rows, key=len)], dtype=np.int64)
        each = partial(column, rows, steps)
        return dump_arrays(
            {
                "seeds": seeds,
                "weights": {name: np.stack([weights[name] for weights in final]) for name in diverged},
                "steps": steps,
                "loss": each(lambda row: row["loss"]),
                "norms": {name: each(lambda row, of=name: np.linalg.norm(row["norm"][of])) for name in diverged},  # type: ignore[misc]
                "rotation": each(lambda row: row["rotation"][0] if row["rotation"] else None),
                "attention_distance": {
                    name: each(lambda row, of=name: row.get("attention", {}).get(of))  # type: ignore[misc]
                    for name in ("words", "mask")
                },
                "modes": {
                    f"{part}-{mode}": each(lambda row, at=(part, mode): _mode(row, *at))  # type: ignore[misc]
                    for part in ("key", "query")
                    for mode in ("mask", "topics")
                },
                "uniform_gain": each(lambda row: row.get("uniform_gain")),
                "contrasts": {
                    "value": each(lambda row: row["contrast"]["value"][0]),
                    "embedding": each(lambda row: row["contrast"]["embedding"]),
                },
                "held_out_loss": losses,
                "attention": attention,
                "first_gradients": gradients,
                "seconds": seconds,
                "film": _film(self, members),
                "word_topics": topic_model.word_topics,
            }
        )

    def restore(self, content: bytes) -> "Trained":
        """The result as arrays."""
        fields = load_arrays(content)
        fields |= {"seconds": float(fields["seconds"].item()), "seeds": tuple(fields["seeds"].tolist())}
        return Trained(settings=self.settings, **fields)

    def _chosen(self, seeds: Seeds) -> Seeds:
        return seeds[: self.most_seeds] if self.most_seeds else seeds


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

    attention_distance: Mapping[str, Float[np.ndarray, "seed row"]]
    """a(t): how far attention of "words" and of "mask" queries is from uniform, in total variation; NaN where it is not
    recorded (``training.record.StageRecorder``), as the two below."""

    modes: Mapping[str, Float[np.ndarray, "seed row"]]
    """Norms of parts of W^K and W^Q: "key-topics" is the part that distinguishes topics, "key-mask" [MASK]'s column."""

    uniform_gain: Float[np.ndarray, "seed row"]
    """g(t): W^V's gain under uniform attention as a share of the gain of the optimum under uniform attention."""

    held_out_loss: Float[np.ndarray, " seed"]
    """Final loss, without L2, on one large set of documents and masks common to all seeds and, for equal data and
    masking settings, to all experiments: differences between experiments are paired."""

    attention: Float[np.ndarray, "seed class"]
    """Final attention (layers and heads averaged) of word queries by ATTENTION_CLASSES: the average over pairs of
    positions, keys that hold [MASK] and a position's pair with itself apart. Attention is multiplied by the document's
    length over the average length, so that uniform attention is the same in all classes. Hidden keys are in no average;
    NaN for a class without a pair."""

    seconds: float
    """Seconds that training all seeds took."""

    first_gradients: Mapping[str, Float[np.ndarray, " seed"]] = field(default_factory=dict)
    """Norm of each trained parameter's gradient at the initial weights, on the held-out set (§8.1), if asked for."""

    film: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Matrices over training for the page, where the settings ask for snapshots and describe the topics."""

    word_topics: Int[np.ndarray, " token"] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Topic of each token, 0 for [MASK]."""

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


def held_out_documents(settings: Settings, topic_model: TopicModel) -> MaskedDocuments:
    """Documents that no seed is trained on."""
    stream = BatchStream(dataclasses.replace(settings, seed=HELD_OUT_SEED), topic_model)
    return stream.held_out(HELD_OUT_DOCUMENTS, Purpose.MEASURE)


def start_weights(settings: Settings, seed: int, topic_model: TopicModel) -> Weights:
    """The weights that a seed begins with."""
    return initial_weights(settings.model, topic_model, settings.masking, generator=generator(seed, Purpose.WEIGHTS))


def mean_losses(engine: "TopicModelEngine", documents: MaskedDocuments, chunk: int) -> Float[np.ndarray, " seed"]:
    """Each seed's loss of eq. 1, without L2; chunks of so many documents have equal weight."""
    import torch

    batches = engine.prepare([documents] * len(engine.members), steps=len(documents) // chunk)
    with torch.no_grad():
        return torch.stack([engine.losses(batch).double() for batch in batches]).mean(dim=0).numpy()


def gradient_norms(engine: "TopicModelEngine", documents: MaskedDocuments) -> dict[str, Float[np.ndarray, " seed"]]:
    """The norm of the loss's gradient in every trained parameter; zero where the loss does not depend on it."""
    for name in engine.trained:
        engine.weights[name].requires_grad_()
    [batch] = engine.prepare([documents] * len(engine.members))
    found = engine.loss_gradients(engine.losses(batch), engine.trained)
    zero = np.zeros(len(engine.members))
    return {
        name: found[name].flatten(1).norm(dim=1).double().numpy() if name in found else zero for name in engine.trained
    }


def attention_averages(
    weights: Sequence[Weights], settings: Settings, documents: MaskedDocuments, topic_model: TopicModel
) -> Float[np.ndarray, "seed class"]:
    r"""Each seed's average attention of word queries by ATTENTION_CLASSES; NaN for a class without a pair.

    One layer without positions attends by tokens alone. With e_kq the exponential of the score of key k and query q,
    c_k how often a document has k as a visible key and n_q how often it has q, pairs of different positions get

    .. math:: \sum_{i \ne j,\; w_i = k,\; w_j = q} A_{ij} = c_k (n_q - [k = q]) \, e_{kq} / \sum_l c_l e_{lq}.
    """
    keys, queries = np.zeros((2, len(documents), topic_model.vocabulary))
    np.add.at(queries, (documents.document, documents.tokens), 1)
    # A hidden key gets no attention whatever it holds, so it says nothing about its class.
    visible = ~documents.masked if settings.model.masked_keys == "hidden" else 1
    np.add.at(keys, (documents.document, documents.tokens), visible)
    topics = topic_model.word_topics
    same_word, word = np.eye(len(topics), dtype=bool), topics > 0
    related = topics[:, None] == topics
    of_words = word[:, None] & word
    classes = (same_word & word, related & ~same_word & of_words, ~related & of_words, ~word[:, None] & word)
    # Uniform attention is 1/N: without this, short documents would count for more in one class than in another.
    lengths = documents.lengths[:, None] / np.mean(topic_model.length)
    pairs = keys.T @ queries - np.diag(keys.sum(axis=0))
    found = np.full((len(weights), len(ATTENTION_CLASSES)), np.nan)
    for seed, each in enumerate(weights):
        tables = {name: weight.astype(np.float64)[None] for name, weight in each.items()}
        inputs = embedded(tables)[0]
        key, query = (inputs @ tables[name][0, 0].T + tables[f"{name}_bias"][0] for name in ("key", "query"))
        scores = key @ query.T / np.sqrt(key.shape[1])
        # Each query's largest score is subtracted, because exponentials of trained scores may be too large.
        powers = np.exp(scores - scores.max(axis=0))
        shares = lengths / (keys @ powers)
        own = np.diag(powers) * (keys * shares).sum(axis=0)
        totals = powers * (keys.T @ (queries * shares)) - np.diag(own)
        found[seed, :-1] = [totals[kind].sum() / pairs[kind].sum() if pairs[kind].any() else np.nan for kind in classes]
        found[seed, -1] = own[word].sum() / keys[:, word].sum()
    return found


def dump_arrays(fields: Mapping[str, Any]) -> bytes:
    """Arrays, and mappings of arrays under flat names such as ``norms/value``: open them with any tool."""
    arrays: dict[str, Any] = {}
    for name, value in fields.items():
        arrays |= (
            {f"{name}/{key}": each for key, each in value.items()} if isinstance(value, Mapping) else {name: value}
        )
    return save({name: np.ascontiguousarray(array) for name, array in arrays.items()})


def load_arrays(content: bytes) -> dict[str, Any]:
    """What ``dump_arrays`` wrote; an empty mapping has left no trace."""
    fields: dict[str, Any] = {}
    for path, array in load(content).items():
        name, _, key = path.partition("/")
        if key:
            fields.setdefault(name, {})[key] = array
        else:
            fields[name] = array
    return fields


def column(
    members: Sequence[Sequence[Row]], steps: Int[np.ndarray, " row"], pick: Callable[[Row], Any], *shape: int
) -> Float[np.ndarray, "seed row *shape"]:
    """One quantity of every row of all members, by step; NaN where there is none, as after a member diverged."""
    found = np.full((len(members), len(steps), *shape), np.nan)
    for place, rows in enumerate(members):
        for row in rows:
            picked = pick(row)
            found[place, np.searchsorted(steps, row["step"])] = np.nan if picked is None else picked
    return found


def _mode(row: Row, part: str, mode: str) -> float | None:
    return row["modes"][part][mode] if "modes" in row else None


def _film(experiment: Experiment, members: "Sequence[MemoryRun]") -> Mapping[str, np.ndarray]:
    """Matrices over training as the page shows them, beside theory's for these settings; none if a run diverged."""
    from topicscope.training.reference import reference_losses, reference_matrices, reference_stages

    diverged = any(member.weights is None for member in members)
    if diverged or experiment.topic_words or not experiment.settings.training.snapshots:
        return {}
    settings, topic_model = members[0].settings, experiment.topic_model
    theory, said = reference_matrices(settings, topic_model)
    stages = reference_stages(settings, topic_model)
    levels = {**reference_losses(settings, topic_model), "matrices": said, "stages": stages}
    views = [
        run_view(
            experiment.name,
            to_table(member.settings),
            member.rows,
            member.snapshots(),
            levels=levels,
            theory=theory,
            word_topics=theory["word_topics"],
        )
        for member in members
    ]
    return film(dataclasses.replace(together(views), name=experiment.name))


# On text.


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
            **scale.made_with(TEXT_SOURCES),
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
        with scale.scratch_folder() as folder, scale.shared_folder() as everybodys, torch_threads(1):
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
    from topicscope.probing.emergence import measuring
    from topicscope.training.text import prepare_text

    content = {"data": asdict(settings.data), "topics": asdict(settings.topics), **scale.made_with(TEXT_SOURCES)}
    shared = folder / f"text-{scale.content_digest(content)}"
    with alone_in(shared):
        prepared = prepare_text(settings.data, shared)
        return prepared, measuring(shared)(prepared, settings) if settings.training.measures else None


def _log(structure: str, which: str, row: Row) -> float:
    return _logarithm(row["topics"][STRUCTURES[structure]][which]) if row["topics"] else np.nan


def _layer_logs(which: str, row: Row) -> list[float] | None:
    return [_logarithm(layer[which]) for layer in row["topics"]["attention_by_layer"]] if row["topics"] else None


def _logarithm(value: float | None) -> float:
    return float(np.log(value)) if value is not None and value > 0 else np.nan
