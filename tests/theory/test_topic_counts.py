"""Topics per document against enumeration, inclusion and exclusion, and sampled documents."""

from itertools import product
from math import comb

import numpy as np
import pytest
from scipy.special import poch

from topicscope.errors import InputError
from topicscope.settings.data import Data
from topicscope.synthetic.topics import TopicModel, sample_documents
from topicscope.theory.finite_documents import topic_count_distribution


def enumerated(data: Data, length: int, least: float) -> np.ndarray:
    """Every sequence of topics with Pólya's urn's probability, word by word."""
    found = np.zeros(data.topics + 1)
    for topics in product(range(data.topics), repeat=length):
        counts, probability = np.zeros(data.topics), 1.0
        for place, topic in enumerate(topics):
            probability *= (data.dirichlet[0] + counts[topic]) / (data.topics * data.dirichlet[0] + place)
            counts[topic] += 1
        found[((counts > 0) & (counts >= least * length)).sum()] += probability
    return found


@pytest.mark.parametrize("least", [0.0, 0.3, 0.5])
@pytest.mark.parametrize("dirichlet", [0.1, 1.3])
def test_the_distribution_equals_enumeration(least: float, dirichlet: float) -> None:
    data = Data(topics=3, dirichlet=(dirichlet,), length=(4, 6))
    expected = np.mean([enumerated(data, length, least) for length in (4, 5, 6)], axis=0)
    np.testing.assert_allclose(topic_count_distribution(data, least), expected, atol=1e-12)
    other = Data(topics=3, dirichlet=(1.5 * dirichlet,), length=(4, 6))
    assert abs(topic_count_distribution(other, least) - expected).max() > 1e-3


def test_topics_that_occur_follow_inclusion_and_exclusion() -> None:
    data, length = Data(length=(120, 120)), 120
    # P(no topic but j given ones occurs) is a ratio of rising factorials.
    alone = [poch(0.1 * j, length) / poch(1.0, length) if j else 0.0 for j in range(11)]
    expected = [comb(10, k) * sum((-1) ** (k - j) * comb(k, j) * alone[j] for j in range(k + 1)) for k in range(11)]
    np.testing.assert_allclose(topic_count_distribution(data), expected, atol=1e-9)


def test_the_papers_documents_agree_with_sampled_ones() -> None:
    data, count = Data(), 4_000
    model = TopicModel.from_settings(data)
    documents = sample_documents(model, count, generator=np.random.default_rng(0))
    words = np.zeros((count, data.topics))
    np.add.at(words, (documents.document, (documents.tokens - 1) // data.words), 1)
    for least, other in ((0.0, 0.05), (0.05, 0.0)):
        topics = ((words > 0) & (words >= least * documents.lengths[:, None])).sum(axis=1)
        share = float(((topics >= 2) & (topics <= 4)).mean())
        standard_error = np.sqrt(share * (1 - share) / count)
        assert abs(share - topic_count_distribution(data, least)[2:5].sum()) < 5 * standard_error
        assert abs(share - topic_count_distribution(data, other)[2:5].sum()) > 5 * standard_error


def test_unequal_topics_and_topic_sets_are_refused() -> None:
    with pytest.raises(InputError, match="one Dirichlet parameter"):
        topic_count_distribution(Data(topics=2, dirichlet=(0.1, 0.2)))
    with pytest.raises(InputError, match="topics are counted for the sampler"):
        topic_count_distribution(Data(sampler="topics"))
