"""Threads are chosen from the settings and recorded; too little memory is said, before it is used or when it ends."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from support.helpers import small_settings
from support.text_corpus import small_text, small_text_settings
from topicscope.errors import InputError, is_out_of_memory
from topicscope.settings import Data, Model, Part, Settings, Training
from topicscope.training import machine
from topicscope.training.engines import make_engine
from topicscope.training.loop import train
from topicscope.training.machine import out_of_memory_said, step_size, with_threads

LARGE = Settings(data=Data(topics=200, words=100), model=Model(dimension=128, embedding=Part(start="normal")))


def test_threads_are_one_unless_a_step_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "available_cores", lambda: 6)
    assert with_threads(Settings()).training.threads == 1
    assert with_threads(LARGE).training.threads == 6
    asked = Settings(training=Training(threads=3))
    assert with_threads(asked) == asked


def test_a_step_is_larger_with_more_layers_documents_and_words() -> None:
    plain = step_size(Settings())
    assert step_size(Settings(model=Model(layers=4))) > 2 * plain
    assert step_size(Settings(training=Training(batch=80))) == 2 * plain
    assert step_size(Settings(data=Data(length=(100, 1_000)), training=Training(engine="reference"))) > 2 * plain
    # On bags of tokens a document is no larger than the vocabulary.
    assert step_size(Settings(data=Data(length=(100, 1_000)))) == plain


def test_a_run_records_the_threads_chosen_and_goes_on_with_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert small_settings().training.threads == 0
    folder = train(small_settings(), tmp_path / "run")
    assert folder.settings().training.threads == 1
    versions = folder.versions()
    assert versions is not None
    assert versions.threads == 1
    train(small_settings(), folder.path, resume=True)
    # The same settings where every step counts as large and there are two cores.
    monkeypatch.setattr(machine, "available_cores", lambda: 2)
    monkeypatch.setattr(machine, "LARGE_STEP", 0)
    with pytest.raises(InputError, match=r"--training\.threads 1"):
        train(small_settings(), folder.path, resume=True)


def test_too_little_memory_is_said_before_training_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = replace(small_settings(training={"batch": 10**6}), data=Data(length=(100, 1_000)))
    with pytest.raises(InputError, match=r"training needs about \d.* GB and .* GB are free: lower training\.batch"):
        train(wide, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    monkeypatch.setattr(machine, "SHARE", 1e-9)
    with pytest.raises(InputError, match="GB are free"):
        train(small_settings(), tmp_path / "run")


def test_estimated_memory_is_about_what_a_step_keeps() -> None:
    """Counted: every tensor that autograd saves for the backward pass, once."""
    settings = small_text_settings(
        model={"dimension": 64, "feed_forward": 256},
        training={"batch": 48, "validation_documents": 1},
        masking={"mask": 0.15},
    )
    engine = make_engine(settings, [0], small_text(passages=300, vocabulary=400))
    saved: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    [batch] = engine.prepare([engine.streams[0].chunk(0).span(0, 48)])
    weights = sum(weight.untyped_storage().nbytes() for weight in engine.weights.values())
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        engine.losses(batch)
    held = sum(saved.values()) + (machine.WEIGHT_COPIES - 1) * weights
    assert 0.6 < machine.needed_bytes(settings, 400) / held < 1.7


def test_memory_that_runs_out_is_said_with_what_to_lower() -> None:
    settings = small_settings()
    with pytest.raises(InputError, match=r"memory ran out .* lower training.batch"), out_of_memory_said(settings):
        torch.empty(2**60, dtype=torch.uint8)
    with pytest.raises(InputError, match="memory ran out"), out_of_memory_said(settings):
        raise MemoryError
    with pytest.raises(RuntimeError, match="shape"), out_of_memory_said(settings):
        torch.ones(2).view(3)
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError("shape"))
