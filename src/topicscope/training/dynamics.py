"""What a training step records: norms of every part, W^V's rotation, contrast along topic blocks."""

from typing import Any

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor, float64

from topicscope.measure.blocks import product_class_averages
from topicscope.model.transformer import Transformer

# How many steps back W^V's rotation looks (Figure 5).
ROTATION_STEPS = 10
# Matrices that the model has once, not once a layer.
UNLAYERED = frozenset({"embedding", "positions", "prediction", "head"})


def norms(model: Transformer) -> dict[str, list[float]]:
    """Frobenius norm of every parameter, one a layer."""
    layered = {
        name: parameter if parameter.dim() > 1 and name not in UNLAYERED else parameter[None]
        for name, parameter in model.named_parameters()
    }
    return {
        name: parameter.flatten(start_dim=1).norm(dim=1, dtype=float64).tolist() for name, parameter in layered.items()
    }


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


def value_products(model: Transformer) -> Float[np.ndarray, "layer token token"]:
    """W^E⊤ W^V W^E of each layer: what W^V does between tokens."""
    table = model.parameter("embedding").detach()
    return (table @ model.parameter("value").detach() @ table.T).float().numpy()


def contrasts(model: Transformer, word_topics: Int[np.ndarray, " token"]) -> dict[str, Any]:
    """Same- minus different-topic averages of W^E⊤ W^V W^E (one a layer) and of W^E⊤ W^E."""
    table = model.parameter("embedding").detach().double().numpy()
    values = model.parameter("value").detach().double().numpy()
    return {
        "value": [product_class_averages(table @ value, table, word_topics).contrast for value in values],
        "embedding": product_class_averages(table, table, word_topics).contrast,
    }
