"""What a training step records: norms of every part, W^V's rotation, contrast along topic blocks."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from topicscope.measure.blocks import class_averages
from topicscope.model.transformer import Transformer

# How many steps back W^V's rotation looks (Figure 5).
ROTATION_STEPS = 10


def norms(model: Transformer) -> dict[str, list[float]]:
    """Frobenius norm of every parameter, one a layer."""
    layered = {
        name: parameter if parameter.dim() > 1 and name not in UNLAYERED else parameter[None]
        for name, parameter in model.named_parameters()
    }
    return {name: parameter.flatten(start_dim=1).norm(dim=1).tolist() for name, parameter in layered.items()}


UNLAYERED = frozenset({"embedding", "positions", "prediction", "head"})


def rotation(now: Float[Tensor, "layer row column"], before: Float[Tensor, "layer row column"]) -> list[float]:
    """Cosine distance (1 − cos)/2 ∈ [0, 1] between W^V and itself some steps earlier, one a layer."""
    cosine = torch.nn.functional.cosine_similarity(now.flatten(1).double(), before.flatten(1).double())
    return ((1 - cosine) / 2).clamp(0, 1).tolist()


def effective_value(model: Transformer) -> Float[np.ndarray, "layer token token"]:
    """W^E⊤ W^V W^E of every layer: what W^V does between tokens; W^V itself for one-hot embeddings."""
    table = model.parameter("embedding").detach().double()
    return (table @ model.parameter("value").detach().double() @ table.T).numpy()


def embedding_products(model: Transformer) -> Float[np.ndarray, "token token"]:
    """E = W^E⊤ W^E."""
    table = model.parameter("embedding").detach()
    return (table @ table.T).numpy()


def contrasts(model: Transformer, word_topics: Int[np.ndarray, " token"]) -> dict[str, Any]:
    """Same- minus different-topic averages of W^E⊤ W^V W^E (one a layer) and of W^E⊤ W^E."""
    return {
        "value": [class_averages(matrix, word_topics).contrast for matrix in effective_value(model)],
        "embedding": class_averages(embedding_products(model), word_topics).contrast,
    }
