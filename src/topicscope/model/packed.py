"""Passages packed end to end, without padding: what the encoder computes on."""

import itertools
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from topicscope.model.batch import target_weights
from topicscope.settings.training import Average
from topicscope.synthetic.documents import MaskedDocuments


@dataclass(frozen=True, eq=False)
class PackedBatch:
    """Passages in order of length, special tokens included, end to end.

    Layers that treat each position alone see one long row of positions. Attention is computed for all passages of one
    length at once, so there is no padding anywhere.
    """

    tokens: Int[Tensor, " position"]
    places: Int[Tensor, " position"]
    """Each position's place in its passage, from 0."""

    groups: tuple[tuple[int, int], ...]
    """(Passages, length) of each run of passages of equal length."""

    targets: Int[Tensor, " target"]
    """The masked positions."""

    words: Int[Tensor, " target"]
    """The words to be predicted there."""

    weights: Float[Tensor, " target"]
    """How much each counts in the loss."""

    def to(self, device: torch.device) -> "PackedBatch":
        """The same on a device."""
        moved = {name: getattr(self, name).to(device) for name in ("tokens", "places", "targets", "words", "weights")}
        return PackedBatch(groups=self.groups, **moved)


def equal_lengths(lengths: Int[np.ndarray, " passage"]) -> tuple[tuple[int, int], ...]:
    """(Passages, length) of each length, for lengths in order."""
    found, counts = np.unique(lengths, return_counts=True)
    return tuple(zip(counts.tolist(), found.tolist(), strict=True))


def pack(
    passages: MaskedDocuments, *, before: int, after: int, average: Average, dtype: torch.dtype = torch.float32
) -> PackedBatch:
    """Put the token ``before`` (such as [CLS]) before each passage and ``after`` behind it, and pack them.

    Masks and targets are the passages' own; special tokens are never predicted. The weights of all targets sum to one.
    """
    order = np.argsort(passages.lengths, kind="stable")
    chosen = passages.select(order)
    lengths = chosen.lengths.astype(np.int64) + 2
    starts = np.cumsum(lengths) - lengths
    # Where each content token goes: behind its passage's first special token and all special tokens before that.
    content = np.arange(len(chosen.tokens)) + 1 + 2 * chosen.document
    tokens = np.empty(int(lengths.sum()), dtype=np.int64)
    tokens[starts], tokens[starts + lengths - 1] = before, after
    tokens[content] = chosen.tokens
    return PackedBatch(
        tokens=torch.from_numpy(tokens),
        places=torch.from_numpy(np.arange(len(tokens)) - np.repeat(starts, lengths)),
        groups=equal_lengths(lengths),
        targets=torch.from_numpy(content[chosen.where]),
        words=torch.from_numpy(chosen.words[chosen.where].astype(np.int64)),
        weights=torch.from_numpy(target_weights(chosen, average)).to(dtype),
    )


def pack_parts(
    passages: MaskedDocuments, parts: int, *, before: int, after: int, average: Average
) -> list[PackedBatch]:
    """The same passages in several batches; the weights of all of them together sum to one.

    So the sum of the parts' losses is the loss of the whole, and so are the gradients.
    """
    masked, bounds = passages.masked_counts, np.linspace(0, len(passages), parts + 1).round().astype(int)
    found = []
    for first, last in itertools.pairwise(bounds.tolist()):
        share = (last - first) / len(passages)
        if average == "batch":
            share = masked[first:last].sum() / masked.sum()
        part = pack(passages.span(first, last), before=before, after=after, average=average)
        part.weights.mul_(float(share))
        found.append(part)
    return found
