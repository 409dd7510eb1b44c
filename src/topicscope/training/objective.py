"""The objective: squared loss (eq. 3), cross-entropy (eq. 4), their mean (eq. 1) and L2 (eq. 2)."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from topicscope.model.targets import Targets
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


def row_losses(scores: Float[Tensor, "seed row token"], targets: Targets, kind: Loss) -> Float[Tensor, " seed"]:
    r"""Each seed's weighted sum of ``losses``, from one row of scores for all masked positions that share it.

    .. math::
        \sum_n w_n l_{sq}(x_{r(n)}) = \sum_r w_r \lVert x_r \rVert^2 + \sum_n w_n (1 - 2 x_{r(n), i_n}), \qquad
        \sum_n w_n l_{ce}(x_{r(n)}) = - \sum_n w_n \log\sigma(x_{r(n)})_{i_n}

    with w_r the sum of w_n over the positions n of row r.
    """
    if kind == "cross_entropy":
        chosen = scores.log_softmax(dim=-1).flatten().index_select(0, targets.place)
        return -(chosen.view_as(targets.weight) * targets.weight).sum(dim=1)
    chosen = scores.flatten().index_select(0, targets.place).view_as(targets.weight)
    row_weight = targets.row_weight.view(len(scores), -1, 1)
    return (scores.square() * row_weight).sum(dim=(1, 2)) + ((1 - 2 * chosen) * targets.weight).sum(dim=1)


def l2_penalty(model: Transformer, training: Training) -> Float[Tensor, ""]:
    """λ‖θ‖² over the chosen parts that are trained; it has a gradient."""
    parameters = [
        parameter
        for name, parameter in model.named_parameters()
        if part_of(name) in training.l2_parts and part_of(name) in model.settings.trained_parts
    ]
    norms = [parameter.square().sum() for parameter in parameters]
    return training.l2 * torch.stack(norms).sum() if norms else torch.zeros(())
