r"""When attention takes off, predicted before training from the setting, the optimiser and the initial scale alone.

The reduced model (``theory/reduced.py``) is followed in flow time. W^V starts at zero, W^K and W^Q with the average
products of N(0, s²) entries. What random W^K and W^Q add is carried along mode by mode: on each they stay a linear
function of their start, Gaussian with the products that the reduced model has at that time (``draw_logits``), so one
draw has the spread of a Wishart matrix. Attention has taken off when that of word queries is 0.05 from uniform
(``measure/stages.py``), and g is what W^V has gained by then.

**Optimisers.** SGD at rate η is at time ηk after k steps, with momentum μ at ηk/(1 − μ); batches make W^V scatter
around its path, which moves attention too (``sgd``). Adam divides each entry's gradient by its root mean square plus ε
(``adam``): far below ε it is SGD at rate η/ε, far above it follows signs and noise. No constant is fitted.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from topicscope.errors import InputError, check_at_least, check_one_of, check_positive
from topicscope.measure.stages import TAKE_OFF, distance_from_uniform
from topicscope.randomness import Purpose, generator
from topicscope.settings.data import Data, Masking
from topicscope.settings.training import MOMENTUM, Loss, Optimizer
from topicscope.synthetic.documents import Bags
from topicscope.synthetic.masking import mask_documents
from topicscope.synthetic.topics import TopicModel, sample_documents
from topicscope.theory.classes import PLANE, SAME_WORD, TOPIC, ClassMatrix, Modes, Six, Vocabulary
from topicscope.theory.cross_entropy import SMALL_RIDGE, cross_entropy_optimum
from topicscope.theory.dynamics import logit_gradient
from topicscope.theory.finite_documents import ClassMoments, class_loss, class_moments, class_optimum
from topicscope.theory.reduced import MOST_LOOKS, Gradient, Optimiser, Rates, Reduced, Rows, flow

# The reduced model's expectations are over this many documents. Under the squared loss the exact moments correct them.
DOCUMENTS = {"squared": 60, "cross_entropy": 200}
# Attention is compared with uniform attention on this many of them.
MEASURED = 8
# With a larger vocabulary a prediction takes longer than it is worth.
MOST_WORDS = 400
# Points of the path at which attention is measured.
POINTS = 40
# The path is followed until attention by classes alone is this far from uniform: the draw's has taken off by then.
FAR = 0.09
# The least share of a step's noise that the next one takes back.
LEAST_FORGETTING = 0.02
# No take-off is looked for after this many steps.
MOST_STEPS = 1e10


@dataclass(frozen=True, kw_only=True)
class Stepping:
    """The optimiser, and what it starts from."""

    loss: Loss = "squared"
    """The loss that the predicted take-off is for."""
    optimizer: Optimizer = "sgd"
    """The optimiser that the predicted take-off is for."""
    rate: float = 0.01
    """Its learning rate."""
    scale: float = 0.001
    """s: entries of W^V, W^K and W^Q are N(0, s²)."""
    width: int = 0
    """d_a, the rows of W^K and W^Q; V if 0."""
    epsilon: float = 1e-8
    """Adam's ε."""
    batch: int = 40
    """Documents per step; Adam divides by their noise."""

    def __post_init__(self) -> None:
        check_one_of("loss", self.loss, ("squared", "cross_entropy"))
        check_one_of("optimizer", self.optimizer, ("sgd", "momentum", "adam"))
        for name in ("rate", "scale", "epsilon"):
            check_positive(name, getattr(self, name))
        check_at_least("width", self.width, 0)
        check_at_least("batch", self.batch, 1)


@dataclass(frozen=True, eq=False)
class Prediction:
    """The reduced model's curves, and when attention takes off."""

    steps: Float[np.ndarray, " point"]
    words: Float[np.ndarray, " point"]
    """a(t) of word queries."""
    mask: Float[np.ndarray, " point"]
    """a(t) of [MASK] queries."""
    gain: Float[np.ndarray, " point"]
    """g(t)."""
    norms: dict[str, Float[np.ndarray, " point"]]
    """Norms of W^V ("value"), W^K ("key") and W^Q ("query")."""

    @property
    def take_off(self) -> float | None:
        """The step at which word queries' attention takes off; None if it does not."""
        return _crossing(self.steps, self.words)

    @property
    def mask_take_off(self) -> float | None:
        """The same for [MASK] queries."""
        return _crossing(self.steps, self.mask)

    @property
    def gain_at_take_off(self) -> float | None:
        """The gain g at that step: how far stage 1 has come."""
        return None if self.take_off is None else float(np.interp(self.take_off, self.steps, self.gain))


def _crossing(steps: Float[np.ndarray, " point"], distance: Float[np.ndarray, " point"]) -> float | None:
    """Where a curve first reaches the take-off, interpolated geometrically between points."""
    reached = np.flatnonzero(distance >= TAKE_OFF)
    if not len(reached):
        return None
    after = int(reached[0])
    if after == 0:
        return float(steps[0])
    below, above = distance[after - 1], distance[after]
    share = (np.log(TAKE_OFF) - np.log(below)) / (np.log(above) - np.log(below))
    return float(steps[after - 1] + share * (steps[after] - steps[after - 1]))


class Population:
    """One setting's documents: a sample for the reduced model and for measuring, and g.

    Where the exact moments are known (squared loss) they correct the sample's gradient at uniform attention.
    """

    def __init__(self, data: Data, masking: Masking, loss: Loss, *, seed: int = 0) -> None:
        self.vocabulary = Vocabulary.of(data)
        if self.vocabulary.count > MOST_WORDS:
            raise InputError(
                f"topics · words = {self.vocabulary.count} is not allowed for a predicted take-off: give at most "
                f"{MOST_WORDS}."
            )
        self.data, self.masking, self.loss = data, masking, loss
        draw, model = generator(seed, Purpose.THEORY), TopicModel.from_settings(data)
        documents = sample_documents(model, DOCUMENTS[loss], generator=draw)
        self.documents = mask_documents(documents, masking, model.vocabulary, generator=draw)
        self.rows = Rows.of(self.documents, self.vocabulary)

    def gradient(
        self, value: Six, logits: Six, loss: Loss, noise: Six | None = None, *, squares: bool = False
    ) -> Gradient:
        """The sample's gradient, without its error at uniform attention if that is known."""
        sampled = self.rows.gradient(value, logits, loss, noise, squares=squares)
        if self._errors is None:
            return sampled
        constant, by_value, on_value, on_gram = self._errors
        gram = self.vocabulary.gram(value) + (0.0 if noise is None else noise)
        return sampled._replace(
            value=sampled.value - constant - by_value @ value, logits=sampled.logits - on_value @ value - on_gram @ gram
        )

    @cached_property
    def _errors(
        self,
    ) -> tuple[Six, Float[np.ndarray, "6 6"], Float[np.ndarray, "6 6"], Float[np.ndarray, "6 6"]] | None:
        """The sample's error: a constant and a matrix for W^V's gradient, two matrices for the logits'."""
        if self.loss != "squared":
            return None
        size, zero, basis = self.vocabulary, np.zeros(6), np.eye(6)
        nothing = self.rows.gradient(zero, zero, "squared")
        columns, of_value, of_gram = np.zeros((3, 6, 6))
        for place, unit in enumerate(basis):
            scatter = self.rows.gradient(zero, zero, "squared", unit)
            whole = self.rows.gradient(unit, zero, "squared")
            columns[:, place] = whole.value - nothing.value - 2 * size.classes(size.modes(unit) @ self.exact.second)
            of_gram[:, place], of_value[:, place] = scatter.logits, whole.logits
        of_value -= of_gram @ np.array([size.gram(unit) for unit in basis]).T
        known = logit_gradient(self.data, self.masking)
        constant = nothing.value + 2 * size.classes(self.exact.cross)
        return constant, columns, of_value - known.of_value, of_gram - known.of_gram

    def distances(self, logits: Float[np.ndarray, "point key query"]) -> tuple[np.ndarray, np.ndarray]:
        """How far the attention of word and of [MASK] queries is from uniform, at each point."""
        few = self.documents.span(0, MEASURED)
        keys = np.zeros((len(few), self.vocabulary.count + 1), dtype=np.int64)
        np.add.at(keys, (few.document, few.tokens), 1)
        return distance_from_uniform(logits, keys, keys)

    @cached_property
    def exact(self) -> ClassMoments:
        """S and R on the modes."""
        return class_moments(self.data, self.masking)

    def gain(self, state: Reduced) -> float:
        """g, including the cost of W^V's scatter."""
        if self.loss == "squared":
            scatter = self.vocabulary.trace(self.exact.second @ state.noise)
            return (1 - class_loss(ClassMatrix(*state.value[2:].tolist()), self.exact) - scatter) / (1 - self.best)
        nothing = np.log(self.vocabulary.count + 1)
        return float((nothing - self.rows.loss(state.value, np.zeros(6), self.loss)) / (nothing - self.best))

    @cached_property
    def best(self) -> float:
        """The least loss under uniform attention."""
        if self.loss == "squared":
            return class_loss(class_optimum(self.exact), self.exact)
        bags, size = Bags.of(self.documents, self.vocabulary.count + 1), self.vocabulary
        return cross_entropy_optimum(bags, size.topics, size.words, SMALL_RIDGE).objective

    @cached_property
    def residual(self) -> float:
        """E‖W x̃ − y‖² at the best W, where y is a document's mean target: the size of the noise in W^V's gradient."""
        first, x = self.rows.documents
        value = class_optimum(self.exact).numbers
        y = np.add.reduceat(self.rows.targets, first, axis=0) * len(first)
        return float(((x @ self.vocabulary.matrix(value).T - y) ** 2).sum(axis=1).mean())


def predict(
    data: Data,
    masking: Masking,
    stepping: Stepping,
    *,
    steps: float = MOST_STEPS,
    seed: int = 0,
    most_numbers: int | None = None,
) -> Prediction:
    """Follow the reduced model until attention takes off, or for so many steps.

    ``most_numbers`` bounds the work on any machine: it is the number of token frequencies looked at, repetitions
    included. A path that takes more is refused.
    """
    population = Population(data, masking, stepping.loss, seed=seed)
    size = population.vocabulary
    width = stepping.width or size.count + 1
    rate = stepping.rate / (1 - MOMENTUM) if stepping.optimizer == "momentum" else stepping.rate

    def far(state: Reduced) -> float:
        return population.rows.distance(state.logits(size, width)) - FAR

    start = Reduced.start(stepping.scale, width, noise=stepping.scale**2 * (size.count + 1))
    if stepping.optimizer == "adam":
        rate, optimiser = 1.0, adam(stepping, population)
    else:
        optimiser = sgd(rate, stepping, population)
    times, states = flow(
        population.gradient,
        size,
        stepping.loss,
        start,
        rate * np.geomspace(1.0, steps, 2000),
        width=width,
        enough=far,
        optimiser=optimiser,
        squares=stepping.optimizer == "adam",
        tolerance=1e-3,
        most_looks=MOST_LOOKS if most_numbers is None else most_numbers // population.rows.frequencies.size,
    )
    chosen = np.unique(np.linspace(0, len(times) - 1, POINTS).astype(int))
    states = [states[point] for point in chosen]
    words, mask = population.distances(draw_logits(states, size, width, generator=np.random.default_rng(seed)))
    gain = np.array([population.gain(state) for state in states])
    return Prediction(steps=times[chosen] / rate, words=words, mask=mask, gain=gain, norms=_norms(states, size))


def _norms(states: list[Reduced], size: Vocabulary) -> dict[str, Float[np.ndarray, " point"]]:
    """‖W^V‖, ‖W^K‖ and ‖W^Q‖: square roots of traces of their products."""
    squares = {
        "value": [size.modes(size.gram(state.value)) + state.noise for state in states],
        "key": [state.key for state in states],
        "query": [state.query for state in states],
    }
    return {name: np.sqrt([size.trace(products) for products in path]) for name, path in squares.items()}


def sgd(rate: float, stepping: Stepping, population: Population) -> Optimiser:
    r"""SGD in flow time: the gradient itself, and how much batches of B documents scatter W^V.

    A step adds noise of covariance 4η²cS/B to W^V's columns, where c = E‖Wx̃ − y‖² with y a document's mean target, and
    W^V forgets as (I − 2ηS)^k; S is E[AA⊤] with A the attention so far.
    """
    if stepping.loss == "cross_entropy":
        return lambda state, gradient: Rates()
    size, residual = population.vocabulary, population.residual
    fastest = 1 / float(np.linalg.eigvalsh(population.exact.second)[-1])
    if rate >= fastest:
        raise InputError(
            f"rate = {stepping.rate:g} is not allowed: W^V diverges; give less than "
            f"{fastest * stepping.rate / rate:.3g}."
        )

    def rates(state: Reduced, gradient: Gradient) -> Rates:
        second = size.modes(gradient.second)
        # Where a step would overshoot for ever its noise does not settle; it is kept at its value a little below that.
        values, vectors = np.linalg.eigh(second)
        forget = vectors * (values * np.maximum(1 - rate * values, LEAST_FORGETTING)) @ vectors.T
        return Rates(noise_decay=2 * forget, noise_spread=4 * residual * rate / stepping.batch * second)

    return rates


def adam(stepping: Stepping, population: Population) -> Optimiser:
    r"""Adam, with time in steps: each entry's rate is η over its gradient's root mean square (with batch noise) plus ε.

    Noise moves an entry by η σ/(σ + ε) per step in a random direction.
    """
    size, width = population.vocabulary, stepping.width or population.vocabulary.count + 1
    batch, rate, epsilon = stepping.batch, stepping.rate, stepping.epsilon

    counts = np.array([1.0, size.count])

    def diagonal(numbers: Float[np.ndarray, " 2"]) -> Modes:
        """From a number for [MASK] and one for words."""
        return np.diag(numbers[[1, 1, 0, 1]])

    def mean_squares(products: Modes) -> Float[np.ndarray, " 2"]:
        """The mean square of an entry of [MASK]'s column, and of a word's, in a matrix with these products."""
        mask = max(float(products[2, 2]), 0.0)
        return np.array([mask, max(size.trace(products) - mask, 0.0) / size.count]) / width

    def columns(squares: Float[np.ndarray, "2 2"], slope: Modes, other: Modes) -> tuple[Modes, Modes]:
        """Rates and spread of W^K's columns ([MASK]'s, a word's) with W^Q's products, or of W^Q's with W^K's."""
        noise = squares @ mean_squares(other) / counts / width / batch
        signal = mean_squares(slope @ other @ slope.T) / width
        sigma = np.sqrt(noise + signal)
        rates, spread = rate / (sigma + epsilon), width * noise * (rate / (sigma + epsilon)) ** 2
        return diagonal(rates), diagonal(spread)

    def rates(state: Reduced, gradient: Gradient) -> Rates:
        sigma = np.sqrt(gradient.value_squares / batch + gradient.value**2)
        value = rate / (sigma + epsilon)
        slope = size.modes(gradient.logits)
        key, key_spread = columns(gradient.logit_squares, slope, state.query)
        query, query_spread = columns(gradient.logit_squares.T, slope.T, state.key)
        walk = (size.count + 1) * (value * np.sqrt(gradient.value_squares / batch)) ** 2
        # Columns of W^V: [MASK]'s, and a word's, of which most entries are of other topics.
        mean = value[[2, 5]]
        bend = 2.0 if stepping.loss == "squared" else 1 / (size.count + 1)
        return Rates(
            value=value,
            key=key,
            query=query,
            key_spread=key_spread,
            query_spread=query_spread,
            noise_decay=diagonal(mean) @ size.modes(gradient.second) * bend,
            noise_spread=diagonal(walk[[2, 5]]),
        )

    return rates


def draw_logits(
    states: list[Reduced], vocabulary: Vocabulary, width: int, *, generator: np.random.Generator
) -> Float[np.ndarray, "point token token"]:
    """The M of one draw of W^K and W^Q at each state: Gaussian columns with the state's products on average."""
    # The same normal numbers serve at every time.
    first, second = generator.normal(size=(2, width, vocabulary.count + 1))
    logits = []
    for state in states:
        key, query, cross = (products / width for products in (state.key, state.query, state.cross))
        # What W^K and W^Q are of the first numbers and of the second. On each contrast W^Q is the part that it shares
        # with W^K, and the rest.
        (key_first, query_first), (key_second, query_second) = np.zeros((2, 2, 4, 4))
        for mode in (TOPIC, SAME_WORD):
            key_first[mode] = np.sqrt(max(key[mode], 0.0))
            query_first[mode] = cross[mode] / key_first[mode] if key_first[mode] else 0.0
            query_second[mode] = np.sqrt(max(query[mode] - query_first[mode] ** 2, 0.0))
        # The plane: four correlated numbers, [MASK] and mean word of W^K and of W^Q.
        joint = np.block([[key[PLANE], cross[PLANE]], [cross[PLANE].T, query[PLANE]]])
        values, vectors = np.linalg.eigh(joint)
        root = vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T
        key_first[PLANE], query_first[PLANE] = root[:2, :2], root[:2, 2:]
        key_second[PLANE], query_second[PLANE] = root[2:, :2], root[2:, 2:]
        keys, queries = (
            sum(
                numbers @ vocabulary.matrix(vocabulary.classes(modes))
                for numbers, modes in zip((first, second), parts, strict=True)
            )
            for parts in ((key_first, key_second), (query_first, query_second))
        )
        logits.append(keys.T @ queries / np.sqrt(width))
    return np.array(logits)
