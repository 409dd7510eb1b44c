"""Claims on masking, broken on purpose."""

import numpy as np

from support.fabricated import SEEDS, decide, experiments_of, fabricate, quick_claim


def test_without_kept_and_random_words_attention_must_be_uniform_for_the_claim_to_hold() -> None:
    claim = quick_claim("masking/all-masked/squared/attention")
    jitter = 1 + 0.001 * np.arange(SEEDS)[:, None]
    assert decide(claim, fabricate(experiments_of(claim)[0], attention=np.ones(5) * jitter)) == "holds"
    assert decide(claim, fabricate(experiments_of(claim)[0], attention=np.array([5.0, 3, 1, 1, 5]) * jitter)) == "fails"
