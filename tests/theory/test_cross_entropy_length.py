"""Cross-entropy's two numbers under uniform attention, against the six-entry optimum, and their limits, sampled."""

import numpy as np
import pytest

from topicscope.errors import InputError
from topicscope.settings import Data, Masking
from topicscope.synthetic.documents import Bags
from topicscope.synthetic.masking import mask_documents
from topicscope.synthetic.topics import TopicModel, sample_documents
from topicscope.theory.cross_entropy import contrasts, cross_entropy_optimum, limit_contrasts

MASKING = Masking(mask=0.4, keep=0.4, random=0.1)


def bags(data: Data, count: int, seed: int) -> Bags:
    model, draw = TopicModel.from_settings(data), np.random.default_rng(seed)
    documents = sample_documents(model, count, generator=draw)
    return Bags.of(mask_documents(documents, MASKING, model.vocabulary, generator=draw), model.vocabulary)


def test_two_numbers_are_all_that_cross_entropy_sees_of_six() -> None:
    sample = bags(Data(topics=3, words=3, length=(15, 20)), 300, 0)
    found, loss = contrasts(sample, 3, 3)
    six = cross_entropy_optimum(sample, 3, 3, 1e-8)
    assert found.topic == pytest.approx(six.same_topic - six.different_topic, rel=1e-3)
    assert found.same_word == pytest.approx(six.same_word - six.same_topic, rel=1e-3)
    # What is left is the ridge, and [MASK]'s probability, which it keeps above zero.
    assert loss == pytest.approx(six.objective, abs=1e-3)
    assert loss < six.objective
    assert found.same_word > 0.1 * found.topic


@pytest.mark.parametrize("data", [Data(topics=4, words=2, dirichlet=(0.5,)), Data(sampler="topics", topics=4, words=2)])
def test_long_documents_have_the_contrasts_of_the_limit(data: Data) -> None:
    length = 600
    data = Data(
        sampler=data.sampler, topics=data.topics, words=data.words, dirichlet=data.dirichlet, length=(length, length)
    )
    found = [contrasts(bags(data, 150, seed), data.topics, data.words)[0] for seed in range(8)]
    limit = limit_contrasts(data, MASKING)
    for name in ("topic_mode", "same_word"):
        each = np.array([getattr(one, name) for one in found])
        error = each.std(ddof=1) / np.sqrt(len(each))
        # The next order is of the size K²/N.
        slack = 5 * error + 0.02 * getattr(limit, name)
        assert abs(each.mean() - getattr(limit, name)) < slack, name
        # Another masking's limit is outside.
        other = getattr(limit_contrasts(data, Masking(mask=0.7, keep=0.0, random=0.1)), name)
        assert abs(each.mean() - other) > slack, name


def test_with_topic_sets_the_topic_mode_grows_as_the_logarithm_of_the_length() -> None:
    masking, modes = Masking(), {}
    for length in (10**4, 10**6, 10**8):
        data = Data(sampler="topics", length=(length, length))
        modes[length] = limit_contrasts(data, masking).topic_mode
    visible = 1 - 0.9 * 0.15
    slopes = np.diff(list(modes.values())) / np.log(100) * visible / 2
    # τ/A per factor of e in N, less what K itself takes of it: 1/(1 + (τ/A)/K).
    assert (slopes > 0.85).all()
    assert (slopes < 1).all()
    assert slopes[1] > slopes[0]
    lda = [limit_contrasts(Data(length=(n, n)), masking).topic_mode for n in (10**4, 10**6)]
    assert lda[0] == pytest.approx(lda[1])


def test_what_has_no_minimum_is_refused() -> None:
    with pytest.raises(InputError, match="no minimum"):
        contrasts(bags(Data(sampler="topics", topics=3, words=1, per_document=1, length=(40, 40)), 3, 0), 3, 1)
    with pytest.raises(InputError, match="per_document = 1"):
        limit_contrasts(Data(sampler="topics", per_document=1), Masking())
