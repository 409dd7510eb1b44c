"""Theorem 3, Remarks 4 and 5, §5.3, D.4 and Figures 6 to 9: attention of Assumption 2's form, exactly.

Weights are 1 between words of different topics, α between words of one topic and β of a word on itself. Theorem 3 is
about limits; here it is compared with the exact optimum at the finite settings of a grid, and at settings that each
break one of its assumptions. The appendix with the figures was not available: here 6 and 7 are for the block, 8 and 9
for the diagonal W^V, each at small and at large T.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from topicscope.papers.claim import Measurement, Results, exact
from topicscope.papers.topic_structure.experiments import MASKING
from topicscope.records import LANDSCAPES, LandscapeRecord
from topicscope.settings import Masking
from topicscope.theory.landscape import AttentionOptimum, InfiniteDocuments, Landscape, minimise
from topicscope.theory.summary import landscape_record
from topicscope.theory.theorem2 import diagonal_classes, theorem2_classes
from topicscope.theory.theorem3 import fewest_words, theorem3

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def documents_of(topics: int, per_document: int, words: int = 10, masking: Masking = MASKING) -> InfiniteDocuments:
    """Infinite documents of τ of T topics of v words."""
    return InfiniteDocuments(topics=topics, per_document=per_document, words=words, masking=masking)


# Figures 6 to 9; the last is near the limit of Assumption 3.
SMALL, MIDDLE, LARGE, LARGER = (documents_of(*sizes) for sizes in ((10, 2), (20, 4), (100, 10), (1000, 30)))
HUGE = documents_of(10**8, 3_000)
# Theorem 3's grid: all of these in which at most half of the topics are in a document ("sparse", τ = o(T)), with
# p_c = p_r (Assumption 4). v = 10 is the smallest number of words that suffices for any masking.
GRID_TOPICS = (10, 30, 100, 1_000)
GRID_PER_DOCUMENT = (2, 5, 10, 30)
GRID_WORDS = (10, 100)
GRID_MASK = (0.05, 0.15, 0.49)
GRID_MASKINGS = tuple(Masking(mask=mask, keep=c, random=c) for mask, c in product(GRID_MASK, (0.02, 0.1, 0.4)))
# How near to the ends of Assumption 4's open intervals its bound on v is checked.
NEAR_THE_ENDS = 1e-6
# Landscapes are drawn from this weight to so many times the minimum's largest weight, on logarithmic axes.
LEAST_WEIGHT, BEYOND, POINTS = 0.1, 30.0, 61
# The page's landscapes: all of these with τ < T, from a smaller weight on and on a coarser grid.
PAGE_TOPICS = (10, 20, 50, 100, 1_000)
PAGE_PER_DOCUMENT = (2, 4, 10, 30)
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


def outside(settings: Iterable[InfiniteDocuments]) -> Measurement:
    """In how many settings the exact optimum is outside Theorem 3's interval; beside it how near it comes."""
    cells = [(optimum(documents).weighted_average, theorem3(documents)) for documents in settings]
    return exact(
        sum(not bounds.low < average < (bounds.high or np.inf) for average, bounds in cells),
        cells=len(cells),
        least_ratio_to_the_lower_end=min(average / bounds.low for average, bounds in cells),
    )


def cells_outside(results: Results) -> Measurement:
    """Of settings that meet Assumptions 3 and 4 as well as finite ones can."""
    sizes = product(GRID_TOPICS, GRID_PER_DOCUMENT, GRID_WORDS, GRID_MASKINGS)
    return outside(documents_of(*size) for size in sizes if 2 * size[1] <= size[0])


def cells_outside_without(results: Results) -> dict[str, Measurement]:
    """Of settings that break one assumption each: sparse documents, v's bound, p_m < 1/2, p_c = p_r."""
    sizes = ((10, 2), (10, 5), (100, 2), (100, 5), (100, 10))
    unequal = [Masking(keep=keep, random=random) for keep, random in ((0.05, 0.1), (0.01, 0.1), (0.01, 0.3))]
    few = product(sizes, (1, 2, 3), [Masking(mask=mask) for mask in GRID_MASK])
    # The bound on v grows with p_m: 100 words meet it here.
    half = product(sizes, [100], [Masking(mask=mask) for mask in (0.5, 0.7, 0.95)])

    def settings(places: Iterable[tuple[tuple[int, int], int, Masking]]) -> Iterator[InfiniteDocuments]:
        return (documents_of(*size, words, masking) for size, words, masking in places)

    return {
        "dense": outside(settings(product([(30, 20), (30, 25), (30, 29)], [10], GRID_MASKINGS))),
        "few words": outside(settings(few)),
        "half masked": outside(settings(half)),
        "more random": outside(settings(product(sizes, [10], unequal))),
    }


def largest_bound(results: Results) -> Measurement:
    """The largest bound of Assumption 3 on v over Assumption 4's maskings, up to near the ends of their intervals."""
    masks = np.linspace(NEAR_THE_ENDS, 0.5 - NEAR_THE_ENDS, 50)
    return exact(max(fewest_words(Masking(mask=mask, keep=same, random=same)) for mask, same in product(masks, masks)))


def weighted_average(results: Results) -> dict[str, Measurement]:
    """((v − 1)α + β)/v at the minimum, for a block and for a diagonal W^V."""
    rows = {}
    for value, documents in product(("block", "diagonal"), (SMALL, MIDDLE, LARGE, LARGER)):
        best = optimum(documents, value)
        name = f"{value} W^V, {setting_words(documents)}"
        rows[name] = exact(best.weighted_average, alpha=best.alpha, beta=best.beta, loss=best.loss)
    return rows


def spread_at_equal_average(results: Results, *, value: str) -> dict[str, Measurement]:
    """The largest range of the loss among (α, β) of one weighted average, over averages from 1 to 20."""
    average = np.geomspace(1, 20, 12)[:, None]
    beta = np.linspace(0, 1, 30) * average * SMALL.words
    alpha = (SMALL.words * average - beta) / (SMALL.words - 1)
    rows = {}
    for queries, with_mask in {"all queries": True, "word queries": False}.items():
        loss = landscape(SMALL, value, mask_queries=with_mask).loss(alpha, beta)
        rows[queries] = exact((loss.max(axis=1) - loss.min(axis=1)).max())
    return rows


def optimal_alpha(results: Results) -> Measurement:
    """α at the minimum for a diagonal W^V, T = 10, τ = 2."""
    best = optimum(SMALL, "diagonal")
    return exact(best.alpha, beta=best.beta, loss=best.loss)


def realised(results: Results) -> Measurement:
    """The largest difference between Assumption 2's weights and the softmax of scores W^K⊤W^Q/√d_a, d_a = V."""
    topic = np.concatenate([[-1], np.repeat(np.arange(SMALL.topics), SMALL.words)])
    wanted = np.where(topic[:, None] == topic, 6.0, 1.0)
    np.fill_diagonal(wanted, 2.0)
    scale = np.sqrt(len(topic))
    key, query = np.eye(len(topic)), scale * np.log(wanted)
    reached = np.exp(key.T @ query / scale)
    # Up to each query's own factor, which the softmax divides out.
    return exact(abs(reached / reached.sum(axis=0) - wanted / wanted.sum(axis=0)).max())


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


# Drawings and the page's sliders.


def draw(results: Results, *, title: str, value: str, topics: int, per_document: int) -> "Figure":
    """The loss over (α, β) around its minimum, for all queries and for word queries alone."""
    from topicscope.reporting.figures.landscape import Bounds, Surface, landscape_figure

    documents = documents_of(topics, per_document)
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
    limits = Bounds(documents.words, bounds.low, bounds.high, bounds.limit)
    return landscape_figure(title, surfaces, limits, attained=best.attained)


def page_landscape(documents: InfiniteDocuments, value: str, points: int = PAGE_POINTS) -> LandscapeRecord:
    """A landscape on the page's grid."""
    best = optimum(documents, value)
    weights = np.geomspace(PAGE_LEAST_WEIGHT, BEYOND * max(best.alpha, best.beta, 1.0), points)
    loss = landscape(documents, value).loss(weights[:, None], weights[None, :])
    return landscape_record(documents, value, best, weights, loss)


def write_landscapes(folder: Path) -> None:
    """Write all of the page's settings, for a block and for a diagonal W^V."""
    settings = product(("block", "diagonal"), PAGE_TOPICS, PAGE_PER_DOCUMENT)
    shown = [
        page_landscape(documents_of(topics, per_document), value)
        for value, topics, per_document in settings
        if per_document < topics
    ]
    LANDSCAPES.write(folder, shown)
