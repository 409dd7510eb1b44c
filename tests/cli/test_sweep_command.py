import csv
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

from support.helpers import SMALL, start_program
from support.small_sweeps import shared
from topicscope.cli import main
from topicscope.commands.sweep import MEASURES, Group, train_group
from topicscope.errors import InputError
from topicscope.measure.uncertainty import student_interval
from topicscope.training.runs import RunFolder


@pytest.fixture
def sweep_file(tmp_path: Path) -> Path:
    path = tmp_path / "sweep.toml"
    path.write_text(tomli_w.dumps({"seeds": 2, "settings": SMALL, "vary": {"training.learning_rate": [0.01, 0.1]}}))
    return path


def test_sweep_prints_rows_as_json_alone_and_resumes_without_its_file(
    tmp_path: Path, sweep_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["sweep", str(sweep_file), "--out", str(out), "--workers", "1", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["training.learning_rate"] for row in rows] == [0.01, 0.01, 0.1, 0.1]
    before = {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*")}
    assert main(["sweep", "--out", str(out), "--resume", "--workers", "1", "--measures", "norm_value", "loss"]) == 0
    printed = capsys.readouterr().out
    assert "4 runs: 2 combinations, mean ± half of the 95 % interval over 2 seeds" in printed
    # A row a combination, with the numbers of the table.
    for rate in (0.01, 0.1):
        interval = student_interval(np.array([row["loss"] for row in rows if row["training.learning_rate"] == rate]))
        assert f"{interval.value:.4g} ± {interval.high - interval.value:.1g}" in printed
    assert printed.splitlines()[-1].startswith(str(out / "report.html"))
    assert {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*")} == before
    assert main(["sweep", "--out", str(out), "--resume", "--dry-run"]) == 0
    assert "trained in 2 groups, 2 of them finished. Nothing is left to train." in capsys.readouterr().out


def test_a_dry_run_prints_how_many_runs_and_writes_nothing(
    tmp_path: Path, sweep_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", str(sweep_file), "--out", str(tmp_path / "out"), "--dry-run"]) == 0
    printed = capsys.readouterr()
    first, second = printed.out.split(".\n", 1)
    assert first == "4 runs: 2 combinations, trained in 2 groups"
    assert second.startswith("About ")
    assert "the page come on top" in " ".join(second.split())
    assert printed.err == "timing a short trial …\n"
    assert not (tmp_path / "out").exists()


def test_help_fits_a_terminal_and_names_every_measure_and_train_knows_a_sweep(
    sweep_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["sweep", "--help"])
    printed = capsys.readouterr().out
    assert [name for name in MEASURES if name not in printed] == []
    assert max(map(len, printed.splitlines())) <= 80
    assert main(["train", str(sweep_file), "--out", str(sweep_file.parent / "run")]) == 2
    assert "is a sweep, not the settings of one run: use `topicscope sweep" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--out", "OUT"], "SWEEP.toml is missing"),
        (["--out", "OUT", "--resume"], "out does not exist: give the folder of a sweep"),
        (["--out", "NOTES", "--resume"], "notes holds no sweep: give the folder of a sweep"),
        (["SWEEP", "--out", "NOTES", "--resume"], "notes holds no sweep to resume"),
        (["SWEEP", "--out", "NOTES"], "notes is not empty and holds no sweep: choose another folder."),
        (["SWEEP"], "--out is missing"),
        (["SWEEP", "--out", "OUT", "--address", "auto"], "add --engine ray"),
        (["SWEEP", "--out", "OUT", "--workers", "0"], "--workers = 0 is not allowed"),
        (["SWEEP", "--out", "OUT", "--workers", "x"], "--workers x is not allowed: give a whole number;"),
        (["SWEEP", "--out", "OUT", "--timeout", "x"], "--timeout x is not allowed: give a number;"),
        (["SWEEP", "--out", "OUT", "--measures", "nonsense"], "give any of loss, validation_loss, bayes_floor,"),
        (["SWEEP", "--out", "OUT", "--timeout", "-1"], "--timeout = -1.0 is not allowed"),
        (["SWEEP", "--out", "OUT", "--engine", "cloud"], "--engine cloud is not allowed"),
        (["nowhere.toml", "--out", "OUT"], "nowhere.toml cannot be read"),
    ],
)
def test_bad_options_are_one_sentence_and_exit_code_2(
    tmp_path: Path, sweep_file: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").touch()
    places = {"OUT": str(tmp_path / "out"), "SWEEP": str(sweep_file), "NOTES": str(tmp_path / "notes")}
    assert main(["sweep", *(places.get(word, word) for word in words)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def untimed(out: Path) -> list[dict[str, Any]]:
    with (out / "sweep.csv").open() as file:
        return [{name: row[name] for name in row if not name.endswith("_seconds")} for row in csv.DictReader(file)]


def wait_for_workers_to_end(out: Path) -> None:
    """Those of a Ray that was killed end some seconds after it; until then they keep others out of their runs."""
    end = time.monotonic() + 60
    for run in out.glob("runs/*/*"):
        while True:
            try:
                with RunFolder(run).locked():
                    break
            except InputError:
                assert time.monotonic() < end
                time.sleep(0.1)


def check_killed_sweeps_end_alike(tmp_path: Path, engine: str, kills: int, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "long.toml"
    drawn = ["--quiet", "--measures", "loss"]
    settings = SMALL | {"training": {"steps": 150, "checkpoint_every": 20, "batch": 5, "snapshots": 0}}
    vary = {"data.topics": [3, 4, 5, 6]}
    path.write_text(tomli_w.dumps({"seeds": 2, "settings": shared(settings, vary), "vary": vary}))
    assert main(["sweep", str(path), "--out", str(tmp_path / "whole"), "--workers", "1", *drawn]) == 0
    out = tmp_path / "killed"
    words = ["sweep", str(path), "--out", str(out), "--resume", *drawn]
    finished: dict[Path, int] = {}
    for kill in range(kills):
        program = start_program(*words, "--engine", engine, "--workers", "2")
        end = time.monotonic() + 500
        # Once a group more is finished.
        while len(list((out / "work").glob("*.sha256"))) <= kill and program.poll() is None:
            assert time.monotonic() < end
            time.sleep(0.02)
        assert program.poll() is None, program.communicate()
        program.kill()
        program.communicate()
        wait_for_workers_to_end(out)
        finished = {path: path.stat().st_mtime_ns for path in (out / "work").glob("*.sha256")} | finished
    missing = 4 - len(list((out / "work").glob("*.sha256")))
    assert missing > 0
    trained: list[str] = []

    def noted(group: Group) -> bytes:
        trained.append(group.folder.name)
        return train_group(group)

    # The rest in this process, where it can be counted.
    monkeypatch.setattr("topicscope.commands.sweep.train_group", noted)
    assert main([*words, "--workers", "1"]) == 0
    assert untimed(out) == untimed(tmp_path / "whole")
    assert len(trained) == len(set(trained)) == missing
    # Nor did a program that went on after a kill write anew what was there.
    assert {path: path.stat().st_mtime_ns for path in finished} == finished


def test_a_killed_sweep_ends_with_the_table_of_one_that_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_killed_sweeps_end_alike(tmp_path, "local", 1, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["local", "ray"])
def test_a_sweep_killed_twice_ends_with_the_table_of_one_that_was_not(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_killed_sweeps_end_alike(tmp_path, engine, 2, monkeypatch)
