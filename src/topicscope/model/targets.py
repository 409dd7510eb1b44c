"""What a batch of bags is to predict, for all members of an ensemble side by side.

Some steps' documents are counted at once, but member after member: one member's positions fit into the processor's
cache. Then each step's batch is put together from slices. Where members have different numbers of rows or targets,
the shorter ones are filled up with entries of weight zero that read their own seed's first ones.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

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
    row_weight: Float[np.ndarray, " row"]
    steps: list[slice]
    """Each step's targets."""

    row_steps: list[slice]
    """Each step's rows."""


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
    place = row * np.int64(vocabulary) + member.words[member.where]
    if len(place) > MANY_TARGETS * len(member):
        place, which = np.unique(place, return_inverse=True)
        weight = np.bincount(which, weights=weight)
        sizes = np.diff(np.searchsorted(place, row_bounds * vocabulary))
    place -= np.repeat(row_bounds[:-1] * vocabulary, sizes)
    bounds = np.append(0, np.cumsum(sizes))
    return MemberTargets(
        place, weight.astype(precision), row_weight.astype(precision), slices(bounds), slices(row_bounds)
    )


def step_targets(members: Sequence[MemberTargets], step: int, vocabulary: int) -> Targets:
    """All members' targets of one step."""
    row_weight = side_by_side([mine.row_weight[mine.row_steps[step]] for mine in members])
    rows_a_seed = len(row_weight) // len(members)
    place = side_by_side([mine.place[mine.steps[step]] for mine in members], rows_a_seed * vocabulary)
    weight = side_by_side([mine.weight[mine.steps[step]] for mine in members])
    return Targets(place, weight.view(len(members), -1), row_weight)


def side_by_side(members: Sequence[np.ndarray], offset: int = 0) -> Shaped[Tensor, " seed_item"]:
    """As many items for each seed, zeros where it has less than others; its numbers moved on by seed · ``offset``."""
    if len(members) == 1:
        return torch.from_numpy(members[0])
    joined = np.zeros((len(members), max(map(len, members))), dtype=members[0].dtype)
    for row, mine in zip(joined, members, strict=True):
        row[: len(mine)] = mine
    if offset:
        joined += np.arange(len(members))[:, None] * offset
    return torch.from_numpy(joined.ravel())


def log_of_counts(longest: int, dtype: torch.dtype) -> Float[np.ndarray, " count"]:
    """Logarithms of n = 0 … longest, −∞ for 0: counts are small, and looking up is faster than computing."""
    return torch.arange(longest + 1, dtype=torch.float64).log().to(dtype).numpy()


def slices(bounds: Int[np.ndarray, " bound"]) -> list[slice]:
    """What lies between one bound and the next."""
    return [slice(first, last) for first, last in itertools.pairwise(bounds.tolist())]
