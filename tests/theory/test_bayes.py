"""The posterior and its floors: against enumeration of tiny settings, sampling, and known topics."""

from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import strategies as st
from scipy.special import gammaln

from support.theory import drawn, query_predictions
from topicscope.errors import InputError
from topicscope.settings.data import Data, Masking, Sampler
from topicscope.settings.training import Average
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.synthetic.masking import mask_documents
from topicscope.synthetic.topics import TopicModel, sample_documents
from topicscope.theory.bayes import (
    DocumentLosses,
    bayes_floors,
    disjoint_queries,
    document_losses,
    expected_losses,
    listed_queries,
    losses_of,
)


def word_prior(model: TopicModel, length: int) -> np.ndarray:
    """P(w) of every document of this length: one axis a position."""
    if model.sampler == "topics":
        sets = list(combinations(range(model.topics), model.per_document))
        of_set = [model.topic_words[list(chosen)].mean(axis=0) for chosen in sets]
        return np.asarray(np.mean([_outer([word] * length) for word in of_set], axis=0))
    words = model.vocabulary - 1
    prior = np.empty((words,) * length)
    for document in product(range(words), repeat=length):
        k = np.bincount(model.word_topics[1:][list(document)] - 1, minlength=model.topics)
        a = model.dirichlet
        log = (gammaln(a + k) - gammaln(a)).sum() - gammaln(a.sum() + length) + gammaln(a.sum())
        prior[document] = np.exp(log) * (model.topics / words) ** length
    return prior


def _outer(vectors: list[np.ndarray]) -> np.ndarray:
    result = np.ones(())
    for vector in vectors:
        result = np.multiply.outer(result, vector)
    return result


class Enumeration(NamedTuple):
    """All that can happen to documents of one length."""

    joint: np.ndarray
    """Mass of (seen tokens, query position, its word) under eq. 1; the seen tokens are flattened."""
    seen: np.ndarray
    """The tokens of each flattened index."""
    events: list[tuple[tuple[int, ...], np.ndarray]]
    """For each set M: its positions and the probability of each flattened index."""


def enumerate_documents(model: TopicModel, masking: Masking, average: Average) -> Enumeration:
    length, words, vocabulary = model.length[0], model.vocabulary - 1, model.vocabulary
    untouched = np.hstack([np.zeros((words, 1)), np.eye(words)])
    changed = np.hstack([np.full((words, 1), masking.replaced), np.full((words, words), masking.random / words)])
    changed[:, 1:] += masking.keep * np.eye(words)
    prior = word_prior(model, length)
    joint = np.zeros((vocabulary**length, length, words))
    events, normaliser = [], 0.0
    for size in range(1, length + 1):
        for chosen in combinations(range(length), size):
            weight = masking.mask**size * (1 - masking.mask) ** (length - size)
            mass = prior * weight
            for position in range(length):
                # Replace each word axis, first in line, by its (word, token) pair at the end.
                kernel = changed if position in chosen else untouched
                mass = mass[..., None] * kernel.reshape(
                    (1,) * position + (words,) + (1,) * (mass.ndim - position - 1) + (vocabulary,)
                )
            share = 1 / size if average == "document" else 1.0
            for position in chosen:
                others = tuple(axis for axis in range(length) if axis != position)
                by_word = np.moveaxis(mass.sum(axis=others), 0, -1).reshape(-1, words)
                joint[:, position] += share * by_word
            events.append((chosen, mass.sum(axis=tuple(range(length))).ravel()))
            normaliser += weight * (1.0 if average == "document" else size)
    seen = np.array(list(product(range(vocabulary), repeat=length)), dtype=np.int32)
    return Enumeration(joint / normaliser, seen, events)


def as_documents(seen: np.ndarray, masked: np.ndarray) -> MaskedDocuments:
    lengths = np.full(len(seen), seen.shape[1], dtype=np.int32)
    return MaskedDocuments(lengths, seen.ravel(), np.ones(seen.size, dtype=np.int32), masked.ravel())


def loss_of(joint: np.ndarray) -> np.ndarray:
    """Mass times the least expected losses of each row."""
    total = joint.sum(axis=-1, keepdims=True)
    return np.asarray(total * expected_losses(joint / np.where(total > 0, total, 1.0)))


def brute_floors(world: Enumeration) -> tuple[np.ndarray, np.ndarray]:
    """Floors over all masked positions, and at [MASK] queries."""
    at_mask, losses = world.seen == 0, loss_of(world.joint)
    return losses.sum(axis=(0, 1)), losses[at_mask].sum(axis=0) / max(world.joint[at_mask].sum(), 1e-300)


def our_floors(
    model: TopicModel, masking: Masking, world: Enumeration, average: Average
) -> tuple[np.ndarray, np.ndarray]:
    """The same from our losses of every document that can be seen, weighted by its probability."""
    parts, weights = [], []
    for chosen, probability in world.events:
        possible = probability > 0
        if not possible.any():
            continue
        masked = np.zeros(world.seen[possible].shape, dtype=bool)
        masked[:, list(chosen)] = True
        parts.append(document_losses(model, masking, as_documents(world.seen[possible], masked), average))
        weights.append(probability[possible])
    losses, weight = DocumentLosses(*map(np.concatenate, zip(*parts, strict=True))), np.concatenate(weights)
    everywhere = weight if average == "document" else weight * losses.size
    at_mask = everywhere * losses.mask_share
    everywhere = everywhere / everywhere.sum()
    return everywhere @ losses.masked, at_mask @ losses.mask_queries / max(at_mask.sum(), 1e-300)


class Tiny(NamedTuple):
    # Not Data itself: beartype draws random numbers to check its tuples, which hypothesis forbids while drawing.
    data: dict[str, Any]
    masking: Masking
    average: Average


@st.composite
def tiny_settings(draw: st.DrawFn) -> Tiny:
    topics, words, length = draw(st.sampled_from([(1, 2, 2), (2, 1, 3), (2, 2, 3), (3, 1, 3), (3, 2, 2), (2, 2, 1)]))
    sampler: Sampler = draw(st.sampled_from(["dirichlet", "topics"]))
    parameter = tuple(draw(st.floats(0.05, 3.0)) for _ in range(topics))
    data = {
        "sampler": sampler,
        "topics": topics,
        "words": words,
        "per_document": draw(st.integers(1, topics)),
        "dirichlet": parameter,
        "length": (length, length),
    }
    keep, random = draw(st.just(0.0) | st.floats(0.01, 0.5)), draw(st.just(0.0) | st.floats(0.01, 0.5))
    masking = Masking(mask=draw(st.just(1.0) | st.floats(0.05, 0.95)), keep=keep, random=random)
    return Tiny(data, masking, draw(st.sampled_from(["document", "batch"])))


@drawn(tiny_settings(), few=15, many=250)
def test_posterior_and_floors_equal_brute_force_enumeration(tiny: Tiny) -> None:
    data, masking, average = tiny
    model = TopicModel.from_settings(Data(**data))
    world = enumerate_documents(model, masking, average)
    assert world.joint.sum() == pytest.approx(1.0)
    expected = brute_floors(world)
    for found, exact in zip(our_floors(model, masking, world, average), expected, strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-9, atol=1e-10)
    if model.equal_words is not None:
        possible = (world.joint.sum(axis=2) > 1e-300).ravel()
        with np.errstate(invalid="ignore"):
            everywhere = np.ones(world.seen.shape, dtype=bool)
            ours = query_predictions(model, masking, as_documents(world.seen, everywhere), average)
        exact = world.joint.reshape(-1, world.joint.shape[2])[possible]
        np.testing.assert_allclose(ours[possible], exact / exact.sum(axis=1, keepdims=True), rtol=1e-8, atol=1e-12)


def test_the_enumeration_tells_the_two_averages_and_a_wrong_prior_apart() -> None:
    model = TopicModel.from_settings(Data(topics=2, words=2, dirichlet=(0.3,), length=(3, 3)))
    other = TopicModel.from_settings(Data(topics=2, words=2, dirichlet=(1.0,), length=(3, 3)))
    masking = Masking(mask=0.4, keep=0.2, random=0.3)
    world = enumerate_documents(model, masking, "document")
    right = our_floors(model, masking, world, "document")[0]
    wrong = our_floors(other, masking, world, "document")[0]
    batch = brute_floors(enumerate_documents(model, masking, "batch"))[0]
    assert abs(right - brute_floors(world)[0]).max() < 1e-12
    assert abs(wrong - brute_floors(world)[0]).max() > 1e-3
    assert abs(batch - brute_floors(world)[0]).max() > 1e-5


def test_topics_that_share_words_equal_brute_force_enumeration() -> None:
    topic_words = np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.0, 0.9, 0.1]])
    model = TopicModel(topic_words, "topics", 2, np.ones(3), (3, 3))
    for masking in (Masking(mask=0.4, keep=0.2, random=0.3), Masking(mask=0.4, keep=0.2, random=0.0)):
        world = enumerate_documents(model, masking, "document")
        for found, exact in zip(our_floors(model, masking, world, "document"), brute_floors(world), strict=True):
            np.testing.assert_allclose(found, exact, rtol=1e-10)


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
    by_sum, by_list = (
        losses_of(solve(model, masking, masked, "document"), masked) for solve in (disjoint_queries, listed_queries)
    )
    for found, exact in zip(by_sum, by_list, strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-9, atol=1e-12)
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
    gap = right - document_losses(model, masking, masked).masked[:, 1]
    assert abs(gap.mean()) < 5 * gap.std() / np.sqrt(len(gap))
    # Control: a predictor that takes every word at a masked position for a random one does worse.
    worse = realised(Masking(keep=0.0, random=0.2)) - right
    assert worse.mean() > 5 * worse.std() / np.sqrt(len(worse))


# Squared losses at the paper's setting, each the mean of 20,000 documents with this standard error.
PAPER_FLOORS = {"masked": 0.8721, "mask_queries": 0.9455}
PAPER_ERROR = 2e-4


def tells_apart(value: float, error: float, known: float) -> bool:
    """Five standard errors of the difference to one of the numbers above."""
    return abs(value - known) > 5 * float(np.hypot(error, PAPER_ERROR))


@pytest.mark.parametrize("samples", [1_000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_the_floors_of_the_papers_setting(samples: int) -> None:
    model, random = TopicModel.from_settings(Data()), np.random.default_rng(4)
    floors = bayes_floors(model, Masking(), samples=samples, generator=random)
    assert floors.mask_queries is not None
    for name, known in PAPER_FLOORS.items():
        floor = getattr(floors, name).squared
        error = (floor.high - floor.low) / (2 * 1.96)
        assert not tells_apart(floor.value, error, known)
        # Control: the floor that can, or cannot, use kept words is another number.
        assert tells_apart(floor.value, error, PAPER_FLOORS["mask_queries" if name == "masked" else "masked"])


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
    # Control: a [MASK] query says nothing about its word.
    assert abs(floors.mask_queries.squared.value - known) > 20 * standard_error
