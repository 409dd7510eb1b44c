"""The probe's statistics side by side with the obvious way: a loop over pairs, and sampled pairs.

And beside the model itself: all that is summed of attention and hidden states (thresholds, assignments, LDA seeds,
matching, permutations), as a share of MiniLM's own forward pass.

python benchmarks/measures.py [--pairs 1e8]
"""

import argparse
import os
import sys
import tempfile
import time
from collections import defaultdict
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
from topicscope.probing.statistics.attention import PairAccumulator, passage_pairs
from topicscope.probing.statistics.labelling import DIFFERENT_TOPIC, SAME_TOPIC, Labelling, TopicWeights
from topicscope.probing.statistics.matching import Strata
from topicscope.probing.statistics.similarity import Similarities, prepared
from topicscope.probing.study import CPU_BATCH, MOST_HIDDEN, PASSAGES, Asked, Ground, Study, word_map
from topicscope.text.corpora import open_corpus
from topicscope.work import WORKER_ENVIRONMENT

LAYERS, HEADS, LENGTH, WORDS, TOPICS, WIDTH = 6, 12, 126, 1_500, 100, 384


def attention_by_loop(
    attention: np.ndarray, words: list[int], topic: list[int]
) -> dict[tuple[int, int, int], list[float]]:
    """Sums and counts over layers, heads, queries and keys."""
    found: dict[tuple[int, int, int], list[float]] = defaultdict(lambda: [0.0, 0.0])
    values = attention.tolist()
    for layer in range(LAYERS):
        for head in range(HEADS):
            rows = values[layer][head]
            for query, first in enumerate(words):
                for key, second in enumerate(words):
                    if first >= 0 and second >= 0 and first != second:
                        kind = SAME_TOPIC if topic[first] == topic[second] else DIFFERENT_TOPIC
                        sums = found[layer, head, kind]
                        sums[0] += rows[query][key] * LENGTH / 100
                        sums[1] += 1
    return found


def compare_attention(draw: np.random.Generator, passages: int = 20) -> None:
    topic = draw.integers(TOPICS, size=WORDS)
    labelling = Labelling(topic[:, None] == np.arange(TOPICS))
    texts = [np.where(draw.random(LENGTH) < 0.4, draw.integers(WORDS, size=LENGTH), -1) for _ in range(passages)]
    attentions = [draw.random((LAYERS, HEADS, LENGTH, LENGTH)).astype(np.float32) for _ in range(passages)]
    strata = Strata(np.zeros((WORDS, WORDS), dtype=np.uint8), 1, np.zeros((1, WORDS), dtype=np.int64))
    accumulator = PairAccumulator((labelling,), strata, LAYERS, HEADS)
    began = time.process_time()
    for attention, words in zip(attentions, texts, strict=True):
        accumulator.add(passage_pairs(list(attention), words), 0)
    ours = (time.process_time() - began) / passages
    began = time.process_time()
    slow = attention_by_loop(attentions[0], texts[0].tolist(), topic.tolist())
    loop = time.process_time() - began
    first = PairAccumulator((labelling,), strata, LAYERS, HEADS)
    first.add(passage_pairs(list(attentions[0]), texts[0]), 0)
    sums = first.result().sums[0, 0].sum(axis=1)
    worst = max(abs(sums[kind, layer, head] / total - 1) for (layer, head, kind), (total, _) in slow.items())
    print(f"attention, a passage of {LENGTH} tokens, {LAYERS} x {HEADS} heads")
    print(
        f"  ours {1e3 * ours:.1f} ms, loop {1e3 * loop:.0f} ms: {loop / ours:.0f} times; largest difference {worst:.0e}"
    )


def compare_similarity(draw: np.random.Generator, pairs: int) -> None:
    topic = draw.integers(TOPICS, size=WORDS)
    labelling = Labelling(topic[:, None] == np.arange(TOPICS))
    vectors = prepared(draw.normal(size=(WORDS, WIDTH)) + 0.3 * draw.normal(size=(TOPICS, WIDTH))[topic], "cosine")
    began = time.process_time()
    ones, products = np.ones((1, WORDS)), vectors @ vectors.T
    similarities = Similarities(labelling, TopicWeights(ones, ones))
    similarities.add(products)
    exact = similarities.averages().same[0]
    ours = time.process_time() - began
    began = time.process_time()
    sums, counts = np.zeros(2), np.zeros(2)
    left, block = pairs, 1_000_000
    while left > 0:
        first, second = draw.integers(WORDS, size=(2, min(block, left)))
        kept = first != second
        first, second = first[kept], second[kept]
        apart = (topic[first] != topic[second]).astype(np.int64)
        sums += np.bincount(apart, products[first, second], 2)
        counts += np.bincount(apart, minlength=2)
        left -= block
    sampled, drawing = sums / counts, time.process_time() - began
    print(f"similarity of {WORDS} words, same topic")
    print(f"  ours, all pairs: {exact[0]:.6f} in {ours:.3f} s")
    print(f"  {pairs:.0e} sampled pairs: {sampled[0]:.6f} in {drawing:.1f} s: {drawing / ours:.0f} times")


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
        study = Study(ground, tokenizer, [Asked(0, model, word_map(model, tokenizer, (), None))])
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=float, default=1e8)
    if not WORKER_ENVIRONMENT.items() <= os.environ.items():
        # As the probe's workers are started.
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **WORKER_ENVIRONMENT})
    draw = np.random.default_rng(0)
    compare_attention(draw)
    compare_similarity(draw, int(parser.parse_args().pairs))
    compare_forward()


if __name__ == "__main__":
    main()
