r"""Matrices over tokens that have one number per class of entries, and the spaces that they leave invariant.

The distribution of documents does not change when topics, or words within a topic, are renamed. So every expected
matrix over tokens has at most six different entries, in this order: [MASK] with [MASK], [MASK] with a word, a word with
[MASK], a word with itself, with another word of its topic, with a word of another topic.

Such matrices act as one number on the contrasts within topics (weights on the words of one topic that sum to zero), as
one number on the contrasts between topics, and as a 2 × 2 matrix on the plane of [MASK] and the mean word, both of
length one. These are the modes in which training moves: *same word*, *topics* and *[MASK]*.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from topicscope.errors import refuse
from topicscope.settings.data import Data

CLASSES = ("mask_mask", "mask_row", "mask_column", "same_word", "same_topic", "different_topic")

Six = Float[np.ndarray, " 6"]


@dataclass(frozen=True, eq=False)
class Modes:
    """A class matrix on its invariant spaces."""

    topic: float
    """The number on contrasts between topics, of which there are T − 1."""
    same_word: float
    """The number on contrasts within a topic, of which there are T(v − 1)."""
    plane: Float[np.ndarray, "2 2"]
    """The matrix on ([MASK], mean word), with rows and columns as in the whole matrix."""

    @classmethod
    def identity(cls, scale: float = 1.0) -> "Modes":
        """``scale`` times the identity."""
        return cls(scale, scale, scale * np.eye(2))

    @classmethod
    def of(cls, numbers: Six) -> "Modes":
        """The modes from one row of numbers."""
        return cls(float(numbers[0]), float(numbers[1]), numbers[2:].reshape(2, 2))

    def flat(self) -> Six:
        """All numbers in one row."""
        return np.concatenate([[self.topic, self.same_word], self.plane.ravel()])

    @property
    def transposed(self) -> "Modes":
        """The modes of the transposed matrix."""
        return Modes(self.topic, self.same_word, self.plane.T)

    def __matmul__(self, other: "Modes") -> "Modes":
        return Modes(self.topic * other.topic, self.same_word * other.same_word, self.plane @ other.plane)

    def __add__(self, other: "Modes") -> "Modes":
        return Modes(self.topic + other.topic, self.same_word + other.same_word, self.plane + other.plane)

    def __mul__(self, factor: float) -> "Modes":
        return Modes(factor * self.topic, factor * self.same_word, factor * self.plane)


@dataclass(frozen=True)
class Vocabulary:
    """T topics of v words, and [MASK]."""

    topics: int
    words: int

    @classmethod
    def of(cls, data: Data) -> "Vocabulary":
        """The classes of a model with equal, equally likely topics; other models are refused."""
        own = {"topic_words": bool(data.topic_words), "dirichlet": len(set(data.dirichlet)) > 1, "ends": data.ends}
        for name, unequal in own.items():
            if unequal:
                remedy = "classes of entries need equal topics and nothing else; leave it out"
                raise refuse(f"data.{name}", getattr(data, name), remedy)
        return cls(data.topics, data.words)

    @property
    def count(self) -> int:
        """Tv: words without [MASK]."""
        return self.topics * self.words

    @property
    def sizes(self) -> Six:
        """How many entries each class has."""
        n, v = self.count, self.words
        return np.array([1.0, n, n, n, n * (v - 1), n * (n - v)])

    def matrix(self, classes: Six) -> Float[np.ndarray, "token token"]:
        """The whole matrix."""
        mask_mask, mask_row, mask_column, same_word, same_topic, different = classes
        full = np.full((self.count + 1, self.count + 1), different)
        full[1:, 1:] += np.kron(np.eye(self.topics), np.full((self.words, self.words), same_topic - different))
        full[1:, 1:] += (same_word - same_topic) * np.eye(self.count)
        full[:, 0], full[0, :], full[0, 0] = mask_column, mask_row, mask_mask
        return full

    def means(self, matrix: Float[np.ndarray, "token token"]) -> Six:
        """The average of each class's entries, which gives the nearest class matrix; 0 for a class without entries."""
        inner = matrix[1:, 1:]
        blocks = inner.reshape(self.topics, self.words, self.topics, self.words)
        own, same = float(np.trace(inner)), float(np.einsum("tatb->", blocks))
        sums = np.array(
            [matrix[0, 0], matrix[0, 1:].sum(), matrix[1:, 0].sum(), own, same - own, float(inner.sum()) - same]
        )
        return np.divide(sums, self.sizes, out=np.zeros(6), where=self.sizes > 0)

    def modes(self, classes: Six) -> Modes:
        """The matrix on its invariant spaces."""
        mask_mask, mask_row, mask_column, same_word, same_topic, different = classes.tolist()
        n, v = self.count, self.words
        topic = same_word + (v - 1) * same_topic - v * different
        plane = np.array(
            [[mask_mask, np.sqrt(n) * mask_row], [np.sqrt(n) * mask_column, topic + n * different]], dtype=float
        )
        return Modes(topic, same_word - same_topic, plane)

    def classes(self, modes: Modes) -> Six:
        """The six entries of the matrix with these modes."""
        n, v = self.count, self.words
        different = (modes.plane[1, 1] - modes.topic) / n
        same_topic = different + (modes.topic - modes.same_word) / v
        mask_row, mask_column = modes.plane[0, 1] / np.sqrt(n), modes.plane[1, 0] / np.sqrt(n)
        return np.array([modes.plane[0, 0], mask_row, mask_column, same_topic + modes.same_word, same_topic, different])

    def trace(self, modes: Modes) -> float:
        """The trace of the whole matrix."""
        within = self.count - self.topics
        return (self.topics - 1) * modes.topic + within * modes.same_word + float(np.trace(modes.plane))

    def gram(self, classes: Six) -> Six:
        """The classes of W⊤W."""
        modes = self.modes(classes)
        return self.classes(modes.transposed @ modes)


@dataclass(frozen=True)
class ClassMatrix:
    """A matrix with one number per class of entries and a 0-th row of zeros, as the squared loss wants it."""

    mask_column: float
    """W_i0 for words i."""
    same_word: float
    same_topic: float
    """Two different words of one topic."""
    different_topic: float

    @property
    def numbers(self) -> Six:
        """All six, in the order of ``CLASSES``."""
        return np.array([getattr(self, name, 0.0) for name in CLASSES])

    def matrix(self, topics: int, words: int) -> Float[np.ndarray, "token token"]:
        """The whole matrix."""
        return Vocabulary(topics, words).matrix(self.numbers)
