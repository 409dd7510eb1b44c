"""What training writes, alone and in an ensemble, that it repeats to the bit, and the message when it diverges."""

import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from support.helpers import ONE_HOT_UNIFORM, batch_of, final_weights, run_files, small_settings
from topicscope.errors import DivergedError, InputError
from topicscope.files import checkpoint_path, checkpoint_steps
from topicscope.settings import Settings
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.synthetic.topics import TopicModel
from topicscope.training.checkpoints import newest_checkpoint
from topicscope.training.engines import make_engine
from topicscope.training.loop import Ensemble, Trainer, train, train_ensemble, train_in_memory
from topicscope.training.schedule import snapshot_steps


def test_recorded_norms_and_rotation_are_those_of_the_weights(tmp_path: Path) -> None:
    settings = small_settings(training={"steps": 10, "checkpoint_every": 5})
    folder = train(settings, tmp_path / "run")
    last = final_weights(folder.path)
    row = folder.metrics()[-1]
    assert row["norm"]["value"][0] == pytest.approx(float(last["value"].norm()), rel=1e-6)
    # Ten steps before the last one is the start.
    start = make_engine([settings], TopicModel.from_settings(settings.data)).models[0].parameter("value").detach()
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


def test_two_stage_training_leaves_frozen_parts_bit_identical(tmp_path: Path) -> None:
    changes = {"schedule": "two_stage", "stage_steps": 6, "optimizer": "momentum", "checkpoint_every": 6, "l2": 0.1}
    settings = small_settings(training=changes)
    start = make_engine([settings], TopicModel.from_settings(settings.data)).models[0]
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
    last = final_weights(folder.path)
    assert torch.equal(last["embedding"], torch.eye(7))
    assert not last["key"].any()
    assert last["value"].abs().max() > 0.005


def test_the_order_of_a_batch_does_not_change_its_loss() -> None:
    settings = small_settings(training={"precision": "float64"})
    engine = make_engine([settings], TopicModel.from_settings(settings.data))
    batch = batch_of(engine.streams[0], 0)

    def loss(documents: MaskedDocuments) -> float:
        return float(engine.losses(engine.prepare([documents])[0]).detach())

    assert loss(batch.select(np.array([4, 2, 0, 1, 3]))) == pytest.approx(loss(batch), rel=1e-12)
    assert loss(batch.select(np.array([4, 2, 0, 1, 1]))) != pytest.approx(loss(batch), rel=1e-6)


def test_held_out_losses_are_taken_at_their_own_interval(tmp_path: Path) -> None:
    settings = small_settings(training={"log_every": 5, "validate_every": 3, "steps": 13})
    rows = train(settings, tmp_path / "run").metrics()
    assert [row["step"] for row in rows if row["validation_loss"] is not None] == [0, 3, 6, 9, 12, 13]
    assert [row["step"] for row in rows] == [0, 3, 5, 6, 9, 10, 12, 13]


def test_rotation_from_zero_is_not_a_number_to_give(tmp_path: Path) -> None:
    rows = train(small_settings(model={"value": {"start": "zero"}}), tmp_path / "run").metrics()
    assert [row["rotation"] for row in rows if row["step"] == 10] == [[None]]


def test_snapshot_steps_are_few_and_include_both_ends() -> None:
    steps = snapshot_steps(3000, 40)
    assert {0, 1, 3000} <= steps
    assert len(steps) <= 40
    assert snapshot_steps(3000, 0) == frozenset()
    assert snapshot_steps(5, 40) == {0, 1, 2, 3, 4, 5}
    assert snapshot_steps(3000, 1) == {3000}
    assert snapshot_steps(3000, 2) == {0, 3000}
    assert snapshot_steps(3000, 3) == {0, 1, 3000}
    assert snapshot_steps(1, 2) == {0, 1}


EQUATION_7 = {
    "embedding": {"start": "identity", "train": False},
    **{name: {"start": "zero", "train": False} for name in ("key_bias", "query_bias", "value_bias", "prediction_bias")},
}
# b^K shifts all scores of a query alike: its gradient is rounding, which Adam makes as large as any other.
NO_KEY_BIAS = {"key_bias": {"start": "zero", "train": False}}
DEEP = NO_KEY_BIAS | {"layers": 2, "dimension": 4, "heads": 2, "residual": True, "layer_norm": True}
# Sums are taken in another order; Adam's division by small second moments makes more of it over the steps.
TOLERANCE = {"float32": 1e-3, "float64": 1e-10}


def largest_difference(one: Path, other: Path) -> float:
    """Relative to the norm, over all weights of the last checkpoints."""
    first, second = newest_checkpoint(one), newest_checkpoint(other)
    assert first is not None
    assert second is not None
    assert first.step == second.step
    assert first.part("optimizer").keys() == second.part("optimizer").keys()
    others = second.part("weights")
    return max(
        float((weight - others[name]).norm() / weight.norm().clamp_min(1e-3))
        for name, weight in first.part("weights").items()
    )


def check_alike(settings: Settings, folder: Path, **choice: Any) -> None:
    ensemble = Ensemble(settings=settings, seeds=(3, 5), **choice)
    together = train_ensemble(ensemble, folder / "together")
    tolerance = TOLERANCE[settings.training.precision]
    for name, member in ensemble.members().items():
        alone = train(member, folder / f"alone-{name}")
        assert together[name].settings() == alone.settings()
        assert {path.name for path in together[name].path.iterdir()} == {path.name for path in alone.path.iterdir()}
        assert largest_difference(together[name].path, alone.path) < tolerance
        rows, expected = together[name].metrics(), alone.metrics()
        assert [row["step"] for row in rows] == [row["step"] for row in expected]
        losses = [(row["loss"], row["validation_loss"] or 0.0) for row in rows]
        assert np.array(losses) == pytest.approx(
            np.array([(row["loss"], row["validation_loss"] or 0.0) for row in expected]), rel=tolerance
        )
    # The control: members are not each other.
    first, second = list(together.values())[:2]
    assert largest_difference(first.path, second.path) > 100 * tolerance


@pytest.mark.parametrize("model", [EQUATION_7, DEEP], ids=["equation 7", "deep"])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_member_gives_what_it_gives_alone(tmp_path: Path, model: dict[str, Any], precision: str) -> None:
    check_alike(small_settings(model=model, training={"precision": precision, "steps": 24}), tmp_path)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam", "adamw"])
def test_members_may_have_their_own_learning_rates(tmp_path: Path, optimizer: str) -> None:
    changes = {"optimizer": optimizer, "precision": "float64", "schedule": "two_stage", "l2": 0.01}
    check_alike(small_settings(model=NO_KEY_BIAS, training=changes), tmp_path, learning_rates=(0.01, 0.05))


def test_the_reference_engine_trains_ensembles_too(tmp_path: Path) -> None:
    changes = {"engine": "reference", "precision": "float64"}
    check_alike(small_settings(training=changes, model=NO_KEY_BIAS | {"positions": "learned"}), tmp_path)


def test_both_engines_train_the_same_run(tmp_path: Path) -> None:
    fast, slow = (
        train(small_settings(model=NO_KEY_BIAS, training={"precision": "float64", "engine": engine}), tmp_path / engine)
        for engine in ("bag", "reference")
    )
    assert largest_difference(fast.path, slow.path) < 1e-10
    assert json.loads(fast.versions_path.read_text())["engine"] == "bag"
    other = train(small_settings(model=NO_KEY_BIAS, training={"precision": "float64"}, seed=1), tmp_path / "other")
    assert largest_difference(fast.path, other.path) > 1e-3


class StopError(Exception):
    pass


ENSEMBLE = Ensemble(settings=small_settings(model=EQUATION_7), seeds=(0, 1, 2))


@pytest.mark.parametrize("stop_at", [0, 2, 7, 12])
def test_an_ensemble_stopped_and_resumed_ends_with_the_same_files(tmp_path: Path, stop_at: int) -> None:
    whole = train_ensemble(ENSEMBLE, tmp_path / "whole")

    def report(done: int, total: int, state: str) -> None:
        if done >= stop_at:
            raise StopError

    with pytest.raises(StopError):
        train_ensemble(ENSEMBLE, tmp_path / "stopped", report=report)
    again = train_ensemble(ENSEMBLE, tmp_path / "stopped", resume=True)
    for name, folder in whole.items():
        assert run_files(again[name].path) == run_files(folder.path)


def test_members_that_are_a_checkpoint_apart_go_on_from_the_common_one(tmp_path: Path) -> None:
    """A kill while members are saved one after another leaves some ahead of the others."""
    folders = train_ensemble(ENSEMBLE, tmp_path / "run")
    whole = {name: run_files(folder.path) for name, folder in folders.items()}
    first = folders["seed-0"].path
    assert checkpoint_steps(first) == [9, 12]
    (first / "checkpoint-12.safetensors").unlink()
    train_ensemble(ENSEMBLE, tmp_path / "run", resume=True)
    assert {name: run_files(folder.path) for name, folder in folders.items()} == whole
    # Nothing in common: all over again, to the same end.
    (first / "checkpoint-12.safetensors").unlink()
    (first / "checkpoint-9.safetensors").unlink()
    train_ensemble(ENSEMBLE, tmp_path / "run", resume=True)
    assert {name: run_files(folder.path) for name, folder in folders.items()} == whole


def test_a_run_is_resumed_in_the_same_company_only(tmp_path: Path) -> None:
    folders = train_ensemble(ENSEMBLE, tmp_path / "run")
    with pytest.raises(InputError, match="together with 2 others, not alone"):
        train(ENSEMBLE.members()["seed-0"], folders["seed-0"].path, resume=True)
    fewer = dataclasses.replace(ENSEMBLE, seeds=(0, 1))
    with pytest.raises(InputError, match="together with 2 others, not together with 1 other:"):
        train_ensemble(fewer, tmp_path / "run", resume=True)


def test_a_member_that_diverges_does_not_stop_the_others(tmp_path: Path) -> None:
    changes = {"optimizer": "sgd", "loss": "squared", "steps": 60, "precision": "float64"}
    settings = small_settings(model=EQUATION_7, training=changes)
    ensemble = Ensemble(settings=settings, seeds=(0,), learning_rates=(0.01, 1e12))
    with pytest.raises(DivergedError, match=r"lower training\.learning_rate \(now 1e\+12\)"):
        train_ensemble(ensemble, tmp_path / "run")
    good, bad = (tmp_path / "run" / name for name in ensemble.members())
    alone = train(ensemble.members()["seed-0-rate-0.01"], tmp_path / "alone")
    assert largest_difference(good, alone.path) < TOLERANCE["float64"]
    kept = newest_checkpoint(bad)
    assert kept is not None
    assert kept.step < 60
    assert all(bool(torch.isfinite(weight).all()) for weight in kept.part("weights").values())


def test_an_ensemble_in_memory_is_that_of_the_folders(tmp_path: Path) -> None:
    topic_model = TopicModel.from_settings(ENSEMBLE.settings.data)
    runs = train_in_memory(list(ENSEMBLE.members().values()), topic_model)
    folders = list(train_ensemble(ENSEMBLE, tmp_path / "run").values())
    for run, folder in zip(runs, folders, strict=True):
        assert run.settings == folder.settings()
        assert run.rows == folder.metrics()
        assert list(run.snapshots()) == list(folder.snapshots())
        for step, snapshot in folder.snapshots().items():
            assert all((run.snapshots()[step][name] == matrix).all() for name, matrix in snapshot.items())
        weights, kept = run.weights, newest_checkpoint(folder.path)
        assert weights is not None
        assert kept is not None
        assert all((weights[name] == weight.numpy()).all() for name, weight in kept.part("weights").items())
    # The control: members are not each other.
    assert runs[0].rows != runs[1].rows


def test_a_member_in_memory_that_diverges_has_no_weights() -> None:
    changes = {"optimizer": "sgd", "loss": "squared", "steps": 60, "precision": "float64"}
    settings = small_settings(model=EQUATION_7, training=changes)
    members = Ensemble(settings=settings, seeds=(0,), learning_rates=(0.01, 1e12)).members()
    good, bad = train_in_memory(list(members.values()), TopicModel.from_settings(settings.data))
    assert good.weights is not None
    assert bad.weights is None
    assert len(good.rows) > len(bad.rows) > 0


def test_seeds_given_twice_or_not_at_all_are_refused() -> None:
    with pytest.raises(InputError, match=r"seeds = \[1, 1\] is not allowed"):
        Ensemble(settings=small_settings(), seeds=(1, 1))
    with pytest.raises(InputError, match="at least one seed"):
        Ensemble(settings=small_settings(), seeds=())


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
    trainer = Trainer(make_engine([settings], TopicModel.from_settings(settings.data)))
    checkpoint = newest_checkpoint(tmp_path / "run")
    assert checkpoint is not None
    assert checkpoint.step == kept
    trainer.restore([checkpoint])
    batch = trainer.engine.prepare([batch_of(trainer.engine.streams[0], kept)])[0]
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
