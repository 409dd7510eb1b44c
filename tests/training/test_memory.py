"""Memory of training on text: estimated before it is used, and what to lower where it is too little."""

import re
from pathlib import Path

import pytest
import torch

from support.text_corpus import small_text, small_text_settings
from topicscope.errors import InputError, is_out_of_memory
from topicscope.training.machine import (
    check_memory,
    out_of_memory_said,
    passage_bytes,
    step_bytes,
    weight_bytes,
)
from topicscope.training.text import TextEngine, train_on_text

pytest.importorskip("tokenizers")
pytest.importorskip("transformers")


def fits(available: int, training: dict[str, int]) -> bool:
    try:
        check_memory(small_text_settings(training=training), 30, available=available)
    except InputError:
        return False
    return True


def test_too_little_memory_is_said_before_training_and_what_is_advised_is_enough() -> None:
    training = {"batch": 64, "accumulate": 2}
    settings = small_text_settings(training=training)
    needed, weights = int(step_bytes(settings, 30)), weight_bytes(settings, 30)
    check_memory(settings, 30, available=2 * needed)
    for available in (int(0.7 * needed), int(1.2 * weights + 3 * passage_bytes(settings, 30))):
        advice = r"raise training.accumulate from 2 to (\d+), .* or lower training.batch from 64 to (\d+)\."
        with pytest.raises(InputError, match=advice) as caught:
            check_memory(settings, 30, available=available)
        numbers = re.search(advice, str(caught.value))
        assert numbers
        for name, value, less in (("accumulate", int(numbers[1]), -1), ("batch", int(numbers[2]), 1)):
            assert fits(available, training | {name: value})
            assert not fits(available, training | {name: value + less})
    # One passage at a time is too much.
    with pytest.raises(InputError, match=r"lower model.width = 8, the vocabulary \(30 tokens\) or data.length = "):
        check_memory(settings, 30, available=16_000)


def test_weights_that_do_not_fit_are_refused_before_they_are_drawn() -> None:
    huge = small_text_settings(model={"width": 2**20, "feed_forward": 2**20})
    with pytest.raises(InputError, match=r"free: too much .* lower model\.width = 1048576"):
        TextEngine(huge, small_text())


def test_memory_that_runs_out_is_said_with_what_to_lower() -> None:
    settings = small_text_settings(training={"batch": 64, "accumulate": 2})
    with (
        pytest.raises(InputError, match=r"memory ran out .* raise training.accumulate from 2 to \d"),
        out_of_memory_said(settings, 30),
    ):
        torch.empty(2**60, dtype=torch.uint8)
    with pytest.raises(RuntimeError, match="shape"), out_of_memory_said(settings, 30):
        torch.ones(2).view(3)
    wide = small_text_settings(model={"width": 2_048}, training={"batch": 64})
    with pytest.raises(InputError, match=r"lower model.width = 2048"), out_of_memory_said(wide, 30):
        raise MemoryError
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError("shape"))


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
        train_on_text(small_text_settings(corpus), tmp_path / "run")
    error = RuntimeError("shape")
    with pytest.raises(RuntimeError, match="shape"):
        train_on_text(small_text_settings(corpus), tmp_path / "other")
