"""Finite and infinite optima of the paper's symmetric setting by classes of entries: O(1) work, for any T and v.

With T equal topics of v equally likely words and a symmetric Dirichlet (or τ of T topics), S and R do not change when
topics, or words within a topic, are permuted. Such matrices share three invariant spaces, on which they are numbers:
contrasts within a topic (dimension T(v−1)), contrasts between topics (T−1), and the plane of [MASK] and the mean word,
on which they are 2 × 2. So the ridge optimum R(S + λI)⁻¹ is two divisions and one 2 × 2 inverse.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from topicscope.settings.checks import check_not_negative, refuse
from topicscope.settings.data import Data, Masking
from topicscope.settings.training import Average
from topicscope.theory.lemma import constants
from topicscope.theory.moments import Shares, finite_shares, infinite_shares


@dataclass(frozen=True)
class ClassMatrix:
    """A matrix with one number a class and a 0-th row of zeros."""

    mask_column: float
    same_word: float
    same_topic: float
    different_topic: float

    def matrix(self, topics: int, words: int) -> Float[np.ndarray, "token token"]:
        """The whole matrix."""
        full = np.full((topics * words + 1, topics * words + 1), self.different_topic)
        full[1:, 1:] += np.kron(np.eye(topics), np.full((words, words), self.same_topic - self.different_topic))
        full[1:, 1:] += (self.same_word - self.same_topic) * np.eye(topics * words)
        full[:, 0], full[0, :] = self.mask_column, 0.0
        return full


@dataclass(frozen=True)
class _Spectrum:
    """A matrix of the symmetric kind on its invariant spaces."""

    within: float
    """On contrasts within a topic."""

    between: float
    """On contrasts between topics."""

    plane: tuple[float, float]
    """From ([MASK], mean word), both of length one, to the mean word."""


@dataclass(frozen=True)
class ClassMoments:
    """S and R on the invariant spaces."""

    topics: int
    words: int
    second: _Spectrum
    second_mask: float
    """S₀₀."""

    cross: _Spectrum

    @property
    def _plane(self) -> Float[np.ndarray, "side side"]:
        coupling, mean = self.second.plane
        return np.array([[self.second_mask, coupling], [coupling, mean]])


def class_moments(
    data: Data, masking: Masking, average: Average = "document", *, infinite: bool = False
) -> ClassMoments:
    """The moments of ``topicscope.theory.moments`` for equal topics and one Dirichlet parameter."""
    if data.topic_words or len(set(data.dirichlet)) > 1:
        name = "data.topic_words" if data.topic_words else "data.dirichlet"
        raise refuse(name, getattr(data, name.removeprefix("data.")), "classes need equal topics; leave it out")
    shares = infinite_shares(masking.mask) if infinite else finite_shares(data.length, masking.mask, average)
    return _assemble(data, masking, shares)


def class_optimum(moments: ClassMoments, ridge: float = 0.0) -> ClassMatrix:
    """R(S + λI)⁻¹ without bias; at λ = 0 with S singular, its limit λ → 0."""
    check_not_negative("ridge", ridge)
    second, cross, n = moments.second, moments.cross, moments.topics * moments.words
    plane = np.array(cross.plane) @ np.linalg.pinv(moments._plane + ridge * np.eye(2), hermitian=True)
    within, between = _ratio(cross.within, second.within + ridge), _ratio(cross.between, second.between + ridge)
    different = (plane[1] - between) / n
    same_topic = different + (between - within) / moments.words
    return ClassMatrix(float(plane[0]) / np.sqrt(n), same_topic + within, same_topic, float(different))


def class_loss(matrix: ClassMatrix, moments: ClassMoments) -> float:
    """1 − 2⟨W, R⟩ + ⟨WS, W⟩."""
    topics, words = moments.topics, moments.words
    within = matrix.same_word - matrix.same_topic
    between = within + words * (matrix.same_topic - matrix.different_topic)
    plane = np.array([np.sqrt(topics * words) * matrix.mask_column, between + topics * words * matrix.different_topic])
    spaces = (
        (topics * (words - 1), within, moments.cross.within, moments.second.within),
        (topics - 1, between, moments.cross.between, moments.second.between),
    )
    loss = 1 + sum(dimension * (w * w * s - 2 * w * r) for dimension, w, r, s in spaces)
    return float(loss + plane @ moments._plane @ plane - 2 * plane @ np.array(moments.cross.plane))


def theorem_2_classes(topics: int, words: int, masking: Masking) -> ClassMatrix:
    """Theorem 2's matrix by classes; see ``topicscope.theory.optima.theorem_2``."""
    c = constants(topics, words, masking)
    norm = c.c2**2 + topics * words
    different = -(c.c1 * c.c2 + c.c3) / norm
    same = different + c.c3 / words
    return ClassMatrix((c.c2 * c.c3 - c.c1 * topics * words) / norm, same, same, different)


def _assemble(data: Data, masking: Masking, shares: Shares) -> ClassMoments:
    """S and R of docs/theory-finite.md with p = θ_topic/v, on the invariant spaces."""
    n, keep = data.topics * data.words, masking.keep
    noise = masking.random / n
    topic_variance = _topic_contrast(data) / data.words

    pairs = shares.pair_masked * keep**2 + 2 * shares.pair_mixed * keep + shares.pair_seen
    mixed = shares.pair_masked * keep + shares.pair_mixed
    itself = shares.self_masked * (noise + keep / n) + shares.self_seen / n
    second = _Spectrum(
        within=itself,
        between=itself + pairs * topic_variance,
        plane=(
            np.sqrt(n) * masking.replaced * (shares.pair_masked * noise + mixed / n),
            itself + pairs / n + 2 * mixed * noise + shares.pair_masked * n * noise**2,
        ),
    )
    kept = shares.own * keep / n
    others = shares.other_masked * keep + 1 - shares.masked
    masked = shares.own + shares.other_masked
    cross = _Spectrum(
        within=kept,
        between=kept + others * topic_variance,
        plane=(masked * masking.replaced / np.sqrt(n), kept + others / n + masked * noise),
    )
    second_mask = masking.replaced * (shares.pair_masked * masking.replaced + shares.self_masked)
    return ClassMoments(data.topics, data.words, second, second_mask, cross)


def _topic_contrast(data: Data) -> float:
    """E[θ_t²] − E[θ_tθ_t'] for two topics."""
    topics = data.topics
    if data.sampler == "dirichlet":
        return 1 / (topics * (topics * data.dirichlet[0] + 1))
    chosen = data.per_document
    return (topics - chosen) / (chosen * topics * (topics - 1)) if topics > 1 else 0.0


def _ratio(cross: float, second: float) -> float:
    """Cross over second; 0 on a space that the documents never reach."""
    return cross / second if second > 0 else 0.0
