"""What one pass over the passages measures: all labellings over one vocabulary, as a file that every worker reads."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int
from safetensors.numpy import load, save

from topicscope.files import write_atomically
from topicscope.measure.attention_pairs import PairPlan
from topicscope.measure.labelling import Labelling
from topicscope.measure.matching import Strata, co_occurrence_strata
from topicscope.measure.pair_table import PairTable
from topicscope.measure.permutation import frequency_strata, stratified_orders
from topicscope.measure.permuted_pairs import PermutedLabels
from topicscope.probe.labels import Labels
from topicscope.randomness import Purpose, generator

# Levels of frequency in matching. Fewer for attention: its cells are also by distance, and kept for each article and
# replicate.
WORD_FREQUENCY_LEVELS, ATTENTION_FREQUENCY_LEVELS = 10, 3


@dataclass(frozen=True, eq=False)
class Plan:
    """Labellings, what the words' pairs are matched on, and the permutations of the test over heads."""

    labels: tuple[Labels, ...]
    frequency: Float[np.ndarray, " word"]
    """How often each word of the vocabulary is in the measured passages."""

    co_occurrence: PairTable
    """Pairs of positions that hold two words of the vocabulary, in the measured passages."""

    permutations: int
    seed: int

    @cached_property
    def tokens(self) -> Int[np.ndarray, " word"]:
        """The vocabulary: every word that has a topic in some labelling, ascending."""
        return vocabulary(self.labels)

    @cached_property
    def labellings(self) -> tuple[Labelling, ...]:
        """The labels over the vocabulary."""
        return tuple(over_vocabulary(each, self.tokens) for each in self.labels)

    @cached_property
    def tested(self) -> tuple[int, ...]:
        """Labellings of the first LDA seed: those that are permuted."""
        return tuple(place for place, each in enumerate(self.labels) if each.seed == self.labels[0].seed)

    def strata(self, labelling: int) -> Int[np.ndarray, " word"]:
        """Words of like frequency among those that a labelling keeps, equally many a stratum; −1 for the others."""
        kept = self.labellings[labelling].kept
        found = np.full(len(kept), -1)
        found[kept] = frequency_strata(self.frequency[kept])
        return found

    @cached_property
    def co_occurrence_strata(self) -> Strata:
        """Pairs of like co-occurrence."""
        return co_occurrence_strata(self.co_occurrence)

    def pair_strata(self, labelling: int, levels: int) -> Strata:
        """What pairs of a labelling's words are matched on: co-occurrence, and frequency among these words."""
        kept = self.labellings[labelling].kept
        return self.co_occurrence_strata.by_frequency(self.frequency, kept, levels)

    @cached_property
    def attention_strata(self) -> tuple[Strata, ...]:
        """What attention is matched on beside distance, for each labelling."""
        return tuple(self.pair_strata(place, ATTENTION_FREQUENCY_LEVELS) for place in range(len(self.labels)))

    def orders(self, labelling: int, permutations: int) -> Int[np.ndarray, "permutation word"]:
        """Permutations of a labelling's words within strata of frequency, always the same."""
        draw = generator(self.seed, Purpose.MEASURE, labelling, permutations)
        return stratified_orders(self.labellings[labelling], self.strata(labelling), permutations, generator=draw)

    def pair_plan(self) -> PairPlan:
        """As the pass over the passages takes it."""
        permuted = (
            PermutedLabels(self.labellings[place], self.orders(place, self.permutations), self.strata(place))
            for place in self.tested
        )
        return PairPlan(self.labellings, tuple(permuted), self.attention_strata)

    def to_bytes(self) -> bytes:
        """As a safetensors file, labels' own settings among its metadata."""
        arrays = {"frequency": self.frequency, "codes": self.co_occurrence.codes, "counts": self.co_occurrence.counts}
        for place, each in enumerate(self.labels):
            arrays |= {f"tokens.{place}": each.tokens, f"membership.{place}": each.membership}
        names = [[each.name, each.fraction, each.assignment, each.seed] for each in self.labels]
        about = {"labels": names, "permutations": self.permutations, "seed": self.seed}
        contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        return save(contiguous, metadata={"about": json.dumps(about)})

    @classmethod
    def restore(cls, content: bytes) -> "Plan":
        """What ``to_bytes`` wrote."""
        arrays = load(content)
        length = int.from_bytes(content[:8], "little")
        about = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["about"])
        labels = tuple(
            Labels(name, arrays[f"tokens.{place}"], arrays[f"membership.{place}"], fraction, assignment, seed)
            for place, (name, fraction, assignment, seed) in enumerate(about["labels"])
        )
        size = len(arrays["frequency"])
        pairs = PairTable(size, arrays["codes"], arrays["counts"], np.zeros(len(arrays["codes"])))
        return cls(labels, arrays["frequency"], pairs, about["permutations"], about["seed"])

    def write(self, folder: Path) -> Path:
        """Write it under the name of its content."""
        content = self.to_bytes()
        path = folder / f"plan-{hashlib.sha256(content).hexdigest()[:20]}.safetensors"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(path, content)
        return path


def vocabulary(labels: Sequence[Labels]) -> Int[np.ndarray, " word"]:
    """Every word that has a topic in some labelling, ascending."""
    return np.unique(np.concatenate([each.tokens for each in labels])).astype(np.int64)


def over_vocabulary(labels: Labels, tokens: Int[np.ndarray, " word"]) -> Labelling:
    """Labels over a vocabulary that includes their words; the others have no topic."""
    membership = np.zeros((len(tokens), labels.membership.shape[1]), dtype=bool)
    membership[np.searchsorted(tokens, labels.tokens)] = labels.membership
    return Labelling(membership)


def places(tokens: Int[np.ndarray, " position"], words: Int[np.ndarray, " word"]) -> Int[np.ndarray, " position"]:
    """Where each token is in the vocabulary, −1 if it is not."""
    found = np.minimum(np.searchsorted(words, tokens), len(words) - 1)
    return np.where(words[found] == tokens, found, -1)
