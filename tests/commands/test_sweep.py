"""``topicscope sweep``: what is trained and written, and its command line."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

from support.helpers import ONE_HOT_UNIFORM, SMALL, overlay, start_program
from support.small_sweeps import shared, small_sweep, untimed
from topicscope.cli import main
from topicscope.commands import sweep as command
from topicscope.commands.sweep import Group, SweepResult, sweep, sweep_figure, train_group
from topicscope.errors import InputError
from topicscope.measure.run import read_run
from topicscope.records import SWEEP, sweep_table
from topicscope.settings.sweep import Sweep
from topicscope.store import table_rows_of


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> SweepResult:
    return sweep(small_sweep(), tmp_path_factory.mktemp("sweep") / "whole", workers=1)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the groups that are trained from now on, in this process; without figures."""
    names: list[str] = []
    monkeypatch.setattr(command, "sweep_figure", lambda *anything: None)

    def noted(group: Group) -> bytes:
        names.append(group.name)
        return train_group(group)

    monkeypatch.setattr(command, "train_group", noted)
    return names


def test_the_table_has_a_row_a_run_and_measures_are_those_of_the_run_folders(whole: SweepResult) -> None:
    cells = sweep_table(whole.rows)
    assert list(cells[0])[:3] == ["training.learning_rate", "data.length", "seed"]
    assert [row["data.length"] for row in cells[::3]] == ["[4, 9]", "[5, 9]"] * 2
    assert [row["seed"] for row in cells] == [0, 3, 4] * 4
    assert SWEEP.read(whole.out) == whole.rows
    assert [row["loss"] for row in table_rows_of((whole.out / "sweep.csv").read_text())] == [
        str(row["loss"]) for row in cells
    ]
    assert [path.name for path in whole.figures] == ["sweep.png", "sweep.svg", "sweep.csv"]
    for row in whole.rows:
        run = read_run(whole.out / row.run)
        seed = run.seeds.index(row.seed)
        loss, validation_loss = (run.metrics[name][seed, -1] for name in ("loss", "validation_loss"))
        assert (row.measures["loss"], row.measures["validation_loss"]) == (loss, validation_loss)
        assert run.reference is not None
        assert row.measures["excess_loss"] == pytest.approx(validation_loss - run.reference.bayes_floor.loss)
        assert row.measures["norm_value"] == pytest.approx(np.linalg.norm(run.weights["value"][seed]), rel=1e-6)
        assert run.settings.training.learning_rate == row.settings["training.learning_rate"]
    assert len({row.measures["loss"] for row in whole.rows}) == len(whole.rows)


def test_a_sweep_of_value_matrices_measures_how_far_they_are_from_the_exact_optimum(tmp_path: Path) -> None:
    settings = overlay(SMALL, {"model": ONE_HOT_UNIFORM, "training": {"loss": "squared"}})
    one = small_sweep(settings=settings, vary={"training.learning_rate": (0.003, 0.03)}, seeds=(0,))
    result = sweep(one, tmp_path / "out", workers=1)
    slow, fast = result.rows
    for row in (slow, fast):
        run = read_run(result.out / row.run)
        best, value = run.theory["value_products"], run.weights["value"][0, 0]
        distance = np.linalg.norm(value - best) / np.linalg.norm(best)
        assert row.measures["distance_to_optimum"] == pytest.approx(distance, rel=1e-5)
    # From near zero in a few steps, the larger rate comes nearer.
    excess = [row.measures["excess_over_optimum"] or 0.0 for row in (slow, fast)]
    assert excess[0] > excess[1] > 0
    assert "distance to optimum" in (result.out / "figures" / "sweep.csv").read_text()


def test_a_stopped_sweep_resumes_from_its_folder_alone_on_other_workers_to_the_bit(
    tmp_path: Path, whole: SweepResult, trained: list[str]
) -> None:
    def stop(done: int, total: int, name: str) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(small_sweep(), tmp_path / "out", workers=1, report=stop)
    assert len(trained) == 2
    resumed = sweep(tmp_path / "out" / "sweep.toml", tmp_path / "out", resume=True, workers=1)
    assert untimed(resumed) == untimed(whole)
    # Each of the eight groups once, and each run as if nothing had stopped it.
    assert len(trained) == len(set(trained)) == 8
    for row in whole.rows:
        for name in ("run.safetensors", "checkpoint-12.safetensors", "settings.toml"):
            assert (whole.out / row.run / name).read_bytes() == (resumed.out / row.run / name).read_bytes()


def test_groups_are_named_with_four_digits_and_told_apart_by_their_settings(tmp_path: Path) -> None:
    close = small_sweep(vary={"training.learning_rate": (0.009486832980505141, 0.009486832980505143)}, seeds=(0,))
    work = command.tasks(close, tmp_path)
    assert [task.name for task in work] == ["learning_rate 0.009487"] * 2
    assert len({task.argument.name for task in work}) == 2


def test_a_run_that_diverges_has_no_measures_and_does_not_keep_others_from_theirs(tmp_path: Path) -> None:
    settings = overlay(SMALL, {"training": {"optimizer": "sgd", "loss": "squared"}})
    wild = small_sweep(settings=settings, vary={"training.learning_rate": (0.01, 1e12)}, seeds=(0,))
    result = sweep(wild, tmp_path / "out", workers=1)
    tame, diverged = result.rows
    assert (tame.diverged, diverged.diverged) == (False, True)
    assert tame.measures["loss"] is not None
    assert diverged.measures == {}
    columns, others = map(list, sweep_table(result.rows))
    assert columns == others


def test_another_sweep_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    one = small_sweep(vary={"training.learning_rate": (0.1,)}, seeds=(0,))
    sweep(one, tmp_path / "out", workers=1)
    with pytest.raises(InputError, match="is not empty: choose another folder, or add --resume"):
        sweep(one, tmp_path / "out", workers=1)
    for other in (small_sweep(vary=one.vary, seeds=(1,)), Sweep(vary={"data.topics": (3,)})):
        with pytest.raises(InputError, match="holds another sweep: leave"):
            sweep(other, tmp_path / "out", resume=True)


def test_everything_wrong_with_a_sweep_is_found_before_anything_is_trained(tmp_path: Path, trained: list[str]) -> None:
    np.save(tmp_path / "words.npy", np.full((2, 3), 1 / 3))
    settings = {"data": {"topic_words": str(tmp_path / "words.npy")}}
    with pytest.raises(InputError, match=r"model\.heads = 3"):
        sweep(Sweep(settings=settings, vary={"model.heads": (1, 3)}), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert trained == []


@pytest.fixture
def sweep_file(tmp_path: Path) -> Path:
    path = tmp_path / "sweep.toml"
    path.write_text(tomli_w.dumps({"seeds": 2, "settings": SMALL, "vary": {"training.learning_rate": [0.01, 0.1]}}))
    return path


def test_sweep_prints_rows_as_json_alone_and_resumes_without_its_file(
    tmp_path: Path, sweep_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["sweep", str(sweep_file), "--out", str(out), "--dry-run"]) == 0
    assert capsys.readouterr().out == "4 runs: 2 combinations, trained in 2 groups.\n"
    assert not out.exists()
    assert main(["sweep", str(sweep_file), "--out", str(out), "--workers", "1", "--json"]) == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    assert [row["training.learning_rate"] for row in rows] == [0.01, 0.01, 0.1, 0.1]
    before = {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*")}
    assert main(["sweep", "--out", str(out), "--resume", "--workers", "1"]) == 0
    printed = capsys.readouterr().out
    means = [float(np.mean([row["excess_loss"] for row in rows[at : at + 2]])) for at in (0, 2)]
    best = f"training.learning_rate = {(0.01, 0.1)[int(np.argmin(means))]}: {min(means):.4g} on average over seeds"
    assert f"4 runs. The excess loss over the Bayes floor is smallest at {best}" in printed
    assert printed.splitlines()[-1].startswith(str(out / "report.html"))
    assert {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*")} == before
    assert main(["sweep", "--out", str(out), "--resume", "--dry-run"]) == 0
    assert "trained in 2 groups, 2 of them finished." in capsys.readouterr().out
    assert main(["train", str(sweep_file), "--out", str(tmp_path / "run")]) == 2
    assert "is a sweep, not the settings of one run: use `topicscope sweep" in capsys.readouterr().err


def test_bad_options_are_one_sentence_and_exit_code_2(
    tmp_path: Path, sweep_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").touch()
    places = {"OUT": str(tmp_path / "out"), "SWEEP": str(sweep_file), "NOTES": str(tmp_path / "notes")}
    for line, message in (
        ("--out OUT", "SWEEP.toml is missing"),
        ("--out OUT --resume", "out/sweep.toml cannot be read"),
        ("--out NOTES --resume", "notes/sweep.toml cannot be read"),
        ("SWEEP --out NOTES --resume", "notes is not empty and holds no sweep: give a new folder"),
        ("SWEEP --out NOTES", "notes is not empty and holds no sweep: give a new folder"),
        ("SWEEP", "--out is missing"),
        ("SWEEP --out OUT --address auto", "add --engine ray"),
        ("SWEEP --out OUT --workers 0", "--workers = 0 is not allowed"),
        ("SWEEP --out OUT --workers x", "give a whole number"),
        ("SWEEP --out OUT --engine cloud", "give one of local, ray"),
        ("nowhere.toml --out OUT", "nowhere.toml cannot be read"),
    ):
        assert main(["sweep", *(places.get(word, word) for word in line.split())]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def table(*, rates: tuple[Any, ...] = (0.01, 0.1), topics: tuple[int, ...] = (5, 10)) -> list[dict[str, Any]]:
    draw = np.random.default_rng(0)
    return [
        {"rate": rate, "topics": count, "seed": seed, "diverged": False, "excess_loss": float(draw.normal(loc=count))}
        for rate in rates
        for count in topics
        for seed in range(3)
    ]


def test_the_figure_has_a_dot_per_run_and_the_means_in_a_colour_for_each_combination_of_other_settings() -> None:
    rows = table()
    figure = sweep_figure(rows, ["rate", "topics"])
    assert figure
    [axes] = figure.axes
    assert axes.get_xscale() == "log"
    dots, means = (
        np.concatenate([line.get_ydata() for line in axes.lines if line.get_linestyle() == style])
        for style in ("None", "-")
    )
    assert sorted(dots) == sorted(row["excess_loss"] for row in rows)
    groups = [[row["excess_loss"] for row in rows[at : at + 3]] for at in (0, 6, 3, 9)]
    assert means == pytest.approx([np.mean(group) for group in groups])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["topics 5", "topics 10"]
    # Words are not joined, runs that diverged are left out, and too many combinations have one colour.
    rows = table(rates=("one", "other"), topics=(5,))
    rows[0] |= {"diverged": True, "excess_loss": None}
    figure = sweep_figure(rows, ["rate", "topics"])
    assert figure
    assert "diverged are left out" in figure.get_suptitle()
    assert {str(line.get_linestyle()) for line in figure.axes[0].lines} == {"None"}
    assert len(figure.axes[0].lines[0].get_xdata()) == 5  # type: ignore[arg-type]
    assert not sweep_figure(table(topics=tuple(range(9))), ["rate", "topics"]).legends  # type: ignore[union-attr]
    assert sweep_figure(table(), ["diverged"]) is None


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["local", "ray"])
def test_a_killed_sweep_ends_with_the_table_of_one_that_was_not(tmp_path: Path, engine: str) -> None:
    settings = SMALL | {"training": {"steps": 150, "checkpoint_every": 20, "batch": 5, "snapshots": 0}}
    path, vary = tmp_path / "long.toml", {"data.topics": [3, 4, 5, 6]}
    path.write_text(tomli_w.dumps({"seeds": 2, "settings": shared(settings, vary), "vary": vary}))
    assert main(["sweep", str(path), "--out", str(tmp_path / "whole"), "--workers", "1", "--quiet"]) == 0
    out = tmp_path / "killed"
    program = start_program("sweep", str(path), "--out", str(out), "--quiet", "--engine", engine, "--workers", "2")
    end = time.monotonic() + 500
    while not list((out / "work").glob("*.json")) and program.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.02)
    assert program.poll() is None, program.communicate()
    program.kill()
    program.communicate()
    # Workers of a Ray that was killed end some seconds after it; until then they keep others out of their runs.
    while main(["sweep", str(path), "--out", str(out), "--quiet", "--resume", "--workers", "1"]) != 0:
        assert time.monotonic() < end
        time.sleep(1)
    killed, not_killed = (sweep_table(SWEEP.read(folder)) for folder in (out, tmp_path / "whole"))
    assert [row | {"train_seconds": 0} for row in killed] == [row | {"train_seconds": 0} for row in not_killed]
