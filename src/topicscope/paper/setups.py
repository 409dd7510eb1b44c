"""The settings that experiments are built from: documents, models, and the four combinations of the figures.

What the paper gives is here as it gives it (T = v = 10, N from 100 to 150, Dirichlet 0.1, masking, learning rate 0.01);
what it leaves open is chosen here once, with the reasons in docs/choices.md.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from topicscope.paper.claim import Measurement, Preset, Rule, above, below, over_seeds
from topicscope.paper.experiment import Experiment, Trained
from topicscope.randomness import Purpose, generator
from topicscope.settings import Data, Masking, Model, Part, Settings, Training
from topicscope.settings.training import Loss, Optimizer
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.bayes import bayes_floors, expected_losses
from topicscope.theory.finite_documents import Moments, infinite_topic_moments, moments

# The paper's documents (§6.1), drawn afresh at every step.
LDA = Data(fresh=True)
MASKING = Masking()
# §3.1's documents of τ = 2 topics, to which Theorem 3 applies.
TOPIC_SETS = replace(LDA, sampler="topics", per_document=2)
T, TAU, V = TOPIC_SETS.topics, TOPIC_SETS.per_document, TOPIC_SETS.words
# Uniform attention between two positions, at the average length.
UNIFORM_ATTENTION = 2 / sum(LDA.length)
FROZEN_ZERO = Part(start="zero", train=False)
ONE_HOT_EMBEDDING = Part(start="identity", train=False)
# "Random matrices near zero" (§2.2, Figure 4), for the models with one-hot embeddings.
NEAR_ZERO = 0.001
# Eq. 6 with the biases of §6.1, everything trained (Figure 1); weights start at BERT's N(0, 0.02²).
ALL_PARTS = Model()
# Theorem 1's model: W^K = W^Q = 0, W^V = I, and no biases except b^pred, which is given.
EMBEDDING_ALONE = Model(
    value=Part(start="identity", train=False),
    key=FROZEN_ZERO,
    query=FROZEN_ZERO,
    key_bias=FROZEN_ZERO,
    query_bias=FROZEN_ZERO,
    value_bias=FROZEN_ZERO,
    prediction_bias=FROZEN_ZERO,
)
THEOREM_1 = replace(EMBEDDING_ALONE, prediction_bias=Part(start="theorem", train=False))
# Eq. 7 without biases: W^V, W^K and W^Q trained. Any trained bias would leave W^V undetermined.
ONE_HOT = Model(
    embedding=ONE_HOT_EMBEDDING,
    value=Part(scale=NEAR_ZERO),
    key=Part(scale=NEAR_ZERO),
    query=Part(scale=NEAR_ZERO),
    key_bias=FROZEN_ZERO,
    query_bias=FROZEN_ZERO,
    value_bias=FROZEN_ZERO,
    prediction_bias=FROZEN_ZERO,
)
# The same with the biases of §6.1, trained.
ZERO = Part(start="zero")
BIASED = replace(ONE_HOT, key_bias=ZERO, query_bias=ZERO, value_bias=ZERO, prediction_bias=ZERO)
# Stage 1: attention uniform, W^V alone trained (Theorem 2).
UNIFORM = replace(ONE_HOT, key=FROZEN_ZERO, query=FROZEN_ZERO)
# Stage 2: W^V frozen at Theorem 2's (Theorem 3).
VALUE_FROZEN = replace(ONE_HOT, value=Part(start="theorem", train=False))
# Left to right as in Figures 1 and 2.
COMBINATIONS: tuple[tuple[Loss, Optimizer], ...] = (
    ("cross_entropy", "sgd"),
    ("cross_entropy", "adam"),
    ("squared", "sgd"),
    ("squared", "adam"),
)
LOSS_WORDS = {"cross_entropy": "cross-entropy", "squared": "squared loss"}
OPTIMIZER_WORDS = {"sgd": "SGD", "adam": "Adam"}
# The learning rate of the paper's figures.
PAPER_RATE = 0.01
# λ of "mild L2-regularization" (Theorem 2).
MILD_L2 = 1e-5
# Steps at which experiments that the page shows keep their matrices.
FRAMES = 40
# Steps after which Adam's held-out losses have settled (docs/choices.md): for models whose losses are compared.
SETTLED = 3_000
# Seeds in the quick preset where few decide: effects many times their spread, and variations of a setting.
FEW_SEEDS = 5
# Steps between logged rows: where the page shows the run, and where only its end matters.
FILM_ROWS, FEW_ROWS = 25, 250
# Only the metrics are written on the way.
QUIET = Training(validate_every=0, snapshots=0, checkpoint_every=1_000_000)
# How many random members of a family theory is tried on.
MEMBERS = 20
# "Slightly" (§4, §5.2) and "compensate" (§2) mean less than this share of the possible gain.
SLIGHTLY: Rule = below(0.1, origin=0)
# "More attention" (Table 3) means more than this many times that between topics; a ratio of 1 + 10⁻⁶ is no finding.
MORE_ATTENTION: Rule = above(1.05, origin=1)
# The gain is estimated from this many documents. Each contributes its exact expected loss, so few are enough: the gain
# is known to about one per cent.
GAIN_DOCUMENTS = 1_000


def combination_id(loss: Loss, optimizer: Optimizer) -> str:
    """The name in claims' ids: "squared-adam"."""
    return f"{loss.replace('_', '-')}-{optimizer}"


def combination_name(loss: Loss, optimizer: Optimizer) -> str:
    """The name in sentences and over panels: "squared loss, Adam"."""
    return f"{LOSS_WORDS[loss]}, {OPTIMIZER_WORDS[optimizer]}"


def trained_with(settings: Settings) -> str:
    """Loss and optimiser, as over panels: "squared loss, Adam"."""
    return combination_name(settings.training.loss, settings.training.optimizer)


def how(settings: Settings) -> str:
    """Loss, optimiser and how long, as in sentences."""
    training = settings.training
    if training.optimizer == "sgd" and training.learning_rate != PAPER_RATE:
        return f"{LOSS_WORDS[training.loss]}, {Budget(training.learning_rate, training.steps).words}"
    return (
        f"{combination_name(training.loss, training.optimizer)} at {training.learning_rate:g}, {training.steps:,} steps"
    )


def settings(
    model: Model,
    loss: Loss,
    optimizer: Optimizer,
    *,
    steps: int,
    data: Data = LDA,
    masking: Masking = MASKING,
    **training: object,
) -> Settings:
    """Settings of one experiment; ``training`` are further fields of ``Training``."""
    chosen = replace(QUIET, loss=loss, optimizer=optimizer, steps=steps, **training)  # type: ignore[arg-type]
    return Settings(data=data, masking=masking, model=model, training=chosen)


@dataclass(frozen=True)
class Budget:
    """Rate and steps of plain SGD, which follows gradient flow: their product is what counts.

    At the paper's 0.01 most of its figures would need more steps than anybody takes. A larger rate that is stable takes
    the same path in fewer (``tests/paper/test_flow.py``).
    """

    rate: float
    steps: int

    @property
    def words(self) -> str:
        """The budget in words."""
        equivalent = round(self.rate * self.steps / PAPER_RATE)
        return f"SGD to flow time {self.rate * self.steps:,.0f}, as {equivalent:,} steps at 0.01"


def set_up(
    name: str,
    preset: Preset,
    model: Model,
    loss: Loss,
    optimizer: Optimizer,
    how_long: "int | Budget",
    *,
    topic_words: tuple[tuple[float, ...], ...] = (),
    most_seeds: int = 0,
    **changes: Any,
) -> Experiment:
    """An experiment of so many steps, or a budget of SGD; twice as many, and all seeds, in the paper preset."""
    if isinstance(how_long, Budget):
        changes["learning_rate"] = how_long.rate
    changes = {"log_every": FILM_ROWS if "snapshots" in changes else FEW_ROWS} | changes
    steps = how_long.steps if isinstance(how_long, Budget) else how_long
    chosen = settings(model, loss, optimizer, steps=2 * steps if preset.full else steps, **changes)
    return Experiment(name=name, settings=chosen, topic_words=topic_words, most_seeds=0 if preset.full else most_seeds)


def infinite_documents(per_document: int = TAU) -> Moments:
    """Moments of Assumption 1's infinite documents of τ topics."""
    return infinite_topic_moments(T, V, per_document, MASKING)


@cache
def paper_moments() -> Moments:
    """Exact moments of the paper's finite documents."""
    return moments(TopicModel.from_settings(LDA), MASKING)


@dataclass(frozen=True)
class Gain:
    """The scale of "only slightly worse": what the Bayes floor gains over the best constant prediction."""

    constant: float
    floor: float

    @property
    def value(self) -> float:
        """What a model can gain at most by looking at the document."""
        return self.constant - self.floor


def gain(data: Data, masking: Masking, loss: Loss) -> Gain:
    """The gain for documents of equal, disjoint topics; the number of training documents plays no part."""
    return _gains(replace(data, fresh=True, documents=1), masking)[loss]


@cache
def _gains(data: Data, masking: Masking) -> dict[Loss, Gain]:
    model = TopicModel.from_settings(data)
    draw = generator(0, Purpose.THEORY)
    floor = bayes_floors(model, masking, samples=GAIN_DOCUMENTS, generator=draw).masked
    constant = constant_losses(model)
    return {
        "cross_entropy": Gain(constant["cross_entropy"], floor.cross_entropy.value),
        "squared": Gain(constant["squared"], floor.squared.value),
    }


def constant_losses(model: TopicModel) -> dict[Loss, float]:
    """The least loss of one prediction for all documents: words by how likely they are."""
    weights = model.dirichlet / model.dirichlet.sum() if model.sampler == "dirichlet" else np.ones(model.topics)
    cross_entropy, squared = expected_losses(weights / weights.sum() @ model.topic_words)
    return {"cross_entropy": float(cross_entropy), "squared": float(squared)}


def extra_loss(handicapped: Trained, whole: Trained) -> Measurement:
    """How much larger a handicapped model's loss is on the same held-out documents, as a share of the gain."""
    settings = whole.settings
    assert handicapped.settings.training.steps == settings.training.steps, "equal steps, or the loss compares lengths"
    unit = gain(settings.data, settings.masking, settings.training.loss)
    # Seed by seed; one of the two may have fewer seeds.
    count = min(len(handicapped.seeds), len(whole.seeds))
    loss, other = handicapped.held_out_loss[:count], whole.held_out_loss[:count]
    return over_seeds(
        (loss - other) / unit.value,
        share_of_the_loss=float(((loss - other) / other).mean()),
        raw_difference=float((loss - other).mean()),
        loss=float(loss.mean()),
        loss_of_the_other=float(other.mean()),
        constant=unit.constant,
        bayes_floor=unit.floor,
    )
