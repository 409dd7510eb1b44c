"""What a training step records: norms of every part, W^V's rotation, contrast along topic blocks."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor, float64, nn

from topicscope.measure.blocks import product_class_averages
from topicscope.model.transformer import Transformer

# How many steps back W^V's rotation looks (Figure 5).
ROTATION_STEPS = 10
# Matrices that the model has once, not once a layer.
UNLAYERED = frozenset({"embedding", "positions", "token_types", "prediction", "head"})


def norms(model: nn.Module) -> dict[str, list[float]]:
    """Frobenius norm of every parameter, one a layer."""
    return layer_norms(dict(model.named_parameters()))


def layer_norms(tensors: Mapping[str, Tensor]) -> dict[str, list[float]]:
    """Frobenius norm of each of a model's parameters, or of their gradients, one a layer."""
    layered = {
        name: tensor if tensor.dim() > 1 and name not in UNLAYERED else tensor[None] for name, tensor in tensors.items()
    }
    return {name: tensor.flatten(start_dim=1).norm(dim=1, dtype=float64).tolist() for name, tensor in layered.items()}


def head_norms(matrix: Float[Tensor, "layer row column"], heads: int) -> list[list[float]]:
    """Frobenius norm of each head's rows of W^K, W^Q or W^V, by layer; their squares sum to the layer's."""
    return matrix.reshape(len(matrix), heads, -1).norm(dim=2, dtype=float64).tolist()


def rotation(now: Float[Tensor, "layer row column"], before: Float[Tensor, "layer row column"]) -> list[float | None]:
    """Cosine distance (1 − cos)/2 ∈ [0, 1] between W^V and itself some steps earlier, one a layer; None from zero."""
    first, second = now.flatten(1).double(), before.flatten(1).double()
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


def contrasts(model: Transformer, word_topics: Int[np.ndarray, " token"]) -> dict[str, Any]:
    """Same- minus different-topic averages of W^E⊤ W^V W^E (one a layer) and of W^E⊤ W^E."""
    table = model.parameter("embedding").detach().double().numpy()
    values = model.parameter("value").detach().double().numpy()
    return {
        "value": [product_class_averages(table @ value, table, word_topics).contrast for value in values],
        "embedding": product_class_averages(table, table, word_topics).contrast,
    }
