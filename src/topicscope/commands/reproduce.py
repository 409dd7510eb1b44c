"""Train the paper's Figure 2 setting and lay W^V beside Theorem 2's matrix and the finite-document optimum."""

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from topicscope.files import write_atomically
from topicscope.measure.blocks import class_averages
from topicscope.report.figures import heat_maps, save_figure
from topicscope.settings import Data, Model, Part, Settings, Training
from topicscope.settings.training import Loss, Optimizer
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.optima import theorem_2
from topicscope.theory.population import finite_optimum, moments, population_loss
from topicscope.training.checkpoints import newest_checkpoint
from topicscope.training.loop import Report, train

_ZERO = Part(start="zero", train=False)

# λ, batch size, steps and initial scale are not in the paper; the same choices as in examples/figure2.toml.
FIGURE_2 = Settings(
    data=Data(fresh=True),
    model=Model(
        embedding=Part(start="identity", train=False),
        value=Part(scale=0.001),
        key=_ZERO,
        query=_ZERO,
        key_bias=_ZERO,
        query_bias=_ZERO,
        value_bias=_ZERO,
        prediction_bias=_ZERO,
    ),
    training=Training(loss="squared", optimizer="adam", learning_rate=0.01, decay="cosine", l2=1e-5, steps=3000),
)

COMBINATIONS: tuple[tuple[Loss, Optimizer], ...] = (
    ("cross_entropy", "sgd"),
    ("cross_entropy", "adam"),
    ("squared", "sgd"),
    ("squared", "adam"),
)
TITLES = {"cross_entropy": "cross-entropy", "squared": "squared loss", "sgd": "SGD", "adam": "Adam"}


@dataclass(frozen=True, eq=False)
class Figure2:
    """The trained matrices, theory's, and the numbers to compare."""

    matrices: dict[str, Float[np.ndarray, "token token"]]
    table: list[dict[str, Any]]
    """One row a matrix: class averages and the exact population loss (squared, without L2)."""

    files: list[Path]


def reproduce(
    out: Path, *, seed: int = 0, steps: int = 3000, report_for: Callable[[str], Report] | None = None
) -> Figure2:
    """Train the four combinations of Figure 2 (those already in ``out`` go on or are kept) and compare."""
    trained = {}
    for loss, optimizer in COMBINATIONS:
        training = dataclasses.replace(FIGURE_2.training, loss=loss, optimizer=optimizer, steps=steps)
        settings = dataclasses.replace(FIGURE_2, seed=seed, training=training)
        name = f"{TITLES[loss]}, {TITLES[optimizer]}"
        report = report_for(name) if report_for else None
        run = train(settings, out / "runs" / f"figure2-{loss}-{optimizer}", resume=True, report=report)
        checkpoint = newest_checkpoint(run.path)
        assert checkpoint is not None
        trained[name] = checkpoint.weights["value"][0].double().numpy()
    return _compare(trained, out)


def _compare(trained: dict[str, Float[np.ndarray, "token token"]], out: Path) -> Figure2:
    topic_model = TopicModel.from_settings(FIGURE_2.data)
    exact = moments(topic_model, FIGURE_2.masking)
    ridge = FIGURE_2.training.l2
    matrices = trained | {
        f"finite-document optimum, λ = {ridge:g}": finite_optimum(exact, ridge=ridge),
        "finite-document optimum, λ = 0": finite_optimum(exact),
        "Theorem 2": theorem_2(FIGURE_2.data.topics, FIGURE_2.data.words, FIGURE_2.masking),
    }
    table = []
    for name, matrix in matrices.items():
        averages = dataclasses.asdict(class_averages(matrix, topic_model.word_topics))
        # A cross-entropy model's scores are not probabilities: its squared loss would say nothing.
        loss = None if name.startswith("cross-entropy") else population_loss(matrix, exact)
        table.append({"matrix": name, **averages, "population_loss": loss})
    title = "W^V with one-hot embeddings and uniform attention: trained (first four), and theory"
    comparable = [name for name in matrices if name not in trained or name == "squared loss, Adam"]
    figure = heat_maps(matrices, words=FIGURE_2.data.words, title=title, same_scale=comparable)
    write_atomically(out / "figure2.json", json.dumps(table, indent=2, allow_nan=False) + "\n")
    return Figure2(matrices, table, [*save_figure(figure, out / "figure2"), out / "figure2.json"])
