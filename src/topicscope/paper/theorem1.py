"""Theorem 1 and Remark 2: the embedding alone, W^V = I, uniform attention, the theorem's bias.

First exactly, for infinite documents: what the paper states is compared with a computation that does not use it, from
the second moments of the masked documents' frequencies. Where a statement fails as printed, the corrected one stands
beside it (``ours``). Then in training, against the best W^E⊤W^E for the experiments' finite documents.
"""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from topicscope.measure.blocks import block_sums, class_averages
from topicscope.paper.claim import (
    Claim,
    Drawing,
    Measurement,
    Preset,
    Results,
    claim_on,
    equal,
    exact,
    near,
    over_seeds,
    zero,
)
from topicscope.paper.experiment import Experiment, Trained
from topicscope.paper.setups import (
    EMBEDDING_ALONE,
    FRAMES,
    LDA,
    MASKING,
    MEMBERS,
    SETTLED,
    SLIGHTLY,
    THEOREM_1,
    T,
    V,
    infinite_documents,
    paper_moments,
    set_up,
)
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.check import equal_word_topics
from topicscope.theory.finite_documents import embedding_loss, finite_optimum, population_loss
from topicscope.theory.lemma1 import constants, topic_gain
from topicscope.theory.theorem1 import (
    SemidefiniteOptimum,
    paper_diagonal_embedding,
    semidefinite_optimum,
    theorem1,
    theorem1_bias,
    theorem1_embedding,
)

if TYPE_CHECKING:
    from topicscope.reporting.figures import Drawn

STEPS = SETTLED
# How near block sums must be to the optimum's, as a share of its own- minus other-topic block sum.
TOLERANCE = 0.1


def exact_claims(preset: Preset) -> tuple[Claim, ...]:
    """Theorem 1's family, its example, and what Remark 2 says of it."""
    return (
        zero(
            id="theorem1/optimal",
            statement="Embeddings whose W^E⊤W^E meets the three clauses are optimal with W^V = I and the theorem's "
            "bias.",
            unit="excess loss",
            measure=_family_excess,
        ),
        zero(
            id="theorem1/example",
            statement="E = I/(1−(1−p_c)p_m), the proof's example, is optimal.",
            unit="excess loss",
            # Its [MASK] entry included.
            measure=lambda results: exact(_excess(paper_diagonal_embedding(T, V, MASKING))),
        ),
        zero(
            id="theorem1/example-corrected",
            statement="diag(0, c₃, …, c₃) is: clause 1(a) asks for E₀₀ = 0.",
            unit="excess loss",
            measure=lambda results: exact(_excess(_diagonal())),
            kind="ours",
        ),
        equal(
            theorem1(T, V, MASKING).c3 / V,
            id="remark2/contrast",
            statement="Entries of an optimal W^E⊤W^E are on average larger within a topic than between topics, by "
            "c₃/v.",
            measure=lambda results: exact(min(_block_contrast(each.T @ each) for each in _family())),
        ),
        equal(
            0,
            id="remark2/other-words",
            statement="This may all be in a word's product with itself: an optimal E has no contrast between other "
            "words.",
            measure=_other_words,
            kind="ours",
        ),
    )


def _least_loss() -> float:
    """The minimum over all E."""
    documents, bias = infinite_documents(), theorem1_bias(T, V, MASKING)
    return population_loss(finite_optimum(documents, bias=bias), documents, bias)


def _excess(embedding: Float[np.ndarray, "dimension token"]) -> float:
    return embedding_loss(embedding, infinite_documents(), theorem1_bias(T, V, MASKING)) - _least_loss()


def _family_excess(results: Results) -> Measurement:
    """The largest excess loss of embeddings W^E that Theorem 1 calls optimal, over the minimum over all E."""
    return exact(max(abs(_excess(each)) for each in _family()), minimum=_least_loss())


def _family() -> list[Float[np.ndarray, "dimension token"]]:
    """Embeddings that Theorem 1 calls optimal: block, diagonal, and block with a random u."""
    found = [theorem1_embedding(T, V, MASKING, pattern, T * V + 2) for pattern in ("block", "diagonal")]
    return found + [theorem1_embedding(T, V, MASKING, "block", T * V + 2, u) for u in _realisable_u()]


def _diagonal() -> Float[np.ndarray, "dimension token"]:
    return theorem1_embedding(T, V, MASKING, "diagonal", T * V + 1)


def _realisable_u() -> list[Float[np.ndarray, " token"]]:
    """Random u that some embedding has: u₀ < 0, and sums −u₀v/c₂ over every topic."""
    c2 = constants(T, V, MASKING).c2
    draw = np.random.default_rng(1)
    found = []
    for first in -draw.uniform(0.001, 0.1, size=MEMBERS):
        within = draw.normal(scale=0.01, size=(T, V))
        within += -first / c2 - within.mean(axis=1, keepdims=True)
        found.append(np.concatenate([[first], within.ravel()]))
    return found


def _block_contrast(matrix: Float[np.ndarray, "token token"]) -> float:
    """Average within topic blocks, diagonal included, minus average outside them."""
    blocks = matrix[1:, 1:].reshape(T, V, T, V).mean(axis=(1, 3))
    return float(np.trace(blocks) / T - (blocks.sum() - np.trace(blocks)) / (T * (T - 1)))


def _other_words(results: Results) -> Measurement:
    """The contrast of an optimal E between different words: that of the diagonal one."""
    embedding = _diagonal()
    contrast = class_averages(embedding.T @ embedding, equal_word_topics(T, V)).contrast
    assert contrast is not None
    return exact(contrast, excess_loss=_excess(embedding))


def squared(preset: Preset) -> Experiment:
    """Theorem 1's own setting."""
    return set_up("theorem1/squared-adam", preset, THEOREM_1, "squared", "adam", STEPS, snapshots=FRAMES)


def cross_entropy(preset: Preset) -> Experiment:
    """The same with cross-entropy, for which there is no theorem; without bias."""
    return set_up("theorem1/cross-entropy-adam", preset, EMBEDDING_ALONE, "cross_entropy", "adam", STEPS)


@cache
def optimum() -> SemidefiniteOptimum:
    """The E ⪰ 0 with the least population loss of finite documents, at the theorem's bias."""
    return semidefinite_optimum(paper_moments(), theorem1_bias(T, V, MASKING))


def training_claims(preset: Preset) -> tuple[Claim, ...]:
    """Block sums (a word's own topic, and by how much it exceeds another's), and the excess population loss."""
    experiment = squared(preset)
    own, other = block_sums(optimum().matrix, TopicModel.from_settings(LDA).word_topics)

    def block_claim(name: str, words: str, target: float, measure: Callable[[float, float], float]) -> Claim:
        return claim_on(
            experiment,
            lambda trained: _block_sums(trained, measure),
            id=f"theorem1/training/{name}",
            statement=f"The embedding alone trained: {words} is that of the best positive semi-definite matrix for "
            "finite documents.",
            expected=round(target, 4),
            rule=near(target, TOLERANCE * (own - other)),
            figure="theorem1",
            kind="ours",
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
        claim_on(
            experiment,
            _trained_excess,
            id="theorem1/training/excess-loss",
            statement="The embedding alone trained comes within 10 % of the gain of the best W^E⊤W^E over the best "
            "constant prediction.",
            unit="of the gain",
            rule=SLIGHTLY,
            figure="theorem1",
            kind="ours",
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
        theorem_1_difference_of_sums=topic_gain(MASKING),
    )


def _trained_excess(trained: Trained) -> Measurement:
    moments, bias = paper_moments(), theorem1_bias(T, V, MASKING)
    constant = 1 - float(moments.label @ moments.label)
    best = optimum().loss
    losses = np.array([population_loss(matrix, moments, bias) for matrix in trained.embedding_products])
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
