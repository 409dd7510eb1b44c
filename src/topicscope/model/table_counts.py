"""Masked documents as counts over the whole vocabulary, for one layer with a table of all scores.

Without positions, equal tokens of a document have equal states at every depth. So a document needs each token's count,
and one prediction for each distinct token among its masked positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from topicscope.model.targets import (
    MemberTargets,
    Targets,
    log_of_counts,
    member_targets,
    side_by_side,
    slices,
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


def table_batches(
    members: Sequence[MaskedDocuments],
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
    seeds, documents = len(members), len(members[0]) // steps
    logarithms = log_of_counts(max(int(member.lengths.max()) for member in members), dtype)
    log_counts = np.empty((steps, seeds, documents, vocabulary), dtype=logarithms.dtype)
    rows: list[_Rows] = []
    targets: list[MemberTargets] = []
    for seed, member in enumerate(members):
        code = np.repeat(np.arange(0, len(member) * vocabulary, vocabulary), member.lengths) + member.tokens
        counts = np.bincount(code, minlength=len(member) * vocabulary)
        masked = code[member.where]
        if masked_keys == "hidden":
            counts -= np.bincount(masked, minlength=len(counts))
        log_counts[:, seed] = logarithms.take(counts, mode="clip").reshape(steps, documents, vocabulary)
        mine = _document_rows(member, steps) if by_document else _query_rows(member, masked, steps, vocabulary)
        rows.append(mine)
        targets.append(
            member_targets(member, mine.of_target, mine.bounds, vocabulary=vocabulary, average=average, dtype=dtype)
        )
    all_counts = torch.from_numpy(log_counts).view(steps, seeds * documents, vocabulary).unbind()
    all_rows = [None] * steps if by_document else _step_rows(rows, steps, documents, vocabulary)
    return [
        TableBatch(all_counts[step], all_rows[step], step_targets(targets, step, vocabulary)) for step in range(steps)
    ]


def _step_rows(rows: Sequence[_Rows], steps: int, documents: int, vocabulary: int) -> list[QueryRows | None]:
    """All members' rows, step by step."""
    places = [slices(mine.bounds) for mine in rows]
    found: list[QueryRows | None] = []
    for step in range(steps):
        document = [mine.document[here[step]] for mine, here in zip(rows, places, strict=True)]
        query = [mine.token[here[step]] for mine, here in zip(rows, places, strict=True)]
        found.append(QueryRows(side_by_side(document, documents), side_by_side(query, vocabulary)))
    return found


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
    row_of_code[code] = np.arange(len(code))
    bounds = np.searchsorted(code, np.arange(steps + 1) * (documents * vocabulary))
    document, token = np.divmod(code, vocabulary)
    return _Rows(document % documents, token, bounds, row_of_code[masked])
