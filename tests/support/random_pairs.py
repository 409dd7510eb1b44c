"""Passages of random words, how wide an interval is, whether p is uniform: for tests of measures over pairs."""

from collections.abc import Sequence

import numpy as np
from scipy import stats

from topicscope.probing.statistics.attention import PassagePairs
from topicscope.probing.statistics.labelling import Labelling
from topicscope.probing.statistics.matching import Strata
from topicscope.records import Comparison

WORDS = 12


def random_words(draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    lengths = draw.integers(0, 15, size=30)
    return draw.integers(-1, WORDS, size=lengths.sum()), np.concatenate([[0], np.cumsum(lengths)])


def pairs_of(words: np.ndarray, directed: np.ndarray) -> PassagePairs:
    """Attention of one head between the positions of a passage, for all pairs of them in the order of ``triu``."""
    early, late = np.triu_indices(len(words), k=1)
    different = words[early] != words[late]
    early, late, directed = early[different], late[different], directed[:, different]
    return PassagePairs(words[early], words[late], late - early, directed.sum(axis=0)[:, None, None], directed)


def one_stratum(labellings: Sequence[Labelling]) -> Strata:
    """Words of any frequency and pairs of any co-occurrence, under each labelling."""
    words = len(labellings[0].membership)
    return Strata(np.zeros((words, words), dtype=np.uint8), 1, np.zeros((len(labellings), words), dtype=np.int64))


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
