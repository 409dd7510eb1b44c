"""A WordPiece tokenizer trained on a corpus: BERT's normalisation and words, the same vocabulary every time.

The library's trainer numbers the letters that go on a word in no fixed order, and breaks ties between merges by these
numbers, so two trainings on the same text differ. Here all letters are given to it beforehand, in order.
"""

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from topicscope.errors import InputError
from topicscope.settings.checks import refuse

PADDING, UNKNOWN, BEFORE, AFTER, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL = (PADDING, UNKNOWN, BEFORE, AFTER, MASK)
CONTINUES = "##"
# Letters beyond the most frequent ones are unknown, as in BERT's own vocabulary.
MOST_LETTERS = 1_000
# Blocks of ideographs, each of which BERT takes for a word.
IDEOGRAPHS = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2FA1F))


def train_wordpiece(texts: Callable[[], Iterable[str]], size: int, *, lowercase: bool = True) -> Any:
    """A ``tokenizers.Tokenizer`` of exactly ``size`` tokens; ``texts`` is called twice, and must give the same."""
    tokenizers = _library()
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
    engine.train_from_iterator(texts(), trainer)
    found = engine.get_vocab()
    if len(found) < size:
        raise refuse(
            "data.vocabulary", size, f"the corpus supports {len(found)} tokens at most; lower it, or give more text"
        )
    return _engine(tokenizers, normalizer, found)


def save_tokenizer(engine: Any, folder: Path, *, longest: int) -> None:
    """Write it as a folder that Hugging Face's ``AutoTokenizer`` loads."""
    try:
        from transformers import PreTrainedTokenizerFast
    except ImportError:
        raise InputError('saving a tokenizer needs transformers: pip install "topicscope[language]".') from None
    whole = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
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


def _library() -> Any:
    try:
        import tokenizers
    except ImportError:
        raise InputError('training a tokenizer needs tokenizers: pip install "topicscope[language]".') from None
    return tokenizers
