"""Runs that are stopped, damaged, made longer or changed, and resumed."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.helpers import run_files, small_settings
from topicscope.errors import InputError
from topicscope.measure.run import read_run
from topicscope.store import checkpoint_path, checkpoint_steps
from topicscope.training.folder import RunFolder
from topicscope.training.loop import Watching, train


class StopError(Exception):
    pass


def stopping_at(step: int) -> Watching:
    def report(done: int, total: int, state: str) -> None:
        if done >= step:
            raise StopError

    return Watching(report)


def test_a_run_folder_holds_what_its_settings_ask_for(tmp_path: Path) -> None:
    settings = small_settings(model={"layers": 2})
    folder = train(settings, tmp_path / "run")
    assert sorted(path.name for path in folder.path.iterdir()) == [
        "checkpoint-12.safetensors",
        "checkpoint-9.safetensors",
        "metrics.csv",
        "reference.json",
        "run.safetensors",
        "settings.toml",
        "versions.json",
    ]
    run, versions = read_run(folder.path), folder.versions()
    assert run.steps.tolist() == [0, 2, 4, 6, 8, 10, 12]
    recorded = {name: np.isfinite(of.reshape(7, -1)).all(axis=1).tolist() for name, of in run.metrics.items()}
    assert np.flatnonzero(recorded["validation_loss"]).tolist() == [0, 2, 4, 6]
    assert np.flatnonzero(recorded["rotation"]).tolist() == [5, 6]
    assert run.metrics["norm/value"].shape == (1, 7, 2)
    assert run.settings == folder.settings() == small_settings(model={"layers": 2}, training={"threads": 1})
    assert run.frames["value_products"].shape == (1, len(run.frame_steps), 2, 7, 7)
    assert run.frames["attention"].shape == (1, len(run.frame_steps), 3, 2, 1)
    assert versions is not None
    assert (versions.threads, versions.seeds) == (1, [0])
    # For people: the same rows, with layers counted from 1.
    lines = (folder.path / "metrics.csv").read_text().splitlines()
    cells = dict(zip(lines[0].split(","), lines[-1].split(","), strict=True))
    assert float(cells["norm/value/2"]) == run.metrics["norm/value"][0, -1, 1]


def test_a_folder_that_is_not_empty_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="is not empty"):
        train(small_settings(), tmp_path)
    with pytest.raises(InputError, match="holds no run to resume"):
        train(small_settings(), tmp_path, resume=True)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_run_folder_keeps_the_files_that_its_settings_name(tmp_path: Path) -> None:
    matrix = np.array([[0.5, 0.3, 0.2, 0.0, 0.0, 0.0], [0.0, 0.1, 0.2, 0.3, 0.2, 0.2]])
    np.save(tmp_path / "matrix.npy", matrix)
    np.save(tmp_path / "start.npy", np.eye(7))
    settings = small_settings(
        data={"topic_words": str(tmp_path / "matrix.npy"), "topics": 0, "words": 0, "dirichlet": [0.2, 0.4]},
        model={"value": {"start": "file", "file": str(tmp_path / "start.npy")}},
    )
    folder = train(settings, tmp_path / "run")
    whole = run_files(folder.path)
    # The same settings, the files where they were: the same run.
    assert run_files(train(settings, folder.path, resume=True).path) == whole
    (tmp_path / "matrix.npy").unlink()
    (tmp_path / "start.npy").unlink()
    again = train(folder.settings(), tmp_path / "again")
    assert run_files(again.path) == whole
    # A run's own weights can be a start too.
    from_run = {"start": "file", "file": str(checkpoint_path(folder.path, 12))}
    train(small_settings(model={"value": from_run}), tmp_path / "from-run")


def test_a_run_begun_by_another_process_meanwhile_is_not_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the check and the lock another process may begin: the check is made again under the lock."""
    out, locked = tmp_path / "run", RunFolder.locked

    def begin_first(folder: RunFolder) -> Any:
        monkeypatch.setattr(RunFolder, "locked", locked)
        train(small_settings(seed=9), out)
        return locked(folder)

    monkeypatch.setattr(RunFolder, "locked", begin_first)
    with pytest.raises(InputError, match="is not empty"):
        train(small_settings(seed=1), out)
    assert RunFolder(out).settings().seed == 9
    with RunFolder(out).locked(), pytest.raises(InputError, match="by another process"):
        train(small_settings(seed=9), out, resume=True)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam", "adamw"])
@pytest.mark.parametrize("seeds", [(), (4, 2)], ids=["one seed", "two seeds"])
def test_a_run_stopped_at_any_step_and_resumed_ends_with_the_same_files(
    tmp_path: Path, optimizer: str, seeds: tuple[int, ...]
) -> None:
    changes = {"optimizer": optimizer, "schedule": "alternating", "decay": "cosine", "l2": 0.01}
    settings = small_settings(training=changes)
    whole = run_files(train(settings, tmp_path / "whole", seeds=seeds).path)
    for stop_at in (0, 2, 6, 12):
        out = tmp_path / f"stopped-{stop_at}"
        with pytest.raises(StopError):
            train(settings, out, seeds=seeds, watching=stopping_at(stop_at))
        assert run_files(out) != whole
        assert run_files(train(settings, out, resume=True).path) == whole
    # A finished run does not change any more.
    assert run_files(train(settings, out, resume=True).path) == whole


@pytest.mark.parametrize("damage", ["truncated", "altered", "empty"])
@pytest.mark.parametrize("name", ["checkpoint-12.safetensors", "run.safetensors"])
def test_damaged_files_are_passed_over_and_made_again(
    tmp_path: Path, name: str, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = train(small_settings(), tmp_path / "run")
    whole = run_files(folder.path)
    path, content = folder.path / name, bytearray(whole[name])
    content[3 if name == "run.safetensors" else -3] ^= 0xFF
    path.write_bytes({"truncated": whole[name][: len(content) // 2], "altered": bytes(content), "empty": b""}[damage])
    train(small_settings(), folder.path, resume=True)
    if name == "run.safetensors":
        assert "Starting again from step 0" in caplog.text
    else:
        assert "checkpoint-12.safetensors is damaged" in caplog.text
        assert "going back to that of step 9" in caplog.text
        path.with_suffix(".safetensors.damaged").unlink()
    assert run_files(folder.path) == whole


def test_a_run_stopped_at_any_write_and_resumed_ends_with_the_same_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file of a run is written by a rename: stop before and after each, from the first on."""
    settings = small_settings(training={"steps": 4, "checkpoint_every": 2, "log_every": 1, "snapshots": 2})
    whole = run_files(train(settings, tmp_path / "whole").path)
    original, left = Path.replace, 0

    def stop_when_due(path: Path, target: Path) -> Path:
        nonlocal left
        left -= 1
        if left == 0:
            raise StopError
        result = original(path, target)
        left -= 1
        if left == 0:
            raise StopError
        return result

    monkeypatch.setattr(Path, "replace", stop_when_due)
    stops = 0
    for moment in range(1, 100):
        out, left = tmp_path / f"stopped-{moment}", moment
        try:
            train(settings, out)
            break
        except StopError:
            stops += 1
        left = -1
        assert run_files(train(settings, out, resume=True).path) == whole, moment
    assert stops > 10


def test_resuming_with_other_settings_seeds_or_versions_names_what_differs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = train(small_settings(), tmp_path / "run")
    before = run_files(folder.path)
    other = small_settings(seed=5, training={"learning_rate": 0.5})
    with pytest.raises(
        InputError, match=r"seed \(0 there, 5 here\), training\.learning_rate \(0\.01 there, 0\.5 here\)"
    ):
        train(other, folder.path, resume=True)
    with pytest.raises(InputError, match=r"--training\.threads 1"):
        train(small_settings(training={"threads": 2}), folder.path, resume=True)
    with pytest.raises(InputError, match=r"other things: seeds \(0 there, 0, 1 here\); resume with the same seeds"):
        train(small_settings(), folder.path, seeds=(0, 1), resume=True)
    assert run_files(folder.path) == before
    path = folder.path / "versions.json"
    versions = json.loads(path.read_text())
    path.write_text(json.dumps(versions | {"packages": versions["packages"] | {"torch": "1.0"}}))
    train(small_settings(), folder.path, resume=True)
    assert "was begun with torch 1.0" in caplog.text


# Runs made longer.


def lengthened(first: int, last: int, out: Path, **training: Any) -> tuple[Path, Path]:
    """A run that was made longer once it was finished, and one that was so long from the start."""
    short, long = (small_settings(training=training | {"steps": steps}) for steps in (first, last))
    train(short, out / "longer", seeds=(0, 3))
    return train(long, out / "longer", resume=True).path, train(long, out / "whole", seeds=(0, 3)).path


def same_but_frames(one: Path, other: Path) -> bool:
    """Whether runs differ at most in the steps at which matrices were kept."""
    first, second = run_files(one), run_files(other)
    metrics, others = (read_run(path).metrics for path in (one, other))
    same = all(np.array_equal(values, others[name], equal_nan=True) for name, values in metrics.items())
    different = {name for name in first.keys() | second.keys() if first.get(name) != second.get(name)}
    return same and metrics.keys() == others.keys() and different <= {"run.safetensors"}


@pytest.mark.parametrize("first", [12, 13])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_finished_run_made_longer_is_to_the_bit_one_that_was_so_long_from_the_start(
    tmp_path: Path, first: int, optimizer: str
) -> None:
    """Weights, optimiser and metrics, also where the first run ends between two rows: these compare W^V with before."""
    longer, whole = lengthened(first, 31, tmp_path, optimizer=optimizer)
    assert same_but_frames(longer, whole)
    assert {0, 31} <= set(read_run(longer).frame_steps.tolist())
    # A control: a run with another seed ends elsewhere.
    assert not same_but_frames(whole, train(small_settings(seed=1, training={"steps": 31}), tmp_path / "other").path)


def test_a_run_in_two_stages_of_given_length_can_be_made_longer_twice_and_stopped_on_the_way(tmp_path: Path) -> None:
    stages: dict[str, Any] = {"schedule": "two_stage", "stage_steps": 5}
    longer, whole = lengthened(12, 20, tmp_path, **stages)
    longest = small_settings(training=stages | {"steps": 31})
    with pytest.raises(StopError):
        train(longest, longer, resume=True, watching=stopping_at(25))
    # By its folder alone: the new length is in it.
    train(RunFolder(longer).settings(), longer, resume=True)
    train(longest, whole, resume=True)
    assert same_but_frames(longer, whole)
    assert checkpoint_steps(longer) == [30, 31]


@pytest.mark.parametrize(
    ("training", "reason"),
    [
        ({"decay": "cosine"}, 'training.decay = "cosine" depends on how many there are, so this run cannot be made lo'),
        ({"schedule": "alternating"}, 'training.schedule = "alternating" divides all of them into turns, so this run'),
        ({"schedule": "two_stage"}, "training.stage_steps = 0 gives half of them to the first stage, so this run cann"),
    ],
)
def test_a_run_whose_beginning_depends_on_its_length_cannot_be_made_longer_and_none_shorter(
    tmp_path: Path, training: dict[str, Any], reason: str
) -> None:
    out = train(small_settings(training=training), tmp_path / "run").path
    before = run_files(out)
    with pytest.raises(InputError, match=re.escape(f"training.steps (12 there, 20 here); {reason}")):
        train(small_settings(training=training | {"steps": 20}), out, resume=True)
    with pytest.raises(
        InputError, match=r"training.steps \(12 there, 8 here\); a run cannot be made shorter; leave it"
    ):
        train(small_settings(training=training | {"steps": 8}), out, resume=True)
    with pytest.raises(InputError, match=r"seed .*training.steps .*; leave the settings out to resume the run"):
        train(small_settings(seed=9, training=training | {"steps": 20}), out, resume=True)
    assert run_files(out) == before
