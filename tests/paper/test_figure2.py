"""Figure 2's claims: each combination is held against its own optimum, and no other will do."""

import numpy as np

from support.fabricated import decide, experiments_of, fabricate, quick_claim, shuffled
from topicscope.paper import figure2
from topicscope.paper.claim import PRESETS
from topicscope.paper.setups import MILD_L2, paper_moments
from topicscope.settings import Masking
from topicscope.theory.finite_documents import finite_optimum, gradient_descent
from topicscope.theory.theorem2 import theorem2

QUICK = PRESETS["quick"]
NOISE = 0.005


def test_figure_2_holds_at_the_ridge_optimum_and_fails_at_the_optimum_of_another_ridge() -> None:
    experiment = figure2.experiment(QUICK, "squared", "adam")
    moments = paper_moments()
    names = ("same-word", "same-topic", "different-topic", "mask-column", "excess-loss", "blocks")
    good = fabricate(experiment, value=finite_optimum(moments, MILD_L2), noise=NOISE)
    for name in names:
        assert decide(quick_claim(f"figure2/squared-adam/{name}"), good) == "holds", name
    other = fabricate(experiment, value=finite_optimum(moments, 1e-4), noise=NOISE)
    assert decide(quick_claim("figure2/squared-adam/same-word"), other) == "fails"
    untrained = fabricate(experiment, value=np.zeros((101, 101)), noise=0.001)
    for name in names:
        assert decide(quick_claim(f"figure2/squared-adam/{name}"), untrained) != "holds", name
    for name in ("same-word", "same-topic", "different-topic", "mask-column", "excess-loss"):
        assert decide(quick_claim(f"figure2/squared-adam/{name}"), untrained) == "fails", name
    assert decide(quick_claim("figure2/squared-adam/blocks"), shuffled(good)) != "holds"


def test_uniform_blocks_are_theorem_2s_and_not_those_of_finite_documents_or_a_diagonal() -> None:
    for name in ("figure2/squared-adam", "figure2/squared-sgd", "figure10/joint/squared-adam"):
        theory, uniform = quick_claim(f"{name}/theorem2"), quick_claim(f"{name}/uniform")
        (experiment,) = experiments_of(theory)
        block = fabricate(experiment, value=theorem2(10, 10, Masking()), noise=0.001)
        finite = fabricate(experiment, value=finite_optimum(paper_moments()), noise=0.001)
        diagonal = fabricate(experiment, value=np.eye(101) + 0.1 * theorem2(10, 10, Masking()), noise=0.001)
        assert [decide(theory, each) for each in (block, finite, diagonal)] == ["holds", "fails", "fails"]
        assert [decide(uniform, each) for each in (block, diagonal)] == ["holds", "fails"]


def test_figure_2_sgd_is_held_against_the_trajectory_not_the_optimum() -> None:
    experiment = figure2.experiment(QUICK, "squared", "sgd")
    moments, training = paper_moments(), experiment.settings.training
    path = gradient_descent(np.zeros((101, 101)), moments, training.learning_rate, training.steps, MILD_L2)
    claim = quick_claim("figure2/squared-sgd/same-word")
    assert decide(claim, fabricate(experiment, value=path, noise=0.001)) == "holds"
    assert decide(claim, fabricate(experiment, value=finite_optimum(moments, MILD_L2), noise=0.001)) == "fails"


def test_figure_2_cross_entropy_is_held_against_the_convex_optimum() -> None:
    experiment = figure2.experiment(QUICK, "cross_entropy", "adam")
    optimum = figure2.convex_optimum(MILD_L2).matrix(10, 10)
    claim = quick_claim("figure2/cross-entropy-adam/excess-loss")
    assert decide(claim, fabricate(experiment, value=optimum, noise=NOISE)) == "holds"
    assert decide(claim, fabricate(experiment, value=0.3 * optimum, noise=NOISE)) == "fails"
