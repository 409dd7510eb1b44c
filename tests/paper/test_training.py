"""What is trained together: the gain that costs are measured in, and the formula of gradients at the start."""

from collections.abc import Iterator

import numpy as np
import pytest

from support.fabricated import SEEDS, decide, fabricate
from topicscope.paper import experiment, figure4, training
from topicscope.paper.claim import PRESETS
from topicscope.paper.experiment import Trained, start_weights
from topicscope.paper.setups import LDA, constant_losses, gain
from topicscope.settings import Masking
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.dynamics import key_gradient

QUICK = PRESETS["quick"]


def test_the_gain_is_from_the_best_constant_prediction_to_the_bayes_floor() -> None:
    model = TopicModel.from_settings(LDA)
    assert constant_losses(model)["squared"] == pytest.approx(0.99)
    assert constant_losses(model)["cross_entropy"] == pytest.approx(np.log(100))
    assert gain(LDA, Masking(), "squared").floor == pytest.approx(0.874, abs=0.005)


@pytest.fixture
def few_gradient_documents(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The formula is compared with itself on the same documents: few of them show as much as all 400."""
    monkeypatch.setattr(experiment, "GRADIENT_DOCUMENTS", 40)
    training.gradient_bags.cache_clear()
    yield
    training.gradient_bags.cache_clear()


@pytest.mark.usefixtures("few_gradient_documents")
def test_the_gradient_formula_turns_with_a_wrong_constant_and_a_wrong_exponent() -> None:
    claims = {
        claim.id.removeprefix("figure4/first-gradients/cross-entropy/"): claim
        for claim in training.gradient_claims(QUICK)
    }
    small, large = training.gradient_cells(QUICK)["cross_entropy"]
    settings = small.experiment().settings
    bags, model = training.gradient_bags(settings), TopicModel.from_settings(LDA)
    norms = []
    for seed in range(SEEDS):
        weights = start_weights(settings, seed, model)
        norms.append(np.linalg.norm(key_gradient(bags, small.loss, weights["value"][0], weights["query"][0])))

    def result(cell: figure4.Cell, factor: float) -> Trained:
        found = {"value": np.ones(SEEDS), "key": factor * np.array(norms), "query": np.array(norms)}
        return fabricate(cell.experiment(), gradients=found)

    formula, exponent = claims["scale-0.001/formula"], claims["exponent"]
    assert decide(formula, result(small, 1.0)) == "holds"
    assert decide(formula, result(small, 2.0)) == "fails"
    assert decide(exponent, result(small, 1.0), result(large, 400.0)) == "holds"
    assert decide(exponent, result(small, 1.0), result(large, 20.0)) == "fails"
