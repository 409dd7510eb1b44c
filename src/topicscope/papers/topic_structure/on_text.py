"""What claims measure on runs on text: two stages in each layer (Figure 5), and when topic structure appears.

A layer's attention takes off as in Figure 4, when that of word queries is 0.05 from uniform. What W^V can gain alone
has no meaning for one layer among four, so its norm stands for it, compared with the largest norm that it reaches until
as long again has passed: a reference that depends neither on the run's length nor on the initial scale. Two thirds of
that growth mean that ‖W^V‖ grows less than half as fast after the take-off as before it, so that it "already plateaus"
(§5.1). A run that ends before has no such number, and then nothing is decided.

A structure has appeared at the step at which its log-ratio (same- over different-topic average) is half of its final
value. A run without structure in the end has no such step, and then nothing is decided.
"""

from dataclasses import replace

import numpy as np
from jaxtyping import Float, Int

from topicscope.measure.run import Run, together
from topicscope.measure.stages import TAKE_OFF, Stages, half_way, stages
from topicscope.measure.uncertainty import Interval, student_interval
from topicscope.papers.claim import Detail, Measurement, Results, exact, over_seeds
from topicscope.papers.topic_structure.experiments import FIGURE_5_STEPS
from topicscope.papers.topic_structure.trained import of_one_run, when_taken_off

STRUCTURES = ("embedding", "attention")


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


# When topic structure appears.


def log_ratios(run: Run, structure: str) -> tuple[Int[np.ndarray, " measured"], Float[np.ndarray, "seed measured ..."]]:
    """The steps at which topic structure was measured, and the log-ratios then."""
    values: np.ndarray = run.metrics[f"topics/{structure}"]
    there = np.isfinite(values.reshape(len(values), len(run.steps), -1)).any(axis=(0, 2))
    return run.steps[there], values[:, there]


def half_ways(run: Run, structure: str) -> Float[np.ndarray, "seed ..."]:
    """Each seed's step at which a structure reaches half of its final log-ratio; NaN without structure in the end."""
    steps, values = log_ratios(run, structure)
    low = run.metrics[f"topics/{structure}/low"][:, -1]
    flat, ends = values.reshape(len(values), len(steps), -1), low.reshape(len(values), -1)
    ways = [
        [half_way(steps, line, float(end)) for line, end in zip(seed.T, own, strict=True)]
        for seed, own in zip(flat, ends, strict=True)
    ]
    return np.array(ways).reshape(low.shape)


def embeddings_first(results: Results) -> Measurement:
    """The step at which attention has half of its structure, minus that of the embeddings."""
    run = together(list(results.values()))
    details: dict[str, Detail] = {}
    for structure in STRUCTURES:
        details |= _spread(f"{structure}_half_way", half_ways(run, structure))
        details |= _spread(f"{structure}_final_log_ratio", log_ratios(run, structure)[1][:, -1])
    return over_seeds(half_ways(run, "attention") - half_ways(run, "embedding"), **details)


def lower_layers_first(results: Results) -> Measurement:
    """The step at which the last layer's attention has half of its structure, minus that of the first layer's."""
    run = together(list(results.values()))
    ways, final = half_ways(run, "attention-by-layer"), log_ratios(run, "attention-by-layer")[1][:, -1]
    details: dict[str, Detail] = {}
    for layer, (steps, ratios) in enumerate(zip(ways.T, final.T, strict=True), start=1):
        details |= _spread(f"layer_{layer}_half_way", steps) | _spread(f"layer_{layer}_final_log_ratio", ratios)
    return over_seeds(ways[:, -1] - ways[:, 0], **details)


def _spread(name: str, values: Float[np.ndarray, " seed"]) -> dict[str, Detail]:
    """Mean and 95 % interval over the seeds that have a number, and how many have."""
    there = values[np.isfinite(values)]
    interval = student_interval(there) if len(there) else Interval(np.nan, np.nan, np.nan)
    return {
        name: interval.value,
        f"{name}_low": interval.low,
        f"{name}_high": interval.high,
        f"{name}_runs": len(there),
    }
