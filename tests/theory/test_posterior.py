"""The posterior and its floors against brute-force enumeration of tiny settings and importance sampling."""

from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln

from support.theory import query_predictions
from topicscope.settings.data import Data, Masking, Sampler
from topicscope.settings.training import Average
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.bayes import (
    DocumentLosses,
    Factors,
    document_losses,
    expected_losses,
    listed_losses,
    marked_sums,
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


def brute_floors(world: Enumeration) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Floors over all masked positions, at [MASK] queries, and blind to the query."""
    at_mask = world.seen == 0
    masked = loss_of(world.joint).sum(axis=(0, 1))
    mask_queries = loss_of(world.joint)[at_mask].sum(axis=0) / max(world.joint[at_mask].sum(), 1e-300)
    bags = np.unique(np.sort(world.seen, axis=1), axis=0, return_inverse=True)[1].ravel()
    pooled = np.zeros((bags.max() + 1, world.joint.shape[2]))
    np.add.at(pooled, bags, world.joint.sum(axis=1))
    return masked, mask_queries, loss_of(pooled).sum(axis=0)


def our_floors(
    model: TopicModel, masking: Masking, world: Enumeration, average: Average, listed: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same three from our losses of every document that can be seen, weighted by its probability."""
    parts, weights = [], []
    for chosen, probability in world.events:
        possible = probability > 0
        if not possible.any():
            continue
        masked = np.zeros(world.seen[possible].shape, dtype=bool)
        masked[:, list(chosen)] = True
        solve = listed_losses if listed else document_losses
        parts.append(solve(model, masking, as_documents(world.seen[possible], masked), average))
        weights.append(probability[possible])
    losses, weight = DocumentLosses.joined(parts), np.concatenate(weights)
    everywhere = weight if average == "document" else weight * losses.size
    at_mask = everywhere * losses.mask_share
    everywhere = everywhere / everywhere.sum()
    return (
        everywhere @ losses.masked,
        at_mask @ losses.mask_queries / max(at_mask.sum(), 1e-300),
        everywhere @ losses.query_blind,
    )


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


def check_against_enumeration(data: dict[str, Any], masking: Masking, average: Average) -> None:
    model = TopicModel.from_settings(Data(**data))
    world = enumerate_documents(model, masking, average)
    assert world.joint.sum() == pytest.approx(1.0)
    expected = brute_floors(world)
    for listed in [False, True] if model.sampler == "topics" else [False]:
        for found, exact in zip(our_floors(model, masking, world, average, listed), expected, strict=True):
            np.testing.assert_allclose(found, exact, rtol=1e-9, atol=1e-10)
    if model.equal_words is not None:
        possible = (world.joint.sum(axis=2) > 1e-300).ravel()
        with np.errstate(invalid="ignore"):
            everywhere = np.ones(world.seen.shape, dtype=bool)
            ours = query_predictions(model, masking, as_documents(world.seen, everywhere), average)
        exact = world.joint.reshape(-1, world.joint.shape[2])[possible]
        np.testing.assert_allclose(ours[possible], exact / exact.sum(axis=1, keepdims=True), rtol=1e-8, atol=1e-12)


@given(tiny_settings())
@settings(derandomize=True, deadline=None, max_examples=15)
def test_posterior_and_floors_equal_brute_force_enumeration(tiny: Tiny) -> None:
    check_against_enumeration(*tiny)


@pytest.mark.slow
@given(tiny_settings())
@settings(derandomize=True, deadline=None, max_examples=250)
def test_posterior_and_floors_equal_brute_force_enumeration_often(tiny: Tiny) -> None:
    check_against_enumeration(*tiny)


def test_the_enumeration_tells_the_two_averages_and_a_wrong_prior_apart() -> None:
    model = TopicModel.from_settings(Data(topics=2, words=2, dirichlet=(0.3,), length=(3, 3)))
    other = TopicModel.from_settings(Data(topics=2, words=2, dirichlet=(1.0,), length=(3, 3)))
    masking = Masking(mask=0.4, keep=0.2, random=0.3)
    world = enumerate_documents(model, masking, "document")
    right = our_floors(model, masking, world, "document", False)[0]
    wrong = our_floors(other, masking, world, "document", False)[0]
    batch = brute_floors(enumerate_documents(model, masking, "batch"))[0]
    assert abs(right - brute_floors(world)[0]).max() < 1e-12
    assert abs(wrong - brute_floors(world)[0]).max() > 1e-3
    assert abs(batch - brute_floors(world)[0]).max() > 1e-5


def test_topics_that_share_words_equal_brute_force_enumeration() -> None:
    topic_words = np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.0, 0.9, 0.1]])
    model = TopicModel(topic_words, "topics", 2, np.ones(3), (3, 3))
    for masking in (Masking(mask=0.4, keep=0.2, random=0.3), Masking(mask=0.4, keep=0.2, random=0.0)):
        world = enumerate_documents(model, masking, "document")
        for found, exact in zip(our_floors(model, masking, world, "document", True), brute_floors(world), strict=True):
            np.testing.assert_allclose(found, exact, rtol=1e-10)


def importance_estimate(
    model: TopicModel, masking: Masking, tokens: np.ndarray, query: int, draws: int
) -> tuple[np.ndarray, np.ndarray]:
    """E[θ | the other tokens] with 1/|M| put in by the distribution of |M|, and standard errors."""
    theta = np.random.default_rng(2).dirichlet(model.dirichlet, size=draws)
    words = theta @ model.topic_words
    number = np.zeros((len(tokens), draws))
    number[0] = 1.0
    for position, token in enumerate(tokens):
        if position == query:
            continue
        if token == 0:
            plain, hit = np.zeros(draws), np.full(draws, masking.mask * masking.replaced)
        else:
            plain = (1 - masking.mask) * words[:, token - 1]
            hit = masking.mask * (masking.keep * words[:, token - 1] + masking.random / (model.vocabulary - 1))
        number = number * plain + np.vstack([np.zeros(draws), number[:-1] * hit])
    weight = (number / np.arange(1, len(tokens) + 1)[:, None]).sum(axis=0)
    weight /= weight.sum()
    mean = weight @ theta
    return mean, np.sqrt(weight**2 @ (theta - mean) ** 2)


def test_the_dirichlet_posterior_equals_importance_sampling() -> None:
    data = Data(topics=4, words=2, dirichlet=(0.4, 0.7, 1.0, 0.2), length=(14, 14))
    model, masking = TopicModel.from_settings(data), Masking(mask=0.4, keep=0.2, random=0.3)
    tokens = np.array([1, 1, 2, 0, 3, 3, 0, 2, 1, 0, 7, 4, 1, 5], dtype=np.int32)
    everywhere = as_documents(tokens[None], np.ones((1, len(tokens)), dtype=bool))
    predictions = query_predictions(model, masking, everywhere)
    at_mask = predictions[3].reshape(4, 2).sum(axis=1)
    mean, error = importance_estimate(model, masking, tokens, query=3, draws=200_000)
    assert (abs(at_mask - mean) < 5 * error).all()
    # At a word query the prediction is E[θ] tilted by how likely each word is to show this token.
    mean, error = importance_estimate(model, masking, tokens, query=10, draws=200_000)
    likelihood = np.full(8, masking.random / 8)
    likelihood[6] += masking.keep
    joint = np.repeat(mean / 2, 2) * likelihood
    slack = 5 * (np.repeat(error / 2, 2) * likelihood).sum() / joint.sum()
    assert abs(predictions[10] - joint / joint.sum()).max() < slack
    # Control: with its own token left in, the posterior is another one.
    assert abs(at_mask - mean).max() > 5 * error.max()


def written_out(parts: list[np.ndarray], end: np.ndarray) -> float:
    """Σ over all degrees of the product of one coefficient a rank, times end of the total degree."""
    total = 0.0
    for degrees in product(*(range(len(part)) for part in parts)):
        if sum(degrees) < len(end):
            total += float(np.prod([part[k] for part, k in zip(parts, degrees, strict=True)]) * end[sum(degrees)])
    return total


def test_every_marked_sum_equals_the_sum_written_out() -> None:
    generator = np.random.default_rng(0)
    rows, ranks, width, totals = 2, 3, 4, 6
    factors = Factors(*(generator.random((rows, ranks, width)) for _ in range(4)))
    ends = [generator.random((rows, totals)) for _ in range(4)]
    first, plain, pair, removed = marked_sums(factors, *ends)
    for row in range(rows):
        base = list(factors.base[row])

        def marked(changes: dict[int, np.ndarray], base: list[np.ndarray] = base) -> list[np.ndarray]:
            return [changes.get(rank, part) for rank, part in enumerate(base)]

        assert np.isclose(plain[row], written_out(base, ends[2][row]))
        for s in range(ranks):
            assert np.isclose(first[row, s], written_out(marked({s: factors.moment[row, s]}), ends[0][row]))
            assert np.isclose(removed[row, s], written_out(marked({s: factors.removed[row, s]}), ends[3][row]))
            for t in range(ranks):
                changes = {t: factors.removed[row, t], s: factors.moment[row, s]}
                if s == t:
                    changes = {t: factors.both[row, t]}
                assert np.isclose(pair[row, t, s], written_out(marked(changes), ends[1][row]))
    # Control: which rank is removed and which is marked matters.
    assert not np.allclose(pair, pair.transpose(0, 2, 1))
