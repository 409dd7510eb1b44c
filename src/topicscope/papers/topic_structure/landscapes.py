"""Theorem 3, Remarks 4, 5 and 7, §5.3, D.4 and Figures 6 to 9: attention of Assumption 2's form, exactly.

Weights are 1 between words of different topics, α between words of one topic and β of a word on itself. Theorem 3 is
about limits; here it is compared with the exact optimum at the finite settings of a grid, and at settings that each
break one of its assumptions. The appendix with the figures was not available: here 6 and 7 are for the block, 8 and 9
for the diagonal W^V, each at small and at large T.
"""

import io
from dataclasses import dataclass
from functools import cache
from itertools import combinations, product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from topicscope.papers.claim import Measurement, Results, exact
from topicscope.records import LandscapeGrid, LandscapeRecord
from topicscope.settings import Masking
from topicscope.store import struct_text, write_atomically
from topicscope.theory.landscape import AttentionOptimum, InfiniteDocuments, Landscape, minimise
from topicscope.theory.theorem2 import diagonal_classes, theorem2_classes
from topicscope.theory.theorem3 import fewest_words, theorem3, violated_assumptions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
MIDDLE = InfiniteDocuments(topics=20, per_document=4, words=10)
LARGER = InfiniteDocuments(topics=1000, per_document=30, words=10)
# Figures 6 to 9.
SHOWN = tuple(product(("block", "diagonal"), (SMALL, MIDDLE, LARGE, LARGER)))
# Landscapes are drawn from this weight to so many times the minimum's largest weight, on logarithmic axes.
LEAST_WEIGHT, BEYOND, POINTS = 0.1, 30.0, 61
# The page's landscapes: all of these with τ < T, from a smaller weight on and on a coarser grid.
PAGE_TOPICS = (10, 20, 50, 100, 1_000)
PAGE_PER_DOCUMENT = (2, 4, 10, 30)
PAGE_WORDS = 10
PAGE_LEAST_WEIGHT, PAGE_POINTS = 0.05, 41


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


def cells_outside(results: Results) -> Measurement:
    """How many cells of the grid have the exact optimum outside the interval."""
    cells = grid()
    assert not any(violated_assumptions(each.documents) for each in cells)
    nearest = min(cells, key=lambda each: each.average / each.low)
    informative = [each for each in cells if each.low > 1]
    return exact(
        sum(each.outside for each in cells),
        cells=len(cells),
        least_ratio_to_the_lower_end=nearest.average / nearest.low,
        at=nearest.words,
        largest_ratio_to_the_upper_end=max(each.average / each.high for each in cells),
        least_average=min(each.average for each in cells),
        # Elsewhere uniform attention is inside the interval too.
        cells_with_the_lower_end_above_1=len(informative),
        least_average_in_these=min(each.average for each in informative),
    )


def cells_outside_without(results: Results) -> dict[str, Measurement]:
    """The same where an assumption is broken, for each assumption on its own."""
    return {
        name.replace("_", " "): exact(sum(each.outside for each in cells), cells=len(cells))
        for name, cells in broken().items()
    }


def largest_bound(results: Results) -> Measurement:
    """The largest bound of Assumption 3 on v over Assumption 4's maskings, up to near the ends of their intervals."""
    masks = np.linspace(NEAR_THE_ENDS, 0.5 - NEAR_THE_ENDS, 50)
    maskings = [Masking(mask=mask, keep=same, random=same) for mask, same in product(masks, masks)]
    return exact(max(map(fewest_words, maskings)), at_the_papers_masking=fewest_words(Masking()))


def weighted_average(results: Results) -> dict[str, Measurement]:
    """((v − 1)α + β)/v at the minimum, for a block and for a diagonal W^V, with Theorem 3's bounds for the block."""
    rows = {}
    for value, documents in SHOWN:
        best, bounds = optimum(documents, value), theorem3(documents)
        ends = {"lower_bound": bounds.low, "upper_bound": bounds.high} if value == "block" else {}
        rows[f"{value} W^V, {setting_words(documents)}"] = exact(
            best.weighted_average,
            alpha=best.alpha,
            beta=best.beta,
            loss=best.loss,
            loss_uniform=best.loss_uniform,
        ).beside(**ends)
    return rows


def limit_ratio(results: Results) -> Measurement:
    """The optimal weighted average at T = 10⁸, τ = 3,000 over τ/((1 − p_c)p_m)."""
    limit = theorem3(HUGE).limit
    assert limit is not None
    return exact(optimum(HUGE).weighted_average / limit)


def spread_at_equal_average(results: Results, *, value: str) -> dict[str, Measurement]:
    """The largest range of the loss among (α, β) of one weighted average, over averages from 1 to 20."""
    average = np.geomspace(1, 20, 12)[:, None]
    beta = np.linspace(0, 1, 30) * average * SMALL.words
    alpha = (SMALL.words * average - beta) / (SMALL.words - 1)
    rows = {}
    for queries, with_mask in {"all queries": True, "word queries": False}.items():
        loss = landscape(SMALL, value, mask_queries=with_mask).loss(alpha, beta)
        rows[queries] = exact(float((loss.max(axis=1) - loss.min(axis=1)).max()))
    return rows


def optimal_weight(results: Results, *, value: str, weight: str) -> Measurement:
    """α or β at the minimum for T = 10, τ = 2."""
    best = optimum(SMALL, value)
    return exact(getattr(best, weight), loss=best.loss, weighted_average=best.weighted_average)


def realised(results: Results, dimension: int = SMALL.topics * SMALL.words + 1) -> Measurement:
    """The largest difference between Assumption 2's weights and the softmax of scores W^K⊤W^Q/√d_a, d_a = V."""
    topic = np.concatenate([[-1], np.repeat(np.arange(SMALL.topics), SMALL.words)])
    wanted = np.where(topic[:, None] == topic, 6.0, 1.0)
    np.fill_diagonal(wanted, 2.0)
    scale = np.sqrt(dimension)
    key, query = np.eye(dimension, len(topic)), scale * np.log(wanted)[:dimension]
    reached = np.exp(key.T @ query / scale)
    # Up to each query's own factor, which the softmax divides out.
    return exact(float(abs(reached / reached.sum(axis=0) - wanted / wanted.sum(axis=0)).max()))


def gain_of_mask_key(results: Results) -> Measurement:
    """How much a free weight of word queries on [MASK] keys lowers the least loss of Assumption 2's family."""
    narrow, wide = optimum(SMALL), optimum(SMALL, free_mask_key=True)
    return exact(narrow.loss - wide.loss, assumption_2=narrow.loss, wider=wide.loss, mask_key=wide.mask_key)


def missing_without_mask_key(results: Results) -> Measurement:
    """What Assumption 2's optimum lacks of the wider family's gain over uniform attention; near the limit too."""

    def missing(documents: InfiniteDocuments) -> float:
        narrow, wide = optimum(documents), optimum(documents, free_mask_key=True)
        return (narrow.loss - wide.loss) / (wide.loss_uniform - wide.loss)

    return exact(missing(SMALL), at_100_topics_10_a_document=missing(LARGE), near_the_limit=missing(HUGE))


def closed_form_difference(results: Results) -> Measurement:
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


# Drawings and the page's sliders.


def draw(results: Results, *, value: str, topics: int, per_document: int) -> "Figure":
    """The loss over (α, β) around its minimum, for all queries and for word queries alone."""
    from topicscope.reporting.figures.landscape import Bounds, Surface, landscape_figure

    documents = InfiniteDocuments(topics=topics, per_document=per_document, words=SMALL.words)
    best, bounds = optimum(documents, value), theorem3(documents)
    weights = np.geomspace(LEAST_WEIGHT, BEYOND * max(best.alpha, best.beta), POINTS)
    whole, words = (
        landscape(documents, value, mask_queries=queries).loss(weights[:, None], weights[None, :])
        for queries in (True, False)
    )
    # Only the whole loss has one optimum; without [MASK] queries it may be a line.
    surfaces = [
        Surface("all masked positions", weights, whole, (best.alpha, best.beta)),
        Surface("without [MASK] queries", weights, words, None),
    ]
    title = f"{value} $W^V$, {setting_words(documents)}, v = {documents.words}"
    limits = Bounds(documents.words, bounds.low, bounds.high, bounds.limit)
    return landscape_figure(title, surfaces, limits, attained=best.attained)


def landscape_grid(documents: InfiniteDocuments, value: str, points: int = PAGE_POINTS) -> LandscapeGrid:
    """A landscape's description, its weights, and the exact loss: one row per α, one column per β."""
    best, bounds = optimum(documents, value), theorem3(documents)
    weights = np.geomspace(PAGE_LEAST_WEIGHT, BEYOND * max(best.alpha, best.beta, 1.0), points)
    about = LandscapeRecord(
        value=value,
        topics=documents.topics,
        per_document=documents.per_document,
        words=documents.words,
        alpha=best.alpha,
        beta=best.beta,
        loss=best.loss,
        uniform=best.loss_uniform,
        attained=best.attained,
        low=bounds.low,
        high=bounds.high,
        limit=bounds.limit,
    )
    return about, weights, landscape(documents, value).loss(weights[:, None], weights[None, :])


def write_landscapes(folder: Path) -> None:
    """Write landscapes.npz and landscapes.json: all of the page's settings, for a block and for a diagonal W^V."""
    settings = [
        (InfiniteDocuments(topics=topics, per_document=per_document, words=PAGE_WORDS), value)
        for value in ("block", "diagonal")
        for topics in PAGE_TOPICS
        for per_document in PAGE_PER_DOCUMENT
        if per_document < topics
    ]
    grids = [landscape_grid(*setting) for setting in settings]
    content = io.BytesIO()
    arrays = {"weights": np.stack([weights for _, weights, _ in grids]), "loss": np.stack([loss for *_, loss in grids])}
    np.savez_compressed(content, allow_pickle=False, **arrays)
    write_atomically(folder / "landscapes.npz", content.getvalue())
    write_atomically(folder / "landscapes.json", struct_text([about for about, *_ in grids]))
