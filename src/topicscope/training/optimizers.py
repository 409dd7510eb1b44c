"""SGD, momentum and Adam over weights with a leading ``seed`` axis.

The updates are PyTorch's own functions. What is left out is the bookkeeping of its classes, which at the paper's size
takes a twentieth of a step.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from topicscope.settings import Training
from topicscope.settings.training import MOMENTUM

ADAM_BETAS = (0.9, 0.999)
# What each keeps of a parameter.
STATE = {"sgd": (), "momentum": ("momentum_buffer",), "adam": ("exp_avg", "exp_avg_sq", "step")}

Gradients = dict[str, Float[Tensor, "seed ..."]]


class Optimizer:
    """The optimiser of the settings; a parameter without a gradient is left alone, and so is its state."""

    def __init__(self, parameters: dict[str, Float[Tensor, "seed ..."]], training: Training) -> None:
        self.parameters, self.training = parameters, training
        self._state = {
            quantity: {
                name: torch.zeros((), device=parameter.device) if quantity == "step" else torch.zeros_like(parameter)
                for name, parameter in parameters.items()
            }
            for quantity in STATE[training.optimizer]
        }

    @torch.no_grad()
    def step(self, gradients: Gradients, rate: float) -> None:
        """One update of the parameters that have a gradient."""
        parameters = [self.parameters[name] for name in gradients]
        # The fused update reads memory in order, whatever the strides.
        slopes = [gradient.contiguous() for gradient in gradients.values()]
        state = [[own[name] for name in gradients] for own in self._state.values()]
        if self.training.optimizer == "adam":
            averages, squares, steps = state
            first, second = ADAM_BETAS
            adam(
                parameters, slopes, averages, squares, [], steps, fused=True, amsgrad=False, maximize=False,
                lr=rate, beta1=first, beta2=second, eps=self.training.adam_epsilon, weight_decay=0.0,
            )  # fmt: skip
            return
        buffers: list[Tensor | None] = [*state[0]] if state else [None] * len(slopes)
        sgd(
            parameters, slopes, buffers, foreach=False, nesterov=False, maximize=False,
            lr=rate, momentum=MOMENTUM if state else 0.0, dampening=0.0, weight_decay=0.0,
        )  # fmt: skip

    def tensors(self) -> dict[str, Tensor]:
        """The state as ``parameter/quantity``."""
        return {
            f"{name}/{quantity}": tensor for quantity, state in self._state.items() for name, tensor in state.items()
        }

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
