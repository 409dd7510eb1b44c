"""A run that is stopped, damaged or taken up again ends as if nothing had happened, or says why it cannot."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from support.helpers import run_files, small_settings
from topicscope.errors import InputError
from topicscope.files import checkpoint_path
from topicscope.training.loop import Ensemble, train, train_ensemble
from topicscope.training.runs import RunFolder
from topicscope.training.schedule import snapshot_steps, spaced_steps

OPTIMIZERS = ("sgd", "momentum", "adam", "adamw")


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_run_stopped_at_any_step_and_resumed_ends_with_the_same_files(tmp_path: Path, optimizer: str) -> None:
    settings = small_settings(
        training={"optimizer": optimizer, "schedule": "alternating", "decay": "cosine", "l2": 0.01}
    )
    whole = run_files(train(settings, tmp_path / "whole").path)

    class StopError(Exception):
        pass

    for stop_at in (0, 2, 6, 12):

        def report(done: int, total: int, state: str, stop_at: int = stop_at) -> None:
            if done >= stop_at:
                raise StopError

        out = tmp_path / f"stopped-{stop_at}"
        with pytest.raises(StopError):
            train(settings, out, report=report)
        assert run_files(out) != whole
        assert run_files(train(settings, out, resume=True).path) == whole


def test_resuming_a_finished_run_changes_nothing(tmp_path: Path) -> None:
    folder = train(small_settings(), tmp_path / "run")
    before = run_files(folder.path)
    assert run_files(train(small_settings(), folder.path, resume=True).path) == before


@pytest.mark.parametrize("damage", ["truncated", "altered", "empty"])
def test_a_damaged_checkpoint_is_passed_over_and_said_so(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = train(small_settings(), tmp_path / "run")
    whole = run_files(folder.path)
    path = checkpoint_path(folder.path, 12)
    content = bytearray(path.read_bytes())
    if damage == "altered":
        content[-3] ^= 1
    path.write_bytes(
        {"truncated": bytes(content[: len(content) // 2]), "altered": bytes(content), "empty": b""}[damage]
    )
    train(small_settings(), folder.path, resume=True)
    assert "checkpoint-12.safetensors is damaged" in caplog.text
    assert "going back to that of step 9" in caplog.text
    checkpoint_path(folder.path, 12).with_suffix(".safetensors.damaged").unlink()
    assert run_files(folder.path) == whole


@pytest.mark.parametrize("name", ["metrics.jsonl", "snapshots.safetensors"])
@pytest.mark.parametrize("damage", ["cut", "spoilt", "gone"])
def test_damaged_records_are_made_again_and_said_so(
    tmp_path: Path, name: str, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = train(small_settings(), tmp_path / "run")
    whole = run_files(folder.path)
    content = whole[name]
    if damage == "gone":
        (folder.path / name).unlink()
    else:
        middle = len(content) // 2
        spoilt = content[:middle] + b"\xff\xfe{" + content[middle + 3 :]
        (folder.path / name).write_bytes(content[:middle] if damage == "cut" else spoilt)
    train(small_settings(), folder.path, resume=True)
    # Safetensors does not notice a changed number: snapshots are for looking at, and carry no checksum.
    if name == "metrics.jsonl" or damage != "spoilt":
        assert f"{name} is damaged; starting again from step 0" in caplog.text
        assert run_files(folder.path) == whole


def test_a_run_stopped_at_any_write_and_resumed_ends_with_the_same_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file of a run is written by a rename: stop before and after each, from the first on."""
    settings = small_settings(training={"steps": 4, "checkpoint_every": 2, "log_every": 1, "snapshots": 2})
    whole = run_files(train(settings, tmp_path / "whole").path)
    original = Path.replace
    left = 0

    class StopError(Exception):
        pass

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


def test_resuming_with_other_settings_names_what_differs(tmp_path: Path) -> None:
    folder = train(small_settings(), tmp_path / "run")
    before = run_files(folder.path)
    other = small_settings(seed=5, training={"learning_rate": 0.5})
    with pytest.raises(
        InputError, match=r"seed \(0 there, 5 here\), training\.learning_rate \(0\.01 there, 0\.5 here\)"
    ):
        train(other, folder.path, resume=True)
    with pytest.raises(InputError, match=r"--training\.threads 1"):
        train(small_settings(training={"threads": 2}), folder.path, resume=True)
    assert run_files(folder.path) == before


def test_going_on_with_other_versions_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = train(small_settings(), tmp_path / "run")
    versions = json.loads(folder.versions_path.read_text())
    folder.versions_path.write_text(json.dumps(versions | {"torch": "1.0"}))
    train(small_settings(), folder.path, resume=True)
    assert "was begun with torch 1.0" in caplog.text


def lengthened(first: int, last: int, out: Path, **training: Any) -> tuple[Path, Path]:
    """A run that was made longer once it was finished, and one that was so long from the start."""
    short, long = (small_settings(training=training | {"steps": steps}) for steps in (first, last))
    train(short, out / "longer")
    return train(long, out / "longer", resume=True).path, train(long, out / "whole").path


@pytest.mark.parametrize("first", [12, 13])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_finished_run_made_longer_is_to_the_bit_one_that_was_so_long_from_the_start(
    tmp_path: Path, first: int, optimizer: str
) -> None:
    """Weights, optimiser and metrics, also where the first run ends between two rows; only snapshots stay as they were.

    The rows after its end compare W^V with steps before it.
    """
    longer, whole = lengthened(first, 31, tmp_path, optimizer=optimizer, decay="step", decay_every=9)
    found, wanted = run_files(longer), run_files(whole)
    differ = {name for name in found if found[name] != wanted.get(name)}
    assert differ == {"snapshots.safetensors", "versions.json"}
    assert found.keys() == wanted.keys()
    assert RunFolder(longer).versions()["earlier_steps"] == [first]
    steps = spaced_steps((first, 31), 4, snapshot_steps)
    assert {0, 31} < steps != snapshot_steps(31, 4)
    assert set(RunFolder(longer).snapshots()) == steps
    # A control: a run with another seed ends elsewhere.
    other = train(small_settings(seed=1, training={"steps": 31}), tmp_path / "other").path
    assert run_files(other)["metrics.jsonl"] != wanted["metrics.jsonl"]


def test_a_run_in_two_stages_of_given_length_can_be_made_longer_twice_and_stopped_on_the_way(tmp_path: Path) -> None:
    stages: dict[str, Any] = {"schedule": "two_stage", "stage_steps": 5}
    longer, whole = lengthened(12, 20, tmp_path, **stages)
    longest = small_settings(training=stages | {"steps": 31})

    class StopError(Exception):
        pass

    def stop(done: int, total: int, state: str) -> None:
        if done == 25:
            raise StopError

    with pytest.raises(StopError):
        train(longest, longer, resume=True, report=stop)
    # By its folder alone: the new length is in it.
    train(RunFolder(longer).settings(), longer, resume=True)
    train(longest, whole, resume=True)
    names = ("metrics.jsonl", "settings.toml", "checkpoint-31.safetensors")
    assert all(run_files(longer)[name] == run_files(whole)[name] for name in names)
    assert RunFolder(longer).versions()["earlier_steps"] == [12, 20]
    before = run_files(longer)
    assert run_files(train(longest, longer, resume=True).path) == before


def test_members_of_an_ensemble_can_be_made_longer_together(tmp_path: Path) -> None:
    members = {steps: Ensemble(settings=small_settings(training={"steps": steps}), seeds=(0, 3)) for steps in (12, 20)}
    train_ensemble(members[12], tmp_path / "longer")
    longer = train_ensemble(members[20], tmp_path / "longer", resume=True)
    whole = train_ensemble(members[20], tmp_path / "whole")
    for name, folder in longer.items():
        assert run_files(folder.path)["metrics.jsonl"] == run_files(whole[name].path)["metrics.jsonl"]


@pytest.mark.parametrize(
    ("training", "said"),
    [
        ({"decay": "cosine"}, 'training.decay = "cosine" depends on how many there are, so this run cannot be made lo'),
        ({"schedule": "alternating"}, 'training.schedule = "alternating" divides all of them into turns, so this run'),
        ({"schedule": "two_stage"}, "training.stage_steps = 0 gives half of them to the first stage, so this run cann"),
    ],
)
def test_a_run_whose_beginning_depends_on_its_length_cannot_be_made_longer_and_none_shorter(
    tmp_path: Path, training: dict[str, Any], said: str
) -> None:
    out = train(small_settings(training=training), tmp_path / "run").path
    before = run_files(out)
    with pytest.raises(InputError, match=re.escape(f"training.steps (12 there, 20 here); {said}")):
        train(small_settings(training=training | {"steps": 20}), out, resume=True)
    with pytest.raises(
        InputError, match=r"training.steps \(12 there, 8 here\); a run cannot be made shorter; leave it"
    ):
        train(small_settings(training=training | {"steps": 8}), out, resume=True)
    with pytest.raises(InputError, match=r"seed .*training.steps .*; leave the settings out to go on"):
        train(small_settings(seed=9, training=training | {"steps": 20}), out, resume=True)
    assert run_files(out) == before
