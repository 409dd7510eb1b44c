"""Theorem 3, Remarks 4, 5, 7, §5.3 and D.4: attention of Assumption 2's form, exactly.

Weights are 1 between words of different topics, α between words of one topic and β of a word on itself.
"""

from functools import cache
from itertools import combinations

import numpy as np
from jaxtyping import Float

from topicscope.paper.claim import (
    ROUNDING,
    Claim,
    Measurement,
    Preset,
    Results,
    above,
    equal,
    exact,
    within,
    zero,
)
from topicscope.theory.landscape import AttentionOptimum, InfiniteDocuments, Landscape, minimise
from topicscope.theory.theorem2 import diagonal_classes, theorem2_classes
from topicscope.theory.theorem3 import theorem3

SMALL = InfiniteDocuments(topics=10, per_document=2, words=10)
LARGE = InfiniteDocuments(topics=100, per_document=10, words=10)
# For the limit of Assumption 3.
HUGE = InfiniteDocuments(topics=10**8, per_document=3_000, words=10)
# For brute force.
TINY = InfiniteDocuments(topics=4, per_document=2, words=3)


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
    """As in sentences."""
    return f"T = {documents.topics}, τ = {documents.per_document}"


def claims(preset: Preset) -> tuple[Claim, ...]:
    """All claims on attention but those of Figures 6 to 9, which show some of these too."""
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
        ),
        Claim(
            id="section5.3/wider",
            statement="Word queries with a weight of their own on [MASK] keys do better (T = 10, τ = 2).",
            unit="loss gained",
            rule=above(0),
            measure=_gain_of_mask_key,
            kind="ours",
        ),
        _interval_claim(SMALL, figure="figure6-10-2"),
        _interval_claim(LARGE, figure="figure7-100-10"),
        equal(
            1,
            tolerance=1e-3,
            id="theorem3/limit",
            statement="In the theorem's limit the optimal weighted average is τ/((1−p_c)p_m): one number, not an "
            "interval.",
            unit="optimum / limit",
            measure=_limit_ratio,
            kind="ours",
        ),
        Claim(
            id="remark4/same-topic",
            statement="Where λ₁(τ − 1) exceeds 1 (T = 100, τ = 10) a word's own topic gets more attention than others.",
            unit="((v−1)α + β)/v",
            rule=above(1),
            measure=lambda results: weighted_average(LARGE, "block"),
            figure="figure7-100-10",
        ),
        zero(
            id="remark5/average",
            statement="With a block W^V the loss depends on α and β through their weighted average alone.",
            unit="range of the loss",
            measure=lambda results: _spread_at_equal_average("block", mask_queries=True),
            figure="figure6-10-2",
        ),
        zero(
            id="remark5/word-queries",
            statement="It does for queries that are words; [MASK] queries see β on its own.",
            unit="range of the loss",
            measure=lambda results: _spread_at_equal_average("block", mask_queries=False),
            kind="ours",
        ),
        equal(
            1,
            tolerance=1e-6,
            id="remark5/beta",
            statement="So the optimum is one point, with β = 1 (T = 10, τ = 2).",
            unit="β",
            measure=lambda results: exact(optimum(SMALL, "block").beta),
            figure="figure6-10-2",
            kind="ours",
        ),
        Claim(
            id="remark7/no-closed-form",
            statement="At finite T and τ the loss is too complicated for a closed form.",
            expected="a closed form differs from brute force",
            unit="largest difference",
            rule=above(ROUNDING),
            measure=_closed_form_difference,
        ),
        zero(
            id="remark7/closed-form",
            statement="Summed over classes of words it has one: equal to brute force over all documents and queries.",
            unit="largest difference",
            measure=_closed_form_difference,
            kind="ours",
        ),
        Claim(
            id="d4/separate",
            statement="With a diagonal W^V α and β matter separately, at word queries too.",
            unit="range of the loss",
            rule=above(1e-3),
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


def _interval_claim(documents: InfiniteDocuments, figure: str) -> Claim:
    bounds = theorem3(documents)
    assert bounds.high is not None
    return Claim(
        id=f"theorem3/interval-{documents.topics}-{documents.per_document}",
        statement=f"The optimal (α, β) at {setting_words(documents)} has its weighted average between λ₁(τ − 1) and "
        "λ₂T.",
        expected=f"between {bounds.low:.4g} and {bounds.high:.6g}",
        unit="((v−1)α + β)/v",
        rule=within(bounds.low, bounds.high),
        measure=lambda results: weighted_average(documents, "block"),
        figure=figure,
    )


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


def _realised(results: Results) -> Measurement:
    """The largest difference between Assumption 2's weights and the softmax of scores W^K⊤W^Q/√d_a, d_a = V."""
    topic = np.concatenate([[-1], np.repeat(np.arange(SMALL.topics), SMALL.words)])
    wanted = np.where(topic[:, None] == topic, 6.0, 1.0)
    np.fill_diagonal(wanted, 2.0)
    scale = np.sqrt(len(topic))
    key, query = np.eye(len(topic)), scale * np.log(wanted)
    reached = np.exp(key.T @ query / scale)
    # Up to each query's own factor, which the softmax divides out.
    return exact(float(abs(reached / reached.sum(axis=0) - wanted / wanted.sum(axis=0)).max()))


def _gain_of_mask_key(results: Results) -> Measurement:
    """By how much a free weight of word queries on [MASK] keys lowers the least loss of Assumption 2's family."""
    narrow, wide = optimum(SMALL), optimum(SMALL, free_mask_key=True)
    return exact(narrow.loss - wide.loss, assumption_2=narrow.loss, wider=wide.loss, mask_key=wide.mask_key)


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
