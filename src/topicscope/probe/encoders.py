"""Our own encoder as a subject of the probe: embeddings and attention of its current weights, while it trains."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from topicscope.model.encoder import Encoder


@dataclass(frozen=True, eq=False)
class EncoderSubject:
    """See ``probe.models.Subject``; any of the encoder's switches may be off."""

    encoder: Encoder
    before: int
    after: int
    """The special tokens around a passage."""

    name: str = "encoder"
    revision: str = ""

    @property
    def layers(self) -> int:
        """Layers with attention."""
        return self.encoder.settings.layers

    @property
    def heads(self) -> int:
        """Heads a layer."""
        return self.encoder.settings.heads

    @property
    def causal(self) -> bool:
        """An encoder sees all positions."""
        return False

    @property
    def first(self) -> int:
        """All content positions are measured."""
        return 0

    def embedding_matrix(self) -> Float[np.ndarray, "token width"]:
        """W^E⊤, a row a token."""
        return self.encoder.parameter("embedding").detach().cpu().numpy()

    @torch.no_grad()
    def embedding_layer(self, tokens: Int[np.ndarray, " word"]) -> Float[np.ndarray, "word model_width"]:
        """The embedding layer's output for each token alone, at position 0: word + position + type, normalised."""
        rows = torch.as_tensor(tokens, dtype=torch.int64, device=self._device)
        return self.encoder.embed(rows, torch.zeros_like(rows)).cpu().numpy()

    @torch.no_grad()
    def attention(self, passages: Sequence[Int[np.ndarray, " _"]]) -> list[Float[Tensor, "passage head query key"]]:
        """See :class:`topicscope.probe.models.Subject`."""
        lengths = np.array([len(passage) for passage in passages])
        longest = int(lengths.max())
        found = torch.zeros((self.layers, len(passages), self.heads, longest, longest))
        for length in np.unique(lengths).tolist():
            chosen = np.flatnonzero(lengths == length)
            rows = np.stack([[self.before, *passages[place], self.after] for place in chosen.tolist()])
            attention = self.encoder.attention(torch.as_tensor(rows, dtype=torch.int64, device=self._device))
            found[:, chosen, :, :length, :length] = attention[..., 1:-1, 1:-1].cpu().float()
        return list(found)

    @property
    def _device(self) -> torch.device:
        return self.encoder.parameter("embedding").device
