"""Documents counted as bags of tokens, laid out in tensors for one or more members of an ensemble.

One layer over a small vocabulary is counted over the whole vocabulary (``TableBatch``). Otherwise the distinct tokens
of each document are gathered, so that nothing but the prediction itself grows with V (``SlotBatch``). Either way each
document has one row of scores to predict from for each distinct token among its masked positions.

Some steps' documents are counted at once, but member after member: one member's positions fit into the processor's
cache. Then each step's batch is put together from slices. Where members have different numbers of rows or targets,
the shorter ones are filled up with entries of weight zero that read their own seed's first ones.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from topicscope.model.transformer import target_weights
from topicscope.settings.model import MaskedKeys
from topicscope.settings.training import Average
from topicscope.synthetic.documents import MaskedDocuments

# Above this many targets per document, equal ones are merged; below, merging costs more than it saves.
MANY_TARGETS = 64


@dataclass(frozen=True)
class Counting:
    """How documents are counted, whatever the layout."""

    vocabulary: int
    masked_keys: MaskedKeys = "visible"
    average: Average = "document"
    dtype: torch.dtype = torch.float32


@dataclass(frozen=True, eq=False)
class Targets:
    """What is to be predicted from rows of scores: flat places in (row, token), and their shares of the loss."""

    place: Int[Tensor, " seed_target"]
    """row · V + word, rows counted over all seeds."""

    weight: Float[Tensor, "seed target"]
    """The shares of the loss; they sum to one for each seed."""

    row_weight: Float[Tensor, "seed row"]
    """The sum of a row's shares, for losses that need the whole row."""


@dataclass(frozen=True, eq=False)
class _MemberTargets:
    """One member's targets of some steps, step after step."""

    place: Int[np.ndarray, " target"]
    """row · V + word, rows counted from the beginning of their step."""

    weight: Float[np.ndarray, " target"]
    bounds: Int[np.ndarray, " bound"]
    """Where each step's targets begin, and the last one's end."""

    row_weight: Float[np.ndarray, " row"]


def _member_targets(
    member: MaskedDocuments, row: Int[np.ndarray, " target"], row_bounds: Int[np.ndarray, " bound"], counting: Counting
) -> _MemberTargets:
    """The targets by the rows that they are predicted from, which are counted over all steps.

    A step's rows lie between two of ``row_bounds``.
    """
    steps, vocabulary = len(row_bounds) - 1, counting.vocabulary
    precision = np.float64 if counting.dtype == torch.float64 else np.float32
    sizes = member.masked_counts.reshape(steps, -1).sum(axis=1)
    weight = target_weights(member, counting.average, batches=steps)
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
    return _MemberTargets(place, weight.astype(precision), bounds_of(sizes), row_weight.astype(precision))


def _step_targets(members: Sequence[_MemberTargets], rows: "SideBySide", vocabulary: int) -> list[Targets]:
    """All members' targets, step by step; ``rows`` joins what they have for each row."""
    targets, seeds = SideBySide([own.bounds for own in members]), len(members)
    return [
        Targets(place, weight.view(seeds, -1), row_weight.view(seeds, -1))
        for place, weight, row_weight in zip(
            targets.join([own.place for own in members], rows.widths * vocabulary),
            targets.join([own.weight for own in members]),
            rows.join([own.row_weight for own in members]),
            strict=True,
        )
    ]


class SideBySide:
    """Joins what members have for each step: equally many items for each seed, with zeros where it has fewer."""

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
        for own, places in zip(members, self._places, strict=True):
            joined[places] = own
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


# The whole vocabulary.


@dataclass(frozen=True, eq=False)
class TableBatch:
    """Bags over the whole vocabulary: for one layer and a vocabulary small enough for a table of all scores."""

    log_counts: Float[Tensor, "documents token"]
    """log n of each token as a key, −∞ where it is absent; documents of all seeds, one after another."""

    document: Int[Tensor, " row"] | None
    """Each row's document; None where every query of a document gets the same scores: one row per document."""

    query: Int[Tensor, " row"] | None
    """Each row's distinct masked token, as seed · V + token; None likewise."""

    targets: Targets


def table_batches(
    members: Iterable[MaskedDocuments], counting: Counting, *, steps: int = 1, by_document: bool = False
) -> list[TableBatch]:
    """Count the documents of some steps, for each member of an ensemble, over the whole vocabulary.

    ``by_document`` says that queries do not matter, so that one row per document is enough.
    """
    vocabulary = counting.vocabulary
    counts, documents_of, tokens_of, bounds_of_rows, targets = [], [], [], [], []
    for member in members:
        code = np.repeat(np.arange(0, len(member) * vocabulary, vocabulary), member.lengths)
        code += member.tokens
        number = np.bincount(code, minlength=len(member) * vocabulary)
        masked = code.take(member.where)
        if counting.masked_keys == "hidden":
            number -= np.bincount(masked, minlength=len(number))
        log_number = log_of_counts(int(member.lengths.max()), counting.dtype).take(number, mode="clip")
        counts.append(torch.from_numpy(log_number).view(steps, -1, vocabulary))
        if by_document:
            row, bounds = np.repeat(np.arange(len(member)), member.masked_counts), np.arange(steps + 1)
            bounds *= len(member) // steps
        else:
            document, token, bounds, row = _query_rows(member, masked, steps, vocabulary)
            documents_of.append(document)
            tokens_of.append(token)
        bounds_of_rows.append(bounds)
        targets.append(_member_targets(member, row, bounds, counting))
    log_counts = (counts[0] if len(counts) == 1 else torch.cat(counts, dim=1)).unbind()
    rows = SideBySide(bounds_of_rows)
    document_of: Sequence[Tensor | None] = [None] * steps
    query_of: Sequence[Tensor | None] = [None] * steps
    if not by_document:
        document_of = rows.join(documents_of, len(log_counts[0]) // len(counts))
        query_of = rows.join(tokens_of, vocabulary)
    step_by_step = zip(log_counts, document_of, query_of, _step_targets(targets, rows, vocabulary), strict=True)
    return [TableBatch(*parts) for parts in step_by_step]


def _query_rows(
    member: MaskedDocuments, masked: Int[np.ndarray, " target"], steps: int, vocabulary: int
) -> tuple[Int[np.ndarray, " row"], Int[np.ndarray, " row"], Int[np.ndarray, " bound"], Int[np.ndarray, " target"]]:
    """One row for each distinct value of ``masked``, whose values are document · V + token.

    Returned are each row's document (counted from the beginning of its step) and token, where each step's rows begin
    and the last one's end, and the row that each target is predicted from.
    """
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
    return document, token, bounds, row_of_code.take(masked).astype(np.int64)


# Distinct tokens alone: a document has one entry (a *slot*) for each, those that are predicted first.


@dataclass(frozen=True, eq=False)
class SlotBatch:
    """Bags as lists of distinct tokens, those that are predicted first."""

    tokens: Int[Tensor, "documents slot"]
    log_counts: Float[Tensor, "documents slot"]
    queries: int
    """In every document this many first slots hold all the queries (and perhaps other tokens)."""

    row_place: Int[Tensor, " row"]
    """document · queries + slot."""

    targets: Targets


@dataclass(frozen=True, eq=False)
class _Entries:
    """The distinct tokens of one member's documents, document after document."""

    documents: int
    """Documents per step."""

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

    targets: _MemberTargets


def slot_batches(members: Iterable[MaskedDocuments], counting: Counting, *, steps: int = 1) -> list[SlotBatch]:
    """Count the documents of some steps, for each member of an ensemble, on distinct tokens alone."""
    entries = [_slot_counts(member, steps, counting) for member in members]
    rows = SideBySide([own.row_bounds for own in entries])
    targets = _step_targets([own.targets for own in entries], rows, counting.vocabulary)
    return [_step_batch(entries, step, targets[step]) for step in range(steps)]


def _slot_counts(member: MaskedDocuments, steps: int, counting: Counting) -> _Entries:
    documents, vocabulary = len(member) // steps, counting.vocabulary
    codes = np.repeat(np.arange(0, len(member) * vocabulary, vocabulary), member.lengths) + member.tokens
    # One sort brings equal tokens of a document together, unmasked positions before masked ones.
    ordered = np.sort(2 * codes + member.masked)
    begins = np.flatnonzero(np.concatenate([[True], ordered[1:] >> 1 != ordered[:-1] >> 1]))
    code = ordered[begins] >> 1
    total = np.diff(np.append(begins, len(ordered)))
    masked = np.add.reduceat(ordered & 1, begins)
    document, token = np.divmod(code, vocabulary)
    is_query = masked > 0
    visible = total - masked if counting.masked_keys == "hidden" else total
    step_codes = np.arange(steps + 1) * (documents * vocabulary)
    row_code = code[is_query]
    row_bounds = np.searchsorted(row_code, step_codes)
    return _Entries(
        documents=documents,
        document=document % documents,
        token=token,
        log_count=log_of_counts(int(total.max()), counting.dtype)[visible],
        slot=_slots(document, is_query, len(member)),
        is_query=is_query,
        steps=[slice(*bounds) for bounds in itertools.pairwise(np.searchsorted(code, step_codes).tolist())],
        row_bounds=row_bounds,
        targets=_member_targets(member, np.searchsorted(row_code, codes[member.where]), row_bounds, counting),
    )


def _step_batch(members: Sequence[_Entries], step: int, targets: Targets) -> SlotBatch:
    """All members' documents of one step, with as many slots as any of them needs."""
    documents = members[0].documents
    slots = 1 + max(int(own.slot[own.steps[step]].max()) for own in members)
    shape = (len(members), documents, slots)
    tokens = np.zeros(shape, dtype=np.int64)
    log_counts = np.full(shape, -np.inf, dtype=members[0].log_count.dtype)
    rows = []
    for seed, own in enumerate(members):
        here = own.steps[step]
        document, slot, is_query = own.document[here], own.slot[here], own.is_query[here]
        tokens[seed, document, slot], log_counts[seed, document, slot] = own.token[here], own.log_count[here]
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
