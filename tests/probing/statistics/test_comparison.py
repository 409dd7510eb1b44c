"""Two models compared: the paired interval holds the truth, and the test keeps its size where neither has topics."""

import numpy as np
import pytest

from topicscope.probing.statistics.comparison import Comparable, compared
from topicscope.probing.statistics.labelling import Labelling, TopicDraws
from topicscope.probing.statistics.resampling import contrast
from topicscope.probing.statistics.similarity import averages_of, prepared, similarity_tests

WORDS, TOPICS, WIDTH = 80, 8, 16
LABELS = Labelling(np.arange(WORDS)[:, None] % TOPICS == np.arange(TOPICS))
DRAWS = TopicDraws.draw(LABELS, 100, generator=np.random.default_rng(0)).weights(LABELS)


def measured(vectors: np.ndarray, permutations: int = 99) -> Comparable:
    """Cosines of word vectors; the draws and the permutations are those of every other model."""
    ready = prepared(vectors, "cosine")
    products = ready @ ready.T
    [averages] = averages_of([ready], [products[LABELS.same_topic_pairs]], LABELS, DRAWS)
    stratum, draw = np.zeros(WORDS, dtype=np.int64), np.random.default_rng(1)
    no_auc = np.full_like(averages.same, np.nan)
    [test] = similarity_tests([products], LABELS, stratum, permutations, generator=draw)
    return Comparable(averages.same, averages.different, no_auc, np.append(test.observed, test.permuted))


def random_model(draw: np.random.Generator, topical: float = 0.0) -> np.ndarray:
    """Embeddings as they are initialised, and a part that words of one topic share."""
    own, shared = draw.normal(size=(WORDS, WIDTH)), draw.normal(size=(TOPICS, WIDTH))
    return own + topical * shared[np.arange(WORDS) % TOPICS] + 1.0


def test_a_model_with_more_topic_structure_is_told_from_one_with_less() -> None:
    draw = np.random.default_rng(5)
    more, less = measured(random_model(draw, 1.2)), measured(random_model(draw, 0.3))
    found = compared(more, less)
    assert found["p"] == pytest.approx(0.01)
    assert found["difference_low"] > 0
    assert found["low"] > 1
    expected = [contrast(each.same, each.different).ratio for each in (more, less)]
    assert None not in expected
    assert found["ratio_of_ratios"] == pytest.approx(expected[0] / expected[1])  # type: ignore[operator]
    # The other way round it is the other way round.
    turned = compared(less, more)
    assert turned["difference"] == pytest.approx(-found["difference"])
    assert turned["difference_high"] == pytest.approx(-found["difference_low"])
    assert turned["p"] == found["p"]


def test_a_model_does_not_differ_from_itself() -> None:
    one = measured(random_model(np.random.default_rng(6), 1.0))
    found = compared(one, one)
    assert found["p"] == 1
    assert found["difference"] == 0
    assert found["ratio_of_ratios"] == pytest.approx(1)


@pytest.mark.parametrize("trials", [150, pytest.param(1_000, marks=pytest.mark.slow)])
def test_two_independent_untrained_models_are_told_apart_in_five_per_cent_of_the_cases(trials: int) -> None:
    draw = np.random.default_rng(8)
    p = [compared(measured(random_model(draw)), measured(random_model(draw)))["p"] for _ in range(trials)]
    rejected, error = float(np.mean(np.array(p) <= 0.05)), np.sqrt(0.05 * 0.95 / trials)
    assert abs(rejected - 0.05) < 3 * error
    # The control: a trained one is told from an untrained one nearly always.
    p = [compared(measured(random_model(draw, 0.8)), measured(random_model(draw)))["p"] for _ in range(20)]
    assert np.mean(np.array(p) <= 0.05) > 0.9
