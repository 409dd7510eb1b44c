"""What training records at steps and in the end: norms, contrasts along topic blocks, how far stages are, matrices.

All are arrays with a leading ``seed`` axis, under the names of a run's metrics, frames and final numbers
(``measure.run``).
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import float64

from topicscope.measure.attention import attention_by_class
from topicscope.measure.blocks import averages_by_class, product_contrasts
from topicscope.measure.run import Run
from topicscope.measure.stages import distance_from_uniform, mode_norms
from topicscope.model.bert import save_bert, to_bert
from topicscope.model.transformer import Transformer, padded_batch
from topicscope.model.weights import UNLAYERED, embedded
from topicscope.model.weights import Weights as Arrays
from topicscope.randomness import Purpose
from topicscope.settings import Settings
from topicscope.synthetic.documents import Bags, MaskedDocuments
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.cross_entropy import cross_entropy_optimum, uniform_cross_entropy
from topicscope.theory.finite_documents import finite_optimum, moments, population_loss
from topicscope.training.batches import BatchStream, Text, held_out_documents, stream_of
from topicscope.training.engines import Engine, Weights, make_engine

Numbers = Mapping[str, Float[np.ndarray, "seed ..."]]

# How many steps back W^V's rotation looks (Figure 5).
ROTATION_STEPS = 10
# V × V matrices up to this size can be looked at entry by entry.
LARGEST_VOCABULARY = 512
# Attention is averaged over this many documents.
DOCUMENTS = 32
# At every row attention is compared with uniform attention on this many documents: a thousand word queries, and cheap.
STAGE_DOCUMENTS = 8
# Cross-entropy under uniform attention is computed on this many documents, the optimum's and the run's alike.
GAIN_DOCUMENTS = 250
# This ridge keeps the optimum of cross-entropy finite; its cost is far below a thousandth of the gain.
GAIN_RIDGE = 1e-9
# The seed of these documents, which no run has.
STAGE_SEED = 2**40
# In the end: documents per forward pass, and how many of them attention is averaged over and gradients at the start
# are computed on.
CHUNK, ATTENTION_DOCUMENTS, GRADIENT_DOCUMENTS = 500, 100, 400


class Recorder:
    """Rows and frames of a run as they grow; what was not recorded, and all of a seed that diverged, is NaN."""

    def __init__(self, run: Run) -> None:
        """The run has what was recorded before."""
        self._run = run
        self._rows = _apart(run.steps, run.metrics)
        self._frames = _apart(run.frame_steps, run.frames)

    def add(self, step: int, numbers: Numbers, going: Bool[np.ndarray, " seed"]) -> None:
        """Add a row of metrics, of the seeds that have not diverged."""
        self._rows.append((step, _of_seeds(numbers, going)))

    def add_frame(self, step: int, arrays: Numbers, going: Bool[np.ndarray, " seed"]) -> None:
        """Add a frame."""
        self._frames.append((step, _of_seeds(arrays, going)))

    def run(self) -> Run:
        """Everything so far."""
        (steps, metrics), (frame_steps, frames) = _joined(self._rows), _joined(self._frames)
        return dataclasses.replace(self._run, steps=steps, metrics=metrics, frame_steps=frame_steps, frames=frames)


Rows = list[tuple[int, dict[str, np.ndarray]]]


def _apart(steps: Int[np.ndarray, " row"], arrays: Mapping[str, np.ndarray]) -> Rows:
    return [
        (step, {name: array[:, place] for name, array in arrays.items()}) for place, step in enumerate(steps.tolist())
    ]


def _joined(rows: Rows) -> tuple[Int[np.ndarray, " row"], dict[str, np.ndarray]]:
    like = {name: array for _, arrays in reversed(rows) for name, array in arrays.items()}
    missing = {name: np.full_like(array, np.nan) for name, array in like.items()}
    joined = {name: np.stack([own.get(name, missing[name]) for _, own in rows], axis=1) for name in sorted(like)}
    return np.array([step for step, _ in rows], dtype=np.int64), joined


def _of_seeds(arrays: Numbers, going: Bool[np.ndarray, " seed"]) -> dict[str, np.ndarray]:
    """Matrices may be there for the first seeds only."""
    return {
        name: np.where(going[: len(array)].reshape(-1, *(1,) * (array.ndim - 1)), array, np.nan).astype(array.dtype)
        for name, array in arrays.items()
    }


def norms(weights: Weights) -> dict[str, Float[np.ndarray, "seed layer"]]:
    """Frobenius norm of every parameter, one per layer."""
    layered = {
        name: weight if weight.dim() > 2 and name not in (*UNLAYERED, "positions", "head") else weight[:, None]
        for name, weight in weights.items()
    }
    return {
        f"norm/{name}": weight.detach().cpu().flatten(start_dim=2).norm(dim=2, dtype=float64).numpy()
        for name, weight in layered.items()
    }


def snapshot_steps(steps: int, count: int) -> frozenset[int]:
    """Step 0 and at most ``count`` − 1 more: half of them evenly spaced, for what comes late, half logarithmically.

    If ``count`` is 1, it is the last step alone.
    """
    if count < 2:
        return frozenset({steps} if count else ())
    even = np.linspace(0, steps, num=count // 2 + 1).round().astype(int)
    early = np.geomspace(1, steps, num=count - count // 2).round().astype(int)
    # The last is among the even ones; geomspace would put it at its beginning if it is the only one.
    return frozenset({0, *early.tolist()[:-1], *even.tolist()})


class Measures:
    """What is recorded of an engine's seeds beside losses, norms and rotation."""

    def __init__(self, engine: Engine, folder: Path | None = None) -> None:
        """On text, snapshots are Hugging Face folders in ``folder``."""
        self._engine, self._folder = engine, folder
        self._topic_model = engine.source if isinstance(engine.source, TopicModel) else None
        training, model = engine.settings.training, engine.settings.model
        kept = self._topic_model is not None or (folder is not None and model.is_bert)
        self.frame_steps = snapshot_steps(training.steps, training.snapshots) if kept else frozenset()
        """Steps at which the model is kept to be looked at."""

    @cached_property
    def _stages(self) -> "StageRecorder | AttentionDistances | None":
        settings = self._engine.settings
        if self._topic_model and StageRecorder.can(settings, self._topic_model.vocabulary):
            return StageRecorder(settings, self._topic_model)
        measured = not settings.model.uniform and (settings.engine == "reference" or not self._topic_model)
        return AttentionDistances(self._engine) if measured else None

    @cached_property
    def _snapshot_taker(self) -> "SnapshotTaker":
        return SnapshotTaker(self._engine.streams)  # type: ignore[arg-type]  # documents of a topic model

    @torch.no_grad()
    def numbers(self) -> Numbers:
        """L2's penalty, the contrast along topic blocks, and how far the two stages have come."""
        weights = self._engine.weights
        penalty = {"penalty": self._engine.penalties()} if self._engine.training.l2 else {}
        blocks = contrasts(weights, self._topic_model.word_topics) if self._topic_model else {}
        return penalty | blocks | dict(self._stages.numbers(weights) if self._stages else {})

    def frame(self, step: int) -> Numbers:
        """W^E⊤W^V W^E, W^E⊤W^E and attention, always on the same held-out documents; nothing on text, where it saves.

        What it saves is the first seed's model.
        """
        if self._topic_model:
            return self._snapshot_taker.take(self._engine.models)
        assert self._folder is not None
        export(self._engine, self._folder / f"step-{step}")
        return {}


def export(engine: Engine, folder: Path, tokenizer: Path | None = None) -> None:
    """Save the first seed's model as a Hugging Face folder."""
    assert isinstance(engine.source, Text)
    weights = {name: weight[0].detach().cpu() for name, weight in engine.weights.items()}
    save_bert(to_bert(engine.settings.model, weights, engine.source.specials.padding), folder, tokenizer)


def contrasts(weights: Weights, word_topics: Int[np.ndarray, " token"]) -> dict[str, Float[np.ndarray, "seed ..."]]:
    """Same- minus different-topic averages of W^E⊤ W^V W^E (one per layer) and of W^E⊤ W^E, if both classes exist."""
    table = weights["embedding"].detach().double().numpy()[:, None]
    values = weights["value"].detach().double().numpy()
    by_layer, alone = (product_contrasts(rows, table, word_topics) for rows in (table @ values, table))
    return {} if by_layer is None or alone is None else {"contrast/value": by_layer, "contrast/embedding": alone[:, 0]}


class StageRecorder:
    """Measures at each row how far attention is from uniform, and how much W^V alone has gained.

    This is for one layer without positions, where attention follows from pairs of tokens. The documents are the same
    for all seeds, and none of them is trained on.
    """

    def __init__(self, settings: Settings, topic_model: TopicModel) -> None:
        stream = BatchStream(dataclasses.replace(settings, seed=STAGE_SEED), topic_model)
        documents = stream.held_out(GAIN_DOCUMENTS, Purpose.MEASURE)
        self.documents = few = documents.span(0, STAGE_DOCUMENTS)
        hidden = settings.model.masked_keys == "hidden"
        self._keys, self._queries = np.zeros((2, STAGE_DOCUMENTS, topic_model.vocabulary), dtype=np.int64)
        np.add.at(self._queries, (few.document, few.tokens), 1)
        np.add.at(self._keys, (few.document, few.tokens), ~few.masked if hidden else 1)
        self._word_topics = topic_model.word_topics
        self._gain = uniform_gain(settings, topic_model, documents)

    @staticmethod
    def can(settings: Settings, vocabulary: int) -> bool:
        """Whether there is attention to measure, and by tokens alone."""
        model = settings.model
        plain = model.layers == 1 and model.heads == 1 and model.positions == "none"
        return plain and not model.uniform and vocabulary <= LARGEST_VOCABULARY

    # A seed that has diverged has numbers that are not finite, which nobody sees.
    @np.errstate(all="ignore")
    def numbers(self, weights: Weights) -> dict[str, Float[np.ndarray, "seed ..."]]:
        """a(t) of word and of [MASK] queries, norms of W^K's and W^Q's modes, and g(t), NaN if it is not defined."""
        arrays = {name: weight.detach().double().cpu().numpy() for name, weight in weights.items()}
        table, inputs = arrays["embedding"], embedded(arrays)
        key, query = (
            inputs @ arrays[name][:, 0].transpose(0, 2, 1) + arrays[f"{name}_bias"] for name in ("key", "query")
        )
        scores = key @ query.transpose(0, 2, 1) / np.sqrt(key.shape[-1])
        words, mask = distance_from_uniform(scores, self._keys, self._queries)
        modes: dict[str, np.ndarray] = {}
        for name, tokens in (("key", key), ("query", query)):
            of_mask, of_topics = mode_norms(tokens.transpose(0, 2, 1), self._word_topics)
            modes |= {f"modes/{name}-mask": of_mask, f"modes/{name}-topics": of_topics}
        # Frequencies sum to one, so a bias of the prediction is the same as one added to every column of W^V.
        bias = np.einsum("std,sd->st", table, arrays["value_bias"][:, 0]) + arrays["prediction_bias"]
        products = table @ arrays["value"][:, 0] @ table.transpose(0, 2, 1) + bias[:, :, None]
        gains = np.array([self._gain(product) if self._gain else np.nan for product in products])
        return {"attention/words": words[:, None], "attention/mask": mask[:, None], "uniform_gain": gains, **modes}


def uniform_gain(
    settings: Settings, topic_model: TopicModel, documents: MaskedDocuments
) -> Callable[[Float[np.ndarray, "token token"]], float] | None:
    """g: the gain of W^V under uniform attention as a share of the gain of the optimum under uniform attention.

    The gain is that over predicting nothing (W^V = 0), without L2. It is exact for the squared loss; for cross-entropy
    both losses are computed on the same documents. Biases count as part of W^V (``StageRecorder.rows``), and add
    nothing to the optimum. It is None where the optimum is not known: with hidden keys, START and END or parts beyond
    eq. 6, and for cross-entropy with words that are not equally likely or the average over a batch.
    """
    model, loss = settings.model, settings.training.loss
    if model.masked_keys == "hidden" or model.residual or model.extras or topic_model.ends:
        return None
    if loss == "squared":
        exact = moments(topic_model, settings.masking, settings.training.average)
        best = population_loss(finite_optimum(exact), exact)
        return lambda matrix: (1 - population_loss(matrix, exact)) / (1 - best)
    if topic_model.equal_words is None or settings.training.average != "document":
        return None
    bags = Bags.of(documents, topic_model.vocabulary)
    best = cross_entropy_optimum(bags, topic_model.topics, topic_model.equal_words, GAIN_RIDGE).objective
    nothing = float(np.log(topic_model.vocabulary))
    return lambda matrix: (nothing - uniform_cross_entropy(matrix, bags)) / (nothing - best)


class AttentionDistances:
    """How far each layer's attention is from uniform, always on the same held-out documents."""

    def __init__(self, engine: Engine) -> None:
        settings, source = engine.settings, engine.source
        self._models, self._settings = engine.models, settings
        # Held-out passages are the same for every seed.
        stream = engine.streams[0] if isinstance(source, Text) else stream_of(settings, STAGE_SEED, source)
        documents = stream.held_out(GAIN_DOCUMENTS, Purpose.MEASURE)
        self._batch = None
        if documents is None:
            return
        # The longest, so that passages of full length are compared.
        longest = np.argsort(-documents.lengths, kind="stable")[:STAGE_DOCUMENTS]
        chosen = documents.select(np.sort(longest))
        batch = padded_batch(chosen, masked_keys=settings.model.masked_keys, average="document")
        weight = engine.weights["value"]
        self._batch = batch.to(weight.device, weight.dtype)
        tokens, present = batch.tokens.numpy(), np.arange(batch.tokens.shape[1]) < chosen.lengths[:, None]
        mask, is_word = 0, np.arange(source.vocabulary) > 0
        if isinstance(source, Text):
            mask, is_word = source.specials.mask, source.specials.is_word
        self._queries = {"words": present & is_word[tokens], "mask": present & (tokens == mask)}

    @torch.no_grad()
    def numbers(self, weights: Weights) -> dict[str, Float[np.ndarray, "seed layer"]]:
        r"""Each layer's total variation ½ Σ_k |A_kq − 1/N|, averaged over heads and word (or [MASK]) queries q.

        The N keys of a document are all that can be attended to. It is NaN if there is no such query.
        """
        if self._batch is None:
            return {}
        visible = self._batch.visible
        uniform = (visible / visible.sum(dim=1, keepdim=True))[:, None, :, None]
        seeds = []
        for model in self._models:
            attention = model.attention(self._batch.tokens, visible)
            distance = ((attention - uniform).abs().sum(dim=3) / 2).mean(dim=2).double().cpu().numpy()
            seeds.append(distance)
        return {
            f"attention/{name}": np.array(
                [[layer[chosen].mean() if chosen.any() else np.nan for layer in own] for own in seeds]
            )
            for name, chosen in self._queries.items()
        }


class SnapshotTaker:
    """Matrices of all seeds as they are, always on the same held-out documents."""

    def __init__(self, streams: Sequence[BatchStream]) -> None:
        settings, self._word_topics = streams[0].settings, streams[0].topic_model.word_topics
        model = settings.model
        self._embedding_moves = model.embedding.train or model.embedding.start != "identity"
        self._attention = [
            AttentionByClass(stream.held_out(DOCUMENTS, Purpose.MEASURE), settings, stream.topic_model)
            for stream in streams
        ]

    @torch.no_grad()
    def take(self, models: Sequence[Transformer]) -> dict[str, np.ndarray]:
        """The first seed's W^E⊤W^V W^E and W^E⊤W^E, all seeds' averages by class of entry, and attention."""
        by_seed = [attention.averages(model) for attention, model in zip(self._attention, models, strict=True)]
        frame = {"attention": np.array(by_seed, dtype=np.float32)[:, :3]}
        if len(self._word_topics) > LARGEST_VOCABULARY:
            return frame
        tables = torch.stack([model.parameter("embedding") for model in models])
        values = torch.stack([model.parameter("value") for model in models])
        # Of each layer, what W^V does between tokens: W^V itself if embeddings are one-hot.
        matrices = {"value_products": tables[:, None] @ values @ tables.mT[:, None]}
        if self._embedding_moves:
            matrices["embedding_products"] = (tables @ tables.mT)[:, None]
        else:
            matrices["value_products"] = values
        for name, tensor in matrices.items():
            products = tensor.float().numpy()
            frame[name] = products[:1].copy()
            frame[f"averages/{name}"] = np.array(
                [[averages_by_class(matrix, self._word_topics) for matrix in layers] for layers in products]
            )
        return frame


class AttentionByClass:
    """Average attention by class of word pairs, from all pairs of positions of some documents.

    Without positions in the model it is computed from distinct tokens and their counts: the result is the same, from
    far fewer pairs.
    """

    def __init__(self, documents: MaskedDocuments, settings: Settings, topic_model: TopicModel) -> None:
        self._word_topics = topic_model.word_topics
        # Uniform attention is 1/N: without this, short documents would count for more in one class than in another.
        shares = documents.lengths / np.mean(topic_model.length)
        self._shares = shares[None, :, None, None, None]
        hidden = settings.model.masked_keys == "hidden"
        if settings.model.positions != "none":
            batch = padded_batch(documents, masked_keys=settings.model.masked_keys, average="document")
            present = np.arange(batch.tokens.shape[1]) < documents.lengths[:, None]
            self._rows = batch.tokens.numpy(), batch.visible.numpy().astype(np.int64), present.astype(np.int64)
            return
        vocabulary = topic_model.vocabulary
        distinct, number, total = np.unique(
            documents.document * vocabulary + documents.tokens, return_inverse=True, return_counts=True
        )
        visible = np.bincount(number[~documents.masked], minlength=len(distinct)) if hidden else total
        document, token = np.divmod(distinct, vocabulary)
        slot = np.arange(len(distinct)) - np.searchsorted(document, document)
        grids = np.zeros((3, len(documents), slot.max() + 1), dtype=np.int64)
        grids[:, document, slot] = token, visible, total
        self._rows = tuple(grids)

    @torch.no_grad()
    def averages(self, model: Transformer) -> Float[np.ndarray, "class layer head"]:
        """Average attention over the pairs of each class."""
        tokens, keys, queries = self._rows
        attention = model.attention(torch.from_numpy(tokens), torch.from_numpy(keys)).numpy()
        return attention_by_class(attention * self._shares, tokens, keys, queries, self._word_topics)


# In the end. The documents are the same for every seed, and for all experiments of equal data and masking: differences
# are paired.


def final_measures(
    settings: Settings, topic_model: TopicModel, weights: Sequence[Arrays], *, starts: Sequence[Arrays] = ()
) -> dict[str, Float[np.ndarray, "seed ..."]]:
    """Loss and attention at each seed's final weights; norms of gradients at its initial weights, if they are given."""
    documents, seeds = held_out_documents(settings, topic_model), range(len(weights))
    by_class = AttentionByClass(documents.span(0, ATTENTION_DOCUMENTS), settings, topic_model)
    models = (Transformer(settings.model, arrays, dtype=torch.float64) for arrays in weights)
    measures = {
        "held_out_loss": mean_losses(make_engine(settings, seeds, topic_model, weights), documents, CHUNK),
        # Layers and heads averaged.
        "attention": np.array([by_class.averages(model).mean(axis=(1, 2)) for model in models]),
    }
    if starts:
        engine = make_engine(settings, seeds, topic_model, starts)
        first = gradient_norms(engine, documents.span(0, GRADIENT_DOCUMENTS))
        measures |= {f"first_gradients/{part}": norm for part, norm in first.items()}
    return measures


def mean_losses(engine: Engine, documents: MaskedDocuments, chunk: int) -> Float[np.ndarray, " seed"]:
    """Each seed's loss of eq. 1, without L2; chunks of so many documents have equal weight."""
    batches = engine.prepare([documents] * len(engine.seeds), steps=len(documents) // chunk)
    with torch.no_grad():
        return torch.stack([engine.losses(batch).double() for batch in batches]).mean(dim=0).numpy()


def gradient_norms(engine: Engine, documents: MaskedDocuments) -> dict[str, Float[np.ndarray, " seed"]]:
    """The norm of the loss's gradient in every trained parameter; zero where the loss does not depend on it."""
    for name in engine.trained:
        engine.weights[name].requires_grad_()
    [batch] = engine.prepare([documents] * len(engine.seeds))
    gradients = engine.loss_gradients(engine.losses(batch), engine.trained)
    found = {name: gradient.flatten(1).norm(dim=1).double().numpy() for name, gradient in gradients.items()}
    return {name: found.get(name, np.zeros(len(engine.seeds))) for name in engine.trained}
