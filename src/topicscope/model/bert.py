"""Our weights as Hugging Face's ``BertForMaskedLM``: where every part of BERT is on, both compute the same function."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from topicscope.errors import import_for_language
from topicscope.model.weights import NORM_EPSILON
from topicscope.settings import Model

# BERT has two token types, for first and second sentences; our passages are all of the first.
TOKEN_TYPES = 2
# Our names, and theirs.
NAMES = {
    "embedding": "bert.embeddings.word_embeddings.weight",
    "positions": "bert.embeddings.position_embeddings.weight",
    "embedding_norm": "bert.embeddings.LayerNorm.weight",
    "embedding_norm_bias": "bert.embeddings.LayerNorm.bias",
    "head": "cls.predictions.transform.dense.weight",
    "head_bias": "cls.predictions.transform.dense.bias",
    "head_norm": "cls.predictions.transform.LayerNorm.weight",
    "head_norm_bias": "cls.predictions.transform.LayerNorm.bias",
    "prediction_bias": "cls.predictions.bias",
}
LAYER_NAMES = {
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
COPIES = {"cls.predictions.decoder.weight": "embedding", "cls.predictions.decoder.bias": "prediction_bias"}


def to_bert(model: Model, weights: Mapping[str, Tensor], padding: int) -> Any:
    """A ``BertForMaskedLM`` with these weights; ``padding`` is its token for padding. It has no dropout."""
    transformers = import_for_language("transformers", "saving a Hugging Face folder needs transformers")
    (vocabulary, width), longest = weights["embedding"].shape, len(weights["positions"])
    state = {theirs: weights[ours] for ours, theirs in NAMES.items()}
    state |= {theirs: weights[ours] for theirs, ours in COPIES.items()}
    state["bert.embeddings.token_type_embeddings.weight"] = weights["token_types"].expand(TOKEN_TYPES, -1)
    for ours, theirs in LAYER_NAMES.items():
        for layer, (matrix, bias) in enumerate(zip(weights[ours], weights[ours + "_bias"], strict=True)):
            name = f"bert.encoder.layer.{layer}.{theirs}"
            state |= {f"{name}.weight": matrix, f"{name}.bias": bias}
    config = transformers.BertConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        num_hidden_layers=model.layers,
        num_attention_heads=model.heads,
        intermediate_size=model.feed_forward,
        hidden_act="gelu",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        max_position_embeddings=longest,
        type_vocab_size=TOKEN_TYPES,
        layer_norm_eps=NORM_EPSILON,
        pad_token_id=padding,
    )
    theirs = transformers.BertForMaskedLM(config).to(weights["embedding"].dtype)
    theirs.load_state_dict(state)
    return theirs


def save_bert(bert: Any, folder: Path, tokenizer: Path | None = None) -> None:
    """Write a Hugging Face folder (safetensors), with the files of a tokenizer; each file whole or not at all."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    part = folder.with_name(folder.name + ".tmp")
    shutil.rmtree(part, ignore_errors=True)
    if tokenizer:
        shutil.copytree(tokenizer, part)
    bert.save_pretrained(part)
    folder.mkdir(parents=True, exist_ok=True)
    for path in part.iterdir():
        path.replace(folder / path.name)
    part.rmdir()
