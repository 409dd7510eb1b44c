"""Ctrl-C while training: the run is saved where it is, and resumes to the same bits."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.helpers import run_files, small_settings, start_program
from support.text_corpus import small_text_settings, write_corpus
from topicscope.errors import StoppedTraining
from topicscope.settings.toml import dump_settings
from topicscope.store import checkpoint_steps
from topicscope.training.loop import Watching, stop_on_interrupt, train

SANDBOX = small_settings(training={"steps": 14, "checkpoint_every": 4, "snapshots": 5})
LONGEST_WAIT = 60.0


@pytest.fixture(autouse=True)
def usual_handler() -> Iterator[None]:
    """Python's own, whatever runs the tests has put there."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def press_at(*steps: int) -> Watching:
    """Ctrl-C while a step is being computed."""

    def report(done: int, total: int, state: str) -> None:
        if done in steps:
            os.kill(os.getpid(), signal.SIGINT)

    return Watching(report)


# Checkpoints are due at 0, 4, 8 and 12; the two newest are kept.
@pytest.mark.parametrize("step", [0, 3, 5, 11, 12])
def test_an_interrupted_sandbox_run_saves_at_once_and_ends_with_the_same_files(step: int, tmp_path: Path) -> None:
    whole = run_files(train(SANDBOX, tmp_path / "whole").path)
    out = tmp_path / "stopped"
    with pytest.raises(StoppedTraining, match=f"stopped at step {step + 1}, which is saved: .*{out} --resume"):
        train(SANDBOX, out, watching=press_at(step))
    assert checkpoint_steps(out)[-1] == step + 1
    assert run_files(out) != whole
    assert run_files(train(SANDBOX, out, resume=True).path) == whole


@pytest.mark.parametrize("step", [0, 5])
def test_an_interrupted_run_on_text_saves_at_once_and_ends_with_the_same_files(step: int, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    pytest.importorskip("transformers")
    settings = small_text_settings(write_corpus(tmp_path))
    whole = all_files(train(settings, tmp_path / "whole", device="cpu").path)
    out = tmp_path / "stopped"
    with pytest.raises(StoppedTraining, match=f"stopped at step {step + 1}, which is saved"):
        train(settings, out, device="cpu", watching=press_at(step))
    assert checkpoint_steps(out)[-1] == step + 1
    assert all_files(train(settings, out, resume=True, device="cpu").path) == whole


def all_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_run_interrupted_again_and_again_ends_with_the_same_files(tmp_path: Path) -> None:
    whole = run_files(train(SANDBOX, tmp_path / "whole").path)
    out = tmp_path / "stopped"
    for step in (4, 5, 9):
        with pytest.raises(StoppedTraining):
            train(SANDBOX, out, resume=True, watching=press_at(step))
    assert checkpoint_steps(out) == [8, 10]
    assert run_files(train(SANDBOX, out, resume=True).path) == whole


def test_an_interrupt_at_the_last_step_comes_too_late(tmp_path: Path) -> None:
    out = train(SANDBOX, tmp_path / "run", watching=press_at(14)).path
    assert checkpoint_steps(out) == [12, 14]


def test_a_second_interrupt_stops_at_once() -> None:
    with stop_on_interrupt() as stop:
        assert not stop()
        os.kill(os.getpid(), signal.SIGINT)
        assert stop()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_a_handler_of_somebody_else_is_left_alone() -> None:
    pressed: list[int] = []

    def theirs(number: int, frame: Any) -> None:
        pressed.append(number)

    signal.signal(signal.SIGINT, theirs)
    with stop_on_interrupt() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert not stop()
    assert pressed == [signal.SIGINT]
    assert signal.signal(signal.SIGINT, signal.default_int_handler) is theirs


def test_ctrl_c_on_the_command_line_is_one_sentence_and_exit_code_130(tmp_path: Path) -> None:
    settings = small_settings(training={"steps": 100_000, "checkpoint_every": 7, "log_every": 100})
    toml, out = tmp_path / "settings.toml", tmp_path / "run"
    toml.write_text(dump_settings(settings))
    process = start_program("train", str(toml), "--out", str(out))
    deadline = time.monotonic() + LONGEST_WAIT
    while process.poll() is None and time.monotonic() < deadline and not (out.exists() and checkpoint_steps(out)):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = finish(process)
    assert process.returncode == 130
    saved = checkpoint_steps(out)[-1]
    last = errors.splitlines()[-1]
    again = f"topicscope train --out {out} --resume"
    assert last == f"topicscope: stopped at step {saved}, which is saved: {again} resumes there."
    assert "Traceback" not in errors


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    try:
        return process.communicate(timeout=LONGEST_WAIT)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
