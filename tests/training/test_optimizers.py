"""Updates are those of PyTorch's classes, over weights with a leading seed axis."""

from typing import Any

import pytest
import torch

from topicscope.settings import Training
from topicscope.training.engines import Optimizer

RATE = 0.05


REFERENCES: dict[str, Any] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=RATE),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=RATE, momentum=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=RATE, betas=(0.8, 0.99), eps=1e-5, foreach=False),
}


@pytest.mark.parametrize("kind", REFERENCES)
def test_updates_are_those_of_torchs_classes(kind: Any) -> None:
    training = Training(optimizer=kind, adam_betas=(0.8, 0.99), adam_epsilon=1e-5)
    draw = torch.Generator().manual_seed(1)
    shapes = {"value": (2, 1, 3, 5), "bias": (2, 4)}
    ours = {name: torch.randn(shape, generator=draw, dtype=torch.float64) for name, shape in shapes.items()}
    theirs = {name: weight.clone() for name, weight in ours.items()}
    reference = REFERENCES[kind](list(theirs.values()))
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
