"""Which documents and passages each step sees, and which of their tokens are masked."""

import dataclasses
from functools import partial

import numpy as np
import pytest

from support.helpers import batch_of, small_settings
from support.text_corpus import small_text, small_text_settings
from topicscope.errors import InputError
from topicscope.randomness import Purpose
from topicscope.settings import Data, Settings
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.synthetic.topics import TopicModel
from topicscope.training.batches import MOST_CELLS, BatchStream, PassageStream, steps_per_chunk


def stream(settings: Settings) -> BatchStream:
    return BatchStream(settings, TopicModel.from_settings(settings.documents))


def same(left: MaskedDocuments, right: MaskedDocuments) -> bool:
    pairs = ((left.tokens, right.tokens), (left.words, right.words), (left.masked, right.masked))
    return all(np.array_equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("fresh", [False, True])
def test_a_steps_batch_does_not_depend_on_the_steps_before_it(fresh: bool) -> None:
    settings = small_settings(data={"fresh": fresh})
    in_order = stream(settings)
    first = in_order.steps
    batches = [batch_of(in_order, step) for step in range(2 * first + 8)]
    jumping = stream(settings)
    # Within what is drawn at once, and on both sides of its bounds.
    for step in (2 * first + 7, 3, first + 1, first, first - 1):
        assert same(batch_of(jumping, step), batches[step])
    assert not same(batches[0], batches[1])


@pytest.mark.parametrize(
    ("length", "words", "steps"), [((100, 150), 10, 64), ((100, 150), 100, 8), ((1, 10_000), 10, 1), ((5, 5), 10**5, 1)]
)
def test_what_is_drawn_at_once_is_bounded(length: tuple[int, int], words: int, steps: int) -> None:
    settings = Settings(data=Data(length=length, words=words))
    assert steps_per_chunk(settings, 10 * words + 1) == steps
    assert steps == 1 or 40 * max(length[1], 10 * words + 1) * steps <= MOST_CELLS


def test_the_seed_decides_documents_and_masks() -> None:
    """The released code has a seed that nothing reads."""
    assert same(batch_of(stream(small_settings(seed=1)), 0), batch_of(stream(small_settings(seed=1)), 0))
    assert not same(batch_of(stream(small_settings(seed=1)), 0), batch_of(stream(small_settings(seed=2)), 0))


def uses(settings: Settings, epochs: int) -> dict[tuple[int, ...], list[tuple[bool, ...]]]:
    """Each document of the fixed set (by its words) with the masks it got in each use."""
    found: dict[tuple[int, ...], list[tuple[bool, ...]]] = {}
    batches = stream(settings)
    for step in range(epochs * settings.documents.documents // settings.training.batch):
        batch = batch_of(batches, step)
        for first, last in zip(batch.offsets[:-1], batch.offsets[1:], strict=True):
            found.setdefault(tuple(batch.words[first:last]), []).append(tuple(batch.masked[first:last]))
    return found


def test_each_pass_uses_every_document_of_the_fixed_set_once() -> None:
    settings = small_settings(data={"length": [30, 40]})
    assert sorted(len(masks) for masks in uses(settings, epochs=3).values()) == [3] * 30


def test_masks_are_drawn_afresh_for_each_use_unless_fixed() -> None:
    """The released code draws masks once."""
    fresh = uses(small_settings(data={"length": [30, 40]}), epochs=2)
    fixed = uses(small_settings(data={"length": [30, 40]}, masking={"fixed": True}), epochs=2)
    assert all(len(set(masks)) == 2 for masks in fresh.values())
    assert all(len(set(masks)) == 1 for masks in fixed.values())


def test_random_words_are_never_mask() -> None:
    """The released code's random word can be a special token."""
    settings = small_settings(data={"fresh": True}, masking={"keep": 0.0, "random": 1.0})
    batches = stream(settings)
    tokens = np.concatenate([batch_of(batches, step).tokens for step in range(50)])
    assert set(np.unique(tokens).tolist()) == set(range(1, 7))


def test_validation_documents_are_not_those_trained_on() -> None:
    settings = small_settings(data={"length": [30, 40]})
    batches = stream(settings)
    held_out = batches.held_out(50, Purpose.VALIDATION)
    trained = set(uses(settings, epochs=1))
    words = {tuple(part) for part in np.split(held_out.words, held_out.offsets[1:-1])}
    assert not words & trained
    assert same(held_out, batches.held_out(50, Purpose.VALIDATION))


def passages_of(stream: PassageStream, steps: int) -> list[MaskedDocuments]:
    return [batch_of(stream, step) for step in range(steps)]


def test_passages_stand_between_special_tokens_that_are_never_masked_and_random_words_are_words() -> None:
    settings, text = small_text_settings(masking={"mask": 0.5, "random": 0.5, "keep": 0.0}), small_text(vocabulary=12)
    first = text.select(np.array([3, 1]))
    own = [text.tokens[text.offsets[place] : text.offsets[place + 1]].tolist() for place in (3, 1)]
    assert first.tokens.tolist() == [1, *own[0], 2, 1, *own[1], 2]
    assert first.lengths.tolist() == [len(own[0]) + 2, len(own[1]) + 2]
    seen = passages_of(PassageStream(settings, text), 300)
    masked = np.concatenate([each.masked for each in seen])
    tokens = np.concatenate([each.tokens for each in seen])
    words = np.concatenate([each.words for each in seen])
    assert set(tokens[~masked]) <= {1, 2, *range(5, 12)}
    assert words[masked].min() >= 5
    assert (tokens[~masked] == words[~masked]).all()
    drawn = tokens[masked & (tokens != 3)]
    # Of the masked positions half become [MASK], the others one of the 7 words, equally likely: 5 standard errors.
    count = masked.sum()
    assert (tokens[masked] == 3).sum() == pytest.approx(count / 2, abs=5 * np.sqrt(count) / 2)
    shares = np.bincount(drawn, minlength=12)[5:] / len(drawn)
    assert shares == pytest.approx(np.full(7, 1 / 7), abs=5 * np.sqrt(6 / 49 / len(drawn)))
    assert all(each.masked_counts.min() >= 1 for each in seen)


def test_unknown_tokens_are_never_masked_and_passages_of_nothing_else_are_not_used() -> None:
    plain, settings = small_text(), small_text_settings(masking={"mask": 0.5})
    # A third of the tokens unknown (4), and one passage altogether.
    tokens = np.where(np.random.default_rng(1).random(len(plain.tokens)) < 1 / 3, np.int32(4), plain.tokens)
    tokens[plain.offsets[7] : plain.offsets[8]] = 4
    text = dataclasses.replace(plain, tokens=tokens)
    used, all_of_them = (
        {*own.passages, *own._held_out} for own in map(partial(PassageStream, settings), (text, plain))
    )
    assert (7 in used, 7 in all_of_them) == (False, True)
    seen = passages_of(PassageStream(settings, text), 40)
    assert all(each.targets.min() >= 5 for each in seen)
    assert all(each.masked_counts.min() >= 1 for each in seen)
    # Unknown tokens are seen.
    assert any((each.tokens == 4).any() for each in seen)
    unknown = dataclasses.replace(text, tokens=np.full_like(tokens, 4))
    with pytest.raises(InputError, match="one of them known to the tokenizer"):
        PassageStream(settings, unknown)


def test_each_pass_sees_every_passage_once_and_no_held_out_one() -> None:
    text = small_text(passages=60)
    stream = PassageStream(small_text_settings(), text)
    assert len(stream.passages) == 54
    seen = [tuple(part) for batch in passages_of(stream, 9) for part in np.split(batch.words, batch.offsets[1:-1])]
    assert sorted(seen) == sorted(tuple(text.select(np.array([place])).tokens) for place in stream.passages)
    held_out = stream.held_out(8, Purpose.VALIDATION)
    assert held_out is not None
    assert len(held_out) == 6
    trained_on = set(text.articles[stream.passages].tolist())
    assert len(trained_on) == 18
    assert not trained_on & set(text.articles[stream._held_out].tolist())
