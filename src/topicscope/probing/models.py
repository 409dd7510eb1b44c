"""Models that can be probed: how they are loaded, and what the probe asks of them.

:class:`Subject` is all that the rest of the probe knows about a model: word embeddings, attention and hidden states.
:class:`HuggingFaceModel` offers it for every architecture of transformers, through the models' common interface alone
(``get_input_embeddings``, ``get_encoder``, ``output_attentions``, ``output_hidden_states``); what else must be known
(layers, heads, whether attention is causal, the longest input) is found by running the model once.

No file of a model is executed: weights are safetensors, and transformers refuses a model that brings its own code.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from topicscope.errors import InputError, is_out_of_memory
from topicscope.precision import device_named
from topicscope.probing.settings import Precision
from topicscope.probing.sources import Source, has_tokenizer
from topicscope.settings.data import Device
from topicscope.text.tokenizers import Tokenizer, load_tokenizer

# Words per batch where each word's embedding is computed alone.
WORDS_AT_ONCE = 2_048
# Positions that a model may keep for itself at the end of its table of positions (RoBERTa: 2).
SPARE_POSITIONS = 8


class Outputs(NamedTuple):
    """A model's output for some passages; the first n_b positions belong to passage b, the rest to padding."""

    attention: list[Float[Tensor, "passage head query key"]]
    """Attention, layer by layer. Rows (queries) sum to less than 1 where the model has special tokens."""

    hidden: list[Float[Tensor, "passage position width"]]
    """The embedding layer's output, then that of each layer; nothing if the model does not offer them."""


@runtime_checkable
class Subject(Protocol):
    """A model that can be probed."""

    layers: int
    """Layers with attention."""

    heads: int
    """Heads per layer."""

    causal: bool
    """Whether a position sees only itself and earlier ones."""

    first: int
    """The first content position to be measured: 1 if attention sinks into a content token at 0, else 0."""

    def embedding_matrix(self) -> Float[np.ndarray, "token width"]:
        """The word-embedding matrix, a row per token."""

    def embedding_layer(self, tokens: Int[np.ndarray, " word"]) -> Float[np.ndarray, "word model_width"]:
        """The embedding layer's output for an input that is this one token at position 0, without special tokens."""

    def run(self, passages: Sequence[Int[np.ndarray, " _"]]) -> Outputs:
        """Attention and hidden states of content tokens in one pass, without the special tokens around them."""


@dataclass(frozen=True)
class Loading:
    """How a model is loaded: with its source, this determines everything that it computes."""

    device: Device = "auto"
    dtype: Precision = "float32"
    seed: int = 0
    """The seed of an untrained model's weights."""

    length: int = 128
    """Tokens per sequence, special ones included; fewer if the model takes fewer."""


def model_tokenizer(source: Source) -> Tokenizer:
    """The tokenizer of a model."""
    if not has_tokenizer(source.tokenizer_folder):
        # transformers would make up an empty one.
        raise InputError(
            f"model {source.name} has no tokenizer: its folder must hold tokenizer.json; save its tokenizer there."
        )
    return load_tokenizer(str(source.tokenizer_folder))


class HuggingFaceModel:
    """Any encoder or decoder of transformers, or the encoder of an encoder-decoder.

    It is small, because it is sent to other processes: its network is loaded where it is first run, and kept until
    another one is loaded.
    """

    def __init__(self, source: Source, special: tuple[Sequence[int], Sequence[int]], loading: Loading) -> None:
        """``special``: the tokens that the tokenizer puts before and after a text.

        The network is run once, on as many tokens as asked for or as it takes, to see its layers, heads and length.
        """
        self.source, self.loading = source, loading
        self.name, self.revision = source.name, source.revision
        self._before, self._after = list(special[0]), list(special[1])
        # On the processor: a GPU does not recover from a position that has no embedding.
        network = self._network.cpu()
        try:
            attention, longest = _first_attention(network, loading.length)
        except Exception as error:  # models of images or sound raise whatever they miss
            if is_out_of_memory(error):
                raise
            raise InputError(
                f"model {self.name} does not run on tokens of text ({_first_sentence(error)}): give a model of text."
            ) from None
        if not attention or any(layer is None or layer.shape[2:] != (longest, longest) for layer in attention):
            raise InputError(
                f"model {self.name} returned no attention between all positions even with "
                "attn_implementation='eager': give a transformer with full self-attention."
            )
        if len({layer.shape[1] for layer in attention}) > 1:
            raise InputError(
                f"model {self.name} has layers with different numbers of heads: give one with the same in each."
            )
        self.layers, self.heads = len(attention), attention[0].shape[1]
        self.causal = all(not layer.triu(1).any() for layer in attention)
        self.length = longest - len(self._before) - len(self._after)
        """How many content tokens fit into a sequence."""
        self.first = int(self.causal and not self._before)
        network.to(device_named(loading.device))

    def check_tokens(self, tokenizer: Tokenizer) -> None:
        """Refuse a tokenizer whose tokens have numbers for which the model has no embedding."""
        rows = self._network.get_input_embeddings().num_embeddings
        if tokenizer.largest >= rows:
            raise InputError(
                f"model {self.title} has embeddings for {rows:,} tokens, and its tokenizer numbers tokens up to "
                f"{tokenizer.largest:,}: give it the tokenizer that it was trained with."
            )

    @property
    def title(self) -> str:
        """Name and checkpoint, for people."""
        return f"{self.name} {self.revision}".strip()

    @property
    def key(self) -> dict[str, Any]:
        """Everything that determines its embeddings and attention."""
        seed = self.loading.seed if self.source.untrained else None
        special = [self._before, self._after]
        return {"model": self.source.digest, "dtype": self.loading.dtype, "seed": seed, "special": special}

    def embedding_matrix(self) -> Float[np.ndarray, "token width"]:
        """See :class:`Subject`. ALBERT and ELECTRA have a narrower matrix than their layers, projected afterwards."""
        return _to_numpy(self._network.get_input_embeddings().weight)

    def embedding_layer(self, tokens: Int[np.ndarray, " word"]) -> Float[np.ndarray, "word model_width"]:
        """See :class:`Subject`."""
        inputs = torch.split(torch.as_tensor(tokens, dtype=torch.int64)[:, None], WORDS_AT_ONCE)
        outputs = [_run(self._network, batch, torch.ones_like(batch), output_hidden_states=True) for batch in inputs]
        return np.concatenate([_to_numpy(output.hidden_states[0][:, 0]) for output in outputs])

    def run(self, passages: Sequence[Int[np.ndarray, " _"]]) -> Outputs:
        """See :class:`Subject`; in the model's precision, at least float32, on its device: a copy would be large."""
        network = self._network
        sequences = [np.concatenate([self._before, passage, self._after]).astype(np.int64) for passage in passages]
        lengths = np.array([len(sequence) for sequence in sequences])
        inside = np.arange(lengths.max()) < lengths[:, None]
        tokens = np.full(inside.shape, _padding(network), dtype=np.int64)
        tokens[inside] = np.concatenate(sequences)
        mask = torch.as_tensor(inside).long()
        output = _run(network, torch.as_tensor(tokens), mask, output_attentions=True, output_hidden_states=True)
        content = slice(len(self._before), len(self._before) + max(map(len, passages)))
        return Outputs(
            [_at_least_float32(layer[:, :, content, content]) for layer in output.attentions],
            [_at_least_float32(layer[:, content]) for layer in output.hidden_states],
        )

    @property
    def _network(self) -> Any:
        return load_network(self.source, self.source.digest, self.loading)


def _first_attention(network: Any, length: int) -> tuple[Sequence[Tensor], int]:
    """Attention of all layers for an input of so many tokens, or of as many as the network takes, and how many."""
    words = network.get_input_embeddings().num_embeddings
    limit = min(length, getattr(network.config, "max_position_embeddings", None) or length)
    for longest in range(limit, max(limit - SPARE_POSITIONS, 0), -1):
        # All but the padding token, which some models give no position.
        tokens = torch.arange(longest)[None] % (words - 1)
        tokens += tokens >= _padding(network)
        try:
            output = _run(network, tokens, torch.ones_like(tokens), output_attentions=True)
        except (IndexError, RuntimeError) as error:
            if "index" not in str(error):
                raise
            continue
        return getattr(output, "attentions", None) or (), longest
    return (), 0


@lru_cache(maxsize=1)
def load_network(source: Source, digest: str, loading: Loading) -> Any:
    """The network, kept until another is asked for or its folder has other weights.

    The network is in evaluation mode (no dropout) and returns its attention (not fused).
    """
    from transformers import AutoConfig, AutoModel
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    settings = {"attn_implementation": "eager", "dtype": getattr(torch, loading.dtype), "trust_remote_code": False}
    missing: list[str] = []
    try:
        with warnings.catch_warnings():
            # The code of some architectures calls what torch has deprecated.
            warnings.simplefilter("ignore")
            if source.untrained:
                # Weights have their own random stream, so that no other draw from torch changes.
                with torch.random.fork_rng(devices=[]):
                    torch.manual_seed(loading.seed)
                    config = AutoConfig.from_pretrained(source.folder, trust_remote_code=False)
                    network = AutoModel.from_config(config, **settings)
            else:
                files = {"use_safetensors": True, "local_files_only": True, "output_loading_info": True}
                network, report = AutoModel.from_pretrained(source.folder, **files, **settings)
                # Weights that the files lack are drawn at random; only a pooler, which no measure uses, may be.
                missing = sorted(key for key in report["missing_keys"] if "pooler" not in key)
    except Exception as error:  # transformers raises whatever its parts raise: all of it is about this model's files
        reason = _first_sentence(error)
        raise InputError(f"model {source.name} cannot be loaded ({reason}): give another, or fetch it again.") from None
    if missing:
        raise InputError(
            f"model {source.name} lacks {len(missing)} of its weights ({missing[0]} …): its files are of another "
            "architecture or incomplete; fetch it again."
        )
    odd = [name for name, weights in network.named_parameters() if not torch.isfinite(weights).all()]
    if odd:
        raise InputError(
            f"model {source.name} has weights that are not finite numbers ({odd[0]}): fetch it again, or give another "
            "checkpoint."
        )
    # Results are kept under the digest, which may be older than the files: a worker loads them later.
    if source.current_digest() != digest:
        raise InputError(f"model {source.name} was changed while it was probed: probe it again.")
    if network.config.is_encoder_decoder:
        network = network.get_encoder()
    return network.eval().requires_grad_(False).to(device_named(loading.device))


def _first_sentence(error: Exception) -> str:
    """What an error says, without the advice that follows."""
    line = (str(error).splitlines() or [""])[0]
    return line.split(". ")[0].rstrip(".:") or type(error).__name__


@torch.inference_mode()
def _run(
    network: Any, tokens: Int[Tensor, "passage position"], inside: Int[Tensor, "passage position"], **wanted: bool
) -> Any:
    with warnings.catch_warnings():
        # Architectures warn about options of their own, which the user cannot change here.
        warnings.simplefilter("ignore")
        return network(input_ids=tokens.to(network.device), attention_mask=inside.to(network.device), **wanted)


def _padding(network: Any) -> int:
    return int(getattr(network.config, "pad_token_id", 0) or 0)


def _at_least_float32(tensor: Tensor) -> Tensor:
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def _to_numpy(tensor: Tensor) -> np.ndarray:
    return _at_least_float32(tensor.detach().cpu()).numpy()
