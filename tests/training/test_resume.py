"""Runs that are stopped, killed, damaged, made longer or changed, and resumed."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.helpers import run_files, small_settings, start_program
from support.text_corpus import small_text_settings
from topicscope.errors import InputError, StoppedTraining
from topicscope.measure.run import read_run
from topicscope.settings import Settings
from topicscope.settings.toml import dump_settings
from topicscope.store import checkpoint_path, checkpoint_steps
from topicscope.training.folder import RunFolder
from topicscope.training.loop import stop_on_interrupt, train
from topicscope.work import Report

KINDS = ("documents", "text")
LONGEST_WAIT = 60.0


class StopError(Exception):
    pass


@pytest.fixture(params=KINDS)
def small(request: pytest.FixtureRequest, corpus: Path) -> Callable[..., Settings]:
    """Small settings, of documents and of text."""
    if request.param == "documents":
        return small_settings
    pytest.importorskip("transformers")
    return lambda **changes: small_text_settings(corpus, **changes)


def stopping_at(step: int) -> Report:
    def report(done: int, total: int, state: str) -> None:
        if done >= step:
            raise StopError

    return report


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
    for resume, reason in ((False, "is not empty"), (True, "holds no run to resume")):
        with pytest.raises(InputError, match=reason):
            train(small_settings(), tmp_path, resume=resume)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    # What a run leaves that was killed before it had settings does not count.
    run = tmp_path / "run"
    run.mkdir()
    (run / ".settings.toml.0123456789ab.tmp").touch()
    assert RunFolder(run).settings_to_train(small_settings(), [0], resume=True) == small_settings()


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


def test_a_run_begun_by_another_process_meanwhile_is_not_taken_over(tmp_path: Path) -> None:
    train(small_settings(seed=9), tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    with folder.locked(), pytest.raises(InputError, match="by another process"):
        train(small_settings(seed=1), folder.path)
    with pytest.raises(InputError, match="is not empty"):
        train(small_settings(seed=1), folder.path)
    assert folder.settings().seed == 9


# Stopped, interrupted, killed, damaged.


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_a_run_stopped_at_any_step_and_resumed_ends_with_the_same_files(
    small: Callable[..., Settings], optimizer: str, tmp_path: Path
) -> None:
    changes = {"optimizer": optimizer, "schedule": "alternating", "decay": "cosine", "l2": 0.01, "snapshots": 4}
    settings, seeds = small(training=changes), (4, 2) if optimizer == "momentum" else ()
    whole = run_files(train(settings, tmp_path / "whole", seeds=seeds).path)
    for stop_at in (0, 2, 6, 12):
        out = tmp_path / f"stopped-{stop_at}"
        with pytest.raises(StopError):
            train(settings, out, seeds=seeds, report=stopping_at(stop_at))
        assert run_files(out) != whole
        assert run_files(train(settings, out, seeds=seeds, resume=True).path) == whole
    # A finished run does not change any more.
    assert run_files(train(settings, out, resume=True).path) == whole


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


@pytest.fixture
def _usual_handler() -> Iterator[None]:
    """Python's own handler of Ctrl-C, whatever runs the tests has put there."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_usual_handler")
def test_ctrl_c_saves_at_once_and_the_resumed_run_ends_with_the_same_files(
    small: Callable[..., Settings], tmp_path: Path
) -> None:
    """Ctrl-C while a step is being computed; checkpoints are due at 0, 4, 8 and 12, and the two newest are kept."""
    settings = small(training={"steps": 14, "checkpoint_every": 4})
    whole = run_files(train(settings, tmp_path / "whole").path)

    def press_at(step: int) -> Report:
        return lambda done, total, state: os.kill(os.getpid(), signal.SIGINT) if done == step else None

    for steps in ((0,), (3, 4, 9), (12,)):
        out = tmp_path / f"stopped-{steps[0]}"
        for step in steps:
            with pytest.raises(StoppedTraining, match=f"stopped at step {step + 1}, which is saved: .*{out} --resume"):
                train(settings, out, resume=True, report=press_at(step))
            assert checkpoint_steps(out)[-1] == step + 1
            assert run_files(out) != whole
        assert run_files(train(settings, out, resume=True).path) == whole
    # At the last step it comes too late.
    assert run_files(train(settings, tmp_path / "late", report=press_at(14)).path) == whole


@pytest.mark.usefixtures("_usual_handler")
def test_a_second_ctrl_c_stops_at_once_and_a_handler_of_somebody_else_is_left_alone() -> None:
    with stop_on_interrupt() as stop:
        assert not stop()
        os.kill(os.getpid(), signal.SIGINT)
        assert stop()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    pressed: list[int] = []

    def theirs(number: int, frame: Any) -> None:
        pressed.append(number)

    signal.signal(signal.SIGINT, theirs)
    with stop_on_interrupt() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert not stop()
    assert pressed == [signal.SIGINT]
    assert signal.signal(signal.SIGINT, signal.default_int_handler) is theirs


def started(settings: Settings, out: Path, *words: str) -> subprocess.Popen[str]:
    """A run as a process of its own, once it has written another checkpoint."""
    toml, before = out.with_suffix(".toml"), newest(out)
    toml.write_text(dump_settings(settings))
    process = start_program("train", str(toml), "--out", str(out), "--device", "cpu", *words)
    deadline = time.monotonic() + LONGEST_WAIT
    while process.poll() is None and time.monotonic() < deadline and newest(out) <= before:
        time.sleep(0.005)
    return process


def newest(out: Path) -> int:
    return max(checkpoint_steps(out), default=-1) if out.exists() else -1


@pytest.mark.slow
def test_ctrl_c_on_the_command_line_is_one_sentence_and_exit_code_130(tmp_path: Path) -> None:
    settings, out = (
        small_settings(training={"steps": 100_000, "checkpoint_every": 7, "log_every": 100}),
        tmp_path / "run",
    )
    process = started(settings, out)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=LONGEST_WAIT)
    assert process.returncode == 130
    again = f"topicscope train --out {out} --resume"
    sentence = f"topicscope: stopped at step {newest(out)}, which is saved: {again} resumes there."
    assert errors.splitlines()[-1] == sentence
    assert "Traceback" not in errors


@pytest.mark.slow
def test_killed_runs_end_like_one_that_was_not_killed(small: Callable[..., Settings], tmp_path: Path) -> None:
    """At random moments, with a checkpoint every few milliseconds; the second kill hits a run that was resumed."""
    settings, draw = small(training={"steps": 400, "checkpoint_every": 3, "snapshots": 5}), np.random.default_rng(0)
    whole = run_files(train(settings, tmp_path / "whole", device="cpu").path)
    landed = 0
    for number in range(3):
        out = tmp_path / f"killed-{number}"
        for words in ((), ("--resume",)):
            process = started(settings, out, "--quiet", *words)
            time.sleep(draw.uniform(0, 0.3))
            landed += process.poll() is None
            process.kill()
            _, errors = process.communicate()
            assert not errors
        ended = train(settings, out, resume=True, device="cpu").path
        assert {name: file for name, file in run_files(ended).items() if name != "report.html"} == whole
    assert landed > 2


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


def test_a_tokenizer_of_a_run_without_settings_is_made_again(corpus: Path, tmp_path: Path) -> None:
    """Killed before its settings were written, a run may be resumed with others."""
    pytest.importorskip("transformers")
    settings = small_text_settings(corpus)
    whole = run_files(train(settings, tmp_path / "whole").path)
    other = train(small_text_settings(corpus, data={"vocabulary": 70}), tmp_path / "other").path
    begun = tmp_path / "begun"
    for name in ("tokenizer", "passages"):
        shutil.copytree(other / name, begun / name)
    assert (begun / "tokenizer" / "tokenizer.json").read_bytes() != whole["tokenizer/tokenizer.json"]
    # Bad settings do not stay there as those to resume with.
    with pytest.raises(InputError, match=r"data\.vocabulary"):
        train(small_text_settings(corpus, data={"vocabulary": 5_000}), begun, resume=True)
    assert {path.name for path in begun.iterdir()} <= {"tokenizer", "passages"}
    assert run_files(train(settings, begun, resume=True).path) == whole


# Something is different.


def test_resuming_with_other_settings_seeds_or_versions_names_what_differs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = train(small_settings(), tmp_path / "run")
    before = run_files(folder.path)
    refused: list[tuple[dict[str, Any], tuple[int, ...], str]] = [
        (
            {"seed": 5, "training": {"learning_rate": 0.5}},
            (),
            r"seed \(0 there, 5 here\), training\.learning_rate \(0\.01 there, 0\.5 here\); leave the settings out",
        ),
        ({"training": {"threads": 2}}, (), r"--training\.threads 1"),
        ({}, (0, 1), r"seed \(\[0\] there, \[0, 1\] here\); leave .*, with the same seeds"),
        ({"data": {"topics": 4}}, (), r"data\.topics \(3 there, 4 here\)"),
    ]
    for changes, seeds, sentence in refused:
        with pytest.raises(InputError, match=sentence):
            train(small_settings(**changes), folder.path, seeds=seeds, resume=True)
    with pytest.raises(InputError, match="holds a run on documents of a topic model"):
        train(small_text_settings(), folder.path, resume=True)
    assert run_files(folder.path) == before
    path = folder.path / "versions.json"
    versions = json.loads(path.read_text())
    path.write_text(json.dumps(versions | {"packages": versions["packages"] | {"torch": "1.0"}}))
    train(small_settings(), folder.path, resume=True)
    assert "was begun with torch 1.0" in caplog.text


def test_another_corpus_or_device_is_refused(corpus: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    moved = tmp_path / "moved.txt"
    moved.write_text(corpus.read_text())
    run = train(small_text_settings(moved), tmp_path / "run", device="cpu")
    asked = {"device": "cuda"}
    with pytest.raises(InputError, match=r"device \(\"?cpu\"? there, \"?cuda\"? here\); .* seeds, corpus and device"):
        run.settings_to_train(run.settings(), [0], resume=True, facts=asked)
    checkpoints = {name: file for name, file in run_files(run.path).items() if "checkpoint" in name}
    moved.write_text(corpus.read_text() + "the frog and the toad in the pond\n" * 9)
    with pytest.raises(InputError, match=r"passages \(.* there, .* here\); leave the settings out"):
        train(small_text_settings(moved), run.path, resume=True)
    assert checkpoints.items() <= run_files(run.path).items()


# Runs made longer.


def lengthened(first: Settings, last: Settings, out: Path) -> tuple[Path, Path]:
    """A run that was made longer once it was finished, and one that was so long from the start."""
    train(first, out / "longer", seeds=(0, 3))
    return train(last, out / "longer", resume=True).path, train(last, out / "whole", seeds=(0, 3)).path


def same_but_frames(one: Path, other: Path) -> bool:
    """Whether runs differ at most in the steps at which matrices were kept."""
    first, second = run_files(one), run_files(other)
    metrics, others = (read_run(path).metrics for path in (one, other))
    same = all(np.array_equal(values, others[name], equal_nan=True) for name, values in metrics.items())
    different = {name for name in first.keys() | second.keys() if first.get(name) != second.get(name)}
    return same and metrics.keys() == others.keys() and different <= {"run.safetensors"}


@pytest.mark.parametrize("first", [12, 13])
@pytest.mark.parametrize("changes", [{"optimizer": "sgd"}, {"schedule": "two_stage", "stage_steps": 12}])
def test_a_finished_run_made_longer_is_to_the_bit_one_that_was_so_long_from_the_start(
    small: Callable[..., Settings], first: int, changes: dict[str, Any], tmp_path: Path
) -> None:
    """Weights, optimiser and metrics, also where the first run ends between two rows: these compare W^V with before."""
    short, long, other = (
        small(seed=seed, training={"optimizer": "adam", "steps": steps, "checkpoint_every": 5, **changes})
        for seed, steps in ((0, first), (0, 31), (1, 31))
    )
    longer, whole = lengthened(short, long, tmp_path)
    assert same_but_frames(longer, whole)
    # A control: a run with another seed ends elsewhere.
    assert not same_but_frames(whole, train(other, tmp_path / "other").path)


@pytest.mark.parametrize("training", [{"decay": "cosine"}, {"schedule": "alternating"}, {"schedule": "two_stage"}])
def test_a_run_whose_beginning_depends_on_its_length_cannot_be_made_longer_and_none_shorter(
    tmp_path: Path, training: dict[str, Any]
) -> None:
    out = train(small_settings(training=training), tmp_path / "run").path
    before = run_files(out)
    reason = "its beginning depends on the number of steps (decay, schedule), so it cannot be made longer"
    with pytest.raises(InputError, match=re.escape(f"training.steps (12 there, 20 here); {reason}")):
        train(small_settings(training=training | {"steps": 20}), out, resume=True)
    with pytest.raises(InputError, match=r"training.steps \(12 there, 8 here\); a run cannot be made shorter: leave"):
        train(small_settings(training=training | {"steps": 8}), out, resume=True)
    assert run_files(out) == before
