"""Masked documents as counts over the whole vocabulary, for one layer with a table of all scores.

Without positions, equal tokens of a document have equal states at every depth. So a document needs each token's count,
and one prediction for each distinct token among its masked positions.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from topicscope.model.targets import (
    MemberTargets,
    SideBySide,
    Targets,
    log_of_counts,
    member_targets,
    step_targets,
)
from topicscope.settings.model import MaskedKeys
from topicscope.settings.training import Average
from topicscope.synthetic.documents import MaskedDocuments


@dataclass(frozen=True, eq=False)
class QueryRows:
    """The rows that are predicted: a document and one of its distinct masked tokens each."""

    document: Int[Tensor, " row"]
    query: Int[Tensor, " row"]
    """seed · V + token."""


@dataclass(frozen=True, eq=False)
class TableBatch:
    """Bags over the whole vocabulary: for one layer and a vocabulary small enough for a table of all scores."""

    log_counts: Float[Tensor, "documents token"]
    """log n of each token as a key, −∞ where it is absent; documents of all seeds, one after another."""

    rows: QueryRows | None
    """The distinct queries; None where every query of a document gets the same scores: one row a document."""

    targets: Targets


@dataclass(frozen=True, eq=False)
class _Rows:
    """The distinct queries of one member's documents, step after step, and which one each target is predicted from."""

    document: Int[np.ndarray, " row"]
    """Counted from the beginning of the step."""

    token: Int[np.ndarray, " row"]
    bounds: Int[np.ndarray, " bound"]
    """Where each step begins, and the last one ends."""

    of_target: Int[np.ndarray, " target"]


@dataclass(frozen=True, eq=False)
class _Counted:
    """One member's documents of some steps."""

    log_counts: Float[np.ndarray, "document token"]
    rows: _Rows
    targets: MemberTargets


def table_batches(
    members: Iterable[MaskedDocuments],
    *,
    steps: int = 1,
    vocabulary: int,
    masked_keys: MaskedKeys,
    average: Average,
    by_document: bool = False,
    dtype: torch.dtype = torch.float32,
) -> list[TableBatch]:
    """Count the documents of some steps, for each member of an ensemble, over the whole vocabulary.

    ``by_document`` says that queries do not matter, so that one row a document is enough.
    """
    counted = [_count(member, steps, vocabulary, masked_keys, average, by_document, dtype) for member in members]
    counts = [torch.from_numpy(mine.log_counts).view(steps, -1, vocabulary) for mine in counted]
    log_counts = (counts[0] if len(counts) == 1 else torch.cat(counts, dim=1)).unbind()
    joining = SideBySide([mine.rows.bounds for mine in counted])
    targets = step_targets([mine.targets for mine in counted], joining, vocabulary)
    documents = len(log_counts[0]) // len(counted)
    rows: Sequence[QueryRows | None] = [None] * steps
    if not by_document:
        rows = _step_rows([mine.rows for mine in counted], joining, documents, vocabulary)
    return [TableBatch(*each) for each in zip(log_counts, rows, targets, strict=True)]


def _count(
    member: MaskedDocuments,
    steps: int,
    vocabulary: int,
    masked_keys: MaskedKeys,
    average: Average,
    by_document: bool,
    dtype: torch.dtype,
) -> _Counted:
    code = np.repeat(np.arange(0, len(member) * vocabulary, vocabulary), member.lengths)
    code += member.tokens
    counts = np.bincount(code, minlength=len(member) * vocabulary)
    masked = code.take(member.where)
    if masked_keys == "hidden":
        counts -= np.bincount(masked, minlength=len(counts))
    log_counts = log_of_counts(int(member.lengths.max()), dtype).take(counts, mode="clip")
    rows = _document_rows(member, steps) if by_document else _query_rows(member, masked, steps, vocabulary)
    targets = member_targets(member, rows.of_target, rows.bounds, vocabulary=vocabulary, average=average, dtype=dtype)
    return _Counted(log_counts.reshape(len(member), vocabulary), rows, targets)


def _step_rows(rows: Sequence[_Rows], joining: SideBySide, documents: int, vocabulary: int) -> list[QueryRows]:
    """All members' rows, step by step."""
    document = joining.join([mine.document for mine in rows], documents)
    query = joining.join([mine.token for mine in rows], vocabulary)
    return [QueryRows(*each) for each in zip(document, query, strict=True)]


def _document_rows(member: MaskedDocuments, steps: int) -> _Rows:
    """One row a document, whatever its queries."""
    document, documents = np.arange(len(member)), len(member) // steps
    bounds = np.arange(steps + 1) * documents
    return _Rows(document % documents, np.zeros_like(document), bounds, np.repeat(document, member.masked_counts))


def _query_rows(member: MaskedDocuments, masked: Int[np.ndarray, " target"], steps: int, vocabulary: int) -> _Rows:
    """One row for each distinct value of ``masked``, which are document · V + token."""
    documents, cells = len(member) // steps, len(member) * vocabulary
    is_row = np.zeros(cells, dtype=bool)
    is_row[masked] = True
    code = np.flatnonzero(is_row)
    row_of_code = np.empty(cells, dtype=np.int32)
    row_of_code[code] = np.arange(len(code), dtype=np.int32)
    bounds = np.searchsorted(code, np.arange(steps + 1) * (documents * vocabulary))
    # Dividing by one number is quicker than divmod.
    document = code // vocabulary
    token = code - document * vocabulary
    document -= np.repeat(np.arange(steps) * documents, np.diff(bounds))
    return _Rows(document, token, bounds, row_of_code.take(masked).astype(np.int64))
