"""A pass of passages through a model: the plan of what is measured, and shards whose attention is reduced to sums.

A plan has all labellings over one vocabulary; it is a file that every worker reads. A shard is a set of passages that
run through a model once, with their attention reduced to sums before the next batch. The settings determine which
passages a shard has, never who measures it; so a study that was stopped goes on with the missing shards, and the sums
are the same to the bit for any number of workers.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from safetensors import safe_open
from safetensors.numpy import save
from scipy import sparse
from torch import OutOfMemoryError

from topicscope.errors import InputError
from topicscope.probing.models import Subject
from topicscope.probing.packing import packed, unpacked
from topicscope.probing.statistics.attention import PairAccumulator, PermutedLabels, ShardSums, passage_pairs
from topicscope.probing.statistics.hidden import HiddenAccumulator
from topicscope.probing.statistics.labelling import Labelling
from topicscope.probing.statistics.matching import Strata, co_occurrence_strata
from topicscope.probing.statistics.pairs import PairTable
from topicscope.probing.statistics.permutation import frequency_strata, stratified_orders
from topicscope.randomness import Purpose, generator
from topicscope.text.tokens import open_passages
from topicscope.text.words import attention_between_words, mean_vectors, states_of_words

# Levels of frequency in matching. Fewer for attention: its cells are also by distance, and kept for each article and
# replicate.
WORD_FREQUENCY_LEVELS, ATTENTION_FREQUENCY_LEVELS = 10, 3
# Passages per shard: some ten seconds of a small model on one core, so that little is lost when a study is stopped.
PASSAGES = 256


@dataclass(frozen=True, eq=False)
class Plan:
    """Labellings, what the words' pairs are matched on, and the permutations of the test over heads."""

    labellings: tuple[Labelling, ...]
    """Labellings over one vocabulary: every word that has a topic in some of them."""

    frequency: Float[np.ndarray, " word"]
    """How often each word of the vocabulary is in the measured passages."""

    co_occurrence: PairTable
    """For each two words of the vocabulary, how many pairs of positions in the measured passages hold them."""

    permutations: int
    seed: int
    places: Int[np.ndarray, " spelling_plus_one"]
    """Where the word of each spelling is in the vocabulary, −1 if it is not; the last entry, for no spelling, is −1."""

    lengths: Int[np.ndarray, " spelling_plus_one"]
    """How many tokens each spelling has; the last entry, for no spelling, is 1."""

    @property
    def tokens(self) -> Int[np.ndarray, " word"]:
        """The vocabulary: numbers of words."""
        return self.labellings[0].tokens

    @cached_property
    def groups(self) -> list[tuple[int, ...]]:
        """For each threshold and assignment, the places of its labellings, one per LDA seed, the tested one first."""
        groups: dict[tuple[object, str], list[int]] = {}
        for place, each in enumerate(self.labellings):
            groups.setdefault((each.fraction, each.assignment), []).append(place)
        return [tuple(places) for places in groups.values()]

    @property
    def tested_labellings(self) -> list[Labelling]:
        """The tested labelling of each group."""
        return [self.labellings[first] for first, *_ in self.groups]

    @cached_property
    def widest(self) -> set[int]:
        """Places: each assignment's tested labelling with the largest threshold, whose topics have the most words."""
        largest: dict[str, int] = {}
        for place, each in zip((first for first, *_ in self.groups), self.tested_labellings, strict=True):
            before = largest.setdefault(each.assignment, place)
            if (each.fraction or 0) >= (self.labellings[before].fraction or 0):
                largest[each.assignment] = place
        return set(largest.values())

    @cached_property
    def tested(self) -> tuple[int, ...]:
        """The places of the labellings of the first LDA seed, which are the ones that are permuted."""
        return tuple(place for place, each in enumerate(self.labellings) if each.seed == self.labellings[0].seed)

    def strata(self, labelling: int) -> Int[np.ndarray, " word"]:
        """Strata of similar frequency among the words that a labelling keeps, equally large; −1 for other words."""
        kept = self.labellings[labelling].kept
        strata = np.full(len(kept), -1)
        strata[kept] = frequency_strata(self.frequency[kept])
        return strata

    @cached_property
    def co_occurrence_strata(self) -> Strata:
        """Strata of pairs of similar co-occurrence."""
        return co_occurrence_strata(self.co_occurrence)

    def pair_strata(self, labelling: int, levels: int) -> Strata:
        """What pairs of a labelling's words are matched on: co-occurrence, and frequency among these words."""
        kept = self.labellings[labelling].kept
        return self.co_occurrence_strata.by_frequency(self.frequency, kept, levels)

    @cached_property
    def attention_strata(self) -> tuple[Strata, ...]:
        """What attention is matched on besides distance, for each labelling."""
        return tuple(self.pair_strata(place, ATTENTION_FREQUENCY_LEVELS) for place in range(len(self.labellings)))

    def orders(self, labelling: int, permutations: int) -> Int[np.ndarray, "permutation word"]:
        """Permutations of a labelling's words within strata of frequency, the same each time."""
        draw = generator(self.seed, Purpose.MEASURE, labelling, permutations)
        orders = stratified_orders(self.labellings[labelling], self.strata(labelling), permutations, generator=draw)
        return np.concatenate(list(orders))

    @cached_property
    def permuted(self) -> tuple[PermutedLabels, ...]:
        """The tested labellings with permuted words, for the test over heads."""
        return tuple(
            PermutedLabels(self.labellings[place], self.orders(place, self.permutations)) for place in self.tested
        )


@lru_cache(maxsize=1)
def read_plan(path: Path) -> Plan:
    """The plan in a file, kept until another is asked for."""
    return unpacked(path, Plan)


@dataclass(frozen=True, eq=False)
class ModelVectors:
    """All that a worker needs to find the vectors of a model that its other work uses."""

    model: Subject
    tokens: Int[np.ndarray, " token"]
    """The tokens that the plan's words are written with."""

    means: sparse.csr_array
    """What turns the vectors of these tokens into those of the words."""

    passages: tuple[Int[np.ndarray, " _"], ...]
    """Those over which hidden states are averaged; none if hidden states are not asked for."""

    def measure(self) -> bytes:
        """Embeddings of the words, ``matrix`` and ``layer``, and each layer's mean hidden state, ``centre``."""
        # No layer if the model offers no hidden states.
        sums, seen, kind = np.zeros((0, 0)), 0, np.dtype(np.float32)
        for passage in self.passages:
            states = [layer[0, : len(passage)].cpu().numpy() for layer in self.model.run([passage]).hidden]
            if states:
                added = np.stack([layer.sum(axis=0, dtype=np.float64) for layer in states])
                sums, seen, kind = (sums + added if seen else added), seen + len(passage), states[0].dtype
        return save(
            {
                "matrix": mean_vectors(self.means, self.model.embedding_matrix()[self.tokens]),
                "layer": mean_vectors(self.means, self.model.embedding_layer(self.tokens)),
                "centre": (sums / max(seen, 1)).astype(kind),
            }
        )


@dataclass(frozen=True)
class Shard:
    """All that a worker needs to measure some passages; it is small, because it is sent to another process."""

    model: Subject
    passages: Path
    plan: Path
    chosen: tuple[int, ...]
    """Which of the passages."""

    batch: int
    """Tokens per batch."""

    vectors: Path
    """A safetensors file whose tensor ``centre`` has each layer's mean vector."""

    hidden: tuple[int, ...]
    """The chosen passages whose hidden states are summed."""

    def measure(self) -> bytes:
        """The sums over these passages; model, passages and plan stay loaded for the next shard."""
        passages, summed = open_passages(self.passages), set(self.hidden)
        texts = [
            Text(passages[place], passages.spelled(place), int(passages.articles[place]), place in summed)
            for place in self.chosen
        ]
        plan, centre = read_plan(self.plan), read_centre(self.vectors)
        return packed(attention_sums(self.model, texts, plan=plan, batch=self.batch, centre=centre))


@lru_cache(maxsize=1)
def read_centre(path: Path) -> Float[np.ndarray, "layer width"]:
    """The mean vector of each layer, on which hidden states are centred; kept until another is asked for."""
    with safe_open(path, framework="np") as file:
        centre: np.ndarray = file.get_tensor("centre")
        return centre


class Text(NamedTuple):
    """One passage."""

    tokens: Int[np.ndarray, " position"]
    spellings: Int[np.ndarray, " position"]
    """The spelling of the word that begins at each token, −1 where none does."""

    article: int
    """The document that it comes from."""

    hidden: bool = False
    """Whether its hidden states are summed too."""


def attention_sums(
    subject: Subject,
    texts: Sequence[Text],
    *,
    plan: Plan,
    batch: int,
    centre: Float[np.ndarray, "layer width"] | None = None,
) -> ShardSums:
    """Sums of a subject's attention between the words of a plan, over passages, in one pass.

    batch: tokens that go through the model at once, halved when memory runs out. Shorter passages go before longer
    ones, so that there is little padding. Sums are always added in this order, so they do not depend on the batch.
    centre: what hidden states are centred on; without it none are summed.
    """
    accumulator = PairAccumulator(
        plan.labellings, subject.layers, subject.heads, permuted=plan.permuted, strata=plan.attention_strata
    )
    states: HiddenAccumulator | None = None
    if centre is not None and len(centre) and any(each.hidden for each in texts):
        present = np.unique(np.concatenate([plan.places[each.spellings] for each in texts if each.hidden]))
        labelled = np.any([each.kept for each in plan.labellings], axis=0)
        states = HiddenAccumulator(len(plan.tokens), present[(present >= 0) & labelled[present]], centre)
    order = sorted(texts, key=lambda text: len(text.tokens))
    while order:
        # As many passages as fit into the batch when they are padded to the longest of them.
        lengths = np.array([len(each.tokens) for each in order])
        fitting = np.arange(1, len(order) + 1) * np.maximum(lengths, 1) <= batch
        chosen = order[: max(int(fitting.sum()), 1)]
        try:
            with memory_errors():
                output = subject.run([each.tokens for each in chosen])
        except MemoryError:
            if len(chosen) == 1:
                raise InputError(
                    f"memory ran out on a single passage of {len(chosen[0].tokens)} tokens: lower --length."
                ) from None
            # The batch stays smaller from here on.
            batch = max(batch // 2, 1)
            continue
        attention = [layer.cpu().numpy() for layer in output.attention]
        for number, text in enumerate(chosen):
            length, first = len(text.tokens), subject.first
            own = [layer[number, :, :length, :length] for layer in attention]
            sizes, words = plan.lengths[text.spellings], plan.places[text.spellings]
            by_word = [attention_between_words(layer, sizes, causal=subject.causal) for layer in own]
            accumulator.add(passage_pairs(by_word, words, causal=subject.causal, skip=first), text.article)
            if states and text.hidden:
                vectors = [states_of_words(layer[number, :length].cpu().numpy(), sizes) for layer in output.hidden]
                states.add(vectors, np.where(np.arange(length) < first, -1, words))
            if subject.causal:
                # What measured queries give to keys that are not measured. In a decoder that is the first token: a
                # special one, or else the content token at position 0.
                given = np.stack([layer[:, first:, first:].sum(axis=-1, dtype=np.float64) for layer in own])
                accumulator.sunk += (1 - given).sum(axis=-1)
                accumulator.queries += length - first
        order = order[len(chosen) :]
    return replace(accumulator.result(), hidden=states.result() if states else None)


@contextmanager
def memory_errors() -> Iterator[None]:
    """Turn the errors that torch raises when memory runs out into Python's ``MemoryError``."""
    try:
        yield
    except OutOfMemoryError as error:
        raise MemoryError from error
    except RuntimeError as error:
        if "allocate memory" in str(error) or "out of memory" in str(error):
            raise MemoryError from error
        raise
