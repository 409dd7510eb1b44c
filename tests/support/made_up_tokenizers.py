"""Tokenizers of three kinds with a few words each."""

from tokenizers import Tokenizer as Engine
from tokenizers import decoders, models, pre_tokenizers

from topicscope.text.tokenizers import Tokenizer, from_engine

PIECES = ["[UNK]", "frog", "##let", "##s", "toad", "pond", "in", "the", "naïve", ".", "'", "7"]


def word_pieces() -> Tokenizer:
    engine = Engine(models.WordPiece({piece: place for place, piece in enumerate(PIECES)}, unk_token="[UNK]"))
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    # Saved tokenizers often cut and pad.
    engine.enable_truncation(3)
    engine.enable_padding(length=16)
    return from_engine(engine, name="pieces", longest=16)


def byte_level(*words: str) -> Tokenizer:
    """GPT-2's kind: a word after a space is a token of its own."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {sign: place for place, sign in enumerate(alphabet)}
    merges: list[tuple[str, str]] = []
    for word in words:
        signs = word.replace(" ", "Ġ")
        for end in range(1, len(signs)):
            merges.append((signs[:end], signs[end]))
            vocabulary.setdefault(signs[: end + 1], len(vocabulary))
    engine = Engine(models.BPE(vocabulary, list(dict.fromkeys(merges))))
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    return from_engine(engine, name="bytes")


def metaspace(*words: str) -> Tokenizer:
    """SentencePiece's kind: words begin with a sign for the space and are split at spaces alone."""
    pieces = [(piece, -1.0) for piece in ("<unk>", "▁", *words)] + [
        (sign, -9.0) for sign in "abcdefghijklmnopqrstuvwxyz,."
    ]
    engine = Engine(models.Unigram(pieces, unk_id=0, byte_fallback=False))
    engine.pre_tokenizer = pre_tokenizers.Metaspace()
    engine.decoder = decoders.Metaspace()
    return from_engine(engine, name="spaces")
