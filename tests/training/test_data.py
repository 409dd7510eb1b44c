import numpy as np
import pytest

from support.helpers import small_settings
from topicscope.randomness import Purpose
from topicscope.settings import Data, Settings
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.synthetic.topics import TopicModel
from topicscope.training.batches import MOST_CELLS, BatchStream, steps_per_chunk


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
    batches = [in_order.batch(step) for step in range(2 * first + 8)]
    jumping = stream(settings)
    # Within what is drawn at once, and on both sides of its bounds.
    for step in (2 * first + 7, 3, first + 1, first, first - 1):
        assert same(jumping.batch(step), batches[step])
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
    assert same(stream(small_settings(seed=1)).batch(0), stream(small_settings(seed=1)).batch(0))
    assert not same(stream(small_settings(seed=1)).batch(0), stream(small_settings(seed=2)).batch(0))


def uses(settings: Settings, epochs: int) -> dict[tuple[int, ...], list[tuple[bool, ...]]]:
    """Each document of the fixed set (by its words) with the masks it got in each use."""
    found: dict[tuple[int, ...], list[tuple[bool, ...]]] = {}
    batches = stream(settings)
    for step in range(epochs * settings.data.documents // settings.training.batch):
        batch = batches.batch(step)
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
    tokens = np.concatenate([batches.batch(step).tokens for step in range(50)])
    assert set(np.unique(tokens).tolist()) == set(range(1, 7))


def test_validation_documents_are_not_those_trained_on() -> None:
    settings = small_settings(data={"length": [30, 40]})
    batches = stream(settings)
    held_out = batches.held_out(50, Purpose.VALIDATION)
    trained = set(uses(settings, epochs=1))
    words = {tuple(part) for part in np.split(held_out.words, held_out.offsets[1:-1])}
    assert not words & trained
    assert same(held_out, batches.held_out(50, Purpose.VALIDATION))
