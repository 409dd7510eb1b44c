r"""Matrices over tokens that have one number per class of entries, and the spaces that they leave invariant.

The distribution of documents does not change when topics, or words within a topic, are renamed. So every expected
matrix over tokens has at most six different entries, in this order: [MASK] with [MASK], [MASK] with a word, a word with
[MASK], a word with itself, with another word of its topic, with a word of another topic.

Such matrices act as one number on the contrasts between topics, as one number on the contrasts within topics (weights
on the words of one topic that sum to zero), and as a 2 × 2 matrix on the plane of [MASK] and the mean word, both of
length one. These are the modes in which training moves: *topics*, *same word* and *[MASK]*. On them a matrix is the
block-diagonal 4 × 4 matrix (topics, same word, plane), and products of such matrices are products of these.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from topicscope.errors import refuse
from topicscope.settings.data import Data

CLASSES = ("mask_mask", "mask_row", "mask_column", "same_word", "same_topic", "different_topic")
# The modes: contrasts between topics, contrasts within a topic, and the plane of [MASK] and the mean word.
TOPIC, SAME_WORD, PLANE = (0, 0), (1, 1), (slice(2, 4), slice(2, 4))

# A matrix over tokens, and a vector.
Matrix = Float[np.ndarray, "token token"]
Vector = Float[np.ndarray, " token"]
Six = Float[np.ndarray, " 6"]
Modes = Float[np.ndarray, "4 4"]


def modes_of(topic: float, same_word: float, plane: Float[np.ndarray, "2 2"]) -> Modes:
    """A class matrix on its modes."""
    modes = np.zeros((4, 4))
    modes[TOPIC], modes[SAME_WORD], modes[PLANE] = topic, same_word, plane
    return modes


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

    @cached_property
    def kinds(self) -> Int[np.ndarray, "token token"]:
        """The class of each entry, by its place in ``CLASSES``."""
        topic = np.append(-1, np.repeat(np.arange(self.topics), self.words))
        kinds = np.where(topic[:, None] == topic, 4, 5)
        np.fill_diagonal(kinds, 3)
        kinds[0], kinds[:, 0], kinds[0, 0] = 1, 2, 0
        return kinds

    def matrix(self, classes: Six) -> Matrix:
        """The whole matrix."""
        return classes[self.kinds]

    def means(self, matrix: Matrix) -> Six:
        """The average of each class's entries, which gives the nearest class matrix; 0 for a class without entries."""
        return np.bincount(self.kinds.ravel(), matrix.ravel(), minlength=6) / np.maximum(self.sizes, 1)

    def modes(self, classes: Six) -> Modes:
        """The matrix on its modes."""
        mask_mask, mask_row, mask_column, same_word, same_topic, different = classes.tolist()
        n, v = self.count, self.words
        topic, root = same_word + (v - 1) * same_topic - v * different, np.sqrt(n)
        plane = np.array([[mask_mask, root * mask_row], [root * mask_column, topic + n * different]])
        return modes_of(topic, same_word - same_topic, plane)

    def classes(self, modes: Modes) -> Six:
        """The six entries of the matrix with these modes."""
        n, v = self.count, self.words
        topic, same_word, ((mask_mask, mask_row), (mask_column, mean)) = modes[TOPIC], modes[SAME_WORD], modes[PLANE]
        different = (mean - topic) / n
        same_topic = different + (topic - same_word) / v
        root = np.sqrt(n)
        return np.array([mask_mask, mask_row / root, mask_column / root, same_topic + same_word, same_topic, different])

    def trace(self, modes: Modes) -> float:
        """The trace of the whole matrix."""
        return float(np.diag(modes) @ [self.topics - 1, self.count - self.topics, 1, 1])

    def gram(self, classes: Six) -> Six:
        """The classes of W⊤W."""
        modes = self.modes(classes)
        return self.classes(modes.T @ modes)


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

    def matrix(self, topics: int, words: int) -> Matrix:
        """The whole matrix."""
        return Vocabulary(topics, words).matrix(self.numbers)
