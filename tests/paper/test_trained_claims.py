"""Claims on trained models turn when they are broken on purpose; the results are made by hand."""

import numpy as np
import pytest

from support.fabricated import SEEDS, STEPS, decide, experiments_of, fabricate, shuffled
from topicscope.model.weights import initial_weights
from topicscope.paper import compensation, figure1, figure2, figure4, gradients, table3, theorem1
from topicscope.paper.claim import PRESETS, Claim
from topicscope.paper.experiment import Trained
from topicscope.paper.registry import registry
from topicscope.paper.setups import LDA, RIDGE, constant_losses, gain
from topicscope.randomness import Purpose, generator
from topicscope.settings import Masking
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.dynamics import key_gradient
from topicscope.theory.finite_documents import finite_optimum, gradient_descent
from topicscope.theory.theorem2 import theorem2

QUICK = PRESETS["quick"]
NOISE = 0.005


def _claim(module: object, name: str) -> Claim:
    return next(claim for claim in module.claims(QUICK) if claim.id == name)  # type: ignore[attr-defined]


def test_figure_1_holds_for_blocks_and_turns_with_shuffled_topics_or_without_training() -> None:
    blocks = np.linalg.cholesky(theorem2(10, 10, Masking())[1:, 1:] + 0.08 + 0.01 * np.eye(100))
    table = np.zeros((101, 101))
    table[1:, 1:] = blocks
    experiment = figure1.experiment(QUICK, "squared", "adam")
    good = fabricate(experiment, embedding=table, noise=NOISE)
    untrained = fabricate(experiment, embedding=np.zeros((101, 101)), noise=0.02)
    for name in ("embedding-contrast", "blocks"):
        claim = _claim(figure1, f"figure1/squared-adam/{name}")
        assert decide(claim, good) == "holds"
        assert decide(claim, shuffled(good)) != "holds"
        assert decide(claim, untrained) != "holds"


def test_figure_2_holds_at_the_ridge_optimum_and_fails_at_the_optimum_of_another_ridge() -> None:
    experiment = figure2.experiment(QUICK, "squared", "adam")
    moments = figure2.paper_moments()
    names = ("same-word", "same-topic", "different-topic", "mask-column", "excess-loss", "contrast")
    good = fabricate(experiment, value=finite_optimum(moments, RIDGE), noise=NOISE)
    for name in names:
        assert decide(_claim(figure2, f"figure2/squared-adam/{name}"), good) == "holds", name
    other = fabricate(experiment, value=finite_optimum(moments, 1e-4), noise=NOISE)
    assert decide(_claim(figure2, "figure2/squared-adam/same-word"), other) == "fails"
    untrained = fabricate(experiment, value=np.zeros((101, 101)), noise=0.001)
    for name in names:
        assert decide(_claim(figure2, f"figure2/squared-adam/{name}"), untrained) != "holds", name
    for name in ("same-word", "same-topic", "different-topic", "mask-column", "excess-loss"):
        assert decide(_claim(figure2, f"figure2/squared-adam/{name}"), untrained) == "fails", name
    assert decide(_claim(figure2, "figure2/squared-adam/contrast"), shuffled(good)) != "holds"


def test_figure_2_sgd_is_held_against_the_trajectory_not_the_optimum() -> None:
    experiment = figure2.experiment(QUICK, "squared", "sgd")
    moments, training = figure2.paper_moments(), experiment.settings.training
    path = gradient_descent(np.zeros((101, 101)), moments, training.learning_rate, training.steps, RIDGE)
    claim = _claim(figure2, "figure2/squared-sgd/same-topic")
    assert decide(claim, fabricate(experiment, value=path, noise=0.001)) == "holds"
    assert decide(claim, fabricate(experiment, value=finite_optimum(moments, RIDGE), noise=0.001)) == "fails"


def test_figure_2_cross_entropy_is_held_against_the_convex_optimum() -> None:
    experiment = figure2.experiment(QUICK, "cross_entropy", "adam")
    optimum = figure2.convex_optimum(RIDGE).matrix(10, 10)
    claim = _claim(figure2, "figure2/cross-entropy-adam/excess-loss")
    assert decide(claim, fabricate(experiment, value=optimum, noise=NOISE)) == "holds"
    assert decide(claim, fabricate(experiment, value=0.3 * optimum, noise=NOISE)) == "fails"


def test_theorem_1_in_training_holds_at_the_semidefinite_optimum_only() -> None:
    experiment = theorem1.squared(QUICK)
    table = theorem1.optimum().embedding().T
    for name in ("own-topic-sum", "difference-of-sums", "excess-loss"):
        claim = _claim(theorem1, f"theorem1/training/{name}")
        assert decide(claim, fabricate(experiment, embedding=table, noise=0.001)) == "holds", name
    own = _claim(theorem1, "theorem1/training/own-topic-sum")
    assert decide(own, fabricate(experiment, embedding=1.3 * table, noise=0.001)) == "fails"
    assert decide(own, shuffled(fabricate(experiment, embedding=table, noise=0.001))) == "fails"


@pytest.mark.parametrize("loss", ["squared", "cross-entropy"])
def test_slightly_means_a_tenth_of_the_gain(loss: str) -> None:
    claim = _claim(compensation, f"section4/embedding-alone/{loss}")
    alone, whole = experiments_of(claim)
    unit = gain(LDA, Masking(), whole.settings.training.loss).value
    jitter = 1e-3 * unit * np.arange(SEEDS)
    little = fabricate(alone, held_out_loss=0.05 * unit + jitter)
    much = fabricate(alone, held_out_loss=0.2 * unit + jitter)
    assert decide(claim, little, fabricate(whole)) == "holds"
    assert decide(claim, much, fabricate(whole)) == "fails"


def test_the_gain_is_from_the_best_constant_prediction_to_the_bayes_floor() -> None:
    model = TopicModel.from_settings(LDA)
    assert constant_losses(model)["squared"] == pytest.approx(0.99)
    assert constant_losses(model)["cross_entropy"] == pytest.approx(np.log(100))
    assert gain(LDA, Masking(), "squared").floor == pytest.approx(0.874, abs=0.005)


def test_figure_4_holds_for_two_stages_and_not_for_one() -> None:
    (cell,) = figure4.EXPECTED
    experiment = cell.experiment()
    late, early = (np.interp(STEPS, [start, 1000], [1.0, 9.0]) for start in (400, 0))
    value = np.interp(STEPS, [0, 500, 1000], [0.1, 10.0, 10.5])
    two = fabricate(experiment, norms={"key": late, "query": late, "value": value})
    one = fabricate(experiment, norms={"key": early, "query": early, "value": value})
    never = fabricate(experiment, norms={"key": 0 * late + 1, "query": 0 * late + 1, "value": value})
    growth = _claim(figure4, f"{experiment.name}/growth")
    length = _claim(figure4, f"{experiment.name}/length")
    plateau = _claim(figure4, f"{experiment.name}/plateau")
    assert (decide(growth, two), decide(length, two), decide(plateau, two)) == ("holds",) * 3
    assert decide(growth, one) == "fails"
    assert decide(growth, never) == "fails"
    assert decide(length, never) == "fails"
    broken = np.where(STEPS < 500, value, np.nan)
    diverged = fabricate(experiment, norms={"key": late, "query": late, "value": broken})
    assert (decide(growth, diverged), decide(length, diverged)) == ("undecided",) * 2
    assert decide(plateau, never) == "undecided"


def test_the_gradient_formula_turns_with_a_wrong_constant_and_a_wrong_exponent() -> None:
    claims = {
        claim.id.removeprefix("figure4/first-gradients/cross-entropy/"): claim for claim in gradients.claims(QUICK)
    }
    small, large = gradients.cells(QUICK)["cross_entropy"]
    settings = small.experiment().settings
    bags, model = gradients.gradient_bags(settings), TopicModel.from_settings(LDA)
    norms = []
    for seed in range(SEEDS):
        draw = generator(seed, Purpose.WEIGHTS)
        weights = initial_weights(settings.model, model, settings.masking, generator=draw)
        norms.append(np.linalg.norm(key_gradient(bags, small.loss, weights["value"][0], weights["query"][0])))

    def result(cell: figure4.Cell, factor: float) -> Trained:
        found = {"value": np.ones(SEEDS), "key": factor * np.array(norms), "query": np.array(norms)}
        return fabricate(cell.experiment(), gradients=found)

    formula, exponent = claims["scale-0.001/formula"], claims["exponent"]
    assert decide(formula, result(small, 1.0)) == "holds"
    assert decide(formula, result(small, 2.0)) == "fails"
    assert decide(exponent, result(small, 1.0), result(large, 400.0)) == "holds"
    assert decide(exponent, result(small, 1.0), result(large, 20.0)) == "fails"


def test_table_3_turns_with_uniform_attention_and_with_attention_beyond_the_optimum() -> None:
    jitter = 1 + 0.001 * np.arange(SEEDS)[:, None]
    good = np.array([5.0, 6.0, 1.0, 1.0, 5.0]) * jitter
    uniform = np.ones(5) * jitter
    far = np.array([900.0, 900.0, 1.0, 1.0, 5.0]) * jitter
    order = _claim(table3, "table3/value-frozen/squared-adam/same-topic")
    optimum = _claim(table3, "table3/topic-sets/value-frozen/exact-optimum")
    interval = _claim(table3, "table3/topic-sets/value-frozen/interval")
    experiment = table3.frozen(QUICK, "squared", "adam")
    assert decide(order, fabricate(experiment, attention=good)) == "holds"
    assert decide(order, fabricate(experiment, attention=uniform)) == "fails"
    assert decide(optimum, fabricate(experiment, attention=good)) == "holds"
    assert decide(optimum, fabricate(experiment, attention=uniform)) == "fails"
    assert decide(optimum, fabricate(experiment, attention=far)) == "fails"
    assert decide(interval, fabricate(experiment, attention=good)) == "holds"
    assert decide(interval, fabricate(experiment, attention=1e-4 * far + [0, 0, 1, 0, 0])) == "fails"


def test_the_quick_preset_stays_within_its_budget_of_trained_settings() -> None:
    found = registry(QUICK)
    trained = {(each.settings, each.topic_words) for each in experiments_of(*found.claims)}
    drawn = {(each.settings, each.topic_words) for each in experiments_of(*found.drawings)}
    assert drawn <= trained
    assert len(trained) <= 60
    assert len(figure4.cells(QUICK)) <= 18
    assert len(figure4.cells(PRESETS["paper"])) > len(figure4.cells(QUICK))
