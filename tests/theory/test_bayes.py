"""The Bayes floors against realised losses, known topics and the paper's setting."""

import numpy as np
import pytest

from support.theory import query_predictions
from topicscope.errors import InputError
from topicscope.settings.data import Data, Masking, Sampler
from topicscope.synthetic.masking import mask_documents
from topicscope.synthetic.topics import TopicModel, sample_documents
from topicscope.theory.bayes import bayes_floors, disjoint_losses, listed_losses


def test_topics_that_share_words_are_refused_for_dirichlet_documents_and_long_lists() -> None:
    topic_words = np.full((40, 50), 1 / 50)
    generator = np.random.default_rng(0)
    with pytest.raises(InputError, match="share words"):
        bayes_floors(
            TopicModel(topic_words, "dirichlet", 2, np.ones(40), (3, 3)), Masking(), samples=2, generator=generator
        )
    with pytest.raises(InputError, match="at most 5000"):
        bayes_floors(
            TopicModel(topic_words, "topics", 8, np.ones(40), (3, 3)), Masking(), samples=2, generator=generator
        )


@pytest.mark.parametrize("masking", [Masking(), Masking(random=0.0), Masking(keep=0.0), Masking(keep=0.5, random=0.5)])
def test_the_sum_over_topics_equals_the_list_of_topic_sets(masking: Masking) -> None:
    data = Data(sampler="topics", topics=6, words=3, per_document=3, length=(20, 30))
    model, generator = TopicModel.from_settings(data), np.random.default_rng(1)
    documents = sample_documents(model, 40, generator=generator)
    masked = mask_documents(documents, masking, model.vocabulary, generator=generator)
    by_sum, by_list = disjoint_losses(model, masking, masked), listed_losses(model, masking, masked)
    np.testing.assert_allclose(by_sum.masked, by_list.masked, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(by_sum.mask_queries, by_list.mask_queries, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(by_sum.query_blind, by_list.query_blind, rtol=1e-9, atol=1e-12)
    assert np.ptp(by_sum.masked[:, 1]) > 1e-3


@pytest.mark.parametrize("sampler", ["dirichlet", "topics"])
def test_no_predictor_does_better_and_realised_losses_agree_with_the_expected_ones(sampler: Sampler) -> None:
    data = Data(sampler=sampler, length=(40, 60))
    model, masking, generator = TopicModel.from_settings(data), Masking(), np.random.default_rng(3)
    documents = sample_documents(model, 400, generator=generator)
    masked = mask_documents(documents, masking, model.vocabulary, generator=generator)
    document, word = masked.document[masked.masked], masked.words[masked.masked] - 1

    def realised(assumed: Masking) -> np.ndarray:
        predictions = query_predictions(model, assumed, masked)
        squared = 1 - 2 * predictions[np.arange(len(word)), word] + (predictions**2).sum(axis=1)
        return np.bincount(document, weights=squared) / np.bincount(document)

    right = realised(masking)
    gap = right - disjoint_losses(model, masking, masked).masked[:, 1]
    assert abs(gap.mean()) < 5 * gap.std() / np.sqrt(len(gap))
    # Control: a predictor that takes every word at a masked position for a random one does worse.
    worse = realised(Masking(keep=0.0, random=0.2)) - right
    assert worse.mean() > 5 * worse.std() / np.sqrt(len(worse))


# Squared losses at the paper's setting, each the mean of 20,000 documents with this standard error.
PAPER_FLOORS = {"masked": 0.8721, "mask_queries": 0.9455, "query_blind": 0.9453}


PAPER_ERROR = 2e-4


def tells_apart(value: float, error: float, known: float) -> bool:
    """Five standard errors of the difference to one of the numbers above."""
    return abs(value - known) > 5 * float(np.hypot(error, PAPER_ERROR))


def check_paper_floors(samples: int) -> tuple[float, float]:
    """All three floors; returns that of all masked positions and its standard error."""
    model, random = TopicModel.from_settings(Data()), np.random.default_rng(4)
    floors = bayes_floors(model, Masking(), samples=samples, generator=random)
    assert floors.mask_queries is not None
    measured = {}
    for name, known in PAPER_FLOORS.items():
        floor = getattr(floors, name).squared
        error = (floor.high - floor.low) / (2 * 1.96)
        measured[name] = floor.value, error
        assert not tells_apart(floor.value, error, known)
        # Control: the floor that can, or cannot, use kept words is another number.
        assert tells_apart(floor.value, error, PAPER_FLOORS["query_blind" if name == "masked" else "masked"])
    return measured["masked"]


def test_the_floors_of_the_papers_setting() -> None:
    _, error = check_paper_floors(1_000)
    assert 5e-4 < error < 1.5e-3


@pytest.mark.slow
def test_the_floors_of_the_papers_setting_from_20_000_documents() -> None:
    value, error = check_paper_floors(20_000)
    # Control: so many documents tell a number that is 0.002 away apart.
    assert tells_apart(value, error, 0.874)


def realised_losses(documents: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Squared losses of the words that were drawn: each document's mean over M, and (sum, number) at its [MASK]."""
    model, masking, generator = TopicModel.from_settings(Data()), Masking(), np.random.default_rng(seed)
    means, at_mask = [], []
    for _ in range(documents // 250):
        drawn = sample_documents(model, 250, generator=generator)
        masked = mask_documents(drawn, masking, model.vocabulary, generator=generator)
        where = masked.masked
        document, word = masked.document[where], masked.words[where] - 1
        predictions = query_predictions(model, masking, masked)
        squared = 1 - 2 * predictions[np.arange(len(word)), word] + (predictions**2).sum(axis=1)
        size, is_mask = np.bincount(document), masked.tokens[where] == 0
        means.append(np.bincount(document, weights=squared) / size)
        # Eq. 1: a position weighs 1/|M|.
        of_mask = [np.bincount(document, weights=is_mask * part) / size for part in (squared, np.ones_like(squared))]
        at_mask.append(np.column_stack(of_mask))
    return np.concatenate(means), np.concatenate(at_mask)


def check_realised_losses(documents: int) -> None:
    means, at_mask = realised_losses(documents, seed=9)
    ratio = at_mask[:, 0].mean() / at_mask[:, 1].mean()
    spread = (at_mask[:, 0] - ratio * at_mask[:, 1]).std() / at_mask[:, 1].mean()
    estimates = {"masked": (means.mean(), means.std()), "mask_queries": (ratio, spread)}
    for name, (value, deviation) in estimates.items():
        error = deviation / np.sqrt(documents)
        assert not tells_apart(value, error, PAPER_FLOORS[name])
        other = PAPER_FLOORS["mask_queries" if name == "masked" else "masked"]
        assert tells_apart(value, error, other)


def test_losses_of_drawn_words_have_the_floors_of_the_papers_setting() -> None:
    check_realised_losses(750)


@pytest.mark.slow
def test_losses_of_drawn_words_have_the_floors_of_the_papers_setting_in_20_000_documents() -> None:
    check_realised_losses(20_000)


def test_progress_is_reported_and_the_seed_decides() -> None:
    model, seen = TopicModel.from_settings(Data(length=(10, 12))), []
    first = bayes_floors(
        model, Masking(), samples=300, generator=np.random.default_rng(5), report=lambda *state: seen.append(state)
    )
    again = bayes_floors(model, Masking(), samples=300, generator=np.random.default_rng(5))
    other = bayes_floors(model, Masking(), samples=300, generator=np.random.default_rng(6))
    assert seen[-1][:2] == (300, 300)
    assert first == again
    assert first.masked != other.masked


def test_without_mask_tokens_there_is_no_floor_at_mask_queries() -> None:
    model = TopicModel.from_settings(Data(length=(10, 12)))
    floors = bayes_floors(model, Masking(keep=0.5, random=0.5), samples=50, generator=np.random.default_rng(7))
    assert floors.mask_queries is None
    assert 0 < floors.masked.squared.value < 1
    with pytest.raises(InputError, match="samples = 1"):
        bayes_floors(model, Masking(), samples=1, generator=np.random.default_rng(7))


def test_long_documents_have_the_floor_of_known_topics() -> None:
    topics, v, tau, masking = 10, 10, 2, Masking()
    data = Data(sampler="topics", topics=topics, words=v, per_document=tau, length=(300, 400))
    floors = bayes_floors(TopicModel.from_settings(data), masking, samples=300, generator=np.random.default_rng(8))
    # With the topics known, a word query's target is q or one of the document's τv words.
    total = masking.keep + masking.random * tau / topics
    own, other = masking.keep + masking.random / (topics * v), masking.random / (topics * v)
    at_own = 1 - (own / total) ** 2 - (tau * v - 1) * (other / total) ** 2
    known = total * at_own + (1 - total) * (1 - 1 / (tau * v))
    standard_error = (floors.masked.squared.high - floors.masked.squared.low) / 3.92
    assert abs(floors.masked.squared.value - known) < 5 * standard_error
    assert floors.mask_queries is not None
    assert floors.mask_queries.squared.value == pytest.approx(1 - 1 / (tau * v), abs=1e-6)
    # Control: a floor that cannot use the query is far from it.
    assert abs(floors.query_blind.squared.value - known) > 20 * standard_error
