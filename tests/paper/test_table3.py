"""Table 3's claims turn when they are broken on purpose."""

from dataclasses import replace

import numpy as np
import pytest

from support.fabricated import SEEDS, decide, experiments_of, fabricate, quick_claim, untrained
from topicscope.paper import table3
from topicscope.paper.claim import PRESETS

QUICK = PRESETS["quick"]


def test_table_3_turns_with_uniform_attention_and_with_attention_beyond_the_optimum() -> None:
    jitter = 1 + 0.001 * np.arange(SEEDS)[:, None]
    good = np.array([5.0, 6.0, 1.0, 1.0, 5.0]) * jitter
    uniform = np.ones(5) * jitter
    far = np.array([900.0, 900.0, 1.0, 1.0, 5.0]) * jitter
    order = quick_claim("table3/value-frozen/squared-adam/topic-average")
    alone = quick_claim("table3/value-frozen/squared-adam/other-words")
    same_word = np.array([30.0, 0.8, 1.0, 1.0, 5.0]) * jitter
    optimum = quick_claim("table3/topic-sets/value-frozen/exact-optimum")
    interval = quick_claim("table3/topic-sets/value-frozen/interval")
    experiment = table3.frozen(QUICK, "squared", "adam")
    assert decide(order, fabricate(experiment, attention=good)) == "holds"
    assert decide(order, fabricate(experiment, attention=uniform)) == "fails"
    # Attention to the same word counts for the average, which is the theorem's, and not for α̂.
    assert decide(order, fabricate(experiment, attention=same_word)) == "holds"
    assert decide(alone, fabricate(experiment, attention=same_word)) == "fails"
    assert decide(alone, fabricate(experiment, attention=good)) == "holds"
    assert decide(optimum, fabricate(experiment, attention=good)) == "holds"
    assert decide(optimum, fabricate(experiment, attention=uniform)) == "fails"
    assert decide(optimum, fabricate(experiment, attention=far)) == "fails"
    assert decide(interval, fabricate(experiment, attention=good)) == "holds"
    assert decide(interval, fabricate(experiment, attention=1e-4 * far + [0, 0, 1, 0, 0])) == "fails"


@pytest.mark.parametrize("value", ["frozen", "trained"])
def test_theorem_3s_interval_is_left_by_attention_that_shuns_its_topic(value: str) -> None:
    claim = quick_claim(f"table3/topic-sets/value-{value}/interval")
    (experiment,) = experiments_of(claim)
    shunning = replace(
        untrained(experiment), attention=np.array([0.1, 0.1, 1.0, 1.0, 5.0]) * (1 + 0.001 * np.arange(SEEDS)[:, None])
    )
    assert decide(claim, shunning) == "fails"
