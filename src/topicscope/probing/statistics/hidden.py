r"""Hidden states by layer: how alike the vectors of two words are, in whatever passages the words occur.

Two words in one passage share its context, which alone makes their vectors alike. So pairs are taken from different
passages: the similarity of two words is the average over all pairs of their places that are not in one passage,

.. math:: C_{ab} = \frac{S_a \cdot S_b - \sum_p s_{a,p} \cdot s_{b,p}}{n_a n_b - \sum_p n_{a,p} n_{b,p}},

where s is a sum of vectors, and n a number of places, within passage p or over all of them. This needs no loop over
pairs of places, and none are sampled. Words, not places, count once each, as for the embeddings, so averages, intervals
and tests are those of the embeddings.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

# What is compared, in the order of every axis named ``kind``; centred means that the layer's mean is subtracted first.
KINDS = ("cosine", "centred_cosine")


def inverse_lengths(products: Float[np.ndarray, "layer place place"]) -> Float[np.ndarray, "layer place"]:
    """1 / length of the vectors with these dot products; 0 for one of length zero, whose cosine with all is 0."""
    lengths = np.sqrt(np.diagonal(products, axis1=1, axis2=2))
    return np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0)


@dataclass(frozen=True, eq=False)
class HiddenSums:
    """Sums over some passages; those of several sets of passages can be added."""

    words: Int[np.ndarray, " word"]
    """The places in the vocabulary of the words that occur, ascending."""

    places: Float[np.ndarray, " word"]
    """At how many places each occurs."""

    passages: Float[np.ndarray, " word"]
    """In how many passages each occurs."""

    vectors: Float[np.ndarray, "word layer kind width"]
    """Sums over all places of vectors of length 1, before and after centring."""

    pairs: Int[np.ndarray, " pair"]
    """Pairs of different words that share a passage, smaller · vocabulary + larger, ascending."""

    pair_places: Float[np.ndarray, " pair"]
    """How many pairs of places within passages each pair has."""

    pair_sums: Float[np.ndarray, "pair layer kind"]
    """Sums of similarity over these pairs of places."""

    centre: Float[np.ndarray, "layer width"]
    """The vector that is subtracted for centring, the same for all passages of a model."""

    @classmethod
    def added(cls, parts: Sequence["HiddenSums"]) -> "HiddenSums":
        """The sums over several sets of passages, added in this order."""
        words = np.unique(np.concatenate([each.words for each in parts]))
        vectors = np.zeros((len(words), *parts[0].vectors.shape[1:]), dtype=parts[0].vectors.dtype)
        places, passages = np.zeros(len(words)), np.zeros(len(words))
        for each in parts:
            rows = np.searchsorted(words, each.words)
            vectors[rows] += each.vectors
            places[rows] += each.places
            passages[rows] += each.passages
        pairs = np.unique(np.concatenate([each.pairs for each in parts]))
        pair_places = np.zeros(len(pairs))
        pair_sums = np.zeros((len(pairs), *parts[0].pair_sums.shape[1:]))
        for each in parts:
            rows = np.searchsorted(pairs, each.pairs)
            pair_places[rows] += each.pair_places
            pair_sums[rows] += each.pair_sums
        return cls(words, places, passages, vectors, pairs, pair_places, pair_sums, parts[0].centre)

    @property
    def layers(self) -> int:
        """How many layers there are; the first is the embedding layer's output."""
        return len(self.centre)

    def similarities(
        self, layer: int, words: Int[np.ndarray, " chosen"], vocabulary: int
    ) -> Float[np.ndarray, "kind chosen chosen"]:
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
        within = np.tile(self.pair_sums[inside, layer], (2, 1))
        matrices = np.empty((len(KINDS), len(words), len(words)))
        for kind, matrix in enumerate(matrices):
            # Products of matrices of words are by far the longest step; they have the precision of the vectors.
            sums = self.vectors[rows, layer, kind]
            matrix[:] = sums @ sums.T
            matrix.reshape(-1)[entries] -= within[:, kind]
        matrices /= places
        return matrices


class HiddenAccumulator:
    """Sums passages one by one; ``result`` has the sums so far."""

    def __init__(
        self, vocabulary: int, words: Int[np.ndarray, " word"], centre: Float[np.ndarray, "layer width"]
    ) -> None:
        """``words``: those that the passages may have, ascending places in the vocabulary; others are left out."""
        self.words, self.centre, self.vocabulary = words, centre, vocabulary
        layers, width = centre.shape
        self._number = np.full(vocabulary, -1)
        self._number[words] = np.arange(len(words))
        self._places, self._passages = np.zeros(len(words)), np.zeros(len(words))
        self._vectors = np.zeros((len(words), layers, len(KINDS), width), dtype=centre.dtype)
        self._pairs: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, states: Sequence[Float[np.ndarray, "position width"]], words: Int[np.ndarray, " position"]) -> None:
        """Add a passage; ``words`` are places in the vocabulary, −1 for what is left out."""
        places = np.flatnonzero(words >= 0)
        places = places[self._number[words[places]] >= 0]
        raw = np.stack([layer[places] for layer in states]).astype(self.centre.dtype)
        present, which, times = np.unique(self._number[words[places]], return_inverse=True, return_counts=True)
        self._places[present] += times
        self._passages[present] += 1
        indicator = (which == np.arange(len(present))[:, None]).astype(self.centre.dtype)
        early, late = np.triu_indices(len(places), k=1)
        one, other = words[places[early]], words[places[late]]
        different = np.flatnonzero(one != other)
        early, late, one, other = early[different], late[different], one[different], other[different]
        codes = np.minimum(one, other).astype(np.int64) * self.vocabulary + np.maximum(one, other)
        cosines = []
        for kind, vectors in enumerate((raw, raw - self.centre[:, None])):
            products = vectors @ vectors.swapaxes(1, 2)
            scale = inverse_lengths(products)
            self._vectors[present, :, kind] += (indicator * scale[:, None] @ vectors).swapaxes(0, 1)
            cosines.append(products[:, early, late] * scale[:, early] * scale[:, late])
        self._pairs.append((codes, np.ascontiguousarray(np.stack(cosines).transpose(2, 1, 0), dtype=np.float64)))

    def result(self) -> HiddenSums:
        """The sums so far."""
        there = self._places > 0
        codes = np.concatenate([each for each, _ in self._pairs])
        values = np.concatenate([each for _, each in self._pairs])
        pairs, row, counts = np.unique(codes, return_inverse=True, return_counts=True)
        order = np.argsort(row, kind="stable")
        starts = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int64)
        return HiddenSums(
            words=self.words[there].astype(np.int64),
            places=self._places[there],
            passages=self._passages[there],
            vectors=self._vectors[there],
            pairs=pairs,
            pair_places=counts.astype(np.float64),
            pair_sums=np.add.reduceat(values[order], starts, axis=0) if len(pairs) else values[:0],
            centre=self.centre,
        )
