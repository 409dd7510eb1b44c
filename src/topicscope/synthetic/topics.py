"""Topic models and their documents (§3.1, §6.1).

Token 0 is [MASK]; words are tokens 1 … V−1, the last two of which are START and END where documents have these.
Topics are numbered 1 … T, and 0 means "of no topic", which is true of [MASK], START and END. In the paper's model word
i belongs to topic ⌈i/v⌉ and is as likely as the topic's other words.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from topicscope.errors import InputError, refuse
from topicscope.randomness import chances, choices
from topicscope.settings.data import Data, Sampler
from topicscope.store import load_array, read_by_others
from topicscope.synthetic.documents import Documents

# How far the sum of a topic-word matrix's row may be from one: text files hold rounded numbers.
ROW_SUM_TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class TopicModel:
    """A distribution over documents: proportions of topics, then words of topics, then a length."""

    topic_words: Float[np.ndarray, "topic word"]
    """P(word | topic); column j is token j + 1, rows sum to one."""

    sampler: Sampler
    per_document: int
    dirichlet: Float[np.ndarray, " topic"]
    length: tuple[int, int]
    ends: bool = False
    """Whether documents begin with START and end with END, the last two tokens."""

    @classmethod
    def from_settings(cls, data: Data, topic_words: Float[np.ndarray, "topic word"] | None = None) -> "TopicModel":
        """The topic model that the settings describe; reads the topic-word file, unless its content is given."""
        if topic_words is not None:
            topic_words = check_topic_words(topic_words, "data.topic_words")
        elif data.topic_words:
            topic_words = load_topic_words(Path(data.topic_words))
        else:
            topic_words = equal_topics(data.topics, data.words)
        topics = len(topic_words)
        if len(data.dirichlet) not in (1, topics):
            remedy = f"give one number, or one for each of the {topics} topics of data.topic_words"
            raise refuse("data.dirichlet", data.dirichlet, remedy)
        if data.sampler == "topics" and data.per_document > topics:
            raise refuse("data.per_document", data.per_document, f"data.topic_words has {topics} topics only")
        dirichlet = np.broadcast_to(np.array(data.dirichlet, dtype=float), topics)
        if data.ends:
            topic_words = np.pad(topic_words, ((0, 0), (0, 2)))
        return cls(topic_words, data.sampler, data.per_document, dirichlet, data.length, data.ends)

    @property
    def topics(self) -> int:
        """T."""
        return int(self.topic_words.shape[0])

    @property
    def vocabulary(self) -> int:
        """V, [MASK] included."""
        return int(self.topic_words.shape[1]) + 1

    def require_no_ends(self) -> None:
        """Refuse START and END, of which theory knows nothing."""
        if self.ends:
            raise InputError("Theory is about documents without START and END: set data.ends = false.")

    @cached_property
    def word_topics(self) -> Int[np.ndarray, " token"]:
        """Each token's topic: the one that makes it likeliest; 0 for [MASK] and for a word that no topic has."""
        likeliest = np.where(self.topic_words.any(axis=0), 1 + self.topic_words.argmax(axis=0), 0)
        return np.concatenate([[0], likeliest])

    @cached_property
    def equal_words(self) -> int | None:
        """v, if this is the paper's model of T disjoint topics of v equally likely words; else None."""
        words, remainder = divmod(self.vocabulary - 1, self.topics)
        # Rows of a file are divided by their sums, which moves equal words by a rounding error.
        as_papers = not remainder and np.allclose(
            self.topic_words, equal_topics(self.topics, words), rtol=1e-12, atol=0
        )
        return words if as_papers else None

    @cached_property
    def _word_outcomes(self) -> "Outcomes":
        return Outcomes(self.topic_words)

    @cached_property
    def _topic_outcomes(self) -> "Outcomes":
        """The distribution of a new topic in Pólya's urn."""
        return Outcomes(self.dirichlet[None] / self.dirichlet.sum())


def equal_topics(topics: int, words: int) -> Float[np.ndarray, "topic word"]:
    """The paper's topic-word matrix: topic t emits words (t−1)v+1 … tv with probability 1/v each."""
    return np.kron(np.eye(topics), np.full((1, words), 1.0 / words))


def load_topic_words(path: Path) -> Float[np.ndarray, "topic word"]:
    """Read a topic-word matrix from .npy, .csv or .tsv and check that its rows are distributions."""
    name, delimiter = f"data.topic_words = {path}", {".csv": ",", ".tsv": "\t"}.get(path.suffix)
    if path.suffix == ".npy":
        return check_topic_words(load_array(path), name)
    if delimiter is None:
        raise InputError(f"{name} is not allowed: give a .npy, .csv or .tsv file.")
    remedy = "give numbers alone, without a header line or a column of names: a row per topic, a column per word"
    with read_by_others(path, remedy), path.open(encoding="utf-8") as file:
        matrix = np.loadtxt(file, delimiter=delimiter, comments=None, ndmin=2)
    return check_topic_words(matrix, name)


def check_topic_words(matrix: np.ndarray, name: str) -> Float[np.ndarray, "topic word"]:
    """Refuse a matrix whose rows are not distributions over words; make their sums exact."""
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise InputError(f"{name} has shape {matrix.shape}: give a matrix with a row per topic and a column per word.")
    if (impossible := ~(np.isfinite(matrix) & (matrix >= 0))).any():
        row, column = np.argwhere(impossible)[0]
        raise InputError(
            f"{name} has {matrix[row, column]} in row {row + 1}, column {column + 1}: probabilities are 0 or more."
        )
    sums = matrix.sum(axis=1)
    if (abs(sums - 1) > ROW_SUM_TOLERANCE).any():
        if (abs(matrix.sum(axis=0) - 1) <= ROW_SUM_TOLERANCE).all():
            raise InputError(
                f"{name} has columns that sum to one, not rows: transpose it? "
                "Give a row per topic and a column per word."
            )
        row = int(abs(sums - 1).argmax())
        raise InputError(
            f"{name} has a row {row + 1} that sums to {sums[row]:.6g}: each row must sum to 1; divide it by its sum."
        )
    return matrix / sums[:, None]


def sample_documents(
    model: TopicModel, count: int, *, shuffled: bool = True, generator: np.random.Generator
) -> Documents:
    """Draw documents: lengths, then how many words of each topic a document has, then the words.

    Words of a document are exchangeable, so their order is drawn separately. If the order does not matter, leave the
    documents not ``shuffled``: the words of a topic then stand together.
    """
    shortest, longest = model.length
    lengths = generator.integers(shortest, longest, size=count, endpoint=True, dtype=np.int32)
    topics, counts = _topic_counts(model, lengths, generator)
    if model.equal_words is not None:
        tokens = np.repeat(topics * np.int32(model.equal_words) + np.int32(1), counts)
        tokens += choices(model.equal_words, len(tokens), generator=generator)
    else:
        tokens = model._word_outcomes.draw(np.repeat(topics, counts), generator=generator) + np.int32(1)
    documents = Documents(lengths, tokens)
    documents = _shuffled(documents, generator) if shuffled else documents
    return documents.between(model.vocabulary - 2, model.vocabulary - 1) if model.ends else documents


def _topic_counts(
    model: TopicModel, lengths: Int[np.ndarray, " document"], generator: np.random.Generator
) -> tuple[Int[np.ndarray, " group"], Int[np.ndarray, " group"]]:
    """Topics, counted from 0, and how many words of each come next, document after document."""
    if model.sampler == "topics":
        chosen = _topic_sets(model, len(lengths), generator).astype(np.int32)
        proportions = np.full(chosen.shape, 1.0 / model.per_document)
        return chosen.ravel(), generator.multinomial(lengths, proportions).ravel()
    sizes = groups_of_equal_topic(lengths, float(model.dirichlet.sum()), generator=generator)
    if (model.dirichlet == model.dirichlet[0]).all():
        topics = choices(model.topics, len(sizes), generator=generator).astype(np.int32)
    else:
        # There is only one distribution, and every draw is from it.
        topics = model._topic_outcomes.draw(np.zeros(len(sizes), dtype=np.int32), generator=generator)
    return topics, sizes


def _topic_sets(model: TopicModel, count: int, generator: np.random.Generator) -> Int[np.ndarray, "document chosen"]:
    """τ distinct topics for each document: those with the smallest of T random keys."""
    keys = generator.random((count, model.topics), dtype=np.float32)
    if model.per_document == model.topics:
        return np.broadcast_to(np.arange(model.topics), keys.shape)
    return np.argpartition(keys, model.per_document - 1, axis=1)[:, : model.per_document]


def groups_of_equal_topic(
    lengths: Int[np.ndarray, " document"], concentration: float, *, generator: np.random.Generator
) -> Int[np.ndarray, " group"]:
    r"""Sizes of the groups into which documents of these lengths fall, document after document, end to end.

    Words whose topics are drawn from θ ~ Dirichlet(α) are those of Pólya's urn (Blackwell and MacQueen, 1973): word i
    has a new topic, drawn with probabilities α_t / A, with probability A / (A + i − 1), A = Σ α_t, and otherwise that
    of an earlier word, all equally likely. So each group has a topic, independent of its size, and the sizes follow
    Ewens' formula. By Feller's coupling (Arratia, Barbour and Tavaré, 1992) they need no urn: they are the distances
    between ones in

    .. math::
        1, \xi_2, \dots, \xi_N, 1, \qquad P(\xi_i = 1) = A / (A + i - 1), \quad \text{independent.}

    Several groups of a document may have the same topic.
    """
    width = int(lengths.max()) + 1
    begins = chances(concentration / (concentration + np.arange(width)), len(lengths), generator=generator)
    # The one that closes a document; what lies beyond does not belong to it.
    begins[np.arange(len(lengths)), lengths] = True
    ones = np.flatnonzero(begins)
    document = ones[:-1] // width
    inside = ones[:-1] < (np.arange(len(lengths)) * width + lengths).take(document)
    return np.diff(ones)[inside]


def _shuffled(documents: Documents, generator: np.random.Generator) -> Documents:
    """Each document's words in an order of their own: that of random keys."""
    keys = documents.document + generator.random(len(documents.tokens))
    return Documents(documents.lengths, documents.tokens[np.argsort(keys)])


class Outcomes:
    """Several distributions over the same outcomes, to draw from: a guide answers most draws, a search the others.

    The unit interval is cut into equal cells and one is drawn. Where no boundary between outcomes falls into it, the
    cell determines the outcome; else a place in it is drawn and the cumulative probabilities are searched. Both are
    exact.
    """

    def __init__(self, probabilities: Float[np.ndarray, "row outcome"]) -> None:
        cumulative = probabilities.cumsum(axis=1)
        # Every row ends in exactly one, so that no outcome of probability 0 is reached.
        cumulative /= cumulative[:, -1:]
        rows, outcomes = cumulative.shape
        # A power of two: multiplying by it rounds nothing.
        self.cells = max(64, 2 ** math.ceil(math.log2(outcomes)))
        scaled = cumulative * self.cells + np.arange(rows)[:, None] * (self.cells + 1)
        # Outcomes whose share ends at or before a cell's beginning, and those that end before its end.
        ended = np.bincount(np.ceil(scaled).astype(np.int64).ravel(), minlength=rows * (self.cells + 1))
        ending = np.bincount(scaled.astype(np.int64).ravel(), minlength=rows * (self.cells + 1))
        first = ended.reshape(rows, -1)[:, :-1].cumsum(axis=1, dtype=np.int32)
        last = ending.reshape(rows, -1)[:, :-1].cumsum(axis=1, dtype=np.int32)
        first[first != last] = -1
        self._guide = first.ravel()
        self._ladder = (cumulative + np.arange(rows)[:, None]).ravel()
        self.outcomes = outcomes

    def draw(self, row: Int[np.ndarray, " draw"], *, generator: np.random.Generator) -> Int[np.ndarray, " draw"]:
        """One outcome for each draw from its row's distribution."""
        cell = choices(self.cells, len(row), generator=generator)
        outcome = self._guide[row * self.cells + cell]
        unsure = np.flatnonzero(outcome < 0)
        here, uniform = row[unsure], (cell[unsure] + generator.random(len(unsure))) / self.cells
        # Below the row's top even after rounding: row + draw may not reach row + 1.
        place = np.minimum(here + uniform, np.nextafter(here + 1.0, 0.0))
        outcome[unsure] = np.searchsorted(self._ladder, place, side="right") - here * self.outcomes
        return outcome
