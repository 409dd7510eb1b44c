"""Threads are chosen from the settings, and recorded."""

import json
from pathlib import Path

import pytest

from support.helpers import small_settings
from topicscope.errors import InputError
from topicscope.settings import Data, Model, Part, Settings, Training
from topicscope.training import machine
from topicscope.training.loop import train
from topicscope.training.machine import step_size, with_threads

LARGE = Settings(data=Data(topics=200, words=100), model=Model(dimension=128, embedding=Part(start="normal")))


def test_threads_are_one_unless_a_step_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "available_cores", lambda: 6)
    assert with_threads(Settings(), 101).training.threads == 1
    assert with_threads(LARGE, 20_001).training.threads == 6
    asked = Settings(training=Training(threads=3))
    assert with_threads(asked, 101) == asked


def test_a_step_is_larger_with_more_layers_documents_and_words() -> None:
    plain = step_size(Settings(), 101)
    assert step_size(Settings(model=Model(layers=4)), 101) > 2 * plain
    assert step_size(Settings(training=Training(batch=80)), 101) == 2 * plain
    assert step_size(Settings(data=Data(length=(100, 1_000)), training=Training(engine="reference")), 101) > 2 * plain
    # On bags of tokens a document is no larger than the vocabulary.
    assert step_size(Settings(data=Data(length=(100, 1_000))), 101) == plain


def test_a_run_records_the_threads_chosen_and_goes_on_with_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert small_settings().training.threads == 0
    folder = train(small_settings(), tmp_path / "run")
    assert folder.settings().training.threads == 1
    assert json.loads(folder.versions_path.read_text())["threads"] == 1
    train(small_settings(), folder.path, resume=True)
    # The same settings where every step counts as large and there are two cores.
    monkeypatch.setattr(machine, "available_cores", lambda: 2)
    monkeypatch.setattr(machine, "LARGE_STEP", 0)
    with pytest.raises(InputError, match=r"--training\.threads 1"):
        train(small_settings(), folder.path, resume=True)
