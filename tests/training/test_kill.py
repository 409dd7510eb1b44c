"""Runs killed at random moments (SIGKILL) and resumed must end like a run that was never killed."""

import time
from pathlib import Path

import numpy as np
import pytest

from helpers import run_files, small_settings, start_program
from topicscope.settings.toml import dump_settings
from topicscope.training.checkpoints import checkpoint_steps
from topicscope.training.loop import train

# Long enough that a kill lands in it, with a checkpoint every few milliseconds.
LONG = small_settings(training={"steps": 300, "checkpoint_every": 7, "log_every": 3, "snapshots": 20})
LONGEST_WAIT = 60.0


def kill_at_a_random_moment(settings_path: Path, out: Path, draw: np.random.Generator) -> bool:
    """Start or resume a run as a process and kill it soon after it has begun; whether it was still running."""
    resume = ("--resume",) if out.exists() else ()
    before = max(checkpoint_steps(out), default=-1) if out.exists() else -1
    process = start_program("train", str(settings_path), "--out", str(out), "--quiet", *resume)
    # A kill before the folder exists tests nothing, so the clock starts with the first sign of progress.
    deadline = time.monotonic() + LONGEST_WAIT
    while process.poll() is None and time.monotonic() < deadline:
        if out.exists() and max(checkpoint_steps(out), default=-1) > before:
            break
        time.sleep(0.005)
    time.sleep(draw.uniform(0, 0.5))
    running = process.poll() is None
    process.kill()
    _, errors = process.communicate()
    assert not errors, errors
    return running


def check_killed_runs_end_alike(folder: Path, kills: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    whole = run_files(train(LONG, folder / "whole").path)
    settings_path = folder / "settings.toml"
    settings_path.write_text(dump_settings(LONG))
    landed = run = 0
    while landed < kills:
        out = folder / f"killed-{run}"
        run += 1
        # Two kills a run: the second hits one that was itself resumed.
        for _ in range(2):
            landed += kill_at_a_random_moment(settings_path, out, draw)
        if landed == 0 and run > 5:
            pytest.fail("no kill landed while a run was going on")
        assert run_files(train(LONG, out, resume=True).path) == whole


def test_killed_runs_end_like_a_run_that_was_not_killed(tmp_path: Path) -> None:
    check_killed_runs_end_alike(tmp_path, kills=3, seed=1)


@pytest.mark.slow
def test_twenty_killed_runs_end_like_a_run_that_was_not_killed(tmp_path: Path) -> None:
    check_killed_runs_end_alike(tmp_path, kills=20, seed=2)
