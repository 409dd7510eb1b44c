"""Members of an ensemble are what they would be alone, and their folders can be resumed like any."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from support.helpers import run_files, small_settings
from topicscope.errors import DivergedError, InputError
from topicscope.settings import Settings
from topicscope.synthetic.topics import TopicModel
from topicscope.training.checkpoints import checkpoint_steps, newest_checkpoint
from topicscope.training.loop import Ensemble, train, train_ensemble, train_in_memory

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
    assert first.optimizer.keys() == second.optimizer.keys()
    return max(
        float((first.weights[name] - second.weights[name]).norm() / first.weights[name].norm().clamp_min(1e-3))
        for name in first.weights
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
    with pytest.raises(InputError, match="together with 2 others, not together with 1 others"):
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
    assert all(bool(torch.isfinite(weight).all()) for weight in kept.weights.values())


def test_an_ensemble_in_memory_is_that_of_the_folders(tmp_path: Path) -> None:
    topic_model = TopicModel.from_settings(ENSEMBLE.settings.data)
    runs = train_in_memory(list(ENSEMBLE.members().values()), topic_model)
    folders = list(train_ensemble(ENSEMBLE, tmp_path / "run").values())
    for run, folder in zip(runs, folders, strict=True):
        assert run.settings() == folder.settings()
        assert run.metrics() == folder.metrics()
        assert list(run.snapshots()) == list(folder.snapshots())
        for step, snapshot in folder.snapshots().items():
            assert all((run.snapshots()[step][name] == matrix).all() for name, matrix in snapshot.items())
        weights, kept = run.weights, newest_checkpoint(folder.path)
        assert weights is not None
        assert kept is not None
        assert all((weights[name] == weight.numpy()).all() for name, weight in kept.weights.items())
    # The control: members are not each other.
    assert runs[0].metrics() != runs[1].metrics()


def test_a_member_in_memory_that_diverges_has_no_weights() -> None:
    changes = {"optimizer": "sgd", "loss": "squared", "steps": 60, "precision": "float64"}
    settings = small_settings(model=EQUATION_7, training=changes)
    members = Ensemble(settings=settings, seeds=(0,), learning_rates=(0.01, 1e12)).members()
    good, bad = train_in_memory(list(members.values()), TopicModel.from_settings(settings.data))
    assert good.weights is not None
    assert bad.weights is None
    assert len(good.metrics()) > len(bad.metrics()) > 0


def test_seeds_given_twice_or_not_at_all_are_refused() -> None:
    with pytest.raises(InputError, match=r"seeds = \[1, 1\] is not allowed"):
        Ensemble(settings=small_settings(), seeds=(1, 1))
    with pytest.raises(InputError, match="at least one seed"):
        Ensemble(settings=small_settings(), seeds=())
