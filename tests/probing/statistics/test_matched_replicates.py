"""Replicates of the matched comparison without pairs of both kinds are left out of its interval, and counted."""

import numpy as np
import pytest

from topicscope.probing.statistics.labelling import Labelling
from topicscope.probing.statistics.matching import Matched, with_topics
from topicscope.probing.statistics.resampling import Contrast, contrast

TOPICS, REPLICATES = 5, 200
LABELLING = Labelling(np.repeat(np.eye(TOPICS, dtype=bool), 3, axis=0))


def draws(seed: int = 0) -> tuple[np.ndarray, np.ndarray, Matched]:
    """Averages of the sample and its replicates, and with each topic left out."""
    draw = np.random.default_rng(seed)
    same, different = (mean * np.exp(0.1 * draw.normal(size=1 + REPLICATES)) for mean in (3.0, 2.0))
    left = [mean * np.exp(0.1 * draw.normal(size=1 + TOPICS)) for mean in (3.0, 2.0)]
    return same, different, Matched(left[0], left[1], np.ones(1 + TOPICS))


def found(same: np.ndarray, different: np.ndarray, without: Matched) -> Contrast:
    return with_topics(contrast(same, different), same, different, [without], [LABELLING])


def ends(of: Contrast) -> tuple[float | None, ...]:
    return of.low, of.high, of.difference_low, of.difference_high


@pytest.mark.parametrize("gone", [1, 30, REPLICATES // 2])
def test_replicates_without_pairs_are_left_out_and_counted(gone: int) -> None:
    same, different, without = draws()
    fewer = found(same[: REPLICATES + 1 - gone], different[: REPLICATES + 1 - gone], without)
    one_side = np.append(same[:-gone], np.full(gone, np.nan))
    other_side = np.append(different[:-gone], np.full(gone, np.nan))
    for one, other in ((one_side, different), (same, other_side), (one_side, other_side)):
        compared = found(one, other, without)
        assert None not in ends(compared)
        assert ends(compared) == ends(fewer)
        assert compared.replicates_left_out == gone
        assert compared.ratio_note == f"{gone} of {REPLICATES} replicates have no pair and are left out of the interval"
    # The control: with all of them the interval is another, and none is said to be left out.
    whole = found(same, different, without)
    assert ends(whole) != ends(fewer)
    assert (whole.replicates_left_out, whole.ratio_note) == (0, None)


def test_if_over_half_of_the_replicates_are_left_out_there_is_no_interval() -> None:
    same, different, without = draws()
    for gone, there in ((REPLICATES // 2, True), (REPLICATES // 2 + 1, False)):
        fewer = np.append(same[:-gone], np.full(gone, np.nan))
        compared = found(fewer, different, without)
        assert [end is not None for end in ends(compared)] == [there] * 4
        assert ("too many for an interval" in str(compared.ratio_note)) != there
        assert compared.replicates_left_out == gone


def test_a_sample_without_pairs_or_a_single_replicate_has_no_interval() -> None:
    same, different, without = draws()
    empty = np.append(np.nan, same[1:])
    assert ends(found(empty, different, without)) == (None,) * 4
    assert ends(found(same[:2], different[:2], without)) == (None,) * 4
    # The control: two replicates have a variance.
    assert None not in ends(found(same[:3], different[:3], without))


def test_a_replicate_whose_logarithm_is_infinite_leaves_the_ratio_without_an_interval() -> None:
    same, different, without = draws()
    same[7] = 0.0
    compared = found(same, different, without)
    assert (compared.low, compared.high, compared.replicates_left_out) == (None, None, 0)
    assert None not in (compared.difference_low, compared.difference_high)
