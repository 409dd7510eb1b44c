"""Bootstrap over topics and words: how often each counts in a replicate, the same for all LDA seeds."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment

from topicscope.measure.labelling import Labelling


@dataclass(frozen=True, eq=False)
class TopicWeights:
    """Bootstrap weights of topics and words: a replicate draws topics, and words within each (Poisson(1) both).

    A pair of one topic counts m_t n_i n_j times, a pair of two topics m_t n_i · m_u n_j times; a word with itself
    never. A word with several topics has the mean of their draws. The first replicate is the sample itself.
    """

    within: Float[np.ndarray, "replicate word"]
    between: Float[np.ndarray, "replicate word"]

    @classmethod
    def draw(cls, labelling: Labelling, replicates: int, *, generator: np.random.Generator) -> "TopicWeights":
        """Weights of the kept words of one labelling."""
        return TopicDraws.draw(labelling, replicates, generator=generator).weights(labelling)


@dataclass(frozen=True, eq=False)
class TopicDraws:
    """How often topics and words were drawn. All LDA seeds share them, for all have the same words.

    Were each seed to draw its own, their errors would seem independent, and averaging seeds would seem to remove them.
    Topics of another seed are those of the first under other numbers: each is drawn with its partner.
    """

    first: Labelling
    """The labelling whose topics were drawn."""

    topics: Float[np.ndarray, "replicate topic"]
    words: Float[np.ndarray, "replicate word"]

    @classmethod
    def draw(cls, first: Labelling, replicates: int, *, generator: np.random.Generator) -> "TopicDraws":
        """For the topics of the first labelling and all words of the vocabulary."""
        words, topics = first.membership.shape
        drawn = [generator.poisson(1.0, (replicates, size)).astype(np.float64) for size in (topics, words)]
        return cls(first, *drawn)

    def weights(self, labelling: Labelling) -> TopicWeights:
        """Of the kept words of the first labelling, or of another over the same vocabulary."""
        member = labelling.membership[labelling.kept].astype(np.float64)
        own = self.topics if labelling is self.first else self.topics[:, topic_partners(self.first, labelling)]
        topics = own @ (member / member.sum(axis=1, keepdims=True)).T
        words = self.words[:, labelling.kept]
        one = np.ones((1, len(member)))
        return TopicWeights(np.concatenate([one, words * np.sqrt(topics)]), np.concatenate([one, words * topics]))


def topic_partners(first: Labelling, other: Labelling) -> Int[np.ndarray, " topic"]:
    """Of each topic of ``other``, the one of ``first`` that it stands for: one to one, with the most words shared.

    Overlap is the Jaccard index of two topics' words, and the sum over all topics is the largest possible.
    """
    one, two = first.membership.astype(np.float64), other.membership.astype(np.float64)
    assert one.shape == two.shape, "labellings of one vocabulary and number of topics"
    shared = two.T @ one
    every = two.sum(axis=0)[:, None] + one.sum(axis=0) - shared
    overlap = np.divide(shared, every, out=np.zeros_like(shared), where=every > 0)
    return linear_sum_assignment(overlap, maximize=True)[1].astype(np.int64)
