"""A pass of passages through a model: the plan of what is measured, and shards whose attention is reduced to sums.

A plan has all labellings over one vocabulary; it is a file that every worker reads. A shard is a set of passages that
run through a model once, with their attention reduced to sums before the next batch. The settings determine which
passages a shard has, never who measures it; so a study that was stopped resumes with the missing shards, and the sums
are the same to the bit for any number of workers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Integer
from safetensors.numpy import load_file, save
from scipy import sparse

from topicscope.errors import InputError, is_out_of_memory
from topicscope.probing.models import Subject
from topicscope.probing.packing import packed, unpacked
from topicscope.probing.statistics.attention import PairAccumulator, PermutedLabels, ShardSums, passage_pairs
from topicscope.probing.statistics.hidden import HiddenSums, passage_sums
from topicscope.probing.statistics.labelling import Labelling
from topicscope.probing.statistics.matching import Strata, co_occurrence_bins
from topicscope.probing.statistics.pairs import PairTable
from topicscope.probing.statistics.permutation import frequency_strata, stratified_orders
from topicscope.randomness import Purpose, generator
from topicscope.text.tokens import open_passages
from topicscope.text.words import attention_between_words, mean_vectors, states_of_words

# Levels of frequency in matching. Fewer for attention: its cells are also by distance, and kept for each article and
# replicate.
WORD_FREQUENCY_LEVELS, ATTENTION_FREQUENCY_LEVELS = 10, 3
# Passages whose sums of hidden states are held before they are added up.
HELD = 16


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
    def tested(self) -> list[Labelling]:
        """The tested labelling of each group: the ones of the first LDA seed, which are permuted."""
        return [self.labellings[first] for first, *_ in self.groups]

    @cached_property
    def widest(self) -> set[int]:
        """Places: each assignment's tested labelling with the largest threshold, whose topics have the most words."""
        by_threshold = sorted((first for first, *_ in self.groups), key=lambda at: self.labellings[at].fraction or 0)
        return set({self.labellings[place].assignment: place for place in by_threshold}.values())

    def strata(self, labelling: int) -> Int[np.ndarray, " word"]:
        """Strata of similar frequency among the words that a labelling keeps; −1 for other words."""
        return frequency_strata(self.frequency, self.labellings[labelling].kept)

    @cached_property
    def _co_occurrence_bins(self) -> tuple[Integer[np.ndarray, "word word"], int]:
        return co_occurrence_bins(self.co_occurrence)

    def pair_strata(self, labelling: int) -> Strata:
        """What a labelling's words are matched on: co-occurrence, and frequency among these words."""
        kept = self.labellings[labelling].kept
        levels = frequency_strata(self.frequency, kept, WORD_FREQUENCY_LEVELS)
        return Strata(*self._co_occurrence_bins, levels, WORD_FREQUENCY_LEVELS)

    @cached_property
    def attention_strata(self) -> Strata:
        """What attention is matched on besides distance, under each of the labellings."""
        number = ATTENTION_FREQUENCY_LEVELS
        levels = np.stack([frequency_strata(self.frequency, each.kept, number) for each in self.labellings])
        return Strata(*self._co_occurrence_bins, levels, number)

    @cached_property
    def permuted(self) -> tuple[PermutedLabels, ...]:
        """The tested labellings with words permuted within strata of frequency, for the test over heads."""
        permuted = []
        for place, *_ in self.groups:
            labelling, draw = self.labellings[place], generator(self.seed, Purpose.MEASURE, place, self.permutations)
            orders = stratified_orders(labelling, self.strata(place), self.permutations, generator=draw)
            permuted.append(PermutedLabels(labelling, np.concatenate(list(orders))))
        return tuple(permuted)


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
        centre, kind = np.zeros((0, 0)), np.dtype(np.float32)
        for passage in self.passages:
            states = [layer[0, : len(passage)].cpu().numpy() for layer in self.model.run([passage]).hidden]
            if states:
                sums = np.stack([layer.sum(axis=0, dtype=np.float64) for layer in states])
                centre, kind = (centre + sums if len(centre) else sums), states[0].dtype
        return save(
            {
                "matrix": mean_vectors(self.means, self.model.embedding_matrix()[self.tokens]),
                "layer": mean_vectors(self.means, self.model.embedding_layer(self.tokens)),
                "centre": (centre / max(sum(map(len, self.passages)), 1)).astype(kind),
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
        plan, centre = read_plan(self.plan), load_file(self.vectors)["centre"]
        return packed(attention_sums(self.model, texts, plan=plan, batch=self.batch, centre=centre))


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
        plan.labellings, plan.attention_strata, subject.layers, subject.heads, permuted=plan.permuted
    )
    labelled = np.any([each.kept for each in plan.labellings], axis=0)
    states: list[HiddenSums] = []
    order, first = sorted(texts, key=lambda text: len(text.tokens)), subject.first
    while order:
        # As many passages as fit into the batch when they are padded to the longest of them.
        lengths = np.array([len(each.tokens) for each in order])
        fitting = np.arange(1, len(order) + 1) * np.maximum(lengths, 1) <= batch
        chosen = order[: max(int(fitting.sum()), 1)]
        try:
            output = subject.run([each.tokens for each in chosen])
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            if len(chosen) == 1:
                raise InputError(
                    f"memory ran out on a single passage of {len(chosen[0].tokens)} tokens: lower --length."
                ) from None
            # The batch stays smaller from here on.
            batch = max(batch // 2, 1)
            continue
        attention = [layer.cpu().numpy() for layer in output.attention]
        for number, text in enumerate(chosen):
            length = len(text.tokens)
            own = [layer[number, :, :length, :length] for layer in attention]
            sizes, words = plan.lengths[text.spellings], plan.places[text.spellings]
            by_word = [attention_between_words(layer, sizes, causal=subject.causal) for layer in own]
            accumulator.add(passage_pairs(by_word, words, causal=subject.causal, skip=first), text.article)
            if text.hidden and centre is not None and len(centre):
                vectors = [states_of_words(layer[number, :length].cpu().numpy(), sizes) for layer in output.hidden]
                summed = np.where((words >= 0) & labelled[words] & (np.arange(length) >= first), words, -1)
                states.append(passage_sums(vectors, summed, centre, len(plan.tokens)))
                if len(states) > HELD:
                    states = [HiddenSums.added(states)]
            if subject.causal:
                # What measured queries give to keys that are not measured. In a decoder that is the first token: a
                # special one, or else the content token at position 0.
                given = np.stack([layer[:, first:, first:].sum(axis=-1, dtype=np.float64) for layer in own])
                accumulator.sunk += (1 - given).sum(axis=-1)
                accumulator.queries += length - first
        order = order[len(chosen) :]
    return replace(accumulator.result(), hidden=HiddenSums.added(states) if states else None)
