"""Where weights start: one NumPy array per parameter, shared by all ways of computing the model.

Parameters have a leading ``layer`` axis where each layer has its own. ``embedding`` is stored as W^E⊤, one row per
token; the other matrices are as in the equations and act on columns: W^V z.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from topicscope.errors import InputError, refuse
from topicscope.randomness import Purpose
from topicscope.randomness import generator as generator_of
from topicscope.settings import Masking, Model, Part, Settings
from topicscope.settings.training import Average
from topicscope.store import load_npy, load_tensors, only_tensor
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.finite_documents import finite_optimum, moments
from topicscope.theory.lemma1 import require_topic_sets
from topicscope.theory.theorem1 import theorem1_bias, theorem1_embedding
from topicscope.theory.theorem2 import block_value, diagonal_value, theorem2

Weights = dict[str, Float[np.ndarray, "..."]]

# Scale of weights that the equations do not have (as in Hugging Face's BERT).
EXTRA_SCALE = 0.02
# Scale of the vector that is added to every token: PyTorch's default, which the released code keeps.
TOKEN_TYPE_SCALE = 1.0
# The ε that LayerNorm on the embeddings adds to the variance, as in BERT.
EMBEDDING_NORM_EPSILON = 1e-12


@dataclass(frozen=True)
class Sizes:
    """Widths that follow from the settings and the vocabulary."""

    vocabulary: int
    dimension: int
    head_dimension: int
    attention_dimension: int
    longest: int

    @classmethod
    def of(cls, model: Model, vocabulary: int, longest: int) -> "Sizes":
        """Fill in what the settings leave to the vocabulary: d = V, d_a = d / heads."""
        dimension = model.dimension or vocabulary
        head_dimension = dimension // model.heads
        return cls(vocabulary, dimension, head_dimension, model.attention_dimension or head_dimension, longest)


def shapes(model: Model, sizes: Sizes) -> dict[str, tuple[int, ...]]:
    """The shape of every parameter that the settings ask for, in the order in which they are drawn."""
    layers, width, inner = model.layers, sizes.dimension, model.feed_forward
    scores = model.heads * sizes.attention_dimension
    found: dict[str, tuple[int, ...]] = {
        "embedding": (sizes.vocabulary, width),
        "value": (layers, width, width),
        "key": (layers, scores, width),
        "query": (layers, scores, width),
        "key_bias": (layers, scores),
        "query_bias": (layers, scores),
        "value_bias": (layers, width),
        "prediction_bias": (sizes.vocabulary,),
    }
    extras: dict[str, dict[str, tuple[int, ...]]] = {
        "positions": {"positions": (sizes.longest, width)},
        "token_types": {"token_types": (width,)},
        "embedding_norm": {"embedding_norm": (width,), "embedding_norm_bias": (width,)},
        "output": {"output": (layers, width, width), "output_bias": (layers, width)},
        "feed_forward": {
            "feed_forward_in": (layers, inner, width),
            "feed_forward_in_bias": (layers, inner),
            "feed_forward_out": (layers, width, inner),
            "feed_forward_out_bias": (layers, width),
        },
        "layer_norm": {"attention_norm": (layers, width), "attention_norm_bias": (layers, width)},
        "head": {"head": (width, width), "head_bias": (width,), "head_norm": (width,), "head_norm_bias": (width,)},
        "prediction": {"prediction": (sizes.vocabulary, width)},
    }
    if inner:
        extras["layer_norm"] |= {"feed_forward_norm": (layers, width), "feed_forward_norm_bias": (layers, width)}
    for name in model.extras:
        found |= extras[name]
    return found


def part_of(parameter: str) -> str:
    """The part, as named in the settings, that a parameter belongs to."""
    if parameter.startswith(("attention_norm", "feed_forward_norm")):
        return "layer_norm"
    for extra in ("embedding_norm", "output", "feed_forward", "head"):
        if parameter.startswith(extra):
            return extra
    return parameter


def start_weights(settings: Settings, seed: int, topic_model: TopicModel) -> Weights:
    """The weights that a seed begins with."""
    draw, average = generator_of(seed, Purpose.WEIGHTS), settings.training.average
    return initial_weights(settings.model, topic_model, settings.masking, average=average, generator=draw)


def initial_weights(
    model: Model,
    topic_model: TopicModel,
    masking: Masking,
    *,
    average: Average = "document",
    generator: np.random.Generator,
) -> Weights:
    """Every parameter at the start that its settings name; the start "finite" is the optimum of this ``average``."""
    sizes = Sizes.of(model, topic_model.vocabulary, topic_model.length[1])
    parts = vars(model)
    weights = {}
    for name, shape in shapes(model, sizes).items():
        if isinstance(part := parts.get(name), Part):
            weights[name] = _start(name, part, shape, sizes, topic_model, masking, average, generator)
        elif name.endswith("_bias"):
            weights[name] = np.zeros(shape)
        elif name.endswith("_norm"):
            weights[name] = np.ones(shape)
        else:
            scale = TOKEN_TYPE_SCALE if name == "token_types" else EXTRA_SCALE
            weights[name] = generator.normal(scale=scale, size=shape)
    return weights


def _start(
    name: str,
    part: Part,
    shape: tuple[int, ...],
    sizes: Sizes,
    topic_model: TopicModel,
    masking: Masking,
    average: Average,
    generator: np.random.Generator,
) -> Float[np.ndarray, "..."]:
    if part.start == "normal":
        return generator.normal(scale=part.scale, size=shape)
    if part.start == "uniform":
        # The scale for a map from d numbers, and for its bias.
        bound = 1 / np.sqrt(sizes.dimension)
        return generator.uniform(-bound, bound, size=shape)
    if part.start == "positive":
        return part.scale * generator.random(size=shape)
    if part.start == "zero":
        return np.zeros(shape)
    if part.start == "identity":
        return np.broadcast_to(np.eye(shape[-2], shape[-1]), shape).copy()
    if part.start == "file":
        array = load_array(Path(part.file), name)
        if array.ndim > len(shape) and len(array) == 1:
            # A run's tensor has an axis of seeds.
            array = array[0]
    elif part.start == "finite":
        array = finite_optimum(moments(topic_model, masking, average))
    else:
        array = _theory(name, part, shape, topic_model, masking)
    # One matrix may serve all layers.
    allowed = (shape,) if name in ("embedding", "prediction_bias", "prediction") else (shape, shape[1:])
    if array.shape not in allowed:
        raise InputError(
            f'model.{name}.start = "{part.start}" gives an array of shape {array.shape}, but the model needs {shape}: '
            "change model.dimension or model.layers, or give another array."
        )
    return np.broadcast_to(array, shape).copy()


def _theory(
    name: str, part: Part, shape: tuple[int, ...], topic_model: TopicModel, masking: Masking
) -> Float[np.ndarray, "..."]:
    """A theorem's optimum; it needs the paper's equal, disjoint topics."""
    words = topic_model.equal_words
    if words is None:
        raise refuse(
            f"model.{name}.start",
            part.start,
            'the theorem is about disjoint topics of equally likely words; use "finite" or "file"',
        )
    topics = topic_model.topics
    if name == "prediction_bias":
        return theorem1_bias(topics, words, masking)
    if name == "embedding":
        diagonal = part.start == "diagonal"
        return theorem1_embedding(
            topics, words, masking, pattern="diagonal" if diagonal else "block", dimension=shape[1]
        ).T
    if part.start == "theorem":
        require_topic_sets(topics, topic_model.per_document if topic_model.sampler == "topics" else 1)
    value = {"theorem": theorem2, "block": block_value, "diagonal": diagonal_value}[part.start]
    return value(topics, words, masking)


def embedded(weights: Mapping[str, Float[np.ndarray, "seed ..."]]) -> Float[np.ndarray, "seed token dimension"]:
    """What the embedding layer returns for every token, without positions."""
    state = weights["embedding"]
    if "token_types" in weights:
        state = state + weights["token_types"][:, None]
    if "embedding_norm" in weights:
        centred = state - state.mean(axis=-1, keepdims=True)
        spread = np.sqrt(centred.var(axis=-1, keepdims=True) + EMBEDDING_NORM_EPSILON)
        state = centred / spread * weights["embedding_norm"][:, None] + weights["embedding_norm_bias"][:, None]
    return state


def load_array(path: Path, name: str) -> Float[np.ndarray, "..."]:
    """An array from .npy, or the tensor of that name (or the only one) from .safetensors."""
    if path.suffix == ".npy":
        return load_npy(path)
    if path.suffix != ".safetensors":
        raise InputError(f"model.{name}.file = {path} is not allowed: give a .npy or .safetensors file.")
    found = load_tensors(path, optional=(name, f"weights/{name}"))
    if found:
        return next(iter(found.values()))
    only = only_tensor(path, f"name the one to use {name}")
    return load_tensors(path, [only])[only]
