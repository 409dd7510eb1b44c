import dataclasses
from pathlib import Path
from typing import Any

import pytest

from support.helpers import ONE_HOT_UNIFORM, final_weights, small_settings
from topicscope.measure.blocks import class_averages
from topicscope.settings import Settings
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.finite_documents import finite_optimum, moments
from topicscope.training.loop import train


def relative_errors(settings: Settings, out: Path) -> dict[str, float]:
    """How far class averages of the trained W^V are from the finite-document optimum."""
    folder = train(settings, out)
    topic_model = TopicModel.from_settings(settings.documents)
    exact = finite_optimum(moments(topic_model, settings.masking))
    found = class_averages(final_weights(folder.path)["value"][0].double().numpy(), topic_model.word_topics)
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
