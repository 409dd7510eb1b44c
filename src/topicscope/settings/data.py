"""Settings of the documents, drawn from a topic model (§3.1, §6.1) or read from a corpus, and of masking (§3.2)."""

from dataclasses import dataclass
from typing import Literal

from topicscope.errors import check_at_least, refuse
from topicscope.settings.values import settle

Sampler = Literal["dirichlet", "topics"]
Layout = Literal["auto", "lines", "paragraphs", "files"]
Device = Literal["auto", "cpu", "cuda", "mps"]
# Lengths are counted in 32 bits.
LONGEST = 2**31 - 1
# Sums of probabilities that differ from 1 by less than this count as 1, since 0.7 + 0.3 and the like are rounded.
ROUNDING = 1e-12
# Far below it the gamma function's values and products of two parameters overflow or vanish.
SMALLEST_DIRICHLET = 1e-100
# [CLS] before a passage and [SEP] after it, or START and END around a document.
SPECIAL_POSITIONS = 2
# A passage of one token has nothing beside it to be predicted from.
SHORTEST_PASSAGE = 2
# Positions that are masked more rarely are never seen, and reciprocals of the probability overflow.
SMALLEST_MASK = 1e-12
# Far above it the sum A + 1 rounds to A, and in the end A overflows.
LARGEST_DIRICHLET_SUM = 1e15


@dataclass(frozen=True, kw_only=True)
class Data:
    """The topic model that documents are drawn from, and how many are drawn."""

    sampler: Sampler = "dirichlet"
    """A document's topics. "dirichlet": proportions from a Dirichlet (LDA, §6.1); "topics": τ distinct topics, equally
    likely (§3.1)."""

    topics: int = 10
    """T, the number of topics."""

    words: int = 10
    """v, the number of words per topic; word i belongs to topic ⌈i/v⌉."""

    per_document: int = 2
    """τ, the number of topics per document, for the "topics" sampler."""

    dirichlet: tuple[float, ...] = (0.1,)
    """The Dirichlet's parameter: one number for all topics, or one per topic."""

    topic_words: str = ""
    """A topic-word matrix (.npy, .csv or .tsv; rows are topics, columns words) instead of T equal topics of v words."""

    length: tuple[int, int] = (100, 150)
    """Shortest and longest document; lengths are uniform between them, both included."""

    ends: bool = False
    """Begin each document with START and end it with END, tokens of no topic that are never masked, as the released
    code has them; lengths count the words between them."""

    fresh: bool = False
    """Draw new documents at every step instead of a fixed set."""

    documents: int = 10_000
    """How many documents the fixed set has."""

    def __post_init__(self) -> None:
        settle(self, "data.")
        check_at_least("data.per_document", self.per_document, 1)
        check_at_least("data.documents", self.documents, 1)
        total = sum(self.dirichlet) * (max(self.topics, 1) if len(self.dirichlet) == 1 else 1)
        if not (min(self.dirichlet, default=1) >= SMALLEST_DIRICHLET and total <= LARGEST_DIRICHLET_SUM):
            remedy = f"give numbers from {SMALLEST_DIRICHLET:g} up, with a sum over all topics of at most "
            raise refuse("data.dirichlet", self.dirichlet, f"{remedy}{LARGEST_DIRICHLET_SUM:g}")
        shortest, longest = self.length
        if not 1 <= shortest <= longest <= LONGEST:
            remedy = f"give the shortest length, 1 or more, then the longest, not below it and at most {LONGEST}"
            raise refuse("data.length", self.length, remedy)
        if self.topic_words:
            self._take_sizes_from_the_file()
        else:
            self._check_sizes()

    @property
    def longest(self) -> int:
        """How many positions the longest document has."""
        return self.length[1] + SPECIAL_POSITIONS * self.ends

    @property
    def shortest(self) -> int:
        """How many of its positions can be masked in the shortest document."""
        return self.length[0]

    def _take_sizes_from_the_file(self) -> None:
        """With a topic-word matrix T and v are its own: they are recorded as 0, and giving others is refused."""
        for name in ("topics", "words"):
            if getattr(self, name) not in (0, getattr(Data, name)):
                raise refuse(
                    f"data.{name}", getattr(self, name), "data.topic_words says how many there are; leave it out"
                )
            object.__setattr__(self, name, 0)

    def _check_sizes(self) -> None:
        check_at_least("data.topics", self.topics, 1)
        check_at_least("data.words", self.words, 1)
        # The Dirichlet sampler has no τ: its default may exceed T, but a τ that was given may not.
        if self.per_document > self.topics and (self.sampler == "topics" or self.per_document != Data.per_document):
            remedy = f"a document cannot have more than data.topics = {self.topics} distinct topics"
            raise refuse("data.per_document", self.per_document, remedy)
        if len(self.dirichlet) not in (1, self.topics):
            remedy = f"give one number, or one for each of the data.topics = {self.topics} topics"
            raise refuse("data.dirichlet", self.dirichlet, remedy)


@dataclass(frozen=True, kw_only=True)
class TextData:
    """A corpus, its tokenizer, and how articles are cut into passages."""

    corpus: str
    """As for ``topicscope probe``: wiki-sample, a file (text, JSON lines or a Wikipedia dump), a folder, or a Hugging
    Face dataset as NAME or NAME:CONFIG."""

    field: str = "text"
    """The field of JSON lines and datasets, or the column of a CSV file, that holds the text."""

    split: str = "train"
    """Which part of a dataset."""

    layout: Layout = "auto"
    """What a document is in plain text: each line, paragraph or file."""

    tokenizer: str = ""
    """The folder or name of an existing tokenizer; if empty, WordPiece is trained on the corpus."""

    vocabulary: int = 8_000
    """Size of the vocabulary that is trained, special tokens included; not for an existing tokenizer."""

    lowercase: bool = True
    """Whether the tokenizer that is trained lowercases letters and drops accents, as BERT's uncased one does."""

    length: int = 126
    """Tokens per passage, without [CLS] and [SEP]; the last passage of an article is shorter."""

    held_out: float = 0.05
    """The share of articles that is not trained on; the loss on it is the validation loss."""

    def __post_init__(self) -> None:
        settle(self, "data.")
        if not self.corpus:
            raise refuse("data.corpus", self.corpus, "name a corpus to train on")
        if self.tokenizer and self.vocabulary != TextData.vocabulary:
            raise refuse("data.vocabulary", self.vocabulary, "data.tokenizer has a vocabulary already; leave it out")
        check_at_least("data.vocabulary", self.vocabulary, 1)
        check_at_least("data.length", self.length, SHORTEST_PASSAGE)
        if not 0 <= self.held_out < 1:
            raise refuse("data.held_out", self.held_out, "give a share from 0 up to, but not including, 1")

    @property
    def longest(self) -> int:
        """How many positions the longest passage has."""
        return self.length + SPECIAL_POSITIONS

    @property
    def shortest(self) -> int:
        """How many of its positions can be masked in the shortest passage."""
        return 1


@dataclass(frozen=True, kw_only=True)
class Masking:
    """The masking scheme of §3.2."""

    mask: float = 0.15
    """p_m, the probability that a position is masked (chosen to be predicted)."""

    keep: float = 0.1
    """p_c, the probability that a masked position keeps its word."""

    random: float = 0.1
    """p_r, the probability that a masked position gets a random word."""

    fixed: bool = False
    """Draw each document's mask once instead of afresh for each use (for a fixed set of documents)."""

    def __post_init__(self) -> None:
        settle(self, "masking.")
        for name in ("mask", "keep", "random"):
            value, least = getattr(self, name), f"{SMALLEST_MASK:g} to 1"
            if not (SMALLEST_MASK <= value <= 1 or (value == 0 and name != "mask")):
                allowed = f"from {least}" if name == "mask" else f"0, or from {least}"
                raise refuse(f"masking.{name}", value, f"give a probability, {allowed}")
        if self.keep + self.random > 1 + ROUNDING:
            remedy = "together they may be at most 1; lower one of them"
            raise refuse("masking.keep + masking.random", self.keep + self.random, remedy)

    @property
    def replaced(self) -> float:
        """1 − p_c − p_r, the probability that a masked position becomes [MASK]; 0 if it is only rounding."""
        left = 1.0 - self.keep - self.random
        return left if left > ROUNDING else 0.0
