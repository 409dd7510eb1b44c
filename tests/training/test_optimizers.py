"""Our optimisers are PyTorch's, over weights with a leading seed axis."""

from typing import Any

import pytest
import torch

from topicscope.settings import Training
from topicscope.training import optimizers
from topicscope.training.optimizers import Optimizer

RATE = 0.05


def torch_optimizer(training: Training, parameters: list[torch.Tensor], rate: float) -> torch.optim.Optimizer:
    kinds: dict[str, Any] = {
        "sgd": lambda: torch.optim.SGD(parameters, lr=rate),
        "momentum": lambda: torch.optim.SGD(parameters, lr=rate, momentum=training.momentum),
        "adam": lambda: torch.optim.Adam(
            parameters, lr=rate, betas=training.adam_betas, eps=training.adam_epsilon, foreach=False
        ),
        "adamw": lambda: torch.optim.AdamW(
            parameters,
            lr=rate,
            betas=training.adam_betas,
            eps=training.adam_epsilon,
            weight_decay=training.weight_decay,
            foreach=False,
        ),
    }
    optimizer = kinds[training.optimizer]()
    assert isinstance(optimizer, torch.optim.Optimizer)
    return optimizer


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("kind", ["sgd", "momentum", "adam", "adamw"])
def test_updates_are_those_of_torch(kind: Any, fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the fused update that PyTorch does not promise to keep, and without."""
    assert optimizers.FUSED_ADAM is not None
    if not fused:
        monkeypatch.setattr(optimizers, "FUSED_ADAM", None)
    training = Training(optimizer=kind, weight_decay=0.3)
    draw = torch.Generator().manual_seed(1)
    shapes = {"value": (2, 1, 3, 5), "bias": (2, 4)}
    ours = {name: torch.randn(shape, generator=draw, dtype=torch.float64) for name, shape in shapes.items()}
    theirs = {name: weight.clone() for name, weight in ours.items()}
    reference = torch_optimizer(training, list(theirs.values()), RATE)
    start = {name: weight.clone() for name, weight in ours.items()}
    optimizer = Optimizer(ours, training)
    for step in range(6):
        gradients = {name: torch.randn(shape, generator=draw, dtype=torch.float64) for name, shape in shapes.items()}
        if step == 2:
            del gradients["bias"]  # a frozen part: neither it nor its state moves
        # As from a transposed product: the same numbers in another order in memory.
        gradients["value"] = gradients["value"].mT.contiguous().mT
        for name, weight in theirs.items():
            weight.grad = gradients[name].clone() if name in gradients else None
        reference.step()
        optimizer.step(gradients, RATE)
    for name, weight in ours.items():
        torch.testing.assert_close(weight, theirs[name], rtol=1e-12, atol=1e-14)
        assert (weight - start[name]).abs().max() > 1e-3


@pytest.mark.parametrize("kind", ["momentum", "adam"])
def test_state_put_back_gives_the_same_updates(kind: Any) -> None:
    training = Training(optimizer=kind)
    weights = {"value": torch.ones(2, 3)}
    gradient = {"value": torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, -6.0]])}
    optimizer = Optimizer(weights, training)
    optimizer.step(gradient, RATE)
    kept = {"value": weights["value"].clone()}
    state = {path: tensor.clone() for path, tensor in optimizer.tensors().items()}
    later = {"value": gradient["value"] * torch.tensor([1.0, -2.0, 0.5])}
    optimizer.step(later, RATE)
    restored, fresh = (Optimizer({"value": kept["value"].clone()}, training) for _ in range(2))
    restored.restore(state)
    for own in (restored, fresh):
        own.step(later, RATE)
    assert torch.equal(restored.parameters["value"], weights["value"])
    assert not torch.equal(fresh.parameters["value"], weights["value"])


def test_counts_of_updates_are_where_the_parameters_are() -> None:
    # A device without memory stands for a GPU, whose fused kernel reads the counts where it computes.
    parameters = {"value": torch.zeros(1, 2, 2, device="meta")}
    optimizer = Optimizer(parameters, Training(optimizer="adam"))
    assert {tensor.device.type for tensor in optimizer.tensors().values()} == {"meta"}
