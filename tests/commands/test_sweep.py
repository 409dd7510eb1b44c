"""The command's function on a small sweep: two combinations, three seeds, a second each."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

from support.helpers import SMALL, overlay, start_program
from support.small_sweeps import small_sweep, untimed
from topicscope.commands import sweep as command
from topicscope.commands.sweep import SweepResult, sweep, table_rows
from topicscope.errors import InputError
from topicscope.settings.sweep import Axis, Range, Sweep, dump_sweep
from topicscope.training.loop import Ensemble, train_ensemble
from topicscope.training.runs import RunFolder


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> SweepResult:
    return sweep(small_sweep(), tmp_path_factory.mktemp("sweep") / "whole", workers=1)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the groups that are trained from now on, in this process; without figures."""
    names: list[str] = []
    monkeypatch.setattr("topicscope.commands.sweep._draw", lambda *anything: [])
    train = command.train_group

    def noted(group: command.Group) -> bytes:
        names.append(group.folder.name)
        return train(group)

    monkeypatch.setattr("topicscope.commands.sweep.train_group", noted)
    return names


def test_the_table_has_a_row_a_run_settings_then_measures_and_no_date_engine_or_worker(whole: SweepResult) -> None:
    assert len(whole.rows) == 4 * 3
    assert list(whole.rows[0])[:3] == ["training.learning_rate", "data.length", "seed"]
    assert [row["data.length"] for row in whole.rows[::3]] == ["[4, 9]", "[5, 9]"] * 2
    assert [row["seed"] for row in whole.rows] == [0, 3, 4] * 4
    assert not {"date", "engine", "worker", "workers", "host"} & set(whole.rows[0])
    assert [name for name in whole.rows[0] if "second" in name or "time" in name] == ["train_seconds"]
    assert pq.read_table(whole.out / "sweep.parquet").to_pylist() == whole.rows
    with (whole.out / "sweep.csv").open() as file:
        read = list(csv.DictReader(file))
    assert [row["loss"] for row in read] == [str(row["loss"]) for row in whole.rows]
    names = {path.stem for path in whole.figures}
    assert "map-training.learning_rate-data.length" in names
    assert all(path.stat().st_size for path in whole.figures)


def test_measures_are_those_of_the_run_folders(whole: SweepResult) -> None:
    for row in whole.rows:
        run = RunFolder(whole.out / row["run"])
        last = run.metrics()[-1]
        assert (row["loss"], row["validation_loss"]) == (last["loss"], last["validation_loss"])
        assert row["excess_loss"] == pytest.approx(last["validation_loss"] - run.reference()["bayes_floor"]["loss"])
        weights = load_file(run.path / "checkpoint-12.safetensors")
        assert row["norm_value"] == pytest.approx(np.linalg.norm(weights["weights/value"]), rel=1e-6)
        attention = run.snapshots()[12]["attention"]
        assert row["attention_same_topic"] == pytest.approx(attention[1].mean(), rel=1e-6)
        assert run.settings().seed == row["seed"]
        assert run.settings().training.learning_rate == row["training.learning_rate"]
    assert len({row["loss"] for row in whole.rows}) == len(whole.rows)
    assert set(command.MEASURES) <= set(whole.rows[0])


def test_seeds_are_trained_together_as_the_sweep_says_and_like_an_ensemble(tmp_path: Path, whole: SweepResult) -> None:
    point = small_sweep().points()[0]
    folders = train_ensemble(Ensemble(settings=point.settings, seeds=(0, 3)), tmp_path / "pair")
    for name, folder in folders.items():
        row = next(row for row in whole.rows if row["run"].endswith(name))
        assert folder.metrics() == RunFolder(whole.out / row["run"]).metrics()


def test_two_processes_give_the_same_table_and_runs_to_the_bit(
    tmp_path: Path, whole: SweepResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_draw", lambda *anything: [])
    other = sweep(small_sweep(), tmp_path / "two", workers=2)
    assert untimed(other) == untimed(whole)
    for row in whole.rows:
        files = {path.name for path in (whole.out / row["run"]).iterdir()}
        assert files == {path.name for path in (other.out / row["run"]).iterdir()}
        for name in files:
            assert (whole.out / row["run"] / name).read_bytes() == (other.out / row["run"] / name).read_bytes()


@pytest.mark.slow
def test_ray_gives_the_same_table(tmp_path: Path, whole: SweepResult, trained: list[str]) -> None:
    (tmp_path / "sweep.toml").write_text(dump_sweep(small_sweep()))
    words = ("--engine", "ray", "--workers", "2", "--quiet", "--measures", "loss")
    program = start_program("sweep", str(tmp_path / "sweep.toml"), "--out", str(tmp_path / "ray"), *words)
    _, errors = program.communicate(timeout=300)
    assert program.returncode == 0, errors
    # Nothing is left to train: this reads what Ray wrote.
    again = sweep(small_sweep(), tmp_path / "ray", resume=True, workers=1)
    assert trained == []
    assert untimed(again) == untimed(whole)


def test_a_stopped_sweep_goes_on_with_what_is_missing(
    tmp_path: Path, whole: SweepResult, trained: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = command.train_group

    def stopped(group: command.Group) -> bytes:
        if len(trained) == 2:
            raise KeyboardInterrupt
        return noted(group)

    with monkeypatch.context() as patch:
        patch.setattr(command, "train_group", stopped)
        with pytest.raises(KeyboardInterrupt):
            sweep(small_sweep(), tmp_path / "out", workers=1)
    assert len(trained) == 2
    assert untimed(sweep(small_sweep(), tmp_path / "out", resume=True, workers=1)) == untimed(whole)
    # Each of the eight groups once.
    assert len(trained) == len(set(trained)) == 8


def untimed_csv(out: Path) -> bytes:
    with (out / "sweep.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    place = rows[0].index("train_seconds")
    return "\n".join(",".join(row[:place] + row[place + 1 :]) for row in rows).encode()


def test_a_stopped_sweep_resumed_from_its_folder_alone_is_the_same_sweep_to_the_byte(tmp_path: Path) -> None:
    # A range before a list: a writer of TOML would turn them round.
    vary: dict[str, Axis] = {"training.learning_rate": Range(low=0.01, high=0.1, count=2), "masking.mask": (0.2, 0.4)}
    asked = small_sweep(vary=vary, seeds=(0, 3))
    undisturbed = sweep(asked, tmp_path / "undisturbed", workers=1, measures=["loss"]).out

    def stop(done: int, total: int, name: str) -> None:
        raise KeyboardInterrupt

    out = tmp_path / "stopped"
    with pytest.raises(KeyboardInterrupt):
        sweep(asked, out, workers=1, report=stop)
    assert not (out / "sweep.csv").exists()
    sweep(out / "sweep.toml", out, resume=True, workers=1, measures=["loss"])
    assert untimed_csv(out) == untimed_csv(undisturbed)
    runs, figures = ({path.name for path in (out / name).iterdir()} for name in ("runs", "figures"))
    assert runs == {path.name for path in (undisturbed / "runs").iterdir()}
    assert figures == {path.name for path in (undisturbed / "figures").iterdir()}


def test_figures_are_drawn_anew_without_those_of_before_and_files_of_the_user_stay(tmp_path: Path) -> None:
    one = small_sweep(vary={"training.learning_rate": (0.01, 0.1)}, seeds=(0,))
    folder = sweep(one, tmp_path / "out", workers=1, measures=["loss"]).out / "figures"
    drawn = {path.name for path in folder.iterdir()}
    two = small_sweep(vary={"training.learning_rate": (0.01, 0.1), "masking.mask": (0.2,)}, settings={})
    ours = folder / "map-masking.mask-training.learning_rate.svg"
    mine = folder / "map-of-my-own.svg"
    ours.touch()
    mine.touch()
    command._remove_figures(two, folder)
    assert {path.name for path in folder.iterdir()} == {mine.name}
    sweep(one, tmp_path / "out", workers=1, measures=["loss"], resume=True)
    assert {path.name for path in folder.iterdir()} == drawn | {mine.name}


def test_a_group_is_named_with_four_digits_and_told_apart_by_its_settings(tmp_path: Path) -> None:
    close = small_sweep(vary={"training.learning_rate": (0.009486832980505141, 0.009486832980505143)}, seeds=(0,))
    items = [item for _, item in command.group_items(close, tmp_path)]
    assert [item.name for item in items] == ["learning_rate 0.009487"] * 2
    assert len({item.argument.folder for item in items}) == 2


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


@pytest.mark.parametrize(
    ("damage", "file"),
    [
        (truncate, "work/*.json"),
        (truncate, "runs/*/seed-4/metrics.jsonl"),
        (truncate, "runs/*/seed-4/checkpoint-12.safetensors"),
        (Path.unlink, "runs/*/seed-4/settings.toml"),
    ],
)
def test_a_group_with_a_damaged_or_missing_file_is_trained_again_and_no_other(
    tmp_path: Path, trained: list[str], damage: Callable[[Path], None], file: str
) -> None:
    few = small_sweep(vary={"training.learning_rate": (0.01, 0.1)}, seeds=(4,))
    before = sweep(few, tmp_path / "out", workers=1)
    trained.clear()
    victim = min((tmp_path / "out").glob(file))
    damage(victim)
    after = sweep(few, tmp_path / "out", resume=True, workers=1)
    assert untimed(after) == untimed(before)
    assert len(trained) == 1
    assert trained[0] in str(victim)
    trained.clear()
    sweep(few, tmp_path / "out", resume=True, workers=1)
    assert trained == []


def test_files_of_the_user_are_left_alone_and_cause_no_training(tmp_path: Path, trained: list[str]) -> None:
    one = small_sweep(vary={"training.learning_rate": (0.01,)}, seeds=(4,))
    before = sweep(one, tmp_path / "out", workers=1)
    (run,) = (tmp_path / "out").glob("runs/*/seed-4")
    notes = [run / "notes.txt", run.parent / "plots" / "loss.png"]
    for path in notes:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    trained.clear()
    sweep(one, tmp_path / "out", resume=True, workers=1)
    assert trained == []
    truncate(run / "metrics.jsonl")
    assert untimed(sweep(one, tmp_path / "out", resume=True, workers=1)) == untimed(before)
    assert len(trained) == 1
    assert [path.read_text() for path in notes] == ["mine", "mine"]
    # Nor are they taken for the sweep's own after training.
    notes[0].unlink()
    sweep(one, tmp_path / "out", resume=True, workers=1)
    assert len(trained) == 1


def test_the_table_has_every_column_of_any_row_in_order() -> None:
    runs: list[dict[str, Any]] = [
        {"seed": 0, "loss": 1.0, "norm_key": 2.0},
        {"seed": 1, "loss": 1.0, "norm_value": 3.0},
        {"seed": 2},
    ]
    rows = table_rows([({"data.topics": 3}, [run | {"train_seconds": 1.0, "run": "here"} for run in runs])])
    columns = ["data.topics", "seed", "loss", "norm_key", "norm_value", "train_seconds", "run"]
    assert [list(row) for row in rows] == [columns] * 3
    assert [row["norm_value"] for row in rows] == [None, 3.0, None]


def test_a_run_that_diverges_has_no_measures_and_does_not_keep_others_from_theirs(tmp_path: Path) -> None:
    settings = overlay(SMALL, {"training": {"optimizer": "sgd", "loss": "squared"}})
    wild = small_sweep(settings=settings, vary={"training.learning_rate": (0.01, 1e12)}, seeds=(0,))
    tame, diverged = sweep(wild, tmp_path / "out", workers=1).rows
    assert not tame["diverged"]
    assert tame["loss"] > 0
    assert diverged["diverged"]
    assert diverged["loss"] is None
    assert list(tame) == list(diverged)


def test_another_sweep_in_the_same_folder_is_refused_and_named(tmp_path: Path) -> None:
    one = small_sweep(vary={"training.learning_rate": (0.1,)}, seeds=(0,))
    sweep(one, tmp_path / "out", workers=1)
    with pytest.raises(InputError, match="is not empty: choose another folder, or add --resume"):
        sweep(one, tmp_path / "out", workers=1)
    with pytest.raises(InputError, match=r"it differs in seeds\)"):
        sweep(small_sweep(vary=one.vary, seeds=(1,)), tmp_path / "out", resume=True)
    elsewhere = Sweep(vary={"data.topics": (3,)}, seeds=(0,))
    with pytest.raises(
        InputError, match=r"differs in settings\.data\.\w+, settings\.data\.\w+, [\w.]+, and \d+ more\)"
    ):
        sweep(elsewhere, tmp_path / "out", resume=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(InputError, match="holds no sweep"):
        sweep(one, tmp_path / "other", resume=True)


def test_everything_wrong_with_a_sweep_is_found_before_anything_is_trained(tmp_path: Path, trained: list[str]) -> None:
    np.save(tmp_path / "words.npy", np.full((2, 3), 1 / 3))
    settings = {"data": {"topic_words": str(tmp_path / "words.npy")}}
    with pytest.raises(InputError, match=r"model\.heads = 3"):
        sweep(Sweep(settings=settings, vary={"model.heads": (1, 3)}), tmp_path / "out")
    with pytest.raises(
        InputError, match=r"contrast_valu\" is not a measure of a sweep: give any of loss, .*norm_value"
    ):
        sweep(small_sweep(), tmp_path / "out", workers=1, measures=["contrast_valu"])
    assert not (tmp_path / "out").exists()
    assert trained == []
