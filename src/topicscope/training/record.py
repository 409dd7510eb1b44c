"""What training records at steps and in the end: norms, contrasts along topic blocks, how far stages are, matrices.

All are arrays with a leading ``seed`` axis, under the names of a run's metrics, frames and final numbers
(``measure.run``).
"""

import dataclasses
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import float64

from topicscope.measure.attention import attention_by_class
from topicscope.measure.blocks import averages_by_class, product_contrasts
from topicscope.measure.run import Run
from topicscope.measure.stages import mode_norms
from topicscope.model.bert import save_bert, to_bert
from topicscope.model.transformer import Batch, Transformer, padded_batch
from topicscope.model.weights import LAYERED, embedded
from topicscope.randomness import Purpose
from topicscope.settings import Settings
from topicscope.synthetic.documents import Bags, MaskedDocuments
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.cross_entropy import cross_entropy_optimum, uniform_cross_entropy
from topicscope.theory.finite_documents import finite_optimum, moments, population_loss
from topicscope.training.batches import Text, held_out_documents, stream_of
from topicscope.training.engines import Engine, Weights, make_engine
from topicscope.training.reference import LARGEST_VOCABULARY

Numbers = Mapping[str, Float[np.ndarray, "seed ..."]]

# How many steps back W^V's rotation looks (Figure 5).
ROTATION_STEPS = 10
# Attention by class is averaged over this many documents.
FRAME_DOCUMENTS = 32
# At every row attention is compared with uniform attention on this many documents: a thousand word queries, and cheap.
ROW_DOCUMENTS = 8
# Cross-entropy under uniform attention is computed on this many documents, the optimum's and the run's alike.
GAIN_DOCUMENTS = 250
# This ridge keeps the optimum of cross-entropy finite; its cost is far below a thousandth of the gain.
GAIN_RIDGE = 1e-9
# The seed of these documents, which no run has.
ROW_SEED = 2**40
# In the end: documents per forward pass, and how many of them attention is averaged over and gradients at the start
# are computed on.
CHUNK, ATTENTION_DOCUMENTS, GRADIENT_DOCUMENTS = 500, 100, 400


class Recorder:
    """Rows and frames of a run as they grow; what was not recorded, and all of a seed that diverged, is NaN."""

    def __init__(self, run: Run) -> None:
        """The run has what was recorded before."""
        self._run = run
        self._rows = {
            kind: [
                (step, {name: array[:, place] for name, array in arrays.items()}) for place, step in enumerate(steps)
            ]
            for kind, steps, arrays in (
                ("metrics", run.steps.tolist(), run.metrics),
                ("frames", run.frame_steps.tolist(), run.frames),
            )
        }

    def add(self, kind: str, step: int, numbers: Numbers, going: Bool[np.ndarray, " seed"]) -> None:
        """Add a row of "metrics" or "frames"; matrices may be there of the first seed alone."""
        own = {
            name: np.where(going[: len(array)].reshape(-1, *(1,) * (array.ndim - 1)), array, np.nan).astype(array.dtype)
            for name, array in numbers.items()
        }
        self._rows[kind].append((step, own))

    def run(self) -> Run:
        """Everything so far."""
        (steps, metrics), (frame_steps, frames) = (_joined(self._rows[kind]) for kind in ("metrics", "frames"))
        return dataclasses.replace(self._run, steps=steps, metrics=metrics, frame_steps=frame_steps, frames=frames)


def _joined(rows: list[tuple[int, dict[str, np.ndarray]]]) -> tuple[Int[np.ndarray, " row"], dict[str, np.ndarray]]:
    like = {name: array for _, arrays in reversed(rows) for name, array in arrays.items()}
    missing = {name: np.full_like(array, np.nan) for name, array in like.items()}
    joined = {name: np.stack([own.get(name, missing[name]) for _, own in rows], axis=1) for name in sorted(like)}
    return np.array([step for step, _ in rows], dtype=np.int64), joined


def norms(weights: Weights) -> dict[str, Float[np.ndarray, "seed layer"]]:
    """Frobenius norm of every parameter, one per layer."""
    layered = {name: weight if name in LAYERED else weight[:, None] for name, weight in weights.items()}
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
    """What is recorded of an engine's seeds beside losses, norms and rotation, on held-out documents."""

    def __init__(self, engine: Engine, folder: Path | None = None) -> None:
        """On text, snapshots are Hugging Face folders in ``folder``."""
        self._engine, self._folder, self._settings = engine, folder, engine.settings
        self._topic_model = engine.source if isinstance(engine.source, TopicModel) else None
        training, model = engine.settings.training, engine.settings.model
        kept = self._topic_model is not None or (folder is not None and model.is_bert)
        self.frame_steps = snapshot_steps(training.steps, training.snapshots) if kept else frozenset()
        """Steps at which the model is kept to be looked at."""

        # Where attention and all that W^V does follow from pairs of tokens.
        plain = model.layers == model.heads == 1 and model.positions == "none" and not model.uniform
        self._by_token = plain and self._topic_model is not None and engine.source.vocabulary <= LARGEST_VOCABULARY

    @torch.no_grad()
    def numbers(self) -> Numbers:
        """A row: L2's penalty, the contrast along topic blocks, and how far the two stages have come."""
        numbers: dict[str, np.ndarray] = {"penalty": self._engine.penalties()} if self._engine.training.l2 else {}
        if self._topic_model:
            numbers |= contrasts(self._engine.weights, self._topic_model.word_topics)
        if not self._settings.model.uniform:
            numbers |= self._distances()
        return numbers | self._modes_and_gain() if self._by_token else numbers

    @cached_property
    def _documents(self) -> MaskedDocuments | None:
        """The same for all seeds, which are not trained on them; None if a text has no held-out passages."""
        # Held-out passages are the same for every seed.
        text = isinstance(self._engine.source, Text)
        stream = self._engine.streams[0] if text else stream_of(self._settings, ROW_SEED, self._engine.source)
        return stream.held_out(GAIN_DOCUMENTS, Purpose.MEASURE)

    @cached_property
    def _few(self) -> Batch | None:
        """Some of them, row by row: of a text the longest, so that passages of full length are compared."""
        if self._documents is None:
            return None
        lengths = self._documents.lengths
        first = np.argsort(-lengths, kind="stable") if self._topic_model is None else np.arange(len(lengths))
        few, weight = self._documents.select(np.sort(first[:ROW_DOCUMENTS])), self._engine.weights["value"]
        return _rows(few, self._settings).to(weight.device, weight.dtype)

    def _distances(self) -> Numbers:
        r"""Each layer's total variation ½ Σ_k |A_kq − 1/N|, averaged over heads and word (or [MASK]) queries q.

        The N keys of a document are all that can be attended to. It is NaN if there is no such query.
        """
        source, batch = self._engine.source, self._few
        if batch is None:
            return {}
        uniform = (batch.keys.double() / batch.keys.sum(dim=1, keepdim=True))[:, None, :, None]
        distance = np.array(
            [
                ((model.attention(batch.tokens, batch.keys) - uniform).abs().sum(dim=3) / 2).mean(dim=2).cpu().numpy()
                for model in self._engine.models
            ]
        )
        tokens, queries = batch.tokens.cpu().numpy(), batch.queries.cpu().numpy()
        is_word, mask = np.arange(source.vocabulary) > 0, 0
        if isinstance(source, Text):
            is_word, mask = source.specials.is_word, source.specials.mask
        chosen = {"words": queries * is_word[tokens], "mask": queries * (tokens == mask)}
        with np.errstate(invalid="ignore"):
            return {
                f"attention/{name}": np.einsum("sldq,dq->sl", distance, count) / count.sum()
                for name, count in chosen.items()
            }

    @cached_property
    def _gain(self) -> Callable[[Float[np.ndarray, "token token"]], float] | None:
        assert self._topic_model is not None
        assert self._documents is not None
        return uniform_gain(self._settings, self._topic_model, self._documents)

    # A seed that has diverged has numbers that are not finite, which nobody sees.
    @np.errstate(all="ignore")
    def _modes_and_gain(self) -> dict[str, Float[np.ndarray, " seed"]]:
        """Norms of W^K's and W^Q's modes, and g(t), NaN if it is not defined."""
        assert self._topic_model is not None
        arrays = {name: weight.double().numpy() for name, weight in self._engine.weights.items()}
        table, inputs, numbers = arrays["embedding"], embedded(arrays), dict[str, np.ndarray]()
        for name in ("key", "query"):
            tokens = arrays[name][:, 0] @ inputs.transpose(0, 2, 1) + arrays[f"{name}_bias"].transpose(0, 2, 1)
            of_mask, of_topics = mode_norms(tokens, self._topic_model.word_topics)
            numbers |= {f"modes/{name}-mask": of_mask, f"modes/{name}-topics": of_topics}
        # Frequencies sum to one, so a bias of the prediction is the same as one added to every column of W^V.
        bias = np.einsum("std,sd->st", table, arrays["value_bias"][:, 0]) + arrays["prediction_bias"]
        products = table @ arrays["value"][:, 0] @ table.transpose(0, 2, 1) + bias[:, :, None]
        gains = np.array([self._gain(product) if self._gain else np.nan for product in products])
        return numbers | {"uniform_gain": gains}

    def frame(self, step: int) -> Numbers:
        """W^E⊤W^V W^E, W^E⊤W^E and attention, always on the same held-out documents; nothing on text, where it saves.

        What it saves is the first seed's model. Of matrices it keeps the first seed's, and all seeds' averages by class
        of entry.
        """
        if self._topic_model is None:
            assert self._folder is not None
            export(self._engine, self._folder / f"step-{step}")
            return {}
        by_seed = [own.averages(model) for own, model in zip(self._by_class, self._engine.models, strict=True)]
        frame = {"attention": np.array(by_seed, dtype=np.float32)[:, :3]}
        word_topics, embedding = self._topic_model.word_topics, self._settings.model.embedding
        if len(word_topics) > LARGEST_VOCABULARY:
            return frame
        table, values = (self._engine.weights[name] for name in ("embedding", "value"))
        # Of each layer, what W^V does between tokens: W^V itself if embeddings are one-hot.
        matrices = {"value_products": values}
        if embedding.train or embedding.start != "identity":
            matrices["value_products"] = table[:, None] @ values @ table.mT[:, None]
            matrices["embedding_products"] = (table @ table.mT)[:, None]
        for name, tensor in matrices.items():
            products = tensor.float().numpy()
            frame[name] = products[:1].copy()
            frame[f"averages/{name}"] = np.array(
                [[averages_by_class(matrix, word_topics) for matrix in layers] for layers in products]
            )
        return frame

    @cached_property
    def _by_class(self) -> "list[AttentionByClass]":
        """Each seed has documents of its own."""
        assert self._topic_model is not None
        documents = (stream.held_out(FRAME_DOCUMENTS, Purpose.MEASURE) for stream in self._engine.streams)
        return [AttentionByClass(own, self._settings, self._topic_model) for own in documents if own is not None]


def export(engine: Engine, folder: Path, tokenizer: Path | None = None) -> None:
    """Save the first seed's model as a Hugging Face folder."""
    assert isinstance(engine.source, Text)
    weights = {name: weight[0].cpu() for name, weight in engine.weights.items()}
    save_bert(to_bert(engine.settings.model, weights, engine.source.specials.padding), folder, tokenizer)


def contrasts(weights: Weights, word_topics: Int[np.ndarray, " token"]) -> dict[str, Float[np.ndarray, "seed ..."]]:
    """Same- minus different-topic averages of W^E⊤ W^V W^E (one per layer) and of W^E⊤ W^E, if both classes exist."""
    table, values = weights["embedding"].double().numpy()[:, None], weights["value"].double().numpy()
    by_layer, alone = (product_contrasts(rows, table, word_topics) for rows in (table @ values, table))
    return {} if by_layer is None or alone is None else {"contrast/value": by_layer, "contrast/embedding": alone[:, 0]}


def uniform_gain(
    settings: Settings, topic_model: TopicModel, documents: MaskedDocuments
) -> Callable[[Float[np.ndarray, "token token"]], float] | None:
    """g: the gain of W^V under uniform attention as a share of the gain of the optimum under uniform attention.

    The gain is that over predicting nothing (W^V = 0), without L2. It is exact for the squared loss; for cross-entropy
    both losses are computed on the same documents. Biases count as part of W^V, and add
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


class AttentionByClass:
    """Average attention by class of word pairs, from all pairs of positions of some documents."""

    def __init__(self, documents: MaskedDocuments, settings: Settings, topic_model: TopicModel) -> None:
        self._word_topics, self._batch = topic_model.word_topics, _rows(documents, settings)
        # Uniform attention is 1/N: without this, short documents would count for more in one class than in another.
        self._shares = (documents.lengths / np.mean(topic_model.length))[None, :, None, None, None]

    @torch.no_grad()
    def averages(self, model: Transformer) -> Float[np.ndarray, "class layer head"]:
        """Average attention over the pairs of each class."""
        batch = self._batch
        attention = model.attention(batch.tokens, batch.keys).numpy() * self._shares
        tokens, keys, queries = (part.numpy() for part in (batch.tokens, batch.keys, batch.queries))
        return attention_by_class(attention, tokens, keys, queries, self._word_topics)


def _rows(documents: MaskedDocuments, settings: Settings) -> Batch:
    """Documents row by row; without positions in the model far fewer rows give the same."""
    return padded_batch(documents, masked_keys=settings.model.masked_keys, distinct=settings.model.positions == "none")


# In the end. The documents are the same for every seed, and for all experiments of equal data and masking: differences
# are paired.


def final_measures(
    engine: Engine, topic_model: TopicModel, *, gradients: bool
) -> dict[str, Float[np.ndarray, "seed ..."]]:
    """Loss and attention of each seed; with ``gradients``, also the norms of gradients at its initial weights."""
    settings, documents = engine.settings, held_out_documents(engine.settings, topic_model)
    by_class = AttentionByClass(documents.span(0, ATTENTION_DOCUMENTS), settings, topic_model)
    measures = {
        "held_out_loss": mean_losses(engine, documents, CHUNK),
        # Layers and heads averaged.
        "attention": np.array([by_class.averages(model).mean(axis=(1, 2)) for model in engine.models]),
    }
    if gradients:
        first = make_engine(settings, engine.seeds, topic_model)
        norms = gradient_norms(first, documents.span(0, GRADIENT_DOCUMENTS))
        measures |= {f"first_gradients/{part}": norm for part, norm in norms.items()}
    return measures


@torch.no_grad()
def mean_losses(engine: Engine, documents: MaskedDocuments, chunk: int) -> Float[np.ndarray, " seed"]:
    """Each seed's loss of eq. 1, without L2; chunks of so many documents have equal weight."""
    batches = engine.prepare([documents] * len(engine.seeds), steps=len(documents) // chunk)
    return torch.stack([engine.losses(batch).double() for batch in batches]).mean(dim=0).numpy()


def gradient_norms(engine: Engine, documents: MaskedDocuments) -> dict[str, Float[np.ndarray, " seed"]]:
    """The norm of the loss's gradient in every trained parameter; zero where the loss does not depend on it."""
    [batch] = engine.prepare([documents] * len(engine.seeds))
    gradients = engine.loss_gradients(engine.losses(batch), engine.trained)
    norms = {name: gradient.flatten(1).norm(dim=1).double().numpy() for name, gradient in gradients.items()}
    return {name: np.zeros(len(engine.seeds)) for name in engine.trained} | norms
