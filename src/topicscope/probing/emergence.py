"""Topic structure of a model while it trains: the probe's measures, on words and passages that stay the same.

Topics are fitted on one half of the articles and attention is measured on the other. Words, passages and bootstrap
draws are the same at every step, so that steps can be compared.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from topicscope.errors import InputError
from topicscope.probing.models import EncoderSubject
from topicscope.probing.settings import TopicOptions
from topicscope.probing.statistics.attention import AttentionTotals, PairAccumulator, passage_pairs
from topicscope.probing.statistics.labelling import DIFFERENT_TOPIC, SAME_TOPIC, Labelling, TopicDraws
from topicscope.probing.statistics.resampling import contrast
from topicscope.probing.statistics.similarity import Similarities, prepared
from topicscope.probing.topics import Fitting, fit_topics, label_words
from topicscope.randomness import Purpose, generator
from topicscope.records import Comparison
from topicscope.settings.text import TextSettings, TextTopics
from topicscope.text.tokenizers import Tokenizer
from topicscope.text.tokens import Passages
from topicscope.text.words import Words

if TYPE_CHECKING:
    from topicscope.model.encoder import Encoder
    from topicscope.training.text import Measure, PreparedText

# Passages per forward pass.
BATCH = 32
# What is kept of a comparison, and how its name ends.
FIELDS = {
    "ratio": "",
    "low": "/low",
    "high": "/high",
    "difference": "/difference",
    "difference_low": "/difference-low",
    "difference_high": "/difference-high",
}


@dataclass(frozen=True, eq=False)
class Emergence:
    """What is measured at every step: labelled words, and passages with the words in them."""

    labelling: Labelling
    passages: tuple[Int[np.ndarray, " _"], ...]
    words: tuple[Int[np.ndarray, " _"], ...]
    """Which labelled word each position of the passage is, −1 for none."""

    articles: Int[np.ndarray, " passage"]
    replicates: int
    seed: int = 0

    def measure(self, subject: EncoderSubject) -> dict[str, Float[np.ndarray, "..."]]:
        """Same- against different-topic averages: of embeddings, and of attention in all, by layer and by head.

        Under each name is the logarithm of the ratio, and under ``NAME/low``, ``NAME/high``, ``NAME/difference`` and so
        on the rest; NaN for what is not defined.
        """
        measured: dict[str, np.ndarray] = {}
        for name, comparisons in (self._embeddings(subject) | self._attention(subject)).items():
            grid = np.array(comparisons, dtype=object)
            for field, end in FIELDS.items():
                values = np.array([getattr(one, field) for one in grid.ravel()], dtype=np.float64).reshape(grid.shape)
                if field in ("ratio", "low", "high"):
                    with np.errstate(invalid="ignore", divide="ignore"):
                        values = np.where(values > 0, np.log(values), np.nan)
                measured[name + end] = values
        return measured

    def _embeddings(self, subject: EncoderSubject) -> dict[str, Any]:
        """Cosine similarity of all pairs of labelled words: in the embedding matrix and after the embedding layer."""
        draw, tokens = generator(self.seed, Purpose.BOOTSTRAP), self.labelling.tokens
        weights = TopicDraws.draw(self.labelling, self.replicates, generator=draw).weights(self.labelling)
        similarities = Similarities(self.labelling, weights)
        for vectors in (subject.embedding_matrix()[tokens], subject.embedding_layer(tokens)):
            ready = prepared(vectors, "cosine")
            similarities.add(ready @ ready.T)
        averages = similarities.averages()
        return {
            name: contrast(averages.same[at], averages.different[at])
            for at, name in enumerate(("embedding-matrix", "embedding"))
        }

    def _attention(self, subject: EncoderSubject) -> dict[str, Any]:
        accumulator = PairAccumulator((self.labelling,), subject.layers, subject.heads)
        for first in range(0, len(self.passages), BATCH):
            batch = slice(first, first + BATCH)
            attention = [layer.numpy() for layer in subject.run(self.passages[batch]).attention]
            for number, (words, article) in enumerate(zip(self.words[batch], self.articles[batch], strict=True)):
                inside = [layer[number, :, : len(words), : len(words)] for layer in attention]
                accumulator.add(passage_pairs(inside, words), int(article))
        totals = AttentionTotals([accumulator.result()], self.replicates, self.seed)
        averages = totals.averages(0)
        return {
            "attention": _contrast(averages.mean(axis=(2, 3))),
            "attention-by-layer": [_contrast(averages[:, :, layer].mean(axis=2)) for layer in range(subject.layers)],
            "attention-by-head": [
                [_contrast(averages[:, :, layer, head]) for head in range(subject.heads)]
                for layer in range(subject.layers)
            ],
        }


def _contrast(averages: Float[np.ndarray, "replicate class"]) -> Comparison:
    return contrast(averages[:, SAME_TOPIC], averages[:, DIFFERENT_TOPIC])


def prepare_emergence(passages: Passages, tokenizer: Tokenizer, settings: TextTopics, folder: Path) -> Emergence:
    """Fit topics (found again in the folder) and choose the passages to measure on."""
    options = TopicOptions(topics=settings.count, iterations=settings.iterations)
    # While a model trains its tokens are its words, as in its loss.
    words = Words.of(passages, tokenizer, merged=False)
    [fitted] = fit_topics(passages, words, options, Fitting(folder, judged=False))
    # ⌊f V⌋ + 1 words are kept of V.
    fraction = min((settings.words - 0.5) / len(fitted.tokens), 0.99)
    chosen = label_words(fitted, fraction, "one")
    candidates = passages.for_measures
    if not len(candidates):
        raise InputError(
            "topics.passages cannot be drawn: all articles are in the half that topics are fitted on; give a corpus "
            "with more articles, or training.measures = 0."
        )
    draw = generator(0, Purpose.MEASURE)
    drawn = np.sort(draw.permutation(candidates)[: settings.passages])
    return Emergence(
        labelling=chosen,
        passages=tuple(np.asarray(passages[place]) for place in drawn.tolist()),
        words=tuple(words.places(chosen.tokens)[passages.spelled(place)] for place in drawn.tolist()),
        articles=passages.articles[drawn].astype(np.int64),
        replicates=settings.replicates,
    )


def measuring(folder: Path) -> "Callable[[PreparedText, TextSettings], Measure]":
    """What training calls to make the function that measures topic structure at a step.

    Topics are fitted then, and kept in the folder's ``topics``. Training and the probe do not know each other: training
    is given this function, and the probe a model with embeddings and attention.
    """

    def make(prepared: "PreparedText", settings: TextSettings) -> "Measure":
        emergence = prepare_emergence(prepared.passages, prepared.tokenizer, settings.topics, Path(folder) / "topics")
        specials = prepared.text.specials

        def measure(encoder: "Encoder") -> dict[str, np.ndarray]:
            return emergence.measure(EncoderSubject(encoder, specials.before, specials.after))

        return measure

    return make
