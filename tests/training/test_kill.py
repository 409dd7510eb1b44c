"""Runs killed at random moments (SIGKILL) and resumed must end like a run that was never killed."""

import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from support.helpers import run_files, small_settings, start_program, start_python
from topicscope.files import checkpoint_steps
from topicscope.settings.toml import dump_settings
from topicscope.training.loop import Ensemble, train, train_ensemble

# Long enough that a kill lands in it, with a checkpoint every few milliseconds.
LONG = small_settings(training={"steps": 300, "checkpoint_every": 7, "log_every": 3, "snapshots": 20})
LONGEST_WAIT = 60.0


ENSEMBLE = Ensemble(settings=LONG, seeds=(3, 4, 5))
TRAIN_ENSEMBLE = """
import sys
from pathlib import Path
from topicscope.settings.toml import load_settings
from topicscope.training.loop import Ensemble, train_ensemble
out = Path(sys.argv[2])
train_ensemble(Ensemble(settings=load_settings(Path(sys.argv[1])), seeds=(3, 4, 5)), out, resume=out.exists())
"""


def kill_run(settings_path: Path, out: Path, draw: np.random.Generator) -> bool:
    """Start or resume a run as a process and kill it soon after it has begun; whether it was still running."""
    resume = ("--resume",) if out.exists() else ()
    before = newest_step(out)
    process = start_program("train", str(settings_path), "--out", str(out), "--quiet", *resume)
    return kill_at_a_random_moment(process, out, before, draw)


def kill_ensemble(settings_path: Path, out: Path, draw: np.random.Generator) -> bool:
    """The same for an ensemble; its last member shows how far it is."""
    watched = out / "seed-5"
    before = newest_step(watched)
    process = start_python("-c", TRAIN_ENSEMBLE, str(settings_path), str(out))
    return kill_at_a_random_moment(process, watched, before, draw)


def newest_step(folder: Path) -> int:
    return max(checkpoint_steps(folder), default=-1) if folder.exists() else -1


def kill_at_a_random_moment(
    process: subprocess.Popen[str], folder: Path, before: int, draw: np.random.Generator
) -> bool:
    # A kill before the folder exists tests nothing, so the clock starts with the first sign of progress.
    deadline = time.monotonic() + LONGEST_WAIT
    while process.poll() is None and time.monotonic() < deadline:
        if newest_step(folder) > before:
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
            landed += kill_run(settings_path, out, draw)
        if landed == 0 and run > 5:
            pytest.fail("no kill landed while a run was going on")
        assert run_files(train(LONG, out, resume=True).path) == whole


def test_killed_runs_end_like_a_run_that_was_not_killed(tmp_path: Path) -> None:
    check_killed_runs_end_alike(tmp_path, kills=2, seed=1)


@pytest.mark.slow
def test_twenty_killed_runs_end_like_a_run_that_was_not_killed(tmp_path: Path) -> None:
    check_killed_runs_end_alike(tmp_path, kills=20, seed=2)


def check_killed_ensembles_end_alike(folder: Path, kills: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    whole = {name: run_files(run.path) for name, run in train_ensemble(ENSEMBLE, folder / "whole").items()}
    # The control: members are not each other.
    assert whole["seed-3"]["metrics.jsonl"] != whole["seed-4"]["metrics.jsonl"]
    settings_path = folder / "settings.toml"
    settings_path.write_text(dump_settings(LONG))
    landed = run = 0
    while landed < kills:
        out = folder / f"killed-{run}"
        run += 1
        landed += kill_ensemble(settings_path, out, draw)
        if landed == 0 and run > 5:
            pytest.fail("no kill landed while an ensemble was going on")
        ended = train_ensemble(ENSEMBLE, out, resume=True)
        assert {name: run_files(each.path) for name, each in ended.items()} == whole


def test_a_killed_ensemble_ends_like_one_that_was_not_killed(tmp_path: Path) -> None:
    check_killed_ensembles_end_alike(tmp_path, kills=1, seed=3)


@pytest.mark.slow
def test_ten_killed_ensembles_end_like_one_that_was_not_killed(tmp_path: Path) -> None:
    check_killed_ensembles_end_alike(tmp_path, kills=10, seed=4)
