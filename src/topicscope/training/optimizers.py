"""SGD, momentum, Adam and AdamW over weights with a leading ``seed`` axis, each member at its own learning rate.

The rules are PyTorch's (tested equal to ``torch.optim``). What is left out is its bookkeeping, which at the paper's
size takes as long as the arithmetic.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from topicscope.settings.training import AnyTraining

Gradients = dict[str, Float[Tensor, "seed ..."]]


class Optimizer:
    """The optimiser of the settings; a parameter without a gradient is left alone, and so is its state."""

    def __init__(self, parameters: dict[str, Float[Tensor, "seed ..."]], training: AnyTraining, *, alike: bool) -> None:
        """Members that are ``alike`` have the same learning rate, and are updated in one go."""
        self.parameters = parameters
        self.training = training
        self.seeds = len(next(iter(parameters.values())))
        self._groups = [slice(0, self.seeds)] if alike else [slice(seed, seed + 1) for seed in range(self.seeds)]
        averages = {"sgd": (), "momentum": ("momentum_buffer",), "adam": ("exp_avg", "exp_avg_sq")}
        self._averages = averages["adam" if training.optimizer == "adamw" else training.optimizer]
        # Updates of a parameter so far, for Adam's bias correction; one count for each group, where the parameter is:
        # fused kernels of a GPU read it there.
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
        names = list(gradients)
        for number, group in enumerate(self._groups):
            parameters = [self.parameters[name][group] for name in names]
            # The fused update reads memory in order, whatever the strides.
            slopes = [gradients[name][group].contiguous() for name in names]
            averages = [[self._state[quantity][name][group] for name in names] for quantity in self._averages]
            steps = [self._steps[name][number] for name in names]
            if self.training.optimizer in ("adam", "adamw"):
                self._adam(parameters, slopes, averages, steps, rates[group.start])
            else:
                self._descend(parameters, slopes, averages, rates[group.start])

    def _adam(
        self,
        parameters: list[Tensor],
        gradients: list[Tensor],
        averages: list[list[Tensor]],
        steps: list[Tensor],
        rate: float,
    ) -> None:
        training = self.training
        if training.optimizer == "adamw":
            torch._foreach_mul_(parameters, 1 - rate * training.weight_decay)
        for step in steps:
            step += 1
        # What torch.optim.Adam(fused=True) calls, without what it does around it.
        torch._fused_adam_(
            parameters,
            gradients,
            averages[0],
            averages[1],
            [],
            steps,
            lr=rate,
            beta1=training.adam_betas[0],
            beta2=training.adam_betas[1],
            weight_decay=0.0,
            eps=training.adam_epsilon,
            amsgrad=False,
            maximize=False,
        )

    def _descend(
        self, parameters: list[Tensor], gradients: list[Tensor], averages: list[list[Tensor]], rate: float
    ) -> None:
        if averages:
            torch._foreach_mul_(averages[0], self.training.momentum)
            torch._foreach_add_(averages[0], gradients)
            gradients = averages[0]
        torch._foreach_add_(parameters, gradients, alpha=-rate)

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
