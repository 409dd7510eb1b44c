"""How far a matrix is from what the theorems say: clause by clause, by classes of entries, and in loss."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from topicscope.errors import InputError
from topicscope.measure.blocks import class_masks
from topicscope.settings.data import Masking
from topicscope.theory.finite_documents import Moments, infinite_topic_moments, population_loss
from topicscope.theory.lemma1 import Family, lemma1, require_topic_sets
from topicscope.theory.theorem1 import theorem1, theorem1_bias
from topicscope.theory.theorem2 import theorem2


@dataclass(frozen=True)
class Deviation:
    """The size of some residuals: the largest in absolute value, and the root of their mean square."""

    worst: float
    rms: float


@dataclass(frozen=True)
class ClassAverage:
    """The mean of a class of entries, their standard deviation, and how many there are."""

    mean: float
    spread: float
    count: int


@dataclass(frozen=True)
class FamilyResiduals:
    """How far a matrix is from Lemma 1's or Theorem 1's family."""

    u: tuple[float, ...]
    """u₀ … u_Tv of the nearest member."""

    clauses: dict[str, Deviation]
    """How far each clause's two sides differ at the fitted u; in 1b, 3a and 3b they are sums over a topic's words."""

    distance: float
    """Frobenius distance to the nearest member."""

    loss: float
    """Expected loss over infinite documents."""

    excess_loss: float
    """That loss minus the family's: 0 for a member."""


@dataclass(frozen=True)
class OptimumResiduals:
    """How far a matrix is from one optimal matrix."""

    clauses: dict[str, Deviation]
    """For each class of entries, and "all": matrix minus optimum, entry by entry."""

    distance: float
    """Frobenius distance."""

    relative_distance: float
    """That distance over the optimum's norm."""

    loss: float
    optimum_loss: float
    excess_loss: float

    share_of_gain: float | None
    """The matrix's gain over predicting nothing (W = 0) as a share of the optimum's; None if the optimum has none."""

    classes: dict[str, ClassAverage | None]
    """The optimum's own averages."""


@dataclass(frozen=True)
class Residuals:
    """A matrix beside Lemma 1 and Theorem 2."""

    classes: dict[str, ClassAverage | None]
    lemma_1: FamilyResiduals
    theorem_2: OptimumResiduals


def equal_word_topics(topics: int, words: int) -> Int[np.ndarray, " token"]:
    """Each token's topic in the paper's model: 0 for [MASK], ⌈i/v⌉ for word i (Definition 1)."""
    return np.append(0, np.repeat(np.arange(1, topics + 1), words))


def class_statistics(
    matrix: Float[np.ndarray, "token token"], topic: Int[np.ndarray, " token"]
) -> dict[str, ClassAverage | None]:
    """Mean and spread over same word, same topic (other word), different topic, [MASK] column and 0-th row.

    A class without entries (same topic for v = 1, different topic for T = 1) is None.
    """
    found = {name: matrix[where] for name, where in class_masks(topic).items()}
    return {
        name: ClassAverage(float(each.mean()), float(each.std()), each.size) if each.size else None
        for name, each in found.items()
    }


def residuals(
    matrix: Float[np.ndarray, "row column"],
    topics: int,
    words: int,
    masking: Masking = Masking(),
    per_document: int = 2,
) -> Residuals:
    """A matrix W (of eq. A.8, or eq. 7 with uniform attention) beside Lemma 1 and Theorem 2.

    Losses are over infinite documents of τ = ``per_document`` topics, τ < T, without bias. For a model with a bias
    pass W + b1⊤: frequencies sum to one, so it predicts the same.
    """
    require_topic_sets(topics, per_document)
    check_size(matrix.shape, topics, words)
    population = infinite_topic_moments(topics, words, per_document, masking)
    topic = equal_word_topics(topics, words)
    return Residuals(
        classes=class_statistics(matrix, topic),
        lemma_1=family_residuals(matrix, lemma1(topics, words, masking), population),
        theorem_2=optimum_residuals(matrix, theorem2(topics, words, masking), topic, population),
    )


def embedding_residuals(
    gram: Float[np.ndarray, "row column"], topics: int, words: int, masking: Masking = Masking(), per_document: int = 2
) -> FamilyResiduals:
    """E = W^E⊤W^E beside Theorem 1, with W^V = I and Theorem 1's bias whatever the model's own are."""
    require_topic_sets(topics, per_document)
    check_size(gram.shape, topics, words)
    population = infinite_topic_moments(topics, words, per_document, masking)
    family = theorem1(topics, words, masking)
    return family_residuals(gram, family, population, theorem1_bias(topics, words, masking))


def family_residuals(
    matrix: Float[np.ndarray, "token token"],
    family: Family,
    population: Moments,
    bias: Float[np.ndarray, " token"] | None = None,
) -> FamilyResiduals:
    """Residuals of each clause at the u of the nearest member; the family is optimal with this ``bias``."""
    u = family.fit(matrix)
    difference = matrix - family.project(matrix)
    sums = family.words * family.topic_means(difference[:, 1:])
    own = np.repeat(np.eye(family.topics, dtype=bool), family.words, axis=0)
    clauses = {
        "1a": deviation(difference[0, :1]),
        "1b": deviation(sums[0]),
        "2a": deviation(difference[1:, 0]),
        "3a": deviation(sums[1:][own]),
        "3b": deviation(sums[1:][~own]),
    }
    return FamilyResiduals(
        u=tuple(u.tolist()),
        clauses=clauses,
        distance=float(np.linalg.norm(difference)),
        loss=population_loss(matrix, population, bias),
        # A member is a minimiser, so the excess is E‖D x̃‖²: no digits are lost to a difference of losses.
        excess_loss=float(np.vdot(difference @ population.second, difference)),
    )


def optimum_residuals(
    matrix: Float[np.ndarray, "token token"],
    optimum: Float[np.ndarray, "token token"],
    topic: Int[np.ndarray, " token"],
    population: Moments,
    bias: Float[np.ndarray, " token"] | None = None,
) -> OptimumResiduals:
    """Entry by entry, by classes; losses are the population's, with the same bias for both matrices."""
    difference = matrix - optimum
    clauses = {name: deviation(difference[where]) for name, where in class_masks(topic).items() if where.any()}
    distance = float(np.linalg.norm(difference))
    nothing = np.zeros_like(matrix)
    loss, least, most = (population_loss(each, population, bias) for each in (matrix, optimum, nothing))
    return OptimumResiduals(
        clauses=clauses | {"all": deviation(difference)},
        distance=distance,
        relative_distance=distance / float(np.linalg.norm(optimum)),
        loss=loss,
        optimum_loss=least,
        excess_loss=loss - least,
        share_of_gain=(most - loss) / (most - least) if most > least else None,
        classes=class_statistics(optimum, topic),
    )


def deviation(values: Float[np.ndarray, "..."]) -> Deviation:
    """The worst residual and the root mean square of all; zeros if there are none."""
    if not values.size:
        return Deviation(0.0, 0.0)
    return Deviation(float(abs(values).max()), float(np.sqrt(np.mean(values**2))))


def check_size(shape: tuple[int, ...], topics: int, words: int, name: str = "The matrix") -> None:
    """Refuse a matrix that does not fit T topics of v words; say which T and v it would fit."""
    rows, columns, needed = *shape, topics * words + 1
    if rows == columns == needed:
        return
    remedy = "give a square matrix" if rows != columns else fitting(rows - 1, topics, words)
    raise InputError(
        f"{name} is {rows} × {columns}, but topics = {topics} and words = {words} need {needed} × {needed}: {remedy}."
    )


def fitting(words_in_all: int, topics: int, words: int) -> str:
    """The T and v whose product Tv is the given number, those nearest to the ones asked for first."""
    if words_in_all < 1:
        return "no setting has fewer than two tokens; give a larger matrix"
    pairs = [(t, words_in_all // t) for t in range(1, words_in_all + 1) if words_in_all % t == 0]
    pairs.sort(key=lambda pair: abs(np.log(pair[0] / topics)) + abs(np.log(pair[1] / words)))
    shown = " or ".join(f"topics = {t} and words = {v}" for t, v in pairs[:3])
    return f"it fits {shown}; give one of these"
