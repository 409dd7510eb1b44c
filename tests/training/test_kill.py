"""Runs killed at random moments (SIGKILL) and resumed must end like a run that was never killed."""

import time
from pathlib import Path

import numpy as np
import pytest

from support.helpers import run_files, small_settings, start_python
from topicscope.settings.toml import dump_settings
from topicscope.store import checkpoint_steps
from topicscope.training.loop import train

# Long enough that a kill lands in it, with a checkpoint every few milliseconds.
LONG = small_settings(training={"steps": 300, "checkpoint_every": 7, "log_every": 3, "snapshots": 20})
LONGEST_WAIT = 60.0
TRAIN = """
import sys
from pathlib import Path
from topicscope.settings.toml import load_settings
from topicscope.training.loop import train
out = Path(sys.argv[2])
train(load_settings(Path(sys.argv[1])), out, seeds=[int(seed) for seed in sys.argv[3:]], resume=out.exists())
"""


def newest_step(folder: Path) -> int:
    return max(checkpoint_steps(folder), default=-1) if folder.exists() else -1


def killed(settings_path: Path, out: Path, seeds: tuple[int, ...], draw: np.random.Generator) -> bool:
    """Start or resume a run as a process and kill it soon after it has begun; whether it was still running."""
    before, deadline = newest_step(out), time.monotonic() + LONGEST_WAIT
    process = start_python("-c", TRAIN, str(settings_path), str(out), *map(str, seeds))
    # A kill before the folder exists tests nothing, so the clock starts with the first sign of progress.
    while process.poll() is None and time.monotonic() < deadline and newest_step(out) <= before:
        time.sleep(0.005)
    time.sleep(draw.uniform(0, 0.5))
    running = process.poll() is None
    process.kill()
    _, errors = process.communicate()
    assert not errors, errors
    return running


def check_killed_runs_end_alike(folder: Path, kills: int, seeds: tuple[int, ...]) -> None:
    draw = np.random.default_rng(kills)
    whole = run_files(train(LONG, folder / "whole", seeds=seeds).path)
    settings_path = folder / "settings.toml"
    settings_path.write_text(dump_settings(LONG))
    landed = run = 0
    while landed < kills:
        out = folder / f"killed-{run}"
        run += 1
        # Two kills a run: the second hits one that was itself resumed.
        for _ in range(min(kills, 2)):
            landed += killed(settings_path, out, seeds, draw)
        if landed == 0 and run > 5:
            pytest.fail("no kill landed while a run was under way")
        assert run_files(train(LONG, out, seeds=seeds, resume=True).path) == whole


def test_a_killed_run_ends_like_a_run_that_was_not_killed(tmp_path: Path) -> None:
    check_killed_runs_end_alike(tmp_path, kills=1, seeds=(3, 4, 5))


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [(0,), (3, 4, 5)])
def test_ten_killed_runs_end_like_a_run_that_was_not_killed(tmp_path: Path, seeds: tuple[int, ...]) -> None:
    check_killed_runs_end_alike(tmp_path, kills=10, seeds=seeds)
