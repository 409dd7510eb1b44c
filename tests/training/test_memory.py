"""Memory of training on text: estimated before it is used, and what to lower where it is too little."""

import re
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from support.text_corpus import small_text, small_text_settings, trained
from topicscope.errors import InputError, is_out_of_memory
from topicscope.training.machine import (
    check_memory,
    out_of_memory_said,
    passage_bytes,
    step_bytes,
    weight_bytes,
)
from topicscope.training.text import TextEngine

pytest.importorskip("tokenizers")
pytest.importorskip("transformers")


def test_too_little_memory_is_said_before_training_with_what_to_lower() -> None:
    settings = small_text_settings(training={"batch": 64, "accumulate": 2})
    needed = int(step_bytes(settings, 30))
    check_memory(settings, 30, available=2 * needed)
    with pytest.raises(InputError, match=r"raise training.accumulate from 2 to 4.*lower training.batch from 64 to \d+"):
        check_memory(settings, 30, available=int(0.7 * needed))
    said = r"no model.width is small enough, so lower the vocabulary \(30 tokens\), model.feed_forward = 12 or"
    with pytest.raises(InputError, match=said):
        check_memory(settings, 30, available=16_000)


def fits(available: int, model: dict[str, int], training: dict[str, int]) -> bool:
    try:
        check_memory(small_text_settings(model=model, training=training), 30, available=available)
    except InputError:
        return False
    return True


@given(
    width=st.integers(1, 600).map(lambda number: 4 * number),
    feed_forward=st.integers(0, 4_000),
    batch=st.integers(1, 64),
    accumulate=st.integers(1, 64),
    share=st.floats(0.01, 1.0),
)
@hypothesis_settings(derandomize=True, deadline=None, max_examples=60)
def test_what_is_advised_is_enough_and_less_is_not(
    width: int, feed_forward: int, batch: int, accumulate: int, share: float
) -> None:
    model = {"width": width, "heads": 4, "feed_forward": feed_forward}
    training = {"batch": batch, "accumulate": min(batch, accumulate)}
    settings = small_text_settings(model=model, training=training)
    available = int(share * step_bytes(settings, 30))
    with pytest.raises(InputError) as caught:
        check_memory(settings, 30, available=available)
    named = {name: int(value) for name, value in re.findall(r"(\w+) from \d+ to (\d+)", str(caught.value))}
    if "accumulate" in named:
        for name, less in (("accumulate", -1), ("batch", 1)):
            assert fits(available, model, training | {name: named[name]})
            assert not fits(available, model, training | {name: named[name] + less})
        return
    # No other advice would do: one passage at a time is too much.
    assert not fits(available, model, training | {"accumulate": batch})
    if named:
        assert fits(available, model | named, training)
    assert not fits(available, model | {"width": named.get("width", 0) + 4}, training)


def test_weights_that_do_not_fit_are_refused_before_they_are_drawn() -> None:
    huge = small_text_settings(model={"width": 2**20, "feed_forward": 2**20})
    with pytest.raises(InputError, match=r"free: (lower model\.width from 1048576 to \d+|no model\.width)"):
        TextEngine(huge, small_text())


def test_memory_that_runs_out_is_said_with_what_to_lower() -> None:
    settings = small_text_settings(training={"batch": 64, "accumulate": 2})
    with (
        pytest.raises(InputError, match=r"training.accumulate from 2 to 4.*training.batch to 32"),
        out_of_memory_said(settings, 30),
    ):
        torch.empty(2**60, dtype=torch.uint8)
    with pytest.raises(RuntimeError, match="shape"), out_of_memory_said(settings, 30):
        torch.ones(2).view(3)
    single = small_text_settings(training={"batch": 6, "accumulate": 6}, masking={"mask": 0.9}, data={"length": 60})
    with (
        pytest.raises(InputError, match=r"so lower data.length or model.width = 8") as caught,
        out_of_memory_said(single, 30),
    ):
        raise MemoryError
    assert "accumulate from" not in str(caught.value)
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError("shape"))


def test_where_weights_take_most_the_width_is_lowered_and_not_the_batch() -> None:
    wide = small_text_settings(model={"width": 2_048}, training={"batch": 64})
    assert weight_bytes(wide, 30) > 64 * passage_bytes(wide, 30)
    with (
        pytest.raises(InputError, match=r"of it; lower model.width from 2048 to \d+") as caught,
        out_of_memory_said(wide, 30),
    ):
        raise MemoryError
    assert "accumulate" not in str(caught.value)
    [width] = re.findall(r"2048 to (\d+)", str(caught.value))
    narrow = small_text_settings(model={"width": int(width)}, training={"batch": 64})
    assert 0.49 < step_bytes(narrow, 30) / step_bytes(wide, 30) <= 0.5


def test_estimated_memory_is_about_what_a_step_keeps() -> None:
    """Counted: every tensor that autograd saves for the backward pass, once."""
    settings = small_text_settings(
        model={"width": 64, "feed_forward": 256}, training={"batch": 48}, masking={"mask": 0.15}
    )
    engine = TextEngine(settings, small_text(passages=300, vocabulary=400))
    saved: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    passages = engine.streams[0].chunk(0)
    weights = sum(weight.untyped_storage().nbytes() for weight in engine.weights.values())
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        engine.part_loss(engine.prepare([passages])[0][0])
    held = sum(saved.values()) - weights
    positions = len(passages.tokens) + 2 * len(passages)
    longest = settings.training.batch * settings.positions
    estimate = settings.training.batch * passage_bytes(settings, 400) * positions / longest
    assert 0.6 < estimate / held < 1.7


def test_memory_that_runs_out_while_weights_are_drawn_is_said_too(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("topicscope.training.text.encoder_weights", fails)
    error: Exception = MemoryError()
    with pytest.raises(InputError, match="memory ran out"):
        trained(small_text_settings(corpus), tmp_path / "run")
    error = RuntimeError("shape")
    with pytest.raises(RuntimeError, match="shape"):
        trained(small_text_settings(corpus), tmp_path / "other")
