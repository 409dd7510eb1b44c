"""The setting that theory is asked about: one topic model, read both as LDA and as documents of τ topics."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields

from topicscope.errors import InputError, refuse
from topicscope.settings.data import Data, Masking, Sampler
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.classes import ClassMatrix
from topicscope.theory.landscape import InfiniteDocuments
from topicscope.theory.lemma1 import require_topic_sets
from topicscope.theory.theorem2 import Pattern, diagonal_classes, theorem2_classes

SAMPLERS: tuple[Sampler, ...] = ("topics", "dirichlet")


@dataclass(frozen=True, kw_only=True)
class TheorySetting:
    """T, v, τ, the masking scheme, and the finite documents."""

    topics: int = Data.topics
    """T, the number of topics."""
    words: int = Data.words
    """v, the number of words per topic."""
    per_document: int = Data.per_document
    """τ, the number of topics per document (Assumption 1, and the τ-topic sampler)."""
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
    topic_words: str = ""
    """Your own topics, which may overlap: a matrix (.csv, .tsv or .npy) with a row per topic and a column per word."""

    def __post_init__(self) -> None:
        with errors_with_option_names():
            Masking(mask=self.mask, keep=self.keep, random=self.random)
            if self.topic_words:
                self._take_sizes({"topics": self.topics, "words": self.words})
            for sampler in SAMPLERS:
                self.data(sampler)

    def _take_sizes(self, given: dict[str, int]) -> None:
        """T and v of your own topics; v is 0 where they are not like the paper's, and giving others is refused."""
        object.__setattr__(self, "topic_words", str(self.topic_words))
        object.__setattr__(self, "words", 0)
        model, _ = (TopicModel.from_settings(self.data(sampler)) for sampler in SAMPLERS)
        for name, own in (("topics", model.topics), ("words", model.equal_words or 0)):
            if given[name] not in (own, getattr(Data, name)):
                raise refuse(name, given[name], "topic_words says how many there are; leave it out")
            object.__setattr__(self, name, own)

    @property
    def masking(self) -> Masking:
        """The masking scheme."""
        return Masking(mask=self.mask, keep=self.keep, random=self.random)

    @property
    def equal_topics(self) -> bool:
        """Whether topics are disjoint sets of equally many, equally likely words, as the theorems need."""
        return not self.topic_words or self.words > 0

    def require_equal_topics(self) -> None:
        """Refuse your own topics where a theorem is about the paper's."""
        if not self.equal_topics:
            raise InputError(
                f"topic_words = {self.topic_words} has topics that are not disjoint sets of equally many, equally "
                "likely words, as is needed here: leave it out; the exact optimum of your own topics is in `theory`."
            )

    @property
    def infinite(self) -> InfiniteDocuments:
        """Assumption 1's documents."""
        self.require_equal_topics()
        return InfiniteDocuments(
            topics=self.topics, per_document=self.per_document, words=self.words, masking=self.masking
        )

    def value(self, pattern: Pattern = "block") -> ClassMatrix:
        """Theorem 2's W^V ("block") or that of appendix D.4 ("diagonal"); refused where Lemma 1 does not hold."""
        self.require_equal_topics()
        require_topic_sets(self.topics, self.per_document)
        classes = theorem2_classes if pattern == "block" else diagonal_classes
        return classes(self.topics, self.words, self.masking)

    def data(self, sampler: Sampler) -> Data:
        """The settings of finite documents of this sampler; those of τ topics have no Dirichlet."""
        return Data(
            sampler=sampler,
            **{"topics": self.topics, "words": self.words} if self.equal_topics else {"topic_words": self.topic_words},
            per_document=self.per_document,
            dirichlet=self.dirichlet if sampler == "dirichlet" else Data.dirichlet,
            length=self.length,
        )

    def __str__(self) -> str:
        words = f"v = {self.words}" if self.equal_topics else f"topics of {self.topic_words}"
        masking = f"p_m = {self.mask}, p_c = {self.keep}, p_r = {self.random}"
        return f"T = {self.topics}, {words}, τ = {self.per_document}, {masking}"


@contextmanager
def errors_with_option_names() -> Iterator[None]:
    """Errors raised inside name the settings as this setting does: ``mask`` instead of ``masking.mask``."""
    try:
        yield
    except InputError as error:
        names = "|".join(field.name for kind in (Data, Masking) for field in fields(kind))
        raise InputError(re.sub(rf"\b(?:data|masking)\.({names})\b", r"\1", str(error))) from None
