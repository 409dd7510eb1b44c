"""Our encoder's weights under the names of Hugging Face's ``BertForMaskedLM``.

Only names differ: where every part of BERT is switched on, the two compute the same function.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from topicscope.errors import InputError
from topicscope.model.encoder import TOKEN_TYPES
from topicscope.settings.text import Encoder

PLAIN = {
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
LAYERED = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "feed_forward_in": "intermediate.dense",
    "feed_forward_out": "output.dense",
    "feed_forward_norm": "output.LayerNorm",
}
# Copies that Hugging Face keeps of what is tied.
TIED = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}


def require_bert(settings: Encoder) -> None:
    """Refuse an architecture that is not BERT's."""
    if not settings.is_bert:
        raise InputError(
            "this model is not BERT's architecture, so it cannot be saved as a Hugging Face folder: switch all its "
            "parts on (residual, layer_norm, embedding_norm, token_types, output_projection, head_transform, tied, "
            'feed_forward above 0, positions "learned").'
        )


def bert_config(settings: Encoder, *, vocabulary: int, longest: int, padding: int | None) -> dict[str, Any]:
    """The fields of a ``BertConfig``; no dropout, since ours has none."""
    require_bert(settings)
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
    found = {theirs: weights[ours] for ours, theirs in PLAIN.items()}
    for ours, theirs in LAYERED.items():
        for layer, (matrix, bias) in enumerate(zip(weights[ours], weights[ours + "_bias"], strict=True)):
            name = f"bert.encoder.layer.{layer}.{theirs}"
            found |= {f"{name}.weight": matrix, f"{name}.bias": bias}
    return found | {copy: found[original] for copy, original in TIED.items()}
