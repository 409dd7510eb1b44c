"""What ``topicscope check`` reads from a run folder, and the optimum that the run's own settings tend to."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from topicscope.arrays import load_tensors, newest_checkpoint, one_layer
from topicscope.errors import InputError
from topicscope.settings import Settings
from topicscope.settings.toml import load_settings
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.population import Moments, finite_optimum, optimum_with_bias
from topicscope.theory.residuals import fitting
from topicscope.theory.semidefinite import semidefinite_map_with_bias, semidefinite_optimum

# What is not known, or not certain, about a run's optimum.
NOT_ALL_MATRICES = "{}: the optimum is a lower bound that may not be reachable"
L2_ON_FACTORS = "L2 acts on W^E and W^V, not on their product: the optimum here is that without L2"
L2_BESIDE_FROZEN = "one bias is trained with L2 beside another that is frozen: no optimum is computed for this"
L2_WITHOUT_BIAS = "L2 acts on the embedding or b^V but not alike on b^pred: no optimum is computed for this"

EMBEDDING, VALUE = "weights/embedding", "weights/value"
BIASES = {"prediction_bias": "weights/prediction_bias", "value_bias": "weights/value_bias"}


# The optimum, or None where none is known, and notes.
Reference = tuple[Float[np.ndarray, "token token"] | None, tuple[str, ...]]


@dataclass(frozen=True, eq=False)
class RunMatrix:
    """A run's linear map under uniform attention: x̃ ↦ W x̃ + b = (W + b1⊤) x̃, as frequencies sum to one."""

    source: str
    name: str
    settings: Settings
    matrix: Float[np.ndarray, "token token"]
    """W + b1⊤ with W = W^E⊤W^V W^E and b = b^pred + W^E⊤b^V."""

    gram: Float[np.ndarray, "token token"] | None
    """E = W^E⊤W^E; None if the embedding is one-hot."""

    biases: dict[str, Float[np.ndarray, " token"]]
    """What each bias adds to the prediction."""

    notes: tuple[str, ...]


def read_run(folder: Path, layer: int | None = None) -> RunMatrix:
    """The newest checkpoint of a run folder."""
    if not (folder / "settings.toml").exists():
        raise InputError(f"{folder} has no settings.toml: give the folder of a run.")
    settings = load_settings(folder / "settings.toml")
    checkpoint = newest_checkpoint(folder)
    tensors = load_tensors(checkpoint, [EMBEDDING, VALUE], BIASES.values())
    embedding = tensors[EMBEDDING]
    value = one_layer(tensors[VALUE], f"{checkpoint}, tensor {VALUE},", layer)
    _check_shapes(checkpoint, embedding, value)
    _check_tokens(checkpoint, embedding, settings)
    biases = _biases(tensors, embedding, layer or 0)
    total = sum(biases.values(), np.zeros(len(embedding)))
    one_hot = np.array_equal(embedding, np.eye(len(embedding)))
    name = "W^V" if one_hot else "W^E⊤W^V W^E"
    return RunMatrix(
        source=str(checkpoint),
        name=f"{name} + b1⊤" if total.any() else name,
        settings=settings,
        matrix=embedding @ value @ embedding.T + total[:, None],
        gram=None if one_hot else embedding @ embedding.T,
        biases=biases,
        notes=(*_unfinished(checkpoint, settings), *_notes(settings)),
    )


def _check_shapes(checkpoint: Path, embedding: np.ndarray, value: np.ndarray) -> None:
    if embedding.ndim != 2 or value.shape != (embedding.shape[-1], embedding.shape[-1]):
        raise InputError(
            f"{checkpoint} has {EMBEDDING} of shape {embedding.shape} and {VALUE} of {value.shape}: "
            "they must be V × d and d × d; give a checkpoint that train wrote."
        )


def _check_tokens(checkpoint: Path, embedding: Float[np.ndarray, "row dimension"], settings: Settings) -> None:
    """Before anything of V × V numbers is formed."""
    vocabulary, data = TopicModel.from_settings(settings.data).vocabulary, settings.data
    if len(embedding) != vocabulary:
        fits = "" if data.topic_words else f" ({fitting(len(embedding) - 1, data.topics, data.words)})"
        raise InputError(
            f"{checkpoint} has {len(embedding)} tokens, but its settings.toml asks for {vocabulary}: "
            f"give a run folder whose files belong together{fits}."
        )


def _biases(
    tensors: dict[str, np.ndarray], embedding: Float[np.ndarray, "token dimension"], layer: int
) -> dict[str, Float[np.ndarray, " token"]]:
    biases = {}
    if BIASES["prediction_bias"] in tensors:
        biases["prediction_bias"] = tensors[BIASES["prediction_bias"]].reshape(-1)
    if BIASES["value_bias"] in tensors:
        biases["value_bias"] = embedding @ tensors[BIASES["value_bias"]].reshape(-1, embedding.shape[1])[layer]
    return biases


def _unfinished(checkpoint: Path, settings: Settings) -> tuple[str, ...]:
    """Whether there is training still to come."""
    step, steps = int(checkpoint.stem.rpartition("-")[2]), settings.training.steps
    return (f"the run is unfinished: step {step:,} of {steps:,}",) if step < steps else ()


def _notes(settings: Settings) -> tuple[str, ...]:
    """What about the run is outside eq. 6 with uniform attention and squared loss."""
    model, notes = settings.model, []
    if settings.training.loss != "squared":
        notes.append("trained with cross-entropy: optima and losses here are those of the squared loss")
    if not model.uniform:
        notes.append("attention is not frozen to uniform: losses here are those of uniform attention")
    beyond = [name for name in ("residual", "layer_norm") if getattr(model, name)]
    beyond += [name for name in model.extras if name not in beyond]
    beyond += ["sinusoidal positions"] * (model.positions == "sinusoidal") + ["layers"] * (model.layers > 1)
    if beyond:
        notes.append(f"the model has more than eq. 6 ({', '.join(beyond)}): only W^E⊤W^V W^E is looked at")
    return tuple(notes)


def run_reference(run: RunMatrix, population: Moments) -> Reference:
    """The W + b1⊤ that minimises the population's squared loss over what the run trains, with its L2; and notes.

    One-hot embeddings: the ridge optimum at the run's λ. Embedding alone, W^V = I: the best E ⪰ 0, with b^pred if it
    is trained too. Else: the best of all matrices, which the product W^E⊤W^V W^E can be for d ≥ V.
    """
    model = run.settings.model
    if model.masked_keys == "hidden":
        return None, ("masked positions are hidden as keys: no finite-document optimum is known here",)
    trained = tuple(name for name in run.biases if model.part(name).train)
    frozen = sum((run.biases[name] for name in run.biases if name not in trained), np.zeros(population.vocabulary))
    identity = model.value.start == "identity" and not model.value.train
    if run.gram is None and not model.embedding.train:
        matrix, notes = _one_hot_reference(run.settings, population, trained, frozen)
    elif identity and model.embedding.train:
        matrix, notes = _embedding_reference(run.settings, population, trained, frozen)
    else:
        matrix, notes = finite_optimum(population), (L2_ON_FACTORS,) if run.settings.training.l2 else ()
    return matrix, notes if matrix is None else (*notes, *_limits(run.settings, population, identity=identity))


def _limits(settings: Settings, population: Moments, *, identity: bool) -> tuple[str, ...]:
    """Why the run may not be able to reach the optimum."""
    model, notes = settings.model, []
    if 0 < model.dimension < population.vocabulary:
        notes.append(NOT_ALL_MATRICES.format("d is smaller than V"))
    if not model.value.train and not (identity and model.embedding.train):
        notes.append(NOT_ALL_MATRICES.format("W^V is not trained"))
    return tuple(notes)


def _one_hot_reference(
    settings: Settings, population: Moments, trained: tuple[str, ...], frozen: Float[np.ndarray, " token"]
) -> Reference:
    ridge = _penalty_of(settings, "value")
    if not trained:
        return finite_optimum(population, ridge, frozen) + frozen[:, None], ()
    penalties = [_penalty_of(settings, name) for name in trained]
    # k biases that add up share a vector at a cost of λ/k; one that costs nothing takes it all.
    bias_ridge = 0.0 if 0.0 in penalties else 1 / sum(1 / penalty for penalty in penalties)
    if bias_ridge and frozen.any():
        return None, (L2_BESIDE_FROZEN,)
    matrix, bias = optimum_with_bias(population, ridge, bias_ridge)
    return matrix + bias[:, None], ()


def _embedding_reference(
    settings: Settings, population: Moments, trained: tuple[str, ...], frozen: Float[np.ndarray, " token"]
) -> Reference:
    """W^V = I and E = W^E⊤W^E; a trained b^V adds W^E⊤b^V, which without L2 is as free as b^pred."""
    ridge = _penalty_of(settings, "embedding")
    if not trained:
        return semidefinite_optimum(population, frozen, ridge).matrix + frozen[:, None], ()
    if not any(_penalty_of(settings, name) for name in ("embedding", *trained)):
        return semidefinite_map_with_bias(population), ()
    bias_ridge = _penalty_of(settings, "prediction_bias")
    if trained != ("prediction_bias",) or not bias_ridge:
        return None, (L2_WITHOUT_BIAS,)
    if frozen.any():
        return None, (L2_BESIDE_FROZEN,)
    return semidefinite_map_with_bias(population, ridge, bias_ridge), ()


def _penalty_of(settings: Settings, part: str) -> float:
    return settings.training.l2 if part in settings.training.l2_parts else 0.0
