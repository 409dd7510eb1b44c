"""Theorem 2: the ridge optimum of W^V under uniform attention, and Lemma 1's block and diagonal members.

Each has one number per class of entries, so each is known by its four numbers for any T and v (``..._classes``).
"""

from typing import Literal

import numpy as np

from topicscope.settings.data import Masking
from topicscope.synthetic.masking import expected_frequencies
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.classes import ClassMatrix, Matrix
from topicscope.theory.lemma1 import constants, lemma1, topic_gain

Pattern = Literal["block", "diagonal"]


def theorem2(topics: int, words: int, masking: Masking = Masking()) -> Matrix:
    """The ridge optimum of W^V under uniform attention as λ → 0 (Theorem 2); see ``theorem2_classes``."""
    return theorem2_classes(topics, words, masking).matrix(topics, words)


def theorem2_classes(topics: int, words: int, masking: Masking = Masking()) -> ClassMatrix:
    r"""The four numbers of Theorem 2 (Assumption 1, b^pred = 0, τ < T).

    .. math::
        W_{i0} = \frac{c_2 c_3 - c_1 T v}{c_2^2 + T v}, \quad
        W_{\text{diff-topic}} = -\frac{c_1 c_2 + c_3}{c_2^2 + T v}, \quad
        W_{\text{same-topic}} = W_{\text{diff-topic}} + \frac{c_3}{v}, \quad
        W_{0j} = 0

    It is the member of Lemma 1's family with the smallest norm.
    """
    c = constants(topics, words, masking)
    norm = c.c2**2 + topics * words
    different = -(c.c1 * c.c2 + c.c3) / norm
    same = different + c.c3 / words
    return ClassMatrix((c.c2 * c.c3 - c.c1 * topics * words) / norm, same, same, different)


def theorem2_of(model: TopicModel, masking: Masking = Masking()) -> Matrix:
    r"""Theorem 2's question asked of any topics, overlapping or not: the ridge optimum of W^V as λ → 0.

    In infinite documents (Assumption 1) both the frequencies x̃ of a masked document and the probabilities p of its
    words are linear in the proportions θ, so W x̃ = p can hold exactly for every θ. With one column per topic, for
    documents of that topic alone, the smallest such W is

    .. math:: W = P \tilde X^+, \qquad P = (0, \Phi)^\top, \quad \tilde X_{\cdot t} = \tilde x(\theta = e_t).

    For disjoint topics of equally many, equally likely words this is ``theorem2``. τ = T is excluded: all documents
    are then alike.
    """
    if model.equal_words:
        return theorem2(model.topics, model.equal_words, masking)
    # Where masking leaves no word of the document, nothing is known about θ.
    topic_gain(masking)
    seen = np.stack([expected_frequencies(words, masking) for words in model.topic_words], axis=1)
    wanted = np.vstack([np.zeros(model.topics), model.topic_words.T])
    return wanted @ np.linalg.pinv(seen, rcond=1e-12)


def block_value(topics: int, words: int, masking: Masking = Masking()) -> Matrix:
    """Lemma 1's member with u = 0 and equal blocks: W_i0 = −c₁, c₃/v within a topic, else 0."""
    return lemma1(topics, words, masking).member(np.zeros(topics * words + 1))


def diagonal_value(topics: int, words: int, masking: Masking = Masking()) -> Matrix:
    """Lemma 1's member with u = 0 and a diagonal (D.4): W_i0 = −c₁, W_ii = c₃ for words i, else 0."""
    return diagonal_classes(topics, words, masking).matrix(topics, words)


def diagonal_classes(topics: int, words: int, masking: Masking = Masking()) -> ClassMatrix:
    """The four numbers of ``diagonal_value``."""
    c = constants(topics, words, masking)
    return ClassMatrix(-c.c1, c.c3, 0.0, 0.0)
