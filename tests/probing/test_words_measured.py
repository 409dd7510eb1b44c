"""What is measured of words: planted structure in words of several tokens is found, that of spellings alone is not."""

from pathlib import Path

import numpy as np
import pytest

from support.made_up_tokenizers import byte_level
from support.planted_model import PlantedModel
from topicscope.probing.passes import Plan, Text, attention_sums
from topicscope.probing.statistics.attention import AttentionTotals
from topicscope.probing.statistics.labelling import DIFFERENT_TOPIC, SAME_TOPIC, Labelling, TopicWeights
from topicscope.probing.statistics.pairs import PairTable
from topicscope.probing.statistics.similarity import Similarities, prepared
from topicscope.text.corpora import open_corpus
from topicscope.text.tokens import write_passages
from topicscope.text.words import Words, mean_vectors

WORDS, TOPICS = 12, 3
# Word w is the tokens w and WORDS + w, both of topic w % TOPICS.
MODEL = PlantedModel(np.arange(2 * WORDS) % WORDS % TOPICS, weights=(5.0, 3.0, 2.0), common=0.5, topical=1.5)


@pytest.mark.parametrize(("tokens", "factor"), [(2, 2.0), (1, 1.0)])
def test_attention_between_words_of_two_tokens_is_the_planted_one_times_their_tokens(
    tokens: int, factor: float
) -> None:
    """Both tokens of a key are summed, those of a query averaged; with one token per word (the control) nothing is."""
    draw = np.random.default_rng(0)
    chosen = [draw.integers(WORDS, size=15) for _ in range(20)]
    passages = [np.stack([words, words + WORDS], axis=1).ravel() for words in chosen]
    # Spellings of several tokens have numbers from the tokenizer's size on.
    spellings = [
        np.stack([words + (2 * WORDS if tokens == 2 else 0), np.full_like(words, -1)], axis=1).ravel()
        for words in chosen
    ]
    numbers = np.arange(3 * WORDS + 1)
    places = np.where(numbers < 2 * WORDS, np.where(numbers < WORDS, numbers, -1), numbers - 2 * WORDS)
    places[-1] = -1
    lengths = np.where(numbers < 2 * WORDS, 1, 2)
    lengths[-1] = 1
    labelling = Labelling(np.arange(WORDS)[:, None] % TOPICS == np.arange(TOPICS), assignment="one")
    plan = Plan((labelling,), np.ones(WORDS), PairTable.merged(WORDS, []), 1, 0, places, lengths)
    texts = [Text(each, spelled, place) for place, (each, spelled) in enumerate(zip(passages, spellings, strict=True))]
    shard = attention_sums(MODEL, texts, plan=plan, batch=100)
    found = AttentionTotals([shard], 2, 0).averages(0)[0]
    assert found[SAME_TOPIC, 0] == pytest.approx(factor * 0.03, rel=1e-5)
    assert found[DIFFERENT_TOPIC, 0] == pytest.approx(factor * 0.02, rel=1e-5)


def test_likeness_of_spellings_alone_is_no_topic_structure(tmp_path: Path) -> None:
    names = [first + rest for first in "bdgfklmnprst" for rest in ("ana", "olo")]
    variants = [f" {name}" for name in names] + [f" {name.capitalize()}" for name in names]
    tokenizer = byte_level(*variants)
    (tmp_path / "text").write_text(" " + " ".join(variant.strip() for variant in variants * 3))
    passages = write_passages(open_corpus(str(tmp_path / "text")), tokenizer, length=500, folder=tmp_path / "passages")
    # Both spellings of a word have one vector, and words of a topic have nothing in common.
    draw, vectors = np.random.default_rng(1), np.zeros((tokenizer.size, 200))
    for name in names:
        own = draw.normal(size=200)
        for spelled in (name, name.capitalize()):
            vectors[tokenizer.engine.token_to_id(f"Ġ{spelled}")] = own

    def difference(words: Words) -> float:
        numbers = np.unique(words.word[passages.spellings[passages.spellings >= 0]])
        topic = np.array([names.index(name.lower()) % 8 for name in words.named(numbers)])
        labelling = Labelling(topic[:, None] == np.arange(8), tokens=numbers, assignment="one")
        tokens, mean = words.token_means(numbers)
        ready, ones = prepared(mean_vectors(mean, vectors[tokens]), "cosine"), np.ones((1, len(numbers)))
        similarities = Similarities(labelling, TopicWeights(ones, ones))
        similarities.add(ready @ ready.T)
        averages = similarities.averages()
        return float(averages.same[0, 0] - averages.different[0, 0])

    # Of the pairs of a topic of 3 words in 2 spellings, 3 of 15 are one word: a fifth of them have cosine 1.
    assert difference(Words.of(passages, tokenizer, merged=False)) == pytest.approx(0.2, abs=0.05)
    # A cosine of two random vectors has a standard deviation of 1/√200; there are 24 same-topic pairs.
    assert abs(difference(Words.of(passages, tokenizer))) < 5 / np.sqrt(200 * 24)
