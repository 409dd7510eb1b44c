"""Figure 1's claims turn when they are broken on purpose."""

import numpy as np

from support.fabricated import decide, fabricate, quick_claim, shuffled
from topicscope.paper import figure1
from topicscope.paper.claim import PRESETS
from topicscope.settings import Masking
from topicscope.theory.theorem2 import theorem2

QUICK = PRESETS["quick"]
NOISE = 0.005


def test_figure_1_holds_for_blocks_and_turns_with_shuffled_topics_or_without_training() -> None:
    blocks = np.linalg.cholesky(theorem2(10, 10, Masking())[1:, 1:] + 0.08 + 0.01 * np.eye(100))
    table = np.zeros((101, 101))
    table[1:, 1:] = blocks
    experiment = figure1.experiment(QUICK, "squared", "adam")
    good = fabricate(experiment, embedding=table, noise=NOISE)
    untrained = fabricate(experiment, embedding=np.zeros((101, 101)), noise=0.02)
    for name in ("embedding", "blocks"):
        claim = quick_claim(f"figure1/squared-adam/{name}")
        assert decide(claim, good) == "holds"
        assert decide(claim, untrained) != "holds"
    assert decide(quick_claim("figure1/squared-adam/blocks"), shuffled(good)) != "holds"
    # A diagonal is a special case of the blocks, if it is larger than that of an untrained embedding.
    claim = quick_claim("figure1/squared-adam/embedding")
    diagonal = np.diag(np.r_[0.0, np.ones(100)])
    assert decide(claim, fabricate(experiment, embedding=0.5 * diagonal, noise=0.001)) == "holds"
    assert decide(claim, fabricate(experiment, embedding=0.2 * diagonal, noise=0.001)) == "fails"
    alone = fabricate(experiment, embedding=diagonal, noise=0.001)
    assert decide(quick_claim("figure1/squared-adam/blocks"), alone) != "holds"
