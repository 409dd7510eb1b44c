"""Which words have which topics, so which pairs are of the same topic; and a bootstrap over topics and words.

Words are numbered by their place in a vocabulary that several labellings share (other thresholds, assignments, LDA
seeds), so that one pass over a corpus serves all of them. A word without a topic is left out by that labelling.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, UInt64
from scipy import sparse
from scipy.optimize import linear_sum_assignment

from topicscope.probing.settings import Assignment

# Kinds of pairs of different words, in the order of every axis named ``kind``.
SAME_TOPIC, DIFFERENT_TOPIC = range(2)

# Arrays with a number for each pair, word or replicate of the bootstrap, the sample itself before the replicates.
OfPairs = Int[np.ndarray, " pair"]
OfWords = Int[np.ndarray, " word"]
Replicates = Float[np.ndarray, " replicate"]
Pairs = tuple[OfPairs, OfPairs]


@dataclass(frozen=True, eq=False)
class Labelling:
    """Topics of the words of a vocabulary, none for some of them. Two words are of the same topic if they share one."""

    membership: Bool[np.ndarray, "word topic"]
    _: KW_ONLY
    tokens: OfWords = None  # type: ignore[assignment]
    """The number of each word (``text.words``), distinct and ascending; by default its place."""

    fraction: float | None = None
    """Ambiguity threshold: words per topic as a fraction of LDA's vocabulary; None for a user's own topics."""

    assignment: Assignment = "several"
    """``one``: no word has two topics (Table 1). ``several``: a word has all topics that keep it (Table 5)."""

    seed: int | None = None
    """LDA's seed; None for a user's own topics."""

    topic_names: tuple[str, ...] = ()
    """Names of the user's own topics, for people; LDA's topics have only numbers. No result depends on them."""

    def __post_init__(self) -> None:
        if self.tokens is None:
            object.__setattr__(self, "tokens", np.arange(len(self.membership)))
        assert (np.diff(self.tokens) > 0).all(), "tokens must be distinct and ascending"
        assert self.single or self.assignment == "several", "a word has two topics"

    @property
    def name(self) -> str:
        """For people and for names of files: ``0.0005/one/seed0``."""
        own = self.fraction is None
        return f"own/{self.assignment}" if own else f"{self.fraction:g}/{self.assignment}/seed{self.seed}"

    @property
    def words(self) -> int:
        """How many words have a topic."""
        return int(self.kept.sum())

    @property
    def topics(self) -> int:
        """How many topics have a word."""
        return int(self.membership.any(axis=0).sum())

    @cached_property
    def kept(self) -> Bool[np.ndarray, " word"]:
        """Words that have a topic."""
        return np.any(self.membership, axis=1)

    @cached_property
    def single(self) -> bool:
        """Whether no word has two topics."""
        return bool((self.membership.sum(axis=1) <= 1).all())

    @cached_property
    def topic(self) -> OfWords:
        """Each word's topic, the first if it has several; −1 for a word that is left out."""
        return np.where(self.kept, self.membership.argmax(axis=1), -1)

    @cached_property
    def _bits(self) -> UInt64[np.ndarray, "word block"]:
        """Topics as bits, so that two words are compared in a few operations."""
        padded = np.zeros((len(self.membership), -(-self.membership.shape[1] // 64) * 64), dtype=bool)
        padded[:, : self.membership.shape[1]] = self.membership
        return np.packbits(padded, axis=1).view(np.uint64)

    def shares(self, first: OfPairs, second: OfPairs) -> Bool[np.ndarray, " pair"]:
        """Whether the two words have a topic in common."""
        if self.single:
            return (self.topic[first] == self.topic[second]) & (self.topic[first] >= 0)
        return (self._bits[first] & self._bits[second]).any(axis=-1)

    @cached_property
    def same_topic_pairs(self) -> Pairs:
        """All pairs of different words that share a topic, each once, the smaller word first."""
        member = sparse.csr_array(self.membership.astype(np.int32))
        shared = sparse.coo_array(sparse.triu(member @ member.T, k=1))
        order = np.lexsort((shared.col, shared.row))
        return shared.row[order].astype(np.int64), shared.col[order].astype(np.int64)

    @cached_property
    def different_topic_pairs(self) -> Pairs:
        """All pairs of different kept words that share no topic, each once, the smaller word first."""
        outside = np.triu(np.logical_and.outer(self.kept, self.kept), k=1)
        outside[self.same_topic_pairs] = False
        # A vocabulary has far fewer than 2^31 words, and there are many pairs.
        first, second = np.nonzero(outside)
        return first.astype(np.int32), second.astype(np.int32)

    @property
    def among_kept(self) -> "Labelling":
        """The same labelling for the kept words alone, in their order."""
        return Labelling(self.membership[self.kept])


def kinds_of(labellings: Sequence[Labelling], first: OfPairs, second: OfPairs) -> Int[np.ndarray, "labelling pair"]:
    """The kind of each pair of different words under each labelling, −1 if it leaves out one of them."""
    return np.stack(
        [
            np.where(
                each.kept[first] & each.kept[second],
                np.where(each.shares(first, second), SAME_TOPIC, DIFFERENT_TOPIC),
                -1,
            )
            for each in labellings
        ]
    )


def over_one_vocabulary(labellings: Sequence[Labelling], beside: Sequence[int] | OfWords = ()) -> tuple[Labelling, ...]:
    """The labellings over one vocabulary, that of all their words, ascending; words new to one have no topic in it.

    beside: tokens of further words, which have no topic in any.
    """
    tokens = np.unique(np.concatenate([*(each.tokens for each in labellings), beside])).astype(np.int64)
    widened = []
    for labelling in labellings:
        membership = np.zeros((len(tokens), labelling.membership.shape[1]), dtype=bool)
        membership[np.searchsorted(tokens, labelling.tokens)] = labelling.membership
        widened.append(replace(labelling, membership=membership, tokens=tokens))
    return tuple(widened)


class TopicWeights(NamedTuple):
    """Bootstrap weights of topics and words: a replicate draws topics, and words within each (Poisson(1) both).

    A pair of one topic counts m_t n_i n_j times, a pair of two topics m_t n_i · m_u n_j times; a word with itself
    never. A word with several topics has the mean of their draws. The first replicate is the sample itself.
    """

    within: Float[np.ndarray, "replicate word"]
    between: Float[np.ndarray, "replicate word"]


@dataclass(frozen=True, eq=False)
class TopicDraws:
    """How often topics and words were drawn. All LDA seeds share these draws, because they have the same words.

    If each seed had its own draws, their errors would seem independent, and averaging seeds would seem to remove them.
    Topics of another seed are those of the first under other numbers: each is drawn with its partner.
    """

    first: Labelling
    """The labelling whose topics were drawn."""

    topics: Float[np.ndarray, "replicate topic"]
    words: Float[np.ndarray, "replicate word"]

    @classmethod
    def draw(cls, first: Labelling, replicates: int, *, generator: np.random.Generator) -> "TopicDraws":
        """Draws for the topics of the first labelling and all words of the vocabulary, after the sample itself."""
        words, topics = first.membership.shape
        drawn = [generator.poisson(1.0, (replicates, size)).astype(np.float64) for size in (topics, words)]
        return cls(first, *(np.concatenate([np.ones((1, each.shape[1])), each]) for each in drawn))

    def weights(self, labelling: Labelling) -> TopicWeights:
        """Weights of the kept words of the first labelling, or of another over the same vocabulary."""
        member = labelling.membership[labelling.kept].astype(np.float64)
        topics = self.topics[:, topic_partners(self.first.membership, labelling.membership)[0]]
        topics = topics @ (member / member.sum(axis=1, keepdims=True)).T
        words = self.words[:, labelling.kept]
        return TopicWeights(words * np.sqrt(topics), words * topics)


def topic_partners(
    first: Bool[np.ndarray, "word topic"], other: Bool[np.ndarray, "word topic"]
) -> tuple[Int[np.ndarray, " topic"], Float[np.ndarray, " topic"]]:
    """For each topic of ``other``, its partner in ``first``, one to one, and the two topics' overlap.

    Overlap is the Jaccard index of two topics' words, and its sum over all topics is the largest possible.
    """
    one, two = first.astype(np.float64), other.astype(np.float64)
    assert one.shape == two.shape, "labellings of one vocabulary and number of topics"
    shared = two.T @ one
    every = two.sum(axis=0)[:, None] + one.sum(axis=0) - shared
    overlap = np.divide(shared, every, out=np.zeros_like(shared), where=every > 0)
    topics, partners = linear_sum_assignment(overlap, maximize=True)
    return partners.astype(np.int64), overlap[topics, partners]
