"""Passages of random words, how wide an interval is, whether p is uniform: for tests of measures over pairs."""

import numpy as np
from scipy import stats

from topicscope.records import Comparison

WORDS = 12


def random_words(draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    lengths = draw.integers(0, 15, size=30)
    return draw.integers(-1, WORDS, size=lengths.sum()), np.concatenate([[0], np.cumsum(lengths)])


def width(found: Comparison) -> float:
    assert found.difference_low is not None
    assert found.difference_high is not None
    return found.difference_high - found.difference_low


def check_uniform(p_values: np.ndarray, permutations: int) -> None:
    """Kolmogorov and Smirnov's distance to the uniform grid 1/(B + 1), …, 1, and its control."""
    grid = np.arange(1, permutations + 2) / (permutations + 1)
    distance = max(abs((p_values <= each + 1e-9).mean() - each) for each in grid)
    limit = float(stats.kstwobign.isf(1e-4)) / np.sqrt(len(p_values))
    assert distance < limit
    # The control: p-values that are smaller by a third are told apart.
    wrong = p_values**1.5
    assert max(abs((wrong <= each + 1e-9).mean() - each) for each in grid) > (limit if len(wrong) >= 400 else 0.1)
