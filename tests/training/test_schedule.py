import math

import pytest

from support.helpers import small_settings
from topicscope.settings import ATTENTION_PARTS
from topicscope.training.schedule import learning_rate, phase, snapshot_steps


def test_two_stage_trains_values_under_uniform_attention_then_keys_and_queries() -> None:
    settings = small_settings(training={"schedule": "two_stage", "stage_steps": 5})
    first, second = phase(settings, 4), phase(settings, 5)
    assert first.uniform
    assert not first.parts & ATTENTION_PARTS
    assert "value" in first.parts
    assert not second.uniform
    assert second.parts == ATTENTION_PARTS


def test_alternating_takes_turns_for_k_rounds_without_holding_attention_uniform() -> None:
    settings = small_settings(training={"schedule": "alternating", "rounds": 3, "steps": 12})
    turns = ["value" if "value" in phase(settings, step).parts else "attention" for step in range(12)]
    assert turns == (["value"] * 2 + ["attention"] * 2) * 3
    assert not any(phase(settings, step).uniform for step in range(12))


def test_joint_trains_all_trained_parts() -> None:
    settings = small_settings(model={"key_bias": {"train": False}})
    assert phase(settings, 3).parts == set(settings.model.trained_parts)
    assert "key_bias" not in phase(settings, 3).parts


def test_learning_rates_follow_their_schedules() -> None:
    constant = small_settings().training
    step = small_settings(training={"decay": "step", "decay_every": 4, "decay_factor": 0.5}).training
    cosine = small_settings(training={"decay": "cosine"}).training
    assert [learning_rate(constant, at) for at in (0, 11)] == [0.01, 0.01]
    assert [learning_rate(step, at) for at in (3, 4, 8)] == pytest.approx([0.01, 0.005, 0.0025])
    assert [learning_rate(cosine, at) for at in (0, 6, 12)] == pytest.approx([0.01, 0.005, 0.0])
    assert learning_rate(cosine, 3) == pytest.approx(0.01 * (1 + math.cos(math.pi / 4)) / 2)


def test_steps_at_which_more_is_recorded_are_few_and_include_both_ends() -> None:
    steps = snapshot_steps(3000, 40)
    assert {0, 1, 3000} <= steps
    assert len(steps) <= 40
    few = {count: sorted(snapshot_steps(3000, count)) for count in range(4)}
    assert few == {0: [], 1: [3000], 2: [0, 3000], 3: [0, 1, 3000]}
    assert snapshot_steps(5, 40) == {0, 1, 2, 3, 4, 5}
    assert snapshot_steps(1, 2) == {0, 1}
