"""SGD follows gradient flow: what an experiment reaches at a larger rate is what 0.01 would reach in more steps."""

from dataclasses import replace

import numpy as np
import pytest

from topicscope.measure.blocks import class_averages
from topicscope.paper import figure1, figure2
from topicscope.paper.setups import ALL_PARTS, LDA, MILD_L2, PAPER_RATE, Budget, paper_moments, settings
from topicscope.settings import Settings
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.finite_documents import gradient_descent
from topicscope.training.loop import train_in_memory

TOPICS = TopicModel.from_settings(LDA)


def test_the_population_path_of_figure_2_is_that_of_the_papers_rate() -> None:
    budget, start = figure2.SGD["squared"], np.zeros((101, 101))
    steps = round(budget.rate * budget.steps / PAPER_RATE)
    ours = gradient_descent(start, paper_moments(), budget.rate, budget.steps, MILD_L2)
    papers = gradient_descent(start, paper_moments(), PAPER_RATE, steps, MILD_L2)
    earlier = gradient_descent(start, paper_moments(), PAPER_RATE, steps // 2, MILD_L2)
    assert np.abs(ours - papers).max() < 0.002 * np.abs(papers).max()
    # Control: half of the time is another place.
    assert np.abs(earlier - papers).max() > 0.05 * np.abs(papers).max()


def test_sgd_at_these_budgets_passes_theorem_2s_block_and_does_not_reach_the_diagonal() -> None:
    budget = figure2.SGD["squared"]
    found, later = (
        class_averages(
            gradient_descent(np.zeros((101, 101)), paper_moments(), budget.rate, steps, MILD_L2), TOPICS.word_topics
        )
        for steps in (budget.steps, 50 * budget.steps)
    )
    assert found.same_topic is not None
    assert found.same_word / found.same_topic < 1.1
    assert later.same_topic is not None
    assert later.same_word / later.same_topic > 1.5


def _products(budget: Budget, batch: int) -> np.ndarray:
    """W^E⊤W^V W^E of two runs of all parts."""
    chosen: Settings = settings(
        ALL_PARTS, "squared", "sgd", steps=budget.steps, learning_rate=budget.rate, batch=batch, threads=1
    )
    runs = train_in_memory([replace(chosen, seed=seed) for seed in (100, 101)], TOPICS)
    found = []
    for run in runs:
        assert run.weights is not None
        table = run.weights["embedding"].astype(np.float64)
        found.append(table @ run.weights["value"][0] @ table.T)
    return np.array(found)


def _contrasts(products: np.ndarray) -> np.ndarray:
    return np.array([class_averages(matrix, TOPICS.word_topics).contrast for matrix in products], dtype=np.float64)


def test_training_all_parts_takes_one_path_at_two_rates() -> None:
    """Batches as many times larger as the rate, so that both see as many documents per flow time."""
    fast, slow = (
        _contrasts(_products(Budget(rate, round(60 / rate)), batch=round(160 * rate))) for rate in (0.5, 0.25)
    )
    half = _contrasts(_products(Budget(0.5, 60), batch=80))
    assert fast == pytest.approx(slow, rel=0.05)
    # Control: half of the time is another place.
    assert np.all(np.abs(half / slow - 1) > 0.2)


def test_budgets_say_what_they_are_at_the_papers_rate() -> None:
    assert figure1.SGD.words == "SGD to flow time 800, as 80,000 steps at 0.01"
