"""Contrasts of single topics are averages that loops give, and only topics that are there are found."""

import numpy as np
import pytest

from topicscope.probing.statistics.labelling import Labelling
from topicscope.probing.statistics.similarity import topic_contrasts

WORDS, TOPICS = 60, 6


def planted(draw: np.random.Generator, some: tuple[int, ...]) -> tuple[np.ndarray, Labelling]:
    """Similarities with the words of some topics more alike."""
    topic = np.arange(WORDS) % TOPICS
    noise = draw.normal(0.3, 0.1, size=(WORDS, WORDS))
    values = (noise + noise.T) / 2
    values += 0.3 * (np.isin(topic, some)[:, None] & (topic[:, None] == topic))
    return values, Labelling(topic[:, None] == np.arange(TOPICS))


def draws(draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray, int]:
    """Weights of words, one stratum for all of them, and the number of permutations."""
    words = np.concatenate([np.ones((1, WORDS)), draw.poisson(1.0, size=(200, WORDS))])
    return words, np.zeros(WORDS, dtype=np.int64), 499


def test_averages_are_those_of_loops_and_planted_topics_alone_are_found() -> None:
    draw = np.random.default_rng(2)
    values, labelling = planted(draw, (0, 3))
    counts = draw.integers(1, 5, size=(WORDS, WORDS)).astype(np.float64)
    counts = counts + counts.T
    [found] = topic_contrasts([values * counts], labelling, *draws(draw), counts=counts, generator=draw)
    for topic, each in enumerate(found):
        member = labelling.membership[:, topic]
        pairs = [(i, j) for i in range(WORDS) for j in range(i) if member[i] and member[j]]
        others = [(i, j) for i in range(WORDS) for j in range(i) if member[i] != member[j]]
        for side, chosen in (("same", pairs), ("different", others)):
            first, second = np.array(chosen).T
            assert each[side] == pytest.approx((values * counts)[first, second].sum() / counts[first, second].sum())
    assert [each["q"] < 0.05 for each in found] == [True, False, False, True, False, False]
    assert found[0]["low"] > 1.3
    assert found[1]["low"] < 1 < found[1]["high"]


def test_topics_of_words_with_several_leave_out_pairs_that_share_another() -> None:
    draw = np.random.default_rng(4)
    values, one = planted(draw, ())
    membership = one.membership.copy()
    membership[1, 0] = True
    labelling = Labelling(membership)
    [found] = topic_contrasts([values], labelling, *draws(draw), generator=draw)
    apart = ~(membership.astype(int) @ membership.T.astype(int) > 0)
    rows = np.flatnonzero(membership[:, 0])
    assert found[0]["different"] == pytest.approx(values[rows][apart[rows]].mean())
    # The control: with word 1 and the words of its other topic among them, the average is another.
    assert found[0]["different"] != pytest.approx(values[rows][:, ~membership[:, 0]].mean(), rel=1e-9)
