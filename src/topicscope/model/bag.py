"""The paper's transformer on bags of tokens: the same function as the reference, with one row per distinct token.

Without positions, equal tokens of a document have equal states at every depth. So a document needs each token's count,
and one prediction for each distinct token among its masked positions. Attention from token a to token b of a document
is n_b exp(s_ab), normalised: log n_b is added to the score. All members of an ensemble are computed in one tensor:
every parameter has a leading ``seed`` axis.

One layer over a small vocabulary has a table of all scores between tokens, V × V, whatever the documents; counts are
over the whole vocabulary (``TableBatch``). Otherwise the distinct tokens of each document are gathered, and nothing but
the prediction itself grows with V (``SlotBatch``).

Some steps' documents are counted at once, but member after member: one member's positions fit into the processor's
cache. Then each step's batch is put together from slices. Where members have different numbers of rows or targets,
the shorter ones are filled up with entries of weight zero that read their own seed's first ones.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.nn import functional

from topicscope.model.transformer import LAYERED, Blocks, Layer, target_weights
from topicscope.model.weights import EMBEDDING_NORM_EPSILON, Sizes
from topicscope.settings import Model
from topicscope.settings.model import MaskedKeys
from topicscope.settings.training import Average
from topicscope.synthetic.documents import MaskedDocuments

# Above this many targets per document, equal ones are merged; below, merging costs more than it saves.
MANY_TARGETS = 64
# Up to this vocabulary one layer's scores are computed once for all pairs of tokens.
LARGEST_TABLE = 512


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


# Distinct tokens alone: a document has one row (a *slot*) for each, those that are predicted first.


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
    entries = [_slot_counts(member, steps, vocabulary, masked_keys, average, dtype) for member in members]
    rows = SideBySide([mine.row_bounds for mine in entries])
    targets = step_targets([mine.targets for mine in entries], rows, vocabulary)
    return [_step_batch(entries, step, targets[step]) for step in range(steps)]


def _slot_counts(
    member: MaskedDocuments, steps: int, vocabulary: int, masked_keys: MaskedKeys, average: Average, dtype: torch.dtype
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
    here = [slice(*bounds) for bounds in itertools.pairwise(np.searchsorted(code, step_codes).tolist())]
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


# The whole vocabulary.


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
    """The distinct queries; None where every query of a document gets the same scores: one row per document."""

    targets: Targets


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

    ``by_document`` says that queries do not matter, so that one row per document is enough.
    """
    counts, documents_of, tokens_of, bounds_of_rows, targets = [], [], [], [], []
    for member in members:
        code = np.repeat(np.arange(0, len(member) * vocabulary, vocabulary), member.lengths)
        code += member.tokens
        number = np.bincount(code, minlength=len(member) * vocabulary)
        masked = code.take(member.where)
        if masked_keys == "hidden":
            number -= np.bincount(masked, minlength=len(number))
        log_number = log_of_counts(int(member.lengths.max()), dtype).take(number, mode="clip")
        counts.append(torch.from_numpy(log_number).view(steps, -1, vocabulary))
        if by_document:
            row, bounds = np.repeat(np.arange(len(member)), member.masked_counts), np.arange(steps + 1)
            bounds *= len(member) // steps
        else:
            document, token, bounds, row = _query_rows(member, masked, steps, vocabulary)
            documents_of.append(document)
            tokens_of.append(token)
        bounds_of_rows.append(bounds)
        shares = member_targets(member, row, bounds, vocabulary=vocabulary, average=average, dtype=dtype)
        targets.append(shares)
    log_counts = (counts[0] if len(counts) == 1 else torch.cat(counts, dim=1)).unbind()
    joining = SideBySide(bounds_of_rows)
    queries: Sequence[QueryRows | None] = [None] * steps
    if not by_document:
        document_of = joining.join(documents_of, len(log_counts[0]) // len(counts))
        query_of = joining.join(tokens_of, vocabulary)
        queries = [QueryRows(*each) for each in zip(document_of, query_of, strict=True)]
    step_by_step = zip(log_counts, queries, step_targets(targets, joining, vocabulary), strict=True)
    return [TableBatch(*each) for each in step_by_step]


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


def uses_table(settings: Model, sizes: Sizes) -> bool:
    """Whether batches are to be counted over the whole vocabulary (``TableBatch``)."""
    return settings.layers == 1 and sizes.vocabulary <= LARGEST_TABLE


class BagTransformer(Blocks):
    """``Transformer`` for documents as bags, with the parameters of one or more members of an ensemble."""

    def __init__(self, settings: Model, sizes: Sizes, weights: dict[str, Float[Tensor, "seed ..."]]) -> None:
        self.settings = settings
        self.sizes = sizes
        self.weights = weights
        self.seeds = len(next(iter(weights.values())))
        self.uniform_attention = settings.uniform
        frozen = {name for name in vars(settings) if name not in settings.trained_parts}
        # With W^E = I there is nothing to multiply; W^E⊤, which predicts, is I whatever is added to embeddings.
        self._identity = "embedding" in frozen and settings.embedding.start == "identity"
        self._one_hot = settings.one_hot
        # Adding a bias that stays zero would only take time.
        self._absent = {name for name in frozen if name.endswith("_bias") and settings.part(name).start == "zero"}

    def predict_masked(self, batch: TableBatch | SlotBatch) -> Float[Tensor, "seed row token"]:
        """Scores of every token at the rows of the batch: its distinct masked queries."""
        return self.predict(self._slot_rows(batch) if isinstance(batch, SlotBatch) else self._table_rows(batch))

    @property
    def queries_matter(self) -> bool:
        """Whether a row depends on its query: under uniform attention only through a residual connection."""
        return not self.uniform_attention or self.settings.residual

    def parameter(self, name: str) -> Float[Tensor, "seed ..."]:
        """One parameter of all members, by its name."""
        return self.weights[name]

    def _table_rows(self, batch: TableBatch) -> Float[Tensor, "seed row dimension"]:
        """The state at each distinct query after the only layer, or of each document where queries do not matter."""
        inputs, layer, rows = self._embedded(self.weights["embedding"]), self._layer(0), batch.rows
        if self.uniform_attention:
            # Every query gets the mean over the keys, n_b / N.
            shares = batch.log_counts.softmax(dim=-1).view(self.seeds, -1, self.sizes.vocabulary)
            mixed = self._linear(shares if self._one_hot else torch.bmm(shares, inputs), "value", layer)
            if rows is not None:
                mixed = self._by_seed(mixed.flatten(0, 1).index_select(0, rows.document))
        else:
            assert rows is not None
            heads = self.settings.heads
            scores = functional.embedding(rows.query, self._score_table(inputs, layer))
            log_counts = batch.log_counts.index_select(0, rows.document)
            scores = scores.view(self.seeds, -1, heads, self.sizes.vocabulary)
            attention = (scores + log_counts.view(self.seeds, -1, 1, self.sizes.vocabulary)).softmax(dim=-1)
            values = self._of_all_tokens("value", inputs, layer)
            if heads == 1:
                mixed = torch.bmm(attention.squeeze(2), values)
            else:
                values = values.view(self.seeds, -1, heads, self.sizes.head_dimension)
                mixed = torch.einsum("srhk,skhw->srhw", attention, values).flatten(2)
        before = None
        if self.settings.residual:
            assert rows is not None
            before = self._by_seed(inputs.flatten(0, 1).index_select(0, rows.query))
        return self._finish(before, mixed, layer)

    def _score_table(
        self, inputs: Float[Tensor, "seed token dimension"], layer: Layer
    ) -> Float[Tensor, "seed_query head_key"]:
        """Scores between all tokens: a row per query token (of each seed), its keys head after head."""
        heads, width = self.settings.heads, self.sizes.attention_dimension
        scale = 1 / math.sqrt(width)
        keys, queries = (self._of_all_tokens(name, inputs, layer) for name in ("key", "query"))
        if heads == 1:
            return (torch.bmm(queries, keys.mT) * scale).flatten(0, 1)
        keys, queries = keys.view(self.seeds, -1, heads, width), queries.view(self.seeds, -1, heads, width)
        return torch.einsum("sqhw,skhw->sqhk", queries * scale, keys).flatten(0, 1).flatten(1)

    def _embedded(self, rows: Float[Tensor, "seed row dimension"]) -> Float[Tensor, "seed row dimension"]:
        """Add to rows of W^E⊤ what the embedding layer adds, and normalise them if it does."""
        if self.settings.token_types:
            rows = rows + self.weights["token_types"][:, None]
        if self.settings.embedding_norm:
            rows = self._normalise(rows, "embedding_norm", epsilon=EMBEDDING_NORM_EPSILON)
        return rows

    def _of_all_tokens(
        self, name: str, inputs: Float[Tensor, "seed token dimension"], layer: Layer
    ) -> Float[Tensor, "seed token width"]:
        """W z + b, where z is what the embedding layer returns for every token."""
        if not self._one_hot:
            return self._linear(inputs, name, layer)
        columns, bias = layer[name].mT, name + "_bias"
        return columns if bias in self._absent else columns + layer[bias][:, None]

    def _slot_rows(self, batch: SlotBatch) -> Float[Tensor, "seed row dimension"]:
        """The state at each distinct query after the last layer, the only one that is not needed at all tokens."""
        documents, slots = batch.tokens.shape
        each = documents // self.seeds
        offset = torch.arange(self.seeds).repeat_interleave(each)[:, None] * self.sizes.vocabulary
        state = functional.embedding(batch.tokens + offset, self.weights["embedding"].flatten(0, 1))
        state = self._embedded(self._by_seed(state)).reshape(documents, slots, -1)
        for layer in range(self.settings.layers):
            queries = batch.queries if layer == self.settings.layers - 1 else slots
            state = self._slot_layer(state, batch.log_counts, queries, self._layer(layer))
        return state.flatten(0, 1).index_select(0, batch.row_place).view(self.seeds, -1, self.sizes.dimension)

    def _slot_layer(
        self,
        state: Float[Tensor, "documents slot dimension"],
        log_counts: Float[Tensor, "documents slot"],
        queries: int,
        layer: Layer,
    ) -> Float[Tensor, "documents query dimension"]:
        documents, heads = len(state), self.settings.heads
        rows, before = self._by_seed(state), self._by_seed(state[:, :queries])
        if self.uniform_attention:
            means = torch.einsum("dk,dkw->dw", log_counts.softmax(dim=-1), state)
            mixed = self._linear(means.view(self.seeds, -1, self.sizes.dimension), "value", layer)
            mixed = mixed.flatten(0, 1)[:, None].expand(-1, queries, -1)
        else:
            scale = 1 / math.sqrt(self.sizes.attention_dimension)
            keys, asked, values = (
                self._linear(of, name, layer).reshape(documents, -1, heads, width)
                for of, name, width in (
                    (rows, "key", self.sizes.attention_dimension),
                    (before, "query", self.sizes.attention_dimension),
                    (rows, "value", self.sizes.head_dimension),
                )
            )
            scores = torch.einsum("dqhw,dkhw->dhqk", asked * scale, keys) + log_counts[:, None, None]
            mixed = torch.einsum("dhqk,dkhw->dqhw", scores.softmax(dim=-1), values).flatten(2)
        after = self._finish(before, self._by_seed(mixed), layer)
        return after.reshape(documents, queries, -1)

    def _by_seed(self, state: Float[Tensor, "... dimension"]) -> Float[Tensor, "seed row dimension"]:
        return state.reshape(self.seeds, -1, state.shape[-1])

    def _normalise(self, state: Tensor, norm: str, layer: Layer | None = None, epsilon: float | None = None) -> Tensor:
        gain, bias = self._of(norm, layer), self._of(norm + "_bias", layer)
        normal = functional.layer_norm(state, state.shape[-1:], eps=epsilon or self.norm_epsilon)
        return normal * gain[:, None] + bias[:, None]

    def _linear(self, state: Tensor, name: str, layer: Layer | None = None, bias: str = "") -> Tensor:
        """W state + b, each seed with its own."""
        bias = bias or name + "_bias"
        if name == "embedding" and self._identity:
            return state if bias in self._absent else state + self.weights[bias][:, None]
        matrix = self._of(name, layer)
        if bias in self._absent:
            return torch.bmm(state, matrix.mT)
        return torch.baddbmm(self._of(bias, layer)[:, None], state, matrix.mT)

    def _layer(self, number: int) -> Layer:
        return {name: self.weights[name][:, number] for name in LAYERED if name in self.weights}
