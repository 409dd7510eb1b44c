"""A small registry of claims for tests of ``reproduce``: three claims, two experiments of a second."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from support.helpers import small_settings
from topicscope.commands.reproduce import Reproduction, reproduce
from topicscope.measure.blocks import class_averages
from topicscope.paper import Registry
from topicscope.paper.claim import Claim, Drawing, Measurement, Results, above, below, exact, over_seeds
from topicscope.paper.experiment import Experiment
from topicscope.reporting.figures import Drawn

# W^V learns the topics of these documents within 30 steps.
LEARNS = small_settings(
    data={"topics": 3, "words": 3, "length": [30, 40], "dirichlet": [0.1], "fresh": True},
    masking={"mask": 0.15},
    model={
        "embedding": {"start": "identity", "train": False},
        "value": {"scale": 0.001},
        **{part: {"start": "zero", "train": False} for part in ("key", "query")},
    },
    training={
        "loss": "squared",
        "batch": 20,
        "steps": 30,
        "learning_rate": 0.03,
        "log_every": 10,
        "checkpoint_every": 100,
        "validate_every": 0,
        "snapshots": 0,
    },
)


TRAINED = Experiment(name="figure2/squared-adam", settings=LEARNS)


SHORT = Experiment(
    name="figure2/short",
    settings=small_settings(
        data={"topics": 3, "words": 3},
        model={"value": {"start": "zero"}},
        training={"steps": 1, "log_every": 1, "snapshots": 0},
    ),
)


def contrast(results: Results, *, shuffled: bool = False, untrained: bool = False) -> Measurement:
    trained = results[TRAINED.name]
    topics = trained.word_topics.copy()
    if shuffled:
        topics[1:] = np.random.default_rng(0).permutation(topics[1:])
    matrices = 0 * trained.value_products if untrained else trained.value_products
    return over_seeds([class_averages(matrix, topics).contrast or 0.0 for matrix in matrices])


def contrast_claim(name: str = "contrast", **broken: bool) -> Claim:
    return Claim(
        id=f"figure2/squared-adam/{name}",
        source="Figure 2",
        statement="W^V is larger within topics than between them.",
        expected="> 0.1",
        rule=above(0.1),
        needs=(TRAINED,),
        measure=lambda results: contrast(results, **broken),
        figure="figure2",
    )


def draw(results: Results) -> Drawn:
    figure = Figure(figsize=(2, 2))
    matrix = results[TRAINED.name].value_products[0]
    figure.add_subplot().imshow(matrix)
    return Drawn(figure, [{"value": value} for value in matrix.ravel().tolist()])


EXACT = Claim(
    id="theorem9/zero",
    source="Theorem 9",
    statement="Nothing is nothing.",
    expected=0,
    rule=below(1e-10),
    measure=lambda results: exact(0.0),
)


STEP = Claim(
    id="figure2/short/loss",
    source="Figure 2",
    statement="One step leaves the loss where it was.",
    expected="< 10",
    rule=below(10),
    needs=(SHORT,),
    measure=lambda results: over_seeds(results[SHORT.name].held_out_loss),
)


SMALL = Registry(
    claims=(contrast_claim(), STEP, EXACT), drawings=(Drawing(name="figure2", draw=draw, needs=(TRAINED,)),)
)


def run(out: Path, **options: Any) -> Reproduction:
    return reproduce(out, **{"seeds": 3, "workers": 1} | options)


def verdicts(result: Reproduction) -> dict[str, str]:
    return {row["id"]: row["verdict"] for row in result.rows}
