"""What claims measure on when things happen in training: two stages (Figure 4, on text Figure 5), and why (§8.1).

A function gets the runs of its claim by name and returns a measurement, or one per row (``@per_run``: one per run).
Attention takes off when that of word queries is 0.05 from uniform (``measure/stages.py``).

On text what W^V can gain alone has no meaning for one layer among four, so its norm stands for it, compared with the
largest norm that it reaches until as long again has passed: a reference that depends neither on the run's length nor on
the initial scale. Two thirds of that growth mean that ‖W^V‖ grows less than half as fast after the take-off as before
it, so that it "already plateaus" (§5.1). A run that ends before has no such number, and then nothing is decided.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from topicscope.measure.run import Run
from topicscope.measure.stages import TAKE_OFF, Stages, norm_stages, plateau, run_stages, stages, turning
from topicscope.model.weights import Weights, start_weights
from topicscope.papers.claim import Detail, Measurement, Results, exact, over_seeds, per_run
from topicscope.papers.topic_structure.experiments import FIGURE_5_STEPS, MAP_SEEDS
from topicscope.settings import Settings
from topicscope.settings.training import Loss, Optimizer
from topicscope.synthetic.documents import Bags
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.dynamics import gradient_ratio, key_gradient

# A prediction is near if it is within this share of what is measured: SGD's and momentum's, and Adam's.
NEAR = {"sgd": 0.15, "momentum": 0.15, "adam": 0.3}


def curve(run: Run, metric: str) -> Float[np.ndarray, "seed row"]:
    """A metric over the recorded steps, that of the first layer if it has layers."""
    values: np.ndarray = run.metrics[metric]
    return values if values.ndim == 2 else values[:, :, 0]


# Figure 4: two stages.


@per_run
def gain_at_take_off(run: Run) -> Measurement:
    """What W^V has gained when attention takes off, for each seed; NaN, and so undecided, if a seed's never does."""
    return shares_at_take_off(run_stages(run), *(run_stages(run, threshold=TAKE_OFF * k) for k in (1 / 3, 3)))


def shares_at_take_off(
    seeds: Sequence[Stages], third: Sequence[Stages], triple: Sequence[Stages], **details: Detail
) -> Measurement:
    """W^V's share at take-off; beside it those with attention's take-off a third or three times as far from uniform."""
    return over_seeds(
        [one.gain for one in seeds],
        **when_taken_off(seeds),
        if_take_off_is_a_third_as_far=np.array([one.gain for one in third]),
        if_take_off_is_three_times_as_far=np.array([one.gain for one in triple]),
        **details,
    )


def when_taken_off(seeds: Sequence[Stages]) -> dict[str, Detail]:
    """At which step attention takes off on average, and in how many runs."""
    when = [one.take_off for one in seeds if one.take_off is not None]
    return {
        "take_off_at_step": np.array(when) if when else None,
        "runs_in_which_attention_takes_off": len(when),
    }


def growing_part(results: Results, *, topics: str, mask: str) -> dict[str, Measurement]:
    """Shares of ‖W^K‖²: what tells topics apart, at take-off of one run; [MASK]'s column, at the end of another."""
    when = [one.take_off for one in run_stages(results[topics])]
    taken_off = [-1 if step is None else int(np.searchsorted(results[topics].steps, step)) for step in when]
    last = [-1] * len(results[mask].seeds)
    return {
        f"{label}, {name.removeprefix('figure4/')}": _mode_share(results[name], mode, rows)
        for label, mode, name, rows in (("topics", "topics", topics, taken_off), ("[MASK]", "mask", mask, last))
    }


def _mode_share(run: Run, mode: str, rows: list[int]) -> Measurement:
    """Which share of ‖W^K‖² a part of it has, at one row per seed."""
    at = (np.arange(len(rows)), rows)
    share = curve(run, f"modes/key-{mode}")[at] ** 2 / curve(run, "norm/key")[at] ** 2
    return over_seeds(share, attention_distance_of_words=curve(run, "attention/words")[at])


@per_run
def value_plateau(run: Run) -> Measurement:
    """How fast ‖W^V‖ grows where stage 1 ends, over its first half; NaN, and so undecided, without a stage 2."""
    value = curve(run, "norm/value")
    return _over_stage_2(run, lambda seed, end: plateau(run.steps, value[seed], end))


@per_run
def value_rotation(run: Run) -> Measurement:
    """How much more W^V turns than it grows as stage 2 begins."""
    value, rotation = curve(run, "norm/value"), curve(run, "rotation")
    return _over_stage_2(run, lambda seed, end: turning(run.steps, value[seed], rotation[seed], end))


def _over_stage_2(run: Run, measure: Callable[[int, int], float]) -> Measurement:
    ends = [one.take_off for one in run_stages(run)]
    return over_seeds([np.nan if end is None else measure(seed, end) for seed, end in enumerate(ends)])


@per_run
def norm_growth(run: Run) -> Measurement:
    """The share of ‖W^V‖'s growth when a norm of W^K or W^Q has doubled; 0 if none does. Beside it g at take-off."""
    norms = [curve(run, f"norm/{part}") for part in ("key", "query", "value")]
    seeds, by_attention = [norm_stages(run.steps, *seed) for seed in zip(*norms, strict=True)], run_stages(run)
    return over_seeds(
        [one.growth if one.end is not None or one.diverged else 0.0 for one in seeds],
        gain_when_attention_takes_off=np.array([one.gain for one in by_attention]),
        **when_taken_off(by_attention),
    )


class MapSetting(NamedTuple):
    """A setting of Figure 4's map by its first runs."""

    loss: Loss
    optimizer: Optimizer
    two: bool
    """Whether most runs are two-stage."""

    take_off: float
    """When attention takes off, averaged over runs; NaN if it does not in one."""

    gain: float
    """The gain g then, averaged over runs."""


def in_most(seeds: Sequence[Stages]) -> bool:
    """Whether more than half of the runs are two-stage: a rule that more runs do not make harder to meet."""
    return 2 * sum(one.two for one in seeds) > len(seeds)


def map_settings(results: Results) -> dict[str, MapSetting]:
    """The settings of the map, which are all results that are runs."""
    settings = {}
    for name, run in results.items():
        if isinstance(run, Run):
            seeds = run_stages(run)[:MAP_SEEDS]
            when = np.mean([np.nan if one.take_off is None else one.take_off for one in seeds])
            gain = np.nan if np.isnan(when) else np.mean([one.gain for one in seeds])
            training, two = run.settings.training, in_most(seeds)
            settings[name] = MapSetting(training.loss, training.optimizer, two, float(when), float(gain))
    return settings


def taken_off(results: Results) -> list[MapSetting]:
    """Settings in which attention takes off in every run."""
    return [one for one in map_settings(results).values() if np.isfinite(one.take_off)]


def counts(yes: Mapping[str, Sequence[bool]]) -> dict[str, Detail]:
    """By group, how many are so, of how many: "8 of 12"."""
    return {name: f"{sum(own)} of {len(own)}" for name, own in yes.items()}


def rarer_kind(results: Results) -> Measurement:
    """How many settings of the map the rarer kind has, two-stage or not, among those in which attention takes off."""
    two = [one.two for one in taken_off(results)]
    return exact(min(sum(two), len(two) - sum(two)), two_stage=sum(two), not_two_stage=len(two) - sum(two))


def loss_decides(results: Results, *, optimizer: str) -> Measurement:
    """By how much the share of two-stage settings is larger under the squared loss than under cross-entropy."""
    own = [one for one in taken_off(results) if one.optimizer == optimizer]
    two = {loss: [one.two for one in own if one.loss == loss] for loss in ("squared", "cross_entropy")}
    if not all(two.values()):
        return exact(np.nan)
    difference = np.mean(two["squared"]) - np.mean(two["cross_entropy"])
    return exact(difference, resolution=1 / min(map(len, two.values())), **counts(two))


def predicted_and_measured(results: Results) -> dict[str, Float[np.ndarray, "2 2"]]:
    """Of each setting of the map, predicted then measured: take-off and g there; NaN where there is none."""
    predicted: Mapping[str, list[float | None]] = results["figure4/predicted"]
    return {
        name: np.array([predicted[name], [one.take_off, one.gain]], dtype=float)
        for name, one in map_settings(results).items()
    }


def predicted_correlation(results: Results) -> Measurement:
    """The correlation of the logarithms of predicted and measured take-off over the settings of the map."""
    take_off = np.array([both[:, 0] for both in predicted_and_measured(results).values()])
    both = np.isfinite(take_off).all(axis=1)
    value = np.corrcoef(np.log(take_off[both]).T)[0, 1] if both.sum() > 2 else np.nan
    return exact(value, settings_that_take_off_in_both=both.sum())


def predicted_near(results: Results) -> Measurement:
    """The share of settings whose predicted take-off is near the measured one: a count, which one setting moves."""
    settings, near = map_settings(results), dict[str, list[bool]]()
    for name, ((predicted, _), (measured, _)) in predicted_and_measured(results).items():
        if np.isfinite(measured):
            loss, optimizer = settings[name][:2]
            close = bool(abs(predicted / measured - 1) <= NEAR[optimizer])
            near.setdefault(f"near_{loss}_{optimizer}", []).append(close)
    every = [close for own in near.values() for close in own]
    return exact(np.mean(every) if every else np.nan, resolution=1 / max(len(every), 1), **counts(near))


# Gradients at the start (§8.1).


@cache
def gradient_bags(settings: Settings) -> Bags:
    """The held-out documents on which gradients at the start are computed."""
    from topicscope.training.batches import held_out_documents
    from topicscope.training.record import GRADIENT_DOCUMENTS

    model = TopicModel.from_settings(settings.documents)
    return Bags.of(held_out_documents(settings, model).span(0, GRADIENT_DOCUMENTS), model.vocabulary)


def starts_of(run: Run) -> list[Weights]:
    """The weights that each seed begins with."""
    source = TopicModel.from_settings(run.settings.documents)
    return [start_weights(run.settings, seed, source) for seed in run.seeds]


def measured_ratio(run: Run) -> Float[np.ndarray, " seed"]:
    """‖∇W^V‖ / ‖∇W^K‖ at the start."""
    ratio: np.ndarray = run.final["first_gradients/value"] / run.final["first_gradients/key"]
    return ratio


def formula_norms(run: Run, *, next_order: bool = False) -> Float[np.ndarray, " seed"]:
    """‖∇W^K‖ by the formula, for the weights that each seed draws."""
    loss, bags = run.settings.training.loss, gradient_bags(run.settings)
    gradients = [
        key_gradient(bags, loss, start["value"][0], start["query"][0], next_order=next_order)
        for start in starts_of(run)
    ]
    return np.linalg.norm(gradients, axis=(1, 2)) * (2 if loss == "squared" else 1)


@per_run
def gradient_formula(run: Run) -> Measurement:
    """The norm of W^K's gradient over the formula's; beside it over that of the next order, and W^V's over W^K's."""
    measured = run.final["first_gradients/key"]
    training, scale = run.settings.training, run.settings.model.value.scale
    return over_seeds(
        measured / formula_norms(run),
        over_the_formula_of_the_next_order=measured / formula_norms(run, next_order=True),
        value_over_key=measured_ratio(run),
        value_over_key_by_the_formula=gradient_ratio(gradient_bags(run.settings), training.loss, scale),
    )


# Figure 5: two stages in each layer, on text.


def layers_of(run: Run) -> int:
    """How many layers it has."""
    return int(run.metrics["rotation"].shape[2])


def layer_stages(run: Run, layer: int, threshold: float = TAKE_OFF) -> list[Stages]:
    """Each seed's stages in one layer: when its attention takes off, and how much of its growth ‖W^V‖ has then made."""
    curves = (run.metrics[name][:, :, layer] for name in ("attention/words", "norm/value"))
    seeds = []
    for words, norm in zip(*curves, strict=True):
        one = stages(run.steps, words, norm, threshold=threshold)
        if one.take_off is not None and run.steps[-1] < 2 * one.take_off:
            # The reference for the growth is missing.
            one = replace(one, take_off=None, gain=np.nan)
        elif one.take_off is not None:
            one = replace(one, gain=growth_share(run.steps, norm, one.take_off))
        seeds.append(one)
    return seeds


def growth_share(steps: Int[np.ndarray, " row"], value: Float[np.ndarray, " row"], take_off: int) -> float:
    """The share that a norm has made, by a step, of its largest growth until as long again has passed; 0 to 1."""
    then = value[np.searchsorted(steps, take_off)] - value[0]
    largest = value[steps <= 2 * take_off].max() - value[0]
    return float(max(then, 0) / largest) if largest > 0 else 0.0


def growth_at_take_off(results: Results) -> dict[str, Measurement]:
    """By layer of one run: the share of its growth that ‖W^V‖ has made when attention takes off."""
    (run,) = results.values()
    rows = {}
    for layer in range(layers_of(run)):
        seeds, *others = (layer_stages(run, layer, TAKE_OFF * factor) for factor in (1, 1 / 3, 3))
        two = sum(one.two for one in seeds)
        rows[f"layer {layer + 1}"] = shares_at_take_off(seeds, *others, runs_with_two_stages=two)
    return rows


def two_stage_layers(results: Results) -> Measurement:
    """The share of layers, over all settings, with two stages in most runs: a count, which one layer moves.

    Only layers count whose attention takes off, in time, in every run. The first runs of each setting are counted, as
    many as all settings have.
    """
    two = dict[str, list[bool]]()
    for name, run in results.items():
        layers: Iterable[list[Stages]] = (layer_stages(run, layer)[:MAP_SEEDS] for layer in range(layers_of(run)))
        two[name.removeprefix("figure5/")] = [
            in_most(seeds) for seeds in layers if all(one.take_off is not None for one in seeds)
        ]
    every = [own for layers_of_run in two.values() for own in layers_of_run]
    return exact(np.mean(every) if every else np.nan, resolution=1 / max(len(every), 1), **counts(two))


@per_run
def turning_ratio(run: Run) -> Measurement:
    """The mean rotation of W^V before the take-off over that from there to the paper's last step, averaged over layers.

    NaN for a run in which the attention of a layer does not take off, or at once.
    """
    within = run.steps <= FIGURE_5_STEPS
    ratios = np.full((len(run.seeds), layers_of(run)), np.nan)
    for layer in range(layers_of(run)):
        for seed, one in enumerate(layer_stages(run, layer)):
            rotation = run.metrics["rotation"][seed, :, layer]
            before = run.steps <= (one.take_off or 0)
            early, late = rotation[before], rotation[~before & within]
            if np.isfinite(early).any() and np.isfinite(late).any():
                ratios[seed, layer] = np.nanmean(early) / np.nanmean(late)
    return over_seeds(ratios.mean(axis=1))
