r"""Hidden states by layer: how alike the vectors of two words are, in whatever passages the words occur.

The layer's mean vector is subtracted first. Two words in one passage share its context, which alone makes their vectors
alike. So pairs are taken from different passages: the similarity of two words is the average cosine over all pairs of
their places that are not in one passage,

.. math:: C_{ab} = \frac{S_a \cdot S_b - \sum_p s_{a,p} \cdot s_{b,p}}{n_a n_b - \sum_p n_{a,p} n_{b,p}},

where s is a sum of vectors of length 1, and n a number of places, within passage p or over all of them. This needs no
loop over pairs of places, and none are sampled. Words, not places, count once each, as for the embeddings, so averages,
intervals and tests are those of the embeddings.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from topicscope.probing.statistics.labelling import OfPairs, OfWords
from topicscope.probing.statistics.pairs import pair_codes, summed_by


@dataclass(frozen=True, eq=False)
class HiddenSums:
    """Sums over some passages; those of several sets of passages can be added."""

    words: OfWords
    """The places in the vocabulary of the words that occur, ascending."""

    places: Float[np.ndarray, " word"]
    """At how many places each occurs."""

    passages: Float[np.ndarray, " word"]
    """In how many passages each occurs."""

    vectors: Float[np.ndarray, "word layer width"]
    """Sums over all places of centred vectors of length 1."""

    pairs: OfPairs
    """Pairs of different words that share a passage, smaller · vocabulary + larger, ascending."""

    pair_places: Float[np.ndarray, " pair"]
    """How many pairs of places within passages each pair has."""

    pair_sums: Float[np.ndarray, "pair layer"]
    """Sums of similarity over these pairs of places."""

    @classmethod
    def added(cls, parts: Sequence["HiddenSums"]) -> "HiddenSums":
        """The sums over several sets of passages, added in this order."""

        def columns(*names: str) -> list[np.ndarray]:
            return [np.concatenate([getattr(part, name) for part in parts]) for name in names]

        words, (places, passages, vectors) = summed_by(*columns("words", "places", "passages", "vectors"))
        pairs, (pair_places, pair_sums) = summed_by(*columns("pairs", "pair_places", "pair_sums"))
        return cls(words, places, passages, vectors, pairs, pair_places, pair_sums)

    @property
    def layers(self) -> int:
        """How many layers there are; the first is the embedding layer's output."""
        return self.vectors.shape[1]

    def similarities(
        self, layer: int, words: Int[np.ndarray, " chosen"], vocabulary: int
    ) -> Float[np.ndarray, "chosen chosen"]:
        """Averages over pairs of places in different passages, of words that are in two passages or more each."""
        rows = np.searchsorted(self.words, words)
        number = np.full(vocabulary, -1)
        number[words] = np.arange(len(words))
        one, other = number[self.pairs // vocabulary], number[self.pairs % vocabulary]
        inside = np.flatnonzero((one >= 0) & (other >= 0))
        # Both entries of each pair in a matrix of words.
        one, other = one[inside], other[inside]
        entries = np.concatenate([one * len(words) + other, other * len(words) + one])
        places = np.outer(self.places[rows], self.places[rows])
        places.reshape(-1)[entries] -= np.tile(self.pair_places[inside], 2)
        # A word with itself is no pair: whatever stands there is not used.
        np.fill_diagonal(places, 1)
        # Products of matrices of words are by far the longest step; they have the precision of the vectors.
        vectors = self.vectors[rows, layer]
        matrix = (vectors @ vectors.T).astype(np.float64)
        matrix.reshape(-1)[entries] -= np.tile(self.pair_sums[inside, layer], 2)
        matrix /= places
        return matrix


def passage_sums(
    states: Sequence[Float[np.ndarray, "position width"]],
    words: Int[np.ndarray, " position"],
    centre: Float[np.ndarray, "layer width"],
    vocabulary: int,
) -> HiddenSums:
    """The sums over one passage.

    words: places in the vocabulary, −1 for what is left out.
    centre: the vector that is subtracted in each layer, the same for all passages of a model.
    """
    places = np.flatnonzero(words >= 0)
    vectors = np.stack([layer[places] for layer in states]).astype(centre.dtype) - centre[:, None]
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    # A vector of length zero has cosine 0 with all others.
    vectors = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    present, which, times = np.unique(words[places], return_inverse=True, return_counts=True)
    # By layer: the sum over a word's places, whose products are the sums over two words' pairs of places.
    sums = (which == np.arange(len(present))[:, None]).astype(centre.dtype) @ vectors
    one, other = np.triu_indices(len(present), k=1)
    return HiddenSums(
        words=present.astype(np.int64),
        places=times.astype(np.float64),
        passages=np.ones(len(present)),
        vectors=np.ascontiguousarray(sums.swapaxes(0, 1)),
        pairs=pair_codes(present[one], present[other], vocabulary),
        pair_places=(times[one] * times[other]).astype(np.float64),
        pair_sums=(sums @ sums.swapaxes(1, 2))[:, one, other].T.astype(np.float64),
    )
