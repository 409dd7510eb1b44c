"""The loss over attention's weights on a grid, with its optima and Theorem 3's interval; also for finite documents."""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from topicscope.errors import InputError, check_at_least
from topicscope.randomness import Purpose, generator
from topicscope.records import Result
from topicscope.theory.classes import ClassMatrix
from topicscope.theory.finite_attention import (
    Estimate,
    Optimum,
    Weights,
    attention_optimum,
    joint_optimum,
    sampled_counts,
)
from topicscope.theory.landscape import AttentionOptimum, Landscape, minimise
from topicscope.theory.setting import TheorySetting, errors_with_option_names
from topicscope.theory.summary import optimum_notes, theorem3_reasons
from topicscope.theory.theorem2 import Pattern
from topicscope.theory.theorem3 import Theorem3, theorem3

POINTS = 200
# The grid begins here; it ends beyond the interval of Theorem 3, so that both its bounds are in the figure.
LEAST_WEIGHT = 1e-2
BEYOND = 10.0
# How many finite documents are drawn, the most words of their vocabulary and of a document, and their grid, which is
# coarser because each of its losses is a mean over all documents.
FINITE_DOCUMENTS = 2_000
FINITE_WORDS = 2_000
FINITE_LENGTH = 5_000
FINITE_POINTS = 40


@dataclass(frozen=True)
class SampledOptimum:
    """The best weights on sampled documents; averages with 95 % intervals."""

    weights: dict[str, float]
    weighted_average: Estimate
    block_share: Estimate
    """How much of the weight that a word has with itself two words of its topic share in W^V."""

    loss: float
    loss_uniform: float
    attained: bool


@dataclass(frozen=True, eq=False)
class FiniteLandscape:
    """The loss over sampled finite documents, and the best weights for them."""

    documents: int
    length: tuple[int, int]
    weights: Float[np.ndarray, " point"]
    """The values of α and of β on its grid."""

    loss: Float[np.ndarray, "point point"]
    """One row per α and one column per β, for Assumption 2's weights."""

    optima: dict[str, SampledOptimum]
    """"assumption_2": of Assumption 2's weights; "free_mask_weights": with the two weights on [MASK] keys free, besides
    α and β; "by_topics": the same among weights that treat all words of a topic alike; "joint": of W^V and these
    weights together."""


@dataclass(frozen=True, eq=False)
class LandscapeGrid(Result):
    """The grid, and what theory says beside it."""

    setting: TheorySetting
    value: Pattern
    classes: ClassMatrix
    weights: Float[np.ndarray, " point"]
    """The values of α and of β on the grid."""

    loss: Float[np.ndarray, "point point"]
    """One row per α and one column per β."""

    word_loss: Float[np.ndarray, "point point"] | None
    """The same without [MASK] queries; None if there are no others."""

    average: Float[np.ndarray, "point point"]
    optimum: AttentionOptimum
    optimum_without_mask_queries: AttentionOptimum | None
    theorem3: Theorem3
    finite: FiniteLandscape | None = None
    reasons: dict[str, str] = field(default_factory=dict)
    """Why a number is None, by its dotted name."""

    notes: dict[str, list[str]] = field(default_factory=dict)
    """What a reader should know beside a part's numbers."""

    def rows(self) -> list[dict[str, float]]:
        """The grid, a row per pair of α and β."""
        alpha, beta = np.meshgrid(self.weights, self.weights, indexing="ij")
        columns = {"alpha": alpha, "beta": beta, "weighted_average": self.average, "loss": self.loss}
        if self.word_loss is not None:
            columns["loss_without_mask_queries"] = self.word_loss
        values = zip(*(column.ravel().tolist() for column in columns.values()), strict=True)
        return [dict(zip(columns, row, strict=True)) for row in values]

    def __str__(self) -> str:
        s = self.setting
        return f"landscape of {self.value} W^V, T = {s.topics}, τ = {s.per_document}, v = {s.words}"


def landscape_grid(setting: TheorySetting, value: Pattern, points: int = POINTS, *, finite: bool) -> LandscapeGrid:
    """The exact loss over α and β for Theorem 2's W^V ("block") or D.4's ("diagonal")."""
    check_at_least("points", points, 2)
    if not setting.equal_topics:
        raise InputError(
            f"topic_words = {setting.topic_words} has topics that overlap or differ, for which α and β, the weights of "
            "words of the same topic, are not defined: give disjoint topics of equally many, equally likely words, or "
            "see the optimum under uniform attention with topicscope theory."
        )
    with errors_with_option_names():
        classes = setting.value(value)
    whole, bounds = Landscape(setting.infinite, classes), theorem3(setting.infinite)
    word_queries = setting.keep + setting.random > 0
    words = Landscape(setting.infinite, classes, mask_queries=False) if word_queries else None
    optimum = minimise(whole)
    largest = max(optimum.alpha, optimum.beta, 100.0, bounds.high or 0.0, (bounds.limit or 0.0) * setting.words)
    weights = np.geomspace(LEAST_WEIGHT, BEYOND * largest, points)
    alpha, beta = weights[:, None], weights[None, :]
    reasons = theorem3_reasons(bounds, setting)
    if words is None:
        without = "there are no other queries, since p_c = p_r = 0"
        reasons["optimum_without_mask_queries"] = reasons["word_loss"] = without
    sampled = _finite(setting, classes, weights[[0, -1]]) if finite else None
    notes = {"optimum": optimum_notes(optimum)}
    notes["theorem3"] = [f"Theorem 3 does not apply: {text}" for text in bounds.violated]
    if sampled is not None:
        notes |= {f"finite.optima.{name}": optimum_notes(best) for name, best in sampled.optima.items()}
    return LandscapeGrid(
        setting=setting,
        value=value,
        classes=classes,
        weights=weights,
        loss=whole.loss(alpha, beta),
        word_loss=None if words is None else words.loss(alpha, beta),
        average=whole.weighted_average(alpha, beta),
        optimum=optimum,
        optimum_without_mask_queries=None if words is None else minimise(words),
        theorem3=bounds,
        finite=sampled,
        reasons=reasons,
        notes={name: lines for name, lines in notes.items() if lines},
    )


def _finite(setting: TheorySetting, classes: ClassMatrix, ends: Float[np.ndarray, " 2"]) -> FiniteLandscape:
    if setting.topics * setting.words > FINITE_WORDS:
        raise InputError(
            f"finite is not allowed with topics · words = {setting.topics * setting.words}: its documents are drawn; "
            f"give at most {FINITE_WORDS:,} words, or leave finite out."
        )
    if setting.length[1] > FINITE_LENGTH:
        raise InputError(
            f"finite is not allowed with length = {setting.length[0]} {setting.length[1]}: its documents are drawn; "
            f"give at most {FINITE_LENGTH:,} words per document, or leave finite out, which is their limit."
        )
    draw = generator(0, Purpose.THEORY)
    counts = sampled_counts(setting.data("topics"), setting.masking, FINITE_DOCUMENTS, generator=draw)
    weights = np.geomspace(ends[0], ends[1], FINITE_POINTS)
    loss = [[counts.loss(classes, Weights(alpha, beta, 1.0, beta)) for beta in weights] for alpha in weights]
    optima = {
        "assumption_2": attention_optimum(counts, classes, "assumption 2"),
        "free_mask_weights": attention_optimum(counts, classes, "all"),
        "by_topics": attention_optimum(counts, classes, "topics"),
        "joint": joint_optimum(counts),
    }
    numbers = {name: _sampled(optimum) for name, optimum in optima.items()}
    return FiniteLandscape(FINITE_DOCUMENTS, setting.length, weights, np.array(loss), numbers)


def _sampled(best: Optimum) -> SampledOptimum:
    weights = best.weights._asdict()
    return SampledOptimum(weights, best.weighted_average, best.block_share, best.loss, best.loss_uniform, best.attained)
