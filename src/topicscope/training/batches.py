"""Which documents of a topic model or passages of a text each training step sees, and how they are masked.

That is a function of the settings and the step alone: a stream returns the same batch of a step in whichever order
steps are asked for.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Int

from topicscope.errors import InputError
from topicscope.model.weights import Source
from topicscope.randomness import Purpose, generator
from topicscope.settings import Settings, TextData
from topicscope.settings.data import SHORTEST_PASSAGE
from topicscope.synthetic.documents import Documents, MaskedDocuments
from topicscope.synthetic.masking import mask_documents
from topicscope.synthetic.topics import TopicModel, sample_documents

# Documents are drawn and masked for some steps at once: one large draw costs less than many small ones. These bounds,
# on the steps and on what a draw may hold, are part of the results, since each chunk has a generator of its own.
MOST_STEPS = 64
MOST_CELLS = 400_000

# Held-out documents and articles are the same for every seed, so that runs can be compared on them.
HELD_OUT_SEED = 0
HELD_OUT_DOCUMENTS = 4_000


def shuffled_passes(seed: int, size: int, first: int, count: int) -> Int[np.ndarray, " chosen"]:
    """Numbers first … first + count − 1 of an endless series of shuffled passes over ``size`` documents."""
    epochs = range(first // size, (first + count - 1) // size + 1)
    series = [generator(seed, Purpose.ORDER, epoch).permutation(size) for epoch in epochs]
    return np.concatenate(series)[first % size :][:count]


def steps_per_chunk(settings: Settings, vocabulary: int) -> int:
    """How many steps' documents are drawn at once: a power of two, decided by the settings alone."""
    cells = settings.training.batch * max(settings.data.longest, vocabulary)
    return min(MOST_STEPS, 1 << max(0, (MOST_CELLS // cells).bit_length() - 1))


class BatchStream:
    """The documents of one seed, drawn from a topic model."""

    def __init__(self, settings: Settings, topic_model: TopicModel) -> None:
        self.settings, self.topic_model = settings, topic_model
        self.steps = steps_per_chunk(settings, topic_model.vocabulary)
        """Steps whose documents are drawn at once."""

    @cached_property
    def _documents(self) -> Documents:
        """The fixed set."""
        return self._sample(self.settings.documents.documents, generator(self.settings.seed, Purpose.DOCUMENTS))

    @cached_property
    def _masked_once(self) -> MaskedDocuments:
        return self._mask(self._documents, generator(self.settings.seed, Purpose.MASKS))

    def chunk(self, chunk: int) -> MaskedDocuments:
        """The masked documents of ``steps`` steps, batch after batch; drawn at every call."""
        seed, count = self.settings.seed, self.steps * self.settings.training.batch
        if self.settings.documents.fresh:
            draw = generator(seed, Purpose.DOCUMENTS, chunk)
            return self._mask(self._sample(count, draw), draw)
        chosen = shuffled_passes(seed, self.settings.documents.documents, chunk * count, count)
        if self.settings.masking.fixed:
            return self._masked_once.select(chosen)
        return self._mask(self._documents.select(chosen), generator(seed, Purpose.MASKS, chunk))

    def held_out(self, count: int, purpose: Purpose) -> MaskedDocuments:
        """Documents that are not trained on, with masks drawn once: steps can be compared on them."""
        draw = generator(self.settings.seed, purpose)
        return self._mask(self._sample(count, draw), draw)

    def _sample(self, count: int, draw: np.random.Generator) -> Documents:
        """Documents, with their words in random order if that matters.

        A model without positions does not see the order, and each word is masked independently of the others: without
        shuffling, loss and gradients have the same distribution.
        """
        shuffled = self.settings.model.positions != "none"
        return sample_documents(self.topic_model, count, shuffled=shuffled, generator=draw)

    def _mask(self, documents: Documents, draw: np.random.Generator) -> MaskedDocuments:
        model = self.topic_model
        return mask_documents(
            documents,
            self.settings.masking,
            model.vocabulary,
            needs_visible_key=self.settings.model.masked_keys == "hidden",
            maskable=documents.tokens < model.vocabulary - 2 if model.ends else None,
            generator=draw,
        )


def held_out_documents(settings: Settings, topic_model: TopicModel) -> MaskedDocuments:
    """Documents that no seed is trained on."""
    stream = BatchStream(replace(settings, seed=HELD_OUT_SEED), topic_model)
    return stream.held_out(HELD_OUT_DOCUMENTS, Purpose.MEASURE)


@dataclass(frozen=True, eq=False)
class Specials:
    """What training must know about a tokenizer: its special tokens, and its words."""

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
    """Passages of content tokens, end to end; the only special tokens are unknown ones. The arrays may be on disk."""

    tokens: Int[np.ndarray, " token_position"]
    offsets: Int[np.ndarray, " bound"]
    """Where each passage begins, and at the end where the last one stops."""

    articles: Int[np.ndarray, " passage"]
    """The article that each passage is of."""

    specials: Specials

    @property
    def vocabulary(self) -> int:
        """V, special tokens included."""
        return self.specials.vocabulary

    @cached_property
    def lengths(self) -> Int[np.ndarray, " passage"]:
        """How many tokens each passage has."""
        return np.diff(self.offsets)

    def select(self, chosen: Int[np.ndarray, " chosen"]) -> Documents:
        """These passages, in this order, each between the special tokens that a tokenizer puts around it."""
        lengths = self.lengths[chosen]
        starts = np.cumsum(lengths) - lengths
        places = np.arange(lengths.sum()) + np.repeat(self.offsets[chosen] - starts, lengths)
        passages = Documents(lengths.astype(np.int32), np.asarray(self.tokens[places], dtype=np.int32))
        return passages.between(self.specials.before, self.specials.after)


class PassageStream:
    """The passages of a text in the order of one seed."""

    def __init__(self, settings: Settings, text: Text) -> None:
        self.settings, data = settings, settings.data
        assert isinstance(data, TextData)
        has_words = np.logical_or.reduceat(text.specials.is_word[text.tokens], text.offsets[:-1])
        usable = np.flatnonzero((text.lengths >= SHORTEST_PASSAGE) & has_words)
        out = np.isin(text.articles[usable], _held_out_articles(text.articles, data.held_out))
        self.text, self.passages, self._held_out = text, usable[~out], usable[out]
        if not len(self.passages):
            raise InputError(
                f'data.corpus = "{data.corpus}" has no passage of {SHORTEST_PASSAGE} tokens or more, one of them known '
                "to the tokenizer, to train on: give a corpus with longer articles, or lower data.held_out."
            )
        self.steps = steps_per_chunk(settings, text.vocabulary)

    def chunk(self, chunk: int) -> MaskedDocuments:
        """As that of a ``BatchStream``."""
        seed, count = self.settings.seed, self.steps * self.settings.training.batch
        chosen = shuffled_passes(seed, len(self.passages), chunk * count, count)
        return self._mask(self.passages[chosen], generator(seed, Purpose.MASKS, chunk))

    def held_out(self, count: int, purpose: Purpose) -> MaskedDocuments | None:
        """Passages of articles that are not trained on, masked, the same for every seed; None if there are none."""
        draw = generator(HELD_OUT_SEED, purpose, 1)
        chosen = draw.permutation(self._held_out)[:count]
        return self._mask(chosen, draw) if len(chosen) else None

    def _mask(self, chosen: Int[np.ndarray, " passage"], draw: np.random.Generator) -> MaskedDocuments:
        passages, specials = self.text.select(chosen), self.text.specials
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
    """A share of the articles, at least one if the share is above 0 and there is more than one article."""
    found = np.unique(articles)
    count = min(max(round(share * len(found)), 1 if share else 0), len(found) - 1)
    return generator(HELD_OUT_SEED, Purpose.VALIDATION).permutation(found)[:count]


def stream_of(settings: Settings, seed: int, source: Source) -> BatchStream | PassageStream:
    """The documents of a seed."""
    settings = replace(settings, seed=seed)
    if isinstance(source, Text):
        return PassageStream(settings, source)
    assert isinstance(source, TopicModel)
    return BatchStream(settings, source)
