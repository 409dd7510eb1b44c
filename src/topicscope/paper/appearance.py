"""When topic structure appears in training on text, and where: claims of ours, beside Figure 5.

A structure has appeared at the step at which its log-ratio (same- over different-topic average) is half of what it is
in the end. A run without structure in the end has no such step, and then nothing is decided.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from topicscope.measure.stages import half_way
from topicscope.measure.uncertainty import Interval, student_interval
from topicscope.paper.claim import Claim, Detail, Drawing, Measurement, Preset, Results, above, over_seeds
from topicscope.paper.text_experiment import CORPUS, HEADS, LAYERS, STRUCTURES, TextExperiment, TextRuns, joined
from topicscope.settings.text import Encoder, TextData, TextSettings, TextTopics, TextTraining

if TYPE_CHECKING:
    from topicscope.reporting.figures import Drawn


@dataclass(frozen=True)
class Length:
    """How long, how many runs, and how well it is looked at."""

    steps: int
    seeds: int
    measures: int
    passages: int
    """That attention is measured on."""


# As many steps as Figure 5's, so that both take three minutes: structure is seen to begin. The claims decide what runs
# that end with clear structure show; none has so far (docs/text.md).
QUICK = Length(steps=400, seeds=3, measures=9, passages=300)
FULL = Length(steps=6_000, seeds=5, measures=24, passages=1_000)
# How these were chosen is in docs/choices.md.
DATA = TextData(corpus=CORPUS, vocabulary=8_000, length=126)
MODEL = Encoder(layers=LAYERS, heads=HEADS, width=64, feed_forward=64, positions="none", attention_scale=0.001)
RATE, BATCH = 0.002, 4


def claims(preset: Preset) -> tuple[Claim, ...]:
    """Embeddings or attention first, and lower layers or higher ones."""
    experiments = appearance_experiments(preset)
    how = f"Adam at {RATE:g}, {experiments[0].settings.training.steps:,} steps"

    def claim(name: str, statement: str, measure: Callable[[TextRuns], Measurement]) -> Claim:
        return Claim(
            id=f"emergence/{name}",
            source="Figure 5",
            statement=f"{statement} ({how}).",
            expected="> 0",
            unit="steps",
            rule=above(0.0),
            needs=experiments,
            measure=lambda results: measure(_runs(results, experiments)),
            figure="emergence",
            ours=True,
        )

    return (
        claim(
            "embeddings-first",
            "Topic structure appears in the embeddings before it appears in attention: each reaches half of its final "
            "log-ratio at a step, attention's minus the embeddings'",
            _first_measure,
        ),
        claim(
            "lower-layers-first",
            "Attention's topic structure appears in the first layer before it appears in the last: the step at which "
            "each reaches half of its final log-ratio, last minus first",
            _layers_measure,
        ),
    )


def drawings(preset: Preset) -> tuple[Drawing, ...]:
    """Loss, norms and topic structure over the steps."""
    experiments = appearance_experiments(preset)
    draw = Drawing(name="emergence", needs=experiments, draw=lambda results: _draw(_runs(results, experiments)))
    return (draw,)


def appearance_experiments(preset: Preset) -> tuple[TextExperiment, ...]:
    """Training with topic structure measured on the way; one a seed, so that seeds are trained at the same time."""
    length = FULL if preset.full else QUICK
    training = TextTraining(
        learning_rate=RATE,
        steps=length.steps,
        batch=BATCH,
        threads=1,
        log_every=10,
        validate_every=0,
        checkpoint_every=200,
        measures=length.measures,
    )
    topics = TextTopics(count=50, words=20, passages=length.passages)
    settings = TextSettings(data=DATA, model=MODEL, training=training, topics=topics)
    return tuple(
        TextExperiment(name=f"emergence/{number}", settings=settings, seeds=1, skipped=number)
        for number in range(length.seeds)
    )


def _runs(results: Results, experiments: Sequence[TextExperiment]) -> TextRuns:
    return joined([results[experiment.name] for experiment in experiments])


def half_ways(runs: TextRuns, structure: str) -> Float[np.ndarray, " seed"]:
    """Each seed's step at which a structure reaches half of its final log-ratio; NaN without structure in the end."""
    rises = zip(runs.log_ratios[structure], runs.final_low[structure], strict=True)
    return np.array([half_way(runs.measured, ratios, float(low)) for ratios, low in rises])


def layer_half_ways(runs: TextRuns) -> Float[np.ndarray, "seed layer"]:
    """The same of attention, layer by layer."""
    seeds, layers = runs.layer_final_low.shape
    found = np.full((seeds, layers), np.nan)
    for seed, layer in np.ndindex(seeds, layers):
        ratios = runs.layer_log_ratios[seed, :, layer]
        found[seed, layer] = half_way(runs.measured, ratios, float(runs.layer_final_low[seed, layer]))
    return found


def _first_measure(runs: TextRuns) -> Measurement:
    embedding, attention = (half_ways(runs, name) for name in STRUCTURES)
    details = _spread("embeddings_half_way", embedding) | _spread("attention_half_way", attention)
    for structure in STRUCTURES:
        details |= _spread(f"{structure}_final_log_ratio", runs.log_ratios[structure][:, -1])
    return over_seeds(attention - embedding, **details)


def _layers_measure(runs: TextRuns) -> Measurement:
    found = layer_half_ways(runs)
    details: dict[str, Detail] = {}
    for layer, (steps, ratios) in enumerate(zip(found.T, runs.layer_log_ratios[:, -1].T, strict=True), start=1):
        details |= _spread(f"layer_{layer}_half_way", steps) | _spread(f"layer_{layer}_final_log_ratio", ratios)
    return over_seeds(found[:, -1] - found[:, 0], **details)


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


def _draw(runs: TextRuns) -> "Drawn":
    from topicscope.reporting.figures.training import structure_over_steps

    return structure_over_steps(
        runs.steps,
        runs.loss,
        runs.norms["value"],
        runs.measured,
        {name: runs.log_ratios[name] for name in STRUCTURES},
        runs.layer_log_ratios,
        half_ways={name: half_ways(runs, name) for name in STRUCTURES},
        layer_half_ways=layer_half_ways(runs),
        title="When topic structure appears in training on Wikipedia",
    )
