"""Settings, documents and losses that tests of several theorems share, each computed in the plainest way."""

from collections.abc import Callable
from itertools import combinations
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topicscope.settings.data import Data, Masking
from topicscope.settings.training import Average
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.synthetic.masking import expected_frequencies, mask_documents
from topicscope.synthetic.topics import TopicModel, sample_documents
from topicscope.theory.bayes import disjoint_queries
from topicscope.theory.classes import Vocabulary
from topicscope.theory.finite_documents import Moments
from topicscope.theory.reduced import Rows

Setting = tuple[int, int, int, Masking]
T = TypeVar("T")


def known(part: T | None) -> T:
    """What must be there."""
    assert part is not None
    return part


def drawn(*strategies: st.SearchStrategy[Any], few: int, many: int = 0) -> Callable[[Callable[..., None]], Any]:
    """A test of drawn settings, the same ones each time: few in the fast tests, many in the slow ones."""

    def as_test(check: Callable[..., None]) -> Any:
        def test(examples: int) -> None:
            given_these = settings(derandomize=True, deadline=None, database=None, max_examples=examples)
            given_these(given(*strategies)(check))()

        often = [pytest.param(many, marks=pytest.mark.slow)] if many else []
        return pytest.mark.parametrize("examples", [few, *often])(test)

    return as_test


@st.composite
def theorem_settings(draw: st.DrawFn, most_topics: int = 5, most_words: int = 4) -> Setting:
    """T, v, τ < T and a masking in which [MASK] and the document's words both occur."""
    topics = draw(st.integers(2, most_topics))
    # What is smaller than this, but not zero, settings refuse.
    share = st.just(0.0) | st.floats(1e-6, 0.45)
    keep, random = draw(share), draw(share)
    masking = Masking(mask=draw(st.floats(0.05, 0.95)), keep=keep, random=random)
    return topics, draw(st.integers(1, most_words)), draw(st.integers(1, topics - 1)), masking


def listed_documents(topics: int, words: int, per_document: int, masking: Masking) -> tuple[np.ndarray, np.ndarray]:
    """Word probabilities and masked frequencies of every infinite document."""
    sets = list(combinations(range(topics), per_document))
    inside = np.array([[t in chosen for t in range(topics)] for chosen in sets], dtype=float)
    p = np.repeat(inside / (per_document * words), words, axis=1)
    return np.hstack([np.zeros((len(p), 1)), p]), np.array([expected_frequencies(row, masking) for row in p])


def listed_loss(matrix: np.ndarray, y: np.ndarray, x: np.ndarray, bias: float | np.ndarray = 0.0) -> float:
    """E‖Wx̃ + b − e_w‖² with the word w drawn from the document."""
    prediction = x @ matrix.T + bias
    return float(((prediction**2).sum(axis=1) - 2 * (prediction * y).sum(axis=1) + 1).mean())


def population_gradient(
    matrix: np.ndarray, moments: Moments, bias: np.ndarray | None = None, ridge: float = 0.0
) -> np.ndarray:
    """The gradient of the population's loss plus λ‖W‖² in W: 2(WS − R + b s⊤ + λW)."""
    shift = 0.0 if bias is None else np.outer(bias, moments.mean)
    return np.asarray(2 * (matrix @ moments.second - moments.cross + shift + ridge * matrix))


def query_predictions(
    model: TopicModel, masking: Masking, masked: MaskedDocuments, average: Average = "document"
) -> np.ndarray:
    """The Bayes-optimal distribution of the word at every masked position, in the documents' order."""
    queries, v = disjoint_queries(model, masking, masked, average), (model.vocabulary - 1) // model.topics
    own = np.where(queries.is_mask, 0, 1 + (queries.words[:, :-1] == v - 1).argmax(axis=1))
    row = {place: number for number, place in enumerate(zip(queries.document.tolist(), own.tolist(), strict=True))}
    document, token = masked.document[masked.masked], masked.tokens[masked.masked]
    rows = [row[place] for place in zip(document.tolist(), ((token - 1) // v + 1).tolist(), strict=True)]
    joint = np.repeat(queries.joint[rows, :-1], v, axis=1)
    is_word = np.flatnonzero(token)
    joint[is_word, token[is_word] - 1] = queries.joint[rows, -1][is_word]
    return np.asarray(joint / joint.sum(axis=1, keepdims=True))


def infinite_rows(topics: int, words: int, per_document: int, masking: Masking) -> Rows:
    """Assumption 1's documents: that of the first τ topics stands for all, and one query for each kind."""
    size = Vocabulary(topics, words)
    original = np.zeros(size.count + 1)
    original[1 : per_document * words + 1] = 1 / (per_document * words)
    hidden = np.full(size.count + 1, masking.random / size.count)
    hidden[0] = masking.replaced
    seen = (1 - masking.mask + masking.mask * masking.keep) * original + masking.mask * hidden
    inside = per_document / topics
    kept = np.eye(1, size.count + 1, 1)[0]
    kinds = [
        (0, masking.replaced * original),
        (1, masking.keep * kept),
        (1, masking.random * inside * original),
        (size.count, masking.random * (1 - inside) * original),
    ]
    some = [(query, target) for query, target in kinds if target.any()]
    return Rows(
        size,
        np.broadcast_to(seen, (len(some), size.count + 1)),
        np.array([query for query, _ in some]),
        np.array([target for _, target in some]),
        np.zeros(len(some), dtype=np.int64),
    )


def sampled_rows(data: Data, masking: Masking, documents: int, *, generator: np.random.Generator) -> Rows:
    """Rows of so many documents drawn afresh."""
    model = TopicModel.from_settings(data)
    drawn = sample_documents(model, documents, generator=generator)
    masked = mask_documents(drawn, masking, model.vocabulary, generator=generator)
    return Rows.of(masked, Vocabulary(data.topics, data.words))
