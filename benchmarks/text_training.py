"""Training on text beside Hugging Face: ``python benchmarks/text_training.py [rounds]`` prints a table.

The same passages with the same masks, the same architecture and weights at the start, the same threads, Adam in both,
in turns, so that whatever else the machine does falls on both. Hugging Face's model has its own loop: batches padded to
their longest passage, scores at all positions, a label of −100 where nothing is predicted, default (fused) attention.
Times are the processor's.
"""

import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from topicscope.model.bert import to_bert
from topicscope.settings import TEXT_MODEL, TEXT_TRAINING, Model, Settings, TextData
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.training.batches import Text
from topicscope.training.engines import Engine, make_engine
from topicscope.training.loop import Trainer, torch_threads
from topicscope.training.text import prepare_text

SIZES = {
    "4 layers, width 128": replace(TEXT_MODEL, dimension=128, feed_forward=512),
    "4 layers, width 256": TEXT_MODEL,
}
DATA = TextData(corpus="wiki-sample", vocabulary=8_000, length=126)
THREADS = 1


class HuggingFace:
    """``BertForMaskedLM`` with our weights, and a training loop as its documentation has it."""

    def __init__(self, engine: Engine, padding: int) -> None:
        weights = {name: weight[0] for name, weight in engine.weights.items()}
        self.model: Any = to_bert(engine.settings.model, weights, padding).train()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=engine.training.learning_rate)
        self.padding = padding

    def step(self, passages: MaskedDocuments) -> float:
        """Padding, forward, loss, backward, Adam."""
        loss = self.model(**self._batch(passages)).loss
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    def _batch(self, passages: MaskedDocuments) -> dict[str, torch.Tensor]:
        present = np.arange(passages.lengths.max()) < passages.lengths[:, None]
        tokens = np.full(present.shape, self.padding, dtype=np.int64)
        labels = np.full(present.shape, -100, dtype=np.int64)
        tokens[present] = passages.tokens
        labels[present] = np.where(passages.masked, passages.words, -100)
        arrays = {"input_ids": tokens, "attention_mask": present.astype(np.int64), "labels": labels}
        return {name: torch.from_numpy(array) for name, array in arrays.items()}


def our_step(trainer: Trainer, passages: MaskedDocuments) -> float:
    """As the training loop does it, without what it records."""
    losses = trainer.engine.losses(trainer.engine.prepare([passages])[0])
    trainer.update(losses)
    trainer.step += 1
    return float(losses.detach())


def compare(model: Model, text: Text, rounds: int) -> tuple[float, float, float]:
    """Tokens a second of processor time, ours and theirs, and the largest difference between their losses."""
    # One mean over all masked positions of a batch, as Hugging Face takes it.
    changes: dict[str, Any] = {
        "batch": 16,
        "threads": THREADS,
        "average": "batch",
        "learning_rate": 1e-4,
        "validate_every": 0,
    }
    engine = make_engine(Settings(data=DATA, model=model, training=replace(TEXT_TRAINING, **changes)), [0], text)
    trainer, theirs = Trainer(engine), HuggingFace(engine, text.specials.padding)
    speeds: tuple[list[float], list[float]] = ([], [])
    apart = 0.0
    for number in range(rounds + 1):
        # Of the passages drawn at once, those of one step.
        passages, losses = engine.streams[0].chunk(number).span(0, 16), []
        for which, step in enumerate((lambda each: our_step(trainer, each), theirs.step)):
            began = time.process_time()
            losses.append(step(passages))
            if number:
                speeds[which].append(len(passages.tokens) / (time.process_time() - began))
        apart = max(apart, abs(losses[0] - losses[1]))
    return statistics.median(speeds[0]), statistics.median(speeds[1]), apart


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    with tempfile.TemporaryDirectory() as folder, torch_threads(THREADS):
        text, _ = prepare_text(DATA, Path(folder))
        print(f"wiki-sample, vocabulary {DATA.vocabulary:,}, batches of 16 passages of {DATA.length} tokens, 1 thread")
        print("| | ours, tokens/s | Hugging Face, tokens/s | ratio | losses apart by |\n|---|---:|---:|---:|---:|")
        for name, model in SIZES.items():
            ours, theirs, apart = compare(model, text, rounds)
            print(f"| {name} | {ours:,.0f} | {theirs:,.0f} | {ours / theirs:.2f} | {apart:.1e} |", flush=True)


if __name__ == "__main__":
    main()
