"""Exact claims on attention of Assumption 2's form: Theorem 3, Remarks 4, 5, 7, §5.3, D.4 and Figures 6 to 9.

The appendix with Figures 6 to 9 was not at hand: they show the loss over (α, β) at finite T and τ for a block and for
a diagonal W^V. Here 6 and 7 are the block's, 8 and 9 the diagonal's, each at small and at large T.
"""

from functools import cache, partial

import numpy as np

from topicscope.paper.claim import (
    ROUNDING,
    Claim,
    Drawing,
    Measurement,
    Preset,
    Results,
    above,
    equal,
    exact,
    larger,
    within,
    zero,
)
from topicscope.paper.enumeration import enumerated_loss
from topicscope.reporting.figures import Drawn
from topicscope.reporting.figures.landscape import LandscapeData, landscape_figure
from topicscope.theory.landscape import AttentionOptimum, InfiniteDocuments, Landscape, minimise
from topicscope.theory.theorem2 import diagonal_classes, theorem2_classes
from topicscope.theory.theorem3 import theorem3

SMALL = InfiniteDocuments(topics=10, per_document=2, words=10)
MIDDLE = InfiniteDocuments(topics=20, per_document=4, words=10)
LARGE = InfiniteDocuments(topics=100, per_document=10, words=10)
LARGER = InfiniteDocuments(topics=1000, per_document=30, words=10)
# For the limit of Assumption 3.
HUGE = InfiniteDocuments(topics=10**8, per_document=3_000, words=10)
# For brute force.
TINY = InfiniteDocuments(topics=4, per_document=2, words=3)
FIGURES = {
    "figure6": ("block", (SMALL, MIDDLE)),
    "figure7": ("block", (LARGE, LARGER)),
    "figure8": ("diagonal", (SMALL, MIDDLE)),
    "figure9": ("diagonal", (LARGE, LARGER)),
}
# Landscapes are drawn from this weight to so many times the minimum's largest, on logarithmic axes.
LEAST_WEIGHT, BEYOND, POINTS = 0.1, 30.0, 61


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


def weighted_average(documents: InfiniteDocuments, value: str, trained: Results) -> Measurement:
    """((v − 1)α + β)/v at the minimum, and the minimum itself beside it."""
    best = optimum(documents, value)
    return exact(
        best.weighted_average, alpha=best.alpha, beta=best.beta, loss=best.loss, loss_uniform=best.loss_uniform
    )


def limit_ratio(trained: Results) -> Measurement:
    """The optimal weighted average at T = 10⁸, τ = 3,000 over τ/((1 − p_c)p_m)."""
    limit = theorem3(HUGE).limit
    assert limit is not None
    return exact(optimum(HUGE).weighted_average / limit)


def spread_at_equal_average(value: str, trained: Results, *, mask_queries: bool) -> Measurement:
    """The largest range of the loss among (α, β) of one weighted average, over averages from 1 to 20."""
    surface = landscape(SMALL, value, mask_queries=mask_queries)
    average = np.geomspace(1, 20, 12)[:, None]
    beta = np.linspace(0, 1, 30) * average * SMALL.words
    alpha = (SMALL.words * average - beta) / (SMALL.words - 1)
    loss = surface.loss(alpha, beta)
    return exact(float((loss.max(axis=1) - loss.min(axis=1)).max()))


def closed_form_difference(trained: Results) -> Measurement:
    """The largest difference between the sum over classes of words and brute force, block and diagonal W^V."""
    draw = np.random.default_rng(0)
    points = draw.uniform(0, 10, size=(10, 2))
    worst = 0.0
    for value in ("block", "diagonal"):
        surface = landscape(TINY, value)
        matrix = surface.value.matrix(TINY.topics, TINY.words)
        slow = np.array([enumerated_loss(TINY, matrix, *point) for point in points])
        worst = max(worst, float(abs(surface.loss(points[:, 0], points[:, 1]) - slow).max()))
    return exact(worst)


def realised(trained: Results) -> Measurement:
    """The largest difference between Assumption 2's weights and the softmax of scores W^K⊤W^Q/√d_a, d_a = V."""
    topic = np.concatenate([[-1], np.repeat(np.arange(SMALL.topics), SMALL.words)])
    wanted = np.where(topic[:, None] == topic, 6.0, 1.0)
    np.fill_diagonal(wanted, 2.0)
    scale = np.sqrt(len(topic))
    key, query = np.eye(len(topic)), scale * np.log(wanted)
    reached = np.exp(key.T @ query / scale)
    # Up to each query's own factor, which the softmax divides out.
    return exact(float(abs(reached / reached.sum(axis=0) - wanted / wanted.sum(axis=0)).max()))


def gain_of_mask_key(trained: Results) -> Measurement:
    """By how much a free weight of word queries on [MASK] keys lowers the least loss of Assumption 2's family."""
    narrow, wide = optimum(SMALL), optimum(SMALL, free_mask_key=True)
    return exact(narrow.loss - wide.loss, assumption_2=narrow.loss, wider=wide.loss, mask_key=wide.mask_key)


def draw_landscape(documents: InfiniteDocuments, value: str, trained: Results) -> Drawn:
    """The loss over (α, β) around its minimum, for all queries and for word queries alone."""
    best, bounds = optimum(documents, value), theorem3(documents)
    weights = np.geomspace(LEAST_WEIGHT, BEYOND * max(best.alpha, best.beta), POINTS)
    alpha, beta = weights[:, None], weights[None, :]
    surface = landscape(documents, value)
    data = LandscapeData(
        alpha=weights,
        beta=weights,
        loss=surface.loss(alpha, beta),
        word_loss=landscape(documents, value, mask_queries=False).loss(alpha, beta),
        average=surface.weighted_average(alpha, beta),
        optimum=(best.alpha, best.beta),
        attained=best.attained,
        low=bounds.low,
        high=bounds.high,
        limit=bounds.limit,
        title=f"{value} $W^V$, {_setting(documents)}, v = {documents.words}",
    )
    return landscape_figure(data)


def _setting(documents: InfiniteDocuments) -> str:
    return f"T = {documents.topics}, τ = {documents.per_document}"


def _figure_name(number: str, documents: InfiniteDocuments) -> str:
    return f"{number}-{documents.topics}-{documents.per_document}"


def _interval_claim(documents: InfiniteDocuments) -> Claim:
    bounds = theorem3(documents)
    assert bounds.high is not None
    return Claim(
        id=f"theorem3/interval-{documents.topics}-{documents.per_document}",
        source="Theorem 3",
        statement=f"The optimal (α, β) at {_setting(documents)} has its weighted average between λ₁(τ − 1) and λ₂T.",
        expected=f"between {bounds.low:.4g} and {bounds.high:.6g}",
        unit="((v−1)α + β)/v",
        rule=within(bounds.low, bounds.high),
        measure=partial(weighted_average, documents, "block"),
        figure=_figure_name("figure6" if documents is SMALL else "figure7", documents),
    )


def _figure_claim(name: str, documents: InfiniteDocuments) -> Claim:
    value = FIGURES[name][0]
    return larger(
        1,
        id=f"{name}/{value}-{documents.topics}-{documents.per_document}",
        source=f"Figure {name[-1]}",
        statement=f"With a {value} W^V, {_setting(documents)}, the loss is least with more attention within a topic.",
        unit="((v−1)α + β)/v",
        measure=partial(weighted_average, documents, value),
        figure=_figure_name(name, documents),
    )


def _part_of_optimum(documents: InfiniteDocuments, value: str, name: str, trained: Results) -> Measurement:
    return exact(getattr(optimum(documents, value), name))


CLAIMS: tuple[Claim, ...] = (
    zero(
        id="section5.3/realisable",
        source="§5.3",
        statement="Assumption 2's attention can be had: some W^K and W^Q give these weights exactly.",
        unit="largest difference",
        measure=realised,
    ),
    zero(
        id="section5.3/optimal",
        source="§5.3",
        statement="Assumption 2's pattern is among the optimal ones: no wider family has a lower loss.",
        unit="excess loss",
        measure=gain_of_mask_key,
    ),
    larger(
        0,
        id="section5.3/wider",
        source="§5.3",
        statement="Word queries with a weight of their own on [MASK] keys do better (T = 10, τ = 2).",
        unit="loss gained",
        measure=gain_of_mask_key,
        ours=True,
    ),
    _interval_claim(SMALL),
    _interval_claim(LARGE),
    equal(
        1,
        tolerance=1e-3,
        id="theorem3/limit",
        source="Theorem 3",
        statement="In the theorem's limit the optimal weighted average is τ/((1−p_c)p_m): one number, not an interval.",
        unit="optimum / limit",
        measure=limit_ratio,
        ours=True,
    ),
    larger(
        1,
        id="remark4/same-topic",
        source="Remark 4",
        statement="Where λ₁(τ − 1) exceeds 1 (T = 100, τ = 10) a word's own topic gets more attention than others.",
        unit="((v−1)α + β)/v",
        measure=partial(weighted_average, LARGE, "block"),
        figure=_figure_name("figure7", LARGE),
    ),
    zero(
        id="remark5/average",
        source="Remark 5",
        statement="With a block W^V the loss depends on α and β through their weighted average alone.",
        unit="range of the loss",
        measure=partial(spread_at_equal_average, "block", mask_queries=True),
        figure=_figure_name("figure6", SMALL),
    ),
    zero(
        id="remark5/word-queries",
        source="Remark 5",
        statement="It does for queries that are words; [MASK] queries see β on its own.",
        unit="range of the loss",
        measure=partial(spread_at_equal_average, "block", mask_queries=False),
        ours=True,
    ),
    equal(
        1,
        tolerance=1e-6,
        id="remark5/beta",
        source="Remark 5",
        statement="So the optimum is one point, with β = 1 (T = 10, τ = 2).",
        unit="β",
        measure=partial(_part_of_optimum, SMALL, "block", "beta"),
        figure=_figure_name("figure6", SMALL),
        ours=True,
    ),
    Claim(
        id="remark7/no-closed-form",
        source="Remark 7",
        statement="At finite T and τ the loss is too complicated for a closed form.",
        expected="a closed form differs from brute force",
        unit="largest difference",
        rule=above(ROUNDING),
        measure=closed_form_difference,
    ),
    zero(
        id="remark7/closed-form",
        source="Remark 7",
        statement="Summed over classes of words it has one: equal to brute force over all documents and queries.",
        unit="largest difference",
        measure=closed_form_difference,
        ours=True,
    ),
    larger(
        1e-3,
        id="d4/separate",
        source="D.4",
        statement="With a diagonal W^V α and β matter separately, at word queries too.",
        unit="range of the loss",
        measure=partial(spread_at_equal_average, "diagonal", mask_queries=False),
        figure=_figure_name("figure8", SMALL),
    ),
    equal(
        0,
        id="d4/boundary",
        source="D.4",
        statement="Then a word attends to itself, and not to its topic's other words: α = 0 (T = 10, τ = 2).",
        unit="α",
        measure=partial(_part_of_optimum, SMALL, "diagonal", "alpha"),
        figure=_figure_name("figure8", SMALL),
        ours=True,
    ),
)


def claims(preset: Preset) -> tuple[Claim, ...]:
    """All claims on attention; landscapes at one setting a figure, or at all."""
    return CLAIMS + tuple(_figure_claim(name, documents) for name, documents in _shown(preset))


def drawings(preset: Preset) -> tuple[Drawing, ...]:
    """The landscapes."""
    return tuple(
        Drawing(name=_figure_name(name, documents), draw=partial(draw_landscape, documents, FIGURES[name][0]))
        for name, documents in _shown(preset)
    )


def _shown(preset: Preset) -> list[tuple[str, InfiniteDocuments]]:
    return [
        (name, documents)
        for name, (_, settings) in FIGURES.items()
        for documents in (settings if preset.full else settings[:1])
    ]
