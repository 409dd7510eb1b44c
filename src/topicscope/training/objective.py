"""The objective: squared loss (eq. 3), cross-entropy (eq. 4), their mean (eq. 1) and L2 (eq. 2)."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from topicscope.model.transformer import Transformer
from topicscope.model.weights import part_of
from topicscope.settings import Training
from topicscope.settings.training import Loss


def losses(
    scores: Float[Tensor, "target token"], words: Int[Tensor, " target"], kind: Loss
) -> Float[Tensor, " target"]:
    r"""One loss a masked position.

    .. math::
        l_{sq} = \lVert x - y \rVert_2^2 = \lVert x \rVert^2 - 2 x_i + 1, \qquad
        l_{ce} = -\log\left( \exp(x_i) / \sum_j \exp(x_j) \right)

    The squared loss sums over the vocabulary; it is not a mean over entries.
    """
    if kind == "cross_entropy":
        return functional.cross_entropy(scores, words, reduction="none")
    chosen = scores.gather(1, words[:, None])[:, 0]
    return scores.square().sum(dim=1) - 2 * chosen + 1


def l2_penalty(model: Transformer, training: Training) -> Float[Tensor, ""]:
    """λ‖θ‖² over the chosen parts that are trained; it has a gradient."""
    parameters = [
        parameter
        for name, parameter in model.named_parameters()
        if part_of(name) in training.l2_parts and part_of(name) in model.settings.trained_parts
    ]
    return training.l2 * torch.stack([parameter.square().sum() for parameter in parameters]).sum()
