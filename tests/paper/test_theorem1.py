"""Theorem 1: its claims turn with another bias, another optimum, other topics."""

from dataclasses import replace

import numpy as np
import pytest

from support.fabricated import decide, experiments_of, fabricate, quick_claim, shuffled
from topicscope.paper import theorem1
from topicscope.paper.claim import PRESETS
from topicscope.paper.setups import infinite_documents
from topicscope.settings import Masking
from topicscope.theory.finite_documents import (
    embedding_loss,
    finite_optimum,
    flat_directions,
    infinite_topic_moments,
    population_loss,
)
from topicscope.theory.lemma1 import constants
from topicscope.theory.theorem1 import theorem1_bias, theorem1_embedding

QUICK = PRESETS["quick"]


def test_the_wrong_bias_makes_theorem_1_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(theorem1, "theorem1_bias", lambda topics, words, masking: np.zeros(topics * words + 1))
    assert decide(quick_claim("theorem1/optimal")) == "fails"
    assert decide(quick_claim("theorem1/example-corrected")) == "fails"
    assert decide(quick_claim("theorem1/no-others")) == "fails"
    assert decide(quick_claim("remark3/denoises")) == "fails"


def test_documents_that_all_look_alike_have_optimal_embeddings_beside_theorem_1s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(theorem1, "infinite_documents", lambda: infinite_topic_moments(10, 10, 10, Masking()))
    assert decide(quick_claim("theorem1/no-others")) == "fails"
    assert decide(quick_claim("remark2/contrast")) == "fails"


def test_minimisers_found_without_the_theorem_are_minimisers() -> None:
    """What ``theorem1/no-others`` and Remark 2 rest on: their loss is that of the block's embedding."""
    documents, bias, draw = infinite_documents(), theorem1_bias(10, 10, Masking()), np.random.default_rng(0)
    found, flat = finite_optimum(documents, bias=bias), flat_directions(documents)
    block = embedding_loss(theorem1_embedding(10, 10, Masking(), "block", 101), documents, bias)
    moved = found + draw.normal(size=(101, len(flat))) @ flat
    assert population_loss(moved, documents, bias) == pytest.approx(block, abs=1e-12)
    assert population_loss(1.01 * found, documents, bias) > block + 1e-6


@pytest.mark.parametrize("constant", ["c1", "c2", "c3"])
def test_without_bias_other_numbers_are_not_optimal(monkeypatch: pytest.MonkeyPatch, constant: str) -> None:
    right = constants(10, 10, Masking())
    wrong = replace(right, **{constant: 1.01 * getattr(right, constant)})
    monkeypatch.setattr(theorem1, "constants", lambda topics, words, masking: wrong)
    assert decide(quick_claim("remark3/not-needed")) == "fails"


@pytest.mark.parametrize("loss", ["squared", "cross-entropy"])
def test_remark_2_fails_if_words_of_other_topics_are_similar_too(loss: str) -> None:
    claim = quick_claim(f"remark2/positive-against-zero/{loss}-adam")
    (experiment,) = experiments_of(claim)
    table = theorem1.optimum().embedding().T
    assert decide(claim, fabricate(experiment, embedding=table, noise=0.001)) == "holds"
    # Every product grows by 0.03, a topic's sum by 0.3.
    values, vectors = np.linalg.eigh(theorem1.optimum().matrix + 0.03)
    common = vectors * np.sqrt(np.maximum(values, 0))
    assert decide(claim, fabricate(experiment, embedding=common, noise=0.001)) == "fails"
    assert decide(claim, shuffled(fabricate(experiment, embedding=table, noise=0.001))) == "fails"


def test_theorem_1_in_training_holds_at_the_semidefinite_optimum_only() -> None:
    experiment = theorem1.experiment(QUICK, "squared")
    table = theorem1.optimum().embedding().T
    for name in ("difference-of-sums", "excess-loss"):
        claim = quick_claim(f"theorem1/training/{name}")
        assert decide(claim, fabricate(experiment, embedding=table, noise=0.001)) == "holds", name
    own = quick_claim("theorem1/training/difference-of-sums")
    assert decide(own, fabricate(experiment, embedding=1.3 * table, noise=0.001)) == "fails"
    assert decide(own, shuffled(fabricate(experiment, embedding=table, noise=0.001))) == "fails"
