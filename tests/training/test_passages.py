"""Passages of training: which are seen when, and which of their tokens are masked."""

import dataclasses
from itertools import pairwise

import numpy as np
import pytest

from support.text_corpus import small_text, small_text_settings
from topicscope.errors import InputError
from topicscope.randomness import Purpose, generator
from topicscope.settings.text import TextSettings
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.synthetic.masking import mask_documents
from topicscope.training.batches import PassageStream, Text

pytest.importorskip("tokenizers")
pytest.importorskip("transformers")


def test_masks_spare_special_tokens_and_random_words_are_words() -> None:
    settings = small_text_settings(masking={"mask": 0.5, "random": 0.5, "keep": 0.0})
    stream = PassageStream(settings, small_text(vocabulary=12))
    seen = [stream.batch(step) for step in range(300)]
    masked = np.concatenate([each.masked for each in seen])
    tokens = np.concatenate([each.tokens for each in seen])
    words = np.concatenate([each.words for each in seen])
    assert set(tokens[~masked]) <= set(range(5, 12))
    assert (tokens[~masked] == words[~masked]).all()
    drawn = tokens[masked & (tokens != 3)]
    # Of the masked positions half become [MASK], the others one of the 7 words, equally likely: 5 standard errors.
    count = masked.sum()
    assert (tokens[masked] == 3).sum() == pytest.approx(count / 2, abs=5 * np.sqrt(count) / 2)
    shares = np.bincount(drawn, minlength=12)[5:] / len(drawn)
    assert shares == pytest.approx(np.full(7, 1 / 7), abs=5 * np.sqrt(6 / 49 / len(drawn)))
    assert all(each.masked_counts.min() >= 1 for each in seen)


def test_special_tokens_in_the_text_are_never_masked_and_passages_of_nothing_else_are_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain, settings = small_text(), small_text_settings(masking={"mask": 0.5})
    assert all(
        np.array_equal(PassageStream(settings, plain).batch(step).masked, unrestricted(settings, plain, step).masked)
        for step in range(5)
    )
    # A third of the tokens unknown (4), and one passage altogether.
    tokens = np.where(np.random.default_rng(1).random(len(plain.tokens)) < 1 / 3, np.int32(4), plain.tokens)
    tokens[plain.offsets[7] : plain.offsets[8]] = 4
    text = dataclasses.replace(plain, tokens=tokens)
    monkeypatch.setattr("topicscope.training.batches.BLOCK", 50)
    stream = PassageStream(settings, text)
    counted = [int((tokens[first:last] >= 5).sum()) for first, last in pairwise(text.offsets)]
    assert text.word_counts().tolist() == counted
    assert 7 not in {*stream.passages, *stream.held_out}
    assert 7 in {*PassageStream(settings, plain).passages, *PassageStream(settings, plain).held_out}
    seen = [stream.batch(step) for step in range(40)]
    assert all(each.targets.min() >= 5 for each in seen)
    assert all(each.masked_counts.min() >= 1 for each in seen)
    # Unknown tokens are seen, and without the restriction would be targets.
    assert any((each.tokens == 4).any() for each in seen)
    assert any((unrestricted(settings, text, step).targets == 4).any() for step in range(5))
    unknown = dataclasses.replace(text, tokens=np.full_like(tokens, 4))
    with pytest.raises(InputError, match="one of them known to the tokenizer"):
        PassageStream(settings, unknown)


def unrestricted(settings: TextSettings, text: Text, step: int) -> MaskedDocuments:
    """The step's passages masked anywhere."""
    chosen = PassageStream(settings, text).passages[PassageStream(settings, text).passes.span(step * 6, 6)]
    draw = generator(settings.seed, Purpose.MASKS, step)
    return mask_documents(text.select(chosen), settings.masking, 30, mask_token=3, generator=draw)


def test_each_pass_sees_every_passage_once_and_no_held_out_one() -> None:
    text = small_text(passages=60)
    stream = PassageStream(small_text_settings(), text)
    assert len(stream.passages) == 54
    steps = len(stream.passages) // 6
    seen = sorted(place for step in range(steps) for place in stream.passes.span(step * 6, 6).tolist())
    assert seen == list(range(54))
    held_out = stream.validation()
    assert held_out is not None
    assert len(held_out) == 6
    trained_on = set(text.articles[stream.passages].tolist())
    assert len(trained_on) == 18
    assert not trained_on & set(text.articles[stream.held_out].tolist())
