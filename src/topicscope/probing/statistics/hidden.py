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

from topicscope.probing.statistics.pairs import pair_codes


@dataclass(frozen=True, eq=False)
class HiddenSums:
    """Sums over some passages; those of several sets of passages can be added."""

    words: Int[np.ndarray, " word"]
    """The places in the vocabulary of the words that occur, ascending."""

    places: Float[np.ndarray, " word"]
    """At how many places each occurs."""

    passages: Float[np.ndarray, " word"]
    """In how many passages each occurs."""

    vectors: Float[np.ndarray, "word layer width"]
    """Sums over all places of centred vectors of length 1."""

    pairs: Int[np.ndarray, " pair"]
    """Pairs of different words that share a passage, smaller · vocabulary + larger, ascending."""

    pair_places: Float[np.ndarray, " pair"]
    """How many pairs of places within passages each pair has."""

    pair_sums: Float[np.ndarray, "pair layer"]
    """Sums of similarity over these pairs of places."""

    @classmethod
    def added(cls, parts: Sequence["HiddenSums"]) -> "HiddenSums":
        """The sums over several sets of passages, added in this order."""
        words, pairs = (
            np.unique(np.concatenate([getattr(each, name) for each in parts])) for name in ("words", "pairs")
        )
        sums = {
            name: np.zeros((len(keys), *getattr(parts[0], name).shape[1:]), getattr(parts[0], name).dtype)
            for keys, names in ((words, ("places", "passages", "vectors")), (pairs, ("pair_places", "pair_sums")))
            for name in names
        }
        for each in parts:
            word_rows, pair_rows = np.searchsorted(words, each.words), np.searchsorted(pairs, each.pairs)
            for name, total in sums.items():
                total[pair_rows if name.startswith("pair") else word_rows] += getattr(each, name)
        return cls(words=words, pairs=pairs, **sums)

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


class HiddenAccumulator:
    """Sums passages one by one; ``result`` has the sums so far."""

    def __init__(
        self, vocabulary: int, words: Int[np.ndarray, " word"], centre: Float[np.ndarray, "layer width"]
    ) -> None:
        """``words``: those that the passages may have, ascending places in the vocabulary; others are left out.

        centre: the vector that is subtracted in each layer, the same for all passages of a model.
        """
        self.words, self.centre, self.vocabulary = words, centre, vocabulary
        self._number = np.full(vocabulary, -1)
        self._number[words] = np.arange(len(words))
        self._places, self._passages = np.zeros(len(words)), np.zeros(len(words))
        self._vectors = np.zeros((len(words), *centre.shape), dtype=centre.dtype)
        self._pairs: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, states: Sequence[Float[np.ndarray, "position width"]], words: Int[np.ndarray, " position"]) -> None:
        """Add a passage; ``words`` are places in the vocabulary, −1 for what is left out."""
        places = np.flatnonzero(words >= 0)
        places = places[self._number[words[places]] >= 0]
        vectors = np.stack([layer[places] for layer in states]).astype(self.centre.dtype) - self.centre[:, None]
        present, which, times = np.unique(self._number[words[places]], return_inverse=True, return_counts=True)
        self._places[present] += times
        self._passages[present] += 1
        products = vectors @ vectors.swapaxes(1, 2)
        lengths = np.sqrt(np.diagonal(products, axis1=1, axis2=2))
        # A vector of length zero has cosine 0 with all others.
        scale = np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0)
        indicator = (which == np.arange(len(present))[:, None]).astype(self.centre.dtype)
        self._vectors[present] += (indicator * scale[:, None] @ vectors).swapaxes(0, 1)
        early, late = np.triu_indices(len(places), k=1)
        different = np.flatnonzero(words[places[early]] != words[places[late]])
        early, late = early[different], late[different]
        cosines = products[:, early, late] * scale[:, early] * scale[:, late]
        codes = pair_codes(words[places[early]], words[places[late]], self.vocabulary)
        self._pairs.append((codes, np.ascontiguousarray(cosines.T, dtype=np.float64)))

    def result(self) -> HiddenSums:
        """The sums so far."""
        there = self._places > 0
        codes, values = (np.concatenate(part) for part in zip(*self._pairs, strict=True))
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
        )
