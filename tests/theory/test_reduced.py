"""The reduced model against full training by automatic differentiation, and its gradient against differences."""

import numpy as np
import pytest

from support.full_training import descend, full_rows
from support.theory import infinite_rows, sampled_rows
from topicscope.measure.stages import TAKE_OFF, distance_from_uniform
from topicscope.settings import Data, Masking
from topicscope.settings.training import Loss
from topicscope.theory.classes import Vocabulary
from topicscope.theory.dynamics import logit_gradient
from topicscope.theory.reduced import Reduced, flow

STRONG = Masking(mask=0.3, keep=0.4, random=0.1)
# T, v, τ, masking, loss: five settings, of both losses.
SETTINGS = [
    (3, 3, 2, STRONG, "squared"),
    pytest.param(4, 3, 2, STRONG, "squared", marks=pytest.mark.slow),
    pytest.param(5, 2, 3, Masking(mask=0.4, keep=0.5, random=0.2), "squared", marks=pytest.mark.slow),
    pytest.param(3, 4, 2, STRONG, "cross_entropy", marks=pytest.mark.slow),
    (4, 2, 2, Masking(mask=0.2, keep=0.5, random=0.0), "cross_entropy"),
]


def symmetric_start(vocabulary: int, scale: float) -> tuple[int, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """W^V = 0; W^K⊤W^K = W^Q⊤W^Q = s² d_a I and W^K⊤W^Q = 0, exactly."""
    width = 2 * vocabulary
    norm = scale * np.sqrt(width)
    key, query = norm * np.eye(width, vocabulary), norm * np.eye(width)[:, vocabulary:]
    return width, (np.zeros((vocabulary, vocabulary)), key, query)


def distance(logits: np.ndarray, documents: tuple[np.ndarray, np.ndarray]) -> float:
    """a of word queries."""
    x, pairs = documents
    counts = np.rint(x * 1e9).astype(np.int64)
    return float(distance_from_uniform(logits[None], counts, np.rint(pairs.sum(axis=2) * 1e9).astype(np.int64))[0][0])


@pytest.mark.parametrize("loss", ["squared", "cross_entropy"])
def test_its_gradient_is_that_of_its_loss(loss: Loss) -> None:
    generator = np.random.default_rng(0)
    rows = sampled_rows(Data(topics=3, words=2, length=(5, 9)), STRONG, 30, generator=generator)
    value, logits = generator.normal(size=(2, 6))
    found, sizes = rows.gradient(value, logits, loss), rows.vocabulary.sizes
    near = 1e-5 * np.eye(6)
    slopes = [(rows.loss(value + d, logits, loss) - rows.loss(value - d, logits, loss)) / 2e-5 for d in near]
    np.testing.assert_allclose(found.value, slopes / sizes, atol=1e-8)
    slopes = [(rows.loss(value, logits + d, loss) - rows.loss(value, logits - d, loss)) / 2e-5 for d in near]
    np.testing.assert_allclose(found.logits, slopes / sizes, atol=1e-8)
    assert abs(found.logits).max() > 1e-4


@pytest.mark.parametrize(("topics", "words", "per_document", "masking", "loss"), SETTINGS)
def test_from_a_symmetric_start_training_follows_it_to_twice_take_off(
    topics: int, words: int, per_document: int, masking: Masking, loss: Loss
) -> None:
    size, documents = Vocabulary(topics, words), full_rows(topics, words, per_document, masking)
    width, start = symmetric_start(size.count + 1, 0.1)
    rate, every = (1.0, 50) if loss == "squared" else (2.0, 25)
    steps = 60 * every
    trained = descend(start, documents, loss, rate, steps, every)
    distances = np.array([distance(logits, documents) for _, logits in trained])
    took_off = int(np.argmax(distances >= TAKE_OFF))
    assert 0 < 2 * took_off < len(trained), "the run must reach twice its take-off"
    seen = trained[: 2 * took_off + 1]
    times = rate * every * np.arange(len(seen), dtype=float)
    gradient = infinite_rows(topics, words, per_document, masking).gradient
    _, states = flow(gradient, size, loss, Reduced.start(0.1, width), times, width=width)
    for full, reduced in (
        (np.array([size.means(value) for value, _ in seen]), [state.value for state in states]),
        (np.array([size.means(logits) for _, logits in seen]), [state.logits(size, width) for state in states]),
    ):
        largest = abs(full).max(axis=0)
        matters = largest > 1e-3 * largest.max()
        assert (abs(full - reduced)[:, matters] <= 0.05 * largest[matters]).all()
    # A control: the wrong width sends attention off at another time, well outside.
    _, other = flow(gradient, size, loss, Reduced.start(0.1, 4 * width), times, width=4 * width)
    logits = np.array([size.means(logits) for _, logits in seen])
    assert abs(logits - [state.logits(size, 4 * width) for state in other]).max() > 0.05 * abs(logits).max()


def test_where_attention_is_uniform_its_logit_gradient_is_the_exact_one() -> None:
    generator = np.random.default_rng(3)
    value = generator.normal(size=6)
    data = Data(sampler="topics", topics=4, words=3, per_document=2)
    exact = logit_gradient(data, STRONG, infinite=True)(value)
    np.testing.assert_allclose(infinite_rows(4, 3, 2, STRONG).gradient(value, np.zeros(6), "squared").logits, exact)
