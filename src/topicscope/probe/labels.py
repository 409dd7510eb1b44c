"""Which words belong to which topics: what every measure of the probe is taken against."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from topicscope.probe.settings import Assignment


@dataclass(frozen=True, eq=False)
class Labels:
    """Words with their topics.

    Two words are of the same topic if they share one; a word with itself is "same word", never "same topic".
    """

    name: str
    """For people and for rows of results: ``0.0005/one/seed0``."""

    tokens: Int[np.ndarray, " word"]
    """The tokenizer's number of each word: distinct, ascending."""

    membership: Bool[np.ndarray, "word topic"]
    """Whether the word belongs to the topic: one True a row if the assignment is ``one``, at least one if not."""

    fraction: float | None
    """Ambiguity threshold: words a topic as a fraction of LDA's vocabulary; None for a user's own topics."""

    assignment: Assignment
    """``one``: each word keeps one topic (Table 1). ``several``: all that it is among the likeliest of (Table 5)."""

    seed: int | None
    """LDA's seed; None for a user's own topics."""

    topic_names: tuple[str, ...] = ()
    """Of a user's own topics; LDA's have numbers alone. For people: no number depends on them."""

    def __post_init__(self) -> None:
        assert (np.diff(self.tokens) > 0).all(), "tokens must be distinct and ascending"
        topics = self.membership.sum(axis=1)
        assert (topics == 1).all() if self.assignment == "one" else (topics >= 1).all()

    @property
    def words(self) -> int:
        """How many words are labelled."""
        return len(self.tokens)

    @property
    def topics(self) -> int:
        """How many topics have a word."""
        return int(self.membership.any(axis=0).sum())

    @property
    def topic(self) -> Int[np.ndarray, " word"]:
        """Each word's topic, if words have one each."""
        assert self.assignment == "one", "words have several topics: use membership"
        return self.membership.argmax(axis=1)
