"""Small models of many architectures, randomly initialised and saved to folders as their makers' would be."""

import warnings
from pathlib import Path
from typing import Any

import torch

VOCABULARY = 60
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
}
ENCODERS = ("bert", "albert", "bart", "electra", "roberta", "distilbert", "deberta-v2", "modernbert")
DECODERS = ("gpt2", "gpt_neox", "llama")


def tiny_config(kind: str, **more: Any) -> Any:
    """Two layers of two heads, 60 tokens, 40 positions."""
    from transformers import AutoConfig

    changes: dict[str, Any] = {
        "albert": {"embedding_size": 8},
        "electra": {"embedding_size": 8},
        "deberta-v2": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 8},
        "modernbert": {
            **{"pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3},
            **{"global_attn_every_n_layers": 2, "local_attention": 8},
        },
        "gpt2": {"bos_token_id": 0, "eos_token_id": 0},
        "gpt_neox": {"bos_token_id": 0, "eos_token_id": 0},
        "bart": {"decoder_layers": 1, "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24},
        "distilbert": {"hidden_dim": 24},
    }
    return AutoConfig.for_model(kind, **SIZES | changes.get(kind, {}) | more)


def save_tiny(kind: str, folder: Path, *, seed: int = 0, **more: Any) -> Path:
    """A model whose attention is far from uniform: its matrices are drawn ten times as large as usual."""
    from transformers import AutoModel

    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # DeBERTa's code uses what torch no longer recommends.
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        network = AutoModel.from_config(tiny_config(kind, **more))
        with torch.no_grad():
            for parameter in network.parameters():
                if parameter.ndim == 2:
                    parameter.mul_(10)
    network.save_pretrained(folder)
    return folder


def save_tokenizer(folder: Path, words: list[str]) -> list[str]:
    """A WordPiece tokenizer of these words as BERT's: [CLS] before and [SEP] after; returns its vocabulary."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = [*SPECIAL, *words]
    tokenizer = Tokenizer(models.WordPiece({word: place for place, word in enumerate(vocabulary)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )
    fast.save_pretrained(folder)
    return vocabulary
