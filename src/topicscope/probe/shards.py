"""A shard: some passages run through a model once, their attention reduced to sums before the next batch.

Which passages a shard has is fixed by the settings, never by who measures it; so a study that was stopped goes on with
the shards that are missing, and the sums are the same to the bit however many workers there are.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int
from safetensors.numpy import load, save
from torch import OutOfMemoryError

from topicscope.errors import InputError
from topicscope.measure.attention_pairs import PairAccumulator, PairPlan, ShardSums, passage_pairs
from topicscope.measure.shard_files import restore_shard, shard_bytes
from topicscope.probe.models import HuggingFaceModel, Loading, Subject
from topicscope.probe.plan import Plan, places
from topicscope.probe.sources import Source, model_digest
from topicscope.text.tokens import open_passages

# Passages a shard: some ten seconds of a small model on one core, so that little is lost when one is stopped.
PASSAGES = 256


@dataclass(frozen=True)
class Shard:
    """All that a worker needs to measure some passages: small, for it is sent to another process."""

    source: Source
    special: tuple[tuple[int, ...], tuple[int, ...]]
    loading: Loading
    passages: Path
    plan: Path
    chosen: tuple[int, ...]
    """Which of the passages."""

    batch: int
    """Tokens a batch."""


@dataclass(frozen=True, eq=False)
class ShardResult:
    """Sums over a shard's pairs, and how much attention of a causal model sinks into its first token."""

    sums: ShardSums
    sunk: Float[np.ndarray, "layer head"]
    """Sum over queries of what they give to none of the measured positions."""

    queries: int
    """How many queries that sum is over; 0 for a model that is not causal."""

    def to_bytes(self) -> bytes:
        """As a file."""
        rest = save({"sunk": np.ascontiguousarray(self.sunk), "queries": np.array([self.queries])})
        sums = shard_bytes(self.sums)
        return json.dumps([len(rest)]).encode() + b"\n" + rest + sums

    @classmethod
    def restore(cls, content: bytes) -> "ShardResult":
        """What ``to_bytes`` wrote."""
        head, _, body = content.partition(b"\n")
        (size,) = json.loads(head)
        rest = load(body[:size])
        return cls(restore_shard(body[size:]), rest["sunk"], int(rest["queries"][0]))


def measure_shard(shard: Shard) -> bytes:
    """Measure one shard, in whatever process; model, passages and plan stay loaded for the next."""
    subject = load_model(shard.source, shard.special, shard.loading)
    passages = open_passages(shard.passages)
    plan, pair_plan = _plan(shard.plan)
    result = attention_sums(
        subject,
        [passages[place] for place in shard.chosen],
        [places(passages.whole_tokens(place), plan.tokens) for place in shard.chosen],
        [int(passages.articles[place]) for place in shard.chosen],
        plan=pair_plan,
        batch=shard.batch,
    )
    return result.to_bytes()


def load_model(source: Source, special: tuple[tuple[int, ...], tuple[int, ...]], loading: Loading) -> HuggingFaceModel:
    """The model, kept until another is asked for, or the same with other weights in its folder."""
    return _load_model(source, source.digest, special, loading)


@lru_cache(maxsize=1)
def _load_model(
    source: Source, digest: str, special: tuple[tuple[int, ...], tuple[int, ...]], loading: Loading
) -> HuggingFaceModel:
    model = HuggingFaceModel(source, special, loading)
    # Results are kept under the digest, which may be older than the files: a worker loads them later.
    if model_digest(source) != digest:
        raise InputError(f"model {source.name} was changed while it was probed: probe it again.")
    return model


@lru_cache(maxsize=1)
def _plan(path: Path) -> tuple[Plan, PairPlan]:
    plan = Plan.restore(path.read_bytes())
    return plan, plan.pair_plan()


def attention_sums(
    subject: Subject,
    passages: Sequence[Int[np.ndarray, " _"]],
    words: Sequence[Int[np.ndarray, " _"]],
    articles: Sequence[int],
    *,
    plan: PairPlan,
    batch: int,
) -> ShardResult:
    """Sums of a subject's attention between the words of a plan, over passages, in one pass.

    words: of each passage's tokens, the place in the plan's vocabulary, −1 for other tokens.
    articles: the document that each passage is of.
    Passages go through the model shortest first, so that little is padding; the order of the sums is that one, whatever
    the batch.
    """
    accumulator = PairAccumulator(plan, subject.layers, subject.heads)
    sunk, queries = np.zeros((subject.layers, subject.heads)), 0
    order = sorted(range(len(passages)), key=lambda place: (len(passages[place]), place))
    for place, attention in _attentions(subject, passages, order, batch):
        pairs = passage_pairs(attention, words[place], causal=subject.causal, skip=subject.first)
        accumulator.add(pairs, articles[place])
        if subject.causal:
            sunk += sunk_attention(attention, subject.first)
            queries += len(passages[place]) - subject.first
    return ShardResult(accumulator.result(), sunk, queries)


def sunk_attention(
    attention: Sequence[Float[np.ndarray, "head query key"]], first: int
) -> Float[np.ndarray, "layer head"]:
    """What the measured queries give to none of the measured keys, summed over queries.

    Of a decoder that is its first token: a special one, or else the content token at position 0.
    """
    given = np.stack([layer[:, first:, first:].sum(axis=-1, dtype=np.float64) for layer in attention])
    return (1 - given).sum(axis=-1)


def _attentions(
    subject: Subject, passages: Sequence[Int[np.ndarray, " _"]], order: Sequence[int], batch: int
) -> Iterator[tuple[int, list[Float[np.ndarray, "head query key"]]]]:
    """Place and attention (by layer) of each passage, in order; batches halve when memory runs out, and stay so."""
    start = 0
    while start < len(order):
        stop = _batch_end([len(passages[place]) for place in order[start:]], batch) + start
        try:
            with memory_errors():
                attention = subject.attention([passages[place] for place in order[start:stop]])
        except MemoryError:
            if stop - start == 1:
                raise InputError(
                    f"memory ran out on a single passage of {len(passages[order[start]])} tokens: lower --length."
                ) from None
            batch = max(batch // 2, 1)
            continue
        layers = [layer.cpu().numpy() for layer in attention]
        for number, place in enumerate(order[start:stop]):
            length = len(passages[place])
            yield place, [layer[number, :, :length, :length] for layer in layers]
        start = stop


def _batch_end(lengths: Sequence[int], batch: int) -> int:
    """How many passages, padded to the longest of them, are at most so many tokens; at least one."""
    fitting = np.arange(1, len(lengths) + 1) * np.maximum.accumulate(np.maximum(lengths, 1)) <= batch
    return max(int(fitting.sum()), 1)


@contextmanager
def memory_errors() -> Iterator[None]:
    """When memory runs out, have torch say so as Python does."""
    try:
        yield
    except OutOfMemoryError as error:
        raise MemoryError from error
    except RuntimeError as error:
        if "allocate memory" in str(error) or "out of memory" in str(error):
            raise MemoryError from error
        raise
