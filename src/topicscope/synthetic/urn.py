"""How many words of each topic a document has, under a Dirichlet: by the urn, without drawing proportions."""

import numpy as np
from jaxtyping import Int

from topicscope.randomness import chances


def groups_of_equal_topic(
    lengths: Int[np.ndarray, " document"], concentration: float, *, generator: np.random.Generator
) -> Int[np.ndarray, " group"]:
    r"""Sizes of the groups into which documents of these lengths fall, document after document, end to end.

    Words whose topics are drawn from θ ~ Dirichlet(α) are those of Pólya's urn (Blackwell and MacQueen, 1973): word i
    has a new topic, drawn with probabilities α_t / A, with probability A / (A + i − 1), A = Σ α_t, and else that of a
    word before it, all equally likely. So topics belong to groups, independent of their sizes, and the sizes are those
    of Ewens' formula. By Feller's coupling (Arratia, Barbour and Tavaré, 1992) they need no urn: they are the distances
    between ones in

    .. math::
        1, \xi_2, \dots, \xi_N, 1, \qquad P(\xi_i = 1) = A / (A + i - 1), \quad \text{independent.}

    Several groups of a document may have the same topic.
    """
    width = int(lengths.max()) + 1
    begins = chances(concentration / (concentration + np.arange(width)), len(lengths), generator=generator)
    # The one that closes a document; what lies beyond is not of it.
    begins[np.arange(len(lengths)), lengths] = True
    ones = np.flatnonzero(begins)
    document = ones[:-1] // width
    inside = ones[:-1] < (np.arange(len(lengths)) * width + lengths).take(document)
    return np.diff(ones)[inside]
