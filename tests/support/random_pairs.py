"""Passages of random words, and how wide an interval is, for tests of measures over pairs."""

import numpy as np

from topicscope.probing.statistics.matching import MatchedSimilarity
from topicscope.probing.statistics.resampling import Contrast

WORDS = 12


def random_words(draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    lengths = draw.integers(0, 15, size=30)
    return draw.integers(-1, WORDS, size=lengths.sum()), np.concatenate([[0], np.cumsum(lengths)])


def width(found: Contrast | MatchedSimilarity) -> float:
    assert found.difference_low is not None
    assert found.difference_high is not None
    return found.difference_high - found.difference_low
