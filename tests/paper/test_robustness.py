"""Documents of the robustness claims, and their claims broken on purpose."""

import numpy as np
import pytest

from support.fabricated import SEEDS, decide, experiments_of, fabricate, quick_claim, shuffled
from topicscope.paper import robustness
from topicscope.paper.claim import PRESETS
from topicscope.settings import Masking
from topicscope.synthetic.topics import equal_topics
from topicscope.theory.theorem2 import theorem2

QUICK = PRESETS["quick"]


def test_unequal_words_are_disjoint_topics_with_probabilities_as_one_over_rank() -> None:
    matrix = robustness.zipf_topics(3, 4)
    np.testing.assert_allclose(matrix.sum(axis=1), 1)
    assert ((matrix > 0).sum(axis=0) == 1).all()
    assert matrix[1, 4] / matrix[1, 7] == pytest.approx(4)


@pytest.mark.parametrize("degree", [0.0, 0.3, 1.0])
def test_overlap_gives_a_share_of_each_topic_to_all_words(degree: float) -> None:
    matrix = robustness.overlapping_topics(3, 4, degree)
    np.testing.assert_allclose(matrix.sum(axis=1), 1)
    outside = matrix[equal_topics(3, 4) == 0]
    np.testing.assert_allclose(outside, degree / 12)
    assert (degree == 0) == np.allclose(matrix, equal_topics(3, 4))


def test_robustness_claims_turn_with_shuffled_topics_and_uniform_attention() -> None:
    claims = {claim.id: claim for claim in robustness.claims(QUICK)}
    value, attention = claims["robustness/long/value"], claims["robustness/long/topic-average"]
    jitter = 1 + 0.001 * np.arange(SEEDS)[:, None]
    good = fabricate(
        experiments_of(value)[0],
        value=theorem2(10, 10, Masking()),
        noise=0.005,
        attention=np.array([5.0, 3, 1, 1, 5]) * jitter,
    )
    assert decide(value, good) == "holds"
    assert decide(value, shuffled(good)) != "holds"
    assert decide(attention, good) == "holds"
    assert decide(attention, fabricate(experiments_of(value)[0], attention=np.ones(5) * jitter)) == "fails"


def test_without_kept_and_random_words_attention_must_be_uniform_for_the_claim_to_hold() -> None:
    claim = quick_claim("masking/all-masked/squared/attention")
    jitter = 1 + 0.001 * np.arange(SEEDS)[:, None]
    assert decide(claim, fabricate(experiments_of(claim)[0], attention=np.ones(5) * jitter)) == "holds"
    assert decide(claim, fabricate(experiments_of(claim)[0], attention=np.array([5.0, 3, 1, 1, 5]) * jitter)) == "fails"
