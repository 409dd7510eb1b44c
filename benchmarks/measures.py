"""What the probe's statistics cost, as a share of MiniLM's own forward pass: ``python benchmarks/measures.py``.

That is all that is summed of attention and hidden states: thresholds, assignments, LDA seeds, matching, permutations.
"""

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from safetensors.numpy import load

from topicscope.probing.models import HuggingFaceModel, Loading, Outputs, model_tokenizer
from topicscope.probing.passes import Text, attention_sums
from topicscope.probing.settings import Machine, ProbeSettings, TopicOptions
from topicscope.probing.sources import find_model
from topicscope.probing.study import CPU_BATCH, MOST_HIDDEN, PASSAGES, Ground, ModelStudy, Study, word_map
from topicscope.text.corpora import open_corpus
from topicscope.work import WORKER_ENVIRONMENT


class Timed:
    """A model that notes how long its forward passes take."""

    def __init__(self, model: HuggingFaceModel) -> None:
        self.model, self.seconds = model, 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def run(self, passages: Sequence[Int[np.ndarray, " _"]]) -> Outputs:
        began = time.process_time()
        found = self.model.run(passages)
        self.seconds += time.process_time() - began
        return found


def compare_forward(passages: int = PASSAGES) -> None:
    """A shard at the probe's defaults on wiki-sample; LDA's iterations are few, for its topics hardly matter here."""
    torch.set_num_threads(1)
    machine = Machine(device="cpu", workers=1)
    settings = ProbeSettings(topics=TopicOptions(iterations=20))
    source = find_model("minilm")
    tokenizer = model_tokenizer(source)
    model = HuggingFaceModel(source, tokenizer.special, Loading("cpu", length=settings.text.length))
    with tempfile.TemporaryDirectory() as folder:
        ground = Ground(settings, open_corpus("wiki-sample"), machine, Path(folder))
        study = Study(ground, tokenizer, [ModelStudy(0, model, word_map(model, tokenizer, (), None))])
        every = -(-len(study.chosen) // MOST_HIDDEN)
        texts = [
            Text(
                np.array(study.passages[place]),
                np.array(study.passages.spelled(place)),
                int(study.passages.articles[place]),
                hidden=number % every == 0,
            )
            for number, place in enumerate(study.chosen[:: len(study.chosen) // passages][:passages].tolist())
        ]
        centre = load(study.vectors(model).argument.measure())["centre"]
    plan = study.plan
    # A worker's first shard also makes the plan's tables and takes memory that it keeps.
    attention_sums(model, texts, plan=plan, batch=CPU_BATCH, centre=centre)
    timed = Timed(model)
    began = time.process_time()
    attention_sums(timed, texts, plan=plan, batch=CPU_BATCH, centre=centre)
    forward, statistics = timed.seconds, time.process_time() - began - timed.seconds
    print(f"statistics of {len(plan.labellings)} labellings beside the forward pass of MiniLM, a passage")
    print(
        f"  forward {1e3 * forward / passages:.1f} ms, statistics {1e3 * statistics / passages:.1f} ms: "
        f"{100 * statistics / forward:.0f} %"
    )


def main() -> None:
    if not WORKER_ENVIRONMENT.items() <= os.environ.items():
        # As the probe's workers are started.
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **WORKER_ENVIRONMENT})
    compare_forward()


if __name__ == "__main__":
    main()
