"""What a batch of bags is to predict, for all members of an ensemble side by side.

Some steps' documents are counted at once, but member after member: one member's positions fit into the processor's
cache. Then each step's batch is put together from slices. Where members have different numbers of rows or targets,
the shorter ones are filled up with entries of weight zero that read their own seed's first ones.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from topicscope.model.batch import target_weights
from topicscope.settings.training import Average
from topicscope.synthetic.documents import MaskedDocuments

# Above so many targets a document, equal ones are merged; below, merging costs more than it saves.
MANY_TARGETS = 64


@dataclass(frozen=True, eq=False)
class Targets:
    """What is to be predicted from rows of scores: flat places in (row, token), and their shares of the loss."""

    place: Int[Tensor, " seed_target"]
    """row · V + word, rows counted over all seeds."""

    weight: Float[Tensor, "seed target"]
    """The shares of the loss; they sum to one for each seed."""

    row_weight: Float[Tensor, " row"]
    """The sum of a row's shares, for losses that need the whole row."""


@dataclass(frozen=True, eq=False)
class MemberTargets:
    """One member's targets of some steps, step after step."""

    place: Int[np.ndarray, " target"]
    """row · V + word, rows counted from the beginning of their step."""

    weight: Float[np.ndarray, " target"]
    bounds: Int[np.ndarray, " bound"]
    """Where each step's targets begin, and the last one's end."""

    row_weight: Float[np.ndarray, " row"]


def member_targets(
    member: MaskedDocuments,
    row: Int[np.ndarray, " target"],
    row_bounds: Int[np.ndarray, " bound"],
    *,
    vocabulary: int,
    average: Average,
    dtype: torch.dtype,
) -> MemberTargets:
    """The targets by the rows that they are predicted from, which are counted over all steps.

    A step's rows lie between two of ``row_bounds``.
    """
    steps = len(row_bounds) - 1
    precision = np.float64 if dtype == torch.float64 else np.float32
    sizes = member.masked_counts.reshape(steps, -1).sum(axis=1)
    weight = target_weights(member, average, batches=steps)
    row_weight = np.bincount(row, weights=weight, minlength=row_bounds[-1])
    # Where each row's scores begin among those of its step.
    begins = np.arange(row_bounds[-1]) - np.repeat(row_bounds[:-1], np.diff(row_bounds))
    begins *= vocabulary
    word = member.targets
    if len(word) > MANY_TARGETS * len(member):
        place, which = np.unique(row * np.int64(vocabulary) + word, return_inverse=True)
        weight = np.bincount(which, weights=weight)
        sizes = np.diff(np.searchsorted(place, row_bounds * vocabulary))
        row, word = np.divmod(place, vocabulary)
    place = begins.take(row)
    place += word
    return MemberTargets(place, weight.astype(precision), bounds_of(sizes), row_weight.astype(precision))


def step_targets(members: Sequence[MemberTargets], rows: "SideBySide", vocabulary: int) -> list[Targets]:
    """All members' targets, step by step; ``rows`` joins what they have for each row."""
    targets = SideBySide([mine.bounds for mine in members])
    return [
        Targets(place, weight.view(len(members), -1), row_weight)
        for place, weight, row_weight in zip(
            targets.join([mine.place for mine in members], rows.widths * vocabulary),
            targets.join([mine.weight for mine in members]),
            rows.join([mine.row_weight for mine in members]),
            strict=True,
        )
    ]


class SideBySide:
    """Joins what members have for each step: as many items for each seed, zeros where it has less than others."""

    def __init__(self, bounds: Sequence[Int[np.ndarray, " bound"]]) -> None:
        """Where each member's steps begin among its items, and the last one ends."""
        self.seeds, self._bounds = len(bounds), np.array(bounds)
        self._sizes = np.diff(self._bounds, axis=1)
        self.widths: Int[np.ndarray, " step"] = self._sizes.max(axis=0)
        """Items for each seed."""

    @cached_property
    def _places(self) -> list[Int[np.ndarray, " item"]]:
        """Where each member's items go."""
        begins = bounds_of(self.widths * self.seeds)[:-1] + np.arange(self.seeds)[:, None] * self.widths
        shifts = begins - self._bounds[:, :-1]
        return [
            np.repeat(shift, sizes) + np.arange(self._bounds[seed, 0], self._bounds[seed, -1])
            for seed, (shift, sizes) in enumerate(zip(shifts, self._sizes, strict=True))
        ]

    def join(
        self, members: Sequence[Shaped[np.ndarray, "..."]], offset: int | Int[np.ndarray, " step"] | None = None
    ) -> Sequence[Shaped[Tensor, " seed_item"]]:
        """Each step's items, seed after seed; a seed's numbers are moved on by seed · ``offset``."""
        sizes = self.widths * self.seeds
        if self.seeds == 1:
            return torch.from_numpy(members[0]).split_with_sizes(sizes.tolist())
        joined = np.zeros(sizes.sum(), dtype=members[0].dtype)
        for mine, places in zip(members, self._places, strict=True):
            joined[places] = mine
        if offset is not None:
            offsets = np.multiply.outer(np.broadcast_to(offset, len(sizes)), np.arange(self.seeds))
            joined += np.repeat(offsets, np.repeat(self.widths, self.seeds))
        return torch.from_numpy(joined).split_with_sizes(sizes.tolist())


@lru_cache(maxsize=8)
def log_of_counts(longest: int, dtype: torch.dtype) -> Float[np.ndarray, " count"]:
    """Logarithms of n = 0 … longest, −∞ for 0: counts are small, and looking up is faster than computing."""
    return torch.arange(longest + 1, dtype=torch.float64).log().to(dtype).numpy()


def bounds_of(sizes: Int[np.ndarray, " step"]) -> Int[np.ndarray, " bound"]:
    """Where pieces of these sizes begin, one after another, and the last one ends."""
    return np.append(0, np.cumsum(sizes))


def slices(bounds: Int[np.ndarray, " bound"]) -> list[slice]:
    """What lies between one bound and the next."""
    return [slice(first, last) for first, last in itertools.pairwise(bounds.tolist())]
