"""Masked documents as tensors, padded to the longest of the batch."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from topicscope.settings.model import MaskedKeys
from topicscope.settings.training import Average
from topicscope.synthetic.documents import MaskedDocuments


@dataclass(frozen=True, eq=False)
class Batch:
    """What the model sees and must predict, position by position."""

    tokens: Int[Tensor, "document position"]
    visible: Bool[Tensor, "document position"]
    """Positions that can be attended to: not padding, and not hidden."""

    masked: Bool[Tensor, "document position"]
    words: Int[Tensor, " target"]
    """The words at the masked positions, document after document."""

    weights: Float[np.ndarray, " target"]
    """How much each masked position counts in the loss; they sum to one."""


def padded_batch(documents: MaskedDocuments, *, masked_keys: MaskedKeys, average: Average) -> Batch:
    """Lay documents of different lengths into rectangles; padding is never attended to nor predicted."""
    longest = int(documents.lengths.max())
    present = np.arange(longest) < documents.lengths[:, None]
    tokens = np.zeros(present.shape, dtype=np.int64)
    masked = np.zeros(present.shape, dtype=bool)
    tokens[present], masked[present] = documents.tokens, documents.masked
    visible = present & ~masked if masked_keys == "hidden" else present
    return Batch(
        tokens=torch.from_numpy(tokens),
        visible=torch.from_numpy(visible),
        masked=torch.from_numpy(masked),
        words=torch.from_numpy(documents.words[documents.masked].astype(np.int64)),
        weights=target_weights(documents, average),
    )


def target_weights(documents: MaskedDocuments, average: Average, *, batches: int = 1) -> Float[np.ndarray, " target"]:
    """Each masked position's share of the loss.

    ``document`` is eq. 1: 1/|M| within a document, then the mean over documents. ``batch`` gives all masked
    positions the same share, so a document counts by how many it has. The documents may be several ``batches`` of
    the same number of documents, one after another; the shares of each sum to one.
    """
    counts = documents.masked_counts
    if average == "batch":
        counts = counts.reshape(batches, -1).sum(axis=1)
        return np.repeat(1.0 / counts, counts)
    return np.repeat(batches / (len(documents) * counts), counts)
