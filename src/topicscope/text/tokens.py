"""Passages: documents cut to a model's length, as tokens in files that are mapped, not loaded."""

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Int, Int32, Int64

from topicscope.errors import InputError, UnreadableError, check_at_least
from topicscope.records import PASSAGES, READ_AGAIN, Count, File, PassagesFile
from topicscope.store import remove_leftovers
from topicscope.text.corpora import Corpus, Progress
from topicscope.text.stop_words import LanguageGuess
from topicscope.text.tokenizers import Encoded, Tokenizer

# A passage of one token has no pair of tokens.
SHORTEST = 2
# How many documents are encoded at once at most, and how many characters (a longer document is encoded alone).
BATCH, BATCH_CHARACTERS = 64, 1 << 21
ARRAYS = {"tokens": "<i4", "spellings": "<i4", "offsets": "<i8", "articles": "<i4"}
Several = list[tuple[str, list[Count]]]
SEVERAL = File[Several]("several-token-words.json", Several, READ_AGAIN)
# Raised when the same corpus and tokenizer give other passages: those that were written before are then cut anew.
VERSION = 2


@dataclass(frozen=True, eq=False)
class Passages:
    """Passages, end to end. The arrays are files on disk and take no memory."""

    tokens: Int32[np.ndarray, " token_position"]
    """All tokens, without special ones."""

    spellings: Int32[np.ndarray, " token_position"]
    """The word that begins at this place, as it is spelled: the token that is the whole word ("frog" in "frog", not in
    "frog ##let"), or the place among ``several``, counted from the tokenizer's size on; −1 if none begins here."""

    offsets: Int64[np.ndarray, " passage_plus_one"]
    """Where each passage begins; the last number is where the last one ends."""

    articles: Int32[np.ndarray, " passage"]
    """The document that each passage comes from."""

    about: PassagesFile
    """Source, tokenizer, length, counts, and what went wrong while reading."""

    several: Sequence[tuple[str, Sequence[int]]] = ()
    """Words of several tokens, if they were asked for: as each was first written in the text, and its tokens."""

    @property
    def digest(self) -> str:
        """Identifies the content."""
        return self.about.digest

    @property
    def whole_share(self) -> float:
        """The share of the text's words that the tokenizer keeps whole."""
        return self.about.words_whole / max(self.about.words, 1)

    def __len__(self) -> int:
        return len(self.articles)

    def __getitem__(self, passage: int) -> Int32[np.ndarray, " position"]:
        return self.tokens[self.offsets[passage] : self.offsets[passage + 1]]

    def spelled(self, passage: int) -> Int32[np.ndarray, " position"]:
        """The spelling that begins at each of the passage's positions, −1 where none does."""
        return self.spellings[self.offsets[passage] : self.offsets[passage + 1]]

    def __iter__(self) -> Iterator[Int32[np.ndarray, " position"]]:
        return (self[passage] for passage in range(len(self)))

    @property
    def lengths(self) -> Int64[np.ndarray, " passage"]:
        """How many tokens each passage has."""
        return np.diff(self.offsets)

    @property
    def for_topics(self) -> Int64[np.ndarray, " chosen"]:
        """Passages of the half of the articles that topics are fitted on."""
        return np.flatnonzero(half(self.articles))

    @property
    def for_measures(self) -> Int64[np.ndarray, " chosen"]:
        """Passages of the other half, for measuring."""
        return np.flatnonzero(~half(self.articles))


def half(articles: Int[np.ndarray, " passage"]) -> Bool[np.ndarray, " passage"]:
    """Which articles topics are fitted on: one of every two neighbours, chosen by a hash of their place.

    So the halves are equal for every corpus, and an article's half does not depend on later articles.
    """
    pair = articles.astype(np.uint64) >> np.uint64(1)
    # The finaliser of SplitMix64: each bit of the result depends on all of the number.
    mixed = (pair + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((mixed >> np.uint64(63)) ^ (articles.astype(np.uint64) & np.uint64(1))).astype(bool)


def write_passages(
    corpus: Corpus,
    tokenizer: Tokenizer,
    *,
    length: int,
    folder: Path,
    every: int = 1,
    several: bool = False,
    progress: Progress | None = None,
) -> Passages:
    """Cut all documents into passages of at most ``length`` tokens, at the beginning of words where possible.

    every: keep one passage in so many.
    several: words of several tokens count as words too.
    The folder is written anew unless it holds exactly these passages, undamaged.
    """
    check_at_least("length", length, SHORTEST)
    asked: dict[str, Any] = {
        "version": VERSION,
        "corpus": corpus.digest,
        "tokenizer": tokenizer.digest,
        "length": length,
        "every": every,
        "several_tokens": several,
    }
    with contextlib.suppress(InputError):
        there = open_passages(folder)
        same = all(getattr(there.about, name) == value for name, value in asked.items())
        # A disk or a copy may have changed what was written.
        if same and there.digest == _digest(folder):
            return there
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PASSAGES.name).unlink(missing_ok=True)
    remove_leftovers(folder)
    seen = passages = tokens = documents = words = words_whole = used = 0
    spellings: dict[tuple[int, ...], tuple[int, str]] = {}
    guess = LanguageGuess()
    with contextlib.ExitStack() as stack:
        files = {name: stack.enter_context((folder / f"{name}.bin").open("wb")) for name in ARRAYS}

        def write(name: str, values: np.ndarray) -> None:
            files[name].write(values.astype(ARRAYS[name]).tobytes())

        write("offsets", np.zeros(1))
        for documents, (text, encoded) in enumerate(_encoded(corpus.documents(progress), tokenizer), start=1):
            cuts = cut(encoded.starts, length)
            kept = cuts[(seen + np.arange(len(cuts))) % every == 0]
            seen += len(cuts)
            guess.see(text)
            words += int((encoded.word_tokens > 0).sum()) + encoded.unknown
            words_whole += int(encoded.whole.sum())
            spelled = np.where(encoded.whole, encoded.tokens, np.int32(-1))
            sizes = encoded.word_tokens
            for place in np.flatnonzero(sizes > 1).tolist() if several else ():
                end = place + int(sizes[place])
                surface = text[encoded.spans[place, 0] : encoded.spans[end - 1, 1]].strip()
                new = (tokenizer.size + len(spellings), surface)
                spelled[place] = spellings.setdefault(tuple(encoded.tokens[place:end].tolist()), new)[0]
            ends = np.arange(len(sizes)) + sizes
            for first, last in kept.tolist():
                tokens += last - first
                passages += 1
                # A word longer than a passage is cut, and then no longer counts as a word.
                inside = np.where(ends[first:last] <= last, spelled[first:last], -1)
                used += int((inside >= 0).sum())
                write("tokens", encoded.tokens[first:last])
                write("spellings", inside)
                write("offsets", np.array([tokens]))
                write("articles", np.array([documents - 1]))
    if not passages:
        raise InputError(
            f'corpus = "{corpus.source}" has no passage of {SHORTEST} tokens or more: give a corpus with longer texts.'
        )
    if not used:
        raise InputError(
            f'The tokenizer of "{tokenizer.name}" keeps no word of corpus = "{corpus.source}" whole: '
            "give a model whose tokens are words, a corpus in its language, or `topicscope probe` --several-tokens."
        )
    SEVERAL.write(folder, [(surface, list(pieces)) for pieces, (_, surface) in spellings.items()])
    about = PassagesFile(
        **asked,
        source=corpus.source,
        tokenizer_name=tokenizer.name,
        passages=passages,
        tokens=tokens,
        documents=documents,
        words=words,
        words_whole=words_whole,
        language=guess.language(),
        problems=[f"{corpus.source}: {sentence}." for sentence in corpus.problems.sentences()],
        digest=_digest(folder),
    )
    # Written last: an interrupted set is never taken for a whole one.
    PASSAGES.write(folder, about)
    return open_passages(folder)


def open_passages(folder: Path) -> Passages:
    """Passages that were written to a folder."""
    try:
        about = PASSAGES.read(folder)
        sizes = {
            "tokens": about.tokens,
            "spellings": about.tokens,
            "offsets": about.passages + 1,
            "articles": about.passages,
        }
        arrays = {
            name: np.memmap(folder / f"{name}.bin", dtype=ARRAYS[name], mode="r", shape=(size,))
            for name, size in sizes.items()
        }
        several = SEVERAL.read(folder)
    except (UnreadableError, OSError, ValueError, OverflowError) as error:
        reason = error.reason if isinstance(error, UnreadableError) else error
        raise InputError(f"{folder} has no whole set of passages ({reason}): write them again.") from None
    return Passages(about=about, several=several, **arrays)


def _digest(folder: Path) -> str:
    """Identifies the content of the files as they are now."""
    digest = hashlib.sha256()
    for name in (*(f"{name}.bin" for name in ARRAYS), SEVERAL.name):
        with (folder / name).open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:20]


def cut(starts: Bool[np.ndarray, " token"], length: int) -> Int64[np.ndarray, "passage two"]:
    """The first place of each passage and the one after its last; only a word longer than a passage is cut."""
    allowed = np.append(np.flatnonzero(starts), len(starts))
    cuts, first = [], 0
    while first < len(starts):
        last = int(allowed[np.searchsorted(allowed, first + length, side="right") - 1])
        # No word begins within reach: this one is longer than a passage.
        last = last if last > first else min(first + length, len(starts))
        if last - first >= SHORTEST:
            cuts.append((first, last))
        first = last
    return np.array(cuts, dtype=np.int64).reshape(-1, 2)


def _encoded(documents: Iterator[str], tokenizer: Tokenizer) -> Iterator[tuple[str, Encoded]]:
    batch: list[str] = []
    for text in documents:
        batch.append(text)
        if len(batch) == BATCH or sum(map(len, batch)) > BATCH_CHARACTERS:
            yield from zip(batch, tokenizer.encode(batch), strict=True)
            batch = []
    yield from zip(batch, tokenizer.encode(batch), strict=True)
