"""What claims measure on trained runs: blocks, distances from theory, costs, stages, attention.

A function gets the runs of its claim by name and returns a measurement, or one per row (``@per_run``: one per run).
"""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import brentq

from topicscope.measure.attention import ImpliedWeights, implied_weights
from topicscope.measure.blocks import block_sums, centred_columns, class_averages, class_masks, stand_out, words_of
from topicscope.measure.run import Run
from topicscope.measure.stages import TAKE_OFF, Stages, norm_stages, plateau, turning
from topicscope.measure.stages import stages as stages_of_run
from topicscope.model.weights import Weights, embedded, start_weights
from topicscope.papers.claim import Detail, Measurement, Results, exact, over_seeds, per_run, row_names
from topicscope.papers.topic_structure.exact import gain, paper_moments
from topicscope.papers.topic_structure.experiments import LDA, MAP_SEEDS, MASKING, MILD_L2, PAPER_RATE
from topicscope.randomness import Purpose, generator
from topicscope.settings import Settings
from topicscope.settings.training import Loss, Optimizer
from topicscope.synthetic.documents import Bags
from topicscope.synthetic.masking import mask_documents
from topicscope.synthetic.topics import TopicModel, sample_documents
from topicscope.theory.cross_entropy import (
    SMALL_RIDGE,
    CrossEntropyOptimum,
    cross_entropy_optimum,
    uniform_cross_entropy,
)
from topicscope.theory.dynamics import gradient_ratio, key_gradient
from topicscope.theory.finite_documents import finite_optimum, gradient_descent, population_loss
from topicscope.theory.landscape import InfiniteDocuments, Landscape, minimise
from topicscope.theory.theorem1 import SemidefiniteOptimum, semidefinite_optimum, theorem1_bias
from topicscope.theory.theorem2 import theorem2, theorem2_classes

T = TypeVar("T")
Matrices = Iterable[Float[np.ndarray, "token token"]]
# How near numbers must be to theory's, as a share of its same- minus different-topic contrast.
TOLERANCE = 0.1
# Documents of the large-sample cross-entropy optimum, which has six entries to determine.
CONVEX_OPTIMUM_DOCUMENTS = 10_000
# A prediction is near if it is within this share of what is measured: SGD's and momentum's, and Adam's.
NEAR = {"sgd": 0.15, "momentum": 0.15, "adam": 0.3}
# Classes of (key, query) pairs that attention is averaged over, in the order of a run's ``final["attention"]``.
ATTENTION_CLASSES = ("same_word", "same_topic", "different_topic", "mask_key", "itself")
CLASSES = {
    "same_word": "same word",
    "same_topic": "same topic",
    "different_topic": "different topic",
    "mask_column": "[MASK] column",
}


def of_one_run(measure: Callable[..., T]) -> Callable[..., T]:
    """Turn a function of one run into one of all results, of which there is one."""

    @functools.wraps(measure)
    def measure_it(results: Results, **arguments: Any) -> T:
        (run,) = results.values()
        return measure(run, **arguments)

    return measure_it


def curve(run: Run, metric: str) -> Float[np.ndarray, "seed row"]:
    """A metric over the recorded steps: the norm of all layers together, anything else of the first layer."""
    values: np.ndarray = run.metrics[metric]
    if values.ndim == 2:
        return values
    return np.linalg.norm(values, axis=2) if metric.startswith("norm/") else values[:, :, 0]


def starts_of(run: Run) -> list[Weights]:
    """The weights that each seed begins with."""
    source = TopicModel.from_settings(run.settings.documents)
    return [start_weights(run.settings, seed, source) for seed in run.seeds]


def averages(matrices: Matrices, topics: Int[np.ndarray, " token"]) -> dict[str, Float[np.ndarray, " matrix"]]:
    """Averages by class of entry, one per matrix."""
    by_matrix = [class_averages(matrix, topics) for matrix in matrices]
    return {name: np.array([getattr(one, name) for one in by_matrix], dtype=np.float64) for name in CLASSES}


# Blocks (Figures 1, 2 and 10, §2.3, §3.2).


@per_run
def blocks(run: Run, *, of: str = "value", centred: bool = False) -> Measurement:
    """How far same-topic entries of W^E⊤W^V W^E ("value") or W^E⊤W^E ("embedding") stand out of the background.

    The diagonal is left out. Under cross-entropy columns of W^V are ``centred``: softmax does not see their means.
    """
    return block_measure(products(run, of, centred=centred), run.word_topics)


def products(run: Run, of: str, *, centred: bool = False) -> Float[np.ndarray, "seed token token"]:
    """W^E⊤W^E, or W^E⊤W^V W^E with or without the means of its columns."""
    matrices: np.ndarray = run.embedding_products if of == "embedding" else run.value_products
    return np.stack([centred_columns(matrix) for matrix in matrices]) if centred else matrices


def block_measure(
    matrices: Float[np.ndarray, "seed token token"], topics: Int[np.ndarray, " token"], **details: Detail
) -> Measurement:
    """How far blocks stand out; beside it the diagonal, and the share of the one in the other."""
    seen = [stand_out(matrix, topics) for matrix in matrices]
    word, topic = (values.mean() for values in over_different(matrices, topics))
    return over_seeds(
        [one.block for one in seen],
        diagonal=float(np.mean([one.diagonal for one in seen])),
        blocks_over_diagonal=float(topic / word),
        **details,
    )


def over_different(
    matrices: Matrices, topics: Int[np.ndarray, " token"]
) -> tuple[Float[np.ndarray, " matrix"], Float[np.ndarray, " matrix"]]:
    """Same-word and same-topic averages, each above that of words of different topics."""
    by_class = averages(matrices, topics)
    return tuple(by_class[name] - by_class["different_topic"] for name in ("same_word", "same_topic"))


@per_run
def clause_3(run: Run) -> Measurement:
    """Own- minus other-topic sum of E = W^E⊤W^E, diagonal included, over its value before training."""
    starts = [start["embedding"].astype(np.float64) for start in starts_of(run)]
    before, after = (
        np.array([np.subtract(*block_sums(matrix, run.word_topics)) for matrix in matrices])
        for matrices in ([start @ start.T for start in starts], run.embedding_products)
    )
    return over_seeds(after / before, contrast=float(after.mean()), untrained_contrast=float(before.mean()))


# Theorem 1: the embedding trained alone.


@cache
def best_embedding() -> SemidefiniteOptimum:
    """The E ⪰ 0 with the least population loss of finite documents, at the theorem's bias."""
    return semidefinite_optimum(paper_moments(), theorem1_bias(LDA.topics, LDA.words, MASKING))


@of_one_run
def difference_of_sums(run: Run) -> Measurement:
    """Sums of W^E⊤W^E over a word's own topic minus those over another."""
    own, other = np.transpose([block_sums(matrix, run.word_topics) for matrix in run.embedding_products])
    return over_seeds(
        own - other,
        own_topic_sum=float(own.mean()),
        other_topic_sum=float(other.mean()),
        best_for_finite_documents=float(np.subtract(*block_sums(best_embedding().matrix, run.word_topics))),
    )


@of_one_run
def embedding_excess(run: Run) -> Measurement:
    """What the trained W^E⊤W^E lacks of the gain of the best one over the best constant prediction."""
    documents, bias = paper_moments(), theorem1_bias(LDA.topics, LDA.words, MASKING)
    constant, best = 1 - float(documents.label @ documents.label), best_embedding().loss
    losses = np.array([population_loss(matrix, documents, bias) for matrix in run.embedding_products])
    return over_seeds(
        (losses - best) / (constant - best), population_loss=float(losses.mean()), optimum=best, constant=constant
    )


@per_run
def other_topic_sums(run: Run) -> Measurement:
    """Σ_{l∈t} E_il over topics t but word i's own, Theorem 1's vu_i: their root mean square over the own-topic sum."""
    topics = run.word_topics[1:]
    own = topics[:, None] == np.unique(topics)
    sums = run.embedding_products[:, 1:, 1:] @ own.astype(float)
    others, owns = sums[:, ~own], sums[:, own].mean(axis=1)
    return over_seeds(
        np.sqrt((others**2).mean(axis=1)) / owns,
        own_topic_sum=float(owns.mean()),
        other_topic_sum=float(others.mean()),
    )


# Costs (§2, §4, §5.2, §8.1).


def cost_of_part(results: Results, *, part: str) -> dict[str, Measurement]:
    """By loss: how much larger the loss of the runs named ``part/…`` is than the least loss of the others.

    All are trained for equally many steps and measured on the same documents. The part is a special case of the others:
    if it has the lower loss they are not at their optimum, nothing can be said about its cost, and its number is NaN.
    """
    by_loss: dict[str, Measurement] = {}
    for loss in dict.fromkeys(run.settings.training.loss for run in results.values()):
        runs = {name: run for name, run in results.items() if run.settings.training.loss == loss}
        (handicapped,) = (run for name, run in runs.items() if name.startswith(f"{part}/"))
        wholes = {name: run for name, run in runs.items() if run is not handicapped}
        best = min(wholes, key=lambda name: float(np.mean(wholes[name].final["held_out_loss"])))
        by_loss[loss.replace("_", "-")] = extra_loss(handicapped, wholes[best], compared_with=best)
    return by_loss


def extra_loss(handicapped: Any, whole: Any, **details: Detail) -> Measurement:
    """How much larger a part's loss is, as a share of the loss, seed by seed; NaN if it is smaller."""
    steps = {run.settings.training.steps for run in (handicapped, whole)}
    assert len(steps) == 1, "equal steps, or the loss compares lengths"
    loss, other = losses_paired(handicapped, whole)
    unit = gain(whole.settings.data, whole.settings.masking, whole.settings.training.loss)
    share = (loss - other) / other
    return over_seeds(
        share if loss.mean() >= other.mean() else np.full(len(share), np.nan),
        share_of_the_gain=float(((loss - other) / unit.value).mean()),
        loss=float(loss.mean()),
        loss_of_the_other=float(other.mean()),
        most_that_a_constant_prediction_loses=(unit.constant - float(other.mean())) / float(other.mean()),
        **details,
    )


def losses_paired(first: Any, second: Any) -> tuple[Float[np.ndarray, " seed"], Float[np.ndarray, " seed"]]:
    """Held-out losses of two runs, seed by seed; one of the two may have fewer seeds."""
    count = min(len(first.seeds), len(second.seeds))
    return first.final["held_out_loss"][:count], second.final["held_out_loss"][:count]


# Figures 2 and 10: W^V and exact theory.


@cache
def large_sample() -> Bags:
    """Documents that stand for the population where cross-entropy has no closed form."""
    model, draw = TopicModel.from_settings(LDA), generator(0, Purpose.THEORY)
    documents = sample_documents(model, CONVEX_OPTIMUM_DOCUMENTS, generator=draw)
    return Bags.of(mask_documents(documents, MASKING, model.vocabulary, generator=draw), model.vocabulary)


@cache
def convex_optimum(ridge: float) -> CrossEntropyOptimum:
    """Cross-entropy's optimum on that sample."""
    return cross_entropy_optimum(large_sample(), LDA.topics, LDA.words, ridge)


def trajectory(rate: float, steps: int, l2: float) -> Float[np.ndarray, "token token"]:
    """W_k = R S⁻¹(I − (I − 2ηS)^k): where exact gradient descent from zero is under the squared loss."""
    return gradient_descent(np.zeros_like(paper_moments().second), paper_moments(), rate, steps, l2)


def exact_value(settings: Settings) -> Float[np.ndarray, "token token"]:
    """What W^V should be under the squared loss: SGD's exact place on its way, otherwise the optimum R(S + λI)⁻¹."""
    training = settings.training
    if training.optimizer == "sgd":
        return trajectory(training.learning_rate, training.steps, training.l2)
    return finite_optimum(paper_moments(), training.l2)


@cache
def exact_uniformity(settings: Settings) -> float:
    """The exact number for ``uniformity``: of the squared loss's exact matrix, or of cross-entropy's optimum."""
    if settings.training.loss == "squared":
        matrix = exact_value(settings)
    else:
        matrix = convex_optimum(settings.training.l2 or SMALL_RIDGE).matrix(LDA.topics, LDA.words)
    word, topic = over_different([centred_columns(matrix)], TopicModel.from_settings(LDA).word_topics)
    return float(topic[0] / word[0])


@per_run
def uniformity(run: Run) -> Measurement:
    """How uniform the blocks of W^V are, (W_t − W_d)/(W_s − W_d), over the exact number for the run's settings."""
    word, topic = over_different(products(run, "value", centred=True), run.word_topics)
    target = exact_uniformity(run.settings)
    return over_seeds(topic / word / target, same_topic_over_same_word=float((topic / word).mean()), exact=target)


def from_theorem2(matrices: Matrices) -> Float[np.ndarray, " matrix"]:
    """The largest distance of an average of words from Theorem 2's, as a share of its contrast."""
    topics = TopicModel.from_settings(LDA).word_topics
    theory, ours = averages([theorem2(LDA.topics, LDA.words, MASKING)], topics), averages(matrices, topics)
    of_words = ("same_word", "same_topic", "different_topic")
    off = np.max([abs(ours[name] - theory[name]) for name in of_words], axis=0)
    return off / (theory["same_topic"] - theory["different_topic"])


@per_run
def distance_from_theorem2(run: Run) -> Measurement:
    """How far averages of W^V are from Theorem 2's; beside it how little Theorem 2's matrix itself lacks."""
    documents = paper_moments()
    constant = 1 - float(documents.label @ documents.label)
    best, block = (
        population_loss(matrix, documents)
        for matrix in (finite_optimum(documents), theorem2(LDA.topics, LDA.words, MASKING))
    )
    means = {name: float(values.mean()) for name, values in averages(run.value_products, run.word_topics).items()}
    return over_seeds(
        from_theorem2(run.value_products),
        **means,
        distance_of_the_optimum=float(from_theorem2([finite_optimum(documents, run.settings.training.l2)])[0]),
        theorem_2_lacks_of_the_gain=(block - best) / (constant - best),
    )


def lingering(results: Results) -> Measurement:
    """How long exact gradient descent stays within 10 % of Theorem 2's block, over how long it takes to get there."""

    def distance(time: float) -> float:
        return float(from_theorem2([trajectory(PAPER_RATE, round(time / PAPER_RATE), MILD_L2)])[0]) - TOLERANCE

    times = np.geomspace(10, 10_000, 100)
    nearest = float(times[np.argmin([distance(time) for time in times])])
    enters = float(brentq(distance, float(times[0]), nearest, xtol=0.1))
    leaves = float(brentq(distance, nearest, float(times[-1]), xtol=0.1))
    return exact(
        (leaves - enters) / enters,
        enters_at_flow_time=enters,
        leaves_at_flow_time=leaves,
        nearest_at_flow_time=nearest,
        distance_then=distance(nearest) + TOLERANCE,
    )


@per_run
def objective_excess(run: Run) -> Measurement:
    """How far W^V's objective (loss plus λ‖W‖²) is above the optimum's, as a share of its gain over W^V = 0."""
    matrices, ridge = run.value_products, run.settings.training.l2
    if run.settings.training.loss == "squared":
        documents = paper_moments()
        least, zero = population_loss(finite_optimum(documents, ridge), documents, ridge=ridge), 1.0
        objective = np.array([population_loss(matrix, documents, ridge=ridge) for matrix in matrices])
    else:
        least, zero = convex_optimum(ridge).objective, float(np.log(LDA.topics * LDA.words + 1))
        losses = [uniform_cross_entropy(matrix, large_sample()) for matrix in matrices]
        objective = np.array(losses) + ridge * (matrices**2).sum(axis=(1, 2))
    return over_seeds(
        (objective - least) / (zero - least), raw_excess=float(objective.mean() - least), optimum=least, zero=zero
    )


def averages_against_theory(results: Results) -> dict[str, Measurement]:
    """Each class average of W^V: its distance from theory's, over what is allowed.

    Allowed is a tenth of theory's contrast, but at most half of the way to where an untrained W^V is, which is 0.
    """
    rows = {}
    for name, run in zip(row_names(list(results)), results.values(), strict=True):
        ours, theory = (averages(each, run.word_topics) for each in (run.value_products, [exact_value(run.settings)]))
        contrast = float(theory["same_topic"][0] - theory["different_topic"][0])
        for kind, label in CLASSES.items():
            target = float(theory[kind][0])
            allowed = min(TOLERANCE * contrast, abs(target) / 2)
            deviation = (ours[kind] - target) / allowed
            rows[f"{name}, {label}"] = over_seeds(deviation, average=float(ours[kind].mean()), theory=target)
    return rows


# Figure 4: two stages.


def stages_of(run: Run, threshold: float = TAKE_OFF) -> list[Stages]:
    """Each seed's stages, if attention takes off at this distance from uniform."""
    curves = [curve(run, metric) for metric in ("attention/words", "attention/mask", "uniform_gain")]
    return [stages_of_run(run.steps, *seed, threshold=threshold) for seed in zip(*curves, strict=True)]


@per_run
def gain_at_take_off(run: Run) -> Measurement:
    """What W^V has gained when attention takes off, for each seed; NaN, and so undecided, if a seed's never does.

    Beside it are the numbers with attention's take-off a third or three times as far from uniform.
    """
    seeds = stages_of(run)
    third, triple = (np.mean([one.gain for one in stages_of(run, TAKE_OFF * factor)]) for factor in (1 / 3, 3))
    return over_seeds(
        [one.gain for one in seeds],
        **when_taken_off(seeds),
        attention_distance_in_the_end=float(np.nanmean(curve(run, "attention/words")[:, -1])),
        gain_if_take_off_is_a_third_as_far=float(third),
        gain_if_take_off_is_three_times_as_far=float(triple),
    )


def when_taken_off(seeds: Sequence[Stages]) -> dict[str, Detail]:
    """At which steps attention takes off on average, and in how many runs."""
    when = [one.take_off for one in seeds if one.take_off is not None]
    mask = [one.mask_take_off for one in seeds if one.mask_take_off is not None]
    return {
        "take_off_at_step": float(np.mean(when)) if when else None,
        "mask_take_off_at_step": float(np.mean(mask)) if mask else None,
        "runs_in_which_attention_takes_off": len(when),
    }


def growing_part(results: Results, *, topics: str, mask: str) -> dict[str, Measurement]:
    """Shares of ‖W^K‖²: what tells topics apart, at take-off of one run; [MASK]'s column, at the end of another."""
    when = [one.take_off for one in stages_of(results[topics])]
    taken_off = [-1 if step is None else int(np.searchsorted(results[topics].steps, step)) for step in when]
    return {
        f"topics, {topics.removeprefix('figure4/')}": _mode_share(results[topics], "topics", taken_off),
        f"[MASK], {mask.removeprefix('figure4/')}": _mode_share(results[mask], "mask", [-1] * len(results[mask].seeds)),
    }


def _mode_share(run: Run, mode: str, rows: list[int]) -> Measurement:
    """Which share of ‖W^K‖² a part of it has, at one row per seed."""
    at = (np.arange(len(rows)), rows)
    squares = curve(run, "norm/key")[at] ** 2
    shares = {name: curve(run, f"modes/key-{name}")[at] ** 2 / squares for name in ("topics", "mask")}
    return over_seeds(
        shares[mode],
        share_of_topics=float(shares["topics"].mean()),
        share_of_mask=float(shares["mask"].mean()),
        attention_distance_of_words=float(curve(run, "attention/words")[at].mean()),
        attention_distance_of_mask=float(curve(run, "attention/mask")[at].mean()),
    )


@of_one_run
def value_plateau(run: Run) -> Measurement:
    """How fast ‖W^V‖ grows where stage 1 ends, over its first half; NaN, and so undecided, without a stage 2."""
    value = curve(run, "norm/value")
    return _over_stage_2(run, lambda seed, end: plateau(run.steps, value[seed], end))


@of_one_run
def value_rotation(run: Run) -> Measurement:
    """How much more W^V turns than it grows as stage 2 begins."""
    value, rotation = curve(run, "norm/value"), curve(run, "rotation")
    return _over_stage_2(run, lambda seed, end: turning(run.steps, value[seed], rotation[seed], end))


def _over_stage_2(run: Run, measure: Callable[[int, int], float]) -> Measurement:
    ends = [one.take_off for one in stages_of(run)]
    return over_seeds([np.nan if end is None else measure(seed, end) for seed, end in enumerate(ends)])


@per_run
def norm_growth(run: Run) -> Measurement:
    """The share of ‖W^V‖'s growth when a norm of W^K or W^Q has doubled; 0 if none does. Beside it g at take-off."""
    norms = [curve(run, f"norm/{part}") for part in ("key", "query", "value")]
    seeds = [norm_stages(run.steps, *seed) for seed in zip(*norms, strict=True)]
    by_attention = stages_of(run)
    return over_seeds(
        [one.growth if one.end is not None or one.diverged else 0.0 for one in seeds],
        gain_when_attention_takes_off=float(np.mean([one.gain for one in by_attention])),
        **when_taken_off(by_attention),
    )


@dataclass(frozen=True)
class MapCell:
    """A setting of the map by its first runs."""

    settings: Settings
    runs: tuple[Stages, ...]

    @property
    def kind(self) -> tuple[Loss, Optimizer]:
        """Loss and optimiser."""
        return self.settings.training.loss, self.settings.training.optimizer

    @property
    def taken_off(self) -> bool:
        """Whether attention takes off in every run."""
        return all(run.take_off is not None for run in self.runs)

    @property
    def two(self) -> bool:
        """Whether every run is two-stage."""
        return all(run.two for run in self.runs)

    @property
    def take_off(self) -> float:
        """When attention takes off, averaged over runs; NaN if it does not in one."""
        return float(np.mean([run.take_off for run in self.runs])) if self.taken_off else np.nan

    @property
    def gain(self) -> float:
        """The gain g at take-off, averaged over runs."""
        return float(np.mean([run.gain for run in self.runs])) if self.taken_off else np.nan


def map_cells(results: Results) -> dict[str, MapCell]:
    """The settings of the map, which are all results that are runs."""
    return {
        name: MapCell(run.settings, tuple(stages_of(run)[:MAP_SEEDS]))
        for name, run in results.items()
        if name != "figure4/predicted"
    }


def rarer_kind(results: Results) -> Measurement:
    """How many settings of the map the rarer kind has, two-stage or not, among those in which attention takes off."""
    cells = [cell for cell in map_cells(results).values() if cell.taken_off]
    two = sum(cell.two for cell in cells)
    return exact(min(two, len(cells) - two), two_stage=two, not_two_stage=len(cells) - two, settings=len(results))


def two_stage_share(results: Results) -> Measurement:
    """The share of two-stage settings among those in which attention takes off: a count, which one setting moves."""
    cells = list(map_cells(results).values())
    taken_off = [cell for cell in cells if cell.taken_off]
    counts = {"_".join(kind): _count(taken_off, *kind) for kind in dict.fromkeys(cell.kind for cell in taken_off)}
    return exact(
        np.mean([cell.two for cell in taken_off]) if taken_off else np.nan,
        resolution=1 / max(len(taken_off), 1),
        settings=len(cells),
        settings_in_which_attention_takes_off=len(taken_off),
        two_stage=sum(cell.two for cell in taken_off),
        **{f"two_stage_{kind}": f"{two} of {number}" for kind, (two, number) in counts.items()},
    )


def _count(cells: Iterable[MapCell], loss: str, optimizer: str) -> tuple[int, int]:
    """How many settings of this loss and optimiser are two-stage, of how many."""
    chosen = [cell.two for cell in cells if cell.kind == (loss, optimizer)]
    return sum(chosen), len(chosen)


def loss_decides(results: Results, *, optimizer: str) -> Measurement:
    """By how much the share of two-stage settings is larger under the squared loss than under cross-entropy."""
    cells = [cell for cell in map_cells(results).values() if cell.taken_off]
    (squared, of_squared), (other, of_other) = (_count(cells, loss, optimizer) for loss in ("squared", "cross_entropy"))
    if not of_squared or not of_other:
        return exact(np.nan)
    return exact(
        squared / of_squared - other / of_other,
        resolution=1 / min(of_squared, of_other),
        squared=f"{squared} of {of_squared}",
        cross_entropy=f"{other} of {of_other}",
    )


def predicted_and_measured(results: Results) -> dict[str, Float[np.ndarray, "2 2"]]:
    """Of each setting of the map, predicted then measured: take-off and g there; NaN where there is none."""
    predicted: Mapping[str, list[float | None]] = results["figure4/predicted"]
    return {
        name: np.array([predicted[name], [cell.take_off, cell.gain]], dtype=float)
        for name, cell in map_cells(results).items()
    }


def predicted_correlation(results: Results) -> Measurement:
    """The correlation of the logarithms of predicted and measured take-off over the settings of the map."""
    take_off = np.array([both[:, 0] for both in predicted_and_measured(results).values()])
    both = np.isfinite(take_off).all(axis=1)
    value = float(np.corrcoef(np.log(take_off[both]).T)[0, 1]) if both.sum() > 2 else np.nan
    return exact(value, settings_that_take_off_in_both=int(both.sum()))


def predicted_near(results: Results) -> Measurement:
    """The share of settings whose predicted take-off is near the measured one: a count, which one setting moves."""
    cells = map_cells(results)
    near: dict[str, bool] = {}
    for name, ((predicted, _), (measured, _)) in predicted_and_measured(results).items():
        if np.isfinite(measured):
            near[name] = bool(abs(predicted / measured - 1) <= NEAR[cells[name].kind[1]])
    kinds: dict[str, list[bool]] = {}
    for name, close in near.items():
        kinds.setdefault("near_" + "_".join(cells[name].kind), []).append(close)
    return exact(
        np.mean(list(near.values())) if near else np.nan,
        resolution=1 / max(len(near), 1),
        settings=len(near),
        **{kind: f"{sum(close)} of {len(close)}" for kind, close in kinds.items()},
        not_near="; ".join(name.removeprefix("figure4/") for name, close in near.items() if not close),
    )


# Gradients at the start (§8.1).


@cache
def gradient_bags(settings: Settings) -> Bags:
    """The held-out documents on which gradients at the start are computed."""
    from topicscope.training.batches import held_out_documents
    from topicscope.training.record import GRADIENT_DOCUMENTS

    model = TopicModel.from_settings(settings.documents)
    return Bags.of(held_out_documents(settings, model).span(0, GRADIENT_DOCUMENTS), model.vocabulary)


def measured_ratio(run: Run) -> Float[np.ndarray, " seed"]:
    """‖∇W^V‖ / ‖∇W^K‖ at the start."""
    ratio: np.ndarray = run.final["first_gradients/value"] / run.final["first_gradients/key"]
    return ratio


def formula_norms(run: Run, *, next_order: bool = False) -> Float[np.ndarray, " seed"]:
    """‖∇W^K‖ by the formula, for the weights that each seed draws."""
    loss, bags = run.settings.training.loss, gradient_bags(run.settings)
    starts = starts_of(run)
    gradients = [
        key_gradient(bags, loss, start["value"][0], start["query"][0], next_order=next_order) for start in starts
    ]
    return np.linalg.norm(gradients, axis=(1, 2)) * (2 if loss == "squared" else 1)


@per_run
def gradient_formula(run: Run) -> Measurement:
    """The norm of W^K's gradient over the formula's; beside it over that of the next order, and W^V's over W^K's."""
    measured = run.final["first_gradients/key"]
    training, scale = run.settings.training, run.settings.model.value.scale
    return over_seeds(
        measured / formula_norms(run),
        over_the_formula_of_the_next_order=float((measured / formula_norms(run, next_order=True)).mean()),
        value_over_key=float(measured_ratio(run).mean()),
        value_over_key_by_the_formula=gradient_ratio(gradient_bags(run.settings), training.loss, scale),
    )


def gradient_exponent(results: Results) -> dict[str, Measurement]:
    """By loss: how the ratio of gradients grows between the largest and the smallest scale.

    Seeds draw the same normal numbers at every scale, so the two are paired.
    """
    rows: dict[str, Measurement] = {}
    for loss in dict.fromkeys(run.settings.training.loss for run in results.values()):
        runs = sorted(
            (run for run in results.values() if run.settings.training.loss == loss),
            key=lambda run: run.settings.model.value.scale,
        )
        small, large = runs[0], runs[-1]
        decades = np.log(large.settings.model.value.scale / small.settings.model.value.scale)
        first, last = (
            run.final["first_gradients/value"] / formula_norms(run, next_order=True) for run in (small, large)
        )
        rows[loss.replace("_", "-")] = over_seeds(
            np.log(measured_ratio(small) / measured_ratio(large)) / decades,
            by_the_formula_of_the_next_order=float((np.log(first / last) / decades).mean()),
        )
    return rows


# W^V, then attention: once, or in turn (§8.1).


def schedule_cost(results: Results) -> dict[str, Measurement]:
    """How much larger the loss of a schedule is than that of joint training, as a share of the gain.

    Beside it: what joint training lacks at half of its steps, since a schedule gives each matrix half of the updates.
    """
    rows = {}
    for name, staged, joint in with_joint(results):
        training = joint.settings.training
        unit = gain(joint.settings.data, joint.settings.masking, training.loss).value
        loss, other = losses_paired(staged, joint)
        half = abs(joint.steps - training.steps / 2) <= training.steps / 10
        last = joint.steps >= training.steps * 0.9
        batches = joint.metrics["loss"]
        ahead = [np.subtract(*over_different(run.value_products, run.word_topics)).mean() for run in (staged, joint)]
        rows[name] = over_seeds(
            (loss - other) / unit,
            loss=float(loss.mean()),
            loss_of_joint_training=float(other.mean()),
            joint_training_lacks_at_half_of_its_steps=float((batches[:, half].mean() - batches[:, last].mean()) / unit),
            same_word_minus_same_topic=float(ahead[0]),
            same_word_minus_same_topic_of_joint_training=float(ahead[1]),
        )
    return rows


def uniformity_kept(results: Results) -> dict[str, Measurement]:
    """How uniform the blocks of joint training are beside those of a schedule, seed by seed."""
    rows = {}
    for name, staged, joint in with_joint(results):
        shares = []
        for run in (joint, staged):
            word, topic = over_different(products(run, "value", centred=True), run.word_topics)
            shares.append(topic / word)
        count = min(map(len, shares))
        rows[name] = over_seeds(
            shares[0][:count] / shares[1][:count], joint=float(shares[0].mean()), schedule=float(shares[1].mean())
        )
    return rows


def with_joint(results: Results) -> list[tuple[str, Any, Any]]:
    """Each run of a schedule, named as its row, with the run of joint training of the same loss."""
    joint = {run.settings.training.loss: run for name, run in results.items() if name.startswith("figure10/joint/")}
    staged = {name: run for name, run in results.items() if name.startswith("section8.1/")}
    return [
        (row, run, joint[run.settings.training.loss])
        for row, run in zip(row_names(list(staged)), staged.values(), strict=True)
    ]


# Attention (Table 3, §2.3, §3.2).


def implied(run: Run) -> list[ImpliedWeights]:
    """Each seed's (α̂, β̂): attention to the same topic and to the same word, over that to other topics."""
    return [implied_weights(*(float(each) for each in seed[:3])) for seed in run.final["attention"]]


def topic_averages(run: Run) -> Float[np.ndarray, " seed"]:
    """Theorem 3's ((v − 1)α̂ + β̂)/v."""
    # With a topic-word matrix in place of equal topics, the settings still have the sizes.
    return np.array([weights.weighted_average(run.settings.documents.words) for weights in implied(run)])


@per_run
def topic_average(run: Run) -> Measurement:
    """Attention to a word of the topic, its own word included, over that to another topic's: ((v − 1)α̂ + β̂)/v.

    Remark 5: only this average is determined, α alone is not. Details × 100.
    """
    shown = {
        f"{name}_x100": float(run.final["attention"][:, place].mean() * 100)
        for place, name in enumerate(ATTENTION_CLASSES)
    }
    return over_seeds(topic_averages(run), **implied_means(run), **shown)


@per_run
def other_words(run: Run) -> Measurement:
    """α̂ alone: attention to another word of the topic over that to another topic's."""
    return over_seeds([weights.alpha for weights in implied(run)], **implied_means(run))


def implied_means(run: Run) -> dict[str, float]:
    """α̂ and β̂, averaged over seeds."""
    weights = implied(run)
    return {f"implied_{name}": float(np.mean([getattr(each, name) for each in weights])) for name in ("alpha", "beta")}


@per_run
def explained_by_classes(run: Run) -> Measurement:
    """The share of the variance of logits between words that the three classes of Assumption 2 explain.

    A constant added to all logits of a query changes no attention, so each query's mean is subtracted first.
    """
    shares = []
    classes = class_masks(run.word_topics)
    of_words = np.stack([classes[name] for name in ("same_word", "same_topic", "different_topic")])[:, 1:, 1:]
    sizes = of_words.sum(axis=(1, 2))
    for key, query in zip(run.weights["key"][:, 0], run.weights["query"][:, 0], strict=True):
        logits = (key.T.astype(np.float64) @ query.astype(np.float64))[1:, 1:]
        centred = logits - logits.mean(axis=0)
        means = (of_words * centred).sum(axis=(1, 2)) / sizes
        shares.append((sizes @ means**2) / (centred**2).sum())
    return over_seeds(shares)


@of_one_run
def landscape_excess(run: Run) -> Measurement:
    """The share of the exact optimum's gain over uniform attention that (α̂, β̂) lacks, at word queries.

    [MASK] queries are left out: (α̂, β̂) is measured at word queries, and β means something else at [MASK] queries.
    """
    data, masking = run.settings.documents, run.settings.masking
    documents = InfiniteDocuments(topics=data.topics, per_document=data.per_document, words=data.words, masking=masking)
    words = Landscape(documents, theorem2_classes(data.topics, data.words, masking), mask_queries=False)
    best = minimise(words)
    losses = np.array([float(words.loss(weights.alpha, weights.beta)) for weights in implied(run)])
    return over_seeds(
        (losses - best.loss) / (best.loss_uniform - best.loss),
        **implied_means(run),
        optimal_weighted_average=best.weighted_average,
    )


# The paper's released code.

# Gradient steps of the released demo: 20 epochs of 10,000 documents in batches of 40.
DEMO_STEPS = 5_000.0


def as_released(results: Results) -> dict[str, Measurement]:
    """How each figure looks with the released code, and which difference explains it: the distance from a threshold.

    Each row's number is on the stated side of its threshold by this share of the threshold.
    """
    runs = {name.removeprefix("as-released/"): run for name, run in results.items()}

    def seen(name: str, of: str) -> Float[np.ndarray, " seed"]:
        matrices = products(runs[name], of, centred=of == "value")
        return np.array([stand_out(matrix, runs[name].word_topics).block for matrix in matrices])

    starts = embeddings_at_start(runs["figure1/cross-entropy-sgd"])
    moved = np.linalg.norm(runs["figure1/cross-entropy-sgd"].embedding_products - starts, axis=(1, 2))
    blocks_1, blocks_1_small = (
        seen("figure1/cross-entropy-adam", "embedding"),
        seen("figure1/small-embeddings", "embedding"),
    )
    blocks_2, blocks_2_near = seen("figure2/cross-entropy-sgd", "value"), seen("figure2/near-zero", "value")
    adam, plain = runs["figure4/cross-entropy-adam"], runs["figure4/plain-embeddings"]
    later = first_take_off(plain)[0] / first_take_off(adam)[0]
    attention, without_type = runs["table3/squared-adam"], runs["table3/no-token-type"]
    shared = {
        f"logits_common_to_all_queries{tail}": float(common_to_queries(run).mean())
        for tail, run in (("", without_type), ("_as_released", attention))
    }
    return {
        "Figure 1, SGD: W^E⊤W^E changes by less than a tenth of its norm": beyond(
            moved / np.linalg.norm(starts, axis=(1, 2)), "<", 0.1
        ),
        "Figure 1, Adam: blocks of W^E⊤W^E stand out by less than one deviation": beyond(blocks_1, "<", 1.0),
        "Figure 1, Adam: from N(0, 0.02²) they stand out by one deviation more": beyond(
            blocks_1_small - blocks_1, ">", 1.0
        ),
        "Figure 2, Adam: blocks of W^V stand out by more than one deviation": beyond(
            seen("figure2/cross-entropy-adam", "value"), ">", 1.0
        ),
        "Figure 2, SGD: from 0.001 × U(0, 1) they stand out by one deviation more": beyond(
            blocks_2_near - blocks_2, ">", 1.0
        ),
        "Figure 2, squared loss: one e-folding takes more steps than the demo has": beyond(
            [topic_e_folding()], ">", DEMO_STEPS
        ),
        "Figure 4, SGD: W^K and W^Q grow by less than a hundredth of W^V's growth": beyond(
            attention_growth(runs["figure4/cross-entropy-sgd"]), "<", 0.01
        ),
        "Figure 4, Adam: ‖W^V‖ has made less than a third of its growth at take-off": beyond(
            first_take_off(adam)[1], "<", 1 / 3
        ),
        "Figure 4, Adam: with plain embeddings attention takes off twice as late": beyond(
            later, ">", 2.0, growth_of_value_then=float(first_take_off(plain)[1].mean())
        ),
        "Table 3: without the token-type vector the topic average is twice as large": beyond(
            topic_averages(without_type) / topic_averages(attention), ">", 2.0, **shared
        ),
        "Table 3, W^V frozen: the released block matrix leaves attention no gradient": beyond(
            [attention_gradient(aliased_block())], "<", 1e-10, with_a_true_block=attention_gradient(true_block())
        ),
    }


def beyond(values: Sequence[float] | np.ndarray, side: str, threshold: float, **details: Detail) -> Measurement:
    """How far numbers are on this side of a threshold, as a share of it; one number alone is exact."""
    distance = (np.array(values) / threshold - 1) * (1 if side == ">" else -1)
    number, rule = float(np.mean(values)), f"{side} {threshold:g}"
    if len(distance) == 1:
        return replace(exact(distance[0]), details={"number": number, "threshold": rule, **details})
    return over_seeds(distance, number=number, threshold=rule, **details)


def embeddings_at_start(run: Run) -> Float[np.ndarray, "seed token token"]:
    """W^E⊤W^E before training."""
    tables = np.stack([start["embedding"] for start in starts_of(run)])
    return tables @ tables.transpose(0, 2, 1)


def topic_e_folding() -> float:
    """How many steps of the released SGD bring the contrast between topics nearer to its optimum by a factor of e.

    Under uniform attention its rate is 2ηλ, where λ is the eigenvalue of S = E[x̃x̃ᵀ] on topic contrasts; a mean over V
    entries makes that 2ηλ/V.
    """
    topics, second = TopicModel.from_settings(LDA).word_topics, paper_moments().second
    contrast = (topics == 1).astype(float) - (topics == 2)
    eigenvalue = float(contrast @ second @ contrast / (contrast @ contrast))
    return len(topics) / (2 * PAPER_RATE * eigenvalue)


def attention_growth(run: Run) -> Float[np.ndarray, " seed"]:
    """The larger relative change of ‖W^K‖ and ‖W^Q‖ over that of ‖W^V‖; NaN if that does not change."""
    norms = {part: curve(run, f"norm/{part}") for part in ("key", "query", "value")}
    change = {part: np.abs(norm[:, -1] / norm[:, 0] - 1) for part, norm in norms.items()}
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = np.maximum(change["key"], change["query"]) / change["value"]
    return np.where(change["value"] > 0, shares, np.nan)


def first_take_off(run: Run) -> tuple[Float[np.ndarray, " seed"], Float[np.ndarray, " seed"]]:
    """When attention takes off, and the share of ‖W^V‖'s growth that is made by then; NaN without a take-off.

    g(t) is not defined here: with a token-type vector and hidden keys no optimum under uniform attention is known.
    """
    reached: Bool[np.ndarray, "seed row"] = curve(run, "attention/words") >= TAKE_OFF
    norm, rows, seeds = curve(run, "norm/value"), reached.argmax(axis=1), np.arange(len(reached))
    with np.errstate(invalid="ignore", divide="ignore"):
        grown = (norm[seeds, rows] - norm[:, 0]) / (norm[:, -1] - norm[:, 0])
    ever = reached.any(axis=1)
    return np.where(ever, run.steps[rows], np.nan), np.where(ever, grown, np.nan)


def common_to_queries(run: Run) -> Float[np.ndarray, " seed"]:
    """The share of the variance of attention's logits over keys that is the same for all word queries.

    It is 1 if all words ask for the same, and 0 if what they ask for averages out.
    """
    weights = {name: weight.astype(np.float64) for name, weight in run.weights.items()}
    inputs = embedded(weights)[:, words_of(run.word_topics)]
    key, query = (
        inputs @ weights[name][:, 0].transpose(0, 2, 1) + weights[f"{name}_bias"] for name in ("key", "query")
    )
    logits = key @ query.transpose(0, 2, 1)
    logits -= logits.mean(axis=1, keepdims=True)
    return (logits.mean(axis=2) ** 2).mean(axis=1) / (logits**2).mean(axis=(1, 2))


def true_block() -> Float[np.ndarray, "token token"]:
    """One for two words of one topic, else zero: the matrix at which the released code means to freeze W^V."""
    topics = TopicModel.from_settings(LDA).word_topics
    return ((topics[:, None] == topics) & (topics > 0)).astype(float)


def aliased_block() -> Float[np.ndarray, "token token"]:
    """What it does instead: its rows are all one list, which keeps what was written for the last word."""
    return np.tile(true_block()[-1], (len(true_block()), 1))


def attention_gradient(value: Float[np.ndarray, "token token"], queries: int = 50) -> float:
    """The norm of cross-entropy's gradient by attention's logits, W^V given, for attention and words drawn at random.

    With scores x = W^V A, the gradient by A is W^V⊤(σ(x) − y), and softmax's Jacobian takes it to the logits.
    """
    draw, size = np.random.default_rng(0), len(value)
    attention = draw.dirichlet(np.ones(size), queries)
    scores = attention @ value.T
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    through = (shares - np.eye(size)[draw.integers(1, size, queries)]) @ value
    logits = attention * (through - (through * attention).sum(axis=1, keepdims=True))
    return float(np.linalg.norm(logits))
