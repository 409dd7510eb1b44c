"""Loss, gradient, optimum and gradient-descent path: the numbers known for the paper's setting."""

import numpy as np
import pytest

from topicscope.settings.data import Data, Masking
from topicscope.synthetic.topics import TopicModel
from topicscope.settings.training import Average
from topicscope.theory.optima import theorem_2
from topicscope.theory.population import finite_optimum, moments, population_loss

LDA = TopicModel.from_settings(Data())
MASKING = Masking()


@pytest.mark.parametrize(
    ("average", "mask_column", "same_word", "same_topic", "different_topic"),
    [("document", 0.0100000, 0.2152863, 0.1016500, -0.0014460), ("batch", 0.01, 0.2166704, 0.1023171, -0.0015280)],
)
def test_the_finite_optimum_of_the_papers_setting(
    average: Average, mask_column: float, same_word: float, same_topic: float, different_topic: float
) -> None:
    optimum = finite_optimum(moments(LDA, MASKING, average))
    found = [optimum[1, 0], optimum[1, 1], optimum[1, 2], optimum[1, 11]]
    np.testing.assert_allclose(found, [mask_column, same_word, same_topic, different_topic], atol=5e-8)


def test_the_finite_losses_of_the_papers_setting() -> None:
    eq_1 = moments(LDA, MASKING)
    assert population_loss(finite_optimum(eq_1), eq_1) == pytest.approx(0.94532184, abs=5e-9)
    assert population_loss(theorem_2(10, 10, MASKING), eq_1) == pytest.approx(0.94562537, abs=5e-9)
