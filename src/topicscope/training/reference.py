"""A run beside theory: losses and matrices to compare it with where theory has them, else a sentence on why not.

Losses are those of the Bayes floor, of the exact optimum under uniform attention and of Theorem 2's matrix. Stages are
what the reduced model predicts: when attention takes off, and the norms of W^V, W^K and W^Q until then. ``check_run``
compares a finished run's matrix with the optimum that its own settings tend to.
"""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
from jaxtyping import Float

from topicscope.errors import InputError
from topicscope.randomness import Purpose, generator
from topicscope.records import Level, PredictedStages, Reference
from topicscope.settings import Data, Masking, Settings
from topicscope.settings.model import BIASES
from topicscope.settings.toml import load_settings
from topicscope.settings.training import Average
from topicscope.store import checked_numbers, checkpoint_path, checkpoint_steps, one_layer, read_tensors
from topicscope.synthetic.documents import Bags
from topicscope.synthetic.masking import mask_documents
from topicscope.synthetic.topics import TopicModel, sample_documents
from topicscope.theory.bayes import BayesFloors, bayes_floors
from topicscope.theory.check import Check, beside_theory, fitting, theorem_residuals
from topicscope.theory.cross_entropy import cross_entropy_optimum
from topicscope.theory.finite_documents import Moments, finite_optimum, moments, population_loss
from topicscope.theory.lemma1 import require_topic_sets
from topicscope.theory.take_off import Prediction, Stepping, predict
from topicscope.theory.theorem1 import semidefinite_optimum, theorem1_bias
from topicscope.theory.theorem2 import theorem2

# The floor is estimated from this many documents: an interval of about ± 0.002 (squared) at the paper's setting.
FLOOR_DOCUMENTS = 500
# The large-sample cross-entropy optimum, which has six entries, is determined on this many documents.
SAMPLE_DOCUMENTS = 4_000
# The parts whose norms the reduced model has.
PREDICTED = ("value", "key", "query")
# How much work a prediction may take, a couple of seconds; and the shortest run that one is made for.
MOST_NUMBERS = 35_000_000
FEWEST_STEPS = 10
# V × V matrices up to this size can be looked at entry by entry.
LARGEST_VOCABULARY = 512
OPTIMUM_MEASURES = ("distance_to_optimum", "excess_over_optimum", "share_of_optimum")

# What is not known, or not certain, about a run's optimum.
HIDDEN_KEYS = "masked positions are hidden as keys: no finite-document optimum is known here"
NOT_ALL_MATRICES = "{}: the optimum is a lower bound that may not be reachable"
L2_ON_FACTORS = "L2 acts on W^E and W^V, not on their product: the optimum here is that without L2"
L2_ELSEWHERE = "L2 acts on more than W^V, or beside a trained bias: no optimum is computed for this"

Matrix = Float[np.ndarray, "token token"]
Vector = Float[np.ndarray, " token"]


def reference(settings: Settings, topic_model: TopicModel) -> tuple[dict[str, Matrix], Reference]:
    """Theory's matrices under their names in a run, and all else that it expects."""
    matrices, about = _matrices(settings, topic_model)
    losses = {
        name: _level(loss, settings, topic_model)
        for name, loss in (
            ("bayes_floor", _bayes_floor),
            ("uniform_attention_optimum", _uniform_optimum),
            ("theorem_2", _theorem_2),
        )
    }
    return matrices, Reference(**losses, matrices=about, stages=reference_stages(settings, topic_model))


def _level(loss: Callable[[Settings, TopicModel], Level], settings: Settings, topic_model: TopicModel) -> Level:
    """A population loss without L2, or the reason why it is not defined."""
    try:
        return loss(settings, topic_model)
    except InputError as error:
        return Level(reason=str(error))


def _bayes_floor(settings: Settings, topic_model: TopicModel) -> Level:
    """The least loss of any model, with its 95 % interval; the same for all seeds, so that runs can be compared."""
    floors = _floors(settings.documents, settings.masking, settings.training.average)
    estimate = getattr(floors.masked, settings.training.loss)
    return Level(loss=estimate.value, low=estimate.low, high=estimate.high, documents=floors.documents)


@lru_cache(maxsize=64)
def _floors(data: Data, masking: Masking, average: Average) -> BayesFloors:
    draw = generator(0, Purpose.THEORY)
    model = TopicModel.from_settings(data)
    return bayes_floors(model, masking, samples=FLOOR_DOCUMENTS, generator=draw, average=average)


def _uniform_optimum(settings: Settings, topic_model: TopicModel) -> Level:
    _require_closed_form(settings)
    exact = moments(topic_model, settings.masking, settings.training.average)
    return Level(loss=population_loss(finite_optimum(exact), exact))


def _theorem_2(settings: Settings, topic_model: TopicModel) -> Level:
    _require_closed_form(settings)
    if topic_model.equal_words is None:
        raise InputError("Theorem 2 is about disjoint topics of equally likely words.")
    require_topic_sets(topic_model.topics, topic_model.per_document if topic_model.sampler == "topics" else 1)
    exact = moments(topic_model, settings.masking, settings.training.average)
    matrix = theorem2(topic_model.topics, topic_model.equal_words, settings.masking)
    return Level(loss=population_loss(matrix, exact))


def _require_closed_form(settings: Settings) -> None:
    if settings.training.loss != "squared":
        raise InputError("The optimum under uniform attention has a closed form for the squared loss only.")
    if settings.model.masked_keys == "hidden":
        raise InputError("The closed form is for visible masked keys.")


def reference_stages(settings: Settings, topic_model: TopicModel) -> PredictedStages:
    """The predicted step of take-off (None: not within the run) and norms over steps, or a note why there are none."""
    try:
        stepping = _stepping(settings, topic_model)
        prediction = _prediction(settings.documents, settings.masking, stepping, settings.training.steps)
    except InputError as error:
        return PredictedStages(norms={name: [] for name in PREDICTED}, note=str(error))
    when = "in which attention does not take off" if prediction.take_off is None else "until attention has taken off"
    return PredictedStages(
        take_off=None if prediction.take_off is None else round(prediction.take_off),
        steps=prediction.steps.tolist(),
        norms={name: prediction.norms[name].tolist() for name in PREDICTED},
        note=f"The reduced model is followed for up to {settings.training.steps:,} steps {when}; nothing is fitted.",
    )


@lru_cache(maxsize=64)
def _prediction(data: Data, masking: Masking, stepping: Stepping, steps: int) -> Prediction:
    return predict(data, masking, stepping, steps=float(steps), most_numbers=MOST_NUMBERS)


def _stepping(settings: Settings, topic_model: TopicModel) -> Stepping:
    """The run as the reduced model sees it; each thing that it does not cover is refused in one sentence."""
    model, training = settings.model, settings.training
    parts = [model.part(name) for name in PREDICTED]
    biases = any(model.part(name).train or model.part(name).start != "zero" for name in BIASES)
    needed = (
        (model.one_hot and not model.extras and not model.residual, "one-hot embeddings and nothing beyond eq. 7"),
        (model.layers == 1 and model.heads == 1, "one layer with one head"),
        (not biases, "biases that are frozen at zero"),
        (model.masked_keys == "visible", "visible masked keys"),
        (all(part.train and part.start == "normal" for part in parts), "W^V, W^K and W^Q trained from N(0, s²)"),
        (len({part.scale for part in parts}) == 1 and parts[0].scale > 0, "W^V, W^K and W^Q of one scale above 0"),
        (training.schedule == "joint" and training.decay == "constant", "all parts trained at once at a constant rate"),
        (training.l2 == 0, "no L2"),
        (training.average == "document", 'training.average = "document"'),
        (training.steps >= FEWEST_STEPS, f"at least {FEWEST_STEPS} steps"),
    )
    for holds, what in needed:
        if not holds:
            raise InputError(f"Take-off is predicted for {what}; this run has something else.")
    return Stepping(
        loss=training.loss,
        optimizer=training.optimizer,
        rate=training.learning_rate,
        scale=parts[0].scale,
        width=model.attention_dimension or topic_model.vocabulary,
        epsilon=training.adam_epsilon,
        batch=training.batch,
    )


def _matrices(settings: Settings, topic_model: TopicModel) -> tuple[dict[str, Matrix], dict[str, str]]:
    """Theory's matrices; and what each is, or why it is missing."""
    matrices, about = dict[str, Matrix](), dict[str, str]()
    for name, make in (("value_products", _value), ("embedding_products", _embedding)):
        try:
            if topic_model.vocabulary > LARGEST_VOCABULARY:
                raise InputError("The vocabulary is too large to be looked at entry by entry.")
            matrix, about[name] = make(settings, topic_model)
            matrices[name] = matrix.astype(np.float32)
        except InputError as error:
            about[name] = str(error)
    return matrices, about


def _value(settings: Settings, topic_model: TopicModel) -> tuple[Matrix, str]:
    """The optimum of W^V under uniform attention and one-hot embeddings, at the run's λ if the run is of this kind."""
    training, model = settings.training, settings.model
    if model.masked_keys == "hidden":
        raise InputError("Theory's matrix is for visible masked keys.")
    own = _has_own_optimum(settings)
    ridge = settings.training.l2 if own else 0.0
    differs = (
        "For W^V trained alone, with one-hot embeddings and uniform attention; this run differs, "
        "so only the pattern can be compared. "
    )
    kind = "" if own else differs
    if training.loss == "squared":
        matrix = finite_optimum(moments(topic_model, settings.masking, training.average), ridge)
        return matrix, f"{kind}The exact optimum for finite documents at λ = {ridge:g}."
    if topic_model.equal_words is None or not own or not ridge or training.average != "document":
        raise InputError(
            "Under cross-entropy theory gives a W^V to compare with only when W^V alone is trained, with L2, one-hot "
            "embeddings and uniform attention; this run differs."
        )
    matrix = _cross_entropy_optimum(settings.documents, settings.masking, ridge)
    return matrix, f"The optimum on a sample of {SAMPLE_DOCUMENTS:,} documents at λ = {ridge:g}."


def _embedding(settings: Settings, topic_model: TopicModel) -> tuple[Matrix, str]:
    """The best W^E⊤W^E where the embedding is trained alone, as in Theorem 1."""
    training, model = settings.training, settings.model
    bias, words = model.prediction_bias, topic_model.equal_words
    alone = _alone(settings, "value_bias") and not bias.train and bias.start in ("zero", "theorem")
    if not alone or model.value.train or model.value.start != "identity" or words is None:
        raise InputError("W^E⊤W^E is determined only where the embedding is trained alone with W^V = I (Theorem 1).")
    if training.loss != "squared" or model.masked_keys == "hidden" or training.l2:
        raise InputError("Theorem 1 is about the squared loss, visible masked keys and no L2.")
    vector = theorem1_bias(topic_model.topics, words, settings.masking) if bias.start == "theorem" else None
    matrix = semidefinite_optimum(moments(topic_model, settings.masking, training.average), vector).matrix
    return matrix, "The best positive semi-definite matrix for finite documents."


def optimum_measures(settings: Settings, value: Float[np.ndarray, "layer token token"]) -> dict[str, float | None]:
    """How far a run's W^V is from the optimum of its own objective; None where that is not known.

    ``distance_to_optimum`` is ‖W − W*‖ / ‖W*‖. ``excess_over_optimum`` is the population loss with L2 at W, less that
    at W*, and ``share_of_optimum`` is W's gain over predicting nothing as a share of W*'s; both are exact, and for the
    squared loss only. Entries of a trained W are noisy, so the distance can be large where the share is near one.
    """
    topic_model, training = TopicModel.from_settings(settings.documents), settings.training
    measures: dict[str, float | None] = dict.fromkeys(OPTIMUM_MEASURES)
    if not _has_own_optimum(settings) or topic_model.vocabulary > LARGEST_VOCABULARY:
        return measures
    try:
        best, _ = _value(settings, topic_model)
    except InputError:
        return measures
    size = float(np.linalg.norm(best))
    measures["distance_to_optimum"] = float(np.linalg.norm(value[0] - best)) / size if size else None
    if training.loss == "squared":
        exact, ridge = moments(topic_model, settings.masking, training.average), training.l2
        here, least = (population_loss(matrix, exact, ridge=ridge) for matrix in (value[0], best))
        measures["excess_over_optimum"] = here - least
        measures["share_of_optimum"] = (1 - here) / (1 - least)
    return measures


def _has_own_optimum(settings: Settings) -> bool:
    """Whether W^V alone is trained, on one-hot embeddings and under uniform attention."""
    embedding = settings.model.embedding
    return _alone(settings, "value_bias", "prediction_bias") and embedding.start == "identity" and not embedding.train


def _alone(settings: Settings, *biases: str) -> bool:
    """Whether attention is uniform and W^E and W^V alone matter: these biases at zero, no switches on, one layer."""
    model = settings.model
    still = all(not model.part(name).train and model.part(name).start == "zero" for name in biases)
    plain = model.layers == 1 and not model.extras and not model.residual and model.positions == "none"
    return model.uniform and settings.training.schedule == "joint" and plain and still


@lru_cache(maxsize=16)
def _cross_entropy_optimum(data: Data, masking: Masking, ridge: float) -> Matrix:
    model, draw = TopicModel.from_settings(data), generator(0, Purpose.THEORY)
    documents = sample_documents(model, SAMPLE_DOCUMENTS, generator=draw)
    bags = Bags.of(mask_documents(documents, masking, model.vocabulary, generator=draw), model.vocabulary)
    words = model.equal_words
    assert words is not None
    return cross_entropy_optimum(bags, model.topics, words, ridge).matrix(model.topics, words)


# The matrix of a finished run (`topicscope check`).


def check_run(folder: Path, layer: int | None = None) -> Check:
    """The newest checkpoint beside everything that the run's settings define; what they do not becomes a note.

    The matrix is the run's linear map under uniform attention, x̃ ↦ W x̃ + b = (W + b1⊤) x̃, as frequencies sum to one:
    W = W^E⊤W^V W^E and b = b^pred + W^E⊤b^V, of the first seed where several were trained together.
    """
    if not (folder / "settings.toml").exists():
        raise InputError(f"{folder} has no settings.toml: give the folder of a run.")
    settings, steps = load_settings(folder / "settings.toml"), checkpoint_steps(folder)
    if not steps:
        raise InputError(f"{folder} has no checkpoint-STEP.safetensors: give the folder of a run that saved one.")
    checkpoint, model = checkpoint_path(folder, steps[-1]), TopicModel.from_settings(settings.documents)
    embedding, value, biases = _read_weights(checkpoint, settings.documents, model.vocabulary, layer)
    total = sum(biases.values(), np.zeros(len(embedding)))
    matrix = embedding @ value @ embedding.T + total[:, None]
    gram = None if np.array_equal(embedding, np.eye(len(embedding))) else embedding @ embedding.T
    name = ("W^V" if gram is None else "W^E⊤W^V W^E") + " + b1⊤" * bool(total.any())

    notes, planned = differences(settings), settings.training.steps
    if steps[-1] < planned:
        notes = (f"the run is unfinished: step {steps[-1]:,} of {planned:,}", *notes)
    theorems = {}
    try:
        theorems = theorem_residuals(model, settings.masking, value=matrix, gram=gram)
        notes += theorems["notes"]
    except InputError as error:
        notes += (f"no Lemma 1, Theorem 1 or 2: {error}",)
    population = moments(model, settings.masking, settings.training.average)
    optimum, more = run_optimum(settings, population, biases, one_hot=gram is None)
    about = (name, str(checkpoint), settings.documents, settings.masking)
    return beside_theory(matrix, optimum, population, model, about, theorems | {"notes": (*notes, *more)})


def _read_weights(
    checkpoint: Path, data: Data, vocabulary: int, layer: int | None
) -> tuple[Float[np.ndarray, "token dimension"], Float[np.ndarray, "dimension dimension"], dict[str, Vector]]:
    """W^E⊤, W^V, and what each bias adds to the prediction."""
    remedy = "give a checkpoint that train wrote"
    tensors = {
        name: checked_numbers(tensor, f"{checkpoint}, tensor weights/{name},")
        for name, tensor in read_tensors(checkpoint, remedy, "weights/").items()
    }
    if missing := {"embedding", "value"} - tensors.keys():
        raise InputError(f"{checkpoint} has no tensor weights/{min(missing)}: {remedy}.")
    if tensors["embedding"].ndim == 3:
        tensors = {name: seeds[0] for name, seeds in tensors.items()}
    embedding = tensors["embedding"]
    value = one_layer(tensors["value"], f"{checkpoint}, tensor weights/value,", layer)
    if embedding.ndim != 2 or value.shape != (embedding.shape[-1], embedding.shape[-1]):
        raise InputError(
            f"{checkpoint} has weights/embedding of shape {embedding.shape} and weights/value of {value.shape}: "
            f"they must be V × d and d × d; {remedy}."
        )
    # This comes before any V × V matrix is formed.
    if len(embedding) != vocabulary:
        fits = "" if data.topic_words else f" ({fitting(len(embedding) - 1, data.topics, data.words)})"
        raise InputError(
            f"{checkpoint} has {len(embedding)} tokens, but its settings.toml asks for {vocabulary}: "
            f"give a run folder whose files belong together{fits}."
        )
    biases: dict[str, Vector] = {
        name: tensors[name].reshape(-1) for name in ("prediction_bias", "value_bias") if name in tensors
    }
    if "value_bias" in biases:
        biases["value_bias"] = embedding @ biases["value_bias"].reshape(-1, embedding.shape[1])[layer or 0]
    return embedding, value, biases


def differences(settings: Settings) -> tuple[str, ...]:
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


def run_optimum(
    settings: Settings, population: Moments, biases: dict[str, Vector], *, one_hot: bool
) -> tuple[Matrix | None, tuple[str, ...]]:
    """The W + b1⊤ that minimises the population's squared loss over what the run trains, with its L2; and notes.

    With one-hot embeddings it is the ridge optimum at the run's λ. With the embedding alone and W^V = I it is the best
    E ⪰ 0. Else it is the best of all matrices, which W^E⊤W^V W^E can be for d ≥ V; a trained bias adds nothing to
    these. None, with the reason as a note, where it is not known.
    """
    model, training = settings.model, settings.training
    # Of what the map is made of; keys and queries do not reach it.
    reached = {"embedding", "value", "prediction_bias", "value_bias"}
    l2 = reached & set(model.trained_parts) if training.l2 else set[str]()
    trained = any(model.part(name).train for name in biases)
    frozen = sum((bias for name, bias in biases.items() if not model.part(name).train), np.zeros(population.vocabulary))
    one_hot = one_hot and not model.embedding.train
    identity = model.value.start == "identity" and not model.value.train and model.embedding.train
    if model.masked_keys == "hidden":
        return None, (HIDDEN_KEYS,)
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
