"""Which documents, masked how, each training step sees: a function of the settings and the step alone."""

from functools import lru_cache

import numpy as np

from topicscope.randomness import Purpose, generator
from topicscope.settings import Settings
from topicscope.synthetic.documents import Documents, MaskedDocuments
from topicscope.synthetic.masking import mask_documents
from topicscope.synthetic.topics import TopicModel, sample_documents

# Documents are drawn and masked for some steps at once: one large draw costs less than many small ones. These bounds,
# on the steps and on what a draw may hold, are part of the results, since each chunk has a generator of its own.
MOST_STEPS = 64
MOST_CELLS = 400_000


def steps_per_chunk(settings: Settings, vocabulary: int) -> int:
    """How many steps' documents are drawn at once: a power of two, decided by the settings alone."""
    cells = settings.training.batch * max(settings.data.length[1], vocabulary)
    return min(MOST_STEPS, 1 << max(0, (MOST_CELLS // cells).bit_length() - 1))


class BatchStream:
    """Batches by step number, the same whichever step is asked for first."""

    def __init__(self, settings: Settings, topic_model: TopicModel) -> None:
        self.settings = settings
        self.topic_model = topic_model
        self.steps = steps_per_chunk(settings, topic_model.vocabulary)
        """Steps whose documents are drawn at once."""

        self._documents: Documents | None = None
        self._masked_once: MaskedDocuments | None = None
        if not settings.data.fresh:
            draw = generator(settings.seed, Purpose.DOCUMENTS)
            self._documents = self._sample(settings.data.documents, draw)
            if settings.masking.fixed:
                self._masked_once = self._mask(self._documents, generator(settings.seed, Purpose.MASKS))
        self._chunk = lru_cache(maxsize=1)(self.chunk)
        self._order = lru_cache(maxsize=2)(self._draw_order)

    def batch(self, step: int) -> MaskedDocuments:
        """The masked documents of a step."""
        chunk, place = divmod(step, self.steps)
        size = self.settings.training.batch
        return self._chunk(chunk).span(place * size, (place + 1) * size)

    def held_out(self, count: int, purpose: Purpose) -> MaskedDocuments:
        """Documents that are not trained on, with masks drawn once: steps can be compared on them."""
        draw = generator(self.settings.seed, purpose)
        return self._mask(self._sample(count, draw), draw)

    def chunk(self, chunk: int) -> MaskedDocuments:
        """The masked documents of ``steps`` steps, batch after batch; drawn at every call."""
        count = self.steps * self.settings.training.batch
        if self._documents is None:
            draw = generator(self.settings.seed, Purpose.DOCUMENTS, chunk)
            return self._mask(self._sample(count, draw), draw)
        chosen = self._chosen(chunk * count, count)
        if self._masked_once is not None:
            return self._masked_once.select(chosen)
        return self._mask(self._documents.select(chosen), generator(self.settings.seed, Purpose.MASKS, chunk))

    def _chosen(self, first: int, count: int) -> np.ndarray:
        """Documents first … first + count − 1 of an endless series of shuffled passes over the fixed set."""
        epoch, place = np.divmod(np.arange(first, first + count), self.settings.data.documents)
        chosen = np.empty(count, dtype=np.int64)
        for number in np.unique(epoch):
            chosen[epoch == number] = self._order(int(number))[place[epoch == number]]
        return chosen

    def _draw_order(self, epoch: int) -> np.ndarray:
        return generator(self.settings.seed, Purpose.ORDER, epoch).permutation(self.settings.data.documents)

    def _sample(self, count: int, draw: np.random.Generator) -> Documents:
        """A model without positions cannot tell in which order words stand, and each is masked whatever the others.

        So for it the order is not drawn: loss and gradients have the same distribution.
        """
        shuffled = self.settings.model.positions != "none"
        return sample_documents(self.topic_model, count, shuffled=shuffled, generator=draw)

    def _mask(self, documents: Documents, draw: np.random.Generator) -> MaskedDocuments:
        return mask_documents(
            documents,
            self.settings.masking,
            self.topic_model.vocabulary,
            needs_visible_key=self.settings.model.masked_keys == "hidden",
            generator=draw,
        )
