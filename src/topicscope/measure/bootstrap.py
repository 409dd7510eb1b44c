"""Bootstrap over articles that streams: every article has weights of its own, drawn from its index.

Replicate r counts article a ``weights[r, a]`` times, a Poisson(1) number from a generator made of seed and article
index. So shards can be added in any split and none needs to know the others; the first replicate is the sum itself.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from topicscope.measure.attention_pairs import ArticleSums
from topicscope.measure.contrast import auc_of_histograms
from topicscope.measure.labelling import DIFFERENT_TOPIC, SAME_TOPIC
from topicscope.measure.matching import Matched, matched_averages
from topicscope.randomness import Purpose, generator

FIELDS = ("sums", "counts", "histograms", "matched_sums", "matched_counts")


def poisson_weights(
    articles: Int[np.ndarray, " article"], replicates: int, seed: int
) -> Float[np.ndarray, "replicate_plus_one article"]:
    """How often each article counts; once in the first row, which is the sample itself."""
    drawn = [generator(seed, Purpose.BOOTSTRAP, int(each)).poisson(1.0, replicates) for each in articles]
    weights = np.array(drawn, dtype=np.float64).reshape(len(articles), replicates).T
    return np.concatenate([np.ones((1, len(articles))), weights])


@dataclass(eq=False)
class AttentionReplicates:
    """Sums over all articles, and over each replicate's; memory does not depend on the number of articles."""

    replicates: int
    seed: int

    def __post_init__(self) -> None:
        self._totals: dict[str, np.ndarray] = {}

    def add(self, sums: ArticleSums) -> None:
        """Add the articles of a shard; add shards in one order, so that rounding repeats too."""
        weights = poisson_weights(sums.article, self.replicates, self.seed)
        for name in FIELDS:
            array = getattr(sums, name)
            total = np.tensordot(weights, array, axes=1)
            if name in self._totals:
                # In place: with many labellings and cells, these are the largest arrays of a probe.
                self._totals[name] += total
            else:
                self._totals[name] = total

    def averages(self, labelling: int) -> Float[np.ndarray, "replicate_plus_one class layer head"]:
        """Average attention by class, NaN where a replicate has no pair of the class."""
        counts = self._totals["counts"][:, labelling]
        with np.errstate(invalid="ignore", divide="ignore"):
            return self._totals["sums"][:, labelling] / counts[..., None, None]

    def pairs(self, labelling: int) -> Float[np.ndarray, " class"]:
        """How many pairs of positions each class has."""
        return self._totals["counts"][0, labelling]

    def sums(self, labelling: int) -> Float[np.ndarray, "class layer head"]:
        """Sums over all articles."""
        return self._totals["sums"][0, labelling]

    def auc(self, labelling: int) -> Float[np.ndarray, " replicate_plus_one"]:
        """Of attention averaged over layers and heads; its error is that of the histogram's bins."""
        found = self._totals["histograms"][:, labelling]
        return auc_of_histograms(found[:, SAME_TOPIC], found[:, DIFFERENT_TOPIC])

    def matched(self, labelling: int) -> Matched:
        """The matched comparison of a labelling."""
        sums, counts = self._totals["matched_sums"][:, labelling], self._totals["matched_counts"][:, labelling]
        return matched_averages(sums[:, 0], counts[:, 0], sums[:, 1], counts[:, 1])
