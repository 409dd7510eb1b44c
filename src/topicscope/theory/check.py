"""How far a matrix is from what the theorems say: clause by clause, by classes of entries, and in loss."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from topicscope.errors import InputError
from topicscope.measure.blocks import Pattern, class_masks, pattern
from topicscope.records import Result
from topicscope.settings.data import Data, Masking
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.classes import Matrix, Vector
from topicscope.theory.finite_documents import (
    Moments,
    finite_optimum,
    infinite_moments,
    infinite_topic_moments,
    moments,
    population_loss,
)
from topicscope.theory.lemma1 import Family, lemma1, require_topic_sets
from topicscope.theory.theorem1 import semidefinite_optimum, theorem1, theorem1_bias
from topicscope.theory.theorem2 import theorem2_of

# Patterns of a matrix, in words.
PATTERNS: dict[Pattern, str] = {
    "block": "the block pattern",
    "diagonal": "a diagonal without blocks",
    "none": "no pattern",
}
OWN_TOPICS = (
    "the topics are not disjoint sets of equally many, equally likely words: Lemma 1 and Theorem 1 are not about them, "
    "and Theorem 2's matrix is the answer to its question for them (infinite documents, λ → 0); a word counts for the "
    "topic that makes it likeliest"
)


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


@dataclass(frozen=True, eq=False)
class Check(Result):
    """One matrix beside theory; parts that its setting does not define are None, with the reason in ``notes``."""

    verdict: str
    """What the numbers say, in one sentence."""
    source: str
    matrix: str
    """What the matrix is, as a formula."""
    data: Data
    masking: Masking
    classes: dict[str, ClassAverage | None]
    lemma_1: FamilyResiduals | None
    theorem_1: FamilyResiduals | None
    """For E = W^E⊤W^E, if the embedding is not one-hot."""
    theorem_2: OptimumResiduals | None
    finite: OptimumResiduals | None
    """The distance to the setting's optimum for finite documents."""
    notes: tuple[str, ...]
    word_topics: Int[np.ndarray, " token"]
    """Each token's topic; 0 for [MASK]."""
    matrices: dict[str, Matrix] = field(default_factory=dict)
    """The "matrix" itself, and the optima "finite" and "theorem_2" where they are defined."""

    def __str__(self) -> str:
        return f"{self.matrix} of {self.source}: {self.verdict}"


def check_matrix(
    matrix: Float[np.ndarray, "row column"], data: Data, masking: Masking, source: str, *, embedding: bool = False
) -> Check:
    """A matrix W beside what its setting defines; or, for an ``embedding`` W^E⊤, its W^E⊤W^E with W^V = I.

    A setting without Lemma 1 and Theorem 2 (T = τ; p_c + p_r = 1) is refused.
    """
    model = TopicModel.from_settings(data)
    population, words = moments(model, masking), model.vocabulary - 1
    if not embedding:
        check_tokens(matrix.shape, model, source)
        # Without bias and ridge (eq. 1).
        optimum, theorems = finite_optimum(population), theorem_residuals(model, masking, value=matrix)
        return beside_theory(matrix, optimum, population, model, ("W", source, data, masking), theorems)
    check_tokens((len(matrix), len(matrix)), model, f"W^E⊤W^E of {source}")
    gram, theorems = matrix @ matrix.T, theorem_residuals(model, masking, gram=matrix @ matrix.T)
    # It takes away the random words, whatever the topics are.
    bias = theorem1_bias(1, words, masking)
    theorems["notes"] += ("losses are with W^V = I and Theorem 1's bias; Lemma 1 and Theorem 2 are about W^V",)
    optimum = semidefinite_optimum(population, bias).matrix
    return beside_theory(gram, optimum, population, model, ("W^E⊤W^E", source, data, masking), theorems, bias)


def theorem_residuals(
    model: TopicModel, masking: Masking, *, value: Matrix | None = None, gram: Matrix | None = None
) -> dict[str, Any]:
    """How far W^V is from Lemma 1 and Theorem 2, and W^E⊤W^E from Theorem 1, by their names in ``Check``; and notes.

    Losses are over infinite documents of τ < T topics; W^V's are without bias. For a model with a bias pass W + b1⊤:
    frequencies sum to one, so it predicts the same. Topics of your own have an answer to Theorem 2's question alone.
    """
    topics, words, residuals = model.topics, model.equal_words, dict[str, Any](notes=())
    if words or model.sampler == "topics":
        require_topic_sets(topics, model.per_document)
    if words:
        documents = infinite_topic_moments(topics, words, model.per_document, masking)
        if value is not None:
            residuals["lemma_1"] = family_residuals(value, lemma1(topics, words, masking), documents)
        if gram is not None:
            family, bias = theorem1(topics, words, masking), theorem1_bias(topics, words, masking)
            residuals["theorem_1"] = family_residuals(gram, family, documents, bias)
    else:
        residuals["notes"], documents = (OWN_TOPICS,), infinite_moments(model, masking)
    if value is not None:
        optimum = theorem2_of(model, masking)
        residuals["theorem_2"] = optimum_residuals(value, optimum, model.word_topics, documents)
    return residuals


def beside_theory(
    matrix: Matrix,
    optimum: Matrix | None,
    population: Moments,
    model: TopicModel,
    about: tuple[str, str, Data, Masking],
    theorems: dict[str, Any],
    bias: Vector | None = None,
) -> Check:
    """A matrix beside the optimum for finite documents, if one is known, and what the theorems say about it.

    ``about`` is the matrix as a formula, its source, and the setting.
    """
    topics, matrices = model.word_topics, {"matrix": matrix}
    finite, theorem_2 = None, theorems.get("theorem_2")
    if optimum is not None:
        finite, matrices["finite"] = optimum_residuals(matrix, optimum, topics, population, bias), optimum
    if theorem_2:
        matrices["theorem_2"] = theorem2_of(model, about[-1])
    classes = class_statistics(matrix, topics)
    patterns = dict[str, Pattern]()
    if classes["same_topic"] and classes["different_topic"]:
        patterns = {name: pattern(shown, topics) for name, shown in matrices.items()}
    name, source, data, masking = about
    missing: dict[str, Any] = dict.fromkeys(("lemma_1", "theorem_1", "theorem_2"))
    return Check(
        verdict=_verdict(classes, patterns, finite, theorem_2),
        source=source,
        matrix=name,
        data=data,
        masking=masking,
        classes=classes,
        finite=finite,
        word_topics=topics,
        matrices=matrices,
        **missing | theorems,
    )


def _verdict(
    classes: dict[str, ClassAverage | None],
    patterns: dict[str, Pattern],
    finite: OptimumResiduals | None,
    theorem_2: OptimumResiduals | None,
) -> str:
    parts = []
    if finite is None:
        parts.append("no optimum is known to hold it against")
    elif (share := finite.share_of_gain) is not None:
        gained = f"{100 * share:.0f} % of the optimum's gain"
        parts.append(gained if share >= 0 else "its loss is above that of predicting nothing")
    own, best = patterns.get("matrix"), patterns.get("finite")
    if own:
        parts.append("the block pattern survives" if own == "block" else f"{PATTERNS[own]} is seen")
    if own and best and own != best:
        parts[-1] += f", where the optimum has {PATTERNS[best]}"
    compared = [
        _times(diagonal.mean, other.mean, whose)
        for whose, optimum in (("Theorem 2's", theorem_2), ("the optimum's", finite))
        if optimum and (diagonal := classes["same_word"]) and (other := optimum.classes["same_word"])
    ]
    if compared:
        parts.append(f"the diagonal is {' and '.join(compared)}")
    return "; ".join(parts) + "."


def _times(mean: float, other: float, whose: str) -> str:
    """How many times one number is another, in words."""
    times = mean / other if other else np.inf
    return f"as large as {whose}" if abs(times - 1) < 0.005 else f"{times:.2g} times {whose}"


def equal_word_topics(topics: int, words: int) -> Int[np.ndarray, " token"]:
    """Each token's topic in the paper's model: 0 for [MASK], ⌈i/v⌉ for word i (Definition 1)."""
    return np.append(0, np.repeat(np.arange(1, topics + 1), words))


def class_statistics(matrix: Matrix, topic: Int[np.ndarray, " token"]) -> dict[str, ClassAverage | None]:
    """Mean and spread over same word, same topic (other word), different topic, [MASK] column and 0-th row.

    A class without entries (same topic for v = 1, different topic for T = 1) is None.
    """
    entries = {name: matrix[where] for name, where in class_masks(topic).items()}
    return {
        name: ClassAverage(float(values.mean()), float(values.std()), values.size) if values.size else None
        for name, values in entries.items()
    }


def family_residuals(
    matrix: Matrix,
    family: Family,
    population: Moments,
    bias: Vector | None = None,
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
    matrix: Matrix,
    optimum: Matrix,
    topic: Int[np.ndarray, " token"],
    population: Moments,
    bias: Vector | None = None,
) -> OptimumResiduals:
    """Entry by entry, by classes; losses are the population's, with the same bias for both matrices."""
    difference = matrix - optimum
    clauses = {name: deviation(difference[where]) for name, where in class_masks(topic).items() if where.any()}
    distance = float(np.linalg.norm(difference))
    nothing = np.zeros_like(matrix)
    loss, least, most = (population_loss(value, population, bias) for value in (matrix, optimum, nothing))
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


def check_tokens(shape: tuple[int, ...], model: TopicModel, name: str) -> None:
    """Refuse a matrix whose tokens are not the topics' words and [MASK]; say which T and v it would fit."""
    rows, columns, needed = *shape, model.vocabulary
    if rows == columns == needed:
        return
    topics, words = model.topics, model.equal_words
    if not words:
        raise InputError(
            f"{name} is {rows} × {columns}, but data.topic_words has {needed - 1} words, which with [MASK] need "
            f"{needed} × {needed}: give a matrix and topics that belong together."
        )
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
