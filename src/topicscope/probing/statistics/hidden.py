r"""Hidden states by layer: how alike the vectors of two words are, in whatever passages the words occur.

Two words in one passage share its context, which alone makes their vectors alike. So pairs are taken from different
passages: the similarity of two words is the average over all pairs of their places that are not in one passage,

.. math:: C_{ab} = \frac{S_a \cdot S_b - \sum_p s_{a,p} \cdot s_{b,p}}{n_a n_b - \sum_p n_{a,p} n_{b,p}},

where s is a sum of vectors, and n a number of places, within passage p or over all of them. This needs no loop over
pairs of places, and none are sampled. Words, not places, count once each, as for the embeddings, so averages, intervals
and tests are those of the embeddings. Pairs within passages are summed separately, by article, like attention.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from topicscope.probing.statistics.comparison import Comparable
from topicscope.probing.statistics.labelling import Labelling, TopicDraws, TopicWeights
from topicscope.probing.statistics.pairs import form_average, pair_forms
from topicscope.probing.statistics.permutation import maximum_p, permutation_p, permuted_same_topic_sums
from topicscope.probing.statistics.resampling import Contrast, contrast
from topicscope.probing.statistics.similarity import Placements, auc_replicates, placements

# What is compared, in the order of every axis named ``kind``; centred means that the layer's mean is subtracted.
KINDS = ("cosine", "dot", "centred_cosine", "centred_dot")
# The kinds whose vectors are summed; the sums of centred vectors follow from those of the vectors and the mean.
SUMMED = KINDS[:3]


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

    vectors: Float[np.ndarray, "word layer summed width"]
    """Sums over all places of the vectors of each kind in ``SUMMED``."""

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
        found = np.empty((len(KINDS), len(words), len(words)))
        for kind, name in enumerate(KINDS):
            if name in SUMMED:
                sums = self.vectors[rows, layer, SUMMED.index(name)]
            else:
                of_dots = self.vectors[rows, layer, SUMMED.index("dot")]
                sums = of_dots - self.places[rows, None].astype(of_dots.dtype) * self.centre[layer].astype(
                    of_dots.dtype
                )
            # Products of matrices of words are by far the longest step; they have the precision of the vectors.
            found[kind] = sums @ sums.T
            found[kind].reshape(-1)[entries] -= within[:, kind]
        found /= places
        return found


class HiddenAccumulator:
    """Sums passages one by one; ``result`` has the sums so far."""

    def __init__(
        self,
        labellings: Sequence[Labelling],
        words: Int[np.ndarray, " word"],
        centre: Float[np.ndarray, "layer width"],
    ) -> None:
        """``words``: those that the passages may have, ascending places in the vocabulary; others are left out."""
        self.words, self.centre, self.vocabulary = words, centre, len(labellings[0].membership)
        layers, width = centre.shape
        self._number = np.full(self.vocabulary, -1)
        self._number[words] = np.arange(len(words))
        self._places, self._passages = np.zeros(len(words)), np.zeros(len(words))
        self._vectors = np.zeros((len(words), layers, len(SUMMED), width), dtype=centre.dtype)
        self._pairs: list[tuple[np.ndarray, np.ndarray]] = []

    def add(
        self, states: Sequence[Float[np.ndarray, "position width"]], words: Int[np.ndarray, " position"]
    ) -> tuple[Int[np.ndarray, " pair"], Int[np.ndarray, " pair"], Float[np.ndarray, "pair layer kind"]]:
        """Add a passage; ``words`` are places in the vocabulary, −1 for what is left out.

        It returns, for all pairs of positions whose words are summed, the words and the similarity of the states.
        """
        places = np.flatnonzero(words >= 0)
        places = places[self._number[words[places]] >= 0]
        raw = np.stack([layer[places] for layer in states]).astype(self.centre.dtype)
        centred = raw - self.centre[:, None]
        products, centred_products = (each @ each.swapaxes(1, 2) for each in (raw, centred))
        scale, centred_scale = inverse_lengths(products), inverse_lengths(centred_products)
        present, which, times = np.unique(self._number[words[places]], return_inverse=True, return_counts=True)
        self._places[present] += times
        self._passages[present] += 1
        indicator = (which == np.arange(len(present))[:, None]).astype(self.centre.dtype)
        sums = (indicator * scale[:, None] @ raw, indicator @ raw, indicator * centred_scale[:, None] @ centred)
        self._vectors[present] += np.stack(sums, axis=2).swapaxes(0, 1)
        early, late = np.triu_indices(len(places), k=1)
        one, other = words[places[early]], words[places[late]]
        different = one != other
        codes = np.minimum(one, other).astype(np.int64) * self.vocabulary + np.maximum(one, other)
        dot, centred_dot = products[:, early, late], centred_products[:, early, late]
        cosine = dot * scale[:, early] * scale[:, late]
        centred_cosine = centred_dot * centred_scale[:, early] * centred_scale[:, late]
        by_kind = np.stack([cosine, dot, centred_cosine, centred_dot])
        similar = np.ascontiguousarray(by_kind.transpose(2, 1, 0), dtype=np.float64)
        self._pairs.append((codes[different], similar[different]))
        return one, other, similar

    def result(self) -> HiddenSums:
        """The sums so far."""
        there = self._places > 0
        codes = np.concatenate([each for each, _ in self._pairs])
        values = np.concatenate([each for _, each in self._pairs])
        pairs, row, counts = np.unique(codes, return_inverse=True, return_counts=True)
        order = np.argsort(row, kind="stable")
        starts = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int64)
        sums = np.add.reduceat(values[order], starts, axis=0) if len(pairs) else np.zeros((0, *values.shape[1:]))
        return HiddenSums(
            self.words[there].astype(np.int64),
            self._places[there],
            self._passages[there],
            self._vectors[there],
            pairs,
            counts.astype(np.float64),
            sums,
            self.centre,
        )


class HiddenLayer(NamedTuple):
    """What is kept of one layer's similarities, whose matrices are large."""

    values: Float[np.ndarray, "pair kind"]
    """Those of the same-topic pairs."""

    placed: list[Placements]
    different: Float[np.ndarray, "kind replicate"]
    """Averages over different-topic pairs."""

    permuted: Float[np.ndarray, "kind permutation_plus_one"]
    """Averages over same-topic pairs, the observed ones first."""


class HiddenMeasure:
    """The numbers of one labelling: each layer by itself, then all of them together."""

    def __init__(
        self,
        labelling: Labelling,
        stratum: Int[np.ndarray, " word"],
        common: Int[np.ndarray, " common"],
        draws: TopicDraws,
        permutations: int,
    ) -> None:
        """``common`` are the words in two passages or more, which have similarities; ``stratum`` is for all words."""
        there = np.zeros(len(labelling.kept), dtype=bool)
        there[common] = True
        chosen = labelling.kept & there
        self.words = np.flatnonzero(chosen)
        self._rows = np.searchsorted(common, self.words)
        self._labelling = Labelling(labelling.membership[chosen])
        mine = Labelling(labelling.membership & chosen[:, None])
        self._weights: TopicWeights = TopicDraws(mine, draws.topics, draws.words).weights(mine)
        self._stratum, self._permutations = stratum[chosen], permutations

    def layer(
        self, similarities: Float[np.ndarray, "kind common common"], *, generator: np.random.Generator
    ) -> HiddenLayer:
        """One layer; ``generator`` starts from the same state for each, so that all see the same permutations."""
        first, second = self._labelling.same_topic_pairs
        matrices = [each[np.ix_(self._rows, self._rows)] for each in similarities]
        values = [matrix[first, second] for matrix in matrices]
        placed, different = [placements(matrix, self._labelling) for matrix in matrices], []
        for matrix, inside in zip(matrices, values, strict=True):
            every = matrix.sum(axis=1) - np.diagonal(matrix)
            every -= np.bincount(first, inside, len(matrix)) + np.bincount(second, inside, len(matrix))
            different.append(_different_replicates(every, placed[0].partners, self._weights.between))
        permuted = permuted_same_topic_sums(
            matrices, self._labelling, self._stratum, self._permutations, generator=generator
        )
        return HiddenLayer(np.stack(values, axis=1), placed, np.stack(different), permuted / max(len(first), 1))

    def by_layer(self, layers: Sequence[HiddenLayer]) -> Iterator[list[tuple[Contrast, float, Comparable]]]:
        """For each layer and kind, the contrast, p corrected for all layers, and its arrays.

        The contrast's own p is uncorrected; the other comes from the maximum statistic over the layers of one kind. The
        arrays serve to compare two models.
        """
        first, second = self._labelling.same_topic_pairs
        # All layers at once, because the replicates' weights of pairs are the same for all of them.
        values = np.column_stack([*(each.values for each in layers), np.ones(len(first))])
        sums = pair_forms(self._weights.within, first, second, values)
        shape = (len(layers), len(KINDS), -1)
        same = form_average(sums[:, :-1], sums[:, -1:]).T.reshape(shape)
        every = [each for layer in layers for each in layer.placed]
        auc = np.stack(auc_replicates(every, self._labelling, self._weights)).reshape(shape)
        different, permuted = (np.stack([getattr(each, name) for each in layers]) for name in ("different", "permuted"))
        together = [
            maximum_p(permuted[:, kind, :1], np.moveaxis(permuted[:, kind, 1:], 0, -1)[..., None])[:, 0]
            for kind in range(len(KINDS))
        ]
        for layer in range(len(same)):
            found = []
            for kind, corrected in enumerate(together):
                tested, sides = permuted[layer, kind], (same[layer, kind], different[layer, kind])
                p = permutation_p(float(tested[0]), tested[1:])
                compared = contrast(*sides, auc=auc[layer, kind], p=p)
                arrays = Comparable(*sides, auc[layer, kind], tested)
                found.append((compared, float(corrected[layer]), arrays))
            yield found


def _different_replicates(
    sums: Float[np.ndarray, " word"], partners: Float[np.ndarray, " word"], weights: Float[np.ndarray, "replicate word"]
) -> Float[np.ndarray, " replicate"]:
    """The average over different-topic pairs: exact for the sample, first order in the words' weights for the others.

    A matrix of all words under a thousand weightings would take longer than everything else. Each word has hundreds of
    such pairs, so terms of second order are small.
    """
    if not partners.any():
        return np.full(len(weights), np.nan)
    average = sums.sum() / partners.sum()
    return average + 2 * form_average(weights @ (sums - partners * average), weights @ partners)
