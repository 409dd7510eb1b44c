"""Masked documents as bags: distinct tokens with counts, and the few distinct queries that are predicted.

Without positions, equal tokens of a document have equal states at every depth. So a document needs one row for each
distinct token, with the token's count, and one prediction for each distinct token among its masked positions.

Batches of many steps and of all members of an ensemble are counted at once. Everything is laid out flat, step after
step and within a step seed after seed, so that a step's batch is a few slices. Where seeds have different numbers of
rows or targets, the shorter ones are filled up with entries of weight zero that read their own seed's first ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from topicscope.model.batch import target_weights
from topicscope.settings.model import MaskedKeys
from topicscope.settings.training import Average
from topicscope.synthetic.documents import MaskedDocuments


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
class TableBatch:
    """Bags over the whole vocabulary: for one layer and a vocabulary small enough for a table of all scores."""

    log_counts: Float[Tensor, "documents token"]
    """log n of each token as a key, −∞ where it is absent; documents of all seeds, one after another."""

    row_document: Int[Tensor, " row"]
    row_query: Int[Tensor, " row"]
    """seed · V + token."""

    by_row: Targets
    by_document: Targets
    """The same targets where every query of a document gets the same scores: one row a document."""


@dataclass(frozen=True, eq=False)
class SlotBatch:
    """Bags as lists of distinct tokens, those that are predicted first; for any depth and any vocabulary."""

    tokens: Int[Tensor, "documents slot"]
    log_counts: Float[Tensor, "documents slot"]
    queries: int
    """The first so many slots hold all the queries of any document (and some others)."""

    row_place: Int[Tensor, " row"]
    """document · queries + slot."""

    by_row: Targets


@dataclass(frozen=True, eq=False)
class _Positions:
    """All positions of all documents of all steps and seeds, in the order of steps, then seeds, then documents."""

    seeds: int
    steps: int
    documents: int
    """Documents a step and seed."""

    vocabulary: int
    code: Int[np.ndarray, " position"]
    """document · V + token; documents counted over steps and seeds."""

    masked: Bool[np.ndarray, " position"]
    words: Int[np.ndarray, " target"]
    """The words at masked positions."""

    weights: Float[np.ndarray, " target"]

    @property
    def total_documents(self) -> int:
        return self.steps * self.seeds * self.documents


@dataclass(frozen=True, eq=False)
class _Layout:
    """Where things that come in groups of different size (a group is a step and a seed) lie in a flat array."""

    place: Int[np.ndarray, " item"]
    """Each item's place; items come group after group."""

    local: Int[np.ndarray, " item"]
    """The same, counted from the beginning of its step."""

    bounds: Int[np.ndarray, " bound"]
    """Where each step begins, and the last one ends."""

    seed: Int[np.ndarray, " place"]
    """The seed of each place, filled or not."""

    width: Int[np.ndarray, " step"]
    """Places of one seed in a step."""


def _lay_out(group: Int[np.ndarray, " item"], steps: int, seeds: int) -> _Layout:
    sizes = np.bincount(group, minlength=steps * seeds).reshape(steps, seeds)
    width = sizes.max(axis=1)
    bounds = np.concatenate([[0], np.cumsum(width * seeds)])
    starts_in_step = width[:, None] * np.arange(seeds)
    first_item = (np.cumsum(sizes) - sizes.ravel())[group]
    local = np.arange(len(group)) - first_item + starts_in_step.ravel()[group]
    seed = np.repeat(np.tile(np.arange(seeds), steps), np.repeat(width, seeds))
    return _Layout(local + bounds[:-1][group // seeds], local, bounds, seed, width)


def table_batches(
    members: Sequence[MaskedDocuments],
    *,
    steps: int = 1,
    vocabulary: int,
    masked_keys: MaskedKeys,
    average: Average,
    dtype: torch.dtype = torch.float32,
) -> list[TableBatch]:
    """Count the documents of some steps, for each member of an ensemble, over the whole vocabulary."""
    found = _positions(members, steps, vocabulary, average)
    seeds, vocabulary = found.seeds, found.vocabulary
    cells = found.total_documents * vocabulary
    keys = found.code[~found.masked] if masked_keys == "hidden" else found.code
    log_counts = _log(np.bincount(keys, minlength=cells), dtype)
    target_code = found.code[found.masked]
    row_of_code = np.zeros(cells, dtype=np.int64)
    row_of_code[target_code] = 1
    row_code = np.flatnonzero(row_of_code)
    row_document, row_token = np.divmod(row_code, vocabulary)
    rows = _lay_out(row_document // found.documents, steps, seeds)
    row_of_code[row_code] = rows.local

    documents_a_step = seeds * found.documents
    document = rows.seed * found.documents
    document[rows.place] = row_document % documents_a_step
    query = rows.seed * vocabulary
    query[rows.place] += row_token
    by_row = _targets(found, row_of_code[target_code], rows.width, target_code, dtype)
    local_document = (target_code // vocabulary) % documents_a_step
    one_a_document = np.full(steps, found.documents)
    by_document = _targets(found, local_document, one_a_document, target_code, dtype)

    all_counts = torch.from_numpy(log_counts.reshape(steps, documents_a_step, vocabulary))
    document_tensor, query_tensor = torch.from_numpy(document), torch.from_numpy(query)
    return [
        TableBatch(all_counts[step], document_tensor[here], query_tensor[here], by_row[step], by_document[step])
        for step, here in enumerate(_slices(rows.bounds))
    ]


def slot_batches(
    members: Sequence[MaskedDocuments],
    *,
    steps: int = 1,
    vocabulary: int,
    masked_keys: MaskedKeys,
    average: Average,
    dtype: torch.dtype = torch.float32,
) -> list[SlotBatch]:
    """Count the documents of some steps, for each member of an ensemble, on distinct tokens alone."""
    found = _positions(members, steps, vocabulary, average)
    # One sort brings equal tokens of a document together, unmasked positions before masked ones.
    ordered = np.sort(found.code * 2 + found.masked)
    begins = np.flatnonzero(np.concatenate([[True], ordered[1:] >> 1 != ordered[:-1] >> 1]))
    code = ordered[begins] >> 1
    total = np.diff(np.append(begins, len(ordered)))
    masked = np.add.reduceat(ordered & 1, begins)
    document, token = np.divmod(code, vocabulary)
    slot, is_query = _slots(document, masked > 0, found.total_documents), masked > 0

    documents_a_step = found.seeds * found.documents
    counts = _log(total - masked if masked_keys == "hidden" else total, dtype)
    target_code = found.code[found.masked]
    query_document = document[is_query]
    rows = _lay_out(query_document // found.documents, steps, found.seeds)
    step_of = document // documents_a_step
    slots = np.zeros(steps, dtype=np.int64)
    np.maximum.at(slots, step_of, slot + 1)
    queries = np.zeros(steps, dtype=np.int64)
    np.maximum.at(queries, step_of[is_query], slot[is_query] + 1)

    row_place = rows.seed * found.documents * np.repeat(queries, np.diff(rows.bounds))
    row_place[rows.place] = (query_document % documents_a_step) * queries[step_of[is_query]] + slot[is_query]
    target_row = rows.local[np.searchsorted(code[is_query], target_code)]
    by_row = _targets(found, target_row, rows.width, target_code, dtype)
    place_tensor = torch.from_numpy(row_place)
    batches = []
    for step, here in enumerate(_slices(rows.bounds)):
        mine = slice(*np.searchsorted(step_of, [step, step + 1]))
        shape, place = (documents_a_step, slots[step]), (document[mine] % documents_a_step, slot[mine])
        tokens, log_counts = np.zeros(shape, dtype=np.int64), np.full(shape, -np.inf, dtype=counts.dtype)
        tokens[place], log_counts[place] = token[mine], counts[mine]
        batches.append(
            SlotBatch(
                torch.from_numpy(tokens),
                torch.from_numpy(log_counts),
                int(queries[step]),
                place_tensor[here],
                by_row[step],
            )
        )
    return batches


def _positions(members: Sequence[MaskedDocuments], steps: int, vocabulary: int, average: Average) -> _Positions:
    """Lay the members' documents side by side, in the order of steps, then seeds."""
    seeds, documents = len(members), len(members[0]) // steps
    parts = list(members)
    if seeds > 1:
        spans = [(step * documents, (step + 1) * documents) for step in range(steps)]
        parts = [member.span(first, last) for first, last in spans for member in members]
    lengths, tokens, words, masked = (
        _joined([getattr(part, name) for part in parts]) for name in ("lengths", "tokens", "words", "masked")
    )
    document = np.repeat(np.arange(0, len(lengths) * vocabulary, vocabulary), lengths)
    together = MaskedDocuments(lengths, tokens, words, masked)
    weights = target_weights(together, average, batches=steps * seeds)
    return _Positions(seeds, steps, documents, vocabulary, document + tokens, masked, words[masked], weights)


def _joined(arrays: list[np.ndarray]) -> np.ndarray:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


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


def _targets(
    found: _Positions,
    row: Int[np.ndarray, " target"],
    rows_a_seed: Int[np.ndarray, " step"],
    code: Int[np.ndarray, " target"],
    dtype: torch.dtype,
) -> list[Targets]:
    """A step's targets, by the rows (counted from the beginning of the step) that they are predicted from."""
    seeds, steps = found.seeds, found.steps
    group = code // (found.vocabulary * found.documents)
    layout = _lay_out(group, steps, seeds)
    size = np.diff(layout.bounds)
    place = layout.seed * np.repeat(rows_a_seed, size) * found.vocabulary
    place[layout.place] = row * found.vocabulary + found.words
    weight = np.zeros(len(layout.seed))
    weight[layout.place] = found.weights
    row_bounds = np.concatenate([[0], np.cumsum(rows_a_seed * seeds)])
    row_weight = np.bincount(row + row_bounds[group // seeds], weights=found.weights, minlength=row_bounds[-1])
    places, weights, row_weights = torch.from_numpy(place), _tensor(weight, dtype), _tensor(row_weight, dtype)
    return [
        Targets(places[here], weights[here].view(seeds, -1), row_weights[rows])
        for here, rows in zip(_slices(layout.bounds), _slices(row_bounds), strict=True)
    ]


def _slices(bounds: Int[np.ndarray, " bound"]) -> list[slice]:
    edges = bounds.tolist()
    return [slice(first, last) for first, last in zip(edges[:-1], edges[1:], strict=True)]


def _tensor(array: Float[np.ndarray, " item"], dtype: torch.dtype) -> Float[Tensor, " item"]:
    return torch.from_numpy(array).to(dtype)


def _log(counts: Int[np.ndarray, "..."], dtype: torch.dtype) -> Float[np.ndarray, "..."]:
    with np.errstate(divide="ignore"):
        return np.log(counts, dtype=np.float64 if dtype == torch.float64 else np.float32)
