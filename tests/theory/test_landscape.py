"""The class-sum landscape against explicit matrices, its derivatives, and the minimiser against KKT and a fine grid."""

from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest
from hypothesis import strategies as st

from support.theory import drawn
from topicscope.errors import InputError
from topicscope.settings.data import Masking
from topicscope.theory.classes import ClassMatrix
from topicscope.theory.landscape import AttentionOptimum, InfiniteDocuments, Landscape, minimise
from topicscope.theory.theorem2 import diagonal_classes, theorem2_classes

Classes = Callable[[int, int, Masking], ClassMatrix]
PAPER = InfiniteDocuments(topics=10, per_document=2, words=10)

probability = st.floats(0.05, 0.9)


@st.composite
def settings_of_documents(draw: st.DrawFn, most_topics: int = 5) -> InfiniteDocuments:
    topics = draw(st.integers(1, most_topics))
    per_document = draw(st.integers(1, topics))
    keep = draw(st.sampled_from([0.0, 0.1]) | st.floats(1e-6, 0.6))
    random = draw(st.sampled_from([0.0, 0.1]) | st.floats(1e-6, 0.3))
    masking = Masking(mask=draw(probability), keep=keep, random=random)
    words = draw(st.integers(1, 4))
    return InfiniteDocuments(topics=topics, per_document=per_document, words=words, masking=masking)


number = st.floats(-2, 2)
any_value = st.builds(ClassMatrix, number, number, number, number)
weight = st.just(0.0) | st.floats(0.01, 50)
# Some key must have weight, even in the one topic of T = 1: that on [MASK] keys is positive.
some_weights = st.tuples(weight, weight, st.floats(0.01, 50))


def explicit_loss(
    documents: InfiniteDocuments,
    value: np.ndarray,
    alpha: float,
    beta: float,
    mask_key: float,
    mask_queries: bool,
) -> float:
    """Eq. 1 under Assumptions 1 and 2: every topic set, every query token and every target word, by matrices."""
    topics, tau, v, masking = documents.topics, documents.per_document, documents.words, documents.masking
    topic = np.concatenate([[0], np.repeat(np.arange(1, topics + 1), v)])
    vocabulary = topics * v + 1
    # Row: key, column: query.
    pattern = np.where(topic[:, None] == topic, alpha, 1.0)
    pattern[0, 1:] = mask_key
    np.fill_diagonal(pattern, beta)
    losses = []
    for chosen in combinations(range(1, topics + 1), tau):
        words = np.where(np.isin(topic, chosen), 1 / (tau * v), 0.0)
        seen = (1 - (1 - masking.keep) * masking.mask) * words
        seen[1:] += masking.mask * masking.random / (vocabulary - 1)
        seen[0] = masking.mask * masking.replaced
        prediction = value @ (pattern * seen[:, None] / (seen @ pattern))
        # Row: target, column: query token.
        joint = masking.keep * np.diag(words)
        joint[:, 1:] += np.outer(words, np.full(vocabulary - 1, masking.random / (vocabulary - 1)))
        joint[:, 0] = masking.replaced * words * mask_queries
        errors = ((prediction[:, None, :] - np.eye(vocabulary)[:, :, None]) ** 2).sum(axis=0)
        losses.append(float((joint * errors).sum() / joint.sum()))
    return float(np.mean(losses))


@drawn(settings_of_documents(), any_value, some_weights, st.booleans(), few=25, many=400)
def test_class_sums_equal_the_loss_of_explicit_matrices_over_all_topic_sets(
    documents: InfiniteDocuments, value: ClassMatrix, weights: tuple[float, float, float], mask_queries: bool
) -> None:
    masking = documents.masking
    if not mask_queries and masking.keep == masking.random == 0:
        return
    landscape = Landscape(documents, value, mask_queries)
    matrix = value.matrix(documents.topics, documents.words)
    expected = explicit_loss(documents, matrix, *weights, mask_queries)
    assert float(landscape.loss(*weights)) == pytest.approx(expected, rel=1e-10, abs=1e-10)
    # Control: predicting [MASK] with certainty besides costs exactly one more.
    matrix[0, :] = 1.0
    worse = explicit_loss(documents, matrix, *weights, mask_queries)
    assert worse - float(landscape.loss(*weights)) == pytest.approx(1.0, abs=1e-9 * (1 + expected))


@drawn(settings_of_documents(most_topics=50), any_value, st.tuples(weight, weight, weight), few=25, many=300)
def test_gradient_and_hessian_equal_finite_differences(
    documents: InfiniteDocuments, value: ClassMatrix, weights: tuple[float, float, float]
) -> None:
    landscape = Landscape(documents, value)
    point = np.array(weights) + 0.1
    explained, gradient, hessian = landscape.derivatives(*point)
    step = 1e-4
    moved = point + step * np.vstack([np.eye(3), -np.eye(3)])
    losses = landscape.loss(*moved.T)
    slopes = np.array([landscape.derivatives(*at).gradient for at in moved])
    scale = 1 + abs(losses).max()
    assert explained == pytest.approx(1 - float(landscape.loss(*point)), rel=1e-12, abs=1e-12 * scale)
    np.testing.assert_allclose((losses[:3] - losses[3:]) / (2 * step), gradient, rtol=1e-4, atol=1e-5 * scale)
    np.testing.assert_allclose((slopes[:3] - slopes[3:]) / (2 * step), hessian, rtol=1e-4, atol=1e-4 * scale)
    # Control: half a weight away the slope is another one, unless the loss is flat.
    assert abs(landscape.derivatives(*(point + 0.5)).gradient - gradient).max() > 1e-14 or abs(gradient).max() < 1e-9


def scaled_gradient(landscape: Landscape, optimum: AttentionOptimum) -> np.ndarray:
    """The gradient as the change of 1 − loss, relative to it, for weights that grow by a factor."""
    slope = landscape.derivatives(optimum.alpha, optimum.beta).gradient[:2] / landscape.explained(
        optimum.alpha, optimum.beta
    )
    return np.asarray(slope * np.maximum([optimum.alpha, optimum.beta], 1e-300))


def check_minimum(documents: InfiniteDocuments, classes: Classes) -> None:
    landscape = Landscape(documents, classes(documents.topics, documents.words, documents.masking))
    optimum = minimise(landscape)
    assert optimum.attained
    # Karush-Kuhn-Tucker: no slope where a weight is positive, none downhill where it is zero.
    slope = landscape.derivatives(optimum.alpha, optimum.beta).gradient[:2]
    assert abs(scaled_gradient(landscape, optimum)).max() < 1e-9
    assert slope[np.array([optimum.alpha, optimum.beta]) == 0].min(initial=0.0) >= 0
    axis = np.concatenate([[0.0], np.geomspace(1e-2, 1e5 * documents.topics, 200)])
    best = landscape.explained(axis[:, None], axis[None, :]).max()
    found = float(landscape.explained(optimum.alpha, optimum.beta))
    assert found >= best - 1e-13
    assert optimum.loss <= optimum.loss_uniform + 1e-15
    if classes is theorem2_classes and optimum.flat is None:
        assert optimum.beta == 1
        assert optimum.weighted_average >= 1 - 1e-12
    # Control: away from the optimum the conditions do not hold, unless the loss is flat there.
    if optimum.flat is None:
        away = landscape.derivatives(2 * optimum.alpha + 1, 2 * optimum.beta + 1).gradient[:2]
        assert abs(away).max() > 1e-12


test_the_minimiser_satisfies_kkt_and_beats_a_fine_grid = drawn(
    settings_of_documents(most_topics=60), st.sampled_from([theorem2_classes, diagonal_classes]), few=6, many=250
)(check_minimum)


@pytest.mark.parametrize(("topics", "per_document"), [(10**3, 100), (10**6, 2), (10**8, 100)])
@pytest.mark.parametrize("classes", [theorem2_classes, diagonal_classes])
def test_the_minimiser_holds_at_any_number_of_topics(topics: int, per_document: int, classes: Classes) -> None:
    check_minimum(InfiniteDocuments(topics=topics, per_document=per_document, words=10), classes)


def test_the_papers_numbers() -> None:
    block = Landscape(PAPER, theorem2_classes(10, 10, PAPER.masking))
    optimum = minimise(block)
    assert optimum.loss_uniform == pytest.approx(0.95, abs=1e-12)
    assert optimum.loss == pytest.approx(0.94610274, abs=5e-9)
    assert (optimum.alpha, optimum.beta) == pytest.approx((6.292, 1.0), abs=5e-4)
    assert optimum.weighted_average == pytest.approx(5.763, abs=5e-4)
    wide = minimise(block, free_mask_key=True)
    assert wide.loss == pytest.approx(0.9460688, abs=5e-8)
    larger = InfiniteDocuments(topics=100, per_document=10, words=10)
    optimum = minimise(Landscape(larger, theorem2_classes(100, 10, larger.masking)))
    assert optimum.loss == pytest.approx(0.98189325, abs=5e-9)
    assert (optimum.alpha, optimum.beta) == pytest.approx((46.20, 1.0), abs=5e-3)
    diagonal = minimise(Landscape(PAPER, diagonal_classes(10, 10, PAPER.masking)))
    assert diagonal.loss == pytest.approx(0.894559, abs=5e-7)
    assert (diagonal.alpha, diagonal.beta) == pytest.approx((0.0, 17.79), abs=5e-3)


@pytest.mark.parametrize("mask", [1e-9, 1e-6, 0.15])
@pytest.mark.parametrize("free_mask_key", [False, True])
def test_however_rare_mask_queries_are_their_weight_is_exactly_one(mask: float, free_mask_key: bool) -> None:
    documents = InfiniteDocuments(topics=10, per_document=2, words=10, masking=Masking(mask=mask))
    block = theorem2_classes(10, 10, documents.masking)
    optimum = minimise(Landscape(documents, block), free_mask_key=free_mask_key)
    assert optimum.beta == 1
    assert optimum.flat is None
    # Control: a block W^V outside Lemma 1's family has another β.
    other = ClassMatrix(block.mask_column + 0.3, block.same_word, block.same_topic, block.different_topic)
    assert not Landscape(documents, other).mask_queries_want_uniform
    if mask == 0.15:
        assert abs(minimise(Landscape(documents, other)).beta - 1) > 0.1


def test_uniform_attention_has_the_loss_of_a_perfect_word_distribution() -> None:
    # Any member of Lemma 1's family predicts P_w exactly: 1 − 1/(τv).
    for classes in (theorem2_classes, diagonal_classes):
        landscape = Landscape(PAPER, classes(10, 10, PAPER.masking))
        assert float(landscape.loss(1.0, 1.0)) == pytest.approx(1 - 1 / 20, abs=1e-13)
        assert float(landscape.loss(1.0, 3.0)) != pytest.approx(1 - 1 / 20, abs=1e-6)


def test_remark_5_holds_for_word_queries_and_blocks_only() -> None:
    alpha = np.array([1.0, 3.0, 5.0])
    beta = 10 * 4.0 - 9 * alpha
    value = theorem2_classes(10, 10, PAPER.masking)
    assert np.ptp(Landscape(PAPER, value, mask_queries=False).loss(alpha, beta)) < 1e-14
    assert np.ptp(Landscape(PAPER, value).loss(alpha, beta)) > 1e-4
    diagonal = diagonal_classes(10, 10, PAPER.masking)
    assert np.ptp(Landscape(PAPER, diagonal, mask_queries=False).loss(alpha, beta)) > 1e-4


@pytest.mark.parametrize(
    ("words", "keep", "random", "mask_queries", "said"),
    [
        (1, 0.1, 0.1, True, "one word"),
        (10, 0.0, 0.0, True, "no word queries"),
        (10, 0.1, 0.1, False, "weighted average"),
    ],
)
def test_flat_directions_are_reported_and_are_flat(
    words: int, keep: float, random: float, mask_queries: bool, said: str
) -> None:
    documents = InfiniteDocuments(topics=10, per_document=2, words=words, masking=Masking(keep=keep, random=random))
    landscape = Landscape(documents, theorem2_classes(10, words, documents.masking), mask_queries)
    optimum = minimise(landscape)
    assert optimum.flat is not None
    assert said in optimum.flat
    along = np.array([-9.0, 1.0]) if "average" in said else np.array([0.0, 1.0])
    other = float(landscape.loss(optimum.alpha + 0.1 * along[1], optimum.beta + 0.1 * along[0]))
    assert other == pytest.approx(optimum.loss, abs=1e-14)
    across = float(landscape.loss(optimum.alpha + 1, optimum.beta + 1))
    assert across > optimum.loss + 1e-6
    assert minimise(Landscape(PAPER, theorem2_classes(10, 10, PAPER.masking))).flat is None


@pytest.mark.parametrize(("keep", "random"), [(0.7, 0.3), (0.58, 0.42)])
def test_probabilities_that_add_up_to_one_but_for_rounding_leave_no_mask_queries(keep: float, random: float) -> None:
    masking = Masking(keep=keep, random=random)
    with pytest.raises(InputError, match="divide by"):
        theorem2_classes(10, 10, masking)
    documents = InfiniteDocuments(topics=10, per_document=2, words=10, masking=masking)
    flat = minimise(Landscape(documents, ClassMatrix(0.0, 0.1, 0.1, -0.01))).flat
    assert flat is not None
    assert "no query is [MASK]" in flat
    # Control: a share of [MASK] that is small but not rounding counts.
    rare = InfiniteDocuments(topics=10, per_document=2, words=10, masking=Masking(keep=keep, random=random - 1e-9))
    assert minimise(Landscape(rare, ClassMatrix(0.0, 0.1, 0.1, -0.01))).flat is None


def test_a_value_that_wants_all_attention_has_no_minimiser_and_says_so() -> None:
    documents = InfiniteDocuments(topics=10, per_document=2, words=10, masking=Masking(keep=0.2, random=0.0))
    assert not minimise(Landscape(documents, ClassMatrix(0.0, 0.5, 0.0, 0.0))).attained
    assert minimise(Landscape(documents, diagonal_classes(10, 10, documents.masking))).attained


def test_where_no_key_has_weight_there_is_no_attention() -> None:
    single = InfiniteDocuments(topics=1, per_document=1, words=2)
    landscape = Landscape(single, ClassMatrix(0.1, 0.2, 0.3, 0.4))
    assert float(landscape.explained(0.0, 0.0, 0.0)) == -np.inf
    assert np.isnan(landscape.derivatives(0.0, 0.0, 0.0).gradient).all()
    assert landscape.derivatives(0.0, 0.0, 0.0).explained == -np.inf
    assert np.isfinite(landscape.derivatives(0.0, 0.0, 0.1).gradient).all()
    assert np.isfinite(landscape.derivatives(0.0, 0.0, 0.1).explained)
    assert np.isfinite(landscape.explained(0.0, 0.0, 0.1))
    assert np.isfinite(minimise(landscape, free_mask_key=True).loss)


def test_settings_without_queries_or_with_too_many_topics_are_refused() -> None:
    masking = Masking(keep=0.0, random=0.0)
    documents = InfiniteDocuments(topics=4, per_document=2, words=3, masking=masking)
    with pytest.raises(InputError, match="no query is left"):
        Landscape(documents, theorem2_classes(4, 3, masking), mask_queries=False)
    with pytest.raises(InputError, match="per_document = 5 is not allowed"):
        InfiniteDocuments(topics=4, per_document=5, words=3)
    with pytest.raises(InputError, match="divide by"):
        theorem2_classes(4, 3, Masking(keep=0.5, random=0.5))
