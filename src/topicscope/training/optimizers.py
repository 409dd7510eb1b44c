"""PyTorch's optimisers from the settings, and their state as plain tensors for checkpoints."""

import torch
from torch import Tensor, nn

from topicscope.settings import Training


def make_optimizer(parameters: dict[str, nn.Parameter], training: Training) -> torch.optim.Optimizer:
    """The optimiser of the settings over all trained parameters; the learning rate is set at each step."""
    values, rate = list(parameters.values()), training.learning_rate
    if training.optimizer in ("sgd", "momentum"):
        momentum = training.momentum if training.optimizer == "momentum" else 0.0
        return torch.optim.SGD(values, lr=rate, momentum=momentum)
    kind = torch.optim.AdamW if training.optimizer == "adamw" else torch.optim.Adam
    decay = training.weight_decay if training.optimizer == "adamw" else 0.0
    return kind(values, lr=rate, betas=training.adam_betas, eps=training.adam_epsilon, weight_decay=decay)


def optimizer_tensors(optimizer: torch.optim.Optimizer, parameters: dict[str, nn.Parameter]) -> dict[str, Tensor]:
    """The optimiser's state as ``parameter/quantity`` tensors."""
    return {
        f"{name}/{quantity}": value
        for name, parameter in parameters.items()
        for quantity, value in optimizer.state.get(parameter, {}).items()
        if isinstance(value, Tensor)
    }


def restore_optimizer(
    optimizer: torch.optim.Optimizer, parameters: dict[str, nn.Parameter], tensors: dict[str, Tensor]
) -> None:
    """Put back what ``optimizer_tensors`` took out."""
    for path, value in tensors.items():
        name, quantity = path.split("/")
        optimizer.state[parameters[name]][quantity] = value
