"""A run's linear map under uniform attention, and the optimum that the run's own settings tend to."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from topicscope.errors import InputError
from topicscope.settings import Settings
from topicscope.settings.toml import load_settings
from topicscope.store import checkpoint_path, checkpoint_steps, load_tensors, one_layer
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.check import (
    OWN_TOPICS,
    Check,
    beside_theory,
    embedding_residuals,
    fitting,
    infinite_residuals,
)
from topicscope.theory.finite_documents import Moments, finite_optimum, moments
from topicscope.theory.theorem1 import semidefinite_optimum

EMBEDDING, VALUE = "weights/embedding", "weights/value"
BIASES = {"prediction_bias": "weights/prediction_bias", "value_bias": "weights/value_bias"}
# What is not known, or not certain, about a run's optimum.
NOT_ALL_MATRICES = "{}: the optimum is a lower bound that may not be reachable"
L2_ON_FACTORS = "L2 acts on W^E and W^V, not on their product: the optimum here is that without L2"
L2_ELSEWHERE = "L2 acts on more than W^V, or beside a trained bias: no optimum is computed for this"

Matrix = Float[np.ndarray, "token token"]


@dataclass(frozen=True, eq=False)
class RunMatrix:
    """A run's linear map under uniform attention: x̃ ↦ W x̃ + b = (W + b1⊤) x̃, as frequencies sum to one."""

    source: str
    name: str
    settings: Settings
    matrix: Matrix
    """W + b1⊤ with W = W^E⊤W^V W^E and b = b^pred + W^E⊤b^V."""

    gram: Matrix | None
    """E = W^E⊤W^E; None if the embedding is one-hot."""

    biases: dict[str, Float[np.ndarray, " token"]]
    """What each bias adds to the prediction."""

    notes: tuple[str, ...]


def check_run(folder: Path, layer: int | None = None) -> Check:
    """The newest checkpoint beside everything that the run's settings define; what they do not becomes a note."""
    run = read_matrix(folder, layer)
    data, masking = run.settings.documents, run.settings.masking
    model = TopicModel.from_settings(data)
    notes = [*run.notes, *([] if model.equal_words else [OWN_TOPICS])]
    theorems = {}
    try:
        theorems = infinite_residuals(run.matrix, model, masking)
        if run.gram is not None and model.equal_words:
            theorems["theorem_1"] = embedding_residuals(
                run.gram, model.topics, model.equal_words, masking, data.per_document
            )
    except InputError as error:
        notes.append(f"no Lemma 1, Theorem 1 or 2: {error}")
    population = moments(model, masking, run.settings.training.average)
    optimum, more = run_optimum(run, population)
    parts = theorems | {"notes": (*notes, *more)}
    about = (run.source, run.name, data, masking)
    return beside_theory(run.matrix, optimum, population, model=model, about=about, **parts)


def read_matrix(folder: Path, layer: int | None = None) -> RunMatrix:
    """The map of the newest checkpoint; of the first seed where several were trained together."""
    if not (folder / "settings.toml").exists():
        raise InputError(f"{folder} has no settings.toml: give the folder of a run.")
    settings = load_settings(folder / "settings.toml")
    steps = checkpoint_steps(folder)
    if not steps:
        raise InputError(f"{folder} has no checkpoint-STEP.safetensors: give the folder of a run that saved one.")
    checkpoint = checkpoint_path(folder, steps[-1])
    tensors = load_tensors(checkpoint, [EMBEDDING, VALUE], BIASES.values())
    if tensors[EMBEDDING].ndim == 3:
        tensors = {name: seeds[0] for name, seeds in tensors.items()}
    embedding = tensors[EMBEDDING]
    value = one_layer(tensors[VALUE], f"{checkpoint}, tensor {VALUE},", layer)
    if embedding.ndim != 2 or value.shape != (embedding.shape[-1], embedding.shape[-1]):
        raise InputError(
            f"{checkpoint} has {EMBEDDING} of shape {embedding.shape} and {VALUE} of {value.shape}: "
            "they must be V × d and d × d; give a checkpoint that train wrote."
        )
    # This comes before any V × V matrix is formed.
    vocabulary, data = TopicModel.from_settings(settings.documents).vocabulary, settings.documents
    if len(embedding) != vocabulary:
        fits = "" if data.topic_words else f" ({fitting(len(embedding) - 1, data.topics, data.words)})"
        raise InputError(
            f"{checkpoint} has {len(embedding)} tokens, but its settings.toml asks for {vocabulary}: "
            f"give a run folder whose files belong together{fits}."
        )
    biases = {name: tensors[title].reshape(-1) for name, title in BIASES.items() if title in tensors}
    if "value_bias" in biases:
        biases["value_bias"] = embedding @ biases["value_bias"].reshape(-1, embedding.shape[1])[layer or 0]
    total = sum(biases.values(), np.zeros(len(embedding)))
    one_hot = np.array_equal(embedding, np.eye(len(embedding)))
    name = "W^V" if one_hot else "W^E⊤W^V W^E"
    planned = settings.training.steps
    unfinished = [f"the run is unfinished: step {steps[-1]:,} of {planned:,}"] if steps[-1] < planned else []
    return RunMatrix(
        source=str(checkpoint),
        name=f"{name} + b1⊤" if total.any() else name,
        settings=settings,
        matrix=embedding @ value @ embedding.T + total[:, None],
        gram=None if one_hot else embedding @ embedding.T,
        biases=biases,
        notes=(*unfinished, *_notes(settings)),
    )


def _notes(settings: Settings) -> tuple[str, ...]:
    """In what the run differs from eq. 6 with uniform attention and squared loss."""
    model, notes = settings.model, []
    if settings.training.loss != "squared":
        notes.append("trained with cross-entropy: optima and losses here are those of the squared loss")
    if not model.uniform:
        notes.append("attention is not frozen to uniform: losses here are those of uniform attention")
    beyond = [name for name in ("residual", "layer_norm") if getattr(model, name)]
    beyond += [name for name in model.extras if name not in beyond]
    beyond += ["layers"] * (model.layers > 1)
    if beyond:
        notes.append(f"the model has more than eq. 6 ({', '.join(beyond)}): only W^E⊤W^V W^E is looked at")
    return tuple(notes)


def run_optimum(run: RunMatrix, population: Moments) -> tuple[Matrix | None, tuple[str, ...]]:
    """The W + b1⊤ that minimises the population's squared loss over what the run trains, with its L2; and notes.

    With one-hot embeddings it is the ridge optimum at the run's λ. With the embedding alone and W^V = I it is the best
    E ⪰ 0. Else it is the best of all matrices, which W^E⊤W^V W^E can be for d ≥ V. A trained bias adds the same to all
    entries of a row, which the best of all matrices has already.
    None, with the reason as a note, where it is not known.
    """
    model, training = run.settings.model, run.settings.training
    # Of what the map is made of; keys and queries do not reach it.
    l2 = {"embedding", "value", *BIASES} & set(model.trained_parts) & set(training.l2_parts) if training.l2 else set()
    trained = tuple(name for name in run.biases if model.part(name).train)
    frozen = sum((run.biases[name] for name in run.biases if name not in trained), np.zeros(population.vocabulary))
    one_hot = run.gram is None and not model.embedding.train
    identity = model.value.start == "identity" and not model.value.train and model.embedding.train
    if model.masked_keys == "hidden":
        return None, ("masked positions are hidden as keys: no finite-document optimum is known here",)
    if (one_hot and (l2 - {"value"} or (l2 and trained))) or (identity and l2):
        return None, (L2_ELSEWHERE,)
    notes: tuple[str, ...] = ()
    if one_hot and not trained:
        matrix = finite_optimum(population, training.l2 if l2 else 0.0, frozen) + frozen[:, None]
    elif identity and not trained:
        matrix = semidefinite_optimum(population, frozen).matrix + frozen[:, None]
    else:
        matrix, notes = finite_optimum(population), (L2_ON_FACTORS,) if l2 else ()
    # Why the run may not be able to reach the optimum.
    if 0 < model.dimension < population.vocabulary:
        notes += (NOT_ALL_MATRICES.format("d is smaller than V"),)
    if not model.value.train and (trained or not identity):
        notes += (NOT_ALL_MATRICES.format("W^V is not trained"),)
    return matrix, notes
