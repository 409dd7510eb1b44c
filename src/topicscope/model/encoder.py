"""A fast transformer encoder for real text: with everything switched on it is exactly BERT.

Passages are packed end to end without padding, only masked positions are predicted, and the last layer is computed only
there from its output projection on. The parameters have the names and shapes of ``Transformer``, which is the reference
for the parts that both have.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from topicscope.errors import InputError
from topicscope.model.transformer import ATTENTION, Blocks, Layer, sinusoids, target_weights
from topicscope.model.weights import Sizes, Weights, shapes
from topicscope.settings.text import Encoder as EncoderSettings
from topicscope.settings.training import Average
from topicscope.synthetic.documents import MaskedDocuments

# BERT has two token types, for first and second sentences; our passages are all of the first.
TOKEN_TYPES = 2


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

    So the sum of the parts' losses is the loss of the whole, and the same holds for gradients.
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


def encoder_shapes(settings: EncoderSettings, vocabulary: int, longest: int) -> dict[str, tuple[int, ...]]:
    """The shape of every parameter, in the order in which they are drawn; ``longest`` counts special tokens."""
    model = settings.as_model()
    found = shapes(model, Sizes.of(model, vocabulary, longest))
    if settings.token_types:
        found["token_types"] = (TOKEN_TYPES, settings.width)
    if settings.embedding_norm:
        found |= {"embedding_norm": (settings.width,), "embedding_norm_bias": (settings.width,)}
    return found


def encoder_weights(
    settings: EncoderSettings, vocabulary: int, longest: int, *, generator: np.random.Generator
) -> Weights:
    """Weights at the start: matrices normal at their scale, biases zero, LayerNorm's gains one."""
    weights = {}
    for name, shape in encoder_shapes(settings, vocabulary, longest).items():
        if name.endswith("_bias"):
            weights[name] = np.zeros(shape)
        elif name.endswith("_norm"):
            weights[name] = np.ones(shape)
        else:
            scale = settings.attention_scale if name in ATTENTION else settings.scale
            weights[name] = generator.normal(scale=scale, size=shape)
    return weights


class Encoder(Blocks, nn.Module):
    """BERT, with each of its parts switchable; rows are positions."""

    def __init__(self, settings: EncoderSettings, weights: Weights, *, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.settings: EncoderSettings = settings
        self.norm_epsilon = settings.norm_epsilon
        for name, array in weights.items():
            self.register_parameter(name, nn.Parameter(torch.from_numpy(array).to(dtype, copy=True)))

    def predict_masked(self, batch: PackedBatch) -> Float[Tensor, "target token"]:
        """Scores of every token at the masked positions alone."""
        state = self.embed(batch.tokens, batch.places)
        for number, layer in enumerate(self._layers(), start=1):
            mixed = self._mix(state, batch.groups, layer)
            if number == self.settings.layers:
                # Attention was the last to need the other positions.
                mixed, state = mixed.index_select(0, batch.targets), state.index_select(0, batch.targets)
            state = self._finish(state, mixed, layer)
        return self.predict(state)

    def states(self, batch: PackedBatch) -> list[Float[Tensor, "position width"]]:
        """The embeddings, then the output of each layer, at all positions."""
        found = [self.embed(batch.tokens, batch.places)]
        for layer in self._layers():
            found.append(self._finish(found[-1], self._mix(found[-1], batch.groups, layer), layer))
        return found

    def attention(self, tokens: Int[Tensor, "passage position"]) -> Float[Tensor, "layer passage head query key"]:
        """Attention of every layer for passages of one length; each row (a query) sums to one over the keys.

        The fused kernels that training uses do not return attention, so it is computed here as the equations have it.
        """
        passages, length = tokens.shape
        places = torch.arange(length, device=tokens.device).repeat(passages)
        state, found = self.embed(tokens.flatten(), places), []
        width = self.settings.width // self.settings.heads
        for layer in self._layers():
            query, key, value = (
                self._linear(state, name, layer).view(passages, length, self.settings.heads, width).transpose(1, 2)
                for name in ("query", "key", "value")
            )
            found.append((query @ key.mT / width**0.5).softmax(dim=-1))
            mixed = (found[-1] @ value).transpose(1, 2).flatten(2).flatten(0, 1)
            state = self._finish(state, mixed, layer)
        return torch.stack(found)

    def embed(
        self, tokens: Int[Tensor, " position"], places: Int[Tensor, " position"]
    ) -> Float[Tensor, "position width"]:
        """The embedding layer's output: word + position + token type, then LayerNorm, each if switched on."""
        state = functional.embedding(tokens, self.parameter("embedding"))
        if self.settings.positions == "learned":
            state = state + functional.embedding(places, self.parameter("positions"))
        elif self.settings.positions == "sinusoidal":
            table = sinusoids(int(places.max()) + 1, self.settings.width).to(state)
            state = state + table[places]
        if self.settings.token_types:
            state = state + self.parameter("token_types")[0]
        return self._normalise(state, "embedding_norm") if self.settings.embedding_norm else state

    def _mix(
        self, state: Float[Tensor, "position width"], groups: tuple[tuple[int, int], ...], layer: Layer
    ) -> Float[Tensor, "position width"]:
        """Attention within each passage, heads side by side; passages of equal length are computed together."""
        heads, sizes = self.settings.heads, [passages * length for passages, length in groups]
        projected = [torch.split(self._linear(state, name, layer), sizes) for name in ("query", "key", "value")]
        mixed = []
        for (passages, length), *parts in zip(groups, *projected, strict=True):
            query, key, value = (part.view(passages, length, heads, -1).transpose(1, 2) for part in parts)
            each = functional.scaled_dot_product_attention(query, key, value)
            mixed.append(each.transpose(1, 2).reshape(passages * length, -1))
        return torch.cat(mixed) if len(mixed) > 1 else mixed[0]


# The same weights under the names of Hugging Face's ``BertForMaskedLM``. Only names differ: where every part of BERT is
# switched on, the two compute the same function.
BERT_NAMES = {
    "embedding": "bert.embeddings.word_embeddings.weight",
    "positions": "bert.embeddings.position_embeddings.weight",
    "token_types": "bert.embeddings.token_type_embeddings.weight",
    "embedding_norm": "bert.embeddings.LayerNorm.weight",
    "embedding_norm_bias": "bert.embeddings.LayerNorm.bias",
    "head": "cls.predictions.transform.dense.weight",
    "head_bias": "cls.predictions.transform.dense.bias",
    "head_norm": "cls.predictions.transform.LayerNorm.weight",
    "head_norm_bias": "cls.predictions.transform.LayerNorm.bias",
    "prediction_bias": "cls.predictions.bias",
}
BERT_LAYER_NAMES = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "feed_forward_in": "intermediate.dense",
    "feed_forward_out": "output.dense",
    "feed_forward_norm": "output.LayerNorm",
}
# Hugging Face keeps copies of tied weights under these names.
BERT_COPIES = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}


def bert_config(settings: EncoderSettings, *, vocabulary: int, longest: int, padding: int | None) -> dict[str, Any]:
    """The fields of a ``BertConfig``; no dropout, since ours has none."""
    if not settings.is_bert:
        raise InputError(
            "this model is not BERT's architecture, so it cannot be saved as a Hugging Face folder: switch all its "
            "parts on (residual, layer_norm, embedding_norm, token_types, output_projection, head_transform, tied, "
            'feed_forward above 0, positions "learned").'
        )
    return {
        "vocab_size": vocabulary,
        "hidden_size": settings.width,
        "num_hidden_layers": settings.layers,
        "num_attention_heads": settings.heads,
        "intermediate_size": settings.feed_forward,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "max_position_embeddings": longest,
        "type_vocab_size": TOKEN_TYPES,
        "layer_norm_eps": settings.norm_epsilon,
        "pad_token_id": padding,
    }


def to_bert(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights of the encoder as a state of ``BertForMaskedLM``."""
    found = {theirs: weights[ours] for ours, theirs in BERT_NAMES.items()}
    for ours, theirs in BERT_LAYER_NAMES.items():
        for layer, (matrix, bias) in enumerate(zip(weights[ours], weights[ours + "_bias"], strict=True)):
            name = f"bert.encoder.layer.{layer}.{theirs}"
            found |= {f"{name}.weight": matrix, f"{name}.bias": bias}
    return found | {copy: found[original] for copy, original in BERT_COPIES.items()}
