"""``topicscope sweep``: what is trained and written, what it would take, and its command line."""

import csv
import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import tomli_w
from safetensors.numpy import load_file

import topicscope
from support.helpers import ONE_HOT_UNIFORM, SMALL, overlay, start_program
from support.small_sweeps import shared, small_sweep, untimed
from topicscope.cli import main
from topicscope.commands import sweep as command
from topicscope.commands.sweep import SweepResult, estimate_sweep, packed, sweep, table_rows
from topicscope.errors import InputError
from topicscope.measure.uncertainty import student_interval
from topicscope.scale import Item, code_digest
from topicscope.settings.sweep import Axis, Range, Sweep, dump_sweep
from topicscope.training.loop import Ensemble, train_ensemble
from topicscope.training.runs import RunFolder
from topicscope.training.sweep import MEASURES, Group, train_group


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> SweepResult:
    return sweep(small_sweep(), tmp_path_factory.mktemp("sweep") / "whole", workers=1)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the groups that are trained from now on, in this process; without figures."""
    names: list[str] = []
    monkeypatch.setattr("topicscope.commands.sweep._draw", lambda *anything: [])

    def noted(group: Group) -> bytes:
        names.append(group.folder.name)
        return train_group(group)

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
    assert set(MEASURES) <= set(whole.rows[0])


def test_a_sweep_of_value_matrices_measures_and_draws_how_far_they_are_from_the_exact_optimum(tmp_path: Path) -> None:
    """And no attention, which is frozen; nor a Bayes floor's excess where the same number holds for all runs."""
    settings = overlay(SMALL, {"model": ONE_HOT_UNIFORM, "training": {"loss": "squared"}})
    one = small_sweep(settings=settings, vary={"training.learning_rate": (0.003, 0.03)}, seeds=(0,))
    result = sweep(one, tmp_path / "out", workers=1)
    slow, fast = result.rows
    for row in (slow, fast):
        run = RunFolder(result.out / row["run"])
        best = load_file(run.path / "reference.safetensors")["value"]
        value = load_file(run.path / "checkpoint-12.safetensors")["weights/value"][0]
        away = np.linalg.norm(value - best) / np.linalg.norm(best)
        assert row["distance_to_optimum"] == pytest.approx(away, rel=1e-5)
    # From near zero in a few steps, the larger rate comes nearer.
    assert slow["excess_over_optimum"] > fast["excess_over_optimum"] > 0
    with (result.out / "figures" / "by-training.learning_rate.csv").open() as file:
        drawn = {row["measure"] for row in csv.DictReader(file)}
    assert {"distance_to_optimum", "excess_over_optimum"} < drawn
    assert "attention_same_topic" not in drawn


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
    noted: Callable[[Group], bytes] = vars(command)["train_group"]

    def stopped(group: Group) -> bytes:
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
    assert command._draw(two, [], (), folder.parent) == []
    assert {path.name for path in folder.iterdir()} == {mine.name}
    sweep(one, tmp_path / "out", workers=1, measures=["loss"], resume=True)
    assert {path.name for path in folder.iterdir()} == drawn | {mine.name}


def test_a_group_is_named_with_four_digits_and_told_apart_by_its_settings(tmp_path: Path) -> None:
    close = small_sweep(vary={"training.learning_rate": (0.009486832980505141, 0.009486832980505143)}, seeds=(0,))
    items = [item for _, item in command.group_items(close, tmp_path)]
    assert [item.name for item in items] == ["learning_rate 0.009487"] * 2
    assert len({item.argument.folder for item in items}) == 2


def test_finished_work_is_known_by_the_code_that_trains_and_measures_not_by_that_which_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "topicscope"
    shutil.copytree(Path(topicscope.__file__).parent, root, ignore=shutil.ignore_patterns("__pycache__", "assets"))
    monkeypatch.setattr(sys.modules[code_digest.__module__], "ROOT", root)
    monkeypatch.setattr(sys.modules[code_digest.__module__], "code_digest", code_digest.__wrapped__)
    digests = []
    for changed in ("cli.py", "commands/sweep.py", "training/sweep.py"):
        with (root / changed).open("a") as file:
            file.write("# another version\n")
        digests.append(command.group_items(small_sweep(), tmp_path)[0][1].digest)
    assert digests[0] == digests[1] != digests[2]


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


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of what is tried from now on; a group takes half a second and a hundredth for each step."""
    names: set[str] = set()

    def seconds(item: Item[object], folder: Path, steps: int) -> float:
        names.add(item.name)
        return 0.5 + 0.01 * steps

    monkeypatch.setattr("topicscope.commands.sweep._seconds", seconds)
    return names


def test_an_estimate_counts_runs_and_trains_nothing_that_stays(tmp_path: Path) -> None:
    found = estimate_sweep(small_sweep(), tmp_path / "out", workers=2)
    assert (found.combinations, found.runs, found.groups, found.finished) == (4, 12, 8, 0)
    assert 0 < found.wall_seconds < found.compute_seconds
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("tried")
def test_an_estimate_is_the_beginning_and_the_steps_of_every_group(tmp_path: Path) -> None:
    steps = SMALL["training"]["steps"]
    beginning = 0.5 + 0.01
    found = estimate_sweep(small_sweep(), tmp_path / "out", workers=1)
    assert found.compute_seconds == pytest.approx(8 * (beginning + 0.01 * steps))
    # The control: more steps take longer, by their own share alone.
    longer = small_sweep(settings=overlay(SMALL, {"training": {"steps": 1_000 * steps}}))
    expected = 8 * (beginning + 0.01 * 1_000 * steps)
    assert estimate_sweep(longer, tmp_path / "out", workers=1).compute_seconds == pytest.approx(expected)


def test_an_estimate_of_a_sweep_that_goes_on_is_of_what_is_not_finished(
    tmp_path: Path, tried: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_draw", lambda *anything: [])
    three = small_sweep(vary={"training.learning_rate": (0.01, 0.03, 0.1)}, seeds=(0,))
    out = tmp_path / "out"

    def stop(done: int, total: int, name: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(three, out, workers=1, report=stop)
    group = 0.5 + 0.01 + 0.01 * SMALL["training"]["steps"]
    found = estimate_sweep(three, out, resume=True, workers=2)
    assert (found.runs, found.groups, found.finished) == (3, 3, 1)
    assert (found.compute_seconds, found.wall_seconds) == pytest.approx((2 * group, group))
    assert tried == {"learning_rate 0.03", "learning_rate 0.1"}
    # A finished group of which a file is damaged is not finished; a dry run leaves it where it is.
    metrics = next(out.glob("runs/*/seed-0/metrics.jsonl"))
    whole = metrics.read_bytes()
    metrics.write_bytes(whole[:-20])
    before = sorted(out.rglob("*"))
    assert estimate_sweep(three, out, resume=True, workers=2).finished == 0
    assert sorted(out.rglob("*")) == before
    metrics.write_bytes(whole)
    sweep(three, out, resume=True, workers=1)
    tried.clear()
    found = estimate_sweep(three, out, resume=True, workers=2)
    assert (found.finished, found.compute_seconds, found.wall_seconds) == (3, 0, 0)
    assert tried == set()


def test_an_estimate_refuses_the_folders_that_the_sweep_would_refuse(tmp_path: Path, tried: set[str]) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(InputError, match="is not empty"):
        estimate_sweep(small_sweep(), tmp_path, workers=1)
    with pytest.raises(InputError, match="holds no sweep to resume"):
        estimate_sweep(small_sweep(), tmp_path, resume=True, workers=1)
    assert tried == set()


def test_packing_takes_the_longest_first() -> None:
    assert packed([1.0, 1.0, 2.0, 4.0], workers=2) == 4
    assert packed([1.0, 1.0, 2.0, 4.0], workers=1) == 8
    assert packed([3.0, 3.0, 2.0, 2.0, 2.0], workers=2) == 7
    assert packed([1.0, 3.0], workers=10**24) == 3
    assert packed([], workers=10**24) == 0


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


def wait_for_workers_to_end(out: Path) -> None:
    """Those of a Ray that was killed end some seconds after it; until then they keep others out of their runs."""
    end, quiet = time.monotonic() + 120, time.monotonic()
    before: set[str] = set()
    # A worker may only be about to begin: for some seconds nothing is locked and nothing is written.
    while time.monotonic() < quiet + 5:
        assert time.monotonic() < end
        now = {str(path) for path in out.rglob("*")}
        if now != before or not all(map(_is_free, out.glob("runs/*/*"))):
            before, quiet = now, time.monotonic()
        time.sleep(0.2)


def _is_free(run: Path) -> bool:
    """Whether no process trains in a folder."""
    try:
        with RunFolder(run).locked():
            return True
    except InputError:
        return False


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
    assert untimed_csv(out) == untimed_csv(tmp_path / "whole")
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
