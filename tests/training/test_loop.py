from pathlib import Path

import numpy as np
import pytest
import torch

from support.helpers import ONE_HOT_UNIFORM, final_weights, run_files, small_settings
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.synthetic.topics import TopicModel
from topicscope.training.checkpoints import checkpoint_path
from topicscope.training.engines import make_engine
from topicscope.training.loop import train
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
    batch = engine.streams[0].batch(0)

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
