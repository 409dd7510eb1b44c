"""From a corpus to what training needs: a tokenizer, trained or given, and passages, both kept in a folder."""

import logging
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from topicscope.errors import InputError
from topicscope.scale import Report
from topicscope.settings.text import TextData
from topicscope.text.corpora import Corpus, Document, bytes_read, open_corpus
from topicscope.text.streams import Progress
from topicscope.text.tokens import Passages, Tokenizer, load_tokenizer, write_passages
from topicscope.text.wordpiece import AFTER, BEFORE, MASK, PADDING, save_tokenizer, train_wordpiece
from topicscope.training.passages import Specials, Text

logger = logging.getLogger(__name__)

# Corpora up to this size on disk (compressed or not) are read once and kept; larger ones are read for each pass.
KEPT_BYTES = 32_000_000


@dataclass(frozen=True, eq=False)
class PreparedText:
    """A corpus as passages, with the tokenizer that made them."""

    text: Text
    passages: Passages
    tokenizer: Tokenizer
    tokenizer_folder: Path

    @property
    def digest(self) -> str:
        """Identifies corpus, tokenizer and passages."""
        return self.passages.digest


def prepare_text(data: TextData, folder: Path, *, report: Report | None = None) -> PreparedText:
    """Read the corpus, train or load the tokenizer and cut passages into a folder, but for what is there already."""
    corpus = _kept(open_corpus(data.corpus, field=data.field, split=data.split, layout=data.layout))
    where = folder / "tokenizer"
    if not (where / "tokenizer.json").exists():
        _make_tokenizer(data, corpus, where, report)
    # Named by what the user gave: files of a run do not depend on where its folder is.
    tokenizer = replace(load_tokenizer(str(where)), name=data.tokenizer or "wordpiece")
    passages = write_passages(
        corpus,
        tokenizer,
        length=data.length,
        folder=folder / "passages",
        every=data.every,
        progress=bytes_read(corpus, report),
    )
    specials = read_specials(where, data.tokenizer or "the tokenizer that was trained")
    text = Text(passages.tokens, passages.offsets, passages.articles, specials)
    return PreparedText(text, passages, tokenizer, where)


def read_specials(folder: Path, name: str) -> Specials:
    """The special tokens of a tokenizer; without one of BERT's four it cannot be trained with."""
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    wanted = {"mask": MASK, "cls": BEFORE, "sep": AFTER, "pad": PADDING}
    for kind, example in wanted.items():
        if getattr(tokenizer, f"{kind}_token_id") is None:
            raise InputError(
                f'data.tokenizer = "{name}" has no {kind} token: give a tokenizer that has one (such as {example}), '
                "or leave it out to train one."
            )
    words = np.setdiff1d(np.arange(len(tokenizer)), tokenizer.all_special_ids)
    return Specials(
        before=tokenizer.cls_token_id,
        after=tokenizer.sep_token_id,
        mask=tokenizer.mask_token_id,
        padding=tokenizer.pad_token_id,
        words=words,
        vocabulary=len(tokenizer),
    )


def _make_tokenizer(data: TextData, corpus: Corpus, folder: Path, report: Report | None) -> None:
    """Into a temporary folder first, so that it is there whole or not at all."""
    part = folder.with_name(folder.name + ".tmp")
    shutil.rmtree(part, ignore_errors=True)
    if data.tokenizer:
        _copy_tokenizer(data.tokenizer, part)
    else:
        logger.info("training a tokenizer of %d tokens.", data.vocabulary)

        def texts() -> Iterator[str]:
            progress = bytes_read(corpus, report, why="for the tokenizer")
            return (document.text for document in corpus.documents(progress))

        engine = train_wordpiece(texts, data.vocabulary, lowercase=data.lowercase)
        save_tokenizer(engine, part, longest=data.length + 2)
    part.rename(folder)


def _copy_tokenizer(name: str, folder: Path) -> None:
    """An existing tokenizer, kept with the run so that the folder is complete."""
    from transformers import AutoTokenizer

    from topicscope.text.tokenizers import model_source

    # Loaded once for its checks and one-sentence errors.
    load_tokenizer(name)
    AutoTokenizer.from_pretrained(model_source(name), trust_remote_code=False).save_pretrained(str(folder))


def _kept(corpus: Corpus) -> Corpus:
    if corpus.size is None or corpus.size > KEPT_BYTES:
        return corpus
    same = {each.name: getattr(corpus, each.name) for each in fields(Corpus)}
    return _KeptCorpus(**same)


@dataclass(frozen=True, eq=False, kw_only=True)
class _KeptCorpus(Corpus):
    """A small corpus, kept in memory once it was read: training a tokenizer and cutting passages both need it."""

    kept: list[Document] = field(default_factory=list)

    def documents(self, progress: Progress | None = None) -> Iterator[Document]:
        """All documents."""
        if not self.kept:
            self.kept.extend(super().documents(progress))
        yield from self.kept
