import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from helpers import run_files, small_settings
from topicscope.errors import DivergedError, InputError
from topicscope.measure.blocks import class_averages
from topicscope.settings import Settings
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.population import finite_optimum, moments
from topicscope.training.checkpoints import checkpoint_path, checkpoint_steps, newest_checkpoint
from topicscope.training.loop import Trainer, train
from topicscope.training.runs import RunFolder
from topicscope.training.schedule import snapshot_steps

ONE_HOT_UNIFORM: dict[str, Any] = {
    "embedding": {"start": "identity", "train": False},
    "value": {"scale": 0.001},
    "key": {"start": "zero", "train": False},
    "query": {"start": "zero", "train": False},
    "key_bias": {"train": False},
    "query_bias": {"train": False},
    "value_bias": {"train": False},
    "prediction_bias": {"train": False},
}


def weights(folder: Path) -> dict[str, torch.Tensor]:
    checkpoint = newest_checkpoint(folder)
    assert checkpoint is not None
    return checkpoint.weights


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


def test_recorded_norms_and_rotation_are_those_of_the_weights(tmp_path: Path) -> None:
    settings = small_settings(training={"steps": 10, "checkpoint_every": 5})
    folder = train(settings, tmp_path / "run")
    last = weights(folder.path)
    row = folder.metrics()[-1]
    assert row["norm"]["value"][0] == pytest.approx(float(last["value"].norm()), rel=1e-6)
    # Ten steps before the last one is the start.
    start = Trainer([settings], TopicModel.from_settings(settings.data)).members[0].model.parameter("value").detach()
    cosine = float((start * last["value"]).sum() / (start.norm() * last["value"].norm()))
    assert row["rotation"][0] == pytest.approx((1 - cosine) / 2, rel=1e-4)
    assert row["rotation"][0] > 1e-3


def test_the_same_seed_gives_the_same_files_and_another_seed_others(tmp_path: Path) -> None:
    first, again, other = (
        run_files(train(small_settings(seed=seed), tmp_path / name).path)
        for seed, name in ((1, "first"), (1, "again"), (2, "other"))
    )
    assert first == again
    assert first["metrics.jsonl"] != other["metrics.jsonl"]


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


def test_only_the_two_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    assert checkpoint_steps(train(small_settings(), tmp_path / "run").path) == [9, 12]


def test_two_stage_training_leaves_frozen_parts_bit_identical(tmp_path: Path) -> None:
    changes = {"schedule": "two_stage", "stage_steps": 6, "optimizer": "momentum", "checkpoint_every": 6, "l2": 0.1}
    settings = small_settings(training=changes)
    start = Trainer([settings], TopicModel.from_settings(settings.data)).members[0].model
    initial = {name: parameter.detach().clone() for name, parameter in start.named_parameters()}
    folder = train(settings, tmp_path / "run")
    middle = safe_weights(checkpoint_path(folder.path, 6))
    end = safe_weights(checkpoint_path(folder.path, 12))
    attention = {"key", "query", "key_bias", "query_bias"}
    for name in initial:
        assert torch.equal(initial[name], middle[name]) == (name in attention), name
        # b^K shifts all scores of a query alike: its gradient is zero up to rounding, so it may or may not move.
        if name != "key_bias":
            assert torch.equal(middle[name], end[name]) == (name not in attention), name


def safe_weights(path: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return {name.removeprefix("weights/"): tensor for name, tensor in load_file(path).items() if "weights/" in name}


def test_frozen_parts_do_not_move(tmp_path: Path) -> None:
    folder = train(small_settings(model=ONE_HOT_UNIFORM, training={"optimizer": "adamw"}), tmp_path / "run")
    last = weights(folder.path)
    assert torch.equal(last["embedding"], torch.eye(7))
    assert not last["key"].any()
    assert last["value"].abs().max() > 0.005


def test_the_order_of_a_batch_does_not_change_its_loss() -> None:
    settings = small_settings(training={"precision": "float64"})
    trainer = Trainer([settings], TopicModel.from_settings(settings.data))
    batch = trainer.members[0].stream.batch(0)

    def loss(documents: MaskedDocuments) -> float:
        return float(trainer.engine.losses(trainer.engine.prepare([documents])[0]).detach())

    assert loss(batch.select(np.array([4, 2, 0, 1, 3]))) == pytest.approx(loss(batch), rel=1e-12)
    assert loss(batch.select(np.array([4, 2, 0, 1, 1]))) != pytest.approx(loss(batch), rel=1e-6)


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("optimizer", ["sgd", "momentum"])
def test_divergence_stops_at_the_first_non_finite_loss_and_keeps_the_last_good_checkpoint(
    tmp_path: Path, every: int, optimizer: str
) -> None:
    changes = {"learning_rate": 1e12, "optimizer": optimizer, "loss": "squared", "steps": 60, "checkpoint_every": every}
    settings = small_settings(training=changes)
    with pytest.raises(DivergedError, match=r"lower training\.learning_rate \(now 1e\+12\)") as caught:
        train(settings, tmp_path / "run")
    numbers = re.search(r"at step (\d+) is .* checkpoint is that of step (\d+)", str(caught.value))
    assert numbers is not None
    diverged, kept = int(numbers[1]), int(numbers[2])
    assert kept < diverged
    # The kept checkpoint is good: its loss is a number.
    trainer = Trainer([settings], TopicModel.from_settings(settings.data))
    checkpoint = newest_checkpoint(tmp_path / "run")
    assert checkpoint is not None
    assert checkpoint.step == kept
    trainer.members[0].restore(checkpoint)
    batch = trainer.engine.prepare([trainer.members[0].stream.batch(kept)])[0]
    assert math.isfinite(float(trainer.engine.losses(batch).detach()))
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert all(math.isfinite(row["loss"]) for row in rows)


def test_a_penalty_that_overflows_is_divergence_too(tmp_path: Path) -> None:
    changes = {"learning_rate": 1e22, "optimizer": "sgd", "l2": 1e-30, "log_every": 1, "validate_every": 0}
    with pytest.raises(DivergedError, match="penalty at step 1 is not finite"):
        train(small_settings(model=ONE_HOT_UNIFORM, training=changes), tmp_path / "run")


def test_a_start_that_overflows_names_the_scale_and_keeps_no_checkpoint(tmp_path: Path) -> None:
    settings = small_settings(model={"value": {"scale": 1e38}, "embedding": {"scale": 1e38}})
    with pytest.raises(DivergedError, match=r"model\.\*\.scale.*there is no good checkpoint"):
        train(settings, tmp_path / "run")


def test_held_out_losses_are_taken_at_their_own_interval(tmp_path: Path) -> None:
    settings = small_settings(training={"log_every": 5, "validate_every": 3, "steps": 13})
    rows = train(settings, tmp_path / "run").metrics()
    assert [row["step"] for row in rows if row["validation_loss"] is not None] == [0, 3, 6, 9, 12, 13]
    assert [row["step"] for row in rows] == [0, 3, 5, 6, 9, 10, 12, 13]


def test_rotation_from_zero_is_not_a_number_to_give(tmp_path: Path) -> None:
    rows = train(small_settings(model={"value": {"start": "zero"}}), tmp_path / "run").metrics()
    assert [row["rotation"] for row in rows if row["step"] == 10] == [[None]]


def test_a_folder_that_is_not_empty_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="is not empty"):
        train(small_settings(), tmp_path)
    with pytest.raises(InputError, match="holds no run to resume"):
        train(small_settings(), tmp_path, resume=True)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


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


def test_going_on_with_other_versions_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = train(small_settings(), tmp_path / "run")
    versions = json.loads(folder.versions_path.read_text())
    folder.versions_path.write_text(json.dumps(versions | {"torch": "1.0"}))
    train(small_settings(), folder.path, resume=True)
    assert "was begun with torch 1.0" in caplog.text


def test_two_processes_cannot_train_in_one_folder(tmp_path: Path) -> None:
    folder = train(small_settings(), tmp_path / "run")
    with folder.locked(), pytest.raises(InputError, match="by another process"):
        train(small_settings(), folder.path, resume=True)


def test_snapshot_steps_are_few_and_include_both_ends() -> None:
    steps = snapshot_steps(3000, 40)
    assert {0, 1, 3000} <= steps
    assert len(steps) <= 40
    assert snapshot_steps(3000, 0) == frozenset()
    assert snapshot_steps(5, 40) == {0, 1, 2, 3, 4, 5}


def relative_errors(settings: Settings, out: Path) -> dict[str, float]:
    """How far class averages of the trained W^V are from the finite-document optimum."""
    folder = train(settings, out)
    topic_model = TopicModel.from_settings(settings.data)
    exact = finite_optimum(moments(topic_model, settings.masking))
    found = class_averages(weights(folder.path)["value"][0].double().numpy(), topic_model.word_topics)
    target = class_averages(exact, topic_model.word_topics)
    names = ("same_word", "same_topic", "different_topic", "mask_column")
    return {name: abs(getattr(found, name) / getattr(target, name) - 1) for name in names}


def convergence_settings(seed: int, **changes: Any) -> Settings:
    training = {
        "loss": "squared",
        "decay": "cosine",
        "steps": 3000,
        "validate_every": 0,
        "snapshots": 0,
        "log_every": 500,
    }
    from topicscope.settings.toml import settings_from_table

    table = {"seed": seed, "data": {"fresh": True}, "model": ONE_HOT_UNIFORM, "training": training}
    return dataclasses.replace(settings_from_table(table), **changes)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_training_reaches_the_finite_document_optimum(tmp_path: Path, seed: int) -> None:
    errors = relative_errors(convergence_settings(seed), tmp_path / "run")
    assert max(errors.values()) < 0.03, errors


def test_training_reaches_the_finite_document_optimum_of_a_small_setting(tmp_path: Path) -> None:
    small = small_settings(
        data={"fresh": True, "length": [10, 10], "dirichlet": [0.1]},
        model=ONE_HOT_UNIFORM,
        training={
            "loss": "squared",
            "decay": "cosine",
            "steps": 1500,
            "batch": 200,
            "log_every": 500,
            "snapshots": 0,
            "checkpoint_every": 1500,
        },
    )
    assert max(relative_errors(small, tmp_path / "run").values()) < 0.03
    # The control: the pooled mean has another optimum.
    pooled = dataclasses.replace(small, training=dataclasses.replace(small.training, average="batch"))
    assert max(relative_errors(pooled, tmp_path / "pooled").values()) > 0.03


def test_a_run_folder_shows_its_path() -> None:
    assert repr(RunFolder(Path("runs") / "first")) == "RunFolder('runs/first')"
    assert repr(RunFolder(Path("runs") / "second")) != "RunFolder('runs/first')"
