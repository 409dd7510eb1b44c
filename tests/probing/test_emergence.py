"""Topic structure of our own encoder: equal to the probe's own subject, and to loops over all pairs."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from support.planted import words_of_one_token
from support.text_corpus import small_text, small_text_settings
from topicscope.model.encoder import Encoder, encoder_weights
from topicscope.probing.emergence import Emergence
from topicscope.probing.models import EncoderSubject, HuggingFaceModel, Loading, Subject
from topicscope.probing.sources import find_model
from topicscope.probing.statistics.labelling import Labelling
from topicscope.training.text import export

SETTINGS = small_text_settings(model={"scale": 0.4, "attention_scale": 0.4})
TEXT = small_text()


@pytest.fixture
def encoder() -> Encoder:
    draw = np.random.default_rng(0)
    return Encoder(SETTINGS.model, encoder_weights(SETTINGS.model, 30, SETTINGS.positions, generator=draw))


def some_passages(count: int = 12) -> list[np.ndarray]:
    return [TEXT.tokens[TEXT.offsets[place] : TEXT.offsets[place + 1]] for place in range(count)]


def some_emergence(shuffled: bool = False) -> Emergence:
    tokens = np.arange(5, 17)
    topic = np.arange(12) % 3
    if shuffled:
        topic = np.random.default_rng(1).permutation(topic)
    labelling = Labelling(np.eye(3, dtype=bool)[topic], tokens=tokens)
    passages = some_passages()
    return Emergence(
        labelling=labelling,
        passages=tuple(passages),
        words=tuple(words_of_one_token(30).places(tokens)[passage] for passage in passages),
        articles=TEXT.articles[:12].astype(np.int64),
        replicates=50,
    )


def test_our_encoder_is_the_subject_that_its_hugging_face_folder_is(encoder: Encoder, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "tokenizer").mkdir()
    export(encoder, TEXT.specials, tmp_path / "tokenizer", tmp_path / "model", longest=SETTINGS.positions)
    source, loading = find_model(str(tmp_path / "model")), Loading(device="cpu", length=SETTINGS.positions)
    theirs = HuggingFaceModel(source, ([1], [2]), loading)
    ours = EncoderSubject(encoder, before=1, after=2)
    assert isinstance(ours, Subject)
    assert (ours.layers, ours.heads, ours.causal, ours.first) == (theirs.layers, theirs.heads, theirs.causal, 0)
    assert ours.embedding_matrix() == pytest.approx(theirs.embedding_matrix())
    words = np.array([5, 9, 11])
    assert ours.embedding_layer(words) == pytest.approx(theirs.embedding_layer(words), abs=1e-5)
    passages = some_passages(5)
    expected = inside(theirs.run(passages).attention, passages)
    assert inside(ours.run(passages).attention, passages) == pytest.approx(expected, abs=1e-5)
    swapped = EncoderSubject(encoder, before=2, after=1)
    assert inside(swapped.run(passages).attention, passages) != pytest.approx(expected, abs=1e-3)


def inside(layers: list[torch.Tensor], passages: Sequence[np.ndarray]) -> np.ndarray:
    """What is not padding's, one after another."""
    lengths = [len(passage) for passage in passages]
    return np.concatenate(
        [layer[place, :, :length, :length].numpy().ravel() for layer in layers for place, length in enumerate(lengths)]
    )


def slow_attention_ratio(subject: EncoderSubject, emergence: Emergence, layer: int, head: int) -> float:
    """Averages over all pairs of positions, one by one, attention × length / 100."""
    topic = dict(zip(emergence.labelling.tokens.tolist(), emergence.labelling.topic.tolist(), strict=True))
    same: list[float] = []
    different: list[float] = []
    for passage in emergence.passages:
        attention = subject.run([passage]).attention[layer][0, head].numpy()
        for query, key in itertools.permutations(range(len(passage)), 2):
            first, second = int(passage[query]), int(passage[key])
            if first in topic and second in topic and first != second:
                group = same if topic[first] == topic[second] else different
                group.append(attention[query, key] * len(passage) / 100)
    return float(np.mean(same) / np.mean(different))


def test_measures_are_those_of_loops_over_all_pairs(encoder: Encoder) -> None:
    emergence, subject = some_emergence(), EncoderSubject(encoder, before=1, after=2)
    found = emergence.measure(subject)
    for layer, head in ((0, 0), (1, 1)):
        expected = slow_attention_ratio(subject, emergence, layer, head)
        assert np.exp(found["attention-by-head"][layer, head]) == pytest.approx(expected, rel=1e-5)
        other = slow_attention_ratio(subject, some_emergence(shuffled=True), layer, head)
        assert abs(other - expected) > 1e-3
    vectors = subject.embedding_layer(emergence.labelling.tokens).astype(float)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    topic = emergence.labelling.topic
    pairs = list(itertools.combinations(range(12), 2))
    same = np.mean([vectors[i] @ vectors[j] for i, j in pairs if topic[i] == topic[j]])
    different = np.mean([vectors[i] @ vectors[j] for i, j in pairs if topic[i] != topic[j]])
    assert found["embedding/difference"] == pytest.approx(same - different, rel=1e-5)
    assert abs(same - different) > 1e-4


def test_measuring_twice_gives_the_same_and_planted_structure_shows(encoder: Encoder) -> None:
    emergence, subject = some_emergence(), EncoderSubject(encoder, before=1, after=2)
    first = emergence.measure(subject)
    again = emergence.measure(subject)
    assert all(np.array_equal(again[name], values, equal_nan=True) for name, values in first.items())
    table = encoder.parameter("embedding").data
    for word, topic in zip(emergence.labelling.tokens, emergence.labelling.topic, strict=True):
        table[word, topic] += 3.0
    planted = emergence.measure(subject)
    assert planted["embedding-matrix/difference"] > first["embedding-matrix/difference"] + 0.3
