"""What theory says about one setting: every closed form, exact optimum and floor, or the reason why there is none."""

import contextlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from topicscope.errors import InputError, check_at_least, refuse
from topicscope.measure.blocks import pattern
from topicscope.randomness import Purpose, generator
from topicscope.records import LandscapeRecord, Result, field_docstrings
from topicscope.settings import RAREST_USABLE_MASK
from topicscope.settings.data import Data, Masking, Sampler
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.bayes import BayesFloors, bayes_floors
from topicscope.theory.check import PATTERNS, class_statistics
from topicscope.theory.classes import ClassMatrix, Matrix
from topicscope.theory.dynamics import (
    Stage1Rates,
    Stage2Rates,
    stage1_rates,
    stage1_topic_rate,
    stage2_rates,
    stage2_topic_rate,
    time_ratio,
)
from topicscope.theory.finite_attention import SampledOptimum, Weights, attention_optimum, joint_optimum, sampled_counts
from topicscope.theory.finite_documents import (
    class_loss,
    class_moments,
    class_optimum,
    finite_optimum,
    infinite_moments,
    moments,
    population_loss,
)
from topicscope.theory.landscape import AttentionOptimum, InfiniteDocuments, Landscape, minimise
from topicscope.theory.lemma1 import constants, require_topic_sets
from topicscope.theory.setting import TheorySetting, errors_with_option_names
from topicscope.theory.take_off import Stepping, predict
from topicscope.theory.theorem2 import Pattern, theorem2_of
from topicscope.theory.theorem3 import Theorem3, theorem3
from topicscope.work import Report

SAMPLES = 2_000
# Dense matrices of more tokens than this take over a second.
MOST_DENSE_TOKENS = 2_001
# Each sampled document takes a table row of as many numbers as there are tokens.
MOST_SAMPLED_TOKENS = 20_001
POINTS = 200
# The grid begins here; it ends beyond the interval of Theorem 3, so that both its bounds are in the figure.
LEAST_WEIGHT = 1e-2
BEYOND = 10.0
# How many finite documents are drawn, the most words of their vocabulary and of a document, and their grid, which is
# coarser because each of its losses is a mean over all documents.
FINITE_DOCUMENTS = 2_000
FINITE_WORDS = 2_000
FINITE_LENGTH = 5_000
FINITE_POINTS = 40
NOT_ATTAINED = "not attained: the loss still falls at the largest weights searched; its infimum is at infinite weights"
NOISE = (
    "Adam's noise is taken as it is on average; from starts as large as 0.02 it takes off up to three times earlier or "
    "later (docs/theory-dynamics.md)"
)


@dataclass(frozen=True)
class Theorem1Example:
    """The corrected example diag(0, c₃, …, c₃), b_i, and by how much a topic's own block sum exceeds the others'."""

    diagonal: float
    """E_ii = c₃ of the diagonal example."""
    bias: float
    """b_i."""
    block_sum_gap: float
    """Σ own topic − Σ other topic."""


@dataclass(frozen=True, kw_only=True)
class ValueMatrix:
    """A W^V under uniform attention: means over classes of entries, and its loss."""

    c1: float | None = None
    """c₁; Theorem 2's constants, as are the next; your own topics have none."""
    c2: float | None = None
    """c₂."""
    c3: float | None = None
    """c₃."""
    mask_column: float | None
    """W_i0, [MASK] column."""
    same_word: float | None
    """Same word."""
    same_topic: float | None
    """Same topic; None if there is no such pair of words."""
    different_topic: float | None
    """Different topic; None if there is no such pair of words."""
    loss: float
    """Loss."""
    loss_of_theorem2: float | None = None
    """Loss of Theorem 2's matrix; on the same documents."""


@dataclass(frozen=True, kw_only=True)
class Dynamics:
    """Rates of both stages per unit of learning rate × steps (squared loss), and the predicted take-off in steps."""

    stepping: Stepping
    stage1_topic_rate: float | None
    """Stage 1, infinite τ-topic documents: W^V's topic mode."""
    stage2_topic_rate: float | None
    """Stage 2, infinite τ-topic documents: attention's topic mode, over √d_a."""
    time_ratio: float | None
    """How much longer stage 2's topic mode takes than stage 1's."""
    stage1: Stage1Rates | None
    """Stage 1, finite LDA documents."""
    stage2: Stage2Rates | None
    """Stage 2, finite LDA documents."""
    take_off: float | None = None
    """Predicted take-off, in steps."""
    gain_at_take_off: float | None = None
    """g at take-off: how far stage 1 has come."""
    mask_take_off: float | None = None
    """[MASK] queries' own take-off, in steps."""


@dataclass(frozen=True, kw_only=True)
class Theory(Result):
    """What theory says about one setting; a part that it does not define is None."""

    setting: TheorySetting
    theorem1: Theorem1Example | None
    """Theorem 1: E = W^E⊤W^E, uniform attention"""
    theorem2: ValueMatrix | None
    """Theorem 2: W^V, uniform attention, infinite documents, λ → 0"""
    theorem3: Theorem3 | None
    """Theorem 3: the average ((v − 1)α + β)/v"""
    attention_optimum: AttentionOptimum | None
    """Exact optimum of attention, Theorem 2's W^V"""
    attention_optimum_free: AttentionOptimum | None
    """The same with a free weight of word queries on [MASK] keys (§5.3)"""
    attention_optimum_diagonal: AttentionOptimum | None
    """Exact optimum of attention, diagonal W^V (appendix D.4)"""
    attention_optimum_diagonal_free: AttentionOptimum | None
    """The same with a free weight of word queries on [MASK] keys (§5.3)"""
    finite: ValueMatrix | None
    """Optimum for finite LDA documents (eq. 1, no bias, λ = 0)"""
    finite_topics: ValueMatrix | None
    """Optimum for finite τ-topic documents (eq. 1, no bias, λ = 0)"""
    dynamics: Dynamics | None
    """Dynamics: rates per unit of learning rate × steps (squared loss), and take-off"""
    bayes: BayesFloors | None
    """Bayes floor, finite LDA documents; 95 % intervals"""
    bayes_topics: BayesFloors | None
    """Bayes floor, finite τ-topic documents; 95 % intervals"""
    # Why a number is None, and what a reader should know beside a part's numbers, by dotted name.
    reasons: dict[str, str]
    notes: dict[str, list[str]]

    def __str__(self) -> str:
        return str(self.setting)


@dataclass
class Summary:
    """The parts of one setting, and what is said about them."""

    setting: TheorySetting
    stepping: Stepping = Stepping()
    take_off: bool = True
    samples: int = SAMPLES
    """How many documents are drawn for each Bayes floor; 0 leaves the floors out."""
    seed: int = 0
    report: Report | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.samples, int) or (self.samples < 2 and self.samples != 0):
            raise refuse("samples", self.samples, "give a whole number, 2 or more, or 0 to leave the Bayes floors out")
        check_at_least("seed", self.seed, 0)
        self.reasons: dict[str, str] = {}
        self.notes: dict[str, list[str]] = {}

    def theory(self) -> Theory:
        """Every part, or None with the reason."""
        # A part is made by the method of its first word.
        names = [part.name for part in fields(Theory) if part.name not in ("setting", "reasons", "notes")]
        parts = {name: self._part(name, getattr(self, "_" + name.partition("_")[0]), name) for name in names}
        for name, part in parts.items():
            self.reasons = undefined(name, part) | self.reasons
        return Theory(setting=self.setting, **parts, reasons=self.reasons, notes=self.notes)

    def _part(self, name: str, make: Callable[..., Any], *arguments: Any) -> Any:
        try:
            with errors_with_option_names():
                return make(*arguments)
        except InputError as error:
            self.reasons[name] = str(error)
            return None

    def _theorem1(self, name: str) -> Theorem1Example:
        setting = self.setting
        setting.require_equal_topics()
        require_topic_sets(setting.topics, setting.per_document)
        c3 = constants(setting.topics, setting.words, setting.masking).c3
        noise = setting.mask * setting.random * c3 / (setting.topics * setting.words)
        return Theorem1Example(diagonal=c3, bias=-noise, block_sum_gap=c3)

    def _theorem2(self, name: str) -> ValueMatrix:
        setting = self.setting
        if setting.equal_topics:
            value = setting.value()
            loss = float(Landscape(setting.infinite, value).loss(1.0, 1.0))
            symbols = asdict(constants(setting.topics, setting.words, setting.masking))
            return ValueMatrix(**symbols, **asdict(value), loss=loss)
        model = dense_model(setting, "topics")
        matrix = theorem2_of_sets(setting, model)
        loss = population_loss(matrix, infinite_moments(model, setting.masking))
        return ValueMatrix(**self._classes(name, matrix, model), loss=loss)

    def _theorem3(self, name: str) -> Theorem3:
        bounds = theorem3(self.setting.infinite)
        self.notes[name] = [f"does not hold: {text}" for text in bounds.violated]
        return bounds

    def _attention(self, name: str) -> AttentionOptimum:
        value = self.setting.value("diagonal" if "diagonal" in name else "block")
        optimum = minimise(Landscape(self.setting.infinite, value), free_mask_key=name.endswith("_free"))
        if notes := optimum_notes(optimum):
            self.notes[name] = notes
        return optimum

    def _finite(self, name: str) -> ValueMatrix:
        setting, sampler = self.setting, sampler_of(name)
        loss_of_theorem2: Callable[[], float]
        if setting.equal_topics and (sampler == "topics" or len(set(setting.dirichlet)) == 1):
            # Topics that are all alike: by classes, for any number of them.
            population = class_moments(setting.data(sampler), setting.masking)
            best = class_optimum(population)
            counts = {"same_topic": setting.words, "different_topic": setting.topics}
            classes: dict[str, float | None] = asdict(best) | {kind: None for kind, n in counts.items() if n == 1}
            loss = class_loss(best, population)
            loss_of_theorem2 = lambda: class_loss(setting.value(), population)  # noqa: E731
        else:
            model = dense_model(setting, sampler)
            dense = moments(model, setting.masking)
            matrix = finite_optimum(dense)
            classes, loss = self._classes(name, matrix, model), population_loss(matrix, dense)
            loss_of_theorem2 = lambda: population_loss(theorem2_of_sets(setting, model), dense)  # noqa: E731
        other = self._part(f"{name}.loss_of_theorem2", loss_of_theorem2)
        return ValueMatrix(**classes, loss=loss, loss_of_theorem2=other)

    def _classes(self, name: str, matrix: Matrix, model: TopicModel) -> dict[str, float | None]:
        """Means over classes of entries; for your own topics a note on the pattern."""
        averages = class_statistics(matrix, model.word_topics)
        kinds = ("mask_column", "same_word", "same_topic", "different_topic")
        classes = {kind: average.mean if (average := averages[kind]) else None for kind in kinds}
        if model.equal_words is None and averages["different_topic"]:
            seen = PATTERNS[pattern(matrix, model.word_topics)]
            self.notes[name] = [f"{seen} is seen; a word counts for the topic that makes it likeliest"]
        return classes

    def _dynamics(self, name: str) -> Dynamics:
        setting, data, masking = self.setting, self.setting.data("dirichlet"), self.setting.masking
        setting.require_equal_topics()
        sizes = (setting.topics, setting.words, setting.per_document, masking)
        stepping = replace(self.stepping, width=self.stepping.width or setting.topics * setting.words + 1)
        rates: dict[str, Callable[[], Any]] = {
            "stage1_topic_rate": lambda: stage1_topic_rate(*sizes),
            "stage2_topic_rate": lambda: stage2_topic_rate(*sizes),
            "time_ratio": lambda: time_ratio(*sizes, stepping.width),
            "stage1": lambda: stage1_rates(data, masking),
            # At the documents' own optimum of W^V.
            "stage2": lambda: stage2_rates(class_optimum(class_moments(data, masking)).numbers, data, masking),
        }
        parts = {rate: self._part(f"{name}.{rate}", make) for rate, make in rates.items()}
        return Dynamics(stepping=stepping, **parts | self._prediction(data, masking))

    def _prediction(self, data: Data, masking: Masking) -> dict[str, float]:
        names, reason = ("take_off", "gain_at_take_off", "mask_take_off"), "left out by --no-take-off"
        numbers: dict[str, float] = {}
        if self.take_off:
            prediction = self._part("dynamics.take_off", predict, data, masking, self.stepping)
            if prediction is None:
                reason = self.reasons["dynamics.take_off"]
            else:
                reason = f"not within {prediction.steps[-1]:.2g} steps"
                numbers = {name: number for name in names if (number := getattr(prediction, name)) is not None}
                self.notes["dynamics"] = [NOISE] if self.stepping.optimizer == "adam" else []
        self.reasons |= {f"dynamics.{name}": reason for name in names if name not in numbers}
        return numbers

    def _bayes(self, name: str) -> BayesFloors:
        setting, data = self.setting, self.setting.data(sampler_of(name))
        if self.samples == 0:
            raise InputError("samples = 0: no documents were drawn for the Bayes floor.")
        # Equal topics are counted, not made: the matrix of very many takes gigabytes.
        tokens = TopicModel.from_settings(data).vocabulary if setting.topic_words else data.topics * data.words + 1
        if tokens > MOST_SAMPLED_TOKENS:
            raise InputError(
                f"topics · words + 1 = {tokens} tokens are too many to sample documents of: at most "
                f"{MOST_SAMPLED_TOKENS}."
            )
        usable = -np.expm1(setting.length[0] * np.log1p(-setting.mask)) if setting.mask < 1 else 1.0
        if usable < RAREST_USABLE_MASK:
            raise InputError(
                f"mask = {setting.mask} is too small to sample: a document of length = {setting.length[0]} words "
                "almost never has a masked position; raise mask or lengthen documents."
            )
        draw, model = generator(self.seed, Purpose.THEORY), TopicModel.from_settings(data)
        floors = bayes_floors(model, setting.masking, samples=self.samples, generator=draw, report=self.report)
        self.notes[name] = [f"{floors.documents} documents; {floors.method}"]
        return floors


def sampler_of(name: str) -> Sampler:
    """The sampler of the documents that a part is about."""
    return "topics" if name.endswith("_topics") else "dirichlet"


def optimum_notes(optimum: Any) -> list[str]:
    """What a reader should know of an optimum of attention."""
    flat = getattr(optimum, "flat", None)
    return [NOT_ATTAINED] * (not optimum.attained) + [f"flat: {flat}"] * bool(flat)


def undefined(name: str, part: Any) -> dict[str, str]:
    """Why numbers of a part are None, by dotted name: what the docstrings of their fields say after "None if"."""
    docstrings = field_docstrings(type(part)).items() if part else ()
    missing = {field: text.partition("None if ")[2] for field, text in docstrings if getattr(part, field) is None}
    return {f"{name}.{field}": reason.rstrip(".") for field, reason in missing.items() if reason}


def dense_model(setting: TheorySetting, sampler: Sampler) -> TopicModel:
    """The topic model, if matrices over its tokens are not too large."""
    model = TopicModel.from_settings(setting.data(sampler))
    if model.vocabulary > MOST_DENSE_TOKENS:
        raise InputError(
            f"{model.vocabulary:,} tokens need matrices too large to be quick: give at most "
            f"{MOST_DENSE_TOKENS - 1:,} words in all, or, without --out, equal topics and one Dirichlet parameter."
        )
    return model


def theorem2_of_sets(setting: TheorySetting, model: TopicModel) -> Matrix:
    """Theorem 2's matrix, or the answer to its question for your own topics; refused where there is one set only."""
    require_topic_sets(setting.topics, setting.per_document)
    return theorem2_of(model, setting.masking)


def optimum_matrices(setting: TheorySetting) -> tuple[dict[str, Matrix], Int[np.ndarray, " token"]]:
    """The exact optima for finite documents and Theorem 2's W^V, V × V, by their names in ``Theory``; words' topics."""
    models = {"finite": dense_model(setting, "dirichlet"), "finite_topics": dense_model(setting, "topics")}
    matrices = {name: finite_optimum(moments(model, setting.masking)) for name, model in models.items()}
    with contextlib.suppress(InputError):
        matrices["theorem2"] = theorem2_of_sets(setting, models["finite"])
    return matrices, models["finite"].word_topics


# The loss over attention's weights on a grid.


@dataclass(frozen=True, eq=False)
class FiniteLandscape:
    """The loss over sampled finite documents, and the best weights for them."""

    documents: int
    length: tuple[int, int]
    weights: Float[np.ndarray, " point"]
    """The values of α and of β on its grid."""
    loss: Float[np.ndarray, "point point"]
    """One row per α and one column per β, for Assumption 2's weights."""
    optima: dict[str, SampledOptimum]
    """"assumption_2": of Assumption 2's weights; "free_mask_weights": with the two weights on [MASK] keys free, besides
    α and β; "by_topics": the same among weights that treat all words of a topic alike; "joint": of W^V and these
    weights together."""


@dataclass(frozen=True, eq=False)
class LandscapeGrid(Result):
    """The grid, and what theory says beside it."""

    setting: TheorySetting
    value: Pattern
    classes: ClassMatrix
    weights: Float[np.ndarray, " point"]
    """The values of α and of β on the grid."""
    loss: Float[np.ndarray, "point point"]
    """One row per α and one column per β."""
    word_loss: Float[np.ndarray, "point point"] | None
    """The same without [MASK] queries; None if there are no others, as p_c = p_r = 0."""
    optimum: AttentionOptimum
    optimum_without_mask_queries: AttentionOptimum | None
    """The same without [MASK] queries; None if there are no others, as p_c = p_r = 0."""
    theorem3: Theorem3
    finite: FiniteLandscape | None = None
    reasons: dict[str, str] = field(default_factory=dict)
    """Why a number is None, by its dotted name."""
    notes: dict[str, list[str]] = field(default_factory=dict)
    """What a reader should know beside a part's numbers."""

    def __str__(self) -> str:
        s = self.setting
        return f"landscape of {self.value} W^V, T = {s.topics}, τ = {s.per_document}, v = {s.words}"


def landscape_grid(setting: TheorySetting, value: Pattern, points: int = POINTS, *, finite: bool) -> LandscapeGrid:
    """The exact loss over α and β for Theorem 2's W^V ("block") or D.4's ("diagonal")."""
    check_at_least("points", points, 2)
    if not setting.equal_topics:
        raise InputError(
            f"topic_words = {setting.topic_words} has topics that overlap or differ, for which α and β, the weights of "
            "words of the same topic, are not defined: give disjoint topics of equally many, equally likely words, or "
            "see the optimum under uniform attention with topicscope theory."
        )
    with errors_with_option_names():
        classes = setting.value(value)
    whole, bounds = Landscape(setting.infinite, classes), theorem3(setting.infinite)
    word_queries = setting.keep + setting.random > 0
    words = Landscape(setting.infinite, classes, mask_queries=False) if word_queries else None
    optimum = minimise(whole)
    largest = max(optimum.alpha, optimum.beta, 100.0, bounds.high or 0.0, (bounds.limit or 0.0) * setting.words)
    weights = np.geomspace(LEAST_WEIGHT, BEYOND * largest, points)
    alpha, beta = weights[:, None], weights[None, :]
    sampled = _finite(setting, classes, weights[[0, -1]]) if finite else None
    notes = {"optimum": optimum_notes(optimum)}
    notes["theorem3"] = [f"Theorem 3 does not apply: {text}" for text in bounds.violated]
    if sampled is not None:
        notes |= {f"finite.optima.{name}": optimum_notes(best) for name, best in sampled.optima.items()}
    grid = LandscapeGrid(
        setting=setting,
        value=value,
        classes=classes,
        weights=weights,
        loss=whole.loss(alpha, beta),
        word_loss=None if words is None else words.loss(alpha, beta),
        optimum=optimum,
        optimum_without_mask_queries=None if words is None else minimise(words),
        theorem3=bounds,
        finite=sampled,
        reasons=undefined("theorem3", bounds),
        notes={name: lines for name, lines in notes.items() if lines},
    )
    grid.reasons.update({name.removeprefix("."): reason for name, reason in undefined("", grid).items()})
    return grid


def landscape_record(
    documents: InfiniteDocuments,
    value: str,
    optimum: AttentionOptimum,
    weights: Float[np.ndarray, " point"],
    loss: Float[np.ndarray, "point point"],
) -> LandscapeRecord:
    """A landscape as pages show it, with Theorem 3's interval."""
    bounds = theorem3(documents)
    return LandscapeRecord(
        value=value,
        topics=documents.topics,
        per_document=documents.per_document,
        words=documents.words,
        alpha=optimum.alpha,
        beta=optimum.beta,
        loss=optimum.loss,
        uniform=optimum.loss_uniform,
        attained=optimum.attained,
        low=bounds.low,
        high=bounds.high,
        limit=bounds.limit,
        weights=weights.tolist(),
        grid=loss.tolist(),
    )


def _finite(setting: TheorySetting, classes: ClassMatrix, ends: Float[np.ndarray, " 2"]) -> FiniteLandscape:
    if setting.topics * setting.words > FINITE_WORDS or setting.length[1] > FINITE_LENGTH:
        raise InputError(
            f"finite is not allowed with topics · words = {setting.topics * setting.words:,} and documents of up to "
            f"{setting.length[1]:,} words: they are drawn; give at most {FINITE_WORDS:,} words, and {FINITE_LENGTH:,} "
            "per document, or leave finite out."
        )
    draw = generator(0, Purpose.THEORY)
    counts = sampled_counts(setting.data("topics"), setting.masking, FINITE_DOCUMENTS, generator=draw)
    weights = np.geomspace(ends[0], ends[1], FINITE_POINTS)
    loss = [[counts.loss(classes, Weights(alpha, beta, 1.0, beta)) for beta in weights] for alpha in weights]
    optima = {
        "assumption_2": attention_optimum(counts, classes, "assumption 2"),
        "free_mask_weights": attention_optimum(counts, classes, "all"),
        "by_topics": attention_optimum(counts, classes, "topics"),
        "joint": joint_optimum(counts),
    }
    return FiniteLandscape(FINITE_DOCUMENTS, setting.length, weights, np.array(loss), optima)
