"""Theorem 1: its claims turn with another bias, another optimum, other topics."""

import numpy as np
import pytest

from support.fabricated import decide, fabricate, quick_claim, shuffled
from topicscope.paper import theorem1
from topicscope.paper.claim import PRESETS

QUICK = PRESETS["quick"]


def test_the_wrong_bias_makes_theorem_1_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(theorem1, "theorem1_bias", lambda topics, words, masking: np.zeros(topics * words + 1))
    assert decide(quick_claim("theorem1/optimal")) == "fails"
    assert decide(quick_claim("theorem1/example-corrected")) == "fails"


def test_theorem_1_in_training_holds_at_the_semidefinite_optimum_only() -> None:
    experiment = theorem1.squared(QUICK)
    table = theorem1.optimum().embedding().T
    for name in ("own-topic-sum", "difference-of-sums", "excess-loss"):
        claim = quick_claim(f"theorem1/training/{name}")
        assert decide(claim, fabricate(experiment, embedding=table, noise=0.001)) == "holds", name
    own = quick_claim("theorem1/training/own-topic-sum")
    assert decide(own, fabricate(experiment, embedding=1.3 * table, noise=0.001)) == "fails"
    assert decide(own, shuffled(fabricate(experiment, embedding=table, noise=0.001))) == "fails"
