"""Our optimisers are PyTorch's, over weights with a leading seed axis."""

from typing import Any

import pytest
import torch

from topicscope.settings import Training
from topicscope.training import optimizers
from topicscope.training.optimizers import Optimizer

RATES = (0.01, 0.2)


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
@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("kind", ["sgd", "momentum", "adam", "adamw"])
def test_updates_are_those_of_torch(kind: Any, alike: bool, fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the fused update that PyTorch does not promise to keep, and without."""
    assert optimizers.FUSED_ADAM is not None
    if not fused:
        monkeypatch.setattr(optimizers, "FUSED_ADAM", None)
    training = Training(optimizer=kind, weight_decay=0.3)
    draw = torch.Generator().manual_seed(1)
    shapes = {"value": (2, 1, 3, 5), "bias": (2, 4)}
    ours = {name: torch.randn(shape, generator=draw, dtype=torch.float64) for name, shape in shapes.items()}
    rates = (RATES[0],) * 2 if alike else RATES
    theirs = [{name: weight[seed].clone() for name, weight in ours.items()} for seed in range(2)]
    theirs_of_torch = [torch_optimizer(training, list(theirs[seed].values()), rates[seed]) for seed in range(2)]
    start = {name: weight.clone() for name, weight in ours.items()}
    optimizer = Optimizer(ours, training, alike=alike)
    for step in range(6):
        gradients = {name: torch.randn(shape, generator=draw, dtype=torch.float64) for name, shape in shapes.items()}
        if step == 2:
            del gradients["bias"]  # a frozen part: neither it nor its state moves
        # As from a transposed product: the same numbers in another order in memory.
        gradients["value"] = gradients["value"].mT.contiguous().mT
        for seed in range(2):
            for name, weight in theirs[seed].items():
                weight.grad = gradients[name][seed].clone() if name in gradients else None
            theirs_of_torch[seed].step()
        optimizer.step(gradients, rates)
    for name, weight in ours.items():
        expected = torch.stack([theirs[seed][name] for seed in range(2)])
        torch.testing.assert_close(weight, expected, rtol=1e-12, atol=1e-14)
        assert (weight - start[name]).abs().max() > 1e-3


@pytest.mark.parametrize("kind", ["momentum", "adam"])
def test_state_put_back_gives_the_same_updates(kind: Any) -> None:
    training = Training(optimizer=kind)
    weights = {"value": torch.ones(2, 3)}
    gradient = {"value": torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, -6.0]])}
    optimizer = Optimizer(weights, training, alike=False)
    optimizer.step(gradient, RATES)
    kept = {"value": weights["value"].clone()}
    states = [{path: tensor.clone() for path, tensor in optimizer.tensors(seed).items()} for seed in range(2)]
    later = {"value": gradient["value"] * torch.tensor([1.0, -2.0, 0.5])}
    optimizer.step(later, RATES)
    restored, fresh = (Optimizer({"value": kept["value"].clone()}, training, alike=False) for _ in range(2))
    for seed in range(2):
        restored.restore(seed, states[seed])
    for each in (restored, fresh):
        each.step(later, RATES)
    assert torch.equal(restored.parameters["value"], weights["value"])
    assert not torch.equal(fresh.parameters["value"], weights["value"])


def test_counts_of_updates_are_where_the_parameters_are() -> None:
    # A device without memory stands for a GPU, whose fused kernel reads the counts where it computes.
    parameters = {"value": torch.zeros(1, 2, 2, device="meta")}
    optimizer = Optimizer(parameters, Training(optimizer="adam"), alike=True)
    assert {tensor.device.type for tensor in optimizer.tensors(0).values()} == {"meta"}
