"""Theorem 3, Remarks 4, 5, 7, §5.3 and D.4: attention of Assumption 2's form, exactly.

Weights are 1 between words of different topics, α between words of one topic and β of a word on itself. Theorem 3 is
about limits; here it is compared with the exact optimum at the finite settings of a grid, and at settings that each
break one of its assumptions.
"""

from dataclasses import dataclass
from functools import cache
from itertools import combinations, product

import numpy as np
from jaxtyping import Float

from topicscope.paper.claim import (
    ROUNDING,
    Claim,
    Diagnosis,
    Measurement,
    Preset,
    Results,
    above,
    below,
    equal,
    exact,
    zero,
)
from topicscope.paper.setups import SLIGHTLY
from topicscope.settings import Masking
from topicscope.theory.landscape import AttentionOptimum, InfiniteDocuments, Landscape, minimise
from topicscope.theory.theorem2 import diagonal_classes, theorem2_classes
from topicscope.theory.theorem3 import fewest_words, theorem3, violated_assumptions

SMALL = InfiniteDocuments(topics=10, per_document=2, words=10)
LARGE = InfiniteDocuments(topics=100, per_document=10, words=10)
# For the limit of Assumption 3.
HUGE = InfiniteDocuments(topics=10**8, per_document=3_000, words=10)
# For brute force.
TINY = InfiniteDocuments(topics=4, per_document=2, words=3)
# Theorem 3's grid: all of these in which at most half of the topics are in a document ("sparse", τ = o(T)), with
# p_c = p_r (Assumption 4). v = 10 is the smallest number of words that suffices for any masking.
GRID_TOPICS = (10, 30, 100, 1_000)
GRID_PER_DOCUMENT = (2, 5, 10, 30)
GRID_WORDS = (10, 100)
GRID_MASK = (0.05, 0.15, 0.49)
GRID_SAME = (0.02, 0.1, 0.4)
# How near to the ends of Assumption 4's open intervals its bound on v is checked.
NEAR_THE_ENDS = 1e-6


@cache
def landscape(documents: InfiniteDocuments, value: str = "block", *, mask_queries: bool = True) -> Landscape:
    """The exact loss over (α, β) for Theorem 2's W^V, or for D.4's diagonal one."""
    classes = theorem2_classes if value == "block" else diagonal_classes
    matrix = classes(documents.topics, documents.words, documents.masking)
    return Landscape(documents, matrix, mask_queries=mask_queries)


@cache
def optimum(documents: InfiniteDocuments, value: str = "block", *, free_mask_key: bool = False) -> AttentionOptimum:
    """The weights that minimise it."""
    return minimise(landscape(documents, value), free_mask_key=free_mask_key)


def setting_words(documents: InfiniteDocuments) -> str:
    """The setting in words."""
    return f"T = {documents.topics}, τ = {documents.per_document}"


def claims(preset: Preset) -> tuple[Claim, ...]:
    """All claims on attention except those of Figures 6 to 9, which show some of these too."""
    return (
        zero(
            id="section5.3/realisable",
            statement="Assumption 2's attention can be had: some W^K and W^Q give these weights exactly.",
            unit="largest difference",
            measure=_realised,
        ),
        zero(
            id="section5.3/optimal",
            statement="Assumption 2's pattern is among the optimal ones: no wider family has a lower loss.",
            unit="excess loss",
            measure=_gain_of_mask_key,
            diagnosis=Diagnosis(
                "error",
                "The argument is by symmetry among topics and among the words of a topic. [MASK] is neither: no "
                "symmetry ties the weight of [MASK] keys to that of words of other topics, as Assumption 2 does.",
                holds="in the limit of Assumption 3, in which what it lacks vanishes beside the gain",
                see=("section5.3/nearly-optimal",),
            ),
        ),
        Claim(
            id="section5.3/nearly-optimal",
            statement="Assumption 2's pattern is nearly optimal: against word queries with a weight of their own on "
            "[MASK] keys it lacks less than a tenth of the gain over uniform attention (T = 10, τ = 2).",
            unit="of the gain",
            rule=SLIGHTLY,
            measure=_missing_without_mask_key,
            kind="ours",
        ),
        Claim(
            id="section5.3/ten-words",
            statement="v ≥ 10 suffices for Assumption 3 under Assumption 4: its bound on v is below 10 everywhere.",
            unit="largest bound",
            rule=below(10),
            measure=_largest_bound,
        ),
        Claim(
            id="theorem3/grid",
            statement="The optimal (α, β) has its weighted average between λ₁(τ − 1) and λ₂T, at finite settings too: "
            "in every cell of a grid of T, τ ≤ T/2, v ≥ 10, p_m < 1/2 and p_c = p_r. So it is above 1 wherever the "
            "lower bound is (Remark 4).",
            expected=0,
            unit="cells outside",
            rule=below(0.5),
            measure=_cells_outside,
            figure="figure7-100-10",
        ),
        Claim(
            id="theorem3/assumptions",
            statement="Theorem 3's assumptions matter: of settings that break one alone (most topics in a document, "
            "too few words in a topic, half of the words or more masked, p_r above p_c) some have the optimum outside.",
            unit="cells outside, least of four",
            rule=above(0.5),
            measure=_cells_outside_without,
            kind="ours",
        ),
        equal(
            1,
            tolerance=1e-3,
            id="theorem3/limit",
            statement="In the theorem's limit the optimal weighted average is τ/((1−p_c)p_m): one number, not an "
            "interval.",
            unit="optimum / limit",
            measure=_limit_ratio,
            # docs/theory.md has the proof.
            kind="check",
        ),
        zero(
            id="remark5/average",
            statement="With a block W^V the loss depends on α and β through their weighted average alone.",
            unit="range of the loss",
            measure=lambda results: _spread_at_equal_average("block", mask_queries=True),
            figure="figure6-10-2",
            diagnosis=Diagnosis(
                "wording",
                "Assumption 2 gives β to all pairs of equal tokens, two [MASK] among them. A [MASK] query has no other "
                "word of its topic, so it sees β and not α; it wants uniform attention, and so fixes β = 1. The remark "
                "is right if it means the attention between words.",
                holds="for queries that are words",
                see=("remark5/word-queries", "remark5/beta"),
            ),
        ),
        zero(
            id="remark5/word-queries",
            statement="It does for queries that are words; [MASK] queries see β on its own.",
            unit="range of the loss",
            measure=lambda results: _spread_at_equal_average("block", mask_queries=False),
            # Algebra: predictions of words sum attention over topics.
            kind="check",
        ),
        equal(
            1,
            tolerance=1e-6,
            id="remark5/beta",
            statement="So the optimum is one point, with β = 1 (T = 10, τ = 2).",
            unit="β",
            measure=lambda results: exact(optimum(SMALL, "block").beta),
            figure="figure6-10-2",
            # docs/theory.md, Lemma A.
            kind="check",
        ),
        Claim(
            id="remark7/no-closed-form",
            statement="At finite T and τ the loss is too complicated for a closed form.",
            expected="a closed form differs from brute force",
            unit="largest difference",
            rule=above(ROUNDING),
            measure=_closed_form_difference,
            diagnosis=Diagnosis(
                "wording",
                "Expanding all o(1) terms in (α, β) is indeed hopeless, but they need not be expanded: attention and "
                "prediction take one value per class of words, so the loss is a sum of few ratios of quadratics, the "
                "same for every T and τ. What is left to numerical search is its minimiser.",
                holds="for the minimiser, for which no closed form is known",
                see=("remark7/closed-form",),
            ),
        ),
        zero(
            id="remark7/closed-form",
            statement="Summed over classes of words it has one: equal to brute force over all documents and queries.",
            unit="largest difference",
            measure=_closed_form_difference,
            kind="check",
        ),
        Claim(
            id="d4/separate",
            statement="With a diagonal W^V α and β matter separately, at word queries too.",
            unit="range of the loss",
            rule=above(1e-3, origin=0),
            measure=lambda results: _spread_at_equal_average("diagonal", mask_queries=False),
            figure="figure8-10-2",
        ),
        equal(
            0,
            id="d4/boundary",
            statement="Then a word attends to itself, and not to its topic's other words: α = 0 (T = 10, τ = 2).",
            unit="α",
            measure=lambda results: exact(optimum(SMALL, "diagonal").alpha),
            figure="figure8-10-2",
            kind="ours",
        ),
    )


@dataclass(frozen=True)
class Cell:
    """Where Theorem 3's interval is at one setting, and the exact optimum in it."""

    documents: InfiniteDocuments
    average: float
    """((v − 1)α + β)/v of the optimum."""

    low: float
    high: float

    @property
    def outside(self) -> bool:
        """Whether the theorem does not hold here."""
        return not self.low < self.average < self.high

    @property
    def words(self) -> str:
        """The setting in words."""
        d, masking = self.documents, self.documents.masking
        return (
            f"T = {d.topics}, τ = {d.per_document}, v = {d.words}, p_m = {masking.mask:g}, p_c = {masking.keep:g}, "
            f"p_r = {masking.random:g}"
        )


def cell(topics: int, per_document: int, words: int, masking: Masking) -> Cell:
    """One cell."""
    documents = InfiniteDocuments(topics=topics, per_document=per_document, words=words, masking=masking)
    bounds = theorem3(documents)
    assert bounds.high is not None
    return Cell(documents, optimum(documents).weighted_average, bounds.low, bounds.high)


def grid() -> list[Cell]:
    """Settings that meet Assumptions 3 and 4 as well as finite ones can."""
    return [
        cell(topics, per_document, words, Masking(mask=mask, keep=same, random=same))
        for topics, per_document, words, mask, same in product(
            GRID_TOPICS, GRID_PER_DOCUMENT, GRID_WORDS, GRID_MASK, GRID_SAME
        )
        if 2 * per_document <= topics
    ]


def broken() -> dict[str, list[Cell]]:
    """Settings that break one assumption each: sparse documents, v's bound, p_m < 1/2, p_c = p_r."""
    sizes = ((10, 2), (10, 5), (100, 2), (100, 5), (100, 10))
    return {
        "dense": [
            cell(30, per_document, 10, Masking(mask=mask, keep=same, random=same))
            for per_document, mask, same in product((20, 25, 29), GRID_MASK, GRID_SAME)
        ],
        "few_words": [
            cell(*size, words, Masking(mask=mask)) for size, words, mask in product(sizes, (1, 2, 3), GRID_MASK)
        ],
        # The bound on v grows with p_m: 100 words meet it here.
        "half_masked": [cell(*size, 100, Masking(mask=mask)) for size, mask in product(sizes, (0.5, 0.7, 0.95))],
        "more_random": [
            cell(*size, 10, Masking(keep=keep, random=random))
            for size, (keep, random) in product(sizes, ((0.05, 0.1), (0.01, 0.1), (0.01, 0.3)))
        ],
    }


def _cells_outside(results: Results) -> Measurement:
    """How many cells of the grid have the exact optimum outside the interval."""
    cells = grid()
    assert not any(violated_assumptions(each.documents) for each in cells)
    nearest = min(cells, key=lambda each: each.average / each.low)
    told = [each for each in cells if each.low > 1]
    return exact(
        sum(each.outside for each in cells),
        cells=len(cells),
        least_ratio_to_the_lower_end=nearest.average / nearest.low,
        at=nearest.words,
        largest_ratio_to_the_upper_end=max(each.average / each.high for each in cells),
        least_average=min(each.average for each in cells),
        # Elsewhere uniform attention is inside the interval too.
        cells_with_the_lower_end_above_1=len(told),
        least_average_in_these=min(each.average for each in told),
    )


def _cells_outside_without(results: Results) -> Measurement:
    """The same where an assumption is broken: for each assumption on its own, then the least of these numbers."""
    found = broken()
    outside = {name: sum(each.outside for each in cells) for name, cells in found.items()}
    few = [each.documents.words for each in found["few_words"] if each.outside]
    return exact(
        min(outside.values()),
        **{f"{name}_outside": number for name, number in outside.items()},
        **{f"{name}_cells": len(cells) for name, cells in found.items()},
        most_words_outside=max(few, default=0),
    )


def _largest_bound(results: Results) -> Measurement:
    """The largest bound of Assumption 3 on v over Assumption 4's maskings, up to near the ends of their intervals."""
    masks = np.linspace(NEAR_THE_ENDS, 0.5 - NEAR_THE_ENDS, 50)
    maskings = [Masking(mask=mask, keep=same, random=same) for mask, same in product(masks, masks)]
    return exact(max(map(fewest_words, maskings)), at_the_papers_masking=fewest_words(Masking()))


def weighted_average(documents: InfiniteDocuments, value: str) -> Measurement:
    """((v − 1)α + β)/v at the minimum, and the minimum itself beside it."""
    best = optimum(documents, value)
    return exact(
        best.weighted_average, alpha=best.alpha, beta=best.beta, loss=best.loss, loss_uniform=best.loss_uniform
    )


def _limit_ratio(results: Results) -> Measurement:
    """The optimal weighted average at T = 10⁸, τ = 3,000 over τ/((1 − p_c)p_m)."""
    limit = theorem3(HUGE).limit
    assert limit is not None
    return exact(optimum(HUGE).weighted_average / limit)


def _spread_at_equal_average(value: str, *, mask_queries: bool) -> Measurement:
    """The largest range of the loss among (α, β) of one weighted average, over averages from 1 to 20."""
    surface = landscape(SMALL, value, mask_queries=mask_queries)
    average = np.geomspace(1, 20, 12)[:, None]
    beta = np.linspace(0, 1, 30) * average * SMALL.words
    alpha = (SMALL.words * average - beta) / (SMALL.words - 1)
    loss = surface.loss(alpha, beta)
    return exact(float((loss.max(axis=1) - loss.min(axis=1)).max()))


def _realised(results: Results, dimension: int = SMALL.topics * SMALL.words + 1) -> Measurement:
    """The largest difference between Assumption 2's weights and the softmax of scores W^K⊤W^Q/√d_a, d_a = V."""
    topic = np.concatenate([[-1], np.repeat(np.arange(SMALL.topics), SMALL.words)])
    wanted = np.where(topic[:, None] == topic, 6.0, 1.0)
    np.fill_diagonal(wanted, 2.0)
    scale = np.sqrt(dimension)
    key, query = np.eye(dimension, len(topic)), scale * np.log(wanted)[:dimension]
    reached = np.exp(key.T @ query / scale)
    # Up to each query's own factor, which the softmax divides out.
    return exact(float(abs(reached / reached.sum(axis=0) - wanted / wanted.sum(axis=0)).max()))


def _gain_of_mask_key(results: Results) -> Measurement:
    """How much a free weight of word queries on [MASK] keys lowers the least loss of Assumption 2's family."""
    narrow, wide = optimum(SMALL), optimum(SMALL, free_mask_key=True)
    return exact(narrow.loss - wide.loss, assumption_2=narrow.loss, wider=wide.loss, mask_key=wide.mask_key)


def _missing_without_mask_key(results: Results) -> Measurement:
    """What Assumption 2's optimum lacks of the wider family's gain over uniform attention; near the limit too."""

    def missing(documents: InfiniteDocuments) -> float:
        narrow, wide = optimum(documents), optimum(documents, free_mask_key=True)
        return (narrow.loss - wide.loss) / (wide.loss_uniform - wide.loss)

    return exact(missing(SMALL), at_100_topics_10_a_document=missing(LARGE), near_the_limit=missing(HUGE))


def _closed_form_difference(results: Results) -> Measurement:
    """The largest difference between the sum over classes of words and brute force, block and diagonal W^V."""
    points = np.random.default_rng(0).uniform(0, 10, size=(10, 2))
    worst = 0.0
    for value in ("block", "diagonal"):
        surface = landscape(TINY, value)
        matrix = surface.value.matrix(TINY.topics, TINY.words)
        slow = np.array([enumerated_loss(TINY, matrix, *point) for point in points])
        worst = max(worst, float(abs(surface.loss(points[:, 0], points[:, 1]) - slow).max()))
    return exact(worst)


def enumerated_loss(
    documents: InfiniteDocuments, value: Float[np.ndarray, "token token"], alpha: float, beta: float
) -> float:
    """The expected squared loss at one (α, β) by brute force: every topic set, every query, whole matrices.

    It shares nothing with the closed form in ``theory.landscape`` but Assumptions 1 and 2, and is for small T and v.
    """
    chosen = list(combinations(range(documents.topics), documents.per_document))
    return float(np.mean([_document_loss(documents, value, alpha, beta, topics) for topics in chosen]))


def _document_loss(
    documents: InfiniteDocuments,
    value: Float[np.ndarray, "token token"],
    alpha: float,
    beta: float,
    topics: tuple[int, ...],
) -> float:
    masking, vocabulary = documents.masking, documents.topics * documents.words + 1
    topic = np.concatenate([[-1], np.repeat(np.arange(documents.topics), documents.words)])
    words = np.isin(topic, topics) / (documents.per_document * documents.words)
    noise = np.concatenate([[0.0], np.full(vocabulary - 1, 1 / (vocabulary - 1))])
    mask = np.eye(vocabulary)[0]
    # How a masked position looks, and the frequencies of the whole masked document.
    masked = masking.keep * words + masking.random * noise + masking.replaced * mask
    frequencies = (1 - masking.mask) * words + masking.mask * masked
    # Columns are queries: weights by word and topic, times how often each key occurs.
    weights = np.where(topic[:, None] == topic, alpha, 1.0)
    np.fill_diagonal(weights, beta)
    attended = weights * frequencies[:, None]
    predictions = value @ (attended / attended.sum(axis=0))
    # P(target, query): a kept word is its own target; otherwise the target does not depend on the query.
    joint = np.outer(words, masking.random * noise + masking.replaced * mask) + masking.keep * np.diag(words)
    square = (predictions**2).sum(axis=0)
    return float((joint * (1 - 2 * predictions + square)).sum())
