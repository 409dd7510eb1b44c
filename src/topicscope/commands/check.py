"""``topicscope check``: how far a matrix is from Lemma 1, Theorems 1 and 2 and the finite-document optimum.

The matrix is in a file, or it is a run's: its map from frequencies to predictions under uniform attention, beside the
optimum that the run's own settings tend to.
"""

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from jaxtyping import Float, Int
from rich.console import Console
from rich.table import Table

from topicscope.commands.folders import check_empty
from topicscope.commands.options import INLINE, POSITIONAL, parse
from topicscope.commands.terminal import console, print_json
from topicscope.commands.theory_setting import TheorySetting, errors_with_option_names
from topicscope.errors import InputError, path_of
from topicscope.files import (
    checkpoint_path,
    checkpoint_steps,
    flat_row,
    frame_of,
    load_npy,
    load_tensors,
    one_layer,
    only_tensor,
    write_atomically,
)
from topicscope.measure.blocks import Pattern, pattern
from topicscope.reporting.rounding import readable
from topicscope.settings import Data, Masking, Settings
from topicscope.settings.data import Sampler
from topicscope.settings.toml import load_settings, to_table
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.check import (
    ClassAverage,
    FamilyResiduals,
    OptimumResiduals,
    check_size,
    class_statistics,
    embedding_residuals,
    fitting,
    optimum_residuals,
    residuals,
)
from topicscope.theory.finite_documents import Moments, finite_optimum, infinite_moments, moments, optimum_with_bias
from topicscope.theory.lemma1 import require_topic_sets
from topicscope.theory.theorem1 import semidefinite_map_with_bias, semidefinite_optimum, theorem1_bias
from topicscope.theory.theorem2 import theorem2_of

DESCRIPTION = """How far a matrix is from Lemma 1, Theorems 1 and 2, and the optimum for finite documents.

A run folder has its own settings, and a note says what they do not define; for a .npy or .safetensors file the settings
are given here, and must define Lemma 1 and Theorem 2 (T above τ, p_c + p_r below 1). Topics may be your own and overlap
(--topic-words): the exact optimum and an answer to Theorem 2's question exist for them too, Lemma 1 and Theorem 1 do
not. With --out each matrix is drawn beside its optimum and Theorem 2's.

examples:
  topicscope check runs/figure2
  topicscope check value.npy --topics 10 --words 10
  topicscope check weights.safetensors --tensor weights/value --json
  topicscope check embedding.npy --kind embedding
  topicscope check value.npy --topic-words topics.csv --length 40 60 --out checked
"""

Kind = Literal["value", "embedding"]

CLASSES = {
    "same_word": "same word",
    "same_topic": "same topic, other word",
    "different_topic": "different topic",
    "mask_column": "[MASK] column",
    "mask_row": "0-th row",
}

CLAUSES = {
    "1a": "1(a)  W₀₀ = −c₂u₀",
    "1b": "1(b)  Σ_t W₀ₗ = vu₀",
    "2a": "2(a)  [MASK] column",
    "3a": "3(a)  Σ own topic = c₃ + vuᵢ",
    "3b": "3(b)  Σ other topic = vuᵢ",
}

# Patterns of a matrix, in words.
PATTERNS: dict[Pattern, str] = {
    "block": "the block pattern",
    "diagonal": "a diagonal without blocks",
    "none": "no pattern",
}

OWN_TOPICS = (
    "the topics are not disjoint sets of equally many, equally likely words: Lemma 1 and Theorem 1 are not about them, "
    "and Theorem 2's matrix is the answer to its question for them (infinite documents, λ → 0); a word counts for the "
    "topic that makes it likeliest"
)

# What is not known, or not certain, about a run's optimum.
NOT_ALL_MATRICES = "{}: the optimum is a lower bound that may not be reachable"
L2_ON_FACTORS = "L2 acts on W^E and W^V, not on their product: the optimum here is that without L2"
L2_BESIDE_FROZEN = "one bias is trained with L2 beside another that is frozen: no optimum is computed for this"
L2_WITHOUT_BIAS = "L2 acts on the embedding or b^V but not alike on b^pred: no optimum is computed for this"
L2_BESIDE_MEAN = "the squared loss is a mean over entries, L2 a sum: no optimum is computed for this"
EMBEDDING, VALUE = "weights/embedding", "weights/value"
BIASES = {"prediction_bias": "weights/prediction_bias", "value_bias": "weights/value_bias"}
# The optimum, or None where none is known, and notes.
Reference = tuple[Float[np.ndarray, "token token"] | None, tuple[str, ...]]


@dataclass(frozen=True)
class Check:
    """One matrix beside theory; parts that its setting does not define are None, with the reason in ``notes``."""

    source: str
    matrix: str
    setting: dict[str, Any]
    classes: dict[str, ClassAverage | None]
    lemma_1: FamilyResiduals | None = None
    theorem_2: OptimumResiduals | None = None
    theorem_1: FamilyResiduals | None = None
    """For E = W^E⊤W^E, if the embedding is not one-hot."""

    finite: OptimumResiduals | None = None
    """The distance to the setting's optimum for finite documents."""

    notes: tuple[str, ...] = ()

    matrices: dict[str, Float[np.ndarray, "token token"]] = field(default_factory=dict, repr=False, compare=False)
    """The "matrix" itself, and the optima "finite" and "theorem_2" where they are defined."""

    word_topics: Int[np.ndarray, " token"] = field(default_factory=lambda: np.zeros(0, int), repr=False, compare=False)
    """Each token's topic; 0 for [MASK]."""

    @property
    def verdict(self) -> str:
        """What the numbers say, in one sentence."""
        parts = []
        if self.finite is None:
            parts.append("no optimum is known to hold it against")
        elif (share := self.finite.share_of_gain) is not None:
            gained = f"{100 * share:.0f} % of the optimum's gain"
            parts.append(gained if share >= 0 else "its loss is above that of predicting nothing")
        own, best = (self._pattern(name) for name in ("matrix", "finite"))
        if own:
            parts.append("the block pattern survives" if own == "block" else f"{PATTERNS[own]} is seen")
        if own and best and own != best:
            parts[-1] += f", where the optimum has {PATTERNS[best]}"
        compared = [
            _times(diagonal.mean, other.mean, whose)
            for whose, optimum in (("Theorem 2's", self.theorem_2), ("the optimum's", self.finite))
            if optimum and (diagonal := self.classes["same_word"]) and (other := optimum.classes["same_word"])
        ]
        if compared:
            parts.append(f"the diagonal is {' and '.join(compared)}")
        return "; ".join(parts) + "."

    def _pattern(self, name: str) -> Pattern | None:
        """None where no two words share a topic, or no two words are of different topics."""
        apart = self.classes.get("same_topic") and self.classes.get("different_topic")
        return pattern(self.matrices[name], self.word_topics) if apart and name in self.matrices else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        plain = dataclasses.asdict(dataclasses.replace(self, matrices={}, word_topics=np.zeros(0, int)))
        del plain["matrices"], plain["word_topics"]
        return {"verdict": self.verdict, **plain}

    def to_frame(self) -> Any:
        """All numbers as a pandas DataFrame of one row, by dotted names such as ``theorem_2.relative``."""
        return frame_of([flat_row(self.to_dict() | {"notes": "; ".join(self.notes)})])

    def _repr_html_(self) -> str:
        from topicscope.reporting.notebook import table_html

        numbers = flat_row({name: part for name, part in self.to_dict().items() if isinstance(part, dict)})
        caption = f"{self.matrix} of {self.source}: {self.verdict}"
        return table_html(("quantity", "value"), list(numbers.items()), caption)


def _times(mean: float, other: float, whose: str) -> str:
    """How many times one number is another, in words."""
    times = mean / other if other else np.inf
    return f"as large as {whose}" if abs(times - 1) < 0.005 else f"{times:.2g} times {whose}"


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


def check(
    path: Path | str,
    data: Data | None = None,
    masking: Masking | None = None,
    *,
    kind: Kind = "value",
    tensor: str = "",
    layer: int | None = None,
) -> Check:
    """Check the newest checkpoint of a run folder, or a matrix in a .npy or .safetensors file.

    A run folder has its own setting; for a file it is ``data`` and ``masking`` (by default the paper's), also with
    topics of your own, which may overlap.
    ``kind`` says whether the file holds W (a row per predicted token) or W^E⊤ (a row per token). ``tensor`` names the
    tensor of a .safetensors file that has several, ``layer`` the layer of a tensor that has several, from 0.

    A setting without Lemma 1 and Theorem 2 (T = τ; p_c + p_r = 1) is refused for a file, since it was given for them;
    a run's setting cannot be changed, so there it is a note and the finite-document optimum remains.
    """
    path = path_of(path, "path")
    if path.is_dir():
        return _check_run(read_run(path, layer))
    matrix, source = _read_matrix(path, tensor, layer), str(path)
    data, masking = data or Data(), masking or Masking()
    model = TopicModel.from_settings(data)
    told: dict[str, Any] = {"source": source, "setting": _setting(data, masking)}
    notes: tuple[str, ...] = () if model.equal_words else (OWN_TOPICS,)
    if kind == "value":
        # Without bias and ridge (eq. 1).
        _check_tokens(matrix.shape, model, source)
        theorems, population = _infinite(matrix, model, masking), moments(model, masking)
        found = _beside(matrix, finite_optimum(population), model, masking, population, **theorems)
        return dataclasses.replace(found, matrix="W", notes=notes, **told)
    _check_tokens((len(matrix), len(matrix)), model, f"W^E⊤W^E of {source}")
    gram = matrix @ matrix.T
    theorem_1 = None
    if model.equal_words:
        theorem_1 = embedding_residuals(gram, model.topics, model.equal_words, masking, data.per_document)
    # It takes away the random words, whatever the topics are.
    population, bias = moments(model, masking), theorem1_bias(1, model.vocabulary - 1, masking)
    best = semidefinite_optimum(population, bias).matrix
    found = _beside(gram, best, model, masking, population, bias=bias, theorem_1=theorem_1)
    notes += ("losses are with W^V = I and Theorem 1's bias; Lemma 1 and Theorem 2 are about W^V",)
    return dataclasses.replace(found, matrix="W^E⊤W^E", notes=notes, **told)


def _check_run(run: RunMatrix) -> Check:
    """A run's matrix beside everything that its settings define; what they do not define becomes a note."""
    data, masking = run.settings.data, run.settings.masking
    model = TopicModel.from_settings(data)
    notes = list(run.notes)
    theorems: dict[str, Any] = {}
    if model.equal_words is None:
        notes.append(OWN_TOPICS)
    try:
        theorems = _infinite(run.matrix, model, masking)
        if run.gram is not None and model.equal_words:
            theorem_1 = embedding_residuals(run.gram, model.topics, model.equal_words, masking, data.per_document)
            theorems["theorem_1"] = theorem_1
    except InputError as error:
        notes.append(f"no Lemma 1, Theorem 1 or 2: {error}")
    population = moments(model, masking, run.settings.training.average)
    reference, more = run_reference(run, population)
    found = _beside(run.matrix, reference, model, masking, population, **theorems)
    told: dict[str, Any] = {"source": run.source, "setting": _setting(data, masking)}
    return dataclasses.replace(found, matrix=run.name, notes=(*notes, *more), **told)


def _infinite(matrix: Float[np.ndarray, "token token"], model: TopicModel, masking: Masking) -> dict[str, Any]:
    """Lemma 1 and Theorem 2; for your own topics, the answer to Theorem 2's question."""
    if model.equal_words:
        found = residuals(matrix, model.topics, model.equal_words, masking, model.per_document)
        return {"lemma_1": found.lemma_1, "theorem_2": found.theorem_2}
    if model.sampler == "topics":
        require_topic_sets(model.topics, model.per_document)
    optimum, population = theorem2_of(model.topic_words, masking), infinite_moments(model, masking)
    return {"theorem_2": optimum_residuals(matrix, optimum, model.word_topics, population)}


def _beside(
    matrix: Float[np.ndarray, "token token"],
    optimum: Float[np.ndarray, "token token"] | None,
    model: TopicModel,
    masking: Masking,
    population: Moments,
    *,
    bias: Float[np.ndarray, " token"] | None = None,
    **theorems: Any,
) -> Check:
    """A matrix beside the optimum for finite documents, if one is known, and what the theorems say about it."""
    topics, matrices = model.word_topics, {"matrix": matrix}
    if optimum is not None:
        theorems["finite"] = optimum_residuals(matrix, optimum, topics, population, bias)
        matrices["finite"] = optimum
    if theorems.get("theorem_2"):
        matrices["theorem_2"] = theorem2_of(model.topic_words, masking)
    classes = class_statistics(matrix, topics)
    return Check("", "", {}, classes, **theorems, matrices=matrices, word_topics=topics)


def _check_tokens(shape: tuple[int, ...], model: TopicModel, name: str) -> None:
    """Refuse a matrix whose tokens are not the topics' words and [MASK]."""
    if model.equal_words:
        check_size(shape, model.topics, model.equal_words, name)
    elif shape != (model.vocabulary, model.vocabulary):
        raise InputError(
            f"{name} is {shape[0]} × {shape[1]}, but data.topic_words has {model.vocabulary - 1} words, which with "
            f"[MASK] need {model.vocabulary} × {model.vocabulary}: give a matrix and topics that belong together."
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


def _setting(data: Data, masking: Masking) -> dict[str, Any]:
    return {"data": to_table(data), "masking": to_table(masking)}


def read_run(folder: Path, layer: int | None = None) -> RunMatrix:
    """The newest checkpoint of a run folder."""
    if not (folder / "settings.toml").exists():
        raise InputError(f"{folder} has no settings.toml: give the folder of a run.")
    settings = load_settings(folder / "settings.toml")
    steps = checkpoint_steps(folder)
    if not steps:
        raise InputError(f"{folder} has no checkpoint-STEP.safetensors: give the folder of a run that saved one.")
    checkpoint = checkpoint_path(folder, steps[-1])
    tensors = load_tensors(checkpoint, [EMBEDDING, VALUE], BIASES.values())
    embedding = tensors[EMBEDDING]
    value = one_layer(tensors[VALUE], f"{checkpoint}, tensor {VALUE},", layer)
    if embedding.ndim != 2 or value.shape != (embedding.shape[-1], embedding.shape[-1]):
        raise InputError(
            f"{checkpoint} has {EMBEDDING} of shape {embedding.shape} and {VALUE} of {value.shape}: "
            "they must be V × d and d × d; give a checkpoint that train wrote."
        )
    # This comes before any V × V matrix is formed.
    vocabulary, data = TopicModel.from_settings(settings.data).vocabulary, settings.data
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
    beyond += ["sinusoidal positions"] * (model.positions == "sinusoidal") + ["layers"] * (model.layers > 1)
    if beyond:
        notes.append(f"the model has more than eq. 6 ({', '.join(beyond)}): only W^E⊤W^V W^E is looked at")
    return tuple(notes)


def run_reference(run: RunMatrix, population: Moments) -> Reference:
    """The W + b1⊤ that minimises the population's squared loss over what the run trains, with its L2; and notes.

    With one-hot embeddings it is the ridge optimum at the run's λ. With the embedding alone and W^V = I it is the best
    E ⪰ 0, with b^pred if it is trained too. Else it is the best of all matrices, which W^E⊤W^V W^E can be for d ≥ V.
    """
    model = run.settings.model
    if model.masked_keys == "hidden":
        return None, ("masked positions are hidden as keys: no finite-document optimum is known here",)
    if run.settings.training.squared == "mean" and run.settings.training.l2:
        return None, (L2_BESIDE_MEAN,)
    trained = tuple(name for name in run.biases if model.part(name).train)
    frozen = sum((run.biases[name] for name in run.biases if name not in trained), np.zeros(population.vocabulary))
    identity = model.value.start == "identity" and not model.value.train
    if run.gram is None and not model.embedding.train:
        matrix, notes = _one_hot_reference(run.settings, population, trained, frozen)
    elif identity and model.embedding.train:
        matrix, notes = _embedding_reference(run.settings, population, trained, frozen)
    else:
        matrix, notes = finite_optimum(population), (L2_ON_FACTORS,) if run.settings.training.l2 else ()
    # Why the run may not be able to reach the optimum.
    if matrix is not None and 0 < model.dimension < population.vocabulary:
        notes += (NOT_ALL_MATRICES.format("d is smaller than V"),)
    if matrix is not None and not model.value.train and not (identity and model.embedding.train):
        notes += (NOT_ALL_MATRICES.format("W^V is not trained"),)
    return matrix, notes


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
    """The optimum with W^V = I and E = W^E⊤W^E; a trained b^V adds W^E⊤b^V, which without L2 is as free as b^pred."""
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


@dataclass(frozen=True)
class Options:
    """Files and their setting."""

    files: Annotated[tuple[Path, ...], POSITIONAL]
    """Run folders, .npy or .safetensors files."""

    kind: Kind = "value"
    """What a file holds: "value" is W, a row per predicted token; "embedding" is W^E⊤, a row per token."""

    tensor: str = ""
    """Which tensor of a .safetensors file."""

    layer: int | None = None
    """Which layer, from 0, where there are several."""

    sampler: Sampler = Data.sampler
    """Finite documents from a Dirichlet (LDA), or of τ topics."""

    setting: Annotated[TheorySetting, INLINE] = TheorySetting()

    out: Path | None = None
    """A new or empty folder: each matrix is drawn there beside its optima, and check.json has the numbers."""

    json: bool = False
    """Print JSON instead of tables."""


def main(words: list[str]) -> int:
    """Check every file, draw it if that is asked for, and print the results, the verdict first."""
    options = parse(Options, words, command="check", description=DESCRIPTION)
    if not options.files:
        raise InputError("No file is given: name a run folder, a .npy or a .safetensors file.")
    if options.out:
        check_empty(options.out)
    results = [_check(path, options) for path in options.files]
    numbers = [result.to_dict() for result in results]
    drawn = _draw(results, options.out) if options.out else []
    if options.out:
        text = json.dumps(numbers, indent=2, allow_nan=False, ensure_ascii=False)
        write_atomically(options.out / "check.json", text + "\n")
    if options.json:
        print_json(numbers)
        return 0
    screen = console()
    for result in results:
        _show(screen, result)
    if drawn:
        screen.print(f"{options.out}: {', '.join(path.name for path in drawn)}, check.json")
    return 0


def _draw(results: list[Check], out: Path) -> list[Path]:
    """Each matrix beside the optima, on one scale, and its difference from the exact one."""
    from topicscope.reporting.figures import save_pictures
    from topicscope.reporting.figures.training import heat_maps

    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, result in enumerate(results, start=1):
        found = result.matrices
        panels = {result.matrix: found["matrix"]}
        if "finite" in found:
            panels["exact optimum, finite documents"] = found["finite"]
        if "theorem_2" in found:
            panels["Theorem 2: infinite documents, λ → 0"] = found["theorem_2"]
        alike = tuple(panels)
        if "finite" in found:
            panels[f"{result.matrix} − exact optimum"] = found["matrix"] - found["finite"]
        figure = heat_maps(
            panels,
            word_topics=result.word_topics,
            columns=len(panels),
            title=result.verdict,
            same_scale=[alike],
            tabled=False,
        ).figure
        paths += save_pictures(figure, out / f"matrix-{number}")
    return paths


def _check(path: Path, options: Options) -> Check:
    if path.is_dir():
        given = {**dataclasses.asdict(options.setting), "sampler": options.sampler}
        for name, default in {**dataclasses.asdict(TheorySetting()), "sampler": Data.sampler}.items():
            if given[name] != default:
                option = name.replace("_", "-")
                raise InputError(f"{path} is a run folder and has its own settings: leave --{option} out.")
        return check(path, layer=options.layer)
    data, masking = options.setting.data(options.sampler), options.setting.masking
    with errors_with_option_names():
        return check(path, data, masking, kind=options.kind, tensor=options.tensor, layer=options.layer)


def _show(screen: Console, result: Check) -> None:
    screen.print(f"{result.matrix} of {result.source}: {result.verdict}", style="bold", markup=False)
    # Notes come before the numbers that they qualify.
    for note in result.notes:
        screen.print(f"note: {note}", markup=False)
    optima = (result.theorem_2, result.finite)
    columns = ("Theorem 2", "finite optimum", "rms: Theorem 2", "rms: finite")
    classes = Table("entries", "mean", "spread", "number", *columns)
    for name, title in CLASSES.items():
        average = result.classes.get(name)
        if average is not None:
            means = [optimum.classes[name] if optimum else None for optimum in optima]
            shown = [f"{mean.mean:.7f}" if mean else "–" for mean in means]
            shown += ["–" if optimum is None else readable(optimum.clauses[name].rms, 3) for optimum in optima]
            classes.add_row(title, f"{average.mean:.7f}", readable(average.spread, 3), str(average.count), *shown)
    screen.print(classes)
    for title, family in (("Lemma 1", result.lemma_1), ("Theorem 1 (E = W^E⊤W^E)", result.theorem_1)):
        if family is not None:
            screen.print(_family_table(title, family))
    losses = Table("optimum", "loss", "its loss", "excess", "distance", "relative")
    for title, optimum in zip(("Theorem 2", "finite documents"), optima, strict=True):
        if optimum is not None:
            cells = (f"{optimum.loss:.8f}", f"{optimum.optimum_loss:.8f}", readable(optimum.excess_loss, 3))
            losses.add_row(title, *cells, readable(optimum.distance), f"{optimum.relative_distance:.2%}")
    if losses.row_count:
        screen.print(losses)


def _family_table(title: str, family: FamilyResiduals) -> Table:
    first, *others = family.u
    caption = (
        f"u₀ = {readable(first, 3)}, other u from {readable(min(others), 3)} to {readable(max(others), 3)}; "
        f"distance {readable(family.distance, 3)}; loss {family.loss:.8f}, excess {readable(family.excess_loss, 3)}"
    )
    table = Table(title, "worst", "rms", caption=caption, caption_justify="left")
    for name, text in CLAUSES.items():
        deviation = family.clauses[name]
        table.add_row(text, readable(deviation.worst, 3), readable(deviation.rms, 3))
    return table
