"""Masked documents as bags: distinct tokens with counts, and the few distinct queries that are predicted.

Without positions, equal tokens of a document have equal states at every depth. So a document needs one row for each
distinct token, with the token's count, and one prediction for each distinct token among its masked positions.

Batches of many steps and of all members of an ensemble are counted at once. Everything is laid out flat, step after
step and within a step seed after seed, so that a step's batch is a few slices. Where seeds have different numbers of
rows or targets, the shorter ones are filled up with entries of weight zero that read their own seed's first ones.
"""

import itertools
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

    rows: "QueryRows | None"
    """The distinct queries; None where every query of a document gets the same scores: one row a document."""

    targets: Targets


@dataclass(frozen=True, eq=False)
class QueryRows:
    """The rows that are predicted: a document and one of its distinct masked tokens each."""

    document: Int[Tensor, " row"]
    query: Int[Tensor, " row"]
    """seed · V + token."""


@dataclass(frozen=True, eq=False)
class SlotBatch:
    """Bags as lists of distinct tokens, those that are predicted first; for any depth and any vocabulary."""

    tokens: Int[Tensor, "documents slot"]
    log_counts: Float[Tensor, "documents slot"]
    queries: int
    """The first so many slots hold all the queries of any document (and some others)."""

    row_place: Int[Tensor, " row"]
    """document · queries + slot."""

    targets: Targets


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
    targets: Int[np.ndarray, " target"]
    """``code`` at the masked positions."""

    words: Int[np.ndarray, " target"]
    """The words that were there."""

    weights: Float[np.ndarray, " target"]

    @property
    def documents_a_step(self) -> int:
        return self.seeds * self.documents

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


def _lay_out(sizes: Int[np.ndarray, "step seed"]) -> _Layout:
    seeds = sizes.shape[1]
    width = sizes.max(axis=1)
    bounds = np.concatenate([[0], np.cumsum(width * seeds)])
    first_item = np.cumsum(sizes) - sizes.ravel()
    first_local = (width[:, None] * np.arange(seeds)).ravel()
    item, size = np.arange(sizes.sum()), sizes.ravel()
    local = item + np.repeat(first_local - first_item, size)
    if seeds == 1:
        return _Layout(item, local, bounds, np.zeros_like(item), width)
    place = local + np.repeat(np.repeat(bounds[:-1], seeds), size)
    seed = np.repeat(np.tile(np.arange(seeds), len(sizes)), np.repeat(width, seeds))
    return _Layout(place, local, bounds, seed, width)


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
    found = _positions(members, steps, vocabulary, average)
    cells = found.total_documents * vocabulary
    keys = found.code[~found.masked] if masked_keys == "hidden" else found.code
    log_counts = _log(np.bincount(keys, minlength=cells), dtype)
    all_counts = log_counts.view(steps, found.documents_a_step, vocabulary)
    if by_document:
        document = (found.targets // vocabulary) % found.documents_a_step
        targets = _targets(found, document, np.full(steps, found.documents), dtype)
        return [TableBatch(all_counts[step], None, targets[step]) for step in range(steps)]

    row_of_code = np.zeros(cells, dtype=np.int32)
    row_of_code[found.targets] = 1
    row_code = np.flatnonzero(row_of_code)
    row_document, row_token = np.divmod(row_code, vocabulary)
    rows = _lay_out(_group_sizes(found, row_code))
    row_of_code[row_code] = rows.local
    targets = _targets(found, row_of_code[found.targets], rows.width, dtype)
    document, query = rows.seed * found.documents, rows.seed * vocabulary
    document[rows.place] = row_document % found.documents_a_step
    query[rows.place] += row_token
    document_tensor, query_tensor = torch.from_numpy(document), torch.from_numpy(query)
    return [
        TableBatch(all_counts[step], QueryRows(document_tensor[here], query_tensor[here]), targets[step])
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
    is_query = masked > 0
    slot = _slots(document, is_query, found.total_documents)
    counts = _log(total - masked if masked_keys == "hidden" else total, dtype).numpy()
    step_of = document // found.documents_a_step
    slots, queries = np.zeros(steps, dtype=np.int64), np.zeros(steps, dtype=np.int64)
    np.maximum.at(slots, step_of, slot + 1)
    np.maximum.at(queries, step_of[is_query], slot[is_query] + 1)

    row_code, documents_a_step = code[is_query], found.documents_a_step
    rows = _lay_out(_group_sizes(found, row_code))
    row_place = rows.seed * found.documents * np.repeat(queries, np.diff(rows.bounds))
    row_place[rows.place] = (document[is_query] % documents_a_step) * queries[step_of[is_query]] + slot[is_query]
    targets = _targets(found, rows.local[np.searchsorted(row_code, found.targets)], rows.width, dtype)
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
                targets[step],
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
    code, where = document + tokens, np.flatnonzero(masked)
    weights = target_weights(MaskedDocuments(lengths, tokens, words, masked), average, batches=steps * seeds)
    return _Positions(
        seeds, steps, documents, vocabulary, code, masked, code[where], words[where].astype(np.int64), weights
    )


def _group_sizes(found: _Positions, code: Int[np.ndarray, " item"]) -> Int[np.ndarray, "step seed"]:
    """How many of these (in order) each step and seed has."""
    groups = found.steps * found.seeds
    document_edges = np.arange(groups + 1) * (found.documents * found.vocabulary)
    return np.diff(np.searchsorted(code, document_edges)).reshape(found.steps, found.seeds)


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
    found: _Positions, row: Int[np.ndarray, " target"], rows_a_seed: Int[np.ndarray, " step"], dtype: torch.dtype
) -> list[Targets]:
    """A step's targets, by the rows (counted from the beginning of the step) that they are predicted from."""
    seeds = found.seeds
    # Positions of a document are in no order, but documents are.
    sizes = _group_sizes(found, found.targets // found.vocabulary * found.vocabulary)
    layout = _lay_out(sizes)
    place = layout.seed * np.repeat(rows_a_seed * found.vocabulary, np.diff(layout.bounds))
    place[layout.place] = row * np.int64(found.vocabulary) + found.words
    weight = np.zeros(len(layout.seed))
    weight[layout.place] = found.weights
    row_bounds = np.concatenate([[0], np.cumsum(rows_a_seed * seeds)])
    flat_row = row + np.repeat(row_bounds[:-1], sizes.sum(axis=1))
    row_weight = np.bincount(flat_row, weights=found.weights, minlength=row_bounds[-1])
    places, weights, row_weights = (torch.from_numpy(array) for array in (place, weight, row_weight))
    weights, row_weights = weights.to(dtype), row_weights.to(dtype)
    return [
        Targets(places[here], weights[here].view(seeds, -1), row_weights[rows])
        for here, rows in zip(_slices(layout.bounds), _slices(row_bounds), strict=True)
    ]


def _log(counts: Int[np.ndarray, " item"], dtype: torch.dtype) -> Float[Tensor, " item"]:
    """Log n, −∞ for 0; counts are small, and looking their logarithms up is faster than computing them."""
    logarithms = torch.arange(int(counts.max()) + 1, dtype=torch.float64).log().to(dtype)
    return torch.from_numpy(logarithms.numpy()[counts])


def _slices(bounds: Int[np.ndarray, " bound"]) -> list[slice]:
    return [slice(first, last) for first, last in itertools.pairwise(bounds.tolist())]
