"""Memory of training on text: estimated before it is used, and what to lower where it is too little."""

from pathlib import Path

import pytest
import torch

from text_corpus import small_text, small_text_settings, trained
from topicscope.errors import InputError
from topicscope.training.memory import check_memory, is_out_of_memory, out_of_memory_said, step_bytes
from topicscope.training.text_loop import TextTrainer

pytest.importorskip("tokenizers")
pytest.importorskip("transformers")


def test_too_little_memory_is_said_before_training_with_what_to_lower() -> None:
    settings = small_text_settings(training={"batch": 64, "accumulate": 2})
    needed = step_bytes(settings, 30, 1_000)
    check_memory(settings, 30, 1_000, available=2 * needed)
    with pytest.raises(InputError, match=r"raise training.accumulate from 2 to 4.*lower training.batch from 64 to 32"):
        check_memory(settings, 30, 1_000, available=int(0.7 * needed))
    with pytest.raises(
        InputError, match=r"lower model.width = 8, or both the vocabulary \([\d,]+ tokens\) and model.layers = 2"
    ):
        check_memory(settings, 30, 1_000, available=16_000)


def test_weights_that_do_not_fit_are_refused_before_they_are_drawn() -> None:
    huge = small_text_settings(model={"width": 2**20, "feed_forward": 2**20})
    with pytest.raises(InputError, match=r"lower model\.width = 1048576, or both .* model\.layers = 2, [\d,]+-fold"):
        TextTrainer(huge, small_text())


def test_memory_that_runs_out_is_said_with_what_to_lower() -> None:
    settings = small_text_settings(training={"batch": 64, "accumulate": 2})
    with (
        pytest.raises(InputError, match=r"training.accumulate from 2 to 4.*training.batch to 32"),
        out_of_memory_said(settings),
    ):
        torch.empty(2**60, dtype=torch.uint8)
    with pytest.raises(RuntimeError, match="shape"), out_of_memory_said(settings):
        torch.ones(2).view(3)
    single = small_text_settings(training={"batch": 6, "accumulate": 6})
    with (
        pytest.raises(InputError, match=r"so lower data.length or model.width = 8") as caught,
        out_of_memory_said(single),
    ):
        raise MemoryError
    assert "accumulate from" not in str(caught.value)
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError("shape"))


def test_estimated_memory_is_about_what_a_step_keeps() -> None:
    """Counted: every tensor that autograd saves for the backward pass, once."""
    settings = small_text_settings(
        model={"width": 64, "feed_forward": 256}, training={"batch": 48}, masking={"mask": 0.15}
    )
    trainer = TextTrainer(settings, small_text(passages=300, vocabulary=400))
    saved: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    passages = trainer.stream.batch(0)
    weights = sum(weight.untyped_storage().nbytes() for weight in trainer.weights.values())
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        trainer._loss(trainer._packed(passages)[0])
    held = sum(saved.values()) - weights
    positions = len(passages.tokens) + 2 * len(passages)
    longest = settings.training.batch * settings.positions
    estimate = (step_bytes(settings, 400, 0)) * positions / longest
    assert 0.6 < estimate / held < 1.7


def test_memory_that_runs_out_while_weights_are_drawn_is_said_too(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("topicscope.training.text_loop.encoder_weights", fails)
    error: Exception = MemoryError()
    with pytest.raises(InputError, match="memory ran out"):
        trained(small_text_settings(corpus), tmp_path / "run")
    error = RuntimeError("shape")
    with pytest.raises(RuntimeError, match="shape"):
        trained(small_text_settings(corpus), tmp_path / "other")
