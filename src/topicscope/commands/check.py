"""``topicscope check``: how far a matrix is from Lemma 1, Theorems 1 and 2 and the finite-document optimum."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from topicscope.arrays import load_npy, load_tensors, one_layer, only_tensor
from topicscope.commands.check_run import RunMatrix, read_run, run_reference
from topicscope.errors import InputError
from topicscope.settings import Data, Masking
from topicscope.settings.toml import to_table
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.optima import theorem_1_bias
from topicscope.theory.population import finite_optimum, moments
from topicscope.theory.residuals import (
    ClassAverage,
    FamilyResiduals,
    OptimumResiduals,
    check_size,
    check_tokens,
    class_statistics,
    embedding_residuals,
    optimum_residuals,
    residuals,
)
from topicscope.theory.semidefinite import semidefinite_optimum

Kind = Literal["value", "embedding"]


@dataclass(frozen=True)
class Check:
    """One matrix beside theory; a part that its setting does not define is None, with the reason in ``notes``."""

    source: str
    matrix: str
    setting: dict[str, Any]
    classes: dict[str, ClassAverage | None]
    lemma_1: FamilyResiduals | None
    theorem_2: OptimumResiduals | None
    theorem_1: FamilyResiduals | None
    """Of E = W^E⊤W^E, where there is an embedding that is not one-hot."""

    finite: OptimumResiduals | None
    """Against the optimum for finite documents of the setting."""

    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return dataclasses.asdict(self)


def check(
    path: Path,
    data: Data | None = None,
    masking: Masking | None = None,
    *,
    kind: Kind = "value",
    tensor: str = "",
    layer: int | None = None,
) -> Check:
    """Check the newest checkpoint of a run folder, or a matrix in a .npy or .safetensors file.

    A run folder brings its own setting; for a file it is ``data`` and ``masking`` (the paper's if not given).
    ``kind``: the file holds W (a row a predicted token), or W^E⊤ (a row a token). ``tensor`` names the tensor of a
    .safetensors file that has several, ``layer`` the layer of a tensor that has several, from 0.

    A setting without Lemma 1 and Theorem 2 (T = τ; p_c + p_r = 1) is refused for a file, since it was given for them;
    a run has its setting once and for all, so there it is a note and the finite-document optimum remains.
    """
    if path.is_dir():
        return _check_run(read_run(path, layer))
    matrix = _read_matrix(path, tensor, layer)
    data, masking = data or Data(), masking or Masking()
    if kind == "embedding":
        return check_embedding(matrix, data, masking, str(path))
    return check_value(matrix, data, masking, str(path))


def check_value(matrix: Float[np.ndarray, "row column"], data: Data, masking: Masking, source: str = "matrix") -> Check:
    """W beside Lemma 1, Theorem 2, and the optimum for finite documents without bias and ridge (eq. 1)."""
    model = TopicModel.from_settings(data)
    topics, words = _equal_topics(model)
    check_size(matrix, topics, words, source)
    found = residuals(matrix, topics, words, masking, data.per_document)
    population = moments(model, masking)
    return Check(
        source=source,
        matrix="W",
        setting=_setting(data, masking),
        classes=found.classes,
        lemma_1=found.lemma_1,
        theorem_2=found.theorem_2,
        theorem_1=None,
        finite=optimum_residuals(matrix, finite_optimum(population), model.word_topics, population),
        notes=(),
    )


def check_embedding(
    embedding: Float[np.ndarray, "row dimension"], data: Data, masking: Masking, source: str = "embedding"
) -> Check:
    """E = W^E⊤W^E beside Theorem 1, and the best E ⪰ 0 for finite documents with Theorem 1's bias."""
    model = TopicModel.from_settings(data)
    topics, words = _equal_topics(model)
    check_tokens(len(embedding), topics, words, f"W^E⊤W^E of {source}")
    gram = embedding @ embedding.T
    found = embedding_residuals(gram, topics, words, masking, data.per_document)
    population, bias = moments(model, masking), theorem_1_bias(topics, words, masking)
    best = semidefinite_optimum(population, bias)
    return Check(
        source=source,
        matrix="W^E⊤W^E",
        setting=_setting(data, masking),
        classes=class_statistics(gram, model.word_topics),
        lemma_1=None,
        theorem_2=None,
        theorem_1=found,
        finite=optimum_residuals(gram, best.matrix, model.word_topics, population, bias),
        notes=("losses are with W^V = I and Theorem 1's bias; Lemma 1 and Theorem 2 are about W^V",),
    )


def _check_run(run: RunMatrix) -> Check:
    """A run's matrix beside everything that its settings define; what they do not define becomes a note."""
    data, masking = run.settings.data, run.settings.masking
    model = TopicModel.from_settings(data)
    notes = list(run.notes)
    found, theorem_1 = None, None
    try:
        topics, words = _equal_topics(model)
        found = residuals(run.matrix, topics, words, masking, data.per_document)
        if run.gram is not None:
            theorem_1 = embedding_residuals(run.gram, topics, words, masking, data.per_document)
    except InputError as error:
        notes.append(f"no Lemma 1, Theorem 1 or 2: {error}")
    population = moments(model, masking, run.settings.training.average)
    reference, more = run_reference(run, population)
    return Check(
        source=run.source,
        matrix=run.name,
        setting=_setting(data, masking),
        classes=class_statistics(run.matrix, model.word_topics),
        lemma_1=found.lemma_1 if found else None,
        theorem_2=found.theorem_2 if found else None,
        theorem_1=theorem_1,
        finite=None if reference is None else optimum_residuals(run.matrix, reference, model.word_topics, population),
        notes=(*notes, *more),
    )


def _read_matrix(path: Path, tensor: str, layer: int | None) -> Float[np.ndarray, "row column"]:
    if path.suffix == ".npy":
        return one_layer(load_npy(path), str(path), layer)
    if path.suffix == ".safetensors":
        name = tensor or only_tensor(path)
        return one_layer(load_tensors(path, [name])[name], f"{path}, tensor {name},", layer)
    if not path.exists():
        raise InputError(f"{path} does not exist: give a run folder, a .npy or a .safetensors file.")
    raise InputError(f"{path} cannot be checked: give a run folder, a .npy or a .safetensors file.")


def _equal_topics(model: TopicModel) -> tuple[int, int]:
    """T and v of the paper's model."""
    if model.equal_words is None:
        raise InputError(
            "data.topic_words has topics that are not disjoint sets of equally many, equally likely words, "
            "as the theorems need: leave it out."
        )
    return model.topics, model.equal_words


def _setting(data: Data, masking: Masking) -> dict[str, Any]:
    return {"data": to_table(data), "masking": to_table(masking)}
