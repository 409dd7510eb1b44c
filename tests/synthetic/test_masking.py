from dataclasses import replace

import numpy as np
import pytest

from topicscope.settings import Data, Masking
from topicscope.synthetic.documents import Documents, MaskedDocuments
from topicscope.synthetic.masking import expected_frequencies, mask_documents
from topicscope.synthetic.topics import TopicModel, sample_documents

SCHEMES = [Masking(), Masking(mask=0.4, keep=0.2, random=0.5), Masking(mask=0.3, keep=0.7, random=0.3)]


def masked_sample(masking: Masking, length: int = 40, count: int = 3000) -> tuple[TopicModel, MaskedDocuments]:
    model = TopicModel.from_settings(Data(topics=3, words=4, length=(length, length)))
    draw = np.random.default_rng(1)
    documents = sample_documents(model, count, generator=draw)
    return model, mask_documents(documents, masking, model.vocabulary, generator=draw)


@pytest.mark.parametrize("masking", SCHEMES)
@pytest.mark.parametrize("length", [3, 40])
def test_token_frequencies_after_masking_are_those_of_d17(masking: Masking, length: int) -> None:
    model, documents = masked_sample(masking, length)
    found = documents.frequencies(model.vocabulary)
    # The mask is conditioned on not being empty.
    some_masked, words = 1 - (1 - masking.mask) ** length, np.full(12, 1 / 12)
    expected = expected_frequencies(words, replace(masking, mask=masking.mask / some_masked))
    error = found.std(axis=0, ddof=1) / np.sqrt(len(found))
    assert (abs(found.mean(axis=0) - expected) <= 5 * error + 1e-12).all()
    wrong = expected_frequencies(words, Masking(mask=0.25 / some_masked, keep=0.1, random=0.1))
    assert (abs(found.mean(axis=0) - wrong) > 5 * error + 1e-12).any()


def test_infinite_documents_have_the_frequencies_of_d17_as_printed() -> None:
    found = expected_frequencies(np.array([0.2, 0.8]), Masking(mask=0.15, keep=0.1, random=0.1))
    assert found == pytest.approx([0.15 * 0.8, 0.2 * 0.865 + 0.015 / 2, 0.8 * 0.865 + 0.015 / 2])
    assert found.sum() == pytest.approx(1)


@pytest.mark.parametrize("masking", SCHEMES)
def test_masked_positions_are_kept_random_or_mask_with_their_probabilities(masking: Masking) -> None:
    _, documents = masked_sample(masking)
    where = documents.masked
    became_mask = (documents.tokens[where] == 0).astype(float)
    changed = ((documents.tokens[where] != documents.words[where]) & (documents.tokens[where] != 0)).astype(float)
    # A random word is the word itself once in twelve times.
    for found, expected in ((became_mask, masking.replaced), (changed, masking.random * 11 / 12)):
        error = np.sqrt(max(expected * (1 - expected), 1e-12) / len(found))
        assert abs(found.mean() - expected) <= 5 * error
        assert abs(found.mean() - (expected + 0.1)) > 5 * error


def test_positions_that_are_not_masked_keep_their_word() -> None:
    _, documents = masked_sample(Masking(mask=0.5, keep=0.0, random=0.5))
    assert (documents.tokens[~documents.masked] == documents.words[~documents.masked]).all()
    assert (documents.tokens[documents.masked] != documents.words[documents.masked]).any()


def test_every_document_has_a_masked_position_even_if_short() -> None:
    _, documents = masked_sample(Masking(mask=0.05), length=2)
    assert np.add.reduceat(documents.masked, documents.offsets[:-1]).min() >= 1


def test_redrawing_conditions_on_a_mask_that_is_not_empty() -> None:
    """Of two positions, P(both masked | at least one) = p/(2 − p); redrawing single positions would give p."""
    probability = 0.3
    _, documents = masked_sample(Masking(mask=probability), length=2, count=20_000)
    both = documents.masked[::2] & documents.masked[1::2]
    expected = probability / (2 - probability)
    error = np.sqrt(expected * (1 - expected) / len(both))
    assert abs(both.mean() - expected) <= 5 * error
    assert abs(both.mean() - probability) > 5 * error


def test_with_hidden_keys_no_document_is_masked_altogether() -> None:
    draw = np.random.default_rng(2)
    documents = Documents(np.full(2000, 2, dtype=np.int32), np.ones(4000, dtype=np.int32))
    hidden = mask_documents(documents, Masking(mask=0.6), 5, needs_visible_key=True, generator=draw)
    visible = mask_documents(documents, Masking(mask=0.6), 5, generator=draw)
    assert (np.add.reduceat(hidden.masked, hidden.offsets[:-1], dtype=int) == 1).all()
    assert (np.add.reduceat(visible.masked, visible.offsets[:-1], dtype=int) == 2).any()
