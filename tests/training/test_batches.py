"""Which documents and passages each step sees, and which of their tokens are masked."""

import dataclasses
from itertools import pairwise

import numpy as np
import pytest

from support.helpers import batch_of, small_settings
from support.text_corpus import small_text, small_text_settings
from topicscope.errors import InputError
from topicscope.randomness import Purpose, generator
from topicscope.settings import Data, Settings
from topicscope.settings.text import TextSettings
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.synthetic.masking import mask_documents
from topicscope.synthetic.topics import TopicModel
from topicscope.training.batches import MOST_CELLS, BatchStream, PassageStream, Text, steps_per_chunk


def stream(settings: Settings) -> BatchStream:
    return BatchStream(settings, TopicModel.from_settings(settings.data))


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
    for step in range(epochs * settings.data.documents // settings.training.batch):
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


def test_masks_spare_special_tokens_and_random_words_are_words() -> None:
    settings = small_text_settings(masking={"mask": 0.5, "random": 0.5, "keep": 0.0})
    stream = PassageStream(settings, small_text(vocabulary=12))
    seen = [stream.chunk(step) for step in range(300)]
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
        np.array_equal(PassageStream(settings, plain).chunk(step).masked, unrestricted(settings, plain, step).masked)
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
    seen = [stream.chunk(step) for step in range(40)]
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
