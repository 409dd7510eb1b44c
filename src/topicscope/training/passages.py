"""Which passages of a text, masked how, each training step sees: a function of the settings and the step alone."""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from jaxtyping import Bool, Int

from topicscope.errors import InputError
from topicscope.randomness import Purpose, generator
from topicscope.settings.text import SHORTEST_PASSAGE, TextSettings
from topicscope.synthetic.documents import Documents, MaskedDocuments
from topicscope.synthetic.masking import mask_documents

# Held-out articles are the same for every seed, so that runs can be compared on them.
HELD_OUT_SEED = 0
# Tokens looked at in one go when passages are chosen: those of a large corpus stay on disk.
BLOCK = 1 << 24


@dataclass(frozen=True, eq=False)
class Specials:
    """What training must know of a tokenizer: its special tokens, and its words."""

    before: int
    """What BERT calls [CLS]."""

    after: int
    """[SEP]."""

    mask: int
    padding: int
    words: Int[np.ndarray, " word"]
    """All tokens that are not special: what is masked and predicted, and what a random word is drawn from."""

    vocabulary: int

    @cached_property
    def is_word(self) -> Bool[np.ndarray, " token"]:
        """Whether each token of the vocabulary is one of the words."""
        return np.isin(np.arange(self.vocabulary), self.words)


@dataclass(frozen=True, eq=False)
class Text:
    """Passages of content tokens, end to end, special ones only for what is unknown; the arrays may be on disk."""

    tokens: Int[np.ndarray, " token_position"]
    offsets: Int[np.ndarray, " bound"]
    """Where each passage begins, and at the end where the last one stops."""

    articles: Int[np.ndarray, " passage"]
    """The article that each passage is of."""

    specials: Specials

    @cached_property
    def lengths(self) -> Int[np.ndarray, " passage"]:
        """Tokens of each passage."""
        return np.diff(self.offsets)

    def word_counts(self) -> Int[np.ndarray, " passage"]:
        """Tokens of each passage that are words, so can be masked."""
        others = np.zeros(len(self.lengths), dtype=np.int64)
        for first in range(0, len(self.tokens), BLOCK):
            where = first + np.flatnonzero(~self.specials.is_word[self.tokens[first : first + BLOCK]])
            others += np.bincount(np.searchsorted(self.offsets, where, side="right") - 1, minlength=len(others))
        return self.lengths - others

    def select(self, chosen: Int[np.ndarray, " chosen"]) -> Documents:
        """These passages, in this order."""
        lengths = self.lengths[chosen]
        starts = np.cumsum(lengths) - lengths
        positions = np.arange(lengths.sum()) + np.repeat(self.offsets[chosen] - starts, lengths)
        return Documents(lengths.astype(np.int32), np.asarray(self.tokens[positions], dtype=np.int32))


class PassageStream:
    """Batches by step number, the same whichever step is asked for first."""

    def __init__(self, settings: TextSettings, text: Text) -> None:
        self.settings, self.text = settings, text
        usable = np.flatnonzero((text.lengths >= SHORTEST_PASSAGE) & (text.word_counts() > 0))
        out = np.isin(text.articles[usable], _held_out_articles(text.articles, settings.data.held_out))
        self.passages, self._held_out = usable[~out], usable[out]
        if not len(self.passages):
            raise InputError(
                f'data.corpus = "{settings.data.corpus}" has no passage of {SHORTEST_PASSAGE} tokens or more, '
                "one of them known to the tokenizer, to train on: give a corpus with longer articles, or lower "
                "data.every or data.held_out."
            )
        self._order = lru_cache(maxsize=2)(self._draw_order)

    def batch(self, step: int) -> MaskedDocuments:
        """The masked passages of a step."""
        size = self.settings.training.batch
        chosen = self.passages[self._chosen(step * size, size)]
        return self._mask(self.text.select(chosen), generator(self.settings.seed, Purpose.MASKS, step))

    def held_out(self) -> MaskedDocuments | None:
        """Passages of articles that are not trained on, with masks drawn once: steps can be compared on them."""
        draw = generator(HELD_OUT_SEED, Purpose.VALIDATION, 1)
        chosen = draw.permutation(self._held_out)[: self.settings.training.validation_passages]
        return self._mask(self.text.select(chosen), draw) if len(chosen) else None

    def _chosen(self, first: int, count: int) -> Int[np.ndarray, " chosen"]:
        """Numbers first … first + count − 1 of an endless series of shuffled passes over the passages."""
        epoch, place = np.divmod(np.arange(first, first + count), len(self.passages))
        chosen = np.empty(count, dtype=np.int64)
        for number in np.unique(epoch):
            chosen[epoch == number] = self._order(int(number))[place[epoch == number]]
        return chosen

    def _draw_order(self, epoch: int) -> Int[np.ndarray, " passage"]:
        return generator(self.settings.seed, Purpose.ORDER, epoch).permutation(len(self.passages))

    def _mask(self, passages: Documents, draw: np.random.Generator) -> MaskedDocuments:
        specials = self.text.specials
        return mask_documents(
            passages,
            self.settings.masking,
            specials.vocabulary,
            mask_token=specials.mask,
            words=specials.words,
            maskable=specials.is_word[passages.tokens],
            generator=draw,
        )


def _held_out_articles(articles: Int[np.ndarray, " passage"], share: float) -> Int[np.ndarray, " article"]:
    """A share of the articles, at least one if any are asked for and more than one are there."""
    found = np.unique(articles)
    count = min(max(round(share * len(found)), 1 if share else 0), len(found) - 1)
    return generator(HELD_OUT_SEED, Purpose.VALIDATION).permutation(found)[:count]
