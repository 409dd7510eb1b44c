"""The setting that theory is asked about: one topic model, read both as LDA and as documents of τ topics."""

from dataclasses import dataclass
from functools import cached_property

from topicscope.errors import InputError
from topicscope.settings.data import Data, Masking, Sampler
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.attention import InfiniteDocuments


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
    """The Dirichlet's parameter of LDA documents: one number for all topics, or one a topic."""

    length: tuple[int, int] = Data.length
    """Shortest and longest finite document."""

    def __post_init__(self) -> None:
        try:
            for sampler in ("topics", "dirichlet"):
                self.data(sampler)
            Masking(mask=self.mask, keep=self.keep, random=self.random)
        except InputError as error:
            # The settings' own checks, under the names that these options have.
            raise InputError(str(error).replace("data.", "").replace("masking.", "")) from None

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

    @cached_property
    def lda(self) -> TopicModel:
        """Finite documents with Dirichlet proportions."""
        return TopicModel.from_settings(self.data("dirichlet"))

    @cached_property
    def topic_sets(self) -> TopicModel:
        """Finite documents of τ topics."""
        return TopicModel.from_settings(self.data("topics"))

    def data(self, sampler: Sampler) -> Data:
        """The settings of finite documents of this sampler."""
        return Data(
            sampler=sampler,
            topics=self.topics,
            words=self.words,
            per_document=self.per_document,
            dirichlet=self.dirichlet,
            length=self.length,
        )
