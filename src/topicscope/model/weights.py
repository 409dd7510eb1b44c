"""Where weights start: one NumPy array per parameter, shared by all ways of computing the model.

Parameters have a leading ``layer`` axis where each layer has its own. ``embedding`` is stored as W^E⊤, one row per
token; the other matrices are as in the equations and act on columns: W^V z.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from topicscope.errors import InputError, refuse
from topicscope.randomness import Purpose
from topicscope.randomness import generator as generator_of
from topicscope.settings import Model, Part, Settings
from topicscope.store import load_array
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.finite_documents import finite_optimum, moments
from topicscope.theory.lemma1 import require_topic_sets
from topicscope.theory.theorem1 import theorem1_bias, theorem1_embedding
from topicscope.theory.theorem2 import theorem2

Weights = dict[str, Float[np.ndarray, "..."]]

# Scale of weights that the equations do not have (as in Hugging Face's BERT).
EXTRA_SCALE = 0.02
# The ε that LayerNorm adds to the variance, as in BERT.
NORM_EPSILON = 1e-12
# Parameters that each layer has its own of.
BLOCKS = (
    "key", "query", "value", "output", "feed_forward_in", "feed_forward_out", "attention_norm", "feed_forward_norm",
)  # fmt: skip
LAYERED = [name + end for name in BLOCKS for end in ("", "_bias")]


@runtime_checkable
class Source(Protocol):
    """What documents are drawn from: a topic model or a text."""

    @property
    def vocabulary(self) -> int:
        """V, special tokens included."""


def shapes(model: Model, vocabulary: int, longest: int) -> dict[str, tuple[int, ...]]:
    """The shape of every parameter that the settings ask for, in the order in which they are drawn.

    What the settings leave to the vocabulary is filled in: d = V, d_a = d / heads.
    """
    layers, width, inner = model.layers, model.dimension or vocabulary, model.feed_forward
    scores = model.heads * (model.attention_dimension or width // model.heads)
    of_equations: dict[str, tuple[int, ...]] = {
        "embedding": (vocabulary, width),
        "value": (layers, width, width),
        "key": (layers, scores, width),
        "query": (layers, scores, width),
        "key_bias": (layers, scores),
        "query_bias": (layers, scores),
        "value_bias": (layers, width),
        "prediction_bias": (vocabulary,),
    }
    extras: dict[str, dict[str, tuple[int, ...]]] = {
        "positions": {"positions": (longest, width)},
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
        "prediction": {"prediction": (vocabulary, width)},
    }
    if inner:
        extras["layer_norm"] |= {"feed_forward_norm": (layers, width), "feed_forward_norm_bias": (layers, width)}
    return of_equations | {name: shape for extra in model.extras for name, shape in extras[extra].items()}


def part_of(parameter: str) -> str:
    """The part, as named in the settings, that a parameter belongs to."""
    if parameter.startswith(("attention_norm", "feed_forward_norm")):
        return "layer_norm"
    for extra in ("embedding_norm", "output", "feed_forward", "head"):
        if parameter.startswith(extra):
            return extra
    return parameter


def start_weights(settings: Settings, seed: int, source: Source) -> Weights:
    """The weights that a seed begins with: every parameter at the start that the settings name."""
    model, draw, weights = settings.model, generator_of(seed, Purpose.WEIGHTS), Weights()
    for name, shape in shapes(model, source.vocabulary, settings.data.longest).items():
        if isinstance(getattr(model, name, None), Part):
            weights[name] = _start(name, shape, settings, source, draw)
        elif name.endswith("_bias"):
            weights[name] = np.zeros(shape)
        elif name.endswith("_norm"):
            weights[name] = np.ones(shape)
        else:
            scale = model.token_types if name == "token_types" else EXTRA_SCALE
            weights[name] = draw.normal(scale=scale, size=shape)
    return weights


def _start(
    name: str, shape: tuple[int, ...], settings: Settings, source: Source, draw: np.random.Generator
) -> Float[np.ndarray, "..."]:
    part: Part = getattr(settings.model, name)
    match part.start:
        case "normal":
            return draw.normal(scale=part.scale, size=shape)
        case "uniform":
            # PyTorch's for a map from d numbers, and for its bias.
            bound = 1 / np.sqrt(settings.model.dimension or source.vocabulary)
            return draw.uniform(-bound, bound, size=shape)
        case "positive":
            return part.scale * draw.random(size=shape)
        case "zero":
            return np.zeros(shape)
        case "identity":
            return np.broadcast_to(np.eye(shape[-2], shape[-1]), shape).copy()
        case "file":
            array = load_array(Path(part.file), name, f"weights/{name}", remedy=f"name the one to use {name}")
            if array.ndim > len(shape) and len(array) == 1:
                # A run's tensor has an axis of seeds.
                array = array[0]
        case _:
            assert isinstance(source, TopicModel), "settings of text have no theory"
            array = _theory(name, shape, settings, source)
    # One matrix may serve all layers.
    if array.shape not in ((shape, shape[1:]) if name in LAYERED else (shape,)):
        raise InputError(
            f'model.{name}.start = "{part.start}" gives an array of shape {array.shape}, but the model needs {shape}: '
            "change model.dimension or model.layers, or give another array."
        )
    return np.broadcast_to(array, shape).copy()


def _theory(name: str, shape: tuple[int, ...], settings: Settings, topic_model: TopicModel) -> Float[np.ndarray, "..."]:
    """The optimum for finite documents, or a theorem's, which needs the paper's equal, disjoint topics."""
    start, masking = settings.model.part(name).start, settings.masking
    topics, words = topic_model.topics, topic_model.equal_words
    if start == "finite":
        return finite_optimum(moments(topic_model, masking, settings.training.average))
    if words is None:
        raise refuse(
            f"model.{name}.start",
            start,
            'the theorem is about disjoint topics of equally likely words; use "finite" or "file"',
        )
    if name == "prediction_bias":
        return theorem1_bias(topics, words, masking)
    if name == "embedding":
        return theorem1_embedding(topics, words, masking, pattern="block", dimension=shape[1]).T
    require_topic_sets(topics, topic_model.per_document if topic_model.sampler == "topics" else 1)
    return theorem2(topics, words, masking)


def embedded(weights: Mapping[str, Float[np.ndarray, "seed ..."]]) -> Float[np.ndarray, "seed token dimension"]:
    """What the embedding layer returns for every token, without positions."""
    state = weights["embedding"]
    if "token_types" in weights:
        state = state + weights["token_types"][:, None]
    if "embedding_norm" in weights:
        centred = state - state.mean(axis=-1, keepdims=True)
        spread = np.sqrt(centred.var(axis=-1, keepdims=True) + NORM_EPSILON)
        state = centred / spread * weights["embedding_norm"][:, None] + weights["embedding_norm_bias"][:, None]
    return state
