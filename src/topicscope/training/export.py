"""A trained encoder as a Hugging Face folder: ``AutoModelForMaskedLM`` and ``topicscope probe`` load it."""

import shutil
from pathlib import Path

from topicscope.errors import InputError
from topicscope.model.bert import bert_config, require_bert, to_bert
from topicscope.model.encoder import Encoder
from topicscope.training.passages import Specials


def export(encoder: Encoder, specials: Specials, tokenizer_folder: Path, folder: Path, *, longest: int) -> None:
    """Write settings, weights (safetensors) and tokenizer; whole or not at all."""
    require_bert(encoder.settings)
    try:
        from transformers import BertConfig, BertForMaskedLM
        from transformers.utils import logging
    except ImportError:
        raise InputError(
            'saving a Hugging Face folder needs transformers: pip install "topicscope[language]".'
        ) from None
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    fields = bert_config(encoder.settings, vocabulary=specials.vocabulary, longest=longest, padding=specials.padding)
    model = BertForMaskedLM(BertConfig(**fields))  # type: ignore[no-untyped-call]
    weights = {name: parameter.detach().cpu() for name, parameter in encoder.named_parameters()}
    model.load_state_dict(to_bert(weights))
    part = folder.with_name(folder.name + ".tmp")
    shutil.rmtree(part, ignore_errors=True)
    shutil.copytree(tokenizer_folder, part)
    model.save_pretrained(part)
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)
