"""The setting that theory is asked about: one topic model, read both as LDA and as documents of τ topics."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from topicscope.errors import InputError
from topicscope.settings.data import Data, Masking, Sampler
from topicscope.theory.classes import ClassMatrix
from topicscope.theory.landscape import InfiniteDocuments
from topicscope.theory.lemma1 import require_topic_sets
from topicscope.theory.theorem2 import Pattern, diagonal_classes, theorem2_classes


@dataclass(frozen=True, kw_only=True)
class TheorySetting:
    """T, v, τ, the masking scheme, and the finite documents."""

    topics: int = Data.topics
    """T, the number of topics."""

    words: int = Data.words
    """v, the number of words of a topic."""

    per_document: int = Data.per_document
    """τ, the number of topics of a document (Assumption 1, and the τ-topic sampler)."""

    mask: float = Masking.mask
    """p_m, the probability that a position is masked."""

    keep: float = Masking.keep
    """p_c, the probability that a masked position keeps its word."""

    random: float = Masking.random
    """p_r, the probability that a masked position gets a random word."""

    dirichlet: tuple[float, ...] = Data.dirichlet
    """The Dirichlet's parameter of LDA documents: one number for all topics, or one per topic."""

    length: tuple[int, int] = Data.length
    """Shortest and longest finite document."""

    def __post_init__(self) -> None:
        with errors_with_option_names():
            for sampler in ("topics", "dirichlet"):
                self.data(sampler)
            Masking(mask=self.mask, keep=self.keep, random=self.random)

    @property
    def masking(self) -> Masking:
        """The masking scheme."""
        return Masking(mask=self.mask, keep=self.keep, random=self.random)

    @property
    def infinite(self) -> InfiniteDocuments:
        """Assumption 1's documents."""
        return InfiniteDocuments(
            topics=self.topics, per_document=self.per_document, words=self.words, masking=self.masking
        )

    def value(self, pattern: Pattern = "block") -> ClassMatrix:
        """Theorem 2's W^V ("block") or that of appendix D.4 ("diagonal"); refused where Lemma 1 does not hold."""
        require_topic_sets(self.topics, self.per_document)
        classes = theorem2_classes if pattern == "block" else diagonal_classes
        return classes(self.topics, self.words, self.masking)

    def data(self, sampler: Sampler) -> Data:
        """The settings of finite documents of this sampler."""
        return Data(
            sampler=sampler,
            topics=self.topics,
            words=self.words,
            per_document=self.per_document,
            # Documents of τ topics have no Dirichlet.
            dirichlet=self.dirichlet if sampler == "dirichlet" else Data.dirichlet,
            length=self.length,
        )


@contextmanager
def errors_with_option_names() -> Iterator[None]:
    """Bad input inside is told with the names that these options have."""
    try:
        yield
    except InputError as error:
        raise InputError(option_names(str(error))) from None


def option_names(message: str) -> str:
    """A message of the settings' checks, with the names that these options have."""
    return message.replace("data.", "").replace("masking.", "")
