"""A corpus to train on: its tokenizer, trained or given, and its passages, both kept in the run's folder."""

import logging
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from topicscope.errors import InputError
from topicscope.settings import TextData
from topicscope.text.corpora import Corpus, bytes_read, open_corpus
from topicscope.text.tokenizers import (
    AFTER,
    BEFORE,
    MASK,
    PADDING,
    load_tokenizer,
    model_source,
    save_tokenizer,
    train_wordpiece,
)
from topicscope.text.tokens import write_passages
from topicscope.training.batches import Specials, Text
from topicscope.work import Report

logger = logging.getLogger(__name__)


def prepare_text(data: TextData, folder: Path, *, report: Report | None = None) -> tuple[Text, str]:
    """Read the corpus, train or load the tokenizer and cut passages into a folder, unless they are there already.

    Returned is also what identifies the passages.
    """
    corpus = open_corpus(data.corpus, field=data.field, split=data.split, layout=data.layout)
    where = folder / "tokenizer"
    if not (where / "tokenizer.json").exists():
        _make_tokenizer(data, corpus, where, report)
    # Named as the user named it: files of a run do not depend on where its folder is.
    tokenizer = replace(load_tokenizer(str(where)), name=data.tokenizer or "wordpiece")
    passages = write_passages(
        corpus,
        tokenizer,
        length=data.length,
        folder=folder / "passages",
        progress=bytes_read(corpus, report),
    )
    specials = read_specials(where, data.tokenizer or "the tokenizer that was trained")
    return Text(passages.tokens, passages.offsets, passages.articles, specials), passages.digest


def read_specials(folder: Path, name: str) -> Specials:
    """The special tokens of a tokenizer; one that lacks any of BERT's four is refused."""
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    kinds = {"mask": "mask", "before": "cls", "after": "sep", "padding": "pad"}
    for kind, example in zip(kinds.values(), (MASK, BEFORE, AFTER, PADDING), strict=True):
        if getattr(tokenizer, f"{kind}_token_id") is None:
            raise InputError(
                f'data.tokenizer = "{name}" has no {kind} token: give a tokenizer that has one (such as {example}), '
                "or leave it out to train one."
            )
    words = np.setdiff1d(np.arange(len(tokenizer)), tokenizer.all_special_ids)
    numbers = {place: getattr(tokenizer, f"{kind}_token_id") for place, kind in kinds.items()}
    return Specials(**numbers, words=words, vocabulary=len(tokenizer))


def _make_tokenizer(data: TextData, corpus: Corpus, folder: Path, report: Report | None) -> None:
    """Written to a temporary folder first, so that it is there whole or not at all."""
    part = folder.with_name(folder.name + ".tmp")
    shutil.rmtree(part, ignore_errors=True)
    if data.tokenizer:
        from transformers import AutoTokenizer

        # An existing one is copied into the run, so that the folder is complete. It is loaded once for its checks
        # and one-sentence errors.
        load_tokenizer(data.tokenizer)
        source = model_source(data.tokenizer)
        AutoTokenizer.from_pretrained(source, trust_remote_code=False).save_pretrained(str(part))
    else:
        logger.info("training a tokenizer of %d tokens.", data.vocabulary)

        def texts() -> Iterator[str]:
            return corpus.documents(bytes_read(corpus, report, why="for the tokenizer"))

        engine = train_wordpiece(texts, data.vocabulary, lowercase=data.lowercase)
        save_tokenizer(engine, part, longest=data.longest)
    part.rename(folder)
