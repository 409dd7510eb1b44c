"""What claims measure on runs on text: two stages in each layer (Figure 5).

A layer's attention takes off as in Figure 4, when that of word queries is 0.05 from uniform. What W^V can gain alone
has no meaning for one layer among four, so its norm stands for it, compared with the largest norm that it reaches until
as long again has passed: a reference that depends neither on the run's length nor on the initial scale. Two thirds of
that growth mean that ‖W^V‖ grows less than half as fast after the take-off as before it, so that it "already plateaus"
(§5.1). A run that ends before has no such number, and then nothing is decided.
"""

from dataclasses import replace

import numpy as np
from jaxtyping import Float, Int

from topicscope.measure.run import Run
from topicscope.measure.stages import TAKE_OFF, Stages, stages
from topicscope.papers.claim import Detail, Measurement, Results, exact, over_seeds
from topicscope.papers.topic_structure.experiments import FIGURE_5_STEPS
from topicscope.papers.topic_structure.trained import of_one_run, when_taken_off


def layers_of(run: Run) -> int:
    """How many layers it has."""
    return int(run.metrics["rotation"].shape[2])


def layer_stages(run: Run, layer: int, threshold: float = TAKE_OFF) -> list[Stages]:
    """Each seed's stages in one layer: when its attention takes off, and how much of its growth ‖W^V‖ has then made."""
    words, mask, value = (
        run.metrics[name][:, :, layer] for name in ("attention/words", "attention/mask", "norm/value")
    )
    seeds = []
    for words_of_seed, mask_of_seed, norm in zip(words, mask, value, strict=True):
        one = stages(run.steps, words_of_seed, mask_of_seed, norm, threshold=threshold)
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


@of_one_run
def growth_at_take_off(run: Run) -> dict[str, Measurement]:
    """By layer: the share of its growth that ‖W^V‖ has made when attention takes off.

    Beside it are the shares with attention's take-off a third or three times as far from uniform.
    """
    rows = {}
    for layer in range(layers_of(run)):
        seeds = layer_stages(run, layer)
        third, triple = (np.mean([one.gain for one in layer_stages(run, layer, TAKE_OFF * k)]) for k in (1 / 3, 3))
        rows[f"layer {layer + 1}"] = over_seeds(
            [one.gain for one in seeds],
            **when_taken_off(seeds),
            runs_with_two_stages=sum(one.two for one in seeds),
            if_take_off_is_a_third_as_far=float(third),
            if_take_off_is_three_times_as_far=float(triple),
        )
    return rows


def two_stage_layers(results: Results) -> Measurement:
    """The share of layers, over all settings, with two stages in every run: a count, which one layer moves.

    Only layers count whose attention takes off, in time, in every run.
    """
    counts: dict[str, Detail] = {}
    every: list[bool] = []
    for name, run in results.items():
        by_layer = [layer_stages(run, layer) for layer in range(layers_of(run))]
        two = [all(one.two for one in seeds) for seeds in by_layer if all(one.take_off is not None for one in seeds)]
        counts[name.removeprefix("figure5/")] = f"{sum(two)} of {len(two)}"
        every += two
    return exact(
        np.mean(every) if every else np.nan,
        resolution=1 / max(len(every), 1),
        layers=sum(map(layers_of, results.values())),
        layers_that_take_off=len(every),
        two_stage=sum(every),
        **counts,
    )


@of_one_run
def turning_ratio(run: Run) -> Measurement:
    """The mean rotation of W^V before the take-off over that from there to the paper's last step, averaged over layers.

    NaN for a run in which the attention of a layer does not take off, or at once.
    """
    within = run.steps <= FIGURE_5_STEPS
    ratios = np.full((len(run.seeds), layers_of(run)), np.nan)
    for layer in range(layers_of(run)):
        for seed, one in enumerate(layer_stages(run, layer)):
            rotation = run.metrics["rotation"][seed, :, layer]
            if one.take_off is None:
                continue
            before = run.steps <= one.take_off
            early, late = rotation[before], rotation[~before & within]
            if np.isfinite(early).any() and np.isfinite(late).any():
                ratios[seed, layer] = np.nanmean(early) / np.nanmean(late)
    return over_seeds(ratios.mean(axis=1))
