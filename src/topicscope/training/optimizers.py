"""SGD, momentum, Adam and AdamW over weights with a leading ``seed`` axis, each member at its own learning rate.

The rules are PyTorch's (tested equal to ``torch.optim``). What is left out is its bookkeeping, which at the paper's
size takes as long as the arithmetic.
"""

import math
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from topicscope.settings.training import AnyTraining

# What torch.optim.Adam(fused=True) calls, without what it does around it. PyTorch does not promise to keep it: where it
# is gone this is None, and the update is written out.
FUSED_ADAM: Callable[..., None] | None = getattr(torch, "_fused_adam_", None)

Gradients = dict[str, Float[Tensor, "seed ..."]]


class Optimizer:
    """The optimiser of the settings; a parameter without a gradient is left alone, and so is its state."""

    def __init__(self, parameters: dict[str, Float[Tensor, "seed ..."]], training: AnyTraining, *, alike: bool) -> None:
        """Members that are ``alike`` have the same learning rate, and are updated together."""
        self.parameters = parameters
        self.training = training
        self.seeds = len(next(iter(parameters.values())))
        self._groups = [slice(0, self.seeds)] if alike else [slice(seed, seed + 1) for seed in range(self.seeds)]
        averages = {"sgd": (), "momentum": ("momentum_buffer",), "adam": ("exp_avg", "exp_avg_sq")}
        self._averages = averages["adam" if training.optimizer == "adamw" else training.optimizer]
        # Updates of a parameter so far, for Adam's bias correction: one count per group, on the parameter's device,
        # where a GPU's fused kernels read it.
        self._steps = {
            name: [torch.zeros((), device=parameter.device) for _ in self._groups]
            for name, parameter in parameters.items()
        }
        self._state = {
            quantity: {name: torch.zeros_like(parameter) for name, parameter in parameters.items()}
            for quantity in self._averages
        }

    @torch.no_grad()
    def step(self, gradients: Gradients, rates: Sequence[float]) -> None:
        """One update of the parameters that have a gradient, with a learning rate for each member."""
        names, training = list(gradients), self.training
        (first, second), epsilon = training.adam_betas, training.adam_epsilon
        for number, group in enumerate(self._groups):
            rate = rates[group.start]
            parameters = [self.parameters[name][group] for name in names]
            # The fused update reads memory in order, whatever the strides.
            slopes = [gradients[name][group].contiguous() for name in names]
            averages = [[self._state[quantity][name][group] for name in names] for quantity in self._averages]
            steps = [self._steps[name][number] for name in names]
            if training.optimizer in ("sgd", "momentum"):
                changes = slopes
                if training.optimizer == "momentum":
                    [changes] = averages
                    for average, slope in zip(changes, slopes, strict=True):
                        average.mul_(training.momentum).add_(slope)
                for parameter, change in zip(parameters, changes, strict=True):
                    parameter.add_(change, alpha=-rate)
                continue
            if training.optimizer == "adamw":
                for parameter in parameters:
                    parameter.mul_(1 - rate * training.weight_decay)
            for step in steps:
                step += 1
            if FUSED_ADAM is not None:
                options = {"lr": rate, "beta1": first, "beta2": second, "weight_decay": 0.0, "eps": epsilon}
                FUSED_ADAM(parameters, slopes, *averages, [], steps, **options, amsgrad=False, maximize=False)
                continue
            for parameter, slope, mean, square, step in zip(parameters, slopes, *averages, steps, strict=True):
                mean.lerp_(slope, 1 - first)
                square.mul_(second).addcmul_(slope, slope, value=1 - second)
                size = square.sqrt() / math.sqrt(1 - second ** float(step)) + epsilon
                parameter.addcdiv_(mean, size, value=-rate / (1 - first ** float(step)))

    def tensors(self, seed: int) -> dict[str, Tensor]:
        """A member's state as ``parameter/quantity``, as a run alone has it."""
        group = self._group(seed)
        averages = {
            f"{name}/{quantity}": state[seed]
            for quantity, states in self._state.items()
            for name, state in states.items()
        }
        return averages | {f"{name}/step": steps[group] for name, steps in self._steps.items()}

    def restore(self, seed: int, tensors: dict[str, Tensor]) -> None:
        """Put back what ``tensors`` took out."""
        for path, value in tensors.items():
            name, quantity = path.split("/")
            if quantity == "step":
                self._steps[name][self._group(seed)].copy_(value)
            else:
                self._state[quantity][name][seed].copy_(value)

    def _group(self, seed: int) -> int:
        return 0 if len(self._groups) == 1 else seed
