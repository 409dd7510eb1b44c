"""What a training step records: norms of every part, W^V's rotation, contrast along topic blocks."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor, float64

from topicscope.measure.blocks import product_contrasts
from topicscope.model.transformer import Transformer

Weights = dict[str, Float[Tensor, "seed ..."]]

# How many steps back W^V's rotation looks (Figure 5).
ROTATION_STEPS = 10
# Matrices that the model has once, not once a layer.
UNLAYERED = frozenset({"embedding", "positions", "token_types", "prediction", "head"})


def norms(weights: Weights) -> list[dict[str, list[float]]]:
    """Frobenius norm of every parameter, one a layer, for each seed."""
    layered = {
        name: weight if weight.dim() > 2 and name not in UNLAYERED else weight[:, None]
        for name, weight in weights.items()
    }
    found = {
        name: weight.detach().cpu().flatten(start_dim=2).norm(dim=2, dtype=float64).tolist()
        for name, weight in layered.items()
    }
    return [dict(zip(found, each, strict=True)) for each in zip(*found.values(), strict=True)]


def layer_norms(tensors: Mapping[str, Tensor]) -> dict[str, list[float]]:
    """The same of one model's parameters, or of their gradients."""
    return norms({name: tensor[None] for name, tensor in tensors.items()})[0]


def head_norms(matrix: Float[Tensor, "layer row column"], heads: int) -> list[list[float]]:
    """Frobenius norm of each head's rows of W^K, W^Q or W^V, by layer; their squares sum to the layer's."""
    return matrix.cpu().reshape(len(matrix), heads, -1).norm(dim=2, dtype=float64).tolist()


def rotation(now: Float[Tensor, "layer row column"], before: Float[Tensor, "layer row column"]) -> list[float | None]:
    """Cosine distance (1 − cos)/2 ∈ [0, 1] between W^V and itself some steps earlier, one a layer; None from zero."""
    first, second = (matrix.cpu().flatten(1).double() for matrix in (now, before))
    sizes = first.norm(dim=1) * second.norm(dim=1)
    products = (first * second).sum(dim=1)
    return [
        min(max((1 - product / size) / 2, 0.0), 1.0) if size else None
        for product, size in zip(products.tolist(), sizes.tolist(), strict=True)
    ]


def embedding_products(model: Transformer) -> Float[np.ndarray, "token token"]:
    """E = W^E⊤ W^E."""
    table = model.parameter("embedding").detach()
    return (table @ table.T).numpy()


def value_products(model: Transformer) -> Float[np.ndarray, "layer token token"]:
    """W^E⊤ W^V W^E of each layer: what W^V does between tokens."""
    table = model.parameter("embedding").detach()
    return (table @ model.parameter("value").detach() @ table.T).float().numpy()


def contrasts(weights: Weights, word_topics: Int[np.ndarray, " token"]) -> list[dict[str, Any]]:
    """Same- minus different-topic averages of W^E⊤ W^V W^E (one a layer) and of W^E⊤ W^E, for each seed."""
    table = weights["embedding"].detach().double().numpy()[:, None]
    values = weights["value"].detach().double().numpy()
    by_layer, alone = (product_contrasts(rows, table, word_topics) for rows in (table @ values, table))
    if by_layer is None or alone is None:
        return [{"value": [None] * values.shape[1], "embedding": None} for _ in values]
    return [
        {"value": of_layers, "embedding": of_embedding}
        for of_layers, of_embedding in zip(by_layer.tolist(), alone[:, 0].tolist(), strict=True)
    ]
