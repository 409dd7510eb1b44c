"""How much single entries scatter, against least squares on many sets of documents."""

import numpy as np
import pytest

from topicscope.errors import InputError
from topicscope.settings import Data, Masking
from topicscope.synthetic.documents import Bags
from topicscope.synthetic.masking import mask_documents
from topicscope.synthetic.topics import TopicModel, sample_documents
from topicscope.theory.classes import Vocabulary
from topicscope.theory.finite_documents import (
    class_moments,
    class_optimum,
    documents_needed,
    entry_variance,
    finite_optimum,
    moments,
    residual,
)

DATA = Data(topics=3, words=3, dirichlet=(0.3,), length=(15, 25))
MASKING = Masking(mask=0.3, keep=0.2, random=0.1)


def bags(count: int, generator: np.random.Generator) -> Bags:
    model = TopicModel.from_settings(DATA)
    documents = sample_documents(model, count, generator=generator)
    return Bags.of(mask_documents(documents, MASKING, model.vocabulary, generator=generator), model.vocabulary)


def test_the_residual_is_that_of_sampled_documents() -> None:
    sample, count = bags(4_000, np.random.default_rng(0)), 4_000
    best = finite_optimum(moments(TopicModel.from_settings(DATA), MASKING))
    each = ((sample.frequencies @ best.T - sample.targets) ** 2).sum(axis=1)
    error = each.std() / np.sqrt(count)
    assert abs(residual(DATA, MASKING) - each.mean()) < 5 * error
    # Targets of single positions instead of a document's mean are far noisier.
    assert abs(residual(DATA, MASKING) - 0.9) > 50 * error


def test_single_entries_scatter_as_predicted() -> None:
    generator, size, sets, count = np.random.default_rng(1), Vocabulary(3, 3), 60, 500
    fits = []
    for _ in range(sets):
        sample = bags(count, generator)
        second = sample.frequencies.T @ sample.frequencies
        fits.append(np.linalg.solve(second, sample.frequencies.T @ sample.targets).T)
    variance = np.var(fits, axis=0, ddof=1) * count
    _, _, _, *seen = size.means(variance)
    found = entry_variance(DATA, MASKING, generator=np.random.default_rng(2))
    for measured, name, entries in zip(seen, ("same_word", "same_topic", "different_topic"), (9, 18, 54), strict=True):
        # A variance from 60 sets is known to √(2/60); entries of a class are not independent, so a third of that gain.
        slack = 5 * np.sqrt(2 / sets) / np.sqrt(entries / 3)
        assert measured == pytest.approx(getattr(found, name), rel=slack), name
    weights = np.array([9, 18, 54]) / 81
    assert found.closed_form == pytest.approx(weights @ np.array(seen), rel=0.25)
    # The topic mode alone would have it far smaller.
    assert residual(DATA, MASKING) / 9 / class_moments(DATA, MASKING).second.topic * 2 / 9 < 0.5 * found.closed_form


def test_the_documents_needed_leave_the_error_asked_for() -> None:
    needed = documents_needed(DATA, MASKING, 0.2, generator=np.random.default_rng(0))
    best = class_optimum(class_moments(DATA, MASKING))
    generator = np.random.default_rng(3)
    fits = []
    for _ in range(30):
        sample = bags(needed, generator)
        second = sample.frequencies.T @ sample.frequencies
        fits.append(np.linalg.solve(second, sample.frequencies.T @ sample.targets).T)
    error = np.sqrt(Vocabulary(3, 3).means(np.var(fits, axis=0, ddof=1))[4])
    assert error == pytest.approx(0.2 * (best.same_topic - best.different_topic), rel=0.2)
    assert documents_needed(DATA, MASKING, 0.1, generator=np.random.default_rng(0)) > 3.9 * needed
    with pytest.raises(InputError, match="precision"):
        documents_needed(DATA, MASKING, 0.0, generator=np.random.default_rng(0))
