"""SGD, momentum, Adam and AdamW over weights with a leading ``seed`` axis.

The rules are PyTorch's (tested equal to ``torch.optim``). What is left out is its bookkeeping, which at the paper's
size takes as long as the arithmetic.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from topicscope.settings import Training

# What torch.optim.Adam(fused=True) calls, without what it does around it. PyTorch does not promise to keep it: where it
# is gone this is None, and the update is written out.
FUSED_ADAM: Callable[..., None] | None = getattr(torch, "_fused_adam_", None)

AVERAGES = {"sgd": (), "momentum": ("momentum_buffer",), "adam": ("exp_avg", "exp_avg_sq")}

Gradients = dict[str, Float[Tensor, "seed ..."]]


class Optimizer:
    """The optimiser of the settings; a parameter without a gradient is left alone, and so is its state."""

    def __init__(self, parameters: dict[str, Float[Tensor, "seed ..."]], training: Training) -> None:
        self.parameters = parameters
        self.training = training
        averages = AVERAGES["adam" if training.optimizer == "adamw" else training.optimizer]
        self._state = {
            quantity: {name: torch.zeros_like(parameter) for name, parameter in parameters.items()}
            for quantity in averages
        }
        # Updates of a parameter so far, for Adam's bias correction, on the parameter's device, where a GPU's fused
        # kernels read it.
        self._steps = {name: torch.zeros((), device=parameter.device) for name, parameter in parameters.items()}

    @torch.no_grad()
    def step(self, gradients: Gradients, rate: float) -> None:
        """One update of the parameters that have a gradient."""
        training, names = self.training, list(gradients)
        parameters = [self.parameters[name] for name in names]
        # The fused update reads memory in order, whatever the strides.
        slopes = [gradients[name].contiguous() for name in names]
        averages = [[state[name] for name in names] for state in self._state.values()]
        if training.optimizer in ("sgd", "momentum"):
            changes = slopes
            if training.optimizer == "momentum":
                [changes] = averages
                for average, slope in zip(changes, slopes, strict=True):
                    average.mul_(training.momentum).add_(slope)
            for parameter, change in zip(parameters, changes, strict=True):
                parameter.add_(change, alpha=-rate)
            return
        if training.optimizer == "adamw":
            for parameter in parameters:
                parameter.mul_(1 - rate * training.weight_decay)
        (first, second), epsilon, steps = training.adam_betas, training.adam_epsilon, [self._steps[n] for n in names]
        for step in steps:
            step += 1
        if FUSED_ADAM is not None:
            options = {"lr": rate, "beta1": first, "beta2": second, "weight_decay": 0.0, "eps": epsilon}
            FUSED_ADAM(parameters, slopes, *averages, [], steps, **options, amsgrad=False, maximize=False)
            return
        for parameter, slope, mean, square, step in zip(parameters, slopes, *averages, steps, strict=True):
            mean.lerp_(slope, 1 - first)
            square.mul_(second).addcmul_(slope, slope, value=1 - second)
            size = square.sqrt() / math.sqrt(1 - second ** float(step)) + epsilon
            parameter.addcdiv_(mean, size, value=-rate / (1 - first ** float(step)))

    def tensors(self) -> dict[str, Tensor]:
        """The state as ``parameter/quantity``."""
        averages = {
            f"{name}/{quantity}": tensor for quantity, state in self._state.items() for name, tensor in state.items()
        }
        return averages | {f"{name}/step": count for name, count in self._steps.items()}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Put back what ``tensors`` took out."""
        own = self.tensors()
        for path, value in tensors.items():
            own[path].copy_(value)


def learning_rate(training: Training, step: int) -> float:
    """The rate at a step: constant, or falling to zero along a cosine."""
    if training.decay == "cosine":
        return training.learning_rate * 0.5 * (1 + math.cos(math.pi * step / training.steps))
    return training.learning_rate
