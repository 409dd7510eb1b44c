"""Theorem 1 in training: the embedding alone, W^V = I, the theorem's bias, against the best W^E⊤W^E."""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from topicscope.measure.blocks import block_sums
from topicscope.paper.claim import Claim, Drawing, Measurement, Preset, Results, near, over_seeds
from topicscope.paper.experiment import Experiment, Trained
from topicscope.paper.setups import EMBEDDING_ALONE, FRAMES, LDA, SETTLED, SLIGHTLY, THEOREM_1, settings, steps_of
from topicscope.settings import Masking
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.finite_documents import moments, population_loss
from topicscope.theory.lemma1 import topic_gain
from topicscope.theory.theorem1 import SemidefiniteOptimum, semidefinite_optimum, theorem1_bias

if TYPE_CHECKING:
    from topicscope.reporting.figures import Drawn

STEPS = SETTLED
# How near block sums must be to the optimum's, as a share of its own- minus other-topic block sum.
TOLERANCE = 0.1


def squared(preset: Preset) -> Experiment:
    """Theorem 1's own setting."""
    return Experiment(
        name="theorem1/squared-adam",
        reproduces="Theorem 1",
        settings=settings(THEOREM_1, "squared", "adam", steps=steps_of(STEPS, preset.full), snapshots=FRAMES),
    )


def cross_entropy(preset: Preset) -> Experiment:
    """The same with cross-entropy, for which there is no theorem; without bias."""
    return Experiment(
        name="theorem1/cross-entropy-adam",
        reproduces="§4",
        settings=settings(EMBEDDING_ALONE, "cross_entropy", "adam", steps=steps_of(STEPS, preset.full)),
    )


@cache
def optimum() -> SemidefiniteOptimum:
    """The E ⪰ 0 with the least population loss of finite documents, at the theorem's bias."""
    exact = moments(TopicModel.from_settings(LDA), Masking())
    return semidefinite_optimum(exact, theorem1_bias(10, 10, Masking()))


def claims(preset: Preset) -> tuple[Claim, ...]:
    """Block sums (a word's own topic, and by how much it exceeds another's), and the excess population loss."""
    experiment = squared(preset)
    own, other = block_sums(optimum().matrix, TopicModel.from_settings(LDA).word_topics)

    def block_claim(name: str, words: str, target: float, measure: Callable[[float, float], float]) -> Claim:
        return Claim(
            id=f"theorem1/training/{name}",
            source="Theorem 1",
            statement=f"The embedding alone trained: {words} is that of the best positive semi-definite matrix for "
            "finite documents.",
            expected=round(target, 4),
            rule=near(target, TOLERANCE * (own - other)),
            needs=(experiment,),
            measure=lambda trained: _block_sums(trained[experiment.name], measure),
            figure="theorem1",
            ours=True,
        )

    # The sum over another topic alone is near 0 in an untrained W^E⊤W^E too: no claim can rest on it.
    return (
        block_claim("own-topic-sum", "W^E⊤W^E summed over a word's own topic", own, lambda own, other: own),
        block_claim(
            "difference-of-sums",
            "the sum of W^E⊤W^E over a word's own topic minus that over another",
            own - other,
            lambda own, other: own - other,
        ),
        Claim(
            id="theorem1/training/excess-loss",
            source="Theorem 1",
            statement="The embedding alone trained comes within 10 % of the gain of the best W^E⊤W^E over the best "
            "constant prediction.",
            expected="< 0.1",
            unit="of the gain",
            rule=SLIGHTLY,
            needs=(experiment,),
            measure=lambda trained: _excess(trained[experiment.name]),
            figure="theorem1",
            ours=True,
        ),
    )


def drawings(preset: Preset) -> tuple[Drawing, ...]:
    """The trained W^E⊤W^E beside the optimum."""
    experiments = (squared(preset), cross_entropy(preset))
    return (Drawing(name="theorem1", needs=experiments, draw=lambda trained: _draw(trained, experiments)),)


def _block_sums(trained: Trained, measure: Callable[[float, float], float]) -> Measurement:
    sums = [block_sums(matrix, trained.word_topics) for matrix in trained.embedding_products]
    return over_seeds(
        [measure(own, other) for own, other in sums],
        other_topic_sum=float(np.mean([other for _, other in sums])),
        theorem_1_difference_of_sums=topic_gain(Masking()),
    )


def _excess(trained: Trained) -> Measurement:
    exact, bias = moments(TopicModel.from_settings(LDA), Masking()), theorem1_bias(10, 10, Masking())
    constant = 1 - float(exact.label @ exact.label)
    best = optimum().loss
    losses = np.array([population_loss(matrix, exact, bias) for matrix in trained.embedding_products])
    return over_seeds(
        (losses - best) / (constant - best), population_loss=float(losses.mean()), optimum=best, constant=constant
    )


def _draw(trained: Results, experiments: tuple[Experiment, ...]) -> "Drawn":
    from topicscope.reporting.figures.training import heat_maps

    panels = {
        "trained, squared loss": trained[experiments[0].name].embedding_products[0],
        "trained, mean over seeds": trained[experiments[0].name].embedding_products.mean(axis=0),
        "best W^E⊤W^E (theory)": optimum().matrix,
        "trained, cross-entropy": trained[experiments[1].name].embedding_products[0],
    }
    return heat_maps(
        panels,
        words=10,
        same_scale=[tuple(panels)[:3]],
        title="Theorem 1 in training: W^E⊤W^E of the embedding trained alone (W^V = I, uniform attention)",
    )
