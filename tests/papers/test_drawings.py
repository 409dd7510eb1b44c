"""Every figure is drawn from made-up results, with the numbers that it shows."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from support.probes import fabricated
from support.runs import PAPER, STEPS, untrained
from support.text_runs import made_up as made_up_on_text
from topicscope.measure.run import Run
from topicscope.papers.needs import Experiment
from topicscope.papers.topic_structure import drawings, exact, trained
from topicscope.records import PredictedStages, Reference
from topicscope.settings import Settings


@pytest.fixture(autouse=True, scope="module")
def fewer_documents() -> Iterator[None]:
    """Large samples are as large as tests need them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trained, "CONVEX_OPTIMUM_DOCUMENTS", 1_000)
        patch.setattr(exact, "GAIN_DOCUMENTS", 200)
        yield
    for function in (trained.large_sample, trained.convex_optimum, exact.gains):
        function.cache_clear()


def run_of(settings: Settings) -> Run:
    """A run in which attention takes off in the middle and nothing else changes."""
    run = untrained(settings)
    late = np.where(STEPS >= 500, 0.2, 0.001) * np.ones((len(run.seeds), 1))
    # Axes are logarithmic.
    metrics = {name: values + 1e-3 for name, values in run.metrics.items()}
    metrics |= {"attention/words": late[..., None], "uniform_gain": 1 - late, "loss": 1 - late}
    stages = PredictedStages(take_off=400.0, steps=[1.0, 500.0], norms={"value": [0.1, 1.0], "key": [], "query": []})
    return replace(run, metrics=metrics, reference=Reference(stages=stages))


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    """A result of every need."""
    made: dict[str, Any] = {}
    for name, need in PAPER.experiments.items():
        if name.startswith("figure5/"):
            made[name] = made_up_on_text()
        elif isinstance(need, Experiment):
            made[name] = run_of(need.settings)
        elif name.startswith("probe/"):
            made[name] = fabricated(1.0 if "untrained" in name else 1.5, model=need.model)  # type: ignore[attr-defined]
    made["figure4/predicted"] = {name: [400.0, 0.9] for name in made}
    return made


@pytest.mark.parametrize("name", [figure.name for figure in PAPER.figures])
def test_every_figure_shows_its_needs(name: str, results: dict[str, Any]) -> None:
    (figure,) = (figure for figure in PAPER.figures if figure.name == name)
    own = {need: results[need] for need in PAPER.needs_of(figure) if need in results}
    drawn = PAPER.drawing(figure)(own)
    assert any(axes.has_data() for axes in drawn.axes)


def test_the_map_has_a_cell_for_each_setting_and_the_step_of_its_take_off(results: dict[str, Any]) -> None:
    names = [name for name in results if name.startswith(("figure4/squared/", "figure4/cross-entropy/"))]
    drawn = drawings.figure4_map({name: results[name] for name in names}, title="")
    texts = [text.get_text() for axes in drawn.axes for text in axes.texts]
    assert sum("500" in text for text in texts) == len(names)
