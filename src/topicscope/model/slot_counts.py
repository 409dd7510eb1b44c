"""Masked documents as lists of distinct tokens with counts, for any depth and any vocabulary.

Without positions, equal tokens of a document have equal states at every depth. So a document needs one row (a *slot*)
for each distinct token, with the token's count; those that are predicted come first.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from topicscope.model.targets import (
    MemberTargets,
    SideBySide,
    Targets,
    log_of_counts,
    member_targets,
    slices,
    step_targets,
)
from topicscope.settings.model import MaskedKeys
from topicscope.settings.training import Average
from topicscope.synthetic.documents import MaskedDocuments


@dataclass(frozen=True, eq=False)
class SlotBatch:
    """Bags as lists of distinct tokens, those that are predicted first."""

    tokens: Int[Tensor, "documents slot"]
    log_counts: Float[Tensor, "documents slot"]
    queries: int
    """The first so many slots hold all the queries of any document (and some others)."""

    row_place: Int[Tensor, " row"]
    """document · queries + slot."""

    targets: Targets


@dataclass(frozen=True, eq=False)
class _Entries:
    """The distinct tokens of one member's documents, document after document."""

    documents: int
    """Documents a step."""

    document: Int[np.ndarray, " entry"]
    """Counted from the beginning of the step."""

    token: Int[np.ndarray, " entry"]
    log_count: Float[np.ndarray, " entry"]
    slot: Int[np.ndarray, " entry"]
    is_query: Bool[np.ndarray, " entry"]
    steps: list[slice]
    """Each step's entries."""

    row_bounds: Int[np.ndarray, " bound"]
    """Where each step's queries begin, and the last one's end."""

    targets: MemberTargets


def slot_batches(
    members: Iterable[MaskedDocuments],
    *,
    steps: int = 1,
    vocabulary: int,
    masked_keys: MaskedKeys,
    average: Average,
    dtype: torch.dtype = torch.float32,
) -> list[SlotBatch]:
    """Count the documents of some steps, for each member of an ensemble, on distinct tokens alone."""
    entries = [_count(member, steps, vocabulary, masked_keys, average, dtype) for member in members]
    rows = SideBySide([mine.row_bounds for mine in entries])
    targets = step_targets([mine.targets for mine in entries], rows, vocabulary)
    return [_step_batch(entries, step, targets[step]) for step in range(steps)]


def _count(
    member: MaskedDocuments,
    steps: int,
    vocabulary: int,
    masked_keys: MaskedKeys,
    average: Average,
    dtype: torch.dtype,
) -> _Entries:
    documents = len(member) // steps
    codes = np.repeat(np.arange(0, len(member) * vocabulary, vocabulary), member.lengths) + member.tokens
    # One sort brings equal tokens of a document together, unmasked positions before masked ones.
    ordered = np.sort(2 * codes + member.masked)
    begins = np.flatnonzero(np.concatenate([[True], ordered[1:] >> 1 != ordered[:-1] >> 1]))
    code = ordered[begins] >> 1
    total = np.diff(np.append(begins, len(ordered)))
    masked = np.add.reduceat(ordered & 1, begins)
    document, token = np.divmod(code, vocabulary)
    is_query = masked > 0
    log_count = log_of_counts(int(total.max()), dtype)[total - masked if masked_keys == "hidden" else total]

    step_codes = np.arange(steps + 1) * (documents * vocabulary)
    row_code = code[is_query]
    row = np.searchsorted(row_code, codes[member.where])
    row_bounds = np.searchsorted(row_code, step_codes)
    targets = member_targets(member, row, row_bounds, vocabulary=vocabulary, average=average, dtype=dtype)
    slot = _slots(document, is_query, len(member))
    here = slices(np.searchsorted(code, step_codes))
    return _Entries(documents, document % documents, token, log_count, slot, is_query, here, row_bounds, targets)


def _step_batch(members: Sequence[_Entries], step: int, targets: Targets) -> SlotBatch:
    """All members' documents of one step, with as many slots as any of them needs."""
    documents = members[0].documents
    slots = 1 + max(int(mine.slot[mine.steps[step]].max()) for mine in members)
    shape = (len(members), documents, slots)
    tokens = np.zeros(shape, dtype=np.int64)
    log_counts = np.full(shape, -np.inf, dtype=members[0].log_count.dtype)
    rows = []
    for seed, mine in enumerate(members):
        here = mine.steps[step]
        document, slot, is_query = mine.document[here], mine.slot[here], mine.is_query[here]
        tokens[seed, document, slot], log_counts[seed, document, slot] = mine.token[here], mine.log_count[here]
        rows.append((document[is_query], slot[is_query]))
    queries = 1 + max(int(slot.max()) for _, slot in rows)
    joining = SideBySide([np.array([0, len(document)]) for document, _ in rows])
    (row_place,) = joining.join([document * queries + slot for document, slot in rows], documents * queries)
    return SlotBatch(
        torch.from_numpy(tokens).flatten(0, 1), torch.from_numpy(log_counts).flatten(0, 1), queries, row_place, targets
    )


def _slots(
    document: Int[np.ndarray, " entry"], is_query: Bool[np.ndarray, " entry"], documents: int
) -> Int[np.ndarray, " entry"]:
    """Each distinct token's slot within its document: the queries first, then the others."""
    entries = np.bincount(document, minlength=documents)
    queries = np.bincount(document[is_query], minlength=documents)
    first = np.cumsum(entries) - entries
    queries_before = np.cumsum(is_query) - is_query
    rank = queries_before - (np.cumsum(queries) - queries)[document]
    others = np.arange(len(document)) - first[document] - rank + queries[document]
    return np.where(is_query, rank, others)
