"""What the benchmark compares: one training step of the same documents, computed in different ways."""

import dataclasses
import time
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

import torch

from topicscope.errors import InputError
from topicscope.model.batch import padded_batch
from topicscope.settings import Data, Model, Part, Settings, Training
from topicscope.settings.training import Engine
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.synthetic.topics import TopicModel
from topicscope.training.loop import Trainer

_ZERO = Part(start="zero", train=False)

# The paper's setting with all of W^K, W^Q, W^V trained: one layer, one-hot embeddings, no biases, Adam, batch 40.
PAPER = Settings(
    data=Data(fresh=True),
    model=Model(
        embedding=Part(start="identity", train=False),
        key_bias=_ZERO,
        query_bias=_ZERO,
        value_bias=_ZERO,
        prediction_bias=_ZERO,
    ),
    training=Training(validate_every=0, snapshots=0),
)


@runtime_checkable
class Contestant(Protocol):
    """A way of training, timed in two parts: laying out documents, and the step itself."""

    seeds: int

    def prepare(self, members: Iterable[MaskedDocuments], steps: int) -> list[Any]:
        """Lay out the documents of some steps."""

    def step(self, batch: Any) -> None:
        """Forward, loss, backward, and the optimiser's update."""


class Ours:
    """One of our engines, for one or more seeds in one tensor."""

    def __init__(self, settings: Settings, seeds: int = 1) -> None:
        self.seeds = seeds
        members = [dataclasses.replace(settings, seed=settings.seed + seed) for seed in range(seeds)]
        self.trainer = Trainer(members, TopicModel.from_settings(settings.data))
        self.trainer.enter_phase()

    def prepare(self, members: Iterable[MaskedDocuments], steps: int) -> list[Any]:
        """Count or pad the documents."""
        return self.trainer.engine.prepare(members, steps)

    def step(self, batch: Any) -> None:
        """As the training loop does it, without what it records."""
        losses = self.trainer.engine.losses(batch)
        float(losses.detach().sum())
        self.trainer.update(losses)


class HuggingFace:
    """A one-layer BertForMaskedLM with default attention and Adam, on batches padded to their longest document.

    It also has a feed-forward layer, LayerNorms, positions and a transform before prediction: the like-for-like
    comparison is that of our two engines.
    """

    def __init__(self, vocabulary: int = 101, width: int = 104) -> None:
        try:
            from transformers import BertConfig, BertForMaskedLM
        except ImportError:
            raise InputError(
                "the benchmark compares with Hugging Face's transformers, which is not installed: "
                'install it with pip install "topicscope[language]".'
            ) from None
        self.seeds = 1
        torch.manual_seed(0)
        self.model = BertForMaskedLM(  # type: ignore[no-untyped-call]
            BertConfig(
                vocab_size=vocabulary,
                hidden_size=width,
                num_hidden_layers=1,
                num_attention_heads=1,
                intermediate_size=width,
                hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0,
            )
        )
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)

    def prepare(self, members: Iterable[MaskedDocuments], steps: int) -> list[Any]:
        """Pad the documents; −100 marks what is not predicted."""
        return [self._batch(batch) for member in members for batch in member.parts(steps)]

    def _batch(self, documents: MaskedDocuments) -> dict[str, torch.Tensor]:
        batch = padded_batch(documents, masked_keys="visible", average="batch")
        labels = torch.full(batch.tokens.shape, -100)
        labels[batch.masked] = batch.words
        return {"input_ids": batch.tokens, "attention_mask": batch.visible.long(), "labels": labels}

    def step(self, batch: Any) -> None:
        """Forward, loss, backward, Adam."""
        loss = self.model(**batch).loss
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def timed_steps(contestant: Contestant, batches: Sequence[Any]) -> list[float]:
    """Seconds of each step, for one seed."""
    seconds = []
    for batch in batches:
        start = time.process_time()
        contestant.step(batch)
        seconds.append((time.process_time() - start) / contestant.seeds)
    return seconds


def engine_settings(settings: Settings, engine: Engine) -> Settings:
    """The settings with one engine forced."""
    return dataclasses.replace(settings, training=dataclasses.replace(settings.training, engine=engine))
