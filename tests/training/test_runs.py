"""What a run folder holds, and who may write to it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.helpers import run_files, small_settings
from topicscope.errors import InputError
from topicscope.files import checkpoint_steps
from topicscope.training.loop import train
from topicscope.training.runs import RunFolder


def test_a_run_folder_holds_what_its_settings_ask_for(tmp_path: Path) -> None:
    folder = train(small_settings(model={"layers": 2}), tmp_path / "run")
    assert sorted(path.name for path in folder.path.iterdir()) == [
        "checkpoint-12.safetensors",
        "checkpoint-9.safetensors",
        "metrics.jsonl",
        "reference.json",
        "reference.safetensors",
        "settings.toml",
        "snapshots.safetensors",
        "versions.json",
    ]
    rows = folder.metrics()
    assert [row["step"] for row in rows] == [0, 2, 4, 6, 8, 10, 12]
    assert [row["step"] for row in rows if row["validation_loss"] is not None] == [0, 4, 8, 12]
    assert [row["step"] for row in rows if row["rotation"] is not None] == [10, 12]
    assert len(rows[-1]["norm"]["value"]) == 2
    assert folder.settings() == small_settings(model={"layers": 2}, training={"threads": 1})
    snapshot = folder.snapshots()[12]
    assert snapshot["value"].shape == (2, 7, 7)
    assert snapshot["attention"].shape == (3, 2, 1)
    assert json.loads(folder.versions_path.read_text())["threads"] == 1


def test_only_the_two_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    assert checkpoint_steps(train(small_settings(), tmp_path / "run").path) == [9, 12]


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


def test_a_run_begun_by_another_process_meanwhile_is_not_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the check and the lock another process may begin: the check is made again under the lock."""
    out = tmp_path / "run"
    locked = RunFolder.locked

    def begin_first(folder: RunFolder) -> Any:
        monkeypatch.setattr(RunFolder, "locked", locked)
        train(small_settings(seed=9), out)
        return locked(folder)

    monkeypatch.setattr(RunFolder, "locked", begin_first)
    with pytest.raises(InputError, match="is not empty"):
        train(small_settings(seed=1), out)
    assert RunFolder(out).settings().seed == 9


def test_two_processes_cannot_train_in_one_folder(tmp_path: Path) -> None:
    folder = train(small_settings(), tmp_path / "run")
    with folder.locked(), pytest.raises(InputError, match="by another process"):
        train(small_settings(), folder.path, resume=True)


def test_a_run_folder_shows_its_path() -> None:
    assert repr(RunFolder(Path("runs") / "first")) == "RunFolder('runs/first')"
    assert repr(RunFolder(Path("runs") / "second")) != "RunFolder('runs/first')"
