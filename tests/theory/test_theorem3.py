"""Theorem 3's interval and assumptions, and the limit of the exact optimum that sharpens it."""

from pathlib import Path

import numpy as np
import pytest

from support.theory import known
from topicscope.settings.data import Masking
from topicscope.theory.landscape import InfiniteDocuments, Landscape, minimise
from topicscope.theory.theorem2 import diagonal_classes, theorem2_classes
from topicscope.theory.theorem3 import fewest_words, theorem3

THEORY_PAGE = Path(__file__).parents[2] / "docs" / "theory.md"
# (T, τ): on the way of Assumption 3, τ = o(T); then with τ held fixed; then with τ a share of T.
TABLE_SETTINGS = (
    *((10, 2), (100, 10), (1_000, 10), (10_000, 30), (100_000, 100), (1_000_000, 300), (10_000_000, 1_000)),
    *((100_000_000, 3_000), (100_000_000, 100_000)),
    *((100_000_000, 2), (100_000_000, 10)),
    *((100_000_000, 10_000_000), (100_000_000, 50_000_000)),
)
HEADER = ["T", "τ", "λ₁(τ−1)", "exact optimum", "limit", "λ₂T", "optimum / limit", "loss, uniform", "loss, optimum"]


def optimal_average(documents: InfiniteDocuments) -> float:
    value = theorem2_classes(documents.topics, documents.words, documents.masking)
    return minimise(Landscape(documents, value)).weighted_average


def test_the_constants_of_the_papers_setting() -> None:
    found = theorem3(InfiniteDocuments(topics=10, per_document=2, words=10))
    assert found.lambda1 == pytest.approx(0.5773410, abs=5e-8)
    assert found.lambda2 == pytest.approx(5866.67, abs=5e-3)
    assert (found.low, found.high) == pytest.approx((0.5773410, 58666.67), abs=5e-3)
    assert found.limit == pytest.approx(2 / 0.135)
    assert found.violated == ()


def test_the_bound_on_words_is_that_of_assumption_3() -> None:
    # (1/(1 − 0.9 · 0.15) + 1)² + 1, and its limit at Assumption 4's corner, (2 + 1)² + 1.
    assert fewest_words(Masking()) == pytest.approx((1 / 0.865 + 1) ** 2 + 1)
    corner = Masking(mask=0.5, keep=0.0, random=0.0)
    assert fewest_words(corner) == pytest.approx(10)
    assert fewest_words(Masking(mask=0.5, keep=0.1, random=0.1)) < 9


@pytest.mark.parametrize(
    ("documents", "said"),
    [
        (InfiniteDocuments(topics=10, per_document=2, words=5), "v = 5"),
        (InfiniteDocuments(topics=10, per_document=1, words=10), "τ = 1"),
        (InfiniteDocuments(topics=3, per_document=3, words=10), "τ = T = 3"),
        (InfiniteDocuments(topics=10, per_document=2, words=30, masking=Masking(mask=0.5)), "p_m = 0.5"),
        (InfiniteDocuments(topics=10, per_document=2, words=10, masking=Masking(keep=0.2)), "equal"),
        (InfiniteDocuments(topics=10, per_document=2, words=10, masking=Masking(keep=0.5, random=0.5)), "p_c = 0.5"),
    ],
)
def test_a_violated_assumption_is_named(documents: InfiniteDocuments, said: str) -> None:
    assert any(said in text for text in theorem3(documents).violated)


def test_without_random_words_or_kept_words_the_undefined_parts_are_none() -> None:
    no_random = theorem3(InfiniteDocuments(topics=10, per_document=2, words=10, masking=Masking(random=0.0)))
    assert no_random.lambda2 is None
    assert no_random.high is None
    no_kept = InfiniteDocuments(topics=10, per_document=2, words=10, masking=Masking(keep=0.0))
    assert theorem3(no_kept).limit is None
    assert theorem3(no_kept).limit_fixed is None
    # There the limit is wrong, not merely undefined: uniform attention is best.
    assert optimal_average(no_kept) == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize(
    ("words", "masking"),
    [(10, Masking()), (2, Masking()), (1, Masking()), (10, Masking(mask=0.6, keep=0.3, random=0.05))],
)
def test_the_optimal_average_tends_to_the_limit_even_where_assumption_4_fails(words: int, masking: Masking) -> None:
    ratios = []
    for topics, tau in [(10**4, 30), (10**6, 300), (10**8, 3000)]:
        documents = InfiniteDocuments(topics=topics, per_document=tau, words=words, masking=masking)
        ratios.append(optimal_average(documents) / known(theorem3(documents).limit))
    gaps = abs(np.array(ratios) - 1)
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 2e-3
    # Control: off Assumption 3 (τ a share of T) the limit is not approached.
    dense = InfiniteDocuments(topics=10**6, per_document=10**6 // 2, words=words, masking=masking)
    assert abs(optimal_average(dense) / known(theorem3(dense).limit) - 1) > 0.05


@pytest.mark.parametrize("per_document", [1, 2, 3, 10])
@pytest.mark.parametrize("masking", [Masking(), Masking(mask=0.6, keep=0.3, random=0.05), Masking(random=0.0)])
def test_with_fixed_per_document_topics_the_optimal_average_tends_to_a_closed_form(
    per_document: int, masking: Masking
) -> None:
    averages = []
    for topics in (10**4, 10**6, 10**8):
        documents = InfiniteDocuments(topics=topics, per_document=per_document, words=10, masking=masking)
        averages.append(optimal_average(documents))
    theorem = theorem3(documents)
    gaps = abs(np.array(averages) / known(theorem.limit_fixed) - 1)
    assert gaps[2] < 1e-5
    assert gaps[2] <= gaps[0] + 1e-9
    # Control: the limit for τ → ∞ is another number.
    assert abs(known(theorem.limit) / known(theorem.limit_fixed) - 1) > 1e-4


def test_with_one_word_a_topic_mask_queries_keep_the_average_from_the_limit_for_fixed_topics() -> None:
    one, two = (InfiniteDocuments(topics=10**8, per_document=2, words=words) for words in (1, 2))
    formula = theorem3(two).limit_fixed
    assert formula == pytest.approx(14.053, abs=5e-4)
    assert optimal_average(two) == pytest.approx(formula, rel=1e-5)
    assert theorem3(one).limit_fixed is None
    assert theorem3(one).limit == theorem3(two).limit
    # Control: at v = 1 the formula misses by far; it holds there for word queries alone.
    value = theorem2_classes(10**8, 1, one.masking)
    assert minimise(Landscape(one, value)).weighted_average == pytest.approx(2.4495, abs=5e-5)
    words_alone = minimise(Landscape(one, value, mask_queries=False)).weighted_average
    assert words_alone == pytest.approx(formula, rel=1e-5)


def test_a_diagonal_value_has_the_same_limit_but_not_at_few_topics() -> None:
    ratios = []
    for topics, per_document in [(10, 2), (10**8, 3000)]:
        documents = InfiniteDocuments(topics=topics, per_document=per_document, words=10)
        optimum = minimise(Landscape(documents, diagonal_classes(topics, 10, documents.masking)))
        ratios.append(optimum.weighted_average / known(theorem3(documents).limit))
    assert ratios[1] == pytest.approx(1, abs=1e-3)
    assert ratios[0] < 0.2


def test_the_lower_bound_can_fail_where_documents_have_most_topics() -> None:
    masking = Masking(mask=0.405, keep=0.311, random=0.311)
    dense = InfiniteDocuments(topics=128, per_document=122, words=45, masking=masking)
    assert theorem3(dense).violated == ()
    assert optimal_average(dense) == pytest.approx(85.13, abs=0.005)
    assert theorem3(dense).low == pytest.approx(90.9, abs=0.05)
    sparse = InfiniteDocuments(topics=12_800, per_document=122, words=45, masking=masking)
    assert optimal_average(sparse) > theorem3(sparse).low


def limit_row(topics: int, per_document: int, words: int = 10) -> tuple[float, ...]:
    """One row: T, τ, lower bound, exact optimal average, limit, upper bound, ratio, losses."""
    documents = InfiniteDocuments(topics=topics, per_document=per_document, words=words)
    optimum = minimise(Landscape(documents, theorem2_classes(topics, words, documents.masking)))
    theorem, average = theorem3(documents), optimum.weighted_average
    bounds = (theorem.low, average, known(theorem.limit), known(theorem.high), average / known(theorem.limit))
    return (float(topics), float(per_document), *bounds, optimum.loss_uniform, optimum.loss)


def limit_table() -> str:
    """The table of docs/theory.md, for the paper's masking and v = 10."""
    formats = ("{:,.0f}", "{:,.0f}", "{:,.3f}", "{:,.3f}", "{:,.3f}", "{:,.0f}", "{:.5f}", "{:.8f}", "{:.8f}")
    rows = [[form.format(value) for form, value in zip(formats, limit_row(*at), strict=True)] for at in TABLE_SETTINGS]
    lines = [HEADER, ["---:"] * len(HEADER), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def test_the_table_of_the_theory_page_is_what_theory_computes() -> None:
    assert limit_table() in THEORY_PAGE.read_text(encoding="utf-8")
    assert limit_row(10, 2) != limit_row(10, 3)
