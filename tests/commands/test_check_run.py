"""What ``check`` reads from a folder that ``train`` wrote is the model's own map from frequencies to predictions."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file

from support.helpers import build_model, small_settings
from topicscope.commands.check import check, read_run
from topicscope.commands.train import train

FROZEN_ZERO = {"start": "zero", "train": False}
UNIFORM: dict[str, Any] = {"key": FROZEN_ZERO, "query": FROZEN_ZERO, "query_bias": FROZEN_ZERO}


def test_the_matrix_read_from_a_run_predicts_what_the_model_predicts(tmp_path: Path) -> None:
    settings = small_settings(
        model={**UNIFORM, "dimension": 5, "value_bias": {"start": "normal"}}, training={"loss": "squared"}
    )
    folder = train(settings, tmp_path / "run").path
    run = read_run(folder)
    model = build_model(settings)
    tensors = load_file(run.source)
    with torch.no_grad():
        for name, parameter in model.state_dict().items():
            parameter.copy_(torch.from_numpy(tensors[f"weights/{name}"]))
        tokens = torch.tensor([[0, 3, 3, 6, 1]])
        predicted = model.predict(model.states(tokens)[-1])[0, 0].numpy()
    frequencies = np.bincount(tokens[0].numpy(), minlength=7) / 5
    np.testing.assert_allclose(run.matrix @ frequencies, predicted, atol=1e-6)
    assert abs(run.matrix.T @ frequencies - predicted).max() > 1e-4
    assert run.name == "W^E⊤W^V W^E + b1⊤"


def test_a_run_that_starts_at_the_optimum_and_hardly_moves_is_at_the_optimum(tmp_path: Path) -> None:
    parts: dict[str, Any] = {**UNIFORM, "embedding": {"start": "identity", "train": False}}
    parts |= {"value_bias": FROZEN_ZERO, "prediction_bias": FROZEN_ZERO}
    still: dict[str, Any] = {"loss": "squared", "learning_rate": 1e-9}
    for start, low, high in (("finite", 0, 1e-5), ("theorem", 1e-2, 10)):
        settings = small_settings(model={**parts, "value": {"start": start}}, training=still)
        found = check(train(settings, tmp_path / start).path)
        assert found.notes == ()
        assert found.finite is not None
        assert low <= found.finite.distance <= high
